"""Who did what, when, for how long.

The quantities are those of Khoshlessan et al. 2020, Table 3, where they still exist here.
"""

from paceline.performance.records import Abandoned, BlockTiming, WorkerTiming
from paceline.performance.stragglers import Straggler
from paceline.performance.timings import Timings

__all__ = ["Abandoned", "BlockTiming", "Straggler", "Timings", "WorkerTiming"]
