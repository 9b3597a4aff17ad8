"""Describe datasets of an open file for the chunk reader, and read short series of numbers."""

import contextlib
import math
from dataclasses import replace

import numpy as np

from paceline import _core
from paceline.errors import DamagedFileError, UnsupportedError
from paceline.hdf5.chunk_index import (
    DEFLATE,
    FLETCHER32,
    LZ4,
    LZF,
    SHUFFLE,
    ZSTD,
    ChunkIndex,
    ChunkTable,
    Dataset,
    Element,
    Filter,
    may_hide_damage,
    slice_of,
)
from paceline.hdf5.file import NOWHERE, Array, File, damaged, unpacked_ratio

#: Filters after which a chunk has as many bytes as before, or four more.
_SIZE_KEEPING = (SHUFFLE, FLETCHER32)
#: From so many chunks on the core reads them: HDF5's library takes 20 to 60 µs for each.
_MANY_CHUNKS = 64


def describe_dataset(array: Array, *, fixed: bool = False) -> Dataset:
    """Describe a dataset of numbers; a `fixed` one holds for all frames and counts as one row.

    A chunk that overlaps another, has two addresses, or whose size is impossible, is put at
    `NOWHERE`, and so are chunks without an entry if one is for no chunk or a second one: only
    reading their frames is an error. A dataset that claims more bytes than the file
    could hold is one at once.
    """
    _check_numeric(array)
    array.file.used[array.identity] = array
    filters = array.filters
    whole = Dataset(array.name, array.dtype, array.shape, array.chunk, filters, fill=array.fill)
    fallback = array.h5py_fallback or _why_unknown(array.dtype, filters)
    if fallback:
        array.check_filters()
    if fallback or not all(array.shape):
        found = replace(whole, h5py_fallback=fallback)
    elif array.chunk is None:
        found = _contiguous(array, whole)
    else:
        found = _chunked(array, whole)
    return _as_one_row(found) if fixed else found


def _as_one_row(dataset: Dataset) -> Dataset:
    chunk = None if dataset.chunk is None else (1, *dataset.chunk)
    return replace(dataset, shape=(1, *dataset.shape), chunk=chunk)


def _check_numeric(array: Array) -> None:
    """Raise `UnsupportedError` where elements are no plain numbers."""
    what = None
    if array.is_text:
        what = "text"
    elif array.enum_names is not None:
        what = "an enumeration"
    elif array.dtype.names is not None:
        what = f"compounds of {', '.join(array.dtype.names)}"
    elif array.dtype.kind not in "iuf":
        what = f"{array.dtype}"
    if what is not None:
        raise UnsupportedError(f"{array.file.path}: {array.name}: expected numbers, found {what}")


def _why_unknown(dtype: np.dtype, filters: tuple[Filter, ...]) -> str:
    """Describe what the core does not know of it; empty where it knows all."""
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return f"its numbers are {dtype.name}"
    known = (DEFLATE, SHUFFLE, FLETCHER32, LZF, LZ4, ZSTD)
    for stage in filters:
        if stage.number not in known:
            return f"its filter {stage.words}"
    return ""


def _contiguous(array: Array, dataset: Dataset) -> Dataset:
    """Describe rows one after another."""
    if array.offset is None:
        return replace(dataset, h5py_fallback="it was never written")
    n_bytes = math.prod(dataset.shape) * dataset.dtype.itemsize
    if n_bytes > (array.file.full_size or array.file.size):
        raise damaged(
            array.file.path,
            array.name,
            f"{n_bytes} bytes for its shape {dataset.shape}",
            f"a file of {array.file.size}",
            array.offset,
        )
    return replace(dataset, offset=array.offset)


def _chunked(array: Array, dataset: Dataset) -> Dataset:
    """Describe rows in chunks, with the table of these."""
    assert dataset.chunk is not None
    grid = tuple(-(-n // c) for n, c in zip(dataset.shape, dataset.chunk, strict=True))
    n_chunks = math.prod(grid)
    # The file holds at least the offset of each chunk.
    if n_chunks > array.file.size:
        raise damaged(
            array.file.path,
            array.name,
            f"{n_chunks} chunks of {dataset.chunk} for its shape {dataset.shape}",
            f"a file of {array.file.size} bytes",
        )
    corners, extents = array.chunks(grid)
    table = ChunkTable(
        *(np.zeros(n_chunks, dtype=kind) for kind in (np.uint64, np.uint64, np.uint32))
    )
    chunk = np.array(dataset.chunk, dtype=np.uint64)
    cells = corners // chunk
    inside = (cells < np.array(grid, dtype=np.uint64)).all(axis=1)
    cells, extents = cells[inside], extents[inside]
    numbers = np.ravel_multi_index(tuple(cells.astype(np.int64).T), grid)
    if len(np.unique(numbers)) < len(numbers):
        # A writer that was stopped while it split a node of HDF5's tree leaves some in both.
        both = np.column_stack([numbers.astype(np.uint64), extents])
        numbers, extents = np.hsplit(np.unique(both, axis=0), [1])
        numbers = numbers[:, 0].astype(np.int64)
        cells = np.column_stack(np.unravel_index(numbers, grid)).astype(np.uint64)
    offsets, sizes, masks = extents.T
    at_edge = ((cells + 1) * chunk > np.array(dataset.shape, dtype=np.uint64)).any(axis=1)
    if (at_edge & _without_checksum(dataset, sizes, masks)).any():
        return replace(
            dataset, h5py_fallback="its chunks at the edge may have been left unfiltered"
        )
    believed = _sizes_can_be(dataset, sizes, masks) & ~_overlap(offsets, sizes)
    # Of entries that contradict each other, none is better than the others.
    n_entries = np.bincount(numbers, minlength=n_chunks)
    believed &= n_entries[numbers] == 1
    if not inside.all() or (n_entries > 1).any():
        # An entry is misplaced: a chunk without one was written, and did not stay empty.
        table.offsets[n_entries == 0] = NOWHERE
        table.sizes[n_entries == 0] = dataset.chunk_bytes
    table.offsets[numbers] = np.where(believed, offsets, np.uint64(NOWHERE))
    table.sizes[numbers] = sizes
    table.masks[numbers] = masks
    return replace(dataset, table=table)


def _sizes_can_be(dataset: Dataset, sizes: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Mark chunks whose bytes can stand for their numbers."""
    expected, compressed = _expected(dataset, masks)
    least = expected // np.uint64(unpacked_ratio(dataset.filters))
    return np.where(compressed, sizes >= least, sizes == expected)


def _without_checksum(dataset: Dataset, sizes: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Mark chunks as large as their numbers that should have a checksum too.

    Writers can leave chunks at the edge unfiltered; the size of compressed ones does not show it.
    """
    expected, compressed = _expected(dataset, masks)
    as_they_are = np.uint64(dataset.chunk_bytes)
    return ~compressed & (sizes == as_they_are) & (sizes != expected)


def _expected(dataset: Dataset, masks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of each chunk before compression, with checksums, and a mark where it is compressed."""
    expected = np.full(len(masks), dataset.chunk_bytes, np.uint64)
    compressed = np.zeros(len(masks), dtype=bool)
    for k, stage in enumerate(dataset.filters):
        used = masks >> np.uint64(k) & np.uint64(1) == 0
        compressed |= used & (stage.number not in _SIZE_KEEPING)
        expected += np.uint64(4) * (used & (stage.number == FLETCHER32))
    return expected, compressed


def _overlap(offsets: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Mark chunks that share bytes with another."""
    order = np.argsort(offsets, kind="stable")
    begins, stops = offsets[order], offsets[order] + sizes[order]
    wrong = np.zeros(len(order), dtype=bool)
    if len(order) > 1:
        crossed = begins[1:] < np.maximum.accumulate(stops)[:-1]
        wrong[order[1:]] |= crossed
        wrong[order[:-1]] |= crossed
    return wrong


def refuse_shared(file: File, index: ChunkIndex) -> ChunkIndex:
    """Put chunks that share bytes with another dataset of the index at `NOWHERE`.

    A note names other datasets that do: one of those that share has lost its address.
    """
    names: list[str] = []
    places = [np.empty((0, 2), dtype=np.uint64)]
    for array in file.used.values():
        with contextlib.suppress(DamagedFileError):
            if array.dtype.kind in "iuf" and not array.h5py_fallback:
                found = array.extents
                there = (found[:, 0] < file.size) & (found[:, 1] > 0)
                names += [array.name] * int(there.sum())
                places.append(found[there])
    offsets, sizes = np.concatenate(places).T
    wrong = _overlap(offsets, sizes)
    if not wrong.any():
        return index
    elements = {
        field: replace(element, dataset=_without(element.dataset, offsets[wrong]))
        for field, element in index.elements.items()
    }
    refused = {one.dataset.name for one in elements.values() if one.dataset.table is not None}
    others = sorted({names[k] for k in np.flatnonzero(wrong)} - refused)
    notes = [
        f"{name} shares bytes of the file with another dataset: its numbers may be wrong"
        for name in others
    ]
    return replace(index, elements=elements, notes=[*index.notes, *notes])


def _without(dataset: Dataset, offsets: np.ndarray) -> Dataset:
    """Put the chunks with these offsets at `NOWHERE`."""
    table = dataset.table
    if table is None:
        return dataset
    lost = np.isin(table.offsets, offsets) & (table.sizes > 0)
    return replace(
        dataset,
        table=replace(table, offsets=np.where(lost, np.uint64(NOWHERE), table.offsets)),
    )


def read_series(array: Array) -> np.ndarray:
    """Read all numbers of a dataset with an axis, which may have a chunk for each.

    The core reads many chunks, and such as HDF5 lacks a filter of, or would read damaged.
    """
    only_core = may_hide_damage(array.filters) or array.missing_filter is not None
    if _has_chunks_of_rows(array) and (_has_many_chunks(array) or only_core):
        dataset = describe_dataset(array)
        # Where the core fails, HDF5 says what is wrong, or reads it all the same.
        with contextlib.suppress(*() if only_core else (DamagedFileError,)):
            if not dataset.h5py_fallback:
                found = _read_chunks_at_once(array.file.path, dataset)
                if only_core:
                    return found
                last = array.read(slice(len(found) - 1, None))
                if found[-1:].tobytes() == last.tobytes():
                    return found
    return array.read()


def _has_chunks_of_rows(array: Array) -> bool:
    """True where numbers lie in chunks of whole rows."""
    is_number = array.dtype.kind in "iuf" and array.enum_names is None
    return is_number and array.chunk is not None and array.chunk[1:] == array.shape[1:]


def _has_many_chunks(array: Array) -> bool:
    """True where HDF5's library would take long to find its chunks."""
    assert array.chunk is not None
    array.check_size()
    return array.shape[0] // array.chunk[0] >= _MANY_CHUNKS


def _read_chunks_at_once(path: str, dataset: Dataset) -> np.ndarray:
    """Read with the core: numbers as integers of the same size."""
    assert dataset.chunk is not None
    size, of_row = dataset.dtype.itemsize, math.prod(dataset.shape[1:])
    rows = dataset.shape[0]
    integers = replace(
        dataset,
        dtype=np.dtype(f"=i{size}"),
        shape=(rows, of_row),
        chunk=(dataset.chunk[0], of_row),
    )
    found = _core.read_integers(path, integers, slice_of(Element(integers), np.arange(rows)))
    return found.astype(integers.dtype).view(dataset.dtype).reshape(dataset.shape)
