r"""Variance of the mean of a correlated time series, from its spectrum at low frequencies.

For reversible dynamics, the autocorrelation of any observable is a mixture of exponentials. Here it
has a fast and a slow exponential, $C(t) = (1 - a) e^{-t/\tau_1} + a e^{-t/\tau_2}$, or only one.
The times $\tau$ and the fraction $a$ are points of a grid. The periodogram at frequency $k / N$,

$$I_k = \frac{1}{N} \left| \sum_t x_t e^{-2 \pi i k t / N} \right|^2,$$

is exponentially distributed. Each point of the grid determines the expected value of the
periodogram exactly (Whittle 1953, Ark. Mat. 2, 423; Sykulski et al. 2019, Biometrika 106, 251).
Each point therefore has a likelihood, and a variance of the mean. All points contribute with their
probabilities. The interval is wide if a slow part of small amplitude cannot be excluded.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

#: Maximum number of frequencies that are used, from the lowest one above 0.
N_FREQUENCIES = 256
#: Number of the lowest frequencies that are used one by one. Higher ones are used in groups.
N_SINGLE = 24
#: Ratio of the first frequencies of adjacent groups, before rounding.
GROWTH = 1.2
#: Lower limit of the correlation times above 0 on the grid, in intervals between values, if the
#: series is short. The fast exponential may also have a correlation time of 0.
LEAST_TIME = 0.3
#: Lower limit of the correlation times above 0, as a fraction of the length of the series, if the
#: series is long. The longest time is the length of the series; adjacent times differ by a factor
#: of 2.
LEAST_PART = 1 / 4096
#: Fractions of the variance of the series that belong to the slow exponential, on the grid.
FRACTIONS = np.array([0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.5, 0.7, 0.85])
#: Prior probability that one exponential suffices. A lower probability makes intervals wider, so
#: that more of them contain the true mean if noise hides a slow exponential.
ONE_EXPONENTIAL = 0.8
#: Width of the classes into which variances of the mean are grouped, as a difference of logarithms.
CLASS_WIDTH = 0.02
#: Variances of the mean are ignored if their weight is at most this fraction of the largest weight.
LEAST_WEIGHT = 1e-9
#: Probability that the statistical inefficiency is at most `most_inefficient`.
MOST = 0.95
#: Relative tolerance of the half width of an interval, and of the probability outside it.
TOLERANCE = 1e-6
#: Lower limit for the probability outside an interval, so that its logarithm is finite.
LEAST_OUTSIDE = 1e-300
#: Number of series lengths for which models are cached.
N_LENGTHS = 16


@dataclass(frozen=True)
class Models:
    """Expected periodograms of all points of the grid, for series of one length."""

    #: Index of the first frequency of each group, counted from 1, and the end of the last group.
    edges: np.ndarray
    #: Reciprocal of the mean periodogram in each group, shape (n_models, n_groups).
    reciprocal: np.ndarray
    #: Logarithm of the prior probability, plus the terms of the log-likelihood that do not depend
    #: on the series, shape (n_models,).
    log_weight: np.ndarray
    #: Statistical inefficiency of each model, shape (n_models,).
    inefficiency: np.ndarray


@dataclass(frozen=True)
class MeanError:
    """Distribution of the variance of the mean of a series, over all points of the grid.

    Attributes
    ----------
    weights, variances : numpy.ndarray of float64, shape (n_classes,)
        Probability of each class, and its variance of the mean. Variances increase.
    n_free : int
        Degrees of freedom of each variance.
    inefficiency : float
        Geometric mean of the statistical inefficiency over all classes.
    most_inefficient : float
        Statistical inefficiency that is exceeded with a probability of 5 %.
    """

    weights: np.ndarray
    variances: np.ndarray
    n_free: int
    inefficiency: float
    most_inefficient: float

    def interval(self, level: float) -> float:
        """Half the width of the confidence interval of the mean at this level."""
        from scipy.special import stdtr, stdtrit

        deviations = np.sqrt(self.variances)
        t = float(stdtrit(self.n_free, (1 + level) / 2))
        low, high = t * deviations[0], t * deviations[-1]
        # Secant method for the logarithm of the probability outside the interval, which is a nearly
        # linear function of the half width; bisection if a step leaves the bracket.
        half = t * float(np.sqrt(self.weights @ self.variances))
        before = at_before = np.nan
        while high - low > TOLERANCE * high:
            outside = 2 * self.weights @ stdtr(self.n_free, -half / deviations)
            excess = float(np.log(np.maximum(outside, LEAST_OUTSIDE) / (1 - level)))
            if abs(excess) < TOLERANCE:
                return float(half)
            low, high = (half, high) if excess > 0 else (low, half)
            step = excess * (half - before) / (excess - at_before) if excess != at_before else 0.0
            before, at_before = half, excess
            half = half - step if low < half - step < high else (low + high) / 2
        return float(high)

    def interval_of_quantile(self, probability: float, level: float) -> float:
        """Half the width of the interval for the variance's quantile at this probability."""
        from scipy.special import stdtrit

        row = int(np.searchsorted(np.cumsum(self.weights), probability))
        row = min(row, len(self.variances) - 1)
        return float(stdtrit(self.n_free, (1 + level) / 2) * np.sqrt(self.variances[row]))


def error_of_mean(deviations: np.ndarray) -> MeanError:
    """Estimate the variance of the mean of a series, from its deviations from the mean.

    The series must have four or more values that are not all equal.
    """
    n = len(deviations)
    models = _models(n)
    last = models.edges[-1]
    periodogram = np.abs(np.fft.rfft(deviations)[1:last]) ** 2 / n
    sums = np.add.reduceat(periodogram, models.edges[:-1] - 1)
    n_frequencies = last - 1
    # Variance of the series for each model. If only unused higher frequencies contribute, the
    # variance is set to the smallest positive number, because its logarithm is needed.
    scales = np.maximum(models.reciprocal @ sums / n_frequencies, np.finfo(float).tiny)
    weights = models.log_weight - n_frequencies * np.log(scales)
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    # Values that alternate about the mean count as independent: this is the minimum variance.
    own = deviations @ deviations / n
    least = own / (n - 1)
    classes, variances = _in_classes(weights, np.maximum(scales * models.inefficiency / n, least))
    # The variance of the series consists of the variance about its mean, and the variance of the
    # mean. Frequencies that are not used do not determine it.
    independent = 1 + own / variances
    most = np.searchsorted(np.cumsum(classes), MOST)
    return MeanError(
        classes,
        variances,
        2 * n_frequencies,
        n / float(np.exp(classes @ np.log(independent))),
        n / float(independent[min(most, len(independent) - 1)]),
    )


def _in_classes(weights: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Group nearly equal variances; return the weight and the mean variance of each group."""
    kept = weights > LEAST_WEIGHT * weights.max()
    weights, variances = weights[kept], variances[kept]
    classes = np.floor(np.log(variances / variances.min()) / CLASS_WIDTH).astype(np.intp)
    totals = np.bincount(classes, weights)
    means = np.bincount(classes, weights * variances)
    full = totals > 0
    return totals[full] / totals.sum(), means[full] / totals[full]


@lru_cache(N_LENGTHS)
def _models(n: int) -> Models:
    """Compute the expected periodograms of the grid of models, for a series of n values."""
    edges = _groups(min(N_FREQUENCIES, (n - 1) // 2))
    sizes = np.diff(edges)
    n_times = int(np.log2(n / max(LEAST_TIME, n * LEAST_PART)))
    slow = n / 2.0 ** np.arange(n_times, -1, -1)
    fast = np.array([0.0, *slow[slow <= n / 4]])
    fast_spectra, slow_spectra = (
        np.add.reduceat(_expected(times, np.arange(1, edges[-1]), n), edges[:-1] - 1, axis=1)
        / sizes
        for times in (fast, slow)
    )
    fast_g, slow_g = (_expected(times, np.zeros(1), n)[:, 0] for times in (fast, slow))
    grid = np.meshgrid(np.arange(len(fast)), np.arange(len(slow)), FRACTIONS, indexing="ij")
    first, second, part = (axis.ravel() for axis in grid)
    apart = slow[second] >= 2 * np.maximum(fast[first], LEAST_TIME / 2)
    first, second, part = first[apart], second[apart], part[apart]
    both = (1 - part)[:, None] * fast_spectra[first] + part[:, None] * slow_spectra[second]
    spectra = np.concatenate([fast_spectra, both])
    prior = np.repeat(
        [ONE_EXPONENTIAL / len(fast), (1 - ONE_EXPONENTIAL) / max(1, len(both))],
        [len(fast), len(both)],
    )
    return Models(
        edges,
        1 / spectra,
        np.log(prior) - np.log(spectra) @ sizes,
        np.concatenate([fast_g, (1 - part) * fast_g[first] + part * slow_g[second]]),
    )


def _groups(n_frequencies: int) -> np.ndarray:
    """Group the lowest frequencies, counted from 1; return the first of each group, and the end."""
    edges = [*range(1, min(N_SINGLE, n_frequencies) + 2)]
    while edges[-1] <= n_frequencies:
        edges.append(min(n_frequencies + 1, int(np.ceil(edges[-1] * GROWTH))))
    return np.array(edges)


def _expected(times: np.ndarray, frequencies: np.ndarray, n: int) -> np.ndarray:
    """Expected periodogram of n values with an exponential autocorrelation and variance 1.

    Shape (n_times, n_frequencies). At frequency 0, it is n times the variance of the mean.
    """
    with np.errstate(divide="ignore"):
        factor = np.exp(-1 / times)[:, None]
    one = factor * np.exp(-2j * np.pi * frequencies / n)
    # Equals `one ** n`, because each frequency is a whole number of periods.
    end = factor**n
    gap = 1 - one
    # Sums of one ** t, and of t * one ** t, for t from 1 to n - 1.
    plain = (one - end) / gap
    by_lag = one * (1 - end) / gap**2 - n * end / gap
    return 1 + 2 * (plain - by_lag / n).real
