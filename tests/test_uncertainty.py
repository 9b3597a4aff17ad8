"""Tests of means of series, and of the coverage of their errors."""

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from paceline.analysis.mean_error import _expected
from paceline.analysis.uncertainty import (
    GroupDifference,
    SeriesMean,
    adjusted_p_values,
    difference_of_groups,
    mean_of_replicas,
    mean_of_series,
    students_t,
)


def autoregressive(rng, correlation, n):
    """Return a series with mean 0, variance 1 and a given correlation of neighbours: g is known."""
    noise = rng.standard_normal(n) * np.sqrt(1 - correlation**2)
    noise[0] = rng.standard_normal()
    return lfilter([1], [1, -correlation], noise)


def inefficiency(correlation):
    return (1 + correlation) / (1 - correlation)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, 0.98])
def test_the_inefficiency_of_autoregressive_series(correlation):
    rng = np.random.default_rng(3)
    g = inefficiency(correlation)
    found = [mean_of_series(autoregressive(rng, correlation, int(1000 * g))) for _ in range(30)]
    # An estimate is at least 1, so that for independent values its mean is above 1.
    assert np.mean([one.inefficiency for one in found]) == pytest.approx(g, rel=0.35)
    # Two estimates of the same error.
    errors = [one.block_error / one.error for one in found]
    assert np.median(errors) == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize(
    ("correlation", "n_independent"), [(0.0, 200), (0.5, 50), (0.9, 20), (0.9, 50), (0.9, 200)]
)
def test_the_interval_holds_in_95_of_100(correlation, n_independent):
    rng = np.random.default_rng(11)
    n = int(n_independent * inefficiency(correlation))
    found = [mean_of_series(autoregressive(rng, correlation, n), blocks=False) for _ in range(1000)]
    held = np.mean([abs(one.mean) <= one.interval for one in found])
    assert 0.94 <= held <= 0.985


def test_noise_does_not_hide_a_slow_part():
    """Check series with a slow component: 5 % of the variance, correlation time 0.15 of the run."""
    rng = np.random.default_rng(4)
    slow = np.exp(-1 / 300)
    series = [
        np.sqrt(0.95) * rng.standard_normal(2000) + np.sqrt(0.05) * autoregressive(rng, slow, 2000)
        for _ in range(400)
    ]
    found = [mean_of_series(one, blocks=False) for one in series]
    # If g is summed from the autocorrelation up to its first zero, only 57 % of the intervals
    # contain the mean, and 99 % of the series count as converged.
    assert np.mean([abs(one.mean) <= one.interval for one in found]) > 0.8
    assert np.mean([one.converged for one in found]) < 0.65


def test_a_series_that_jumps_between_two_values_few_times_is_not_converged():
    rng = np.random.default_rng(6)
    jumps = np.where(rng.random((200, 2000)) < 10 / 2000, -1.0, 1.0)
    start = np.where(rng.random((200, 1)) < 0.5, -1.0, 1.0)
    found = [mean_of_series(one) for one in start * jumps.cumprod(axis=1) if np.ptp(one)]
    assert np.mean([one.converged for one in found]) < 0.2


def test_expected_periodograms_are_sums_over_lags():
    frequencies = np.array([0.0, 1.0, 3.0])
    for n in (7, 50):
        lags = np.arange(1, n)
        for time in (0.0, 0.7, 3.0, 50.0, 400.0):
            correlation = np.exp(-lags / time) if time else np.zeros(n - 1)
            waves = np.cos(2 * np.pi * np.outer(frequencies, lags) / n)
            wanted = 1 + 2 * waves @ ((1 - lags / n) * correlation)
            found = _expected(np.array([time]), frequencies, n)[0]
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_few_independent_values_are_not_converged():
    rng = np.random.default_rng(2)
    found = mean_of_series(autoregressive(rng, 0.99, 1000))
    assert found.least_independent < 10
    assert not found.converged
    assert "not converged" in str(found)
    assert found.short.endswith("not converged")
    long = mean_of_series(autoregressive(rng, 0.5, 10_000))
    assert long.converged
    assert "converged" not in str(long)
    assert long.short.startswith("mean ")


def test_a_drift_is_not_converged():
    assert not mean_of_series(np.linspace(0, 1, 10_000)).converged


def test_values_that_are_missing_or_few():
    series = np.random.default_rng(5).standard_normal(400)
    with_gaps = np.insert(series, [0, 17, 400], np.nan)
    assert mean_of_series(with_gaps) == mean_of_series(series)
    for values in ([], [1.0], [1.0, 2.0, 3.0], [np.nan] * 9):
        found = mean_of_series(np.array(values))
        assert np.isnan([found.error, found.interval, found.block_error]).all()
        assert not found.converged
        assert ("a single value" if len(values) == 1 else "too few values") in str(found)
    constant = mean_of_series(np.full(100, 3.5))
    assert (constant.mean, constant.error, constant.converged) == (3.5, 0.0, True)
    assert np.isnan(constant.interval)
    assert str(constant) == "3.5, constant in all 100 values"
    assert constant.short == "mean 3.5, constant"
    infinite = np.insert(series, [0, 17, 400], [np.inf, -np.inf, np.inf])
    assert mean_of_series(infinite) == mean_of_series(series)
    assert np.isnan(mean_of_series(np.array([1e308, 1e308, 0, 0, 1.0])).error)


def test_numbers_are_written_without_zeros_or_powers_that_nobody_reads():
    independent = SeriesMean(10982.4, 1000, 1.0, 0.5, 130.0, 900.0, 0.4)
    expected = "10982 ± 130 (95 %), 1000 values, all of them independent, block error 0.4"
    assert str(independent) == expected
    few = SeriesMean(10982.4, 98, 31.0, 600.0, 1191.0, 2.0, 130.0)
    assert str(few).endswith(
        "98 values, about 3 of them independent, block error 130, not converged"
    )
    assert few.with_unit("Å") == (
        "10982 ± 1191 Å (95 %), 98 values, about 3 of them independent, block error 130 Å, "
        "not converged"
    )
    assert few.short == "mean 10982 ± 1191 (95 %), not converged"
    assert str(SeriesMean(2e-9, 100, 1.0, 1e-10, 2e-10, 90.0, 1e-10)).startswith(
        "(2.00 ± 0.20)·10⁻⁹ "
    )


def test_the_scale_does_not_matter():
    series = np.random.default_rng(6).standard_normal(3000).cumsum()
    one, other = mean_of_series(series), mean_of_series(1e8 * series)
    assert other.inefficiency == pytest.approx(one.inefficiency)
    assert other.error == pytest.approx(1e8 * one.error)


@pytest.mark.parametrize("n_replicas", [2, 3, 8])
def test_the_interval_between_replicas_holds_in_95_of_100(n_replicas):
    """Check replicas that are short series, each around its own mean."""
    rng = np.random.default_rng(4)
    of_replicas = rng.normal(0, 1, (n_replicas, 4000))
    means = of_replicas + rng.normal(0, 0.01, (50, n_replicas, 4000)).mean(axis=0)
    found = mean_of_replicas(means)
    assert found.mean.shape == (4000,)
    assert 0.94 <= np.mean(np.abs(found.mean) <= found.interval) <= 0.96


def test_differences_are_welch_s():
    rng = np.random.default_rng(8)
    first, second = rng.normal(1, 1, (3, 500)), rng.normal(1, 4, (6, 500))
    found = difference_of_groups(mean_of_replicas(first), mean_of_replicas(second))
    of_lists = difference_of_groups(list(first), list(second))
    np.testing.assert_array_equal(of_lists.difference, found.difference)
    wanted = stats.ttest_ind(second, first, equal_var=False)
    low, high = wanted.confidence_interval(0.95)
    np.testing.assert_allclose(found.difference - found.interval, low)
    np.testing.assert_allclose(found.difference + found.interval, high)
    np.testing.assert_allclose(found.n_free, wanted.df)
    assert 0.93 <= np.mean(np.abs(found.difference) <= found.interval) <= 0.97


def test_replicas_that_are_few_missing_or_alike():
    values = np.array([[1.0, np.nan, np.nan], [3.0, 2.0, np.nan], [5.0, np.nan, np.nan]])
    found = mean_of_replicas(values)
    assert found.n_replicas.tolist() == [3, 1, 0]
    np.testing.assert_array_equal(found.mean, [3.0, 2.0, np.nan])
    np.testing.assert_allclose(found.interval, [stats.t.ppf(0.975, 2) * 2 / 3**0.5, np.nan, np.nan])
    one = mean_of_replicas([2.0])
    assert "no interval" in str(one)
    assert "no interval" in str(difference_of_groups(one, mean_of_replicas([1.0, 2.0])))


def test_replicas_of_one_value_have_no_interval():
    """Check two equal means: their spread is unknown, and not 0."""
    alike = mean_of_replicas([2.0, 2.0])
    for other in ([3.0, 3.0], [2.5, 3.5]):
        both = difference_of_groups(alike, mean_of_replicas(other))
        assert both.difference == 1
        assert np.isnan(both.interval)
        assert str(both).startswith("1, no interval: ")
    assert np.isnan(alike.interval)
    assert str(alike) == "2, 2 replicas with equal values: no interval between replicas"
    assert alike.short == "mean 2, 2 replicas with equal values"
    assert "±" not in f"{alike} {alike.short}"


def test_arrays_are_written_too():
    values = np.array([[[1.0, 2.0]], [[3.0, 2.0]], [[5.0, 5.0]]])
    found = mean_of_replicas(values)
    assert str(found) == "[[3. 3.]] ± [[4.9683 4.3027]] (95 % between 3 replicas)"
    difference = difference_of_groups(found, mean_of_replicas(values[::-1] + 1))
    assert str(difference).startswith("[[1. 1.]] ± [[")
    assert str(mean_of_replicas(np.empty((0, 2)))).startswith("[nan nan] ± [nan nan]")
    assert len(str(mean_of_replicas(np.zeros((2, 1000, 1000))))) < 2000


def test_a_detectable_difference_is_shown_with_80_percent_power():
    rng = np.random.default_rng(1)
    first, second = rng.standard_normal((2, 3, 4000))
    exact = GroupDifference(np.array(1.0), np.array(np.sqrt(2 / 3)), np.array(4.0)).detectable
    shown = difference_of_groups(mean_of_replicas(first), mean_of_replicas(second + exact))
    pooled = np.sqrt((first.var(axis=0, ddof=1) + second.var(axis=0, ddof=1)) / 3)
    assert np.mean(np.abs(shown.difference) > students_t(4.0) * pooled) == pytest.approx(
        0.8, abs=0.02
    )
    alone = difference_of_groups(mean_of_replicas([1.0]), mean_of_replicas([1.0, 2.0]))
    assert np.isnan(alone.detectable)
    assert np.isnan(alone.p_value)


def test_false_discoveries_are_limited():
    rng = np.random.default_rng(1)
    p_values = rng.uniform(size=(500, 200))
    assert np.mean([(adjusted_p_values(one) <= 0.05).any() for one in p_values]) < 0.08
    skewed = p_values[0] ** 3
    np.testing.assert_allclose(adjusted_p_values(skewed), stats.false_discovery_control(skewed))
    assert np.isnan(adjusted_p_values(np.full(3, np.nan))).all()


def test_groups_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"found \(\) and \(2,\): give one row per replica"):
        difference_of_groups([1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]])
