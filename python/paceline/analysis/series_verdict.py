"""Verdict on one time series: whether it is equilibrated, and whether it is long enough."""

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from paceline.analysis.equilibration import (
    ENOUGH_CHANGES,
    crossings_of_states,
    find_start,
    has_jumps,
)
from paceline.analysis.mean_error import MOST, MeanError, error_of_mean
from paceline.analysis.uncertainty import (
    ENOUGH,
    LEAST_VALUES,
    LEVEL,
    UsedRows,
    digits,
    limits_of_fractions,
    used_rows,
)
from paceline.performance.number_format import many

Kind: TypeAlias = Literal["linear", "angle", "states"]
Verdict: TypeAlias = Literal["sampled", "not shown to be sampled", "drifting"]
SAMPLED: Verdict = "sampled"
NOT_SHOWN: Verdict = "not shown to be sampled"
DRIFTING: Verdict = "drifting"
#: Value of `start` for which `assess_series` searches for the start.
UNKNOWN_START = -1
#: Minimum difference between the means of both halves that counts as notable, in standard errors
#: of this difference.
NOTABLE_HALVES = 2.5
#: Number of decimal digits of a number in double precision.
MOST_DIGITS = 15
#: Number of independent values with which the verdict is probably "sampled". It is larger than
#: `ENOUGH`, which must be exceeded with a probability of 95 %: in tests with autoregressive series
#: of 10, 15, 20, 25, 30 and 40 independent values, the verdict on 1, 3, 15, 33, 55 and 83 % of the
#: series was "sampled".
USUALLY_ENOUGH = 30
#: Minimum number of values for a verdict that a series drifts or changes between states.
LEAST_OF_VERDICT = 20


@dataclass(frozen=True)
class Convergence:
    """Verdict on one time series.

    Attributes
    ----------
    verdict : {"sampled", "not shown to be sampled", "drifting"}
        "sampled" if there are 20 values or more, at least 10 values are independent with a
        probability of 95 %, no drift is found, the means of both halves agree, the interval is as
        narrow as asked for, and, if the values change between two states, each state was left at
        least 10 times. "drifting" if no equilibrated part begins within the first half.
    mean : float
        Mean of the equilibrated part, in the unit of the series; if the series drifts, mean of all
        values. If times are strongly uneven, values are weighted by the time that they stand for.
    interval : tuple of float
        Limits of the 95 % interval of the mean; NaN if they are unknown.
    mean_of_all : float
        Mean of all values, with the same weights.
    equilibrated_from : int or None
        Index of the first value of the equilibrated part; None if there is none.
    n_values : int
        Number of values in the equilibrated part, without NaN.
    n_independent : float
        Number of independent values in the equilibrated part. For replicas, the number of
        independent values whose mean would have the error of the mean between replicas; if replicas
        differ, at most `bulk_size`.
    least_independent : float
        Number of independent values that is exceeded with a probability of 95 %.
    needed_time : float
        Further simulation time until the verdict may be "sampled" and the interval is as narrow as
        asked for, in the unit of the times (if there are no times, a number of values); 0 if
        nothing is needed, NaN if it cannot be estimated.
    needed_interval : tuple of float
        Probable and cautious estimate of the needed time. The probable one is the time until 30
        values are independent; the cautious one is the time until more than 10 are independent with
        a probability of 95 %.
    reasons : tuple of str
        Reasons of the verdict.
    length : float
        Time that the equilibrated part lasts; of replicas, that of the longest one.
    equilibrated_at : float
        Time of the first value of the equilibrated part, its index if there are no times; NaN if
        there is none.
    r_hat : float
        Rank-normalised split-R̂ of replicas; NaN for one simulation.
    bulk_size, tail_size : float
        Rank-normalised effective sample sizes of replicas, for the mean and for the 5 % and 95 %
        quantiles (Vehtari et al. 2021); NaN for one simulation.
    is_constant : bool
        True if there are 4 values or more, and all are equal, so that their mean has no interval.
    state : str
        State whose population `mean` is; empty for numbers and angles.
    replica_means : tuple of float
        Means of the equilibrated parts of the replicas that are compared, of which `mean` is the
        mean; empty for one simulation.
    """

    verdict: Verdict
    mean: float
    interval: tuple[float, float]
    mean_of_all: float
    equilibrated_from: int | None
    n_values: int
    n_independent: float
    least_independent: float
    needed_time: float
    needed_interval: tuple[float, float]
    reasons: tuple[str, ...] = ()
    length: float = np.nan
    equilibrated_at: float = np.nan
    r_hat: float = np.nan
    bulk_size: float = np.nan
    tail_size: float = np.nan
    is_constant: bool = False
    state: str = ""
    replica_means: tuple[float, ...] = ()

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval of the mean."""
        return (self.interval[1] - self.interval[0]) / 2

    def __str__(self) -> str:
        return "; ".join((self.verdict, *self.reasons))


def assess_series(
    values: np.ndarray,
    times: np.ndarray | None = None,
    *,
    precision: float | None = None,
    start: int | None = UNKNOWN_START,
    kind: Kind = "linear",
    n_series: int = 1,
) -> Convergence:
    """Assess a series of numbers.

    `start` is the index of the first equilibrated value, or None for a drift; by default this
    function searches for it. A 95 % interval wider than ± `precision` is a reason against the
    verdict "sampled". If `kind` is "angle", the series is a component of the unit vectors of
    angles; if it is "states", the series is 1 in one state and 0 in the others. The worst of
    `n_series` series decides on the system, so a larger `n_series` makes the test for a start or a
    drift less sensitive.
    """
    values = np.asarray(values, dtype=np.float64)
    used = _checked(values, times)
    rows, notes = used.rows, used.notes
    n = len(rows)
    values = values[rows]
    if n < LEAST_VALUES:
        return _unknown(values, rows, times, (_too_few(n), *notes))
    # Scaled numbers have finite powers, whatever their unit.
    with np.errstate(over="ignore", invalid="ignore"):
        centre = float(values.mean())
        deviations = values - centre
        scale = float(max(deviations.max(), -deviations.min()))
    # Compare the values: because of rounding, the mean of equal values may differ from them.
    is_constant = values.min() == values.max()
    if is_constant or not np.isfinite(scale):
        odd = "are equal" if is_constant else "have no finite mean"
        which = f"all {n:,} values" if not used.by_time else "all values by time"
        return _unknown(values, rows, times, (f"{which} {odd}", *notes))
    deviations /= scale
    if start == UNKNOWN_START:
        start = find_start(deviations, n_series) if n >= LEAST_OF_VERDICT else 0
        if start != 0 and has_jumps(deviations):
            start = 0
    # `rows` repeats a value that stands for a long time: leave out all its repetitions, or none.
    start = start and int(np.searchsorted(rows, rows[start]))
    production = deviations[start or 0 :]
    if len(production) < LEAST_VALUES or np.ptp(production) == 0:
        start, production = 0, deviations
    production_mean = float(production.mean())
    error = error_of_mean(production - production_mean)
    half = scale * error.interval(LEVEL)
    mean = centre + scale * production_mean if start else centre
    first = None if start is None else _first_row(rows, start, times)
    n_values = int(np.count_nonzero(used.known[first or 0 :]))
    found = Convergence(
        DRIFTING if start is None else SAMPLED,
        mean,
        interval_of_fraction(mean, half) if kind == "states" else (mean - half, mean + half),
        centre,
        first,
        n_values,
        min(len(production) / error.inefficiency, float(n_values)),
        min(len(production) / error.most_inefficient, float(n_values)),
        0.0,
        (0.0, 0.0),
        notes,
        len(production) * used.step,
        _time_of(first, times),
    )
    if start is None:
        why = "the mean still changes in one direction in the second half"
        unknown = (np.nan, np.nan)
        reasons = (why, *notes)
        return replace(found, needed_time=np.nan, needed_interval=unknown, reasons=reasons)
    states = None
    if kind != "states" and n_values >= LEAST_OF_VERDICT:
        states = crossings_of_states(production)
    doubts, factors = _doubts(production, found, error, (centre, scale), precision, kind, states)
    # At least one further value is needed before the verdict can change.
    least = used.step if doubts else 0.0
    more = [max(least, found.length * (factor - 1)) for factor in factors]
    verdict = NOT_SHOWN if doubts else SAMPLED
    if not doubts:
        doubts = [f"{_independent(found)} of {found.n_values:,} values are independent"]
    return replace(
        found,
        verdict=verdict,
        needed_time=more[1],
        needed_interval=(more[0], more[1]),
        reasons=(*doubts, *notes),
    )


def interval_of_fraction(fraction: float, half: float) -> tuple[float, float]:
    """Return the limits of the interval of a population; see `limits_of_fractions`."""
    low, high = limits_of_fractions(np.array(fraction), np.array(half))
    return float(low), float(high)


def longer(n_independent: float, least_independent: float) -> tuple[float, float]:
    """Return two factors by which a series should be longer, a probable and a cautious one.

    The first factor is at least the root of the second one: even if `n_independent` seems to be
    large enough, the true number may be too small.
    """
    cautious = max(1.0, ENOUGH / least_independent)
    return float(np.clip(USUALLY_ENOUGH / n_independent, np.sqrt(cautious), cautious)), cautious


def usable_rows(values: np.ndarray, times: np.ndarray | None) -> np.ndarray:
    """Return the rows of `used_rows`; raise `ValueError` if times decrease."""
    return _checked(values, times).rows


def _checked(values: np.ndarray, times: np.ndarray | None) -> UsedRows:
    """Choose the rows of a series that are used; raise `ValueError` if times decrease."""
    if times is None:
        return used_rows(values, None)
    times = np.asarray(times, dtype=np.float64)
    if times.shape != values.shape:
        raise ValueError(f"expected {len(values)} times, one for each value, found {len(times)}")
    timed = np.flatnonzero(np.isfinite(times))
    later = np.flatnonzero(np.diff(times[timed]) < 0)
    if len(later):
        before, after = timed[later[0] : later[0] + 2]
        raise ValueError(
            f"times decrease from {times[before]:g} to {times[after]:g} at value {after}: sort the "
            "values, or assess each part"
        )
    return used_rows(values, times)


def _first_row(rows: np.ndarray, start: int, times: np.ndarray | None) -> int:
    """Return the row in which the equilibrated part begins: for a start of 0, the first timed row.

    `start` is an index in `rows`, which contains only rows with a value.
    """
    if start:
        return int(rows[start])
    return 0 if times is None else int(np.argmax(np.isfinite(times)))


def _time_of(row: int | None, times: np.ndarray | None) -> float:
    """Return the time of a row, or its index if there are no times; NaN without a row."""
    if row is None:
        return np.nan
    return float(row if times is None else times[row])


def _unknown(
    values: np.ndarray,
    rows: np.ndarray,
    times: np.ndarray | None,
    reasons: tuple[str, ...],
) -> Convergence:
    """Make the verdict for values that are all equal, too few, or without a finite mean."""
    mean, is_constant = np.nan, False
    if len(values):
        is_constant = bool(values.min() == values.max())
        mean = float(values[0] if is_constant else values.mean()) + 0.0  # avoid -0
    unknown = (np.nan, np.nan)
    start = _first_row(rows, 0, times) if len(rows) else None
    return Convergence(
        *(NOT_SHOWN, mean, unknown, mean, start, len(values), np.nan, np.nan, np.nan, unknown),
        reasons,
        equilibrated_at=_time_of(start, times),
        is_constant=is_constant and len(values) >= LEAST_VALUES,
    )


def _too_few(n_values: int) -> str:
    """State that there are too few values, with their number and the number that is needed."""
    found = f"only {many(n_values, 'value')}" if n_values else "no values"
    return f"{found} ({LEAST_OF_VERDICT} are needed)"


def _independent(found: Convergence) -> str:
    """Format the number of independent values."""
    n = min(round(found.n_independent), found.n_values)
    return f"about {n:,}" if n < found.n_values else "all"


def _told_apart(first: float, second: float, n_digits: int) -> tuple[str, str]:
    """Format two numbers with so many digits that their difference has two digits.

    Each number has at least `n_digits` digits.
    """
    largest, difference = max(abs(first), abs(second)), abs(second - first)
    if difference > 0:
        n_digits = max(n_digits, math.floor(math.log10(largest) - math.log10(difference)) + 2)
    return digits(first, n_digits), digits(second, n_digits)


def wider_than(half: float, precision: float, unit: str = "") -> str:
    """State that an interval is wider than `precision`, with enough digits to show this."""
    shown, _ = _told_apart(half, precision, 2)
    asked = digits(precision, MOST_DIGITS)
    return f"the interval of ± {shown}{unit} is wider than ± {asked}{unit}"


def _doubts(
    production: np.ndarray,
    found: Convergence,
    error: MeanError,
    unit: tuple[float, float],
    precision: float | None,
    kind: Kind,
    states: tuple[int, float, float] | None,
) -> tuple[list[str], tuple[float, float]]:
    """Return the reasons why a series is not "sampled", and factors by which it should be longer.

    The first factor is the probable one, and the second one is cautious. `unit` contains origin and
    scale of the values in `production`. `states` contains the number of changes between two states,
    and the means of both states.
    """
    centre, scale = unit
    doubts = []
    factors = np.ones(2)
    enough_values = found.n_values >= LEAST_OF_VERDICT
    if not enough_values:
        doubts.append(_too_few(found.n_values))
        factors *= LEAST_OF_VERDICT / found.n_values
    if found.least_independent < ENOUGH:
        least = max(1, int(found.least_independent))
        doubts.append(
            f"as few as {least} of {found.n_values:,} values may be independent ({ENOUGH} needed)"
        )
        factors = np.maximum(factors, longer(found.n_independent, found.least_independent))
    n_changes = ENOUGH_CHANGES
    if kind == "states":
        n_changes = int(np.count_nonzero(np.diff(production)))
        change = "the state is entered or left"
    elif states is not None:
        n_changes = states[0]
        # Rounding leaves a small remainder where the mean is 0.
        means = [round(centre / scale + value, 12) * scale + 0.0 for value in states[1:]]
        low, high = _told_apart(means[0], means[1], 3)
        change = (
            "it turned between two directions"
            if kind == "angle"
            else f"it changed between two states (about {low} and {high})"
        )
    if n_changes < ENOUGH_CHANGES:
        times = {0: "never", 1: "only once", 2: "only twice"}
        doubts.append(f"{change} {times.get(n_changes, f'only {n_changes} times')}")
        factors = np.maximum(factors, ENOUGH_CHANGES / max(1, n_changes))
    halves = [float(half.mean()) for half in np.array_split(production, 2)]
    standard_error = float(np.sqrt(error.weights @ error.variances))
    if enough_values and abs(halves[1] - halves[0]) > NOTABLE_HALVES * 2 * standard_error:
        first, second = _told_apart(centre + scale * halves[0], centre + scale * halves[1], 4)
        sizes = "" if kind == "angle" else f": {first} and {second}"
        doubts.append(f"the means of its halves differ{sizes}")
        factors = np.maximum(factors, 2)
    if precision is not None and found.half_width > precision:
        doubts.append(wider_than(found.half_width, precision))
        widths = np.array([found.half_width, scale * error.interval_of_quantile(MOST, LEVEL)])
        factors = np.maximum(factors, (widths / precision) ** 2)
    return doubts, (float(factors[0]), float(factors[1]))
