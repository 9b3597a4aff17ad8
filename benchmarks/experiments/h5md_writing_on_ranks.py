"""Program that writes H5MD on every MPI rank, through MPI-IO and by paceline; prints JSON."""

import json
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from MDAnalysis.lib.formats.libdcd import DCDFile
from mpi4py import MPI

import paceline
from benchmarks.experiments.h5md_on_ranks import TWO_PHASE, parsed
from benchmarks.experiments.on_ranks import WORLD, of_first
from benchmarks.experiments.papers import share
from benchmarks.h5md_files import FRAME, LAYOUTS

#: Number of frames per call.
BATCH = 16


def write(
    topology: str, source: str, folder: str, frames: str, repeats: str, ranks: str, *layouts: str
) -> list[dict[str, Any]]:
    """Time writing additional frames of a DCD file in every layout, by some ranks."""
    warnings.simplefilter("ignore")
    path = str(Path(folder) / "written.h5md")
    lengths = int(frames), 2 * int(frames)
    found = []
    rounds = range(-1, int(repeats))
    cases = product(rounds, map(int, ranks.split(",")), layouts, WRITERS.items())
    for number, n_ranks, layout, (way, writer) in cases:
        if way == "independent" and LAYOUTS[layout].compressed:
            continue  # HDF5 refuses this combination
        seconds = [
            of_first(
                n_ranks,
                partial(seconds_of, partial(writer, topology, source, path, n, layout)),
            )
            for n in lengths
        ]
        if WORLD.rank == 0 and number >= 0:
            case = {"layout": layout, "way": way, "ranks": n_ranks}
            found.append({**case, "seconds": seconds[1] - seconds[0]})
    return found


def seconds_of(job: Callable[[MPI.Intracomm], None], comm: MPI.Intracomm) -> float:
    """Return the time until the last rank has closed the file, s."""
    comm.Barrier()
    begun = time.perf_counter()
    job(comm)
    return comm.allreduce(time.perf_counter() - begun, MPI.MAX)


def write_by_mpi(
    topology: str,
    source: str,
    path: str,
    n_frames: int,
    layout: str,
    comm: MPI.Intracomm,
    way: str = "independent",
) -> None:
    """Let each rank read its share of the frames and write it, some frames per call."""
    frames = share(n_frames, comm.size, comm.rank)
    most = -(-n_frames // comm.size)
    hints = MPI.Info.Create()
    if way in TWO_PHASE:
        hints.Set("romio_cb_write", TWO_PHASE[way])
    with (
        DCDFile(source) as trajectory,
        h5py.File(path, "w", driver="mpio", comm=comm, info=hints) as file,
    ):
        n_atoms = trajectory.header["natoms"]
        keywords = LAYOUTS[layout].keywords(n_frames, n_atoms)
        name = "particles/trajectory/position/value"
        stored = file.create_dataset(name, dtype=np.float32, fill_time="never", **keywords)
        with stored.collective if way in TWO_PHASE else nullcontext():
            for first in range(0, most, BATCH):
                # A rank without frames still takes part in the collective write.
                some = frames[first : first + BATCH]
                read = trajectory.readframes(some.start, some.stop).xyz if some else np.empty(0)
                stored[some.start : some.stop] = read.astype(np.float32).reshape(-1, n_atoms, 3)


def write_by_paceline(
    topology: str, source: str, path: str, n_frames: int, layout: str, comm: MPI.Intracomm
) -> None:
    """Run paceline on every rank."""
    universe = parsed("paceline", topology)
    universe.load_new(source)
    told = {"compress": "gzip:1"} if LAYOUTS[layout].compressed else {}
    chunk = "frame" if LAYOUTS[layout].chunk == FRAME else layout
    writing = paceline.Write(universe.atoms, path, chunk=chunk, overwrite=True, **told)
    writing.run(stop=n_frames, backend=paceline.backends.MPI(comm), progress=False)


WRITERS: dict[str, Callable[..., None]] = {
    "independent": write_by_mpi,
    "collective": partial(write_by_mpi, way="collective"),
    "two-phase": partial(write_by_mpi, way="two-phase"),
    "paceline": write_by_paceline,
}

if __name__ == "__main__":
    found = write(*sys.argv[1:])
    if WORLD.rank == 0:
        print(json.dumps(found), flush=True)
