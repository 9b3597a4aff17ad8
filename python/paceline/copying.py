"""Copies bytes from file to file: the kernel does it, for several threads, until it is stopped."""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from paceline.errors import FileChangedError, ReadError
from paceline.progress import Progress

#: Bytes that one call copies at most: so soon does a copy obey when it is stopped.
CALL = 16 << 20
#: Bytes that pass through this process's memory at a time, where they must.
BUFFER = 1 << 20
#: Seconds between two looks at how far the copying has come.
INTERVAL = 0.1

#: Copies at most n bytes between two open files, from and to an offset, and says how many.
Way = Callable[[int, int, int, int, int], int]


class Stopped(Exception):
    """Another thread has failed, or the user wants no more."""


class Copier:
    """Bytes that several threads copy.

    Attributes
    ----------
    copied : int
        Bytes so far.
    """

    def __init__(self) -> None:
        self.copied = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Let every thread end after its present call."""
        self._stopped.set()

    def copy(self, path: str, source: int, start: int, target: int, to: int, n: int) -> None:
        """Copy bytes.

        Parameters
        ----------
        path : str
            Name of the source, for messages.
        source : int
            Descriptor of the open source.
        start : int
            Offset of the first byte in it.
        target : int
            Descriptor of the open target.
        to : int
            Offset of the first byte in it.
        n : int
            How many.

        Raises
        ------
        ReadError
            The system could not read the source.
        FileChangedError
            The source ends too early.
        OSError
            The system could not write; it names no file.
        Stopped
            By `stop`.
        """
        ways = [*_kernel_ways(), _through_memory(path)]
        end = start + n
        while start < end:
            if self._stopped.is_set():
                raise Stopped
            try:
                moved = ways[0](source, target, start, to, min(end - start, CALL))
            except OSError:
                # What the kernel's own copying cannot do, the last way does, or says why not.
                if len(ways) == 1:
                    raise
                moved = 0
            if moved == 0:
                ways.pop(0)
                continue
            start, to = start + moved, to + moved
            with self._lock:
                self.copied += moved


def copy_all(
    works: Iterable[Callable[[Copier], None]], total: int, n_threads: int, progress: bool | None
) -> None:
    """Do all that is to be copied, or stop at the first failure.

    Parameters
    ----------
    works : iterable of callable
        Each is given the one `Copier` that all share.
    total : int
        Bytes of all of them.
    n_threads : int
        Works that are done at a time.
    progress : bool, optional
        Whether to show how far it has come.
    """
    copier = Copier()
    with (
        Progress(total, unit="byte", show=progress) as bar,
        ThreadPoolExecutor(n_threads, thread_name_prefix="paceline-copy") as pool,
    ):
        pending = {pool.submit(work, copier) for work in works}
        try:
            while pending:
                done, pending = wait(pending, INTERVAL, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                bar.set(copier.copied, total)
        except BaseException:
            copier.stop()
            pool.shutdown(cancel_futures=True)
            raise


def _kernel_ways() -> list[Way]:
    """Ways for bytes that never reach this process; on some file systems they need not move."""
    return [
        way
        for name, way in (("copy_file_range", _by_copy_file_range), ("sendfile", _by_sendfile))
        if hasattr(os, name)
    ]


def _by_copy_file_range(source: int, target: int, start: int, to: int, n: int) -> int:
    return os.copy_file_range(source, target, n, start, to)


def _by_sendfile(source: int, target: int, start: int, to: int, n: int) -> int:
    os.lseek(target, to, os.SEEK_SET)
    return os.sendfile(target, source, start, n)


def _through_memory(path: str) -> Way:
    def copy(source: int, target: int, start: int, to: int, n: int) -> int:
        try:
            data = os.pread(source, min(n, BUFFER), start)
        except OSError as error:
            raise ReadError(f"{path}: cannot read at byte {start}: {error.strerror}") from error
        if not data:
            raise FileChangedError(f"{path}: the file ended at byte {start} while it was copied")
        return os.pwrite(target, data, to)

    return copy
