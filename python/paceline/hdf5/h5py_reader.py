"""Reader of HDF5 frames through the HDF5 library, for data that the compiled module cannot read.

When a file is opened, paceline verifies with a few chunks that the compiled module and the library
read equal values.
"""

import atexit
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from paceline import _core
from paceline.block import FIELDS, FrameBuffer, field_bits
from paceline.contract.source import Extents, FileReader, FileReadStats
from paceline.errors import DamagedFileError, MissingDataError, PacelineError, UnsupportedError
from paceline.hdf5.chunk_index import (
    ABSENT,
    BlockIndex,
    ChunkIndex,
    ChunkReader,
    Dataset,
    Element,
    FileDatasets,
    may_hide_damage,
)
from paceline.hdf5.file import NOWHERE, Array, File, mpi_options
from paceline.hdf5.sandbox import extend_time_limit

#: Number of bytes of values that are read at a time, unless a chunk is larger.
_PORTION = 16 << 20
#: Maximum number of bytes of values that are read at a time if a chunk is larger than `_PORTION`.
_MAX_PORTION = 256 << 20

#: Lock of the thread that calls the HDF5 library; the main thread acquires it when the program
#: ends. If the interpreter stopped a thread inside h5py, the thread would keep h5py's own lock, and
#: the clean-up would wait for that lock for ever.
_LIBRARY_LOCK = threading.RLock()
#: Maximum time to wait for the lock when the program ends, seconds.
_EXIT_TIMEOUT = 10.0
atexit.register(_LIBRARY_LOCK.acquire, timeout=_EXIT_TIMEOUT)
#: CPU time that the sandbox allows for finding an atom in an unordered frame with both readers,
#: seconds.
_SECONDS_PER_ATOM = 1e-5


class H5pyReader:
    """Reads frames through h5py; `atoms` are increasing indices, None for all.

    If `datasets` has a communicator, its ranks make each call together.
    """

    def __init__(self, datasets: FileDatasets, atoms: np.ndarray | None, fields: int):
        # The offsets that the HDF5 library will read are unknown. Therefore, verify all bytes of
        # the file that its fingerprint samples.
        _core.verify(datasets.path, _core.fingerprint_of(datasets.samples))
        self._path = datasets.path
        options = mpi_options(datasets.comm) if datasets.driver == "mpio" else {}
        columns = np.arange(datasets.n_atoms) if atoms is None else atoms
        self._readers: list[ElementReader | None] = []
        with _LIBRARY_LOCK:
            self._file = File(
                datasets.path,
                collective=datasets.comm is not None,
                external=datasets.external,
                samples=datasets.samples,
                rdcc_nbytes=_PORTION,
                **options,
            )
            self._readers = [
                None if element is None else ElementReader(self._file, datasets, element, columns)
                for element in datasets.selected(fields)
            ]

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            with _LIBRARY_LOCK:
                self._readers.clear()
                self._file.close()

    def read_ahead(self, extents: Extents) -> None:
        """Do nothing: the library does not prefetch."""

    def read(
        self, extents: Extents, buffer: FrameBuffer, *, required: int, skip: bool
    ) -> FileReadStats:
        """Read frames into `buffer`; return the time, the traffic and the damaged frames.

        A frame that cannot be read, or lacks a field of the bits `required`, raises an error, or is
        skipped with `skip`.
        """
        begun = time.perf_counter_ns()
        index: BlockIndex = extents.slices[0]
        before = self._n_bytes
        buffer.fields[:] = 0
        damaged: list[tuple[int, str]] = []
        n_calls = 0
        for rows in self._portions(len(extents)):
            n_calls += 1
            with _LIBRARY_LOCK:
                damaged += self._read_all(rows, index, buffer, extents.frames, required, skip)
        index.fill(buffer, damaged)
        return time.perf_counter_ns() - begun, 0, self._n_bytes - before, n_calls, damaged

    @property
    def _n_bytes(self) -> int:
        """Return the number of bytes read so far."""
        return sum(reader.n_bytes for reader in self._readers if reader is not None)

    def _portions(self, n_frames: int) -> Iterator[range]:
        """Split a block into ranges of rows that are read together."""
        readers = [reader for reader in self._readers if reader is not None]
        of_frame = max((reader.row_bytes for reader in readers), default=1)
        of_chunk = max((reader.chunk_rows for reader in readers), default=n_frames)
        n = max(_PORTION // of_frame, min(of_chunk, _MAX_PORTION // of_frame), 1)
        return (range(k, min(k + n, n_frames)) for k in range(0, n_frames, n))

    def _read_all(
        self,
        rows: range,
        index: BlockIndex,
        buffer: FrameBuffer,
        frames: np.ndarray,
        required: int,
        skip: bool,
    ) -> list[tuple[int, str]]:
        """Read adjacent rows of a block; return the failed rows with reasons."""
        try:
            self._read(rows, index, buffer, frames, required)
        except (DamagedFileError, MissingDataError) as error:
            if len(rows) > 1:
                # Ranks that read together must make equal numbers of calls. These ranks never reach
                # this line, because their blocks have one frame.
                each = (range(row, row + 1) for row in rows)
                alone = [self._read_all(row, index, buffer, frames, required, skip) for row in each]
                return list(chain.from_iterable(alone))
            if isinstance(error, DamagedFileError):
                _name_frame(error, self._path, int(frames[rows.start]))
            if not skip:
                raise
            return [(rows.start, str(error))]
        return []

    def _read(
        self, rows: range, index: BlockIndex, buffer: FrameBuffer, frames: np.ndarray, required: int
    ) -> None:
        """Read every selected field in adjacent rows of a block."""
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
                    f"{self._path}: frame {frames[chosen][~there][0]} has no {FIELDS[k]}"
                )
            values = np.full((len(rows), reader.n_wanted, 3), np.nan, dtype=np.float32)
            if there.any():
                ids = None if index.ids is None else index.ids.rows[chosen][there]
                try:
                    values[there] = reader.read(part.rows[chosen][there], ids)
                except DamagedFileError as error:
                    # Still read the remaining fields, because ranks that read together must make
                    # the same calls.
                    failures.append(error)
                    there = np.zeros_like(there)
            buffer.fields[chosen] |= np.where(there, bit, 0).astype(np.uint8)
            buffer.put(FIELDS[k], chosen, values, there)
        if failures:
            raise failures[0]


def _name_frame(error: DamagedFileError, path: str, frame: int) -> None:
    """Name the frame in an error, as the compiled module's errors do."""
    error.frame = frame
    what = f"expected {error.expected}, found {error.found}"
    error.args = (f"{path}: frame {frame}, byte {error.offset}: {what}",)


class ElementReader:
    """Reads rows of one element for increasing atom indices, in paceline's units."""

    def __init__(self, file: File, datasets: FileDatasets, element: Element, atoms: np.ndarray):
        self._element = element
        self._array = _open_array(file, element)
        self._ids = None if datasets.ids is None else _open_array(file, datasets.ids)
        self.n_wanted = len(atoms)
        self.n_bytes = 0
        if self._ids is None:
            self._first, self._stop = int(atoms[0]), int(atoms[-1]) + 1
            self._columns = atoms - self._first
        else:
            assert datasets.id_order is not None
            # Read whole rows, because atoms may be in any slot.
            self._first, self._stop = 0, self._n_slots
            self._order, self._wanted = datasets.id_order, atoms

    @property
    def _n_slots(self) -> int:
        """Number of atom slots in a row."""
        n_numbers = math.prod(self._element.dataset.shape[1:])
        return n_numbers // 3

    @property
    def row_bytes(self) -> int:
        """Number of bytes to read per row."""
        return (self._stop - self._first) * 3 * self._element.dataset.dtype.itemsize

    @property
    def chunk_rows(self) -> int:
        """Number of rows in a chunk; 1 for a dataset without chunks."""
        chunk = self._element.dataset.chunk
        return chunk[0] if chunk else 1

    def read(self, rows: np.ndarray, id_rows: np.ndarray | None) -> np.ndarray:
        """Read the atoms in some rows: float32, (n_rows, n_wanted, 3)."""
        dataset = self._element.dataset
        flat = len(dataset.shape) == 2
        scale = 3 if flat else 1
        span = slice(self._first * scale, self._stop * scale)
        try:
            values = self._distinct(self._array, rows, span, is_fixed=self._is_fixed)
        finally:
            # Read ids even after an error, because ranks that read together must make the same
            # calls.
            if self._ids is not None and id_rows is not None:
                ids = self._distinct(self._ids, id_rows, slice(0, self._n_slots))
        values = numbers_of(values, self._element).reshape(len(rows), -1, 3)
        if self._ids is None:
            return values[:, self._columns]
        places = np.stack([self._slots_of(of_row) for of_row in ids])
        return np.take_along_axis(values, places[..., None], axis=1)

    @property
    def _is_fixed(self) -> bool:
        """True if the dataset applies to all frames, and has no frame axis."""
        return len(self._array.shape) < len(self._element.dataset.shape)

    def _distinct(
        self, array: Array, rows: np.ndarray, span: slice, *, is_fixed: bool = False
    ) -> np.ndarray:
        """Read rows in any order; each row is read once, adjacent rows together."""
        distinct, back = np.unique(rows, return_inverse=True)
        runs = np.split(distinct, np.flatnonzero(np.diff(distinct) != 1) + 1)
        if is_fixed:
            values = array.part(span)[None]
        else:
            parts = [array.part(slice(int(run[0]), int(run[-1]) + 1), span) for run in runs]
            values = np.concatenate(parts)
        self.n_bytes += values.nbytes
        return values if len(distinct) == len(rows) and (np.diff(rows) > 0).all() else values[back]

    def _slots_of(self, ids: np.ndarray) -> np.ndarray:
        """Find the slots of atoms in a row by their ids; unknown ids mark slots without an atom."""
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


def _open_array(file: File, element: Element) -> Array:
    array = file.root[element.dataset.name]
    assert isinstance(array, Array)
    array.check_filters()
    return array


def numbers_of(values: np.ndarray, element: Element) -> np.ndarray:
    """Convert numbers of a file to paceline's units, float32, as the compiled module does.

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


def verify_decoding(file: FileDatasets, index: ChunkIndex) -> ChunkIndex:
    """Read a few chunks of each element with both readers; use h5py if the values differ."""
    if not index.n_frames or (index.ids is not None and index.ids.dataset.h5py_fallback):
        return index
    elements = dict(index.elements)
    for field, element in index.elements.items():
        if element.dataset.h5py_fallback:
            continue
        if why := _difference(file, index, field):
            elements[field] = replace(element, dataset=replace(element.dataset, h5py_fallback=why))
    return replace(index, elements=elements)


def _difference(file: FileDatasets, index: ChunkIndex, field: str) -> str:
    """Describe how the values of the two readers differ for an element; empty if they agree."""
    for frames, atoms in _samples(index.elements[field], index.n_frames, index.n_atoms):
        if why := _difference_at(file, index, field, frames, atoms):
            return why
    return ""


def _difference_at(
    file: FileDatasets, index: ChunkIndex, field: str, frames: list[int], atoms: np.ndarray
) -> str:
    """Compare both readers' values bit by bit, in the first of `frames` that HDF5 can read."""
    fields, dataset = field_bits([field]), index.elements[field].dataset
    if index.ids is not None:
        extend_time_limit(index.n_atoms * _SECONDS_PER_ATOM)
    for frame in frames:
        try:
            theirs = _read_frame(H5pyReader(file, atoms, fields), index, field, frame, len(atoms))
        except DamagedFileError:
            continue
        except UnsupportedError:
            return ""  # HDF5 lacks a filter that the compiled module contains
        try:
            ours = _read_frame(ChunkReader(file, atoms, fields), index, field, frame, len(atoms))
        except PacelineError as error:
            if isinstance(error, DamagedFileError) and may_hide_damage(dataset.filters):
                continue
            return f"HDF5 reads frame {frame}, but paceline raises: {error}"
        same = np.array_equal(ours.view(np.uint32), theirs.view(np.uint32))
        return "" if same else f"HDF5 and paceline do not read the same numbers in frame {frame}"
    return ""


def _samples(
    element: Element, n_frames: int, n_atoms: int
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Yield frames to compare and atoms: first those of an inner chunk, then of an edge chunk."""
    dataset = element.dataset
    rows = element.rows_of(np.arange(n_frames))
    frames = np.flatnonzero(_written(rows, dataset))
    if len(frames) == 0:
        return
    middle, last, first = (int(frames[k]) for k in (len(frames) // 2, -1, 0))
    # Compare all atoms of a dataset of shape (rows, components × atoms), because a chunk may end
    # inside an atom.
    chunk = dataset.chunk or dataset.shape
    atoms = chunk[1] if len(chunk) == 3 else n_atoms
    yield [middle, last, first], np.arange(min(atoms, n_atoms))
    # Compare edge chunks, too: writers may leave chunks beyond the last frame or atom unfiltered.
    over = [n % step for n, step in zip(dataset.shape, chunk, strict=True)]
    if dataset.filters and any(over):
        first_atom = n_atoms - min(over[1] or atoms, n_atoms) if len(chunk) == 3 else 0
        yield [last, middle], np.arange(first_atom, n_atoms)


def _written(rows: np.ndarray, dataset: Dataset) -> np.ndarray:
    """Return a mask of frames whose row is in a written, undamaged chunk."""
    there: np.ndarray = rows != ABSENT
    if dataset.table is not None and dataset.chunk is not None:
        along = -(-dataset.shape[0] // dataset.chunk[0])
        sound = (dataset.table.sizes > 0) & (dataset.table.offsets != NOWHERE)
        there &= sound.reshape(along, -1).all(axis=1)[rows // dataset.chunk[0]]
    return there


def _read_frame(
    reader: FileReader, index: ChunkIndex, field: str, frame: int, n_atoms: int
) -> np.ndarray:
    """Read the values of one frame."""
    block = FrameBuffer.allocate(np.array([frame]), n_atoms, [field])
    zero = np.zeros(1, dtype=np.int64)
    # Offsets and sizes are not needed: both readers locate the bytes from the index.
    extents = Extents(
        files=zero,
        frames=np.array([frame], dtype=np.uint64),
        offsets=zero.astype(np.uint64),
        sizes=zero.astype(np.uint64),
        slices=(index.of_block(np.array([frame])),),
    )
    reader.read(extents, block, required=field_bits([field]), skip=False)
    return block.array_of(field)
