"""A file, or a list of them, as one trajectory."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from paceline import _core
from paceline.errors import AtomCountError, UnsupportedError
from paceline.hdf5.options import NO_OPTIONS, Hdf5Options
from paceline.trajectory.open import open_files, read_headers, warn
from paceline.trajectory.source import Extents, FileSpec, TrajectoryFile, extents_in, neighbours

#: What the times of frames may be off by, in times between frames.
TIME_ROUNDING = 1e-3


def refuse_different(cores: Sequence[TrajectoryFile]) -> None:
    """Raise for files whose frames cannot stand one after the other.

    Parameters
    ----------
    cores : sequence of TrajectoryFile
        What is to be joined.

    Raises
    ------
    UnsupportedError
        They differ in more than their frames.
    """
    first = cores[0]
    for other in cores[1:]:
        pairs = zip(first.traits, other.traits, strict=False)
        differences = [f"{name} {one} and {two}" for (name, one), (_, two) in pairs if one != two]
        if differences:
            raise UnsupportedError(
                f"{first.path} and {other.path} cannot be joined: {'; '.join(differences)}"
            )


def warn_of_times(cores: Sequence[TrajectoryFile], output: Path) -> None:
    """Tell where files overlap in time, or where frames get other times than they had.

    Parameters
    ----------
    cores : sequence of TrajectoryFile
        What is joined, in this order.
    output : pathlib.Path
        The whole.
    """
    latest, source, n_before = -np.inf, "", 0
    for core in cores:
        if core.dt is not None:
            _warn_of_shift(core, cores[0], n_before, output)
        else:
            times, _ = core.times()
            repeated = int(np.count_nonzero(times <= latest))
            if repeated:
                warn(
                    f"{core.path}: {repeated} of {core.n_frames} frames are not later than "
                    f"{latest:g} ps, where {source} ends; all of them are kept"
                )
            end = np.fmax.reduce(times)
            if end > latest:
                latest, source = end, core.path
        n_before += core.n_frames


def _warn_of_shift(
    core: TrajectoryFile, first: TrajectoryFile, n_before: int, output: Path
) -> None:
    expected, found = first.first + n_before, core.first
    if abs(expected - found) > TIME_ROUNDING and core.dt is not None:
        warn(
            f"{core.path} begins at {found * core.dt:g} ps, and in {output} its first frame comes "
            f"at {expected * core.dt:g} ps: a DCD file has no times of its own for its frames"
        )


#: What times of one frame may differ by in two files, relative to the largest.
ROUNDING = 1e-6

#: Places that a report names.
_NAMED = 3


@dataclass(frozen=True)
class Repeat:
    """Frames of one file that are not before the next file's first.

    Attributes
    ----------
    earlier, later : str
        The files.
    n_frames : int
        Frames of the earlier file.
    begin, end : float
        First and last time of these frames, ps.
    unmatched : int
        Those of them at whose times no file has a frame that is kept.
    """

    earlier: str
    later: str
    n_frames: int
    begin: float
    end: float
    unmatched: int


@dataclass(frozen=True)
class Sequel:
    """Files in the order of their times, without what later ones repeat.

    Attributes
    ----------
    order : list of int
        Where the files stood that are now first, second …
    kept : list of (numpy.ndarray of uint64 or None)
        Frames of each of them that no later file repeats; None for all.
    repeats : list of Repeat
        What is left out.
    """

    order: list[int]
    kept: list[np.ndarray | None]
    repeats: list[Repeat]


@dataclass(frozen=True)
class _Span:
    """First and last time of a file, ps, and what these may be off by; NaN where it has none."""

    first: float = math.nan
    last: float = math.nan
    slack: float = 0.0

    @classmethod
    def of(cls, core: TrajectoryFile) -> "_Span":
        ends = read_headers(core, [0, core.n_frames - 1])[1]
        if not np.isfinite(ends).all():
            times = core.times()[0]
            ends = times[np.isfinite(times)][[0, -1]] if np.isfinite(times).any() else ends
        first, last = ends.tolist()
        if not math.isfinite(first) or (first == last and core.n_frames > 1):
            return cls()
        # A tenth of the time between frames is no rounding.
        between = abs(last - first) / core.n_frames
        return cls(first, last, min(ROUNDING * max(abs(first), abs(last)), between / 10))


def follow(cores: Sequence[TrajectoryFile]) -> Sequel:
    """Order files by time, and find what restarts repeat.

    Of a frame that is there twice, the later file's counts: a simulation that goes on from a
    checkpoint replaces what was written after it. Frames without a time are kept.

    Parameters
    ----------
    cores : sequence of TrajectoryFile
        The files as they were given, each with a frame at least.

    Returns
    -------
    Sequel
    """
    spans = [_Span.of(core) for core in cores]
    order = _by_first_time(spans)
    kept: dict[int, np.ndarray | None] = dict.fromkeys(order)
    times: dict[int, np.ndarray] = {}
    left_out = []
    cut, later = math.inf, -1
    for k in reversed(order):
        if spans[k].last >= cut - spans[k].slack:
            times[k] = cores[k].times()[0]
            goes = times[k] >= cut - spans[k].slack
            kept[k] = np.flatnonzero(~goes).astype(np.uint64)
            left_out.append((k, later, times[k][goes]))
        if not math.isnan(spans[k].first):
            cut, later = spans[k].first, k
    stay = _times_kept(cores, spans, kept, times)
    repeats = [
        Repeat(
            cores[k].path,
            cores[by].path,
            len(goes),
            float(goes.min()),
            float(goes.max()),
            _count_unmatched(goes, stay, spans[k].slack),
        )
        for k, by, goes in reversed(left_out)
    ]
    return Sequel(order, [kept[k] for k in order], repeats)


def _by_first_time(spans: Sequence[_Span]) -> list[int]:
    """The order of the files; one without times stays behind its predecessor."""
    keys, latest = [], -math.inf
    for span in spans:
        latest = latest if math.isnan(span.first) else span.first
        keys.append(latest)
    return sorted(range(len(keys)), key=keys.__getitem__)


def _times_kept(
    cores: Sequence[TrajectoryFile],
    spans: Sequence[_Span],
    kept: Mapping[int, np.ndarray | None],
    times: Mapping[int, np.ndarray],
) -> np.ndarray:
    """Increasing times of the frames that are kept, as far as one left out may be among them."""
    if not times:
        return np.empty(0)
    earliest = min(spans[k].first for k in times)
    latest = max(spans[k].last for k in times)
    stay = []
    for k, rows in kept.items():
        if spans[k].first <= latest and spans[k].last >= earliest:
            of_file = times[k] if k in times else cores[k].times()[0]
            stay.append(of_file if rows is None else of_file[rows])
    return np.sort(np.concatenate(stay))


def _count_unmatched(times: np.ndarray, there: np.ndarray, slack: float) -> int:
    """How many of some times are not among others, which increase."""
    below = np.searchsorted(there, times - slack, side="left")
    above = np.searchsorted(there, times + slack, side="right")
    return int((below == above).sum())


def report_repeats(sequel: Sequel, paths: Sequence[str]) -> str | None:
    """What a user should know of files that are taken as they were given.

    Parameters
    ----------
    sequel : Sequel
        What `follow` says of them.
    paths : sequence of str
        The files as they were given.

    Returns
    -------
    str or None
        None where there is nothing to say.
    """
    if sequel.repeats:
        n_frames = sum(repeat.n_frames for repeat in sequel.repeats)
        places = _listed(
            [
                f"{repeat.n_frames} of {repeat.earlier} at {repeat.begin:g} to {repeat.end:g} ps, "
                f"where {repeat.later} has begun"
                for repeat in sequel.repeats
            ]
        )
        return (
            f"{n_frames} frames are repeated, by their times: {places}; continuous=True "
            "(--continuous) leaves them out and orders the files by time"
        )
    for k, (before, after) in enumerate(zip(sequel.order, sequel.order[1:], strict=False)):
        if before > after:
            return (
                f"{paths[sequel.order[k]]} is earlier than {paths[after]}, but was given behind "
                "it; continuous=True (--continuous) orders the files by time"
            )
    return None


def report_losses(sequel: Sequel) -> str | None:
    """What a user should know of files that are taken as one continuous trajectory.

    Parameters
    ----------
    sequel : Sequel
        What `follow` says of them.

    Returns
    -------
    str or None
        None where later files have all that is left out of earlier ones.
    """
    lost = [repeat for repeat in sequel.repeats if repeat.unmatched]
    if not lost:
        return None
    places = _listed(
        [
            f"{repeat.unmatched} of {repeat.earlier}, of those at {repeat.begin:g} to "
            f"{repeat.end:g} ps, where {repeat.later} has begun"
            for repeat in lost
        ]
    )
    return f"continuous=True leaves out frames at whose times no other is there: {places}"


def _listed(places: Sequence[str]) -> str:
    more = len(places) - _NAMED
    return "; ".join(places[:_NAMED]) + (f"; and at {more} more places" if more > 0 else "")


class Chain:
    """Files one after another, each with its frame index; none of them is held open.

    Parameters
    ----------
    names : sequence of path-like
        The files.
    n_atoms : int, optional
        Atoms that each must have; by default as many as the first.
    asked : Hdf5Options
        What the user said of HDF5 files.
    refresh : bool
        Make the frame indexes anew.
    continuous : bool
        Order the files by time, and leave out of each the frames that a later one repeats.
    quiet : bool
        Whether repeated frames are not to be reported.
    sampled : bool
        Whether some frames in its middle are enough of a long file that has no index yet.

    Attributes
    ----------
    names : list of str
        Files that have frames of the trajectory, as they were called, in its order.
    cores : list of TrajectoryFile
        The same files and their frame indexes.

    Raises
    ------
    AtomCountError
        A file has another number of atoms.
    FileNotFoundError
        A file is missing.
    UnsupportedError
        A file is of no format that we decode, or none has a whole frame.
    DamagedFileError
        The first frame of a file or its header is damaged.
    """

    def __init__(
        self,
        names: Sequence[str | os.PathLike],
        *,
        n_atoms: int | None = None,
        asked: Hdf5Options = NO_OPTIONS,
        refresh: bool = False,
        continuous: bool = False,
        quiet: bool = False,
        sampled: bool = False,
    ):
        self._asked = asked
        cores = open_files(names, asked=asked, refresh=refresh, sampled=sampled)
        for core in cores:
            _refuse_other_atoms(core, cores[0], n_atoms)
        self.names = [os.fspath(name) for name in names]
        self.cores = cores
        self._kept: list[np.ndarray | None] = [None] * len(cores)
        self._leave_out_empty()
        if len(self.cores) > 1 and (continuous or not quiet):
            self._follow(continuous=continuous)
        self._count()

    def _leave_out_empty(self) -> None:
        whole = [k for k, core in enumerate(self.cores) if core.n_frames > 0]
        if not whole:
            raise UnsupportedError(f"{self.names[0]}: expected a whole frame at least, found none")
        for name, core in zip(self.names, self.cores, strict=True):
            if core.n_frames == 0:
                warn(f"{name}: it has no whole frame; the trajectory goes on with the next file")
        self._choose(whole)

    def _follow(self, *, continuous: bool) -> None:
        """Report what restarts repeat, or leave it out."""
        sequel = follow(self.cores)
        report = report_losses(sequel) if continuous else report_repeats(sequel, self.names)
        if report is not None:
            warn(report)
        if continuous:
            self._choose(sequel.order)
            self._kept = sequel.kept
            self._choose([k for k, kept in enumerate(self._kept) if kept is None or len(kept)])

    def _choose(self, files: Iterable[int]) -> None:
        files = list(files)
        self.names = [self.names[k] for k in files]
        self.cores = [self.cores[k] for k in files]
        self._kept = [self._kept[k] for k in files]

    def _count(self) -> None:
        """Number the frames."""
        counts = [
            core.n_frames if kept is None else len(kept)
            for core, kept in zip(self.cores, self._kept, strict=True)
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
        return self.cores[0].n_atoms

    @property
    def fields(self) -> int:
        """What frames of any file may hold, one bit a field."""
        return int(np.bitwise_or.reduce([core.fields for core in self.cores]))

    @property
    def members(self) -> list[FileSpec]:
        """What workers must know of the files."""
        return [core.member for core in self.cores]

    @property
    def bytes_per_frame(self) -> float:
        """Mean size of a frame."""
        return sum(core.size for core in self.cores) / sum(map(_frames_of, self.cores))

    @property
    def chunk_frames(self) -> int:
        """Neighbours that are stored as one, at the most of any file."""
        return max(core.chunk_frames for core in self.cores)

    @property
    def is_sample(self) -> bool:
        """Whether only some frames of a file are known."""
        return any(core.index_origin == "sampled" for core in self.cores)

    @property
    def n_expected(self) -> int:
        """Number of frames; of a file of which only some are known, as many as it has room for."""
        return round(sum(map(_frames_of, self.cores))) if self.is_sample else self.n_frames

    def extents(self, frames: np.ndarray) -> Extents:
        """Where frames are.

        Parameters
        ----------
        frames : numpy.ndarray of int64, shape (n_frames,)
            Frame numbers in the trajectory.

        Returns
        -------
        Extents
        """
        members = np.searchsorted(self._stops, frames, side="right")
        numbers = (frames - self._begins[members]).astype(np.uint64)
        offsets, sizes = np.empty_like(numbers), np.empty_like(numbers)
        slices = []
        for member, rows in neighbours(members):
            kept = self._kept[member]
            if kept is not None:
                numbers[rows] = kept[numbers[rows]]
            offsets[rows], sizes[rows] = self.cores[member].extents(numbers[rows])
            slices.append(self.cores[member].slice_of(numbers[rows]))
        return Extents(members, numbers, offsets, sizes, tuple(slices))

    def extent(self, frame: int) -> tuple[int, Extents]:
        """Where one frame is: sooner found than with `extents`.

        Parameters
        ----------
        frame : int
            Frame number in the trajectory.

        Returns
        -------
        member : int
            Its file.
        extents : Extents
            Of this frame alone.
        """
        member = int(np.searchsorted(self._stops, frame, side="right"))
        kept, number = self._kept[member], frame - self._begins[member]
        numbers = np.array([number if kept is None else kept[number]], dtype=np.uint64)
        return member, extents_in(member, self.cores[member], numbers)

    def times(self) -> np.ndarray:
        """Times of all frames as the files have them.

        Returns
        -------
        numpy.ndarray of float64, shape (n_frames,)
            ps; NaN where a frame's time is not known.
        """
        pairs = zip(self.cores, self._kept, strict=True)
        return np.concatenate(
            [core.times()[0] if kept is None else core.times()[0][kept] for core, kept in pairs]
        )

    def record(self) -> "ChainRecord":
        """What another process needs to open the same chain."""
        return ChainRecord(
            self.names,
            [core.path for core in self.cores],
            [core.fingerprint for core in self.cores],
            self._kept,
            self._stops,
            self._asked,
        )

    @classmethod
    def reopen(cls, record: "ChainRecord") -> Self:
        """Open a chain again, and report nothing again.

        Parameters
        ----------
        record : ChainRecord
            Of the chain.

        Returns
        -------
        Chain
            With the same frames; behind them those by which the last file has grown.

        Raises
        ------
        FileChangedError
            A file is another one now.
        """
        chain = cls.__new__(cls)
        chain.names, chain._kept = list(record.names), list(record.kept)
        chain._asked = record.asked
        chain.cores = open_files(record.paths, asked=record.asked, notes=False)
        counts = np.diff(record.stops, prepend=0)
        for k, core in enumerate(chain.cores):
            if core.fingerprint != record.fingerprints[k]:
                # It must begin with what it was recognised by.
                _core.verify(core.path, record.fingerprints[k])
                if k + 1 < len(chain.cores) and record.kept[k] is None:
                    # Frames of the next file keep their numbers.
                    chain._kept[k] = np.arange(counts[k], dtype=np.uint64)
        chain._count()
        return chain


@dataclass(frozen=True)
class ChainRecord:
    """What is needed to open a chain again.

    Attributes
    ----------
    names, paths, fingerprints : list of str
        Of the files.
    kept : list of (numpy.ndarray of uint64 or None)
        Frames of each file that belong to the chain; None for all.
    stops : numpy.ndarray of int64, shape (n_files,)
        Number behind the last frame of each file.
    asked : Hdf5Options
        What the user said of HDF5 files.
    """

    names: list[str]
    paths: list[str]
    fingerprints: list[str]
    kept: list[np.ndarray | None]
    stops: np.ndarray
    asked: Hdf5Options


def _frames_of(core: TrajectoryFile) -> float:
    """Frames of a file; where only some are known, as many as it has room for."""
    if core.index_origin != "sampled":
        return core.n_frames
    _, sizes = core.extents(np.arange(core.n_frames, dtype=np.uint64))
    return core.size / sizes.mean()


def _refuse_other_atoms(core: TrajectoryFile, first: TrajectoryFile, n_atoms: int | None) -> None:
    if core.n_atoms == (first.n_atoms if n_atoms is None else n_atoms):
        return
    message = f"{core.path}: the topology has {n_atoms} atoms, the trajectory {core.n_atoms}"
    if n_atoms is None:
        message = f"{core.path}: it has {core.n_atoms} atoms, {first.path} {first.n_atoms}"
    error = AtomCountError(message)
    error.found = core.n_atoms
    raise error
