"""What files that we write have in common, whatever their format."""

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import IO, Any, Self

import numpy as np

from paceline.block import FIELDS, Block
from paceline.errors import UnwritableError
from paceline.schedule.tasks import PerBlock, Receiver

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
    """Takes blocks that have a place in the file from the beginning, in any order.

    Parameters
    ----------
    write : callable
        Takes a block, and writes it to its place if its worker has not.
    """

    def __init__(self, write: Callable[[Encoded], object]):
        self._write = write
        self.moments = Moments()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def add(self, number: int, value: Encoded) -> None:
        """Take a block.

        Parameters
        ----------
        number : int
            The block, counted from 0.
        value : Encoded
            Its frames.
        """
        self.moments.note(number, value)
        self._write(value)


class Ordered:
    """Hands on blocks in their order.

    Parameters
    ----------
    write : callable
        Takes the next block.
    folder : str
        Of the file in which blocks wait that are too many for memory; it has no name.
    """

    def __init__(self, write: Callable[[Encoded], object], folder: str):
        self._write = write
        self._folder = folder
        self._next = 0
        self._waiting: dict[int, tuple[Encoded, _Spilled | None]] = {}
        self._in_memory = 0
        self._spill: IO[bytes] | None = None
        self.moments = Moments()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._spill is not None:
            self._spill.close()

    def add(self, number: int, value: Encoded) -> None:
        """Take a block: hand on it and those that waited for it, or let it wait.

        Parameters
        ----------
        number : int
            The block, counted from 0.
        value : Encoded
            Its frames.
        """
        self.moments.note(number, value)
        if number != self._next:
            self._waiting[number] = self._keep(value)
            return
        self._write(value)
        self._next += 1
        while (waiting := self._waiting.pop(self._next, None)) is not None:
            self._write(self._fetch(*waiting))
            self._next += 1

    def _keep(self, value: Encoded) -> "tuple[Encoded, _Spilled | None]":
        size = len(value.data)
        if self._in_memory + size <= WAITING:
            self._in_memory += size
            return value, None
        if self._spill is None:
            self._spill = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
        offset = self._spill.seek(0, os.SEEK_END)
        self._spill.write(value.data)
        return replace(value, data=b""), _Spilled(offset, size)

    def _fetch(self, value: Encoded, spilled: "_Spilled | None") -> Encoded:
        if spilled is None:
            self._in_memory -= len(value.data)
            return value
        assert self._spill is not None
        self._spill.seek(spilled.offset)
        return replace(value, data=self._spill.read(spilled.size))


@dataclass(frozen=True)
class _Spilled:
    """Where a block waits in a file."""

    offset: int
    size: int


@dataclass(frozen=True)
class Source:
    """What is known of frames before they are encoded.

    Attributes
    ----------
    n_frames : int
        To be written; there will be fewer where some cannot be read and are left out.
    atoms : AtomGroup
        To be written.
    skip_damaged : bool
        Whether frames may be left out.
    first : Timestep
        The first frame of the trajectory that can be read.
    origin : mapping
        Where the frames come from, and what was asked for.
    """

    n_frames: int
    atoms: Any
    skip_damaged: bool
    first: Any
    origin: Mapping[str, Any]

    @property
    def has_cell(self) -> bool:
        """Whether the first frame has one."""
        return self.first.dimensions is not None

    @property
    def held(self) -> tuple[str, ...]:
        """What the first frame holds of its atoms."""
        return tuple(field for field in FIELDS if getattr(self.first, f"has_{field}"))


class Target(ABC):
    """A file that is to be written, of one family of formats.

    Parameters
    ----------
    path : str
        Final name.
    n_atoms : int
        To be written.
    overwrite : bool
        Whether a file of that name may be replaced.

    Attributes
    ----------
    fields, optional_fields : sequence of str
        What is to be decoded, once `begin` was called.
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
    def begin(self, source: Source) -> PerBlock:
        """Make the worker's half, by the first frame where the format wants all frames alike.

        Parameters
        ----------
        source : Source
            Of the frames.

        Returns
        -------
        PerBlock

        Raises
        ------
        UnsupportedError
            There is nothing to write.
        """

    @abstractmethod
    def receiver(self) -> AbstractContextManager[Receiver]:
        """The file, for the time of a run: whole under its name afterwards, or not there."""


@contextmanager
def naming(path: str, block: Block) -> Iterator[None]:
    """Name file and frame in an encoder's errors.

    Parameters
    ----------
    path : str
        The file, by its final name.
    block : Block
        What is encoded.
    """
    try:
        yield
    except UnwritableError as error:
        reason = f"{path}: frame {block.frames[error.row]}: {error.reason}"
        raise UnwritableError(reason) from None
