"""Program that writes and reads sodium chloride on MPI ranks in every format; prints JSON."""

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
from benchmarks.snapshot_cases import Case
from benchmarks.snapshot_on_ranks import MB, by_writer, held
from paceline.snapshot import Reader


def formats(folder: str, told: str, repeats: str) -> list[dict[str, Any]]:
    """Write and read all cases in turn, round after round; the first round does not count."""
    todo = json.loads(Path(told).read_text(encoding="utf-8"))
    found = []
    for number in range(-1, int(repeats)):
        for which, (file, without, case) in enumerate(todo):
            path = str(Path(folder) / file)
            job = partial(write_and_read, Case(**case), path, without)
            measured = of_first(case["ranks"], job)
            if number >= 0:
                found.append({"case": which, **(measured or {})})
    return found


def write_and_read(
    case: Case, path: str, without: list[str], comm: MPI.Intracomm
) -> dict[str, float]:
    """Return times to write a file and to read it by domains, s, and its size, MB."""
    ions = held(False, case.cells, comm.size, comm.rank)
    comm.Barrier()
    begun = time.perf_counter()
    by_writer(comm, case, path, ions, without)
    written = comm.allreduce(time.perf_counter() - begun, MPI.MAX)
    begun = time.perf_counter()
    with Reader(comm, path) as reader:
        snapshot = reader.read(grid=MPI.Compute_dims(comm.size, 3))
    read = comm.allreduce(time.perf_counter() - begun, MPI.MAX)
    if comm.allreduce(len(snapshot.ids)) != nacl.n_ions(case.cells):
        raise RuntimeError(f"{path}: ions are missing")
    times = {"t_write": written, "t_read": read, "t_total": written + read}
    comm.Barrier()
    if comm.rank == 0:
        times["mbytes"] = os.path.getsize(path) / MB
        os.unlink(path)
    return times


if __name__ == "__main__":
    found = formats(*sys.argv[1:])
    if WORLD.rank == 0:
        print(json.dumps(found), flush=True)
