"""Arrays of results: small ones in memory, large ones in anonymous temporary files."""

import math
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import IO

import numpy as np

from paceline._util.machine_and_software import MemoryLimit
from paceline._util.os_calls import CAN_WRITE_MAPPED, reserve, write_at
from paceline.errors import UnsupportedError
from paceline.performance.number_format import amount, joined

#: Maximum size of an array in memory, bytes, if the run has no memory limit. A larger array is in
#: an anonymous temporary file.
LARGE = 2**30
#: Maximum size of an array that does not count towards memory limits, bytes.
SMALL = 2**20
#: Advice in the error message about insufficient free space.
_REMEDY = (
    "analyse fewer frames or atoms, give a larger max_memory=, or set TMPDIR to a folder with more "
    "free space"
)
#: Dtype of placeholder rows. They replace rows of blocks without any readable frame, whose dtype
#: is known only from other blocks.
UNREAD = np.dtype([("unread", np.uint8)])
#: Memory limit of the current run.
_memory: ContextVar[MemoryLimit | None] = ContextVar("memory", default=None)


def unread_rows(n_rows: int) -> np.ndarray:
    """Make placeholder rows for frames that could not be read."""
    return np.zeros(n_rows, UNREAD)


def are_unread(rows: np.ndarray) -> bool:
    """True for placeholder rows of frames that could not be read."""
    return rows.dtype == UNREAD


def replace_unread(rows: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Replace placeholder rows by zeros of this shape and dtype; return other rows unchanged."""
    return np.zeros((len(rows), *shape), dtype) if are_unread(rows) else rows


@contextmanager
def limit_arrays(limit: int | None) -> Iterator[MemoryLimit]:
    """Limit the total size of arrays that a `with` block allocates in memory to `limit` bytes.

    With None, the total size is not limited, but a single array is (`LARGE`).
    """
    memory = MemoryLimit(limit)
    token = _memory.set(memory)
    try:
        yield memory
    finally:
        _memory.reset(token)


def memory_limit() -> int | None:
    """Memory limit of the current run, bytes; None if there is no limit."""
    memory = _memory.get()
    return None if memory is None else memory.limit


def allocate(shape: tuple[int, ...], dtype: np.dtype, largest: int | None = None) -> np.ndarray:
    """Allocate an uninitialised array in memory, or a large one in an anonymous temporary file.

    `largest` is the maximum size in memory, bytes, if the run has no limit; by default `LARGE`.
    With 0 the array is always in a file.
    """
    array = in_memory(shape, dtype, LARGE if largest is None else largest)
    return in_file(tempfile.TemporaryFile(), shape, dtype) if array is None else array


def in_memory(shape: tuple[int, ...], dtype: np.dtype, largest: int) -> np.ndarray | None:
    """Allocate an array in memory; return None if it is too large.

    An array is too large if it exceeds the memory that the run has left, or, if the run has no
    limit, `largest` bytes.
    """
    memory, n_bytes = _memory.get(), math.prod(shape) * dtype.itemsize
    if memory is None or memory.limit is None or not largest or n_bytes <= SMALL:
        return np.empty(shape, dtype) if n_bytes <= largest else None
    if not memory.reserve(n_bytes):
        return None
    array = np.empty(shape, dtype)
    weakref.finalize(array, memory.release, n_bytes).atexit = False
    return array


def in_file(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Map an array to an anonymous temporary file of the array's size."""
    # If the disk is full, writing to a mapped page crashes the process: allocate the file first.
    folder, n_bytes = tempfile.gettempdir(), math.prod(shape) * dtype.itemsize
    try:
        reserve(file.fileno(), 0, n_bytes)
    except OSError as error:
        raise OSError(
            error.errno,
            f"{error.strerror}: results need {amount(n_bytes)} in a file in this folder, which "
            f"has {amount(shutil.disk_usage(folder).free)} free; {_REMEDY}",
            folder,
        ) from None
    array = np.memmap(file, dtype=dtype, shape=shape)
    array.file = file  # type: ignore[attr-defined]
    return array


def file_of(array: np.ndarray) -> IO[bytes] | None:
    """Return the file to which a whole array is mapped; None for an array in memory or a view."""
    return getattr(array, "file", None)


def put_rows(array: np.ndarray, first: int, rows: np.ndarray) -> None:
    """Write rows to an allocated array at indices `first` and following.

    If the array is in a file, the rows are written to the file, because writing to its mapped pages
    is slower.
    """
    file = file_of(array)
    if file is None or not CAN_WRITE_MAPPED or not rows.nbytes:
        array[first : first + len(rows)] = rows
        return
    data = np.ascontiguousarray(rows, array.dtype).reshape(-1).view(np.uint8).data
    offset = first * (array.nbytes // len(array))
    while data:
        n_bytes = write_at(file.fileno(), data, offset)
        data, offset = data[n_bytes:], offset + n_bytes


def check_room(sizes: Sequence[tuple[str, int]]) -> None:
    """Raise `UnsupportedError` if results of these names and sizes (bytes) exceed the free space.

    Examples
    --------
    >>> check_room([("RMSD", 1000)])
    """
    memory, large = _memory.get(), []
    left = memory.available if memory else None
    for name, size in sizes:
        if size <= (LARGE if left is None else max(left, SMALL)):
            left = None if left is None else left - size
        else:
            large.append((name, size))
    needed, folder = sum(size for _, size in large), tempfile.gettempdir()
    if large and needed > (free := shutil.disk_usage(folder).free):
        names = joined([name for name, _ in large])
        raise UnsupportedError(
            f"{names}: the results need {amount(needed)}, but {amount(free)} are free in {folder}, "
            f"the folder for arrays that exceed memory: {_REMEDY}"
        )
