"""Means over time and between replicas, with their uncertainty."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from paceline.analysis.mean_error import error_of_mean
from paceline.performance.number_format import many

#: Minimum number of independent values for a converged mean, exceeded with a probability of 95 %.
ENOUGH = 10
#: Minimum number of values for which an error of the mean is computed.
LEAST_VALUES = 4
#: Confidence level of the intervals.
LEVEL = 0.95
#: Confidence level of a standard error.
ONE_SIGMA = 0.6827
#: Probability with which replicas reveal a difference of the size that `detectable` returns.
POWER = 0.8
#: Student's t above which the noncentral t distribution is replaced by its limit.
LARGE_T = 100.0
#: Maximum expected fraction of false differences among those that are named.
FALSE_DISCOVERIES = 0.05
#: A step between times is long if it is more than this multiple of the short steps of the series.
#: A missing frame only doubles a step.
LONG_STEP = 2.5
#: Times are strongly uneven if more than these fractions of the steps, and of the whole time, are
#: long. A few holes, such as those between runs, do not make times strongly uneven.
LONG_STEPS, LONG_TIME = 0.02, 0.1
#: Times are not strongly uneven if at most this number of steps are long.
FEW_STEPS = 4
#: Maximum fraction of rows that repeat the time of the previous row. Such rows are left out.
MOST_REPEATED = 0.1
#: Maximum difference of the steps of equally spaced times, as a fraction of the longest step.
UNEVEN = 0.01
#: Note on a series whose times are strongly uneven.
BY_TIME = "times are not equally spaced: values are weighted by the time that they stand for"
#: Confidence level of the test for correlated blocks.
BLOCK_LEVEL = 0.99
#: If a mean and its interval are both smaller, they are written with a power of 10.
LEAST_PLAIN = 1e-3
#: Numbers of this size or more may be written with a power of 10.
MOST_PLAIN = 1e7
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class SeriesMean:
    """Mean of a time series, with its uncertainty.

    Attributes
    ----------
    mean : float
        Arithmetic mean, in the unit of the series.
    n_values : int
        Number of values, without those that are NaN or infinite, or have no time of their own.
    inefficiency : float
        Statistical inefficiency g: one of g values is independent; NaN for less than 4 values.
    error : float
        Standard error of the mean: half the width of its 68.3 % interval.
    interval : float
        Half the width of the 95 % interval of the mean; NaN if all values are equal, because their
        variance is unknown.
    least_independent : float
        Number of independent values; the true number is larger with a probability of 95 %.
    block_error : float
        Standard error by block averaging, for comparison.
    by_time : bool
        True if times are strongly uneven, so that values are weighted by the time that they stand
        for.
    """

    mean: float
    n_values: int
    inefficiency: float
    error: float
    interval: float
    least_independent: float
    block_error: float
    by_time: bool = False

    @property
    def n_independent(self) -> float:
        """Number of independent values: `n_values` divided by `inefficiency`."""
        return self.n_values / self.inefficiency

    @property
    def converged(self) -> bool:
        """True if, with a probability of 95 %, 10 values are independent; or if all are equal."""
        return self.error == 0 or self.least_independent >= ENOUGH

    def __str__(self) -> str:
        return self.with_unit("")

    def with_unit(self, unit: str, verdict: str = "") -> str:
        """Format the mean with unit, interval, number of values and verdict or convergence."""
        end = unit if unit in ("", "°") else f" {unit}"
        if self.n_values == 1:
            return f"{digits(self.mean, 4)}{end}, a single value: no error"
        if np.isnan(self.inefficiency):
            return f"{digits(self.mean, 4)}{end}, too few values for an error"
        if self.error == 0:
            return f"{digits(self.mean, 4)}{end}, constant in all {self.n_values} values"
        found = f"{with_error(self.mean, self.interval)}{end} (95 %)"
        found += ", weighted by time" * self.by_time
        independent = round(self.n_independent)
        some = f"about {independent}" if independent < self.n_values else "all"
        counts = f"{self.n_values} values, {some} of them independent"
        note = f"; {verdict}" if verdict else "" if self.converged else ", not converged"
        return f"{found}, {counts}, block error {digits(self.block_error, 2)}{end}{note}"

    @property
    def short(self) -> str:
        """Mean and interval, as in a legend."""
        return self.with_note("" if self.converged else "not converged")

    def with_note(self, note: str) -> str:
        """Format mean and interval for a legend; `note` is added only if there is an interval."""
        if self.n_values == 1:
            return digits(self.mean, 4)
        if np.isnan(self.inefficiency):
            return f"mean {digits(self.mean, 4)}, no error"
        if self.error == 0:
            return f"mean {digits(self.mean, 4)}, constant"
        note = ", weighted by time" * self.by_time + (f", {note}" if note else "")
        return f"mean {with_error(self.mean, self.interval)} (95 %){note}"


def rows_at_equal_times(times: np.ndarray) -> np.ndarray | None:
    """Return the rows nearest to equally spaced times, of which there are as many as rows.

    A row is repeated if its value stands for a long time, so that a mean is weighted by time. No
    values are interpolated. None if times do not increase, or are not strongly uneven: a few holes
    and missing frames count as equally spaced.

    Examples
    --------
    >>> times = np.array([0.0, 1, 2, 3, 4, 5, 15, 25, 35, 45, 55])
    >>> rows_at_equal_times(times).tolist()
    [0, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10]
    """
    steps = np.diff(times)
    if not len(steps) or not LONG_STEP * steps.min() < steps.max() or not steps.min() > 0:
        return None
    long = steps > LONG_STEP * np.quantile(steps, 0.1)
    n_long = np.count_nonzero(long)
    is_uneven = n_long > max(FEW_STEPS, LONG_STEPS * len(steps))
    if not is_uneven or not steps[long].sum() > LONG_TIME * (times[-1] - times[0]):
        return None
    equal = np.linspace(times[0], times[-1], len(times))
    return np.searchsorted(times[:-1] + steps / 2, equal)


def in_order(times: np.ndarray) -> bool:
    """True if times do not decrease, and at most a tenth repeats the time of the row before.

    Programs that continue a run repeat its last time.
    """
    steps = np.diff(times[np.isfinite(times)])
    return bool(np.all(steps >= 0) and np.count_nonzero(steps == 0) <= MOST_REPEATED * len(steps))


class UsedRows(NamedTuple):
    """Rows of a series that are used for its mean and for its verdict."""

    #: Mask of the rows with a finite value and a time of their own, bool, shape (n_values,).
    known: np.ndarray
    #: Indices of these rows; for strongly uneven times, indices of the rows nearest to equally
    #: spaced times, in which rows may be repeated.
    rows: np.ndarray
    #: True if times are strongly uneven, so that rows are repeated if they stand for a long time.
    by_time: bool
    #: Mean time between rows.
    step: float
    #: Notes on rows that are left out, and on uneven times.
    notes: tuple[str, ...]


def used_rows(values: np.ndarray, times: np.ndarray | None) -> UsedRows:
    """Choose the rows of a series for its mean, its error, its start and its verdict.

    These are the rows with a finite value and a finite time. Of rows at the same time, the first
    one is used, unless times decrease somewhere. Times count as strongly uneven only if the times
    of all rows are, including rows without a value; see `rows_at_equal_times`.
    """
    known = np.isfinite(values)
    if times is None:
        notes = _left_out(~known, "NaN or infinite")
        return UsedRows(known, np.flatnonzero(known), False, 1.0, notes)
    timed = np.isfinite(times)
    notes = _left_out(~timed, "without a time")
    notes += _left_out(timed & ~known, "NaN or infinite")
    rows = np.flatnonzero(known & timed)
    distinct = times[timed]
    steps = np.diff(distinct)
    if np.all(steps >= 0):
        is_again = np.diff(times[rows], prepend=-np.inf) == 0
        notes += _left_out(is_again, "at the time of the value before")
        rows = rows[~is_again]
        distinct = distinct[np.diff(distinct, prepend=-np.inf) > 0]
        steps = steps[steps > 0]
    known = np.zeros(len(times), dtype=bool)
    known[rows] = True
    step = float(np.ptp(times[rows])) / (len(rows) - 1) if len(rows) > 1 else 1.0
    # Missing values do not make the times of frames uneven.
    is_uneven = rows_at_equal_times(distinct) is not None
    if is_uneven and (at := rows_at_equal_times(times[rows])) is not None:
        return UsedRows(known, rows[at], True, step, (*notes, BY_TIME))
    if len(steps) and np.ptp(steps) > UNEVEN * steps.max():
        notes += ("times are not equally spaced: values count as equally spaced",)
    return UsedRows(known, rows, False, step, notes)


def _left_out(rows: np.ndarray, why: str) -> tuple[str, ...]:
    """Return a note on how many values are left out; empty if none is."""
    n_values = int(np.count_nonzero(rows))
    return (f"left out: {many(n_values, 'value')} ({why})",) if n_values else ()


def mean_of_series(
    values: np.ndarray, times: np.ndarray | None = None, *, blocks: bool = True
) -> SeriesMean:
    r"""Estimate the mean of a time series, and its error.

    The autocorrelation C of the series is described by mixtures of two exponentials. The spectrum
    of the series at low frequencies determines the probability of each mixture (`mean_error`). Each
    mixture has a statistical inefficiency

    $$g = 1 + 2 \sum_{t=1}^{N-1} \left(1 - \frac{t}{N}\right) C(t)$$

    and a variance of the mean, $s^2 g / N$. The interval contains the true mean with a probability
    of 95 %, averaged over all mixtures. `inefficiency` is the geometric mean of their g.

    Parameters
    ----------
    values : numpy.ndarray, shape (n_values,)
        Values at equal intervals. NaN and infinite values are removed, and the remaining values
        count as consecutive.
    times : numpy.ndarray, shape (n_values,), optional
        Times in any unit. If they are strongly uneven, such as logarithmic ones, the series is
        represented at as many equally spaced times, each by the value nearest in time. A value that
        repeats the time of the value before, such as where a run was continued, and a value without
        a time are left out. Missing values do not make times uneven.
    blocks : bool
        Also estimate the error by block averaging, which takes most of the time; otherwise NaN.

    Returns
    -------
    SeriesMean
        Mean and errors; NaN without values, and errors are NaN for less than 4 values.

    Examples
    --------
    >>> x = np.random.default_rng(1).standard_normal(10_000)
    >>> series = np.convolve(x, np.ones(10) / 10, "valid")  # each value shares 9 with the next
    >>> found = mean_of_series(series)
    >>> round(found.inefficiency), found.converged
    (10, True)
    """
    values = np.asarray(values, dtype=np.float64)
    used = used_rows(values, None if times is None else np.asarray(times, dtype=np.float64))
    values, by_time = values[used.rows], used.by_time
    n = len(values)
    mean = float(values.mean()) if n else np.nan
    unknown = SeriesMean(mean, n, np.nan, np.nan, np.nan, np.nan, np.nan)
    if n < LEAST_VALUES or not np.isfinite(mean):
        return unknown
    if np.ptp(values) == 0:
        return SeriesMean(mean, n, 1.0, 0.0, np.nan, n, 0.0, by_time)
    # Scaled numbers have finite powers, whatever their magnitude.
    scale = float(np.abs(values - mean).max())
    if not np.isfinite(scale):
        return unknown
    deviations = (values - mean) / scale
    found = error_of_mean(deviations)
    return SeriesMean(
        mean,
        n,
        found.inefficiency,
        scale * found.interval(ONE_SIGMA),
        scale * found.interval(LEVEL),
        n / found.most_inefficient,
        scale * _block_error(deviations) if blocks else np.nan,
        by_time,
    )


@dataclass(frozen=True)
class ReplicaMean:
    """Mean over replicas with equal weights, and its uncertainty.

    Attributes
    ----------
    mean : numpy.ndarray of float64
        Arithmetic mean of the replicas' values, in their unit; any shape.
    n_replicas : numpy.ndarray of int64
        Number of replicas with a value.
    deviation : numpy.ndarray of float64
        Standard deviation between replicas; NaN for less than two replicas.
    """

    mean: np.ndarray
    n_replicas: np.ndarray
    deviation: np.ndarray

    @property
    def error(self) -> np.ndarray:
        """Standard error of the mean; NaN for less than two replicas."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.deviation / np.sqrt(self.n_replicas)

    @property
    def interval(self) -> np.ndarray:
        """Half the width of the 95 % interval, by Student's t with n - 1 degrees of freedom.

        NaN for less than two replicas, and if all replicas have the same value, because their
        variance is unknown.
        """
        return np.where(self.deviation > 0, students_t(self.n_replicas - 1) * self.error, np.nan)[
            ()
        ]

    def __str__(self) -> str:
        if np.ndim(self.mean):
            counts = f"{np.max(self.n_replicas, initial=0)} replicas"
            return f"{_arrays_with_error(self.mean, self.interval)} (95 % between {counts})"
        if np.isnan(self.interval):
            mean = digits(self.mean, 4)
            return f"{mean}, {self._no_interval_reason}: no interval between replicas"
        found = with_error(float(self.mean), float(self.interval))
        return f"{found} (95 % between {self.n_replicas} replicas)"

    @property
    def _no_interval_reason(self) -> str:
        """Reason why a single mean has no interval."""
        return (
            "one replica"
            if self.n_replicas < 2
            else f"{self.n_replicas} replicas with equal values"
        )

    @property
    def short(self) -> str:
        """Mean and interval as in a legend; only for a single number."""
        if np.isnan(self.interval):
            return f"mean {digits(self.mean, 4)}, {self._no_interval_reason}"
        return f"mean {with_error(float(self.mean), float(self.interval))} (95 %)"


def mean_of_replicas(values: Sequence[float] | np.ndarray) -> ReplicaMean:
    r"""Estimate a mean over replicas, which are independent simulations of one system.

    $$\bar x \pm t_{n-1} \, s / \sqrt n$$

    with the mean $\bar x$ and the standard deviation $s$ of the n replicas' values, and Student's t
    for two-sided 95 %. Each replica is one value: pass its mean over frames.

    Parameters
    ----------
    values : numpy.ndarray, shape (n_replicas, ...)
        One number or array for each replica. NaN marks a replica without a value.

    Returns
    -------
    ReplicaMean
        Mean of shape (...); NaN if no replica has a value.

    Examples
    --------
    >>> print(mean_of_replicas([2.1, 2.5, 2.3]))
    2.30 ± 0.50 (95 % between 3 replicas)
    >>> print(mean_of_replicas([2.1]))
    2.1, one replica: no interval between replicas
    """
    values = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(values)
    n = known.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, values, 0).sum(axis=0) / n
        squares = np.where(known, values - mean, 0) ** 2
        deviation = np.sqrt(squares.sum(axis=0) / np.where(n > 1, n - 1.0, np.nan))
    return ReplicaMean(mean, n, deviation)


@dataclass(frozen=True)
class GroupDifference:
    """Difference of the means of two groups of replicas, and its uncertainty.

    Attributes
    ----------
    difference : numpy.ndarray of float64
        Mean of the second group minus mean of the first group.
    error : numpy.ndarray of float64
        Standard error of the difference; NaN if a group has less than two replicas.
    n_free : numpy.ndarray of float64
        Degrees of freedom; NaN if all replicas of a group have the same value.
    """

    difference: np.ndarray
    error: np.ndarray
    n_free: np.ndarray

    @property
    def interval(self) -> np.ndarray:
        """Half the width of the 95 % interval, by Welch's t; NaN if a group has no interval."""
        return students_t(self.n_free) * self.error

    @property
    def p_value(self) -> np.ndarray:
        """Probability of a difference at least this large between equal groups (Welch's t)."""
        from scipy.special import stdtr

        with np.errstate(invalid="ignore", divide="ignore"):
            t = np.abs(self.difference) / self.error
        return 2 * stdtr(np.maximum(1.0, self.n_free), -t)

    @property
    def detectable(self) -> np.ndarray:
        """True difference that these replicas would detect with a probability of 80 %.

        NaN if a group has no interval. It is computed by the noncentral t distribution, with the
        standard error of these replicas.
        """
        return self.detectable_at(1 - LEVEL)

    def detectable_at(self, level: float | np.ndarray) -> np.ndarray:
        """True difference that a two-sided test at this level would detect (see `detectable`).

        Parameters
        ----------
        level : float or numpy.ndarray of float64
            Maximum p value of a difference that is named, such as those of `levels_of_rows`.

        Returns
        -------
        numpy.ndarray of float64
            Differences, in the unit and the shape of `difference`.
        """
        from scipy.special import chdtri, nctdtrinc, stdtrit

        n_free = np.maximum(1.0, self.n_free)
        t = stdtrit(n_free, 1 - np.asarray(level) / 2)
        # For large t, only the error of these replicas varies, as the root of chi-squared.
        limit = t * np.sqrt(chdtri(n_free, 1 - POWER) / n_free)
        exact = nctdtrinc(n_free, 1 - POWER, np.minimum(t, LARGE_T))
        return np.where(t > LARGE_T, limit, exact)[()] * self.error

    def __str__(self) -> str:
        if np.ndim(self.difference):
            found = _arrays_with_error(self.difference, self.interval)
            return f"{found} (95 %, Welch's t)"
        if np.isnan(self.interval):
            why = "one replica, or replicas with equal values"
            return f"{digits(self.difference, 4)}, no interval: a group has {why}"
        return f"{with_error(float(self.difference), float(self.interval))} (95 %, Welch's t)"


def difference_of_groups(
    first: ReplicaMean | Sequence[float] | np.ndarray,
    second: ReplicaMean | Sequence[float] | np.ndarray,
) -> GroupDifference:
    r"""Estimate the difference of two groups of replicas, which may have unequal variances.

    $$\bar x_2 - \bar x_1 \pm t_\nu \sqrt{s_1^2 / n_1 + s_2^2 / n_2}$$

    with the degrees of freedom $\nu$ of Welch (1947, Biometrika 34, 28) and Satterthwaite (1946,
    Biometrics Bull. 2, 110).

    Parameters
    ----------
    first, second : ReplicaMean or numpy.ndarray of float64, shape (n_replicas, ...)
        Means of the groups, or one value per replica as for `mean_of_replicas`; the means have
        equal shapes.

    Returns
    -------
    GroupDifference
        Second group minus first group.

    Raises
    ------
    ValueError
        The means have different shapes.

    Examples
    --------
    >>> wild_type, mutant = mean_of_replicas([2.1, 2.5, 2.3]), mean_of_replicas([3.0, 3.1, 3.3])
    >>> print(difference_of_groups(wild_type, mutant))
    0.83 ± 0.41 (95 %, Welch's t)
    """
    first, second = (
        one if isinstance(one, ReplicaMean) else mean_of_replicas(one) for one in (first, second)
    )
    if np.shape(first.mean) != np.shape(second.mean):
        raise ValueError(
            f"expected two groups with means of one shape, found {np.shape(first.mean)} and "
            f"{np.shape(second.mean)}: give one row per replica, shape (n_replicas, ...)"
        )
    squares = first.error**2, second.error**2
    with np.errstate(invalid="ignore", divide="ignore"):
        free = sum(squares) ** 2 / (
            squares[0] ** 2 / (first.n_replicas - 1) + squares[1] ** 2 / (second.n_replicas - 1)
        )
    # If the values of a group are all equal, their variance is unknown.
    free = np.where(np.minimum(first.deviation, second.deviation) > 0, free, np.nan)[()]
    return GroupDifference(second.mean - first.mean, np.sqrt(sum(squares)), free)


def adjusted_p_values(p_values: np.ndarray) -> np.ndarray:
    """Adjust the p values of many differences, to limit the rate of false discoveries.

    Benjamini & Hochberg 1995, J. R. Stat. Soc. B 57, 289. If differences with an adjusted p of
    0.05 or less are named, at most 5 % of them are expected to be false.

    Parameters
    ----------
    p_values : numpy.ndarray of float64, shape (n_values,)
        Probabilities, such as `GroupDifference.p_value`; NaN is left out.

    Returns
    -------
    numpy.ndarray of float64, shape (n_values,)
        Adjusted p values; NaN where they are NaN.

    Examples
    --------
    >>> adjusted_p_values(np.array([0.01, 0.04, np.nan, 0.03, 0.5])).round(3).tolist()
    [0.04, 0.053, nan, 0.053, 0.5]
    """
    p_values = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(p_values.shape, np.nan)
    order = np.argsort(p_values)[: int((~np.isnan(p_values)).sum())]
    scaled = p_values[order] * len(order) / np.arange(1, len(order) + 1)
    adjusted[order] = np.minimum.accumulate(scaled[::-1])[::-1]
    return adjusted


def levels_of_rows(p_values: np.ndarray) -> np.ndarray:
    r"""Return the largest p value with which each row is named as different.

    The p values of all other rows are fixed. The correction of `adjusted_p_values` names rows with
    $p \le 0.05\, k / m$, if $k$ of $m$ rows have such a p. If only one row differs, it needs
    $p \le 0.05 / m$; if others also differ, a larger p suffices.

    Parameters
    ----------
    p_values : numpy.ndarray of float64, shape (n_values,)
        Probabilities, as for `adjusted_p_values`.

    Returns
    -------
    numpy.ndarray of float64, shape (n_values,)
        Largest p values that are named; NaN where they are NaN.

    Examples
    --------
    >>> levels_of_rows(np.array([1e-6, 0.2, 0.5, 0.9])).tolist()
    [0.0125, 0.025, 0.025, 0.025]
    """
    p_values = np.asarray(p_values, dtype=np.float64)
    known = np.sort(p_values[~np.isnan(p_values)])
    if not len(known):
        return np.full(p_values.shape, np.nan)
    ranks = np.arange(1, len(known) + 1)
    limits = FALSE_DISCOVERIES * ranks / len(known)
    smaller = np.searchsorted(known, limits, side="right")
    n_named = int(ranks[smaller >= ranks].max(initial=0))
    # A named row is already counted in `n_named`; any other row would add one to this number.
    further = limits[(smaller == ranks - 1) & (ranks > n_named)]
    levels = np.r_[limits[n_named - 1 : n_named], further]
    places = np.maximum(np.searchsorted(levels, p_values) - 1, 0)
    return np.where(np.isnan(p_values), np.nan, levels[places])


def limits_of_fractions(fractions: np.ndarray, half: np.ndarray) -> np.ndarray:
    r"""Compute the limits of 95 % intervals of fractions, which are between 0 and 1.

    The half width $h$ of the interval of a fraction $p$, as a mean of 1 and 0, determines the
    effective number of values: $t^2 / n = c = h^2 / (p (1 - p))$. The interval contains each $q$
    with $(p - q)^2 \le c \, q (1 - q)$ (score interval: Wilson 1927, J. Am. Stat. Assoc. 22, 209):

    $$\frac{p + c / 2 \pm \sqrt{c \, p (1 - p) + c^2 / 4}}{1 + c}$$

    It is longer on the side of 1/2. For small fractions, it contains the true value more often than
    $p \pm h$ does, which extends below 0.

    Parameters
    ----------
    fractions, half : numpy.ndarray of float64, shape (...)
        Fractions, and half the widths of the intervals of these means.

    Returns
    -------
    numpy.ndarray of float64, shape (..., 2)
        Lower and upper limits; NaN for the fractions 0 and 1, and where `half` is NaN.

    Examples
    --------
    >>> limits_of_fractions(np.array([0.5, 0.1]), np.array([0.1, 0.1])).round(2).tolist()
    [[0.4, 0.6], [0.04, 0.24]]
    """
    fractions = np.asarray(fractions, dtype=np.float64)
    spread = fractions * (1 - fractions)
    with np.errstate(invalid="ignore", divide="ignore"):
        c = np.where(spread > 0, np.asarray(half) ** 2 / spread, np.nan)
        centre, length = fractions + c / 2, np.sqrt(c * spread + c**2 / 4)
        return np.stack([(centre - length) / (1 + c), (centre + length) / (1 + c)], axis=-1)


def students_t(n_free: Any) -> Any:
    """Student's t for the two-sided interval; degrees of freedom below 1 count as 1."""
    from scipy.special import stdtrit

    return stdtrit(np.maximum(1.0, n_free), (1 + LEVEL) / 2)


def _block_error(deviations: np.ndarray) -> float:
    """Standard error by block averaging (Flyvbjerg & Petersen 1989, J. Chem. Phys. 91, 461).

    Block sizes are doubled until adjacent blocks are uncorrelated (Jonsson 2018, Phys. Rev. E 98,
    043304).
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


def with_error(mean: float, interval: float, power: int = 0) -> str:
    """Format a mean and its interval, rounded to two digits of the interval.

    Values are written as multiples of 10 to `power`, or of a smaller power if needed to avoid
    leading zeros. The interval must be above 0.

    Examples
    --------
    >>> with_error(2.34567, 0.0432), with_error(12345.0, 340.0)
    ('2.346 ± 0.043', '12345 ± 340')
    >>> with_error(-0.2, 221.0), with_error(9.96, 0.0999), with_error(1.0, 9.96)
    ('0 ± 221', '9.96 ± 0.10', '1 ± 10')
    >>> with_error(2.34567, 0.0432, -5), with_error(-1.29e-8, 8.7e-9, -5)
    ('(2.346 ± 0.043)·10⁻⁵', '(-1.29 ± 0.87)·10⁻¹³')
    """
    if max(abs(mean), interval) < LEAST_PLAIN:
        shift = math.floor(math.log10(max(abs(mean), interval)))
        mean, interval, power = mean / 10.0**shift, interval / 10.0**shift, power + shift
    decimals = decimals_of(interval)
    text = f"{_rounded(mean, decimals)} ± {interval:.{decimals}f}"
    return f"({text})·10{str(power).translate(SUPERSCRIPTS)}" if power else text


def decimals_of(interval: float) -> int:
    """Return the number of decimals with which an interval above 0 has two digits, rounded."""
    return max(0, 1 - math.floor(math.log10(float(f"{interval:.1e}"))))


def with_decimals_of(mean: float, interval: float) -> str:
    """Format a mean without an interval, with the decimals of a mean that has this interval.

    Examples
    --------
    >>> with_decimals_of(12345678.884, 0.045), with_decimals_of(2.34567, np.nan)
    ('12345678.884', '2.346')
    >>> with_decimals_of(-2.9e-16, 5.1), with_decimals_of(2.34567e-6, 4.1e-7)
    ('0.0', '2.346e-06')
    """
    if not interval > 0 or max(abs(mean), interval) < LEAST_PLAIN:
        return digits(mean, 4)
    return _rounded(mean, decimals_of(interval))


def _rounded(value: float, decimals: int) -> str:
    return f"{round(value, decimals) + 0.0:.{decimals}f}"  # avoid -0


def _arrays_with_error(means: np.ndarray, intervals: np.ndarray) -> str:
    """Format arrays of means and intervals; long arrays are abbreviated."""
    return " ± ".join(np.array2string(one, precision=4) for one in (means, intervals))


def digits(value: Any, digits: int) -> str:
    """Format a number with this many significant digits, and with all digits before the point.

    Examples
    --------
    >>> digits(1.23456, 4), digits(10982.4, 4), digits(1000.0, 3), digits(1e-9, 2)
    ('1.235', '10982', '1000', '1e-09')
    """
    text = f"{value + 0.0:.{digits}g}"  # avoid -0
    return f"{value:.0f}" if "e" in text and 1 <= abs(value) < MOST_PLAIN else text
