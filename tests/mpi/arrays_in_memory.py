"""Under paceline.mpi: blocks of an array on one rank give the same bits as one thread."""

import sys
import time

import numpy as np

import paceline

opened = paceline.open(np.load(sys.argv[1]), dt=1.0)


def positions(block):
    time.sleep(0.05)  # so that each rank takes part
    return block.positions


found = [
    paceline.TimeSeries(positions, opened.atoms[::3]).run(backend=where, block_frames=16)
    for where in ("serial", "mpi")
]
one, other = (each.results.timeseries for each in found)
assert one.tobytes() == other.tobytes()
assert len({block.worker for block in found[1].timings.blocks}) > 1
print("the same bits")
