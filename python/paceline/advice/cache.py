"""Whether bytes of a file are in memory, in the system's page cache, and letting go of them."""

import ctypes
import mmap
import os
from collections.abc import Callable
from functools import cache

import numpy as np

#: Of a whole file so many windows are looked at, of so many bytes each.
_WINDOWS, _WINDOW = 256, 1 << 20
#: Of more ranges than these some are looked at: each takes some microseconds.
_RANGES = 1000
#: Less than this in memory counts as nothing: reading elsewhere may bring in some pages.
_DROPPED = 0.05


def cached_share(path: str, ranges: list[tuple[int, int]]) -> float | None:
    """How much of some byte ranges of a file is in memory.

    Parameters
    ----------
    path : str
        The file.
    ranges : list of (int, int)
        Offset and size of each.

    Returns
    -------
    float or None
        From 0 to 1; None where the system does not tell: of files that are not this user's, or
        not at all.
    """
    look = _mincore()
    if look is None or not _is_told(path):
        return None
    cached = total = 0
    with open(path, "rb") as file:
        for offset, size in ranges[:: 1 + len(ranges) // _RANGES]:
            start = offset - offset % mmap.ALLOCATIONGRANULARITY
            end = min(offset + size, os.fstat(file.fileno()).st_size)
            if end <= start:
                continue
            pages = look(file.fileno(), start, end - start)
            if pages is None:
                return None
            cached += int((pages & 1).sum())
            total += len(pages)
    return cached / total if total else None


def windows(size: int) -> list[tuple[int, int]]:
    """Byte ranges that stand for a whole file.

    Parameters
    ----------
    size : int
        Of the file, bytes.

    Returns
    -------
    list of (int, int)
        Offset and size of each.

    Examples
    --------
    >>> windows(1000)
    [(0, 1000)]
    """
    if size <= _WINDOWS * _WINDOW:
        return [(0, size)]
    starts = np.linspace(0, size - _WINDOW, _WINDOWS).astype(int)
    return [(int(start), _WINDOW) for start in starts]


def drop(path: str, ranges: list[tuple[int, int]]) -> bool:
    """Let the next read of some byte ranges come from the disk.

    Parameters
    ----------
    path : str
        The file.
    ranges : list of (int, int)
        Offset and size of each.

    Returns
    -------
    bool
        Whether they are known to be out of memory now.
    """
    if not hasattr(os, "posix_fadvise"):
        return False
    descriptor = os.open(path, os.O_RDONLY)
    try:
        for offset, size in ranges:
            # Outwards to whole pages: a part of one would stay.
            start = offset - offset % mmap.PAGESIZE
            end = -(-(offset + size) // mmap.PAGESIZE) * mmap.PAGESIZE
            os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    left = cached_share(path, ranges)
    return left is not None and left < _DROPPED


def _is_told(path: str) -> bool:
    """Whether Linux tells this user: of other files it says that all is in memory."""
    return os.stat(path).st_uid == os.geteuid() or os.access(path, os.W_OK)


@cache
def _mincore() -> Callable[[int, int, int], np.ndarray | None] | None:
    """What looks at the pages of a file; None where the system has no such call.

    Nothing is read through the mapping, so that a file that becomes shorter does no harm.
    """
    try:
        mincore = ctypes.CDLL(None, use_errno=True).mincore
    except (OSError, AttributeError, TypeError):
        return None
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)

    def look(descriptor: int, start: int, size: int) -> np.ndarray | None:
        pages = np.zeros(-(-size // mmap.PAGESIZE), dtype=np.uint8)
        with mmap.mmap(descriptor, size, offset=start, access=mmap.ACCESS_READ) as mapped:
            # A view holds the mapping open: it must go before the end of this block.
            view = np.frombuffer(mapped, dtype=np.uint8)
            failed = mincore(view.ctypes.data, size, pages.ctypes.data)
            del view
        return None if failed else pages

    return look
