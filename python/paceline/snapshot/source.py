"""The file of a reader, as the first rank has it open."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from paceline import _core
from paceline.block import Decoded, fields_in
from paceline.errors import UnsupportedError
from paceline.frames import Extents
from paceline.hdf5.apart import apart
from paceline.hdf5.file import Hdf5File
from paceline.indexed import IndexedMember, TrajectoryFile, extents_in
from paceline.opening import open_file
from paceline.snapshot.cell import angles_of, lengths_and_cosines
from paceline.snapshot.moments import Moment, TextFrame
from paceline.snapshot.numbering import Numbering

if TYPE_CHECKING:
    from paceline.hdf5.beside import Column

#: Formats of DL_POLY.
_TEXT = ("CONFIG", "HISTORY")
#: What part of a buffer, one in so many, the numbers of atoms may take.
_PART = 8


class Source:
    """A file, and what it tells of its atoms whatever the frame.

    Parameters
    ----------
    path : str
        Of any format.
    buffer : int
        Bytes that a rank may hold beside its own atoms.

    Attributes
    ----------
    format : str
    n_atoms, n_frames : int

    Raises
    ------
    UnsupportedError
        It is of no format that we decode, or the numbers of its atoms have too many gaps.
    DamagedFileError
        Its first frame or its header is damaged.
    OSError
        It cannot be opened.
    """

    def __init__(self, path: str, buffer: int):
        file: TrajectoryFile = open_file(path)
        self.format, self.n_atoms, self.n_frames = file.format, file.n_atoms, file.n_frames
        self._columns: dict[str, Column] = {}
        self._numbering: Numbering | None = None
        self._file = self._as_stored(file, buffer) if isinstance(file, Hdf5File) else file

    def _as_stored(self, file: Hdf5File, buffer: int) -> Hdf5File:
        """The file with atoms where they stand in it; and what else it tells of them."""
        from paceline.hdf5.beside import Column, columns_of

        found = file.catalogue
        if file.format == "H5MD":
            self._columns = apart(columns_of, file.path, group=found.facts.get("group"))
        if found.ids is None or found.id_order is None:
            return file
        numbering = self._numbering = Numbering.of(found.id_order)
        if numbering.nbytes > buffer // _PART:
            raise UnsupportedError(
                f"{file.path}: the numbers of its atoms have {numbering.n_gaps} gaps, which a "
                f"buffer of {buffer} bytes does not hold: give at least {_PART * numbering.nbytes}"
            )
        self._columns["ids"] = Column(found.ids.dataset.name, found.ids.rows, is_fixed=False)
        n_places = found.ids.dataset.shape[1]
        stored = replace(found, n_atoms=n_places, ids=None, id_order=None)
        return Hdf5File(file.path, file.fingerprint, stored)

    def look_at(self, frame: int) -> Moment:
        """Find a frame and what its atoms share.

        Parameters
        ----------
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
        file = self._file
        try:
            number = range(file.n_frames)[frame]
        except IndexError:
            raise ValueError(
                f"{file.path}: frame {frame} is out of range for {file.n_frames} frames"
            ) from None
        extents = extents_in(0, file, np.array([number], dtype=np.uint64))
        if file.format in _TEXT and isinstance(file.member, IndexedMember):
            return _of_text(file.member, extents, file.n_atoms)
        # Of no atoms, but all fields: only so do all hands tell which of them the frame holds.
        head = Decoded.room_for(np.array([number]), 0, fields_in(file.fields))
        hand = file.member.open(np.empty(0, dtype=np.int64), file.fields)
        hand.read(extents, head, required=0, skip=False)
        has_cell = bool(head.dimensions[0].any())
        found = {name: column.of(number) for name, column in self._columns.items()}
        rows = {name: row for name, row in found.items() if row is not None}
        return Moment(
            file.member,
            extents,
            fields_in(int(head.fields[0])),
            head.dimensions[0].astype(np.float64) if has_cell else None,
            _core.cell_vectors(head.dimensions)[0] if has_cell else None,
            int(head.steps[0]),
            float(head.times[0]),
            file.n_atoms,
            known=[name for name in rows if name != "ids"],
            rows=rows,
            numbering=self._numbering,
        )


def _of_text(member: IndexedMember, extents: Extents, n_atoms: int) -> Moment:
    frame, offset, size = (int(one[0]) for one in (extents.frames, extents.offsets, extents.sizes))
    text = TextFrame(member.layout, member.fingerprint, offset, size)
    step, time, cell, fields, has_masses = _core.read_text_head(member.path, frame, text)
    vectors = dimensions = None
    if cell is not None:
        vectors = np.array(cell)
        lengths, cosines = lengths_and_cosines(vectors)
        dimensions = np.concatenate([lengths, angles_of(cosines)])
    known = ["names", *(["masses", "charges"] if has_masses else [])]
    return Moment(
        member, extents, fields_in(fields), dimensions, vectors, step, time, n_atoms, text, known
    )
