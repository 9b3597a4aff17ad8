"""File objects for h5py: the bytes of HDF5 files on local disks and in object stores."""

import io
import os
import stat

from paceline import _core
from paceline._util.files import FileAtOffset, is_address

#: Last error of reading each object in an object store, by address. It is recorded here, because
#: h5py raises another error in its place.
_failed: dict[str, Exception] = {}
#: Number of bytes at the beginning of an object that are searched for the signature of HDF5. The
#: first request returns this many bytes.
_FRONT = 1 << 16


class ObjectFile(FileAtOffset):
    """File object through which the HDF5 library reads an object in an object store."""

    def __init__(self, address: str, samples: bytes | None = None):
        self._address = address
        self._object = _core.ObjectBytes(address, samples)
        super().__init__(self._object.size)

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer with the next bytes of the object; return their number."""
        n_bytes = max(0, min(len(buffer), self._size - self._at))
        try:
            buffer[:n_bytes] = self._object.read(self._at, n_bytes)
        except Exception as error:
            _failed[self._address] = error
            raise
        self._at += n_bytes
        return n_bytes


def open_bytes(path: str | os.PathLike, samples: bytes | None = None) -> io.RawIOBase:
    """Open a file or an object. `samples`, if given, identifies the version of the object."""
    if is_address(path):
        return ObjectFile(os.fspath(path), samples)
    return open(path, "rb", buffering=0)


def raise_failure(path: str) -> None:
    """If h5py could not read an object because of an error of the store, raise that error."""
    if (error := _failed.pop(path, None)) is not None:
        raise error


def end_of_search(path: str | os.PathLike, size: int) -> int:
    """Return the offset up to which a file is searched for the signature of HDF5, bytes."""
    return min(size, _FRONT) if is_address(path) else size


def is_readable(path: str | os.PathLike) -> bool:
    """True for an ordinary file or an object. False for a pipe, which has no size."""
    return is_address(path) or stat.S_ISREG(os.stat(path).st_mode)
