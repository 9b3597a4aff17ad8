"""Autocorrelations of functions of the frames, and of velocities."""

import MDAnalysis
import numpy as np
import pytest

import paceline
from paceline.analysis.correlation import VelocityAutocorrelation
from paceline.errors import MissingDataError, SelectionError, UnsupportedError


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
    """Of series of shape (n_frames, n_series, n_dimensions)."""
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
def test_bits_are_the_same_everywhere(everywhere, ca):
    wanted = paceline.Correlation(heights, ca).run(backend="serial").results
    found = paceline.Correlation(heights, ca).run(**everywhere, block_frames=32).results
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
    with pytest.raises(UnsupportedError, match="equal distances"):
        paceline.Correlation(width, ca).run(frames=[1, 2, 4])
    with pytest.raises(MissingDataError, match="velocities"):
        VelocityAutocorrelation(ca).run()
    with pytest.raises(SelectionError, match="no atoms"):
        VelocityAutocorrelation(ca[:0])


def vibrating(tmp_path, n_frames=200, dt=0.01):
    """Two atoms that vibrate at 4 and 10 THz, along x and z."""
    one = MDAnalysis.Universe.empty(2, trajectory=True, velocities=True)
    one.add_TopologyAttr("names", ["C", "C"])
    one.dimensions = [50, 50, 50, 90, 90, 90]
    topology, path = tmp_path / "made.gro", tmp_path / "made.trr"
    times = dt * np.arange(n_frames)
    velocities = np.zeros((n_frames, 2, 3))
    velocities[:, 0, 0] = 3 * np.cos(2 * np.pi * 4 * times)
    velocities[:, 1, 2] = 2 * np.cos(2 * np.pi * 10 * times + 1)
    with MDAnalysis.Writer(str(path), 2) as writer:
        for time, of_frame in zip(times, velocities, strict=True):
            one.atoms.velocities = of_frame
            one.trajectory.ts.time = time
            writer.write(one.atoms)
    one.atoms.write(str(topology))
    return paceline.Universe(str(topology), str(path)), velocities


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
    # All frequencies, of both signs, make the mean square.
    both = 2 * spectrum.sum() - spectrum[0] - spectrum[-1]
    assert both * frequencies[1] == pytest.approx(found.timeseries[0])
    periodogram = 0.01 / 200 * np.abs(np.fft.rfft(velocities, 400, axis=0)) ** 2
    np.testing.assert_allclose(spectrum, periodogram.sum(axis=2).mean(axis=1), atol=1e-5)
    trapezoids = np.trapezoid(found.timeseries[:31], dx=0.01) / 3
    assert found.integral[30] == pytest.approx(trapezoids)
    assert found.integral[0] == 0
