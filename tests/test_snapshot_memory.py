"""What a rank needs to write or read a snapshot: its buffer and little more, at any size."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.mpi import SCRIPTS

from benchmarks import nacl
from benchmarks.measure import Unavailable
from benchmarks.ranks import EVERY_RANK, on_ranks
from benchmarks.resident import MEBIBYTE, PROCESS
from paceline.snapshot.local_atoms import LocalAtoms
from paceline.snapshot.static_properties import gather_properties

pytest.importorskip("mpi4py")
needs_peak = pytest.mark.skipif(
    not (PROCESS / "clear_refs").exists(), reason="the system does not tell the peak of memory"
)
#: MB beyond the buffer.
ALLOWED = 32 * MEBIBYTE


@needs_peak
@pytest.mark.parametrize(
    ("format", "cells", "buffer", "ranks_with_ions"),
    [
        pytest.param("CONFIG", nacl.SMALL, 8, 2, marks=pytest.mark.full),
        ("CONFIG", nacl.LARGE, 8, 2),
        pytest.param("CONFIG", nacl.LARGE, 64, 1, marks=pytest.mark.full),
        ("H5MD", nacl.LARGE, 8, 2),
    ],
)
def test_memory_is_that_of_the_buffer(tmp_path, format, cells, buffer, ranks_with_ions):
    told = (tmp_path / "dump", format, cells, f"{buffer} MiB", ranks_with_ions)
    growth = found_by("snapshot_memory.py", *told)
    assert max(growth) <= buffer * MEBIBYTE + ALLOWED
    assert (tmp_path / "dump").stat().st_size > nacl.n_ions(cells) * 36


@needs_peak
@pytest.mark.full
@pytest.mark.parametrize("format", ["CONFIG", "H5MD"])
def test_memory_of_a_writer_does_not_grow_with_its_atoms(tmp_path, format):
    growth = [
        np.array(found_by("snapshot_memory.py", tmp_path / f"{cells}", format, cells, "4 MiB", 2))
        for cells in (nacl.LARGE, 93)
    ]
    # Of 2.4 million ions more on each rank an index alone would take 19 MB; up to 8.7 MB
    # have been seen while other tests ran.
    assert (growth[1] - growth[0]).max() < 13


def test_static_properties_are_gathered_within_the_buffer():
    peaks = [peak_of_gathering(n_atoms, buffer=2**22) for n_atoms in (2**18, 2**20)]
    assert peaks[1] < peaks[0] + 2**18
    # The records that are sent and received come beside the buffer.
    assert max(peaks) < 4 * 2**22


def peak_of_gathering(n_atoms, buffer):
    """Bytes beside the atoms of one rank that has them all, in no order."""
    ids = 1 + np.random.default_rng(1).permutation(n_atoms)
    names = np.where(ids % 2, b"Na+     ", b"Cl-     ").view(np.uint8).reshape(-1, 8)
    positions, masses = np.zeros((n_atoms, 3), np.float32), ids / 7
    found = np.zeros(n_atoms)

    def exchange(send, send_counts, receive, receive_counts):
        receive[:] = send

    def put(first, batch):
        found[first : first + len(batch)] = batch["masses"]

    comm = SimpleNamespace(size=1, is_coordinator=True, all_to_all=np.copy, exchange=exchange)
    errors = SimpleNamespace(comm=comm, first=lambda function: function())
    tracemalloc.start()
    try:
        atoms = LocalAtoms.from_user(
            ids,
            {"positions": positions, "velocities": None, "forces": None},
            names,
            {"masses": masses, "charges": None},
            box=None,
            step=0,
            time=0.0,
        )
        given = {"masses": atoms.masses, "names": atoms.names.view("S8")[:, 0]}
        gather_properties(errors, atoms.ids, given, n_atoms, buffer, put)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found, np.arange(1, n_atoms + 1) / 7)
    return peak


@needs_peak
@pytest.mark.parametrize(
    ("format", "order", "cells", "buffer"),
    [
        ("CONFIG", "ordered", nacl.LARGE, 8),
        pytest.param("NetCDF", "ordered", nacl.LARGE, 8, marks=pytest.mark.full),
        pytest.param("H5MD", "permuted", 48, 2, marks=pytest.mark.full),
    ],
)
def test_a_reader_holds_its_atoms_and_the_buffer(tmp_path, format, order, cells, buffer):
    told = (tmp_path / "dump", format, order, cells, f"{buffer} MiB")
    growth, owned = found_by("snapshot_memory_reading.py", *told)
    assert max(growth) <= buffer * MEBIBYTE + ALLOWED
    # A second copy of what one rank owns would not pass.
    assert max(owned) > buffer * MEBIBYTE + ALLOWED


def found_by(program, *told):
    """What a program prints that runs on two ranks."""
    try:
        return on_ranks(2, EVERY_RANK, *told, programs=SCRIPTS / program)
    except Unavailable as reason:
        pytest.skip(str(reason))
