"""Tests of chunks of HDF5 datasets: the core against h5py, for random layouts."""

import random

import h5py
import numpy as np
import pytest

from paceline import _core
from paceline.block import FrameBuffer
from paceline.hdf5.chunk_index import ABSENT, Element, slice_of
from paceline.hdf5.dataset_description import describe_dataset
from paceline.hdf5.file import File

DTYPES = ("<f4", "<f4", ">f4", "<f8", ">f8", "|i1", ">i2", "<i4", ">i8", "|u1", "<u2", ">u4", "<u8")


def draw_storage(draw, shape):
    """Draw options of h5py."""
    kind = draw.choice(("contiguous", "any", "automatic", "frame"))
    if kind == "contiguous":
        return {}
    if kind == "automatic":
        chunks = {"chunks": True, "maxshape": (None, *shape[1:])}
    elif kind == "frame":
        chunks = {"chunks": (1, *shape[1:])}
    else:
        chunks = {"chunks": tuple(draw.randint(1, min(n, 60)) for n in shape)}
    return {
        **chunks,
        "compression": draw.choice((None, "gzip", "gzip", "lzf")),
        "shuffle": draw.random() < 0.5,
        "fletcher32": draw.random() < 0.3,
    }


def draw_numbers(draw, dtype, shape):
    random_numbers = np.random.default_rng(draw.randrange(2**32))
    if dtype.kind == "f":
        return random_numbers.normal(size=shape).cumsum(axis=1).astype(dtype)
    return random_numbers.integers(0 if dtype.kind == "u" else -100, 100, shape).astype(dtype)


def write(path, draw, dtype, shape):
    """Write a dataset, with some rows never written; return all of its numbers."""
    storage = draw_storage(draw, shape)
    numbers = draw_numbers(draw, dtype, shape)
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("value", shape, dtype, fillvalue=7, **storage)
        for row in range(shape[0]):
            if not storage or draw.random() < 0.8:
                dataset[row] = numbers[row]
        return dataset[...]


def in_our_units(numbers, factor, divisor):
    if numbers.dtype.kind != "f":
        numbers = numbers.astype(np.float64) / divisor
    return numbers.astype(np.float32) * np.float32(factor)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_decoded_is_what_h5py_reads(seed, tmp_path):
    draw, path = random.Random(seed), str(tmp_path / "a.h5")
    n_rows, n_atoms = draw.randint(1, 40), draw.choice((1, 2, 5, 22, 300, 1500))
    dtype = np.dtype(draw.choice(DTYPES))
    shape = draw.choice(((n_rows, n_atoms, 3), (n_rows, 3 * n_atoms)))
    numbers = write(path, draw, dtype, shape).reshape(n_rows, n_atoms, 3)
    factor, divisor = draw.choice((1.0, 10.0)), 1.0 if dtype.kind == "f" else 1000.0
    row_of = np.array([draw.choice((ABSENT, draw.randrange(n_rows))) for _ in range(n_rows)])
    with File(path) as file:
        dataset = describe_dataset(file.root.array("value"))
    element = Element(dataset, draw.choice((None, row_of)), factor, divisor)
    atoms = np.array(sorted(draw.sample(range(n_atoms), draw.randint(0, n_atoms))))
    atoms = draw.choice((None, atoms.astype(np.int64)))
    reader = _core.ChunkReader(
        path, _core.samples_of(path), [element, None, None], n_atoms=n_atoms, atoms=atoms
    )
    some = np.array([draw.randrange(n_rows) for _ in range(2 * n_rows)])
    for frames, whole in ((np.arange(n_rows), False), (some, False), (some, True)):
        n_wanted = n_atoms if atoms is None else len(atoms)
        block = FrameBuffer.allocate(frames, n_wanted, ["positions"])
        slices = [slice_of(element, frames), None, None]
        *_, damaged = reader.read(slices, block, required=0, skip=False, whole=whole)
        rows = slices[0].rows
        expected = in_our_units(numbers, factor, divisor)[rows]
        expected[rows == ABSENT] = np.nan
        if atoms is not None:
            expected = expected[:, atoms]
        assert damaged == []
        np.testing.assert_array_equal(block.positions, expected)
        assert np.array_equal(block.fields, rows != ABSENT)
