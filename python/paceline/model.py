"""Prediction of the time of an analysis on any number of workers, by arithmetic: nothing is run.

`predict` is the whole of it; the manual explains the formula term by term under "The model".
"""

from paceline._util.choices import SCHEDULES
from paceline.performance.model import (
    FILE_SYSTEMS,
    LAYOUTS,
    FileSystem,
    FrameCost,
    Prediction,
    Unevenness,
    predict,
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
