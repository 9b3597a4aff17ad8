"""Write one snapshot; the first rank prints the memory of each rank beyond its ions, in MB."""

import json
import sys

# The code of h5py does not count as memory of a writer.
import h5py  # noqa: F401
from mpi4py import MPI

from benchmarks import nacl
from benchmarks.resident import Growth
from paceline.snapshot import Writer

path, format, cells, buffer, ranks_with_ions = sys.argv[1:]
comm = MPI.COMM_WORLD
cells, parts = int(cells), int(ranks_with_ions)
# If one rank has all ions, it is not the rank that writes.
grid, place = MPI.Compute_dims(parts, 3), comm.size - 1 - comm.rank
ions = nacl.ions_of(cells, grid, place) if place < parts else nacl.ions_of(1)[:0]

growth = Growth()
with Writer(comm, path, nacl.n_ions(cells), format=format, writers=[0], buffer=buffer) as writer:
    writer.write(**ions.arrays(), box=nacl.box(cells), step=1, time=0.001)
peaks = comm.gather(growth.peak())
if comm.rank == 0:
    print(json.dumps(peaks))
