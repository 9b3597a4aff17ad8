r"""Agreement of replicas: rank-normalised split-$\hat R$, and effective sample size.

Vehtari, Gelman, Simpson, Carpenter, Bürkner 2021, Bayesian Analysis 16, 667. If lengths differ,
first values of the longer replicas are left out.
"""

from collections.abc import Sequence

import numpy as np

from paceline.analysis.uncertainty import LEAST_VALUES


def rank_normalised_r_hat(series: Sequence[np.ndarray]) -> float:
    """Return the larger of two R̂: that of the values, and that of their distances from the median.

    Both are computed from ranks. NaN if replicas are too short, or if all values are equal.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> rank_normalised_r_hat(rng.standard_normal((4, 1000))) < 1.01
    True
    >>> rank_normalised_r_hat(rng.standard_normal((2, 1000)) + [[0], [3]]) > 1.5
    True
    """
    halves = _split(series)
    if halves is None or np.ptp(halves) == 0:
        return np.nan
    folded = np.abs(halves - np.median(halves))
    return max(_r_hat(_normalised(one)) for one in (halves, folded))


def differ_as_a_whole(series: Sequence[np.ndarray], most: float) -> bool:
    """True if R̂ of the undivided replicas exceeds `most`.

    In this case whole replicas differ, and not only the halves of a replica.
    """
    n = min(map(len, series))
    return _r_hat(_normalised(np.array([one[len(one) - n :] for one in series]))) > most


def effective_size(series: Sequence[np.ndarray]) -> float:
    """Return the bulk effective sample size, computed from halves of replicas; NaN if unknown.

    Autocorrelations are summed by the initial monotone sequence of Geyer (1992, Stat. Sci. 7, 473).

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> 3500 < effective_size(rng.standard_normal((4, 1000))) < 15_000
    True
    """
    halves = _split(series)
    return np.nan if halves is None else _size_of_chains(_normalised(halves))


def tail_effective_size(series: Sequence[np.ndarray]) -> float:
    """Return the tail effective sample size: the smaller of those of the 5 % and 95 % quantiles.

    NaN if replicas are too short, or if too few values differ.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> 3000 < tail_effective_size(rng.standard_normal((4, 1000))) < 15_000
    True
    """
    halves = _split(series)
    if halves is None:
        return np.nan
    limits = np.quantile(halves, (0.05, 0.95))
    return min(_size_of_chains((halves <= limit).astype(np.float64)) for limit in limits)


def _size_of_chains(chains: np.ndarray) -> float:
    """Return the effective sample size of chains of equal length; NaN if all values are equal."""
    if np.ptp(chains) == 0:
        return np.nan
    n = chains.shape[1]
    deviations = chains - chains.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(deviations, 2 * n, axis=1)) ** 2
    covariances = np.fft.irfft(spectrum, axis=1)[:, :n].mean(axis=0) / n
    within = covariances[0] * n / (n - 1)
    total = covariances[0] + chains.mean(axis=1).var(ddof=1)
    correlations = 1 - (within - covariances * n / (n - 1)) / total
    correlations[0] = 1
    pairs = correlations[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs < 0)
    pairs = np.minimum.accumulate(pairs[: negative[0] if len(negative) else len(pairs)])
    time = max(-1 + 2 * float(pairs.sum()), 1 / np.log10(chains.size))
    return float(chains.size / time)


def _split(series: Sequence[np.ndarray]) -> np.ndarray | None:
    """Return the halves of all series, shape (2 n_series, n); None if they are too short."""
    n = min(map(len, series)) // 2
    if n < LEAST_VALUES:
        return None
    ends = [np.asarray(one, dtype=np.float64)[len(one) - 2 * n :] for one in series]
    return np.reshape(ends, (-1, n))


def _normalised(values: np.ndarray) -> np.ndarray:
    """Replace values by normal deviates of their ranks (Blom 1958); equal values share a rank."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    ranks = rankdata(values, axis=None).reshape(values.shape)
    return np.asarray(ndtri((ranks - 3 / 8) / (values.size + 1 / 4)))


def _r_hat(chains: np.ndarray) -> float:
    """R̂ of chains of equal length: standard deviation of all values over that within chains."""
    n = chains.shape[1]
    within = chains.var(axis=1, ddof=1).mean()
    between = chains.mean(axis=1).var(ddof=1)
    if within == 0:
        return np.inf if between > 0 else np.nan
    return float(np.sqrt((n - 1) / n + between / within))
