"""A dataset of an open HDF5 file."""

import contextlib
import math
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from paceline.errors import DamagedFileError, UnsupportedError
from paceline.hdf5.apart import allow
from paceline.hdf5.catalogue import Filter
from paceline.hdf5.faults import H5PY_ERRORS, asking, damaged
from paceline.hdf5.node import SMALL, Node
from paceline.hdf5.plain import plain, text_of

if TYPE_CHECKING:
    from paceline.hdf5.native import File

#: Largest number of bytes that a byte of deflate's can stand for.
DEFLATE_RATIO = 1032
#: Offset of a chunk whose own cannot be believed: no file has such a byte.
NOWHERE = 2**64 - 1
#: Seconds in which a chunk is found, and in which one is read, at the most.
_FINDING, _READING = 2e-4, 1e-3


class Array(Node):
    """A dataset of any kind of elements.

    Attributes
    ----------
    shape : tuple of int
        Of the whole.
    dtype : numpy.dtype
        Of one element; `object` for text.
    """

    def __init__(self, file: "File", name: str, h5: Any):
        super().__init__(file, name, h5)
        with asking(file.path, name, "a dataset of a kind that NumPy knows"):
            self.dtype: np.dtype = h5.dtype
            self.shape: tuple[int, ...] = h5.shape or ()

    @property
    def is_text(self) -> bool:
        """Whether its elements are strings."""
        return h5py.check_string_dtype(self.dtype) is not None

    @property
    def names_of_values(self) -> dict[int, str] | None:
        """Of an enumeration, the name of each number; else None."""
        values = h5py.check_enum_dtype(self.dtype)
        return None if values is None else {int(number): name for name, number in values.items()}

    def read(self, rows: slice = slice(None)) -> Any:
        """Its elements, all at once: for what is small.

        Parameters
        ----------
        rows : slice
            Along the first axis.

        Returns
        -------
        numpy.ndarray, or str, int or float
            Text is str, in arrays of `object`; of a dataset without axes, the one element.

        Raises
        ------
        DamagedFileError
            It cannot be read, or claims to be larger than its bytes in the file could be.
        """
        self.refuse_absurd()
        chunks = zip(self.shape, self.chunk or self.shape, strict=True)
        allow(math.prod(-(-n // max(c, 1)) for n, c in chunks) * _READING)
        with asking(self.file.path, self.name):
            values = self._h5[rows] if self.shape else self._h5[()]
        if self.is_text and isinstance(values, np.ndarray):
            texts = np.empty(values.shape, dtype=object)
            texts.ravel()[:] = [text_of(value) for value in values.ravel()]
            return texts
        return values if self.shape else plain(values)

    def refuse_absurd(self) -> None:
        """Raise where it claims to be larger than its bytes in the file could be.

        Raises
        ------
        DamagedFileError
            It does: memory is not to be asked for on a file's word alone.
        """
        claimed = math.prod(self.shape) * max(self.dtype.itemsize, 1)
        room = self.stored_bytes * (DEFLATE_RATIO if self.filters or self.elsewhere else 1)
        if claimed > max(room, SMALL):
            raise damaged(
                self.file.path,
                self.name,
                f"{claimed} bytes in an array of shape {self.shape}",
                f"room for {room} at the most",
            )

    def part(self, *axes: slice) -> np.ndarray:
        """Some of its elements, as they are in the file.

        Parameters
        ----------
        *axes : slice
            Along the first axes; all along the others.

        Returns
        -------
        numpy.ndarray
        """
        together = self._h5.collective if self.file.collective else contextlib.nullcontext()
        with asking(self.file.path, self.name), together:
            return self._h5[axes]

    def damaged(self, expected: str, found: str) -> DamagedFileError:
        """An error that says what is wrong with it."""
        return damaged(self.file.path, self.name, expected, found)

    @property
    def chunk(self) -> tuple[int, ...] | None:
        """Shape of a chunk; None where there are none."""
        return self._h5.chunks

    @property
    def filters(self) -> tuple[Filter, ...]:
        """Through which the bytes of its chunks went, the first first."""
        with asking(self.file.path, self.name, "a list of filters"):
            created = self._h5.id.get_create_plist()
            stages = [created.get_filter(k) for k in range(created.get_nfilters())]
            return tuple(
                Filter(number, text_of(name), tuple(values)) for number, _, values, name in stages
            )

    def refuse_unknown_filters(self) -> None:
        """Raise where HDF5 does not know how its bytes are to be unpacked.

        Raises
        ------
        UnsupportedError
            It names the filter.
        """
        for stage in self.filters:
            if h5py.h5z.filter_avail(stage.number):
                continue
            with contextlib.suppress(ImportError):
                # Those of many others, which HDF5 knows from then on.
                import hdf5plugin  # noqa: F401
            if not h5py.h5z.filter_avail(stage.number):
                raise UnsupportedError(
                    f"{self.file.path}: {self.name} went through the filter {stage.name!r} "
                    f"({stage.number}), which HDF5 does not know here: pip install hdf5plugin, "
                    "which has most"
                )

    @property
    def offset(self) -> int | None:
        """Where a contiguous dataset begins, bytes; None where it was never written."""
        with asking(self.file.path, self.name, "an offset"):
            return self._h5.id.get_offset()

    @property
    def fill(self) -> bytes:
        """One number as the file holds it: what stands where nothing was written."""
        with asking(self.file.path, self.name, "a fill value"):
            return np.asarray(self._h5.fillvalue, dtype=self.dtype).tobytes()

    @property
    def placeholder(self) -> int | float | None:
        """The number that stands for nothing, where whoever made the dataset named one."""
        with asking(self.file.path, self.name, "a fill value"):
            defined = self._h5.id.get_create_plist().fill_value_defined()
            if defined != h5py.h5d.FILL_VALUE_USER_DEFINED:
                return None
            return plain(self._h5.fillvalue)

    @property
    def stored_bytes(self) -> int:
        """What it takes in the file, as far as the file has that many."""
        with asking(self.file.path, self.name, "a size"):
            return min(int(self._h5.id.get_storage_size()), self.file.size)

    @property
    def elsewhere(self) -> str:
        """Why its bytes are not to be found at offsets of this file; empty where they are."""
        with asking(self.file.path, self.name, "a layout"):
            created = self._h5.id.get_create_plist()
            if h5py.h5f.get_name(self._h5.id) != self.file.own_name:
                return f"it lies in another file, {text_of(h5py.h5f.get_name(self._h5.id))}"
            if created.get_layout() == h5py.h5d.VIRTUAL:
                return "it is a virtual dataset"
            if created.get_external_count():
                return "its bytes lie in an external file"
            if created.get_layout() == h5py.h5d.COMPACT:
                return "it is compact: stored among the metadata"
            if h5py.h5t.py_create(self.dtype) != self._h5.id.get_type():
                return "its numbers are of a kind that only HDF5 converts"
            return ""

    def chunks(self, grid: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Where its chunks are: those that were written.

        Parameters
        ----------
        grid : tuple of int
            Number of chunks along each axis.

        Returns
        -------
        corners : numpy.ndarray of uint64, shape (n_written, n_axes)
            First element of each.
        places : numpy.ndarray of uint64, shape (n_written, 3)
            Offset, size and mask of each.
        """
        allow(math.prod(grid) * _FINDING)
        with asking(self.file.path, self.name, "a table of chunks"):
            found: list[Any] = []
            try:
                self._h5.id.chunk_iter(found.append)
            except (AttributeError, *H5PY_ERRORS):
                # HDF5 before 1.12 cannot tell of all at once, and none does of a damaged table.
                found = self._chunks_one_by_one(grid)
            corners = np.array([one.chunk_offset for one in found], dtype=np.uint64)
            places = [(one.byte_offset, one.size, one.filter_mask) for one in found]
        shape = (len(places), len(grid))
        return corners.reshape(shape), np.array(places, dtype=np.uint64).reshape(-1, 3)

    def _chunks_one_by_one(self, grid: tuple[int, ...]) -> list[Any]:
        """Where each chunk is; nowhere, of one to which a damaged table does not lead."""
        of_corner, chunk = self._h5.id.get_chunk_info_by_coord, self.chunk or ()
        found, error = [], None
        for place in np.ndindex(*grid):
            corner = tuple(np.multiply(place, chunk).tolist())
            try:
                one = of_corner(corner)
            except H5PY_ERRORS as why:
                error, one = why, h5py.h5d.StoreInfo(corner, 0, NOWHERE, 1)
            if one.byte_offset is not None:
                found.append(one)
        if error is not None and all(one.byte_offset == NOWHERE for one in found):
            raise error
        return found
