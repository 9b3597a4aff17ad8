"""The header of a NetCDF-3 file: which variables it has, and where they are.

    "CDF", version   1, 2 or 5
    count            records; all bits set: as many as the file has room for
    list             dimensions: name, length (0: the records)
    list             attributes of the file: name, kind, values
    list             variables: name, dimensions, attributes, kind, bytes, where it begins

A list is a tag and a count, both 0 where it is empty. Counts have 4 bytes, in version 5 they have
8; where variables begin has 4 bytes in version 1 only. All is big-endian and padded to 4 bytes.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Bytes of the numbers of each kind, and NumPy's name of it.
_KINDS = {1: ">i1", 2: "S1", 3: ">i2", 4: ">i4", 5: ">f4", 6: ">f8"} | {
    7: ">u1",
    8: ">u2",
    9: ">u4",
    10: ">i8",
    11: ">u8",
}


class BadHeader(ValueError):
    """What was read contradicts the format, or ends too soon."""


@dataclass(frozen=True)
class Variable:
    """One variable.

    Attributes
    ----------
    dimensions : tuple of str
        Names of them.
    kind : str
        NumPy's name of its numbers' type.
    attributes : mapping of str to (bytes or tuple of float)
        Text as bytes.
    begin : int
        Offset, in the first record if it is one of the records.
    """

    dimensions: tuple[str, ...]
    kind: str
    attributes: Mapping[str, Any]
    begin: int


@dataclass(frozen=True)
class Header:
    """What a header tells.

    Attributes
    ----------
    version : int
        1, 2 or 5.
    n_records : int or None
        None where the size of the file tells.
    dimensions : mapping of str to int
        Lengths; 0 of the records.
    attributes : mapping of str to (bytes or tuple of float)
        Of the file.
    variables : mapping of str to Variable
        By name.
    size : int
        Bytes of the header.
    """

    version: int
    n_records: int | None
    dimensions: Mapping[str, int]
    attributes: Mapping[str, Any]
    variables: Mapping[str, Variable]
    size: int

    def count(self, n_records: int) -> bytes:
        """What stands behind the version where there are so many records.

        Parameters
        ----------
        n_records : int
            So many.

        Returns
        -------
        bytes
        """
        return struct.pack(">q" if self.version == 5 else ">i", n_records)


def parse_header(data: bytes) -> Header:
    """Read a header.

    Parameters
    ----------
    data : bytes
        The file's first bytes.

    Returns
    -------
    Header

    Raises
    ------
    BadHeader
        It is none, or not whole.
    """
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
    """Reads one thing after another."""

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
        """Names of a list, one after another; what follows each is read before the next."""
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
