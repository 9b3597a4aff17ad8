"""Measure splitting a trajectory into 24 files and joining them, compared with copying the file.

    python -m benchmarks split [folder] [--repeats 5] [--only adk.xtc] [--tsv] [--tiny]

All tools copy the same bytes in the same folder, in turn, from a source in memory. A measurement
ends when the system has accepted the bytes; the next one starts when the disk has finished.
"""

import os
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import paceline
from benchmarks.compare import judged, options, report
from benchmarks.measure import Spread
from benchmarks.table import Table
from paceline.errors import PacelineWarning

PIECES = 24
#: Minimum speed of paceline relative to cp.
TARGET = 0.7
CP, SPLIT, JOIN = "cp", "paceline split", "paceline join"
CASES = ("adk.xtc", "adk.dcd")
HEADINGS = (
    *("case", "tool", "seconds", "min", "max", "GB/s"),
    *(f"speed / {CP}", "min", "max", "target"),
)


def measure(whole: Path, scratch: Path, repeats: int) -> dict[str, np.ndarray]:
    """Return the time of each tool in each round, s."""
    warnings.simplefilter("ignore", PacelineWarning)
    parts, target = scratch / "parts", scratch / "target"
    parts.mkdir()
    pieces = paceline.split(whole, PIECES, output=parts, progress=False)
    copy = target / whole.name
    tools: dict[str, tuple[Sequence[Path], Callable[[], object]]] = {
        CP: ([whole], lambda: subprocess.run(["cp", whole, copy], check=True)),
        SPLIT: ([whole], lambda: paceline.split(whole, PIECES, output=target, progress=False)),
        JOIN: (pieces, lambda: paceline.join(pieces, copy, progress=False)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in tools}
    for _ in range(repeats):
        for name, (sources, run) in tools.items():
            _prepare(sources, target)
            begun = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begun)
            _check(whole, target)
    return {name: np.array(times) for name, times in seconds.items()}


def _prepare(sources: Sequence[Path], target: Path) -> None:
    """Read sources into memory, empty the folder, and wait for the disk."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for source in sources:
        with open(source, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass
    os.sync()


def _check(whole: Path, target: Path) -> None:
    """Raise if bytes are missing; headers of DCD files may be repeated."""
    copied, expected = sum(path.stat().st_size for path in target.iterdir()), whole.stat().st_size
    if not expected <= copied <= 1.1 * expected:
        raise RuntimeError(f"{whole}: {copied} bytes were copied of {expected}")


def add_rows(table: Table, whole: Path, taken: dict[str, np.ndarray], judge: bool) -> None:
    """Add a trajectory's rows, one per tool."""
    gigabytes = whole.stat().st_size / 1e9
    for name, seconds in taken.items():
        time_ = Spread.of(seconds)
        ratios = taken[CP] / seconds
        beside = Spread.of(ratios)
        met = f"{TARGET:g} {judged(ratios >= TARGET)}"
        table.rows.append(
            (
                whole.name,
                name,
                *(f"{value:.2f}" for value in (time_.median, time_.low, time_.high)),
                f"{gigabytes / time_.median:.2f}",
                *(f"{value:.2f}" for value in (beside.median, beside.low, beside.high)),
                met if judge and name in (SPLIT, JOIN) else "",
            )
        )


def main() -> None:
    asked = options(__doc__, CASES)
    data = asked.datasets()[0]
    asked.print_head()
    table = Table(f"{PIECES} pieces; source in memory, target on disk", HEADINGS)
    for name in CASES:
        if asked.wants(name):
            report(name)
            whole = data.folder / name
            with tempfile.TemporaryDirectory(dir=asked.folder) as scratch:
                taken = measure(whole, Path(scratch), asked.effort.repeats)
            add_rows(table, whole, taken, judge=asked.effort.judged)
    asked.print_tables([table])


if __name__ == "__main__":
    main()
