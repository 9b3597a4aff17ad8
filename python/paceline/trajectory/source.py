"""A trajectory file and its index, whatever its format."""

import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from paceline import _core
from paceline.block import Decoded, field_bits

#: Files of a chain that one worker keeps open.
OPEN_FILES = 2


class Cost(NamedTuple):
    """What reading a block took.

    Attributes
    ----------
    open, read, decode : int
        Nanoseconds.
    bytes, calls : int
        Asked of the file.
    damaged : list of (int, str)
        Rows that could not be read, and why.
    """

    open: int
    read: int
    decode: int
    bytes: int
    calls: int
    damaged: list[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Extents:
    """Where frames are.

    Attributes
    ----------
    members : numpy.ndarray of int64, shape (n_frames,)
        File of the chain, counted from 0.
    frames : numpy.ndarray of uint64, shape (n_frames,)
        Frame numbers in their files.
    offsets, sizes : numpy.ndarray of uint64, shape (n_frames,)
        Bytes.
    slices : tuple of object
        For each row of neighbours in one file, the part of that file's own index that they need:
        None where offsets and sizes say all.
    """

    members: np.ndarray
    frames: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray
    slices: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.frames)

    def parts(self) -> Iterator[tuple[int, slice, "Extents"]]:
        """Each row of neighbours in one file: the file, where they are, and they alone."""
        for (member, rows), index in zip(neighbours(self.members), self.slices, strict=True):
            members, frames = self.members[rows], self.frames[rows]
            offsets, sizes = self.offsets[rows], self.sizes[rows]
            yield member, rows, Extents(members, frames, offsets, sizes, (index,))


def neighbours(members: np.ndarray) -> Iterator[tuple[int, slice]]:
    """Rows of neighbours in one file.

    Parameters
    ----------
    members : numpy.ndarray of int64, shape (n_frames,)
        File of each frame.

    Yields
    ------
    (int, slice)
        A file, and where frames of it follow each other.
    """
    borders = np.flatnonzero(np.diff(members)) + 1
    for first, stop in pairwise([0, *borders.tolist(), len(members)]):
        if stop > first:
            yield int(members[first]), slice(first, stop)


@dataclass(frozen=True)
class Clock:
    """Times of frames: the file's, or those that the user set in their place.

    Attributes
    ----------
    first : float
        What the first frame counts as, in frames.
    dt : float, optional
        Time between frames, ps, in place of the file's times.
    offset : float
        Added to all times, ps.
    """

    first: float = 0.0
    dt: float | None = None
    offset: float = 0.0

    def __call__(self, frames: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Times of frames, ps, given those in the file."""
        if self.dt is not None:
            times = (frames + self.first) * self.dt
        return times + self.offset if self.offset else times


class FrameReader(Protocol):
    """One worker's hand on the frames of a trajectory."""

    def read_ahead(self, extents: Extents) -> None:
        """Ask for the bytes of frames that will be read soon."""

    def read(self, extents: Extents, decoded: Decoded, *, skip: bool) -> Cost:
        """Read frames into arrays."""


class FrameSource(Protocol):
    """Where a worker's frames come from."""

    @property
    def n_wanted(self) -> int:
        """Number of atoms that are decoded."""

    @property
    def fields(self) -> Sequence[str]:
        """What of the atoms is decoded, out of `paceline.block.FIELDS`."""

    @property
    def required(self) -> Sequence[str]:
        """What of that every frame must hold."""

    @property
    def clock(self) -> Clock:
        """Times of the frames."""

    def open(self) -> FrameReader:
        """A hand on them, for one worker."""

    def name_of(self, extents: Extents, row: int) -> str:
        """What errors call a frame: its file, and its number there."""


class FileReader(Protocol):
    """One worker's hand on one file."""

    def read_ahead(self, extents: Extents) -> None:
        """Ask for the bytes of frames that will be read soon."""

    def read(
        self, extents: Extents, block: Decoded, *, required: int, skip: bool
    ) -> tuple[int, int, int, int, list[tuple[int, str]]]:
        """Read frames into arrays; what that took, as in `Cost` from `read` on."""


class FileSpec(Protocol):
    """One file of a chain: all that a worker must know of it."""

    @property
    def path(self) -> str:
        """The file."""

    def open(self, atoms: np.ndarray | None, fields: int) -> FileReader:
        """A hand on it, for these atoms, rising (None: all), and fields, as the core counts."""


@dataclass(frozen=True)
class FileFrames:
    """Frames of files, one after another.

    Attributes
    ----------
    members : sequence of FileSpec
        The files, one after another.
    atoms : numpy.ndarray of int64 or None
        Atoms to be decoded, increasing; None for all.
    n_wanted : int
        Their number.
    fields : sequence of str
        What of them is decoded.
    required : sequence of str
        What of that every frame must hold; the rest is NaN where a frame does not.
    clock : Clock
    """

    members: Sequence[FileSpec]
    atoms: np.ndarray | None
    n_wanted: int
    fields: Sequence[str]
    required: Sequence[str]
    clock: Clock

    def open(self) -> "OpenFiles":
        """Nothing yet: a file is opened for the first block that touches it."""
        return OpenFiles(self)

    def name_of(self, extents: Extents, row: int) -> str:
        """What errors call a frame: its file, and its number there."""
        return f"{self.members[extents.members[row]].path}: frame {extents.frames[row]}"


class OpenFiles:
    """Opens a file when it is first needed, and lets go of the one that was needed longest ago."""

    def __init__(self, source: FileFrames):
        self._source = source
        self._fields = field_bits(source.fields)
        self._required = field_bits(source.required)
        self._open: OrderedDict[int, FileReader] = OrderedDict()

    def hand(self, member: int) -> FileReader:
        """The hand on one file of the chain."""
        hand = self._open.pop(member, None)
        if hand is None:
            while len(self._open) >= OPEN_FILES:
                self._open.popitem(last=False)
            hand = self._source.members[member].open(self._source.atoms, self._fields)
        self._open[member] = hand
        return hand

    def let_go(self) -> None:
        """Close all files; each is opened again when it is needed."""
        self._open.clear()

    def read_ahead(self, extents: Extents) -> None:
        """Ask for the bytes of frames that will be read soon, of files that are open."""
        for member, _, part in extents.parts():
            # Not worth opening a file for, least of all one that another worker will read.
            if member in self._open:
                self._open[member].read_ahead(part)

    def read(self, extents: Extents, decoded: Decoded, *, skip: bool) -> Cost:
        """Read frames into arrays."""
        sums = np.zeros(5, dtype=np.int64)
        damaged: list[tuple[int, str]] = []
        for member, rows, part in extents.parts():
            begun = time.monotonic_ns()
            hand = self.hand(member)
            opened = time.monotonic_ns() - begun
            *cost, left_out = hand.read(part, decoded[rows], required=self._required, skip=skip)
            sums += [opened, *cost]
            damaged.extend((rows.start + row, reason) for row, reason in left_out)
        opening, reading, decoding, n_bytes, n_calls = sums.tolist()
        return Cost(opening, reading, decoding, n_bytes, n_calls, damaged)


class TrajectoryFile(Protocol):
    """A file that was opened, and is held open no longer."""

    @property
    def path(self) -> str:
        """Absolute."""

    @property
    def format(self) -> str:
        """As users call it."""

    @property
    def n_atoms(self) -> int:
        """Number of atoms of each frame."""

    @property
    def n_frames(self) -> int:
        """Number of whole frames."""

    @property
    def fields(self) -> int:
        """What frames may hold, as the core counts it."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def fingerprint(self) -> str:
        """What the file is recognised by."""

    @property
    def notes(self) -> list[str]:
        """What a user should be told of it."""

    @property
    def damaged(self) -> list[int]:
        """Frames that are known to be."""

    @property
    def index_file(self) -> Path | None:
        """Where the index is saved, if it is."""

    @property
    def index_origin(self) -> str:
        """How it came about."""

    @property
    def dt(self) -> float | None:
        """Time between frames as the header has it, ps; None where only frames tell."""

    @property
    def first(self) -> float:
        """What the first frame counts as where times are numbers of frames."""

    @property
    def traffic(self) -> tuple[int, int] | None:
        """Bytes and calls that opening took of the file, where that is known."""

    @property
    def traits(self) -> list[tuple[str, str]]:
        """What files must have in common for frames of one to continue those of the other."""

    @property
    def member(self) -> FileSpec:
        """What workers must know of it."""

    @property
    def chunk_frames(self) -> int:
        """Neighbours that are stored as one, and cost together what one of them costs."""

    def extents(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Offsets and sizes of frames, bytes."""

    def slice_of(self, frames: np.ndarray) -> Any:
        """What else workers need to read these frames; None where offsets and sizes say all."""

    def times(self) -> tuple[np.ndarray, np.ndarray]:
        """Time (ps) and step of every frame."""

    def head(self, first: int, n_frames: int) -> bytes:
        """What a file of these frames begins with, where they can be copied as they are."""

    def verify(self) -> None:
        """Raise `FileChangedError` where the file of this name is not the one that was opened."""


@dataclass(frozen=True)
class IndexedFileSpec:
    """What a worker must know of a file whose frames lie one after another.

    Attributes
    ----------
    path : str
    layout : bytes
        How the file's frames are coded.
    fingerprint : str
        What the file was recognised by when it was indexed.
    """

    path: str
    layout: bytes
    fingerprint: str

    def open(self, atoms: np.ndarray | None, fields: int) -> FileReader:
        """A hand on the file."""
        return _core.Reader(self.path, self.layout, self.fingerprint, atoms=atoms, fields=fields)


class IndexedFile(_core.Trajectory):
    """A file of XTC, TRR, DCD, NetCDF-3, HISTORY or CONFIG, with its index: a `TrajectoryFile`.

    Raises
    ------
    UnsupportedError
        The file is of none of these formats.
    DamagedFileError
        Its first frame or its header is damaged.
    OSError
        It cannot be opened.
    """

    chunk_frames = 1

    @property
    def member(self) -> IndexedFileSpec:
        """What workers must know of it."""
        return IndexedFileSpec(self.path, self.layout, self.fingerprint)

    def slice_of(self, frames: np.ndarray) -> None:
        """Nothing: offsets and sizes say all."""


def extents_in(member: int, file: TrajectoryFile, frames: np.ndarray) -> Extents:
    """Where frames of one file of a chain are.

    Parameters
    ----------
    member : int
        The file's place in the chain.
    file : TrajectoryFile
        The file.
    frames : numpy.ndarray of uint64, shape (n_frames,)
        Frame numbers in it.

    Returns
    -------
    Extents
    """
    slices = (file.slice_of(frames),)
    return Extents(np.full(len(frames), member), frames, *file.extents(frames), slices)
