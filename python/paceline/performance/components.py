"""Components of a worker's time: one table, which sums, saved files, figures and pages read."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Component:
    """One component of a worker's time."""

    #: Its name in `BlockTiming`, or `overhead`; empty where blocks do not have it.
    attribute: str
    #: Its name in `WorkerTiming`; after Khoshlessan et al. 2020, Table 3.
    quantity: str
    #: Its name in tables of scaling, where `t_init_traj` is that of the whole run.
    column: str
    #: Its name in figures and tables.
    label: str
    #: Its name in sentences.
    activity: str
    #: Of Okabe and Ito's palette, which the colour-blind can tell apart (jfly.uni-koeln.de/color);
    #: as in Khoshlessan et al. 2020, computing is yellowish, reading blue, communicating red.
    colour: str
    #: One clause for readers of a report.
    meaning: str


OPEN = Component(
    *("open", "t_init_traj", "t_open", "open", "opening", "#cc79a7"),
    "opening the trajectory file, once a worker",
)
READ = Component(
    *("read", "t_io", "t_io", "read", "reading", "#0072b2"),
    "waiting for bytes of the file that reading ahead did not have ready",
)
DECODE = Component(
    *("decode", "t_decode", "t_decode", "decode", "decoding", "#56b4e9"),
    "turning bytes into positions",
)
TRANSFORM = Component(
    *("transform", "t_transform", "t_transform", "transform", "transforming", "#009e73"),
    "changing positions before they are analysed",
)
COMPUTE = Component(
    *("compute", "t_compute", "t_compute", "compute", "computing", "#e69f00"),
    "the analysis itself",
)
OVERHEAD = Component(
    *("overhead", "t_overhead", "t_overhead", "rest", "overhead", "#84898e"),
    "the rest of the time at blocks",
)
ABANDONED = Component(
    *("", "t_abandoned", "t_abandoned", "abandoned", "abandoned blocks", "#f0e442"),
    "at blocks that another worker was done with sooner",
)
WAIT = Component(
    *("wait", "t_wait", "t_wait", "wait", "waiting", "#d3d9de"),
    "idle: before the first block, between blocks, and after the last one until all were done",
)
COMM = Component(
    *("comm", "t_comm", "t_comm", "communicate", "communicating", "#d55e00"),
    "from the end of a block until its results were in their place, mostly while the worker was "
    "at its next block: no part of its wall time",
)
#: Tables of scaling tell it from other waiting.
STARTUP = Component(
    *("", "t_wait_first", "t_startup", "start-up", "starting", "#7f3c8d"),
    "idle before the first block",
)
#: Of the run, not of a worker: the time around blocks.
AROUND = Component(
    *("", "t_around", "t_around", "plan, collect", "planning and collecting", "#000000"),
    "before the first block was assigned, and after the last one was done",
)

#: Measured in each block, in the order in which they happen.
MEASURED = (OPEN, READ, DECODE, TRANSFORM, COMPUTE)
#: Adds up to the time at blocks that count.
AT_BLOCKS = (*MEASURED, OVERHEAD)
#: Adds up to the time at all blocks.
WORKING = (*AT_BLOCKS, ABANDONED)
#: Adds up to a worker's wall time.
WALL_TIME = (*WORKING, WAIT)
