"""Who did what, when, for how long.

The quantities are those of Khoshlessan et al. 2020, Table 3, where they still exist here.
"""

from paceline.timing.records import Abandoned, BlockTiming, WorkerTiming
from paceline.timing.straggling import Straggler
from paceline.timing.timings import Timings

__all__ = ["Abandoned", "BlockTiming", "Straggler", "Timings", "WorkerTiming"]
