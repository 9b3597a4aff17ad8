"""Measure the growth of a process's memory, on Linux."""

import ctypes
import os
import threading
from pathlib import Path

import numpy as np

from paceline._util.machine_and_software import free_memory

#: Size of a MiB, MB.
MEBIBYTE = 2**20 / 1e6
PROCESS = Path("/proc/self")
#: Value written to `clear_refs` to reset the peak to the current memory.
RESET_PEAK = "5"
#: Size of a page, bytes.
PAGE = 4096
#: Time between two measurements of the memory, s.
INTERVAL = 0.01


class Growth:
    """Measures the growth of memory since its creation."""

    def __init__(self) -> None:
        # Free memory is returned first, because reusing it would hide growth.
        ctypes.CDLL(None).malloc_trim(0)
        (PROCESS / "clear_refs").write_text(RESET_PEAK)
        self._held = _megabytes("VmRSS:")

    def peak(self) -> float:
        """Return the peak memory since the beginning, minus the initial memory, MB."""
        return _megabytes("VmHWM:") - self._held


class Peak:
    """Peak of anonymous memory beyond the initial memory, and size of anonymous files."""

    anonymous = in_files = 0

    def __enter__(self) -> "Peak":
        self._before, self._done = _anonymous(), threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(INTERVAL):
            self.anonymous = max(self.anonymous, _anonymous() - self._before)
            self.in_files = max(self.in_files, _in_unnamed_files())


def touch(n_bytes: int) -> None:
    """Write to `n_bytes` of memory, at most half of the free memory, and free it.

    A virtual machine may get a page from its host only at the first write, which takes 1 to 3 s per
    GB, and may return it a second after it was freed. A process that uses the memory immediately
    avoids this cost.
    """
    memory = np.empty(min(n_bytes, (free_memory() or n_bytes) // 2), dtype=np.uint8)
    memory[::PAGE] = 1


def _anonymous() -> int:
    """Return the anonymous memory of this process, bytes."""
    words = (PROCESS / "status").read_text(encoding="utf-8").split()
    return 1024 * int(words[words.index("RssAnon:") + 1])


def _in_unnamed_files() -> int:
    """Return the total size of this process's open anonymous files, bytes."""
    sizes = {}
    for one in os.listdir(PROCESS / "fd"):
        try:
            status = os.stat(PROCESS / "fd" / one)
        except OSError:  # the file was closed in between
            continue
        if status.st_nlink == 0:
            # A memory map has a second descriptor of the same file: count it once.
            sizes[status.st_dev, status.st_ino] = 512 * status.st_blocks
    return sum(sizes.values())


def _megabytes(key: str) -> float:
    words = (PROCESS / "status").read_text().split()
    return int(words[words.index(key) + 1]) * 1024 / 1e6
