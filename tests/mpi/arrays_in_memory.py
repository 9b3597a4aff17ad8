"""Under paceline.mpi: blocks of an array on one rank give the same bits as one thread."""

import os
import sys
import time

import numpy as np

import paceline

opened = paceline.open(np.load(sys.argv[1]), dt=1.0)
folder = sys.argv[2]


def after(n_ranks):
    """Return a function that waits until this number of ranks call it."""

    def positions(block):
        open(os.path.join(folder, str(os.getpid())), "w").close()
        while len(os.listdir(folder)) < n_ranks:
            time.sleep(0.01)
        return block.positions

    return paceline.TimeSeries(positions, opened.atoms[::3])


found = [
    after(n_ranks).run(backend=where, block_frames=16)
    for where, n_ranks in (("serial", 1), ("mpi", 3))
]
one, other = (each.results.timeseries for each in found)
assert one.tobytes() == other.tobytes()
assert len({block.worker for block in found[1].timings.blocks}) > 1
print("the same bits")
