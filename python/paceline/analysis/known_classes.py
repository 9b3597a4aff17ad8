"""Classes of analyses by the short names of commands and batteries."""

import importlib

from paceline.analysis.base import AnalysisBase
from paceline.contract.catalogue import catalogue
from paceline.errors import UnsupportedError

#: Classes by the short names that a battery file may use; other classes need module.Class.
NAMES = {name: one["class"] for name, one in catalogue().items() if one["in_batteries"]}
#: Computations from the results of analyses: command, and name in Python.
FROM_RESULTS = {
    "diffusionmap": "diffusionmap.DiffusionMap",
    "surface": "free_energy.free_energy_surface",
}


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
    """Find the class that most recently declared a name; includes classes of users."""
    found = None
    waiting: list[type[AnalysisBase]] = [AnalysisBase]
    for cls in waiting:
        waiting += cls.__subclasses__()
        declared = vars(cls).get("declaration")
        if declared is not None and declared.name == name:
            found = cls
    return found
