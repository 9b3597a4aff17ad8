"""Simulation of full disks."""

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Iterator

_NO_MODULES = "PYTHONDONTWRITEBYTECODE"


@contextlib.contextmanager
def full_disk(room: int = 64) -> Iterator[None]:
    """Limit the size of files, bytes, in this process and its children.

    Python must not compile modules meanwhile: it would save a truncated file, and fail to import it
    later.
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
