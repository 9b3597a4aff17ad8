"""Simulation on Linux of Windows's limits for paceline's Python code; on PYTHONPATH of each
process.

Calls that Windows lacks are removed, and modules of POSIX cannot be imported. Files that this
process has open or mapped cannot be renamed, replaced or deleted. Folders cannot be opened, /proc
does not exist, and file names have no colon. Files that paceline opens by descriptor must be opened
in binary mode. The standard library depends on `os.name`, and is not changed.
"""

import builtins
import ctypes
import errno
import fcntl
import io
import os
import signal
import subprocess  # noqa: F401  (looks for msvcrt, and must not find the one below)
import sys
import tempfile
import time
from multiprocessing import connection  # noqa: F401  (looks for _winapi)
from types import ModuleType

import numpy  # noqa: F401

MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
CALLS = {
    os: (
        *("fork", "forkpty", "register_at_fork", "killpg", "setsid", "getpgid", "getpgrp"),
        *("wait3", "wait4", "nice", "getloadavg", "sysconf", "sched_yield", "sched_getaffinity"),
        *("sched_setaffinity", "getuid", "geteuid", "getgid", "getegid", "uname", "statvfs"),
        *("pread", "preadv", "pwrite", "pwritev", "posix_fadvise", "posix_fallocate", "mkfifo"),
        *("copy_file_range", "sendfile", "memfd_create", "fchmod", "fchown", "chown", "fdatasync"),
        *("O_NOFOLLOW", "O_ASYNC", "O_CLOEXEC", "O_TMPFILE", "O_DIRECTORY", "O_SYNC"),
    ),
    signal: (
        *("SIGALRM", "SIGPROF", "SIGKILL", "SIGIO", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGPIPE"),
        *("alarm", "setitimer", "getitimer", "ITIMER_REAL", "ITIMER_PROF", "ITIMER_VIRTUAL"),
        *("pthread_sigmask", "pthread_kill", "SIG_BLOCK", "SIG_UNBLOCK", "SIG_SETMASK"),
        *("sigwait", "sigtimedwait", "sigpending", "siginterrupt"),
    ),
}
#: Value of O_BINARY, which has no effect here (O_LARGEFILE).
O_BINARY = 0x8000
OPEN = open
PACKAGE = f"{os.sep}paceline{os.sep}"


def files_in_use():
    """Return the paths of all files that this process has open or mapped."""
    paths = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            paths.add(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue  # the folder itself
    with OPEN("/proc/self/maps", encoding="utf-8") as file:
        paths.update(line.split(maxsplit=5)[-1].strip() for line in file)
    return paths


def guarded(name):
    """Make a call of `os` refuse files in use, like Windows."""
    call = getattr(os, name)

    def refuse(*paths, **options):
        used = files_in_use()
        for path in paths:
            if os.path.abspath(os.fsdecode(path)) in used:
                raise PermissionError(errno.EACCES, f"{name}: the file is in use", path)
        return call(*paths, **options)

    return refuse


def checked_open(path, flags, *arguments, call=os.open, **options):
    caller = sys._getframe(1).f_code.co_filename
    if PACKAGE in caller:
        assert flags & O_BINARY, f"{caller} opens {path!r} as text"
        if ":" in os.path.basename(os.fsdecode(path)):
            raise OSError(errno.EINVAL, "a colon in a file's name", path)
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "a folder cannot be opened", path)
    return call(path, flags, *arguments, **options)


def library(name, *arguments, call=ctypes.CDLL, **options):
    if name is None:
        raise TypeError("bad argument type for built-in operation")
    return call(name, *arguments, **options)


def without_proc(call):
    """Make a call find no files in /proc."""

    def find(path, *arguments, **options):
        if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(("/proc/", "/sys/")):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return call(path, *arguments, **options)

    return find


def hide():
    flock, kill = fcntl.flock, os.kill
    console = ModuleType("msvcrt")
    console.LK_NBLCK = 2

    def locking(descriptor, mode, n_bytes):
        try:
            flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    def wait(process, milliseconds):
        while True:
            try:
                kill(process, 0)
            except ProcessLookupError:
                return
            time.sleep(0.1)

    console.locking = locking
    api = ModuleType("_winapi")
    api.SYNCHRONIZE, api.INFINITE = 0x100000, 0xFFFFFFFF
    api.OpenProcess = lambda access, inherit, process: process
    api.WaitForSingleObject = wait
    sys.modules |= {"msvcrt": console, "_winapi": api} | dict.fromkeys(MODULES)
    for module, names in CALLS.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    os.O_BINARY = O_BINARY
    os.open = checked_open
    ctypes.CDLL = library
    builtins.open = io.open = without_proc(open)
    os.stat = without_proc(os.stat)
    for name in ("replace", "rename", "unlink", "remove"):
        setattr(os, name, guarded(name))
    tempfile.TemporaryFile = tempfile.NamedTemporaryFile


hide()
from paceline._util import os_calls  # noqa: E402  (after the calls are gone)

os_calls.WINDOWS = True
