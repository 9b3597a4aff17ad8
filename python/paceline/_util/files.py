"""Write files that get their final name only when they are complete."""

import contextlib
import fnmatch
import glob
import io
import itertools
import os
import re
import stat
import time
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, NamedTuple

from paceline._util.os_calls import NO_LINK
from paceline._util.signals import Stopping
from paceline.errors import UnsupportedError, UnwritableError, warn, with_hint

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK
#: Error handler for file names that are not valid UTF-8; Python's standard error uses it too.
_ESCAPED = "backslashreplace"
_RANDOM_BYTES = 8
#: Scheme of a URL. It has two letters or more, because a single letter is a Windows drive.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
#: Schemes of addresses from which trajectories and topologies are read.
SCHEMES = ("s3", "gs", "az", "http", "https")
#: Prefixes of the names of environment variables with settings of object stores.
_STORE_SETTINGS = (
    *("AWS_", "AZURE_", "GOOGLE_", "IDENTITY_", "HF_", "NETRC", "SSL_CERT_"),
    *("PACELINE_ANONYMOUS", "PACELINE_RETRY", "PACELINE_PRIVATE_REDIRECTS"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
)
#: Age above which a temporary file may have been left by a killed process, seconds.
_LEFT = 60.0
#: Maximum length of a file name to which a suffix can be added, bytes.
_LONG_NAME = 200


@contextlib.contextmanager
def new_file(
    path: str | os.PathLike,
    *,
    overwrite: bool = False,
    binary: bool = False,
    temporary: Path | None = None,
) -> Iterator[IO[Any]]:
    """Open a file that gets its final name when the `with` block ends without an error.

    The file is text unless `binary`; apply `escaped` to file names in the text. If other processes
    write to the file too, pass its temporary name (from `temporary_name`) as `temporary`.
    Raises `FileExistsError` if a file of the final name exists and may not be replaced.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "table.csv"
    >>> with new_file(path) as file:
    ...     _ = file.write("frame,RMSD")
    >>> path.read_text()
    'frame,RMSD'
    """
    mode, encoding, errors, newline = (
        ("wb", None, None, None) if binary else ("w", "utf-8", _ESCAPED, "")
    )
    with (
        new_files(
            [path], overwrite=overwrite, names=None if temporary is None else [temporary]
        ) as [made],
        writing_to(path),
        open(made, mode, encoding=encoding, errors=errors, newline=newline) as file,
    ):
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def new_files(
    paths: Sequence[str | os.PathLike],
    *,
    overwrite: bool = False,
    names: Sequence[Path] | None = None,
) -> Iterator[list[Path]]:
    """Create files that all get their final names if the `with` block ends without an error.

    Yields the temporary paths: `names` if given, each made by `temporary_name`. Unlike `new_file`,
    this function does not flush the files to the disk: they may be large, and can be made again.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with new_files([folder / "a", folder / "b"]) as temporaries:
    ...     for temporary in temporaries:
    ...         _ = temporary.write_text("part")
    >>> sorted(path.name for path in folder.iterdir())
    ['a', 'b']
    """
    check_distinct(*paths)
    for path in paths:
        check_output(path, overwrite=overwrite)
    made: list[Path] = []
    try:
        for path, name in zip(paths, names or map(temporary_name, paths), strict=True):
            with writing_to(path):
                made.append(name)
                os.close(create_temporary(name, path))
        yield made.copy()
        files = [_Made(*one, overwrite) for one in zip(paths, made, strict=True)]
        if (saving := _saving.get()()) is None:
            _publish_all(files)
        else:
            saving.files.extend(files)
    except BaseException:
        _remove(made)
        raise


class _Made(NamedTuple):
    """Complete file with a temporary name."""

    path: str | os.PathLike
    name: Path
    overwrite: bool


class Saving:
    """Files that get their final names together."""

    def __init__(self) -> None:
        self.files: list[_Made] = []
        self._old: list[Path] = []

    def replace(self, paths: Iterable[Path]) -> None:
        """Delete `paths` that no new file replaces, at the time when the files are published."""
        self._old.extend(paths)

    def publish(self) -> None:
        """Rename all files to their final names, and delete the old files of `replace`."""
        check_distinct(*(file.path for file in self.files))
        _publish_all(self.files)
        new = {_target(file.path) for file in self.files}
        _remove(path for path in self._old if _target(path) not in new and path.is_file())


#: Weak reference to the files of the outermost `saved_together` block. If Ctrl-C prevents the reset
#: of this variable, the reference becomes invalid, so that later files do not wait for this block.
_saving: ContextVar[Callable[[], Saving | None]] = ContextVar("saving", default=lambda: None)


@contextlib.contextmanager
def saved_together(done: Callable[[], None] | None = None) -> Iterator[Saving]:
    """Rename all files to their final names together, if the `with` block ends without an error.

    This applies to all files that `new_file` and `new_files` create within the block. Nested blocks
    act as one: the files are renamed when the outermost block ends. `done` is called afterwards.
    Ctrl-C and SIGTERM are delayed while the files are renamed and `done` runs.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with saved_together():
    ...     with new_file(folder / "a") as file:
    ...         _ = file.write("first")
    ...     print((folder / "a").exists())
    False
    >>> (folder / "a").exists()
    True
    """
    of_outer = _saving.get()
    outer = of_outer()
    saving = outer or Saving()
    n_before = len(saving.files)
    try:
        _saving.set(weakref.ref(saving))
        yield saving
        if outer is None:
            with Stopping() as stopping, stopping.delayed():
                saving.publish()
                if done is not None:
                    done()
    except BaseException:
        _remove(file.name for file in saving.files[n_before:])
        del saving.files[n_before:]
        raise
    finally:
        _saving.set(of_outer)


def _publish_all(files: Sequence[_Made]) -> None:
    """Rename all files to their final names; after an error, remove those that replaced no file."""
    for file in files:
        check_output(file.path, overwrite=file.overwrite)
    # Final names under which no file existed before.
    taken: list[Path] = []
    try:
        for path, name, _ in files:
            if not os.path.exists(path):
                taken.append(_target(path))
            with writing_to(path):
                publish(name, path)
    except BaseException:
        left = [name for _, name, _ in files if os.path.lexists(name)]
        # Files that have replaced another file are kept, because the other file no longer exists.
        # If all files were renamed, all are kept.
        if left:
            _remove(taken)
        raise


def _remove(paths: Iterable[Path]) -> None:
    """Delete files that still exist."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            # In a read-only folder, `unlink` of a missing file raises another error.
            if os.path.lexists(path):
                os.unlink(path)


def temporary_name(path: str | os.PathLike) -> Path:
    """Make a hidden, unpredictable name in the folder of a file to be created."""
    # Same method as `secrets`, whose import takes a twentieth of the time of `paceline --help`.
    return _target(path).with_name(f"{_temporary_prefix(path)}{os.urandom(_RANDOM_BYTES).hex()}")


def _target(path: str | os.PathLike) -> Path:
    """Resolve links, so that the target of a link is created or replaced, not the link."""
    return Path(os.path.realpath(path))


def _temporary_prefix(path: str | os.PathLike) -> str:
    """Return the first part of the names of a path's temporary files."""
    name = _target(path).name
    if len(encoded := os.fsencode(name)) > _LONG_NAME:
        name = f"{name[: _LONG_NAME // 8]}~{zlib.crc32(encoded):08x}"
    return f".{name}."


def create_temporary(name: Path, path: str | os.PathLike) -> int:
    """Create a temporary file, and open it for reading and writing; return its descriptor.

    Fails if the name exists, so that no other process can have placed a file or link there. If the
    final name exists, its file may be private, so other users cannot read the temporary file.
    """
    check_regular(path)
    return os.open(name, _NEW, 0o600 if os.path.exists(path) else 0o666)


def publish(name: Path, path: str | os.PathLike) -> None:
    """Rename a temporary file to its final name, with the permissions of the file it replaces."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(path).st_mode & 0o777
        descriptor = os.open(name, os.O_RDONLY | NO_LINK)
        try:
            os.chmod(descriptor if os.chmod in os.supports_fd else name, mode)
        finally:
            os.close(descriptor)
    os.replace(name, _target(path))


def remove_leftovers(path: str | os.PathLike) -> None:
    """Delete temporary files of killed processes; safe if no other process writes to this path."""
    for _, entry in _temporary_files([path]):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(entry.path)


def _temporary_files(
    paths: Iterable[str | os.PathLike],
) -> list[tuple[str | os.PathLike, os.DirEntry[str]]]:
    """List temporary files, each with the path of its final file; read each folder only once."""
    known: dict[Path, dict[str, str | os.PathLike]] = {}
    for path in paths:
        known.setdefault(_target(path).parent, {})[_temporary_prefix(path)] = path
    pattern, found = re.compile(rf"(\..+\.)[0-9a-f]{{{2 * _RANDOM_BYTES}}}", re.DOTALL), []
    for folder, prefixes in known.items():
        with os.scandir(folder) as entries:
            for entry in entries:
                match = pattern.fullmatch(entry.name)
                if match and match[1] in prefixes:
                    found.append((prefixes[match[1]], entry))
    return found


def warn_of_leftovers(paths: Iterable[str | os.PathLike]) -> None:
    """Warn of temporary files of these paths that killed processes may have left.

    The files are not deleted, because an invisible process on another host may still write them.
    Listing a folder takes time, so call this function only for large files, which are few.
    """
    with contextlib.suppress(OSError):
        for path, entry in _temporary_files(paths):
            state = entry.stat(follow_symlinks=False)
            age, size = time.time() - state.st_mtime, state.st_size / 1e6
            if age > _LEFT:
                warn(
                    f"{os.fspath(path)}: the temporary file {entry.name} of {size:,.1f} MB, last "
                    f"written {age / 60:,.0f} min ago, is left of a run that was killed, unless a "
                    "run still writes it: then wait, otherwise delete it"
                )


@contextlib.contextmanager
def writing_to(path: str | os.PathLike) -> Iterator[None]:
    """Put `path` into operating-system errors that name no file or a temporary file of `path`."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno is None:
            # If `filename` were set, Python would print it instead of the text of this error.
            raise OSError(f"{os.fspath(path)}: {error}") from error
        # Errors about other files that the block reads keep their file names.
        named = os.path.basename(str(error.filename))
        if error.filename is None or named.startswith(_temporary_prefix(path)):
            error.filename = os.fspath(path)
        raise


@contextlib.contextmanager
def naming_file(path: str | os.PathLike) -> Iterator[None]:
    """Put the file name before the message of an `UnwritableError`."""
    try:
        yield
    except UnwritableError as error:
        raise UnwritableError(f"{os.fspath(path)}: {error}") from None


class FileAtOffset(io.RawIOBase):
    """Base class of file objects for HDF5; stores the offset of the next read or write."""

    def __init__(self, size: int):
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the offset of the next read or write, bytes."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the offset of the next read or write; return it."""
        self._at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence] + offset
        return self._at


#: Maximum number of file names that are compared with a pattern.
MOST_NAMES = 100_000
#: Folders in which all files of this process must be; empty if all folders are allowed.
_folders: tuple[str, ...] = ()
#: False if this process may not read from stores and servers.
_may_use_stores = True


def confine_to(folder: str | os.PathLike, scratch: str | os.PathLike, *, stores: bool) -> None:
    """From now on, refuse files outside of the folders `folder` and `scratch` in this process.

    `check_local` refuses their paths. Unless `stores` is True, `is_address` refuses addresses.
    """
    global _folders, _may_use_stores
    _folders, _may_use_stores = (os.path.realpath(folder), os.path.realpath(scratch)), stores


def is_confined() -> bool:
    """True if this process may only use files in the folders that `confine_to` allows."""
    return bool(_folders)


def is_address(path: str | os.PathLike) -> bool:
    """Return true if a path is the address of an object in a store or on a server.

    Raises `UnsupportedError` for such an address if this process may not use stores.

    Examples
    --------
    >>> is_address("s3://bucket/md.xtc"), is_address("md.xtc")
    (True, False)
    """
    name = os.fspath(path)
    found = (
        isinstance(name, str)
        and name.split("://", 1)[0] in SCHEMES
        and "://" in name
        and not os.path.lexists(name)
    )
    if found and not _may_use_stores:
        raise UnsupportedError(f"{name!s}: addresses of stores are not allowed here")
    return found


def is_stream(name: object) -> bool:
    """True for the address of a running simulation.

    Examples
    --------
    >>> is_stream("imd://localhost"), is_stream("md.xtc")
    (True, False)
    """
    return isinstance(name, str) and name.startswith("imd://")


def store_settings() -> dict[str, str]:
    """Return the environment variables with settings of object stores."""
    return {name: value for name, value in os.environ.items() if name.startswith(_STORE_SETTINGS)}


def check_inside(
    path: str | os.PathLike, folder: str | os.PathLike, *others: str | os.PathLike
) -> None:
    """Raise `UnsupportedError` if a path, with its links resolved, is outside of all the folders.

    Examples
    --------
    >>> check_inside("md/../md.xtc", ".")
    """
    inside = os.path.realpath(folder)
    found = os.path.realpath(os.path.join(inside, os.fspath(path)))
    allowed = (inside, *map(os.path.realpath, others))
    if not any(os.path.commonpath([one, found]) == one for one in allowed):
        error = UnsupportedError(
            f"{os.fspath(path)}: it is outside of the folder {inside}, to which commands are "
            "confined"
        )
        vars(error)["path"] = os.fspath(path)
        raise with_hint(error, "name a file in this folder", ": ")


def check_pattern(text: str, folder: str | os.PathLike, *others: str | os.PathLike) -> None:
    """Raise `UnsupportedError` if a pattern matches files outside of all the folders.

    Each folder is checked before its files are listed. The check ends after `MOST_NAMES` names,
    because the text may not be a pattern of files at all. Files that match later are still safe,
    because each file is checked again when it is opened.
    """
    fixed, names = Path(folder), list(Path(text).parts)
    while names and not glob.has_magic(names[0]):
        fixed /= names.pop(0)
    left, waiting = MOST_NAMES, [(fixed, names)]
    while waiting and left > 0:
        at, names = waiting.pop()
        check_inside(at, folder, *others)
        if not names:
            continue
        if not glob.has_magic(names[0]):
            waiting += [(at / names[0], names[1:])] if os.path.lexists(at / names[0]) else []
            continue
        found = []
        with contextlib.suppress(OSError), os.scandir(at) as entries:
            found = [one.name for one in itertools.islice(entries, left)]
        left -= len(found)
        is_hidden = names[0].startswith(".")
        waiting += [
            (at / name, names[1:])
            for name in fnmatch.filter(found, names[0])
            if name.startswith(".") == is_hidden
        ]


def check_local_pattern(text: str) -> None:
    """Raise `UnsupportedError` if a pattern matches files that this process may not use."""
    if _folders:
        check_pattern(os.path.join(os.getcwd(), text), *_folders)


def check_local(path: str | os.PathLike) -> None:
    """Raise `UnsupportedError` for a URL, which would otherwise be taken for a relative path.

    If this process is confined to a folder, paths outside of it are refused, too.

    Examples
    --------
    >>> check_local("md.xtc")
    """
    if _folders:
        check_inside(os.path.abspath(path), *_folders)
    check_no_url(path)


def check_no_url(path: str | os.PathLike) -> None:
    """Raise `UnsupportedError` for a URL, but not for a file outside of the allowed folders.

    Examples
    --------
    >>> check_no_url("md.xtc")
    """
    name = os.fspath(path)
    found = _URL.match(name) if isinstance(name, str) else None
    if found and not os.path.lexists(name) and not os.path.isdir(os.path.dirname(name)):
        # If the URL has passed through `Path`, only one of its two slashes is left.
        scheme, rest = found[1].lower(), name[found.end() :].lstrip("/")
        advice = "copy it to a disk first"
        if scheme in SCHEMES:
            advice = (
                "trajectories and topologies are read from addresses, other files are not, and "
                "none is written there: give the path of a local file"
            )
            if found[1] not in SCHEMES:
                advice = f"write {scheme} in small letters"
        if scheme == "imd":
            advice = "only analyses and batteries read a running simulation"
        if scheme == "file":
            rest = f"/{rest}"
            advice = f"give its path, {rest}"
        raise UnsupportedError(
            f"{scheme}://{rest}: expected a file of this machine, found a URL: {advice}"
        )


def local_path(path: str | os.PathLike) -> str:
    """Make a path absolute; raise `UnsupportedError` for a URL."""
    check_local(path)
    return os.path.abspath(path)


def source_path(path: str | os.PathLike) -> str:
    """Make a path absolute; return the address of an object in a store unchanged."""
    return os.fspath(path) if is_address(path) else local_path(path)


def create_growing(path: str | os.PathLike, *, overwrite: bool) -> int:
    """Create a file that others read while it grows, under its final name; return its descriptor.

    Raises the errors of `check_output`.
    """
    check_output(path, overwrite=overwrite)
    target = os.path.realpath(path)
    with writing_to(path):
        if overwrite and os.path.lexists(target):
            os.unlink(target)  # programs that have opened the old file can still read it
        return os.open(target, _NEW, 0o666)


def check_output(path: str | os.PathLike, *, overwrite: bool) -> None:
    """Raise an error before the run, rather than after it, if a file cannot be created.

    Raises `FileExistsError` if the file exists and may not be replaced or is not a regular file,
    `IsADirectoryError` if it is a folder, `FileNotFoundError` if its folder does not exist, and
    `PermissionError` if no file can be created in that folder.
    """
    check_local(path)
    if os.path.isdir(path):
        raise _about(path, IsADirectoryError(" is a folder"), "give the name of a file")
    check_regular(path)
    if not overwrite and os.path.lexists(path):
        hint = "it is replaced only with overwrite=True (--overwrite)"
        raise _about(path, FileExistsError(" exists"), hint)
    folder = (_target(path) if os.path.islink(path) else Path(path)).parent
    if not folder.is_dir():
        raise _about(path, FileNotFoundError(f": the folder {folder} does not exist"))
    if not os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        refused = PermissionError(f": the folder {folder} cannot be written to")
        raise _about(path, refused, "name a file in another")


def _about(path: str | os.PathLike, error: OSError, hint: str = "") -> OSError:
    """Add a path before the message of an error and a hint after it; store both as attributes.

    The attribute `filename` is not used: Python sets it only for an `OSError` with a number, and
    then prints another message.
    """
    error.args = (f"{os.fspath(path)}{error}",)
    vars(error)["path"] = os.fspath(path)
    return with_hint(error, hint, ": ") if hint else error


def check_regular(path: str | os.PathLike) -> None:
    """Raise `FileExistsError` if a path is that of a device, a pipe or a socket."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        refused = FileExistsError(" is a pipe or device, which is never replaced")
        raise _about(path, refused, "name a regular file")


def check_distinct(*paths: str | os.PathLike | None) -> None:
    """Raise `UnsupportedError` if two files of a run are the same file; None is ignored.

    Links and different spellings of one file are recognised.
    """
    known: dict[object, str | os.PathLike] = {}
    for path in paths:
        if path is None:
            continue
        marks: set[object] = {os.path.realpath(path)}
        with contextlib.suppress(OSError):
            state = os.stat(path)
            marks.add((state.st_dev, state.st_ino))
        for mark in marks & known.keys():
            names = " and ".join(dict.fromkeys(os.fspath(one) for one in (known[mark], path)))
            raise UnsupportedError(
                f"{names}: one file for two purposes, and one would overwrite the other: name a "
                "different file for each output, figure, report and checkpoint"
            )
        known |= dict.fromkeys(marks, path)


def escaped(text: str) -> str:
    r"""Escape bytes that are not UTF-8 in file names, so that any text file can store the name.

    Examples
    --------
    >>> print(escaped(os.fsdecode(b"run\xff.xtc")))
    run\udcff.xtc
    """
    return text.encode("utf-8", _ESCAPED).decode()
