"""How long a frame takes on its way from the file to an RMSD, with paceline and with others.

    python -m benchmarks [folder] [--repeats 5] [--only adk.xtc] [--tsv] [--tiny]

Prints three tables: a frame's time with the file in memory, whole runs with the file on disk, and
what a second worker gains. All tools must find the same RMSD, or the benchmark fails.
"""

import argparse
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import tools
from benchmarks.data import Dataset, prepare
from benchmarks.machine import describe
from benchmarks.measure import (
    Sample,
    Slope,
    Spread,
    Subject,
    Unavailable,
    samples,
    slopes,
    subjects,
)
from benchmarks.table import Table

REFERENCE, YARDSTICK, OURS, OURS_2 = "MDAnalysis", "C loop", "paceline", "paceline, 2 threads"
TOOLS = {
    REFERENCE: (tools.mdanalysis,),
    "MDTraj": (tools.mdtraj,),
    "chemfiles": (tools.chemfiles,),
    "GROMACS": (tools.gromacs,),
    YARDSTICK: (tools.c_loop,),
    OURS: (tools.paceline, 1),
    OURS_2: (tools.paceline, 2),
}
#: Paceline with one worker against MDAnalysis, at least.
TARGETS = {"adk.xtc": 6.5, "adk.dcd": 11.0, "water.xtc": 50.0, "water.dcd": 75.0}
#: Paceline with one worker against the loop in C, at most.
YARDSTICK_TARGET = 1.4
TOLERANCE = 1e-3  # Å
COLD_REPEATS = 3
#: Slopes are taken over this many frames, or over half of a shorter file.
WARM_FRAMES = 25_000

WARM = (
    *("case", "tool", "µs/frame", "min", "max", "CPU µs"),
    *("times MDAnalysis", "fixed ms", "peak MB", "target"),
)
COLD = ("case", "tool", "run s", "min", "max", "MB from disk", "file MB")
SPEEDUP = ("case", "frames", "1 thread s", "2 threads s", "speed-up", "min", "max")


@dataclass(frozen=True)
class Effort:
    """How much is measured: rounds, and the seconds that a measurement and a job last at least."""

    repeats: int
    measurement: float = 1.0
    job: float = 10.0
    judged: bool = True


TINY = Effort(repeats=2, measurement=0.0, job=0.1, judged=False)


class Agreement:
    """Holds every tool to the RMSD that the first one found."""

    def __init__(self) -> None:
        self._expected: np.ndarray | None = None

    def check(self, name: str, values: np.ndarray | float) -> None:
        """Raise if `values`, Å, differ: one a frame, or their mean."""
        if self._expected is None:
            self._expected = np.asarray(values)
        whole = self._expected if np.ndim(values) else self._expected.mean()
        expected = np.resize(whole, np.shape(values))
        apart = np.atleast_1d(np.abs(values - expected))
        if np.size(values) < np.size(whole) or not apart.max() <= TOLERANCE:
            worst = int(np.argmax(apart))
            raise RuntimeError(
                f"{name}: {np.size(values)} values of RMSD, expected {np.size(whole)}; number "
                f"{worst}, the worst, is {apart[worst]} Å from {REFERENCE}'s"
            )


class Bench:
    """The three tables, filled case by case."""

    def __init__(self, effort: Effort) -> None:
        self.effort = effort
        self.warm = Table("file in memory: slope between runs of n and 2n frames", WARM)
        self.cold = Table("file on disk: its pages dropped before each run of all frames", COLD)
        self.speedup = Table("one job on two threads; past its end the file is read again", SPEEDUP)
        self.skipped: list[str] = []

    def measure(self, data: Dataset, suffix: str) -> None:
        """Fill in the rows of one trajectory, its case."""
        path = data.trajectory(suffix)
        how = {name: (prepare, data, suffix, *more) for name, (prepare, *more) in TOOLS.items()}
        with subjects(how) as (ready, skipped):
            self.skipped += [f"{path.name}: {name}: {why}" for name, why in skipped.items()]
            agreement = Agreement()
            for subject in ready:
                _report(f"{path.name}: {subject.name}")
                agreement.check(subject.name, subject.run(data.n_frames).values)
            self._measure_warm(path.name, ready, min(WARM_FRAMES, data.n_frames // 2))
            self._measure_cold(path, ready, data.n_frames)
            self._measure_speedup(path.name, ready, data.n_frames, agreement)

    def _measure_warm(self, case: str, ready: list[Subject], n: int) -> None:
        _report(f"{case}: warm")
        judged = self.effort.judged
        taken = slopes(ready, n, self.effort.repeats, self.effort.measurement)
        for subject in ready:
            slope = taken[subject.name]
            time = Spread.of(slope.per_item * 1e6)
            self.warm.rows.append(
                (
                    case,
                    subject.name,
                    *(f"{value:.1f}" for value in (time.median, time.low, time.high)),
                    f"{Spread.of(slope.cpu_per_item * 1e6).median:.1f}",
                    f"{_ratio(taken[REFERENCE], slope):.1f}",
                    f"{Spread.of(slope.fixed * 1e3).median:.0f}",
                    # the loop's own memory can't be told from that of the process that starts it
                    "-" if subject.name == YARDSTICK else f"{subject.peak_memory():.0f}",
                    _verdict(case, taken) if judged and subject.name == OURS else "",
                )
            )

    def _measure_cold(self, path: Path, ready: list[Subject], n: int) -> None:
        _report(f"{path.name}: cold")
        try:
            taken = samples(ready, n, min(COLD_REPEATS, self.effort.repeats), cold=path)
        except Unavailable as reason:
            self.skipped.append(f"{path.name}: file on disk: {reason}")
            return
        for name, runs in taken.items():
            time = Spread.of(run.seconds for run in runs)
            times = (f"{value:.2f}" for value in (time.median, time.low, time.high))
            size = f"{path.stat().st_size / 1e6:.0f}"
            self.cold.rows.append((path.name, name, *times, _disk_megabytes(runs), size))

    def _measure_speedup(
        self, case: str, ready: list[Subject], n_frames: int, agreement: Agreement
    ) -> None:
        pair = [subject for subject in ready if subject.name in (OURS, OURS_2)]
        if not pair:
            return
        _report(f"{case}: speed-up")
        one_pass = min(pair[0].run(n_frames).seconds for _ in range(3))
        passes = math.ceil(self.effort.job / one_pass)
        taken = samples(pair, passes * n_frames, self.effort.repeats)
        for name, runs in taken.items():
            agreement.check(name, runs[0].values)
        one, two = (np.array([run.seconds for run in taken[name]]) for name in (OURS, OURS_2))
        gain = Spread.of(one / two)
        seconds = (f"{np.median(times):.2f}" for times in (one, two))
        gains = (f"{value:.2f}" for value in (gain.median, gain.low, gain.high))
        self.speedup.rows.append((case, str(passes * n_frames), *seconds, *gains))


def _ratio(slower: Slope, faster: Slope) -> float:
    return Spread.of(slower.per_item / faster.per_item).median


def _verdict(case: str, taken: dict[str, Slope]) -> str:
    gains, target = taken[REFERENCE].per_item / taken[OURS].per_item, TARGETS[case]
    words = [f"{target:g} times MDAnalysis {_judged(gains >= target)}"]
    if YARDSTICK in taken:
        costs = taken[OURS].per_item / taken[YARDSTICK].per_item
        cost, met = Spread.of(costs).median, _judged(costs <= YARDSTICK_TARGET)
        words.append(f"{cost:.2f} of C loop, target {YARDSTICK_TARGET:g} {met}")
    return "; ".join(words)


def _judged(met: np.ndarray) -> str:
    """What the ratios within rounds say together."""
    if met.all():
        return "met in every round"
    return f"met in {met.sum()} of {met.size} rounds"


def _disk_megabytes(runs: list[Sample]) -> str:
    read = [run.disk_bytes for run in runs if run.disk_bytes is not None]
    return f"{np.median(read) / 1e6:.0f}" if read else "-"


def _report(progress: str) -> None:
    print(progress, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("bench-data"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=TARGETS, help="measure this trajectory alone")
    parser.add_argument("--tsv", action="store_true", help="separate columns by tabs")
    parser.add_argument("--tiny", action="store_true", help="short data and few repeats: a test")
    arguments = parser.parse_args()

    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # one worker means one core
    datasets = prepare(arguments.folder, 0.001 if arguments.tiny else 1.0)
    bench = Bench(TINY if arguments.tiny else Effort(arguments.repeats))
    for line in describe():
        print(f"# {line}")
    if arguments.tiny:
        print("# tiny: too short to say anything about speed")
    try:
        for data in datasets:
            for suffix in ("xtc", "dcd"):
                if arguments.only in (None, data.trajectory(suffix).name):
                    bench.measure(data, suffix)
    finally:
        for table in (bench.warm, bench.cold, bench.speedup):
            print(f"\n{table.render(arguments.tsv)}")
        for line in bench.skipped:
            print(f"# skipped: {line}")


if __name__ == "__main__":
    main()
