"""Verdicts whether simulations are long enough, from series, angles, states and replicas."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

import numpy as np

from paceline.analysis.equilibration import find_start, has_jumps
from paceline.analysis.mean_error import MOST, error_of_mean
from paceline.analysis.series_verdict import (
    DRIFTING,
    LEAST_OF_VERDICT,
    NOT_SHOWN,
    SAMPLED,
    Convergence,
    Kind,
    assess_series,
    interval_of_fraction,
    longer,
    usable_rows,
    wider_than,
)
from paceline.analysis.uncertainty import ENOUGH, LEAST_VALUES, LEVEL, mean_of_replicas

#: Verdicts, from best to worst.
GRADES = (SAMPLED, NOT_SHOWN, DRIFTING)
#: Maximum R̂ of replicas that agree. With 10 independent values per replica, R̂ is 1.05 on average.
MOST_R_HAT = 1.1
#: Minimum length of the mean vector of angles that have a preferred direction, in half widths of
#: the 95 % interval across the vector. For uniform angles, the vector is longer in 5 % of cases
#: (Rayleigh's test): √(2 ln 20) / 1.96.
LEAST_LENGTH = 1.25
#: If the longest replica is longer than the shortest by this factor, a note describes the values
#: that R̂ uses.
UNLIKE = 2


def convergence(
    values: np.ndarray,
    times: np.ndarray | None = None,
    replicas: np.ndarray | None = None,
    kind: Kind = "linear",
    *,
    precision: float | None = None,
    n_series: int = 1,
) -> Convergence:
    r"""Assess whether a quantity is equilibrated and sampled, from its time series.

    The start of a series is described by $A e^{-t / \tau}$. Values at the start are left out as
    long as this reduces the error of the mean. The interval of the mean is computed by
    `mean_of_series` from the remaining values. Between replicas, the interval is computed from
    their means by Student's t. Replicas agree if the rank-normalised split-$\hat R$ (Vehtari et al.
    2021, Bayesian Anal. 16, 667) is 1.1 or less.

    Parameters
    ----------
    values : numpy.ndarray, shape (n_values,)
        Values in the order of time: numbers; degrees for "angle"; names or numbers for "states".
    times : numpy.ndarray, shape (n_values,), optional
        Times in any unit; they must not decrease within a replica. By default 0, 1, 2 … If they are
        strongly uneven, such as logarithmic ones, values are weighted by the time that they stand
        for.
    replicas : numpy.ndarray, shape (n_values,), optional
        Number or name of the replica of each value; without them, values are of one simulation.
    kind : {"linear", "angle", "states"}
        Meaning of the values. The mean of angles is circular. For states, the result is that of
        the state that is sampled worst, and `mean` is its population.
    precision : float, optional
        Requested half width of the 95 % interval of the mean, in the unit of the values; for
        states, of the population.
    n_series : int
        Number of series that are assessed together, such as the columns of a table. With more
        series, the tests for a start and for a drift are stricter, so that the fraction of tables
        in which noise passes a test stays the same (Bonferroni).

    Returns
    -------
    Convergence
        Verdict, mean and interval, start of the equilibrated part, and needed time.

    Raises
    ------
    ValueError
        If lengths differ, times decrease, `kind` is unknown, or `n_series` is below 1.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> series = rng.standard_normal(2000) + 5 * np.exp(-np.arange(2000) / 40)
    >>> found = convergence(series)
    >>> found.verdict, 100 < found.equilibrated_from < 200
    ('sampled', True)
    >>> convergence(np.linspace(0, 1, 500) + 0.1 * rng.standard_normal(500)).verdict
    'drifting'
    """
    return assess(values, times, replicas, kind, precision, n_series, leave_out=True)


def assess(
    values: np.ndarray,
    times: np.ndarray | None,
    replicas: np.ndarray | None,
    kind: Kind,
    precision: float | None,
    n_series: int,
    *,
    leave_out: bool,
) -> Convergence:
    """Assess a series, as `convergence`; with `leave_out`, drop copies among the replicas.

    `leave_out` is False if the replicas are known to differ.
    """
    if kind not in get_args(Kind):
        raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, not {kind!r}")
    masked = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    values = np.asarray(values)
    if values.ndim != 1:
        raise ValueError(f"expected values of shape (n_values,), found {values.shape}")
    if values.dtype.kind in "USc" and kind != "states":
        odd = "complex numbers" if values.dtype.kind == "c" else 'text (names need kind="states")'
        raise ValueError(f"expected real numbers, found {odd}")
    if kind != "states" or masked is not None:
        values = values.astype(np.float64)
    if masked is not None:
        values[masked] = np.nan
    if kind == "states" and values.dtype.kind == "f":
        odd_ones = values[np.isfinite(values) & (values != np.round(values))]
        if len(odd_ones):
            raise ValueError(f"expected names or whole numbers of states, found {odd_ones[0]:g}")
    if times is not None:
        times = np.asarray(times, dtype=np.float64)
        if times.shape != values.shape:
            raise ValueError(f"expected {len(values)} times, one for each value, got {len(times)}")
    if precision is not None and not precision > 0:
        raise ValueError(f"precision must be above 0, not {precision!r}")
    if n_series < 1:
        raise ValueError(f"n_series must be at least 1, not {n_series!r}")
    if replicas is None:
        return _assess(values, times, kind, precision, n_series)
    labels = np.asarray(replicas)
    if labels.shape != values.shape:
        raise ValueError(f"expected {len(values)} replicas, one for each value, got {len(labels)}")
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError("replicas must not be NaN")
    if not len(values):
        return _assess(values, times, kind, precision, n_series)
    names = list(dict.fromkeys(labels.tolist()))
    rows = [np.flatnonzero(labels == name) for name in names]
    parts = {
        _name(name): (values[row], None if times is None else times[row])
        for name, row in zip(names, rows, strict=True)
    }
    notes = _leave_out_copies(parts) if leave_out else []
    # Each replica has its own start, and counts as a series of its own.
    if kind == "states":
        return _states_of_replicas(parts, notes, precision, n_series * len(parts))
    return _assess_replicas(parts, kind, precision, n_series * len(parts), notes)


def latest_start(
    found: dict[str, Convergence], times: Mapping[str, float] | None = None
) -> tuple[int | None, str]:
    """Return the index from which all series are equilibrated, and the name of the last to be so.

    `times` are the starts of the equilibrated parts, by the name of the series; by default
    `equilibrated_at`. They have a common unit, or are relative to the first frame of each replica,
    because replicas may begin at different times. If any series drifts, the index is None, and the
    name is that of the first drifting series.
    """
    drifting = [name for name, one in found.items() if one.verdict == DRIFTING]
    if drifting:
        return None, drifting[0]
    starts = times or {name: one.equilibrated_at for name, one in found.items()}
    last = max(found, key=lambda name: np.nan_to_num(starts[name], nan=-np.inf))
    return found[last].equilibrated_from or 0, last


def _assess(
    values: np.ndarray,
    times: np.ndarray | None,
    kind: Kind,
    precision: float | None,
    n_series: int,
) -> Convergence:
    """Assess a series of a single simulation, without replicas."""
    if kind == "states":
        return _assess_states(values, times, precision, n_series)
    return _assess_numbers(values, times, kind, precision, n_series)


def _assess_numbers(
    values: np.ndarray,
    times: np.ndarray | None,
    kind: Kind,
    precision: float | None,
    n_series: int,
) -> Convergence:
    """Assess numbers or angles; for "states", numbers are 1 in a state and 0 elsewhere."""
    if kind == "angle":
        return _assess_angles(values, times, precision, n_series)
    return assess_series(values, times, precision=precision, kind=kind, n_series=n_series)


def _assess_angles(
    degrees: np.ndarray, times: np.ndarray | None, precision: float | None, n_series: int
) -> Convergence:
    """Assess angles by their unit vectors: the components along and across the circular mean."""
    rows = usable_rows(degrees, times)
    degrees = _turned(degrees)
    turns = np.exp(1j * np.radians(degrees))
    known = turns[rows]
    if len(known) < LEAST_VALUES or np.ptp(degrees[rows]) == 0:
        few = assess_series(degrees, times)
        if few.is_constant or not len(known):
            return few
        centre = float(np.degrees(np.angle(known.mean())))
        return replace(few, mean=centre, mean_of_all=centre)
    start: int | None = 0
    for part in (known.real, known.imag):
        first = find_start(part, n_series) if np.ptp(part) > 0 else 0
        start = None if start is None or first is None else max(start, first)
    if start != 0 and (has_jumps(known.real) or has_jumps(known.imag)):
        start = 0
    mean = known[start or 0 :].mean()
    turned = turns * np.exp(-1j * np.angle(mean))
    along, across = (
        assess_series(part, times, start=start, kind="angle") for part in (turned.real, turned.imag)
    )
    length = abs(mean)
    is_directed = length > LEAST_LENGTH * across.half_width
    half = np.degrees(np.arcsin(across.half_width / length)) if is_directed else 180
    worst = max((across, along), key=lambda one: GRADES.index(one.verdict))
    centre = float(np.degrees(np.angle(mean)))
    everything = float(np.degrees(np.angle(known.mean())))
    interval = float(centre - half), float(centre + half)
    found = replace(worst, mean=centre, interval=interval, mean_of_all=everything)
    if not is_directed and found.verdict == SAMPLED:
        found = replace(
            found,
            verdict=NOT_SHOWN,
            reasons=("no direction is preferred",),
            needed_time=np.nan,
            needed_interval=(np.nan, np.nan),
        )
    if precision is None or not found.half_width > precision:
        return found
    part = turned[rows].imag[start or 0 :]
    widest = error_of_mean(part - part.mean()).interval_of_quantile(MOST, LEVEL) / length
    wider = np.degrees(np.arcsin(min(1.0, widest))) / half
    return _with_precision(found, precision, "°", wider, found.length / found.n_values)


def _assess_states(
    values: np.ndarray, times: np.ndarray | None, precision: float | None, n_series: int
) -> Convergence:
    """Assess the population of each state, and return the worst verdict with its state."""
    states = _states(values)
    found = {
        _name(state): assess_series(
            _in_state(values, state),
            times,
            precision=precision,
            kind="states",
            n_series=n_series * len(states),
        )
        # With two states, the population of one determines that of the other.
        for state in (states[:1] if len(states) == 2 else states)
    }
    if not found:
        return assess_series(np.empty(0))
    name = max(
        found,
        key=lambda one: (
            GRADES.index(found[one].verdict),
            -np.nan_to_num(found[one].least_independent),
        ),
    )
    worst = found[name]
    of = f"of {len(found)} states, {name} is sampled worst" if len(found) > 1 else f"state {name}"
    return replace(worst, reasons=(of, *worst.reasons), state=name)


def _states(values: np.ndarray) -> np.ndarray:
    """Return the states without repeats; NaN and infinite values are no states."""
    states = np.unique(values)
    return states[np.isfinite(states)] if states.dtype.kind == "f" else states


def _in_state(values: np.ndarray, state: object) -> np.ndarray:
    """Return 1 where a series is in this state and 0 elsewhere; NaN where it is not finite."""
    is_in = (values == state).astype(np.float64)
    if values.dtype.kind == "f":
        is_in[~np.isfinite(values)] = np.nan
    return is_in


def _name(label: object) -> str:
    """Return the name of a state or of a replica; whole numbers have no decimals."""
    is_whole = isinstance(label, float) and label.is_integer()
    return f"{label:.0f}" if is_whole else f"{label}"


def _with_precision(
    found: Convergence, precision: float | None, unit: str, wider: float, step: float
) -> Convergence:
    """Compare the interval with the requested precision; if it is wider, change the verdict.

    A cautious estimate of the interval is wider by the factor `wider`. `step` is the time between
    values.
    """
    half = found.half_width
    if precision is None or not half > precision:
        return found
    verdict = found.verdict if found.verdict == DRIFTING else NOT_SHOWN
    kept = () if found.verdict == SAMPLED else found.reasons
    found = replace(found, verdict=verdict, reasons=(*kept, wider_than(half, precision, unit)))
    if verdict == DRIFTING:
        return found
    widths = half * np.array([1, max(1.0, wider)])
    more = np.maximum(step, found.length * ((widths / precision) ** 2 - 1))
    probable, cautious = np.maximum(more, found.needed_interval)
    return replace(
        found, needed_time=float(cautious), needed_interval=(float(probable), float(cautious))
    )


def _leave_out_copies(parts: dict[str, tuple[np.ndarray, np.ndarray | None]]) -> list[str]:
    """Remove replicas whose series are copies of others; return notes."""
    # Imported here, because a single simulation has no copies.
    from paceline.analysis.duplicate_replicas import ReplicaSeries, find_copies, left_out_copies

    series = {f"replica {name}": ReplicaSeries({"": one}, at) for name, (one, at) in parts.items()}
    copies = find_copies(series)
    for name in [name for name in parts if f"replica {name}" in copies]:
        del parts[name]
    return left_out_copies(copies)


def _assess_replicas(
    parts: dict[str, tuple[np.ndarray, np.ndarray | None]],
    kind: Kind,
    precision: float | None,
    n_series: int,
    notes: Sequence[str] = (),
) -> Convergence:
    """Assess replicas together: each start, and the agreement of the equilibrated parts.

    For states, values are 1 in one state and 0 elsewhere.
    """
    notes = [*notes]
    found = {name: _assess_numbers(*part, kind, None, n_series) for name, part in parts.items()}
    for name in [name for name, one in found.items() if one.n_values < LEAST_VALUES]:
        del found[name]
        notes.append(f"left out: replica {name} (less than {LEAST_VALUES} values)")
    if len(found) < 2:
        single = assess_series(np.empty(0))
        if found:
            single = _assess_numbers(*parts[next(iter(found))], kind, precision, n_series)
        number = "one replica only" if found else f"no replica has {LEAST_VALUES} values"
        means = tuple(one.mean for one in found.values())
        return replace(single, reasons=(number, *single.reasons, *notes), replica_means=means)
    return _agreement(found, parts, kind, precision, notes)


def _agreement(
    found: dict[str, Convergence],
    parts: dict[str, tuple[np.ndarray, np.ndarray | None]],
    kind: Kind,
    precision: float | None,
    notes: Sequence[str],
) -> Convergence:
    """Judge the agreement of replicas by their starts, R̂, and the interval between their means."""
    # Imported here, because agreement is not judged for a single simulation.
    from scipy.special import chdtri

    from paceline.analysis.replica_diagnostics import (
        differ_as_a_whole,
        effective_size,
        rank_normalised_r_hat,
        tail_effective_size,
    )

    series = [_production(*parts[name], one) for name, one in found.items()]
    means = np.array([one.mean for one in found.values()])
    everything = np.array([one.mean_of_all for one in found.values()])
    if kind == "angle":
        centre = float(np.degrees(np.angle(np.exp(1j * np.radians(means)).mean())))
        series = [centre + _turned(one - centre) for one in series]
        means, everything = (centre + _turned(one - centre) for one in (means, everything))
    between = mean_of_replicas(means)
    r_hat = rank_normalised_r_hat(series)
    size = effective_size(series)
    shown = f"{r_hat:.2f}" if r_hat < 100 else "above 100"
    drifting = [name for name, one in found.items() if one.verdict == DRIFTING]
    reasons = [f"replica {name} drifts" for name in drifting]
    n_values = sum(one.n_values for one in found.values())
    shortest, longest = (pick(one.n_values for one in found.values()) for pick in (min, max))
    if longest > UNLIKE * shortest:
        notes = [*notes, f"R̂ is of the last {shortest:,} equilibrated values of each replica"]
    if r_hat > MOST_R_HAT:
        centre = float(np.median(means))
        farthest = [*found][int(np.argmax(np.abs(means - centre)))]
        expected = f"(R̂ is {shown}; {MOST_R_HAT} or less is expected)"
        reasons.append(
            f"replicas differ {expected}, replica {farthest} most"
            if differ_as_a_whole(series, MOST_R_HAT)
            else f"the halves of the replicas differ {expected}"
        )
    alone = [
        _independent_of_replicas([one.n_independent for one in found.values()]),
        _independent_of_replicas([one.least_independent for one in found.values()]),
    ]
    together = [min(size, number) for number in alone]
    # Numbers of independent values in the result, and those from which the needed time is computed.
    counted, lengthened = (together, alone) if r_hat > MOST_R_HAT else (alone, together)
    if shortest < LEAST_OF_VERDICT:
        reasons.append(
            f"the shortest replica has only {shortest} equilibrated values ({LEAST_OF_VERDICT} are "
            "needed)"
        )
    elif not np.isfinite(between.mean):
        reasons.append(f"all {n_values:,} values have no finite mean")
    elif np.isnan(r_hat):
        reasons.append(f"all {n_values:,} values are equal")
    elif together[1] < ENOUGH:
        few = max(1, int(together[1]))
        reasons.append(
            f"as few as {few} of {n_values:,} values may be independent ({ENOUGH} needed)"
        )
    verdict = DRIFTING if drifting else NOT_SHOWN if reasons else SAMPLED
    if not reasons:
        reasons = [f"{len(found)} replicas agree (R̂ is {shown})"]
    mean, half = float(between.mean), float(between.interval)
    mean_of_all = float(everything.mean())
    if kind == "angle":
        mean, mean_of_all = (float(one) for one in _turned(np.array([mean, mean_of_all])))
    length = max(one.length for one in found.values())
    needed = np.full(2, 0.0 if verdict == SAMPLED else np.nan)
    # The needed time is known only if independent values are too few. It is unknown how long
    # replicas differ.
    if not drifting and 0 < lengthened[1] < ENOUGH:
        needed = length * (np.array(longer(*lengthened)) - 1)
    lasted = {
        name: one.equilibrated_at - (0.0 if (at := parts[name][1]) is None else np.nanmin(at))
        for name, one in found.items()
    }
    start, last = latest_start(found, lasted)
    result = Convergence(
        verdict,
        mean,
        interval_of_fraction(mean, half) if kind == "states" else (mean - half, mean + half),
        mean_of_all,
        start,
        n_values,
        counted[0],
        counted[1],
        float(needed[1]),
        (float(needed[0]), float(needed[1])),
        (*reasons, *notes),
        length,
        np.nan if start is None else found[last].equilibrated_at,
        r_hat,
        size,
        tail_effective_size(series),
        is_constant=all(one.is_constant for one in found.values()) and len(set(means)) == 1,
        replica_means=tuple(means.tolist()),
    )
    # The true variance between so few replicas may be larger: use a quantile of chi-squared.
    n_free = len(found) - 1
    wider = float(np.sqrt(n_free / chdtri(n_free, MOST)))
    step = min(one.length / one.n_values for one in found.values())
    return _with_precision(result, precision, "°" if kind == "angle" else "", wider, step)


def _independent_of_replicas(numbers: Sequence[float]) -> float:
    """Return the number of independent values whose mean is as certain as the mean of replicas.

    The variance of the mean of n means is the sum of their variances, divided by n². A short
    replica therefore counts as much as a long one. Returns 0 if any number is unknown, NaN if all
    are.
    """
    if np.isnan(numbers).any():
        return np.nan if np.isnan(numbers).all() else 0.0
    return float(len(numbers) ** 2 / np.sum(1 / np.array(numbers)))


def _states_of_replicas(
    parts: dict[str, tuple[np.ndarray, np.ndarray | None]],
    notes: Sequence[str],
    precision: float | None,
    n_series: int,
) -> Convergence:
    """Assess the population of each state over all replicas; return the worst verdict."""
    states = _states(np.concatenate([values for values, _ in parts.values()]))
    worst: tuple[int, float, Convergence] | None = None
    for state in states[:1] if len(states) == 2 else states:
        ones = {name: (_in_state(values, state), times) for name, (values, times) in parts.items()}
        found = _assess_replicas(ones, "states", precision, n_series * len(states))
        rank = GRADES.index(found.verdict), -float(np.nan_to_num(found.least_independent))
        if worst is None or rank > worst[:2]:
            name = _name(state)
            reasons = (f"of {len(states)} states, {name} is sampled worst", *found.reasons)
            worst = (*rank, replace(found, reasons=(*reasons, *notes), state=name))
    return assess_series(np.empty(0)) if worst is None else worst[2]


def _production(values: np.ndarray, times: np.ndarray | None, found: Convergence) -> np.ndarray:
    """Return the equilibrated part without NaN; at equal times if times are strongly uneven."""
    rows = usable_rows(values, times)
    return values[rows[rows >= (found.equilibrated_from or 0)]]


def _turned(degrees: np.ndarray) -> np.ndarray:
    """Shift angles by whole turns into the range from above -180° up to 180°."""
    return 180 - (180 - degrees) % 360
