"""H5MD through MPI-IO (independent, collective, two-phase), compared with paceline's own way."""

import tempfile
from operator import itemgetter
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.bench_convert import MEMORY
from benchmarks.experiments.experiment import (
    Experiment,
    Row,
    Setting,
    cell,
    digits,
    ratio,
    rounds_of,
    spread,
)
from benchmarks.experiments.h5md_cases import Case, measure_cases, mpio_python
from benchmarks.experiments.published import of_h5md
from benchmarks.experiments.scaling import BY_RANK, Published, Scaling
from benchmarks.experiments.style import OTHER, OURS, PAPER, PARTS, bars, panels
from benchmarks.h5md_files import h5md_file
from benchmarks.ranks import EVERY_RANK, on_ranks
from benchmarks.table import Table

WRITING = Path(__file__).with_name("h5md_writing_on_ranks.py")
#: The 2021 paper's names of layouts, with paceline's.
LAYOUTS = {
    "default": "grown",
    "contiguous": "contiguous",
    "chunked": "frame",
    "gzipx1": "gzip1",
}
WRITTEN = ("contiguous", "frame", "gzip1")
#: Tool, access pattern and driver of each method of reading.
READ: dict[str, tuple[str, str, str]] = {
    "h5py": ("h5py", "frame by frame", ""),
    "MPI-IO, independent": ("h5py", "frame by frame", "independent"),
    "MPI-IO, collective": ("h5py", "frame by frame", "collective"),
    "MPI-IO, two-phase": ("h5py", "frame by frame", "two-phase"),
    "paceline, whole frames": ("paceline", "whole frames", ""),
    "paceline, driver mpio": ("paceline", "selection", "independent"),
    "paceline": ("paceline", "selection", ""),
}
#: Methods of writing, by their names in the program.
WROTE = {
    "MPI-IO, independent": "independent",
    "MPI-IO, collective": "collective",
    "MPI-IO, two-phase": "two-phase",
    "paceline": "paceline",
}
COLOURS = {way: OURS if way.startswith("paceline") else OTHER for way in READ} | {"h5py": PAPER}
RANKS = (1, 2)
#: Parts of the time of reading, and writing.
SCALING_PARTS = {**PARTS, "t_write": ("writing", "#56b4e9")}
#: Frames read of the larger system, and frames written of the protein in water.
FRAMES_READ, FRAMES_WRITTEN = 60, 150


def measure(setting: Setting) -> list[Row]:
    python = mpio_python()
    return _reading(setting, python) + _writing(setting, python)


def _reading(setting: Setting, python: str | None) -> list[Row]:
    data = setting.tiled
    frames = setting.frames(FRAMES_READ, data, 4)
    cases, ways = [], []
    for n in setting.ranks_or(RANKS):
        for name, layout in LAYOUTS.items():
            for way, (tool, access, driver) in READ.items():
                path = str(h5md_file(data, layout))
                cases.append(Case(tool, n, path, name, frames, access, driver))
                ways.append(way)
    rows = measure_cases(setting, data, cases, python)
    return [
        _row("reading", row["layout"], way, row["ranks"], row["ms_frame"], row)
        for row, way in zip(rows, ways * setting.repeats, strict=True)
    ]


def _writing(setting: Setting, python: str | None) -> list[Row]:
    data = setting.water
    frames = min(setting.frames(FRAMES_WRITTEN, data, 4), data.n_frames // 2)
    ranks = setting.ranks_or(RANKS)
    numbers = ",".join(map(str, ranks))
    names = {layout: name for name, layout in LAYOUTS.items()}
    ways = {told: way for way, told in WROTE.items()}
    with tempfile.TemporaryDirectory(dir=_folder(setting)) as folder:
        told = data.topology, data.trajectory("dcd"), folder, frames, setting.repeats, numbers
        found = on_ranks(max(ranks), EVERY_RANK, *told, *WRITTEN, programs=WRITING, python=python)
    return [
        _row(
            "writing",
            names[one["layout"]],
            ways[one["way"]],
            one["ranks"],
            1e3 * one["seconds"] / frames,
            {"t_write": one["seconds"], "t_total": one["seconds"]},
        )
        for one in found
    ]


def _folder(setting: Setting) -> Path:
    """Return the folder of new files, in memory unless ranks may be on several hosts."""
    return MEMORY if MEMORY.is_dir() and not setting.ranks else setting.scratch


def _row(what: str, layout: str, way: str, ranks: int, ms: float, times: Row) -> Row:
    return {
        "what": what,
        "layout": layout,
        "way": way,
        "ranks": ranks,
        "ms_frame": ms,
        **{part: times.get(part, 0.0) for part in ("t_total", *SCALING_PARTS)},
        BY_RANK: times.get(BY_RANK),
    }


def scaling_published() -> list[Published]:
    """Return the stated times of reading frame by frame, which used MPI-IO, ms a frame."""
    return [
        one for layout in LAYOUTS for one in of_h5md(layout, "frame by frame", ("reading", layout))
    ]


def _cases(what: str) -> list[tuple[str, str]]:
    """Return layouts and methods of reading, or of writing."""
    if what == "reading":
        return [(layout, way) for layout in LAYOUTS for way in READ]
    written = [name for name, layout in LAYOUTS.items() if layout in WRITTEN]
    refused = ("gzipx1", "MPI-IO, independent")
    return [(layout, way) for layout in written for way in WROTE if (layout, way) != refused]


def table(rows: list[Row]) -> Table:
    found = Table(
        "reading: ms a frame of the whole job, and ms that ranks wait for each other, in all; "
        "writing: ms of a further frame",
        ("", "layout", "way", "1 rank", "2 ranks", "speed-up", "waiting, 2 ranks"),
    )
    for what in ("reading", "writing"):
        for layout, way in _cases(what):
            case = {"what": what, "layout": layout, "way": way}
            one, two = (spread(rows, "ms_frame", **case, ranks=n) for n in RANKS)
            gain = ratio(rows, "ms_frame", {"ranks": 1}, {"ranks": 2}, **case)
            waiting = cell(spread(rows, "t_wait", 1e3, **case, ranks=2))
            found.rows.append(
                (
                    what,
                    layout,
                    way,
                    cell(one),
                    cell(two),
                    cell(gain) if gain.low > 0 else "–",  # the slope is within its noise
                    waiting if what == "reading" else "–",
                )
            )
    return found


def draw(rows: list[Row]) -> Figure:
    figure, panes = panels(2, 5.6)
    for axes, what in zip(panes, ("reading", "writing"), strict=True):
        cases = _cases(what)
        values = [
            spread(rows, "ms_frame", what=what, layout=layout, way=way, ranks=2)
            for layout, way in cases
        ]
        names = [f"{layout}, {way}" for layout, way in cases]
        bars(axes, names, values, [COLOURS[way] for _, way in cases])
        axes.tick_params(axis="y", labelsize=7)
        axes.set(title=f"{what}, 2 ranks", xscale="log", xlabel="ms a frame")
    return figure


def finding(rows: list[Row]) -> str:
    def time(what: str, layout: str, way: str) -> str:
        return cell(spread(rows, "ms_frame", what=what, layout=layout, way=way, ranks=2))

    def all_ways(what: str, layout: str) -> str:
        names = [way for way in (READ if what == "reading" else WROTE) if way.startswith("MPI-IO")]
        names = [way for way in names if (layout, way) in _cases(what)]
        return ", ".join(time(what, layout, way) for way in names)

    def waits(**case: Any) -> str:
        return digits(1e3 * max(rounds_of(rows, "t_wait", what="reading", ranks=2, **case)))

    return (
        f"Two ranks read a frame in chunks of one frame in {all_ways('reading', 'chunked')} ms "
        f"through MPI-IO (independent, collective, two-phase), in "
        f"{time('reading', 'chunked', 'h5py')} ms with h5py alone, and paceline in "
        f"{time('reading', 'chunked', 'paceline, whole frames')} ms, its Cα atoms in "
        f"{time('reading', 'chunked', 'paceline')} ms; in automatic chunks "
        f"{all_ways('reading', 'default')}, {time('reading', 'default', 'h5py')}, "
        f"{time('reading', 'default', 'paceline, whole frames')} and "
        f"{time('reading', 'default', 'paceline')} ms. They write a frame compressed with gzip 1 "
        f"in {all_ways('writing', 'gzipx1')} ms collectively and in two phases, and with paceline "
        f"in {time('writing', 'gzipx1', 'paceline')} ms. What ranks wait for each other with "
        f"MPI-IO, independent, was at most "
        f"{waits(layout='chunked', way='MPI-IO, independent')} ms."
    )


EXPERIMENT = Experiment(
    title="H5MD through MPI-IO",
    source="Jakupovic & Beckstein 2021; Khoshlessan et al. 2020, section 6.3.2",
    question=(
        "Both papers read HDF5 through MPI-IO, each rank independently. The second suggested "
        "two-phase reading, in which few ranks read large pieces and distribute them. Here these "
        "are compared with paceline's own method, which reads chunks at their offsets without MPI "
        "in HDF5."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "MPI-IO changes the requests of ranks, but not the chunks that they need, so a bad layout "
        "stays slow. Collective reads make ranks wait for each other at every call, and "
        "distributing pieces takes copies, which may be worth it on a parallel file system but not "
        "on one machine. Several ranks can write compressed chunks only collectively, by a rule of "
        "HDF5. In the paper, ranks waited long because they competed for the file system; here "
        "they do not. Rows of paceline read the Cα atoms alone, the usual case; with driver mpio "
        "the same blocks are read through HDF5 and MPI-IO; other rows show whole frames."
    ),
    scaling=Scaling(
        "ms a frame",
        itemgetter("ms_frame"),
        line="way",
        variants=("what", "layout"),
        parts=SCALING_PARTS,
        published=scaling_published,
    ),
)
