"""Append a number of frames to a file; each rank first prints its process id.

The first rank then reports each complete frame. With a folder as the last argument, it copies the
file there after each frame.
"""

import os
import shutil
import sys

from mpi4py import MPI
from snapshot_system import FIELDS, N_ATOMS, own_frame

from paceline.snapshot import Writer

world = MPI.COMM_WORLD
path, kind, n_frames, *folder = sys.argv[1:]
os.write(1, b"process %d\n" % os.getpid())
world.Barrier()
# A configuration replaces the previous one.
options = {"overwrite": True} if kind == "CONFIG" else {"append": True}
with Writer(world, path, N_ATOMS, **options) as writer:
    for frame in range(0 if kind == "CONFIG" else writer.n_frames, int(n_frames)):
        writer.write(**own_frame(world, frame, FIELDS[kind]))
        if world.Get_rank() == 0:
            os.write(1, b"frame %d\n" % frame)
            if folder:
                shutil.copy(path, os.path.join(folder[0], f"{frame}.{kind}"))
