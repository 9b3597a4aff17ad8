"""How fast bytes of a file come from where it is kept, when they are not in memory."""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from paceline.errors import UnsupportedError
from paceline.pagecache import cached_share, drop_from_cache

#: Bytes that one reader reads, at the most, and in one call; and for how long, s.
_BYTES, _CALL, _SECONDS = 64 << 20, 4 << 20, 0.25
#: Of a file of so few bytes a rate would tell nothing.
_LEAST = 4 << 20
#: Less than this in memory counts as nothing: reading elsewhere may bring in some pages.
_DROPPED = 0.05


def let_go(path: str, ranges: Sequence[tuple[int, int]]) -> bool:
    """Let the next read of some bytes of a file come from the disk.

    Parameters
    ----------
    path : str
        The file.
    ranges : sequence of (int, int)
        Offset and size of each row of bytes.

    Returns
    -------
    bool
        Whether they are known to be out of memory now.
    """
    try:
        drop_from_cache(path, ranges)
    except UnsupportedError:
        return False
    left = cached_share(path, ranges)
    return left is not None and left < _DROPPED


def disk_rates(path: str) -> tuple[float, float] | None:
    """Bytes a second that one reader gets, and that two get together, that are not in memory.

    Parameters
    ----------
    path : str
        A file. Some of its bytes are let go of, and read.

    Returns
    -------
    tuple of float or None
        None where the bytes stay in memory, or the system does not tell.
    """
    size = os.path.getsize(path)
    n_bytes = min(_BYTES, size // 8)
    if n_bytes < _LEAST:
        return None
    # Away from the middle, where frames are read.
    starts = [size // 8, size // 4, 5 * size // 8]
    if not let_go(path, [(start, n_bytes) for start in starts]):
        return None
    one = _rate(path, starts[:1], n_bytes)
    return one, _rate(path, starts[1:], n_bytes)


def _rate(path: str, starts: list[int], n_bytes: int) -> float:
    """Bytes a second of several readers together."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(len(starts)) as readers:
        read = readers.map(lambda start: _read(path, start, n_bytes), starts)
        return sum(read) / (time.perf_counter() - begun)


def _read(path: str, start: int, n_bytes: int) -> int:
    """Read for a while, once at the least; how many bytes came."""
    buffer, done = bytearray(_CALL), 0
    end = time.perf_counter() + _SECONDS
    descriptor = os.open(path, os.O_RDONLY)
    try:
        while True:
            done += os.preadv(descriptor, [buffer], start + done)
            if done >= n_bytes or time.perf_counter() >= end:
                return done
    finally:
        os.close(descriptor)
