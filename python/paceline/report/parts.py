"""The parts of a worker's time: their names, meanings and colours, the same in every figure."""

from dataclasses import dataclass

#: Text and axes, lines behind the data, and the paper; a page has its own for a dark screen.
INK, GRID, PAPER = "#1f2a33", "#dfe4e8", "#ffffff"


@dataclass(frozen=True, slots=True)
class Part:
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
    Part("open", "t_init_traj", "open", "#cc79a7"),
    Part("read", "t_io", "read", "#0072b2"),
    Part("decode", "t_decode", "decode", "#56b4e9"),
    Part("transform", "t_transform", "transform", "#009e73"),
    Part("compute", "t_compute", "compute", "#e69f00"),
    Part("overhead", "t_overhead", "rest", "#84898e"),
    Part("", "t_abandoned", "abandoned", "#f0e442"),
)
WAITING = Part("", "t_wait", "wait", "#d3d9de")
COMMUNICATING = Part("comm", "t_comm", "communicate", "#d55e00")

#: Of each part, by its label.
COLOURS = {part.label: part.colour for part in (*WORKING, WAITING, COMMUNICATING)}
