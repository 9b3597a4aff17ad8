"""Confinement of a command to a folder: data outside of it are neither read nor written.

`paceline mcp` runs the commands of its clients in this way. Two checks work together. Paths that
the command line names, and those that batteries and tables name, pass `check_local`, which resolves
links. An audit hook of Python checks files that Python code opens in any other way, such as the
includes of a topology. The hook allows no program except the helper that opens HDF5 files, and no
connection unless object stores are allowed. Threads are confined in the same way. Worker processes
would not be confined, and are not started.
"""

import errno
import glob
import mimetypes
import os
import re
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from paceline._util.files import SCHEMES, check_inside, check_pattern, confine_to
from paceline._util.launcher import BAD_ARGUMENTS
from paceline._util.os_calls import end_when_closed
from paceline.errors import UnsupportedError
from paceline.hdf5.sandbox import HELPER
from paceline.trajectory.open import cache_folder

#: Scheme of a URL: two characters or more, because a single letter is a Windows drive.
_URL = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]+):/")
#: Folders of the system from which Python's libraries read, and single files that they read.
_OF_SYSTEM = (
    *("/usr", "/lib", "/lib64", "/bin", "/proc", "/sys", "/dev", "/System", "/Library"),
    "/etc/fonts",
)
_FILES = frozenset(["/etc/localtime", "/etc/os-release", *mimetypes.knownfiles])
#: Files of the system that contain secrets.
_SECRET = re.compile(r"/proc/.*/(environ|cmdline|mem|maps|fd|cwd|root)\b")
#: Audit events of functions that change files, with the number of paths among their arguments.
_CHANGES = {
    **{"os.remove": 1, "os.rmdir": 1, "os.mkdir": 1, "os.chmod": 1, "os.truncate": 1},
    **{"os.rename": 2, "os.link": 2, "os.symlink": 2, "shutil.rmtree": 1, "shutil.move": 2},
}
#: Packages that start processes, which would not be confined.
_WITH_PROCESSES = ("loky", "distributed", "mpi4py", "joblib")
_NO_PROGRAM = "a confined command starts no program"
_OUTSIDE = "it is outside of the folder to which commands are confined"
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def check_argument(text: str, folder: str | os.PathLike, *, stores: bool) -> None:
    """Raise `UnsupportedError` if a text of a command line leads out of the folder.

    Each text may be a path, so all texts are checked, with links resolved. With `stores`, addresses
    of object stores and servers are allowed. The files of a pattern are checked by `check_pattern`.
    """
    if "\0" in text:
        raise UnsupportedError("expected a text without NUL characters")
    if (found := _URL.match(text)) is not None:
        scheme = found[1].lower()
        if scheme not in SCHEMES or scheme == "file":
            raise UnsupportedError(f"{text}: expected a file, found a URL")
        if not stores:
            raise UnsupportedError(
                f"{text}: addresses of stores are not allowed: 'paceline mcp --stores' allows them"
            )
        return
    check_inside(text, folder)
    if glob.has_magic(text) and ".." in Path(text).parts:
        raise UnsupportedError(f"{text}: expected a pattern without '..'")


def check_command_line(
    words: Sequence[str],
    folder: str | os.PathLike,
    texts: Collection[str] = (),
    *,
    stores: bool,
    matches: bool = True,
) -> None:
    """Raise `UnsupportedError` if a word of a command line leads out of the folder.

    A word may be a value, or an option joined with its value, as in --output=FILE or -oFILE.
    `texts` are options whose values name no file. If `matches` is False, the files that match a
    pattern are not checked.
    """
    for word in words:
        if "\0" not in word and word.partition("=")[0] in texts:
            continue
        is_option = word.startswith("-")
        for text in (word, word.partition("=")[2], word[2:]) if is_option else (word,):
            check_argument(text, folder, stores=stores)
            if matches and glob.has_magic(text) and not _URL.match(text):
                check_pattern(text, folder)


def run_confined(arguments: Sequence[str]) -> int:
    """Run a command, confined to a folder; each job of `paceline mcp` calls this function.

    `arguments` are the number of a pipe whose closing ends this process, the folder, "stores" or
    "", and the command line.
    """
    pipe, folder, stores, *command = arguments
    end_when_closed(int(pipe))
    os.chdir(folder)
    confine_to(folder, tempfile.gettempdir(), stores=bool(stores))
    from paceline.cli.command_line import main, parser_of
    from paceline.cli.json_output import Answer, failure_of

    sys.addaudithook(_Watch(folder, stores=bool(stores)).check)
    texts = parser_of(command[:1]).of_command(command[0]).text_options
    try:
        check_command_line(command, folder, texts, stores=bool(stores))
    except UnsupportedError as error:
        Answer(command[0]).print(failure=failure_of(error, f"{error}"))
        return BAD_ARGUMENTS
    return main(command)


class _Watch:
    """Audit hook that refuses files outside of the folder, programs, and connections."""

    def __init__(self, folder: str, *, stores: bool):
        home = Path(os.environ.get("HOME") or "/nonexistent")
        own = [os.path.realpath(folder), os.path.realpath(tempfile.gettempdir()), "/dev/shm"]
        caches: list[Path | None] = [
            cache_folder(),
            home / ".config" / "matplotlib",
            home / ".cache" / "matplotlib",
        ]
        configured = os.environ.get("MPLCONFIGDIR")
        own += [os.path.realpath(path) for path in (*caches, configured) if path]
        package = Path(__file__).resolve().parents[1]
        installed = [sys.prefix, sys.base_prefix, sys.exec_prefix, f"{package}"]
        # Of sys.path, only folders of packages are readable, because sys.path may also contain the
        # folder in which the server was started, such as a home folder.
        installed += [path for path in sys.path if "site-packages" in Path(path).parts]
        installed += [os.path.realpath(path) for path in installed if path]
        shared: list[str | Path] = [
            *_OF_SYSTEM,
            home / ".fonts",
            home / ".local" / "share" / "fonts",
        ]
        self._writable = _roots(own)
        self._readable = _roots([*own, *installed, *shared])
        self._stores = stores

    def check(self, event: str, arguments: tuple[object, ...]) -> None:
        """Raise `PermissionError` for an audit event that a confined command may not cause."""
        if event == "open":
            path, _, flags = arguments
            self._check_path(path, writes=isinstance(flags, int) and bool(flags & _WRITING))
        elif event in ("os.listdir", "os.scandir"):
            # Python lists folders of sys.path to find packages, and skips those that it cannot
            # list.
            self._check_path(arguments[0], writes=False, lists=True)
        elif event in _CHANGES:
            for path in arguments[: _CHANGES[event]]:
                self._check_path(path, writes=True)
        elif event == "subprocess.Popen":
            # Allow only the helper that opens HDF5 files; its callers check the paths that it gets.
            words = arguments[1]
            if arguments[0] != sys.executable or not isinstance(words, list) or HELPER not in words:
                raise PermissionError(errno.EACCES, _NO_PROGRAM, f"{arguments[0]!r}")
        elif event == "import" and arguments[0] in _WITH_PROCESSES:
            raise PermissionError(errno.EACCES, "a confined command starts no worker processes")
        elif event in ("os.system", "os.exec", "os.posix_spawn", "os.startfile"):
            raise PermissionError(errno.EACCES, _NO_PROGRAM)
        elif event == "socket.connect" and not self._stores:
            raise PermissionError(errno.EACCES, "a confined command opens no connection")

    def _check_path(self, path: object, *, writes: bool, lists: bool = False) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # the number of an open file, or None for the current folder
        end = os.sep if lists else ""
        name = os.path.abspath(os.fsdecode(path)) + end
        roots = self._writable if writes else self._readable
        # To save time, links are not resolved for files of Python itself, which are many.
        if not writes and name.startswith(self._readable) and not name.startswith(self._writable):
            allowed = _SECRET.match(name) is None
        else:
            allowed = (os.path.realpath(name) + end).startswith(roots) or name == os.devnull
            allowed |= name in _FILES and not writes
        if not allowed:
            # Libraries expect the error number that the operating system would return.
            raise PermissionError(errno.EACCES, _OUTSIDE, name)


def _roots(folders: Sequence[str | os.PathLike | None]) -> tuple[str, ...]:
    """Return folders with a separator at their end, without relative ones and the root folder."""
    names = (os.fspath(folder) for folder in folders if folder)
    found = {name.rstrip(os.sep) + os.sep for name in names if os.path.isabs(name)}
    return tuple(sorted(found - {os.sep}))
