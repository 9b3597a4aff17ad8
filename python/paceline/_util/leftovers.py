"""Remove the files that a killed process left behind, in the user's next process."""

import contextlib
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from paceline._util.system import NO_LINK, PLAIN, WINDOWS, is_own, lock

#: Purposes of temporary folders, which are named paceline-KIND-…
KINDS = ("attempts", "dask", "advice", "selftest")
#: File in each of them that its process has locked.
_LOCK = ".lock"
#: Folder of Linux's named semaphores, and the prefixes of loky's and multiprocessing's.
_SEMAPHORES, _PREFIXES = Path("/dev/shm"), ("sem.loky-", "sem.mp-")
#: loky's have the number of the process that made them.
_MAKER = re.compile(r"sem\.loky-(\d+)-")
#: Seconds after which a semaphore that no process has mapped is of one that was killed: one that is
#: new was made a moment before it is mapped.
_NEW = 10.0
#: The same where other processes may not be seen, or nothing is locked, seconds.
_DAY = 86400.0
#: Namespace in which all processes of a Linux machine are seen.
_ALL_PROCESSES = 0xEFFFFFFC


class ScratchFolder:
    """A temporary folder that another process removes if this one is killed."""

    def __init__(self, kind: str):
        made = tempfile.mkdtemp(prefix="paceline-new-")
        self.path = made.replace("paceline-new-", f"paceline-{kind}-")
        self._lock = os.open(f"{made}/{_LOCK}", os.O_RDWR | os.O_CREAT | PLAIN, 0o600)
        with contextlib.suppress(OSError):
            lock(self._lock)
        if WINDOWS:  # which renames no folder of an open file
            os.close(self._lock)
        # Only now has it a name by which others find it: it is locked.
        Path(made).rename(self.path)

    def remove(self) -> None:
        """Remove it and all in it."""
        if not WINDOWS:
            os.close(self._lock)
        shutil.rmtree(self.path, ignore_errors=True)

    def __enter__(self) -> str:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()


@cache
def remove_leftovers() -> None:
    """Remove what killed processes of this user left, once in this process."""
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
    """Tell whether the process that made a folder has ended; where that is not known, after a day.

    `BlockingIOError` if it has not.
    """
    old = time.time() - folder.lstat().st_mtime > _DAY
    try:
        file = os.open(folder / _LOCK, os.O_RDWR | NO_LINK)
    except FileNotFoundError:
        return old
    try:
        # On Windows none is kept locked.
        return (lock(file) and not WINDOWS) or old
    finally:
        os.close(file)


def _remove_semaphores() -> None:
    """Remove names of semaphores that no process has any more."""
    now, found = time.time(), {}
    for entry in os.scandir(_SEMAPHORES):
        if entry.name.startswith(_PREFIXES):
            status = entry.stat(follow_symlinks=False)
            if is_own(status) and now - status.st_mtime > _NEW:
                found[status.st_ino] = entry, now - status.st_mtime
    if not found:
        return
    # Another container may share them whose processes are not seen.
    sees_all = os.stat("/proc/self/ns/pid").st_ino == _ALL_PROCESSES
    used, complete = _mapped_semaphores()
    for number, (entry, age) in found.items():
        maker = _MAKER.match(entry.name)
        ended = maker is not None and not os.path.exists(f"/proc/{maker[1]}")
        if number not in used and ((sees_all and (complete or ended)) or age > _DAY):
            with contextlib.suppress(OSError):
                os.unlink(entry.path)


def _mapped_semaphores() -> tuple[set[int], bool]:
    """Find the inodes of semaphores that processes of this user have mapped.

    By name they are not found: the C library maps one before it has its name. The second is False
    where a process does not let itself be looked at.
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
        except OSError:  # it has ended
            pass
        else:
            lines = (line for line in text.splitlines() if f"{_SEMAPHORES}/sem." in line)
            found.update(int(line.split()[4]) for line in lines)
    return found, complete
