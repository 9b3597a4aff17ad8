"""Analyses, under the module and class names of MDAnalysis.analysis.

Modules and names that paceline lacks are imported from MDAnalysis. The analysis classes among them
run on paceline's workers, too.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

_OURS, _THEIRS = "paceline.analysis.", "MDAnalysis.analysis."
#: Public modules of this package that contain no analysis class of the catalogue.
_FURTHER = ("base", "battery", "convert", "free_energy", "functions", "replicas", "validate")
#: Classes, as MODULE.CLASS of MDAnalysis or an earlier paceline version, that paceline defines in
#: another module: the name of that module.
_ELSEWHERE = {
    "atomicdistances.AtomicDistances": "distances",
    "distances.CoordinationNumbers": "neighbors",
    "distances.NeighborList": "neighbors",
    "polymer.PersistenceLength": "persistence_length",
}


class _Finder(MetaPathFinder, Loader):
    """Import hook for modules that MDAnalysis has and paceline lacks."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(_OURS):
            return None
        theirs = find_spec(_THEIRS + fullname.removeprefix(_OURS))
        if theirs is None:
            return None
        is_package = theirs.submodule_search_locations is not None
        return ModuleSpec(fullname, self, is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        theirs = import_module(_THEIRS + module.__name__.removeprefix(_OURS))
        module.__doc__ = theirs.__doc__
        module.__dict__["__getattr__"] = lambda name: name_of_mdanalysis(module.__name__, name)
        public = getattr(theirs, "__all__", [name for name in dir(theirs) if name[0] != "_"])
        module.__dict__["__all__"] = list(public)


# Append the finder, so that paceline's own modules are found first.
sys.meta_path.append(_Finder())


def _classes() -> dict[str, str]:
    """Return the module of each analysis class in the catalogue, by class name."""
    from paceline.contract.read_catalogue import catalogue

    found: dict[str, str] = {}
    for one in catalogue().values():
        module, _, cls = one["class"].partition(".")
        found |= dict.fromkeys([cls, *one["variants"]], module)
    return found


def __dir__() -> list[str]:
    homes = _classes()
    return sorted({*homes, *homes.values(), *_FURTHER})


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    if home := _classes().get(name):
        return _from(_OURS + home, name)
    try:
        return import_module(_OURS + name)
    except ModuleNotFoundError as error:
        if error.name != _OURS + name:
            raise
        raise AttributeError(f"module 'paceline.analysis' has no attribute {name!r}") from None


def _from(module: str, name: str) -> object:
    """Import a name from a module."""
    return getattr(import_module(module), name)


def name_of_mdanalysis(module: str, name: str) -> object:
    """Return a name from the MDAnalysis module that corresponds to a module of paceline."""
    if name.startswith("__"):
        raise AttributeError(name)
    from paceline.mdanalysis.analyses import on_paceline_workers

    within = module.removeprefix(_OURS)
    if home := _ELSEWHERE.get(f"{within}.{name}"):
        found = _from(_OURS + home, name)
    else:
        found = _from(_THEIRS + within, name)
        # A module of MDAnalysis such as `hydrogenbonds.hbond_analysis` corresponds to part of
        # paceline's `hydrogenbonds`, a single module: prefer the class of paceline's module.
        package = sys.modules[module.rpartition(".")[0]]
        own = vars(package).get(name)
        is_own = getattr(own, "__module__", None) == package.__name__
        found = own if is_own else on_paceline_workers(found, module)
    setattr(sys.modules[module], name, found)
    return found
