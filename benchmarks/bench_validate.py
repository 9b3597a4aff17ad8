"""What judging every frame costs beside decoding it.

    python -m benchmarks.bench_validate [folder] [--repeats 5] [--scale 0.01] [--tsv] [--tiny]

Whole passes over files in memory, opening included, in one thread: `paceline.validate`, and an
analysis that decodes all atoms and looks at none. Ratios are taken within rounds.
"""

import argparse
import os
from pathlib import Path

import numpy as np

from benchmarks.data import Dataset, prepare
from benchmarks.machine import describe
from benchmarks.measure import Run, Spread, samples, subjects
from benchmarks.table import Table

DECODE, VALIDATE = "decode", "validate"
#: The cost of validating in times decoding, at most.
TARGET = 1.15

HEADINGS = (
    *("case", "frames", "decode µs", "validate µs"),
    *("ratio", "min", "max", "CPU ratio", "CPU min", "CPU max"),
)


def validate(path: Path) -> Run:
    """Judge all frames, `n` times."""
    import paceline

    def run(n: int) -> int:
        verdicts = [paceline.validate(path, backend="serial", progress=False) for _ in range(n)]
        return sum(len(verdict.bad) for verdict in verdicts)

    return run


def decode(path: Path, n_atoms: int) -> Run:
    """Decode all atoms of all frames, `n` times."""
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
    """The times of a block, which are there anyway."""
    return block.times


def measure(data: Dataset, suffix: str, repeats: int) -> tuple[str, ...]:
    """The row of one trajectory."""
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

    return _core.Trajectory.open(path).n_atoms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("bench-data"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the frames to read")
    parser.add_argument("--only", metavar="CASE", help="measure this one alone: adk.xtc, say")
    parser.add_argument("--tsv", action="store_true", help="separate columns by tabs")
    parser.add_argument("--tiny", action="store_true", help="short data and few repeats: a test")
    arguments = parser.parse_args()

    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    scale, repeats = (0.001, 2) if arguments.tiny else (arguments.scale, arguments.repeats)
    table = Table(f"one pass over a file in memory; target: a ratio of {TARGET:g}", HEADINGS)
    for data in prepare(arguments.folder, scale):
        for suffix in ("xtc", "dcd"):
            if arguments.only in (None, data.trajectory(suffix).name):
                table.rows.append(measure(data, suffix, repeats))
    for line in describe():
        print(f"# {line}")
    if arguments.tiny:
        print("# tiny: too short to say anything about speed")
    print(f"\n{table.render(arguments.tsv)}")


if __name__ == "__main__":
    main()
