"""Splitting the trajectory into segments, by copying bytes or by writing the frames again."""

import shutil
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.experiments.experiment import (
    Experiment,
    Row,
    Setting,
    cell,
    digits,
    rounds_of,
    spread,
)
from benchmarks.experiments.published import published
from benchmarks.experiments.scaling import Published, Scaling
from benchmarks.experiments.style import OTHER, OURS, PAPER, PARTS, bars, panels
from benchmarks.measure import Spread
from benchmarks.ranks import EVERY_RANK, on_ranks
from benchmarks.table import Table

PROGRAM = Path(__file__).with_name("splitting_on_ranks.py")
SEGMENTS = (24, 192)
WORKERS = (1, 2)
#: Size of the papers' file, bytes.
THEIRS = 30e9
COLOURS = {"MDAnalysis": OTHER, "paceline": OURS}
#: Parts of the time; paceline only copies bytes.
SCALING_PARTS = {
    "t_open": PARTS["t_open"],
    "t_io": PARTS["t_io"],
    "t_write": ("writing", "#cc79a7"),
    "t_copy": ("copying bytes", "#56b4e9"),
    "t_wait": PARTS["t_wait"],
}
#: Tool, number of segments and number of workers. MDAnalysis writes the frames again, which takes
#: the same time for any number of segments: only one is measured.
CASES = [
    *(("MDAnalysis", SEGMENTS[0], n) for n in WORKERS),
    *(("paceline", segments, n) for segments in SEGMENTS for n in WORKERS),
]


def measure(setting: Setting) -> list[Row]:
    whole, topology = setting.data.trajectory("xtc"), setting.data.topology
    target = setting.scratch / "segments"
    cases = CASES
    if setting.ranks:  # a segment for each rank, as in the paper
        cases = [(tool, n, n) for n in setting.ranks for tool in COLOURS]
    rows = []
    for _ in range(setting.repeats):
        for tool, segments, workers in cases:
            target.mkdir()
            n_segments = min(segments, setting.data.n_frames)
            told = (tool, topology, whole, target, n_segments)
            found = on_ranks(workers, EVERY_RANK, *told, programs=PROGRAM)
            shutil.rmtree(target)
            seconds = found["t_total"]
            common = {"tool": tool, "segments": segments, "workers": workers}
            rate = whole.stat().st_size / seconds / 1e6
            times = {part: found.get(part, 0.0) for part in ("t_total", *SCALING_PARTS)}
            rows.append({**common, "seconds": seconds, "rate": rate, **times})
    return rows


def times_of_gigabyte() -> list[Published]:
    """Return Table 4 as seconds for each GB, by number of processes."""
    values = {n: 1e3 / rate for n, rate in published_rates().items()}
    return [Published("Comet", values)]


def published_rates() -> dict[int, float]:
    """Return MB/s of Table 4, by number of processes."""
    rows = published("khoshlessan2020_table4_split")
    return {row["n_processes"]: THEIRS / row["seconds"] / 1e6 for row in rows}


def table(rows: list[Row]) -> Table:
    found = Table(
        "MB/s of the whole trajectory", ("tool", "segments", "workers", "MB/s", "MB/s a worker")
    )
    for tool, segments, n in CASES:
        case = {"tool": tool, "segments": segments, "workers": n}
        rate = spread(rows, "rate", **case)
        found.rows.append(
            (tool, str(segments), str(n), cell(rate), cell(spread(rows, "rate", 1 / n, **case)))
        )
    for n, rate in published_rates().items():
        found.rows.append(("published: Comet", str(n), str(n), digits(rate), digits(rate / n)))
    return found


def draw(rows: list[Row]) -> Figure:
    figure, (axes,) = panels(1, 3.2)
    values, names, colours = [], [], []
    for tool, segments, n in CASES:
        rates = rounds_of(rows, "rate", tool=tool, segments=segments, workers=n)
        values.append(Spread.of(rate / n for rate in rates))
        names.append(f"{tool}, {segments} segments, {n} worker{'s'[: n - 1]}")
        colours.append(COLOURS[tool])
    for n, rate in published_rates().items():
        values.append(Spread.of([rate / n]))
        names.append(f"Comet, {n} processes")
        colours.append(PAPER)
    bars(axes, names, values, colours)
    axes.set(xscale="log", xlabel="MB/s for each worker", xlim=(1, None))
    return figure


def finding(rows: list[Row]) -> str:
    ours, theirs = (
        cell(spread(rows, "rate", tool=tool, segments=SEGMENTS[0], workers=2))
        for tool in ("paceline", "MDAnalysis")
    )
    smallest, *_ = published_rates().items()
    return (
        f"Two workers cut the file into {SEGMENTS[0]} segments at {ours} MB/s by copying "
        f"bytes, and at {theirs} MB/s by reading and writing frames; on Comet "
        f"{smallest[0]} processes reached {digits(smallest[1])} MB/s."
    )


EXPERIMENT = Experiment(
    title="Splitting",
    source="Khoshlessan et al. 2020, Table 4",
    question=(
        "Each process wrote one segment: useful if the trajectory is analysed more than once."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "Splitting XTC needs no decoding: paceline copies the bytes of frames by its frame index. "
        "The workers are MPI ranks, which take some time to begin and to end a copy together; of "
        "so short a copy this is most, so that two take longer than one. paceline also waits until "
        "the segments are on the disk, which MDAnalysis does not. Its workers read one shared file "
        "as fast as many, so there is rarely a reason to split."
    ),
    scaling=Scaling(
        "s a GB",
        lambda row: 1e3 / row["rate"],
        parts=SCALING_PARTS,
        published=times_of_gigabyte,
        x="workers",
    ),
)
