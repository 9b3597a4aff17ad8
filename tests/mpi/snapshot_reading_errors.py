"""On every rank: unreadable frames are refused with the same error on all ranks."""

import contextlib
import sys

import numpy as np
from mpi4py import MPI

from paceline.snapshot import Reader

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
xtc, no_cell, odd, damaged, twice, gaps, dump = sys.argv[1:]


def refused(kind, words, act, *arguments, **options):
    """Check that all ranks raise the same error, of this kind and with these words."""
    said = None
    try:
        act(*arguments, **options)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    everywhere = world.allgather(said)
    assert set(everywhere) == {said}, everywhere
    assert said is not None, words
    assert said.startswith(kind), said
    assert words in said, said


refused("FileNotFoundError", "nowhere.xtc", Reader, world, "nowhere.xtc")
refused("UnsupportedError", "found a file that begins with", Reader, world, __file__)
refused("UnsupportedError", "dumps of LAMMPS", Reader, world, dump)
refused("UnsupportedError", f"from 1 to {size} readers", Reader, world, xtc, readers=size + 1)
refused("ValueError", "at least 1 byte", Reader, world, xtc, buffer=0)
refused("ValueError", "number of bytes", Reader, world, xtc, buffer="much")
if size > 1:
    refused("UnsupportedError", "ranks disagree", Reader, world, xtc, buffer=1000 + rank)
    refused("UnsupportedError", "ranks disagree", Reader, world, xtc if rank else no_cell)

with Reader(world, xtc) as reader:
    read = reader.read
    refused("ValueError", "frame 10 is out of range for 10 frames", read, 10)
    refused("TypeError", "float", read, 1.5)
    if size > 1:
        refused("UnsupportedError", "ranks disagree about what to read", read, rank)
    refused("ValueError", "found both", read, grid=(1, 1, size), owner=lambda x: x)
    refused("ValueError", f"a grid of {size} domains", read, grid=(1, 1, size + 1))
    refused("ValueError", "three numbers of domains", read, grid=(1.0, 1.0, 2.0))
    refused("ValueError", "three numbers of domains", read, grid=(1, 2))
    for answer, words in (
        (size, f"belongs to rank {size}, but there are {size} ranks"),
        (-1, "belongs to rank -1"),
    ):
        owner = lambda x, answer=answer: np.where(np.arange(len(x)) == 7, answer, 0)  # noqa: E731
        refused("UnsupportedError", words, read, owner=owner)
    refused("AnalysisError", "found float32", read, owner=lambda x: x[:, 0])
    refused("AnalysisError", "of shape ()", read, owner=lambda x: 0)
    refused("AnalysisError", "KeyError: 'lost'", read, owner=lambda x: {}["lost"])
    refused("AnalysisError", "read-only", read, owner=lambda x: x.sort())
    # The reader can continue.
    assert world.allreduce(len(read(-1))) == reader.n_atoms
refused("ValueError", "the reader is closed", read)

# After an error of all ranks, shared resources are released.
with contextlib.suppress(ValueError), Reader(world, xtc) as reader:
    reader.read(10)
assert not reader._comm.is_open, "a communicator is left behind"

with Reader(world, no_cell) as reader:
    refused("UnsupportedError", "no cell to be divided by a grid", reader.read, grid=(1, 1, size))
    assert world.allreduce(len(reader.read(2))) == reader.n_atoms

with Reader(world, odd) as reader:
    refused("UnsupportedError", "atom 3 is at (", reader.read, grid=(1, 1, size))
    words = "atom 3 has the invalid position ("
    refused("UnsupportedError", words, reader.read, owner=lambda x: np.zeros(len(x), int))
    ids = reader.read(0).ids
    assert world.allreduce(len(ids)) == reader.n_atoms

with Reader(world, damaged) as reader:
    refused("DamagedFileError", "frame 1, byte", reader.read, 1)
    assert world.allreduce(len(reader.read(0))) == reader.n_atoms
with Reader(world, twice) as reader:
    refused("UnsupportedError", "occurs more than once, on rank", reader.read, 1)
    refused("UnsupportedError", "counted from 1 here", reader.read, 1)
    refused("UnsupportedError", "found 100 ids", reader.read, 2)
    assert world.allreduce(len(reader.read(0))) == reader.n_atoms

words = "have 100 gaps, for which a buffer of 9000 bytes is too small: pass at least 12992"
refused("UnsupportedError", words, Reader, world, gaps, buffer=9000)
with Reader(world, gaps, buffer=12992) as reader:
    assert set(reader.read(0).ids % 2) <= {0}
if rank == 0:
    print("refused")
