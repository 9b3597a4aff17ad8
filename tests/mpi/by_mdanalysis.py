"""Under paceline.mpi or on every rank: MDAnalysis's own analyses, and files that it alone reads."""

import sys

import numpy as np
import pytest
from MDAnalysis.analysis.base import AnalysisFromFunction
from MDAnalysis.analysis.rms import RMSD
from MDAnalysisTests.datafiles import PDB_multiframe

import paceline
from paceline import backends
from paceline._util.launcher import launched
from paceline.analysis import rms
from paceline.errors import AnalysisError

universe = paceline.Universe(*sys.argv[1:3])
# So that each rank has a share.
where = backends.MPI(schedule="static")


def raises(atoms):
    raise ValueError("in a frame")


wanted = RMSD(universe, select="name CA").run()
for _ in range(2):
    found = RMSD(universe, select="name CA").run(backend=where)
    assert found.results.rmsd.tobytes() == wanted.results.rmsd.tobytes()
    if launched()[1] == 0:
        assert len({block.worker for block in where.timings.blocks}) == launched()[0]
    with pytest.raises(AnalysisError, match="ValueError: in a frame"):
        AnalysisFromFunction(raises, universe.trajectory, universe.atoms).run(backend=where)

ca = paceline.Universe(PDB_multiframe).select_atoms("name CA")
wanted = rms.RMSD(ca).run(backend="serial")
both = [rms.RMSD(ca), rms.RMSF(universe.atoms)]
found, shared = paceline.run(both, backend=where)
assert found.results.rmsd.tobytes() == wanted.results.rmsd.tobytes()
assert np.isfinite(shared.results.rmsf).all()
if launched()[1] == 0:
    print("as MDAnalysis alone")
