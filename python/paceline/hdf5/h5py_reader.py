"""A worker's hand on an HDF5 file, through HDF5's own library: for what the core cannot read."""

import atexit
import math
import threading
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from paceline import _core
from paceline.block import FIELDS, Decoded, field_bits
from paceline.errors import DamagedFileError, MissingDataError
from paceline.hdf5.chunk_index import ABSENT, Element
from paceline.hdf5.file import Array, File, mpi_options
from paceline.hdf5.reader import BlockIndex, Hdf5FileSpec
from paceline.trajectory.source import Extents


class ElementReader:
    """Rows of one element, with our atoms in our units.

    Parameters
    ----------
    file : File
        Open.
    member : Hdf5FileSpec
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

    def __init__(self, file: File, member: Hdf5FileSpec, element: Element, atoms: np.ndarray):
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
    >>> from paceline.hdf5.chunk_index import Dataset
    >>> element = Element(Dataset("value", np.dtype("f8"), (1, 1, 3)), factor=10.0)
    >>> numbers_of(np.array([0.1, 0.2, 0.3]), element)
    array([1., 2., 3.], dtype=float32)
    """
    if element.divisor != 1 or element.scale != 1 or values.dtype.kind in "iu":
        values = values.astype(np.float64) / element.divisor * element.scale
    with np.errstate(over="ignore"):
        numbers = values.astype(np.float32)
        return numbers if element.factor == 1 else numbers * np.float32(element.factor)


#: Numbers that are read at a time, bytes; more where one chunk holds more.
_AT_A_TIME = 16 << 20
#: At the most, whatever chunks hold.
_AT_MOST = 256 << 20

#: Held by the worker that asks HDF5's library, and from the end of the program on by nobody else: a
#: thread that the interpreter stops inside h5py keeps h5py's own lock, for which whoever clears up
#: would wait for ever.
_TURN = threading.RLock()
#: Seconds for which the end of the program waits for a worker's turn to end.
_PATIENCE = 10.0
atexit.register(_TURN.acquire, timeout=_PATIENCE)


class H5pyReader:
    """Reads through h5py.

    Parameters
    ----------
    member : Hdf5FileSpec
        The file.
    atoms : numpy.ndarray of int64 or None
        Atoms to be read, rising; None for all.
    fields : int
        What of them, as the core counts.
    comm : mpi4py.MPI.Comm, optional
        Ranks that make each call at once; by default each reads when it will.

    Raises
    ------
    FileChangedError
        It is no longer the file that was catalogued.
    """

    def __init__(
        self, member: Hdf5FileSpec, atoms: np.ndarray | None, fields: int, *, comm: Any = None
    ):
        _core.verify(member.path, member.fingerprint)
        self._path = member.path
        options = mpi_options(comm) if member.driver == "mpio" else {}
        columns = np.arange(member.n_atoms) if atoms is None else atoms
        self._readers: list[ElementReader | None] = []
        with _TURN:
            self._file = File(
                member.path,
                collective=comm is not None,
                external=member.external,
                rdcc_nbytes=_AT_A_TIME,
                **options,
            )
            self._readers = [
                None if element is None else ElementReader(self._file, member, element, columns)
                for element in member.wanted(fields)
            ]

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            with _TURN:
                self._readers.clear()
                self._file.close()

    def read_ahead(self, extents: Extents) -> None:
        """The library reads when it is asked."""

    def read(
        self, extents: Extents, block: Decoded, *, required: int, skip: bool
    ) -> tuple[int, int, int, int, list[tuple[int, str]]]:
        """Read frames into arrays."""
        begun = time.perf_counter_ns()
        index: BlockIndex = extents.slices[0]
        before = self._n_bytes
        block.fields[:] = 0
        if block.judgements is not None:
            block.judgements[:] = [-1, -1, -1, np.nan, np.nan]
        damaged: list[tuple[int, str]] = []
        n_calls = 0
        for rows in self._portions(len(extents)):
            n_calls += 1
            with _TURN:
                damaged += self._read_all(rows, index, block, extents.frames, required, skip)
        index.fill(block, damaged)
        return time.perf_counter_ns() - begun, 0, self._n_bytes - before, n_calls, damaged

    @property
    def _n_bytes(self) -> int:
        """Read so far."""
        return sum(reader.n_bytes for reader in self._readers if reader is not None)

    def _portions(self, n_frames: int) -> Iterator[range]:
        """Neighbours in a block that memory holds together."""
        readers = [reader for reader in self._readers if reader is not None]
        of_frame = max((reader.row_bytes for reader in readers), default=1)
        of_chunk = max((reader.chunk_rows for reader in readers), default=n_frames)
        n = max(_AT_A_TIME // of_frame, min(of_chunk, _AT_MOST // of_frame), 1)
        return (range(k, min(k + n, n_frames)) for k in range(0, n_frames, n))

    def _read_all(
        self,
        rows: range,
        index: BlockIndex,
        block: Decoded,
        frames: np.ndarray,
        required: int,
        skip: bool,
    ) -> list[tuple[int, str]]:
        """Neighbours in a block; those that cannot be read, and why."""
        try:
            self._read(rows, index, block, frames, required)
        except (DamagedFileError, MissingDataError) as error:
            if len(rows) > 1:
                # Ranks that read at once, whose calls must be as many, have one frame a block.
                each = (range(row, row + 1) for row in rows)
                alone = [self._read_all(row, index, block, frames, required, skip) for row in each]
                return list(chain.from_iterable(alone))
            if isinstance(error, DamagedFileError):
                _name_frame(error, self._path, int(frames[rows.start]))
            if not skip:
                raise
            return [(rows.start, str(error))]
        return []

    def _read(
        self, rows: range, index: BlockIndex, block: Decoded, frames: np.ndarray, required: int
    ) -> None:
        """Neighbours in a block, all that is wanted of them."""
        chosen = slice(rows.start, rows.stop)
        failures = []
        for k, reader in enumerate(self._readers):
            part = index.elements[k]
            if reader is None or part is None:
                continue
            there = part.rows[chosen] != ABSENT
            bit = field_bits([FIELDS[k]])
            if required & bit and not there.all():
                raise MissingDataError(
                    f"{self._path}: frame {frames[chosen][~there][0]} has no {FIELDS[k]}; "
                    'such frames can be left out (on_error="skip")'
                )
            values = np.full((len(rows), reader.n_wanted, 3), np.nan, dtype=np.float32)
            if there.any():
                ids = None if index.ids is None else index.ids.rows[chosen][there]
                try:
                    values[there] = reader.read(part.rows[chosen][there], ids)
                except DamagedFileError as error:
                    # The other fields are read all the same: ranks at once make the same calls.
                    failures.append(error)
                    there = np.zeros_like(there)
            block.fields[chosen] |= np.where(there, bit, 0).astype(np.uint8)
            if block.judgements is None:
                getattr(block, FIELDS[k])[chosen] = values
            else:
                _judge(k, values, there, block.judgements[chosen])
        if failures:
            raise failures[0]


def _name_frame(error: DamagedFileError, path: str, frame: int) -> None:
    """Say which frame could not be read, in the way of the core's errors."""
    error.frame = frame
    what = f"expected {error.expected}, found {error.found}"
    error.args = (f"{path}: frame {frame}, byte {error.offset}: {what}",)


def _judge(k: int, values: np.ndarray, there: np.ndarray, judgements: np.ndarray) -> None:
    """What `Decoded.judgements` says of a field, for some frames."""
    wrong = ~np.isfinite(values).all(axis=2)
    judgements[:, k] = np.where(there & wrong.any(axis=1), wrong.argmax(axis=1), -1)
    if k == 0:
        largest = np.abs(values).max(axis=2)
        whole = there & ~wrong.any(axis=1)
        judgements[whole, 3] = largest.max(axis=1)[whole]
        judgements[whole, 4] = largest.argmax(axis=1)[whole]
