"""H5MD with the file on disk (its pages dropped from memory), and in memory."""

from dataclasses import replace

from matplotlib.figure import Figure

from benchmarks.experiments.cases import TOOLS
from benchmarks.experiments.experiment import (
    Experiment,
    Row,
    Setting,
    cell,
    ratio,
    spread,
)
from benchmarks.experiments.h5md_cases import SCALING, Case, measure_cases
from benchmarks.experiments.published import of_h5md
from benchmarks.experiments.scaling import Published
from benchmarks.experiments.style import COLOURS, bars, panels
from benchmarks.h5md_files import h5md_file
from benchmarks.table import Table

#: The 2021 paper's names of layouts, with paceline's.
LAYOUTS = {
    "default": "grown",
    "contiguous": "contiguous",
    "chunked": "frame",
    "gzipx1": "gzip1",
}
#: Method of reading in each tool: the paper's, and paceline's.
ACCESS = {"MDAnalysis": "frame by frame", "paceline": "selection"}
RANKS = (1, 2)
STATES = {"in memory": 0, "on disk": 1}


def measure(setting: Setting) -> list[Row]:
    data = setting.tiled
    cases = [
        Case(tool, n, str(h5md_file(data, layout)), name, data.n_frames, ACCESS[tool], cold=cold)
        for cold in (False, True)
        for n in setting.ranks_or(RANKS)
        for name, layout in LAYOUTS.items()
        for tool in TOOLS
    ]
    rows = measure_cases(setting, data, cases)
    for row in rows:
        row["cold"] = int(row["cold"])
    return rows


def scaling_published() -> list[Published]:
    """Return the stated times of each layout, which the paper read from the disk, ms a frame."""
    return [
        one
        for layout in LAYOUTS
        for one in of_h5md(layout, "frame by frame", (layout, STATES["on disk"]))
    ]


def table(rows: list[Row]) -> Table:
    found = Table(
        "ms a frame of reading and decoding",
        (
            *("layout", "tool", "in memory, 1 rank", "2 ranks"),
            *("on disk, 1 rank", "2 ranks", "on disk / in memory, 1 rank"),
        ),
    )
    for layout in LAYOUTS:
        for tool in TOOLS:
            case = {"layout": layout, "tool": tool}
            times = [
                spread(rows, "ms_io", **case, ranks=n, cold=cold)
                for cold in STATES.values()
                for n in RANKS
            ]
            slower = cell(ratio(rows, "ms_io", {"cold": 1}, {"cold": 0}, **case, ranks=1))
            found.rows.append((layout, tool, *map(cell, times), slower))
    return found


def draw(rows: list[Row]) -> Figure:
    figure, panes = panels(2, 3.2)
    cases = [(layout, tool) for layout in LAYOUTS for tool in TOOLS]
    for axes, (state, cold) in zip(panes, STATES.items(), strict=True):
        values = [
            spread(rows, "ms_io", layout=layout, tool=tool, ranks=1, cold=cold)
            for layout, tool in cases
        ]
        names = [f"{layout}, {tool}" for layout, tool in cases]
        bars(
            axes,
            names if axes is panes[0] else [""] * len(names),
            values,
            [COLOURS[tool] for _, tool in cases],
        )
        axes.set(title=f"file {state}, 1 rank", xscale="log", xlabel="t_io, ms a frame")
    return figure


def finding(rows: list[Row]) -> str:
    def time(tool: str, layout: str, cold: int) -> str:
        return cell(spread(rows, "ms_io", tool=tool, layout=layout, ranks=1, cold=cold))

    return (
        f"From the disk, one rank of MDAnalysis takes {time(TOOLS[0], 'default', 1)} ms a frame "
        f"with automatic chunks and {time(TOOLS[0], 'chunked', 1)} with one frame a chunk (from "
        f"memory {time(TOOLS[0], 'default', 0)} and {time(TOOLS[0], 'chunked', 0)}); paceline "
        f"{time(TOOLS[1], 'default', 1)} and {time(TOOLS[1], 'chunked', 1)} ms (from memory "
        f"{time(TOOLS[1], 'default', 0)} and {time(TOOLS[1], 'chunked', 0)})."
    )


EXPERIMENT = Experiment(
    title="H5MD from the disk",
    source="Jakupovic & Beckstein 2021, who copied the file anew for every run",
    question=(
        "The experiments above read from the page cache; the paper avoided it. Here the file's "
        "pages are dropped before each run."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "A chunk stays in the page cache once it is read: the disk delivers each byte once for "
        "every layout, and automatic chunks cost MDAnalysis time for copying, as in memory. "
        "paceline reads only the chunks with a selected atom, and of contiguous frames the bytes "
        "around the selected atoms, so it also reads less from disk. It announces its reads to the "
        "system early; bytes that arrive during computing are not in these times."
    ),
    scaling=replace(SCALING, variants=("layout", "cold"), published=scaling_published),
)
