"""Molecular dynamics trajectories, analysed on every core.

Names are imported on first use, so that a worker process imports only what it needs.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if sys.hexversion < 0x030B0000:
    found = ".".join(map(str, sys.version_info[:2]))
    raise ImportError(
        f"paceline needs Python 3.11 or newer, found {found}: install it with a newer one"
    )
try:
    from paceline._core import __version__
except ImportError as error:
    raise ImportError(
        f"paceline's compiled core cannot be loaded ({error}): paceline was installed for another "
        "kind of machine, or not built; install it again on this machine, with the Python that "
        "runs it"
    ) from None

if TYPE_CHECKING:
    from paceline.advice import advise
    from paceline.analysis.base import AnalysisBase
    from paceline.analysis.convergence import convergence
    from paceline.analysis.convert import Write
    from paceline.analysis.correlation import Correlation
    from paceline.analysis.functions import RaggedTimeSeries, Reduce, Scan, TimeSeries
    from paceline.analysis.survey import survey
    from paceline.analysis.survey_tables import open_survey
    from paceline.analysis.training_batches import FrameBatches
    from paceline.analysis.validate import validate
    from paceline.contract.plan import balanced_slices
    from paceline.live_runner import live
    from paceline.mdanalysis.dask_array import dask_array
    from paceline.mdanalysis.h5md_writer import H5MDWriter
    from paceline.mdanalysis.registration import register, unregister
    from paceline.runner import run
    from paceline.split_join import join, split
    from paceline.trajectory.file_trajectory import open
    from paceline.universe import Universe

__all__ = [
    "AnalysisBase",
    "Correlation",
    "FrameBatches",
    "H5MDWriter",
    "RaggedTimeSeries",
    "Reduce",
    "Scan",
    "TimeSeries",
    "Universe",
    "Write",
    "__version__",
    "advise",
    "analysis",
    "backends",
    "balanced_slices",
    "convergence",
    "dask_array",
    "errors",
    "join",
    "live",
    "open",
    "open_survey",
    "register",
    "run",
    "snapshot",
    "split",
    "survey",
    "transform",
    "unregister",
    "validate",
]

_HOMES = {
    "AnalysisBase": "paceline.analysis.base",
    "Correlation": "paceline.analysis.correlation",
    "FrameBatches": "paceline.analysis.training_batches",
    "H5MDWriter": "paceline.mdanalysis.h5md_writer",
    "RaggedTimeSeries": "paceline.analysis.functions",
    "Reduce": "paceline.analysis.functions",
    "Scan": "paceline.analysis.functions",
    "TimeSeries": "paceline.analysis.functions",
    "Universe": "paceline.universe",
    "Write": "paceline.analysis.convert",
    "advise": "paceline.advice",
    "balanced_slices": "paceline.contract.plan",
    "convergence": "paceline.analysis.convergence",
    "dask_array": "paceline.mdanalysis.dask_array",
    "join": "paceline.split_join",
    "live": "paceline.live_runner",
    "open": "paceline.trajectory.file_trajectory",
    "open_survey": "paceline.analysis.survey_tables",
    "register": "paceline.mdanalysis.registration",
    "run": "paceline.runner",
    "split": "paceline.split_join",
    "survey": "paceline.analysis.survey",
    "unregister": "paceline.mdanalysis.registration",
    "validate": "paceline.analysis.validate",
}


def __getattr__(name: str) -> Any:
    if name in ("analysis", "backends", "errors", "snapshot", "torch", "transform"):
        return import_module(f"paceline.{name}")
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}") from None
    try:
        value = getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name != "MDAnalysis":
            raise
        from paceline.errors import needs_mdanalysis

        raise needs_mdanalysis(f"paceline.{name}") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


def load_ipython_extension(ipython: object) -> None:
    """Register with MDAnalysis, for ``%load_ext paceline`` in a notebook."""
    __getattr__("register")()


def unload_ipython_extension(ipython: object) -> None:
    """End the registration with MDAnalysis, for ``%unload_ext paceline``."""
    __getattr__("unregister")()
