"""Measure the time per frame from the file to an RMSD, with paceline and other tools.

    python -m benchmarks path [folder] [--repeats 5] [--only adk.xtc water.nc] [--tsv] [--tiny]

Prints three tables: the time per frame with the file in memory, whole runs with the file on disk,
and two workers compared with one. In the case adk.memory, frames are in an array instead of a file.
All tools must find the same RMSD, or the benchmark fails.
"""

from pathlib import Path

import numpy as np

from benchmarks import tools
from benchmarks.compare import (
    OURS,
    OURS_2,
    REFERENCE,
    SLOPES,
    SPEEDUP,
    WHOLE_RUNS,
    YARDSTICK,
    Agreement,
    Effort,
    add_slopes,
    gains,
    judged,
    options,
    report,
    speedup,
)
from benchmarks.data import SUFFIXES, Dataset
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

#: Suffix of the case whose frames are in an array in memory.
MEMORY = "memory"
TOOLS = {
    REFERENCE: (tools.mdanalysis,),
    "MDTraj": (tools.mdtraj,),
    "chemfiles": (tools.chemfiles,),
    "GROMACS": (tools.gromacs,),
    YARDSTICK: (tools.c_loop,),
    OURS: (tools.paceline, 1),
    OURS_2: (tools.paceline, 2),
}
#: Minimum speed of paceline with one worker, relative to MDAnalysis.
TARGETS = {
    "adk.memory": 15.0,
    "adk.xtc": 6.5,
    "adk.dcd": 11.0,
    "adk.trr": 28.0,
    "adk.nc": 5.0,
    "water.xtc": 50.0,
    "water.dcd": 75.0,
    "water.trr": 200.0,
    "water.nc": 12.0,
}
#: Tools that accept an array.
IN_MEMORY = (REFERENCE, OURS, OURS_2)
#: Maximum time of paceline with one worker, relative to the loop in C.
YARDSTICK_TARGET = 1.4
COLD = ("case", "tool", "run s", "min", "max", "MB from disk", "file MB")


class Bench:
    """The three tables, filled case by case."""

    def __init__(self, effort: Effort) -> None:
        self.effort = effort
        self.warm = Table("file in memory: slope between runs of n and 2n frames", SLOPES)
        self.cold = Table("file on disk: its pages dropped before each run of all frames", COLD)
        self.speedup = Table("one job on two threads; past its end the file is read again", SPEEDUP)
        self.skipped: list[str] = []

    def measure(self, data: Dataset, suffix: str) -> None:
        """Add the rows of one trajectory."""
        path = data.trajectory(suffix)
        in_memory = suffix == MEMORY
        known = TOOLS if not in_memory else {name: TOOLS[name] for name in IN_MEMORY}
        how = {name: (prepare, data, suffix, *more) for name, (prepare, *more) in known.items()}
        with subjects(how) as (ready, skipped):
            self.skipped += [f"{path.name}: {name}: {why}" for name, why in skipped.items()]
            agreement = Agreement()
            for subject in ready:
                report(f"{path.name}: {subject.name}")
                agreement.check(subject.name, subject.run(data.n_frames).values)
            self._measure_warm(path.name, ready, data.n_frames // 2)
            if not in_memory:
                self._measure_cold(path, ready, data.n_frames)
            self._measure_speedup(path.name, ready, data.n_frames, agreement)

    def _measure_warm(self, case: str, ready: list[Subject], n: int) -> None:
        report(f"{case}: warm")
        taken = slopes(ready, n, self.effort.repeats, self.effort.measurement)
        verdicts = {OURS: _verdict(case, taken)} if self.effort.judged else {}
        add_slopes(self.warm, case, ready, taken, verdicts)

    def _measure_cold(self, path: Path, ready: list[Subject], n: int) -> None:
        report(f"{path.name}: cold")
        try:
            taken = samples(ready, n, min(WHOLE_RUNS, self.effort.repeats), cold=path)
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
        report(f"{case}: speed-up")
        cells, _ = speedup(pair, n_frames, self.effort, agreement)
        self.speedup.rows.append((case, *cells))


def _verdict(case: str, taken: dict[str, Slope]) -> str:
    target = TARGETS[case]
    met = judged(gains(taken, REFERENCE, OURS) >= target)
    words = [f"{target:g} times {REFERENCE} {met}"]
    if YARDSTICK in taken:
        costs = gains(taken, OURS, YARDSTICK)
        met = judged(costs <= YARDSTICK_TARGET)
        cost = Spread.of(costs).median
        words.append(f"{cost:.2f} of {YARDSTICK}, target {YARDSTICK_TARGET:g} {met}")
    return "; ".join(words)


def _disk_megabytes(runs: list[Sample]) -> str:
    read = [run.disk_bytes for run in runs if run.disk_bytes is not None]
    return f"{np.median(read) / 1e6:.0f}" if read else "-"


def main() -> None:
    asked = options(__doc__, list(TARGETS))
    datasets = asked.datasets()
    asked.print_head()
    bench = Bench(asked.effort)
    try:
        for data in datasets:
            for suffix in (*SUFFIXES, MEMORY):
                case = data.trajectory(suffix).name
                if case in TARGETS and asked.wants(case):
                    bench.measure(data, suffix)
    finally:
        asked.print_tables([bench.warm, bench.cold, bench.speedup], bench.skipped)


if __name__ == "__main__":
    main()
