"""H5MD in the 2021 paper's three layouts, read in three ways."""

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
from benchmarks.experiments.style import COLOURS, PAPER, bars, legend_below, panels
from benchmarks.h5md_files import h5md_file
from benchmarks.table import Table

#: Paper's names of layouts, with paceline's. The paper's first file was written by pyh5md, which
#: appends.
LAYOUTS = {"default": "grown", "contiguous": "contiguous", "chunked": "frame"}
ACCESSES = {
    "frame by frame": "frame by frame",
    "selection": "masked array",
    "into memory": "into memory",
}
RANKS = (1, 2)
MARKERS = {"Agave": "o", "Comet": "s", "Bridges": "^"}
#: Style of published values, which are drawn under their tool's bar.
THEIRS = {"color": PAPER, "markersize": 5}
#: Number of frames in the paper's file.
THEIR_FRAMES = 90_100


def measure(setting: Setting) -> list[Row]:
    data = setting.tiled
    cases = [
        Case(tool, n, str(h5md_file(data, layout)), name, data.n_frames, access)
        for n in setting.ranks_or(RANKS)
        for name, layout in LAYOUTS.items()
        for access in ACCESSES
        for tool in TOOLS
    ]
    return measure_cases(setting, data, cases)


def theirs(layout: str, access: str) -> list[tuple[str, float]]:
    """Return clusters, and the stated t_io on one process, ms per frame."""
    rows = published(
        "jakupovic2021_figures",
        file=f"H5MD-{layout}",
        variant=ACCESSES[access],
        n_processes=1,
        quantity="t_io",
    )
    return [(row["system"], 1e3 * row["seconds"] / THEIR_FRAMES) for row in rows]


def scaling_published() -> list[Published]:
    """Return the stated times of each layout and access, ms a frame, and speed-ups."""
    found = [
        one
        for layout in LAYOUTS
        for access, name in ACCESSES.items()
        for one in of_h5md(layout, name, (layout, access))
    ]
    for layout, quantity in (("contiguous", "t_io speed-up"), ("default", "largest t_io speed-up")):
        words = {"case": f"H5MD-{layout}", "quantity": f"{quantity} over one process"}
        values = {1: 1.0, 112: stated("jakupovic2021_stated", **words)}
        found.append(Published("Agave, t_io", values, (layout, "frame by frame"), speed_up=True))
    return found


def table(rows: list[Row]) -> Table:
    found = Table(
        "ms a frame, of the whole job; what ranks wait for each other, µs a frame; published: "
        "t_io of one process",
        ("layout", "access", "tool", "1 rank", "2 ranks", "speed-up", "waiting", "published"),
    )
    for layout in LAYOUTS:
        for access in ACCESSES:
            for tool in TOOLS:
                case = {"layout": layout, "access": access, "tool": tool}
                one, two = (spread(rows, "ms_frame", **case, ranks=n) for n in RANKS)
                n_frames = median(rows, "frames", **case) * median(rows, "passes", **case)
                waiting = cell(spread(rows, "t_wait", 2e6 / n_frames, **case, ranks=2))
                stated = "; ".join(f"{where} {digits(ms)}" for where, ms in theirs(layout, access))
                shown = stated if tool == TOOLS[0] and stated else "–"
                gain = cell(ratio(rows, "ms_frame", {"ranks": 1}, {"ranks": 2}, **case))
                found.rows.append(
                    (layout, access, tool, cell(one), cell(two), gain, waiting, shown)
                )
    return found


def draw(rows: list[Row]) -> Figure:
    figure, panes = panels(len(ACCESSES), 3.4)
    cases = [(layout, tool) for layout in LAYOUTS for tool in TOOLS]
    for axes, access in zip(panes, ACCESSES, strict=True):
        values = [
            spread(rows, "ms_io", layout=layout, access=access, tool=tool, ranks=1)
            for layout, tool in cases
        ]
        names = [f"{layout}, {tool}" for layout, tool in cases]
        bars(
            axes,
            names if axes is panes[0] else [""] * len(names),
            values,
            [COLOURS[tool] for _, tool in cases],
        )
        for place, (layout, tool) in enumerate(cases):
            if tool == TOOLS[0]:
                for where, ms in theirs(layout, access):
                    axes.plot(ms, place + 0.5, MARKERS[where], **THEIRS)
        axes.set(title=access, xscale="log", xlabel="t_io, ms a frame")
    for where, marker in MARKERS.items():
        panes[0].plot([], [], marker, **THEIRS, label=f"{where}, published")
    legend_below(figure, panes[0])
    return figure


def finding(rows: list[Row]) -> str:
    def penalty(tool: str, access: str) -> str:
        default, chunked = {"layout": "default"}, {"layout": "chunked"}
        case = {"access": access, "tool": tool, "ranks": 1}
        return cell(ratio(rows, "ms_io", default, chunked, **case))

    ((_, default),) = [one for one in theirs("default", "frame by frame") if one[0] == "Comet"]
    ((_, chunked),) = theirs("chunked", "frame by frame")
    best = cell(spread(rows, "ms_io", layout="chunked", access="selection", tool=TOOLS[1], ranks=1))
    worst = cell(
        spread(rows, "ms_io", layout="default", access="selection", tool=TOOLS[1], ranks=1)
    )
    return (
        f"Frame by frame, automatic chunks take MDAnalysis {penalty(TOOLS[0], 'frame by frame')} "
        f"times as long as one frame a chunk; in the paper, on Comet, {digits(default / chunked)} "
        f"times. paceline reads the Cα atoms of a frame in {best} ms from one frame a chunk and in "
        f"{worst} ms from automatic chunks, {penalty(TOOLS[1], 'selection')} times as long."
    )


EXPERIMENT = Experiment(
    title="Layouts of H5MD",
    source="Jakupovic & Beckstein 2021, figures on chunking, masked arrays and loading into memory",
    question=(
        "111,815 atoms in h5py's automatic chunks (H5MD-default), in none (contiguous), and in "
        "chunks of one frame (chunked); the RMSD of the Cα atoms, with frames read one by one, "
        "with these atoms alone, and with the share of each process read into memory at once. "
        "Rewriting the file made reading ten times as fast; reading at once helped on two of three "
        "clusters; reading fewer atoms did not help on one."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "An automatic chunk holds some frames of some atoms along one axis. Reading frame by "
        "frame reads every chunk again for each frame in it, because HDF5's cache holds few "
        "chunks. This penalty needs no disk to wait for. The paper's masked arrays and loading "
        "into memory are single calls of h5py, which are timed here, because MDAnalysis has "
        "neither for H5MD today. HDF5 selects single atoms slowly, so reading fewer atoms took "
        "longer on Agave. paceline takes each chunk once for a block of frames, and only chunks "
        "with a selected atom; its reader for MDAnalysis, frame by frame, keeps the chunks that "
        "the next frames need."
    ),
    scaling=replace(SCALING, variants=("layout", "access"), published=scaling_published),
)
