"""Tests of confidence intervals by blocks of origins: the definition, and the coverage."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.coverage import (
    conductivity_coverage,
    dielectric_coverage,
    presence_coverage,
    relaxation_coverage,
)
from paceline.analysis.lag_time_confidence_intervals import (
    block_products,
    block_starts,
    jackknife_interval,
    time_with_interval,
)


@pytest.mark.parametrize("gaps", [[], [3, 17, 49]])
def test_pairs_belong_to_the_block_of_their_first_frame(gaps):
    rng = np.random.default_rng(1)
    series = rng.normal(size=(53, 3))
    series[gaps] = np.nan
    found = block_products(series, np.array(gaps, int))
    starts = [0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 53]
    assert block_starts(53, 10).tolist() == starts
    assert found.sums.shape == found.counts.shape == (10, 11)
    known = ~np.isnan(series[:, 0])
    for block in range(10):
        for lag in range(11):
            origins = [
                t
                for t in range(starts[block], min(starts[block + 1], 53 - lag))
                if known[t] and known[t + lag]
            ]
            wanted = sum(series[t] @ series[t + lag] for t in origins)
            assert found.counts[block, lag] == len(origins)
            assert found.sums[block, lag] == pytest.approx(wanted, abs=1e-12)
    some = found.without_each()[4, 7]
    others = [k for k in range(10) if k != 4]
    assert some == pytest.approx(found.sums[others, 7].sum() / found.counts[others, 7].sum())


def test_runs_that_are_short_have_no_blocks():
    assert block_products(np.ones((19, 3)), np.empty(0, int)) is None
    assert block_starts(100, 21).tolist() == [0, 100]
    assert len(block_starts(100, 20)) == 11


def test_of_a_mean_the_jackknife_is_student_s():
    values = np.random.default_rng(2).normal(size=(10, 4))
    without = (values.sum(axis=0) - values) / 9
    wanted = stats.t.ppf(0.975, 9) * values.std(axis=0, ddof=1) / 10**0.5
    np.testing.assert_allclose(jackknife_interval(without), wanted)
    assert np.isnan(jackknife_interval(np.ones(10)))
    assert np.isnan(jackknife_interval(np.array([1.0, np.nan, 3.0])))


def test_times_are_written_with_their_interval():
    assert time_with_interval(12.345, 0.678, converged=True) == "12.35 ± 0.68 ps (95 %)"
    assert time_with_interval(12.345, 3, converged=False).endswith("(95 %), not converged")
    assert time_with_interval(12.345, np.nan, converged=False) == (
        "12.35 ps, no interval, not converged"
    )


@pytest.mark.parametrize(
    ("measure", "arguments", "least"),
    [
        (conductivity_coverage, (200, 200), 0.89),
        (dielectric_coverage, (60, 200), 0.83),
        (relaxation_coverage, (60, 200), 0.83),
        (presence_coverage, (60, 100, 10, "continuous"), 0.83),
        (presence_coverage, (60, 100, 10, "intermittent"), 0.83),
    ],
)
def test_intervals_hold_what_is_known(measure, arguments, least):
    """The seed is fixed. With few repetitions, the coverage of 95 % may be 10 % lower."""
    assert measure(*arguments) >= least
