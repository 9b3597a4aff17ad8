"""Cost of reading a dataset, computed from its layout: bytes read per byte used.

The compiled module reads the required parts of unfiltered values, including gaps that cost less
than another call. It reads each compressed chunk once per block: completely or, if deflate is the
only filter, up to the last required byte.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from paceline._core import BEGINNING_SHARE, BEGINNING_SPARE, GAP_BYTES, KEPT_BYTES
from paceline.hdf5.chunk_index import (
    ABSENT,
    DEFLATE,
    FILTER_NAMES,
    ZSTD,
    Dataset,
    Element,
    Filter,
)
from paceline.performance.number_format import amount

#: The example selections of atoms contain one atom out of this number.
ONE_IN = 20
#: Minimum number of bytes read per byte used for which repacking is recommended.
WORTH = 4.0
#: Minimum total number of bytes read for which repacking is recommended.
LITTLE = 10_000_000


#: Default size of the cache of decoded chunks in HDF5's library, bytes, by its version.
LIBRARY_CACHES = {"before 2.0": 2**20, "2.0 and later": 2**23}


@dataclass(frozen=True)
class AccessCost:
    """Bytes that one access pattern reads from a dataset, and bytes that it uses."""

    #: Words that describe the access pattern, such as "frame by frame".
    access: str
    #: Number of bytes that are read from the file.
    read: int
    #: Size of the required values without compression, bytes.
    used: int

    @property
    def ratio(self) -> float:
        """Bytes read per byte used."""
        return self.read / self.used if self.used else 0.0


def read_costs(element: Element, n_atoms: int) -> list[AccessCost]:
    """Return costs of common access patterns for all frames; empty if only HDF5 can locate chunks.

    >>> element = Element(Dataset("value", np.dtype("f4"), (100, 5000, 3), offset=512))
    >>> found = read_costs(element, 5000)
    >>> [(cost.access, cost.ratio) for cost in found][:2]
    [('frame by frame', 1.0), ('the first 5 % of the atoms', 1.0)]
    """
    if element.dataset.h5py_fallback or not all(element.dataset.shape):
        return []
    everything = np.arange(n_atoms)
    share = f"{100 // ONE_IN} %"
    few = max(1, n_atoms // ONE_IN)
    return [
        _cost(element, "frame by frame", everything, one_by_one=True),
        _cost(element, f"the first {share} of the atoms", everything[:few]),
        _cost(element, f"every {ONE_IN}th atom", everything[::ONE_IN]),
        _cost(element, "everything", everything),
    ]


def bytes_read(element: Element, atoms: np.ndarray, *, one_by_one: bool = False) -> int:
    """Count the bytes read for increasing atom indices in all frames.

    With `one_by_one`, each frame is read on its own; otherwise blocks end at chunk boundaries.
    """
    dataset = element.dataset
    rows = _rows_read(element)[:, None]
    columns = list(_columns(dataset, atoms))
    numbers = [column.number for column in columns]
    offsets, sizes = (part[:, numbers] for part in _extents(dataset, len(rows)))
    read, first, end = _bytes_per_chunk(dataset, columns, sizes, rows, one_by_one=one_by_one)
    # A chunk is read once if frames are read in blocks or the decoded chunk is kept, otherwise once
    # per row.
    times = np.minimum(rows, 1)
    if one_by_one and (not dataset.filters or _decoded_size(dataset) > KEPT_BYTES):
        times = rows
    there = (sizes > 0) & (rows > 0)
    total = (read * times * there).sum()
    if not dataset.filters and any(column.straight for column in columns):
        return int(total)
    # A short gap between two chunks is read, like a short gap within a chunk.
    gaps = (offsets + first)[there][1:] - (offsets + end)[there][:-1]
    short = (gaps >= 0) & (gaps <= GAP_BYTES)
    if one_by_one:
        same_rows = np.diff(np.nonzero(there)[0]) == 0
        short = short * same_rows * np.broadcast_to(times, there.shape)[there][1:]
    return int(total + (gaps * short).sum())


def library_cost(element: Element, n_atoms: int, cache: int) -> AccessCost:
    """Cost of reading all frames one by one through HDF5's library, as other programs do.

    The library reads chunks whole, and keeps the latest ones in a cache of `cache` bytes. If the
    chunks of a frame do not fit into the cache, it reads all of them again for the next frame. It
    reads parts of a chunk only if the chunk has no filters and is larger than the cache.
    """
    dataset = element.dataset
    rows = _rows_read(element)
    used = int(rows.sum()) * n_atoms * 3 * dataset.dtype.itemsize
    if dataset.chunk is None or (not dataset.filters and dataset.chunk_bytes > cache):
        return AccessCost("frame by frame", used, used)
    _, sizes = _extents(dataset, len(rows))
    times = np.minimum(rows, 1) if _decoded_size(dataset) <= cache else rows
    return AccessCost("frame by frame", int((sizes.sum(axis=1) * times).sum()), used)


def _bytes_per_chunk(
    dataset: Dataset,
    columns: "list[_Column]",
    sizes: np.ndarray,
    rows: np.ndarray,
    *,
    one_by_one: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each chunk, return the number of bytes read, and where in the chunk they begin and end.

    The begin and end are byte offsets from the start of the chunk.
    """
    of_row = np.array([column.of_row for column in columns])
    first = np.array([column.first for column in columns])
    end = np.array([column.end for column in columns])
    between = np.array([column.between for column in columns])
    if dataset.filters:
        packed = _compressed_bytes(dataset, sizes, rows, end)
        return packed, np.zeros_like(first), packed
    if one_by_one:
        return np.broadcast_to(of_row, sizes.shape), first, end
    # A short gap between two rows of a chunk is read, too; `between` is 0 if the gap is not read.
    read = rows * of_row + np.maximum(rows - 1, 0) * between
    return read, first, (rows - 1) * dataset.chunk_row_bytes + end


def layout_in_words(dataset: Dataset, n_atoms: int) -> str:
    """Describe the storage layout of a dataset.

    >>> layout_in_words(Dataset("value", np.dtype("f4"), (100, 50, 3), chunk=(25, 7, 3)), 50)
    '25 frames × 7 atoms a chunk (2.1 kB)'
    """
    if dataset.chunk is None:
        return "contiguous" if not dataset.h5py_fallback else "known to HDF5 alone"
    frames, atoms, part = _chunk_in_atoms(dataset)
    if atoms >= n_atoms and part == 1:
        words = "one frame a chunk" if frames == 1 else f"{frames} frames a chunk"
    else:
        words = f"{frames} frame{'s' * (frames != 1)} × {atoms:,} atoms a chunk"
        words += "" if part == 1 else f", one of {part} parts of each"
    stages = " + ".join(map(_describe_stage, dataset.filters))
    return f"{words} ({amount(dataset.chunk_bytes)}{f', {stages}' if stages else ''})"


def is_aligned(dataset: Dataset, size: int) -> bool:
    """Return whether a dataset or all its chunks begin at multiples of a size.

    Also returns True if the whole dataset is smaller than this size.
    """
    if math.prod(dataset.shape) * dataset.dtype.itemsize < size:
        return True
    if dataset.chunk is None:
        return dataset.offset % size == 0
    table = dataset.table
    return table is None or not (table.offsets[table.sizes > 0] % size).any()


def advice(costs: list[AccessCost], *, command: str = "paceline repack") -> str:
    """Recommend for or against repacking, given the costs of reading positions."""
    if not costs:
        return f"pays: {command} writes a file that workers read without HDF5's library"
    by_frames, first, _, everything = costs
    if everything.read < LITTLE:
        return "does not pay: few bytes are read"
    if by_frames.ratio > WORTH * max(1.0, everything.ratio):
        return f"pays for reading frame by frame: {command} --for frames"
    if first.ratio > WORTH:
        return f"pays if few atoms are read in all frames: {command} --for atoms"
    return "does not pay"


def _cost(
    element: Element, access: str, atoms: np.ndarray, *, one_by_one: bool = False
) -> AccessCost:
    n_rows = int(_rows_read(element).sum())
    used = n_rows * len(atoms) * 3 * element.dataset.dtype.itemsize
    return AccessCost(access, bytes_read(element, atoms, one_by_one=one_by_one), used)


@dataclass(frozen=True)
class _Column:
    """Required bytes in a row of a chunk, equal for all chunks with the same atoms and components.

    These chunks form a column of chunks along the axis of frames.
    """

    #: Index of this column among all columns of chunks.
    number: int
    #: Offset of the first required byte in the row.
    first: int
    #: Offset after the last required byte in the row.
    end: int
    #: Bytes read in this row of a chunk.
    of_row: int
    #: Bytes read in the gap before the next row.
    between: int
    #: True for long runs of float32 values, which are read directly into the output array, without
    #: gaps.
    straight: bool


def _columns(dataset: Dataset, atoms: np.ndarray) -> Iterator[_Column]:
    """Yield the columns of chunks that contain any of the atoms."""
    shape, chunk = dataset.shape, dataset.chunk or dataset.shape
    # Without an axis of components, each number is treated as a point.
    points = atoms if len(shape) == 3 else (3 * atoms[:, None] + np.arange(3)).ravel()
    # Number of components of a point in each chunk along the component axis, without padding.
    parts = [1]
    if len(shape) == 3:
        parts = [min(chunk[2], shape[2] - k) for k in range(0, shape[2], chunk[2])]
    step = dataset.dtype.itemsize * math.prod(chunk[2:])
    columns = points // chunk[1]
    for inside in np.split(points, np.flatnonzero(np.diff(columns)) + 1):
        starts = inside % chunk[1] * step
        for k, part in enumerate(parts):
            number = int(inside[0] // chunk[1]) * len(parts) + k
            yield _column(number, starts, part * dataset.dtype.itemsize, dataset)


def _column(number: int, starts: np.ndarray, n: int, dataset: Dataset) -> _Column:
    """Describe a row of a chunk in which `n` bytes are required from each offset in `starts`."""
    gaps = np.diff(starts) - n
    of_row = len(starts) * n + int(gaps[gaps <= GAP_BYTES].sum())
    first, end = int(starts[0]), int(starts[-1]) + n
    gap = dataset.chunk_row_bytes - end + first
    straight = not gaps.any() and (of_row >= GAP_BYTES or gap == 0) and dataset.dtype.itemsize == 4
    return _Column(
        number, first, end, of_row, gap if gap <= GAP_BYTES and not straight else 0, straight
    )


def _compressed_bytes(
    dataset: Dataset, sizes: np.ndarray, rows: np.ndarray, end: np.ndarray
) -> np.ndarray:
    """Return the bytes read per compressed chunk.

    If deflate is the only filter, a chunk is read only up to the last required byte.
    """
    if [stage.number for stage in dataset.filters] != [DEFLATE]:
        return sizes
    share = ((rows - 1) * dataset.chunk_row_bytes + end) / dataset.chunk_bytes
    return np.where(
        share < BEGINNING_SHARE, np.minimum(sizes, sizes * share + BEGINNING_SPARE), sizes
    )


def _rows_read(element: Element) -> np.ndarray:
    """Return the number of rows read per chunk, along the first axis."""
    dataset = element.dataset
    n_rows = dataset.shape[0]
    rows = np.arange(n_rows) if element.rows is None else np.unique(element.rows)
    of_chunk = dataset.shape[0] if dataset.chunk is None else dataset.chunk[0]
    return np.bincount(rows[rows != ABSENT] // of_chunk, minlength=-(-n_rows // of_chunk))


def _extents(dataset: Dataset, n_along: int) -> tuple[np.ndarray, np.ndarray]:
    """Return offsets and sizes of the chunks, (n_along, chunks in each row)."""
    if dataset.table is None:
        return np.zeros((n_along, 1)), np.ones((n_along, 1))
    # Convert to floats, because adding to the integer `NOWHERE` would overflow.
    table = (dataset.table.offsets, dataset.table.sizes)
    offsets, sizes = (part.astype(np.float64).reshape(n_along, -1) for part in table)
    return offsets, sizes


def _decoded_size(dataset: Dataset) -> int:
    """Return the decoded size of all chunks in a row, bytes."""
    chunk = dataset.chunk or dataset.shape
    across = math.prod(-(-n // c) for n, c in zip(dataset.shape[1:], chunk[1:], strict=True))
    return dataset.chunk_bytes * across


def _chunk_in_atoms(dataset: Dataset) -> tuple[int, int, int]:
    """Return frames and atoms per chunk, and over how many chunks an atom's components extend."""
    assert dataset.chunk is not None
    frames, *rest = dataset.chunk
    if len(rest) == 1:
        return frames, max(1, rest[0] // 3), 1
    return frames, rest[0], -(-dataset.shape[2] // rest[1])


def _describe_stage(stage: Filter) -> str:
    name = FILTER_NAMES.get(stage.number, stage.name or f"filter {stage.number}")
    has_level = stage.number in (DEFLATE, ZSTD) and stage.values
    return f"{name} {stage.values[0]}" if has_level else name
