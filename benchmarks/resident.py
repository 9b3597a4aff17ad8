"""Measure the growth of a process's memory, on Linux."""

import ctypes
import os
import threading
from pathlib import Path

import numpy as np

from paceline._util.machine import free_memory

#: In MB.
MEBIBYTE = 2**20 / 1e6
PROCESS = Path("/proc/self")
#: Written to `clear_refs`, it makes the peak what is held now.
RESET_PEAK = "5"
#: Bytes of a page.
PAGE = 4096
#: Between two looks at the memory, s.
INTERVAL = 0.01


class Growth:
    """Measures from its creation."""

    def __init__(self) -> None:
        # What was freed before, and kept for later, would hide as much that is taken now.
        ctypes.CDLL(None).malloc_trim(0)
        (PROCESS / "clear_refs").write_text(RESET_PEAK)
        self._held = _megabytes("VmRSS:")

    def peak(self) -> float:
        """Most that was held since, beyond what was held at first, MB."""
        return _megabytes("VmHWM:") - self._held


class Peak:
    """Most anonymous memory beyond that of the beginning, and bytes of anonymous files."""

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
    """Write to so much memory, at most to half of what is free, and free it.

    A virtual machine may get a page of its host only when it is first written to, which takes 1 to
    3 seconds a GB, and give it back a second after it was freed. Whoever uses it at once does not
    pay for that.
    """
    memory = np.empty(min(n_bytes, (free_memory() or n_bytes) // 2), dtype=np.uint8)
    memory[::PAGE] = 1


def _anonymous() -> int:
    """Anonymous memory of this process, bytes."""
    words = (PROCESS / "status").read_text(encoding="utf-8").split()
    return 1024 * int(words[words.index("RssAnon:") + 1])


def _in_unnamed_files() -> int:
    """Bytes of the open files of this process that have no name."""
    sizes = {}
    for one in os.listdir(PROCESS / "fd"):
        try:
            status = os.stat(PROCESS / "fd" / one)
        except OSError:  # closed meanwhile
            continue
        if status.st_nlink == 0:
            # A mapping has a descriptor of its own for the same file.
            sizes[status.st_dev, status.st_ino] = 512 * status.st_blocks
    return sum(sizes.values())


def _megabytes(key: str) -> float:
    words = (PROCESS / "status").read_text().split()
    return int(words[words.index(key) + 1]) * 1024 / 1e6
