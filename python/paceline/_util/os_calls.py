"""Calls of the operating system that differ between Linux, macOS and Windows.

Other modules call these functions instead of calls that one of the systems lacks. On a system
without the operation, a function does nothing if the operation only saves time; otherwise it raises
an error that names the operation.
"""

import contextlib
import errno
import mmap
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import IO, TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import subprocess

    import numpy as np

try:
    import fcntl
    import resource
except ImportError:  # Windows
    fcntl = resource = None  # type: ignore[assignment]

WINDOWS = os.name == "nt"
#: Flags of every `os.open`: binary mode, and no inheritance by other programs.
PLAIN = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
#: Flags in `PLAIN`, and refusal to follow a symbolic link if the system supports that.
NO_LINK = PLAIN | getattr(os, "O_NOFOLLOW", 0)
#: Error numbers of lock calls on a file system without locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
#: Offset of the byte that Windows locks: past the data, because a locked byte cannot be read.
_LOCKED_BYTE = 2**31 - 2
#: Arguments of macOS's fcntl that reserve space at the end of a file, completely or not at all.
_F_PREALLOCATE, _ALLOCATE_ALL, _FROM_END = 42, 4, 3
#: Time between two checks whether another process is running, seconds.
_INTERVAL = 0.5
#: Number of windows in which the cached fraction of a large file is sampled.
_WINDOWS = 256
#: Size of each of the `_WINDOWS`, bytes.
_WINDOW = 1 << 20
#: Maximum number of byte ranges whose cached fraction is determined; each takes some microseconds.
_RANGES = 1000


def is_own(status: os.stat_result) -> bool:
    """True if a file belongs to this user; always True on Windows."""
    return WINDOWS or status.st_uid == os.getuid()


# Bytes of open files.

#: Lock for the file position of descriptors, on systems without calls that take an offset.
_position = threading.Lock()


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    """Read bytes at an offset in one call; the result is shorter at the end of the file."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, size, offset)
    with _position:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, size)


#: True if bytes written to a file are visible to processes that map the file.
CAN_WRITE_MAPPED = hasattr(os, "pwrite")


def write_at(descriptor: int, data: bytes | memoryview, offset: int) -> int:
    """Write bytes at an offset in one call; return the number of bytes written."""
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, data, offset)
    with _position:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.write(descriptor, data)


def copy_in_kernel(source: int, start: int, target: int, to: int, size: int) -> int:
    """Copy bytes between files in the kernel; return the number copied, 0 on any failure."""
    try:
        return os.copy_file_range(source, target, size, start, to)
    except (AttributeError, OSError):
        return 0


def reserve(descriptor: int, offset: int, size: int) -> None:
    """Reserve disk space for a byte range of a file, if the system supports it.

    Raises `OSError` if free space is insufficient.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, offset, size)
        return
    missing = offset + size - os.fstat(descriptor).st_size
    if missing <= 0:
        return
    if WINDOWS:  # Windows allocates space when the file grows
        os.ftruncate(descriptor, offset + size)
    elif fcntl is not None:
        request = struct.pack("=Iiqqq", _ALLOCATE_ALL, _FROM_END, 0, missing, 0)
        try:
            fcntl.fcntl(descriptor, _F_PREALLOCATE, request)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise


def lock(descriptor: int) -> bool:
    """Lock a file until it is closed; return False if its file system has no locks.

    Raises `BlockingIOError` if another process holds the lock.
    """
    if fcntl is None:
        return _lock_byte(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    return True


def _lock_byte(descriptor: int) -> bool:
    import msvcrt

    with _position:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except PermissionError as error:
            raise BlockingIOError(errno.EAGAIN, "another process has locked it") from error
        except OSError:
            return False
    return True


def detach(descriptor: int) -> None:
    """Close a descriptor's file on Windows, which cannot rename or delete an open file."""
    if WINDOWS:
        _redirect(descriptor, os.devnull)


def attach(descriptor: int, path: str | os.PathLike) -> None:
    """Open the file of a descriptor again after `detach`."""
    if WINDOWS:
        _redirect(descriptor, path)


def _redirect(descriptor: int, path: str | os.PathLike) -> None:
    """Close the file of a descriptor, and redirect the descriptor to another file."""
    file = os.open(path, os.O_RDWR | PLAIN)
    try:
        os.dup2(file, descriptor, inheritable=False)
    finally:
        os.close(file)


def set_mode(descriptor: int, mode: int) -> None:
    """Set the permissions of an open file, if the system has permissions."""
    if not WINDOWS:
        os.fchmod(descriptor, mode)


def sync_folder(path: str | os.PathLike) -> None:
    """Flush a folder, if the system supports it, so that a new file name reaches the disk."""
    with contextlib.suppress(OSError):
        folder = os.open(path, os.O_RDONLY | PLAIN)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


#: True if a process can open a file through another process's descriptor.
CAN_SHARE = os.path.isdir("/proc/self/fd")


class SharedFile(NamedTuple):
    """Open file, possibly without a name, that other processes of this machine can open."""

    path: str
    identity: tuple[int, int]

    @classmethod
    def of(cls, descriptor: int) -> "SharedFile":
        """Describe an open file such that other processes can open it; requires `CAN_SHARE`."""
        status = os.fstat(descriptor)
        return cls(f"/proc/{os.getpid()}/fd/{descriptor}", (status.st_dev, status.st_ino))

    def open(self) -> IO[bytes]:
        """Open the shared file for reading, in another process.

        Raises `OSError` if the file is missing, or if the path leads to a different file, because
        in another container the same process number belongs to a different process.
        """
        status = os.stat(self.path)
        if (status.st_dev, status.st_ino) != self.identity:
            raise OSError(f"{self.path} is not the file that was shared")
        return open(self.path, "rb")


def memory_file(n_bytes: int) -> int | None:
    """Open an anonymous file in memory; return its descriptor, or None if this is impossible.

    It is impossible if the system does not support such files, or if memory is insufficient.
    """
    if not hasattr(os, "memfd_create"):
        return None
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        file = os.memfd_create("paceline-results")
        stack.callback(os.close, file)
        os.posix_fallocate(file, 0, n_bytes)
        stack.pop_all()
        return file
    return None


# The machine and its user.


def usable_cpus() -> set[int]:
    """Numbers of the CPUs that this process may use; all CPUs if not reported by the system."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def total_memory() -> int | None:
    """Memory of the machine, bytes; None if the system does not report it."""
    if WINDOWS:
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def clock_ticks() -> int:
    """Number of ticks per second in Linux's CPU accounting."""
    return os.sysconf("SC_CLK_TCK")


def load_averages() -> tuple[float, ...]:
    """Return the load averages over 1, 5 and 15 minutes; empty if unknown."""
    return os.getloadavg() if not WINDOWS else ()


def full_name(login: str) -> str:
    """Full name of a user; empty if the system does not store it."""
    try:
        import pwd

        return pwd.getpwnam(login).pw_gecos.partition(",")[0]
    except (ImportError, KeyError):
        return ""


# Processes.


def after_fork(function: Callable[[], object]) -> None:
    """Call a function in processes that are forked from this one, if the system can fork."""
    if not WINDOWS:
        os.register_at_fork(after_in_child=function)


def around_fork(before: Callable[[], object], after: Callable[[], object]) -> None:
    """Call functions before and after each fork, in the parent process."""
    if not WINDOWS:
        os.register_at_fork(before=before, after_in_parent=after)


def yield_processor() -> None:
    """Yield the CPU to another process."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0)


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C in this process and in its new child processes, if the system supports it."""
    if WINDOWS:
        yield
        return
    from multiprocessing import resource_tracker

    # Start the tracker now: otherwise it would start with the first process, and unblock Ctrl-C.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_interrupts() -> None:
    """Ignore Ctrl-C in a process that was started with Ctrl-C blocked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not WINDOWS:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def wait_for_parent(parent: int) -> None:
    """Wait until the process that started this one has ended."""
    if WINDOWS:  # where `getppid` returns the same number after the parent has ended
        import _winapi as api

        with contextlib.suppress(OSError):  # the parent has ended
            handle = api.OpenProcess(api.SYNCHRONIZE, False, parent)  # type: ignore[attr-defined]
            api.WaitForSingleObject(handle, api.INFINITE)  # type: ignore[attr-defined]
        return
    while os.getppid() == parent:
        time.sleep(_INTERVAL)


def terminate(process: "subprocess.Popen[Any]", number: int) -> None:
    """Send a process a signal that ends it; on Windows, end it at once."""
    if WINDOWS:
        process.terminate()
    else:
        process.send_signal(number)


def end_process_after(seconds: int) -> None:
    """End this process after some seconds, even inside a library call."""
    signal.alarm(seconds)


def signal_group(process: int, number: int | None = None) -> None:
    """Send a signal, SIGKILL by default, to the process group whose leader is `process`."""
    os.killpg(process, signal.SIGKILL if number is None else number)


def kill_session() -> None:
    """Kill this process and all other processes of its process group."""
    os.killpg(0, signal.SIGKILL)


# Limits of a process whose code may hang or crash.

#: True if the system can limit the memory of a process.
CAN_LIMIT = resource is not None


def limit_time(computing: float, waiting: float) -> None:
    """End this process after a CPU time or a wall time, seconds; 0 means no limit."""
    signal.setitimer(signal.ITIMER_PROF, computing)
    signal.setitimer(signal.ITIMER_REAL, waiting)


def extend_limit(computing: float, waiting: float) -> None:
    """Add seconds to the limits that `limit_time` set."""
    for timer, seconds in ((signal.ITIMER_PROF, computing), (signal.ITIMER_REAL, waiting)):
        left, _ = signal.getitimer(timer)
        if left:
            signal.setitimer(timer, left + seconds)


def exit_reason(status: int) -> str:
    """Return the reason why a process with limits ended, from its exit status.

    Returns "computing" or "waiting" for a limit of `limit_time`, "ended" if another program ended
    the process, else the name of the signal of the crash.
    """
    if status > 0 or status in (-signal.SIGKILL, -signal.SIGTERM):
        return "ended"
    limits = {-signal.SIGPROF: "computing", -signal.SIGALRM: "waiting"}
    return limits.get(status) or signal.Signals(-status).name


def limit_memory(more: int) -> None:
    """Limit the memory that this process may still allocate, bytes, if its current use is known."""
    try:
        with open("/proc/self/statm", "rb") as file:
            n_bytes = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return
    n_bytes += min(more, 1 << 62)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY or n_bytes < most:
        resource.setrlimit(resource.RLIMIT_AS, (n_bytes, most))


def end_when_closed(pipe: int) -> None:
    """End this process when the other end of a pipe closes, even within a library call.

    On systems other than Linux, only `limit_time` ends a library call that never returns.
    """
    # This process inherits ignored and blocked signals from its parent: reset them.
    limits = (signal.SIGIO, signal.SIGPROF, signal.SIGALRM)
    for number in limits:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, limits)
    if sys.platform != "linux":  # SIGIO does not end a process on other systems
        threading.Thread(target=_kill_when_closed, args=(pipe,), daemon=True).start()
        return
    # An event on the pipe sends SIGIO, whose default action ends the process.
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if has_input(pipe, 0):  # the pipe had closed before
        os.kill(os.getpid(), signal.SIGKILL)


def _kill_when_closed(pipe: int) -> None:
    with contextlib.suppress(OSError):
        os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def has_input(pipe: Any, seconds: float) -> bool:
    """Wait a limited time for bytes or the end of a pipe; return False if neither came."""
    import selectors

    # `select.select` refuses descriptors above 1,024.
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        return bool(selector.select(seconds))


# Page cache: measure the cached fraction of files, and drop files from the cache.


def drop_from_cache(
    path: str | os.PathLike, ranges: Sequence[tuple[int, int]] | None = None
) -> None:
    """Drop a file or byte ranges (offset, size) from the page cache, so that reads use the disk.

    Pages that other processes use stay in the cache, as do pages of a file system in memory. The
    caches of network file servers are not affected.
    """
    if not hasattr(os, "posix_fadvise"):
        # Imported here, so that this module does not depend on others.
        from paceline.errors import UnsupportedError

        raise UnsupportedError("this system cannot drop a file from its page cache")
    descriptor = os.open(path, os.O_RDONLY | PLAIN)
    try:
        os.fsync(descriptor)  # only clean pages are dropped
        for offset, size in [(0, os.fstat(descriptor).st_size)] if ranges is None else ranges:
            # Extend the range to whole pages: a page that is only partly in it would stay.
            start = offset - offset % mmap.PAGESIZE
            end = -(-(offset + size) // mmap.PAGESIZE) * mmap.PAGESIZE
            os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def cached_share(
    path: str | os.PathLike, ranges: Sequence[tuple[int, int]] | None = None
) -> float | None:
    """Fraction of a file, or of byte ranges (offset, size), in the page cache: from 0 to 1.

    For a whole file of more than 256 MiB, 256 windows of 1 MiB are checked. Returns None for an
    empty range, for a file that this user neither owns nor may write, or if the system does not
    report it.
    """
    look = _mincore()
    if look is None or not _is_known(path):
        return None
    cached = total = 0
    with open(path, "rb") as file:
        file_size = os.fstat(file.fileno()).st_size
        if ranges is None:
            ranges = _windows(file_size)
        for offset, size in ranges[:: 1 + len(ranges) // _RANGES]:
            start = offset - offset % mmap.ALLOCATIONGRANULARITY
            end = min(offset + size, file_size)
            if end <= start:
                continue
            pages = look(file.fileno(), start, end - start)
            if pages is None:
                return None
            cached += int((pages & 1).sum())
            total += len(pages)
    return cached / total if total else None


def blocks_in_memory(path: str | os.PathLike, block: int) -> "np.ndarray | None":
    """Return for each block whether its first page is in the page cache; None if unknown.

    `block` is the size of a block in bytes, a multiple of the page size.
    """
    import numpy as np

    look = _mincore()
    if look is None or not _is_known(path):
        return None
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            return None
        offsets = np.arange(0, size, block)
        pages = look(file.fileno(), 0, size, offsets)
        return None if pages is None else pages & 1 > 0


def cached_share_of_all(paths: Iterable[str | os.PathLike]) -> float | None:
    """Fraction of several files' bytes in the page cache; None if unknown for any of the files."""
    cached = total = 0.0
    for path in paths:
        size = os.path.getsize(path)
        share = cached_share(path) if size else 0.0
        if share is None:
            return None
        cached += share * size
        total += size
    return cached / total if total else None


def _windows(size: int) -> list[tuple[int, int]]:
    """Return byte ranges that represent a whole file of `size` bytes."""
    if size <= _WINDOWS * _WINDOW:
        return [(0, size)]
    return [(k * (size - _WINDOW) // (_WINDOWS - 1), _WINDOW) for k in range(_WINDOWS)]


def _is_known(path: str | os.PathLike) -> bool:
    """True if Linux reports the true cached fraction: this user owns or may write the file.

    For other files, Linux reports 1.
    """
    return os.stat(path).st_uid == os.geteuid() or os.access(path, os.W_OK)


@cache
def _mincore() -> "Callable[..., np.ndarray | None] | None":
    """Make a function that finds the cached pages of a file; None if the system has no such call.

    The function maps the file but does not read the map, so the file may shrink without an error.
    The function examines all pages, or only the pages at given offsets.
    """
    import ctypes

    import numpy as np

    try:
        mincore = ctypes.CDLL(None, use_errno=True).mincore
    except (OSError, AttributeError, TypeError):
        return None
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)

    def look(
        descriptor: int, start: int, size: int, offsets: np.ndarray | None = None
    ) -> np.ndarray | None:
        n = -(-size // mmap.PAGESIZE) if offsets is None else len(offsets)
        pages = np.zeros(n, dtype=np.uint8)
        # Do not close the map by `with`: after Ctrl-C, closing fails while `view` still exists.
        mapped = mmap.mmap(descriptor, size, offset=start, access=mmap.ACCESS_READ)
        view = np.frombuffer(mapped, dtype=np.uint8)
        address, found = view.ctypes.data, pages.ctypes.data
        if offsets is None:
            failed = mincore(address, size, found)
        else:
            failed = any(
                mincore(address + offset, 1, found + k) for k, offset in enumerate(offsets.tolist())
            )
        return None if failed else pages

    return look
