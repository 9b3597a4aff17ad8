"""Tests of autocorrelations: of functions of frames, of velocities, and of currents."""

import MDAnalysis
import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid

import paceline
from paceline.analysis.correlation import CurrentAutocorrelation, VelocityAutocorrelation
from paceline.errors import (
    AnalysisError,
    MissingDataError,
    PacelineWarning,
    SelectionError,
    UnsupportedError,
)
from paceline.transform import wrap


@pytest.fixture(scope="module")
def ca(adk_xtc):
    return paceline.Universe(*adk_xtc).select_atoms("name CA")


def width(block):
    return block.positions.astype(float).std(axis=(1, 2))


def heights(block):
    return block.positions[:, ::20, 2]


def steps(block):
    return np.diff(block.positions.astype(float), axis=1)[:, :6]


def signs(block):
    return np.where(block.positions[:, :4, 0] > 0, 1, -1)


def by_definition(series, counts=None):
    """Correlate series of shape (n_frames, n_series, n_dimensions) by the definition."""
    n = len(series)
    counts = np.ones(n, bool) if counts is None else counts
    found = np.full(series.shape[:2], np.nan)
    for lag in range(n):
        both = counts[lag:] & counts[: n - lag]
        if both.any():
            products = (series[lag:] * series[: n - lag]).sum(axis=2)[both]
            found[lag] = products.mean(axis=0)
    return found


@pytest.mark.parametrize("fft", [True, False])
@pytest.mark.parametrize("function", [width, heights, steps, signs])
def test_as_by_the_definition(function, fft, ca):
    rows = paceline.TimeSeries(function, ca).run().results.timeseries
    series = rows.reshape(98, -1, rows.shape[2] if rows.ndim == 3 else 1)
    expected = by_definition(series.astype(float))
    found = paceline.Correlation(function, ca, fft=fft).run().results
    size = np.abs(expected).max()
    np.testing.assert_allclose(found.by_series, expected, atol=1e-10 * size, rtol=0)
    np.testing.assert_allclose(found.timeseries, expected.mean(axis=1), atol=1e-10 * size, rtol=0)
    np.testing.assert_allclose(found.delta_t_values, np.arange(98.0), rtol=1e-6)


@pytest.mark.parametrize("fft", [True, False])
def test_frames_that_were_left_out_count_in_no_pair(fft, damaged):
    system, frames = damaged
    group = paceline.Universe(*system).select_atoms("name CA")
    rows = paceline.TimeSeries(heights, group).run(on_error="skip").results.timeseries
    counts = ~np.isin(np.arange(98), frames)
    expected = by_definition(np.nan_to_num(rows[:, :, None]).astype(float), counts)
    found = paceline.Correlation(heights, group, fft=fft).run(on_error="skip").results
    np.testing.assert_allclose(found.by_series, expected, atol=1e-8)


@pytest.mark.full
def test_bits_are_the_same_everywhere(where, ca):
    wanted = paceline.Correlation(heights, ca).run(backend="serial").results
    found = paceline.Correlation(heights, ca).run(**where, block_frames=32).results
    assert found.timeseries.tobytes() == wanted.timeseries.tobytes()
    assert found.by_series.tobytes() == wanted.by_series.tobytes()


def test_table_has_names_and_units(ca):
    found = paceline.Correlation(width, ca, label="width", unit="Å²").run().results
    assert list(found.to_dataframe()) == ["lag time (ps)", "autocorrelation of width (Å²)"]


def texts(block):
    return np.full(len(block), "x")


def tensors(block):
    return np.zeros((len(block), 1, 2, 3))


def nothing(block):
    return np.zeros((len(block), 0))


def test_what_is_refused(ca):
    for function in (texts, tensors, nothing):
        with pytest.raises(UnsupportedError, match=f"Correlation of {function.__name__}: expected"):
            paceline.Correlation(function, ca).run()
    with pytest.raises(UnsupportedError, match="equal intervals"):
        paceline.Correlation(width, ca).run(frames=[1, 2, 4])
    with pytest.raises(MissingDataError, match="velocities"):
        VelocityAutocorrelation(ca).run()
    with pytest.raises(SelectionError, match="no atoms"):
        VelocityAutocorrelation(ca[:0])


def vibrating(tmp_path, n_frames=200, dt=0.01):
    """Write two atoms that vibrate at 4 and 10 THz, along x and z."""
    times = dt * np.arange(n_frames)
    velocities = np.zeros((n_frames, 2, 3))
    velocities[:, 0, 0] = 3 * np.cos(2 * np.pi * 4 * times)
    velocities[:, 1, 2] = 2 * np.cos(2 * np.pi * 10 * times + 1)
    return moving(tmp_path, velocities, dt), velocities


def moving(tmp_path, velocities, dt, edges=50.0):
    """Write two atoms with these velocities, Å/ps, in cubic cells with these edges."""
    one = MDAnalysis.Universe.empty(2, trajectory=True, velocities=True)
    one.add_TopologyAttr("names", ["C", "C"])
    topology, path = tmp_path / "made.gro", tmp_path / "made.trr"
    edges = np.broadcast_to(edges, len(velocities))
    with MDAnalysis.Writer(str(path), 2) as writer:
        for row, (of_frame, edge) in enumerate(zip(velocities, edges, strict=True)):
            one.dimensions = [edge, edge, edge, 90, 90, 90] if edge else None
            one.atoms.velocities = of_frame
            one.trajectory.ts.time = dt * row
            writer.write(one.atoms)
    one.atoms.write(str(topology))
    return paceline.Universe(str(topology), str(path))


def test_vibrations(tmp_path):
    universe, velocities = vibrating(tmp_path)
    found = VelocityAutocorrelation(universe).run().results
    expected = by_definition(velocities)
    np.testing.assert_allclose(found.by_atom, expected, atol=1e-5)
    np.testing.assert_allclose(found.timeseries, expected.mean(axis=1), atol=1e-5)
    wanted = (
        4.5 * np.cos(8 * np.pi * 0.01 * np.arange(50)) + 2 * np.cos(0.2 * np.pi * np.arange(50))
    ) / 2
    np.testing.assert_allclose(found.timeseries[:50], wanted, atol=0.1)
    frequencies, spectrum = found.frequencies, found.spectrum
    peaks = np.flatnonzero((spectrum[1:-1] > spectrum[:-2]) & (spectrum[1:-1] > spectrum[2:])) + 1
    highest = peaks[np.argsort(spectrum[peaks])[::-1][:2]]
    np.testing.assert_allclose(frequencies[highest], [4, 10], atol=1e-6)
    assert spectrum.min() > -1e-9
    # The sum over all frequencies, of both signs, is the mean square.
    both = 2 * spectrum.sum() - spectrum[0] - spectrum[-1]
    assert both * frequencies[1] == pytest.approx(found.timeseries[0])
    periodogram = 0.01 / 200 * np.abs(np.fft.rfft(velocities, 400, axis=0)) ** 2
    np.testing.assert_allclose(spectrum, periodogram.sum(axis=2).mean(axis=1), atol=1e-5)
    trapezoids = np.trapezoid(found.timeseries[:31], dx=0.01) / 3
    assert found.integral[30] == pytest.approx(trapezoids)
    assert found.integral[0] == 0
    # 1 Å²/ps equals 10·10⁻⁵ cm²/s.
    table = found.to_dataframe()
    assert table.columns[-1] == "diffusion coefficient up to this time (10⁻⁵ cm²/s)"
    np.testing.assert_allclose(table.iloc[:, -1], 10 * found.integral)
    assert len(found.plot().lines[0].get_xdata()) == 100 < len(found.timeseries)


def test_a_diffusion_coefficient_has_an_interval_between_molecules():
    velocities = np.repeat(np.random.default_rng(4).standard_normal((60, 5, 3)), 2, axis=1)
    universe = MDAnalysis.Universe.empty(10, trajectory=True)
    universe.load_new(np.zeros((60, 10, 3), np.float32), velocities=velocities, dt=0.1)
    universe.add_TopologyAttr("bonds", [(2 * k, 2 * k + 1) for k in range(5)])
    plain = VelocityAutocorrelation(universe).run().results
    found = VelocityAutocorrelation(universe, errors=True).run().results
    np.testing.assert_array_equal(found.integral, plain.integral)
    assert "integral_interval" not in plain
    of_molecules = found.by_atom.reshape(60, 5, 2).mean(axis=2)
    integrals = np.stack([cumulative_trapezoid(one, dx=0.1, initial=0) for one in of_molecules.T])
    wanted = 2.7764451 * (integrals / 3).std(axis=0, ddof=1) / np.sqrt(5)
    np.testing.assert_allclose(found.integral_interval[1:], wanted[1:], rtol=1e-6)
    assert np.isnan(found.integral_interval[0])
    assert found.provenance["intervals"] == "95 %, between 5 molecules"
    title = "diffusion coefficient up to this time, 95 % ± (10⁻⁵ cm²/s)"
    np.testing.assert_allclose(found.to_dataframe()[title], 10 * found.integral_interval)
    figure = found.plot().figure
    assert [len(axes.collections) for axes in figure.axes] == [0, 1]
    # A single molecule has no interval.
    alone = VelocityAutocorrelation(universe.atoms[:2], errors=True).run().results
    assert np.isnan(alone.integral_interval).all()


@pytest.mark.parametrize("left_out", [[0], [49], [20, 21, 49], list(range(1, 50, 2))])
def test_a_spectrum_of_frames_that_were_left_out(left_out, tmp_path):
    """Check that the spectrum equals that of velocities which are 0 in skipped frames, scaled."""
    velocities = np.random.default_rng(2).standard_normal((50, 2, 3))
    edges = np.where(np.isin(np.arange(50), left_out), 0.0, 50.0)
    universe = moving(tmp_path, velocities, 0.1, edges)
    options = {"transforms": [wrap()], "on_error": "skip"}
    found = VelocityAutocorrelation(universe).run(**options)
    assert [frame for frame, _ in found.damaged] == left_out
    velocities[left_out] = 0
    periodogram = 0.1 / (50 - len(left_out)) * np.abs(np.fft.rfft(velocities, 100, axis=0)) ** 2
    spectrum = found.results.spectrum
    np.testing.assert_allclose(spectrum, periodogram.sum(axis=2).mean(axis=1), atol=1e-5)
    both = 2 * spectrum.sum() - spectrum[0] - spectrum[-1]
    assert both * found.results.frequencies[1] == pytest.approx(found.results.timeseries[0])


def ions(*arguments, charges=(1.0, -1.0)):
    """Write two moving ions."""
    universe = moving(*arguments)
    universe.add_TopologyAttr("charges", charges)
    return universe


def test_a_conductivity_by_hand(tmp_path):
    """Check a conductivity with J = 2 e Å/ps for 0.5 ps, in 1 and in 8 nm³, at 300 K."""
    velocities = [[[1, 0, 0], [-1, 0, 0]]] * 2
    current = CurrentAutocorrelation(ions(tmp_path, velocities, 0.5, [10.0, 20.0])).run()
    assert current.volume == pytest.approx(4500)
    np.testing.assert_allclose(current.results.currents, [[2, 0, 0]] * 2)
    np.testing.assert_allclose(current.results.timeseries, [4, 4])
    in_si = (2 * 1.602176634e-19 * 100) ** 2 * 0.5e-12
    wanted = in_si / (3 * 4500e-30 * 1.380649e-23 * 300)
    np.testing.assert_allclose(current.results.conductivity, [0, wanted], rtol=1e-6)
    by_axis = current.results.conductivity_by_axis
    np.testing.assert_allclose(by_axis, [[0, 0, 0], [3 * wanted, 0, 0]], rtol=1e-6)
    hot = CurrentAutocorrelation(current.atomgroup, 600).run().results
    np.testing.assert_allclose(hot.conductivity, [0, wanted / 2], rtol=1e-6)


@pytest.mark.parametrize("fft", [True, False])
def test_a_current_that_turns_has_a_closed_form(fft, tmp_path):
    """Check opposite ions on circles: C is 4 q² v² cos ωτ between any two frames."""
    omega, dt, n = 2 * np.pi * 3, 0.002, 300
    times = dt * np.arange(n)
    turning = 5 * np.stack([np.cos(omega * times), np.sin(omega * times), 0 * times], axis=1)
    universe = ions(tmp_path, np.stack([turning, -turning], axis=1), dt)
    universe.add_TopologyAttr("charges", [0.8, -0.8])
    found = CurrentAutocorrelation(universe, 350, fft=fft).run().results
    np.testing.assert_allclose(found.timeseries, 64 * np.cos(omega * times), atol=1e-4)
    np.testing.assert_allclose(found.by_axis.sum(axis=1), found.timeseries, atol=1e-9)
    # The trapezoidal rule for a cosine yields the integral times x / tan x, with x = ω dt / 2.
    x = omega * dt / 2
    integral = 64 * np.sin(omega * times) / omega * x / np.tan(x)
    in_si = (1.602176634e-19 * 1e-10) ** 2 / 1e-12 * integral
    wanted = in_si / (3 * 50e-10**3 * 1.380649e-23 * 350)
    np.testing.assert_allclose(found.conductivity, wanted, atol=1e-5 * np.abs(wanted).max())


def test_independent_ions_conduct_as_they_diffuse(tmp_path):
    """Check Nernst–Einstein: two ions of Langevin dynamics, q² D of each over V k_B T."""
    random, n, dt, friction = np.random.default_rng(4), 6000, 0.05, 2.0
    keep = np.exp(-friction * dt)
    kicks = 3 * np.sqrt(1 - keep**2) * random.standard_normal((n, 2, 3))
    velocities = np.zeros((n, 2, 3))
    velocities[0] = 3 * random.standard_normal((2, 3))
    for row in range(1, n):
        velocities[row] = keep * velocities[row - 1] + kicks[row]
    current = CurrentAutocorrelation(ions(tmp_path, velocities, dt)).run()
    # Velocities have a variance of 9 Å²/ps² along each axis, and D = 9 / friction.
    in_si = 2 * 1.602176634e-19**2 * 9 / friction * 1e-20 / 1e-12
    wanted = in_si / (current.volume * 1e-30 * 1.380649e-23 * 300)
    level = current.results.conductivity[60:80].mean()
    assert level == pytest.approx(wanted, rel=0.15)
    # The interval contains the expected value up to a fifth of the run, and is drawn.
    interval = current.results.conductivity_interval
    assert interval.shape == (n,)
    assert np.isnan(interval[0])
    assert (interval[60:80] < 0.4 * wanted).all()
    assert (np.abs(current.results.conductivity[60:80] - wanted) < interval[60:80]).all()
    assert np.isfinite(interval[1 : n // 5 + 1]).all()
    assert np.isnan(interval[n // 5 + 1 :]).all()
    title = "conductivity up to this time, 95 % interval (S/m)"
    np.testing.assert_array_equal(current.results.to_dataframe()[title], interval)
    axes = current.results.plot()
    [band] = axes.collections
    assert axes.get_legend().get_texts()[0].get_text() == "conductivity, and its 95 % interval"
    low, high = band.get_paths()[0].get_extents().intervaly
    assert high - low >= 2 * np.nanmax(interval[: n // 10]) * 0.9


@pytest.mark.parametrize("analysis", [CurrentAutocorrelation, VelocityAutocorrelation])
def test_frames_that_are_far_apart_warn(analysis, tmp_path, recwarn):
    random = np.random.default_rng(6)
    slow = np.cumsum(random.standard_normal((60, 2, 3)), axis=0)
    analysis(ions(tmp_path, slow, 0.1)).run()
    assert not [one for one in recwarn if issubclass(one.category, PacelineWarning)]
    fast = random.standard_normal((60, 2, 3))
    with pytest.warns(PacelineWarning, match=r"frames are 0\.1 ps apart.* is meaningless"):
        analysis(ions(tmp_path, fast, 0.1)).run()


@pytest.mark.full
def test_currents_have_the_same_bits_everywhere(where, tmp_path):
    velocities = np.random.default_rng(5).standard_normal((90, 2, 3))
    universe = ions(tmp_path, velocities, 0.1)
    wanted = CurrentAutocorrelation(universe).run(backend="serial").results
    found = CurrentAutocorrelation(universe).run(**where, block_frames=32).results
    for name in ("timeseries", "by_axis", "conductivity", "currents"):
        assert found[name].tobytes() == wanted[name].tobytes()


def test_what_has_no_current_is_refused(tmp_path, ca, universe):
    velocities = np.ones((2, 2, 3))
    made = ions(tmp_path, velocities, 0.1)
    for temperature in (0, np.nan):
        with pytest.raises(ValueError, match="temperature must be above 0 K"):
            CurrentAutocorrelation(made, temperature)
    with pytest.raises(SelectionError, match="no atoms"):
        CurrentAutocorrelation(made.atoms[:0])
    with pytest.raises(UnsupportedError, match="of all atoms are 0"):
        CurrentAutocorrelation(ions(tmp_path, velocities, 0.1, charges=[0.0, 0.0]))
    with pytest.raises(UnsupportedError, match="topology has none"):
        CurrentAutocorrelation(moving(tmp_path, velocities, 0.1))
    with pytest.raises(MissingDataError, match="velocities"):
        CurrentAutocorrelation(universe).run()
    for lost in ([1, 0, 0], [1]):
        broken = velocities.copy()
        broken[tuple(lost)] = np.nan
        with pytest.raises(AnalysisError, match="frame 1: velocities are not all finite"):
            CurrentAutocorrelation(ions(tmp_path, broken, 0.1)).run()
    with pytest.raises(AnalysisError, match="frame 0: the frame has no cell, which the conduct"):
        CurrentAutocorrelation(ions(tmp_path, velocities[:1], 0.1, 0.0)).run()
