"""What a rank needs to write or read a snapshot: its buffer and little more, at any size."""

import pytest
from helpers.mpi import SCRIPTS

from benchmarks import nacl
from benchmarks.measure import Unavailable
from benchmarks.ranks import EVERY_RANK, on_ranks
from benchmarks.resident import MEBIBYTE, PROCESS

pytest.importorskip("mpi4py")
pytestmark = pytest.mark.skipif(
    not (PROCESS / "clear_refs").exists(), reason="the system does not tell the peak of memory"
)
#: MB beyond the buffer.
ALLOWED = 32 * MEBIBYTE


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


@pytest.mark.parametrize(
    ("format", "order", "cells", "buffer"),
    [
        ("CONFIG", "ordered", nacl.LARGE, 8),
        pytest.param("NetCDF", "ordered", nacl.LARGE, 8, marks=pytest.mark.full),
        ("H5MD", "permuted", 48, 2),
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
