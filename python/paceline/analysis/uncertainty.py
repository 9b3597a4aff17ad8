"""Mean of a series in time, and how well it is known."""

from dataclasses import dataclass

import numpy as np

#: Independent values from which on a mean counts as converged.
ENOUGH = 50
#: The correlation is summed at least up to so many frames, and then until it is 0 for the first
#: time.
LEAST_LAG = 3
#: Level of the interval, and of the test for correlated blocks.
LEVEL, BLOCK_LEVEL = 0.95, 0.99


@dataclass(frozen=True)
class SeriesMean:
    """Mean of a series, and how well it is known.

    Attributes
    ----------
    mean : float
        Arithmetic mean, in the unit of the series.
    n_values : int
        Number of values; those that are NaN do not count.
    inefficiency : float
        Statistical inefficiency g: one of so many values is independent; NaN for less than 4.
    error : float
        Standard error of the mean.
    interval : float
        Half of the width of the 95 % interval of the mean, by Student's t.
    block_error : float
        Standard error by blocks, for comparison.
    """

    mean: float
    n_values: int
    inefficiency: float
    error: float
    interval: float
    block_error: float

    @property
    def n_independent(self) -> float:
        """Number of independent values, N / g."""
        return self.n_values / self.inefficiency

    @property
    def converged(self) -> bool:
        """True from 50 independent values on: below, the error itself is hardly known."""
        return self.n_independent >= ENOUGH

    def __str__(self) -> str:
        if np.isnan(self.inefficiency):
            return f"{self.mean:.4g}, too few values for an error"
        found = f"{_with_error(self.mean, self.interval)} (95 %)"
        counts = f"{self.n_independent:.3g} of {self.n_values} values independent"
        note = "" if self.converged else ", not converged"
        return f"{found}, {counts}, block error {self.block_error:.2g}{note}"

    @property
    def short(self) -> str:
        """Mean and interval, as in a legend."""
        if not self.converged:
            return f"mean {self.mean:.4g}, not converged"
        return f"mean {_with_error(self.mean, self.interval)}"


def mean_of_series(values: np.ndarray) -> SeriesMean:
    r"""Estimate the mean of a series in time, and its error.

    The statistical inefficiency is (Chodera, Swope, Pitera, Seok & Dill 2007, J. Chem. Theory
    Comput. 3, 26, eq. 6 and 7)

    $$g = 1 + 2 \sum_{t=1}^{N-1} \left(1 - \frac{t}{N}\right) C(t)$$

    with the normalised autocorrelation C, up to where it is 0 for the first time. The standard
    error is $\sqrt{s^2 g / N}$, with the variance $s^2$ of N / g independent values.

    Parameters
    ----------
    values : numpy.ndarray, shape (n_values,)
        At equal intervals. Values that are NaN are left out, as if the others were neighbours.

    Returns
    -------
    SeriesMean
        NaN where there is no value; errors are NaN for less than 4 values.

    Examples
    --------
    >>> x = np.random.default_rng(1).standard_normal(10_000)
    >>> series = np.convolve(x, np.ones(10) / 10, "valid")  # each value shares 9 with the next
    >>> found = mean_of_series(series)
    >>> round(found.inefficiency), found.converged
    (10, True)
    """
    values = np.asarray(values, dtype=np.float64)
    values = values[~np.isnan(values)]
    n = len(values)
    mean = float(values.mean()) if n else np.nan
    if n < LEAST_LAG + 1 or not np.isfinite(mean):
        return SeriesMean(mean, n, np.nan, np.nan, np.nan, np.nan)
    deviations = values - mean
    variance = float(deviations @ deviations) / n
    if np.ptp(values) == 0:
        return SeriesMean(mean, n, 1.0, 0.0, 0.0, 0.0)
    inefficiency = _inefficiency(deviations / np.sqrt(variance))
    # That of so few independent values, about a mean that is made of them.
    variance /= 1 - min(inefficiency / n, 0.5)
    error = float(np.sqrt(variance * inefficiency / n))
    interval = _students_t(n / inefficiency - 1) * error
    return SeriesMean(mean, n, inefficiency, error, interval, _block_error(deviations))


def _inefficiency(deviations: np.ndarray) -> float:
    """Statistical inefficiency of a series of mean 0 and variance 1; at least 1."""
    n = len(deviations)
    # Padded, so that the end does not meet the beginning.
    transformed = np.fft.rfft(deviations, 1 << (2 * n - 1).bit_length())
    correlation = np.fft.irfft(np.abs(transformed) ** 2)[:n] / np.arange(n, 0, -1)
    ends = np.flatnonzero(correlation[LEAST_LAG + 1 : n - 1] <= 0)
    stop = LEAST_LAG + 1 + int(ends[0]) if len(ends) else n - 1
    lags = np.arange(1, stop)
    return max(1.0, float(1 + 2 * np.sum((1 - lags / n) * correlation[1:stop])))


def _students_t(n_free: float) -> float:
    """Student's t of the two-sided interval; of less than one degree of freedom as of one."""
    from scipy.special import stdtrit

    return float(stdtrit(max(1.0, n_free), (1 + LEVEL) / 2))


def _block_error(deviations: np.ndarray) -> float:
    """Standard error by pairs of blocks (Flyvbjerg & Petersen 1989, J. Chem. Phys. 91, 461).

    Blocks are doubled until no correlation between neighbours is left (Jonsson 2018, Phys. Rev. E
    98, 043304).
    """
    from scipy.special import chdtri

    errors, tests = [], []
    blocks = deviations
    while len(blocks) >= 2:
        n = len(blocks)
        centred = blocks - blocks.mean()
        variance = float(centred @ centred) / n
        if variance == 0:
            break
        neighbours = float(centred[:-1] @ centred[1:]) / n
        errors.append(np.sqrt(variance / (n - 1)))
        tests.append(n * ((n - 1) * variance / n**2 + neighbours) ** 2 / variance**2)
        blocks = (blocks[0 : n - 1 : 2] + blocks[1:n:2]) / 2
    remaining = np.cumsum(tests[::-1])[::-1]
    limits = chdtri(np.arange(len(tests), 0, -1), 1 - BLOCK_LEVEL)
    independent = np.flatnonzero(remaining < limits)
    return float(errors[independent[0]] if len(independent) else errors[-1])


def _with_error(mean: float, interval: float) -> str:
    """Write a mean and its interval, both to the second digit of the latter.

    Examples
    --------
    >>> _with_error(2.34567, 0.0432), _with_error(1234.5, 0.0), _with_error(12345.0, 340.0)
    ('2.346 ± 0.043', '1234.5 ± 0', '12345 ± 340')
    """
    if interval == 0:
        return f"{mean:.6g} ± 0"
    decimals = max(0, 1 - int(np.floor(np.log10(interval))))
    return f"{mean:.{decimals}f} ± {interval:.{decimals}f}"
