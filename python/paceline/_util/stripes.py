"""Stripes of files on Lustre, a parallel file system."""

import os
import re
import shutil
from dataclasses import dataclass

#: Lustre's program for its file systems, and the maximum time to wait for it, s.
PROGRAM, PATIENCE = "lfs", 10.0
_KIB, _MIB = 2**10, 2**20
_NAMES = ("count", "size")


@dataclass(frozen=True)
class Stripes:
    """Number of server objects that store a file in turn, and number of bytes in each turn."""

    count: int
    size: int

    @property
    def size_text(self) -> str:
        """Size in the form of the command line.

        Examples
        --------
        >>> Stripes(4, 2**20).size_text, Stripes(1, 65536).size_text
        ('1MiB', '64KiB')
        """
        unit, name = (_MIB, "MiB") if self.size % _MIB == 0 else (_KIB, "KiB")
        return f"{self.size // unit}{name}"

    def __str__(self) -> str:
        return f"{self.count} × {self.size_text}, Lustre"


def stripes_of(path: str | os.PathLike) -> Stripes | None:
    """Return the stripes of a file; None on another file system, or without Lustre's program."""
    import subprocess  # deferred: most machines have no Lustre

    program = shutil.which(PROGRAM)
    if program is None:
        return None
    command = [program, "getstripe", os.path.abspath(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_stripes(done.stdout) if done.returncode == 0 else None


def parse_stripes(text: str) -> Stripes | None:
    r"""Return the stripes in the output of `lfs getstripe`.

    Parts of a file may differ; the last part that has objects is returned.

    Examples
    --------
    >>> parse_stripes("lmm_stripe_count:  4\nlmm_stripe_size:   1048576")
    Stripes(count=4, size=1048576)
    """
    found = None
    for part in re.split(r"^\s*lcme_id:", text, flags=re.MULTILINE):
        flags = re.search(r"lcme_flags:\s*(\S+)", part)
        count, size = (re.search(rf"lmm_stripe_{name}:\s*(\d+)", part) for name in _NAMES)
        if count and size and (flags is None or "init" in flags[1].split(",")):
            found = Stripes(int(count[1]), int(size[1]))
    return found if found and found.size else None
