"""Tests of dielectric constants and autocorrelations: dipoles made by hand, and water."""

import warnings

import MDAnalysis
import numpy as np
import pytest
from helpers import virtual_sites
from MDAnalysis.analysis import dielectric as theirs_module
from MDAnalysisTests.datafiles import DCD_TRICLINIC, PSF_TRICLINIC, TPR, XTC

import paceline
from benchmarks.coverage import dipoles
from paceline.analysis.dielectric import DielectricConstant, DipoleAutocorrelation
from paceline.analysis.jackknife_intervals import errors_of_series
from paceline.analysis.uncertainty import with_error
from paceline.errors import AnalysisError, SelectionError, UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore:DCDReader:DeprecationWarning")
#: Value of (e Å)² / (ε₀ k_B T V) for 1000 Å³ at 300 K, from CODATA 2018 in SI units.
UNIT = (1.602176634e-19 * 1e-10) ** 2 / (8.8541878128e-12 * 1.380649e-23 * 300 * 1e-27)


def made(folder, positions, cell=(10, 10, 10, 90, 90, 90), charges=(1, -1), bonds=((0, 1),)):
    """Return a Universe of few atoms with these positions, and a cell for each frame or for all
    frames.
    """
    universe = MDAnalysis.Universe.empty(len(charges), trajectory=True)
    universe.add_TopologyAttr("charges", charges)
    if bonds is not None:
        universe.add_TopologyAttr("bonds", bonds)
    path = str(folder / "made.nc")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with MDAnalysis.Writer(path, len(charges)) as writer:
            for time, frame in enumerate(positions):
                universe.atoms.positions = frame
                universe.trajectory.ts.time = time
                universe.dimensions = cell
                writer.write(universe.atoms)
        return paceline.Universe(universe._topology, path)


def test_a_dipole_that_turns_over(tmp_path):
    """Check M of ±2 e Å along x: the variance is 4 along x, and 0 along y and z. One bond crosses
    the boundary.
    """
    frames = [[[5, 5, 5], [3, 5, 5]], [[9.5, 1, 1], [1.5, 1, 1]]]
    atoms = made(tmp_path, frames).atoms
    found = DielectricConstant(atoms).run().results
    np.testing.assert_allclose(found.moments, [[2, 0, 0], [-2, 0, 0]], atol=1e-6)
    np.testing.assert_allclose(found.M, 0, atol=1e-6)
    np.testing.assert_allclose(found.M2, [4, 0, 0], atol=1e-6)
    np.testing.assert_allclose(found.fluct, [4, 0, 0], atol=1e-6)
    np.testing.assert_allclose(found.eps, [1 + 4 * UNIT, 1, 1], rtol=2e-5)
    assert found.eps_mean == pytest.approx(1 + 4 * UNIT / 3, rel=2e-5)
    colder = DielectricConstant(atoms, temperature=150.0).run().results
    np.testing.assert_allclose(colder.eps - 1, 2 * (found.eps - 1))
    broken = DielectricConstant(atoms, make_whole=False).run().results
    np.testing.assert_allclose(broken.moments[1], [8, 0, 0], atol=1e-6)


def test_the_variance_of_a_large_moment(tmp_path):
    """Check moments of 10⁶ e Å: squares that differ by 0.5 have no digits left for the variance."""
    charges = 2.0**20 * np.array([1, -1])
    steps = np.arange(40) % 2 / 2**21
    frames = [[[2 + step, 1, 1], [1, 1, 1]] for step in steps]
    found = DielectricConstant(made(tmp_path, frames, charges=charges).atoms).run().results
    np.testing.assert_array_equal(found.fluct, [0.0625, 0, 0])
    assert found.M[0] == 2.0**20 + 0.25


@pytest.mark.parametrize("make_whole", [True, False])
@pytest.mark.parametrize("select", ["all", "resid 3-40"])
def test_water_is_theirs(select, make_whole):
    theirs, ours = (
        kind(PSF_TRICLINIC, DCD_TRICLINIC).select_atoms(select)
        for kind in (MDAnalysis.Universe, paceline.Universe)
    )
    wanted = theirs_module.DielectricConstant(theirs, 310, make_whole).run()
    found = DielectricConstant(ours[::-1], 310, make_whole).run(block_frames=1)
    for name, value in wanted.results.items():
        assert np.shape(found.results[name]) == np.shape(value)
        np.testing.assert_allclose(found.results[name], value, rtol=2e-4, atol=1e-4, err_msg=name)
    assert found.volume == pytest.approx(wanted.volume, rel=1e-6)
    moments = found.results.moments
    np.testing.assert_allclose(found.results.fluct, moments.var(axis=0), rtol=1e-12)


def test_same_bits_on_every_backend(where):
    def bits(**options):
        atoms = paceline.Universe(PSF_TRICLINIC, DCD_TRICLINIC).select_atoms("resid 3-40")[::-1]
        found = DielectricConstant(atoms).run(**options).results
        return [found[name].tobytes() for name in ("moments", "M", "M2", "fluct", "eps")]

    assert bits(**where) == bits(backend="serial") == bits(block_frames=1)


@pytest.mark.parametrize("model", [virtual_sites.TIP4P, virtual_sites.TIP5P], ids=["four", "five"])
def test_water_with_virtual_sites(model, where, tmp_path):
    """Check virtual sites, which have the charge of the oxygen, and no bonds in a TPR file."""
    universe, whole = virtual_sites.write_waters(tmp_path / "water.trr", model)
    water = paceline.Universe(universe._topology, str(tmp_path / "water.trr")).atoms
    moments = np.einsum("a,fax->fx", universe.atoms.charges, whole)
    found = DielectricConstant(water[::-1]).run(**where).results
    np.testing.assert_allclose(found.moments, moments, atol=1e-3)
    np.testing.assert_allclose(found.fluct, moments.var(axis=0), atol=1e-2)
    found = DipoleAutocorrelation(water).run(**where).results
    wanted = (moments[1:] * moments[:-1]).sum(axis=1).mean()
    assert found.timeseries[1] == pytest.approx(wanted, abs=1e-2)
    with pytest.raises(UnsupportedError, match=r"30 of 30 are .* (0\.482|1\.04) e; use all atoms"):
        DielectricConstant(water.select_atoms("not name MW LP1 LP2"))


def test_sites_without_masses_are_not_known(tmp_path):
    frames = [[[1, 1, 1], [2, 1, 1], [1.5, 1, 1]]]
    guessed = made(tmp_path, frames, charges=[0.5, 0.5, -1]).atoms
    words = "virtual sites are identified by a mass of 0, but the topology contains no"
    with pytest.raises(UnsupportedError, match=words):
        DielectricConstant(guessed)
    guessed.universe.add_TopologyAttr("masses", [16, 1, 0])
    moments = DielectricConstant(guessed).run().results.moments
    np.testing.assert_allclose(moments, [[0, 0, 0]], atol=1e-6)
    guessed.universe.add_TopologyAttr("masses", [16, 1, 2])
    with pytest.raises(UnsupportedError, match=r"such as those of virtual sites$"):
        DielectricConstant(guessed)


def test_registered_runs_use_it_where_they_can(monkeypatch):
    called = []
    run = DielectricConstant.run
    monkeypatch.setattr(DielectricConstant, "run", lambda *a, **k: called.append(1) or run(*a, **k))
    paceline.register()
    try:
        water = MDAnalysis.Universe(PSF_TRICLINIC, DCD_TRICLINIC).atoms
        found = theirs_module.DielectricConstant(water).run().results
        with pytest.raises(NotImplementedError, match="free charges"):
            theirs_module.DielectricConstant(MDAnalysis.Universe(TPR, XTC).atoms).run()
    finally:
        paceline.unregister()
    assert called == [1]
    wanted = theirs_module.DielectricConstant(
        MDAnalysis.Universe(PSF_TRICLINIC, DCD_TRICLINIC).atoms
    )
    assert found.eps_mean == pytest.approx(wanted.run().results.eps_mean, rel=1e-5)


def test_the_table_and_the_record(tmp_path):
    water = paceline.Universe(PSF_TRICLINIC, DCD_TRICLINIC).atoms
    results = DielectricConstant(water, 310).run(stop=3).results
    results.save(tmp_path / "moments.csv")
    text = (tmp_path / "moments.csv").read_text()
    assert "# temperature: 310" in text
    assert "time (ps),Mx (e Å),My (e Å),Mz (e Å),volume (Å³)" in text
    axes = results.plot()
    assert axes.get_ylabel() == "dielectric constant"
    assert f"# dielectric constant: {results.eps_mean:.4g}, no interval, not converged" in text
    [legend] = axes.get_legend().get_texts()
    assert legend.get_text().startswith("dielectric constant so far; of all ")


def test_a_dielectric_constant_has_an_interval_from_parts_of_the_run():
    universe, _ = dipoles(2000, 1, 3.0, 8)
    found = DielectricConstant(universe.atoms, make_whole=False).run().results
    moments = found.moments
    parts = np.array_split(moments, 125)
    without = [np.concatenate([*parts[:k], *parts[k + 1 :]]) for k in range(125)]
    constants = np.array([moments.var(axis=0).mean(), *(one.var(axis=0).mean() for one in without)])
    constants *= (found.eps_mean - 1) / constants[0]
    wanted, _ = errors_of_series((125 * constants[0] - 124 * constants[1:])[:, None])
    assert found.eps_mean_converged
    assert found.eps_mean_interval == pytest.approx(wanted[0], rel=1e-6)
    text = with_error(found.eps_mean, found.eps_mean_interval)
    assert found.findings["dielectric constant"] == f"{text} (95 %)"
    # The moment changes its sign only once. Its square hardly varies, so its error seems small,
    # although the run is far too short.
    rarely = np.where(np.arange(2000) < 1000, 1.0, -1.0)
    universe.trajectory.coordinate_array[:, 1] = rarely[:, None] * [1, 0.99, 0.98]
    stuck = DielectricConstant(universe.atoms, make_whole=False).run().results
    assert not stuck.eps_mean_converged
    assert stuck.findings["dielectric constant"].endswith("not converged")


def test_a_relaxation_time_has_an_interval_by_blocks(tmp_path):
    universe, right = dipoles(3000, 1, 4.0, 9)
    atoms = universe.atoms
    found = DipoleAutocorrelation(atoms, make_whole=False).run().results
    assert found.relaxation_time_converged
    assert 0.05 * right < found.relaxation_time_interval < 0.5 * right
    assert found.relaxation_time == pytest.approx(right, abs=2 * found.relaxation_time_interval)
    text = with_error(found.relaxation_time, found.relaxation_time_interval)
    assert found.findings["relaxation time"] == f"{text} ps (95 %)"
    [legend] = found.plot().get_legend().get_texts()
    assert (
        legend.get_text().replace("\n", " ") == f"dipole moment, relaxation time {text} ps (95 %)"
    )
    found.save(tmp_path / "dipole.csv")
    lines = (tmp_path / "dipole.csv").read_text(encoding="utf-8").splitlines()
    assert lines.count(f"# relaxation time: {text} ps (95 %)") == 1
    short = DipoleAutocorrelation(atoms, make_whole=False).run(stop=200).results
    assert short.findings["relaxation time"].endswith("(95 %), not converged")


def test_frames_that_have_none_are_named(tmp_path):
    frames = [[[1, 1, 1], [2, 1, 1]], [[1, 1, 1], [2, np.nan, 1]]]
    for make_whole in (True, False):
        for lost in (frames[1], np.full((2, 3), np.nan)):
            atoms = made(tmp_path, [frames[0], lost]).atoms
            with pytest.raises(AnalysisError, match="frame 1: positions are not all finite"):
                DielectricConstant(atoms, make_whole=make_whole).run()
        atoms = made(tmp_path, frames[:1], cell=None).atoms
        with pytest.raises(AnalysisError, match="frame 0: the frame has no cell"):
            DielectricConstant(atoms, make_whole=make_whole).run()
    # Two atoms of a ring that extends through the cell.
    ring = [[[1, 1, 1], [4, 1, 1], [7, 1, 1], [10, 1, 1]]]
    atoms = made(
        tmp_path, ring, (12, 12, 12, 90, 90, 90), [1, -1, 1, -1], [(0, 1), (1, 2), (2, 3), (0, 3)]
    )
    with pytest.raises(AnalysisError, match=r"frame 0: a bond of 9\.00 Å is longer than half"):
        DielectricConstant(atoms.atoms).run()


def test_what_has_none_is_refused(tmp_path, universe):
    frames = [[[1, 1, 1], [2, 1, 1], [3, 1, 1]]]
    with pytest.raises(SelectionError, match="no atoms"):
        DielectricConstant(universe.atoms[:0])
    with pytest.raises(UnsupportedError, match="UpdatingAtomGroup"):
        DielectricConstant(universe.select_atoms("around 3 index 0", updating=True))
    with pytest.raises(
        UnsupportedError, match="1 of 1 are charged; the molecule of atom 0 has -4 e"
    ):
        DielectricConstant(universe.atoms)
    with pytest.raises(UnsupportedError, match="needs charges"):
        DielectricConstant(MDAnalysis.Universe.empty(2, trajectory=True).atoms)
    for temperature in (0, -1, np.nan):
        with pytest.raises(ValueError, match="temperature must be above 0 K"):
            DielectricConstant(universe.atoms, temperature)
    with pytest.raises(UnsupportedError, match="needs bonds"):
        DielectricConstant(made(tmp_path, frames, charges=[0] * 3, bonds=None).atoms)
    chain = made(tmp_path, frames, charges=[1, 0, -1], bonds=[(0, 1), (1, 2)]).atoms
    with pytest.raises(UnsupportedError, match="more than once"):
        DielectricConstant(chain + chain[[1]])
    with pytest.raises(UnsupportedError, match="2 bonded parts of 1 molecules"):
        DielectricConstant(chain[[0, 2]])
    assert DielectricConstant(chain[[0, 2]], make_whole=False).run().results.moments[0, 0] == -2


def test_a_dipole_that_turns_has_a_closed_form(tmp_path):
    """Rotate a moment of 2 e Å by 7.5° per frame: C is 4 cos ωτ, and falls to 0 at 90°."""
    omega = np.pi / 24
    angles = omega * np.arange(40)
    frames = [[[5, 5, 5], [5 - 2 * np.cos(angle), 5 - 2 * np.sin(angle), 5]] for angle in angles]
    atoms = made(tmp_path, frames).atoms
    found = DipoleAutocorrelation(atoms).run()
    results = found.results
    np.testing.assert_allclose(results.delta_t_values, np.arange(40.0))
    np.testing.assert_allclose(results.timeseries, 4 * np.cos(angles), atol=1e-5)
    x = omega / 2  # trapezoidal rule for a cosine
    np.testing.assert_allclose(results.integral, np.sin(angles) / omega * x / np.tan(x), atol=1e-5)
    assert results.integral[12] == pytest.approx(24 / np.pi * x / np.tan(x), rel=1e-5)
    # Rounding decides whether C is already below 0 at 90°, where the integral has its maximum.
    assert results.relaxation_time == pytest.approx(results.integral[12], rel=0.01)
    text = results.findings["relaxation time"]
    assert text == results.provenance["relaxation time"]
    # The maximum is reached after 12 frames, more than a fifth of 40.
    assert text == f"{results.relaxation_time:.4g} ps, no interval, not converged"
    assert not results.relaxation_time_converged
    assert np.isnan(results.relaxation_time_interval)
    assert np.isnan(DipoleAutocorrelation(atoms).run(stop=9).results.relaxation_time)
    by_sums = DipoleAutocorrelation(atoms, fft=False).run().results.timeseries
    np.testing.assert_allclose(by_sums, results.timeseries, atol=1e-9)


def test_moments_of_water_are_correlated(tmp_path):
    water = paceline.Universe(PSF_TRICLINIC, DCD_TRICLINIC).atoms
    found = DipoleAutocorrelation(water).run().results
    moments = DielectricConstant(water).run().results.moments
    np.testing.assert_array_equal(found.moments, moments)
    wanted = [(moments[lag:] * moments[: 10 - lag]).sum(axis=1).mean() for lag in range(10)]
    np.testing.assert_allclose(found.timeseries, wanted, rtol=1e-12)
    np.testing.assert_allclose(found.by_axis.sum(axis=1), wanted, rtol=1e-12)
    assert "dipole autocorrelation ((e Å)²)" in found.to_dataframe()


def test_dipoles_that_are_not_correlated(tmp_path, universe):
    with pytest.raises(UnsupportedError, match="DipoleAutocorrelation needs neutral molecules"):
        DipoleAutocorrelation(universe.atoms)
    with pytest.raises(SelectionError, match="DipoleAutocorrelation: atomgroup contains no atoms"):
        DipoleAutocorrelation(universe.atoms[:0])
    frames = [[[1, 1, 1], [2, 1, 1]]] * 3
    with pytest.raises(UnsupportedError, match="equal intervals"):
        DipoleAutocorrelation(made(tmp_path, frames).atoms).run(frames=[0, 2, 1])
    in_vacuum = made(tmp_path, frames, cell=None).atoms
    found = DipoleAutocorrelation(in_vacuum, make_whole=False).run().results
    np.testing.assert_allclose(found.timeseries, [1, 1, 1], rtol=1e-12)
    with pytest.raises(AnalysisError, match="frame 0: the frame has no cell"):
        DipoleAutocorrelation(in_vacuum).run()
    nothing = made(tmp_path, [[[1, 1, 1]] * 2] * 3).atoms
    assert np.isnan(DipoleAutocorrelation(nothing).run().results.relaxation_time)
