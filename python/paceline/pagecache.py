"""What of files the system keeps in memory: its page cache."""

import ctypes
import math
import mmap
import os
from collections.abc import Iterable

import numpy as np

from paceline.errors import UnsupportedError

#: Bytes of a file that are looked at together.
STRETCH = 2**30


def drop_from_cache(paths: Iterable[str | os.PathLike]) -> None:
    """Make the next read of files come from where they are stored.

    It is a wish: pages that others use meanwhile stay, and so do those of a file system in memory.
    Servers of a network file system have caches of their own.

    Parameters
    ----------
    paths : iterable of path-like
        The files.

    Raises
    ------
    UnsupportedError
        The system offers no way to do so.
    """
    if not hasattr(os, "posix_fadvise"):
        raise UnsupportedError("this system cannot drop a file from its page cache")
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # only clean pages are dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def cached_fraction(paths: Iterable[str | os.PathLike]) -> float:
    """How much of files is in the page cache of this machine.

    Parameters
    ----------
    paths : iterable of path-like
        The files.

    Returns
    -------
    float
        From 0 to 1; NaN where the system does not tell.
    """
    counts = [_cached_pages(path) for path in paths]
    cached, pages = (sum(column) for column in zip(*counts, strict=True))
    return cached / pages if pages else math.nan


def _cached_pages(path: str | os.PathLike) -> tuple[float, int]:
    """Pages of a file that are in memory, and all."""
    libc = ctypes.CDLL(None)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        # Of a file that a user could not change, Linux calls every page cached.
        if not hasattr(libc, "mincore") or not os.access(path, os.W_OK):
            return math.nan, -(-size // mmap.PAGESIZE)
        found = 0
        for first in range(0, size, STRETCH):
            found += _cached_in(libc, descriptor, first, min(STRETCH, size - first))
    finally:
        os.close(descriptor)
    return found, -(-size // mmap.PAGESIZE)


def _cached_in(libc: ctypes.CDLL, descriptor: int, first: int, length: int) -> int:
    """Pages in memory of a stretch of a file. It is mapped and not read."""
    with mmap.mmap(descriptor, length, offset=first, prot=mmap.PROT_READ) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        pages = np.zeros(-(-length // mmap.PAGESIZE), np.uint8)
        address, vector = (ctypes.c_void_p(array.ctypes.data) for array in (view, pages))
        failed = libc.mincore(address, ctypes.c_size_t(length), vector)
        del view  # a mapping that is looked at cannot be closed
    if failed:
        raise UnsupportedError("the system does not tell what of a file it keeps in memory")
    return int((pages & 1).sum())
