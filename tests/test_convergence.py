"""Tests of verdicts on time series: known starts, states, angles, replicas, and unusual input."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.signal import lfilter
from scipy.stats import chi2

import paceline
from benchmarks.bench_verdicts import LOGARITHMIC, TableCase, at_times, measure_tables
from paceline.analysis.convergence import latest_start
from paceline.analysis.convergence_of_table_series import (
    count_verdicts,
    equilibrated_start,
    replica_verdict,
    table_verdicts,
)
from paceline.analysis.equilibration import averages, crossings_of_states
from paceline.analysis.figures import ShownVerdicts, draw
from paceline.analysis.replica_diagnostics import effective_size, rank_normalised_r_hat
from paceline.analysis.results import Results
from paceline.analysis.saved_table_format import read_saved
from paceline.analysis.table import Table
from paceline.analysis.uncertainty import mean_of_series

N = 2000


def autoregressive(time: float, n: int = N, seed: int = 1) -> np.ndarray:
    """Make an autoregressive series of variance 1; the correlation time is in values."""
    factor = np.exp(-1 / time)
    noise = np.random.default_rng(seed).standard_normal(n)
    noise[1:] *= np.sqrt(1 - factor**2)
    return lfilter([1], [1, -factor], noise)


class TestOneSeries:
    def test_an_equilibrated_series_is_sampled(self):
        series = 3 + autoregressive(5)
        found = paceline.convergence(series)
        assert found.verdict == "sampled"
        assert found.equilibrated_from == 0
        assert found.interval[0] < 3 < found.interval[1]
        assert found.mean == found.mean_of_all == pytest.approx(series.mean())
        assert found.needed_time == 0
        assert 100 < found.n_independent < 300  # N / g is 182

    def test_a_slow_series_is_not_shown_to_be(self):
        found = paceline.convergence(autoregressive(300))
        assert found.verdict == "not shown to be sampled"
        assert found.least_independent < 10
        assert 0 <= found.needed_interval[0] <= found.needed_interval[1] == found.needed_time
        assert found.needed_time > N

    @pytest.mark.parametrize("time", [20, 67, 150])
    def test_the_start_is_found(self, time):
        decay = 5 * np.exp(-np.arange(N) / time)
        best = np.argmin(
            [decay[k:].mean() ** 2 + 2 * 2 / (N - k) for k in range(N)]
        )  # minimum of squared bias plus variance
        starts = [
            paceline.convergence(decay + autoregressive(2, seed=seed)).equilibrated_from
            for seed in range(20)
        ]
        assert np.mean(np.abs(np.array(starts) - best) <= 2 * time) >= 0.9

    def test_no_start_is_found_in_stationary_series(self):
        starts = [
            paceline.convergence(autoregressive(10, seed=seed)).equilibrated_from
            for seed in range(100)
        ]
        assert np.count_nonzero([start != 0 for start in starts]) <= 6

    def test_a_drift_is_one(self):
        found = paceline.convergence(autoregressive(5) + 3 * np.linspace(0, 1, N))
        assert found.verdict == "drifting"
        assert found.equilibrated_from is None
        assert np.isnan(found.needed_time)

    def test_the_needed_time_is_unknown_where_length_is_not_the_reason(self):
        halves = np.concatenate([autoregressive(5), autoregressive(5, seed=2) + 20])
        found = paceline.convergence(halves, replicas=np.repeat([0, 1], N))
        assert found.verdict == "not shown to be sampled"
        assert np.isnan(found.needed_time)
        angles = np.random.default_rng(4).uniform(-180, 180, N)
        found = paceline.convergence(angles, kind="angle")
        assert found.reasons[0] == "no direction is preferred"
        assert np.isnan(found.needed_time)

    def test_two_states_that_change_rarely(self):
        states = np.where(np.arange(N) // 400 % 2, 1.0, -1.0)
        found = paceline.convergence(states + 0.2 * autoregressive(2))
        assert found.verdict == "not shown to be sampled"
        assert any("two states" in reason for reason in found.reasons)
        assert crossings_of_states(states)[0] == 4

    def test_a_precision_is_asked_for(self):
        series = autoregressive(5)
        wide = paceline.convergence(series, precision=0.05)
        assert wide.verdict == "not shown to be sampled"
        half = (wide.interval[1] - wide.interval[0]) / 2
        assert wide.needed_interval[0] == pytest.approx(N * ((half / 0.05) ** 2 - 1))
        assert wide.needed_time >= wide.needed_interval[0]
        assert paceline.convergence(series, precision=1.0).verdict == "sampled"

    @pytest.mark.parametrize(("time", "n"), [(100, N), (40, N), (10, 300)])
    def test_longer_series_are_sampled(self, time, n):
        found = []
        for seed in range(40):
            series = autoregressive(time, 40 * n, seed)
            short = paceline.convergence(series[:n])
            if short.verdict == "not shown to be sampled":
                probable, cautious = short.needed_interval
                assert 1 <= probable <= cautious == short.needed_time
                ends = (n + int(one) + 1 for one in short.needed_interval)
                found.append([paceline.convergence(series[:end]).verdict for end in ends])
        probable, cautious = np.mean(np.array(found) == "sampled", axis=0)
        assert 0.5 < probable <= cautious
        assert cautious > 0.7

    @pytest.mark.parametrize(
        ("half", "precision", "text"),
        [
            (0.0961, 0.0958, "± 0.0961 is wider than ± 0.0958"),
            (0.09996, 0.0958, "± 0.1 is wider than ± 0.0958"),
            (0.1004, 0.1, "± 0.1004 is wider than ± 0.1"),
            (31.26, 0.5, "± 31 is wider than ± 0.5"),
            (2.04e-7, 2e-7, "± 2.04e-07 is wider than ± 2e-07"),
        ],
    )
    def test_the_interval_has_digits_that_differ_from_the_precision(self, half, precision, text):
        noise = np.random.default_rng(1).standard_normal(100)
        factor = half / paceline.convergence(noise).half_width
        found = paceline.convergence(factor * noise, precision=precision)
        assert f"the interval of {text}" in found.reasons

    def test_numbers_in_a_reason_have_digits_that_differ(self):
        rng, values = np.random.default_rng(0), np.arange(N)
        jumps = 300 + 0.002 * rng.standard_normal(N) + 0.02 * ((values >= 1000) & (values < 1600))
        reasons = f"{paceline.convergence(jumps)}"
        number = r"(300\.?\d*)"
        for pattern, expected in (
            (f"two states .about {number} and {number}. only twice", [300, 300.02]),
            (f"the means of its halves differ: {number} and {number}", [300, 300.012]),
        ):
            found = [float(one) for one in re.search(pattern, reasons).groups()]
            assert found == pytest.approx(expected, abs=0.001)

    def test_a_precision_of_angles_and_replicas_has_two_times(self):
        narrow, cautious = [], []
        for seed in range(40):
            degrees = (175 + 40 * autoregressive(10, 20 * N, seed) + 180) % 360 - 180
            half = paceline.convergence(degrees[:N], kind="angle").half_width / 2
            found = paceline.convergence(degrees[:N], kind="angle", precision=half)
            assert found.needed_interval[0] == pytest.approx(3 * N)
            assert found.needed_time == found.needed_interval[1] > 3 * N
            ends = (N + int(one) for one in found.needed_interval)
            ones = [paceline.convergence(degrees[:end], kind="angle").half_width for end in ends]
            narrow.append(ones[0] <= half)
            cautious.append(ones[1] <= half)
        assert np.mean(narrow) + 0.1 < np.mean(cautious)
        assert np.mean(cautious) >= 0.65

    def test_replicas_need_at_least_one_further_value(self):
        rng = np.random.default_rng(3)
        values, labels = rng.normal(size=2000), np.repeat(range(4), 500)
        times = 10.0 * np.tile(np.arange(500), 4)
        half = paceline.convergence(values, times, replicas=labels).half_width
        found = paceline.convergence(values, times, replicas=labels, precision=0.9999 * half)
        assert found.needed_interval[0] == 10

    @pytest.mark.parametrize("n_replicas", [2, 4])
    def test_a_precision_of_replicas_is_cautious_by_chi_squared(self, n_replicas):
        values = np.concatenate([autoregressive(5, seed=k) for k in range(n_replicas)])
        labels = np.repeat(np.arange(n_replicas), N)
        half = paceline.convergence(values, replicas=labels).half_width
        found = paceline.convergence(values, replicas=labels, precision=half / 2)
        assert found.needed_interval[0] == pytest.approx(3 * N)
        least = chi2.ppf(0.05, n_replicas - 1) / (n_replicas - 1)
        assert found.needed_time == pytest.approx((4 / least - 1) * N)
        assert found.needed_interval[1] == found.needed_time

    def test_needed_time_has_the_unit_of_the_times(self):
        series = autoregressive(300)
        in_values, in_time = (
            paceline.convergence(series, times) for times in (None, 0.5 * np.arange(N))
        )
        assert in_time.needed_time == pytest.approx(0.5 * in_values.needed_time)

    def test_any_unit_gives_the_same_verdict(self):
        series = autoregressive(20)
        ones = [paceline.convergence(factor * series) for factor in (1.0, 1e-30, 1e200)]
        assert len({(one.verdict, one.equilibrated_from) for one in ones}) == 1


class TestUnevenTimes:
    NOTE = "times are not equally spaced: values are weighted by the time that they stand for"
    #: Steps of 10 ps, and of 100 ps in the second half of the run.
    IN_TWO_STEPS = np.r_[np.arange(0, 10_000, 10.0), np.arange(10_000, 20_001, 100.0)]

    def test_values_are_weighted_by_their_times(self):
        times, rng = self.IN_TWO_STEPS, np.random.default_rng(3)
        series = np.where(times < 10_000, 1.0, 3.0) + 0.01 * rng.standard_normal(len(times))
        found = paceline.convergence(series, times)
        assert found.mean_of_all == pytest.approx(2, abs=0.01)  # without weights 1.18
        assert self.NOTE in found.reasons
        by_steps = np.trapezoid(autoregressive(30, len(times)), times) / np.ptp(times)
        found = paceline.convergence(autoregressive(30, len(times)), times)
        assert abs(found.mean_of_all - by_steps) < 0.05 * found.half_width

    @pytest.mark.parametrize("times", [LOGARITHMIC, IN_TWO_STEPS], ids=["logarithmic", "steps"])
    def test_intervals_hold(self, times):
        found = [
            paceline.convergence(one, times)
            for one in at_times(times, np.ptp(times) / 200)(np.random.default_rng(4), 300)
        ]
        held = np.array([abs(one.mean) <= one.half_width for one in found])
        is_sampled = np.array([one.verdict == "sampled" for one in found])
        assert held.mean() >= 0.93
        assert is_sampled.mean() > 0.8
        assert held[is_sampled].mean() >= 0.93
        assert np.mean([one.verdict == "drifting" for one in found]) <= 0.02
        independent = np.array([one.n_independent for one in found])
        assert 45 < np.median(independent) < 120  # the run has 100 times 2 correlation times

    def test_the_start_is_a_row_of_the_series(self):
        times = self.IN_TWO_STEPS
        series = 0.2 * autoregressive(2, len(times)) + 5 * np.exp(-times / 600)
        found = paceline.convergence(series, times)
        row = found.equilibrated_from
        assert found.equilibrated_at == times[row]
        assert 1500 < times[row] < 6000
        assert found.n_values == len(times) - row
        assert found.length == pytest.approx(times[-1] - times[row], rel=0.01)
        late = paceline.convergence(series[row:], times[row:])
        assert found.mean == pytest.approx(late.mean, abs=0.2 * found.half_width)

    def test_a_start_in_long_steps_begins_with_a_whole_value(self):
        times = LOGARITHMIC[::-1].max() - LOGARITHMIC[::-1]  # long steps first
        series = 0.2 * np.random.default_rng(2).standard_normal(N) + 5 * np.exp(-times / 60)
        found = paceline.convergence(series, times)
        assert 100 < found.equilibrated_at == times[found.equilibrated_from] < 500
        assert found.n_values == N - found.equilibrated_from

    def test_states_stay_states(self):
        times, rng = self.IN_TWO_STEPS, np.random.default_rng(1)
        names = np.where(rng.random(len(times)) < 0.5, "H", "E")
        for values in (names, (names == "H").astype(int)):
            found = paceline.convergence(values, times, kind="states")
            assert found.verdict == "sampled"
            assert self.NOTE in found.reasons
        once = np.where((times > 8000) & (times < 15_000), 5.0, 0.0) + 0.1 * rng.random(len(times))
        found = paceline.convergence(once, times)
        assert re.search(r"two states \(about 0.0\d+ and 5.05\) only twice", f"{found}")
        assert found.mean == pytest.approx(5 * 7000 / 20_000 + 0.05, abs=0.05)

    def test_angles(self):
        times = self.IN_TWO_STEPS
        degrees = 180 + 5 * autoregressive(3, len(times)) + np.where(times < 10_000, -10, 10)
        found = paceline.convergence((degrees + 180) % 360 - 180, times, kind="angle")
        assert found.mean_of_all % 360 == pytest.approx(180, abs=3)  # without weights 172
        assert self.NOTE in found.reasons

    def test_a_hole_and_missing_frames_do_not_count(self):
        whole = 10.0 * np.arange(N)
        gone = np.flatnonzero(np.random.default_rng(1).random(N) < 0.1)
        holes = np.delete(whole, gone), np.r_[whole, 5 * whole[-1] + whole]
        odd_steps = np.cumsum(np.where(np.arange(N) % 2, 10.0, 20.0))
        for times in (*holes, odd_steps):
            series = autoregressive(5, len(times))
            found = paceline.convergence(series, times)
            assert "times are not equally spaced: values count as equally spaced" in found.reasons
            assert found.mean_of_all == pytest.approx(series.mean())

    def test_values_without_time_or_value_are_left_out(self):
        times, series = LOGARITHMIC.copy(), autoregressive(5)
        kept = np.ones(N, bool)
        kept[[5, 900, 1998]] = False
        wanted = paceline.convergence(series[kept], times[kept])
        times[5], series[[900, 1998]] = np.nan, np.nan
        found = paceline.convergence(series, times)
        assert (found.mean, found.interval) == (wanted.mean, wanted.interval)
        assert found.n_values == wanted.n_values == N - 3

    def test_missing_values_do_not_make_times_uneven(self):
        times, series = np.arange(1000.0), autoregressive(3, 1000)
        is_missing = (times > 500) & (times % 10 != 0)
        for odd in (np.nan, np.inf):
            damaged = np.where(is_missing, odd, series)
            found = paceline.convergence(damaged, times)
            assert found.mean_of_all == pytest.approx(series[~is_missing].mean())
            assert found.interval == paceline.convergence(series[~is_missing]).interval
            assert not any("equally spaced" in reason for reason in found.reasons)
            mean = mean_of_series(damaged, times)
            assert not mean.by_time
            assert mean.mean == pytest.approx(series[~is_missing].mean())
        # Rows that are strongly uneven are weighted by time, with missing values, too.
        times = self.IN_TWO_STEPS
        damaged = np.where(times < 10_000, 1.0, 3.0) + 0.01 * autoregressive(3, len(times))
        damaged[::5] = np.nan
        found = paceline.convergence(damaged, times)
        assert self.NOTE in found.reasons
        assert found.mean_of_all == pytest.approx(2, abs=0.02)

    def test_only_short_lived_values_differ(self):
        found = paceline.convergence(np.r_[1.0, 2.0, np.zeros(N - 2)], LOGARITHMIC)
        assert "all values by time are equal" in found.reasons or found.mean < 1e-2

    def test_replicas(self):
        rng = np.random.default_rng(6)
        values = at_times(LOGARITHMIC)(rng, 4)
        labels = np.repeat(np.arange(4), N)
        found = paceline.convergence(values.ravel(), np.tile(LOGARITHMIC, 4), labels)
        ones = [paceline.convergence(one, LOGARITHMIC) for one in values]
        assert found.verdict == "sampled"
        assert found.mean == pytest.approx(np.mean([one.mean for one in ones]))
        assert found.n_values == 4 * N

    def test_a_table_has_the_same_mean(self):
        series = 4 + autoregressive(5)
        columns = {"time (ps)": LOGARITHMIC, "Rg (Å)": series, "φ (°)": 60 + 10 * series}
        for title, label in (("Rg (Å)", "Rg (Å)"), ("φ (°)", "angle (°)")):
            table = Table(columns, "time (ps)", {title: ""}, label, no_mean=title == "φ (°)")
            (verdict,) = table_verdicts(table).values()
            assert verdict.found.mean_of_all != pytest.approx(np.mean(columns[title]), rel=1e-3)
            (text,) = Results(table=table).summary()
            if title == "Rg (Å)":
                (mean,) = table.means().values()
                assert mean.mean == pytest.approx(verdict.found.mean_of_all)
                assert mean.interval == pytest.approx(verdict.found.half_width)
                assert "Å (95 %), weighted by time, 2000 values" in text
                assert mean.short.endswith("(95 %), weighted by time")
            else:
                assert f"circular mean {verdict.found.mean_of_all:.1f}°, weighted by time" in text


class TestOddInput:
    @pytest.mark.parametrize(
        ("values", "reason"),
        [
            ([], "no values (20 are needed)"),
            ([1.0], "only 1 value (20 are needed)"),
            ([1.0, 2.0], "only 2 values (20 are needed)"),
            ([np.nan] * 10, "no values (20 are needed)"),
            ([2.0] * 50, "all 50 values are equal"),
            ([3.1] * 1000, "all 1,000 values are equal"),  # their mean is rounded
            ([1.5e308, 1.6e308] * 4, "have no finite mean"),
        ],
    )
    def test_nothing_is_known(self, values, reason):
        found = paceline.convergence(np.array(values))
        assert found.verdict == "not shown to be sampled"
        assert any(reason in one for one in found.reasons)
        assert np.isnan(found.interval).all()

    def test_only_equal_values_are_constant(self):
        rng = np.random.default_rng(1)
        noise = rng.standard_normal(N)
        halves = np.repeat([0, 1], N // 2)
        assert not paceline.convergence(noise[:12], replicas=halves[N // 2 - 6 :][:12]).is_constant
        with np.errstate(over="ignore"):
            assert not paceline.convergence(1e308 * noise).is_constant
            huge = paceline.convergence(1e308 * (3 + noise.clip(-1, 1)), replicas=halves)
        assert not huge.is_constant
        assert not any("equal" in reason for reason in huge.reasons)
        assert not paceline.convergence(halves, replicas=halves).is_constant
        assert not paceline.convergence([2.0] * 3).is_constant
        for values in (np.full(N, 0.1), np.full(N, 350.0), np.r_[np.nan, np.full(N - 1, 3.1)]):
            for kind in ("linear", "angle"):
                assert paceline.convergence(values, kind=kind).is_constant
                assert paceline.convergence(values, replicas=halves, kind=kind).is_constant

    def test_one_jump(self):
        for at in (200, 1000, 1900):
            series = np.where(np.arange(N) < at, 0.0, 5.0) + autoregressive(2)
            assert paceline.convergence(series).verdict != "sampled" or at == 200

    def test_integers_with_two_values(self):
        quick = np.random.default_rng(1).integers(0, 2, N)
        assert paceline.convergence(quick).verdict == "sampled"
        assert paceline.convergence(np.repeat([0, 1, 0], 700)).verdict != "sampled"

    def test_nan_is_left_out_and_indices_stay(self):
        series = autoregressive(2) + 8 * np.exp(-np.arange(N) / 60)
        holes = series.copy()
        holes[::10] = np.nan
        found = paceline.convergence(holes)
        whole = paceline.convergence(series)
        assert "left out: 200 values (NaN or infinite)" in found.reasons
        assert abs(found.equilibrated_from - whole.equilibrated_from) < 120

    def test_rows_without_a_value_are_no_start(self):
        series, times = autoregressive(5), 2.0 * np.arange(N)
        series[:500] = np.nan
        for values in (series, np.where(np.isnan(series), series, 3.0)):
            found = paceline.convergence(values, times)
            assert (found.equilibrated_from, found.equilibrated_at) == (0, 0.0)
            assert found.n_values == N - 500
        late = series + 9 * np.exp(-np.arange(N) / 50 + 10)
        assert paceline.convergence(late).equilibrated_from > 500

    def test_one_0_has_no_sign(self):
        found = paceline.convergence(np.full(N, -0.0))
        assert not np.signbit([found.mean, found.mean_of_all]).any()

    def test_repeated_times_are_left_out(self):
        times = np.arange(N) * 1.0
        times[1000:] -= 1
        found = paceline.convergence(autoregressive(5), times)
        assert "left out: 1 value (at the time of the value before)" in found.reasons

    @pytest.mark.parametrize("n", [4, 5, 8, 12, 19])
    def test_a_few_values_neither_drift_nor_change_states(self, n):
        rng = np.random.default_rng(n)
        for values in (np.arange(n), rng.standard_normal(n), np.repeat([0, 5], n)[: 2 * n : 2]):
            found = paceline.convergence(values)
            assert found.verdict == "not shown to be sampled"
            assert found.reasons[0] == f"only {n} values (20 are needed)"
            assert not any("states" in reason for reason in found.reasons)

    def test_values_without_a_time_are_left_out(self):
        series, times = autoregressive(5), 2.0 * np.arange(N)
        times[[0, 7, 1999]] = np.nan, np.inf, np.nan
        found = paceline.convergence(series, times)
        assert "left out: 3 values (without a time)" in found.reasons
        known = np.isfinite(times)
        assert found.mean == paceline.convergence(series[known]).mean
        assert (found.equilibrated_from, found.equilibrated_at) == (1, 2.0)

    def test_masked_values_are_left_out(self):
        series = autoregressive(5)
        masked = np.ma.masked_array(np.where(np.arange(N) % 9, series, 1e9), np.arange(N) % 9 == 0)
        found = paceline.convergence(masked)
        assert found.mean == pytest.approx(masked.mean())
        assert found.n_values == masked.count()

    @pytest.mark.parametrize("values", [["a", "b"] * 20, np.ones(30) * 1j])
    def test_what_is_no_number_is_refused(self, values):
        with pytest.raises(ValueError, match="expected real numbers, found"):
            paceline.convergence(values)

    def test_two_states_about_0_are_named(self):
        found = paceline.convergence(np.r_[np.zeros(300), np.ones(2), np.zeros(200)])
        assert any("(about 0 and 1) only twice" in reason for reason in found.reasons)

    @pytest.mark.parametrize("n_changes", [0, 3, 19, 20])
    def test_each_of_two_states_must_be_left_ten_times(self, n_changes):
        state = np.arange(N) * (n_changes + 1) // N % 2
        found = paceline.convergence(8 * state + autoregressive(3))
        few = [reason for reason in found.reasons if "changed between two states" in reason]
        assert bool(few) is (0 < n_changes < 20)

    @pytest.mark.parametrize("n", [20, 30, 100])
    def test_the_first_frame_of_an_rmsd_is_no_state(self, n):
        values = 2 + 0.3 * autoregressive(0.5, n)
        values[0] = 0
        found = paceline.convergence(values)
        assert not any("two states" in reason for reason in found.reasons)
        assert 1 <= found.equilibrated_from <= n / 4

    @pytest.mark.parametrize("first", [150, 400, 600, 800, 1200, 1600])
    def test_a_single_jump_is_no_equilibration(self, first):
        series = np.where(np.arange(N) < first, 8.0, 0.0) + 0.7 * autoregressive(3)
        for one in (series, -series):
            found = paceline.convergence(one)
            assert found.verdict == "not shown to be sampled"
            assert any("two states" in reason and "only once" in reason for reason in found.reasons)
            # Either state may be the more probable one, so that no values are left out.
            assert found.equilibrated_from == 0
            assert found.mean == found.mean_of_all
            # One change in the whole run: 20 are needed.
            assert min(found.needed_interval) >= 19 * N

    @pytest.mark.parametrize("first", [300, 700, 1400])
    def test_a_single_change_of_an_angle_or_a_state_is_no_drift(self, first):
        is_later = np.arange(N) >= first
        degrees = np.where(is_later, 170.0, -60.0) + 5 * autoregressive(3)
        found = paceline.convergence(degrees, kind="angle")
        assert "it turned between two directions only once" in found.reasons
        assert (found.verdict, found.equilibrated_from) == ("not shown to be sampled", 0)
        found = paceline.convergence(np.where(is_later, "E", "H"), kind="states")
        assert "the state is entered or left only once" in found.reasons
        assert (found.verdict, found.equilibrated_from) == ("not shown to be sampled", 0)
        assert found.mean_of_all in (pytest.approx(first / N), pytest.approx(1 - first / N))

    @pytest.mark.parametrize("size", [5, 50, 1000])
    @pytest.mark.parametrize("time", [500, 1000, 4000])
    def test_a_long_decay_drifts(self, size, time):
        series = size * np.exp(-np.arange(N) / time) + autoregressive(3)
        for one in (series, -series):
            assert paceline.convergence(one).verdict == "drifting"

    @pytest.mark.parametrize("size", [8, 50, 1000])
    @pytest.mark.parametrize("time", [0.3, 3, 50, 150])
    def test_a_start_that_decays_is_no_state(self, size, time):
        series = size * np.exp(-np.arange(N) / time) + autoregressive(3)
        assert paceline.convergence(series).verdict == "sampled"
        # A start that is short with respect to the run is no state, even if it is flat.
        series = np.where(np.arange(N) < 40, float(size), 0.0) + autoregressive(3)
        found = paceline.convergence(series)
        assert not any("two states" in reason for reason in found.reasons)

    def test_wrong_arguments(self):
        series = autoregressive(5)
        times = np.arange(N) * 1.0
        times[1000:] -= 500
        with pytest.raises(ValueError, match="times decrease from 999 to 500 at value 1000"):
            paceline.convergence(series, times)
        with pytest.raises(ValueError, match="expected 2000 times"):
            paceline.convergence(series, times[:10])
        with pytest.raises(ValueError, match="expected 2000 replicas"):
            paceline.convergence(series, replicas=np.zeros(3))
        with pytest.raises(ValueError, match="kind must be one of linear, angle, states"):
            paceline.convergence(series, kind="circular")
        with pytest.raises(ValueError, match="precision must be above 0"):
            paceline.convergence(series, precision=0.0)
        with pytest.raises(ValueError, match=r"expected values of shape \(n_values,\)"):
            paceline.convergence(series.reshape(2, -1))


class TestAngles:
    def test_the_mean_is_circular(self):
        degrees = 175 + 20 * autoregressive(5)
        for turned in (degrees, (degrees + 180) % 360 - 180, degrees + 720):
            found = paceline.convergence(turned, kind="angle")
            assert found.verdict == "sampled"
            assert (found.mean - 175 + 180) % 360 - 180 == pytest.approx(0, abs=5)
            assert 1 < (found.interval[1] - found.interval[0]) / 2 < 6

    def test_an_angle_without_direction(self):
        found = paceline.convergence(np.random.default_rng(1).uniform(0, 360, N), kind="angle")
        assert found.verdict == "not shown to be sampled"

    @pytest.mark.parametrize("degrees", [350.0, -10.0, 710.0])
    def test_means_are_between_minus_180_and_180(self, degrees):
        noise = np.random.default_rng(1).standard_normal(N)
        for width in (0, 1e-3):
            values = degrees + width * noise
            found = paceline.convergence(values, kind="angle")
            assert found.mean == pytest.approx(-10, abs=1e-3)
            assert found.mean_of_all == pytest.approx(-10, abs=1e-3)
            values[::2] -= 360
            found = paceline.convergence(values, kind="angle")
            assert found.mean == pytest.approx(-10, abs=1e-3)
            assert found.is_constant is (width == 0)
            together = paceline.convergence(
                np.r_[values, values[::-1]], replicas=np.repeat([0, 1], N), kind="angle"
            )
            assert together.mean == pytest.approx(-10, abs=1e-3)
        for values in ([179.0, -179.0], [180.0] * N, [-180.0] * N, [180.0, -180.0] * N):
            assert paceline.convergence(values, kind="angle").mean == 180
        around = 180 + autoregressive(1, 2 * N)
        for one in (around, around - 360):
            found = paceline.convergence(one, replicas=np.repeat([0, 1], N), kind="angle")
            assert -180 < found.mean <= 180
            assert found.mean % 360 == pytest.approx(180, abs=0.5)

    def test_few_uniform_angles_seem_to_have_a_direction(self):
        angles = np.random.default_rng(3).uniform(-180, 180, (400, 300))
        found = [paceline.convergence(one, kind="angle") for one in angles]
        assert np.mean([one.verdict == "sampled" for one in found]) <= 0.07
        narrow = [one.half_width for one in found if one.half_width < 180]
        assert max(narrow) <= np.degrees(np.arcsin(1 / 1.25))

    def test_an_angle_that_turned_once(self):
        degrees = np.where(np.arange(N) < 900, -60.0, 170.0) + 15 * autoregressive(3)
        assert paceline.convergence(degrees, kind="angle").verdict != "sampled"

    def test_an_angle_that_turns_rarely(self):
        degrees = np.where(np.arange(N) // 500 % 2, -60.0, 170.0) + 5 * autoregressive(1)
        found = paceline.convergence(degrees, kind="angle")
        assert "it turned between two directions only 3 times" in found.reasons


class TestStates:
    def test_the_worst_state_is_named(self):
        rng = np.random.default_rng(1)
        letters = np.where(rng.random(N) < 0.5, "H", "E")
        assert paceline.convergence(letters, kind="states").verdict == "sampled"
        letters[700:1100] = "C"
        found = paceline.convergence(letters, kind="states")
        assert found.verdict != "sampled"
        assert any(reason.endswith("is sampled worst") for reason in found.reasons)
        assert f"of 3 states, {found.state} is sampled worst" in found.reasons
        assert found.mean_of_all == pytest.approx(np.mean(letters == found.state))
        assert paceline.convergence(letters == "C").state == ""
        assert 0 < found.mean_of_all < 1

    def test_a_state_that_is_seen_once(self):
        numbers = np.random.default_rng(1).integers(0, 3, N)
        numbers[700] = 7
        found = paceline.convergence(numbers, kind="states")
        assert found.verdict == "not shown to be sampled"
        assert found.reasons == (
            "of 4 states, 7 is sampled worst",
            "the state is entered or left only twice",
        )
        with pytest.raises(ValueError, match=r"whole numbers of states, found [0-9]+\.5"):
            paceline.convergence(numbers + 0.5, kind="states")

    def test_many_states_do_not_drift_by_chance(self):
        rng = np.random.default_rng(5)
        populations = 1 / np.arange(1, 41)
        drawn = rng.choice(40, (40, 1000), p=populations / populations.sum())
        found = [paceline.convergence(one, kind="states").verdict for one in drawn]
        assert found.count("drifting") <= 2

    @pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
    def test_values_that_are_not_finite_are_no_states(self, odd):
        numbers = np.random.default_rng(1).integers(1, 3, N).astype(float)
        numbers[::4] = odd
        found = paceline.convergence(numbers, kind="states")
        assert found.reasons[0] == "state 1"
        assert "left out: 500 values (NaN or infinite)" in found.reasons
        assert found.mean == np.mean(numbers[np.isfinite(numbers)] == 1)
        assert found.n_values == 1500
        labels = np.arange(N) % 3
        found = paceline.convergence(numbers, replicas=labels, kind="states")
        assert found.state in ("1", "2")
        assert found.n_values == 1500

    def test_the_interval_of_a_rare_state_is_asymmetric(self):
        states = (np.random.default_rng(3).random(500) < 0.02).astype(int)
        found = paceline.convergence(states, kind="states")
        low, high = found.interval
        assert 0 < low < found.mean < high < 1
        # Each limit is where the score test just accepts (Wilson 1927).
        squares = [(found.mean - one) ** 2 / (one * (1 - one)) for one in (low, high)]
        assert squares[0] == pytest.approx(squares[1])
        rare = found.mean if found.mean < 0.5 else 1 - found.mean
        assert (high - found.mean > found.mean - low) == (rare == found.mean)
        columns = {"time (ps)": np.arange(500.0), "state": states}
        table = Table(columns, "time (ps)", {"state": ""}, "")
        (one,) = table_verdicts(table, kind="states").values()
        assert one.mean_text == f"state 0: {found.mean:.3f} ({low:.3f} to {high:.3f})"

    def test_the_interval_between_replicas_lies_between_0_and_1(self):
        rng = np.random.default_rng(5)
        states = np.concatenate([(rng.random(400) < rate).astype(int) for rate in (0.01, 0.05)])
        found = paceline.convergence(states, replicas=np.repeat([0, 1], 400), kind="states")
        assert 0 <= found.interval[0] < found.mean < found.interval[1] <= 1
        assert found.mean == pytest.approx(np.mean(states == int(found.state)))

    def test_the_reason_has_the_interval_that_is_shown(self):
        rng = np.random.default_rng(5)
        states = np.concatenate([(rng.random(400) < rate).astype(int) for rate in (0.01, 0.05)])
        labels = np.repeat([0, 1], 400)
        found = paceline.convergence(states, replicas=labels, kind="states", precision=0.001)
        assert f"the interval of ± {found.half_width:.2g} is wider than ± 0.001" in found.reasons
        half = found.half_width + 1e-6
        found = paceline.convergence(states, replicas=labels, kind="states", precision=half)
        assert not any("wider" in reason for reason in found.reasons)


class TestReplicas:
    def make(self, means, time=5.0, lengths=None):
        lengths = lengths or [N] * len(means)
        series = [
            mean + autoregressive(time, n, seed=k)
            for k, (mean, n) in enumerate(zip(means, lengths, strict=True))
        ]
        return np.concatenate(series), np.repeat(np.arange(len(means)), lengths)

    def test_replicas_agree(self):
        values, labels = self.make([0, 0, 0, 0])
        found = paceline.convergence(values, replicas=labels)
        assert found.verdict == "sampled"
        assert (found.needed_time, found.needed_interval) == (0, (0, 0))
        assert found.interval[0] < 0 < found.interval[1]
        assert any("4 replicas agree" in reason for reason in found.reasons)

    def test_replicas_differ(self):
        values, labels = self.make([0, 0, 2])
        found = paceline.convergence(values, replicas=labels)
        assert found.verdict == "not shown to be sampled"
        assert any("replica 2 most" in reason for reason in found.reasons)

    def test_halves_differ_where_replicas_do_not(self):
        drift = np.concatenate([np.linspace(0, 5, 500) + autoregressive(1, 500, k) for k in (1, 2)])
        reasons = paceline.convergence(drift, replicas=np.repeat([1, 2], 500)).reasons
        assert any("the halves of the replicas differ" in reason for reason in reasons)
        assert not any("most" in reason for reason in reasons)

    def test_each_stays_in_its_state(self):
        values, labels = self.make([-1, 1, -1, 1], time=1.0)
        assert paceline.convergence(values, replicas=labels).verdict != "sampled"

    def test_lengths_may_differ(self):
        values, labels = self.make([0, 0, 0], lengths=[2000, 1500, 900])
        assert paceline.convergence(values, replicas=labels).verdict == "sampled"

    def test_a_short_replica_counts_as_much_as_a_long_one(self):
        rng = np.random.default_rng(2)
        few, many = rng.standard_normal(40), rng.standard_normal(N)
        labels = np.repeat([0, 1], [len(few), N])
        found = paceline.convergence(np.r_[few, many], replicas=labels)
        ones = [paceline.convergence(one, n_series=2) for one in (few, many)]
        expected = 4 / sum(1 / one.least_independent for one in ones)
        assert found.least_independent == pytest.approx(expected)
        # The variance of the mean of both means is a quarter of the sum of theirs.
        assert found.n_independent == pytest.approx(4 / (1 / 40 + 1 / N), rel=0.3)
        assert found.least_independent <= found.n_independent
        assert "R̂ is of the last 40 equilibrated values of each replica" in found.reasons
        slow = paceline.convergence(np.r_[autoregressive(10, 40), many], replicas=labels)
        assert slow.verdict == "not shown to be sampled"

    def test_copies_are_left_out(self):
        one = autoregressive(5)
        labels = np.repeat(["a", "b"], N)
        found = paceline.convergence(np.concatenate([one, one]), replicas=labels)
        assert "left out: replica b (a copy of replica a)" in found.reasons
        assert found.n_values == N
        single = paceline.convergence(one)
        assert (found.mean, found.interval) == (single.mean, single.interval)

    @pytest.mark.parametrize("odd", [[1.0], [np.nan] * 50])
    def test_replicas_without_values_are_left_out(self, odd):
        values, labels = self.make([0, 0])
        labels = np.r_[labels, np.full(len(odd), 7)]
        found = paceline.convergence(np.r_[values, odd], replicas=labels)
        assert "left out: replica 7 (less than 4 values)" in found.reasons
        assert "2 replicas agree" in found.reasons[0]
        alone = paceline.convergence(np.array(odd), replicas=np.full(len(odd), 7))
        assert alone.verdict == "not shown to be sampled"
        assert paceline.convergence([], replicas=[]).n_values == 0
        with pytest.raises(ValueError, match="replicas must not be NaN"):
            paceline.convergence(values, replicas=np.full(len(values), np.nan))

    @pytest.mark.parametrize("n", [5, 12])
    def test_short_replicas_are_not_shown_to_agree(self, n):
        values = np.random.default_rng(1).standard_normal(6 * n)
        found = paceline.convergence(values, replicas=np.repeat(np.arange(6), n))
        assert found.verdict == "not shown to be sampled"
        expected = f"the shortest replica has only {n} equilibrated values (20 are needed)"
        assert expected in found.reasons
        assert not any("equal" in reason for reason in found.reasons)

    def test_constant_replicas_are_not_shown_to_agree(self):
        labels = np.repeat([0, 1], 50)
        equal = paceline.convergence(np.ones(100), replicas=labels)
        assert equal.reasons == ("all 100 values are equal",)
        differ = paceline.convergence(labels, replicas=labels)
        assert differ.verdict == "not shown to be sampled"
        assert "R̂ is above 100" in differ.reasons[0]

    @pytest.mark.parametrize("decimals", [1, 2, 5])
    def test_rounded_replicas_are_copies(self, decimals):
        values, labels = self.make([0, 0, 0])
        rounded = np.r_[values, np.round(values[:N] + 0.003, decimals)]
        found = paceline.convergence(rounded, replicas=np.r_[labels, np.full(N, 9)])
        wanted = paceline.convergence(values, replicas=labels)
        assert "left out: replica 9 (a copy of replica 0 within rounding)" in found.reasons
        assert (found.mean, found.interval) == (wanted.mean, wanted.interval)

    def test_driven_replicas_are_not_copies(self):
        """Check a motion that is the same in all replicas, and much larger than their noise."""
        pulled = 1e4 * np.linspace(0, 1, N)
        values = np.r_[pulled + autoregressive(3), pulled + autoregressive(3, seed=2)]
        found = paceline.convergence(values, replicas=np.repeat([0, 1], N))
        assert not any("copy" in reason for reason in found.reasons)

    def test_replicas_that_only_start_alike_are_not_copies(self):
        one, other = autoregressive(3), autoregressive(3, seed=2)
        for n_equal in (0.6 * N, 0.8 * N):
            branched = np.where(np.arange(N) < n_equal, one, other)
            found = paceline.convergence(np.r_[one, branched], replicas=np.repeat([0, 1], N))
            assert not any("copy" in reason for reason in found.reasons)
        short = np.r_[one[:30], other[:20]]
        found = paceline.convergence(np.r_[one[:50], short], replicas=np.repeat([0, 1], 50))
        assert not any("copy" in reason for reason in found.reasons)

    def test_the_start_is_the_last_in_time(self):
        decay = 8 * np.exp(-np.arange(N) / 60)
        values = np.r_[autoregressive(2) + decay, autoregressive(2, seed=2) + 0.7 * decay]
        times = np.r_[np.arange(N), 10.0 * np.arange(N)]
        found = paceline.convergence(values, times, np.repeat([0, 1], N))
        assert found.equilibrated_at == 10 * found.equilibrated_from > 1000

    def test_angles_of_replicas(self):
        values, labels = self.make([0, 0, 0])
        found = paceline.convergence(175 + 10 * values, replicas=labels, kind="angle")
        assert found.verdict == "sampled"
        assert found.mean == pytest.approx(175, abs=5) or found.mean == pytest.approx(-185, abs=5)

    def test_the_mean_of_all_angles_of_replicas_is_circular(self):
        values, labels = self.make([0, 0])
        degrees = 5 * values + np.where(labels == 0, 179, -179)
        found = paceline.convergence((degrees + 180) % 360 - 180, replicas=labels, kind="angle")
        assert abs(found.mean) == pytest.approx(180, abs=2)
        assert abs(found.mean_of_all) == pytest.approx(180, abs=2)

    def test_labels_of_whole_numbers_have_no_decimals(self):
        series = np.concatenate([autoregressive(5), autoregressive(5)])
        found = paceline.convergence(series, replicas=np.repeat([1.0, 2.0], N))
        assert "left out: replica 2 (a copy of replica 1)" in found.reasons

    def test_the_effective_sizes_of_bulk_and_tails(self):
        series = np.concatenate([autoregressive(5, seed=k) for k in range(4)])
        found = paceline.convergence(series, replicas=np.repeat(np.arange(4), N))
        expected = 4 * N / (1 + 2 / np.expm1(1 / 5))
        assert found.bulk_size == pytest.approx(expected, rel=0.25)
        assert 0.5 * expected < found.tail_size < 4 * N
        # A replica of larger spread differs in the tails alone.
        wide = np.where(np.arange(4 * N) < N, 4 * series, series)
        other = paceline.convergence(wide, replicas=np.repeat(np.arange(4), N))
        assert other.tail_size < 0.1 * other.bulk_size
        assert np.isnan(paceline.convergence(series[:N]).bulk_size)

    def test_r_hat_and_size_are_those_of_the_definition(self):
        chains = np.array([autoregressive(3, 1000, seed) for seed in range(4)])
        assert rank_normalised_r_hat(chains) < 1.02
        # For an autoregressive series of correlation time t, N / g is N tanh(1 / 2t).
        assert effective_size(chains) == pytest.approx(4000 * np.tanh(1 / 6), rel=0.2)
        assert np.isnan(rank_normalised_r_hat(np.zeros((2, 100))))
        assert np.isnan(effective_size(np.zeros((2, 3))))


def test_the_latest_start_of_a_system():
    quick, slow = (
        paceline.convergence(autoregressive(2) + 6 * np.exp(-np.arange(N) / time))
        for time in (10, 100)
    )
    assert latest_start({"RMSD": quick, "SASA": slow}) == (slow.equilibrated_from, "SASA")
    drifting = paceline.convergence(autoregressive(2) + np.linspace(0, 5, N))
    assert latest_start({"RMSD": quick, "SASA": drifting}) == (None, "SASA")


def test_averages_keep_the_sum():
    values = np.random.default_rng(1).standard_normal(1003)
    bins = averages(values, 64)
    assert bins.sum() * 1003 / 64 == pytest.approx(values.sum())


@pytest.fixture(scope="module")
def swelling():
    """Make a Universe of a chain that first swells, and then fluctuates."""
    rng = np.random.default_rng(1)
    directions = rng.standard_normal((20, 3))
    directions -= directions.mean(axis=0)
    sizes = 1 + 0.02 * autoregressive(3, 600) - 0.5 * np.exp(-np.arange(600) / 15)
    universe = paceline.Universe.empty(20, trajectory=True)
    universe.add_TopologyAttr("masses", np.ones(20))
    universe.load_new((10 * sizes[:, None, None] * directions).astype(np.float32))
    return universe


def test_a_battery_of_equilibrated_frames(swelling):
    from paceline.analysis.battery import Battery

    described = {"gyration": {}, "first": {"analysis": "gyration", "select": "index 0:9"}}
    battery = Battery(described, swelling)
    whole = battery.run().analyses["gyration"]
    assert (
        "from frame" in whole.results.summary()[0] or "sampled from" in whole.results.summary()[0]
    )
    found = battery.run(equilibrated=True)
    frames = found.analyses["gyration"].frames
    assert 20 < frames[0] < 120
    assert frames[-1] == 599
    assert any("frames are left out" in one for one in found.warnings)
    with pytest.raises(paceline.errors.UnsupportedError, match="no frames are equilibrated"):
        battery.run(equilibrated=True, stop=25)


@pytest.mark.parametrize(
    ("x_title", "begin", "step", "start"),
    [
        ("time (ps)", 0.0, 50.0, r"\d{4} ps"),
        ("time (ps)", 1e6, 0.5, r"1\.0000\d+ µs"),
        ("time (ns)", 1e4, 0.05, r"1000\d\.\d+ ns"),
        ("frame", 1_000_001, 5, r"frame 1,000,\d{3}"),
        ("time", 3_000_000, 5, r"time 3,000,\d{3}"),
    ],
)
def test_starts_are_told_from_the_first_time(x_title, begin, step, start):
    columns = {x_title: begin + step * np.arange(N)}
    columns["V (Å³)"] = 12345678.9 + autoregressive(2) + 6 * np.exp(-np.arange(N) / 30)
    (verdict,) = table_verdicts(Table(columns, x_title, {"V (Å³)": "V"}, "V (Å³)")).values()
    assert re.fullmatch(start, verdict.start_text)
    number = float(re.sub(r"[^\d.]", "", verdict.start_text))
    number *= 1e6 if "µs" in verdict.start_text else 1
    assert number == pytest.approx(verdict.found.equilibrated_at, abs=step / 2)
    # Both means have the decimals of the interval.
    assert re.fullmatch(r"12345678\.\d\d ± 0\.\d\d Å³", verdict.mean_text)
    assert verdict.mean_of_all_text == f"{verdict.found.mean_of_all:.2f} Å³"


def test_the_first_of_late_times_has_the_digits_of_the_step():
    columns = {"time (ps)": 1_234_565 + 5.0 * np.arange(N), "x (Å)": autoregressive(2)}
    (verdict,) = table_verdicts(Table(columns, "time (ps)", {"x (Å)": "x"}, "x (Å)")).values()
    assert verdict.start_text == "1.234565 µs"


@pytest.mark.parametrize(
    ("x_title", "step", "precision", "needed"),
    [
        ("time (ps)", 1e6, 0.03, r"\d+ ms to more than 1 s more needed"),
        ("time (ps)", 1e6, 1e-4, r"more than 1 s more needed \(longer than any simulation\)"),
        ("time (ps)", 1e6, 1e-200, r"more than 1 s more needed \(longer than any simulation\)"),
        ("time (ps)", 1e6, 0.05, r"\d+ to \d+ ms more needed"),
        ("time (ns)", 1.0, 0.05, r"\d+ to \d+ µs more needed"),
        ("frame", 1, 0.05, r"\d+ to \d+ frames more needed"),
        ("frame", 1, 1e-8, r"more than 1,000,000,000,000 frames more needed"),
    ],
)
def test_needed_times_are_readable(x_title, step, precision, needed):
    columns = {x_title: step * np.arange(N), "x (Å)": autoregressive(20)}
    table = Table(columns, x_title, {"x (Å)": "x"}, "x (Å)")
    (verdict,) = table_verdicts(table, precision=precision).values()
    assert re.fullmatch(needed, verdict.needed_text)


def texts_of(path):
    """Return the texts of a figure in SVG, in order."""
    found = re.findall(">([^<]*)</text>", path.read_text(encoding="utf-8"))
    return " ".join(" ".join(found).split())


class TestTheCommand:
    @pytest.fixture
    def tables(self, tmp_path):
        """Write tables of two replicas, with two series each."""
        paths = []
        for k in range(2):
            path = tmp_path / f"run{k}.csv"
            rows = [
                np.arange(N) * 10.0,
                18 + autoregressive(5, seed=k) + 9 * np.exp(-np.arange(N) / 60),
                autoregressive(5, seed=9 + k) + np.linspace(0, 9, N),
            ]
            np.savetxt(
                path,
                np.transpose(rows),
                delimiter=",",
                comments="",
                header="time (ps),Rg (Å),SASA (Å²)",
            )
            paths.append(str(path))
        return paths

    def run(self, *arguments, status=0):
        from paceline.cli import main

        assert main(["convergence", *arguments]) == status

    def test_it_answers(self, tables, capsys):
        self.run(tables[0])
        out, err = capsys.readouterr()
        rows = [line.split("  ") for line in out.splitlines()]
        assert rows[1][0] == "Rg (Å)"
        assert "sampled" in out
        assert "drifting" in out
        assert "The system is not equilibrated: SASA drifts." in err
        self.run(tables[0], "--y", "Rg")
        out, err = capsys.readouterr()
        assert "paceline: The series Rg is equilibrated from " in err
        assert err.rstrip().endswith(" on, and its mean is sampled.")
        self.run(tables[0], "--y", "SASA")
        assert "paceline: The series SASA drifts." in capsys.readouterr().err

    def test_starts_in_several_units_of_time_are_compared(self, tables, tmp_path, capsys):
        slow = 115 + autoregressive(2, seed=5) + 6 * np.exp(-np.arange(N) / 150)
        path = tmp_path / "sasa.csv"
        rows = np.column_stack([np.arange(N) * 0.01, slow])
        header = "time (ns),SASA (nm²)"
        np.savetxt(path, rows, delimiter=",", comments="", header=header, encoding="utf-8")
        self.run(tables[0], "--y", "Rg (Å)")
        quick = re.search(r"from (\S+ ps) on", capsys.readouterr().err)[1]
        chosen = tmp_path / "rg.csv"
        rows = [line.rpartition(",")[0] for line in Path(tables[0]).read_text("utf-8").splitlines()]
        chosen.write_text("\n".join(rows), "utf-8")
        self.run(str(chosen), str(path))
        answer = capsys.readouterr().err
        assert re.search(r"from \S+ ns on \(.*sasa\.csv: SASA is last\), and both", answer)
        # Frames are not compared with times.
        rows, header = np.column_stack([np.arange(N), slow]), "frame,SASA (nm²)"
        np.savetxt(path, rows, delimiter=",", comments="", header=header, encoding="utf-8")
        self.run(str(chosen), str(path))
        answer = capsys.readouterr().err
        assert f"rg.csv: Rg is equilibrated from {quick} on, and its mean is sampled. The" in answer
        assert re.search(r"sasa\.csv: SASA is equilibrated from frame \d+ on, and its", answer)

    def test_the_first_frame_is_named_only_if_all_series_start_there(self, tmp_path, capsys):
        decay = 6 * np.exp(-np.arange(N) / 100)
        paths = []
        for k, (begin, start) in enumerate([(0, decay), (1_000_000, 0 * decay)]):
            paths.append(tmp_path / f"x{k}.csv")
            rows = np.column_stack([begin + 50.0 * np.arange(N), start + autoregressive(2, seed=k)])
            header = "time (ps),x (Å)"
            np.savetxt(paths[k], rows, delimiter=",", comments="", header=header, encoding="utf-8")
        self.run(*map(str, paths))
        answer = capsys.readouterr().err
        assert re.search(r"equilibrated from 1 µs on \(.*x1\.csv: x is last\), and both", answer)
        # Replicas begin at any time, so the time since the first frame of each counts.
        self.run(*map(str, paths), "--replicas", "--json")
        [one] = json.loads(capsys.readouterr().out)["series"]
        assert one["equilibrated_from"] > 50
        assert one["equilibrated_at"] == 50.0 * one["equilibrated_from"]

    def test_it_knows_rmsd_alone(self, tables, tmp_path, capsys):
        path = tmp_path / "rmsd.xvg"
        rows = "\n".join(f"{k} {value}" for k, value in enumerate(autoregressive(3)))
        path.write_text(f'@ xaxis label "Time (ns)"\n@ yaxis label "RMSD (nm)"\n{rows}\n')
        self.run(str(path))
        assert "a verdict on RMSD alone" in capsys.readouterr().err
        legend = tmp_path / "backbone.xvg"
        named = path.read_text("utf-8").replace("\n", '\n@ s0 legend "Backbone"\n', 1)
        legend.write_text(named, "utf-8")
        self.run(str(legend))
        out, err = capsys.readouterr()
        assert "Backbone (nm)  sampled" in out
        assert "a verdict on RMSD alone" in err
        folder = tmp_path / "rmsd"
        folder.mkdir()
        other = folder / "gyrate.xvg"
        other.write_text(path.read_text("utf-8").replace("RMSD (nm)", "Rg (nm)"), "utf-8")
        self.run(str(path), str(other))
        assert "RMSD alone" not in capsys.readouterr().err

    def test_angles_of_other_programs(self, tmp_path, capsys):
        path = tmp_path / "angle.xvg"
        turned = (180 + 20 * autoregressive(3) + 180) % 360 - 180
        rows = "\n".join(f"{k} {value}" for k, value in enumerate(turned))
        path.write_text(f'@ xaxis label "Time (ns)"\n@ yaxis label "Angle (degrees)"\n{rows}\n')
        self.run(str(path), "--json")
        [series] = json.loads(capsys.readouterr().out)["series"]
        assert abs(abs(series["mean"]) - 180) < 3

    @pytest.mark.parametrize(
        ("name", "head", "separator", "note"),
        [
            ("gyrate.xvg", "", " ", "the first column is taken as the time, in an unknown unit"),
            ("a.csv", "", ",", "the first column is taken as the time, in an unknown unit"),
            ("a.csv", "t,Rg", ",", "column 't' is taken as time"),
            ("a.csv", "t (ps),Rg", ",", "column 't (ps)' is taken as time (ps)"),
            ("a.csv", "#time,Rg", ",", "column 'time[ns]' is taken as time (ns)"),
            ("a.csv", "# by savetxt\n# t (ns),Rg", ",", "column 't (ns)' is taken as time (ns)"),
            ("a.tsv", "#Frame\tRg", "\t", "column 'Frame' is taken as frame"),
            ("a.csv", "time_ns,Rg", ",", "column 'time_ns' is taken as time (ns)"),
        ],
    )
    def test_series_of_other_programs(self, name, head, separator, note, tmp_path, capsys):
        path, values = tmp_path / name, 2 + autoregressive(3)
        rows = [f"{5 * k}{separator}{value}" for k, value in enumerate(values)]
        path.write_text("\n".join([head, *rows] if head else rows) + "\n", encoding="utf-8")
        self.run(str(path), "--json")
        out, err = capsys.readouterr()
        [series] = json.loads(out)["series"]
        assert series["mean"] == pytest.approx(values.mean())
        if head == "#time,Rg":
            assert (series["time_title"], series["series"]) == ("time", "Rg")
        else:
            assert any(note in reason for reason in series["reasons"])
            assert f"{path}: " in err
            assert note in err

    def test_a_column_of_values_alone(self, tmp_path, capsys):
        path = tmp_path / "rg.csv"
        path.write_text("".join(f"{value}\n" for value in autoregressive(3)), encoding="utf-8")
        self.run(str(path))
        assert "values are taken to be equally spaced in time" in capsys.readouterr().out
        path.write_text("".join(f"{value},{value}\n" for value in autoregressive(3)), "utf-8")
        self.run(str(path), status=2)
        assert "it does not increase: add a line of titles, such as" in capsys.readouterr().err

    def test_a_continued_run_repeats_a_time(self, tmp_path, capsys):
        path, values = tmp_path / "rg.xvg", autoregressive(3)
        times = [10 * k for k in range(N)]
        times[1000:] = [time - 10 for time in times[1000:]]
        rows = "".join(f"{time} {value}\n" for time, value in zip(times, values, strict=True))
        path.write_text(f'@ xaxis label "Time (ps)"\n@ yaxis label "Rg (nm)"\n{rows}')
        self.run(str(path))
        assert "left out: 1 value (at the time of the value before)" in capsys.readouterr().out
        twice = "".join(f"{k // 2} {value}\n" for k, value in enumerate(values))
        path.write_text(f'@ xaxis label "Time (ps)"\n@ yaxis label "Rg (nm)"\n{twice}')
        self.run(str(path), status=2)
        assert "row 2 has time (ps) 0 after 0: sort the rows" in capsys.readouterr().err

    def test_empty_cells_are_left_out(self, tmp_path, capsys):
        path, values = tmp_path / "rg.csv", [*map(str, autoregressive(3))]
        values[7], values[70] = "", " "
        rows = "".join(f"{k},{value}\n" for k, value in enumerate(values))
        path.write_text(f"time (ps),Rg (Å)\n{rows}", encoding="utf-8")
        self.run(str(path))
        assert "left out: 2 values (NaN or infinite)" in capsys.readouterr().out

    def test_replicas(self, tables, capsys):
        self.run(*tables, "--replicas", "--y", "Rg")
        assert "2 replicas agree" in capsys.readouterr().out
        self.run(tables[0], "--replicas", status=2)
        assert "two different tables or more" in capsys.readouterr().err
        again = str(Path(tables[0]).parent / "." / ".." / Path(tables[0]).parent.name / "run0.csv")
        self.run(*tables, again, "--replicas", status=2)
        assert f"{again}: given as two replicas" in capsys.readouterr().err
        self.run(tables[0], again)
        out, err = capsys.readouterr()
        assert f"{again} is given twice, and assessed once" in err
        assert out.count("Rg (Å)  ") == 1

    def test_copies_among_replicas_are_named(self, tables, tmp_path, capsys):
        copy = tmp_path / "copy.csv"
        rows = np.loadtxt(tables[1], delimiter=",", skiprows=1)[::2]
        header = "time (ps),Rg (Å),SASA (Å²)"
        np.savetxt(copy, rows, "%.2f", ",", comments="", header=header, encoding="utf-8")
        self.run(*tables, "--replicas")
        expected = capsys.readouterr().out
        self.run(str(copy), *tables, "--replicas")
        out = capsys.readouterr().out
        note = f"; left out: {copy} (a copy of {tables[1]} within rounding)"
        assert out.count(note) == 2
        assert out.replace(note, "") == expected

    def test_equal_series_of_different_replicas_are_no_copies(self, tables, tmp_path, capsys):
        """Check tables that have one series in common, and with `--y` are copies."""
        rows = np.loadtxt(tables[0], delimiter=",", skiprows=1)
        rows[:, 2] = np.loadtxt(tables[1], delimiter=",", skiprows=1)[:, 2]
        other = str(tmp_path / "other.csv")
        header = "time (ps),Rg (Å),SASA (Å²)"
        np.savetxt(other, rows, "%.18g", ",", comments="", header=header, encoding="utf-8")
        self.run(tables[0], other, "--replicas")
        out = capsys.readouterr().out
        assert "Rg (Å): 2 replicas agree (R̂ is 1.0" in out
        assert "copy" not in out
        self.run(tables[0], other, "--replicas", "--y", "Rg")
        out = capsys.readouterr().out
        assert out.count(f"left out: {other} (a copy of {tables[0]}") == 1
        assert "one replica only" in out

    def test_angles_of_replicas_are_angles_whatever_the_order_of_the_tables(self, tmp_path, capsys):
        """Angles of one replica pass from 180° to -180°, and those of the other do not."""
        paths, series = [], []
        for k, centre in enumerate((140, 180)):
            series.append((centre + 8 * autoregressive(3, seed=k) + 180) % 360 - 180)
            paths.append(str(tmp_path / f"{k}.csv"))
            rows, header = np.column_stack([np.arange(N), series[k]]), "time (ps),phi (deg)"
            np.savetxt(paths[k], rows, delimiter=",", comments="", header=header)
        assert np.ptp(series[0]) < 180 < np.ptp(series[1])
        circular = [np.degrees(np.angle(np.exp(1j * np.radians(one)).mean())) for one in series]
        expected = np.mean(np.array(circular) % 360)  # 160°
        means = []
        for order in (paths, paths[::-1]):
            self.run(*order, "--replicas", "--json")
            [one] = json.loads(capsys.readouterr().out)["series"]
            means.append(one["mean_of_all"])
        assert means == pytest.approx([expected] * 2)

    @pytest.mark.parametrize("title", ["T", "T (K)", "tps", "t (ps", "t[ns)", "temperature"])
    def test_other_columns_are_not_taken_as_the_time(self, title, tmp_path, capsys):
        path = tmp_path / "a.csv"
        rows = "".join(f"{300 + k},{value}\n" for k, value in enumerate(autoregressive(3)))
        path.write_text(f"{title},Rg\n{rows}", encoding="utf-8")
        self.run(str(path), status=2)
        assert "expected time series" in capsys.readouterr().err

    def test_replicas_with_times_in_other_units(self, tables, tmp_path, capsys):
        text = Path(tables[0]).read_text(encoding="utf-8").replace("time (ps)", "time (ns)")
        (tmp_path / "ns.csv").write_text(text, encoding="utf-8")
        self.run(tables[0], str(tmp_path / "ns.csv"), "--replicas", status=2)
        assert "has times in ps, but" in capsys.readouterr().err

    def test_one_figure_of_several_tables_has_one_unit(self, tables, tmp_path, capsys):
        self.run(*tables, "--plot", str(tmp_path / "all.png"), status=2)
        assert "figure of several tables shows one unit" in capsys.readouterr().err
        assert not (tmp_path / "all.png").exists()
        self.run(*tables, "--y", "Rg", "--plot", str(tmp_path / "rg.svg"))
        drawn = (tmp_path / "rg.svg").read_text(encoding="utf-8")
        assert [one for one in tables if f"{Path(one).stem}, mean" not in drawn] == []

    def test_states_are_numbers_or_names(self, tmp_path, capsys):
        path = tmp_path / "states.csv"
        rng = np.random.default_rng(1)
        rows = [f"{k},{rng.choice(['H', 'E'])},{k % 7},{rng.random()}" for k in range(400)]
        path.write_text("\n".join(["frame,fold,cluster,d (Å)", *rows]), encoding="utf-8")
        self.run(str(path), "--kind", "states", "--y", "fold", "--y", "cluster")
        out, err = capsys.readouterr()
        assert "fold: state E; " in out
        assert "cluster: of 7 states, " in out
        assert "both means are sampled" in err
        figure = ["--plot", str(tmp_path / "fold.png")]
        self.run(str(path), "--kind", "states", "--y", "cluster", *figure)
        figure = ["--plot", str(tmp_path / "text.png")]
        self.run(str(path), "--kind", "states", "--y", "fold", *figure, status=2)
        assert "column 'fold' is text, which has no figure" in capsys.readouterr().err
        self.run(str(path), "--kind", "states", status=2)
        assert "expected names or whole numbers of states" in capsys.readouterr().err

    def test_conditions_are_numbers(self, tmp_path, capsys):
        path = tmp_path / "bound.csv"
        bound = autoregressive(2) > 0
        cells = [*map(str, bound)]
        cells[7] = ""
        rows = "".join(f"{k},{cell}\n" for k, cell in enumerate(cells))
        path.write_text(f"time (ps),bound\n{rows}", encoding="utf-8")
        self.run(str(path), "--json")
        [one] = json.loads(capsys.readouterr().out)["series"]
        assert one["mean_of_all"] == pytest.approx(np.delete(bound, 7).mean())
        self.run(str(path), "--kind", "states")
        assert "bound   sampled" in capsys.readouterr().out

    def test_replicas_of_too_few_values_have_no_mean(self, tmp_path, capsys):
        paths = [tmp_path / f"{k}.csv" for k in range(2)]
        for k, path in enumerate(paths):
            path.write_text(f"time (ps),x (Å)\n0,{5 + k}\n", encoding="utf-8")
        self.run(*map(str, paths), "--replicas")
        out, err = capsys.readouterr()
        assert re.search(r"shown to be sampled  –     –                          –  ", out)
        assert "There are too few values to see a drift; not shown to be sampled: x." in err
        self.run(str(paths[0]))
        assert "There are too few values to see a drift" in capsys.readouterr().err

    def test_columns_of_text_get_a_hint(self, tmp_path, capsys):
        path = tmp_path / "states.csv"
        path.write_text("frame,fold\n" + "".join(f"{k},H\n" for k in range(30)), encoding="utf-8")
        self.run(str(path), status=2)
        assert f"{path}: 'fold' is text: --kind states assesses it" in capsys.readouterr().err
        rows = "".join(f"{k},H,{k % 3}\n" for k in range(30))
        path.write_text(f"frame,fold,d (Å)\n{rows}", encoding="utf-8")
        self.run(str(path), "--y", "fold", status=2)
        assert "--kind states" in capsys.readouterr().err
        self.run(str(path))
        assert f"{path}: 'fold' is text: --kind states assesses it" in capsys.readouterr().err

    def test_the_row_of_a_time_that_is_out_of_order(self, tmp_path, capsys):
        path = tmp_path / "mixed.csv"
        times = [0, 1, 2, 3, 2.5, 4]
        path.write_text("time (ps),d (Å)\n" + "".join(f"{t},{t}\n" for t in times))
        self.run(str(path), status=2)
        assert "row 5 has time (ps) 2.5 after 3: sort the rows" in capsys.readouterr().err

    def test_populations_have_limits(self, tmp_path, capsys):
        path = tmp_path / "states.csv"
        rng = np.random.default_rng(2)
        rows = "".join(f"{k},{rng.choice(['E', 'H'], p=[0.1, 0.9])}\n" for k in range(900))
        path.write_text(f"frame,fold\n{rows}", encoding="utf-8")
        self.run(str(path), "--kind", "states")
        assert re.search(r"0\.\d+ \(0\.\d+ to 0\.\d+\)", capsys.readouterr().out)

    def test_series_that_the_figure_does_not_show(self, tmp_path, capsys):
        angles = tmp_path / "angles.csv"
        describe = '# figure: {"x": "phi (°)", "y": {"psi (°)": "psi"}, "y_label": "psi (°)"}'
        phi, psi = -60 + 10 * autoregressive(3), 175 + 10 * autoregressive(3, seed=2)
        rows = [f"{k},{phi[k]},{psi[k]}" for k in range(N)]
        angles.write_text("\n".join([describe, "time (ps),phi (°),psi (°)", *rows]), "utf-8")
        self.run(str(angles))
        out, err = capsys.readouterr()
        assert out.splitlines()[1].startswith("phi (°)  sampled")
        assert "both means are sampled" in err

    def test_frames_whose_times_are_equal(self, tmp_path, capsys):
        path = tmp_path / "equal.csv"
        rows = np.column_stack([np.arange(N), np.zeros(N), autoregressive(3)])
        header = "frame,time (ps),Rg (Å)"
        np.savetxt(path, rows, delimiter=",", comments="", header=header, encoding="utf-8")
        self.run(str(path))
        assert "sampled  frame 0" in capsys.readouterr().out

    def test_series_of_many_units_or_of_equal_values(self, tmp_path, capsys):
        path = tmp_path / "many.csv"
        values = np.random.default_rng(1).standard_normal((8, 200))
        titles = ["frame", *(f"c{k} (u{k})" for k in range(8)), "equal"]
        rows = np.column_stack([np.arange(200), *values, np.ones(200)])
        np.savetxt(path, rows, delimiter=",", comments="", header=",".join(titles))
        self.run(str(path))
        out, err = capsys.readouterr()
        assert "c7 (u7)" in out
        assert "equal: all 200 values are equal" in out
        assert "all 8 means are sampled" in err

    def test_json_and_precision(self, tables, capsys):
        import json

        self.run(tables[0], "--y", "Rg", "--precision", "0.01", "--json")
        document = json.loads(capsys.readouterr().out)
        [one] = document["series"]
        assert one["verdict"] == "not shown to be sampled"
        assert one["unit"] == "Å"
        with pytest.raises(SystemExit):
            self.run(tables[0], "--precision", "0.1Å")
        assert "--precision: expected a number above 0, found '0.1Å'" in capsys.readouterr().err
        assert one["needed_time"] > 20_000
        assert one["equilibrated_at"] == 10.0 * one["equilibrated_from"]

    def test_the_figure_has_the_mean_of_the_verdict(self, tables, tmp_path, capsys):
        figure = ["--plot", str(tmp_path / "rg.svg"), "--overwrite"]
        for further, verdict in (([], ""), (["--precision", "0.001"], "not shown to be sampled")):
            self.run(tables[0], "--y", "Rg", *figure, *further)
            row = re.split("  +", capsys.readouterr().out.splitlines()[1])
            texts = texts_of(tmp_path / "rg.svg")
            assert "not equilibrated" in texts
            mean, of_all = (one.removesuffix(" Å") for one in row[3:5])
            assert mean.partition(" ±")[0] != of_all
            since = float(row[2].removesuffix(" ps")) / 1000
            assert f"mean {mean} (95 %), from {since:g} ns on" in texts
            assert f"mean {of_all}" not in texts
            assert ("not shown to be sampled" in texts) == bool(verdict)

    def test_the_figure_of_replicas_has_the_verdict_between_them(self, tmp_path, capsys):
        paths = []
        for k in range(6):
            paths.append(str(tmp_path / f"run{k}.csv"))
            values = 18 + autoregressive(3, seed=k) + 9 * (k == 2) * np.exp(-np.arange(N) / 60)
            rows = np.column_stack([np.arange(N) * 10.0, values])
            header = "time (ps),Rg (Å)"
            np.savetxt(paths[k], rows, delimiter=",", comments="", header=header, encoding="utf-8")
        figure = tmp_path / "rg.svg"
        self.run(*paths, "--replicas", "--plot", str(figure))
        row = re.split("  +", capsys.readouterr().out.splitlines()[1])
        texts = texts_of(figure)
        mean = row[3].removesuffix(" Å")
        since = float(row[2].removesuffix(" ps")) / 1000
        assert f"6 replicas: mean {mean} (95 %), from {since:g} ns on, R̂ 1.0" in texts
        assert "not equilibrated" in texts
        assert texts.count(": mean") == 1
        # A replica that drifts has no equilibrated part, and neither have all of them together.
        drift = np.loadtxt(paths[0], delimiter=",", skiprows=1)
        drift[:, 1] += np.linspace(0, 9, N)
        np.savetxt(paths[0], drift, delimiter=",", comments="", header=header, encoding="utf-8")
        self.run(*paths, "--replicas", "--plot", str(figure), "--overwrite")
        texts = texts_of(figure)
        assert re.search(r"6 replicas: mean of all [\d.]+, drifting", texts)
        tables = [read_saved(path).table() for path in paths]
        found = replica_verdict(dict(zip(paths, tables, strict=True)), "Rg (Å)")
        ax = draw(tables, Figure().subplots(), None, ShownVerdicts(between={"Rg (Å)": found}))
        [shade] = ax.patches
        assert shade.get_x() + shade.get_width() == pytest.approx(ax.dataLim.x1)

    def test_a_figure_of_a_drift_is_shaded_throughout(self, tables, tmp_path, capsys):
        self.run(tables[0], "--y", "SASA", "--plot", str(tmp_path / "sasa.svg"))
        assert "not equilibrated" in (tmp_path / "sasa.svg").read_text(encoding="utf-8")
        assert "no equilibrium mean yet: simulate longer" in capsys.readouterr().out
        table = Table(
            {"time (ps)": np.arange(50.0), "d (Å)": np.arange(50.0)}, "time (ps)", {"d (Å)": ""}, ""
        )
        [shade] = Results(table=table).plot().patches
        assert (shade.get_x(), shade.get_width()) == (0, 49)
        [text] = Results(table=table).summary()
        assert text.endswith("drifting, no equilibrium mean yet: simulate longer")

    def test_figures_of_several_kinds_are_refused_after_the_verdicts(
        self, tables, tmp_path, capsys
    ):
        other = tmp_path / "other.csv"
        other.write_text("time (ps),RMSD (Å)\n" + "".join(f"{k},{k % 3}\n" for k in range(50)))
        figure = tmp_path / "both.png"
        self.run(tables[0], str(other), "--y", "R", "--plot", str(figure), status=2)
        out, err = capsys.readouterr()
        assert f"{other}: RMSD (Å)  sampled" in out
        assert "No drift is seen" in err or "equilibrated from" in err
        assert f"{figure} is not written: tables in one figure must be of one kind" in err
        assert not figure.exists()
        self.run(tables[0], str(other), "--y", "R", "--plot", str(figure), "--json", status=2)
        document = json.loads(capsys.readouterr().out)
        assert len(document["series"]) == 2
        assert document["written"] == []

    def test_tables_of_a_folder_without_time_are_left_out(self, tables, tmp_path, capsys):
        """Of a count of frames, the title is not taken as that of frame numbers."""
        counts = tmp_path / "frequent.csv"
        described = '# figure: {"x": "bond", "y": {"frames": "frames"}, "y_label": "frames"}'
        counts.write_text(f"{described}\nbond,frames\na,98\nb,57\n", encoding="utf-8")
        profile = tmp_path / "rmsf.csv"
        profile.write_text("residue,resname,RMSF (Å)\n1,ALA,0.5\n2,GLY,0.4\n", encoding="utf-8")
        self.run(tables[0], "--y", "Rg")
        expected = capsys.readouterr().out
        self.run(str(counts), tables[0], str(profile), "--y", "Rg")
        out, err = capsys.readouterr()
        assert out == expected
        for path in (counts, profile):
            assert f"{path} is left out: its rows are not frames in time" in err
        assert "--kind states" not in err
        self.run(str(counts), str(profile), status=2)
        assert "none of 2 tables has time series: a column of incr" in capsys.readouterr().err
        self.run(str(counts), status=2)
        assert f"{counts}: expected time series" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            (
                "time (ps),x (Å)\n0,1\n20,2\n10,3\n30,1\n",
                "in time: row 3 has time (ps) 10 after 20",
            ),
            (
                "frame,donor,d (Å)\n0,A,1\n0,B,2\n1,A,3\n1,B,4\n",
                "row 2 has frame 0 after 0: sort the rows",
            ),
            ("time (ps),name\n0,a\n1,b\n", "'name' is text: --kind states assesses it"),
            ("time (ps),x (Å)\n", "expected a row of titles and rows of numbers, found none"),
            ("3,4\n2,5\n1,6\n", "without titles, the first column would be the time"),
            ("time (ps),y (Å)\n0,1\n1,2\n", "left out: it has no series 'Rg'; it has y"),
            (
                "analysis,replica,frames,mean\nrg,1,98,2.5\nrg,2,98,2.6\n",
                "its rows are not frames in time",
            ),
            (
                "analysis,replica,frames,mean\nrg,1,98,2.5\nrg,2,99,2.6\n",
                "its rows are not frames in time",
            ),
            ("frames,Rg\n98,2.5\n98,2.6\n", "its rows are not frames in time"),
        ],
        ids=["order", "rows", "text", "titles", "untitled", "choice", "counts", "more", "first"],
    )
    def test_a_table_that_is_no_series_keeps_no_other_from_its_verdict(
        self, text, reason, tables, tmp_path, capsys
    ):
        path = tmp_path / "other.csv"
        path.write_text(text, encoding="utf-8")
        choice = ["--y", "Rg"] if "y (Å)" in text else []
        self.run(tables[0], *choice)
        expected = capsys.readouterr().out
        self.run(str(path), tables[0], *choice, "--plot", str(tmp_path / "a.svg"))
        out, err = capsys.readouterr()
        assert out == expected
        assert f"{path} is left out: " in err
        assert reason in err
        assert (tmp_path / "a.svg").exists()
        # Alone, or as a replica, it is refused.
        for others in ([], [tables[0], "--replicas"]):
            self.run(str(path), *others, *choice, status=2)
            assert f"{path} is left out" not in capsys.readouterr().err

    def test_frames_may_be_the_title_of_numbers_of_frames(self, tmp_path, capsys):
        path, values = tmp_path / "rg.csv", autoregressive(3)
        rows = "".join(f"{5 * k},{value}\n" for k, value in enumerate(values))
        path.write_text(f"#Frames,Rg\n{rows}", encoding="utf-8")
        self.run(str(path), "--json")
        [series] = json.loads(capsys.readouterr().out)["series"]
        assert series["time_title"] == "frame"

    def test_a_figure_names_files_by_their_folders(self, tmp_path, capsys):
        paths = []
        for k in (1, 2):
            paths.append(tmp_path / f"{k}" / "rg.csv")
            paths[-1].parent.mkdir()
            rows = np.column_stack([np.arange(N), autoregressive(3, seed=k)])
            np.savetxt(paths[-1], rows, delimiter=",", comments="", header="time (ps),Rg (A)")
        figure = tmp_path / "rg.svg"
        self.run(*map(str, paths), "--plot", str(figure))
        assert "1/rg, mean" in texts_of(figure)
        assert "2/rg, mean" in texts_of(figure)

    def test_what_is_no_series_is_refused(self, tables, tmp_path, capsys):
        path = tmp_path / "rdf.csv"
        path.write_text("r (Å),g(r)\n1,0\n2,1\n3,1\n4,1\n5,1\n")
        self.run(str(path), status=2)
        assert "expected time series" in capsys.readouterr().err


def test_noise_drifts_in_equally_few_tables_whatever_the_number_of_their_series():
    """The seed is fixed. One by one, more than a tenth of tables of 16 series of noise drift."""
    together, alone = measure_tables(TableCase(16, 0.0, 0.0), 40)
    assert together <= 0.05 < alone
    assert measure_tables(TableCase(16, 10.0, 2.0), 10)[0] >= 0.9


def test_the_verdict_on_a_series_does_not_depend_on_the_choice_of_series():
    rng = np.random.default_rng(8)
    columns = {f"s{k}": rng.standard_normal(500) for k in range(8)}
    table = Table(
        {"time (ps)": np.arange(500.0), **columns}, "time (ps)", dict.fromkeys(columns), ""
    )
    assert table_verdicts(table, ["s3"])["s3"] == table_verdicts(table)["s3"]


def test_the_number_of_series_is_that_of_the_table_whatever_the_panels(tmp_path, capsys):
    """The seed is fixed. One by one, four of 16 series of noise start late or drift."""
    rng = np.random.default_rng(10)
    columns = {f"s{k} (u{k})": rng.standard_normal(500) for k in range(16)}
    every = {"time (ps)": np.arange(500.0), **columns}
    one_panel = Table(every, "time (ps)", dict.fromkeys(columns, ""), "")
    panels = one_panel.with_panels_of_units()
    assert [panel.n_series for panel in panels.panels] == [16] * 16
    wanted = {title: one.found for title, one in table_verdicts(one_panel).items()}
    alone = {title: paceline.convergence(one) for title, one in columns.items()}
    odd = [title for title, one in alone.items() if one.equilibrated_from != 0]
    assert odd
    assert all(wanted[title].equilibrated_from == 0 for title in odd)
    paths = [str(tmp_path / f"noise{k}.csv") for k in range(2)]
    for k, path in enumerate(paths):
        rows = np.transpose([one[:: 1 - 2 * k] if k else one for one in every.values()])
        rows[:, 0] = every["time (ps)"]
        np.savetxt(path, rows, delimiter=",", comments="", header=",".join(every))
    from paceline.cli import main

    for chosen in ([], ["--y", odd[0]]):
        assert main(["convergence", paths[0], *chosen, "--json"]) == 0
        series = json.loads(capsys.readouterr().out)["series"]
        verdicts = {one["series"]: one["equilibrated_from"] for one in series}
        assert verdicts[odd[0]] == wanted[odd[0]].equilibrated_from
    found = []
    for chosen in ([], ["--y", odd[0]]):
        assert main(["convergence", *paths, "--replicas", *chosen, "--json"]) == 0
        series = json.loads(capsys.readouterr().out)["series"]
        found += [one for one in series if one["series"] == odd[0]]
    assert found[0] == found[1]


def test_verdicts_on_very_many_series_are_counted(tmp_path, monkeypatch):
    """Check angles, of which one turns once, one is constant, and one drifts."""
    degrees = [-60 + 10 * autoregressive(3, seed=k) for k in range(20)]
    degrees[3] = np.where(np.arange(N) < 900, degrees[3], degrees[3] + 120)
    degrees[7] = np.full(N, 180.0)
    degrees[11] = degrees[11] + np.linspace(0, 80, N)
    titles = [f"phi ALA {k} (°)" for k in range(20)]
    columns = {"time (ps)": np.arange(N) * 1.0, **dict(zip(titles, degrees, strict=True))}
    table = Table(columns, "time (ps)", dict.fromkeys(titles, ""), "phi (°)", no_mean=True)
    text = "of 20 series, 17 are sampled, 1 is not shown to be, 1 drifts and 1 is constant"
    assert count_verdicts(table) == text
    Results(table=table).save(tmp_path / "phi.csv")
    assert f"# sampling: {text}\n" in (tmp_path / "phi.csv").read_text(encoding="utf-8")
    monkeypatch.setattr("paceline.analysis.convergence_of_table_series.MOST_VALUES", 5 * N)
    assert count_verdicts(table).startswith("of 5 of 20 series, ")
    backwards = {title: values[::-1] for title, values in columns.items()}
    assert count_verdicts(Table(backwards, "time (ps)", dict.fromkeys(titles, ""), "")) == ""


def test_the_number_of_series_must_be_positive():
    with pytest.raises(ValueError, match="n_series must be at least 1, not 0"):
        paceline.convergence(np.arange(50.0), n_series=0)


def test_frames_at_uneven_times_start_where_the_series_does():
    rng = np.random.default_rng(5)
    times = np.arange(2000) / 8
    values = rng.normal(size=2000) + 20 * np.exp(-times / 5)
    table = Table({"time (ps)": times, "E (kJ/mol)": values}, "time (ps)", {"E (kJ/mol)": "E"}, "E")
    start = table_verdicts(table)["E (kJ/mol)"].start
    assert start > 1
    frames = np.array([0, start - 0.5, start, start + 0.5, 1e6])
    assert equilibrated_start({"e": table}, frame_times={"e": frames})[0] == 2
