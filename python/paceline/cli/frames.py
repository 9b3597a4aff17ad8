"""Frames between two bounds, each a frame number or a time."""

from typing import Any

import numpy as np

#: What `paceline.cli.values.bound` reads: ("frame", number) or ("time", picoseconds).
Bound = tuple[str, float] | None

#: What times may be off by, relative to the largest.
ROUNDING = 1e-6


def frames_between(trajectory: Any, begin: Bound, end: Bound) -> np.ndarray:
    """Frame numbers between two bounds.

    Parameters
    ----------
    trajectory : MDAnalysis.coordinates.base.ReaderBase
        Whose frames they are.
    begin, end : tuple or None
        Bounds; an end that is a frame is itself left out, one that is a time is not.

    Returns
    -------
    numpy.ndarray of int64, shape (n_frames,)
        In increasing order.

    Raises
    ------
    ValueError
        No frame has a time between the bounds.
    """
    first, earliest = _split(begin, -np.inf)
    last, latest = _split(end, np.inf)
    numbers = np.arange(trajectory.n_frames)[first:last]
    if np.isinf([earliest, latest]).all():
        return numbers
    return numbers[_between(_times(trajectory)[numbers], earliest, latest)]


def _split(bound: Bound, no_time: float) -> tuple[int | None, float]:
    """The frame and the time of a bound, one of which says nothing."""
    if bound is None:
        return None, no_time
    kind, value = bound
    return (int(value), no_time) if kind == "frame" else (None, value)


def _between(times: np.ndarray, earliest: float, latest: float) -> np.ndarray:
    """Which times (ps) lie between two, these included."""
    known = times[np.isfinite(times)]
    if len(known) == 0:
        raise ValueError("no frame lies between the times asked for: none has a time")
    # Files keep times, or the time between frames, in single precision and units of their own:
    # 95 ps may be 94.99999 ps. But a tenth of the time between frames is no rounding.
    slack = min(ROUNDING * np.abs(known).max(), np.ptp(known) / len(known) / 10)
    inside = (times >= earliest - slack) & (times <= latest + slack)
    if not inside.any():
        raise ValueError(
            "no frame lies between the times asked for: those of the trajectory go from "
            f"{known.min():g} to {known.max():g} ps"
        )
    return inside


def _times(trajectory: Any) -> np.ndarray:
    """Times of all frames, ps; from the index where there is one."""
    times = getattr(trajectory, "times", None)
    return times() if times else np.array([ts.time for ts in trajectory])
