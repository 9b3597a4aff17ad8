"""Blocks of frames into a file in their order, whatever the order in which workers finish them."""

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
    data : bytes
    times : numpy.ndarray of float64, shape (n_frames,)
        ps.
    steps : numpy.ndarray of int64, shape (n_frames,)
        Of the simulation.
    """

    data: bytes
    times: np.ndarray
    steps: np.ndarray


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
        self._moments: dict[int, tuple[np.ndarray, np.ndarray]] = {}

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
        self._moments[number] = value.times, value.steps
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

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Times and steps of all frames, once all blocks are written.

        Returns
        -------
        times : numpy.ndarray of float64, shape (n_frames,)
            ps.
        steps : numpy.ndarray of int64, shape (n_frames,)
            Of the simulation.
        """
        blocks = [self._moments[number] for number in sorted(self._moments)]
        times, steps = (np.concatenate(values) for values in zip(*blocks, strict=True))
        return times, steps


@dataclass(frozen=True)
class _Spilled:
    """Where a block waits in a file."""

    offset: int
    size: int
