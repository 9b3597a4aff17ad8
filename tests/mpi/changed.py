"""Under paceline.mpi: a file whose content changes after it was opened."""

import shutil
import sys

import numpy as np

import paceline
from paceline.analysis.rms import RMSF
from paceline.errors import FileChangedError
from paceline.mdanalysis.open_atomgroup_trajectory import FileTrajectory

# Disable the check on the first rank, as if another host had another file.
FileTrajectory.verify = lambda self: None
topology, path, *contents = sys.argv[1:]
universe = paceline.Universe(topology, path)


def fluctuations():
    return RMSF(universe.atoms).run(start=40, stop=60).results.rmsf


original = fluctuations()
for name in contents:
    shutil.copyfile(name, path)
    try:
        same = np.array_equal(fluctuations(), original)
    except FileChangedError as error:
        print(error)
    else:
        print("the same" if same else "other results")
