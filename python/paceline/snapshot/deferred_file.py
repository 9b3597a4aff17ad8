"""A file in which HDF5's library changes nothing before a frame is whole.

The library writes its records one by one, now and then: whoever dies in between, or finds the disk
full, leaves a file that nobody can open. Here what replaces something waits in memory, until there
is room on the disk for all of it; then it is written, in an order that can be left anywhere. What
lies behind the file's end may be written before.
"""

import io
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import h5py

from paceline.errors import UnsupportedError
from paceline.snapshot.output import Output

#: Whatever has a place in the file begins at a multiple of this: part of a page, sector of a disk.
ALIGNMENT = 512
_WORD = 8
#: Children that a node has room for where the superblock has version 0; bytes before its first key.
_CHILDREN, _FIRST_KEY = 64, 24
#: The head of a dataset, bytes: 16 of its own, 8 of the first message, 8 of it (version, rank,
#: whether limits are there), then its shape, then its limits.
_ROWS = 32
#: Type of a message that holds a shape.
_SHAPE = b"\x01\x00"
#: The superblock: signature, version 0, and the end of the file, bytes.
_SIGNATURE, _VERSION, _END = b"\x89HDF\r\n\x1a\n", 8, 40

#: An offset, and the bytes that belong there.
Piece = tuple[int, bytes]


class Block(NamedTuple):
    """Bytes of the file that are changed.

    Attributes
    ----------
    offset : int
        Of the first.
    old, new : bytes
        As many.
    """

    offset: int
    old: bytes
    new: bytes


def in_order(blocks: Sequence[Block], rows: Sequence[int]) -> list[Piece]:
    """Cut changes into writes, and put these in an order in which any number of them may be done.

    Parameters
    ----------
    blocks : sequence of Block
        Changes, as HDF5 makes them.
    rows : sequence of int
        Offsets of numbers of rows: they are changed last, in this order.

    Returns
    -------
    list of (int, bytes)
        Offset of each write, and what is written.
    """
    nodes = [block for block in blocks if _is_node(block.old) and _is_node(block.new)]
    words = {
        block.offset + at: piece
        for block in sorted(block for block in blocks if block not in nodes)
        for at, piece in _words(block)
    }
    last = [(offset, words.pop(offset)) for offset in rows if offset in words]
    pieces = list(words.items())
    for block in sorted(nodes, key=_level, reverse=True):
        pieces += [(block.offset + at, piece) for at, piece in _node(block)]
    return pieces + last


def _words(block: Block) -> Iterator[Piece]:
    """Words that are others than before."""
    for at in range(0, len(block.new), _WORD):
        word = block.new[at : at + _WORD]
        if word != block.old[at : at + _WORD]:
            yield at, word


def _is_node(data: bytes) -> bool:
    return data.startswith(b"TREE")


def _level(block: Block) -> int:
    return block.new[5]


def _node(block: Block) -> list[Piece]:
    """Writes of a node that was there before: one that got a child more, or gave some away."""
    key = (len(block.new) - _FIRST_KEY - _CHILDREN * _WORD) // (_CHILDREN + 1)

    def used(node: bytes) -> int:
        return _FIRST_KEY + int.from_bytes(node[6:8], "little") * (key + _WORD) + key

    before, after = used(block.old), used(block.new)
    if block.old[5] != block.new[5]:
        # The root of a tree that grows by a level: two children, in less than 512 bytes.
        parts = [(0, after), (after, None)]
    else:
        # More children are counted when they are there, with their keys. Above leaves that of the
        # first of them sends readers to it who looked elsewhere before: it must count then.
        keys = before - key if block.new[5] == 0 else before
        parts = [(keys, after), (0, _WORD), (_WORD, keys), (after, None)]
    pieces = ((first, block.old[first:end], block.new[first:end]) for first, end in parts)
    return [(first, new) for first, old, new in pieces if old != new]


class Rows(NamedTuple):
    """Where a file tells how many rows a dataset has.

    Attributes
    ----------
    offset : int
        Of 8 bytes.
    room : int or None
        Of 8 bytes that tell how many there may be, where it is a number.
    """

    offset: int
    room: int | None

    @classmethod
    def of(cls, file: Any, path: str, dataset: Any) -> Self:
        """Find the place.

        Parameters
        ----------
        file : file object
            To read from.
        path : str
            Its name.
        dataset : h5py.Dataset
            Of this file.

        Returns
        -------
        Rows

        Raises
        ------
        UnsupportedError
            The head of the dataset is not what HDF5's library makes by default.
        """
        head = h5py.h5o.get_info(dataset.id).addr
        file.seek(head)
        found = file.read(_ROWS)
        rank = len(dataset.shape)
        if (found[0], found[16:18], found[24:27]) != (1, _SHAPE, bytes([1, rank, 1])):
            raise UnsupportedError(
                f"{path}: {dataset.name} is described otherwise than paceline.snapshot has it "
                "described, and cannot be continued; write to a new file"
            )
        offset = head + _ROWS
        return cls(offset, None if dataset.chunks else offset + rank * _WORD)


def end_told(head: bytes) -> int | None:
    """Where a file ends as its superblock tells: behind it lies what a killed program left.

    Parameters
    ----------
    head : bytes
        The first 48 of the file.

    Returns
    -------
    int or None
        Bytes; None where the superblock is of another kind than we write.
    """
    if head[:_VERSION] != _SIGNATURE or head[_VERSION] != 0 or len(head) < _END + _WORD:
        return None
    return int.from_bytes(head[_END : _END + _WORD], "little")


class Staged(io.RawIOBase):
    """What HDF5's library takes for the file.

    Parameters
    ----------
    output : Output
        The file. It is not closed with this.
    size : int
        Bytes of it that count.
    """

    def __init__(self, output: Output, size: int):
        self._output = output
        self._size = self._end = size
        self._at = 0
        self._refusal: OSError | None = None
        self._waiting: list[tuple[int, bytes]] = []

    @property
    def size(self) -> int:
        """Bytes of the file as it was applied last."""
        return self._end

    def readable(self) -> bool:
        """It is."""
        return True

    def writable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where reading or writing goes on, bytes."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go on elsewhere.

        Parameters
        ----------
        offset : int
            Bytes.
        whence : int
            From the beginning, from here or from the end.

        Returns
        -------
        int
            Where that is.
        """
        self._at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence] + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read as if all were written.

        Parameters
        ----------
        buffer : writable buffer
            Where to.

        Returns
        -------
        int
            Bytes.
        """
        start, view = self._at, memoryview(buffer).cast("B")
        size = max(0, min(len(view), self._size - start))
        found = bytearray(self._output.read(start, size).ljust(size, b"\0"))
        for offset, data in self._waiting:
            first, last = max(offset, start), min(offset + len(data), start + size)
            if first < last:
                found[first - start : last - start] = data[first - offset : last - offset]
        view[:size] = found
        self._at += size
        return size

    def write(self, data: Any) -> int:
        """Keep bytes for `apply`, or write them where nothing is.

        What the system refuses is told by `apply`, not to HDF5: when it cannot write, it can
        neither close the file nor forget it.

        Parameters
        ----------
        data : bytes-like
            What.

        Returns
        -------
        int
            Bytes.
        """
        data = bytes(data)
        if self._at < self._end:
            self._waiting.append((self._at, data))
        elif self._refusal is None:
            try:
                self._output.write(self._at, data)
            except OSError as error:
                self._refusal = error
        self._at += len(data)
        self._size = max(self._size, self._at)
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        """Set the size.

        Parameters
        ----------
        size : int, optional
            Bytes; by default up to here.

        Returns
        -------
        int
            The same.
        """
        self._size = self._at if size is None else size
        return self._size

    def apply(self, rows: Sequence[int]) -> None:
        """Write all that waits.

        Parameters
        ----------
        rows : sequence of int
            Offsets of numbers of rows, which are written last, in this order.

        Raises
        ------
        OSError
            The system could not write; what the file held before is as it was.
        """
        if self._refusal is not None:
            raise self._refusal
        blocks = [self._block(*span) for span in {(at, len(data)) for at, data in self._waiting}]
        for block in blocks:
            self._output.reserve(block.offset, len(block.new))
        if self._output.size != self._size:
            self._output.cut(self._size)
        for offset, data in in_order(blocks, rows):
            self._output.write(offset, data)
        self._waiting.clear()
        self._end = self._size

    def _block(self, offset: int, size: int) -> Block:
        """What is there, and what is to be there."""
        old = self._output.read(offset, size).ljust(size, b"\0")
        self.seek(offset)
        return Block(offset, old, self.read(size))

    def give_up(self) -> None:
        """Write nothing more: the library closes what is to be forgotten."""
        self._end = sys.maxsize
