"""What each layout of H5MD costs, by what is read of it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.data import Dataset
from benchmarks.experiments.experiment import Experiment, Row, Setting, cell, digits, median, spread
from benchmarks.experiments.style import OTHER, OURS, PAPER, legend_below, panels
from benchmarks.h5md_files import LAYOUTS, h5md_file
from benchmarks.measure import Run, samples, slopes, subjects
from benchmarks.table import Table

FILES = ("contiguous", "frame", "both", "atoms", "auto", "gzip1", "shuffle-gzip")
ACCESSES = ("whole frames", "the Cα atoms", "one atom")
#: Frames of a run of the others, which take milliseconds for some, and least seconds of a run.
FEWER, SECONDS = 100, 0.2


def mdanalysis(data: Dataset, path: Path, access: str) -> Run:
    """MDAnalysis, which reads whole frames whatever is wanted."""
    import MDAnalysis

    universe = MDAnalysis.Universe(data.topology, path)
    group = universe.atoms[wanted(data, access)]

    def run(n: int) -> None:
        for _ in universe.trajectory[:n]:
            group.positions  # noqa: B018  (what an analysis asks for)

    return run


def by_hand(data: Dataset, path: Path, access: str) -> Run:
    """One call of h5py's for each frame, or for the one atom in all of them."""
    import h5py

    atoms = wanted(data, access)
    file = h5py.File(path)
    (group,) = file["particles"].values()
    stored = group["position/value"]
    frame = np.empty(stored.shape[1:], np.float32)

    def run(n: int) -> None:
        if access == "one atom":
            stored[:n, atoms.start]
            return
        for k in range(n):
            stored.read_direct(frame, np.s_[k])
            frame[atoms]

    return run


def paceline(data: Dataset, path: Path, access: str) -> Run:
    """A run of paceline on one thread."""
    import paceline

    universe = paceline.Universe(data.topology, path)
    group = universe.atoms[wanted(data, access)]

    def run(n: int) -> None:
        series = paceline.TimeSeries(_nothing, group)
        series.run(stop=n, backend="threads", n_workers=1, progress=False)

    return run


def wanted(data: Dataset, access: str) -> slice | np.ndarray:
    """Which atoms are read."""
    if access == "the Cα atoms":
        return np.loadtxt(data.atoms, int)
    return slice(0, 1) if access == "one atom" else slice(None)


def _nothing(block) -> np.ndarray:
    """The times of a block, which are there anyway."""
    return block.times


TOOLS: dict[str, Callable[..., Run]] = {
    "MDAnalysis": mdanalysis,
    "h5py by hand": by_hand,
    "paceline": paceline,
}
COLOURS = {"MDAnalysis": OTHER, "h5py by hand": PAPER, "paceline": OURS}
MARKERS = {"MDAnalysis": "s", "h5py by hand": "^", "paceline": "o"}


def measure(setting: Setting) -> list[Row]:
    data = setting.water
    rows = []
    for layout in FILES:
        path = h5md_file(data, layout)
        for access in ACCESSES:
            how = {tool: (prepare, data, path, access) for tool, prepare in TOOLS.items()}
            fewer = {tool: min(FEWER, data.n_frames // 2) for tool in TOOLS if tool != "paceline"}
            if access == "one atom":
                fewer.pop("h5py by hand")
            with subjects(how) as (ready, _):
                samples(ready, 2, 1)
                at_least = SECONDS * min(setting.part, 1.0)
                taken = slopes(ready, data.n_frames // 2, setting.repeats, at_least, fewer)
            for tool, slope in taken.items():
                case = {"layout": layout, "access": access, "tool": tool}
                rows += [{**case, "us_frame": 1e6 * seconds} for seconds in slope.per_item]
    return rows


def table(rows: list[Row]) -> Table:
    found = Table(
        "µs a frame, by what is read; one thread, file in memory",
        ("chunks", "tool", *ACCESSES),
    )
    for layout in FILES:
        for tool in TOOLS:
            times = [
                cell(spread(rows, "us_frame", layout=layout, tool=tool, access=access))
                for access in ACCESSES
            ]
            found.rows.append((LAYOUTS[layout].title, tool, *times))
    return found


def draw(rows: list[Row]) -> Figure:
    figure, panes = panels(len(ACCESSES), 3.4)
    names = [LAYOUTS[layout].title for layout in FILES]
    for axes, access in zip(panes, ACCESSES, strict=True):
        for tool in TOOLS:
            times = [median(rows, "us_frame", layout=x, access=access, tool=tool) for x in FILES]
            axes.plot(
                times,
                range(len(FILES)),
                MARKERS[tool],
                color=COLOURS[tool],
                label=tool,
                markersize=6,
            )
        axes.set(title=access, xscale="log", xlabel="µs a frame")
        axes.set_yticks(range(len(FILES)), names if axes is panes[0] else [""] * len(FILES))
        axes.set_ylim(len(FILES) - 0.5, -0.5)
        axes.grid(axis="both", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
    legend_below(figure, panes[0])
    return figure


def finding(rows: list[Row]) -> str:
    def between(tool: str, access: str) -> str:
        times = [
            median(rows, "us_frame", layout=layout, access=access, tool=tool)
            for layout in ("contiguous", "auto")
        ]
        return f"{digits(times[0])} and {digits(times[1])}"

    access = "the Cα atoms"
    return (
        f"For the Cα atoms of a contiguous file and of one with automatic chunks MDAnalysis takes "
        f"{between('MDAnalysis', access)} µs a frame, h5py by hand "
        f"{between('h5py by hand', access)}, and paceline {between('paceline', access)}; for "
        f"whole frames paceline takes {between('paceline', 'whole frames')} µs."
    )


EXPERIMENT = Experiment(
    title="What a layout costs",
    source="Jakupovic & Beckstein 2021, whose conclusion it puts to the test",
    question=(
        "Reading depends on how access and layout go together, says the paper. Here are the "
        "common layouts, for whoever wants whole frames, the Cα atoms, or one atom of every "
        "frame, of 47,681 atoms."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "HDF5 reads and decodes a chunk as often as somebody asks for a part of it, unless its "
        "cache of some MB still holds it. paceline plans a block of frames before it reads, "
        "takes each chunk that the block needs once, and of plain bytes only the runs that hold "
        "wanted atoms. What remains of a bad layout is that more bytes have to be read than are "
        "wanted."
    ),
)
