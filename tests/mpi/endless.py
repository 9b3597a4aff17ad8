"""Under paceline.mpi: an endless run, to be ended as the second argument says."""

import os
import signal
import sys
import time

import paceline
from paceline.backends.mpi import coordinator

first = os.getpid()
how = sys.argv[3]


def work(block):
    time.sleep(0.1)
    if os.getpid() != first:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exit":
            os._exit(3)
    if how == "sleep":
        print("at work", flush=True)
    time.sleep(3600)
    return block.times


def interrupted(*arguments):
    """Raise an interrupt while the other ranks send their results."""
    raise KeyboardInterrupt


if how == "raise":
    raise RuntimeError("in the script")
if how == "status":
    sys.exit(7)
universe = paceline.Universe(*sys.argv[1:3])
print("begun", flush=True)
if how == "interrupt":
    coordinator.gather = interrupted
    paceline.TimeSeries(lambda block: block.times, universe.atoms).run()
paceline.TimeSeries(work, universe.atoms).run(progress=False, block_frames=16)
