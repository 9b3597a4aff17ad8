"""On every rank: ranks of one host share large results, and may change them separately."""

import os
import socket
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

import paceline
from paceline._util.os_calls import SharedFile
from paceline.engine import result_arrays

world = MPI.COMM_WORLD
rank = world.Get_rank()
universe = paceline.Universe(*sys.argv[1:3])
how = sys.argv[3]
frames = 4 * list(range(98))


def refuse(*_):
    raise OSError("not here")


if how == "no file":
    os.posix_fallocate = refuse
elif how == "cannot open" and rank == world.Get_size() - 1:
    SharedFile.open = refuse
elif how == "another process" and rank == world.Get_size() - 1:
    SharedFile.open = lambda shared, opens=SharedFile.open: opens(shared._replace(path=__file__))
elif how == "kept in a file":
    result_arrays.LARGE = 2**20


def series():
    return paceline.TimeSeries(lambda block: block.positions, universe.atoms)


def mapping_of(array):
    """Return inode and proportional share (bytes) of the memory mapping of an array."""
    inside, inode = False, ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            first, end = (int(one, 16) for one in words[0].split("-"))
            inside, inode = first <= array.ctypes.data < end, words[4]
        elif inside and words[0] == "Pss:":
            return inode, int(words[1]) * 1024
    raise AssertionError("an array in no mapping")


def memory_files():
    """Return the files in memory that are mapped, and those that are open."""
    links = [os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    mapped = Path("/proc/self/maps").read_text().count("paceline-results")
    return mapped, sum("paceline-results" in link for link in links)


wanted = series().run(backend="serial", frames=frames).results.timeseries
found = series().run(backend="mpi", frames=frames)
values = found.results.timeseries
assert np.array_equal(values, wanted)
world.Barrier()
facts = world.allgather((socket.gethostname(), *mapping_of(values)))
world.Barrier()
for host in {one[0] for one in facts}:
    # The first rank of all has its own copy.
    inodes, shares = zip(*(one[1:] for one in facts[1:] if one[0] == host), strict=True)
    if how in ("shared", "kept in a file"):
        assert len(set(inodes)) == 1
        assert "0" not in inodes
        assert 0.9 * values.nbytes < sum(shares) < 1.1 * values.nbytes
    else:
        assert set(inodes) == {"0"}
if rank == 1:
    values[:] = -1
world.Barrier()
assert np.array_equal(values, wanted) == (rank != 1)
assert memory_files()[1] <= 1
del values, found
assert memory_files() == (0, 0)
world.Barrier()
if rank == 0:
    print(how)
