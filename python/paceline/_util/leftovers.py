"""Remove files of killed processes when the same user's next process starts."""

import contextlib
import os
import re
import shutil
import stat
import sys
import tempfile
import time
import weakref
from functools import cache
from pathlib import Path

from paceline._util.os_calls import NO_LINK, PLAIN, WINDOWS, is_own, lock

#: Purposes of temporary folders; the folders are named paceline-KIND-…
KINDS = ("attempts", "dask", "advice", "selftest", "script", "scan", "live")
#: Name of the lock file in each temporary folder.
_LOCK = ".lock"
#: Folder of Linux's named semaphores.
_SEMAPHORES = Path("/dev/shm")
#: Name prefixes of loky's and multiprocessing's semaphores.
_PREFIXES = ("sem.loky-", "sem.mp-")
#: Name of a loky semaphore, which contains the number of the process that created it.
_MAKER = re.compile(r"sem\.loky-(\d+)-")
#: Minimum age of semaphores that are removed if no process maps them, seconds. A younger one may
#: belong to a running process that has not mapped it yet.
_NEW = 10.0
#: Age in seconds above which a folder or semaphore is removed although its process may be running:
#: this cannot be checked if processes of other containers are invisible, or if locks fail.
_DAY = 86400.0
#: Number of the initial PID namespace, in which all processes of a Linux machine are visible.
_ALL_PROCESSES = 0xEFFFFFFC


class ScratchFolder:
    """Temporary folder; if this process is killed, the user's next process removes the folder."""

    def __init__(self, kind: str):
        made = tempfile.mkdtemp(prefix="paceline-new-")
        self.path = made.replace("paceline-new-", f"paceline-{kind}-")
        self._lock = os.open(f"{made}/{_LOCK}", os.O_RDWR | os.O_CREAT | PLAIN, 0o600)
        with contextlib.suppress(OSError):
            lock(self._lock)
        if WINDOWS:  # Windows cannot rename a folder of an open file
            os.close(self._lock)
        # Other processes find the folder by its final name: rename it only after locking it.
        Path(made).rename(self.path)

    def remove(self) -> None:
        """Remove the folder and its content."""
        if not WINDOWS:
            os.close(self._lock)
        shutil.rmtree(self.path, ignore_errors=True)

    def remove_with(self, owner: object) -> None:
        """Remove the folder when `owner` is deleted in this process, but not in a forked one."""
        weakref.finalize(owner, self._remove_in, os.getpid())

    def _remove_in(self, pid: int) -> None:
        if os.getpid() == pid:
            self.remove()

    def __enter__(self) -> str:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()


@cache
def remove_leftovers() -> None:
    """Remove the leftovers of this user's killed processes, once in this process."""
    with contextlib.suppress(OSError):
        _remove_folders()
    if sys.platform == "linux" and not WINDOWS:
        with contextlib.suppress(OSError):
            _remove_semaphores()


def _remove_folders() -> None:
    for kind in KINDS:
        for path in Path(tempfile.gettempdir()).glob(f"paceline-{kind}-*"):
            with contextlib.suppress(OSError):
                if _is_own(path.lstat()) and _is_unlocked(path):
                    shutil.rmtree(path, ignore_errors=True)


def _is_own(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode) and is_own(status)


def _is_unlocked(folder: Path) -> bool:
    """Check whether the creator of a folder has ended; if unknown, assume that after a day.

    Raises `BlockingIOError` if the creator is running.
    """
    old = time.time() - folder.lstat().st_mtime > _DAY
    try:
        file = os.open(folder / _LOCK, os.O_RDWR | NO_LINK)
    except FileNotFoundError:
        return old
    try:
        # On Windows, `ScratchFolder` closes the locked file, so a free lock proves nothing.
        return (lock(file) and not WINDOWS) or old
    finally:
        os.close(file)


def _remove_semaphores() -> None:
    """Remove the names of this user's semaphores that no process uses."""
    now, found = time.time(), {}
    for entry in os.scandir(_SEMAPHORES):
        if entry.name.startswith(_PREFIXES):
            status = entry.stat(follow_symlinks=False)
            if is_own(status) and now - status.st_mtime > _NEW:
                found[status.st_ino] = entry, now - status.st_mtime
    if not found:
        return
    # Another container may share the semaphores, but its processes are invisible.
    sees_all = os.stat("/proc/self/ns/pid").st_ino == _ALL_PROCESSES
    used, complete = _mapped_semaphores()
    for number, (entry, age) in found.items():
        maker = _MAKER.match(entry.name)
        ended = maker is not None and not os.path.exists(f"/proc/{maker[1]}")
        if number not in used and ((sees_all and (complete or ended)) or age > _DAY):
            with contextlib.suppress(OSError):
                os.unlink(entry.path)


def _mapped_semaphores() -> tuple[set[int], bool]:
    """Find the inodes of the semaphores that this user's processes have mapped.

    Names cannot be used, because the C library maps a semaphore before it names the file. The
    second result is False if a process cannot be inspected.
    """
    found: set[int] = set()
    complete = True
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if not is_own(process.stat()):
                continue
            text = (process / "maps").read_text(errors="replace")
        except PermissionError:
            complete = False
        except OSError:  # the process has ended
            pass
        else:
            lines = (line for line in text.splitlines() if f"{_SEMAPHORES}/sem." in line)
            found.update(int(line.split()[4]) for line in lines)
    return found, complete
