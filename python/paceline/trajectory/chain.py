"""One file, or several one after another, as one trajectory."""

import math
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from paceline import _core
from paceline.errors import AtomCountError, UnsupportedError, warn
from paceline.hdf5.trajectory import NO_OPTIONS, Hdf5Options
from paceline.trajectory.open import open_files, read_headers
from paceline.trajectory.source import Extents, FileSpec, TrajectoryFile, extents_in, runs_by_file

#: Largest difference between the times of one frame in two files, relative to the largest time.
_ROUNDING = 1e-6

#: Places that a report names.
_NAMED = 3


class Chain:
    """Files one after another, each with its frame index; none of them is held open.

    Each must have `n_atoms`, by default as many as the first. With `refresh`, indexes are made
    anew; with `continuous`, files are ordered by time, without the frames that a later one repeats,
    which are reported unless `quiet`. `opener` takes the place of
    `paceline.trajectory.open.open_files`.

    Raises `AtomCountError` for a file with another number of atoms, `UnsupportedError` for one of
    no format that we decode, or where none has a whole frame, and `DamagedFileError` where the
    first frame of one or its header is damaged.
    """

    def __init__(
        self,
        names: Sequence[str | os.PathLike],
        *,
        n_atoms: int | None = None,
        options: Hdf5Options = NO_OPTIONS,
        refresh: bool = False,
        continuous: bool = False,
        quiet: bool = False,
        opener: Callable[..., list[TrajectoryFile]] = open_files,
    ):
        if not names:
            raise ValueError("expected one trajectory file or more, found none")
        self._options = options
        files = opener(names, options=options, refresh=refresh)
        for file in files:
            _check_n_atoms(file, files[0], n_atoms)
        self.names = [os.fspath(name) for name in names]
        self.files = files
        #: Frames of each file that belong to the chain, uint64; None for all.
        self._kept: list[np.ndarray | None] = [None] * len(files)
        self._leave_out_empty()
        if len(self.files) > 1 and (continuous or not quiet):
            self._compare_times(continuous=continuous)
        self._count()

    def _leave_out_empty(self) -> None:
        """Leave out files without a whole frame, with a warning."""
        whole = [k for k, file in enumerate(self.files) if file.n_frames > 0]
        if not whole:
            raise UnsupportedError(f"{self.names[0]}: expected a whole frame at least, found none")
        for name, file in zip(self.names, self.files, strict=True):
            if file.n_frames == 0:
                warn(f"{name}: it has no whole frame; the trajectory goes on with the next file")
        self._choose(whole)

    def _compare_times(self, *, continuous: bool) -> None:
        """Report what restarts repeat, or leave it out."""
        found = order_by_time(self.files)
        report = _report_lost(found) if continuous else _report_overlaps(found, self.names)
        if report is not None:
            warn(report)
        if continuous:
            self._choose(found.order)
            self._kept = found.kept
            self._choose([k for k, kept in enumerate(self._kept) if kept is None or len(kept)])

    def _choose(self, numbers: Iterable[int]) -> None:
        """Keep these files, in this order."""
        numbers = list(numbers)
        self.names = [self.names[k] for k in numbers]
        self.files = [self.files[k] for k in numbers]
        self._kept = [self._kept[k] for k in numbers]

    def _count(self) -> None:
        """Number the frames."""
        counts = [
            file.n_frames if kept is None else len(kept)
            for file, kept in zip(self.files, self._kept, strict=True)
        ]
        self._stops = np.cumsum(counts)
        self._begins = self._stops - counts

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return int(self._stops[-1])

    @property
    def n_atoms(self) -> int:
        """Number of atoms of each frame."""
        return self.files[0].n_atoms

    @property
    def fields(self) -> int:
        """Bits of the fields that frames of any file may hold."""
        return int(np.bitwise_or.reduce([file.fields for file in self.files]))

    @property
    def specs(self) -> list[FileSpec]:
        """All that workers must know of the files."""
        return [file.spec for file in self.files]

    @property
    def bytes_per_frame(self) -> float:
        """Mean size of a frame."""
        sizes = [file.bytes_per_frame for file in self.files]
        return float(np.average(sizes, weights=[file.n_frames for file in self.files]))

    @property
    def chunk_frames(self) -> int:
        """Neighbours that are stored as one, at the most of any file."""
        return max(file.chunk_frames for file in self.files)

    @property
    def one_thread(self) -> bool:
        """True if one thread alone may read: it asks MPI-IO."""
        return self._options.driver is not None

    @property
    def dt(self) -> float:
        """Time between frames, ps: the first header's, else between its first two, else 0."""
        file = self.files[0]
        if file.dt is not None:
            return file.dt
        _, times, _ = read_headers(file, range(min(2, file.n_frames)))
        between = times[-1] - times[0]
        return float(between) if np.isfinite(between) else 0.0

    def extents(self, frames: np.ndarray) -> Extents:
        """Find frames, by their numbers (int64) in the trajectory."""
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

    def locate(self, frame: int) -> tuple[int, int]:
        """Find the file of one frame, and its number there."""
        k = bisect_right(self._stops, frame)
        kept, number = self._kept[k], frame - int(self._begins[k])
        return k, number if kept is None else int(kept[number])

    def extent(self, frame: int) -> tuple[int, Extents]:
        """Find one frame, faster than `extents` does: its file, and its extents."""
        k, number = self.locate(frame)
        return k, extents_in(k, self.files[k], np.array([number], dtype=np.uint64))

    def times(self) -> np.ndarray:
        """Times of all frames in the files, ps, float64; NaN where a time is not known."""
        pairs = zip(self.files, self._kept, strict=True)
        return np.concatenate(
            [file.times()[0] if kept is None else file.times()[0][kept] for file, kept in pairs]
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Indexes are not sent: they are loaded again where the chain arrives.
        paths = [file.path for file in self.files]
        fingerprints = [file.fingerprint for file in self.files]
        state = self.names, paths, fingerprints, self._kept, self._stops, self._options
        return Chain._reopen, state

    @classmethod
    def _reopen(
        cls,
        names: list[str],
        paths: list[str],
        fingerprints: list[str],
        kept: list[np.ndarray | None],
        stops: np.ndarray,
        options: Hdf5Options,
    ) -> Self:
        """Open a chain again: the same frames, then those by which the last file has grown."""
        chain = cls.__new__(cls)
        chain.names, chain._kept = list(names), list(kept)
        chain._options = options
        chain.files = open_files(paths, options=options, notes=False)
        counts = np.diff(stops, prepend=0)
        for k, file in enumerate(chain.files):
            if file.fingerprint != fingerprints[k]:
                # It must begin with what it was recognised by.
                _core.verify(file.path, fingerprints[k])
                if k + 1 < len(chain.files) and kept[k] is None:
                    # Frames of the next file keep their numbers.
                    chain._kept[k] = np.arange(counts[k], dtype=np.uint64)
        chain._count()
        return chain


@dataclass(frozen=True)
class Overlap:
    """Frames of one file that are not before the next file's first."""

    earlier: str
    later: str
    #: Frames of the earlier file.
    n_frames: int
    #: First and last time of these frames, ps.
    begin: float
    end: float
    #: Those of them at whose times no file has a frame that is kept.
    unmatched: int


@dataclass(frozen=True)
class TimeOrder:
    """Files in the order of their times, without what later ones repeat."""

    #: Former places of the files that are now first, second …
    order: list[int]
    #: Frames of each of them that no later file repeats; None for all.
    kept: list[np.ndarray | None]
    #: Frames that are left out.
    overlaps: list[Overlap]


@dataclass(frozen=True)
class _TimeSpan:
    """First and last time of a file and their rounding, ps; NaN where it has no times."""

    first: float = math.nan
    last: float = math.nan
    rounding: float = 0.0

    @classmethod
    def of(cls, file: TrajectoryFile) -> "_TimeSpan":
        """Read the times of the first and the last frame."""
        ends = read_headers(file, [0, file.n_frames - 1])[1]
        if not np.isfinite(ends).all():
            times = file.times()[0]
            ends = times[np.isfinite(times)][[0, -1]] if np.isfinite(times).any() else ends
        first, last = ends.tolist()
        if not math.isfinite(first) or (first == last and file.n_frames > 1):
            return cls()
        # A tenth of the time between frames is no rounding.
        between = abs(last - first) / file.n_frames
        return cls(first, last, min(_ROUNDING * max(abs(first), abs(last)), between / 10))


def order_by_time(files: Sequence[TrajectoryFile]) -> TimeOrder:
    """Order files by time, and find what restarts repeat; each has a frame at least.

    Of a frame that is there twice, the later file's counts: a simulation that goes on from a
    checkpoint replaces what was written after it. Frames without a time are kept.
    """
    spans = [_TimeSpan.of(file) for file in files]
    order = _by_first_time(spans)
    kept: dict[int, np.ndarray | None] = dict.fromkeys(order)
    times: dict[int, np.ndarray] = {}
    left_out = []
    next_first, later = math.inf, -1
    for k in reversed(order):
        if spans[k].last >= next_first - spans[k].rounding:
            times[k] = files[k].times()[0]
            repeated = times[k] >= next_first - spans[k].rounding
            kept[k] = np.flatnonzero(~repeated).astype(np.uint64)
            left_out.append((k, later, times[k][repeated]))
        if not math.isnan(spans[k].first):
            next_first, later = spans[k].first, k
    remaining = _times_kept(files, spans, kept, times)
    overlaps = [
        Overlap(
            files[k].path,
            files[by].path,
            len(repeated),
            float(repeated.min()),
            float(repeated.max()),
            _count_unmatched(repeated, remaining, spans[k].rounding),
        )
        for k, by, repeated in reversed(left_out)
    ]
    return TimeOrder(order, [kept[k] for k in order], overlaps)


def _by_first_time(spans: Sequence[_TimeSpan]) -> list[int]:
    """Order of the files; one without times stays behind its predecessor."""
    keys, latest = [], -math.inf
    for span in spans:
        latest = latest if math.isnan(span.first) else span.first
        keys.append(latest)
    return sorted(range(len(keys)), key=keys.__getitem__)


def _times_kept(
    files: Sequence[TrajectoryFile],
    spans: Sequence[_TimeSpan],
    kept: Mapping[int, np.ndarray | None],
    times: Mapping[int, np.ndarray],
) -> np.ndarray:
    """Increasing times of the frames that are kept, as far as one left out may be among them."""
    if not times:
        return np.empty(0)
    earliest = min(spans[k].first for k in times)
    latest = max(spans[k].last for k in times)
    found = []
    for k, rows in kept.items():
        if spans[k].first <= latest and spans[k].last >= earliest:
            of_file = times[k] if k in times else files[k].times()[0]
            found.append(of_file if rows is None else of_file[rows])
    return np.sort(np.concatenate(found))


def _count_unmatched(times: np.ndarray, others: np.ndarray, rounding: float) -> int:
    """Count times that are not among others, which increase."""
    below = np.searchsorted(others, times - rounding, side="left")
    above = np.searchsorted(others, times + rounding, side="right")
    return int((below == above).sum())


def _report_overlaps(found: TimeOrder, paths: Sequence[str]) -> str | None:
    """Warning about files that are taken as they were given, at `paths`; None if all is well."""
    if found.overlaps:
        n_frames = sum(overlap.n_frames for overlap in found.overlaps)
        places = _listed(
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
                f"{paths[found.order[k]]} is earlier than {paths[after]}, but was given behind "
                "it; continuous=True (--continuous) orders the files by time"
            )
    return None


def _report_lost(found: TimeOrder) -> str | None:
    """Warning about frames that are left out and that no later file has; None if all is well."""
    lost = [overlap for overlap in found.overlaps if overlap.unmatched]
    if not lost:
        return None
    places = _listed(
        [
            f"{overlap.unmatched} of {overlap.earlier}, of those at {overlap.begin:g} to "
            f"{overlap.end:g} ps, where {overlap.later} has begun"
            for overlap in lost
        ]
    )
    return f"continuous=True leaves out frames at whose times no other is there: {places}"


def _listed(places: Sequence[str]) -> str:
    """List the first few places, and count the others."""
    more = len(places) - _NAMED
    return "; ".join(places[:_NAMED]) + (f"; and at {more} more places" if more > 0 else "")


def _check_n_atoms(file: TrajectoryFile, first: TrajectoryFile, n_atoms: int | None) -> None:
    """Raise where a file has another number of atoms than the topology or the first file."""
    if file.n_atoms == (first.n_atoms if n_atoms is None else n_atoms):
        return
    message = f"{file.path}: the topology has {n_atoms} atoms, the trajectory {file.n_atoms}"
    if n_atoms is None:
        message = f"{file.path}: it has {file.n_atoms} atoms, {first.path} {first.n_atoms}"
    error = AtomCountError(message)
    error.found = file.n_atoms
    raise error
