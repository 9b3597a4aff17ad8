"""Mean squared displacements over all pairs of frames at unequal time intervals."""

from collections.abc import Sequence

import numpy as np

from paceline.analysis.base import AnalysisBase, moments_of, warn_of_unknown_times
from paceline.analysis.correlation_by_particles import SeriesParts, padded_rows
from paceline.errors import UnsupportedError
from paceline.transform.nojump_workers import unwrap_series

#: Maximum number of frames; their pairs take 0.6 GB in each worker.
MOST_FRAMES = 5_000
#: Relative rounding error of times in single precision.
SINGLE = 2.0**-23


class UnevenParts(SeriesParts):
    """Parts of a mean squared displacement (MSD) over all pairs of frames.

    Each part computes a range of particles.

    `by_particle` is the MSD of each particle at each of the lag times `lags`. Other parameters are
    documented in `SeriesParts`.
    """

    def __init__(
        self,
        series: np.ndarray,
        times: np.ndarray,
        axes: Sequence[int],
        gaps: np.ndarray,
        *,
        unwrap: str | None = None,
    ):
        self.lags, _ = times_between_pairs(np.delete(times, gaps))
        worker = _OfAllPairs(times, np.array(axes), gaps, unwrap)
        self.allocate(series, unwrap, len(self.lags), worker)


class _OfAllPairs:
    """Worker part that computes the MSDs of some particles, over all pairs of frames."""

    def __init__(self, times: np.ndarray, axes: np.ndarray, gaps: np.ndarray, unwrap: str | None):
        self._times, self._axes, self._gaps, self._unwrap = times, axes, gaps, unwrap
        self._pairs: tuple[np.ndarray, list[np.ndarray]] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_pairs": None}

    def compute(
        self, size: int, series: np.ndarray, cells: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the MSD of each particle, padded to the size of a part, and their sum."""
        if self._pairs is None:
            self._pairs = times_between_pairs(np.delete(self._times, self._gaps))
        lags, lags_of = self._pairs
        if cells is not None and self._unwrap is not None:
            series = unwrap_series(series, cells, self._gaps, self._unwrap)
        positions = np.delete(series, self._gaps, axis=0)[..., self._axes].astype(np.float64)
        along = np.ascontiguousarray(positions.transpose(1, 2, 0))
        found, counts = np.zeros((len(along), len(lags))), np.zeros(len(lags))
        counts[0] = 1
        for first, lag in enumerate(lags_of):
            steps = along[:, :, first + 1 :] - along[:, :, first, np.newaxis]
            squares = np.square(steps, out=steps).sum(axis=1)
            for row, values in zip(found, squares, strict=True):
                row[lag] += values
            counts[lag] += 1
        found /= counts
        found[np.isnan(along).any(axis=(1, 2))] = np.nan
        return padded_rows(found, size), found.sum(axis=0)


def uneven_times(analysis: AnalysisBase) -> tuple[np.ndarray, np.ndarray]:
    """Return the times of frames, ps, and the rows of frames that were left out.

    If times are unknown, frame numbers are returned, with a warning. Raises `UnsupportedError` if
    frames are not in the order of their times, or if there are none or too many.
    """
    warn_of_unknown_times(analysis)
    times = moments_of(analysis)
    gone = np.isnan(times) | analysis.left_out
    rows = np.flatnonzero(~gone)
    if len(rows) == 0:
        raise UnsupportedError(f"{analysis.name}: no frame could be read")
    if len(rows) > MOST_FRAMES:
        raise UnsupportedError(
            f"{analysis.name}: non_linear uses all pairs of at most {MOST_FRAMES:,} frames, found "
            f"{len(rows):,}: use fewer frames, with step"
        )
    known = times[rows]
    wrong = np.flatnonzero(np.diff(known) <= SINGLE * np.maximum(abs(known[1:]), abs(known[:-1])))
    if len(wrong):
        k = wrong[0]
        frames = analysis.frames[rows]
        raise UnsupportedError(
            f"{analysis.name}: non_linear needs frames in the order of their times: frame "
            f"{frames[k + 1]} is at {known[k + 1]} ps, after frame {frames[k]} at {known[k]} ps"
        )
    return times, np.flatnonzero(gone)


def times_between_pairs(times: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Find the distinct lag times between frames, from 0, and the index of each pair's lag time.

    Lag times that differ by rounding of single precision are merged; the value with the smallest
    rounding error is kept. The list has one array per frame, except for the last frame. The array
    contains the indices of the lag times to all later frames.

    Examples
    --------
    >>> lags, lags_of = times_between_pairs(np.array([0.0, 1.0, 3.0, 4.0]))
    >>> lags, [one.tolist() for one in lags_of]
    (array([0., 1., 2., 3., 4.]), [[1, 3, 4], [2, 3], [1]])
    """
    first, second = np.triu_indices(len(times), 1)
    between = times[second] - times[first]
    slack = SINGLE * np.maximum(np.abs(times[first]), np.abs(times[second]))
    order = np.argsort(between, kind="stable")
    apart = np.diff(between[order]) > np.maximum(slack[order][1:], slack[order][:-1])
    ranks = np.cumsum(np.concatenate([[True], apart])) if len(order) else order
    lag = np.empty(len(order), dtype=np.intp)
    lag[order] = ranks
    lags = np.zeros(int(ranks.max(initial=0)) + 1)
    by_rounding = np.argsort(-slack, kind="stable")
    lags[lag[by_rounding]] = between[by_rounding]
    ends = np.cumsum(np.arange(len(times) - 1, 0, -1))
    lags_of = np.split(lag, ends[:-1])
    for row in lags_of:
        if (np.diff(row) <= 0).any():
            raise UnsupportedError("times of frames differ by less than their rounding")
    return lags, lags_of
