"""Addresses of files: `s3://`, `gs://`, `az://`, `http://`, `https://` and `file://`."""

import errno
import os
import re
import urllib.parse
from collections.abc import Sequence
from fnmatch import translate
from glob import has_magic
from pathlib import Path

from paceline import _core
from paceline._util.files import SCHEMES, check_local, check_no_url, is_address
from paceline._util.python_object_digest import digest
from paceline.errors import DamagedFileError, UnsupportedError

#: Part of an address that names a version. Its question mark is not a wildcard of a pattern.
_VERSION = re.compile(r"\?(versionId|generation)=[^/]*$")
#: Name of the subfolder of the cache folder for copied files.
_COPIES = "objects"


def source_name(name: str | os.PathLike, folder: str | os.PathLike = "") -> str:
    """Return a file's address or path as text; a relative name is taken relative to `folder`.

    A `file://` address becomes a path.

    Raises `UnsupportedError` for a URL with an unsupported scheme, and for a file that this process
    may not use.

    Examples
    --------
    >>> source_name("file:///data/my%20run/md.xtc")
    '/data/my run/md.xtc'
    """
    text = os.fspath(name)
    if folder and is_address(folder) and not is_address(text):
        text = os.path.join(folder, text)
    if is_address(text):
        if not hasattr(_core, "list_objects"):
            raise UnsupportedError(f"{text}: this build of paceline reads local files only")
        return text
    if isinstance(text, str) and text.startswith("file://") and not os.path.lexists(text):
        path = _local_file(text)
    else:
        scheme, separator, rest = str(text).partition(":/")
        is_cut = bool(separator) and scheme in SCHEMES and rest[:1] != "/"
        if is_cut and not os.path.isdir(f"{scheme}:"):
            raise UnsupportedError(
                f"{text}: expected two slashes after {scheme}:, found one: give the address as "
                "text, because pathlib.Path leaves out a slash"
            )
        check_no_url(text)
        path = os.path.join(folder, text) if folder else text
    check_local(path)
    return path


def _local_file(address: str) -> str:
    """Return the path of a `file://` address on this machine."""
    parts = urllib.parse.urlsplit(address)
    if parts.netloc not in ("", "localhost"):
        raise UnsupportedError(f"{address}: expected a file of this machine: file:///path")
    path = urllib.parse.unquote(address.split("://", 1)[1].removeprefix(parts.netloc))
    # In addresses of Windows, a slash precedes the drive: file:///C:/md.xtc.
    return path[1:] if re.match(r"/[A-Za-z]:/", path) else path


def matching_objects(address: str) -> list[str]:
    """List the addresses of objects in a bucket that match a pattern.

    An address that is no pattern is returned as the only item. Raises `FileNotFoundError` if no
    object matches, and `UnsupportedError` if the pattern names no bucket.
    """
    # Addresses of web servers often contain a question mark, and servers cannot list their files.
    if not has_magic(_VERSION.sub("", address)) or address.startswith(("http://", "https://")):
        return [address]
    fixed = re.split(r"[*?[]", address, maxsplit=1)[0]
    if fixed.count("/") < 3:
        raise UnsupportedError(f"{address}: expected the name of a bucket before the pattern")
    matches = [one for one in _core.list_objects(f"{fixed}*") if _matches(one, address)]
    if not matches:
        raise FileNotFoundError(errno.ENOENT, "no object matches this pattern", address)
    return matches


def _matches(address: str, pattern: str) -> bool:
    """Return True if an address matches a pattern part by part: `*` does not match a slash."""
    parts, patterns = address.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(
        re.match(translate(known), part) for part, known in zip(parts, patterns, strict=True)
    )


def local_copy(name: object, folder: Path | None) -> object:
    """Copy a file at an address into the cache folder, and return the path of the copy.

    An existing copy is reused if the server states versions, and the version is the same. Names of
    local files, and objects that are not names, are not copied.
    """
    if not isinstance(name, str | os.PathLike):
        return name
    given, name = name, source_name(name)
    if not is_address(name):
        return given if name == os.fspath(given) else name
    if folder is None:
        raise UnsupportedError(f"{name}: without a home folder, it cannot be copied: set HOME")
    size, version = _core.object_version(name)
    if size == 0:
        raise DamagedFileError(f"{name}: expected a topology or a trajectory, found an empty file")
    own = folder / _COPIES / digest(f"{name}\n{size}\n{version}")
    file = own / urllib.parse.unquote(_VERSION.sub("", name).split("?")[0].rsplit("/", 1)[1])
    if version is None or not file.exists():
        own.mkdir(parents=True, exist_ok=True)
        temporary = own / f"{os.getpid()}.part"
        temporary.unlink(missing_ok=True)
        try:
            _core.download_object(name, temporary)
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
    return os.fspath(file)


def sizes_of(names: Sequence[str]) -> list[int]:
    """Return the sizes of files, bytes; 0 for addresses, because their sizes are found later."""
    return [0 if is_address(name) else os.stat(name).st_size for name in names]
