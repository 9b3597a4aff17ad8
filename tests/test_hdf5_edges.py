"""Tests of chunks at the edge of a dataset, which HDF5 can leave unfiltered."""

import ctypes
from pathlib import Path

import h5py
import numpy as np
import pytest

from paceline.errors import PacelineWarning
from paceline.mdanalysis.reader import Reader

#: Constant of H5Dpublic.h.
DONT_FILTER_PARTIAL_CHUNKS = 2


def leave_edges_alone(created):
    """Set the option with HDF5's C library, because h5py does not support it."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    # Other packages also load HDF5, and their library does not know the property lists of h5py.
    names = {line.split()[-1] for line in lines if "/libhdf5" in line and "_hl" not in line}
    asked = ctypes.c_int64(created.id), DONT_FILTER_PARTIAL_CHUNKS
    if not any(ctypes.CDLL(name).H5Pset_chunk_opts(*asked) == 0 for name in names):
        pytest.skip("HDF5's library is not to be found")


@pytest.mark.parametrize(
    "filters",
    [
        ("deflate",),
        ("shuffle",),
        ("shuffle", "deflate"),
        ("fletcher32",),
        ("shuffle", "fletcher32"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    "chunk", [(4, 20, 3), (7, 12, 3), (4, 12, 2)], ids=["frames", "atoms", "all axes"]
)
def test_edges_that_were_left_alone_are_read(filters, chunk, tmp_path):
    numbers = np.random.default_rng(2).normal(size=(7, 20, 3)).astype("f4")
    created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    created.set_chunk(chunk)
    if "shuffle" in filters:
        created.set_shuffle()
    if "deflate" in filters:
        created.set_deflate(4)
    if "fletcher32" in filters:
        created.set_fletcher32()
    leave_edges_alone(created)
    path = tmp_path / "edges.h5"
    with h5py.File(path, "w", libver="latest") as file:
        space = h5py.h5s.create_simple(numbers.shape)
        h5py.h5d.create(file.id, b"pos", h5py.h5t.IEEE_F32LE, space, dcpl=created)
        file["pos"][...] = numbers
    with pytest.warns(PacelineWarning, match="through HDF5's own library, which is slower"):
        reader = Reader(path, dataset="pos", units="Angstrom")
    for frame, ts in enumerate(reader):
        np.testing.assert_array_equal(ts.positions, numbers[frame])
