"""What a rank needs to write a snapshot: its buffer and little more, whatever the system."""

from pathlib import Path

import pytest

from benchmarks import nacl
from benchmarks.measure import Unavailable
from benchmarks.ranks import EVERY_RANK, on_ranks
from benchmarks.resident import MEBIBYTE, PROCESS

pytest.importorskip("mpi4py")
pytestmark = pytest.mark.skipif(
    not (PROCESS / "clear_refs").exists(), reason="the system does not tell the peak of memory"
)
PROGRAM = Path(__file__).parent / "mpi" / "snapshot_memory.py"
#: MB beyond the buffer.
ALLOWED = 32 * MEBIBYTE


@pytest.mark.parametrize(
    ("format", "cells", "buffer", "ranks_with_ions"),
    [
        ("CONFIG", nacl.SMALL, 8, 2),
        ("CONFIG", nacl.LARGE, 8, 2),
        ("CONFIG", nacl.LARGE, 64, 1),
        ("H5MD", nacl.LARGE, 8, 2),
    ],
)
def test_memory_is_that_of_the_buffer(tmp_path, format, cells, buffer, ranks_with_ions):
    told = (tmp_path / "dump", format, cells, f"{buffer} MiB", ranks_with_ions)
    try:
        growth = on_ranks(2, EVERY_RANK, *told, programs=PROGRAM)
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert max(growth) <= buffer * MEBIBYTE + ALLOWED
    assert (tmp_path / "dump").stat().st_size > nacl.n_ions(cells) * 36
