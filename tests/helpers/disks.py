"""Disks that are full."""

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Iterator

_NO_MODULES = "PYTHONDONTWRITEBYTECODE"


@contextlib.contextmanager
def full_disk(room: int = 64) -> Iterator[None]:
    """Limit what a file may hold, bytes, in this process and in those that it starts.

    Python compiles no modules meanwhile: it would keep the part that fits, and fail to import it
    ever after.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    written, told = sys.dont_write_bytecode, os.environ.get(_NO_MODULES)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    sys.dont_write_bytecode, os.environ[_NO_MODULES] = True, "1"
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
        sys.dont_write_bytecode = written
        if told is None:
            del os.environ[_NO_MODULES]
        else:
            os.environ[_NO_MODULES] = told
