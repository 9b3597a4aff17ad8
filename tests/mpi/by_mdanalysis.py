"""Under paceline.mpi or on every rank: MDAnalysis's analyses, and files that only it reads."""

import contextlib
import pickle
import sys
import tempfile
import warnings
from pathlib import Path

import MDAnalysis
import numpy as np
import pytest
from helpers import shipped
from MDAnalysis.analysis.base import AnalysisFromFunction
from MDAnalysis.analysis.rms import RMSD
from MDAnalysisTests.datafiles import PDB_multiframe

import paceline
from paceline import backends
from paceline._util.launcher import launched
from paceline.analysis import rms
from paceline.errors import AnalysisError

warnings.simplefilter("ignore")
#: Classes of Universes.
KINDS = MDAnalysis.Universe, paceline.Universe
universe = paceline.Universe(*sys.argv[1:3])
# With this schedule, each rank has a share.
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

# All classes: those that can be split run on all ranks, the others in the process that calls them.
files = pickle.loads(Path(sys.argv[3]).read_bytes())
with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
    for name, make in shipped.EVERY.items():
        theirs, ours = (kind(*files[name in shipped.OF_STRANDS]) for kind in KINDS)
        wanted = make(theirs).run(start=2).results
        with paceline.register(native=False) as registration:
            found = make(ours).run(start=2, backend="mpi").results
        in_order = name in shipped.ORDERED
        assert registration.runs == [(name, "in this process, in order" if in_order else "on mpi")]
        shipped.assert_same(found, wanted, rounding=shipped.SUMS.get(name))
    together = [shipped.EVERY[name](ours) for name in ("RMSD", "RMSF", "DistanceMatrix")]
    together = paceline.run([*together, rms.RMSF(ours.select_atoms("name CA"))], backend="mpi")
    np.testing.assert_allclose(together[1].results.rmsf, together[3].results.rmsf, rtol=1e-5)
    alone = shipped.EVERY["RMSD"](theirs).run().results.rmsd
    np.testing.assert_array_equal(together[0].results.rmsd, alone)

ca = paceline.Universe(PDB_multiframe).select_atoms("name CA")
wanted = rms.RMSD(ca).run(backend="serial")
both = [rms.RMSD(ca), rms.RMSF(universe.atoms)]
found, shared = paceline.run(both, backend=where)
assert found.results.rmsd.tobytes() == wanted.results.rmsd.tobytes()
assert np.isfinite(shared.results.rmsf).all()
if launched()[1] == 0:
    print("as MDAnalysis alone")
