"""Write one snapshot; the first rank prints by how many MB each came to hold more than its ions."""

import json
import sys

# Its code is no memory of a writer.
import h5py  # noqa: F401
from mpi4py import MPI

from benchmarks import nacl
from benchmarks.resident import Growth
from paceline.snapshot import Writer

path, format, cells, buffer, ranks_with_ions = sys.argv[1:]
comm = MPI.COMM_WORLD
cells, parts = int(cells), int(ranks_with_ions)
# Where one rank has them all, it is not the one that writes.
grid, place = MPI.Compute_dims(parts, 3), comm.size - 1 - comm.rank
ions = nacl.ions_of(cells, grid, place) if place < parts else nacl.ions_of(1)[:0]

growth = Growth()
with Writer(comm, path, nacl.n_ions(cells), format=format, writers=[0], buffer=buffer) as writer:
    writer.write(**ions.arrays(), box=nacl.box(cells), step=1, time=0.001)
peaks = comm.gather(growth.peak())
if comm.rank == 0:
    print(json.dumps(peaks))
