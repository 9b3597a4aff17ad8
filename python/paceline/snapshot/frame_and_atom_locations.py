"""Locate frames in a file, and atoms in the order in which it stores them, for MPI ranks."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from paceline import _core
from paceline.block import PERIODIC, FrameBuffer, field_bits, fields_in, vectors_of
from paceline.contract.source import (
    FORMATS,
    Extents,
    FileSpec,
    IndexedFileSpec,
    TrajectoryFile,
    extents_in,
)
from paceline.errors import MissingDataError, UnsupportedError
from paceline.hdf5.open_hdf5_trajectory import Hdf5File
from paceline.hdf5.sandbox import run_in_sandbox
from paceline.snapshot.atoms_of_rank import BATCH
from paceline.trajectory.open import open_file

if TYPE_CHECKING:
    from paceline.hdf5.read_topology import AtomColumn, AtomRow

#: The numbering of atoms may use at most the buffer size divided by this number.
_PART = 8


@dataclass(frozen=True)
class AtomNumbering:
    """Ranges of consecutive atom numbers, for files that do not number their atoms 1, 2, 3 …."""

    #: First number of each range, increasing; shape (n_rows,).
    starts: np.ndarray
    #: Number of atoms before each range, followed by the total; shape (n_rows + 1,).
    before: np.ndarray

    @classmethod
    def of(cls, numbers: np.ndarray) -> Self:
        """Find the ranges in the numbers of all atoms, which must be increasing.

        Examples
        --------
        >>> AtomNumbering.of(np.array([0, 1, 2, 7, 8])).starts
        array([0, 7])
        """
        n_atoms = len(numbers)
        cuts = []
        for begin in range(0, n_atoms, BATCH):
            some = numbers[begin : begin + BATCH + 1]
            cuts.append(begin + 1 + np.flatnonzero(np.diff(some) != 1))
        before = np.concatenate([[0], *cuts, [n_atoms]]).astype(np.int64)
        return cls(numbers[before[:-1]], before)

    @property
    def n_gaps(self) -> int:
        """Number of gaps between the ranges."""
        return len(self.starts) - 1

    @property
    def is_plain(self) -> bool:
        """True if the numbers of the atoms in the file are 1, 2, 3 and so on."""
        return self.starts.tolist() == [1]

    @property
    def nbytes(self) -> int:
        """Size of both arrays in memory, bytes."""
        return self.starts.nbytes + self.before.nbytes

    def ids_of(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Convert atom numbers to ids from 1; also return a mask, False for numbers of no atom.

        Examples
        --------
        >>> ids, are_atoms = AtomNumbering.of(np.array([0, 1, 2, 7, 8])).ids_of(np.array([8, 3, 0]))
        >>> ids[are_atoms]
        array([5, 1])
        """
        ids = np.empty(len(numbers), dtype=np.int64)
        are_atoms = np.empty(len(numbers), dtype=bool)
        for first in range(0, len(numbers), BATCH):
            some = slice(first, first + BATCH)
            row = np.searchsorted(self.starts, numbers[some], side="right") - 1
            start, before = self.starts[row], self.before[:-1][row]
            within = numbers[some] - start
            n_atoms = self.before[1:][row] - before
            are_atoms[some] = (row >= 0) & (within >= 0) & (within < n_atoms)
            ids[some] = before + within + 1
        return ids, are_atoms

    def restore(self, ids: np.ndarray) -> None:
        """Convert ids back to numbers, in place.

        Examples
        --------
        >>> ids = np.array([5, 1])
        >>> AtomNumbering.of(np.array([0, 1, 2, 7, 8])).restore(ids)
        >>> ids
        array([8, 0])
        """
        for first in range(0, len(ids), BATCH):
            some = ids[first : first + BATCH]
            row = np.searchsorted(self.before, some - 1, side="right") - 1
            some += self.starts[row] - self.before[row] - 1


class TextFrameLocation(NamedTuple):
    """Location of a frame of a text file, for the compiled module, which reads float64.

    `layout` and `samples` are those of `IndexedFileSpec`; `samples` are digests of parts of the
    file, with which readers verify it. `offset` and `size` are in bytes.
    """

    layout: bytes
    samples: bytes
    offset: int
    size: int


class AtomBatch(NamedTuple):
    """Some atoms of a frame, in the form that the compiled module expects."""

    #: Ids from 1, or, before `counted`, the numbers in the file; None if atoms are in order.
    ids: np.ndarray | None
    #: Positions (Å), velocities (Å/ps) and forces (kJ/(mol·Å)), float32.
    vectors: Sequence[np.ndarray | None]
    #: Names as bytes, shape (n, 8), padded with zeros.
    names: np.ndarray | None
    masses: np.ndarray | None
    charges: np.ndarray | None

    def counted(self, numbering: AtomNumbering) -> Self:
        """Convert the atoms' numbers in the file to ids; remove rows whose number is of no atom."""
        assert self.ids is not None
        ids, there = numbering.ids_of(self.ids)
        if there.all():
            return self._replace(ids=ids)
        some = [None if one is None else one[there] for one in self.vectors]
        names, masses, charges = (None if one is None else one[there] for one in self[2:])
        return type(self)(ids[there], some, names, masses, charges)


@dataclass(frozen=True)
class FrameInfo:
    """Location of a frame, and data that all its atoms share."""

    spec: FileSpec
    extents: Extents
    fields: Sequence[str]
    #: Lengths (Å) and angles (degrees) of the cell, float64, shape (6,).
    dimensions: np.ndarray | None
    #: Cell vectors, Å, float64, shape (3, 3).
    vectors: np.ndarray | None
    step: int
    #: Time, ps.
    time: float
    #: Number of rows for atoms in a stored frame; rows may be unused if the file stores ids.
    n_places: int
    #: Location in a text file of DL_POLY; None for other formats.
    text: TextFrameLocation | None = None
    #: Those of "names", "masses" and "charges" that the file stores for the frame.
    known: Sequence[str] = ()
    #: Rows of "ids" and of the `known` properties in an HDF5 file.
    rows: Mapping[str, "AtomRow"] = field(default_factory=dict)
    #: Mapping between the atoms' numbers in the file and ids, if the file has "ids".
    numbering: AtomNumbering | None = None
    #: For each cell vector, True if the cell is periodic along it.
    periodic: Sequence[bool] = (True, True, True)

    @property
    def path(self) -> str:
        """Path of the file."""
        return self.spec.path

    @property
    def frame(self) -> int:
        """Number of the frame in the file."""
        return int(self.extents.frames[0])

    @property
    def name(self) -> str:
        """Path and number of the frame, for messages."""
        return f"{self.path}: frame {self.frame}"

    @property
    def field_bits(self) -> int:
        """Bits of the vectors (positions, velocities, forces) that the frame contains."""
        return field_bits(self.fields)

    @property
    def dtype(self) -> np.dtype:
        """Dtype in which positions, velocities and forces are read: float64 from text files."""
        return np.dtype(np.float32 if self.text is None else np.float64)

    @property
    def has_names(self) -> bool:
        """True if the file stores names for the frame."""
        return "names" in self.known

    @property
    def has_masses(self) -> bool:
        """True if the file stores masses for the frame."""
        return "masses" in self.known

    @property
    def has_charges(self) -> bool:
        """True if the file stores charges for the frame."""
        return "charges" in self.known

    @contextlib.contextmanager
    def explaining_ids(self) -> Iterator[None]:
        """Add to error messages how the file numbers its atoms, unless it numbers them from 1."""
        try:
            yield
        except UnsupportedError as error:
            if self.numbering is None or self.numbering.is_plain:
                raise
            raise UnsupportedError(
                f"{error} (atoms are counted from 1 here, in the order of their numbers in the "
                f"file, the first of which is {self.numbering.starts[0]})"
            ) from error

    def require_positions(self) -> None:
        """Raise `MissingDataError` without positions, which determine the owners of atoms."""
        if "positions" not in self.fields:
            raise MissingDataError(f"{self.name} has no positions to find the owners of atoms")

    def require_cell(self) -> np.ndarray:
        """Return the vectors of the cell, Å; raise `UnsupportedError` without a cell."""
        if self.vectors is None:
            raise UnsupportedError(
                f"{self.name} has no cell to be divided by a grid; pass owner= instead of grid="
            )
        return self.vectors

    def read(self, first: int, last: int) -> AtomBatch:
        """Decode the atoms in the rows of the stored frame from `first` to `last` (excluded)."""
        atoms = np.arange(first, last)
        decoded = FrameBuffer.allocate(
            self.extents.frames.astype(np.int64), len(atoms), self.fields
        )
        reader = self.spec.open(atoms, self.field_bits)
        reader.read(self.extents, decoded, required=self.field_bits, skip=False)
        arrays = (decoded.positions, decoded.velocities, decoded.forces)
        vectors = [None if array is None else array[0] for array in arrays]
        found = AtomBatch(None, vectors, None, None, None)
        if not self.rows:
            return found
        # Imported here, because only files with `rows` need the HDF5 library.
        from paceline.hdf5.read_topology import read_atom_rows

        beside: dict[str, Any] = {**read_atom_rows(self.path, self.rows, first, last)}
        found = found._replace(**beside)
        return found if self.numbering is None else found.counted(self.numbering)


class SnapshotFile:
    """Trajectory file, read in the order in which atoms are stored; rank 0 opens it."""

    def __init__(self, path: str, buffer: int):
        file: TrajectoryFile = open_file(path)
        if file.format == "LAMMPSDUMP":
            raise UnsupportedError(
                f"{path}: dumps of LAMMPS are not read as snapshots: paceline convert makes it "
                "another format"
            )
        self.format, self.n_atoms, self.n_frames = file.format, file.n_atoms, file.n_frames
        self._columns: dict[str, AtomColumn] = {}
        self._numbering: AtomNumbering | None = None
        self._file = self._as_stored(file, buffer) if isinstance(file, Hdf5File) else file

    def _as_stored(self, file: Hdf5File, buffer: int) -> Hdf5File:
        """Return the file with atoms in stored order; also find its atoms' properties and ids."""
        from paceline.hdf5.read_topology import AtomColumn, find_atom_columns

        found = file.chunk_index
        if file.format == "H5MD":
            group = found.facts.get("group")
            self._columns = run_in_sandbox(
                find_atom_columns, file.path, group=group, external=file.external
            )
        if found.ids is None or found.id_order is None:
            return file
        numbering = self._numbering = AtomNumbering.of(found.id_order)
        if numbering.nbytes > buffer // _PART:
            raise UnsupportedError(
                f"{file.path}: the numbers of its atoms have {numbering.n_gaps} gaps, for which a "
                f"buffer of {buffer} bytes is too small: pass at least {_PART * numbering.nbytes}"
            )
        self._columns["ids"] = AtomColumn(found.ids.dataset.name, found.ids.rows, is_fixed=False)
        n_places = found.ids.dataset.shape[1]
        stored = replace(found, n_atoms=n_places, ids=None, id_order=None)
        return Hdf5File(file.path, file.samples, stored, external=file.external)

    def frame_info(self, frame: int) -> FrameInfo:
        """Locate a frame (negative numbers count from the end); read its step, time and cell."""
        file = self._file
        try:
            number = range(file.n_frames)[frame]
        except IndexError:
            raise ValueError(
                f"{file.path}: frame {frame} is out of range for {file.n_frames} frames"
            ) from None
        extents = extents_in(0, file, np.array([number], dtype=np.uint64))
        if isinstance(file.spec, IndexedFileSpec) and FORMATS[file.format].is_text:
            return _text_frame_info(file.spec, extents, file.n_atoms)
        # The buffer has no atoms, but all fields. So every reader reports which fields the frame
        # contains.
        head = FrameBuffer.allocate(np.array([number]), 0, fields_in(file.fields))
        reader = file.spec.open(np.empty(0, dtype=np.int64), file.fields)
        reader.read(extents, head, required=0, skip=False)
        has_cell = bool(head.dimensions[0].any())
        found = {name: column.of(number) for name, column in self._columns.items()}
        rows = {name: row for name, row in found.items() if row is not None}
        periodic = int(head.cells[0, PERIODIC]) if has_cell else 0
        return FrameInfo(
            file.spec,
            extents,
            fields_in(int(head.fields[0])),
            head.dimensions[0].astype(np.float64) if has_cell else None,
            vectors_of(_core.cells_without_noise(head.cells))[0] if has_cell else None,
            int(head.steps[0]),
            float(head.times[0]),
            file.n_atoms,
            known=[name for name in rows if name != "ids"],
            rows=rows,
            numbering=self._numbering,
            periodic=[bool(periodic >> axis & 1) for axis in range(3)],
        )


def _text_frame_info(spec: IndexedFileSpec, extents: Extents, n_atoms: int) -> FrameInfo:
    frame, offset, size = (int(one[0]) for one in (extents.frames, extents.offsets, extents.sizes))
    text = TextFrameLocation(spec.layout, spec.samples, offset, size)
    step, time, cell, fields, has_masses, periodic = _core.read_text_head(spec.path, frame, text)
    vectors = dimensions = None
    if cell is not None:
        vectors = np.array(cell)
        dimensions = np.array(_core.cell_dimensions(cell))
    known = ["names", *(["masses", "charges"] if has_masses else [])]
    about = fields_in(fields), dimensions, vectors, step, time, n_atoms, text, known
    return FrameInfo(spec, extents, *about, periodic=periodic)
