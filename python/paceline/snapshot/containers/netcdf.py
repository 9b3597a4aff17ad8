"""Amber NetCDF: a header with the number of records, then records of time, cell and arrays."""

import numpy as np

from paceline import _core
from paceline.block import field_bits
from paceline.errors import UnsupportedError, UnwritableError
from paceline.hdf5.faults import damaged
from paceline.snapshot.cell import angles_of, lengths_and_cosines
from paceline.snapshot.containers.base import (
    Contents,
    Heading,
    refuse_other_count,
    refuse_rotated,
)
from paceline.snapshot.containers.cdf import BadHeader, Header, Variable, parse_header
from paceline.snapshot.containers.output import Output
from paceline.snapshot.containers.series import Frame, Piece, Series
from paceline.snapshot.formats import VELOCITY_SCALE

#: Fields and the variables of Amber's convention that hold them.
_VARIABLES = {"positions": "coordinates", "velocities": "velocities", "forces": "forces"}
_CELL = ("cell_lengths", "cell_angles")
#: Bytes in which a header ends, if it is one of a trajectory.
_LONGEST_HEADER = 2**20


class NetCDF(Series):
    """An Amber trajectory that is being written; a new one as CDF-5, with room for any size."""

    _header: Header
    _record_size: int

    def _head(self, contents: Contents, heading: Heading) -> bytes:
        encoder = _core.Encoder(
            "CDF-5", self._settings.n_atoms, None, contents.has_cell, field_bits(contents.fields)
        )
        head = encoder.head(0, heading.time, 0.0, heading.step, 0)
        self._understand(head)
        return head

    def _understand(self, head: bytes) -> None:
        self._header = parse_header(head)
        self._records = {
            name: variable
            for name, variable in self._header.variables.items()
            if "frame" in variable.dimensions
        }
        self._record_size = sum(map(self._size_of, self._records.values()))

    def _size_of(self, variable: Variable) -> int:
        """Bytes in a record."""
        lengths = [self._header.dimensions[name] or 1 for name in variable.dimensions]
        size = int(variable.kind[-1]) * int(np.prod(lengths, dtype=object))
        # The only variable of the records has no gaps between them.
        return size if len(self._records) == 1 else size + -size % 4

    def _next(self, contents: Contents, heading: Heading) -> Frame:
        furniture = [self._piece("time", [heading.time])]
        if contents.has_cell:
            refuse_rotated(self._settings.path, heading.cell)
            assert heading.cell is not None
            lengths, cosines = lengths_and_cosines(heading.cell)
            furniture += [
                self._piece(name, numbers)
                for name, numbers in zip(_CELL, (lengths, angles_of(cosines)), strict=True)
            ]
        starts = tuple(self._place(_VARIABLES[field]) for field in contents.fields)
        return Frame(starts, furniture, self._end + self._record_size)

    def _place(self, name: str) -> int:
        """Where a variable is in the next record."""
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
        refuse_other_count(path, self._header.dimensions.get("atom", 0), self._settings.n_atoms)
        contents = self._contents_of_records()
        self._end = self._first_record()
        counted = self._header.n_records
        self._count(output, self._record_size, output.size if counted is None else counted)
        return contents

    def _first_record(self) -> int:
        """Where the records begin, in which variables must lie one behind another."""
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
        """What the records hold, which must be what we would write."""
        fields = tuple(field for field in _VARIABLES if _VARIABLES[field] in self._records)
        has_cell = _CELL[0] in self._records
        ours = {"time", *(_VARIABLES[field] for field in fields), *(_CELL if has_cell else ())}
        for name in sorted(set(self._records) ^ ours):
            is_there = "a" if name in self._records else "no"
            raise self._unlike(f"has {is_there} variable {name!r}")
        for name, variable in self._records.items():
            shape = variable.dimensions[1:]
            if name in _VARIABLES.values() and (variable.kind, shape) != (
                ">f4",
                ("atom", "spatial"),
            ):
                raise self._unlike(f"has {name} of type {variable.kind[1:]} by {shape}")
            scale = variable.attributes.get("scale_factor", (1.0,))
            wanted = VELOCITY_SCALE if name == "velocities" else 1.0
            if not np.allclose(scale, wanted, rtol=1e-6):
                raise self._unlike(f"has {name} in another unit, scaled by {scale}")
        return Contents(fields, has_cell)

    def _unlike(self, what: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self._settings.path} {what}, unlike the trajectories that paceline writes: it "
            "cannot be continued; write to a new file"
        )
