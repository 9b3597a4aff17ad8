"""Amber NetCDF files, written byte by byte."""

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from helpers.trajectory_bytes import Trajectory

#: Tags of lists, and types of values, by their numbers in the format.
DIMENSIONS, VARIABLES, ATTRIBUTES = 10, 11, 12
CHAR, FLOAT, DOUBLE = 2, 5, 6


class Variable(NamedTuple):
    """Variable with an entry in each record."""

    name: bytes
    units: bytes
    #: Indices of its dimensions, except that of frames, in `Coding.dimensions`.
    dimensions: list[int]
    kind: int
    #: Numbers of all frames, shape (n_frames, …).
    numbers: np.ndarray
    scale_factor: float | None = None

    @property
    def rows(self) -> np.ndarray:
        """Return the bytes of the variable in each record, shape (n_frames, n_bytes)."""
        n_frames = len(self.numbers)
        code = {FLOAT: ">f4", DOUBLE: ">f8"}[self.kind]
        return self.numbers.reshape(n_frames, -1).astype(code).view(np.uint8)


@dataclass(frozen=True)
class Coding:
    """Encoding of a header in one version of the format."""

    version: int
    count: str = field(init=False)
    offset: str = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "count", ">q" if self.version == 5 else ">i")
        object.__setattr__(self, "offset", ">i" if self.version == 1 else ">q")

    def n(self, value: int) -> bytes:
        return struct.pack(self.count, value)

    def text(self, text: bytes) -> bytes:
        return self.n(len(text)) + text + bytes(-len(text) % 4)

    def listed(self, tag: int, entries: list[bytes]) -> bytes:
        return struct.pack(">i", tag) + self.n(len(entries)) + b"".join(entries)

    def text_attribute(self, name: bytes, text: bytes) -> bytes:
        return self.text(name) + struct.pack(">i", CHAR) + self.text(text)

    def variable(self, variable: Variable, begin: int) -> bytes:
        attributes = [self.text_attribute(b"units", variable.units)]
        if variable.scale_factor is not None:
            factor = struct.pack(">d", variable.scale_factor)
            kind = struct.pack(">i", DOUBLE) + self.n(1)
            attributes.append(self.text(b"scale_factor") + kind + factor)
        numbers = [0, *variable.dimensions]
        content = self.text(variable.name) + self.n(len(numbers))
        content += b"".join(self.n(number) for number in numbers)
        content += self.listed(ATTRIBUTES, attributes) + struct.pack(">i", variable.kind)
        return content + self.n(variable.rows.shape[1]) + struct.pack(self.offset, begin)

    def header(self, n_records: int, n_atoms: int, variables: list[Variable], start: int) -> bytes:
        """Return all bytes before the first record, which is at `start`."""
        sizes = {b"frame": 0, b"atom": n_atoms}
        sizes |= dict.fromkeys((b"spatial", b"cell_spatial", b"cell_angular"), 3)
        dimensions = [self.text(name) + self.n(size) for name, size in sizes.items()]
        conventions = {b"Conventions": b"AMBER", b"ConventionVersion": b"1.0"}
        attributes = [self.text_attribute(*pair) for pair in conventions.items()]
        begins = np.cumsum([start] + [variable.rows.shape[1] for variable in variables])
        entries = [
            self.variable(variable, int(begin))
            for variable, begin in zip(variables, begins, strict=False)
        ]
        content = b"CDF" + bytes([self.version]) + self.n(n_records)
        content += self.listed(DIMENSIONS, dimensions) + self.listed(ATTRIBUTES, attributes)
        return content + self.listed(VARIABLES, entries)


def netcdf(
    positions: np.ndarray, *, version: int = 2, motion: bool = True, n_claimed: int | None = None
) -> Trajectory:
    """Write positions, Å, shape (n_frames, n_atoms, 3), with velocities if `motion`."""
    n_frames, n_atoms, _ = positions.shape
    times, ones = 2.5 * np.arange(n_frames), np.ones((n_frames, 1))
    variables = [
        Variable(b"time", b"picosecond", [], FLOAT, times),
        Variable(b"cell_lengths", b"angstrom", [3], DOUBLE, ones * [30, 31, 32]),
        Variable(b"cell_angles", b"degree", [4], DOUBLE, ones * [90, 80, 70]),
        Variable(b"coordinates", b"angstrom", [1, 2], FLOAT, positions),
    ]
    if motion:
        units = b"angstrom/picosecond"
        variables.append(Variable(b"velocities", units, [1, 2], FLOAT, positions / 7, 20.455))
    n_records = n_frames if n_claimed is None else n_claimed
    coding = Coding(version)
    start = len(coding.header(n_records, n_atoms, variables, 0))
    records = np.hstack([variable.rows for variable in variables])
    content = coding.header(n_records, n_atoms, variables, start) + records.tobytes()
    size = records.shape[1]
    fields = tuple(np.cumsum([0] + [v.rows.shape[1] for v in variables[:-1]]).tolist())

    def stored(frame: bytes) -> np.ndarray:
        numbers = np.frombuffer(frame, ">f4", 3 * n_atoms, fields[3])
        return numbers.reshape(-1, 3).astype(np.float32)

    borders = tuple(range(start, len(content) + 1, size))
    return Trajectory(content, borders, fields, n_atoms, ".nc", stored)
