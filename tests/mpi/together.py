"""On every rank: each rank calls run, and gets the results or the error."""

import sys

import numpy as np
from helpers.stages import Spread
from mpi4py import MPI

import paceline
import paceline.backends.mpi.comm
from paceline import backends
from paceline.analysis.diffusionmap import DistanceMatrix
from paceline.analysis.rms import RMSD, RMSF
from paceline.backends.mpi import gather

# Small limits, so that these results need several messages, and clocks are compared.
gather.ROUND, paceline.backends.mpi.comm.MOST_BYTES = 500, 1000
paceline.backends.mpi.comm.Comm.has_one_clock = lambda self: False
world = MPI.COMM_WORLD
rank = world.Get_rank()
universe = paceline.Universe(*sys.argv[1:3])
ca = universe.select_atoms("name CA")


def error_of(make, **options):
    try:
        make().run(backend="mpi", **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


wanted = RMSD(ca).run(backend="serial").results.rmsd, RMSF(ca).run(backend="serial").results.rmsf
for comm in (None, world, world.Split(rank % 2, rank)):
    for collect in ("gather", "one-sided"):
        where = backends.MPI(comm, collect=collect)
        assert where.n_workers == (comm or world).Get_size()
        rmsd, rmsf = paceline.run([RMSD(ca), RMSF(ca)], backend=where, block_frames=16)
        assert np.array_equal(rmsd.results.rmsd, wanted[0])
        assert np.array_equal(rmsf.results.rmsf, wanted[1])
        assert np.array_equal(rmsd.frames, np.arange(98))
        assert np.array_equal(rmsd.times, rmsd.results.rmsd[:, 1])
        assert rmsd.timings.n_frames == 98
        begun, ended = rmsd.timings.start - 10**6, rmsd.timings.end + 10**6
        assert all(begun < one.start < one.end < ended for one in rmsd.timings.blocks)

# Every rank takes part in each stage, even if one fails between two stages.
spread = Spread(ca).run(backend="serial").results.spread
assert np.array_equal(Spread(ca).run(backend="mpi").results.spread, spread)
pairs = DistanceMatrix(ca).run(backend="serial").results.dist_matrix
assert np.array_equal(DistanceMatrix(ca).run(backend="mpi").results.dist_matrix, pairs)

written = paceline.Write(ca, sys.argv[3]).run(backend="mpi")
assert written.results.n_written == 98


def raises_late(block):
    if block.frames[-1] > 90:
        raise ValueError("late")
    return block.times


def errors_are(words, found):
    everywhere = world.allgather(found)
    assert len(set(everywhere)) == 1, everywhere
    assert words in everywhere[0], everywhere


errors_are("ValueError: late", error_of(lambda: paceline.TimeSeries(raises_late, ca)))
# Only the file of the first rank is written, and only there its existence is checked.
errors_are("exists", error_of(lambda: paceline.Write(ca, sys.argv[3])))
errors_are("no frames", error_of(lambda: RMSD(ca), start=98))


class Unfinished(paceline.TimeSeries):
    def finish(self, value):
        raise KeyError("in finish")


class FailsBetween(Spread):
    def next_stage(self, value):
        raise KeyError("between stages")


errors_are("between stages", error_of(lambda: FailsBetween(ca)))
errors_are("in finish", error_of(lambda: Unfinished(raises_late, ca), stop=10))


def reopened(of):
    """Return an error that only the rank where it was raised can unpickle."""
    from mpi4py import MPI

    if MPI.COMM_WORLD.Get_rank() != of:
        raise ImportError("no such module here")
    return Unopened()


class Unopened(Exception):
    def __reduce__(self):
        return reopened, (0,)


class FinishedBadly(Unfinished):
    def finish(self, value):
        raise Unopened


# No rank waits for a rank that could not unpickle the error.
found = error_of(lambda: FinishedBadly(raises_late, ca), stop=10)
assert found == ("Unopened: " if rank == 0 else "ImportError: no such module here"), found
assert error_of(lambda: RMSD(ca)) is None
if rank == 0:
    print("together")
