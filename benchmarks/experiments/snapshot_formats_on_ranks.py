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
from benchmarks.snapshot_on_ranks import MB, STEP_LENGTH, held
from paceline.snapshot import Reader, Writer


def formats(folder: str, told: str, repeats: str) -> list[dict[str, Any]]:
    """Write and read all cases in turn, round after round; the first round does not count."""
    todo = json.loads(Path(told).read_text(encoding="utf-8"))
    found = []
    for number in range(-1, int(repeats)):
        for which, case in enumerate(todo):
            measured = of_first(case["ranks"], partial(write_and_read, folder, case))
            if number >= 0:
                found.append({"case": which, **(measured or {})})
    return found


def write_and_read(folder: str, case: dict[str, Any], comm: MPI.Intracomm) -> dict[str, float]:
    """Return times to write a frame and to read it by domains, s, and its size, MB."""
    path, cells, n_frames = str(Path(folder) / case["file"]), case["cells"], case["frames"]
    ions = held(False, cells, comm.size, comm.rank)
    given = ions.arrays(*case["without"])
    comm.Barrier()
    begun = time.perf_counter()
    with Writer(comm, path, nacl.n_ions(cells), format=case["format"]) as writer:
        for step in range(1, n_frames + 1):
            writer.write(**given, box=nacl.box(cells), step=step, time=step * STEP_LENGTH)
    written = comm.allreduce(time.perf_counter() - begun, MPI.MAX) / n_frames
    begun = time.perf_counter()
    with Reader(comm, path) as reader:
        held_frames = reader.n_frames
        for frame in range(held_frames):
            snapshot = reader.read(frame, grid=MPI.Compute_dims(comm.size, 3))
            if comm.allreduce(len(snapshot.ids)) != nacl.n_ions(cells):
                raise RuntimeError(f"{path}: ions are missing")
    read = comm.allreduce(time.perf_counter() - begun, MPI.MAX) / held_frames
    times = {"t_write": written, "t_read": read, "t_total": written + read}
    if comm.rank == 0:
        times["mbytes"] = os.path.getsize(path) / held_frames / MB
        os.unlink(path)
    return times


if __name__ == "__main__":
    found = formats(*sys.argv[1:])
    if WORLD.rank == 0:
        print(json.dumps(found), flush=True)
