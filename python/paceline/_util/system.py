"""Calls of the operating system that differ between Linux, macOS and Windows.

Other modules call these, and nothing that one of the three lacks. What a system cannot do is left
out where it only saves time, and refused by name elsewhere.
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
#: Flags of every `os.open`: bytes as they are, and files that other programs do not inherit.
PLAIN = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
#: The same, and a link is not followed, where the system can refuse one.
NO_LINK = PLAIN | getattr(os, "O_NOFOLLOW", 0)
#: Errors of locks on a file system without them.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
#: Byte that Windows locks: behind what others read, since they could not read it.
_LOCKED_BYTE = 2**31 - 2
#: Arguments of macOS's fcntl that reserve space from the end of the file on, all or none of it.
_F_PREALLOCATE, _ALLOCATE_ALL, _FROM_END = 42, 4, 3
#: Seconds between looks at whether another process still runs.
_INTERVAL = 0.5
#: Number and bytes of the windows of a large file that are looked at.
_WINDOWS, _WINDOW = 256, 1 << 20
#: Most ranges that are looked at: each takes some microseconds.
_RANGES = 1000


def is_own(status: os.stat_result) -> bool:
    """Tell whether a file is this user's; on Windows, where files tell no user, True."""
    return not hasattr(os, "getuid") or status.st_uid == os.getuid()


# Bytes of open files.

#: Held while a descriptor's position is used, where there are no calls with an offset.
_position = threading.Lock()


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    """Read bytes at an offset by one call; fewer where the file ends."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, size, offset)
    with _position:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, size)


#: True if bytes that are written to a file are seen where it is mapped.
CAN_WRITE_MAPPED = hasattr(os, "pwrite")


def write_at(descriptor: int, data: bytes | memoryview, offset: int) -> int:
    """Write bytes at an offset by one call; return how many."""
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, data, offset)
    with _position:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.write(descriptor, data)


def copy_in_kernel(source: int, start: int, target: int, to: int, size: int) -> int:
    """Copy some bytes between files, or none where the system cannot, whatever the reason."""
    try:
        return os.copy_file_range(source, target, size, start, to)
    except (AttributeError, OSError):
        return 0


def reserve(descriptor: int, offset: int, size: int) -> None:
    """Reserve space on the disk for bytes of a file, where the system can do that.

    Raises `OSError` where there is too little.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, offset, size)
        return
    missing = offset + size - os.fstat(descriptor).st_size
    if missing <= 0:
        return
    if WINDOWS:  # which gives a file space as it grows
        os.ftruncate(descriptor, offset + size)
    elif fcntl is not None:
        request = struct.pack("=Iiqqq", _ALLOCATE_ALL, _FROM_END, 0, missing, 0)
        try:
            fcntl.fcntl(descriptor, _F_PREALLOCATE, request)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise


def lock(descriptor: int) -> bool:
    """Lock a file until it is closed; False where its file system has no locks.

    Raises `BlockingIOError` where another process has locked it.
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
    """Close the file of a descriptor on Windows, which renames and deletes none that is open."""
    if WINDOWS:
        _redirect(descriptor, os.devnull)


def attach(descriptor: int, path: str | os.PathLike) -> None:
    """Open the file of a descriptor again that was detached."""
    if WINDOWS:
        _redirect(descriptor, path)


def _redirect(descriptor: int, path: str | os.PathLike) -> None:
    """Close what a descriptor belongs to, and let it belong to another file."""
    file = os.open(path, os.O_RDWR | PLAIN)
    try:
        os.dup2(file, descriptor, inheritable=False)
    finally:
        os.close(file)


def set_mode(descriptor: int, mode: int) -> None:
    """Set the permissions of an open file, where files have any."""
    if hasattr(os, "fchmod"):
        os.fchmod(descriptor, mode)


def sync_folder(path: str | os.PathLike) -> None:
    """Flush a folder, so that a new name is on the disk, where the system can do that."""
    with contextlib.suppress(OSError):
        folder = os.open(path, os.O_RDONLY | PLAIN)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


#: True if a process can open a file that another process has open.
CAN_SHARE = os.path.isdir("/proc/self/fd")


class SharedFile(NamedTuple):
    """An open file, which may have no name, for other processes of this machine."""

    path: str
    identity: tuple[int, int]

    @classmethod
    def of(cls, descriptor: int) -> "SharedFile":
        """Share a file, as long as it is open, where `CAN_SHARE`."""
        status = os.fstat(descriptor)
        return cls(f"/proc/{os.getpid()}/fd/{descriptor}", (status.st_dev, status.st_ino))

    def open(self) -> IO[bytes]:
        """Open it in another process.

        Raises `OSError` where it is not there: in another container a process of this number is
        another one.
        """
        status = os.stat(self.path)
        if (status.st_dev, status.st_ino) != self.identity:
            raise OSError(f"{self.path} is another file than the one that was shared")
        return open(self.path, "rb")


def memory_file(n_bytes: int) -> int | None:
    """Open an anonymous file in memory; None if the system has none, or too little memory."""
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
    """Get the numbers of the CPUs that this process may use; all where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def total_memory() -> int | None:
    """Memory of the machine, bytes; None where the system does not say."""
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def clock_ticks() -> int:
    """Units in a second in which Linux counts processor time."""
    return os.sysconf("SC_CLK_TCK")


def load_averages() -> tuple[float, ...]:
    """Processes that ran or waited to, in 1, 5 and 15 minutes; none where it is not known."""
    return os.getloadavg() if hasattr(os, "getloadavg") else ()


def full_name(login: str) -> str:
    """Full name of a user; empty where the system does not know it."""
    try:
        import pwd

        return pwd.getpwnam(login).pw_gecos.partition(",")[0]
    except (ImportError, KeyError):
        return ""


# Processes.


def after_fork(function: Callable[[], Any]) -> None:
    """Call a function in processes that are forked from this one, where they can be."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def around_fork(before: Callable[[], Any], after: Callable[[], Any]) -> None:
    """Call functions before and after each fork, in the process that is forked."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=after)


def yield_processor() -> None:
    """Let another process run that waits for this processor."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0)


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C, here and in processes that are started here, where the system can do that."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    # Starts before the first process, and then unblocks it.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_interrupts() -> None:
    """Ignore Ctrl-C in a process that was started with it blocked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def wait_for_parent(parent: int) -> None:
    """Wait until the process that started this one has ended."""
    if WINDOWS:  # where its number stays the parent's
        import _winapi as api

        with contextlib.suppress(OSError):  # it has ended
            handle = api.OpenProcess(api.SYNCHRONIZE, False, parent)  # type: ignore[attr-defined]
            api.WaitForSingleObject(handle, api.INFINITE)  # type: ignore[attr-defined]
        return
    while os.getppid() == parent:
        time.sleep(_INTERVAL)


def ask_to_end(process: "subprocess.Popen[Any]", number: int) -> None:
    """Send a process a signal, by which it ends; on Windows end it at once."""
    if WINDOWS:
        process.terminate()
    else:
        process.send_signal(number)


def end_after(seconds: int) -> None:
    """End this process after so many seconds, whatever it does then."""
    signal.alarm(seconds)


def kill_session() -> None:
    """Kill this process and all that it has started, at once."""
    os.killpg(0, signal.SIGKILL)


# Limits of a process that runs code which may hang or crash.

#: True if the system limits the memory of a process.
CAN_LIMIT = resource is not None


def limit_time(computing: float, waiting: float) -> None:
    """End this process after so many seconds of computing, or of anything; 0 for never."""
    signal.setitimer(signal.ITIMER_PROF, computing)
    signal.setitimer(signal.ITIMER_REAL, waiting)


def extend_limit(computing: float, waiting: float) -> None:
    """Add seconds to the limits of `limit_time`, where there are any."""
    for timer, seconds in ((signal.ITIMER_PROF, computing), (signal.ITIMER_REAL, waiting)):
        left, _ = signal.getitimer(timer)
        if left:
            signal.setitimer(timer, left + seconds)


def why_ended(status: int) -> str:
    """Say why a process with limits ended, by its exit status.

    "computing" or "waiting" for a limit of `limit_time`, "ended" if another program ended it, else
    the name of the signal by which it crashed.
    """
    if status > 0 or status in (-signal.SIGKILL, -signal.SIGTERM):
        return "ended"
    limits = {-signal.SIGPROF: "computing", -signal.SIGALRM: "waiting"}
    return limits.get(status) or signal.Signals(-status).name


def limit_memory(more: int) -> None:
    """Limit the memory of this process to so many bytes more than it has, if that is known."""
    try:
        with open("/proc/self/statm", "rb") as file:
            n_bytes = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return
    n_bytes += min(more, 1 << 62)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY or n_bytes < most:
        resource.setrlimit(resource.RLIMIT_AS, (n_bytes, most))


def end_with_pipe(pipe: int) -> None:
    """End this process, even inside of a library, when the other end of a pipe closes.

    Elsewhere than on Linux, a library that never returns is left to `limit_time`.
    """
    # The process that starts this one may ignore or block signals, which this one inherits.
    limits = (signal.SIGIO, signal.SIGPROF, signal.SIGALRM)
    for number in limits:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, limits)
    if sys.platform != "linux":  # SIGIO ends nothing there
        threading.Thread(target=_end_behind, args=(pipe,), daemon=True).start()
        return
    # The signal of a pipe in which something happens ends a process that does not handle it.
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if has_input(pipe, 0):  # it closed before
        os.kill(os.getpid(), signal.SIGKILL)


def _end_behind(pipe: int) -> None:
    with contextlib.suppress(OSError):
        os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def has_input(pipe: Any, seconds: float) -> bool:
    """Wait so long for bytes in a pipe, or its end; False where none came."""
    import select

    return bool(select.select([pipe], [], [], seconds)[0])


# Page cache: the share of files that it holds, and dropping them from it.


def drop_from_cache(
    path: str | os.PathLike, ranges: Sequence[tuple[int, int]] | None = None
) -> None:
    """Make the next read of a file come from where it is stored.

    All of it, or byte ranges (offset, size). Pages that others use meanwhile stay, and so do those
    of a file system in memory. Servers of a network file system have caches of their own.
    """
    if not hasattr(os, "posix_fadvise"):
        from paceline.errors import UnsupportedError  # this module imports none of the package

        raise UnsupportedError("this system cannot drop a file from its page cache")
    descriptor = os.open(path, os.O_RDONLY | PLAIN)
    try:
        os.fsync(descriptor)  # only clean pages are dropped
        for offset, size in [(0, os.fstat(descriptor).st_size)] if ranges is None else ranges:
            # Outwards to whole pages: a part of one would stay.
            start = offset - offset % mmap.PAGESIZE
            end = -(-(offset + size) // mmap.PAGESIZE) * mmap.PAGESIZE
            os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def cached_share(
    path: str | os.PathLike, ranges: Sequence[tuple[int, int]] | None = None
) -> float | None:
    """Share of a file, or of byte ranges (offset, size) of it, in the page cache: from 0 to 1.

    Of a whole file of more than 256 MiB, 256 windows of 1 MiB are looked at. None where the system
    does not say: of files that this user could not change, of no bytes, or not at all.
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


def cached_share_of_all(paths: Iterable[str | os.PathLike]) -> float | None:
    """Share of several files together in the page cache; None where it is unknown of one."""
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
    """Byte ranges that stand for a whole file of `size` bytes."""
    if size <= _WINDOWS * _WINDOW:
        return [(0, size)]
    return [(k * (size - _WINDOW) // (_WINDOWS - 1), _WINDOW) for k in range(_WINDOWS)]


def _is_known(path: str | os.PathLike) -> bool:
    """Return whether Linux says the truth to this user: other files seem to be all in memory."""
    return os.stat(path).st_uid == os.geteuid() or os.access(path, os.W_OK)


@cache
def _mincore() -> "Callable[[int, int, int], np.ndarray | None] | None":
    """Make a function that looks at the pages of a file; None where the system has no such call.

    Nothing is read through the mapping, so that a file that becomes shorter does no harm.
    """
    import ctypes

    import numpy as np

    try:
        mincore = ctypes.CDLL(None, use_errno=True).mincore
    except (OSError, AttributeError, TypeError):
        return None
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)

    def look(descriptor: int, start: int, size: int) -> np.ndarray | None:
        pages = np.zeros(-(-size // mmap.PAGESIZE), dtype=np.uint8)
        # Not closed by a `with`: at Ctrl-C that finds the view still there, and raises for it.
        mapped = mmap.mmap(descriptor, size, offset=start, access=mmap.ACCESS_READ)
        view = np.frombuffer(mapped, dtype=np.uint8)
        failed = mincore(view.ctypes.data, size, pages.ctypes.data)
        return None if failed else pages

    return look
