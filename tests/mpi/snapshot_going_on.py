"""Continue a file; the argument is the number of its frames, which is checked."""

import sys

from mpi4py import MPI
from snapshot_system import FIELDS, N_ATOMS, own_frame

from paceline.snapshot import Writer

world = MPI.COMM_WORLD
path, kind, n_frames = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Writer(world, path, N_ATOMS, append=True) as writer:
    assert writer.n_frames == n_frames
    writer.write(**own_frame(world, n_frames, FIELDS[kind]))
