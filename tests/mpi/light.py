"""Under paceline.mpi: modules and files that each of four ranks loads and reads."""

import os
import sys
import time

import numpy as np

import paceline
from paceline.analysis.rms import RMSD, RMSF

universe = paceline.Universe(*sys.argv[1:3])


def look(block):
    """Return process, number of heavy modules, and how often it opened the file and has it open."""
    from paceline.contract.source import _core

    # All ranks wait for one another, so that no rank does all the work.
    open(os.path.join(folder, str(os.getpid())), "w").close()
    while len(os.listdir(folder)) < 4:
        time.sleep(0.01)
    if not hasattr(_core, "opened_again"):
        _core.opened_again, reader = [], _core.Reader
        _core.Reader = lambda *args, **options: (
            _core.opened_again.append(args) or reader(*args, **options)
        )
    heavy = {
        "MDAnalysis",
        "h5py",
        "matplotlib",
        "scipy",
        "paceline.universe",
        "paceline.mdanalysis.reader",
    }
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    names = [os.readlink(link) for link in links if os.path.islink(link)]
    counts = [len(heavy & set(sys.modules)), *map(names.count, files), len(_core.opened_again)]
    row = [os.getpid(), *counts]
    return np.array([row] * len(block))


files = sys.argv[1:3]
folder, PASSES = sys.argv[3], int(sys.argv[4])
series = paceline.TimeSeries(look, universe.atoms)
paceline.run(
    [RMSD(universe), RMSF(universe.atoms), series], block_frames=1, frames=PASSES * list(range(98))
)
for row in np.unique(series.results.timeseries, axis=0):
    print("rank", *row[1:])
print("read", sum(block.bytes for block in series.timings.blocks))
