"""DCD: a head that counts frames and tells their times, then records of all x, all y, all z."""

import struct
import warnings

import numpy as np

from paceline import _core
from paceline.block import field_bits
from paceline.errors import DamagedFileError, PacelineWarning, UnsupportedError
from paceline.hdf5.faults import damaged
from paceline.snapshot.cell import lengths_and_cosines
from paceline.snapshot.containers.base import (
    Contents,
    Heading,
    Settings,
    refuse_other_count,
    refuse_rotated,
    spans,
)
from paceline.snapshot.containers.output import Output
from paceline.snapshot.containers.series import Frame, Piece, Series

#: The first record, with its markers: "CORD" and 20 numbers, and places of some of these.
_FIRST = struct.Struct("<i4s20ii")
_COUNT, _FIRST_STEP, _STRIDE, _STEPS, _FIXED = 0, 1, 2, 3, 8
_DELTA, _CELL, _FOUR_DIMS, _VERSION = 9, 10, 11, 19
_MOST = 2**31 - 1
_MARKER = struct.Struct("<i")
#: A cell's record: A, cos γ, B, cos β, cos α, C.
_CELL_RECORD = struct.Struct("<i6di")
#: Of a title, at the most, as our reader takes it.
_LONGEST_TITLE = 2**20
#: ps in the unit of time of CHARMM.
_AKMA = 0.04888821


class Dcd(Series):
    """A DCD file that is being written: little-endian, with markers of 4 bytes.

    Parameters
    ----------
    settings : Settings
        Which file.
    """

    def __init__(self, settings: Settings):
        #: Its first record's numbers, and times and steps of its first two frames.
        self._numbers: list[int] = []
        self._clock: list[tuple[float, int]] = []
        self._warned = False
        super().__init__(settings)

    def _head(self, contents: Contents, heading: Heading) -> bytes:
        self._clock = []
        encoder = _core.Encoder(
            "DCD", self._settings.n_atoms, None, contents.has_cell, field_bits(contents.fields)
        )
        head = encoder.head(0, heading.time, 0.0, heading.step, 0)
        self._numbers = list(_FIRST.unpack_from(head)[2:-1])
        return head

    def _next(self, contents: Contents, heading: Heading) -> Frame:
        size = 4 * self._settings.n_atoms
        marker = _MARKER.pack(size)
        furniture: list[Piece] = []
        first = self._end
        if contents.has_cell:
            refuse_rotated(self._settings.path, heading.cell)
            assert heading.cell is not None
            furniture.append((first, _cell_record(heading.cell)))
            first += _CELL_RECORD.size
        records = spans(first, [size + 8] * 3)
        for start in records[:3]:
            furniture += [(start, marker), (start + 4 + size, marker)]
        self._tick(contents, heading)
        return Frame(tuple(start + 4 for start in records[:3]), furniture, records[3])

    def _tick(self, contents: Contents, heading: Heading) -> None:
        """Learn from two frames what the head tells of times, and see that others keep it."""
        if self.n_frames < 2:
            self._clock = [*self._clock[: self.n_frames], (heading.time, heading.step)]
            encoder = _core.Encoder("DCD", self._settings.n_atoms, None, contents.has_cell, 1)
            (time, step), (last, last_step) = self._clock[0], self._clock[-1]
            head = encoder.head(len(self._clock), time, last - time, step, last_step - step)
            told = list(_FIRST.unpack_from(head)[2:-1])
            for k in (_FIRST_STEP, _STRIDE, _DELTA):
                self._numbers[k] = told[k]
        expected = self._time_of(self.n_frames)
        between = abs(self._time_of(1) - self._time_of(0))
        if not self._warned and abs(heading.time - expected) > 0.01 * between > 0:
            self._warned = True
            warnings.warn(
                f"{self._settings.path}: a DCD file holds one time between frames, and frame "
                f"{self.n_frames} of {heading.time:g} ps will be read as one of {expected:g} ps",
                PacelineWarning,
                stacklevel=2,
            )

    def _time_of(self, frame: int) -> float:
        """What readers take for the time of a frame, ps."""
        (delta,) = struct.unpack("<f", struct.pack("<i", self._numbers[_DELTA]))
        return (self._numbers[_FIRST_STEP] + frame * self._numbers[_STRIDE]) * delta * _AKMA

    def _counts(self, n_frames: int) -> list[Piece]:
        self._numbers[_COUNT] = min(n_frames, _MOST)
        self._numbers[_STEPS] = min(n_frames * self._numbers[_STRIDE], _MOST)
        return [(0, _FIRST.pack(84, b"CORD", *self._numbers, 84))]

    def _open(self, output: Output) -> Contents:
        n_atoms, head_size = self._read_head(output)
        refuse_other_count(self._settings.path, n_atoms, self._settings.n_atoms)
        contents = Contents(("positions",), bool(self._numbers[_CELL]))
        self._end = head_size
        size = _CELL_RECORD.size * contents.has_cell + 3 * (4 * n_atoms + 8)
        self._count(output, size, self._numbers[_COUNT])
        if self.n_frames == 1:
            self._clock = [(self._time_of(0), self._numbers[_FIRST_STEP])]
        return contents

    def _read_head(self, output: Output) -> tuple[int, int]:
        """Number of atoms, and bytes of the head."""
        first = output.read(0, _FIRST.size)
        if len(first) < _FIRST.size or first[:8] != b"\x54\0\0\0CORD":
            raise self._damaged(0, "a little-endian DCD file with markers of 4 bytes", first[:12])
        *_, last = numbers = list(_FIRST.unpack(first)[2:])
        self._numbers = numbers[:-1]
        if last != 84:
            raise self._damaged(_FIRST.size - 4, "a record of 84 bytes", first[-4:])
        for k, what in ((_FIXED, "fixed atoms"), (_FOUR_DIMS, "a fourth dimension")):
            if self._numbers[k]:
                raise UnsupportedError(f"{self._settings.path} has {what}: it cannot be continued")
        if self._numbers[_VERSION] == 0:
            raise UnsupportedError(
                f"{self._settings.path} is of X-PLOR's kind of DCD: only CHARMM's is continued"
            )
        (title,) = _MARKER.unpack(self._bytes(output, _FIRST.size, 4))
        if not 4 <= title <= _LONGEST_TITLE:
            raise self._damaged(_FIRST.size, "a title", str(title).encode())
        at = _FIRST.size + 8 + title
        marker, n_atoms, again = struct.unpack("<3i", self._bytes(output, at, 12))
        if (marker, again) != (4, 4):
            raise self._damaged(at, "a record of 4 bytes", str(marker).encode())
        return n_atoms, at + 12

    def _bytes(self, output: Output, offset: int, size: int) -> bytes:
        data = output.read(offset, size)
        if len(data) < size:
            raise self._damaged(offset, "the rest of the head", b"the end of the file")
        return data

    def _is_whole(self, output: Output, start: int) -> bool:
        """Whether a frame has all its marks, which are written behind its atoms."""
        size = 4 * self._settings.n_atoms
        first = start + _CELL_RECORD.size * bool(self._numbers[_CELL])
        marker = _MARKER.pack(size)
        return all(
            output.read(record, 4) == output.read(record + 4 + size, 4) == marker
            for record in spans(first, [size + 8] * 2)
        )

    def _damaged(self, offset: int, expected: str, found: bytes) -> DamagedFileError:
        words = found.decode("ascii", "backslashreplace")
        return damaged(self._settings.path, "", expected, repr(words), offset)


def _cell_record(cell: np.ndarray) -> bytes:
    (a, b, c), (cos_a, cos_b, cos_c) = lengths_and_cosines(cell)
    return _CELL_RECORD.pack(48, a, cos_c, b, cos_b, cos_a, c, 48)
