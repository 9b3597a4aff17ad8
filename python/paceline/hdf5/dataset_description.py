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

#: Filters that keep the size of a chunk, or add a checksum of four bytes.
_SIZE_KEEPING = (SHUFFLE, FLETCHER32)
#: Minimum number of chunks of a series that the compiled module reads. The HDF5 library reads only
#: series with fewer chunks, because it takes 20 to 60 µs to find each chunk.
_MANY_CHUNKS = 64


def describe_dataset(array: Array, *, fixed: bool = False) -> Dataset:
    """Describe a dataset of numbers. A `fixed` dataset applies to all frames and has one row.

    A chunk gets the offset `NOWHERE` if it overlaps another chunk, has two addresses, or has an
    impossible size. If an entry of the chunk table is invalid or duplicate, chunks without an entry
    get this offset, too. An error is raised only when frames of these chunks are read. A dataset
    that claims more bytes than the file could contain raises an error immediately.
    """
    _check_numeric(array)
    array.file.used[array.identity] = array
    filters = array.filters
    whole = Dataset(array.name, array.dtype, array.shape, array.chunk, filters, fill=array.fill)
    fallback = array.h5py_fallback or _unsupported_feature(array.dtype, filters)
    if fallback:
        array.check_filters()
    if fallback or not all(array.shape):
        found = replace(whole, h5py_fallback=fallback)
    elif array.chunk is None:
        found = _describe_contiguous(array, whole)
    else:
        found = _describe_chunked(array, whole)
    return _as_one_row(found) if fixed else found


def _as_one_row(dataset: Dataset) -> Dataset:
    chunk = None if dataset.chunk is None else (1, *dataset.chunk)
    return replace(dataset, shape=(1, *dataset.shape), chunk=chunk)


def _check_numeric(array: Array) -> None:
    """Raise `UnsupportedError` if elements are not plain numbers."""
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


def _unsupported_feature(dtype: np.dtype, filters: tuple[Filter, ...]) -> str:
    """Name the feature that the compiled module does not support; empty if all are supported."""
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return f"its numbers are {dtype.name}"
    known = (DEFLATE, SHUFFLE, FLETCHER32, LZF, LZ4, ZSTD)
    for stage in filters:
        if stage.number not in known:
            return f"its filter {stage.words}"
    return ""


def _describe_contiguous(array: Array, dataset: Dataset) -> Dataset:
    """Describe a contiguous dataset; raise `DamagedFileError` if it is larger than the file."""
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


def _describe_chunked(array: Array, dataset: Dataset) -> Dataset:
    """Describe a chunked dataset, with its chunk table."""
    assert dataset.chunk is not None
    grid = tuple(-(-n // c) for n, c in zip(dataset.shape, dataset.chunk, strict=True))
    n_chunks = math.prod(grid)
    # Limit the memory for the table, 20 bytes per chunk, by the size of the file. A limit by the
    # size of all entries in the file would be too strict: chunks without values have no entry.
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
        # If a writer is stopped while it splits a node of HDF5's B-tree, some chunks are listed in
        # both nodes.
        both = np.column_stack([numbers.astype(np.uint64), extents])
        numbers, extents = np.hsplit(np.unique(both, axis=0), [1])
        numbers = numbers[:, 0].astype(np.int64)
        cells = np.column_stack(np.unravel_index(numbers, grid)).astype(np.uint64)
    offsets, sizes, masks = extents.T
    at_edge = ((cells + 1) * chunk > np.array(dataset.shape, dtype=np.uint64)).any(axis=1)
    if (at_edge & _without_checksum(dataset, sizes, masks)).any():
        return replace(dataset, h5py_fallback="chunks at its edge may be unfiltered")
    believed = _sizes_can_be(dataset, sizes, masks) & ~_overlap(offsets, sizes)
    # If several entries of a chunk differ, none is reliable.
    n_entries = np.bincount(numbers, minlength=n_chunks)
    believed &= n_entries[numbers] == 1
    if not inside.all() or (n_entries > 1).any():
        # The wrong entry may be that of a chunk that seems to have no entry.
        table.offsets[n_entries == 0] = NOWHERE
        table.sizes[n_entries == 0] = dataset.chunk_bytes
    table.offsets[numbers] = np.where(believed, offsets, np.uint64(NOWHERE))
    table.sizes[numbers] = sizes
    table.masks[numbers] = masks
    return replace(dataset, table=table)


def _sizes_can_be(dataset: Dataset, sizes: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Return a mask of chunks whose size is possible for their values."""
    expected, compressed = _expected_sizes(dataset, masks)
    least = expected // np.uint64(unpacked_ratio(dataset.filters))
    return np.where(compressed, sizes >= least, sizes == expected)


def _without_checksum(dataset: Dataset, sizes: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Return a mask of chunks whose size equals that of their values without a checksum.

    These chunks may be unfiltered, because writers may leave chunks at the edge of a dataset
    unfiltered. Compressed chunks are not in the mask, because their size does not show whether they
    were filtered.
    """
    expected, compressed = _expected_sizes(dataset, masks)
    as_they_are = np.uint64(dataset.chunk_bytes)
    return ~compressed & (sizes == as_they_are) & (sizes != expected)


def _expected_sizes(dataset: Dataset, masks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return chunk sizes before compression, with checksums, and a mask of compressed chunks."""
    expected = np.full(len(masks), dataset.chunk_bytes, np.uint64)
    compressed = np.zeros(len(masks), dtype=bool)
    for k, stage in enumerate(dataset.filters):
        used = masks >> np.uint64(k) & np.uint64(1) == 0
        compressed |= used & (stage.number not in _SIZE_KEEPING)
        expected += np.uint64(4) * (used & (stage.number == FLETCHER32))
    return expected, compressed


def _overlap(offsets: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return a mask of chunks that share bytes with another chunk."""
    order = np.argsort(offsets, kind="stable")
    begins, stops = offsets[order], offsets[order] + sizes[order]
    wrong = np.zeros(len(order), dtype=bool)
    if len(order) > 1:
        crossed = begins[1:] < np.maximum.accumulate(stops)[:-1]
        wrong[order[1:]] |= crossed
        wrong[order[:-1]] |= crossed
    return wrong


def refuse_shared(file: File, index: ChunkIndex) -> ChunkIndex:
    """Set the offsets of chunks that share bytes with another dataset to `NOWHERE`.

    If datasets share bytes, the address of one of them is wrong. A note names each other dataset
    that shares bytes, such as a dataset of times or a contiguous dataset.
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
    """Replace each chunk offset that is among `offsets` by `NOWHERE`."""
    table = dataset.table
    if table is None:
        return dataset
    lost = np.isin(table.offsets, offsets) & (table.sizes > 0)
    return replace(
        dataset,
        table=replace(table, offsets=np.where(lost, np.uint64(NOWHERE), table.offsets)),
    )


def read_series(array: Array) -> np.ndarray:
    """Read all values of a dataset with at least one axis, which may have one chunk per value.

    The compiled module reads a dataset that has many chunks, or a filter that HDF5 lacks, or a
    filter with which HDF5 may read a damaged chunk without an error.
    """
    only_core = may_hide_damage(array.filters) or array.missing_filter is not None
    if _has_chunks_of_rows(array) and (_has_many_chunks(array) or only_core):
        dataset = describe_dataset(array)
        # If the compiled module fails, HDF5 reads the values or raises the error, unless only the
        # compiled module can read them reliably.
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
    """True if each chunk consists of whole rows."""
    is_number = array.dtype.kind in "iuf" and array.enum_names is None
    return is_number and array.chunk is not None and array.chunk[1:] == array.shape[1:]


def _has_many_chunks(array: Array) -> bool:
    """True if there are so many chunks that the HDF5 library takes long to find them."""
    assert array.chunk is not None
    array.check_size()
    return array.shape[0] // array.chunk[0] >= _MANY_CHUNKS


def _read_chunks_at_once(path: str, dataset: Dataset) -> np.ndarray:
    """Read a dataset with the compiled module: as integers, then viewed in its own dtype."""
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
