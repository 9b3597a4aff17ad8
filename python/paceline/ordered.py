"""Blocks of frames into a file, whatever the order in which workers finish them."""

import os
import tempfile
from dataclasses import dataclass
from typing import IO, Self

import numpy as np

#: Bytes of blocks that wait in memory for one before them; more wait in a file.
WAITING = 256 * 2**20


@dataclass(frozen=True)
class Encoded:
    """Frames of one block, in the file's bytes.

    Attributes
    ----------
    first : int
        The block's first row in the results.
    data : bytes
        Empty where the worker has written them to the file itself.
    times : numpy.ndarray of float64, shape (n_frames,)
        ps.
    steps : numpy.ndarray of int64, shape (n_frames,)
        Of the simulation.
    """

    first: int
    data: bytes
    times: np.ndarray
    steps: np.ndarray


class Moments:
    """Times and steps of blocks."""

    def __init__(self) -> None:
        self._of_block: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def note(self, number: int, value: Encoded) -> None:
        """Keep those of one block, counted from 0."""
        self._of_block[number] = value.times, value.steps

    def all(self) -> tuple[np.ndarray, np.ndarray]:
        """Those of all frames, once all blocks are there.

        Returns
        -------
        times : numpy.ndarray of float64, shape (n_frames,)
            ps.
        steps : numpy.ndarray of int64, shape (n_frames,)
            Of the simulation.
        """
        blocks = [self._of_block[number] for number in sorted(self._of_block)]
        times, steps = (np.concatenate(values) for values in zip(*blocks, strict=True))
        return times, steps


class Placed:
    """Takes blocks of frames of one size, which have a place in the file from the beginning.

    Parameters
    ----------
    file : binary file
        Where the first frame is to be written.
    """

    def __init__(self, file: IO[bytes]):
        self._file = file
        self._start = file.tell()
        self.moments = Moments()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def add(self, number: int, value: Encoded) -> None:
        """Take a block: write it to its place, if its worker has not.

        Parameters
        ----------
        number : int
            The block, counted from 0.
        value : Encoded
            Its frames.
        """
        self.moments.note(number, value)
        if value.data:
            size = len(value.data) // len(value.times)
            self._file.seek(self._start + value.first * size)
            self._file.write(value.data)


class Ordered:
    """Writes blocks in their order.

    Parameters
    ----------
    file : binary file
        Where the first block is to be written next.
    folder : str
        Of the file in which blocks wait that are too many for memory; it has no name.
    """

    def __init__(self, file: IO[bytes], folder: str):
        self._file = file
        self._folder = folder
        self._next = 0
        self._waiting: dict[int, bytes | _Spilled] = {}
        self._in_memory = 0
        self._spill: IO[bytes] | None = None
        self.moments = Moments()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._spill is not None:
            self._spill.close()

    def add(self, number: int, value: Encoded) -> None:
        """Take a block: write it and those that waited for it, or let it wait.

        Parameters
        ----------
        number : int
            The block, counted from 0.
        value : Encoded
            Its frames.
        """
        self.moments.note(number, value)
        if number != self._next:
            self._waiting[number] = self._keep(value.data)
            return
        self._file.write(value.data)
        self._next += 1
        while (data := self._waiting.pop(self._next, None)) is not None:
            self._file.write(self._fetch(data))
            self._next += 1

    def _keep(self, data: bytes) -> "bytes | _Spilled":
        if self._in_memory + len(data) <= WAITING:
            self._in_memory += len(data)
            return data
        if self._spill is None:
            self._spill = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
        offset = self._spill.seek(0, os.SEEK_END)
        self._spill.write(data)
        return _Spilled(offset, len(data))

    def _fetch(self, data: "bytes | _Spilled") -> bytes:
        if isinstance(data, bytes):
            self._in_memory -= len(data)
            return data
        assert self._spill is not None
        self._spill.seek(data.offset)
        return self._spill.read(data.size)


@dataclass(frozen=True)
class _Spilled:
    """Where a block waits in a file."""

    offset: int
    size: int
