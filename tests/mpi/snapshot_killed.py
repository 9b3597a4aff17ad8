"""Program in which a rank ends during the third frame, in one of several ways."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI
from snapshot_system import ENDINGS, FIELDS, N_ATOMS, own_frame

from paceline.backends.mpi import comm
from paceline.backends.mpi.comm import Comm
from paceline.snapshot import Writer

world = MPI.COMM_WORLD
folder, how, kind = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
last = world.Get_rank() == world.Get_size() - 1
exchange, wait_busy = Comm.exchange, comm.wait_busy


def pressed(request, n_bytes=0):
    """Raise Ctrl-C while atoms are being sent."""
    if last and n_bytes:
        raise KeyboardInterrupt
    wait_busy(request, n_bytes)


def ends(self, send, send_counts, receive, receive_counts):
    """End in the middle of a frame, after others have sent their atoms."""
    exchange(self, send, send_counts, receive, receive_counts)
    if not last:
        return
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "interrupted":
        raise KeyboardInterrupt
    else:
        raise MemoryError("none left")


room = {"n_frames": 6} if (how, kind) == ("interrupted", "H5MD") else {}
path = folder / f"{how}{ENDINGS[kind]}"
writer = Writer(world, path, N_ATOMS, writers=world.Get_size(), **room)
for frame in range(4):
    if frame == 2:
        world.Barrier()
        if how == "pressed":
            comm.wait_busy = pressed
        else:
            Comm.exchange = ends
    writer.write(**own_frame(world, frame, FIELDS[kind]))
time.sleep(100)
np.testing.assert_equal("not reached", "")
