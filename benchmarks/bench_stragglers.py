"""Check that the report names the slow worker and the cause in every run.

    python -m benchmarks stragglers [folder] [--repeats 20] [--only "mpi, reading"] [--tsv] [--tiny]

Four workers share the blocks of a trajectory. One of them is slow: its function sleeps longer, or
its reads take longer. Processes and ranks read through a slow file system (`slowfs.py`), which
delays its answers to one of them. Threads share one process, so a thread's reads are delayed in
Python instead. The cost of the report is its CPU time divided by the time of the run.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.compare import options, report
from benchmarks.data import Dataset
from benchmarks.measure import Spread, Unavailable
from benchmarks.ranks import FIRST_RANK, launcher
from benchmarks.slowed import N_WORKERS, SLOW
from benchmarks.slowfs import SlowFileSystem
from benchmarks.table import Table

PROGRAM = Path(__file__).with_name("slowed.py")
#: Backend, and the slow component of one worker.
CASES = {
    f"{backend}, {slow}": (backend, slow)
    for backend in ("threads", "processes", "mpi")
    for slow in ("computing", "reading", "nothing")
}
#: Latency of a request, seconds; bandwidth of the server, bytes/s; delay factor of the slow
#: process.
LATENCY, BANDWIDTH, FACTOR = 1e-4, 200e6, 150.0
#: Number of frames in a run; `slowed.py` defines the time per frame.
N_FRAMES = 3000
HEADINGS = (
    "case",
    "runs",
    "right worker",
    "and cause",
    "others named",
    "factor",
    "report %",
    "max",
)


@dataclass(frozen=True)
class Trial:
    """The report of one run."""

    named: list[dict[str, Any]]
    slow: str | None
    share: float

    @classmethod
    def of(cls, found: dict[str, Any], slow: str | None) -> "Trial":
        """Create a trial from the program's output, which may not name the slow worker."""
        return cls(found["named"], slow, found["report"] / found["seconds"])

    def is_slow(self, worker: str) -> bool:
        """True for the slow worker: host:process:thread, or only its process if unknown."""
        _, process, thread = worker.rsplit(":", 2)
        return self.slow in (process, f"{process}:{thread}")


def run(data: Dataset, backend: str, slow: str, repeats: int) -> list[Trial]:
    """Run four workers several times."""
    if slow == "reading" and backend != "threads":
        # Each run has its own processes, because clients of the slow file system cache bytes.
        return [through_file_system(data, backend) for _ in range(repeats)]
    lines = output_of(data, backend, slow, repeats, {})
    return [Trial.of(found, found["slow"]) for found in lines]


def through_file_system(data: Dataset, backend: str) -> Trial:
    """Run once; the workers read through a file system that is slow for one of them."""
    # Without MPI, processes are numbered by their first use of the folder: the coordinator is 0.
    number = SLOW if backend == "mpi" else SLOW + 1
    with SlowFileSystem(
        data.folder,
        latency=LATENCY,
        bandwidth=BANDWIDTH,
        slow_process=number,
        slow_factor=FACTOR,
    ) as slowly:
        (found,) = output_of(data, backend, "nothing", 1, slowly.environment())
        pids = {counts.process: str(counts.pid) for counts in slowly.counts()}
    return Trial.of(found, pids.get(number))


def command_of(backend: str) -> list[Any]:
    if backend == "mpi":
        return [*launcher(N_WORKERS), sys.executable, *FIRST_RANK]
    return [sys.executable]


def output_of(
    data: Dataset, backend: str, slow: str, repeats: int, environment: dict[str, str]
) -> list[dict[str, Any]]:
    """Return the output of the program."""
    launcher, *rest = command_of(backend)
    libraries = Path(shutil.which(launcher)).resolve().parents[1] / "lib"  # type: ignore[arg-type]
    settings = {"PYTHONWARNINGS": "ignore", "PYTHONPATH": str(PROGRAM.parents[1])}
    if list(libraries.glob("libmpi.*")):
        settings["MPI4PY_LIBMPI"] = str(libraries)
    files = data.topology, data.trajectory("xtc")
    with tempfile.TemporaryDirectory() as folder:
        command = [launcher, *rest, PROGRAM, *files, backend, slow, N_FRAMES, repeats, folder]
        done = subprocess.run(
            [str(word) for word in command],
            env=os.environ | settings | environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    return [json.loads(line) for line in done.stdout.splitlines()]


def row_of(case: str, trials: list[Trial], cause: str) -> tuple[str, ...]:
    slow = [[one for one in trial.named if trial.is_slow(one["worker"])] for trial in trials]
    found = [named[0] for named in slow if named]
    factors = Spread.of(one["factor"] for one in found) if found else None
    shares = Spread.of(trial.share for trial in trials)
    return (
        case,
        f"{len(trials)}",
        f"{len(found)}" if cause != "nothing" else "-",
        f"{sum(one['cause'] == cause for one in found)}" if cause != "nothing" else "-",
        f"{sum(len(trial.named) for trial in trials) - len(found)}",
        f"{factors.median:.1f} ({factors.low:.1f} to {factors.high:.1f})" if factors else "-",
        f"{100 * shares.median:.2f}",
        f"{100 * shares.high:.2f}",
    )


def main() -> None:
    asked = options(__doc__, list(CASES))
    asked.print_head()
    data, _ = asked.datasets()
    table = Table(f"one slow worker of {N_WORKERS}", HEADINGS)
    skipped = []
    for case, (backend, slow) in CASES.items():
        if not asked.wants(case):
            continue
        report(case)
        try:
            trials = run(data, backend, slow, asked.effort.repeats)
        except Unavailable as reason:
            skipped.append(f"{case}: {reason}")
            continue
        table.rows.append(row_of(case, trials, slow))
    asked.print_tables([table], skipped)


if __name__ == "__main__":
    main()
