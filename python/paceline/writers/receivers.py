"""Parts that all written files have in common, whatever their format."""

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import IO, Any, NamedTuple, Self

import numpy as np

from paceline.analysis.interfaces import PerBlock, Receiver
from paceline.block import Block
from paceline.errors import UnsupportedError, UnwritableError

#: Bytes of blocks that wait in memory for one before them; more wait in a file.
WAITING = 256 * 2**20


@dataclass(frozen=True)
class EncodedBlock:
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
    lambdas : numpy.ndarray of float32, shape (n_frames,)
        λ of a free-energy run, else 0.
    """

    first: int
    data: bytes
    times: np.ndarray
    steps: np.ndarray
    lambdas: np.ndarray


class BlockReceiver:
    """Writes blocks with a function as they come, and keeps their times, steps and λ."""

    def __init__(self, path: str, write: Callable[[EncodedBlock], object]):
        self._path = path
        self._write = write
        self._time_axis: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def add(self, number: int, value: EncodedBlock) -> None:
        """Take a block, counted from 0."""
        self._time_axis[number] = value.times, value.steps, value.lambdas
        self._put(number, value)

    def _put(self, number: int, value: EncodedBlock) -> None:
        """Write a block, which has its place in the file."""
        self._write(value)

    def time_axis(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Times (ps), steps and λ of all frames, once all blocks are there; at least one frame."""
        blocks = [self._time_axis[number] for number in sorted(self._time_axis)]
        times, steps, lambdas = (np.concatenate(values) for values in zip(*blocks, strict=True))
        if len(times) == 0:
            raise UnsupportedError(f"{self._path}: no frame is left to be written")
        return times, steps, lambdas


class OrderedReceiver(BlockReceiver):
    """Writes blocks in their order; those that are too many for memory wait in a nameless file."""

    def __init__(self, path: str, write: Callable[[EncodedBlock], object]):
        super().__init__(path, write)
        self._next = 0
        self._waiting: dict[int, tuple[EncodedBlock, _Spilled | None]] = {}
        self._in_memory = 0
        self._spill: IO[bytes] | None = None

    def __exit__(self, *error: object) -> None:
        if self._spill is not None:
            self._spill.close()

    def _put(self, number: int, value: EncodedBlock) -> None:
        """Write a block and those that waited for it, or let it wait."""
        if number != self._next:
            self._waiting[number] = self._keep(value)
            return
        self._write(value)
        self._next += 1
        while (waiting := self._waiting.pop(self._next, None)) is not None:
            self._write(self._fetch(*waiting))
            self._next += 1

    def _keep(self, value: EncodedBlock) -> "tuple[EncodedBlock, _Spilled | None]":
        """Keep a block in memory, or its bytes in a file."""
        size = len(value.data)
        if self._in_memory + size <= WAITING:
            self._in_memory += size
            return value, None
        if self._spill is None:
            self._spill = tempfile.TemporaryFile(dir=os.path.dirname(self._path))  # noqa: SIM115
        offset = self._spill.seek(0, os.SEEK_END)
        self._spill.write(value.data)
        return replace(value, data=b""), _Spilled(offset, size)

    def _fetch(self, value: EncodedBlock, spilled: "_Spilled | None") -> EncodedBlock:
        """Take back a block that waited."""
        if spilled is None:
            self._in_memory -= len(value.data)
            return value
        assert self._spill is not None
        self._spill.seek(spilled.offset)
        return replace(value, data=self._spill.read(spilled.size))


class _Spilled(NamedTuple):
    """Bytes of a block that wait in a file."""

    offset: int
    size: int


@dataclass(frozen=True)
class FramesToWrite:
    """Facts of frames that are known before they are encoded.

    Attributes
    ----------
    n_frames : int
        To be written; there will be fewer where some cannot be read and are left out.
    atoms : AtomGroup
        To be written.
    skip_damaged : bool
        Whether frames may be left out.
    origin : mapping
        Provenance of the frames, and the options.
    has_cell : bool
        Whether the first frame that can be read has a cell.
    fields : tuple of str
        Fields that it holds.
    """

    n_frames: int
    atoms: Any
    skip_damaged: bool
    origin: Mapping[str, Any]
    has_cell: bool
    fields: tuple[str, ...]


class Target(ABC):
    """File of one family of formats that is to be written.

    Attributes
    ----------
    fields, optional_fields : sequence of str
        To be decoded, once `begin` was called.
    frames_together : int
        Frames that are best encoded by one worker.
    n_written, n_bytes : int
        Frames and size of the file, once it is whole.
    """

    fields: Sequence[str] = ("positions",)
    optional_fields: Sequence[str] = ()
    frames_together: int = 1
    n_written: int
    n_bytes: int

    def __init__(self, path: str, n_atoms: int, *, overwrite: bool = False):
        self._path = path
        self._n_atoms = n_atoms
        self._overwrite = overwrite

    @abstractmethod
    def begin(self, frames: FramesToWrite) -> PerBlock:
        """Make the worker's half, by the first frame where the format wants all frames alike."""

    @abstractmethod
    def receiver(self) -> AbstractContextManager[Receiver]:
        """Open the file for the time of a run: whole under its name afterwards, or not there."""


@contextmanager
def naming_block(path: str, block: Block) -> Iterator[None]:
    """Name file and frame in an encoder's errors."""
    try:
        yield
    except UnwritableError as error:
        reason = f"{path}: frame {block.frames[error.row]}: {error.reason}"
        raise UnwritableError(reason) from None
