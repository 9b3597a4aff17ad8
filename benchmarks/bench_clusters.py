"""Measure runs on MPI ranks: rate, a slow rank, start-up, and collecting results.

    python -m benchmarks clusters [folder] [--repeats 5] [--only rate …] [--tsv] [--tiny]

Each table compares runs that alternate. In the tables with a slow rank, and with more ranks than
cores, ranks sleep in proportion to their frames; all other runs compute.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import Effort, judged, options, report
from benchmarks.data import Dataset
from benchmarks.measure import Spread, Unavailable
from benchmarks.ranks import EVERY_RANK, FIRST_RANK, PROGRAMS, on_ranks
from benchmarks.table import Table

#: Number of passes over the file from which the length of a job is chosen.
PASSES = 10
#: Minimum rate of 2 workers on another backend, relative to 2 threads.
RATE = 0.95
#: Duration of a job whose rate is compared, seconds.
JOB = 20.0
#: Maximum time with one slow rank, relative to the ideal time.
SLOWED = 1.15
#: Maximum time from the start of ranks to the first block, beyond mpi4py's own start, seconds.
START = 1.5
#: Maximum time to collect the rows of the papers' longest trajectory, seconds; number of rows.
COLLECTING, N_ROWS = 1.0, 2_512_200
#: Sleeping ranks take this time per frame, multiplied by the number of ranks, seconds. For any
#: number of ranks, blocks of 16 frames then end at a rate that keeps two cores busy for a tenth of
#: the time.
FRAME = 2.5e-4


def rate(data: Dataset, effort: Effort) -> Table:
    """Compute RMSDs of all frames repeatedly, with 2 threads, processes, Dask workers and ranks."""
    table = Table(
        f"rate of two workers, one job of {JOB if effort.judged else effort.job:g} s or more",
        ("case", "workers", "seconds", "rate / threads", "min", "max", "target"),
    )
    files = data.topology, data.trajectory("xtc")
    alone = [sys.executable, PROGRAMS, "rate", *files]

    def here(n_frames: int, backend: str) -> dict[str, Any]:
        command = [*alone, n_frames, backend, 2]
        done = subprocess.run(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            check=True,
            env=_quiet(),
        )
        return json.loads(done.stdout.splitlines()[-1])

    # Several passes, so that fixed costs of a run do not count as the time of a pass.
    one_pass = here(PASSES * data.n_frames, "threads")["seconds"] / PASSES
    job = JOB if effort.judged else effort.job
    n_frames = data.n_frames * max(1, round(1.1 * job / one_pass))
    ways: dict[str, Callable[[], dict[str, Any]]] = {
        "threads": lambda: here(n_frames, "threads"),
        "processes": lambda: here(n_frames, "processes"),
        "dask": lambda: here(n_frames, "dask"),
        "mpi": lambda: on_ranks(2, FIRST_RANK, "rate", *files, n_frames, "mpi", 1),
    }
    taken = _in_turn(ways, effort.repeats)
    if len({one["sum"] for found in taken.values() for one in found}) > 1:
        raise RuntimeError("backends differ")
    seconds = {way: np.array([one["seconds"] for one in found]) for way, found in taken.items()}
    for way, own in seconds.items():
        ratios = seconds["threads"] / own
        target = f"{RATE:g} {judged(ratios >= RATE)}" if way != "threads" and effort.judged else ""
        table.rows.append(("rate", way, _median(own), *_spread(ratios), target))
    return table


def slowed(effort: Effort) -> Table:
    """Measure runs in which one of several ranks takes five times as long."""
    table = Table(
        "one rank five times slower, by the time that all need at the speed they have",
        ("case", "ranks", "schedule", "seconds", "seconds / ideal", "min", "max", "target"),
    )
    for n_ranks in (4, 16):
        speed, frame = n_ranks - 1 + 1 / 5, FRAME * n_ranks
        job = JOB if effort.judged else effort.job
        n_frames = max(n_ranks * 16, round(job * speed / frame))
        ideal = n_frames * frame / speed
        told = ("work", n_frames, frame, 5, n_ranks, "sleep")
        taken = _in_turn(
            {
                way: lambda way=way: on_ranks(n_ranks, FIRST_RANK, *told, way)  # noqa: B023
                for way in ("dynamic", "static")
            },
            effort.repeats,
        )
        for way, found in taken.items():
            ratios = np.array([one["seconds"] for one in found]) / ideal
            dynamic = way == "dynamic" and effort.judged
            target = f"{SLOWED:g} {judged(ratios <= SLOWED)}" if dynamic else ""
            row = ("slowed", str(n_ranks), way, _median(ratios * ideal), *_spread(ratios), target)
            table.rows.append(row)
    return table


def start(data: Dataset, effort: Effort) -> Table:
    """Measure the time from the start of 8 ranks to the first computed frames."""
    table = Table(
        "start of 8 ranks",
        ("case", "until", "seconds", "min", "max", "target"),
    )
    files = data.topology, data.trajectory("xtc")

    def since(*program: Any) -> float:
        begun = time.time()
        return on_ranks(8, *program)["moment"] - begun

    taken = _in_turn(
        {
            "mpi4py has started": lambda: since(EVERY_RANK, "started"),
            "first block": lambda: since(FIRST_RANK, "first_block", *files),
        },
        effort.repeats,
    )
    started, first = (np.array(found) for found in taken.values())
    more = first - started
    target = f"{START:g} {judged(more <= START)}" if effort.judged else ""
    table.rows.append(("start", "mpi4py has started", *_spread(started), ""))
    table.rows.append(("start", "the first block", *_spread(first), ""))
    table.rows.append(("start", "the first block, beyond mpi4py", *_spread(more), target))
    return table


def collect(effort: Effort) -> Table:
    """Measure sending rows from 16 ranks to the first rank, in few and in many blocks."""
    n_rows = N_ROWS if effort.judged else 10_000
    table = Table(
        f"{n_rows} rows of 3 numbers, and their times, from 16 ranks",
        ("case", "how", "blocks", "seconds", "min", "max", "messages", "target"),
    )
    ways = {
        (how, n_blocks): lambda how=how, n=n_blocks: on_ranks(
            16, EVERY_RANK, "collect", how, n_rows, n
        )
        for how in ("gather", "one-sided")
        for n_blocks in (400, 4000)
    }
    for (how, n_blocks), found in _in_turn(ways, effort.repeats).items():
        seconds = np.array([one["seconds"] for one in found])
        target = f"{COLLECTING:g} s {judged(seconds <= COLLECTING)}" if effort.judged else ""
        messages = str(max(one["messages"] for one in found))
        table.rows.append(("collect", how, str(n_blocks), *_spread(seconds), messages, target))
    return table


def spread(effort: Effort) -> Table:
    """Measure sending rows from the first rank to all, with shared memory and with copies."""
    n_rows = N_ROWS if effort.judged else 200_000
    table = Table(
        f"{n_rows} rows of 3 numbers, {24e-6 * n_rows:.0f} MB, from the first rank to all",
        ("case", "ranks", "how", "seconds", "min", "max", "MB"),
    )
    ways = {
        (n_ranks, how): lambda n=n_ranks, how=how: on_ranks(n, EVERY_RANK, "spread", how, n_rows)
        for n_ranks in (4, 8)
        for how in ("shared", "copied")
    }
    for (n_ranks, how), found in _in_turn(ways, effort.repeats).items():
        seconds = _spread(one["seconds"] for one in found)
        megabytes = f"{np.median([one['megabytes'] for one in found]):.0f}"
        table.rows.append(("spread", str(n_ranks), how, *seconds, megabytes))
    return table


def _in_turn(ways: dict[Any, Callable[[], Any]], repeats: int) -> dict[Any, list[Any]]:
    """Call all functions in turn, round after round; return the results of each."""
    taken: dict[Any, list[Any]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, run in ways.items():
            taken[way].append(run())
    return taken


def _spread(values: Iterable[float]) -> tuple[str, str, str]:
    spread = Spread.of(values)
    return f"{spread.median:.2f}", f"{spread.low:.2f}", f"{spread.high:.2f}"


def _median(values: Iterable[float]) -> str:
    return _spread(values)[0]


def _quiet() -> dict[str, str]:
    return os.environ | {"PYTHONWARNINGS": "ignore", "PYTHONPATH": str(Path.cwd())}


CASES = ("rate", "slowed", "start", "collect", "spread")


def main() -> None:
    asked = options(__doc__, CASES)
    data = asked.datasets()[0]
    asked.print_head()
    measured: dict[str, Callable[[], Table]] = {
        "rate": lambda: rate(data, asked.effort),
        "slowed": lambda: slowed(asked.effort),
        "start": lambda: start(data, asked.effort),
        "collect": lambda: collect(asked.effort),
        "spread": lambda: spread(asked.effort),
    }
    tables, skipped = [], []
    for case, measure in measured.items():
        if asked.wants(case):
            report(case)
            try:
                tables.append(measure())
            except Unavailable as reason:
                skipped.append(f"{case}: {reason}")
    asked.print_tables(tables, skipped)


if __name__ == "__main__":
    main()
