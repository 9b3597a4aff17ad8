r"""Search for the start of the equilibrated part of a time series, and for its states.

The start of a series is described as $\mu + A e^{-t / \tau}$ plus fluctuations. So many of the
first values are left out that the squared bias of the mean plus its variance is minimal.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from paceline.analysis.mean_error import error_of_mean
from paceline.analysis.uncertainty import ENOUGH

#: Maximum number of bins, over which values are averaged before the start is searched.
MOST_BINS = 512
#: Decay times that are tried for the start, as fractions of the length of the series.
DECAYS = 2.0 ** np.arange(-9, 0.1, 0.25)
#: Minimum squared amplitude of a decay that counts as the start of a series, in units of the
#: variance of the amplitude.
NOTABLE_START = 6.0
#: Maximum fraction of a series that may be left out as its start. If a longer part would have to be
#: left out, the series counts as drifting.
MOST_START = 0.5
#: Minimum distance between the means of two states, in standard deviations within the states. For
#: the two halves of a uniform distribution it is 3.5, for those of a normal distribution 2.6.
APART = 4.5
#: Minimum fraction of the values that belong to the rarer of two states.
RARE = 0.002
#: With at least this number of changes between two states, each state is left 10 times or more.
ENOUGH_CHANGES = 2 * ENOUGH
#: Minimum time in the state before the last change, as a fraction of the series. A shorter time
#: counts as the start of the series, such as the first frames of an RMSD from the first frame.
LEAST_STAY = 0.05
#: Minimum number of values in the state before the last change.
LEAST_OF_STAY = 2
#: Before the last change of state, at most this fraction of the values is between the states. In an
#: exponential decay, about half of these values are.
MOST_BETWEEN = 0.25
#: Number of bins of the histogram that separates two states.
N_BINS = 256
#: Maximum number of values in the histogram. Of longer series, equally spaced values are used.
MOST_IN_HISTOGRAM = 65_536


def find_start(values: np.ndarray, n_series: int = 1) -> int | None:
    """Return the index from which on a series is equilibrated; None if it is in the second half.

    The series must have 4 values or more, which are not all equal. `n_series` is the number of
    series if the worst of them decides. The minimum amplitude of a start is then larger, so that
    noise in one series rarely exceeds it. If the minimum squared amplitude is larger by 2, noise
    exceeds it e times less often.
    """
    n = len(values)
    n_bins = 1 << int(np.log2(min(n, MOST_BINS)))
    bins = averages(values, n_bins)
    bins = bins - bins.mean()
    decays = _decays(n_bins)
    squares = (decays.centred**2).sum(axis=1)
    amplitudes = decays.centred @ bins / squares
    best = int(np.argmax(amplitudes**2 * squares))
    rest = bins - amplitudes[best] * decays.centred[best]
    if not rest.any():
        return None
    # Variance of the mean of one bin, if all bins were independent.
    error = error_of_mean(rest)
    variance = n_bins * float(np.exp(error.weights @ np.log(error.variances)))
    notable = NOTABLE_START + 2 * np.log(n_series)
    if amplitudes[best] ** 2 * squares[best] < notable * variance:
        return 0
    left = n_bins - np.arange(n_bins)
    costs = (amplitudes[best] * decays.remaining[best]) ** 2 + variance / left
    start = round(int(np.argmin(costs)) * n / n_bins)
    return start if start <= MOST_START * n else None


@dataclass(frozen=True)
class Decays:
    """Exponential decays with the times `DECAYS`, shape (n_times, n_bins)."""

    #: Decays, with their means subtracted.
    centred: np.ndarray
    #: Mean of each decay over the bins from each bin to the last.
    remaining: np.ndarray


@lru_cache(16)
def _decays(n_bins: int) -> Decays:
    """Compute the decays with the times `DECAYS` over `n_bins` bins; cached."""
    values = np.exp(-(np.arange(n_bins) + 0.5) / n_bins / DECAYS[:, None])
    sums = values[:, ::-1].cumsum(axis=1)[:, ::-1]
    return Decays(values - values.mean(axis=1, keepdims=True), sums / (n_bins - np.arange(n_bins)))


def averages(values: np.ndarray, n_bins: int) -> np.ndarray:
    """Average over bins of equal length; a value at an edge is divided between two bins."""
    sums = np.zeros(len(values) + 1)
    np.cumsum(values, out=sums[1:])
    edges = np.linspace(0, len(values), n_bins + 1)
    whole = np.minimum(edges.astype(np.intp), len(values) - 1)
    return np.diff(sums[whole] + (edges - whole) * values[whole]) * (n_bins / len(values))


def has_jumps(values: np.ndarray) -> bool:
    """True if a series jumps between two states, so rarely that their populations are unknown.

    `find_start` would fit a decay to a jump, too, although either state may be the more probable
    one. Therefore a series with jumps has no start. A short state before the last change is itself
    a start, and many values between the states show a decay: neither counts as a jump.
    """
    found = crossings_of_states(values)
    if found is None or not 0 < found[0] < ENOUGH_CHANGES:
        return False
    _, low, high = found
    shifts = values - (low + high) / 2
    sides = np.where(np.abs(shifts) > (high - low) / 4, np.sign(shifts), 0)
    clear = np.flatnonzero(sides)
    before = np.flatnonzero(sides == -sides[clear[-1]])
    last_change = clear[np.searchsorted(clear, before[-1]) + 1]
    between = int(np.count_nonzero(sides[:last_change] == 0))
    is_long = len(before) >= max(LEAST_OF_STAY, LEAST_STAY * len(values))
    return is_long and between <= MOST_BETWEEN * int(last_change)


def crossings_of_states(values: np.ndarray) -> tuple[int, float, float] | None:
    """Count changes between two states, and return the states' means; None without two states.

    A threshold divides the values into two classes. It maximises the variance between the classes
    (Otsu 1979, IEEE Trans. Syst. Man Cybern. 9, 62). The values are approximately between -1 and
    1, and not all equal.
    """
    some = values[:: -(-len(values) // MOST_IN_HISTOGRAM)]
    n = len(some)
    least, most = some.min(), some.max()
    if least == most:
        return None
    bins = ((some - least) / (most - least) * N_BINS).astype(np.intp)
    counts = np.bincount(bins, minlength=N_BINS + 1)
    sums = np.bincount(bins, some, N_BINS + 1).cumsum()
    below = counts.cumsum()[:-1]
    above = n - below
    with np.errstate(divide="ignore", invalid="ignore"):
        lows, highs = sums[:-1] / below, (sums[-1] - sums[:-1]) / above
    between = np.where(above > 0, below * above * (highs - lows) ** 2, 0)
    best = int(np.argmax(between))
    if min(below[best], above[best]) < RARE * n:
        return None
    low, high = float(lows[best]), float(highs[best])
    within = float(some @ some) - below[best] * low**2 - above[best] * high**2
    if (high - low) ** 2 * n < APART**2 * within:
        return None
    middle = (low + high) / 2
    # A value near the threshold does not count as a change of state.
    sides = values[np.abs(values - middle) > (high - low) / 4] > middle
    return int(np.count_nonzero(sides[1:] != sides[:-1])), low, high
