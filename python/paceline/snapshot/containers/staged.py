"""A file in which HDF5's library changes nothing before a frame is whole.

The library writes its records one by one, now and then: whoever dies in between, or finds the disk
full, leaves a file that nobody can open. Here what replaces something waits in memory, until there
is room on the disk for all of it; then it is written, in an order that can be left anywhere. What
lies behind the file's end may be written before.
"""

import io
import os
import sys
from collections.abc import Sequence
from typing import Any

from paceline.snapshot.containers.catalogue import Block, in_order
from paceline.snapshot.containers.output import Output


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
