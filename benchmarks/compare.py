"""Parts that benchmarks of several tools share: options, agreement, slopes, verdicts."""

import argparse
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.data import Dataset, prepare
from benchmarks.machine import describe
from benchmarks.measure import Slope, Spread, Subject, samples
from benchmarks.table import Table

REFERENCE, YARDSTICK = "MDAnalysis", "C loop"
OURS, OURS_2 = "paceline", "paceline, 2 threads"
TOLERANCE = 2e-3  # Å, of an RMSD: some tools compute it in single precision

SLOPES = (
    *("case", "tool", "µs/frame", "min", "max", "CPU µs"),
    *("times MDAnalysis", "fixed ms", "peak MB", "target"),
)
SPEEDUP = ("case", "frames", "1 thread s", "2 threads s", "speed-up", "min", "max")
#: Number of rounds of whole runs, from the disk and on two threads.
WHOLE_RUNS = 3


@dataclass(frozen=True)
class Effort:
    """Amount of work: number of rounds, and minimum durations of a measurement and a job, s."""

    repeats: int
    measurement: float = 0.5
    job: float = 10.0
    judged: bool = True


TINY = Effort(repeats=1, measurement=0.0, job=0.1, judged=False)


@dataclass(frozen=True)
class Options:
    """Options of a benchmark on the command line."""

    folder: Path
    tiny: bool
    tsv: bool
    effort: Effort
    only: tuple[str, ...]

    def datasets(self) -> list[Dataset]:
        """Return the data sets; missing ones are created."""
        return prepare(self.folder, 0.001 if self.tiny else 1.0)

    def wants(self, case: str) -> bool:
        """True if this case is measured."""
        return not self.only or case in self.only

    def print_head(self) -> None:
        """Print a description of the machine above the tables."""
        for line in describe():
            print(f"# {line}")
        if self.tiny:
            print("# tiny: too short to say anything about speed")

    def print_tables(self, tables: Sequence[Table], skipped: Sequence[str] = ()) -> None:
        """Print the measured rows, and the missing tools."""
        for table in tables:
            print(f"\n{table.render(self.tsv)}")
        for line in skipped:
            print(f"# skipped: {line}")


def options(description: str, cases: Sequence[str]) -> Options:
    """Parse the command line of a benchmark; limit this process and its subjects to one core."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    add = parser.add_argument
    add(
        "folder", nargs="?", type=Path, default=Path("bench-data"), help="of the data, [bench-data]"
    )
    add("--repeats", type=int, default=5, help="rounds [5]")
    add("--only", nargs="+", choices=cases, default=(), help="measure these cases alone")
    add("--tsv", action="store_true", help="separate columns by tabs")
    add("--tiny", action="store_true", help="short data and few repeats: a test")
    found = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # one worker means one core
    effort = TINY if found.tiny else Effort(found.repeats)
    return Options(found.folder, found.tiny, found.tsv, effort, tuple(found.only))


class Agreement:
    """Checks that every tool finds the same RMSD as the first one."""

    def __init__(self) -> None:
        self._expected: np.ndarray | None = None

    def check(self, name: str, values: np.ndarray | float) -> None:
        """Raise if `values`, Å, differ from the first tool's: one per frame, or their mean."""
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


def add_slopes(
    table: Table,
    case: str,
    ready: list[Subject],
    taken: Mapping[str, Slope],
    verdicts: Mapping[str, str],
) -> None:
    """Add a row for each tool to a table with the headings `SLOPES`."""
    for subject in ready:
        slope = taken[subject.name]
        time = Spread.of(slope.per_item * 1e6)
        table.rows.append(
            (
                case,
                subject.name,
                *(f"{value:.1f}" for value in (time.median, time.low, time.high)),
                f"{Spread.of(slope.cpu_per_item * 1e6).median:.1f}",
                f"{Spread.of(gains(taken, REFERENCE, subject.name)).median:.1f}"
                if REFERENCE in taken
                else "-",
                f"{Spread.of(slope.fixed * 1e3).median:.0f}",
                # The loop's own memory cannot be separated from that of the process that starts it.
                "-" if subject.name == YARDSTICK else f"{subject.peak_memory():.0f}",
                verdicts.get(subject.name, ""),
            )
        )


def gains(taken: Mapping[str, Slope], slower: str, faster: str) -> np.ndarray:
    """Return how many times as fast one tool was as another, in each round."""
    return taken[slower].per_item / taken[faster].per_item


def speedup(
    pair: Sequence[Subject], n_frames: int, effort: Effort, agreement: Agreement
) -> tuple[tuple[str, ...], np.ndarray]:
    """Run one job with one thread and with two; the file is repeated to make it long enough.

    Returns
    -------
    cells : tuple of str
        Cells of the row with the headings `SPEEDUP`, except the first.
    gain : numpy.ndarray
        Speed of two threads relative to one, in each round.
    """
    one_pass = min(pair[0].run(n_frames).seconds for _ in range(3))
    passes = math.ceil(effort.job / one_pass)
    taken = samples(list(pair), passes * n_frames, min(WHOLE_RUNS, effort.repeats))
    for name, runs in taken.items():
        agreement.check(name, runs[0].values)
    one, two = (np.array([run.seconds for run in runs]) for runs in taken.values())
    gain = Spread.of(one / two)
    seconds = (f"{np.median(times):.2f}" for times in (one, two))
    shown = (f"{value:.2f}" for value in (gain.median, gain.low, gain.high))
    return (str(passes * n_frames), *seconds, *shown), one / two


def judged(met: np.ndarray) -> str:
    """Summarise in how many rounds a target was met."""
    if met.all():
        return "met in every round"
    return f"met in {met.sum()} of {met.size} rounds"


def report(progress: str) -> None:
    """Print progress to standard error."""
    print(progress, file=sys.stderr, flush=True)
