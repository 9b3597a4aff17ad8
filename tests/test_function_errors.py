"""Tests of intervals of functions of all frames, from partial results of parts of the run."""

import copy
import tracemalloc

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binomtest

import paceline
from benchmarks.coverage import (
    Presence,
    autoregressive,
    in_memory,
    markov_chain,
    population_coverage,
    rdf_coverage,
    rmsf_coverage,
)
from paceline.analysis.contacts import ContactMap
from paceline.analysis.dssp import DSSP
from paceline.analysis.jackknife_intervals import (
    FunctionErrors,
    InParts,
    errors_of_function,
    errors_of_presence,
    errors_of_series,
    errors_of_states,
    halves_of,
    in_parts,
)
from paceline.analysis.kernels import SparseCounts, merge_counts
from paceline.analysis.rdf import InterRDF, InterRDF_s
from paceline.analysis.rms import RMSF
from paceline.analysis.uncertainty import limits_of_fractions, mean_of_series
from paceline.contract.analysis_kinds import Reduction
from paceline.engine.reduce import tree_reduce
from paceline.errors import PacelineWarning, UnsupportedError


class Sums(Reduction):
    """Number of frames and their sum; merging changes the first argument in place."""

    def compute(self, block):
        return np.array([len(block), np.sum(block)], dtype=float)

    def merge(self, left, right):
        left += right
        return left


def mean(value):
    return np.array([value[1] / value[0]])


def leaves(values, size=16):
    return [values[k : k + size] for k in range(0, len(values), size)]


@pytest.mark.parametrize("n", [1, 15, 16, 98, 500, 1024, 2001, 10_000])
def test_parts_contain_each_frame_once_and_are_of_similar_length(n):
    values = np.random.default_rng(n).standard_normal(n)
    part = in_parts(Sums(), n, 16, "Sums")
    total, parts = tree_reduce([part.compute(one) for one in leaves(values)], part.merge)
    sizes = np.array([size for size, _ in parts])
    assert total[0] == sizes.sum() == n
    np.testing.assert_allclose(total[1], values.sum(), rtol=1e-12, atol=1e-9)
    assert min(n, 32) <= len(parts) <= 128
    starts = np.concatenate([[0], sizes.cumsum()])
    for k, (size, value) in enumerate(parts):
        np.testing.assert_allclose(value[1], values[starts[k] : starts[k + 1]].sum(), atol=1e-9)
        assert size <= -(-n // 64)
    assert np.median(sizes) > sizes.max() / 2 or sizes.max() <= 2


def test_the_result_of_all_frames_keeps_its_bits_if_leaves_are_not_divided():
    values = np.random.default_rng(1).standard_normal(3000)
    plain = tree_reduce([Sums().compute(one) for one in leaves(values)], Sums().merge)
    part = in_parts(Sums(), len(values), 16, "Sums")
    total, _ = tree_reduce([part.compute(one) for one in leaves(values)], part.merge)
    assert np.array_equal(total, plain)


def test_a_leaf_without_readable_frames_is_not_a_part():
    part = InParts(Sums(), 100)
    total, parts = part.merge(part.compute(np.ones(16)), part.compute(np.empty(0)))
    assert total.tolist() == [16, 16]
    assert [n for n, _ in parts] == [16]


def test_the_interval_of_a_mean_is_that_of_the_series_of_parts():
    values = autoregressive(np.random.default_rng(3), 20, 4096, 1)[0]
    part = in_parts(Sums(), len(values), 16, "Sums")
    _, parts = tree_reduce([part.compute(one) for one in leaves(values)], part.merge)
    found = errors_of_function(Sums(), parts, mean)
    means = values.reshape(64, 64).mean(axis=1)
    wanted = mean_of_series(means, blocks=False)
    assert (found.n_parts, found.part_frames) == (64, 64)
    np.testing.assert_allclose(found.interval, wanted.interval, rtol=1e-6)
    np.testing.assert_allclose(found.least_independent, wanted.least_independent, rtol=1e-9)


def test_sparse_counts_have_the_intervals_of_all_counts():
    class Counts(Reduction):
        def merge(self, left, right):
            return merge_counts(left, right, 64)

    def fractions(value):
        return value.to_counts(64) / value.n_frames

    generator, none = np.random.default_rng(1), np.empty(0, np.uint32)
    sparse, full = [], []
    for k in range(12):
        indices = generator.integers(0, 64, 4 + 60 * (k % 3 == 0)).astype(np.uint32)
        one = SparseCounts(1, indices, None)
        full.append((1, SparseCounts(1, none, one.to_counts(64))))
        sparse.append((1, one) if k % 3 else copy.deepcopy(full[-1]))
    found, expected = (errors_of_function(Counts(), some, fractions) for some in (sparse, full))
    np.testing.assert_array_equal(found.interval, expected.interval)


def test_a_short_last_part_is_joined_to_the_one_before():
    parts = [(10, np.array([10.0, k])) for k in range(8)] + [(2, np.array([2.0, 9.0]))]
    assert errors_of_function(Sums(), parts, mean).n_parts == 8
    assert parts[0][1].tolist() == [10, 0]  # the argument is unchanged


def test_columns_without_a_spread_or_with_nan_have_no_interval():
    rng = np.random.default_rng(1)
    series = np.column_stack([rng.standard_normal(50), np.full(50, 0.1), np.full(50, np.nan)])
    interval, least = errors_of_series(series)
    assert np.isfinite([interval[0], least[0]]).all()
    assert np.isnan(interval[1:]).all()
    assert np.isnan(errors_of_series(series[:3])[0]).all()


def test_remarks():
    many_parts = FunctionErrors(np.ones(3), np.array([20.0, np.nan, 4.0]), 64, 10)
    assert "1 of 2 intervals may be too narrow" in many_parts.remark("RMSF")
    assert "order of time" in many_parts.remark("RMSF", in_order=False)
    assert FunctionErrors(np.ones(1), np.array([20.0]), 64, 10).remark("RMSF") is None
    few = FunctionErrors(np.full(1, np.nan), np.full(1, np.nan), 2, 1)
    assert "only 2 parts of up to 1 frame, expected 4" in few.remark("RMSF")
    assert "64 parts of up to 10 frames" in many_parts.method


def test_partial_results_that_need_too_much_memory_are_refused():
    with pytest.raises(UnsupportedError, match=r"RMSF: intervals need .* choose fewer"):
        in_parts(Sums(), 1000, 2**24, "RMSF")


def moving(n_frames=1500, n_atoms=3, time=20):
    """Atoms that move about their mean positions, with a correlation time in frames."""
    noise = autoregressive(np.random.default_rng(5), time, n_frames, 3 * n_atoms)
    return in_memory(20 + noise.T.reshape(n_frames, n_atoms, 3))


def test_rmsf_equals_that_without_intervals_and_its_table_and_figure_have_them():
    universe = moving()
    plain = RMSF(universe).run()
    found = RMSF(universe, errors=True).run(block_frames=64, backend="threads")
    assert np.array_equal(found.results.rmsf, plain.results.rmsf)
    half = found.results.rmsf_interval
    assert (np.abs(found.results.rmsf - np.sqrt(3)) < half).all()
    assert (half < 0.5).all()
    table = found.results.table
    assert table.bands == {"RMSF (Å)": "RMSF, 95 % ± (Å)"}
    assert np.array_equal(table.columns["RMSF, 95 % ± (Å)"], half)
    assert "jackknife of" in found.results.provenance["intervals"]
    assert found.parameters()["errors"] is True
    ax = found.results.plot()
    assert len(ax.collections) == 1
    assert [one.get_text() for one in ax.get_legend().get_texts()] == ["RMSF and 95 % interval"]


def test_rmsf_of_residues_has_intervals_of_their_means(adk):
    found = RMSF(paceline.Universe(*adk).select_atoms("resid 1-20"), errors=True).run()
    results = found.results
    assert results.residue_rmsf_interval.shape == results.residue_rmsf.shape == (20,)
    # A mean over atoms is not less certain than the least certain atom.
    assert results.residue_rmsf_interval.max() < results.rmsf_interval.max()
    drawn = results.table.drawn
    assert np.array_equal(drawn.columns[drawn.bands["RMSF (Å)"]], results.residue_rmsf_interval)


def ideal_gas(n_frames=300, n_atoms=40, cell=10.0, seed=2):
    positions = np.random.default_rng(seed).uniform(0, cell, (n_frames, n_atoms, 3))
    return in_memory(positions, cell=cell)


def test_the_g_of_r_of_an_ideal_gas_is_1_within_its_intervals(tmp_path):
    universe = ideal_gas()
    options = {"nbins": 20, "range": (0.0, 5.0), "exclusion_block": (1, 1)}
    found = InterRDF(universe.atoms, universe.atoms, **options, errors=True).run()
    results = found.results
    wanted = InterRDF(universe.atoms, universe.atoms, **options).run().results
    assert np.array_equal(results.count, wanted.count)
    np.testing.assert_allclose(results.rdf, wanted.rdf, rtol=1e-13)
    outside = np.abs(results.rdf - 1) > results.rdf_interval
    assert outside.sum() <= 4
    # Independent pairs: the standard deviation of a count is its square root.
    poisson = 1.96 * results.rdf / np.sqrt(results.count / 2)
    assert 0.8 < np.median(results.rdf_interval / poisson) < 1.6
    volumes = 4 / 3 * np.pi * results.edges[1:] ** 3
    assert (np.abs(found.get_cdf() - 39 * volumes / 1000) < 2 * results.cdf_interval).all()
    results.save(tmp_path / "rdf.csv")
    text = (tmp_path / "rdf.csv").read_text(encoding="utf-8")
    assert '"g(r), 95 % ±"' in text or "g(r), 95 % ±" in text
    assert "# intervals: 95 %, by jackknife of" in text
    ax = results.plot()
    assert len(ax.collections) == 1
    assert len(ax.figure.axes[1].collections) == 1


def test_frames_that_are_not_in_order_of_time_are_remarked():
    universe = ideal_gas(n_frames=60)
    analysis = InterRDF(universe.atoms, universe.atoms, nbins=5, range=(1.0, 5.0), errors=True)
    with pytest.warns(PacelineWarning, match="not in the order of time"):
        analysis.run(frames=[*range(59, -1, -1)])
    assert "order of time" in analysis.results.provenance["warnings"]


@pytest.mark.parametrize("backend", ["threads", "processes"])
@pytest.mark.parametrize("block_frames", [1, 16, 100])
def test_intervals_have_the_same_bits_on_any_backend_and_in_any_blocks(backend, block_frames):
    universe = moving(n_frames=777)
    wanted = RMSF(universe, errors=True).run(backend="serial").results.rmsf_interval
    found = RMSF(universe, errors=True).run(backend=backend, n_workers=2, block_frames=block_frames)
    assert np.array_equal(found.results.rmsf_interval, wanted)


def test_intervals_contain_what_is_known():
    """The seeds are fixed; intervals by bootstrap are too narrow."""
    assert 0.93 <= rmsf_coverage(300, 100) <= 0.995
    assert rmsf_coverage(300, 20) > rmsf_coverage(300, 20, bootstrap=True) + 0.08
    assert 0.93 <= rdf_coverage(5, 50) <= 1


@pytest.mark.parametrize(("count", "n"), [(1, 20), (7, 20), (30, 90), (500, 1000), (999, 1000)])
def test_limits_of_fractions_are_scipy_s_score_interval(count, n):
    fraction = count / n
    # With independent values, the half width of the mean is z standard errors.
    half = ndtri(0.975) * np.sqrt(fraction * (1 - fraction) / n)
    wanted = binomtest(count, n).proportion_ci(0.95, "wilson")
    found = limits_of_fractions(np.array([fraction]), np.array([half]))[0]
    np.testing.assert_allclose(found, [wanted.low, wanted.high], rtol=1e-10)


def test_limits_of_fractions_are_within_0_and_1_and_unknown_at_0_and_1():
    fractions = np.array([[0.0, 1.0, 0.3], [0.01, 0.99, 0.5]])
    limits = limits_of_fractions(fractions, np.array([[1e-3, 1e-3, np.nan], [5.0, 5.0, 1e9]]))
    assert limits.shape == (2, 3, 2)
    assert np.isnan(limits[0]).all()
    assert (limits[1, :, 0] >= 0).all()
    assert (limits[1, :, 0] < fractions[1]).all()
    assert (limits[1, :, 1] > fractions[1]).all()
    assert (limits[1, :, 1] <= 1).all()


def test_fractions_of_states_and_their_intervals():
    states = markov_chain(np.random.default_rng(4), 3, 200)
    states[0] = 2
    left_out = np.insert(states, [5, 900], -1, axis=1)
    analysis = Presence(left_out.shape[1])
    fractions, found = errors_of_states(analysis, left_out.T, 4)
    assert (fractions.shape, found.interval.shape) == ((3, 4), (3, 4))
    assert fractions[0].tolist() == [0, 0, 1, 0]
    assert np.isnan(found.interval[0]).all()
    assert (found.n_parts, found.part_frames) == (125, 16)
    for row, of_row, least in zip(
        states[1:], found.interval[1:], found.least_independent[1:], strict=True
    ):
        for state in range(4):
            there = row == state
            wanted = mean_of_series(there, blocks=False)
            # Parts of 16 frames have nearly the information of all frames.
            np.testing.assert_allclose(of_row[state], wanted.interval, rtol=0.3)
            assert least[state] <= np.count_nonzero(np.diff(there)) / 2
    np.testing.assert_allclose(fractions[1], np.bincount(states[1], minlength=4) / 2000)
    one, alone = errors_of_states(analysis, left_out[1], 4)
    np.testing.assert_array_equal(one, fractions[1])
    np.testing.assert_array_equal(alone.interval, found.interval[1])


def test_a_state_that_was_entered_once_has_a_doubtful_population():
    states = np.zeros(400, int)
    states[100:110] = 1
    _, found = errors_of_states(Presence(400), states, 2)
    assert found.least_independent.tolist() == [1, 1]
    assert "2 of 2 intervals may be too narrow" in found.remark("Clustering")


def test_items_have_the_intervals_of_their_states():
    states = markov_chain(np.random.default_rng(6), 1, 120, n=700)[0]
    analysis = Presence(700)
    analysis.left_out[[0, 50, 699]] = True
    known = np.flatnonzero(~analysis.left_out)
    wanted, errors = errors_of_states(analysis, np.where(analysis.left_out, -1, states), 4)
    # Items that are given twice count once, and numbers beyond the last one do not.
    rows, items = np.tile(known, 2), np.tile(states[known], 2)
    rows, items = np.append(rows, known), np.append(items, np.full(len(known), 4))
    fractions, found = errors_of_presence(analysis, rows, items, 4)
    np.testing.assert_allclose(fractions, wanted)
    np.testing.assert_allclose(found.interval, errors.interval)
    np.testing.assert_array_equal(found.least_independent, errors.least_independent)
    always, one = errors_of_presence(Presence(50), np.arange(50), np.zeros(50, int), 2)
    assert always.tolist() == [1, 0]
    assert np.isnan(one.limits(always)).all()
    none, _ = errors_of_presence(Presence(0), np.empty(0, int), np.empty(0, int), 0)
    assert none.shape == (0,)


def test_no_frames_have_no_fractions():
    fractions, found = errors_of_states(Presence(3), np.full((3, 2), -1), 4)
    assert fractions.shape == (2, 4)
    assert np.isnan(fractions).all()
    assert np.isnan(found.limits(fractions)).all()


def test_states_need_little_more_memory_than_their_numbers():
    states = np.random.default_rng(1).integers(0, 3, (20_000, 60), np.int8)
    states[7] = -1
    analysis = Presence(len(states))
    errors_of_states(analysis, states[:200], 3)  # imports modules, once
    tracemalloc.start()
    try:
        errors_of_states(analysis, states, 3)
        assert tracemalloc.get_traced_memory()[1] < 3 * states.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("analysis", "names"),
    [
        (lambda ca: ContactMap(ca, 7.0, errors=True), ["frequency_intervals"]),
        (
            lambda ca: InterRDF(ca, ca, norm="density", errors=True),
            ["rdf_interval", "cdf_interval"],
        ),
        (
            lambda ca: InterRDF_s(ca.universe, [[ca[:2], ca[5:7]]], norm="density", errors=True),
            ["rdf_interval"],
        ),
        (lambda ca: RMSF(ca, errors=True), ["rmsf_interval", "residue_rmsf_interval"]),
        (lambda ca: DSSP(ca.universe, errors=True), ["fraction_intervals"]),
    ],
    ids=["ContactMap", "InterRDF", "InterRDF_s", "RMSF", "DSSP"],
)
def test_a_run_without_readable_frames_has_unknown_intervals(damaged, analysis, names):
    system, frames = damaged
    ca = paceline.Universe(*system).select_atoms("name CA")[:12]
    with pytest.warns(PacelineWarning, match="no intervals: the run has only 0 parts"):
        unknown = analysis(ca).run(frames=frames, on_error="skip").results
    known = analysis(ca).run(stop=30, on_error="skip").results
    for name in names:
        assert np.shape(unknown[name]) == np.shape(known[name])
        assert np.isnan(unknown[name]).all()


def test_halves_have_each_frame_once():
    parts = [(10, np.array([10.0, k])) for k in range(7)]
    first, second = halves_of(Sums(), parts)
    assert (first.tolist(), second.tolist()) in (([30, 3], [40, 18]), ([40, 6], [30, 15]))
    assert parts[0][1].tolist() == [10, 0]
    assert [half.tolist() for half in halves_of(Sums(), parts[:1])] == [[10, 0]]


def test_populations_hold_the_truth_as_often_as_they_should():
    for state in (0, 3):
        assert 0.93 < population_coverage(200, 100, state) < 1
