"""Measure formatting atoms as text of DL_POLY files, with numbers in fixed columns.

    python -m benchmarks formatting [folder] [--repeats 5] [--only CONFIG] [--tsv] [--tiny]

Each tool uses one core to format the lines of 216,000 atoms with velocities and forces. Paceline's
encoder works in batches, as in its snapshot writer. A Fortran program (`fortran.f90`) uses
formatted writes, to strings in memory as DL_POLY does, or to a file in memory. All must write the
same bytes, or the benchmark fails.
"""

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import OURS, gains, judged, options, report
from benchmarks.measure import Run, Slope, Spread, Subject, Unavailable, slopes, subjects
from benchmarks.table import Table

PROGRAM = Path(__file__).with_name("fortran.f90")
#: Folder whose files are in memory, on Linux.
MEMORY = Path("/dev/shm")

FORMATS = ("CONFIG", "HISTORY")
N_ATOMS, TINY = 216_000, 1_000
#: Number of atoms that are formatted at a time.
BATCH = 10_000
ALL_FIELDS = 7
RECORD_SIZE = 73
#: DL_POLY's units of force per kJ/(mol·Å).
FORCE = 100.0
RECORDS, FILE = "Fortran, to strings", "Fortran, to a file"
#: Minimum speed relative to the faster of the two Fortran variants.
TARGET = 5.0

HEADINGS = (
    *("case", "tool", "ns/atom", "min", "max"),
    *("CPU ns", "MB/s", "paceline is times as fast", "target"),
)


def atoms(n_atoms: int) -> dict[str, np.ndarray]:
    """Create numbers as large as those of molten salt: Å, Å/ps, kJ/(mol·Å), Da, e."""
    random = np.random.default_rng(7)
    return {
        "positions": random.uniform(-64.0, 64.0, (n_atoms, 3)),
        "velocities": random.normal(0.0, 5.0, (n_atoms, 3)),
        "forces": random.normal(0.0, 30.0, (n_atoms, 3)),
        "masses": np.full(n_atoms, 22.98977),
        "charges": np.full(n_atoms, 1.0),
    }


def paceline(form: str, n_atoms: int) -> Run:
    """The encoder of paceline's snapshots."""
    from paceline._core import SnapshotFormat

    encoder = SnapshotFormat(form, ALL_FIELDS)
    numbers = atoms(n_atoms)
    vectors = (numbers[name] for name in ("positions", "velocities", "forces"))
    names = np.tile(np.frombuffer(b"Na+     ", np.uint8), (n_atoms, 1))
    scalars = (numbers["masses"], numbers["charges"]) if form == "HISTORY" else (None, None)
    whole = (np.arange(1, n_atoms + 1), *vectors, names, *scalars)
    batches: list[Any] = [
        tuple(None if array is None else array[start : start + BATCH] for array in whole)
        for start in range(0, n_atoms, BATCH)
    ]
    digest = _digest(b"".join(encoder.encode(0, batch) for batch in batches))

    def run(n: int) -> str:
        for _ in range(n):
            for batch in batches:
                encoder.encode(0, batch)
        return digest

    return run


def fortran(form: str, n_atoms: int, way: str) -> Run:
    """The program in Fortran."""
    compiler = shutil.which("gfortran")
    if compiler is None:
        raise Unavailable("no gfortran on PATH")
    temporary = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
    program, numbers, text = (
        Path(temporary.name) / name for name in ("fortran", "numbers", "text")
    )
    subprocess.run([compiler, "-O2", "-o", program, PROGRAM], check=True)
    columns = atoms(n_atoms)
    columns["forces"] *= FORCE
    scalars = (columns.pop("masses"), columns.pop("charges"))
    np.column_stack([*scalars, *columns.values()]).tofile(numbers)

    def run(n: int) -> str:
        subprocess.run([program, form, way, numbers, str(n_atoms), str(n), text], check=True)
        return _digest((Path(temporary.name) / "text").read_bytes())

    return run


def _digest(text: bytes) -> str:
    return hashlib.blake2b(text).hexdigest()


def main() -> None:
    asked = options(__doc__, FORMATS)
    asked.print_head()
    n_atoms = TINY if asked.tiny else N_ATOMS
    table = Table(f"{n_atoms} atoms: slope between n and 2n times all of them", HEADINGS)
    skipped: list[str] = []
    for form in FORMATS:
        if not asked.wants(form):
            continue
        how = {
            OURS: (paceline, form, n_atoms),
            RECORDS: (fortran, form, n_atoms, "records"),
            FILE: (fortran, form, n_atoms, "file"),
        }
        with subjects(how) as (ready, missing):
            report(form)
            _agree(ready)
            taken = slopes(ready, 1, asked.effort.repeats, asked.effort.measurement)
            _add_rows(table, form, n_atoms, taken, asked.effort.judged)
        skipped += [f"{form}: {name}: {why}" for name, why in missing.items()]
    asked.print_tables([table], skipped)


def _agree(ready: list[Subject]) -> None:
    """Raise if a tool writes other bytes than the first tool."""
    digests = {subject.name: subject.run(1).values for subject in ready}
    if len(set(digests.values())) > 1:
        raise RuntimeError(f"not all make the same bytes: {digests}")


def _add_rows(
    table: Table, form: str, n_atoms: int, taken: Mapping[str, Slope], is_judged: bool
) -> None:
    """Add a row for each tool."""
    ours = taken[OURS]
    size = 4 * RECORD_SIZE * n_atoms
    for name, slope in taken.items():
        nanoseconds = Spread.of(slope.per_item / n_atoms * 1e9)
        cells = (nanoseconds.median, nanoseconds.low, nanoseconds.high)
        ratio = gains(taken, name, OURS)
        table.rows.append(
            (
                *(form, name),
                *(f"{value:.0f}" for value in cells),
                f"{np.median(slope.cpu_per_item) / n_atoms * 1e9:.0f}",
                f"{np.median(size / slope.per_item) / 1e6:.0f}",
                f"{np.median(ratio):.1f}",
                judged(ratio >= TARGET) if is_judged and slope is not ours else "",
            )
        )


if __name__ == "__main__":
    main()
