"""Make analyses from their names and parameters, as in tables of a battery file or in commands."""

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from paceline._util.arguments import parameters_of
from paceline._util.json_types import JsonObject
from paceline.analysis.base import AnalysisBase
from paceline.contract.analysis_declaration import Description
from paceline.contract.read_catalogue import catalogue
from paceline.contract.system_interface import System
from paceline.errors import SelectionError, UnsupportedError
from paceline.performance.number_format import joined
from paceline.transform.known_and_guessed_bonds import describe_missing_bonds
from paceline.transform.selections_and_weights import select_atoms

#: Classes by the short names that a battery file may use; other classes need module.Class.
NAMES = {name: one["class"] for name, one in catalogue().items() if one["in_batteries"]}
#: Commands that compute from the results of analyses, and their names in Python.
FROM_RESULTS = {
    "diffusionmap": "diffusionmap.DiffusionMap",
    "surface": "free_energy.free_energy_surface",
}
#: Names of parameters of type AtomGroup, for which battery files contain selections.
ATOMS = (
    *("atomgroup", "atoms", "mobile", "reference", "refgroup", "surface", "u", "universe"),
    *("atomgroups", "g1", "g2", "ag1", "ag2", "ag3", "ags"),
)
#: Names of parameters of type UpdatingAtomGroup, whose atoms are selected again in each frame.
UPDATING = ("group",)


def class_of(analysis: object, where: str = "") -> type[AnalysisBase]:
    """Find a class by a short name, or by module and class; `where` begins the error message."""
    for command, name in FROM_RESULTS.items():
        if analysis in (command, name):
            raise UnsupportedError(
                f"{where}{analysis!r} is computed from the results of other analyses, and cannot "
                f"run together with them: use 'paceline {command}'"
            )
    path = NAMES.get(analysis, analysis) if isinstance(analysis, str) else ""
    module, _, words = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(f"paceline.analysis.{module}"), words)
    except (ImportError, AttributeError):
        found = _declared_as(analysis)
    if not (isinstance(found, type) and issubclass(found, AnalysisBase)):
        raise UnsupportedError(
            f"{where}there is no analysis {analysis!r}; expected {', '.join(sorted(NAMES))}, "
            "or module and class in paceline.analysis"
        )
    return found


def _declared_as(name: object) -> type[AnalysisBase] | None:
    """Find the class whose declaration has a name, also among users' classes; None if none has it.

    If several classes have the name, the last of them is found.
    """
    found = None
    waiting: list[type[AnalysisBase]] = [AnalysisBase]
    for cls in waiting:
        waiting += cls.__subclasses__()
        declared = vars(cls).get("declaration")
        if declared is not None and declared.name == name:
            found = cls
    return found


def check_descriptions(descriptions: Mapping[str, Description]) -> None:
    """Raise `UnsupportedError` for an unknown analysis or parameter; no system is needed."""
    for name, description in descriptions.items():
        _parameters(name, description)


class _Parameters(NamedTuple):
    """Class of an analysis, its parameters, and the values in its description.

    `shown` maps parameters to the names that messages use, if these names differ.
    """

    cls: type[AnalysisBase]
    known: Mapping[str, inspect.Parameter]
    given: JsonObject
    shown: Mapping[str, str]


def _parameters(name: str, description: Description) -> _Parameters:
    """Find the class and the parameters of a description; raise an error for unknown names."""
    if Path(name).name != name or name in ("", ".", ".."):
        raise UnsupportedError(f"[{name}]: the name is used for files, and is not a valid filename")
    given = dict(description)
    cls = class_of(given.pop("analysis", name), f"[{name}]: ")
    known = parameters_of(cls)
    first = next(iter(known))
    takes_atoms = first in (*ATOMS, *UPDATING) or first == "select"
    has_select = takes_atoms and (first == "select" or "select" not in known)
    shown = {first: "select"} if has_select and first not in given else {}
    if shown:
        given[first] = given.pop("select", "all")
    unknown = sorted(given.keys() - known.keys())
    if unknown:
        raise UnsupportedError(
            f"[{name}]: {cls.__name__} has no parameter {', '.join(unknown)}; it has "
            f"{', '.join(shown.get(key, key) for key in known if key not in ('verbose', 'kwargs'))}"
        )
    return _Parameters(cls, known, given, shown)


def make_analysis(name: str, description: Description, universe: System) -> AnalysisBase:
    """Make the analysis that a table of a battery file describes."""
    cls, known, given, shown = _parameters(name, description)
    first = next(iter(known))
    atoms = {*ATOMS, *UPDATING} | ({first} if first == "select" else set())
    given.setdefault(first, universe)
    lacking = [
        key
        for key, one in known.items()
        if one.default is one.empty and one.kind == one.POSITIONAL_OR_KEYWORD and key not in given
    ]
    if lacking:
        raise UnsupportedError(f"[{name}]: {cls.__name__} also needs {joined(lacking)}")
    try:
        for key, value in given.items():
            if key in atoms:
                given[key] = select_described(
                    f"[{name}]: {shown.get(key, key)}", key, value, universe
                )
        return cls(**given)
    except Exception as error:
        if not f"{error}".startswith(f"[{name}]"):
            error.add_note(f"in [{name}] of the battery")
        raise


def select_described(where: str, key: str, given: object, universe: System) -> object:
    """Replace selections, and lists of selections, by atom groups; return other values as is."""
    if isinstance(given, list):
        return tuple(select_described(where, key, one, universe) for one in given)
    if not isinstance(given, str):
        return given
    atoms = select_atoms(universe, [given], where, updating=key in UPDATING)
    if len(atoms) == 0 and key not in UPDATING:
        lack = describe_missing_bonds(universe, given)
        raise SelectionError(f"{where}: no atoms match {given!r}{lack}")
    return atoms
