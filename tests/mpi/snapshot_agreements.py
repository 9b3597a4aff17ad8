"""On every rank: number of collective calls to write a frame, and to read a frame."""

import collections
import json
import sys

import numpy as np
from mpi4py import MPI
from snapshot_system import own_frame

from paceline.snapshot import Reader, Writer

world = MPI.COMM_WORLD
N_ATOMS = 200_000
FIELDS = ("positions",)


class Counting:
    """A communicator that counts collective calls."""

    def __init__(self, comm):
        self._comm = comm
        self.calls = collections.Counter()

    def __getattr__(self, name):
        if name.startswith(("Iall", "Ibcast")):
            self.calls[name] += 1
        return getattr(self._comm, name)


def counted(comm, act):
    """Return the collective calls of a function."""
    whole, comm.intracomm = comm.intracomm, Counting(comm.intracomm)
    act()
    calls, comm.intracomm = comm.intracomm.calls, whole
    return calls


def both(path):
    """Return the calls to write the second frame, and to read it."""
    with Writer(world, path, N_ATOMS, overwrite=True) as writer:
        writer.write(**own_frame(world, 0, FIELDS, N_ATOMS))
        given = own_frame(world, 1, FIELDS, N_ATOMS)
        written = counted(writer._comm, lambda: writer.write(**given))
    with Reader(world, path) as reader:
        read = counted(reader._comm, lambda: reader.read(1, grid=(1, 1, world.size)))
    # The calls must be the same on all ranks, or ranks would wait for each other.
    assert len(set(world.allgather(json.dumps([written, read], sort_keys=True)))) == 1
    return written, read


found = both(sys.argv[1])
# Different values of ranks still arrive at all ranks, in order.
with Reader(world, sys.argv[1]) as reader:
    errors = reader._errors
    assert errors.share(lambda: world.rank // 3) == [rank // 3 for rank in range(world.size)]
    assert errors.share(lambda: np.pi) == [np.pi] * world.size
    assert errors.first(lambda: world.rank) == 0
if world.rank == 0:
    print(json.dumps(found))
