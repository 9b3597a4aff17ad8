"""On every rank: SIGTERM comes to all, as at the end of a job's time."""

import os
import signal
import sys
import threading
import time

from mpi4py import MPI

import paceline

universe = paceline.Universe(*sys.argv[1:3])
MPI.COMM_WORLD.Barrier()
threading.Timer(1, os.kill, (os.getpid(), signal.SIGTERM)).start()
paceline.TimeSeries(lambda block: time.sleep(0.1) or block.times, universe.atoms).run(
    frames=100 * list(range(98)), block_frames=16, backend="mpi", checkpoint=sys.argv[3]
)
