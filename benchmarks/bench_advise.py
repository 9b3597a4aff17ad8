"""Measure the accuracy of the times that `paceline.advise` predicts, and its own time.

    python -m benchmarks advise [folder] [--repeats 5] [--only dense-xtc] [--tsv] [--tiny]

Five jobs with their file in memory, with frames repeated for ten seconds of two workers. Each round
predicts the time and runs the job with one thread and with two. Then the command predicts the time
for a trajectory of 30 GB, or the largest that fits on the disk, without an index and not in memory.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import judged, options, report
from benchmarks.data import SELECTION, Dataset
from benchmarks.measure import Spread
from benchmarks.table import Table
from paceline._util.page_cache import drop_from_cache

#: Allowed range of predicted / measured.
TOLERANCE = 0.15
#: Allowed seconds of a prediction, and the size of its file in bytes.
SOON, LONG = 10.0, 30e9
#: Bytes of the disk that stay free.
SPARE = 8e9
#: Repetitions of the heavy job's work, as in the papers.
TIMES = 40
#: Seconds per frame of the sleeping job.
NAP = 2e-3

JOBS = (
    *("job", "frames", "predicted s", "measured s", "predicted / measured", "min", "max"),
    *("with 1", "advice s", "target"),
)
LONG_FILE = ("case", "GB", "frames", "told frames", "advice s", "min", "max", "target")


@dataclass(frozen=True)
class Job:
    """A job: an analysis of a set and file."""

    name: str
    data: str
    suffix: str
    make: Callable[[Any], Any]


def rmsd(universe: Any) -> Any:
    """RMSD of the Cα atoms."""
    from paceline.analysis.rms import RMSD

    return RMSD(universe.select_atoms(SELECTION))


def rmsd_of_water(universe: Any) -> Any:
    """RMSD of the water's oxygens: every atom of a frame is decoded."""
    from paceline.analysis.rms import RMSD

    return RMSD(universe.select_atoms("resname SOL and name OW"))


def heavy(universe: Any) -> Any:
    """The RMSD of every frame, again and again."""
    import paceline

    half = rmsd(universe).prepare()

    def again(block: Any) -> np.ndarray:
        return [half.compute(block) for _ in range(TIMES)][-1]

    return paceline.TimeSeries(again, universe.select_atoms(SELECTION))


def sleeping(universe: Any) -> Any:
    """Sleep for some time."""
    import paceline

    def nap(block: Any) -> np.ndarray:
        time.sleep(NAP * len(block))
        return block.times

    return paceline.TimeSeries(nap, universe.select_atoms(SELECTION))


CASES = (
    Job("dense-xtc", "adk", "xtc", rmsd),
    Job("water-xtc", "water", "xtc", rmsd_of_water),
    Job("dcd", "adk", "dcd", rmsd),
    Job("heavy", "adk", "xtc", heavy),
    Job("sleeping", "adk", "xtc", sleeping),
)
LONG_CASE = "long-file"


def measure(job: Job, data: Dataset, seconds: float, repeats: int) -> tuple[str, ...]:
    """The row of one job."""
    import paceline

    path = data.trajectory(job.suffix)
    universe = paceline.Universe(data.topology, path)
    analysis = job.make(universe)
    _read(path)
    once = paceline.advise(analysis).t_total(2, "memory")
    frames = np.resize(np.arange(data.n_frames), max(1, round(seconds / once)) * data.n_frames)
    if once > seconds:
        frames = frames[: max(1, int(data.n_frames * seconds / once))]
    predicted, measured, took = [], [], []
    for _ in range(repeats):
        advice = paceline.advise(analysis, frames=frames)
        took.append(advice.seconds)
        _read(path)
        predicted.append([advice.t_total(n, "memory") for n in (1, 2)])
        measured.append([_run(analysis, frames, n) for n in (1, 2)])
    ratios = np.array(predicted) / np.array(measured)
    ratio = Spread.of(ratios[:, 1])
    met = judged(np.abs(ratios[:, 1] - 1) <= TOLERANCE)
    return (
        job.name,
        str(len(frames)),
        *(f"{np.median(np.array(times)[:, 1]):.2f}" for times in (predicted, measured)),
        *(f"{value:.3f}" for value in (ratio.median, ratio.low, ratio.high)),
        f"{np.median(ratios[:, 0]):.3f}",
        f"{np.median(took):.1f}",
        f"within {TOLERANCE:.0%} {met}",
    )


def _run(analysis: Any, frames: np.ndarray, n_workers: int) -> float:
    done = analysis.run(n_workers=n_workers, frames=frames, progress=False)
    return done.timings.t_total


def _read(path: Path) -> None:
    """Read a file into memory."""
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 24):
            pass


def measure_long(data: Dataset, folder: Path, size: float, repeats: int) -> tuple[str, ...]:
    """Make the row of a long file: joined copies of one, deleted afterwards."""
    source = data.trajectory("xtc")
    copies = max(
        1, round(min(size, shutil.disk_usage(folder).free - SPARE) / source.stat().st_size)
    )
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        path = Path(scratch) / "long.xtc"
        with open(path, "wb") as target:
            for _ in range(copies):
                with open(source, "rb") as part:
                    shutil.copyfileobj(part, target, 1 << 24)
            os.fsync(target.fileno())
        took, told = [], []
        for _ in range(repeats):
            drop_from_cache(path)
            begun = time.perf_counter()
            told.append(_ask([data.topology, path]))
            took.append(time.perf_counter() - begun)
        gigabytes = path.stat().st_size / 1e9
    spread = Spread.of(took)
    return (
        LONG_CASE,
        f"{gigabytes:.1f}",
        str(copies * data.n_frames),
        told[-1],
        *(f"{value:.1f}" for value in (spread.median, spread.low, spread.high)),
        f"{SOON:g} s {judged(np.array(took) <= SOON)}",
    )


def _ask(files: Sequence[Path]) -> str:
    """Number of frames that the command prints."""
    command = "import sys; from paceline.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", command, "advise", *files],
        capture_output=True,
        text=True,
        check=True,
    )
    words = done.stdout.splitlines()[0].split()
    return " ".join(words[words.index("in") + 1 : words.index("frames")])


def main() -> None:
    asked = options(__doc__, [*(job.name for job in CASES), LONG_CASE])
    sets = {data.name: data for data in asked.datasets()}
    asked.print_head()
    jobs = Table("predicted and measured seconds with 2 threads; file in memory", JOBS)
    for job in CASES:
        if asked.wants(job.name):
            report(job.name)
            row = measure(job, sets[job.data], asked.effort.job, asked.effort.repeats)
            jobs.rows.append(row if asked.effort.judged else (*row[:-1], ""))
    long = Table("paceline advise: water.xtc, joined; no index, not in memory", LONG_FILE)
    if asked.wants(LONG_CASE):
        report(LONG_CASE)
        size = LONG if asked.effort.judged else 0.0
        row = measure_long(sets["water"], asked.folder, size, min(asked.effort.repeats, 3))
        long.rows.append(row if asked.effort.judged else (*row[:-1], ""))
    asked.print_tables([table for table in (jobs, long) if table.rows])


if __name__ == "__main__":
    main()
