"""Trajectory files: how files are opened, which data a worker receives, and how a worker reads.

In the calling process, a `TrajectoryFile` creates a `FileSpec`: plain data that can be pickled. In
a worker, the `FileSpec` opens a `FileReader`. `FrameSource` and `FrameReader` have the same roles
for a whole trajectory, which may consist of several files.
"""

import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from paceline import _core
from paceline.block import FrameBuffer, field_bits
from paceline.errors import warn

if TYPE_CHECKING:
    from paceline.contract.node_disk_cache import Cache

#: Formats of the compiled module by name, with their file name extensions and capabilities.
FORMATS = {format.name: format for format in _core.formats()}

#: Key of the warning that the times of frames are unknown.
UNKNOWN_TIMES = "times not known"
#: Advice in the warning about unknown times.
TIMES_REMEDY = "give dt= (--dt)"

#: Maximum difference of two times that are equal but for rounding to single precision, as a
#: fraction of the time.
ROUNDED = 1.2e-7

#: Prefix of the names of traits that may differ between files that are joined.
REMARK = "attribute "

#: Maximum number of files that one reader keeps open.
OPEN_FILES = 2
#: Maximum number of readers in a process that keep files open.
OPEN_READERS = 16

#: Readers with open files, least recently used first.
_open_readers: "OrderedDict[int, weakref.ref[ClosesFiles]]" = OrderedDict()


@dataclass(frozen=True, slots=True)
class Extents:
    """Locations of frames in the files of a trajectory."""

    #: File index in the trajectory, int64, shape (n_frames,).
    files: np.ndarray
    #: Frame numbers in their files, uint64, shape (n_frames,).
    frames: np.ndarray
    #: Byte offsets and sizes of the frames, uint64, shape (n_frames,).
    offsets: np.ndarray
    sizes: np.ndarray
    #: For each run of frames from one file, the part of this file's own index that is needed to
    #: read them; None if offsets and sizes suffice.
    slices: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.frames)

    def parts(self) -> Iterator[tuple[int, slice, "Extents"]]:
        """Split into runs of frames from one file; yield file index, rows and extents."""
        for (file, rows), index in zip(runs_by_file(self.files), self.slices, strict=True):
            files, frames = self.files[rows], self.frames[rows]
            offsets, sizes = self.offsets[rows], self.sizes[rows]
            yield file, rows, Extents(files, frames, offsets, sizes, (index,))


def runs_by_file(files: np.ndarray) -> Iterator[tuple[int, slice]]:
    """Split rows into runs of the same file, given each row's file index; yield (file, rows)."""
    borders = np.flatnonzero(files[1:] != files[:-1]) + 1
    for first, stop in pairwise([0, *borders.tolist(), len(files)]):
        if stop > first:
            yield int(files[first]), slice(first, stop)


def deviation_from_even(times: np.ndarray, rows: np.ndarray) -> float:
    """Return how far times are at most from even ones between the first and the last, ps.

    `rows` are their numbers in the series. Return 0 if rounding to single precision explains it.
    """
    dt = (times[-1] - times[0]) / max(rows[-1] - rows[0], 1)
    off = float(np.abs(times - times[0] - dt * (rows - rows[0])).max())
    return 0.0 if off <= ROUNDED * np.abs(times).max() else off


def unknown_times(doubt: str) -> str:
    """Return the warning that times are not known, with the reason and advice."""
    return f"the times of frames are not known: {doubt}; {TIMES_REMEDY}"


class FrameInterval(float):
    """Value of `--dt`: always the time between frames, ps, and never the time between steps."""


@dataclass(frozen=True)
class TimeAxis:
    """Times of frames: those of the file, or times that the user has set instead."""

    #: Number from which frames are counted when times are computed from frame numbers.
    first: float = 0.0
    #: Time between frames, ps, which replaces the times in the file; None to keep them.
    dt: float | None = None
    #: Time added to all times, ps.
    offset: float = 0.0
    #: True if `dt` is the time of one simulation step, and the file stores the steps of frames.
    per_step: bool = False
    #: Reason why times are unknown; None if they are known.
    doubt: str | None = None

    def __call__(self, frames: Any, times: Any, steps: Any) -> Any:
        """Compute times, ps, from frame numbers, stored times and steps: arrays or scalars."""
        if self.dt is not None:
            times = (steps if self.per_step else frames + self.first) * self.dt
        return times + self.offset if self.offset else times


#: Time of reading and time of decoding (ns), number of bytes read, number of read calls, and the
#: unreadable rows, each with the reason.
FileReadStats = tuple[int, int, int, int, list[tuple[int, str]]]


class FileReader(Protocol):
    """Reader of a trajectory file that a worker has opened."""

    def read_ahead(self, extents: Extents) -> None:
        """Prefetch the bytes of frames that will be read soon."""

    def read(
        self, extents: Extents, buffer: FrameBuffer, *, required: int, skip: bool
    ) -> FileReadStats:
        """Read frames into arrays; with `skip`, skip unreadable frames."""


@runtime_checkable
class CachingReader(Protocol):
    """Reader of a file whose blocks may be in a cache."""

    def take_cache_use(self) -> tuple[int, str | None]:
        """Return the number of bytes from the cache since the last call, and a warning or None.

        The warning states why no more blocks are stored.
        """


class FileSpec(Protocol):
    """Picklable description of a file, from which a worker opens it."""

    @property
    def path(self) -> str:
        """Absolute path."""

    def open(
        self, atoms: np.ndarray | None, fields: int, cache: "Cache | None" = None
    ) -> FileReader:
        """Open the file to read atoms (increasing indices; None: all) and `fields` (bits)."""


@runtime_checkable
class SampledFileSpec(FileSpec, Protocol):
    """Description of a file that is identified by samples of its bytes."""

    @property
    def samples(self) -> bytes:
        """Samples of the file's bytes, which identify the indexed version of the file."""


class Requests(NamedTuple):
    """Requests to object stores."""

    #: Number of all requests, and number of those that repeat a failed request.
    sent: int = 0
    repeated: int = 0
    #: Number of bytes received.
    bytes: int = 0
    #: Sum of the times until responses began, and time that readers waited, ns.
    latency: int = 0
    waited: int = 0

    @classmethod
    def so_far(cls) -> "Requests":
        """Return the requests of this process so far."""
        return cls(*_core.requests_sent())

    def since(self, before: "Requests") -> "Requests":
        """Return the requests that were sent after `before` was recorded."""
        return Requests(*(now - then for now, then in zip(self, before, strict=True)))


class ReadStats(NamedTuple):
    """Cost of reading a block."""

    #: Times of opening, reading and decoding, ns.
    open: int
    read: int
    decode: int
    #: Number of bytes requested from the file, and number of read calls.
    bytes: int
    calls: int
    #: Unreadable rows, each with the reason.
    damaged: list[tuple[int, str]]
    #: Number of bytes from the cache.
    cached: int = 0
    requests: "Requests" = Requests()


@dataclass(frozen=True)
class FrameSource:
    """Picklable description of a trajectory, from which a worker opens it."""

    #: Files in the order of the trajectory.
    files: Sequence[FileSpec]
    #: Atoms to decode, int64, increasing; None for all.
    atoms: np.ndarray | None
    #: Number of decoded atoms.
    n_wanted: int
    #: Fields to decode, a subset of `paceline.block.FIELDS`.
    fields: Sequence[str]
    #: Fields that every frame must contain. Other fields are NaN in frames that lack them.
    required: Sequence[str]
    time_axis: TimeAxis
    #: Cell that a script has set for all frames because the files have none, Å and degrees.
    cell: np.ndarray | None = None
    #: Number of atoms in a frame of the file.
    n_atoms: int = 0
    #: Cache for the blocks of the files; None without one.
    cache: "Cache | None" = None

    def open(self) -> "FrameReader":
        """Create a reader, which opens a file when a block first needs it."""
        return FrameReader(self)

    @property
    def frame_bytes(self) -> int:
        """Size of a decoded frame in memory, bytes."""
        return 12 * max(1, self.n_wanted) * max(1, len(self.fields))

    def name_of(self, extents: Extents, row: int) -> str:
        """Identify a frame in messages by its file and its frame number in the file."""
        return f"{self.files[extents.files[row]].path}: frame {extents.frames[row]}"


@runtime_checkable
class Requesting(Protocol):
    """Reader whose file may be in an object store."""

    def take_requests(self) -> tuple[int, int, int, int, int]:
        """Return the requests since the last call, as in `Requests`."""


class FrameReader:
    """Trajectory reader of a worker, which keeps the most recently used files open."""

    def __init__(self, source: FrameSource):
        self._source = source
        self._fields = field_bits(source.fields)
        self._required = field_bits(source.required)
        self._open: OrderedDict[int, FileReader] = OrderedDict()

    def file_reader(self, file: int) -> FileReader:
        """Return the reader of a file; open the file if necessary."""
        reader = self._open.pop(file, None)
        if reader is None:
            while len(self._open) >= OPEN_FILES:
                self._open.popitem(last=False)
            cache = None if self._source.cache is None else self._source.cache.here()
            reader = self._source.files[file].open(self._source.atoms, self._fields, cache)
        self._open[file] = reader
        return reader

    def close_files(self) -> None:
        """Close all files; a later read opens them again."""
        self._open.clear()

    def read_ahead(self, extents: Extents) -> None:
        """Prefetch the bytes of frames that will be read soon, in files that are open."""
        for file, _, part in extents.parts():
            # Opening a file only to prefetch is too expensive, and another worker may read that
            # file.
            if file in self._open:
                self._open[file].read_ahead(part)

    def read(self, extents: Extents, decoded: FrameBuffer, *, skip: bool) -> ReadStats:
        """Read frames into arrays; with `skip`, skip unreadable frames."""
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
        cached = 0 if self._source.cache is None else self._take_cache_use(self._source.cache)
        requests = self._take_requests()
        return ReadStats(opening, reading, decoding, n_bytes, n_calls, damaged, cached, requests)

    def _take_requests(self) -> Requests:
        """Return the requests of the open files since the last call."""
        taken = [one.take_requests() for one in self._open.values() if isinstance(one, Requesting)]
        return Requests(*(sum(numbers) for numbers in zip(*taken, strict=True)))

    def _take_cache_use(self, cache: "Cache") -> int:
        """Return the number of bytes from the cache since the last call.

        Warns if the user's cache stores no more blocks.
        """
        n_bytes = 0
        for reader in self._open.values():
            if isinstance(reader, CachingReader):
                found, notice = reader.take_cache_use()
                n_bytes += found
                if notice is not None and not cache.is_temporary:
                    warn(notice)
        return n_bytes


class ClosesFiles(Protocol):
    """Reader that can close its files and reopen them."""

    def close_files(self) -> None:
        """Close all files; a later read opens them again."""


def limit_open_files(reader: ClosesFiles) -> None:
    """Close the files of the least recently used readers before `reader` reads."""
    _open_readers.pop(id(reader), None)
    _open_readers[id(reader)] = weakref.ref(reader)
    while len(_open_readers) > OPEN_READERS:
        _, oldest = _open_readers.popitem(last=False)
        if (other := oldest()) is not None:
            other.close_files()


class TrajectoryFile(Protocol):
    """Trajectory file with its index; it was opened once for indexing, and is closed again."""

    @property
    def path(self) -> str:
        """Absolute path."""

    @property
    def format(self) -> str:
        """Name of the format in the user interface."""

    @property
    def n_atoms(self) -> int:
        """Number of atoms in each frame; if the number varies, that of the first frame."""

    @property
    def varying(self) -> str | None:
        """Sentence that describes how the number of atoms varies; None if it is constant."""

    @property
    def atom_counts(self) -> np.ndarray | None:
        """Number of atoms of each frame, uint32, 0 if unknown; None if the number is constant."""

    def spec_of(self, frame: int) -> tuple[FileSpec, int]:
        """Return the description of one frame for a worker, and the frame's number of atoms."""

    @property
    def n_frames(self) -> int:
        """Number of complete frames."""

    @property
    def fields(self) -> int:
        """Fields that frames of the file may contain, as bits (`paceline.block.field_bits`)."""

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
        """Fingerprint, and digests of samples of the file's bytes.

        Workers verify the file with them.
        """

    @property
    def notes(self) -> list[str]:
        """Warnings about the file, for the user."""

    @property
    def damaged(self) -> list[int]:
        """Frames that are known to be damaged."""

    @property
    def index_file(self) -> Path | None:
        """Path of the saved index; None if the index is not saved."""

    @property
    def index_origin(self) -> str:
        """Text that says how the index was obtained."""

    @property
    def dt(self) -> float | None:
        """Time between frames from the header, ps; None if each frame stores its own time."""

    @property
    def first(self) -> float:
        """Number from which frames are counted, if times are computed from frame numbers."""

    @property
    def time_doubt(self) -> str | None:
        """Reason why the times of frames are unknown; None if they are known."""

    @property
    def length_doubt(self) -> str | None:
        """Reason why lengths are assumed to be in Å; None if their unit is known."""

    @property
    def frames_counted(self) -> bool:
        """True if the file stores no times, so that they are computed from frame numbers."""

    @property
    def traffic(self) -> tuple[int, int] | None:
        """Bytes read and calls made when the file was opened; None if unknown."""

    @property
    def traits(self) -> list[tuple[str, str]]:
        """Properties (name, value) that must agree between the files of one trajectory."""

    @property
    def spec(self) -> FileSpec:
        """Description of the file for workers."""

    @property
    def datasets(self) -> tuple[str, ...]:
        """Paths of the datasets that are read from an HDF5 file; empty for other files."""

    @property
    def conversion(self) -> object:
        """Values that determine how stored numbers are converted to numbers in Å and ps."""

    @property
    def chunk_frames(self) -> int:
        """Number of adjacent frames that are stored as one chunk and read together."""

    def extents(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the byte offsets and sizes of frames."""

    def slice_of(self, frames: np.ndarray) -> object:
        """Return the part of the file's index that workers need; None if extents suffice."""

    def times(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the times (ps) and steps of all frames."""

    def head(self, first: int, n_frames: int) -> bytes:
        """Return the file header for a copy of these frames, if frames can be copied as bytes."""

    def verify(self) -> None:
        """Raise `FileChangedError` if the file at this path has changed since it was opened."""


@dataclass(frozen=True)
class IndexedFileSpec:
    """Description, for workers, of a file that stores its frames one after another."""

    path: str
    #: Encoding parameters of the file's frames.
    layout: bytes
    #: Samples of the file's bytes, which identify the indexed version of the file.
    samples: bytes

    def open(
        self, atoms: np.ndarray | None, fields: int, cache: "Cache | None" = None
    ) -> FileReader:
        """Open the file; the reader verifies the bytes that it reads against `samples`."""
        return _core.Reader(
            self.path, self.layout, self.samples, atoms=atoms, fields=fields, cache=cache
        )


class IndexedFile(_core.Trajectory):
    """File in a format of the compiled module, with its index: a `TrajectoryFile`.

    Raises `UnsupportedError` for an unrecognised format, and `DamagedFileError` if the header or
    the first frame is damaged.
    """

    chunk_frames = 1
    datasets = ()

    @property
    def conversion(self) -> bytes:
        """Encoding parameters of the frames, with the units of the file."""
        return self.layout

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
        """Return None, because offsets and sizes suffice."""


def extents_in(number: int, file: TrajectoryFile, frames: np.ndarray) -> Extents:
    """Return the extents of frames (uint64) of one file: file `number` of the trajectory."""
    slices = (file.slice_of(frames),)
    return Extents(np.full(len(frames), number), frames, *file.extents(frames), slices)


def time_axis_of(files: Sequence[TrajectoryFile], dt: float | None = None) -> TimeAxis:
    """Create the time axis of a trajectory from its files and the user's `dt`, ps.

    For LAMMPS dumps, `dt` is the time between steps, as in MDAnalysis, unless it is a
    `FrameInterval`.
    """
    first = files[0]
    counts_steps = first.format in FORMATS and FORMATS[first.format].times_are_steps
    per_step = dt is not None and counts_steps and not isinstance(dt, FrameInterval)
    doubts = [] if dt is not None else [file.time_doubt for file in files if file.time_doubt]
    step = None if dt is None else float(dt)
    return TimeAxis(first.first, step, per_step=per_step, doubt=next(iter(doubts), None))
