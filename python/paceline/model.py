"""Predict the time of an analysis with any number of workers, by arithmetic: nothing is run.

`predict` is the main function; the manual explains the formula term by term under "The model".
"""

from paceline._util.option_values_and_selections import SCHEDULES
from paceline.performance.model import (
    FILE_SYSTEMS,
    LAYOUTS,
    FileSystem,
    FrameCost,
    Prediction,
    Prices,
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
    "Prices",
    "Unevenness",
    "predict",
]
