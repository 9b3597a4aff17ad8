"""Under paceline.mpi: what ranks load and read, a line each, and what they do together."""

import os
import sys
import time

import numpy as np

import paceline
from paceline.analysis.rms import RMSD, RMSF

universe = paceline.Universe(*sys.argv[1:3])


def look(block):
    """Process, how much it loaded that is heavy, and how often it has open which of the files."""
    time.sleep(0.05)
    heavy = {"MDAnalysis", "matplotlib", "scipy", "paceline.universe", "paceline.reader"}
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    names = [os.readlink(link) for link in links if os.path.islink(link)]
    row = [os.getpid(), len(heavy & set(sys.modules)), *map(names.count, files)]
    return np.array([row] * len(block))


files = sys.argv[1:3]
PASSES = int(sys.argv[3])
series = paceline.TimeSeries(look, universe.atoms)
paceline.run(
    [RMSD(universe), RMSF(universe.atoms), series], block_frames=1, frames=PASSES * list(range(98))
)
for row in np.unique(series.results.timeseries, axis=0):
    print("rank", *row[1:])
workers = series.timings.workers()
opened = [block for block in series.timings.blocks if block.open > 1e6]
print("opened", max(sum(b.worker == w.worker for b in opened) for w in workers))
print("read", sum(block.bytes for block in series.timings.blocks))
