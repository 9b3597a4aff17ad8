"""Repeat the call that a result of a script records; see `recorded_call` for its format."""

import importlib
import inspect
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass

import numpy as np

from paceline._util.files import is_address
from paceline._util.json_types import JsonObject
from paceline.analysis.base import AnalysisBase
from paceline.analysis.recorded_call import PACKAGE, UNKNOWN, unpack
from paceline.analysis.results import Results, further_results
from paceline.analysis.saved_table_format import CALL, FURTHER
from paceline.contract.system_interface import System, attribute_of
from paceline.contract.transform_interface import Transform
from paceline.errors import PacelineError, UnsupportedError
from paceline.transform import molecules, periodic, superpose

#: Classes of transformations by name.
STEPS = {
    name: one
    for module in (molecules, periodic, superpose)
    for name, one in vars(module).items()
    if isinstance(one, type) and is_dataclass(one) and issubclass(one, Transform)
}
#: Options of a Universe that a result may name. Others would write files, or read other files.
OPTIONS_OF_SYSTEMS = {
    *("atoms", "continuous", "dataset", "dt", "factor", "format", "group", "guess_bonds", "radii"),
    *("sub", "to_guess", "topology_format", "units", "atom_style", "all_coordinates"),
}
#: Maximum size of an element of an array in a call, bytes.
MOST_OF_A_VALUE = 1024


class RepeatedCall:
    """Call of a script that is recorded among the `facts` of a result file.

    `locate` returns the path of a file by its recorded name. Raises `UnsupportedError` for a line
    that does not describe a call.
    """

    def __init__(self, facts: Mapping[str, str], locate: Callable[[str], str]):
        line = facts.get(CALL, f"{UNKNOWN}the file names neither a command nor a call")
        if line.startswith(UNKNOWN):
            raise UnsupportedError(
                f"the script's call is not recorded, because {line.removeprefix(UNKNOWN)}"
            )
        try:
            self._call = json.loads(line)
            self._kind = _class_of(f"{self._call['class']}")
        except UnsupportedError:
            raise
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise _unreadable(error) from None
        if facts.get("analysis") != self._kind.__name__:
            raise UnsupportedError(
                f"it was computed from the results of {self._kind.__name__}, in a way that is not "
                "recorded: run the script again"
            )
        self._further, self._locate = facts.get(FURTHER), locate
        self._systems: list[System] = []

    @property
    def files(self) -> list[str]:
        """Names of the files of all systems, as the script named them."""
        try:
            return [f"{name}" for one in self._call["systems"] for name in one["files"]]
        except (KeyError, TypeError) as error:
            raise _unreadable(error) from None

    def results(self, n_workers: int | None = None) -> Results:
        """Open the systems, run the analysis, and return the results that the line describes."""
        call = self._call
        try:
            self._systems = [self._open(one) for one in call["systems"]]
            args = [self._value(one) for one in call["args"]]
            kwargs = {key: self._value(one) for key, one in call["options"].items()}
            frames = unpack(call["frames"])
            transforms = [self._value(one) for one in call.get("transforms", ())]
            given = inspect.signature(self._kind).bind_partial(*args, **kwargs).arguments
            named = given.get("filename"), given.get("path")
            if named != (None, None) or self._kind.__name__ == "AlignTraj":
                raise UnsupportedError(
                    f"{self._kind.__name__} writes another file, too: run the script again"
                )
            made: AnalysisBase = self._kind(*args, **kwargs)  # type: ignore[arg-type]
        except (PacelineError, OSError):
            raise
        except (KeyError, TypeError, ValueError, AssertionError, IndexError, zlib.error) as error:
            raise _unreadable(error) from None
        made.run(
            frames=frames,
            n_workers=n_workers,
            transforms=transforms,  # type: ignore[arg-type]
            on_error=call.get("on_error", "raise"),
            progress=False,
        )
        return made.results if self._further is None else further_results(made)[self._further]

    def _open(self, described: JsonObject) -> System:
        from paceline.universe import Universe  # imported here, because it imports MDAnalysis

        names = [name if is_address(name) else self._locate(name) for name in described["files"]]
        given = described.get("options", {})
        if not isinstance(given, dict) or not given.keys() <= OPTIONS_OF_SYSTEMS:
            raise UnsupportedError(f"the result names options that are not repeated: {given}")
        options = {key: self._value(one) for key, one in given.items()}
        opened: System = Universe(*names, **options)
        _ = opened.trajectory[int(described.get("frame", 0))]
        return opened

    def _value(self, given: object) -> object:
        """Return the value that JSON describes."""
        if isinstance(given, list):
            return [self._value(one) for one in given]
        if not isinstance(given, dict):
            return given
        if "tuple" in given:
            return tuple(self._value(one) for one in given["tuple"])
        if "dict" in given:
            return {self._value(key): self._value(one) for key, one in given["dict"]}
        if "number" in given:
            return float(given["number"])
        if "array" in given:
            kind = np.dtype(given["dtype"])
            if kind.hasobject or kind.itemsize > MOST_OF_A_VALUE:
                raise ValueError(f"an array of {kind}")
            return np.array(self._value(given["array"]), kind)
        if "step" in given:
            values = {key: self._value(one) for key, one in given["fields"].items()}
            return STEPS[given["step"]](**values)
        if "texts" in given:
            base = attribute_of(self._value(given["base"]), "select_atoms")
            group: object = base(*given["texts"], updating=True)
            return group
        system = self._systems[given["system"]]
        if "residues" in given:
            return system.residues[unpack(given["residues"])]
        if "atoms" not in given:
            return system
        indices = unpack(given["atoms"])
        # For all atoms, return MDAnalysis's own group of them, which some analyses recognise.
        is_all = np.array_equal(indices, np.arange(len(system.atoms)))
        return system.atoms if is_all else system.atoms[indices]


def _class_of(name: str) -> type[AnalysisBase]:
    """Find a class of paceline's analyses; `name` is, for example, "rms.RMSD"."""
    module, _, words = name.rpartition(".")
    if not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(name)
    try:
        found = vars(importlib.import_module(f"{PACKAGE}{module}")).get(words)
    except ImportError:
        found = None
    if not (isinstance(found, type) and issubclass(found, AnalysisBase)):
        raise UnsupportedError(f"this version of paceline has no class {name}")
    return found


def _unreadable(error: Exception) -> UnsupportedError:
    """Return the error for a line that does not describe a call of this version."""
    return UnsupportedError(
        f"the line {CALL!r} does not describe a call of this version of paceline ({error!r})"
    )
