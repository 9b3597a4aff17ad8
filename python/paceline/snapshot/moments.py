"""One frame of a file, as the first rank finds it and all ranks read it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from paceline import _core
from paceline.block import Decoded, field_bits, fields_in
from paceline.errors import MissingDataError, UnsupportedError
from paceline.frames import Extents, Member
from paceline.hdf5.reading import Hdf5Member
from paceline.indexed import IndexedMember, TrajectoryFile, extents_in
from paceline.snapshot.cell import angles_of, lengths_and_cosines

#: Formats of DL_POLY.
TEXT = ("CONFIG", "HISTORY")


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
    text : TextFrame or None
        Where it is, if it is DL_POLY's.
    has_masses : bool
        Whether it holds masses and charges.
    """

    member: Member
    extents: Extents
    fields: Sequence[str]
    dimensions: np.ndarray | None
    vectors: np.ndarray | None
    step: int
    time: float
    text: TextFrame | None = None
    has_masses: bool = False

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

    def numbers_of(self, places: np.ndarray) -> np.ndarray:
        """What the file calls its atoms, which are counted from 1 here.

        Parameters
        ----------
        places : numpy.ndarray of int64, shape (n,)
            In the order of the atoms' numbers.

        Returns
        -------
        numpy.ndarray of int64, shape (n,)
        """
        if isinstance(self.member, Hdf5Member) and self.member.id_order is not None:
            return self.member.id_order[places - 1]
        return places

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

    def read(self, first: int, last: int) -> list[np.ndarray | None]:
        """Decode some atoms.

        Parameters
        ----------
        first, last : int
            Their places in the file, from 0; the last is not among them.

        Returns
        -------
        list of (numpy.ndarray of float32, shape (n, 3), or None)
            Positions (Å), velocities (Å/ps) and forces (kJ/(mol·Å)).
        """
        atoms = np.arange(first, last)
        decoded = Decoded.room_for(self.extents.frames.astype(np.int64), len(atoms), self.fields)
        hand = self.member.open(atoms, self.field_bits)
        hand.read(self.extents, decoded, required=self.field_bits, skip=False)
        arrays = (decoded.positions, decoded.velocities, decoded.forces)
        return [None if array is None else array[0] for array in arrays]


def look_at(file: TrajectoryFile, frame: int) -> Moment:
    """Find a frame and what its atoms share.

    Parameters
    ----------
    file : TrajectoryFile
        An open file.
    frame : int
        Number of the frame; negative ones count from the end.

    Returns
    -------
    Moment

    Raises
    ------
    ValueError
        There is no such frame.
    DamagedFileError
        Its header is damaged.
    """
    try:
        number = range(file.n_frames)[frame]
    except IndexError:
        raise ValueError(
            f"{file.path}: frame {frame} is out of range for {file.n_frames} frames"
        ) from None
    extents = extents_in(0, file, np.array([number], dtype=np.uint64))
    if file.format in TEXT and isinstance(file.member, IndexedMember):
        return _of_text(file.member, extents)
    # Of no atoms, but all fields: only so do all hands tell which of them the frame holds.
    head = Decoded.room_for(np.array([number]), 0, fields_in(file.fields))
    hand = file.member.open(np.empty(0, dtype=np.int64), file.fields)
    hand.read(extents, head, required=0, skip=False)
    has_cell = bool(head.dimensions[0].any())
    return Moment(
        file.member,
        extents,
        fields_in(int(head.fields[0])),
        head.dimensions[0].astype(np.float64) if has_cell else None,
        _core.cell_vectors(head.dimensions)[0] if has_cell else None,
        int(head.steps[0]),
        float(head.times[0]),
    )


def _of_text(member: IndexedMember, extents: Extents) -> Moment:
    frame, offset, size = (int(one[0]) for one in (extents.frames, extents.offsets, extents.sizes))
    text = TextFrame(member.layout, member.fingerprint, offset, size)
    step, time, cell, fields, has_masses = _core.read_text_head(member.path, frame, text)
    vectors = dimensions = None
    if cell is not None:
        vectors = np.array(cell)
        lengths, cosines = lengths_and_cosines(vectors)
        dimensions = np.concatenate([lengths, angles_of(cosines)])
    return Moment(
        member, extents, fields_in(fields), dimensions, vectors, step, time, text, has_masses
    )
