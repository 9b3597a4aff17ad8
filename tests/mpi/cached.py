"""Read a file on ranks whose nodes have caches of their own; print each block's bytes read."""

import json
import os
import sys

from mpi4py import MPI

import paceline
from paceline.analysis.rms import RMSD

caches, result, topology, *trajectory = sys.argv[1:]
# A variable that differs between ranks makes each rank a node of its own.
variable = "PMI_RANK" if "MPICH" in MPI.Get_library_version() else "OMPI_COMM_WORLD_RANK"
u = paceline.Universe(topology, *trajectory, cache=f"{caches}/${variable}")
rmsd = RMSD(u.select_atoms("name CA")).run(backend="mpi", block_frames=16)
rmsd.results.rmsd.tofile(result)
blocks = rmsd.timings.blocks
here = f":{os.getpid()}:"
print(json.dumps([[b.block, here in b.worker, b.bytes, b.cached] for b in blocks]))
