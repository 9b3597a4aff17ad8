"""Chain of one or more files that form one trajectory."""

import math
import os
import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from paceline import _core
from paceline._util.files import is_address
from paceline._util.leftovers import ScratchFolder
from paceline.contract.node_disk_cache import Cache
from paceline.contract.source import (
    ROUNDED,
    Extents,
    FileSpec,
    FrameSource,
    TimeAxis,
    TrajectoryFile,
    extents_in,
    runs_by_file,
    unknown_times,
)
from paceline.errors import (
    AtomCountError,
    UnsupportedError,
    kept_warnings,
    warn,
    with_script_advice,
)
from paceline.hdf5.open_hdf5_trajectory import NO_OPTIONS, Hdf5File, Hdf5Options
from paceline.trajectory.open import OBJECTS_AT_A_TIME, notes_of, open_files, read_headers

#: Maximum difference between times of the same frame in two files, relative to the time. Each may
#: be the product of two numbers in single precision.
_ROUNDING = 2 * ROUNDED

#: Values of `TrajectoryFile.index_origin` for indexes that contain the times of all frames. For
#: these files, reading times needs no request to an object store.
_WITH_TIMES = ("scanned", "extended", "loaded", "HDF5's own")

#: Maximum size of the blocks of scanned objects that are kept for the analyses, bytes; at most half
#: of the free space of the folder for temporary files is used.
_KEPT_OF_SCANS = 8 << 30

#: Maximum number of files, or of overlaps of files, that a warning lists.
_NAMED = 3

#: Part of what identifies the frames of a trajectory: its name, a text for messages, and the values
#: by which it is compared.
Identifier = tuple[str, str, object]


class Chain:
    """Files in sequence, each with its frame index; no file is kept open.

    Each file must have `n_atoms` atoms; the default is the number in the first file. With
    `varying`, the number may vary from frame to frame. `refresh` rebuilds the indexes. `continuous`
    orders the files by time and leaves out frames that a later file repeats; a warning reports
    these frames unless `quiet`. A warning reports unknown times unless `times_given`. `opener`
    replaces `paceline.trajectory.open.open_files`. Workers read through `cache`. An object in an
    object store that has no index is scanned through `cache`, too. If `cache` is None, a temporary
    cache stores the scanned bytes until the chain is no longer used.

    Raises `AtomCountError` for a file with another number of atoms, `UnsupportedError` for an
    unrecognised format or if no file has a complete frame, and `DamagedFileError` if the first
    frame or the header of a file is damaged.
    """

    #: True if the frames are in arrays, so that workers need not prefetch.
    in_memory = False
    #: True for the file of a stream: its receiver has already warned of times that run backwards.
    is_streamed = False
    #: Name of the last file if it had no complete frame and was left out; otherwise None.
    _unbegun: str | None = None
    #: Cache for the blocks of the files that workers read; None if they are not cached.
    cache: Cache | None

    def __init__(
        self,
        names: Sequence[str | os.PathLike],
        *,
        n_atoms: int | None = None,
        options: Hdf5Options = NO_OPTIONS,
        refresh: bool = False,
        continuous: bool = False,
        quiet: bool = False,
        times_given: bool = False,
        varying: bool = False,
        opener: Callable[..., list[TrajectoryFile]] = open_files,
        cache: Cache | None = None,
    ):
        if not names:
            raise ValueError("expected one trajectory file or more, found none")
        self._options, self._n_atoms = options, n_atoms
        if cache is None and any(is_address(name) for name in names):
            cache = self._temporary_cache()
        #: Warnings about the files, which are recorded with results. Warnings about unknown times
        #: are not included.
        self.warnings: list[str] = []
        with kept_warnings(self.warnings):
            files = opener(names, options=options, n_atoms=n_atoms, refresh=refresh, cache=cache)
        is_unused = cache is not None and cache.is_temporary and cache.is_empty
        self.cache = None if is_unused else cache
        fixed = [file for file in files if file.varying is None]
        for file in files:
            if file.varying is None:
                _check_n_atoms(file, fixed[0], n_atoms, by_topology=not varying)
            elif n_atoms is not None or not varying:
                raise _varies(file)
        self.names = [os.fspath(name) for name in names]
        self.files = files
        #: Frames of each file that belong to the chain, uint64; None for all frames.
        self._kept: list[np.ndarray | None] = [None] * len(files)
        with kept_warnings(self.warnings):
            self._leave_out_empty()
            if continuous or (len(self.files) > 1 and not quiet):
                self._compare_times(continuous=continuous)
        if not times_given:
            self._warn_of_times()
        self._count()

    def _temporary_cache(self) -> Cache | None:
        """Create a cache for scanned objects, which is removed with the chain.

        Return None if there is no writable folder for temporary files.
        """
        try:
            folder = ScratchFolder("scan")
            free = shutil.disk_usage(tempfile.gettempdir()).free
        except OSError:
            return None
        folder.remove_with(self)
        return Cache(folder.path, min(_KEPT_OF_SCANS, free // 2), is_temporary=True)

    def _leave_out_empty(self) -> None:
        """Leave out files without a complete frame, and warn."""
        whole = [k for k, file in enumerate(self.files) if file.n_frames > 0]
        if not whole:
            raise UnsupportedError(
                f"{self.names[0]}: expected at least one complete frame, found none"
            )
        for name, file in zip(self.names, self.files, strict=True):
            if file.n_frames == 0:
                follows = file is not self.files[-1]
                then = "continues with the next file" if follows else "ends before this file"
                warn(f"{name}: it has no complete frame; the trajectory {then}")
        self._unbegun = None if self.files[-1].n_frames else self.names[-1]
        self._choose(whole)

    def _warn_of_times(self) -> None:
        """Warn in one line of files whose times are unknown, unless there is only one frame."""
        pairs = zip(self.names, self.files, strict=True)
        found = [(name, file.time_doubt) for name, file in pairs if file.time_doubt]
        if found and self.n_frames_of_files > 1:
            name, doubt = found[0]
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            warn(f"{name}{more}: {unknown_times(doubt)}")

    @property
    def n_frames_of_files(self) -> int:
        """Total number of frames in the files, including frames that are left out."""
        return sum(file.n_frames for file in self.files)

    def runs(self) -> Iterator[tuple[TrajectoryFile, int, int]]:
        """Yield ranges of adjacent frames: file, first frame, and end."""
        for file, kept in zip(self.files, self._kept, strict=True):
            if kept is None:
                yield file, 0, file.n_frames
                continue
            for frames in np.split(kept, np.flatnonzero(np.diff(kept) != 1) + 1):
                yield file, int(frames[0]), int(frames[-1]) + 1

    def _compare_times(self, *, continuous: bool) -> None:
        """Warn of frames repeated by restarts; with `continuous`, leave out repeated frames."""
        # Without `continuous`, the first and last time of each file suffice for the warning.
        found = order_by_time(self.files, within=continuous)
        report = _report_lost(found) if continuous else _report_overlaps(found, self.names)
        if report is not None:
            warn(report)
        if continuous:
            self._warn_of_untimed(found.untimed)
            self._choose(found.order)
            self._kept = found.kept
            self._choose([k for k, kept in enumerate(self._kept) if kept is None or len(kept)])

    def _warn_of_untimed(self, numbers: Sequence[int]) -> None:
        """Warn of files without times, because repeated frames cannot be found in these files."""
        if numbers:
            names = [self.names[k] for k in numbers]
            warn(
                f"{', '.join(names[:_NAMED])}: continuous=True compares times of frames, which "
                "are not known or all equal: all frames are kept, in the order of the files"
            )

    def _choose(self, numbers: Iterable[int]) -> None:
        """Select files by their numbers, in this order."""
        numbers = list(numbers)
        self.names = [self.names[k] for k in numbers]
        self.files = [self.files[k] for k in numbers]
        self._kept = [self._kept[k] for k in numbers]

    def _count(self) -> None:
        """Compute the range of frame numbers of each file in the chain."""
        counts = [
            file.n_frames if kept is None else len(kept)
            for file, kept in zip(self.files, self._kept, strict=True)
        ]
        self._stops = np.cumsum(counts)
        self._begins = self._stops - counts
        #: Number of frames of the chain, without frames that are left out.
        self.n_frames = int(self._stops[-1])
        #: First file in which the number of atoms varies; None without such a file.
        self.varying = next((file for file in self.files if file.varying is not None), None)

    @property
    def n_atoms(self) -> int:
        """Number of atoms of each frame. Raises `UnsupportedError` if the number varies."""
        if self.varying is not None:
            raise _varies(self.varying)
        return self.files[0].n_atoms

    @property
    def atom_counts(self) -> np.ndarray:
        """Number of atoms of each frame, int64, shape (n_frames,); 0 if unknown (damaged frame)."""
        found = []
        for file, kept in zip(self.files, self._kept, strict=True):
            counts = file.atom_counts
            if counts is None:
                counts = np.full(file.n_frames, file.n_atoms)
            found.append((counts if kept is None else counts[kept]).astype(np.int64))
        return np.concatenate(found)

    @property
    def fields(self) -> int:
        """Bits of the fields that the frames of any file may contain."""
        return int(np.bitwise_or.reduce([file.fields for file in self.files]))

    @property
    def specs(self) -> list[FileSpec]:
        """Descriptions of the files for workers."""
        return [file.spec for file in self.files]

    @property
    def bytes_per_frame(self) -> float:
        """Mean size of a frame, bytes."""
        sizes = [file.bytes_per_frame for file in self.files]
        return float(np.average(sizes, weights=[file.n_frames for file in self.files]))

    def frame_bytes(self, atoms: np.ndarray) -> float:
        """Return the approximate number of bytes to read per frame for increasing atom indices."""
        return self.bytes_per_frame * (atoms[-1] + 1) / self.n_atoms

    @property
    def content(self) -> str:
        """Fingerprints of the files."""
        return ", ".join(file.fingerprint for file in self.files)

    @property
    def choices(self) -> list[Identifier]:
        """Identifiers of what options choose to read from the files."""
        datasets = [file.datasets for file in self.files]
        names = ", ".join(sorted({name for some in datasets for name in some}))
        units = self._options.units
        if isinstance(units, Mapping):
            units = ", ".join(f"{quantity} {unit}" for quantity, unit in units.items())
        n_all = self.n_frames_of_files
        kept = "all" if self.n_frames == n_all else f"{self.n_frames} of {n_all}"
        return [
            ("datasets", names or "none", datasets),
            ("units", units or "those of the files", [file.conversion for file in self.files]),
            ("frames of the files", kept, self._kept),
        ]

    @property
    def chunk_frames(self) -> int:
        """Maximum number of adjacent frames that any file stores as one chunk."""
        return max(file.chunk_frames for file in self.files)

    @property
    def one_thread(self) -> bool:
        """True if only one thread may read, because MPI-IO reads the file."""
        return self._options.driver is not None

    def spacing(self, axis: TimeAxis) -> float:
        """Return the time between frames, ps: the user's value, or that of the first header.

        If neither exists, return the time between the first two frames, or 0 for a single frame.
        """
        file = self.files[0]
        if axis.dt is not None and not axis.per_step:
            return axis.dt
        if file.dt is not None:
            return file.dt
        frames = np.arange(min(2, file.n_frames))
        headers = read_headers(file, frames.tolist())
        times = axis(frames, headers.times, headers.steps)
        between = times[-1] - times[0]
        return float(between) if np.isfinite(between) else 0.0

    def extents(self, frames: np.ndarray) -> Extents:
        """Return the extents of frames, given by their frame numbers (int64) in the trajectory."""
        files = np.searchsorted(self._stops, frames, side="right")
        numbers = (frames - self._begins[files]).astype(np.uint64)
        offsets, sizes = np.empty_like(numbers), np.empty_like(numbers)
        slices = []
        for k, rows in runs_by_file(files):
            kept = self._kept[k]
            if kept is not None:
                numbers[rows] = kept[numbers[rows]]
            offsets[rows], sizes[rows] = self.files[k].extents(numbers[rows])
            slices.append(self.files[k].slice_of(numbers[rows]))
        return Extents(files, numbers, offsets, sizes, tuple(slices))

    def locator(self, source: FrameSource, *, by_file: bool) -> Callable[[np.ndarray], Extents]:
        """Return the function that locates frames for workers, which read from `source`.

        `by_file` is true if the workers are processes of this machine, and can open files that this
        process writes.
        """
        return self.extents

    def locate(self, frame: int) -> tuple[int, int]:
        """Return the index in `files` of the file of one frame, and the frame's number in it."""
        k = bisect_right(self._stops, frame)
        kept, number = self._kept[k], frame - int(self._begins[k])
        return k, number if kept is None else int(kept[number])

    def extent(self, frame: int) -> tuple[int, Extents]:
        """Return the index of the file, and the extents, of one frame; faster than `extents`."""
        k, number = self.locate(frame)
        return k, extents_in(k, self.files[k], np.array([number], dtype=np.uint64))

    def times_and_steps(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the times (ps, float64; NaN if unknown) and steps of all frames in the files."""
        found = []
        for file, kept in zip(self.files, self._kept, strict=True):
            times, steps = file.times()
            found.append((times, steps) if kept is None else (times[kept], steps[kept]))
        times, steps = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        return times, steps

    def extended(self) -> Self:
        """Return a chain of the same files, opened again, with frames appended to the last file.

        Raises `FileChangedError` if a file is not the one that was opened, and `UnsupportedError`
        for the reasons of `check_growing`.
        """
        self.check_growing()
        chain = self._reopen(*self._state)
        chain.cache, chain.is_streamed = self.cache, self.is_streamed
        # Warnings about the last file may no longer be true: replace them.
        last = chain.files[-1]
        changed = f"{self.names[-1]}: ", f"{last.path}: "
        chain.warnings = [text for text in self.warnings if not text.startswith(changed)]
        chain.warnings += notes_of(last.path, last)
        return chain

    def check_growing(self) -> None:
        """Raise `UnsupportedError` if frames that are appended to the last file cannot be read."""
        if self.in_memory or self._kept[-1] is not None:
            raise UnsupportedError(
                f"{self.names[-1]}: frames cannot be appended to an array, or to frames that were "
                "ordered by time (continuous=True)"
            )
        if self._unbegun is not None:
            raise UnsupportedError(
                f"{self._unbegun}: the last file had no complete frame when it was opened, so that "
                "its frames cannot be followed: open the files again when it has one"
            )
        if is_address(self.names[-1]):
            raise UnsupportedError(
                f"{self.names[-1]}: an object of a store or of a server does not grow: follow a "
                "file on a disk"
            )
        if isinstance(self.files[-1], Hdf5File):
            raise hdf5_does_not_grow(self.names[-1])

    def __reduce__(self) -> tuple[object, ...]:
        return Chain._reopen, self._state, {"cache": self.cache, "warnings": self.warnings}

    @property
    def _state(
        self,
    ) -> tuple[
        list[str],
        list[str],
        list[str],
        list[np.ndarray | None],
        np.ndarray,
        Hdf5Options,
        int | None,
    ]:
        """Return the arguments of `_reopen`."""
        # Indexes are not pickled: the receiver loads them from disk.
        paths = [file.path for file in self.files]
        fingerprints = [file.fingerprint for file in self.files]
        options = self._options, self._n_atoms
        return self.names, paths, fingerprints, self._kept, self._stops, *options

    @classmethod
    def _reopen(
        cls,
        names: list[str],
        paths: list[str],
        fingerprints: list[str],
        kept: list[np.ndarray | None],
        stops: np.ndarray,
        options: Hdf5Options,
        n_atoms: int | None,
    ) -> Self:
        """Create a chain from another chain's `_state`; add frames appended to the last file."""
        chain = cls.__new__(cls)
        chain.names, chain._kept = list(names), list(kept)
        chain._options, chain._n_atoms, chain.cache = options, n_atoms, None
        chain.warnings = []
        chain.files = open_files(paths, options=options, n_atoms=n_atoms, notes=False)
        counts = np.diff(stops, prepend=0)
        for k, file in enumerate(chain.files):
            if file.fingerprint != fingerprints[k]:
                # The beginning of the file must still have the same fingerprint.
                _core.verify(file.path, fingerprints[k])
                if k + 1 < len(chain.files) and kept[k] is None:
                    # Frames appended to this file are left out, so that later frames keep their
                    # numbers.
                    chain._kept[k] = np.arange(counts[k], dtype=np.uint64)
        chain._count()
        return chain


@dataclass(frozen=True)
class Overlap:
    """Repeated frames of one file: a later file, or a restart in the same file, has their times."""

    earlier: str
    later: str
    #: Number of repeated frames in the earlier file.
    n_frames: int
    #: First and last time of the repeated frames, ps.
    begin: float
    end: float
    #: Number of repeated frames at whose times the chain has no other frame.
    unmatched: int

    @property
    def later_begins(self) -> str:
        """Phrase for a message: the later file has begun or, for a restart, has begun again."""
        return f"{self.later} has begun{' again' if self.later == self.earlier else ''}"


@dataclass(frozen=True)
class TimeOrder:
    """Files in time order, without frames that later files repeat."""

    #: Original file indices in time order; a file may occur several times.
    order: list[int]
    #: For each entry of `order`, the frames that no later entry repeats; None for all frames.
    kept: list[np.ndarray | None]
    #: Overlaps of files; their repeated frames are left out of `kept`.
    overlaps: list[Overlap]
    #: Original indices of files whose times are unknown or, with several frames, all equal.
    untimed: list[int]


@dataclass(frozen=True, eq=False)
class _Stretch:
    """Consecutive frames of a file, whose times increase as far as they are known."""

    #: Index of the file; its frames from `start` to `stop`.
    file: int
    start: int
    stop: int
    #: Time of the first frame, ps; NaN without times.
    first: float = math.nan
    #: Time of the last frame, ps; NaN without times.
    last: float = math.nan
    #: Time between the first two frames, ps; infinite for a single frame.
    gap: float = math.inf
    #: Times of all frames in the stretch, ps; None for a whole file whose times are not loaded.
    moments: np.ndarray | None = None

    @classmethod
    def whole(cls, number: int, file: TrajectoryFile) -> "_Stretch":
        """Create a stretch of all frames of a file from the times of its first and last frame."""
        plain = cls(number, 0, file.n_frames)
        if file.frames_counted:
            return plain
        if is_address(file.path) and file.index_origin in _WITH_TIMES:
            ends = file.times()[0][[0, -1]]
        else:
            ends = read_headers(file, [0, file.n_frames - 1]).times
        if not np.isfinite(ends).all():
            times = file.times()[0]
            ends = times[np.isfinite(times)][[0, -1]] if np.isfinite(times).any() else ends
        first, last = ends.tolist()
        if not math.isfinite(first) or (first == last and file.n_frames > 1):
            return plain
        gap = abs(last - first) / file.n_frames if file.n_frames > 1 else math.inf
        return replace(plain, first=first, last=last, gap=gap)

    @classmethod
    def all_of(cls, number: int, file: TrajectoryFile) -> "list[_Stretch]":
        """Split a file wherever times do not increase, using the times of all frames."""
        times = file.times()[0]
        rows = np.flatnonzero(np.isfinite(times))
        known = times[rows]
        # Equal times of several frames are no times.
        if file.frames_counted or not len(known) or (len(known) > 1 and np.ptp(known) == 0):
            return [cls(number, 0, file.n_frames)]
        gaps = _gaps(known)
        # Compare each step with the steps before and after it.
        ends = np.flatnonzero(
            np.diff(known) <= _roundings(known[1:], np.minimum(gaps[:-2], gaps[2:]))
        )
        gaps[ends + 1] = math.inf
        begins = np.append(0, ends + 1)
        first, last = known[begins], known[np.append(ends, -1)]
        # A frame without a time belongs to the same stretch as the previous frame.
        starts = [0, *rows[ends + 1].tolist()]
        stops = [*starts[1:], len(times)]
        values = (first.tolist(), last.tolist(), gaps[begins + 1].tolist())
        return [
            cls(number, start, stop, begin, end, gap, times[start:stop])
            for start, stop, begin, end, gap in zip(starts, stops, *values, strict=True)
        ]

    def times(self, files: Sequence[TrajectoryFile]) -> np.ndarray:
        """Times of the frames, ps."""
        return files[self.file].times()[0] if self.moments is None else self.moments

    def may_reach(self, later: "_Stretch") -> bool:
        """Return True if the last frames may be repeated by a later stretch."""
        return self.last >= later.first - min(_ROUNDING * abs(later.first), later.gap / 10)


def _gaps(times: np.ndarray) -> np.ndarray:
    """Return the time before each frame, and after the last, ps; infinite unless positive."""
    steps, gaps = np.diff(times), np.full(len(times) + 1, math.inf)
    np.copyto(gaps[1:-1], steps, where=steps > 0)
    return gaps


def _roundings(times: np.ndarray | float, gaps: np.ndarray) -> np.ndarray:
    """Return the largest differences from times that may be rounding errors, ps.

    Differences above a tenth of the time between frames near them, `gaps`, are no rounding errors.
    """
    return np.where(np.isinf(gaps), 0.0, np.minimum(_ROUNDING * np.abs(times), gaps / 10))


def order_by_time(files: Sequence[TrajectoryFile], *, within: bool = True) -> TimeOrder:
    """Order files by time, and find frames that restarts repeat. Every file must have a frame.

    If a frame exists twice, the later copy is kept: the copy in the later file or, with `within`,
    the later copy in the same file. A simulation that restarts from a checkpoint replaces the
    frames that were written after the checkpoint. Frames without a time are kept.
    """
    if within:
        given = [one for k, file in enumerate(files) for one in _Stretch.all_of(k, file)]
    elif any(is_address(file.path) for file in files):
        # Read times in threads, because for some formats they take a request for each file.
        with ThreadPoolExecutor(OBJECTS_AT_A_TIME) as threads:
            given = [*threads.map(_Stretch.whole, range(len(files)), files)]
    else:
        given = [*map(_Stretch.whole, range(len(files)), files)]
    stretches = [given[k] for k in _by_first_time(given)]
    kept: list[np.ndarray | None] = [None] * len(stretches)
    left_out = []
    later = None
    for k in reversed(range(len(stretches))):
        one = stretches[k]
        if later is not None and one.may_reach(stretches[later]):
            following, times = stretches[later], one.times(files)
            gaps = _gaps(times)
            gaps = np.minimum(np.minimum(gaps[:-1], gaps[1:]), following.gap)
            roundings = _roundings(following.first, gaps)
            repeated = times >= following.first - roundings
            if repeated.any():
                kept[k] = np.flatnonzero(~repeated)
                left_out.append((k, later, times[repeated], roundings[repeated]))
        if not math.isnan(one.first):
            later = k
    remaining = _kept_times_near(files, stretches, kept)
    overlaps = [
        Overlap(
            files[stretches[k].file].path,
            files[stretches[by].file].path,
            len(repeated),
            float(repeated.min()),
            float(repeated.max()),
            _count_unmatched(repeated, remaining, roundings),
        )
        for k, by, repeated, roundings in reversed(left_out)
    ]
    untimed = [one.file for one in given if math.isnan(one.first)]
    return TimeOrder(*_join_stretches(files, stretches, kept), overlaps, untimed)


def _by_first_time(stretches: Sequence[_Stretch]) -> list[int]:
    """Return the indices of stretches in the order of their first times.

    A stretch without times stays after its predecessor.
    """
    keys, latest = [], -math.inf
    for one in stretches:
        latest = latest if math.isnan(one.first) else one.first
        keys.append(latest)
    return sorted(range(len(keys)), key=keys.__getitem__)


def _join_stretches(
    files: Sequence[TrajectoryFile],
    stretches: Sequence[_Stretch],
    kept: Sequence[np.ndarray | None],
) -> tuple[list[int], list[np.ndarray | None]]:
    """Join consecutive stretches of one file.

    Return the indices of the files, and for each the frames that belong to the chain (None: all).
    A file occurs again if stretches of other files lie between its own stretches.
    """
    order: list[int] = []
    rows: list[list[np.ndarray]] = []
    for one, some in zip(stretches, kept, strict=True):
        if not order or order[-1] != one.file:
            order.append(one.file)
            rows.append([])
        every = np.arange(one.start, one.stop, dtype=np.uint64)
        rows[-1].append(every if some is None else every[some])
    found: list[np.ndarray | None] = []
    for k, parts in zip(order, rows, strict=True):
        frames = np.concatenate(parts)
        is_all = np.array_equal(frames, np.arange(files[k].n_frames, dtype=np.uint64))
        found.append(None if is_all else frames)
    return order, found


def _kept_times_near(
    files: Sequence[TrajectoryFile],
    stretches: Sequence[_Stretch],
    kept: Sequence[np.ndarray | None],
) -> np.ndarray:
    """Return the sorted times of kept frames in the range of the times of omitted frames."""
    cut = [one for one, rows in zip(stretches, kept, strict=True) if rows is not None]
    if not cut:
        return np.empty(0)
    earliest = min(one.first for one in cut)
    latest = max(one.last for one in cut)
    rounding = _ROUNDING * max(abs(earliest), abs(latest))
    found = []
    for one, rows in zip(stretches, kept, strict=True):
        if one.first <= latest + rounding and one.last >= earliest - rounding:
            times = one.times(files)
            found.append(times if rows is None else times[rows])
    return np.sort(np.concatenate(found))


def _count_unmatched(times: np.ndarray, others: np.ndarray, roundings: np.ndarray) -> int:
    """Count the times that do not occur in an increasing array of times."""
    below = np.searchsorted(others, times - roundings, side="left")
    above = np.searchsorted(others, times + roundings, side="right")
    return int((below == above).sum())


def _report_overlaps(found: TimeOrder, paths: Sequence[str]) -> str | None:
    """Return the warning about overlapping files at `paths`; None if no files overlap."""
    if found.overlaps:
        n_frames = sum(overlap.n_frames for overlap in found.overlaps)
        places = _list_some(
            [
                f"{overlap.n_frames} of {overlap.earlier} at "
                f"{' to '.join(dict.fromkeys(f'{t:g}' for t in (overlap.begin, overlap.end)))} ps, "
                f"where {overlap.later} has begun"
                for overlap in found.overlaps
            ]
        )
        return (
            f"{n_frames} frame{'s are' if n_frames > 1 else ' is'} repeated, by "
            f"{'their times' if n_frames > 1 else 'its time'}: {places}; continuous=True "
            "(--continuous) leaves them out and orders the files by time"
        )
    for k, (before, after) in enumerate(zip(found.order, found.order[1:], strict=False)):
        if before > after:
            return (
                f"{paths[found.order[k]]} is earlier than {paths[after]}, but was given after "
                "it; continuous=True (--continuous) orders the files by time"
            )
    return None


def _report_lost(found: TimeOrder) -> str | None:
    """Return the warning about omitted frames at whose times no other frame exists, or None."""
    lost = [overlap for overlap in found.overlaps if overlap.unmatched]
    if not lost:
        return None
    places = _list_some(
        [
            f"{overlap.unmatched} of {overlap.earlier}, of those at {overlap.begin:g} to "
            f"{overlap.end:g} ps, where {overlap.later_begins}"
            for overlap in lost
        ]
    )
    return f"continuous=True leaves out frames at times where no other frame exists: {places}"


def _list_some(places: Sequence[str]) -> str:
    """List the first few items, and give the number of the others."""
    more = len(places) - _NAMED
    return "; ".join(places[:_NAMED]) + (f"; and at {more} more places" if more > 0 else "")


def hdf5_does_not_grow(name: str) -> UnsupportedError:
    """Create the error that an HDF5 file cannot be followed while it grows."""
    return UnsupportedError(
        f"{name}: an HDF5 file cannot be followed while it grows, because HDF5 rewrites its index "
        "with each frame, and locks it or marks it as open: let the simulation write XTC, TRR, "
        "DCD, NetCDF or a LAMMPS dump, or analyse the file when it is closed"
    )


def _varies(file: TrajectoryFile) -> UnsupportedError:
    """Create the error that an analysis cannot read a file whose number of atoms varies."""
    error = UnsupportedError(
        f"{file.path}: {file.varying}; an analysis needs the same atoms in all frames"
    )
    return with_script_advice(error, ": paceline.open(file)[k] reads one frame")


def _check_n_atoms(
    file: TrajectoryFile, first: TrajectoryFile, n_atoms: int | None, *, by_topology: bool
) -> None:
    """Raise `AtomCountError` if a file's number of atoms is wrong.

    Expected are `n_atoms` atoms, or as many as in the first file. `by_topology` is true if
    `n_atoms` is the number of atoms of a topology.
    """
    if file.n_atoms == (first.n_atoms if n_atoms is None else n_atoms):
        return
    if by_topology:
        message = f"{file.path}: the topology has {n_atoms} atoms, the trajectory {file.n_atoms}"
    else:
        message = f"{file.path}: expected {n_atoms} atoms, as n_atoms= says, found {file.n_atoms}"
    if n_atoms is None:
        message = f"{file.path}: it has {file.n_atoms} atoms, {first.path} {first.n_atoms}"
    error = AtomCountError(message)
    error.found = file.n_atoms
    raise error
