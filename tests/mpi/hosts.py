"""Under paceline.mpi: the hosts that took part, whose results must be those of one."""

import sys
import time

import numpy as np

import paceline
from paceline.analysis.rms import RMSD, RMSF
from paceline.backends import MPI

universe = paceline.Universe(*sys.argv[1:3])
frames = 8 * list(range(98))


def slowly(block):
    time.sleep(0.02)
    return block.times


def analyses():
    return [RMSD(universe), RMSF(universe.atoms), paceline.TimeSeries(slowly, universe.atoms)]


wanted = paceline.run(analyses(), backend="serial", frames=frames)
for collect in ("gather", "one-sided"):
    found = paceline.run(analyses(), backend=MPI(collect=collect), frames=frames)
    assert np.array_equal(found[0].results.rmsd, wanted[0].results.rmsd)
    assert np.array_equal(found[1].results.rmsf, wanted[1].results.rmsf)
    assert np.array_equal(found[2].times, wanted[2].times)
print(*sorted({worker.worker.split(":")[0] for worker in found[0].timings.workers()}))
