"""Prediction of the time of an analysis on any number of workers, by arithmetic: nothing is run.

`predict` is the whole of it; the manual explains the formula term by term under "The model".
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline._util.choices import SCHEDULES
    from paceline.scaling.predict import FrameCost, Prediction, Unevenness, predict
    from paceline.scaling.systems import (
        FILE_SYSTEMS,
        LAYOUTS,
        FileSystem,
    )

__all__ = [
    "FILE_SYSTEMS",
    "LAYOUTS",
    "SCHEDULES",
    "FileSystem",
    "FrameCost",
    "Prediction",
    "Unevenness",
    "predict",
]

# Imported when first used: the command line takes the names of systems alone.
_HOMES = {
    "FILE_SYSTEMS": "paceline.scaling.systems",
    "LAYOUTS": "paceline.scaling.systems",
    "SCHEDULES": "paceline._util.choices",
    "FileSystem": "paceline.scaling.systems",
    "FrameCost": "paceline.scaling.predict",
    "Prediction": "paceline.scaling.predict",
    "Unevenness": "paceline.scaling.predict",
    "predict": "paceline.scaling.predict",
}
#: Names of earlier versions.
_REMOVED = ("NETWORKS", "Network")


def __getattr__(name: str) -> Any:
    if name in _REMOVED:
        raise AttributeError(
            f"paceline.model.{name} was removed: bringing results together takes milliseconds, and "
            "changed no prediction; leave out network= and result_bytes="
        )
    if name not in _HOMES:
        raise AttributeError(f"module 'paceline.model' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
