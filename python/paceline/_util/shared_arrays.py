"""Arrays that are sent to workers: as places in a shared file, or as numbers."""

import tempfile
import threading
from typing import IO, Protocol

import numpy as np
from numpy.lib.array_utils import byte_bounds

from paceline._util.os_calls import CAN_SHARE, SharedFile, reserve, write_at

#: Minimum size of an array that processes of this machine read from a file, bytes.
LARGE_PART = 2**14

#: Shared file, byte range, and the start, shape, strides and dtype of an array within the range.
Place = tuple[SharedFile, tuple[int, int], int, tuple[int, ...], tuple[int, ...], str]


class HasPlaces(Protocol):
    """File from which processes of this machine read arrays."""

    def place(self, array: np.ndarray) -> Place | None:
        """Return the place of an array in the file; None if it is not there."""


class Part:
    """Array, pickled as a place in a file if it is large and in the file, else as numbers."""

    def __init__(self, array: np.ndarray, file: HasPlaces | None = None):
        self.array, self._file = array, file

    def __reduce__(self) -> tuple[object, ...]:
        if self._file is not None and self.array.nbytes >= LARGE_PART:
            place = self._file.place(self.array)
            if place is not None:
                return _read_part, place
        return Part, (np.ascontiguousarray(self.array),)


def _read_part(
    shared: SharedFile,
    bounds: tuple[int, int],
    start: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: str,
) -> Part:
    """Map a part of a file of another process of this machine."""
    with shared.open() as file:
        offset, size = bounds
        mapped = np.memmap(file, np.uint8, "r", offset, size)
    return Part(np.ndarray(shape, dtype, mapped, start, strides))


def place_of(
    view: np.ndarray, mapped: np.ndarray, descriptor: int, offset: int = 0
) -> Place | None:
    """Return the place of a view of an array that is mapped to an open file.

    The array begins at `offset` in the file. Returns None if the other array is not a view of it.
    """
    begin, end = byte_bounds(mapped)
    first, last = byte_bounds(view)
    if not begin <= first < last <= end:
        return None
    start = view.__array_interface__["data"][0] - first
    bounds = offset + first - begin, last - first
    shared = SharedFile.of(descriptor)
    return shared, bounds, start, view.shape, view.strides, view.dtype.str


class WrittenArrays:
    """Anonymous temporary file to which arrays are written one after another."""

    def __init__(self, file: IO[bytes]):
        self._file, self._end = file, 0
        self._lock = threading.Lock()

    @classmethod
    def make(cls) -> "WrittenArrays | None":
        """Make the file; None if no file can be made, or processes cannot open it."""
        try:
            return cls(tempfile.TemporaryFile(buffering=0)) if CAN_SHARE else None
        except OSError:
            return None

    def place(self, array: np.ndarray) -> Place | None:
        """Write an array; None if free disk space is insufficient."""
        array = np.ascontiguousarray(array)
        data = array.reshape(-1).view(np.uint8).data
        descriptor = self._file.fileno()
        with self._lock:
            offset = self._end
            try:
                reserve(descriptor, offset, array.nbytes)
            except OSError:
                return None
            self._end += array.nbytes
        at = offset
        while data:
            n_bytes = write_at(descriptor, data, at)
            data, at = data[n_bytes:], at + n_bytes
        bounds = offset, array.nbytes
        return SharedFile.of(descriptor), bounds, 0, array.shape, array.strides, array.dtype.str


class MappedAgain:
    """File behind a memory-mapped array, for processes that map it too."""

    #: Number of samples that must be equal in the array and in the file.
    SAMPLES = 16

    def __init__(self, mapped: np.memmap, file: IO[bytes]):
        self._mapped, self._file = mapped, file

    @classmethod
    def of(cls, array: np.ndarray) -> "MappedAgain | None":
        """Open the file of an array or of a view; None if it is not such an array.

        None also if the file at the path is another one by now, or if changes of the array do not
        reach it.
        """
        mapped = _mapped_base(array)
        if not CAN_SHARE or mapped is None or mapped.mode == "c" or mapped.filename is None:
            return None
        try:
            found = cls(mapped, open(mapped.filename, "rb", buffering=0))  # noqa: SIM115
        except OSError:
            return None
        return found if found._is_same() else None

    def _is_same(self) -> bool:
        """Compare samples of the array with the file."""
        data = self._mapped.reshape(-1, order="A").view(np.uint8)
        size = min(4096, len(data))
        for first in np.linspace(0, len(data) - size, self.SAMPLES).astype(int).tolist():
            self._file.seek(self._mapped.offset + first)
            if self._file.read(size) != data[first : first + size].tobytes():
                return False
        return True

    def place(self, array: np.ndarray) -> Place | None:
        """Return the place of a view of the array."""
        return place_of(array, self._mapped, self._file.fileno(), self._mapped.offset)


def _mapped_base(array: np.ndarray) -> np.memmap | None:
    """Find the memory-mapped array of which an array is a view: the last one with a map."""
    found: np.memmap | None = None
    base: object = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            found = base
        base = base.base
    # The attributes of a view are those of its base, and so is `offset`, which is wrong there.
    return found if found is not None and type(found.base).__name__ == "mmap" else None
