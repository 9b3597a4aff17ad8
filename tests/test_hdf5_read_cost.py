"""Tests of the predicted cost of reading against a count of every byte."""

import io

import h5py
import MDAnalysis
import numpy as np
import pytest

import paceline
from paceline._core import BEGINNING_SPARE, GAP_BYTES
from paceline.block import FrameBuffer
from paceline.contract.source import extents_in
from paceline.hdf5.chunk_index import ChunkTable, Dataset, Element, Filter
from paceline.hdf5.open_hdf5_trajectory import Hdf5Options
from paceline.hdf5.read_cost import (
    advice,
    bytes_read,
    layout_in_words,
    library_cost,
    read_costs,
)
from paceline.mdanalysis.reader import Reader
from paceline.trajectory.open import open_file

GZIP, SHUFFLE = Filter(1, "deflate", (4,)), Filter(2, "shuffle", (4,))


def made_up(shape, chunk, dtype="f8", filters=(), rows=None, unwritten=()):
    """Return an element; if it is compressed, each chunk has another size."""
    if chunk is None:
        return Element(Dataset("value", np.dtype(dtype), shape, offset=512), rows=rows)
    grid = [-(-n // c) for n, c in zip(shape, chunk, strict=True)]
    sizes = np.full(np.prod(grid), np.prod(chunk) * np.dtype(dtype).itemsize, dtype=np.uint64)
    if filters:
        sizes = np.random.default_rng(3).integers(50, 90, sizes.shape).astype(np.uint64)
    sizes[list(unwritten)] = 0
    table = ChunkTable(
        np.cumsum(sizes) - sizes + 512, sizes, np.zeros(sizes.shape, dtype=np.uint32)
    )
    return Element(
        Dataset("value", np.dtype(dtype), shape, chunk=chunk, filters=filters, table=table), rows
    )


def counted(element, atoms, frames):
    """Return the number of bytes to read these frames together: wanted bytes, and short gaps."""
    dataset = element.dataset
    chunk = dataset.chunk or dataset.shape
    grid = [-(-n // c) for n, c in zip(dataset.shape, chunk, strict=True)]
    atoms = np.asarray(atoms)
    points = atoms if len(chunk) == 3 else (3 * atoms[:, None] + np.arange(3)).ravel()
    axes = [np.asarray(frames), points, *map(np.arange, dataset.shape[2:])]
    places = [axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")]
    chunks = [place // c for place, c in zip(places, chunk, strict=True)]
    inside = [place % c for place, c in zip(places, chunk, strict=True)]
    numbers = np.ravel_multi_index(chunks, grid)
    wanted = {n: np.ravel_multi_index(inside, chunk)[numbers == n] for n in np.unique(numbers)}
    width, total, end = dataset.dtype.itemsize, 0, None
    for number, places in wanted.items():
        offset, size = dataset.offset, 1
        if dataset.table is not None:
            offset, size = (
                int(part[number]) for part in (dataset.table.offsets, dataset.table.sizes)
            )
        if size == 0:
            continue
        if dataset.filters:
            starts, stops = np.array([offset]), np.array([offset + size])
        else:
            starts = offset + np.sort(places) * width
            stops = starts + width
        ends = np.r_[starts[0] if end is None else end, stops]
        gaps = starts - ends[:-1]
        total += int((stops - starts).sum() + gaps[(gaps >= 0) & (gaps <= GAP_BYTES)].sum())
        end = stops[-1]
    return total


LAYOUTS = {
    "contiguous": ((7, 900, 3), None),
    "one frame a chunk": ((7, 900, 3), (1, 900, 3)),
    "several frames": ((7, 900, 3), (3, 900, 3)),
    "automatic": ((7, 900, 3), (2, 113, 2)),
    "numbers": ((7, 2700), (4, 500)),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("filters", [(), (SHUFFLE, GZIP)], ids=["plain", "gzip"])
@pytest.mark.parametrize("step", [1, 20, 400])
def test_bytes_are_those_that_are_counted(name, filters, step):
    shape, chunk = LAYOUTS[name]
    if chunk is None and filters:
        pytest.skip("contiguous numbers have no filters")
    element = made_up(shape, chunk, filters=filters, unwritten=() if chunk is None else [1])
    atoms = np.arange(5, 900, step)
    at_once = counted(element, atoms, np.arange(7))
    assert bytes_read(element, atoms) == at_once
    # The decompressed part of a chunk is kept for the next frame.
    together = chunk[0] if filters else 1
    singly = [range(frame, min(7, frame + together)) for frame in range(0, 7, together)]
    assert bytes_read(element, atoms, one_by_one=True) == sum(
        counted(element, atoms, list(frames)) for frames in singly
    )


def test_what_is_kept_inflated_has_a_bound():
    large = made_up((8, 4_000_000, 3), (2, 4_000_000, 3), dtype="f4", filters=(GZIP,))
    few = np.arange(10)
    assert bytes_read(large, few, one_by_one=True) == 2 * bytes_read(large, few)


def test_rows_that_no_frame_has_are_not_read():
    rows = np.array([0, -1, 2, -1])
    element = made_up((3, 300, 3), (1, 300, 3), rows=rows)
    assert bytes_read(element, np.arange(300)) == 2 * 7200
    assert read_costs(element, 300)[3].ratio == 1


def test_long_runs_of_floats_are_read_without_what_is_between():
    element = made_up((4, 1000, 3), (4, 1000, 3), dtype="f4")
    assert bytes_read(element, np.arange(900)) == 4 * 900 * 12
    assert bytes_read(element, np.arange(100)) == 4 * 100 * 12
    # A short gap after a short run is read, too.
    element = made_up((4, 200, 3), (4, 200, 3), dtype="f4")
    assert bytes_read(element, np.arange(100)) == (3 * 200 + 100) * 12


@pytest.mark.parametrize(
    ("element", "words", "pays"),
    [
        (made_up((9, 5000, 3), None, "f4"), "contiguous", "does not pay"),
        (
            made_up((9, 5000, 3), (1, 5000, 3), "f4"),
            "one frame a chunk (60 kB)",
            "does not pay",
        ),
        (
            made_up((9, 5000, 3), (1, 5000, 3), "f4", (SHUFFLE, GZIP)),
            "one frame a chunk (60 kB, shuffle + gzip 4)",
            "does not pay",
        ),
        (
            made_up((9, 5000, 3), (3, 500, 1), "f4"),
            "3 frames × 500 atoms a chunk, one of 3 parts of each (6 kB)",
            "does not pay",
        ),
        (made_up((8, 600), (2, 60)), "2 frames × 20 atoms a chunk (960 bytes)", "does not pay"),
        (
            Element(
                Dataset("v", np.dtype("f4"), (5, 9, 3), (1, 9, 3), h5py_fallback="its filter zfp")
            ),
            "one frame a chunk (108 bytes)",
            "pays: paceline repack writes a file that workers read without HDF5's library",
        ),
    ],
)
def test_layouts_in_words(element, words, pays):
    n_atoms = element.dataset.shape[1] // (1 if len(element.dataset.shape) == 3 else 3)
    assert layout_in_words(element.dataset, n_atoms) == words
    assert advice(read_costs(element, n_atoms)).startswith(pays)


def test_compressed_frames_are_dear_to_few_atoms():
    element = made_up((9, 5000, 3), (1, 5000, 3), "f4", (SHUFFLE, GZIP))
    element.dataset.table.sizes[:] = 40_000
    by_frames, first, spread, everything = read_costs(element, 5000)
    assert by_frames.ratio == everything.ratio == pytest.approx(2 / 3)
    assert first.ratio == spread.ratio == pytest.approx(20 * 2 / 3)
    assert advice(read_costs(element, 5000)) == "does not pay: few bytes are read"
    element.dataset.table.sizes[:] = 40_000_000
    assert advice(read_costs(element, 5000)).startswith("pays if few atoms are read")


def test_of_deflate_alone_the_beginning_is_enough():
    element = made_up((9, 5000, 3), (1, 5000, 3), "f4", (GZIP,))
    element.dataset.table.sizes[:] = 40_000
    element.dataset.table.offsets[:] = np.arange(9) * 40_000
    assert bytes_read(element, np.arange(250)) == 9 * (2000 + BEGINNING_SPARE)
    assert bytes_read(element, np.arange(4000)) == 9 * 40_000


REAL = {
    "contiguous": {},
    "one frame a chunk": {"chunks": (1, 3000, 3)},
    "as h5py chooses": {"chunks": (4, 750, 1)},
    "gzip": {"chunks": (4, 3000, 3), "compression": "gzip", "compression_opts": 1},
    "shuffle + gzip": {"chunks": (4, 500, 3), "compression": "gzip", "shuffle": True},
}


@pytest.mark.parametrize("name", REAL)
def test_bytes_are_those_that_a_run_counts(tmp_path, name):
    path = tmp_path / "a.h5"
    numbers = np.random.default_rng(1).normal(0, 20, (40, 3000, 3)).astype("f4").round(2)
    with h5py.File(path, "w") as file:
        file.create_dataset("pos", data=numbers, **REAL[name])
    file = open_file(
        path, options=Hdf5Options(dataset="pos", units={"length": "Angstrom"}), notes=False
    )
    element = file.chunk_index.elements["positions"]
    universe = MDAnalysis.Universe.empty(3000)
    universe.trajectory = Reader(path, dataset="pos", units={"length": "Angstrom"})
    for chosen in (slice(None), slice(0, 150), slice(0, None, 20)):
        atoms = np.arange(3000)[chosen].copy()
        series = paceline.TimeSeries(lambda block: block.times, universe.atoms[chosen])
        series.run(backend="serial")
        found = sum(block.bytes for block in series.timings.blocks)
        assert bytes_read(element, atoms) == pytest.approx(found, rel=0.05)
        reader = file.spec.open(atoms, 1)
        found = 0
        for frame in np.arange(40):
            block = FrameBuffer.allocate(np.array([frame]), len(atoms), ["positions"])
            extents = extents_in(0, file, np.array([frame], dtype=np.uint64))
            found += reader.read(extents, block, required=1, skip=False)[2]
        assert bytes_read(element, atoms, one_by_one=True) == pytest.approx(found, rel=0.05)


class CountingFile(io.FileIO):
    """File that counts the bytes read from it."""

    n_bytes = 0

    def readinto(self, buffer):
        n_bytes = super().readinto(buffer)
        self.n_bytes += n_bytes
        return n_bytes


@pytest.mark.parametrize(
    ("chunk", "compression"),
    [
        (None, None),
        ((1, 9000, 3), None),
        ((2, 2000, 1), None),
        ((2, 2000, 1), "gzip"),
        ((4, 9000, 3), None),
        ((4, 9000, 3), "gzip"),
    ],
    ids=str,
)
@pytest.mark.parametrize("cache", [2**16, 2**20], ids=str)
def test_what_the_library_reads(tmp_path, chunk, compression, cache):
    """Frames in sequence, counted below HDF5's library."""
    path, shape = tmp_path / "layout.h5", (12, 9000, 3)
    values = np.random.default_rng(5).normal(size=shape).astype("f4")
    with h5py.File(path, "w") as h5:
        h5.create_dataset("coordinates", data=values, chunks=chunk, compression=compression)
    options = Hdf5Options(dataset="coordinates", units="Å, ps")
    [element] = open_file(path, options=options).chunk_index.elements.values()
    with CountingFile(path) as file, h5py.File(file, rdcc_nbytes=cache) as h5:
        dataset, file.n_bytes = h5["coordinates"], 0
        for row in range(len(dataset)):
            dataset[row]
        found = library_cost(element, shape[1], cache)
        # The table of chunks is read as well.
        assert found.read <= file.n_bytes < found.read + 30_000
