"""Binary snapshots: Amber NetCDF, and DCD, little-endian with markers of 4 bytes."""

import struct
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline import _core
from paceline.block import field_bits
from paceline.errors import DamagedFileError, PacelineWarning, UnsupportedError, UnwritableError
from paceline.hdf5.file import damaged
from paceline.snapshot.container import (
    Contents,
    Heading,
    Settings,
    check_atom_count,
    check_cell_orientation,
    spans,
)
from paceline.snapshot.local_atoms import angles_of, lengths_and_cosines
from paceline.snapshot.output import Frame, FrameSeries, Output, Piece

#: Bytes of the numbers of each kind, and NumPy's name of it.
_KINDS = {1: ">i1", 2: "S1", 3: ">i2", 4: ">i4", 5: ">f4", 6: ">f8"} | {
    7: ">u1",
    8: ">u2",
    9: ">u4",
    10: ">i8",
    11: ">u8",
}


class BadHeader(ValueError):
    """Bytes contradict the format, or end too soon."""


@dataclass(frozen=True)
class Variable:
    """One variable of a NetCDF-3 file."""

    #: Names.
    dimensions: tuple[str, ...]
    #: NumPy's name of its numbers' type.
    kind: str
    #: Text as bytes, else tuples of float.
    attributes: Mapping[str, Any]
    #: Offset, in the first record if it is one of the records.
    begin: int


@dataclass(frozen=True)
class Header:
    """Header of a NetCDF-3 file."""

    #: 1, 2 or 5.
    version: int
    #: None where the size of the file tells.
    n_records: int | None
    #: Lengths; 0 of the records.
    dimensions: Mapping[str, int]
    #: Text as bytes, else tuples of float.
    attributes: Mapping[str, Any]
    variables: Mapping[str, Variable]
    #: Bytes.
    size: int

    def count(self, n_records: int) -> bytes:
        """Encode the number of records, which stands behind the version."""
        return struct.pack(">q" if self.version == 5 else ">i", n_records)


def parse_header(data: bytes) -> Header:
    """Parse the first bytes of a file; raise `BadHeader` where they are no whole header."""
    if data[:3] != b"CDF" or data[3:4] not in (b"\x01", b"\x02", b"\x05"):
        raise BadHeader('expected "CDF" and a version of 1, 2 or 5')
    cursor = _Cursor(data, data[3])
    counted = cursor.count()
    unknown = 2**64 - 1 if cursor.version == 5 else 2**32 - 1
    lengths = {name: cursor.count() for name in cursor.names(10)}
    attributes = cursor.attributes()
    order = tuple(lengths)
    variables = {name: cursor.variable(order) for name in cursor.names(11)}
    n_records = None if counted == unknown else counted
    return Header(cursor.version, n_records, lengths, attributes, variables, cursor.at)


class _Cursor:
    """Position in a header that is being parsed."""

    def __init__(self, data: bytes, version: int):
        self.version = version
        self.at = 4
        self._data = data

    def take(self, size: int) -> bytes:
        if size > len(self._data) - self.at:
            raise BadHeader(f"expected {size} bytes at byte {self.at}, found the end")
        self.at += size
        return self._data[self.at - size : self.at]

    def count(self) -> int:
        size = 8 if self.version == 5 else 4
        return int.from_bytes(self.take(size), "big")

    def names(self, tag: int) -> Any:
        """Yield the names of a list; what follows each is read before the next."""
        found = int.from_bytes(self.take(4), "big")
        n_entries = self.count()
        if found not in (tag, 0) or (found == 0 and n_entries):
            raise BadHeader(f"expected a list of tag {tag} before byte {self.at}, found {found}")
        for _ in range(n_entries):
            yield self._padded(self.count()).decode("utf-8", "backslashreplace")

    def attributes(self) -> dict[str, Any]:
        found = {}
        for name in self.names(12):
            kind, n_values = self._kind(), self.count()
            width = int(kind[-1])
            data = self._padded(width * n_values)
            code = {"i": "bhiq", "u": "BHIQ", "f": "  fd"}.get(kind[1])
            found[name] = (
                data
                if code is None
                else struct.unpack(f">{n_values}{code[width.bit_length() - 1]}", data)
            )
        return found

    def variable(self, order: tuple[str, ...]) -> Variable:
        numbers = [self.count() for _ in range(min(self.count(), len(self._data)))]
        if any(number >= len(order) for number in numbers):
            raise BadHeader(f"expected one of {len(order)} dimensions before byte {self.at}")
        attributes = self.attributes()
        kind = self._kind()
        self.count()
        begin = int.from_bytes(self.take(4 if self.version == 1 else 8), "big")
        return Variable(tuple(order[number] for number in numbers), kind, attributes, begin)

    def _kind(self) -> str:
        number = int.from_bytes(self.take(4), "big")
        if number not in _KINDS:
            raise BadHeader(f"expected a type of numbers before byte {self.at}, found {number}")
        return _KINDS[number]

    def _padded(self, size: int) -> bytes:
        return self.take(size + -size % 4)[:size]


#: Fields and the variables of Amber's convention that hold them.
_VARIABLES = {"positions": "coordinates", "velocities": "velocities", "forces": "forces"}
_CELL_VARIABLES = ("cell_lengths", "cell_angles")
#: Bytes in which a header ends, if it is one of a trajectory.
_LONGEST_HEADER = 2**20


class NetCDF(FrameSeries):
    """Write an Amber trajectory; a new one as CDF-5, with room for any size."""

    _header: Header
    _record_size: int

    def _head(self, contents: Contents, heading: Heading) -> bytes:
        head = self._new_head(contents, heading.time, heading.step)
        self._understand(head)
        return head

    def _new_head(self, contents: Contents, time: float = 0.0, step: int = 0) -> bytes:
        encoder = _core.Encoder(
            "CDF-5", self._settings.n_atoms, None, contents.has_cell, field_bits(contents.fields)
        )
        return encoder.head(0, time, 0.0, step, 0)

    def _understand(self, head: bytes) -> None:
        self._header = parse_header(head)
        self._records = {
            name: variable
            for name, variable in self._header.variables.items()
            if "frame" in variable.dimensions
        }
        self._record_size = sum(map(self._size_of, self._records.values()))

    def _size_of(self, variable: Variable) -> int:
        """Bytes of a variable in a record."""
        lengths = [self._header.dimensions[name] or 1 for name in variable.dimensions]
        size = int(variable.kind[-1]) * int(np.prod(lengths, dtype=object))
        # The only variable of the records has no gaps between them.
        return size if len(self._records) == 1 else size + -size % 4

    def _next(self, contents: Contents, heading: Heading) -> Frame:
        framing = [self._piece("time", [heading.time])]
        if contents.has_cell:
            check_cell_orientation(self._settings.path, heading.cell)
            assert heading.cell is not None
            lengths, cosines = lengths_and_cosines(heading.cell)
            framing += [
                self._piece(name, numbers)
                for name, numbers in zip(
                    _CELL_VARIABLES, (lengths, angles_of(cosines)), strict=True
                )
            ]
        starts = tuple(self._place(_VARIABLES[field]) for field in contents.fields)
        return Frame(starts, framing, self._end + self._record_size)

    def _place(self, name: str) -> int:
        """Find the offset of a variable in the next record."""
        return self._records[name].begin + self.n_frames * self._record_size

    def _piece(self, name: str, numbers: list[float] | np.ndarray) -> Piece:
        with np.errstate(over="ignore"):
            stored = np.asarray(numbers).astype(self._records[name].kind)
        if not np.isfinite(stored).all():
            raise UnwritableError(
                f"{self._settings.path}: expected a {name} that {stored.dtype.name} holds, found "
                f"{numbers}"
            )
        return self._place(name), stored.tobytes()

    def _counts(self, n_frames: int) -> list[Piece]:
        if self._header.version != 5 and n_frames > 2**31 - 1:
            raise UnwritableError(
                f"{self._settings.path}: CDF-{self._header.version} holds no more than 2147483647 "
                "frames"
            )
        return [(4, self._header.count(n_frames))]

    def _open(self, output: Output) -> Contents:
        path = self._settings.path
        try:
            self._understand(output.read(0, _LONGEST_HEADER))
        except BadHeader as reason:
            raise damaged(path, "", "a header of NetCDF-3", str(reason)) from None
        check_atom_count(path, self._header.dimensions.get("atom", 0), self._settings.n_atoms)
        contents = self._contents_of_records()
        self._end = self._first_record()
        counted = self._header.n_records
        self._count(output, self._record_size, output.size if counted is None else counted)
        return contents

    def _first_record(self) -> int:
        """Find where records begin; in them variables must lie one behind another."""
        in_order = sorted(self._records.items(), key=lambda item: item[1].begin)
        first = in_order[0][1].begin
        expected = max(first, self._header.size)
        for name, variable in in_order:
            if variable.begin != expected:
                where = f"{name} of the first record at byte {expected}"
                raise damaged(self._settings.path, "", where, f"byte {variable.begin}")
            expected += self._size_of(variable)
        return first

    def _contents_of_records(self) -> Contents:
        """Return what the records hold; raise where we would write something else."""
        fields = tuple(field for field in _VARIABLES if _VARIABLES[field] in self._records)
        has_cell = _CELL_VARIABLES[0] in self._records
        ours = {
            "time",
            _VARIABLES["positions"],
            *(_VARIABLES[field] for field in fields),
            *(_CELL_VARIABLES if has_cell else ()),
        }
        for name in sorted(set(self._records) ^ ours):
            is_there = "a" if name in self._records else "no"
            raise self._unlike(f"has {is_there} variable {name!r}")
        contents = Contents(fields, has_cell)
        expected = parse_header(self._new_head(contents)).variables
        for name, variable in self._records.items():
            shape = variable.dimensions[1:]
            if name in _VARIABLES.values() and (variable.kind, shape) != (
                ">f4",
                ("atom", "spatial"),
            ):
                raise self._unlike(f"has {name} of type {variable.kind[1:]} by {shape}")
            scale, wanted = (
                one.attributes.get("scale_factor", (1.0,)) for one in (variable, expected[name])
            )
            if not np.allclose(scale, wanted, rtol=1e-6):
                raise self._unlike(f"has {name} in another unit, scaled by {scale}")
        return contents

    def _unlike(self, what: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self._settings.path} {what}, unlike the trajectories that paceline writes: it "
            "cannot be continued; write to a new file"
        )


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


class Dcd(FrameSeries):
    """Write a DCD file, little-endian, with markers of 4 bytes."""

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
        framing: list[Piece] = []
        first = self._end
        if contents.has_cell:
            check_cell_orientation(self._settings.path, heading.cell)
            assert heading.cell is not None
            framing.append((first, _cell_record(heading.cell)))
            first += _CELL_RECORD.size
        records = spans(first, [size + 8] * 3)
        for start in records[:3]:
            framing += [(start, marker), (start + 4 + size, marker)]
        self._tick(contents, heading)
        return Frame(tuple(start + 4 for start in records[:3]), framing, records[3])

    def _tick(self, contents: Contents, heading: Heading) -> None:
        """Set the times in the head by two frames; warn where others do not keep to them."""
        if self.n_frames < 2:
            self._clock = [*self._clock[: self.n_frames], (heading.time, heading.step)]
            encoder = _core.Encoder("DCD", self._settings.n_atoms, None, contents.has_cell, 1)
            (time, step), (last, last_step) = self._clock[0], self._clock[-1]
            head = encoder.head(len(self._clock), time, last - time, step, last_step - step)
            encoded = list(_FIRST.unpack_from(head)[2:-1])
            for k in (_FIRST_STEP, _STRIDE, _DELTA):
                self._numbers[k] = encoded[k]
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
        """Compute the time that readers will give a frame, ps."""
        (delta,) = struct.unpack("<f", struct.pack("<i", self._numbers[_DELTA]))
        return (self._numbers[_FIRST_STEP] + frame * self._numbers[_STRIDE]) * delta * _AKMA

    def _counts(self, n_frames: int) -> list[Piece]:
        self._numbers[_COUNT] = min(n_frames, _MOST)
        self._numbers[_STEPS] = min(n_frames * self._numbers[_STRIDE], _MOST)
        return [(0, _FIRST.pack(84, b"CORD", *self._numbers, 84))]

    def _open(self, output: Output) -> Contents:
        n_atoms, head_size = self._read_head(output)
        check_atom_count(self._settings.path, n_atoms, self._settings.n_atoms)
        contents = Contents(("positions",), bool(self._numbers[_CELL]))
        self._end = head_size
        size = _CELL_RECORD.size * contents.has_cell + 3 * (4 * n_atoms + 8)
        self._count(output, size, self._numbers[_COUNT])
        if self.n_frames == 1:
            self._clock = [(self._time_of(0), self._numbers[_FIRST_STEP])]
        return contents

    def _read_head(self, output: Output) -> tuple[int, int]:
        """Parse the head; return the number of atoms, and bytes of the head."""
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
        """Check a frame's markers, which are written behind its atoms."""
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
