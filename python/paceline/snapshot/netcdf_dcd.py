"""Binary snapshots: Amber NetCDF, and DCD (little-endian, 4-byte record markers)."""

import struct
import warnings

import numpy as np

from paceline import _core
from paceline.block import field_bits
from paceline.errors import (
    DamagedFileError,
    PacelineWarning,
    UnsupportedError,
    UnwritableError,
)
from paceline.snapshot.local_atoms import angles_of, lengths_and_cosines
from paceline.snapshot.output import (
    Contents,
    FrameOffsets,
    FrameSeries,
    Heading,
    Output,
    Piece,
    Settings,
    check_atom_count,
    check_cell_orientation,
    spans,
)

#: Variable of Amber's convention for each field.
_VARIABLES = {"positions": "coordinates", "velocities": "velocities", "forces": "forces"}
_CELL_VARIABLES = ("cell_lengths", "cell_angles")
#: Maximum size of a trajectory's header, bytes; also the maximum size of a DCD title.
_LONGEST_HEADER = 2**20
#: First record of DCD, with its markers: "CORD" and 20 numbers, and offsets of some numbers.
_FIRST = struct.Struct("<i4s20ii")
_COUNT, _FIRST_STEP, _STRIDE, _STEPS = 0, 1, 2, 3
_DELTA, _CELL, _FOUR_DIMS, _VERSION = 9, 10, 11, 19
#: Maximum CHARMM version that other programs claim; later CHARMM versions write cells as matrices.
_LAST_PRETENDED = 25
_MOST = 2**31 - 1
_MARKER = struct.Struct("<i")
#: Record of a cell: A, cos γ, B, cos β, cos α, C.
_CELL_RECORD = struct.Struct("<i6di")
#: CHARMM's unit of time, ps.
_AKMA = 0.04888821


class NetCDF(FrameSeries):
    """Amber trajectory; a new file is in CDF-5 format, which has no size limit."""

    _header: _core.NetcdfHeader

    def _head(self, contents: Contents, heading: Heading) -> bytes:
        head = self._new_head(contents, heading.time, heading.step)
        self._parse(head)
        return head

    def _new_head(self, contents: Contents, time: float = 0.0, step: int = 0) -> bytes:
        encoder = _core.Encoder(
            "CDF-5", self._settings.n_atoms, None, contents.has_cell, field_bits(contents.fields)
        )
        return encoder.head(0, time, 0.0, step, 0)

    def _parse(self, head: bytes, file_size: int | None = None) -> None:
        self._header = _core.netcdf_header(self._settings.path, head, file_size)
        self._records = {
            name: variable
            for name, variable in self._header.variables.items()
            if variable.in_records and variable.dimensions[0] == "frame"
        }

    def _size_of(self, variable: _core.NetcdfVariable) -> int:
        """Return the size of a variable in a record, bytes; padded unless it is the only one."""
        size = variable.size
        return size if len(self._records) == 1 else size + -size % 4

    def _next(self, contents: Contents, heading: Heading) -> FrameOffsets:
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
        return FrameOffsets(starts, framing, self._end + self._header.record_size)

    def _place(self, name: str) -> int:
        """Return the offset of a variable in the next record."""
        return self._records[name].begin + self.n_frames * self._header.record_size

    def _piece(self, name: str, numbers: list[float] | np.ndarray) -> Piece:
        with np.errstate(over="ignore"):
            stored = np.asarray(numbers).astype(self._records[name].kind)
        if not np.isfinite(stored).all():
            raise UnwritableError(
                f"{self._settings.path}: expected a {name} that fits into {stored.dtype.name}, "
                "found "
                f"{numbers}"
            )
        return self._place(name), stored.tobytes()

    def _counts(self, n_frames: int) -> list[Piece]:
        if self._header.version != 5 and n_frames > 2**31 - 1:
            raise UnwritableError(
                f"{self._settings.path}: CDF-{self._header.version} cannot contain more than "
                "2147483647 "
                "frames"
            )
        count = struct.pack(">q" if self._header.version == 5 else ">i", n_frames)
        return [(4, count)]

    def _open(self, output: Output) -> Contents:
        path = self._settings.path
        self._parse(output.read(0, _LONGEST_HEADER), output.size)
        check_atom_count(path, self._header.dimensions.get("atom", 0), self._settings.n_atoms)
        contents = self._contents_of_records()
        self._end = self._first_record()
        counted = self._header.n_records
        self._count(output, self._header.record_size, output.size if counted is None else counted)
        return contents

    def _first_record(self) -> int:
        """Return the offset of the first record; its variables must be contiguous."""
        in_order = sorted(self._records.items(), key=lambda item: item[1].begin)
        first = in_order[0][1].begin
        expected = max(first, self._header.size)
        for name, variable in in_order:
            if variable.begin != expected:
                where = f"{name} of the first record at byte {expected}"
                raise DamagedFileError.in_object(
                    self._settings.path, "", where, f"byte {variable.begin}"
                )
            expected += self._size_of(variable)
        return first

    def _contents_of_records(self) -> Contents:
        """Return the content of the records; raise if paceline would write other content."""
        fields = tuple(field for field in _VARIABLES if _VARIABLES[field] in self._records)
        has_cell = _CELL_VARIABLES[0] in self._records
        ours = {
            "time",
            _VARIABLES["positions"],
            *(_VARIABLES[field] for field in fields),
            *(_CELL_VARIABLES if has_cell else ()),
        }
        for name in sorted(set(self._records) ^ ours):
            if name in self._records:
                raise self._unlike(f"no variable {name!r}", "one")
            raise self._unlike(f"a variable {name!r}", "none")
        contents = Contents(fields, has_cell)
        expected = _core.netcdf_header(self._settings.path, self._new_head(contents)).variables
        for name, variable in self._records.items():
            self._check_variable(name, variable, expected[name])
        return contents

    def _check_variable(
        self, name: str, found: _core.NetcdfVariable, expected: _core.NetcdfVariable
    ) -> None:
        """Raise if readers would not recover the numbers that paceline writes to a variable."""
        kinds = [expected.kind] if name in _VARIABLES.values() else [">f4", ">f8"]
        shape = tuple(expected.dimensions[1:])
        n_values = expected.size // np.dtype(expected.kind).itemsize
        if (
            found.kind not in kinds
            or tuple(found.dimensions[1:]) != shape
            or found.size != n_values * np.dtype(found.kind).itemsize
        ):
            raise self._unlike(
                f"{name} of type {' or '.join(kinds)} and shape {_shape_text(expected)}",
                f"type {found.kind} and shape {_shape_text(found)}",
            )
        unit = _unit_of(expected)
        if not np.allclose(_factor_of(found, unit), _factor_of(expected, unit), rtol=1e-6):
            raise self._unlike(f"{name} in {_scaled_unit_text(expected)}", _scaled_unit_text(found))

    def _unlike(self, expected: str, found: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self._settings.path}: frames cannot be appended: expected {expected}, found "
            f"{found}; write to a new file"
        )


def _unit_of(variable: _core.NetcdfVariable) -> str:
    """Return the stated unit, without the padding of some programs; "" if there is none."""
    unit = variable.attributes.get("units", b"")
    text = unit.decode("utf-8", "replace") if isinstance(unit, bytes) else str(unit)
    return text.rstrip("\0 ")


def _scale_of(variable: _core.NetcdfVariable) -> tuple[float, ...]:
    """Return the factor by which readers multiply a variable."""
    scale = variable.attributes.get("scale_factor", (1.0,))
    return (np.nan,) if isinstance(scale, bytes) else scale


def _factor_of(variable: _core.NetcdfVariable, like: str) -> np.ndarray:
    """Return the factor from a variable's numbers to paceline's unit; NaN for unknown units."""
    factor = _core.amber_factor(_unit_of(variable) or like, like)
    return np.array(_scale_of(variable)) * (np.nan if factor is None else factor)


def _scaled_unit_text(variable: _core.NetcdfVariable) -> str:
    scale = variable.attributes.get("scale_factor")
    scaled = "" if scale is None else f" scaled by {', '.join(map(str, _scale_of(variable)))}"
    return f"{_unit_of(variable) or 'no stated unit'}{scaled}"


def _shape_text(variable: _core.NetcdfVariable) -> str:
    n_values = variable.size // np.dtype(variable.kind).itemsize
    return f"({', '.join(variable.dimensions)}), values per frame: {n_values}"


class Dcd(FrameSeries):
    """DCD file, little-endian, with 4-byte record markers."""

    def __init__(self, settings: Settings):
        #: Integers of the first record; times and steps of the first two frames.
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

    def _next(self, contents: Contents, heading: Heading) -> FrameOffsets:
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
        return FrameOffsets(tuple(start + 4 for start in records[:3]), framing, records[3])

    def _tick(self, contents: Contents, heading: Heading) -> None:
        """Derive the header's times from two frames; warn if later frames do not match."""
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
                f"{self._settings.path}: a DCD file stores one time between frames, and frame "
                f"{self.n_frames} of {heading.time:g} ps will be read as one of {expected:g} ps",
                PacelineWarning,
                stacklevel=2,
            )

    def _time_of(self, frame: int) -> float:
        """Return the time that readers will assign to a frame, ps."""
        (delta,) = struct.unpack("<f", struct.pack("<i", self._numbers[_DELTA]))
        return (self._numbers[_FIRST_STEP] + frame * self._numbers[_STRIDE]) * delta * _AKMA

    def _counts(self, n_frames: int) -> list[Piece]:
        self._numbers[_COUNT] = min(n_frames, _MOST)
        self._numbers[_STEPS] = min(n_frames * self._numbers[_STRIDE], _MOST)
        return [(0, _FIRST.pack(84, b"CORD", *self._numbers, 84))]

    def _open(self, output: Output) -> Contents:
        header = self._parse(output)
        n_atoms = header.n_atoms
        check_atom_count(self._settings.path, n_atoms, self._settings.n_atoms)
        contents = Contents(("positions",), bool(self._numbers[_CELL]))
        self._end = header.size
        self._count(output, header.frame_size, self._numbers[_COUNT])
        if self.n_frames == 1:
            self._clock = [(self._time_of(0), self._numbers[_FIRST_STEP])]
        return contents

    def _parse(self, output: Output) -> _core.DcdHeader:
        """Parse the header; raise if paceline cannot extend this DCD variant."""
        path = self._settings.path
        # Indices of free atoms follow the longest title.
        head = output.read(0, _LONGEST_HEADER + 4 * self._settings.n_atoms + 1024)
        header = _core.dcd_header(path, head)
        if header.big_endian or header.marker_size != 4:
            found = repr(head[:12].decode("ascii", "backslashreplace"))
            raise DamagedFileError.in_object(
                path, "", "a little-endian DCD file with markers of 4 bytes", found
            )
        self._numbers = header.integers
        for value, what in (
            (header.n_fixed, "fixed atoms"),
            (self._numbers[_FOUR_DIMS], "a fourth dimension"),
        ):
            if value:
                raise UnsupportedError(f"{path} has {what}: it cannot be continued")
        if self._numbers[_VERSION] == 0:
            raise UnsupportedError(f"{path} is an X-PLOR DCD file: only CHARMM's can be continued")
        if self._numbers[_VERSION] > _LAST_PRETENDED and self._numbers[_CELL]:
            raise UnsupportedError(
                f"{path} stores cells as matrices, as CHARMM does: it cannot be continued"
            )
        return header

    def _is_whole(self, output: Output, start: int) -> bool:
        """Check a frame's record markers, which are written after its atoms."""
        size = 4 * self._settings.n_atoms
        first = start + _CELL_RECORD.size * bool(self._numbers[_CELL])
        marker = _MARKER.pack(size)
        return all(
            output.read(record, 4) == output.read(record + 4 + size, 4) == marker
            for record in spans(first, [size + 8] * 2)
        )


def _cell_record(cell: np.ndarray) -> bytes:
    (a, b, c), (cos_a, cos_b, cos_c) = lengths_and_cosines(cell)
    return _CELL_RECORD.pack(48, a, cos_c, b, cos_b, cos_a, c, 48)
