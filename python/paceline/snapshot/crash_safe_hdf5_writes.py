"""Delay HDF5's writes until a frame is complete, and order them so that a crash does no damage.

HDF5 writes its metadata piece by piece, in its own order. If a program dies in between, its file
may count a frame without values, or lose other frames. On a full disk, HDF5 crashes. Here, changes
within the committed size of the file wait in memory until disk space for all of them is reserved.
Then they are written in an order in which the file is valid after any number of writes. Bytes
beyond the committed end may be written earlier.

HDF5's own mode for files that are read while they grow (SWMR) is no alternative. If a writer is
killed, its mark stays in the superblock, and then only readers in SWMR mode can open the file.
MDAnalysis's reader does not use this mode.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import h5py

from paceline._util.files import FileAtOffset
from paceline.errors import UnsupportedError
from paceline.snapshot.shared_file import Output, Piece

#: Alignment of allocated parts of the file, bytes: a disk sector, which divides a memory page.
ALIGNMENT = 512
_WORD = 8
#: Number of children of a B-tree node in files of superblock version 0.
_CHILDREN = 64
#: Number of bytes before the first key of a B-tree node.
_FIRST_KEY = 24
#: Offset of a dataset's shape in its header, bytes. It follows 16 bytes of the header, 8 bytes of
#: the first message's header, and 8 bytes of the message (version, number of dimensions, flag for
#: limits). The limits of the dimensions follow the shape.
_ROWS = 32
#: Type of the header message that contains the shape.
_SHAPE = b"\x01\x00"
#: First bytes of the superblock.
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
#: Offset of the version in the superblock.
_VERSION = 8
#: Offset, in the superblock, of the number that states where the file ends.
_END = 40


class Change(NamedTuple):
    """Bytes of the file at an offset, before and after a change."""

    offset: int
    old: bytes
    new: bytes


def order_writes(changes: Sequence[Change], rows: Sequence[int]) -> list[Piece]:
    """Split changes into writes, ordered so that the file is valid after any number of writes.

    The datasets' numbers of rows, at the offsets `rows`, are written last, in this order.
    """
    changes = sorted(changes)
    nodes = [change for change in changes if _is_node(change.old) and _is_node(change.new)]
    words = {
        change.offset + at: piece
        for change in changes
        if change not in nodes
        for at, piece in _words(change)
    }
    last = [(offset, words.pop(offset)) for offset in rows if offset in words]
    pieces = list(words.items())
    for change in sorted(nodes, key=_level, reverse=True):
        pieces += [(change.offset + at, piece) for at, piece in _node(change)]
    return pieces + last


def _words(change: Change) -> Iterator[Piece]:
    """Yield the words of 8 bytes that differ, with their offsets in the change."""
    for at in range(0, len(change.new), _WORD):
        word = change.new[at : at + _WORD]
        if word != change.old[at : at + _WORD]:
            yield at, word


def _is_node(data: bytes) -> bool:
    """Return True if bytes are a node of a B-tree."""
    return data.startswith(b"TREE")


def _level(change: Change) -> int:
    """Return the level of the B-tree node that a change writes; leaves have level 0."""
    return change.new[5]


def _node(change: Change) -> list[Piece]:
    """Order the writes of a B-tree node that gained a child or passed children to another node."""
    key = (len(change.new) - _FIRST_KEY - _CHILDREN * _WORD) // (_CHILDREN + 1)

    def used(node: bytes) -> int:
        return _FIRST_KEY + int.from_bytes(node[6:8], "little") * (key + _WORD) + key

    before, after = used(change.old), used(change.new)
    if change.old[5] != change.new[5]:
        # The root of a tree that gains a level has two children: the bytes used are less than a
        # disk sector, so that one write is enough.
        parts = [(0, after), (after, None)]
    else:
        # In a leaf, children and keys are written first, then the number of children. Above the
        # leaves, the key before the first new child already directs readers to that child. So this
        # key is written last, after the number of children that includes the child.
        keys = before - key if change.new[5] == 0 else before
        parts = [(keys, after), (0, _WORD), (_WORD, keys), (after, None)]
    pieces = ((first, change.old[first:end], change.new[first:end]) for first, end in parts)
    return [(first, new) for first, old, new in pieces if old != new]


class RowCount(NamedTuple):
    """Offsets of a dataset's number of rows (8 bytes), and of the maximum of this number.

    The latter is None for a dataset in chunks.
    """

    offset: int
    limit_offset: int | None

    @classmethod
    def of(cls, file: h5py.File, path: str, dataset: h5py.Dataset) -> Self:
        """Find the offsets; raise if the dataset's header is not in HDF5's default format."""
        head = h5py.h5o.get_info(dataset.id).addr
        file.seek(head)
        found = file.read(_ROWS)
        rank = len(dataset.shape)
        if (found[0], found[16:18], found[24:27]) != (1, _SHAPE, bytes([1, rank, 1])):
            raise UnsupportedError(
                f"{path}: the header of {dataset.name} differs from those that paceline.snapshot "
                "writes, "
                "and the file cannot be continued; write to a new file"
            )
        offset = head + _ROWS
        return cls(offset, None if dataset.chunks else offset + rank * _WORD)


def superblock_end(head: bytes) -> int | None:
    """Return the end of the file that its superblock states, bytes.

    A killed program may have left bytes after this end. `head` contains the first 48 bytes of the
    file. Returns None if they are not a superblock of the version that paceline writes.
    """
    if head[:_VERSION] != _SIGNATURE or head[_VERSION] != 0 or len(head) < _END + _WORD:
        return None
    return int.from_bytes(head[_END : _END + _WORD], "little")


class CrashSafeFile(FileAtOffset):
    """File object through which HDF5 accesses an output, of which `size` bytes are committed.

    Closing this object does not close the output. Writes to committed bytes wait for `apply`.
    """

    def __init__(self, output: Output, size: int):
        super().__init__(size)
        self._output = output
        self._end = size
        self._refusal: OSError | None = None
        self._waiting: list[tuple[int, bytes]] = []

    @property
    def size(self) -> int:
        """Committed size of the file, bytes: its size after the last `apply`, or when opened."""
        return self._end

    def writable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read bytes into `buffer`, as if all waiting writes were finished; return their number."""
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
        """Store bytes until `apply`, or write them immediately if they are beyond the end.

        System errors are hidden from HDF5, because it cannot close or discard a file after a failed
        write. `check` raises them.
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
        """Set the size that the file has after `apply`, by default to the current offset."""
        self._size = self._at if size is None else size
        return self._size

    def check(self) -> None:
        """Raise the error of the first failed write beyond the committed end."""
        if self._refusal is not None:
            raise self._refusal

    def apply(self, rows: Sequence[int]) -> None:
        """Write all waiting changes; the datasets' numbers of rows, at the offsets `rows`, last.

        If disk space is insufficient, or an earlier write failed, an error is raised before any
        committed byte is changed.
        """
        self.check()
        changes = [self._change(*span) for span in {(at, len(data)) for at, data in self._waiting}]
        for change in changes:
            self._output.reserve(change.offset, len(change.new))
        if self._output.size != self._size:
            self._output.cut(self._size)
        for offset, data in order_writes(changes, rows):
            self._output.write(offset, data)
        self._waiting.clear()
        self._end = self._size

    def _change(self, offset: int, size: int) -> Change:
        """Return `size` bytes of the file at an offset, and the waiting bytes that replace them."""
        old = self._output.read(offset, size).ljust(size, b"\0")
        self.seek(offset)
        return Change(offset, old, self.read(size))

    def give_up(self) -> None:
        """Ignore all further writes, so that HDF5 can close a file that will be discarded."""
        self._end = sys.maxsize
