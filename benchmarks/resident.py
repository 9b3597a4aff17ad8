"""Measure the growth of a process's memory, on Linux."""

import ctypes
from pathlib import Path

#: In MB.
MEBIBYTE = 2**20 / 1e6
PROCESS = Path("/proc/self")
#: Written to `clear_refs`, it makes the peak what is held now.
RESET_PEAK = "5"


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


def _megabytes(key: str) -> float:
    words = (PROCESS / "status").read_text().split()
    return int(words[words.index(key) + 1]) * 1024 / 1e6
