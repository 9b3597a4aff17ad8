"""Rows of an element, read through HDF5's own library."""

import math

import numpy as np

from paceline.hdf5.catalogue import Element
from paceline.hdf5.native import Array, File
from paceline.hdf5.reading import Hdf5Member


class ElementReader:
    """Rows of one element, with our atoms in our units.

    Parameters
    ----------
    file : File
        Open.
    member : Hdf5Member
        The same file, as workers know it.
    element : Element
        Of it.
    atoms : numpy.ndarray of int64, shape (n_atoms,)
        Those that are wanted, rising.

    Attributes
    ----------
    n_wanted : int
        Their number.
    n_bytes : int
        Read so far.
    """

    def __init__(self, file: File, member: Hdf5Member, element: Element, atoms: np.ndarray):
        self._element = element
        self._array = _array_of(file, element)
        self._ids = None if member.ids is None else _array_of(file, member.ids)
        self.n_wanted = len(atoms)
        self.n_bytes = 0
        if self._ids is None:
            self._first, self._stop = int(atoms[0]), int(atoms[-1]) + 1
            self._columns = atoms - self._first
        else:
            assert member.id_order is not None
            # Any of them may be anywhere in a row.
            self._first, self._stop = 0, self._n_places
            self._order, self._wanted = member.id_order, atoms

    @property
    def _n_places(self) -> int:
        """Atoms that a row has room for."""
        n_numbers = math.prod(self._element.dataset.shape[1:])
        return n_numbers // 3

    @property
    def row_bytes(self) -> int:
        """What is read of one row."""
        return (self._stop - self._first) * 3 * self._element.dataset.dtype.itemsize

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk."""
        chunk = self._element.dataset.chunk
        return chunk[0] if chunk else 1

    def read(self, rows: np.ndarray, id_rows: np.ndarray | None) -> np.ndarray:
        """Our atoms in some rows: float32, shape (n_rows, n_wanted, 3)."""
        dataset = self._element.dataset
        flat = len(dataset.shape) == 2
        scale = 3 if flat else 1
        span = slice(self._first * scale, self._stop * scale)
        try:
            values = self._distinct(self._array, rows, span, is_fixed=self._is_fixed)
        finally:
            # Both are read whatever is found, as all fields are.
            if self._ids is not None and id_rows is not None:
                ids = self._distinct(self._ids, id_rows, slice(0, self._n_places))
        values = numbers_of(values, self._element).reshape(len(rows), -1, 3)
        if self._ids is None:
            return values[:, self._columns]
        places = np.stack([self._places(of_row) for of_row in ids])
        return np.take_along_axis(values, places[..., None], axis=1)

    @property
    def _is_fixed(self) -> bool:
        """Whether the dataset holds for all frames, and so has no axis of them."""
        return len(self._array.shape) < len(self._element.dataset.shape)

    def _distinct(
        self, array: Array, rows: np.ndarray, span: slice, *, is_fixed: bool = False
    ) -> np.ndarray:
        """Rows in any order, each read once, neighbours together."""
        distinct, back = np.unique(rows, return_inverse=True)
        runs = np.split(distinct, np.flatnonzero(np.diff(distinct) != 1) + 1)
        if is_fixed:
            values = array.part(span)[None]
        else:
            parts = [array.part(slice(int(run[0]), int(run[-1]) + 1), span) for run in runs]
            values = np.concatenate(parts)
        self.n_bytes += values.nbytes
        return values if len(distinct) == len(rows) and (np.diff(rows) > 0).all() else values[back]

    def _places(self, ids: np.ndarray) -> np.ndarray:
        """Where in a row our atoms are; other numbers mark places without an atom."""
        ids = ids.astype(np.int64, copy=False)
        places = np.argsort(ids, kind="stable")
        ordered = ids[places]
        first, stop = (np.searchsorted(ordered, self._order, side) for side in ("left", "right"))
        for wrong, found in ((stop - first > 1, "{} twice"), (stop == first, "no {}")):
            if wrong.any():
                assert self._ids is not None
                number = self._order[wrong][0]
                raise self._ids.damaged("each atom's number once", found.format(number))
        return places[first[self._wanted]]


def _array_of(file: File, element: Element) -> Array:
    array = file.root[element.dataset.name]
    assert isinstance(array, Array)
    array.refuse_unknown_filters()
    return array


def numbers_of(values: np.ndarray, element: Element) -> np.ndarray:
    """Numbers as a file holds them, in our units: bit for bit what the core makes of them.

    Parameters
    ----------
    values : numpy.ndarray
        Of the element's dataset.
    element : Element
        Whose factor, divisor and scale count.

    Returns
    -------
    numpy.ndarray of float32
        Of the same shape.

    Examples
    --------
    >>> from paceline.hdf5.catalogue import Dataset
    >>> element = Element(Dataset("value", np.dtype("f8"), (1, 1, 3)), factor=10.0)
    >>> numbers_of(np.array([0.1, 0.2, 0.3]), element)
    array([1., 2., 3.], dtype=float32)
    """
    if element.divisor != 1 or element.scale != 1 or values.dtype.kind in "iu":
        values = values.astype(np.float64) / element.divisor * element.scale
    with np.errstate(over="ignore"):
        numbers = values.astype(np.float32)
        return numbers if element.factor == 1 else numbers * np.float32(element.factor)
