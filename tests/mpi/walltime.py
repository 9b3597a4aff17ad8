"""On every rank: SIGTERM at the end of the job's time, while a message is received on request."""

import os
import signal
import sys
import threading
import time
import types

import numpy as np
from mpi4py import MPI

import paceline
from paceline import checkpoint
from paceline.backends.mpi import comm
from paceline.errors import Terminated

universe, path = paceline.Universe(*sys.argv[1:3]), sys.argv[3]
checkpoint.INTERVAL, checkpoint.SHARE = 0.0, 0
is_first = MPI.COMM_WORLD.Get_rank() == 0


def end():
    """End the job."""
    os.kill(os.getpid(), signal.SIGTERM)


def end_first():
    """End the job after rows were saved: a block has 128 kB, what is written before it 10 kB."""
    while not (os.path.exists(path) and os.path.getsize(path) > 100_000):
        time.sleep(0.01)
    end()


class Status(MPI.Status):
    """Status of a message; the job ends between the probe and the receipt of the first rows."""

    ended = False

    def Get_count(self, kind):
        """Return the number of bytes of the message."""
        n_bytes = super().Get_count(kind)
        if n_bytes > 100_000 and not Status.ended:
            Status.ended = True
            end()
        return n_bytes


def compute(block):
    """Return many rows slowly; on other ranks than the first, the signal comes early."""
    if not is_first:
        end()
    time.sleep(0.1)
    return np.tile(block.times[:, None], 1000)


if is_first and "receiving" in sys.argv:
    comm.MPI = types.SimpleNamespace(**{**vars(MPI), "Status": Status})
elif is_first:
    threading.Thread(target=end_first, daemon=True).start()
try:
    paceline.TimeSeries(compute, universe.atoms).run(
        frames=100 * list(range(98)), block_frames=16, backend="mpi", checkpoint=path
    )
except Terminated:
    # On other ranks, the signal may also come after the first rank has ended the run.
    if not is_first:
        end()
    raise
