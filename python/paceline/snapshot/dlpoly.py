"""DL_POLY text snapshots: CONFIG or REVCON with one configuration, and HISTORY with a series."""

from typing import Any

import numpy as np

from paceline import _core
from paceline._util.files import check_output, naming_file
from paceline.block import field_bits
from paceline.errors import UnsupportedError
from paceline.snapshot.output import (
    Container,
    Contents,
    FrameOffsets,
    FrameSeries,
    Heading,
    Output,
    Piece,
    Place,
    Settings,
    check_atom_count,
)

#: Size of a record with its line feed, and of an atom's name, bytes.
RECORD, NAME = 73, 8
#: Maximum number of bytes up to the end of the first atom's lines.
_LONGEST_HEADER = 2**16
#: Fields of each value of keytrj.
_LEVELS = (
    ("positions",),
    ("positions", "velocities"),
    ("positions", "velocities", "forces"),
)


class Config(Container):
    """CONFIG or REVCON file: one configuration, which every frame replaces."""

    def __init__(self, settings: Settings):
        super().__init__(settings)
        if settings.append:
            raise UnsupportedError(
                f"{settings.path} contains one configuration, and no frame can be added; pass "
                "overwrite=True to replace it"
            )
        check_output(settings.path, overwrite=settings.overwrite)
        self._head = b""

    def place(self, contents: Contents, heading: Heading) -> Place:
        """Create a new file."""
        path = self._settings.path
        with naming_file(path):
            self._head = _core.dlpoly_config_head(
                self._settings.title,
                self._settings.n_atoms,
                field_bits(contents.fields),
                **_frame_info(self._settings, heading),
            )
        self._output = Output.new(path)
        return Place(self._output.name, (len(self._head),))

    def commit(self) -> None:
        """Replace the previous file."""
        assert self._output is not None
        self._output.write(0, self._head)
        self._publish()
        self.close()

    def cut_back(self) -> None:
        """Keep the previous file."""
        self.close()


class History(FrameSeries):
    """HISTORY file, in records of 73 bytes."""

    _imcon: int
    _atom_size: int
    #: Offset of the first frame, and size of a frame's header, bytes.
    _first: int
    _frame_head: int

    def _head(self, contents: Contents, heading: Heading) -> bytes:
        with naming_file(self._settings.path):
            self._imcon = _core.dlpoly_imcon(_rows(heading.cell))
        self._atom_size = RECORD * (1 + len(contents.fields))
        return self._head_of(contents, 0)

    def _head_of(self, contents: Contents, n_frames: int) -> bytes:
        with naming_file(self._settings.path):
            head = _core.dlpoly_history_head(
                self._settings.title,
                self._settings.n_atoms,
                field_bits(contents.fields),
                imcon=self._imcon,
                n_frames=n_frames,
            )
        return head

    def _next(self, contents: Contents, heading: Heading) -> FrameOffsets:
        with naming_file(self._settings.path):
            head = _core.dlpoly_frame_head(
                self._settings.n_atoms,
                field_bits(contents.fields),
                **_frame_info(self._settings, heading),
            )
        start = self._end + len(head)
        end = start + self._settings.n_atoms * self._atom_size
        return FrameOffsets((start,), [(self._end, head)], end)

    def _counts(self, n_frames: int) -> list[Piece]:
        assert self._contents is not None
        return [(RECORD, self._head_of(self._contents, n_frames)[RECORD:])]

    def _open(self, output: Output) -> Contents:
        path = self._settings.path
        header = self._parse(output)
        self._imcon, n_atoms = header.imcon, header.n_atoms
        check_atom_count(path, n_atoms, self._settings.n_atoms)
        contents = Contents(_LEVELS[header.level], self._imcon > 0)
        self._atom_size = RECORD * (2 + header.level)
        self._first = self._end = 2 * RECORD
        self._frame_head = 4 * RECORD
        size = self._frame_head + n_atoms * self._atom_size
        self._count(output, size, header.n_frames or 0)
        for frame in {0, self.n_frames - 1} if self.n_frames else ():
            if not self._is_whole(output, self._first + frame * size):
                raise UnsupportedError(
                    f'{path}, frame {frame}: expected "timestep" at byte '
                    f"{self._first + frame * size}: only a HISTORY whose frames are of one size, "
                    "in records of 73 bytes, can be continued"
                )
        return contents

    def _parse(self, output: Output) -> _core.HistoryHeader:
        """Parse the header; raise if it is not in two records of 73 bytes."""
        path = self._settings.path
        head = output.read(0, _LONGEST_HEADER)
        line = head[RECORD : 2 * RECORD]
        whole = len(line) == RECORD and head[RECORD - 1] == line[-1] == ord("\n")
        if whole and len(line.split()) == 5:
            header = _core.history_header(path, head, output.size)
            if header.level < len(_LEVELS):
                return header
        found = line.decode("ascii", "backslashreplace").strip()
        raise UnsupportedError(
            f"{path}: only a HISTORY of DL_POLY_4 or 5, in records of 73 bytes, can be continued: "
            f"expected keytrj, imcon, atoms, frames and records at byte {RECORD}, found {found!r}"
        )

    def _is_whole(self, output: Output, start: int) -> bool:
        return output.read(start, 8) == b"timestep"

    def stored_property(self, name: str, first: int, n_atoms: int) -> np.ndarray | None:
        """Read names of the first frame; masses and charges are stored in each frame."""
        if self._output is None or self.n_frames == 0 or name != "names":
            return None
        start = self._first + self._frame_head + first * self._atom_size
        data = np.frombuffer(self._output.read(start, n_atoms * self._atom_size), dtype=np.uint8)
        return data.reshape(n_atoms, self._atom_size)[:, :NAME]


def _rows(cell: np.ndarray | None) -> list[list[float]] | None:
    return None if cell is None else cell.tolist()


def _frame_info(settings: Settings, heading: Heading) -> dict[str, Any]:
    """Return the fields of a frame's header; by default, the step length is time / step."""
    dt = settings.dt
    if dt is None:
        dt = heading.time / heading.step if heading.step else 0.0
    return {
        "step": heading.step,
        "dt": dt,
        "time": heading.time,
        "cell": _rows(heading.cell),
    }
