"""In which order HDF5's catalogue changes, so that whoever is stopped leaves a file that opens.

HDF5 finds a frame by three things: the number of rows in the head of a dataset, a tree that knows
each chunk's place, and the end of the file in the superblock. Each is changed by writes that are
done or not done, never half, since none crosses a page of memory: 8 aligned bytes, or the beginning
of a node, which begins at a multiple of 512. Where a write is longer, it does not matter how much
of it is done.

First comes what nobody looks at yet: the file's end, and the steps, times and cells of the frame.
Then trees, each node after those above it; and last the numbers of rows, that of positions at the
very end.

Layout of a node (HDF5 file format specification 3.0, III.A.1, version 1), bytes: 0 "TREE", 4 type,
5 level, 6 number of children, 8 left and 16 right neighbour, 24 key, child, key, child, ..., key.
A chunk is in the last child whose key is not above its own.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import h5py

from paceline.errors import UnsupportedError

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
