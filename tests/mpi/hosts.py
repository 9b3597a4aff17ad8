"""Under paceline.mpi: results of several hosts must equal those of one."""

import os
import sys
import time

import numpy as np

import paceline
from paceline.analysis.rms import RMSD, RMSF
from paceline.backends import MPI

universe = paceline.Universe(*sys.argv[1:3])
folder = sys.argv[3]
frames = 8 * list(range(98))


def meets(n_ranks, name):
    """Return a function that waits until this number of ranks call it, so that none does all the
    work.
    """
    place = os.path.join(folder, name)
    os.makedirs(place, exist_ok=True)

    def function(block):
        open(os.path.join(place, str(os.getpid())), "w").close()
        while len(os.listdir(place)) < n_ranks:
            time.sleep(0.01)
        return block.times

    return paceline.TimeSeries(function, universe.atoms)


def analyses(n_ranks, name):
    return [RMSD(universe), RMSF(universe.atoms), meets(n_ranks, name)]


wanted = paceline.run(analyses(1, "serial"), backend="serial", frames=frames)
for collect in ("gather", "one-sided"):
    found = paceline.run(analyses(4, collect), backend=MPI(collect=collect), frames=frames)
    assert np.array_equal(found[0].results.rmsd, wanted[0].results.rmsd)
    assert np.array_equal(found[1].results.rmsf, wanted[1].results.rmsf)
    assert np.array_equal(found[2].times, wanted[2].times)
print(*sorted({worker.worker.split(":")[0] for worker in found[0].timings.workers()}))
