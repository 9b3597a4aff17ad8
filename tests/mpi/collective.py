"""Every rank reads its share of the frames at the same time, and checks it."""

import sys

import h5py
import numpy as np
from mpi4py import MPI

import paceline
from paceline.errors import UnsupportedError
from paceline.mdanalysis.reader import Reader

world = MPI.COMM_WORLD
path = sys.argv[1]
reader = Reader(path, driver="mpio", comm=world, collective=True)
share = reader.n_frames // world.size
frames = range(world.rank * share, (world.rank + 1) * share)
shown = np.array([reader[frame].positions.copy() for frame in frames])
universe = paceline.Universe(path, driver="mpio", comm=world, collective=True)
refused = 0
try:
    paceline.TimeSeries(len, universe.atoms).run()
except UnsupportedError:
    refused = 1
with h5py.File(path) as file:
    right = np.array_equal(
        shown, file["particles/atoms/position/value"][frames.start : frames.stop]
    )
n_right, n_refused = world.allreduce(int(right)), world.allreduce(refused)
if world.rank == 0:
    print(f"{n_right} right, {n_refused} refused")
