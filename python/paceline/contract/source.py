"""Trajectory files: how files are opened, which data a worker receives, and how a worker reads.

A file in the calling process (`TrajectoryFile`) gives a `FileSpec`, plain data that can be pickled.
In a worker, a `FileSpec` opens a `FileReader`. `FrameSource` and `FrameReader` are the equivalents
for a trajectory, which may consist of several files.
"""

import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from paceline import _core
from paceline.block import FrameBuffer, field_bits

#: Formats of the compiled module by name, with their file name extensions and abilities.
FORMATS = {format.name: format for format in _core.formats()}

#: Key of the warning that times of frames are not known.
UNKNOWN_TIMES = "times not known"
#: Advice for that warning.
TIMES_REMEDY = "give dt= (--dt)"

#: Maximum number of files that one reader keeps open.
OPEN_FILES = 2
#: Maximum number of readers of a process that have files open.
OPEN_READERS = 16

#: Readers that have files open, ordered by their last use.
_open_readers: "OrderedDict[int, weakref.ref[ClosesFiles]]" = OrderedDict()


@dataclass(frozen=True, slots=True)
class Extents:
    """Positions of frames in the files of a trajectory."""

    #: File index in the trajectory, int64, shape (n_frames,).
    files: np.ndarray
    #: Frame numbers in their files, uint64, shape (n_frames,).
    frames: np.ndarray
    #: Byte offsets, uint64, shape (n_frames,).
    offsets: np.ndarray
    sizes: np.ndarray
    #: Part of the file's own index for each run of frames in one file; None if offsets and sizes
    #: are enough.
    slices: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.frames)

    def parts(self) -> Iterator[tuple[int, slice, "Extents"]]:
        """Split into runs of frames in one file: file index, rows, and extents."""
        for (file, rows), index in zip(runs_by_file(self.files), self.slices, strict=True):
            files, frames = self.files[rows], self.frames[rows]
            offsets, sizes = self.offsets[rows], self.sizes[rows]
            yield file, rows, Extents(files, frames, offsets, sizes, (index,))


def runs_by_file(files: np.ndarray) -> Iterator[tuple[int, slice]]:
    """Split rows into runs of one file, given the file index of each row: (file, rows)."""
    borders = np.flatnonzero(np.diff(files)) + 1
    for first, stop in pairwise([0, *borders.tolist(), len(files)]):
        if stop > first:
            yield int(files[first]), slice(first, stop)


def unknown_times(doubt: str) -> str:
    """Make the sentence that says that times are not known, why, and what to do."""
    return f"the times of frames are not known: {doubt}; {TIMES_REMEDY}"


class FrameInterval(float):
    """Time between frames, ps, also for files that store step numbers: `--dt` of the commands."""


@dataclass(frozen=True)
class TimeAxis:
    """Times of frames: those of the file, or those that the user has set instead."""

    #: Number of the first frame in the calculation of times.
    first: float = 0.0
    #: Time between frames, ps, which replaces the times of the file.
    dt: float | None = None
    #: Time that is added to all times, ps.
    offset: float = 0.0
    #: True if `dt` is the time between the steps that the file stores.
    per_step: bool = False
    #: Reason why times are not known; None if they are known.
    doubt: str | None = None

    def __call__(self, frames: Any, times: Any, steps: Any) -> Any:
        """Compute times of frames, ps, from those in the file and steps: arrays or numbers."""
        if self.dt is not None:
            times = (steps if self.per_step else frames + self.first) * self.dt
        return times + self.offset if self.offset else times


#: Cost of reading: nanoseconds of reading and of decoding, bytes, calls; and the unreadable rows,
#: each with the reason.
FileReadStats = tuple[int, int, int, int, list[tuple[int, str]]]


class FileReader(Protocol):
    """A file that is open in a worker."""

    def read_ahead(self, extents: Extents) -> None:
        """Prefetch the bytes of frames that will be read soon."""

    def read(
        self, extents: Extents, buffer: FrameBuffer, *, required: int, skip: bool
    ) -> FileReadStats:
        """Read frames into arrays; with `skip`, leave out unreadable frames."""


class FileSpec(Protocol):
    """Description of a file for workers; it can be pickled."""

    @property
    def path(self) -> str:
        """Absolute path."""

    def open(self, atoms: np.ndarray | None, fields: int) -> FileReader:
        """Open the file for atoms in increasing order (None: all atoms), and field bits."""


class ReadStats(NamedTuple):
    """Cost of reading a block."""

    #: Nanoseconds.
    open: int
    read: int
    decode: int
    #: Number of bytes requested from the file.
    bytes: int
    calls: int
    #: Unreadable rows, each with the reason.
    damaged: list[tuple[int, str]]


@dataclass(frozen=True)
class FrameSource:
    """Description of a trajectory for workers: plain data that can be pickled."""

    #: Files in the order of the trajectory.
    files: Sequence[FileSpec]
    #: Atoms to be decoded, int64, increasing; None for all.
    atoms: np.ndarray | None
    #: Number of decoded atoms.
    n_wanted: int
    #: Fields to be decoded, out of `paceline.block.FIELDS`.
    fields: Sequence[str]
    #: Fields that every frame must hold; other fields are NaN in frames that lack them.
    required: Sequence[str]
    time_axis: TimeAxis
    #: Cell of all frames that a script has set because the files have none, Å and degrees.
    cell: np.ndarray | None = None
    #: Number of all atoms in a frame.
    n_atoms: int = 0

    def open(self) -> "FrameReader":
        """Make a reader; it opens each file when a block first needs it."""
        return FrameReader(self)

    @property
    def frame_bytes(self) -> int:
        """Size of a decoded frame in memory, bytes."""
        return 12 * max(1, self.n_wanted) * max(1, len(self.fields))

    def name_of(self, extents: Extents, row: int) -> str:
        """Name a frame in messages: its file, and its number in the file."""
        return f"{self.files[extents.files[row]].path}: frame {extents.frames[row]}"


class FrameReader:
    """Trajectory reader of a worker; it keeps the most recently used files open."""

    def __init__(self, source: FrameSource):
        self._source = source
        self._fields = field_bits(source.fields)
        self._required = field_bits(source.required)
        self._open: OrderedDict[int, FileReader] = OrderedDict()

    def file_reader(self, file: int) -> FileReader:
        """Return the reader of one file, opened if necessary."""
        reader = self._open.pop(file, None)
        if reader is None:
            while len(self._open) >= OPEN_FILES:
                self._open.popitem(last=False)
            reader = self._source.files[file].open(self._source.atoms, self._fields)
        self._open[file] = reader
        return reader

    def close_files(self) -> None:
        """Close all files; the reader opens a file again when it is needed."""
        self._open.clear()

    def read_ahead(self, extents: Extents) -> None:
        """Prefetch the bytes of frames that will be read soon, in files that are open."""
        for file, _, part in extents.parts():
            # Opening a file for this is too expensive; another worker may read it.
            if file in self._open:
                self._open[file].read_ahead(part)

    def read(self, extents: Extents, decoded: FrameBuffer, *, skip: bool) -> ReadStats:
        """Read frames into arrays; with `skip`, leave out unreadable frames."""
        sums = np.zeros(5, dtype=np.int64)
        damaged: list[tuple[int, str]] = []
        for file, rows, part in extents.parts():
            begun = time.monotonic_ns()
            reader = self.file_reader(file)
            opened = time.monotonic_ns() - begun
            *cost, left_out = reader.read(part, decoded[rows], required=self._required, skip=skip)
            sums += [opened, *cost]
            damaged.extend((rows.start + row, reason) for row, reason in left_out)
        if self._source.cell is not None:
            decoded.set_cell(self._source.cell)
        opening, reading, decoding, n_bytes, n_calls = sums.tolist()
        return ReadStats(opening, reading, decoding, n_bytes, n_calls, damaged)


class ClosesFiles(Protocol):
    """Reader that can close its files and open them again."""

    def close_files(self) -> None:
        """Close all files; the reader opens a file again when it is needed."""


def limit_open_files(reader: ClosesFiles) -> None:
    """Close the files of the readers that were idle longest, before another reader reads."""
    _open_readers.pop(id(reader), None)
    _open_readers[id(reader)] = weakref.ref(reader)
    while len(_open_readers) > OPEN_READERS:
        _, oldest = _open_readers.popitem(last=False)
        if (other := oldest()) is not None:
            other.close_files()


class TrajectoryFile(Protocol):
    """Trajectory file and its index; the file was opened once, and is closed."""

    @property
    def path(self) -> str:
        """Absolute path."""

    @property
    def format(self) -> str:
        """Name of the format in the user interface."""

    @property
    def n_atoms(self) -> int:
        """Number of atoms of each frame; that of the first frame if the number varies."""

    @property
    def varying(self) -> str | None:
        """Sentence that describes how the number of atoms varies; None if it is constant."""

    @property
    def atom_counts(self) -> np.ndarray | None:
        """Number of atoms of each frame, uint32, 0 if unknown; None if the number is constant."""

    def spec_of(self, frame: int) -> tuple[FileSpec, int]:
        """Return the description of one frame for a worker, and its number of atoms."""

    @property
    def n_frames(self) -> int:
        """Number of complete frames."""

    @property
    def fields(self) -> int:
        """Bits of the fields that frames may hold."""

    @property
    def size(self) -> int:
        """Size of the file, bytes."""

    @property
    def bytes_per_frame(self) -> float:
        """Mean size of a frame, bytes."""

    @property
    def fingerprint(self) -> str:
        """Text that identifies the file."""

    @property
    def samples(self) -> bytes:
        """Fingerprint and digests of samples, by which workers verify the file."""

    @property
    def notes(self) -> list[str]:
        """Warnings for the user."""

    @property
    def damaged(self) -> list[int]:
        """Frames that are known to be damaged."""

    @property
    def index_file(self) -> Path | None:
        """File in which the index is saved; None if it is not saved."""

    @property
    def index_origin(self) -> str:
        """How the index was made."""

    @property
    def dt(self) -> float | None:
        """Time between frames in the header, ps; None if each frame has its own time."""

    @property
    def first(self) -> float:
        """Number of the first frame, if times are computed from frame numbers."""

    @property
    def time_doubt(self) -> str | None:
        """Reason why times of frames are not known; None if they are known."""

    @property
    def frames_counted(self) -> bool:
        """True if the file has no times, and times are computed from frame numbers."""

    @property
    def traffic(self) -> tuple[int, int] | None:
        """Number of bytes and calls of opening the file; None if unknown."""

    @property
    def traits(self) -> list[tuple[str, str]]:
        """Names and values that must agree between files whose frames form one trajectory."""

    @property
    def spec(self) -> FileSpec:
        """Description of the file for workers."""

    @property
    def chunk_frames(self) -> int:
        """Number of adjacent frames that are stored as one chunk, and read together."""

    def extents(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Offsets and sizes of frames, bytes."""

    def slice_of(self, frames: np.ndarray) -> object:
        """Return the part of the file's index that workers need; None if extents suffice."""

    def times(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the time (ps) and step of every frame."""

    def head(self, first: int, n_frames: int) -> bytes:
        """Return the header of a file of these frames, if frames can be copied as bytes."""

    def verify(self) -> None:
        """Raise `FileChangedError` if the file at this path is not the one that was opened."""


@dataclass(frozen=True)
class IndexedFileSpec:
    """Description for workers of a file whose frames are stored one after another."""

    path: str
    #: Encoding parameters of the file's frames.
    layout: bytes
    #: Samples that identify the indexed version of the file.
    samples: bytes

    def open(self, atoms: np.ndarray | None, fields: int) -> FileReader:
        """Open the file; the reader compares the bytes that it reads with samples around them."""
        return _core.Reader(self.path, self.layout, self.samples, atoms=atoms, fields=fields)


class IndexedFile(_core.Trajectory):
    """File of a format of the compiled module, with its index: a `TrajectoryFile`.

    Raises `UnsupportedError` for an unrecognised format, and `DamagedFileError` if the first frame
    or the header is damaged.
    """

    chunk_frames = 1

    @property
    def spec(self) -> IndexedFileSpec:
        """Description of the file for workers."""
        return IndexedFileSpec(self.path, self.layout, self.samples)

    def spec_of(self, frame: int) -> tuple[IndexedFileSpec, int]:
        """Return the description of one frame for a worker, and its number of atoms."""
        layout, n_atoms = self.layout_of(frame)
        return IndexedFileSpec(self.path, layout, self.samples), n_atoms

    @property
    def bytes_per_frame(self) -> float:
        """Mean size of a frame, bytes."""
        return self.size / self.n_frames

    def slice_of(self, frames: np.ndarray) -> None:
        """Return None: offsets and sizes are enough."""


def extents_in(number: int, file: TrajectoryFile, frames: np.ndarray) -> Extents:
    """Return the extents of frames (uint64) of one file, the `number`-th of its trajectory."""
    slices = (file.slice_of(frames),)
    return Extents(np.full(len(frames), number), frames, *file.extents(frames), slices)


def time_axis_of(files: Sequence[TrajectoryFile], dt: float | None = None) -> TimeAxis:
    """Make the time axis of a trajectory of these files, with the user's `dt`, ps.

    For LAMMPS dumps, `dt` is the time between steps, as in MDAnalysis, unless it is a
    `FrameInterval`.
    """
    first = files[0]
    counts_steps = first.format in FORMATS and FORMATS[first.format].times_are_steps
    per_step = dt is not None and counts_steps and not isinstance(dt, FrameInterval)
    doubts = [] if dt is not None else [file.time_doubt for file in files if file.time_doubt]
    return TimeAxis(first.first, dt, per_step=per_step, doubt=next(iter(doubts), None))
