"""Page cache of the system: the share of files that it holds, and dropping them from it."""

import ctypes
import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import numpy as np

from paceline.errors import UnsupportedError

#: Number and bytes of the windows of a large file that are looked at.
_WINDOWS, _WINDOW = 256, 1 << 20
#: Most ranges that are looked at: each takes some microseconds.
_RANGES = 1000


def drop_from_cache(
    path: str | os.PathLike, ranges: Sequence[tuple[int, int]] | None = None
) -> None:
    """Make the next read of a file come from where it is stored.

    All of it, or byte ranges (offset, size). Pages that others use meanwhile stay, and so do those
    of a file system in memory. Servers of a network file system have caches of their own.
    """
    if not hasattr(os, "posix_fadvise"):
        raise UnsupportedError("this system cannot drop a file from its page cache")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # only clean pages are dropped
        for offset, size in [(0, os.fstat(descriptor).st_size)] if ranges is None else ranges:
            # Outwards to whole pages: a part of one would stay.
            start = offset - offset % mmap.PAGESIZE
            end = -(-(offset + size) // mmap.PAGESIZE) * mmap.PAGESIZE
            os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def cached_share(
    path: str | os.PathLike, ranges: Sequence[tuple[int, int]] | None = None
) -> float | None:
    """Share of a file, or of byte ranges (offset, size) of it, in the page cache: from 0 to 1.

    Of a whole file of more than 256 MiB, 256 windows of 1 MiB are looked at. None where the system
    does not say: of files that this user could not change, of no bytes, or not at all.
    """
    look = _mincore()
    if look is None or not _is_known(path):
        return None
    cached = total = 0
    with open(path, "rb") as file:
        file_size = os.fstat(file.fileno()).st_size
        if ranges is None:
            ranges = _windows(file_size)
        for offset, size in ranges[:: 1 + len(ranges) // _RANGES]:
            start = offset - offset % mmap.ALLOCATIONGRANULARITY
            end = min(offset + size, file_size)
            if end <= start:
                continue
            pages = look(file.fileno(), start, end - start)
            if pages is None:
                return None
            cached += int((pages & 1).sum())
            total += len(pages)
    return cached / total if total else None


def cached_share_of_all(paths: Iterable[str | os.PathLike]) -> float | None:
    """Share of several files together in the page cache; None where it is unknown of one."""
    cached = total = 0.0
    for path in paths:
        size = os.path.getsize(path)
        share = cached_share(path) if size else 0.0
        if share is None:
            return None
        cached += share * size
        total += size
    return cached / total if total else None


def _windows(size: int) -> list[tuple[int, int]]:
    """Byte ranges that stand for a whole file of `size` bytes."""
    if size <= _WINDOWS * _WINDOW:
        return [(0, size)]
    starts = np.linspace(0, size - _WINDOW, _WINDOWS).astype(int)
    return [(int(start), _WINDOW) for start in starts]


def _is_known(path: str | os.PathLike) -> bool:
    """Return whether Linux says the truth to this user: other files seem to be all in memory."""
    return os.stat(path).st_uid == os.geteuid() or os.access(path, os.W_OK)


@cache
def _mincore() -> Callable[[int, int, int], np.ndarray | None] | None:
    """Make a function that looks at the pages of a file; None where the system has no such call.

    Nothing is read through the mapping, so that a file that becomes shorter does no harm.
    """
    try:
        mincore = ctypes.CDLL(None, use_errno=True).mincore
    except (OSError, AttributeError, TypeError):
        return None
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)

    def look(descriptor: int, start: int, size: int) -> np.ndarray | None:
        pages = np.zeros(-(-size // mmap.PAGESIZE), dtype=np.uint8)
        # Not closed by a `with`: at Ctrl-C that finds the view still there, and raises for it.
        mapped = mmap.mmap(descriptor, size, offset=start, access=mmap.ACCESS_READ)
        view = np.frombuffer(mapped, dtype=np.uint8)
        failed = mincore(view.ctypes.data, size, pages.ctypes.data)
        return None if failed else pages

    return look
