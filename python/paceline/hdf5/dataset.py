"""Numbers of which each frame has few: steps, times, edges of boxes."""

import contextlib
import math
from dataclasses import replace

import numpy as np

from paceline import _core
from paceline.errors import DamagedFileError, UnsupportedError
from paceline.hdf5.chunk_index import Dataset, Element, Filter, Table, slice_of
from paceline.hdf5.file import DEFLATE_RATIO, NOWHERE, Array, damaged

#: Filters that the core undoes: deflate, shuffle, fletcher32 and LZF.
DEFLATE, SHUFFLE, FLETCHER32, LZF = 1, 2, 3, 32000
#: Of them, those after which a chunk has as many bytes as before, or four more.
_KEEPING = (SHUFFLE, FLETCHER32)


def dataset_of(array: Array, *, fixed: bool = False) -> Dataset:
    """A dataset of numbers, and where its bytes are.

    Parameters
    ----------
    array : Array
        The dataset.
    fixed : bool
        Whether it holds for all frames: it then counts as one row.

    Returns
    -------
    Dataset
        With `detour` where only HDF5 itself can read it.

    Raises
    ------
    UnsupportedError
        Its elements are no numbers, or went through a filter that HDF5 does not know.
    DamagedFileError
        It claims to be larger than its bytes in the file could be.

    Notes
    -----
    A chunk that overlaps another, or whose size cannot be, is given an offset behind every file's
    end: reading its frames is an error, reading others is not.
    """
    _refuse_no_numbers(array)
    array.refuse_unknown_filters()
    filters = array.filters
    whole = Dataset(array.name, array.dtype, array.shape, array.chunk, filters, fill=array.fill)
    detour = array.elsewhere or _unknown(array.dtype, filters)
    if detour or not all(array.shape):
        found = replace(whole, detour=detour)
    elif array.chunk is None:
        found = _contiguous(array, whole)
    else:
        found = _chunked(array, whole)
    return _as_one_row(found) if fixed else found


def _as_one_row(dataset: Dataset) -> Dataset:
    chunk = None if dataset.chunk is None else (1, *dataset.chunk)
    return replace(dataset, shape=(1, *dataset.shape), chunk=chunk)


def _refuse_no_numbers(array: Array) -> None:
    what = None
    if array.is_text:
        what = "text"
    elif array.names_of_values is not None:
        what = "an enumeration"
    elif array.dtype.names is not None:
        what = f"compounds of {', '.join(array.dtype.names)}"
    elif array.dtype.kind not in "iuf":
        what = f"{array.dtype}"
    if what is not None:
        raise UnsupportedError(f"{array.file.path}: {array.name}: expected numbers, found {what}")


def _unknown(dtype: np.dtype, filters: tuple[Filter, ...]) -> str:
    """What of it the core does not know, in words."""
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return f"its numbers are {dtype.name}"
    known = (DEFLATE, SHUFFLE, FLETCHER32, LZF)
    for stage in filters:
        if stage.number not in known:
            return f"its filter {stage.name or 'without a name'} ({stage.number})"
    return ""


def _contiguous(array: Array, dataset: Dataset) -> Dataset:
    """Rows one after another."""
    if array.offset is None:
        return replace(dataset, detour="it was never written")
    n_bytes = math.prod(dataset.shape) * dataset.dtype.itemsize
    if n_bytes > (array.file.cut_from or array.file.size):
        raise damaged(
            array.file.path,
            array.name,
            f"{n_bytes} bytes for its shape {dataset.shape}",
            f"a file of {array.file.size}",
            array.offset,
        )
    return replace(dataset, offset=array.offset)


def _chunked(array: Array, dataset: Dataset) -> Dataset:
    """Rows in chunks, and where these are."""
    assert dataset.chunk is not None
    grid = tuple(-(-n // c) for n, c in zip(dataset.shape, dataset.chunk, strict=True))
    n_chunks = math.prod(grid)
    # Of each chunk the file says at least where it is.
    if n_chunks > array.file.size:
        raise damaged(
            array.file.path,
            array.name,
            f"{n_chunks} chunks of {dataset.chunk} for its shape {dataset.shape}",
            f"a file of {array.file.size} bytes",
        )
    corners, places = array.chunks(grid)
    table = Table(*(np.zeros(n_chunks, dtype=kind) for kind in (np.uint64, np.uint64, np.uint32)))
    chunk = np.array(dataset.chunk, dtype=np.uint64)
    cells = corners // chunk
    inside = (cells < np.array(grid, dtype=np.uint64)).all(axis=1)
    cells, places = cells[inside], places[inside]
    numbers = np.ravel_multi_index(tuple(cells.astype(np.int64).T), grid)
    if len(np.unique(numbers)) < len(numbers):
        # A writer that was stopped while it cut a node of HDF5's tree in two leaves some in both.
        told = np.column_stack([numbers.astype(np.uint64), places])
        numbers, places = np.hsplit(np.unique(told, axis=0), [1])
        numbers = numbers[:, 0].astype(np.int64)
    offsets, sizes, masks = places.T
    at_edge = ((cells + 1) * chunk > np.array(dataset.shape, dtype=np.uint64)).any(axis=1)
    if (at_edge & _without_checksum(dataset, sizes, masks)).any():
        return replace(dataset, detour="its chunks at the edge may have been left unfiltered")
    believed = _sizes_can_be(dataset, sizes, masks) & ~_overlap(offsets, sizes)
    table.offsets[numbers] = np.where(believed, offsets, np.uint64(NOWHERE))
    table.sizes[numbers] = sizes
    table.masks[numbers] = masks
    return replace(dataset, table=table)


def _sizes_can_be(dataset: Dataset, sizes: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Whether each chunk's bytes can stand for its numbers."""
    expected, compressed = _expected(dataset, masks)
    return np.where(compressed, sizes >= expected // np.uint64(DEFLATE_RATIO), sizes == expected)


def _without_checksum(dataset: Dataset, sizes: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Which chunks are as large as their numbers, where they should have a checksum too.

    HDF5 can be told not to filter chunks at the edge. Of compressed ones the size does not tell.
    """
    expected, compressed = _expected(dataset, masks)
    as_they_are = np.uint64(_bytes_of_chunk(dataset))
    return ~compressed & (sizes == as_they_are) & (sizes != expected)


def _expected(dataset: Dataset, masks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of each chunk before it was compressed, checksums included, and whether it was."""
    expected = np.full(len(masks), _bytes_of_chunk(dataset), np.uint64)
    compressed = np.zeros(len(masks), dtype=bool)
    for k, stage in enumerate(dataset.filters):
        used = masks >> np.uint64(k) & np.uint64(1) == 0
        compressed |= used & (stage.number not in _KEEPING)
        expected += np.uint64(4) * (used & (stage.number == FLETCHER32))
    return expected, compressed


def _bytes_of_chunk(dataset: Dataset) -> int:
    """Of its numbers."""
    assert dataset.chunk is not None
    return math.prod(dataset.chunk) * dataset.dtype.itemsize


def _overlap(offsets: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Which chunks have bytes that are another's too."""
    order = np.argsort(offsets, kind="stable")
    begins, stops = offsets[order], offsets[order] + sizes[order]
    wrong = np.zeros(len(order), dtype=bool)
    if len(order) > 1:
        crossed = begins[1:] < np.maximum.accumulate(stops)[:-1]
        wrong[order[1:]] |= crossed
        wrong[order[:-1]] |= crossed
    return wrong


#: Chunks from which on they are read past HDF5's library, which takes 20 to 60 µs for each.
_MANY_CHUNKS = 64


def series_of(array: Array) -> np.ndarray:
    """All numbers of a dataset, which may have a chunk for each.

    Parameters
    ----------
    array : Array
        The dataset, with an axis at least.

    Returns
    -------
    numpy.ndarray
        As they are in the file.

    Raises
    ------
    DamagedFileError
        They cannot be read.
    """
    if _has_many_chunks(array):
        dataset = dataset_of(array)
        # HDF5 has words for what is wrong, or can read it all the same.
        with contextlib.suppress(DamagedFileError):
            if not dataset.detour:
                found = _past_the_library(array.file.path, dataset)
                last = array.read(slice(len(found) - 1, None))
                if found[-1:].tobytes() == last.tobytes():
                    return found
    return array.read()


def _has_many_chunks(array: Array) -> bool:
    """Whether whole rows are cut into many chunks."""
    chunk, shape = array.chunk, array.shape
    is_number = array.dtype.kind in "iuf" and array.names_of_values is None
    if chunk is None or not is_number or chunk[1:] != shape[1:]:
        return False
    array.refuse_absurd()
    return shape[0] // chunk[0] >= _MANY_CHUNKS


def _past_the_library(path: str, dataset: Dataset) -> np.ndarray:
    """The bytes of numbers, taken for integers of the same size."""
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
