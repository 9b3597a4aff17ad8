"""A frame, as the ranks of a simulation have it."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from paceline.block import Decoded, field_bits
from paceline.errors import MissingDataError, UnsupportedError
from paceline.trajectory.source import Extents, FileSpec

if TYPE_CHECKING:
    from paceline.hdf5.topology import Row

#: Atoms that are looked at together: what that takes of memory shall not grow with them.
_AT_A_TIME = 2**16


@dataclass(frozen=True)
class Numbering:
    """Rows of numbers without gaps.

    Attributes
    ----------
    starts : numpy.ndarray of int64, shape (n_rows,)
        First number of each row, rising.
    before : numpy.ndarray of int64, shape (n_rows + 1,)
        Atoms before each row, and in all.
    """

    starts: np.ndarray
    before: np.ndarray

    @classmethod
    def of(cls, numbers: np.ndarray) -> Self:
        """That of some atoms.

        Parameters
        ----------
        numbers : numpy.ndarray of int64, shape (n_atoms,)
            All of them, rising.

        Returns
        -------
        Numbering

        Examples
        --------
        >>> Numbering.of(np.array([0, 1, 2, 7, 8])).starts
        array([0, 7])
        """
        n_atoms = len(numbers)
        cuts = []
        for begin in range(0, n_atoms, _AT_A_TIME):
            some = numbers[begin : begin + _AT_A_TIME + 1]
            cuts.append(begin + 1 + np.flatnonzero(np.diff(some) != 1))
        before = np.concatenate([[0], *cuts, [n_atoms]]).astype(np.int64)
        return cls(numbers[before[:-1]], before)

    @property
    def n_gaps(self) -> int:
        """Between numbers."""
        return len(self.starts) - 1

    @property
    def is_plain(self) -> bool:
        """Whether the file counts from 1, without gaps."""
        return self.starts.tolist() == [1]

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return self.starts.nbytes + self.before.nbytes

    def ids_of(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count atoms in the order of their numbers.

        Parameters
        ----------
        numbers : numpy.ndarray of int64, shape (n,)
            In any order; some may be no atom's.

        Returns
        -------
        ids : numpy.ndarray of int64, shape (n,)
            From 1.
        are_atoms : numpy.ndarray of bool, shape (n,)
            Where they are.

        Examples
        --------
        >>> ids, are_atoms = Numbering.of(np.array([0, 1, 2, 7, 8])).ids_of(np.array([8, 3, 0]))
        >>> ids[are_atoms]
        array([5, 1])
        """
        ids = np.empty(len(numbers), dtype=np.int64)
        are_atoms = np.empty(len(numbers), dtype=bool)
        for first in range(0, len(numbers), _AT_A_TIME):
            some = slice(first, first + _AT_A_TIME)
            row = np.searchsorted(self.starts, numbers[some], side="right") - 1
            start, before = self.starts[row], self.before[:-1][row]
            within = numbers[some] - start
            n_atoms = self.before[1:][row] - before
            are_atoms[some] = (row >= 0) & (within >= 0) & (within < n_atoms)
            ids[some] = before + within + 1
        return ids, are_atoms

    def restore(self, ids: np.ndarray) -> None:
        """Give atoms that were counted their numbers.

        Parameters
        ----------
        ids : numpy.ndarray of int64, shape (n,)
            From 1; become the numbers.

        Examples
        --------
        >>> ids = np.array([5, 1])
        >>> Numbering.of(np.array([0, 1, 2, 7, 8])).restore(ids)
        >>> ids
        array([8, 0])
        """
        for first in range(0, len(ids), _AT_A_TIME):
            some = ids[first : first + _AT_A_TIME]
            row = np.searchsorted(self.before, some - 1, side="right") - 1
            some += self.starts[row] - self.before[row] - 1


class TextFrame(NamedTuple):
    """Where a frame of text is, of which the core reads the atoms in double precision.

    Attributes
    ----------
    layout : bytes
        How the file's frames are coded.
    fingerprint : str
        What the file was recognised by.
    offset, size : int
        Bytes.
    """

    layout: bytes
    fingerprint: str
    offset: int
    size: int


class Atoms(NamedTuple):
    """Some atoms of a frame, as the core takes them.

    Attributes
    ----------
    ids : numpy.ndarray of int64, shape (n,), or None
        From 1; None where they are in order.
    vectors : sequence of (numpy.ndarray of float32, shape (n, 3), or None)
        Positions (Å), velocities (Å/ps) and forces (kJ/(mol·Å)).
    names : numpy.ndarray of uint8, shape (n, 8), or None
        Zeros behind the last character.
    masses, charges : numpy.ndarray of float64, shape (n,), or None
        u, e.
    """

    ids: np.ndarray | None
    vectors: Sequence[np.ndarray | None]
    names: np.ndarray | None
    masses: np.ndarray | None
    charges: np.ndarray | None

    def counted(self, numbering: Numbering) -> Self:
        """Count atoms by their numbers, and leave out places without one."""
        assert self.ids is not None
        ids, there = numbering.ids_of(self.ids)
        if there.all():
            return self._replace(ids=ids)
        some = [None if one is None else one[there] for one in self.vectors]
        names, masses, charges = (None if one is None else one[there] for one in self[2:])
        return type(self)(ids[there], some, names, masses, charges)


@dataclass(frozen=True)
class Moment:
    """A frame: where it is, and what its atoms share.

    Attributes
    ----------
    member : FileSpec
        The file.
    extents : Extents
        Where the frame is.
    fields : tuple of str
        What it holds of its atoms.
    dimensions : numpy.ndarray of float64, shape (6,), or None
        Å and degrees.
    vectors : numpy.ndarray of float64, shape (3, 3), or None
        Å.
    step : int
    time : float
        ps.
    n_places : int
        Places for atoms in the file.
    text : TextFrame or None
        Where it is, if it is DL_POLY's.
    known : sequence of str
        "names", "masses", "charges": what it tells of its atoms.
    rows : mapping of str to Row
        Where that is, and "ids", if these are in an HDF5 file.
    numbering : Numbering or None
        With "ids": the numbers that are atoms'.
    """

    member: FileSpec
    extents: Extents
    fields: Sequence[str]
    dimensions: np.ndarray | None
    vectors: np.ndarray | None
    step: int
    time: float
    n_places: int
    text: TextFrame | None = None
    known: Sequence[str] = ()
    rows: Mapping[str, "Row"] = field(default_factory=dict)
    numbering: Numbering | None = None

    @property
    def path(self) -> str:
        """The file."""
        return self.member.path

    @property
    def frame(self) -> int:
        """Its number in the file."""
        return int(self.extents.frames[0])

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.path}: frame {self.frame}"

    @property
    def field_bits(self) -> int:
        """What it holds, as the core counts it."""
        return field_bits(self.fields)

    @property
    def dtype(self) -> np.dtype:
        """Of positions, velocities and forces."""
        return np.dtype(np.float32 if self.text is None else np.float64)

    @property
    def has_names(self) -> bool:
        """Whether it tells names."""
        return "names" in self.known

    @property
    def has_masses(self) -> bool:
        """Whether it tells masses."""
        return "masses" in self.known

    @property
    def has_charges(self) -> bool:
        """Whether it tells charges."""
        return "charges" in self.known

    @contextlib.contextmanager
    def explaining_ids(self) -> Iterator[None]:
        """Say in errors how atoms are counted, where the file numbers them otherwise."""
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
        """Raise `MissingDataError` where atoms have no positions that could tell their owners."""
        if "positions" not in self.fields:
            raise MissingDataError(f"{self.name} has no positions, which would tell atoms' owners")

    def require_cell(self) -> np.ndarray:
        """Vectors of the cell, Å; `UnsupportedError` where there is none."""
        if self.vectors is None:
            raise UnsupportedError(
                f"{self.name} has no cell that a grid could cut; give owner= in place of grid="
            )
        return self.vectors

    def read(self, first: int, last: int) -> Atoms:
        """Decode some atoms.

        Parameters
        ----------
        first, last : int
            Their places in the file, from 0; the last is not among them.

        Returns
        -------
        Atoms
        """
        atoms = np.arange(first, last)
        decoded = Decoded.room_for(self.extents.frames.astype(np.int64), len(atoms), self.fields)
        hand = self.member.open(atoms, self.field_bits)
        hand.read(self.extents, decoded, required=self.field_bits, skip=False)
        arrays = (decoded.positions, decoded.velocities, decoded.forces)
        vectors = [None if array is None else array[0] for array in arrays]
        found = Atoms(None, vectors, None, None, None)
        if not self.rows:
            return found
        # Here, and for no other file, HDF5's own library is loaded.
        from paceline.hdf5.topology import read_rows

        beside: dict[str, Any] = {**read_rows(self.path, self.rows, first, last)}
        found = found._replace(**beside)
        return found if self.numbering is None else found.counted(self.numbering)


@dataclass(frozen=True)
class Snapshot:
    """One rank's atoms of a frame, and what all of them share.

    The arrays are the rank's own: it may change them.

    Attributes
    ----------
    ids : numpy.ndarray of int64, shape (n,)
        Numbers of this rank's atoms, rising. They count from 1, unless the file numbers its
        particles otherwise (H5MD).
    positions : numpy.ndarray of float64 or float32, shape (n, 3), or None
        Å, as the file has them: not wrapped. float64 from CONFIG, REVCON and HISTORY, float32 from
        all others. None where the frame holds none.
    velocities : the same
        Å/ps.
    forces : the same
        kJ/(mol·Å).
    names : numpy.ndarray of str, shape (n,), or None
        At most 8 characters: of CONFIG, REVCON, HISTORY, and of H5MD where paceline wrote it.
    masses : numpy.ndarray of float64, shape (n,), or None
        u; of HISTORY and H5MD, where they have them.
    charges : numpy.ndarray of float64, shape (n,), or None
        e; likewise.
    dimensions : numpy.ndarray of float64, shape (6,), or None
        Lengths of the cell (Å) and its angles (degrees). None where the frame has no cell.
    vectors : numpy.ndarray of float64, shape (3, 3), or None
        Vectors of the cell, one a row, Å: as the file has them where it has vectors that may point
        anywhere (CONFIG, REVCON, HISTORY), else the first along x, the second in the plane of x
        and y.
    step : int
        Of the simulation.
    time : float
        ps.
    """

    ids: np.ndarray
    positions: np.ndarray | None
    velocities: np.ndarray | None
    forces: np.ndarray | None
    names: np.ndarray | None
    masses: np.ndarray | None
    charges: np.ndarray | None
    dimensions: np.ndarray | None
    vectors: np.ndarray | None
    step: int
    time: float

    def __len__(self) -> int:
        return len(self.ids)


def snapshot_of(moment: Moment, columns: Sequence[np.ndarray | None]) -> Snapshot:
    """What the core has read, as arrays.

    Parameters
    ----------
    moment : Moment
        The frame.
    columns : sequence of (numpy.ndarray of uint8, or None)
        As the core gives them: owners, ids, positions, velocities, forces, names, masses, charges.

    Returns
    -------
    Snapshot
    """
    _, ids, *vectors, names, masses, charges = columns
    positions, velocities, forces = (
        None if one is None else one.view(moment.dtype).reshape(-1, 3) for one in vectors
    )
    assert ids is not None, "atoms without numbers"
    ids = ids.view(np.int64)
    if moment.numbering is not None:
        moment.numbering.restore(ids)
    return Snapshot(
        ids=ids,
        positions=positions,
        velocities=velocities,
        forces=forces,
        names=None if names is None else _text(names.reshape(-1, 8)),
        masses=None if masses is None else masses.view(np.float64),
        charges=None if charges is None else charges.view(np.float64),
        dimensions=moment.dimensions,
        vectors=moment.vectors,
        step=moment.step,
        time=moment.time,
    )


def _text(names: np.ndarray) -> np.ndarray:
    """Names out of bytes that zeros fill up; shape (n, 8) becomes (n,)."""
    # Each byte is the number of its character, in Latin-1.
    return names.astype(np.uint32).view("U8").ravel()
