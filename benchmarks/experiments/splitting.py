"""Splitting the trajectory into segments, by copying bytes or by writing the frames again."""

import shutil
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from matplotlib.figure import Figure

import paceline
from benchmarks.experiments.experiment import (
    Experiment,
    Row,
    Setting,
    cell,
    digits,
    rounds_of,
    spread,
)
from benchmarks.experiments.papers import share
from benchmarks.experiments.published import published
from benchmarks.experiments.style import OTHER, OURS, PAPER, bars, panels
from benchmarks.measure import Spread
from benchmarks.table import Table

SEGMENTS = (24, 192)
WORKERS = (1, 2)
#: Size of the papers' file, bytes.
THEIRS = 30e9
COLOURS = {"MDAnalysis": OTHER, "paceline": OURS}
#: Writing the frames again takes the same time for any number of segments.
CASES = [
    *(("MDAnalysis", SEGMENTS[0], n) for n in WORKERS),
    *(("paceline", segments, n) for segments in SEGMENTS for n in WORKERS),
]


def measure(setting: Setting) -> list[Row]:
    whole, topology = setting.data.trajectory("xtc"), setting.data.topology
    size, target = whole.stat().st_size, setting.scratch / "segments"
    rows = []
    with ProcessPoolExecutor(max(WORKERS), get_context("spawn")) as pool:
        list(pool.map(warm_up, range(2 * max(WORKERS))))
        for _ in range(setting.repeats):
            for tool, segments, workers in CASES:
                target.mkdir()
                n_segments = min(segments, setting.data.n_frames)
                begun = time.perf_counter()
                if tool == "paceline":
                    output = target / "part.xtc"
                    paceline.split(
                        whole, n_segments, output=output, n_workers=workers, progress=False
                    )
                else:
                    shares = [share(n_segments, workers, worker) for worker in range(workers)]
                    told = [(str(topology), str(whole), target, n_segments, s) for s in shares]
                    list(pool.map(write_segments, told))
                seconds = time.perf_counter() - begun
                shutil.rmtree(target)
                common = {"tool": tool, "segments": segments, "workers": workers}
                rows.append({**common, "seconds": seconds, "rate": size / seconds / 1e6})
    return rows


def warm_up(_: int) -> None:
    """Import all that a worker needs."""
    import MDAnalysis  # noqa: F401

    time.sleep(0.1)  # so that every worker gets a task


def write_segments(told: tuple[str, str, Path, int, range]) -> None:
    """Write a worker's segments frame by frame."""
    import MDAnalysis as mda

    topology, whole, target, n_segments, segments = told
    universe = mda.Universe(topology, whole)
    for segment in segments:
        frames = share(universe.trajectory.n_frames, n_segments, segment)
        with mda.Writer(str(target / f"{segment}.xtc"), len(universe.atoms)) as writer:
            for _ in universe.trajectory[frames.start : frames.stop]:
                writer.write(universe.atoms)


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
        "Splitting XTC needs no decoding: paceline copies the bytes of frames by its frame "
        "index. It also waits until the segments are on the disk, which MDAnalysis does not. "
        "paceline's workers read one shared file as fast as many, so there is rarely a reason to "
        "split."
    ),
)
