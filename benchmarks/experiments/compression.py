"""H5MD with gzip 1 and 9, compared with the same chunks without compression."""

from dataclasses import replace

from matplotlib.figure import Figure

from benchmarks.experiments.cases import TOOLS
from benchmarks.experiments.experiment import (
    Experiment,
    Row,
    Setting,
    cell,
    digits,
    median,
    ratio,
    spread,
)
from benchmarks.experiments.h5md_cases import SCALING, Case, measure_cases
from benchmarks.experiments.published import of_h5md, published, stated
from benchmarks.experiments.scaling import Published
from benchmarks.experiments.style import COLOURS, bars, panels
from benchmarks.h5md_files import h5md_file
from benchmarks.measure import Spread
from benchmarks.table import Table

#: Paper's names of layouts, with paceline's.
LAYOUTS = {"chunked": "frame", "gzipx1": "gzip1", "gzipx9": "gzip9"}
#: Method of reading in each tool: the paper's, and paceline's.
ACCESS = {"MDAnalysis": "frame by frame", "paceline": "selection"}
RANKS = (1, 2)


def measure(setting: Setting) -> list[Row]:
    data = setting.tiled
    files = {name: h5md_file(data, layout) for name, layout in LAYOUTS.items()}
    cases = [
        Case(tool, n, str(path), name, data.n_frames, ACCESS[tool])
        for n in setting.ranks_or(RANKS)
        for name, path in files.items()
        for tool in TOOLS
    ]
    rows = measure_cases(setting, data, cases)
    for row in rows:
        row["bytes_frame"] = files[row["layout"]].stat().st_size / data.n_frames
    return rows


def sizes() -> dict[str, float]:
    """Return the sizes of the paper's files, GiB."""
    return {
        layout: published("jakupovic2021_files", name=f"H5MD-{layout}")[0]["size_gib"]
        for layout in LAYOUTS
    }


def cost(rows: list[Row], tool: str, layout: str) -> Spread:
    """Return the reading time of one rank, relative to uncompressed chunks."""
    return ratio(rows, "ms_io", {"layout": layout}, {"layout": "chunked"}, tool=tool, ranks=1)


def size(rows: list[Row], layout: str) -> float:
    """Return the file size relative to the uncompressed file."""
    return median(rows, "bytes_frame", layout=layout) / median(
        rows, "bytes_frame", layout="chunked"
    )


def scaling_published() -> list[Published]:
    """Return the stated times of uncompressed chunks, and the speed-up of reading gzip."""
    values = {1: 1.0, 56: stated("jakupovic2021_stated", case="H5MD-gzip", n_processes=56)}
    speed_ups = [Published("Agave, t_io", values, (f"gzipx{k}",), speed_up=True) for k in (1, 9)]
    return [*of_h5md("chunked", "frame by frame", ("chunked",)), *speed_ups]


def table(rows: list[Row]) -> Table:
    found = Table(
        "size relative to uncompressed chunks, here and published; reading in ms a frame and "
        "relative to uncompressed chunks; speed-up of the whole job on two ranks",
        (
            *("file", "size", "published size", "tool", "t_io, 1 rank", "times chunked"),
            *("published", "speed-up"),
        ),
    )
    theirs = sizes()
    slower = stated("jakupovic2021_stated", quantity="t_io over that of H5MD-chunked")
    for layout in LAYOUTS:
        for tool in TOOLS:
            case = {"tool": tool, "layout": layout}
            paper = layout != "chunked" and tool == TOOLS[0]
            found.rows.append(
                (
                    layout,
                    digits(size(rows, layout)),
                    digits(theirs[layout] / theirs["chunked"]),
                    tool,
                    cell(spread(rows, "ms_io", **case, ranks=1)),
                    cell(cost(rows, tool, layout)),
                    f"about {digits(slower)}" if paper else "–",
                    cell(ratio(rows, "ms_frame", {"ranks": 1}, {"ranks": 2}, **case)),
                )
            )
    return found


def draw(rows: list[Row]) -> Figure:
    figure, panes = panels(2, 2.7)
    cases = [(layout, tool) for layout in LAYOUTS for tool in TOOLS]
    for axes, n in zip(panes, RANKS, strict=True):
        values = [
            spread(rows, "ms_frame", layout=layout, tool=tool, ranks=n) for layout, tool in cases
        ]
        names = [f"{layout}, {tool}" for layout, tool in cases]
        bars(
            axes,
            names if axes is panes[0] else [""] * len(names),
            values,
            [COLOURS[tool] for _, tool in cases],
        )
        axes.set(
            title=f"{n} rank{'s' * (n > 1)}", xscale="log", xlabel="ms a frame, of the whole job"
        )
    return figure


def finding(rows: list[Row]) -> str:
    gains = [
        cell(ratio(rows, "ms_frame", {"ranks": 1}, {"ranks": 2}, tool=tool, layout="gzipx1"))
        for tool in TOOLS
    ]
    theirs = sizes()
    ours = [cell(spread(rows, "ms_io", tool=tool, layout="gzipx1", ranks=1)) for tool in TOOLS]
    return (
        f"gzip 1 leaves {digits(size(rows, 'gzipx1'))} of the bytes (in the paper "
        f"{digits(theirs['gzipx1'] / theirs['chunked'])}), gzip 9 {digits(size(rows, 'gzipx9'))}. "
        f"One rank of MDAnalysis reads a frame of gzip 1 in {ours[0]} ms, "
        f"{cell(cost(rows, TOOLS[0], 'gzipx1'))} times as long as without; paceline its Cα atoms "
        f"in {ours[1]} ms. Two ranks are {gains[0]} and {gains[1]} times as fast as one."
    )


EXPERIMENT = Experiment(
    title="Compression",
    source="Jakupovic & Beckstein 2021, figures on gzip",
    question=(
        "Chunks of one frame, with the lowest and the highest level of compression: on one process "
        "reading took about four times as long, on more than 28 there was no difference. The files "
        "shrank to two thirds with either level."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "With the file in the page cache nothing hides the time of inflating, as waiting for a "
        "slow disk does, and inflating is computing, which cores share. The positions of both "
        "studies came from XTC files, and shrink alike. HDF5 inflates a chunk to its end; "
        "paceline stops after the last selected atom, and the protein comes first, as in most "
        "systems, so most of a chunk is not inflated."
    ),
    scaling=replace(SCALING, published=scaling_published),
)
