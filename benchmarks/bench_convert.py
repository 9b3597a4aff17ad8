"""Measure the time to convert a frame from one file to another, with paceline and other tools.

    python -m benchmarks convert [folder] [--repeats 5] [--only adk.xtc-to-dcd] [--tsv] [--tiny]

Files are read from memory, and written to memory if the system has such a folder, because only
paceline waits for the disk. All tools must write the same frames, or the benchmark fails.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import converters
from benchmarks.compare import (
    OURS,
    OURS_2,
    REFERENCE,
    SLOPES,
    Effort,
    add_slopes,
    gains,
    judged,
    options,
    report,
)
from benchmarks.converters import Conversion
from benchmarks.data import SELECTION, Dataset
from benchmarks.measure import Slope, Spread, Subject, slopes, subjects
from benchmarks.table import Table

MDTRAJ = "MDTraj"
TOOLS = {
    REFERENCE: (converters.mdanalysis,),
    MDTRAJ: (converters.mdtraj,),
    OURS: (converters.paceline, 1),
    OURS_2: (converters.paceline, 2),
}
#: Minimum speed of paceline relative to the fastest other tool, and of two workers relative to one.
TARGET, TARGET_2 = 3.0, 1.8
#: Allowed difference of positions, Å; XTC has steps of 0.01 Å.
TOLERANCES = {"xtc": 0.0101, "dcd": 1e-4, "h5md": 1e-4}
MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Case:
    """A conversion: set, source, target and atoms."""

    name: str
    data: str
    source: str
    target: str
    selection: str = "all"


CASES = (
    Case("adk.xtc-to-ca.xtc", "adk", "xtc", "xtc", SELECTION),
    Case("adk.xtc-to-xtc", "adk", "xtc", "xtc"),
    Case("adk.dcd-to-xtc", "adk", "dcd", "xtc"),
    Case("adk.xtc-to-dcd", "adk", "xtc", "dcd"),
    Case("water.xtc-to-protein.xtc", "water", "xtc", "xtc", "protein"),
    Case("water.xtc-to-xtc", "water", "xtc", "xtc"),
    Case("water.dcd-to-xtc", "water", "dcd", "xtc"),
    Case("water.xtc-to-dcd", "water", "xtc", "dcd"),
)


def measure(case: Case, data: Dataset, folder: Path, effort: Effort, table: Table) -> list[str]:
    """Add the rows of a case; return missing tools with reasons."""
    task = Conversion(data, case.source, case.target, _atoms(case, data), folder)
    n = max(data.n_frames // 10, 2)
    how = {name: (prepare, task, *more) for name, (prepare, *more) in TOOLS.items()}
    with subjects(how) as (ready, skipped):
        check_frames(case.name, ready, max(n // 10, 2), case.target)
        report(f"{case.name}: slopes")
        taken = slopes(ready, n, effort.repeats, effort.measurement)
        add_slopes(table, case.name, ready, taken, _verdicts(taken) if effort.judged else {})
    return [f"{case.name}: {name}: {why}" for name, why in skipped.items()]


def _atoms(case: Case, data: Dataset) -> np.ndarray | None:
    import MDAnalysis

    if case.selection == "all":
        return None
    return MDAnalysis.Universe(data.topology).select_atoms(case.selection).indices


def check_frames(case: str, ready: Sequence[Subject], n: int, target: str) -> None:
    """Raise unless all subjects write the same `n` frames."""
    reference = None
    for subject in ready:
        report(f"{case}: {subject.name}")
        positions, cells = _frames(subject.run(n).values)
        if reference is None:
            reference = positions, cells
        _check(f"{case}: {subject.name}", positions, reference[0], target)
        _check(f"{case}: {subject.name}: cells", cells, reference[1], target)


def _frames(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Positions and cells of a whole file, by MDAnalysis's reader."""
    from MDAnalysis.coordinates.core import reader

    with reader(str(path)) as frames:
        pairs = [(ts.positions.copy(), ts.dimensions) for ts in frames]
    return np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])


def _check(name: str, found: np.ndarray, expected: np.ndarray, target: str) -> None:
    if found.shape != expected.shape:
        raise RuntimeError(f"{name}: wrote {found.shape}, expected {expected.shape}")
    apart = np.abs(found - expected).max()
    if not apart <= TOLERANCES[target]:
        raise RuntimeError(f"{name}: wrote numbers up to {apart} from {REFERENCE}'s")


def _verdicts(taken: dict[str, Slope]) -> dict[str, str]:
    others = [name for name in (REFERENCE, MDTRAJ) if name in taken]
    fastest = min(others, key=lambda name: np.median(taken[name].per_item))
    one, two = gains(taken, fastest, OURS), gains(taken, OURS, OURS_2)
    return {
        OURS: f"{Spread.of(one).median:.1f} times {fastest}, "
        f"target {TARGET:g} {judged(one >= TARGET)}",
        OURS_2: f"{Spread.of(two).median:.2f} times one thread, "
        f"target {TARGET_2:g} {judged(two >= TARGET_2)}",
    }


def main() -> None:
    asked = options(__doc__, [case.name for case in CASES])
    datasets = {data.name: data for data in asked.datasets()}
    asked.print_head()
    table = Table("converted: slope between runs of n and 2n frames", SLOPES)
    skipped = []
    scratch = MEMORY if MEMORY.is_dir() else asked.folder
    try:
        for case in CASES:
            if asked.wants(case.name):
                with tempfile.TemporaryDirectory(dir=scratch) as folder:
                    data = datasets[case.data]
                    skipped += measure(case, data, Path(folder), asked.effort, table)
    finally:
        asked.print_tables([table], skipped)


if __name__ == "__main__":
    main()
