"""Compare validating every frame with decoding it.

    python -m benchmarks validate [folder] [--repeats 5] [--only adk.xtc] [--tsv] [--tiny]

Both make whole passes over files in memory, opening included, in one thread: `paceline.validate`,
and an analysis that decodes all atoms but uses none. Ratios are computed within rounds.
"""

from pathlib import Path

import numpy as np

from benchmarks.compare import options, report
from benchmarks.data import SUFFIXES, TRAJECTORIES, Dataset
from benchmarks.measure import Run, Spread, samples, subjects
from benchmarks.table import Table

DECODE, VALIDATE = "decode", "validate"
#: Maximum time of validation, relative to decoding.
TARGET = 1.15

HEADINGS = (
    *("case", "frames", "decode µs", "validate µs"),
    *("ratio", "min", "max", "CPU ratio", "CPU min", "CPU max"),
)


def validate(path: Path) -> Run:
    """Return a run that validates all frames `n` times."""
    import paceline

    def run(n: int) -> int:
        verdicts = [paceline.validate(path, backend="serial", progress=False) for _ in range(n)]
        return sum(len(verdict.bad) for verdict in verdicts)

    return run


def decode(path: Path, n_atoms: int) -> Run:
    """Return a run that decodes all atoms of all frames `n` times."""
    import paceline

    def run(n: int) -> int:
        for _ in range(n):
            universe = paceline.Universe.empty(n_atoms)
            universe.load_new(str(path))
            series = paceline.TimeSeries(_nothing, universe)
            series.run(backend="serial", progress=False)
        return 0

    return run


def _nothing(block) -> np.ndarray:
    """Return the times of a block, which exist anyway."""
    return block.times


def measure(data: Dataset, suffix: str, repeats: int) -> tuple[str, ...]:
    """Create the row of one trajectory."""
    path = data.trajectory(suffix)
    n_atoms = _n_atoms(path)
    with subjects({DECODE: (decode, path, n_atoms), VALIDATE: (validate, path)}) as (ready, _):
        samples(ready, 1, 1)
        taken = samples(ready, 1, repeats)
    for sample in taken[VALIDATE]:
        if sample.values:
            raise RuntimeError(f"{path}: {sample.values} findings in a sound file")
    seconds, cpu = (
        {name: np.array([getattr(run, kind) for run in runs]) for name, runs in taken.items()}
        for kind in ("seconds", "cpu_seconds")
    )
    costs = (f"{np.median(seconds[name]) / data.n_frames * 1e6:.1f}" for name in seconds)
    ratios = (Spread.of(times[VALIDATE] / times[DECODE]) for times in (seconds, cpu))
    shown = (f"{value:.2f}" for one in ratios for value in (one.median, one.low, one.high))
    return path.name, str(data.n_frames), *costs, *shown


def _n_atoms(path: Path) -> int:
    from paceline import _core

    return _core.Trajectory(path).n_atoms


def main() -> None:
    asked = options(__doc__, TRAJECTORIES)
    asked.print_head()
    table = Table(f"one pass over a file in memory; target: a ratio of {TARGET:g}", HEADINGS)
    for data in asked.datasets():
        for suffix in SUFFIXES:
            if asked.wants(case := data.trajectory(suffix).name):
                report(case)
                table.rows.append(measure(data, suffix, asked.effort.repeats))
    asked.print_tables([table])


if __name__ == "__main__":
    main()
