"""Read a snapshot; the first rank prints the memory of each rank beyond its atoms, in MB."""

import json
import sys

# The code of h5py does not count as memory of a reader.
import h5py
import numpy as np
from mpi4py import MPI

from benchmarks import nacl
from benchmarks.resident import Growth
from paceline.snapshot import Reader, Writer

path, format, order, cells, buffer = sys.argv[1:]
comm, cells = MPI.COMM_WORLD, int(cells)
n_ions, last = nacl.n_ions(cells), comm.size - 1


def write():
    ions = nacl.ions_of(cells, MPI.Compute_dims(comm.size, 3), comm.rank)
    without = ("velocities", "forces") if format == "DCD" else ()
    with Writer(comm, path, n_ions, format=format, overwrite=True) as writer:
        writer.write(**ions.arrays(*without), box=nacl.box(cells), step=1, time=0.001)


def permute():
    """Write ids in random order, without every third id."""
    with h5py.File(path, "r+") as file:
        (particles,) = file["particles"].values()
        numbers = np.random.default_rng(1).permutation(n_ions)
        particles["id/value"] = (numbers + numbers // (n_ions // 3))[None]
        for name in ("step", "time"):
            particles[f"id/{name}"] = particles[f"position/{name}"]


write()
if comm.rank == 0 and order == "permuted":
    permute()
comm.Barrier()
growth = Growth()
with Reader(comm, path, buffer=buffer) as reader:
    snapshot = reader.read(owner=lambda positions: np.full(len(positions), last))
assert len(snapshot) == (n_ions if comm.rank == last else 0)
arrays = [one for one in vars(snapshot).values() if isinstance(one, np.ndarray)]
own = sum(array.nbytes for array in arrays) / 1e6
peaks = comm.gather(growth.peak() - own)
owned = comm.gather(own)
if comm.rank == 0:
    print(json.dumps([peaks, owned]))
