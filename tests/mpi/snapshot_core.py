"""Frames written by the core over MPI: `snapshot_core.py folder`; prints the findings of rank 0."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from paceline import _core
from paceline.backends.mpi.comm import Comm
from paceline.errors import UnwritableError

N_ATOMS = 3000
START = 11

comm = MPI.COMM_WORLD.Dup()
communicator = Comm(comm, busy=True)
rank, size = communicator.rank, communicator.size
folder = Path(sys.argv[1])


def atoms_of(ids, dtype):
    """Return the same atoms on any rank, given their ids."""
    columns = [ids[:, None] * scale + np.arange(3) / 7 for scale in (0.01, -0.3, 17.0)]
    names = np.where(ids % 2, b"Na+     ", b"Cl-     ").astype("S8")
    return (
        ids,
        *(column.astype(dtype) for column in columns),
        names.view(np.uint8).reshape(-1, 8),
        ids / 7,
        -ids / 9,
    )


def own_ids(seed):
    """Return ids in random order on changing ranks; rank 1 has none."""
    random = np.random.default_rng(seed)
    ids = 1 + random.permutation(N_ATOMS)
    ranks = random.integers(size, size=N_ATOMS)
    return ids[np.where(ranks == 1, 0, ranks) == rank]


def write(form, atoms, **options):
    """Check and write one frame; return the bytes of the file, and the cost of this rank."""
    path = folder / "frame"
    if rank == 0:
        path.write_bytes(b"")
    comm.Barrier()
    n_sections = len(form.sections)
    ends = np.cumsum(form.sections) * N_ATOMS
    starts = [START + int(end) for end in (0, *ends[:-1])]
    assert len(starts) == n_sections
    _core.check_snapshot(communicator, form, N_ATOMS, atoms)
    cost = _core.write_snapshot(
        communicator, path, form, starts, N_ATOMS, atoms, sync=True, **options
    )
    comm.Barrier()
    found = path.read_bytes()
    comm.Barrier()
    return found, cost


def same_bytes():
    """Check that every method writes the same bytes as one process with all atoms in order."""
    everything = np.arange(1, N_ATOMS + 1)
    forms = (("HISTORY", 7, "<f4"), ("CONFIG", 1, "<f4"), ("DCD", 1, "<f4"), ("arrays", 7, ">f8"))
    for seed, (kind, fields, dtype) in enumerate(forms):
        form = _core.SnapshotFormat(kind, fields, dtype=dtype)
        float_type = "f4" if seed % 2 else "f8"
        whole = atoms_of(everything, float_type)
        expected = bytes(START) + b"".join(
            form.encode(section, whole) for section in range(len(form.sections))
        )
        for method in ("sorted", "serial", "direct", "mpiio"):
            found, cost = write(
                form,
                atoms_of(own_ids(seed), float_type),
                method=method,
                writers=list(range(0, size, 2)),
                buffer=2**20,
            )
            assert found == expected, (kind, method)
            assert cost.peak_buffer <= 2**20, (kind, method, cost.peak_buffer)
        assert len(found) == START + N_ATOMS * sum(form.sections)


def refusals():
    """Check that all ranks raise the same error with the same text."""
    form = _core.SnapshotFormat("HISTORY", 7)
    told = []
    for change in (twice, out_of_range, not_finite, one_less):
        atoms, n_atoms = change(list(atoms_of(own_ids(5), "f8")))
        try:
            _core.check_snapshot(communicator, form, n_atoms, tuple(atoms))
        except UnwritableError as error:
            told.append(str(error))
    assert comm.allgather(told) == [told] * size
    return told


def twice(atoms):
    atoms[0][atoms[0] == 40] = 41
    return atoms, N_ATOMS


def out_of_range(atoms):
    atoms[0][atoms[0] == 40] = N_ATOMS + 1
    return atoms, N_ATOMS


def not_finite(atoms):
    atoms[2][atoms[0] == 40] = np.inf
    return atoms, N_ATOMS


def one_less(atoms):
    return atoms, N_ATOMS - (rank == size - 1)


def large():
    """Check more bytes than any MPI sends at once without a handshake."""
    send = np.full(size * 3_000_000, rank, dtype=np.uint8)
    receive = np.empty_like(send)
    counts = np.full(size, 3_000_000, dtype=np.uint64)
    communicator.exchange(memoryview(send), counts, memoryview(receive), counts)
    assert np.array_equal(receive, np.repeat(np.arange(size, dtype=np.uint8), 3_000_000))


same_bytes()
large()
for line in refusals():
    if rank == 0:
        print(line)
