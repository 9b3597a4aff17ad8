"""The parts of a worker's time: their names, meanings and colours, the same in every figure."""

from dataclasses import dataclass

#: Of a worker, and over workers.
OF_WORKERS = {
    "t_init_traj": "opening the trajectory file, once a worker",
    "t_io": "waiting for bytes of the file that reading ahead did not have ready",
    "t_decode": "turning bytes into positions",
    "t_transform": "changing positions before they are analysed",
    "t_compute": "the analysis itself",
    "t_overhead": "the rest of the time at blocks",
    "t_abandoned": "at blocks that another worker was done with sooner",
    "t_wait": "idle: before the first block, between blocks, and after the last one until all were "
    "done",
    "t_comm": "from the end of a block until its results were in their place, mostly while the "
    "worker was at its next block: no part of its wall time",
}
#: Of the whole run.
OF_RUN = {
    "t_total": "the whole run",
    "t_init_top": "parsing the topology, once, before the run",
    "t_init_traj": "opening the trajectory and its index, once, before the run",
    "t_before": "from the beginning of the run until blocks were first dealt",
    "t_blocks": "from then until the last block was done: the wall time of every worker",
    "t_after": "from then until the results were there",
    "t_comm": "receiving and merging results, in the process that collects them",
    "R_comp_IO": "computing over reading and decoding: much above 1, the job is bound by computing "
    "and scales; much below, by reading",
    "R_comp_comm": "mean computing of a worker over communicating: much above 1, more workers pay",
    "imbalance": "the last worker's end over the mean of all workers' ends: 1 where all end "
    "together",
    "bytes_read": "asked of the files",
    "calls": "in how many calls they were asked for",
    "bytes_used": "size of the decoded numbers that the analyses asked for",
    "read_per_used": "bytes read per byte used: below 1 where the file is compressed, above 1 "
    "where it holds much that nobody asked for",
    "read_rate": "bytes read per second of t_blocks, by all workers together",
}

#: Text and axes, lines behind the data, and the paper; a page has its own for a dark screen.
INK, GRID, PAPER = "#1f2a33", "#dfe4e8", "#ffffff"


@dataclass(frozen=True, slots=True)
class Component:
    """One part of a worker's time.

    Attributes
    ----------
    block : str
        Its name in `BlockTiming`; empty where it is no part of a block that counts.
    quantity : str
        Its name in `WorkerTiming`.
    label : str
        What figures and tables call it.
    colour : str
        Of Okabe and Ito's palette, which the colour-blind can tell apart (jfly.uni-koeln.de/color);
        as in Khoshlessan et al. 2020, computing is yellowish, reading blue, communicating red.
    """

    block: str
    quantity: str
    label: str
    colour: str


#: What a worker does, in the order in which it happens.
WORKING = (
    Component("open", "t_init_traj", "open", "#cc79a7"),
    Component("read", "t_io", "read", "#0072b2"),
    Component("decode", "t_decode", "decode", "#56b4e9"),
    Component("transform", "t_transform", "transform", "#009e73"),
    Component("compute", "t_compute", "compute", "#e69f00"),
    Component("overhead", "t_overhead", "rest", "#84898e"),
    Component("", "t_abandoned", "abandoned", "#f0e442"),
)
WAITING = Component("", "t_wait", "wait", "#d3d9de")
COMMUNICATING = Component("comm", "t_comm", "communicate", "#d55e00")

#: Of each part, by its label.
COLOURS = {part.label: part.colour for part in (*WORKING, WAITING, COMMUNICATING)}
