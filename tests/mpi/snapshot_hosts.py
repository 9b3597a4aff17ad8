"""On ranks of several hosts: writers and readers are distributed over hosts, and frames are
complete.
"""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI
from snapshot_system import ENDINGS, FIELDS, frame_of, write_frames

from paceline.snapshot import Reader

world = MPI.COMM_WORLD
folder = Path(sys.argv[1])
names = world.allgather(MPI.Get_processor_name())
n_hosts = len(set(names))


def hosts_of(ranks):
    """Return the names of the hosts of some ranks, without repeats."""
    assert len(ranks) == n_hosts
    return sorted(names[rank] for rank in ranks)


for kind in ("HISTORY", "H5MD"):
    for way in ({"writers": n_hosts}, {"writers": n_hosts, "wait": False}, {"method": "mpiio"}):
        path = folder / f"{'-'.join(way)}{ENDINGS[kind]}"
        writer = write_frames(path, kind, range(3), **way)
        if "writers" in way:
            assert hosts_of(writer.writers) == sorted(set(names)), writer.writers
            wrote = world.allgather(sum(cost.bytes_written for cost in writer.costs))
            assert [rank for rank, size in enumerate(wrote) if size] == writer.writers, wrote
        with Reader(world, path, readers=n_hosts) as reader:
            assert hosts_of(reader.readers) == sorted(set(names)), reader.readers
            own = reader.read(-1, owner=lambda x: (x[:, 0] > 0).astype(int))
        for field in FIELDS[kind]:
            expected = frame_of(2)[field][own.ids - 1]
            np.testing.assert_allclose(getattr(own, field), expected, rtol=1e-5)
        assert sum(world.allgather(len(own))[:2]) == reader.n_atoms
if world.rank == 0:
    print(*sorted(set(names)))
