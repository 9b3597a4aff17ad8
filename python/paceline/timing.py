"""Timings of a run: who did what, when, for how long.

The quantities are those of Khoshlessan et al. 2020, Table 3, where they still exist here.
"""

from paceline.performance.records import BlockTiming, DuplicateAttempt, WorkerTiming
from paceline.performance.stragglers import Straggler
from paceline.performance.timings import Timings

__all__ = ["BlockTiming", "DuplicateAttempt", "Straggler", "Timings", "WorkerTiming"]
