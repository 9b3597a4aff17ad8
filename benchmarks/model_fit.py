"""Terms of the model, accepted and rejected, with constants fitted to all clusters but one."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from scipy.optimize import least_squares

from benchmarks.model_rows import (
    CORES,
    FRAME_BYTES,
    LINKS,
    N_FRAMES,
    Case,
    SharedH5MD,
    Total,
    at_work,
    cases,
    h5md_runs,
    totals,
)
from paceline.model import Unevenness
from paceline.performance.model import queued

#: Maximum of a small error, relative to the measured time.
SMALL = 0.15


@dataclass(frozen=True)
class Term:
    """Resource that ranks use one after another while they read.

    Attributes
    ----------
    service : callable
        Function of a case and the term's constant that returns the time of use per frame, s.
    n_sharing : callable
        Function that returns the number of ranks that share the resource.
    begin : float
        Start value of the search for the constant; None if there is no constant.
    """

    service: Callable[[Case, float], float]
    n_sharing: Callable[[Case], int]
    begin: float | None


#: The model contains the lock. The other terms were rejected, and are kept for comparison.
TERMS = {
    "lock of a node": Term(
        lambda case, held: held if case.access == "single" else 0.0,
        lambda case: case.per_node,
        20e-6,
    ),
    "time per request": Term(
        lambda case, taken: taken / (case.n_ranks if case.access == "splitting" else 1),
        lambda case: case.n_ranks,
        1e-6,
    ),
    "link of a node": Term(
        lambda case, _: FRAME_BYTES[case.access] / LINKS[case.cluster],
        lambda case: case.per_node,
        None,
    ),
    "bandwidth of a file": Term(
        lambda case, per_byte: (
            FRAME_BYTES[case.access] * per_byte if case.access != "splitting" else 0.0
        ),
        lambda case: case.n_ranks,
        1e-10,
    ),
}
LOCK = "lock of a node"

Constants = dict[str, float]


def seconds(case: Case, constants: Constants) -> float:
    """Return t_io + t_comp of a row with some of the terms; only the longest queue counts."""
    alone = case.share * case.n_ranks / N_FRAMES
    frame = max(
        (
            queued(alone, TERMS[name].service(case, value), TERMS[name].n_sharing(case))
            for name, value in constants.items()
        ),
        default=alone,
    )
    return frame * N_FRAMES / case.n_ranks


def fit(rows: Sequence[Case], terms: Sequence[str]) -> Constants:
    """Fit constants by least squares of log(predicted / measured time)."""
    begin = [TERMS[name].begin for name in terms if TERMS[name].begin is not None]

    def constants(scaled: Sequence[float]) -> Constants:
        found = iter(a * b for a, b in zip(scaled, begin, strict=True))
        return {name: 0.0 if TERMS[name].begin is None else next(found) for name in terms}

    def residuals(scaled: Sequence[float]) -> list[float]:
        chosen = constants(scaled)
        return [math.log(seconds(row, chosen) / row.measured) for row in rows]

    if not begin:
        return constants([])
    # Only the longest queue counts, so a search may end where another queue is the longest.
    found = [
        least_squares(residuals, [scale] * len(begin), bounds=(0, math.inf))
        for scale in (0.1, 1.0, 10.0)
    ]
    return constants(min(found, key=lambda one: one.cost).x)


@cache
def left_out(terms: tuple[str, ...]) -> dict[Case, float]:
    """Predict each row, s, with constants fitted to the other two clusters."""
    found = {}
    for cluster in CORES:
        constants = fit([case for case in cases() if case.cluster != cluster], terms)
        found |= {case: seconds(case, constants) for case in cases() if case.cluster == cluster}
    return {case: found[case] for case in cases()}


@cache
def t_lock(*, without: str = "") -> float:
    """Fit the lock's constant, s, to all clusters but one."""
    return fit([case for case in cases() if case.cluster != without], (LOCK,))[LOCK]


def late(runs: Sequence[Total]) -> float:
    """Return the delay of the last rank, s: geometric mean over runs."""
    return statistics.geometric_mean(
        run.measured - at_work(run.case.predict(t_lock())) for run in runs
    )


def total_left_out(run: Total) -> float:
    """Predict a whole run, s; the delay of its last rank is that of the other run."""
    uneven = Unevenness(slow_fraction=1.0, late=late([one for one in totals() if one != run]))
    return run.case.predict(t_lock(), uneven).t_total


def bandwidth(runs: Sequence[SharedH5MD]) -> float:
    """Fit the bandwidth, bytes per second, to the logarithms of the runs' times."""

    def residuals(scaled: Sequence[float]) -> list[float]:
        return [math.log(run.predict(scaled[0] * 1e9) / run.measured) for run in runs]

    return 1e9 * least_squares(residuals, [1.0], bounds=(1e-3, math.inf)).x[0]


def h5md_left_out(run: SharedH5MD) -> float:
    """Predict a run, s, with the bandwidth of the other cluster."""
    return run.predict(bandwidth([one for one in h5md_runs() if one.cluster != run.cluster]))


@dataclass(frozen=True)
class Errors:
    """Errors of predictions: mean relative error, and number of small errors."""

    mean: float
    n_small: int
    n: int

    @classmethod
    def of(cls, predicted: dict[Case, float]) -> "Errors":
        """Compare predictions with measured times."""
        parts = [abs(seconds / case.measured - 1) for case, seconds in predicted.items()]
        return cls(
            statistics.fmean(parts) if parts else 0.0,
            sum(part <= SMALL for part in parts),
            len(parts),
        )


def factor(ratios: Sequence[float]) -> float:
    """Return the geometric mean of the factors by which predictions are too high or low."""
    return math.exp(statistics.mean(abs(math.log(ratio)) for ratio in ratios))
