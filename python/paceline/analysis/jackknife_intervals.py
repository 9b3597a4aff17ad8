r"""Intervals of functions of all frames, such as g(r), from partial results of parts of the run.

A leaf of the reduction is a range of frames with one partial result. Leaves are joined to parts of
nearly equal length: up to 128, or one for each frame of a short run. A function
$\theta$ of all parts, and $\theta_{-b}$ of all parts but b, give the pseudo-values

$$\tilde\theta_b = h_b\, \theta - (h_b - 1)\, \theta_{-b}, \qquad h_b = N / N_b$$

of the jackknife with parts of $N_b$ of the N frames (Quenouille 1956, Biometrika 43, 353; Busing,
Meijer & van der Leeden 1999, Stat. Comput. 9, 3). The pseudo-values are a time series whose mean is
the function, also if the function is not a mean itself. The interval is that of the mean of this
series, from its spectrum at low frequencies (`mean_error`). Therefore it is also valid if parts are
correlated. Percentiles of a bootstrap of blocks contain the true value less often.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Generic, TypeAlias

import numpy as np

from paceline.analysis.mean_error import error_of_mean
from paceline.analysis.uncertainty import ENOUGH, LEAST_VALUES, LEVEL, limits_of_fractions
from paceline.block import Block
from paceline.contract.analysis_kinds import Reduction, Result
from paceline.errors import UnsupportedError
from paceline.performance.number_format import amount, many

if TYPE_CHECKING:
    from paceline.analysis.base import AnalysisBase

#: Minimum number of parts of a long run; there are up to twice as many.
N_PARTS = 64
#: Minimum number of parts of a long run if partial results are large.
LEAST_PARTS = 16
#: Maximum size of the partial results of all parts, bytes.
PARTS_BYTES = 256 * 2**20
#: Relative deviation of pseudo-values that counts as rounding.
ROUNDING = 1e-9

#: Number of frames in a part, and its partial result; a plain tuple, because checkpoints store it.
Part: TypeAlias = tuple[int, Result]
#: Partial result of a range of frames, and of its parts in the order of the run.
WithParts: TypeAlias = tuple[Result, list[Part[Result]]]


class InParts(Reduction[WithParts[Result]], Generic[Result]):
    """Worker part that computes a reduction, and also returns the partial results of parts.

    A leaf with more than `most_frames` frames is divided into parts. Adjacent subtrees of leaves
    are joined to one part as long as it has at most `most_frames` frames. Parts therefore depend
    only on the leaves. If no leaf is divided, the result of all frames has the same bits as in a
    run without parts.
    """

    def __init__(self, inner: Reduction[Result], most_frames: int):
        self._inner, self._most_frames = inner, most_frames
        self.returns_new, self.splits_frames = inner.returns_new, inner.splits_frames

    def compute(self, block: Block) -> WithParts[Result]:
        """Compute the partial results of a leaf and of its parts."""
        n = len(block)
        n_parts = max(1, -(-n // self._most_frames))
        cuts = [k * n // n_parts for k in range(n_parts + 1)]
        found = [(b - a, self._inner.compute(block[a:b])) for a, b in pairwise(cuts)]
        # Merging may change a value in place, so the parts need copies of the values.
        parts = copy.deepcopy(found) if n else []
        return reduce(partial(_join, self._inner), found)[1], parts

    def merge(self, left: WithParts[Result], right: WithParts[Result]) -> WithParts[Result]:
        """Merge the results of two adjacent ranges of frames, and join short parts."""
        parts = [*left[1], *right[1]]
        if len(left[1]) == len(right[1]) == 1 and parts[0][0] + parts[1][0] <= self._most_frames:
            parts = [_join(self._inner, *parts)]
        return self._inner.merge(left[0], right[0]), parts


class Added(Reduction[np.ndarray]):
    """Reduction whose partial results, such as sums or numbers of frames, are added."""

    def merge(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Add the sums of two adjacent ranges of frames."""
        return left + right


def in_parts(inner: Reduction[Result], n_frames: int, n_bytes: int, name: str) -> InParts[Result]:
    """Make a worker part that also returns the partial results of parts of a run.

    `n_bytes` is the size of one partial result, and `name` is the name of the analysis. Raises
    `UnsupportedError` if the parts would need too much memory.
    """
    n_parts = min(N_PARTS, PARTS_BYTES // (2 * n_bytes))
    if n_parts < LEAST_PARTS:
        raise UnsupportedError(
            f"{name}: intervals need {amount(2 * LEAST_PARTS * n_bytes)} of memory for partial "
            f"results, and the maximum is {amount(PARTS_BYTES)}: choose fewer atoms, or compute no "
            "intervals (errors=False)"
        )
    return InParts(inner, -(-n_frames // n_parts))


def _join(inner: Reduction[Result], left: Part[Result], right: Part[Result]) -> Part[Result]:
    """Merge two adjacent parts."""
    return left[0] + right[0], inner.merge(left[1], right[1])


@dataclass(frozen=True)
class FunctionErrors:
    """Intervals of the values of a function, and the parts that they are computed from.

    Attributes
    ----------
    interval : numpy.ndarray of float64
        Half the widths of 95 % intervals, in the shape and unit of the function. NaN if a value is
        the same in all parts, or if there are fewer than 4 parts, so that errors are unknown.
    least_independent : numpy.ndarray of float64
        Number of independent parts that is exceeded with a probability of 95 %.
    n_parts : int
        Number of parts.
    part_frames : int
        Number of frames in the longest part.
    """

    interval: np.ndarray
    least_independent: np.ndarray
    n_parts: int
    part_frames: int

    @property
    def method(self) -> str:
        """Description of how intervals are computed, for the header of a table."""
        return (
            f"95 %, by jackknife of {many(self.n_parts, 'part')} of up to "
            f"{many(self.part_frames, 'frame')}, with their correlation in time"
        )

    def limits(self, fractions: np.ndarray) -> np.ndarray:
        """Limits of the intervals of a function that is a fraction, shape (..., 2)."""
        return limits_of_fractions(fractions, self.interval)

    def remark(self, name: str, *, in_order: bool = True) -> str | None:
        """Return a remark if intervals are unknown or may be too narrow, else None.

        `in_order` is False if frames of the run are not in the order of time.
        """
        if self.n_parts < LEAST_VALUES:
            return (
                f"{name}: no intervals: the run has only {many(self.n_parts, 'part')} of up to "
                f"{many(self.part_frames, 'frame')}, expected {LEAST_VALUES}: analyse more frames"
            )
        if not in_order:
            return (
                f"{name}: intervals may be too narrow: their correlation in time is unknown, "
                "because frames are not in the order of time, each once"
            )
        known = self.least_independent[~np.isnan(self.least_independent)]
        n_few = int((known < ENOUGH).sum())
        if not n_few:
            return None
        return (
            f"{name}: {n_few:,} of {many(known.size, 'interval')} may be too narrow: fewer than "
            f"{ENOUGH} of {many(self.n_parts, 'part')} of the run may be independent, because "
            "motion is slow, or the run is short"
        )


def errors_of_run(
    analysis: "AnalysisBase",
    inner: Reduction[Result],
    value: WithParts[Result],
    function: Callable[[Result], np.ndarray],
) -> FunctionErrors:
    """Compute the intervals of the results of a run, with a remark where they are doubtful."""
    everything, parts = value
    # If all frames were left out, there are no parts: an empty result gives the right shape.
    return _remarked(analysis, errors_of_function(inner, parts or [(0, everything)], function))


def errors_of_states(
    analysis: "AnalysisBase", states: np.ndarray, n_states: int
) -> tuple[np.ndarray, FunctionErrors]:
    """Compute the fraction of frames in each state, and its interval, with a remark if doubtful.

    `states`, shape (n_frames, ...), are numbers from 0, or -1 in frames that were left out. Returns
    fractions of shape (..., n_states), and their errors. If parts have equal lengths, the
    pseudo-values of a fraction are the fractions of the parts. The number of independent parts is
    at most half the number of times that a state is entered or left.
    """
    known = states[states.min(axis=tuple(range(1, states.ndim)), initial=0) >= 0]
    parts = equal_parts(known)
    sizes = np.array([len(part) for part in parts])
    # To save memory, convert one part at a time to integers of 8 bytes: states may have one byte.
    counts = np.stack([_counts_of_states(part, n_states) for part in parts])
    changes = np.zeros_like(counts[0])
    for end, size in zip(sizes.cumsum(), sizes, strict=True):
        rows = known[max(0, end - size - 1) : end]
        moved = rows[1:] != rows[:-1]
        for some in (rows[1:], rows[:-1]):
            changes += _counts_of_states(some, n_states, moved)
    fractions = counts.sum(axis=0) / (len(known) or np.nan)
    series = counts / np.where(sizes, sizes, np.nan).reshape(-1, *[1] * fractions.ndim)
    return fractions, _remarked(analysis, _errors_of_fractions(series, changes, int(sizes[0])))


def errors_of_presence(
    analysis: "AnalysisBase", rows: np.ndarray, items: np.ndarray, n_items: int
) -> tuple[np.ndarray, FunctionErrors]:
    """Compute the fraction of frames with each item, and its interval, with a remark if doubtful.

    `rows` are indices of frames in the run, and `items` are the numbers, from 0, of the items that
    exist in these frames; items from `n_items` on are left out. See `errors_of_states`.
    """
    known = np.flatnonzero(~analysis.left_out)
    n = len(known)
    kept = items < n_items
    keys = np.unique(items[kept] * n + np.searchsorted(known, rows[kept]))
    items, frames = np.divmod(keys, max(1, n))
    parts = equal_parts(np.arange(n))
    sizes = np.array([len(part) for part in parts])
    part_of = np.repeat(np.arange(len(parts)), sizes)
    counts = np.bincount(part_of[frames] * n_items + items, minlength=len(parts) * n_items)
    counts = counts.reshape(len(parts), n_items)
    # Each stay begins and ends with a change of state, except at the two ends of the run.
    begins = items[(np.diff(keys, prepend=-2) != 1) | (frames == 0)]
    ends = items[(frames == 0) | (frames == n - 1)]
    of_stays, of_ends = (np.bincount(some, minlength=n_items) for some in (begins, ends))
    series = counts / np.maximum(sizes, 1)[:, None]
    found = _errors_of_fractions(series, 2 * of_stays - of_ends, int(sizes[0]))
    return counts.sum(axis=0) / (n or np.nan), _remarked(analysis, found)


def _errors_of_fractions(
    series: np.ndarray, changes: np.ndarray, part_frames: int
) -> FunctionErrors:
    """Compute errors of the means of fractions in parts; `changes` limit the independent parts."""
    interval, least = errors_of_series(series)
    n_parts = len(series) if part_frames else 0
    return FunctionErrors(interval, np.minimum(least, changes / 2), n_parts, part_frames)


def errors_of_means(
    rows: np.ndarray, function: Callable[[np.ndarray], np.ndarray]
) -> FunctionErrors:
    """Compute the intervals of a function of the means of the columns of `rows`.

    `rows` has shape (n_frames, n_columns).
    """
    counted = np.column_stack([np.ones(len(rows)), rows])
    parts = [(len(some), some.sum(axis=0)) for some in equal_parts(counted)]
    return errors_of_function(Added(), parts, lambda sums: function(sums[1:] / sums[0]))


def equal_parts(rows: np.ndarray) -> list[np.ndarray]:
    """Divide rows into up to 128 parts of nearly equal length, at least one."""
    length = max(1, -(-len(rows) // (2 * N_PARTS)))
    return np.array_split(rows, max(1, -(-len(rows) // length)))


def _counts_of_states(
    states: np.ndarray, n_states: int, chosen: np.ndarray | None = None
) -> np.ndarray:
    """Count the rows in each state, or only chosen ones: shape (..., n_states)."""
    n_columns = math.prod(states.shape[1:])
    places = states.reshape(len(states), n_columns) + n_states * np.arange(n_columns)
    some = places.ravel() if chosen is None else places[chosen.reshape(places.shape)]
    counts = np.bincount(some, minlength=n_states * n_columns)
    return counts.reshape(*states.shape[1:], n_states)


def _remarked(analysis: "AnalysisBase", found: FunctionErrors) -> FunctionErrors:
    """Add a remark to the results of a run if the intervals are doubtful."""
    in_order = bool((np.diff(analysis.frames) > 0).all())
    analysis.remark("intervals", found.remark(analysis.name, in_order=in_order))
    return found


def errors_of_function(
    inner: Reduction[Result],
    parts: Sequence[Part[Result]],
    function: Callable[[Result], np.ndarray],
) -> FunctionErrors:
    """Compute the intervals of a function of the merged partial result, from one part or more."""
    parts = _without_short_end(inner, parts)
    sizes = np.array([n for n, _ in parts])
    longest = int(sizes.max())
    if len(parts) < 2:
        unknown = np.full_like(function(parts[0][1]), np.nan)
        return FunctionErrors(unknown, unknown, int(np.count_nonzero(sizes)), longest)
    everything, without = _without_each(inner, [value for _, value in parts], function)
    ratios = (sizes.sum() / sizes).reshape(-1, *[1] * everything.ndim)
    with np.errstate(invalid="ignore"):
        pseudo_values = ratios * everything - (ratios - 1) * without
    interval, least = errors_of_series(pseudo_values)
    return FunctionErrors(interval, least, len(parts), longest)


def halves_of(inner: Reduction[Result], parts: Sequence[Part[Result]]) -> list[Result]:
    """Merge the parts of the first and of the second half of the frames; the parts stay as is."""
    ends = np.cumsum([n for n, _ in parts])
    cut = 1 + int(np.argmin(np.abs(ends - ends[-1] / 2)))
    halves = [some for some in (parts[:cut], parts[cut:]) if some]
    return [
        reduce(partial(_join, inner), rest, (n, copy.deepcopy(value)))[1]
        for (n, value), *rest in halves
    ]


def errors_of_series(series: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the interval of the mean of each column, and the least number of independent values.

    `series` has shape (n_values, …). Results are NaN for columns with NaN or without a spread.
    """
    n, shape = len(series), series.shape[1:]
    columns = series.reshape(n, -1)
    interval, least = np.full((2, columns.shape[1]), np.nan)
    if n < LEAST_VALUES:
        return interval.reshape(shape), least.reshape(shape)
    with np.errstate(invalid="ignore", over="ignore"):
        means = columns.mean(axis=0)
        deviations = columns - means
        scales = np.abs(deviations).max(axis=0, initial=0)
        differs = np.isfinite(scales) & (scales > ROUNDING * np.abs(means))
    for k in np.flatnonzero(differs):
        found = error_of_mean(deviations[:, k] / scales[k])
        interval[k] = scales[k] * found.interval(LEVEL)
        least[k] = n / found.most_inefficient
    return interval.reshape(shape), least.reshape(shape)


def _without_short_end(
    inner: Reduction[Result], parts: Sequence[Part[Result]]
) -> list[Part[Result]]:
    """Join each part of less than half the usual length to the previous part.

    A short first part is joined to the next part. A run begins and ends anywhere, so its first and
    its last leaf may be short.
    """
    usual = float(np.median([n for n, _ in parts])) if parts else 0.0
    found: list[Part[Result]] = []
    for n, value in parts:
        own = n, copy.deepcopy(value)
        is_short = found and min(n, found[-1][0]) < usual / 2
        if is_short:
            found[-1] = _join(inner, found[-1], own)
        else:
            found.append(own)
    return found


def _without_each(
    inner: Reduction[Result], values: Sequence[Result], function: Callable[[Result], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the function of all parts, and the function without each part: shape (n_parts, …)."""
    # `merge` may change its first argument in place: copy values that are needed again.
    after = [values[-1]]
    for value in values[-2:0:-1]:
        after.append(inner.merge(copy.deepcopy(value), after[-1]))
    after.reverse()  # element k merges all parts from part k + 1 on
    found = [function(after[0])]
    before = copy.deepcopy(values[0])
    for value, rest in zip(values[1:], after[1:], strict=False):
        found.append(function(inner.merge(copy.deepcopy(before), rest)))
        before = inner.merge(before, value)
    found.append(function(before))
    everything = function(inner.merge(before, values[-1]))
    return everything, np.stack(found)
