"""Send arrays to workers as positions in a shared file, or by value."""

import tempfile
import threading
from typing import IO, Protocol

import numpy as np
from numpy.lib.array_utils import byte_bounds

from paceline._util.os_calls import CAN_SHARE, SharedFile, reserve, write_at

#: Arrays of at least this size are read from a shared file, bytes.
LARGE_ARRAY = 2**14

#: Position of an array: shared file, byte range, and start, shape, strides and dtype in the range.
Place = tuple[SharedFile, tuple[int, int], int, tuple[int, ...], tuple[int, ...], str]


class ArrayStore(Protocol):
    """File from which other processes of this machine can read arrays."""

    def place(self, array: np.ndarray) -> Place | None:
        """Return the position of an array in the file; None if the file does not contain it."""


class SharedArray:
    """Array that is pickled by reference to a shared file if the file stores it, else by value."""

    def __init__(self, array: np.ndarray, file: ArrayStore | None = None):
        self.array, self._file = array, file

    def __reduce__(self) -> tuple[object, ...]:
        if self._file is not None and self.array.nbytes >= LARGE_ARRAY:
            place = self._file.place(self.array)
            if place is not None:
                return _read_shared_array, place
        return SharedArray, (np.ascontiguousarray(self.array),)


def _read_shared_array(
    shared: SharedFile,
    bounds: tuple[int, int],
    start: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: str,
) -> SharedArray:
    """Memory-map part of a file that another process of this machine shares."""
    with shared.open() as file:
        offset, size = bounds
        mapped = np.memmap(file, np.uint8, "r", offset, size)
    return SharedArray(np.ndarray(shape, dtype, mapped, start, strides))


def place_of(
    view: np.ndarray, mapped: np.ndarray, descriptor: int, offset: int = 0
) -> Place | None:
    """Return the position of `view` in an open file that the array `mapped` maps.

    `mapped` begins at `offset` in the file. Returns None if `view` is not a view of `mapped`.
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
        """Create the file; None if it cannot be created or other processes cannot open it."""
        try:
            return cls(tempfile.TemporaryFile(buffering=0)) if CAN_SHARE else None
        except OSError:
            return None

    def place(self, array: np.ndarray) -> Place | None:
        """Write an array and return its position; None if free disk space is insufficient."""
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
    """File of a memory-mapped array, which other processes map too."""

    #: Number of byte ranges in which the array and the file are compared.
    SAMPLES = 16

    def __init__(self, mapped: np.memmap, file: IO[bytes]):
        self._mapped, self._file = mapped, file

    @classmethod
    def of(cls, array: np.ndarray) -> "MappedAgain | None":
        """Open the file of a memory-mapped array or its view; None for any other array.

        Also returns None if the file at the path has been replaced, or if changes of the array are
        not written to the file.
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
        """Compare the array with the file in some byte ranges."""
        data = self._mapped.reshape(-1, order="A").view(np.uint8)
        size = min(4096, len(data))
        for first in np.linspace(0, len(data) - size, self.SAMPLES).astype(int).tolist():
            self._file.seek(self._mapped.offset + first)
            if self._file.read(size) != data[first : first + size].tobytes():
                return False
        return True

    def place(self, array: np.ndarray) -> Place | None:
        """Return the position in the file of a view of the mapped array; None for other arrays."""
        return place_of(array, self._mapped, self._file.fileno(), self._mapped.offset)


def _mapped_base(array: np.ndarray) -> np.memmap | None:
    """Find the memory-mapped array behind a view: the last base that has a map."""
    found: np.memmap | None = None
    base: object = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            found = base
        base = base.base
    # A view copies the attributes of its base, including `offset`, which is wrong for the view.
    return found if found is not None and type(found.base).__name__ == "mmap" else None
