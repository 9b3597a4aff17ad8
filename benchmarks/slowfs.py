"""A slow, shared file system on this machine, without privileges: for programs started here.

    with SlowFileSystem(folder, latency=1e-3, bandwidth=50e6, open_cost=2e-3) as slow:
        subprocess.run(command, env=os.environ | slow.environment(), check=True)
        print(total(slow.counts()))

A library that is preloaded into these programs (`tests/slowfs`) makes them wait for the files of
one folder. Each process is a separate client with its own cache, as if it ran on another node; all
share the servers, which handle one request after another. Modelled are opens, reads, reading ahead
(by the kernel and by `posix_fadvise`), streams of C, and locks. Writing, missing names and file
sizes take no extra time; memory-mapped and kernel copies are not slowed, but counted as unseen.
"""

import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType

from benchmarks.measure import Unavailable

ROOT = Path(__file__).parents[1]
CRATE = ROOT / "tests" / "slowfs"
TARGET = ROOT / "target" / "slowfs"
#: Words of the shared file before the first process's, and words of each process: see `shared.rs`.
_HEAD, _ROW = 256, 16


@dataclass(frozen=True)
class Counts:
    """Counts of one process, or of several together, for the files of the folder.

    Attributes
    ----------
    pid : int
        The process; 0 for several.
    process : int
        Its rank under MPI, elsewhere how many came to the folder before it.
    opens, reads, locks : int
        Calls.
    requests : int
        Requests for data to servers, each of a stripe at most.
    unseen : int
        Calls that read data in ways that are neither slowed nor counted elsewhere.
    bytes_read, bytes_fetched : int
        Bytes that reads returned, and bytes from servers: whole pages, including read-ahead.
    opening, reading, locking : float
        In these calls, s.
    """

    pid: int
    process: int
    opens: int
    reads: int
    requests: int
    locks: int
    unseen: int
    bytes_read: int
    bytes_fetched: int
    opening: float
    reading: float
    locking: float


def total(counts: Iterable[Counts]) -> Counts:
    """The sums over several processes."""
    rows = list(counts)
    names = [name.name for name in fields(Counts)][2:]
    return Counts(0, len(rows), **{name: sum(getattr(row, name) for row in rows) for name in names})


@dataclass
class SlowFileSystem:
    """A folder whose files are slow for programs that are started with its environment.

    Parameters
    ----------
    folder : path-like
        Where the slow files are.
    latency : float
        From a request to its answer if no server is busy, s.
    bandwidth : float
        Of each server, bytes/s.
    servers : int
        How many servers of data there are.
    stripe : int
        Bytes of a file that one server holds before it is the next one's turn, and the most that
        one request asks for.
    request_cost, open_cost, lock_cost : float
        What one request for data keeps its server busy besides its bytes, and one open or lock of
        a file all others of that file, s.
    read_ahead : int
        Bytes that are fetched ahead of a program that reads in order.
    slow_process : int, optional
        A process that waits `slow_factor` times as long as others would: its rank under MPI,
        elsewhere how many came to the folder before it.
    slow_factor : float
        Of that process.
    """

    folder: str | os.PathLike
    latency: float = 0.0
    bandwidth: float = float("inf")
    servers: int = 1
    stripe: int = 1 << 20
    request_cost: float = 0.0
    open_cost: float = 0.0
    lock_cost: float = 0.0
    read_ahead: int = 128 << 10
    slow_process: int | None = None
    slow_factor: float = 1.0
    _state: Path | None = field(default=None, init=False, repr=False)

    def __enter__(self) -> "SlowFileSystem":
        descriptor, name = tempfile.mkstemp(prefix="slowfs-")
        os.close(descriptor)
        self._state = Path(name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._state is not None
        self._state.unlink()
        self._state = None

    def environment(self) -> dict[str, str]:
        """Additions to the environment of a program.

        Raises
        ------
        Unavailable
            The library cannot be built here.
        """
        settings = {
            "FOLDER": os.path.realpath(self.folder),
            "STATE": self._shared(),
            "LATENCY": self.latency,
            "BANDWIDTH": self.bandwidth,
            "SERVERS": self.servers,
            "STRIPE": self.stripe,
            "REQUEST_COST": self.request_cost,
            "OPEN_COST": self.open_cost,
            "LOCK_COST": self.lock_cost,
            "READ_AHEAD": self.read_ahead,
            "SLOW_FACTOR": self.slow_factor,
        }
        if self.slow_process is not None:
            settings["SLOW_PROCESS"] = self.slow_process
        preloaded = [str(library()), *os.environ.get("LD_PRELOAD", "").split()]
        return {"LD_PRELOAD": " ".join(preloaded)} | {
            f"SLOWFS_{name}": str(value) for name, value in settings.items()
        }

    def counts(self) -> list[Counts]:
        """Counts of each process so far, in order of their first use of the folder."""
        words = self._shared().read_bytes()
        n_rows = struct.unpack_from("Q", words)[0] if words else 0
        rows = []
        for row in range(n_rows):
            pid, process, *numbers = struct.unpack_from("12Q", words, 8 * (_HEAD + row * _ROW))
            if pid:
                times = (nanoseconds / 1e9 for nanoseconds in numbers[7:])
                rows.append(Counts(pid, process, *numbers[:7], *times))
        return rows

    def _shared(self) -> Path:
        if self._state is None:
            raise ValueError("a slow file system is used within a with statement")
        return self._state


def library() -> Path:
    """The library to preload, built where it is not up to date.

    Raises
    ------
    Unavailable
        The system is not Linux, or there is no cargo.
    """
    if sys.platform != "linux":
        raise Unavailable("the slow file system wraps the C library of Linux")
    cargo = shutil.which("cargo") or shutil.which("cargo", path=Path.home() / ".cargo" / "bin")
    if cargo is None:
        raise Unavailable("the slow file system is built with cargo, and there is none")
    command = [cargo, "build", "--quiet", "--release", "--locked", "--target-dir", str(TARGET)]
    subprocess.run([*command, "--manifest-path", str(CRATE / "Cargo.toml")], check=True)
    return TARGET / "release" / "libslowfs.so"
