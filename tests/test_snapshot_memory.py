"""Tests of the memory of a rank that writes or reads a snapshot: little more than its buffer."""

import subprocess
import sys

import numpy as np
import pytest
from helpers import gathering
from helpers.mpi import SCRIPTS

from benchmarks import nacl
from benchmarks.measure import Unavailable
from benchmarks.ranks import EVERY_RANK, on_ranks
from benchmarks.resident import MEBIBYTE, PROCESS

pytest.importorskip("mpi4py")
needs_peak = pytest.mark.skipif(
    not (PROCESS / "clear_refs").exists(), reason="the system does not tell the peak of memory"
)
#: Allowed memory beyond the buffer.
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
    # An index of 2.4 million more ions on each rank would take 19 MB; up to 8.7 MB were observed
    # while other tests ran.
    assert (growth[1] - growth[0]).max() < 13


def test_static_properties_are_gathered_within_the_buffer():
    buffer, numbers = 2**22, (2**18, 2**20)
    command = [sys.executable, gathering.__file__, buffer, *numbers]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    peaks = list(map(int, done.stdout.split()))
    assert peaks[1] < peaks[0] + 2**18
    # The buffer does not contain sent and received records.
    assert max(peaks) < 4 * buffer


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
    # A second copy of one rank's atoms would exceed the limit.
    assert max(owned) > buffer * MEBIBYTE + ALLOWED


def found_by(program, *told):
    """Return the output of a program on two ranks."""
    try:
        return on_ranks(2, EVERY_RANK, *told, programs=SCRIPTS / program)
    except Unavailable as reason:
        pytest.skip(str(reason))
