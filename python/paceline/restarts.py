"""Frames that a restarted simulation wrote again."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.indexed import TrajectoryFile
from paceline.opening import read_headers

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
