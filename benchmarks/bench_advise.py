"""Measure the accuracy of the times that `paceline.advise` predicts, and its own time.

    python -m benchmarks advise [folder] [--repeats 5] [--only dense-xtc] [--tsv] [--tiny]

Five jobs run with their file in memory. Frames are repeated so that two workers need four seconds.
The jobs run on the machine as it is, and beside a process that keeps one CPU busy. Each round
predicts the time and its range, and then runs the job with one thread and with two, each twice. The
difference of equal runs is a limit to any prediction. Runs outside their range are listed, with the
number of CPUs that other programs kept busy during the advice and during the run. Finally the
command predicts the time for a trajectory of 30 GB, or the largest that fits on the disk, without
index and not in memory.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import judged, options, report
from benchmarks.data import SELECTION, Dataset
from benchmarks.measure import Spread
from benchmarks.table import Table
from paceline._util.machine_and_software import OtherWork
from paceline._util.os_calls import drop_from_cache

#: Allowed deviation of predicted / measured time from 1, for the median job.
TOLERANCE = 0.15
#: Allowed ratio of a range's ends, and fraction of the runs that must lie in their range.
WIDTH, HELD = 1.5, 0.9
#: Duration of a job with two workers, seconds.
SECONDS = 4.0
#: Allowed duration of a prediction, seconds, and size of its file, bytes.
SOON, LONG = 10.0, 30e9
#: Disk space that stays free, bytes.
SPARE = 8e9
#: Repetitions of the work in the heavy job, as in the papers.
TIMES = 40
#: Programs that run beside the jobs: none, or one that keeps a CPU busy.
BESIDE: dict[str, tuple[str, ...]] = {"idle": (), "busy": ("while True: pass",)}

JOBS = (
    *("job", "machine", "frames", "workers", "predicted s", "at least", "at most", "measured s"),
    *("predicted / measured", "min", "max", "widest range", "in range", "repeat alike", "advice s"),
    *("others in advice", "others in run"),
)
ALL_JOBS = (
    *("machine", "runs", "median error", "in range", "widest range", "repeat alike", "target"),
)
MISSED = (
    *("job", "machine", "workers", "at least", "at most", "measured s", "repeated s"),
    *("times the nearest end", "others in advice", "others in run"),
)
LONG_FILE = ("case", "GB", "frames", "told frames", "advice s", "min", "max", "target")


@dataclass(frozen=True)
class Job:
    """A job: an analysis of one data set and file."""

    name: str
    data: str
    suffix: str
    make: Callable[[Any], Any]


def rmsd(universe: Any) -> Any:
    """RMSD of the Cα atoms."""
    from paceline.analysis.rms import RMSD

    return RMSD(universe.select_atoms(SELECTION))


def rmsd_of_water(universe: Any) -> Any:
    """RMSD of the water oxygens: all atoms of a frame must be decoded."""
    from paceline.analysis.rms import RMSD

    return RMSD(universe.select_atoms("resname SOL and name OW"))


def heavy(universe: Any) -> Any:
    """RMSD of every frame, computed repeatedly."""
    import paceline

    half = rmsd(universe).prepare()

    def again(block: Any) -> np.ndarray:
        return [half.compute(block) for _ in range(TIMES)][-1]

    return paceline.TimeSeries(again, universe.select_atoms(SELECTION))


CASES = (
    Job("dense-xtc", "adk", "xtc", rmsd),
    Job("water-xtc", "water", "xtc", rmsd_of_water),
    Job("trr", "water", "trr", rmsd_of_water),
    Job("dcd", "adk", "dcd", rmsd),
    Job("heavy", "adk", "xtc", heavy),
)
LONG_CASE = "long-file"


@dataclass(frozen=True)
class Run:
    """Prediction, its range, and measured times of a run and of its repeat, s.

    Also the duration of the advice, s, and CPUs that others kept busy during advice and run.
    """

    n_frames: int
    predicted: float
    low: float
    high: float
    measured: float
    repeated: float
    advice: float
    others_before: float
    others: float

    @property
    def ratio(self) -> float:
        """Predicted time divided by measured time."""
        return self.predicted / self.measured

    @property
    def is_held(self) -> bool:
        """True if the range contains the measured time."""
        return self.low <= self.measured <= self.high

    @property
    def is_alike(self) -> bool:
        """True if the repeat lies in a range of the allowed width around the run."""
        return abs(np.log(self.repeated / self.measured)) <= np.log(WIDTH) / 2

    @property
    def width(self) -> float:
        """Ratio of the ends of the range."""
        return self.high / self.low


def measure(job: Job, data: Dataset, seconds: float, repeats: int) -> dict[int, list[Run]]:
    """Predict and run a job several times; return the runs by number of workers."""
    import paceline

    path = data.trajectory(job.suffix)
    universe = paceline.Universe(data.topology, path)
    analysis = job.make(universe)
    _read(path)
    once = paceline.advise(analysis).t_total(2, "memory")
    frames = np.resize(np.arange(data.n_frames), max(1, round(seconds / once)) * data.n_frames)
    if once > seconds:
        frames = frames[: max(1, int(data.n_frames * seconds / once))]
    runs: dict[int, list[Run]] = {1: [], 2: []}
    for _ in range(repeats):
        advice = paceline.advise(analysis, frames=frames)
        _read(path)
        for n_workers, some in runs.items():
            others = OtherWork()
            once = _timed(analysis, n_workers, frames)
            meanwhile = others.cpus()
            again = _timed(analysis, n_workers, frames)
            some.append(
                Run(
                    len(frames),
                    advice.t_total(n_workers, "memory"),
                    *advice.t_range(n_workers, "memory"),
                    once,
                    again,
                    advice.seconds,
                    advice.findings.others or 0.0,
                    meanwhile or 0.0,
                )
            )
    return runs


def _timed(analysis: Any, n_workers: int, frames: np.ndarray) -> float:
    """Return the duration of a run; a later run replaces the timings of the analysis."""
    return analysis.run(n_workers=n_workers, frames=frames, progress=False).timings.t_total


def row_of(job: str, machine: str, n_workers: int, runs: Sequence[Run]) -> tuple[str, ...]:
    """Create the row of a job with a number of workers: medians, and the range of ratios."""
    ratio = Spread.of(run.ratio for run in runs)
    times = ("predicted", "low", "high", "measured")
    return (
        *(job, machine, str(runs[0].n_frames), str(n_workers)),
        *(f"{np.median([getattr(run, name) for run in runs]):.2f}" for name in times),
        *(f"{value:.3f}" for value in (ratio.median, ratio.low, ratio.high)),
        f"{max(run.width for run in runs):.2f}",
        f"{sum(run.is_held for run in runs)} of {len(runs)}",
        f"{sum(run.is_alike for run in runs)} of {len(runs)}",
        *(
            f"{np.median([getattr(run, name) for run in runs]):.1f}"
            for name in ("advice", "others_before", "others")
        ),
    )


def rows_of_missed(
    job: str, machine: str, n_workers: int, runs: Sequence[Run]
) -> Iterator[tuple[str, ...]]:
    """Create a row for each run outside its range."""
    for run in runs:
        if not run.is_held:
            end = run.low if run.measured < run.low else run.high
            times = (run.low, run.high, run.measured, run.repeated, run.measured / end)
            others = (f"{value:.1f}" for value in (run.others_before, run.others))
            yield (job, machine, str(n_workers), *(f"{value:.2f}" for value in times), *others)


def row_of_all(machine: str, jobs: Sequence[Sequence[Run]], *, two: bool) -> tuple[str, ...]:
    """Create the row of all jobs: their median error, and the number of runs within ranges.

    Errors count only if two workers run on an otherwise idle machine.
    """
    runs = [run for job in jobs for run in job]
    error = float(np.median([abs(np.median([run.ratio for run in job]) - 1) for job in jobs]))
    held, widest = sum(run.is_held for run in runs), max(run.width for run in runs)
    met = [held >= HELD * len(runs), widest <= WIDTH]
    if two and machine == "idle":
        met.append(error <= TOLERANCE)
    return (
        f"{machine}, {1 + two} worker{'s' * two}",
        str(len(runs)),
        f"{error:.1%}",
        f"{held} of {len(runs)}",
        f"{widest:.2f}",
        f"{sum(run.is_alike for run in runs)} of {len(runs)}",
        "met" if all(met) else "missed",
    )


@contextmanager
def beside(programs: Sequence[str]) -> Iterator[None]:
    """Run programs in separate processes during the context."""
    started = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def _read(path: Path) -> None:
    """Read a file into memory."""
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 24):
            pass


def measure_long(data: Dataset, folder: Path, size: float, repeats: int) -> tuple[str, ...]:
    """Create the row of a long file, joined from copies and deleted afterwards."""
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
    """Return the number of frames that the command prints."""
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
    jobs = Table("predicted and measured seconds with threads; file in memory", JOBS)
    together = Table("all jobs", ALL_JOBS)
    missed = Table("runs outside their range", MISSED)
    for machine, programs in BESIDE.items():
        found: dict[int, list[list[Run]]] = {1: [], 2: []}
        for job in CASES:
            if asked.wants(job.name):
                report(f"{job.name}, {machine}")
                seconds = min(SECONDS, asked.effort.job)
                with beside(programs):
                    measured = measure(job, sets[job.data], seconds, asked.effort.repeats)
                for n_workers, runs in measured.items():
                    jobs.rows.append(row_of(job.name, machine, n_workers, runs))
                    missed.rows.extend(rows_of_missed(job.name, machine, n_workers, runs))
                    found[n_workers].append(runs)
        for n_workers, of_jobs in found.items():
            if of_jobs:
                row = row_of_all(machine, of_jobs, two=n_workers == 2)
                together.rows.append(row if asked.effort.judged else (*row[:-1], ""))
    long = Table("paceline advise: water.xtc, joined; no index, not in memory", LONG_FILE)
    if asked.wants(LONG_CASE):
        report(LONG_CASE)
        size = LONG if asked.effort.judged else 0.0
        row = measure_long(sets["water"], asked.folder, size, min(asked.effort.repeats, 3))
        long.rows.append(row if asked.effort.judged else (*row[:-1], ""))
    asked.print_tables([table for table in (jobs, together, missed, long) if table.rows])


if __name__ == "__main__":
    main()
