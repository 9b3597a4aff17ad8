"""Trajectory files: how one is opened, what of it travels to a worker, and how that reads it.

A file that is open here (`TrajectoryFile`) gives a `FileSpec`, plain data that can be pickled; in a
worker a spec gives a `FileReader`. A `FrameSource` and its `FrameReader` are the same for a
trajectory, which may have several files.
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

#: Formats that the core knows, by their names: endings of files, and abilities.
FORMATS = {format.name: format for format in _core.formats()}

#: Fact about a run whose frames have times that are not known: why.
UNKNOWN_TIMES = "times not known"
#: Advice for such a run.
TIMES_REMEDY = "give dt= (--dt)"

#: Files that one reader keeps open.
OPEN_FILES = 2
#: Readers of a user's process that have files open at the same time.
OPEN_READERS = 16

#: Readers that have files open, the one that read last at the end.
_open_readers: "OrderedDict[int, weakref.ref[ClosesFiles]]" = OrderedDict()


@dataclass(frozen=True, slots=True)
class Extents:
    """Places of frames in the files of a trajectory."""

    #: File of the trajectory, counted from 0, int64, shape (n_frames,).
    files: np.ndarray
    #: Frame numbers in their files, uint64, shape (n_frames,).
    frames: np.ndarray
    #: Bytes, uint64, shape (n_frames,).
    offsets: np.ndarray
    sizes: np.ndarray
    #: For each run of frames in one file, the part of that file's own index that they need; None
    #: where offsets and sizes are enough.
    slices: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.frames)

    def parts(self) -> Iterator[tuple[int, slice, "Extents"]]:
        """Split into runs of frames in one file: the file, its rows, and their extents."""
        for (file, rows), index in zip(runs_by_file(self.files), self.slices, strict=True):
            files, frames = self.files[rows], self.frames[rows]
            offsets, sizes = self.offsets[rows], self.sizes[rows]
            yield file, rows, Extents(files, frames, offsets, sizes, (index,))


def runs_by_file(files: np.ndarray) -> Iterator[tuple[int, slice]]:
    """Split rows into runs of one file, given the file of each: (file, rows)."""
    borders = np.flatnonzero(np.diff(files)) + 1
    for first, stop in pairwise([0, *borders.tolist(), len(files)]):
        if stop > first:
            yield int(files[first]), slice(first, stop)


def unknown_times(doubt: str) -> str:
    """Say in a sentence that times are not known, why, and what to do."""
    return f"the times of frames are not known: {doubt}; {TIMES_REMEDY}"


class FrameInterval(float):
    """Time between frames, ps, also of files that count steps: `--dt` of the commands."""


@dataclass(frozen=True)
class TimeAxis:
    """Times of frames: the file's, or those that the user set in their place."""

    #: Number by which the first frame is counted.
    first: float = 0.0
    #: Time between frames, ps, in place of the file's times.
    dt: float | None = None
    #: Added to all times, ps.
    offset: float = 0.0
    #: `dt` is the time between steps, which the file counts.
    per_step: bool = False
    #: Why times are not known; None where they are.
    doubt: str | None = None

    def __call__(self, frames: Any, times: Any, steps: Any) -> Any:
        """Times of frames, ps, given times and steps in the file: arrays, or of one frame."""
        if self.dt is not None:
            times = (steps if self.per_step else frames + self.first) * self.dt
        return times + self.offset if self.offset else times


#: Cost of reading: nanoseconds of reading and of decoding, bytes, calls; and the rows that could
#: not be read, each with the reason.
FileReadStats = tuple[int, int, int, int, list[tuple[int, str]]]


class FileReader(Protocol):
    """A file that is open in a worker."""

    def read_ahead(self, extents: Extents) -> None:
        """Ask for the bytes of frames that will be read soon."""

    def read(
        self, extents: Extents, buffer: FrameBuffer, *, required: int, skip: bool
    ) -> FileReadStats:
        """Read frames into arrays; with `skip`, leave out those that cannot be read."""


class FileSpec(Protocol):
    """All that a worker must know of a file; it can be pickled."""

    @property
    def path(self) -> str:
        """Absolute path."""

    def open(self, atoms: np.ndarray | None, fields: int) -> FileReader:
        """Open the file for these atoms, rising (None: all), and field bits."""


class ReadStats(NamedTuple):
    """Costs of reading a block."""

    #: Nanoseconds.
    open: int
    read: int
    decode: int
    #: Requested from the file.
    bytes: int
    calls: int
    #: Rows that could not be read, and why.
    damaged: list[tuple[int, str]]


@dataclass(frozen=True)
class FrameSource:
    """How a worker reads a trajectory: plain data that can be pickled and opens nothing."""

    #: Its files, one after another.
    files: Sequence[FileSpec]
    #: Atoms to be decoded, int64, increasing; None for all.
    atoms: np.ndarray | None
    #: Their number.
    n_wanted: int
    #: Fields to be decoded, out of `paceline.block.FIELDS`.
    fields: Sequence[str]
    #: Fields that every frame must hold; the others are NaN where a frame has none.
    required: Sequence[str]
    time_axis: TimeAxis
    #: Cell of all frames, which a script has set where the files have none, Å and degrees.
    cell: np.ndarray | None = None

    def open(self) -> "FrameReader":
        """Make a reader; it opens a file for the first block that touches it."""
        return FrameReader(self)

    @property
    def frame_bytes(self) -> int:
        """Memory that a decoded frame takes."""
        return 12 * max(1, self.n_wanted) * max(1, len(self.fields))

    def name_of(self, extents: Extents, row: int) -> str:
        """Name a frame for messages: its file, and its number there."""
        return f"{self.files[extents.files[row]].path}: frame {extents.frames[row]}"


class FrameReader:
    """Per-worker trajectory reader: keeps the files open that were needed last."""

    def __init__(self, source: FrameSource):
        self._source = source
        self._fields = field_bits(source.fields)
        self._required = field_bits(source.required)
        self._open: OrderedDict[int, FileReader] = OrderedDict()

    def file_reader(self, file: int) -> FileReader:
        """Reader of one file, opened if it is not open."""
        reader = self._open.pop(file, None)
        if reader is None:
            while len(self._open) >= OPEN_FILES:
                self._open.popitem(last=False)
            reader = self._source.files[file].open(self._source.atoms, self._fields)
        self._open[file] = reader
        return reader

    def close_files(self) -> None:
        """Close all files; each is opened again when it is needed."""
        self._open.clear()

    def read_ahead(self, extents: Extents) -> None:
        """Ask for the bytes of frames that will be read soon, of files that are open."""
        for file, _, part in extents.parts():
            # Not worth opening a file for, least of all one that another worker will read.
            if file in self._open:
                self._open[file].read_ahead(part)

    def read(self, extents: Extents, decoded: FrameBuffer, *, skip: bool) -> ReadStats:
        """Read frames into arrays; with `skip`, leave out those that cannot be read."""
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
    """A reader that can do without its open files."""

    def close_files(self) -> None:
        """Close all files; each is opened again when it is needed."""


def limit_open_files(reader: ClosesFiles) -> None:
    """Close the files of readers that were idle longest, before one more reads."""
    _open_readers.pop(id(reader), None)
    _open_readers[id(reader)] = weakref.ref(reader)
    while len(_open_readers) > OPEN_READERS:
        _, oldest = _open_readers.popitem(last=False)
        if (other := oldest()) is not None:
            other.close_files()


class TrajectoryFile(Protocol):
    """A trajectory file and its index: it was opened once, and is held open no longer."""

    @property
    def path(self) -> str:
        """Absolute path."""

    @property
    def format(self) -> str:
        """Name of the format, as users call it."""

    @property
    def n_atoms(self) -> int:
        """Number of atoms of each frame; of the first one, where it varies."""

    @property
    def varying(self) -> str | None:
        """Sentence on how the number of atoms varies; None where it does not."""

    @property
    def atom_counts(self) -> np.ndarray | None:
        """Atoms of each frame, uint32, 0 where unknown; None where the number does not vary."""

    def spec_of(self, frame: int) -> tuple[FileSpec, int]:
        """All that a worker must know to read one frame, and its number of atoms."""

    @property
    def n_frames(self) -> int:
        """Number of whole frames."""

    @property
    def fields(self) -> int:
        """Bits of the fields that frames may hold."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def bytes_per_frame(self) -> float:
        """Mean size of a frame."""

    @property
    def fingerprint(self) -> str:
        """Text by which the file is recognised."""

    @property
    def samples(self) -> bytes:
        """Fingerprint and digests of samples, by which workers recognise what they read."""

    @property
    def notes(self) -> list[str]:
        """Warnings for the user."""

    @property
    def damaged(self) -> list[int]:
        """Frames that are known to be damaged."""

    @property
    def index_file(self) -> Path | None:
        """File in which the index is saved, if it is."""

    @property
    def index_origin(self) -> str:
        """How the index was made."""

    @property
    def dt(self) -> float | None:
        """Time between frames in the header, ps; None where each frame has its own time."""

    @property
    def first(self) -> float:
        """Number by which the first frame is counted, where times are numbers of frames."""

    @property
    def time_doubt(self) -> str | None:
        """Why times of frames are not known; None where they are."""

    @property
    def frames_counted(self) -> bool:
        """True where the file has no times, and frames are counted."""

    @property
    def traffic(self) -> tuple[int, int] | None:
        """Bytes and calls that opening took, where that is known."""

    @property
    def traits(self) -> list[tuple[str, str]]:
        """Names and values that files must share, for frames of one to follow another's."""

    @property
    def spec(self) -> FileSpec:
        """All that workers must know of it."""

    @property
    def chunk_frames(self) -> int:
        """Neighbours that are stored as one, and cost together what one of them costs."""

    def extents(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Offsets and sizes of frames, bytes."""

    def slice_of(self, frames: np.ndarray) -> Any:
        """Part of its own index that workers need for frames; None where extents are enough."""

    def times(self) -> tuple[np.ndarray, np.ndarray]:
        """Time (ps) and step of every frame."""

    def head(self, first: int, n_frames: int) -> bytes:
        """First bytes of a file of these frames, where they can be copied as they are."""

    def verify(self) -> None:
        """Raise `FileChangedError` where the file of this name is not the one that was opened."""


@dataclass(frozen=True)
class IndexedFileSpec:
    """A file whose frames lie one after another, as a worker knows it."""

    path: str
    #: How the file's frames are coded.
    layout: bytes
    #: Samples by which the file was recognised when it was indexed.
    samples: bytes

    def open(self, atoms: np.ndarray | None, fields: int) -> FileReader:
        """Open the file; what is read is compared with the samples around it."""
        return _core.Reader(self.path, self.layout, self.samples, atoms=atoms, fields=fields)


class IndexedFile(_core.Trajectory):
    """A file of a format that the core knows, with its index: a `TrajectoryFile`.

    Raises `UnsupportedError` for a file of none of these formats, `DamagedFileError` where its
    first frame or its header is damaged.
    """

    chunk_frames = 1

    @property
    def spec(self) -> IndexedFileSpec:
        """All that workers must know of it."""
        return IndexedFileSpec(self.path, self.layout, self.samples)

    def spec_of(self, frame: int) -> tuple[IndexedFileSpec, int]:
        """All that a worker must know to read one frame, and its number of atoms."""
        layout, n_atoms = self.layout_of(frame)
        return IndexedFileSpec(self.path, layout, self.samples), n_atoms

    @property
    def bytes_per_frame(self) -> float:
        """Mean size of a frame."""
        return self.size / self.n_frames

    def slice_of(self, frames: np.ndarray) -> None:
        """Nothing: offsets and sizes are enough."""


def extents_in(number: int, file: TrajectoryFile, frames: np.ndarray) -> Extents:
    """Find frames (uint64) in one file, the `number`-th of its trajectory."""
    slices = (file.slice_of(frames),)
    return Extents(np.full(len(frames), number), frames, *file.extents(frames), slices)


def time_axis_of(files: Sequence[TrajectoryFile], dt: float | None = None) -> TimeAxis:
    """Make the time axis of a trajectory of these files, with the user's `dt`, ps.

    Of LAMMPS's dumps `dt` is the time between steps, as in MDAnalysis, but for a `FrameInterval`.
    """
    first = files[0]
    counts_steps = first.format in FORMATS and FORMATS[first.format].times_are_steps
    per_step = dt is not None and counts_steps and not isinstance(dt, FrameInterval)
    doubts = [] if dt is not None else [file.time_doubt for file in files if file.time_doubt]
    return TimeAxis(first.first, dt, per_step=per_step, doubt=next(iter(doubts), None))
