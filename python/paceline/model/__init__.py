"""How long an analysis takes on so many workers: a prediction by arithmetic, nothing is run.

`predict` is the whole of it; the formula, term by term, is told in the manual under "The model".
"""

from paceline.model.cost import FrameCost
from paceline.model.formula import LAYOUTS, SCHEDULES, Prediction, predict
from paceline.model.sharing import Unevenness
from paceline.model.systems import FILE_SYSTEMS, NETWORKS, FileSystem, Network

__all__ = [
    "FILE_SYSTEMS",
    "LAYOUTS",
    "NETWORKS",
    "SCHEDULES",
    "FileSystem",
    "FrameCost",
    "Network",
    "Prediction",
    "Unevenness",
    "predict",
]
