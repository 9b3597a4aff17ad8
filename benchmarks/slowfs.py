"""A slow, shared file system on this machine, without privileges, for programs started here.

    with SlowFileSystem(folder, latency=1e-3, bandwidth=50e6, open_cost=2e-3) as slow:
        subprocess.run(command, env=os.environ | slow.environment(), check=True)
        print(total(slow.counts()))

A library that is preloaded into these programs (`tests/slowfs`) delays their access to the files of
one folder. Each process is a separate client with its own cache, as if it ran on another node. All
processes share the servers, which handle one request after another. The model covers opens, reads,
read-ahead (by the kernel and by `posix_fadvise`), C streams, and locks. Writing, missing names and
file sizes take no extra time. Memory-mapped reads and kernel copies are not delayed, but counted as
unseen.
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
#: Number of words in the shared file before the first process, and per process (see `shared.rs`).
_HEAD, _ROW = 256, 16


@dataclass(frozen=True)
class Counts:
    """Counts of one process, or of several processes together, for the files of the folder.

    Attributes
    ----------
    pid : int
        Process number; 0 for several processes.
    process : int
        MPI rank; without MPI, the number of processes that used the folder before.
    opens, reads, locks : int
        Numbers of calls.
    requests : int
        Number of requests for data to servers, each for at most one stripe.
    unseen : int
        Number of calls that read data in ways that are neither delayed nor counted elsewhere.
    bytes_read, bytes_fetched : int
        Bytes that reads returned, and bytes from servers (whole pages, including read-ahead).
    opening, reading, locking : float
        Time in these calls, s.
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
    """Return the sums over several processes."""
    rows = list(counts)
    names = [name.name for name in fields(Counts)][2:]
    return Counts(0, len(rows), **{name: sum(getattr(row, name) for row in rows) for name in names})


@dataclass
class SlowFileSystem:
    """Folder whose files are slow for programs that are started with its environment.

    Parameters
    ----------
    folder : path-like
        Folder of the slow files.
    latency : float
        Time from a request to its answer if no server is busy, s.
    bandwidth : float
        Bandwidth of each server, bytes/s.
    servers : int
        Number of data servers.
    stripe : int
        Size of a stripe, bytes: consecutive stripes are on different servers, and a request is for
        at most one stripe.
    request_cost, open_cost, lock_cost : float
        Time for which a data request occupies its server in addition to its bytes, and for which an
        open or lock of a file blocks others on the same file, s.
    read_ahead : int
        Number of bytes that are prefetched for a program that reads in order.
    slow_process : int, optional
        Process that waits `slow_factor` times as long as others: its MPI rank or, without MPI, the
        number of processes that used the folder before.
    slow_factor : float
        Factor of the slow process's waiting times.
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
        """Environment variables to add for a program.

        Raises
        ------
        Unavailable
            The library cannot be built on this machine.
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
        """Return the counts of each process so far, in order of their first use of the folder."""
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
    """Return the library to preload; build it if it is not up to date.

    Raises
    ------
    Unavailable
        The system is not Linux, or cargo is missing.
    """
    if sys.platform != "linux":
        raise Unavailable("the slow file system wraps the C library of Linux")
    cargo = shutil.which("cargo") or shutil.which("cargo", path=Path.home() / ".cargo" / "bin")
    if cargo is None:
        raise Unavailable("the slow file system is built with cargo, and there is none")
    command = [cargo, "build", "--quiet", "--release", "--locked", "--target-dir", str(TARGET)]
    subprocess.run([*command, "--manifest-path", str(CRATE / "Cargo.toml")], check=True)
    return TARGET / "release" / "libslowfs.so"
