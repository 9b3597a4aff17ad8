"""Program that reads sodium chloride on every MPI rank; the first rank prints JSON."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from benchmarks import nacl
from benchmarks.experiments.on_ranks import WORLD
from benchmarks.snapshot_cases import Case
from benchmarks.snapshot_on_ranks import by_writer, held
from paceline.snapshot import Reader


def make(path: str, cells: str) -> None:
    """Write a file for `read`."""
    case = Case("sorted", WORLD.size, int(cells))
    by_writer(WORLD, case, path, held(False, case.cells, WORLD.size, WORLD.rank))


def read(path: str, cells: str) -> dict[str, Any]:
    """Time until every rank has the ions in its part of the box, s; means over all ions."""
    grid = MPI.Compute_dims(WORLD.size, 3)
    for _ in range(2):  # in the first pass, MPI sets up its channels
        WORLD.Barrier()
        begun, begun_cpu = time.perf_counter(), time.process_time()
        with Reader(WORLD, path) as reader:
            snapshot = reader.read(grid=grid)
        seconds = WORLD.allreduce(time.perf_counter() - begun, MPI.MAX)
        cpu = WORLD.allreduce(time.process_time() - begun_cpu)
    owners = nacl.domains(snapshot.positions, int(cells), grid)
    if not (owners == WORLD.rank).all():
        raise RuntimeError(f"rank {WORLD.rank} got {(owners != WORLD.rank).sum()} ions of others")
    arrays = snapshot.positions, snapshot.velocities, snapshot.forces
    lengths = [float(np.linalg.norm(one, axis=1).sum()) for one in arrays]
    sums = WORLD.allreduce(np.array([len(owners), *lengths]))
    return {"seconds": seconds, "cpu": cpu, "means": (sums[1:] / sums[0]).tolist()}


PROGRAMS: dict[str, Callable[..., Any]] = {"make": make, "read": read}

if __name__ == "__main__":
    found = PROGRAMS[sys.argv[1]](*sys.argv[2:])
    if WORLD.rank == 0:
        print(json.dumps(found), flush=True)
