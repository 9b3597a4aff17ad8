"""Simulate steps on every MPI rank, with dumps; print JSON."""

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from mpi4py import MPI

from benchmarks import nacl
from benchmarks.experiments.on_ranks import WORLD, of_first
from benchmarks.snapshot_cases import Run
from benchmarks.snapshot_on_ranks import STEP_LENGTH, held
from paceline.snapshot import Writer


def runs(folder: str, told: str, repeats: str) -> list[dict[str, Any]]:
    """Make all runs in turn, round after round."""
    todo = [Run(**one) for one in json.loads(Path(told).read_text(encoding="utf-8"))]
    path = str(Path(folder) / "dump")
    found = []
    for _ in range(int(repeats)):
        for which, run in enumerate(todo):
            seconds = of_first(run.ranks, partial(seconds_of, run, path))
            found.append({"run": which, "t_total": seconds})
    return found


def seconds_of(run: Run, path: str, comm: MPI.Intracomm) -> float:
    """Return the time until the last rank has finished its steps and its part of dumps, s."""
    ions = held(False, run.cells, comm.size, comm.rank)
    comm.Barrier()
    begun = time.perf_counter()
    if run.method:
        simulate_and_dump(run, path, comm, ions)
    else:
        simulate(run, run.steps)
    seconds = comm.allreduce(time.perf_counter() - begun, MPI.MAX)
    if run.method and comm.rank == 0:
        os.unlink(path)
    return seconds


def simulate_and_dump(run: Run, path: str, comm: MPI.Intracomm, ions: nacl.Ions) -> None:
    """Simulate steps with a dump after some of them, and close the file."""
    with Writer(
        comm,
        path,
        nacl.n_ions(run.cells),
        format="HISTORY",
        method=run.method,
        dt=STEP_LENGTH,
        wait=run.wait,
    ) as writer:
        for step in range(run.every, run.steps + 1, run.every):
            simulate(run, run.every)
            writer.write(
                **ions.arrays(), box=nacl.box(run.cells), step=step, time=step * STEP_LENGTH
            )


def simulate(run: Run, n_steps: int) -> None:
    """Sleep for the duration of `n_steps` steps."""
    for _ in range(n_steps):
        time.sleep(run.step / run.ranks)


if __name__ == "__main__":
    found = runs(*sys.argv[1:])
    if WORLD.rank == 0:
        print(json.dumps(found), flush=True)
