"""Measure writing atoms from MPI ranks to ordered files, and reading them back.

    python -m benchmarks snapshot [folder] [--repeats 5] [--only write …] [--tsv] [--tiny]

The system is sodium chloride with velocities and forces. All methods and two yardsticks alternate
in each round. The yardsticks are ranks that write already ordered records with plain large writes,
and ROMIO's collective write. Files are in the folder and, unless stated otherwise, in the page
cache. All methods must write the same bytes.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import nacl
from benchmarks.compare import Effort, judged, options, report
from benchmarks.measure import Spread, Unavailable, subjects
from benchmarks.ranks import EVERY_RANK, on_ranks
from benchmarks.resident import MEBIBYTE
from benchmarks.snapshot_cases import COLLECTIVE, IN_ORDER, METHODS, Case, Row, measure_cases
from benchmarks.table import Table

READING = Path(__file__).with_name("snapshot_reading_on_ranks.py")
FORMATTED, BINARY = ("CONFIG", "HISTORY"), ("H5MD", "NetCDF", "DCD")
#: Minimum speed of "sorted" relative to these methods; minimum rate relative to ordered records.
SLOW, FASTER, IN_ORDER_RATE = ("mpiio", "serial"), 5.0, 0.7
#: Memory that a writer may use beyond its buffer, bytes.
ALLOWED = 32 * MEBIBYTE
#: Minimum reading speed relative to MDAnalysis.
READING_TARGET = 20.0
#: Unit cells along an edge in a test.
TINY = 4
DUMPS = (
    *("case", "way", "ms", "min", "max", "CPU ms", "MB/s"),
    *("time / sorted", "min", "max", "target"),
)
OURS, REFERENCE = "paceline, 2 ranks", "MDAnalysis"


def writing(folder: Path, effort: Effort) -> Table:
    """Measure all methods on 2 ranks, with formatted files."""
    table = Table(
        f"a dump of {nacl.n_ions(cells(effort)):,} ions by 2 ranks, without fsync",
        DUMPS,
    )
    cases = [
        Case(way, 2, cells(effort), format)
        for format in FORMATTED
        for way in (*METHODS, IN_ORDER, COLLECTIVE)
    ]
    add_ways(table, measure_cases(folder, cases, effort.repeats), effort)
    return table


def synced(folder: Path, effort: Effort) -> Table:
    """Measure writing until the file is on the disk."""
    table = Table(
        f"a dump of {nacl.n_ions(cells(effort)):,} ions by 2 ranks, with fsync",
        DUMPS,
    )
    ways = ("sorted", IN_ORDER, COLLECTIVE)
    cases = [Case(way, 2, cells(effort), sync=True) for way in ways]
    add_ways(table, measure_cases(folder, cases, effort.repeats), effort)
    return table


def binary(folder: Path, effort: Effort) -> Table:
    """Measure writing of the ions in binary formats."""
    table = Table(
        f"a dump of {nacl.n_ions(cells(effort)):,} ions by 2 ranks, without fsync",
        DUMPS,
    )
    cases = [
        Case(way, 2, cells(effort), format) for format in BINARY for way in ("sorted", "direct")
    ]
    add_ways(table, measure_cases(folder, cases, effort.repeats), effort)
    return table


def add_ways(table: Table, rows: Sequence[Row], effort: Effort) -> None:
    """Add a row for each format and method, relative to "sorted" in the same round."""
    for format, way in dict.fromkeys((row["format"], row["way"]) for row in rows):
        of_format = [row for row in rows if row["format"] == format]
        seconds, ours = (
            np.array([row["t_total"] for row in of_format if row["way"] == name])
            for name in (way, "sorted")
        )
        ratios = seconds / ours
        verdict = ""
        if effort.judged and format in FORMATTED and not rows[0]["sync"]:
            if way in SLOW:
                verdict = f"at least {FASTER:g} {judged(ratios >= FASTER)}"
            elif way == IN_ORDER:
                verdict = f"at least {IN_ORDER_RATE:g} {judged(ratios >= IN_ORDER_RATE)}"
        (mbytes,) = {row["mbytes"] for row in of_format}
        rate = f"{mbytes / np.median(seconds):.0f}"
        cpu = np.median([row["cpu"] for row in of_format if row["way"] == way])
        times = spread(seconds * 1e3, 1)
        table.rows.append(
            (format, way, *times, f"{cpu * 1e3:.0f}", rate, *spread(ratios, 2), verdict)
        )


def counts(folder: Path, effort: Effort) -> Table:
    """Count messages and writes, which do not depend on time."""
    table = Table(
        "a CONFIG dump: messages and writes of all ranks, peak buffers of the rank with most",
        (
            *("case", "ranks", "ions", "messages", "MB sent", "writes", "MB written"),
            *("MB a write", "batches", "peak buffer, MB"),
        ),
    )
    sizes = (nacl.SMALL, nacl.LARGE) if effort.judged else (TINY,)
    for size in sizes:
        # The other methods take long for the larger system: ranks that share two cores are slow
        # with one call per record.
        ways = METHODS if size == sizes[0] else ("sorted",)
        todo = [Case(way, n, size) for n in (2, 8, 16) for way in ways]
        for row in measure_cases(folder, todo, 1):
            columns = ("mb_sent", "mb_written", "mb_buffer")
            sent, written, buffer = (f"{row[key]:.1f}" for key in columns)
            each = f"{row['mb_written'] / max(row['n_writes'], 1):.3g}"
            messages, writes, batches = (
                str(row[key]) for key in ("n_messages", "n_writes", "n_batches")
            )
            table.rows.append(
                (
                    *(row["way"], str(row["ranks"]), f"{nacl.n_ions(size)}", messages, sent),
                    *(writes, written, each, batches, buffer),
                )
            )
    return table


def memory(folder: Path, effort: Effort) -> Table:
    """Measure how much the memory of a writer's process grows."""
    table = Table(
        "memory of the rank with most beyond its ions, one of 2 ranks writing",
        ("case", "ions", "buffer, MB", "MB", "min", "max", "peak buffer, MB", "target"),
    )
    sizes = (nacl.SMALL, nacl.LARGE) if effort.judged else (TINY,)
    buffers = (8, 64)
    cases = [
        Case("sorted", 2, size, writers=1, buffer=f"{mebibytes} MiB")
        for size in sizes
        for mebibytes in buffers
    ]
    rows = measure_cases(folder, cases, effort.repeats)
    for case, mebibytes in zip(cases, buffers * len(sizes), strict=True):
        own = [row for row in rows if (row["cells"], row["buffer"]) == (case.cells, case.buffer)]
        growth = np.array([row["mb_growth"] for row in own])
        buffer = mebibytes * MEBIBYTE
        verdict = ""
        if effort.judged:
            met = judged(growth <= buffer + ALLOWED)
            verdict = f"at most {buffer + ALLOWED:.1f} {met}"
        peak = f"{max(row['mb_buffer'] for row in own):.1f}"
        ions = str(nacl.n_ions(case.cells))
        table.rows.append(("memory", ions, f"{buffer:.1f}", *spread(growth, 1), peak, verdict))
    return table


def reading(folder: Path, effort: Effort) -> Table:
    """Measure reading a CONFIG and distributing it by domains, and reading with MDAnalysis."""
    size = nacl.LARGE if effort.judged else TINY
    table = Table(
        f"reading {nacl.n_ions(size):,} ions of a CONFIG",
        ("case", "tool", "s", "min", "max", "CPU s", "times MDAnalysis", "min", "max", "target"),
    )
    path = folder / "CONFIG"
    on_ranks(2, EVERY_RANK, "make", path, size, programs=READING)
    taken: dict[str, list[tuple[float, float]]] = {REFERENCE: [], OURS: []}
    with subjects({REFERENCE: (read_by_mdanalysis, path)}) as (ready, skipped):
        if skipped:
            raise Unavailable(skipped[REFERENCE])
        for _ in range(effort.repeats):
            theirs = ready[0].run(1)
            ours = on_ranks(2, EVERY_RANK, "read", path, size, programs=READING)
            if not np.allclose(theirs.values, ours["means"], rtol=0, atol=1e-3):
                raise RuntimeError(f"means differ: {theirs.values} and {ours['means']}")
            taken[REFERENCE].append((theirs.seconds, theirs.cpu_seconds))
            taken[OURS].append((ours["seconds"], ours["cpu"]))
    times = {tool: np.transpose(rounds) for tool, rounds in taken.items()}
    for tool, (seconds, cpu) in times.items():
        ratios = times[REFERENCE][0] / seconds
        verdict = ""
        if effort.judged and tool == OURS:
            verdict = f"at least {READING_TARGET:g} {judged(ratios >= READING_TARGET)}"
        table.rows.append(
            ("read", tool, *spread(seconds, 2), spread(cpu, 2)[0], *spread(ratios, 1), verdict)
        )
    return table


def read_by_mdanalysis(path: Path) -> Callable[[int], Any]:
    """Return means of distances from the origin, of speeds and of forces."""
    from MDAnalysis.coordinates.DLPoly import ConfigReader

    def run(n: int) -> list[float]:
        ts = ConfigReader(str(path), convert_units=False).ts
        # MDAnalysis leaves forces in the file's unit, 0.01 kJ/(mol·Å).
        arrays = ts.positions, ts.velocities, ts.forces / 100
        return [float(np.linalg.norm(one, axis=1).mean(dtype=float)) for one in arrays]

    return run


def cells(effort: Effort) -> int:
    """Return unit cells along an edge of the report's smaller system, or of a test."""
    return nacl.SMALL if effort.judged else TINY


def spread(values: Any, digits: int) -> tuple[str, str, str]:
    """Return median and range."""
    found = Spread.of(values)
    low, middle, high = (f"{one:.{digits}f}" for one in (found.low, found.median, found.high))
    return middle, low, high


CASES: dict[str, Callable[[Path, Effort], Table]] = {
    "write": writing,
    "fsync": synced,
    "binary": binary,
    "counts": counts,
    "memory": memory,
    "read": reading,
}


def main() -> None:
    asked = options(__doc__, list(CASES))
    asked.print_head()
    asked.folder.mkdir(parents=True, exist_ok=True)
    tables, skipped = [], []
    for case, measure in CASES.items():
        if asked.wants(case):
            report(case)
            with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
                try:
                    tables.append(measure(Path(folder), asked.effort))
                except Unavailable as reason:
                    skipped.append(f"{case}: {reason}")
    asked.print_tables(tables, skipped)


if __name__ == "__main__":
    main()
