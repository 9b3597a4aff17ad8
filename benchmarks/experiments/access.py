"""Time to read each H5MD layout, for different access patterns."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.data import Dataset
from benchmarks.experiments.experiment import (
    Experiment,
    Row,
    Setting,
    cell,
    median,
    ratio,
    spread,
)
from benchmarks.experiments.style import OTHER, OURS, PAPER, legend_below, panels
from benchmarks.h5md_files import LAYOUTS, h5md_file
from benchmarks.measure import Here, Run, slopes
from benchmarks.table import Table

FILES = ("contiguous", "frame", "both", "atoms", "auto", "gzip1", "shuffle-gzip")
WHOLE, CA, ONE = ACCESSES = ("whole frames", "the Cα atoms", "one atom")
#: Method by which each tool reads for each access pattern; equal methods are measured once.
TOOLS = {
    "MDAnalysis": (WHOLE, WHOLE, WHOLE),
    "h5py by hand": (WHOLE, WHOLE, ONE),
    "paceline": (WHOLE, CA, ONE),
}
COLOURS = {"MDAnalysis": OTHER, "h5py by hand": PAPER, "paceline": OURS}
MARKERS = {"MDAnalysis": "s", "h5py by hand": "^", "paceline": "o"}
#: Number of frames in a run that reads them one by one, and minimum duration of a run, seconds.
FEWER, SECONDS = 30, 0.5
#: Shorter times are drawn as this, µs per frame, because short runs are inaccurate.
LEAST = 1.0


def mdanalysis(universe: Any) -> Run:
    """Read frame by frame with MDAnalysis."""

    def run(n: int) -> None:
        for _ in universe.trajectory[:n]:
            pass

    return run


def by_hand(path: Path, access: str) -> Run:
    """Read with one h5py call per frame, or one call for an atom in all frames."""
    import h5py

    def run(n: int) -> None:
        # Opened again, because HDF5 would keep chunks of the previous run in its cache.
        with h5py.File(path) as file:
            (group,) = file["particles"].values()
            stored = group["position/value"]
            if access == ONE:
                stored[:n, 0]
                return
            frame = np.empty(stored.shape[1:], np.float32)
            for k in range(n):
                stored.read_direct(frame, np.s_[k])

    return run


def paceline(universe: Any, data: Dataset, access: str) -> Run:
    """A run of paceline on one thread."""
    from paceline import TimeSeries

    wanted = {WHOLE: slice(None), CA: np.loadtxt(data.atoms, int), ONE: slice(0, 1)}
    group = universe.atoms[wanted[access]]

    def run(n: int) -> None:
        series = TimeSeries(_nothing, group)
        series.run(stop=n, backend="threads", n_workers=1, progress=False)

    return run


def _nothing(block: Any) -> np.ndarray:
    """Return the times of a block, which exist anyway."""
    return block.times


def measure(setting: Setting) -> list[Row]:
    import MDAnalysis

    import paceline as ours

    data = setting.water
    files = [h5md_file(data, layout) for layout in FILES]
    theirs = MDAnalysis.Universe(data.topology, files[0])
    universe = ours.Universe(data.topology, files[0])
    rows = []
    for layout, path in zip(FILES, files, strict=True):
        theirs.load_new(path)
        universe.load_new(path)
        runs = {
            ("MDAnalysis", WHOLE): mdanalysis(theirs),
            **{("h5py by hand", access): by_hand(path, access) for access in (WHOLE, ONE)},
            **{("paceline", access): paceline(universe, data, access) for access in ACCESSES},
        }
        rows += _rows(setting, layout, runs)
    return rows


def _rows(setting: Setting, layout: str, runs: dict[tuple[str, str], Run]) -> list[Row]:
    """Measure µs per frame for each tool and access pattern, in turn, round after round."""
    n_frames = setting.water.n_frames // 2
    one_by_one = {("MDAnalysis", WHOLE), ("h5py by hand", WHOLE)}
    ready = [Here(case, run) for case, run in runs.items()]
    for one in ready:
        one.run(2)
    fewer = dict.fromkeys(one_by_one, min(FEWER, n_frames))
    taken = slopes(ready, n_frames, setting.repeats, SECONDS * min(setting.part, 1.0), fewer)
    return [
        {"layout": layout, "access": access, "tool": tool, "us_frame": 1e6 * seconds}
        for (tool, access), slope in taken.items()
        for seconds in slope.per_item
    ]


def measured(tool: str, access: str) -> dict[str, str]:
    """Return the columns that select a tool's rows for an access pattern."""
    return {"tool": tool, "access": TOOLS[tool][ACCESSES.index(access)]}


def table(rows: list[Row]) -> Table:
    found = Table(
        "µs a frame for each access, without the fixed cost of a run; one thread, file in memory; "
        f"an access that reads whole frames has their time; the figure has {LEAST:g} for all that "
        "is less",
        ("chunks", "tool", *ACCESSES),
    )
    for layout in FILES:
        for tool in TOOLS:
            times = [
                cell(spread(rows, "us_frame", layout=layout, **measured(tool, access)))
                for access in ACCESSES
            ]
            found.rows.append((LAYOUTS[layout].title, tool, *times))
    return found


def draw(rows: list[Row]) -> Figure:
    figure, panes = panels(len(ACCESSES), 4.2)
    names = [LAYOUTS[layout].title for layout in FILES]
    for axes, access in zip(panes, ACCESSES, strict=True):
        for place, tool in enumerate(TOOLS):
            times = [
                spread(rows, "us_frame", layout=layout, **measured(tool, access))
                for layout in FILES
            ]
            low, middle, high = np.maximum(
                np.transpose([(time.low, time.median, time.high) for time in times]), LEAST
            )
            axes.errorbar(
                middle,
                [k + 0.22 * (place - 1) for k in range(len(FILES))],
                xerr=(middle - low, high - middle),
                fmt=MARKERS[tool],
                color=COLOURS[tool],
                label=tool,
                markersize=5,
            )
        if axes is not panes[0]:
            axes.sharex(panes[0])
        axes.set(title=access, xscale="log", xlabel="µs a frame")
        axes.set_yticks(range(len(FILES)), names if axes is panes[0] else [""] * len(FILES))
        axes.set_ylim(len(FILES) - 0.5, -0.5)
        axes.set_yticks([k + 0.5 for k in range(len(FILES) - 1)], minor=True)
        axes.tick_params(axis="y", which="both", length=0)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes.grid(axis="y", which="minor", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
    legend_below(figure, panes[0])
    return figure


def finding(rows: list[Row]) -> str:
    def penalty(tool: str, access: str) -> str:
        """Return the time of the worst uncompressed layout, relative to the best."""
        case = measured(tool, access)
        times = {
            layout: median(rows, "us_frame", layout=layout, **case)
            for layout in FILES
            if not LAYOUTS[layout].compressed
        }
        worst, best = ({"layout": which(times, key=times.__getitem__)} for which in (max, min))
        return cell(ratio(rows, "us_frame", worst, best, **case))

    whole = [penalty(tool, WHOLE) for tool in TOOLS]
    frame, both = (
        cell(spread(rows, "us_frame", layout=layout, tool="paceline", access=ONE))
        for layout in ("frame", "both")
    )
    return (
        f"Of the layouts without compression the worst one takes MDAnalysis {whole[0]} times as "
        f"long as the best one for whole frames, h5py by hand {whole[1]} and paceline {whole[2]} "
        f"times; for the Cα atoms paceline {penalty('paceline', CA)} times. One atom of every "
        f"frame takes paceline {frame} µs a frame where a chunk holds one frame, and {both} where "
        f"it holds 16."
    )


EXPERIMENT = Experiment(
    title="What a layout costs",
    source="Jakupovic & Beckstein 2021, whose conclusion it puts to the test",
    question=(
        "According to the paper, reading depends on both access and layout. The experiment reads "
        "whole frames, the Cα atoms, or one atom of every frame, of 47,681 atoms, in the common "
        "layouts. MDAnalysis always reads whole frames, and so does h5py by hand for the Cα atoms, "
        "because HDF5 would select each atom separately."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "HDF5 reads and decodes a chunk again for each request, unless its cache of some MB "
        "still holds it. paceline plans a block of frames before it reads, takes each chunk of "
        "the block once, and of uncompressed bytes only the ranges with selected atoms. A bad "
        "layout still needs more bytes than are used. A run of so few frames has blocks of 16, "
        "each with a fixed cost; h5py takes all frames in a single call."
    ),
)
