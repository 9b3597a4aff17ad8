"""The model's three constants, from Comet's rows alone."""

import math
from dataclasses import astuple
from functools import cache

import numpy as np
from scipy.optimize import least_squares

from benchmarks.model_rows import FACTOR, FITTED_ON, TOTALS, Constants, at_work, cases, stated

#: Where the search begins, and the size of a step: s.
BEGIN = Constants(t_lock=10e-6, t_request=1e-6, t_open=0.1)


@cache
def fit() -> tuple[Constants, Constants]:
    """Least squares of what each row differs by, in units of what is allowed.

    Returns
    -------
    tuple of Constants
        The constants, and their standard errors, s.
    """
    rows = [case for case in cases() if case.cluster == FITTED_ON]
    totals = [statement for statement in stated() if statement.what in TOTALS]
    scale = np.array(astuple(BEGIN))

    def residuals(scaled: np.ndarray) -> list[float]:
        constants = Constants(*(scaled * scale))
        times = [(at_work(row.predict(constants)) - row.measured) / row.allowed for row in rows]
        ratios = [total.of(total.case.predict(constants)) / total.measured for total in totals]
        return [*times, *(math.log(ratio) / math.log(FACTOR) for ratio in ratios)]

    found = least_squares(residuals, np.ones(3), bounds=(0, np.inf), xtol=1e-12, ftol=1e-12)
    n_free = len(found.fun) - 3
    variances = np.diag(np.linalg.inv(found.jac.T @ found.jac)) * 2 * found.cost / n_free
    return Constants(*(found.x * scale)), Constants(*(np.sqrt(variances) * scale))
