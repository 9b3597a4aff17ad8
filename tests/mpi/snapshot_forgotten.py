"""Program that ends while its last frame is being written, and that never closes the file."""

import sys
import time

from mpi4py import MPI
from snapshot_system import FIELDS, N_ATOMS, own_frame

from paceline.backends.mpi.comm import Comm
from paceline.snapshot import Writer

world = MPI.COMM_WORLD
path, wrong = sys.argv[1], sys.argv[2]
all_gather = Comm.all_gather


def slow(self, data):
    """Write slowly, so that the program ends long before the frame is written."""
    time.sleep(0.1)
    return all_gather(self, data)


writer = Writer(world, path, N_ATOMS, wait=False)
writer.write(**own_frame(world, 0, FIELDS["H5MD"]))
given = own_frame(world, 1, FIELDS["H5MD"])
if wrong:
    given["step"] = 10 + world.Get_rank()
Comm.all_gather = slow
writer.write(**given)
