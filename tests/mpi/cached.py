"""Read a file on ranks whose nodes have separate caches; print the bytes read for each block."""

import json
import os
import sys

from mpi4py import MPI

import paceline
from paceline.analysis.rms import RMSD

caches, result, topology, *trajectory = sys.argv[1:]
# This variable differs between ranks, so that each rank counts as a node.
variable = "PMI_RANK" if "MPICH" in MPI.Get_library_version() else "OMPI_COMM_WORLD_RANK"
u = paceline.Universe(topology, *trajectory, cache=f"{caches}/${variable}")
rmsd = RMSD(u.select_atoms("name CA")).run(backend="mpi", block_frames=16)
rmsd.results.rmsd.tofile(result)
blocks = rmsd.timings.blocks
here = f":{os.getpid()}:"
print(json.dumps([[b.block, here in b.worker, b.bytes, b.cached] for b in blocks]))
