"""One frame of a file, as the first rank finds it and all ranks read it."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from paceline.block import Decoded, field_bits
from paceline.errors import MissingDataError, UnsupportedError
from paceline.frames import Extents, Member
from paceline.snapshot.numbering import Numbering

if TYPE_CHECKING:
    from paceline.hdf5.beside import Row


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
    member : Member
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

    member: Member
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
        from paceline.hdf5.beside import read_rows

        beside: dict[str, Any] = {**read_rows(self.path, self.rows, first, last)}
        found = found._replace(**beside)
        return found if self.numbering is None else found.counted(self.numbering)
