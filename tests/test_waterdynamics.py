"""Tests of survival probability against the kit waterdynamics, and by the definition."""

import importlib
import warnings

import MDAnalysis
import numpy as np
import pytest
from MDAnalysis.lib.correlations import autocorrelation, correct_intermittency

import paceline
from paceline.analysis.groups import SelectedAtoms
from paceline.analysis.waterdynamics import SurvivalProbability
from paceline.errors import UnsupportedError

N_FRAMES = 40


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Topology and trajectory of particles that cross the plane x = 0."""
    n_atoms, random = 60, np.random.default_rng(5)
    universe = MDAnalysis.Universe.empty(
        n_atoms, n_atoms // 3, atom_resindex=np.repeat(range(n_atoms // 3), 3), trajectory=True
    )
    universe.add_TopologyAttr("names", ["OW", "HW1", "HW2"] * (n_atoms // 3))
    universe.add_TopologyAttr("resids", list(range(1, n_atoms // 3 + 1)))
    universe.add_TopologyAttr("ids", list(range(1, n_atoms + 1)))
    universe.add_TopologyAttr("resnames", ["SOL"] * (n_atoms // 3))
    folder = tmp_path_factory.mktemp("particles")
    universe.dimensions = [50, 50, 50, 90, 90, 90]
    universe.atoms.write(str(folder / "particles.gro"))
    x = np.zeros((n_atoms, 3)) + random.uniform(-3, 3, (n_atoms, 1))
    with MDAnalysis.Writer(str(folder / "particles.xtc"), n_atoms) as writer:
        for frame in range(N_FRAMES):
            x += random.normal(size=(n_atoms, 3))
            universe.trajectory.ts.time = 5.0 * frame
            universe.atoms.positions = x
            writer.write(universe.atoms)
    return str(folder / "particles.gro"), str(folder / "particles.xtc")


def survival_by_mdanalysis(universe, text, tau_max, step, intermittency, residues, frames):
    """Return the survival probability by the MDAnalysis functions that the kit calls."""
    sets = []
    for _ in universe.trajectory[frames]:
        atoms = universe.select_atoms(text)
        sets.append(set(atoms.residues.resids if residues else atoms.ids))
    filled = correct_intermittency(sets, intermittency)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return autocorrelation(filled, tau_max, step)


TEXT = "prop x > -1.5 and prop x < 2"


@pytest.mark.parametrize("intermittency", [0, 1, 3])
@pytest.mark.parametrize(
    ("step", "tau_max", "stop"), [(None, 5, None), (3, 7, 33), (11, 3, None), (1, 40, None)]
)
def test_survival_is_that_of_mdanalysis(files, intermittency, step, tau_max, stop):
    for residues in (False, True):
        ours = SurvivalProbability(paceline.Universe(*files), TEXT).run(
            *(tau_max, 2 if stop else None, stop, step, residues, intermittency), backend="serial"
        )
        lags, survival, data = survival_by_mdanalysis(
            *(MDAnalysis.Universe(*files), TEXT, tau_max, step or 1, intermittency, residues),
            slice(2 if stop else None, stop),
        )
        assert ours.tau_timeseries == lags
        np.testing.assert_array_equal(ours.sp_timeseries, np.array(survival, float))
        assert ours.sp_timeseries_data == data
        assert ours.results.tau.tolist() == pytest.approx([5.0 * lag for lag in lags])


@pytest.mark.parametrize("step", [None, 4, 20])
@pytest.mark.parametrize("intermittency", [0, 2])
def test_survival_is_that_of_the_kit(files, intermittency, step):
    pytest.importorskip("waterdynamics", reason="the kit waterdynamics is not installed")
    kit = importlib.import_module("waterdynamics.waterdynamics")
    options = {"tau_max": 6, "step": step, "intermittency": intermittency}
    theirs = kit.SurvivalProbability(MDAnalysis.Universe(*files), TEXT).run(**options)
    ours = SurvivalProbability(paceline.Universe(*files), TEXT).run(**options, backend="serial")
    assert ours.tau_timeseries == theirs.tau_timeseries
    assert ours.sp_timeseries == theirs.sp_timeseries
    assert ours.sp_timeseries_data == theirs.sp_timeseries_data


def test_bits_do_not_depend_on_blocks(files):
    universe = paceline.Universe(*files)
    wanted = SurvivalProbability(universe, TEXT).run(8, intermittency=3, backend="serial")
    # An absence begins in one block and ends in the next.
    for block_frames in (1, 7):
        ours = SurvivalProbability(universe, TEXT, tau_max=8, intermittency=3)
        paceline.run(ours, block_frames=block_frames, n_workers=2)
        assert ours.sp_timeseries == wanted.sp_timeseries
    assert wanted.parameters()["intermittency"] == 3


def test_windows_far_apart_read_no_frames_between_them(files):
    ours = SurvivalProbability(paceline.Universe(*files), TEXT)
    ours.run(2, step=15, intermittency=1, backend="serial")
    assert ours.frames.tolist() == [0, 1, 2, 3, 14, 15, 16, 17, 18, 29, 30, 31, 32, 33]


def test_the_longest_lag_is_that_of_a_short_run(files):
    ours = SurvivalProbability(paceline.Universe(*files), TEXT)
    paceline.run(ours, stop=10)
    assert ours.tau_timeseries == list(range(10))
    assert ours.results.provenance["tau_max"] == 9
    # A resumed run must use the user's parameters, and not those that the last run computed.
    assert ours.parameters()["tau_max"] is None
    assert ours.run(9, stop=10).sp_timeseries == ours.run(stop=10, tau_max=9).sp_timeseries
    again = SurvivalProbability(paceline.Universe(*files), TEXT).run(stop=10, step=3)
    assert again.tau_timeseries == list(range(10))
    assert len(again.run().tau_timeseries) == 21


def test_what_makes_no_survival_is_refused(files):
    universe = paceline.Universe(*files)
    with pytest.raises(ValueError, match="tau_max=20 is more than the 10 frames of the run"):
        SurvivalProbability(universe, TEXT).run(20, stop=10)
    with pytest.raises(ValueError, match="window_step must be at least 1, not 0"):
        SurvivalProbability(universe, TEXT).run(step=0)
    with pytest.raises(UnsupportedError, match="equidistant"):
        paceline.run(SurvivalProbability(universe, TEXT, tau_max=2), frames=[0, 1, 2, 5])
    with pytest.raises(ValueError, match="tau_max=20 is more than the 10 frames of the run"):
        paceline.run(SurvivalProbability(universe, TEXT, tau_max=20), stop=10)
    with pytest.raises(ValueError, match="tau_max=20 is more than the 1 frame of the run"):
        SurvivalProbability(universe, TEXT).run(stop=1)
    with pytest.warns(UserWarning, match="no frame has atoms of 'prop x > 1e6'"):
        empty = SurvivalProbability(universe, "prop x > 1e6").run(3)
    assert np.isnan(empty.sp_timeseries[1:]).all()


@pytest.fixture(scope="module")
def square(tmp_path_factory):
    """Four atoms with known positions: which are at z > 0 in each of 8 frames."""
    path = tmp_path_factory.mktemp("square")
    is_in = np.array([[1, 1, 0, 0, 1, 1, 1, 1], [0, 1, 0, 1, 1, 0, 0, 0], [0] * 8, [1] * 8], bool)
    universe = MDAnalysis.Universe.empty(4, 2, atom_resindex=[0, 0, 1, 1], trajectory=True)
    universe.add_TopologyAttr("names", ["A"] * 4)
    universe.add_TopologyAttr("resids", [1, 2])
    universe.add_TopologyAttr("resnames", ["R"] * 2)
    universe.atoms.write(str(path / "four.gro"))
    with MDAnalysis.Writer(str(path / "four.xtc"), 4) as writer:
        for frame, up in enumerate(is_in.T):
            universe.trajectory.ts.time = 2.0 * frame
            universe.atoms.positions = np.where(up[:, None], 1.0, -1.0) * np.ones((4, 3))
            writer.write(universe.atoms)
    universe = paceline.Universe(str(path / "four.gro"), str(path / "four.xtc"))
    return universe.select_atoms("prop z > 0", updating=True), is_in.astype(int)


def test_residence_times_of_a_known_case(square):
    group, is_in = square
    run = SelectedAtoms(group).run()
    both = run.time_correlation("intermittent", tau_max=2)
    lags = [is_in[:, lag:] * is_in[:, : 8 - lag] for lag in range(3)]
    expected = [one.sum() / is_in[:, : 8 - lag].sum() for lag, one in enumerate(lags)]
    assert both.correlation.tolist() == expected
    assert both.tau.tolist() == [0, 2, 4]
    assert both.residence_time == pytest.approx(expected[0] + 2 * expected[1] + expected[2])
    stayed = run.time_correlation("continuous", tau_max=2).correlation
    three = is_in[:, 2:] * is_in[:, 1:-1] * is_in[:, :-2]
    assert stayed.tolist() == [1, expected[1], three.sum() / is_in[:, :6].sum()]
    # The second residue is always there.
    of_residues = run.time_correlation("continuous", tau_max=1, residues=True)
    assert of_residues.correlation[1] == (1 + 4 + 7) / (6 + 7)


def test_stays_of_a_known_case(square):
    run = SelectedAtoms(square[0]).run()
    assert run.stays().tolist() == [
        *((0, 0, 1, False), (0, 4, 7, False)),
        *((1, 1, 1, True), (1, 3, 4, True)),
        (3, 0, 7, False),
    ]
    assert run.stays(gap=1)[["index", "first", "last"]].tolist() == [
        *((0, 0, 1), (0, 4, 7), (1, 1, 4), (3, 0, 7))
    ]
    assert run.stays(gap=1)["is_whole"].tolist() == [False, False, False, False]
    assert run.stays(residues=True)["first"].tolist() == [0, 3, 0]
    with pytest.raises(UnsupportedError, match="equidistant"):
        SelectedAtoms(square[0]).run(frames=[0, 3, 4]).stays()


def test_times_that_are_not_equidistant(square, tmp_path):
    universe = square[0].universe
    path = str(tmp_path / "uneven.trr")
    with MDAnalysis.Writer(path, 4) as writer:
        for frame, step in enumerate(universe.trajectory):
            step.time = 2.0 * frame + (frame == 5)
            writer.write(universe.atoms)
    uneven = paceline.Universe(universe.filename, path)
    run = SelectedAtoms(uneven.select_atoms("prop z > 0", updating=True)).run()
    assert run.stays().tolist() == SelectedAtoms(square[0]).run().stays().tolist()
    words = "frame 5 is at 11.0 ps, expected 10.0 ps"
    for function in ("intermittent", "continuous"):
        with pytest.raises(UnsupportedError, match=words):
            run.time_correlation(function, tau_max=2)
    for step in (1, 4):
        with pytest.raises(UnsupportedError, match=words):
            SurvivalProbability(uneven, "prop z > 0").run(tau_max=2, step=step)
    assert run.run(stop=5).time_correlation(tau_max=2).tau.tolist() == [0, 2, 4]
    backwards = SurvivalProbability(uneven, "prop z > 0").run(tau_max=2, frames=[4, 2, 0])
    assert backwards.results.tau.tolist() == [0, 4, 8]


def test_gaps_and_lags_that_make_no_sense_are_refused(square):
    with pytest.raises(ValueError, match=r"gap must be a whole number, not 1\.5"):
        SelectedAtoms(square[0]).run().stays(gap=1.5)
    with pytest.raises(ValueError, match="gap must be at least 0 frames, not -1"):
        SelectedAtoms(square[0]).run().stays(gap=-1)
    with pytest.raises(ValueError, match=r"tau_max must be a whole number, not 2\.5"):
        SelectedAtoms(square[0]).run().time_correlation(tau_max=2.5)
    with pytest.raises(ValueError, match=r"tau_max must be a whole number, not 2\.5"):
        SurvivalProbability(square[0].universe, "all").run(tau_max=2.5)


@pytest.mark.parametrize("step", [1, 4])
@pytest.mark.parametrize("residues", [False, True])
def test_survival_where_frames_were_left_out(damaged, adk_xtc, step, residues):
    """Check that an origin counts up to the frame before the next skipped frame."""
    (files, missing), text, tau_max = damaged, "prop x > 0 and name CA CB", 6
    whole = SelectedAtoms(paceline.Universe(*adk_xtc).select_atoms(text, updating=True))
    found = whole.run(backend="serial").results
    keys = whole.atomgroup.universe.atoms.resindices if residues else np.arange(3341)
    is_in = np.zeros((98, keys.max() + 1), bool)
    is_in[np.repeat(np.arange(98), found.counts), keys[found.atoms]] = True
    expected = [1.0]
    for lag in range(1, tau_max + 1):
        origins = [t for t in range(0, 98 - lag, step) if not {*range(t, t + lag + 1)} & {*missing}]
        kept = [is_in[t : t + lag + 1].all(axis=0).sum() / is_in[t].sum() for t in origins]
        expected.append(np.mean(kept))
    universe = paceline.Universe(*files)
    options = {"residues": residues, "tau_max": tau_max}
    survival = SurvivalProbability(universe, text).run(
        step=step, on_error="skip", backend="serial", **options
    )
    np.testing.assert_array_equal(survival.results.sp_timeseries, expected)
    assert np.isfinite(survival.results.tau).all()
    together = SurvivalProbability(universe, text, window_step=step, **options)
    paceline.run([together], on_error="skip", n_workers=2)
    np.testing.assert_array_equal(together.results.sp_timeseries, expected)


def test_correlations_where_frames_were_left_out_are_refused(damaged):
    near = paceline.Universe(*damaged[0]).select_atoms("prop x > 0 and name CA", updating=True)
    run = SelectedAtoms(near).run(on_error="skip", backend="serial")
    assert np.flatnonzero(np.isnan(run.results.counts)).tolist() == sorted(damaged[1])
    for ask in (run.stays, run.time_correlation):
        with pytest.raises(UnsupportedError, match="19 damaged frames were left out"):
            ask()


def test_a_group_stands_for_its_universe():
    data = pytest.importorskip("MDAnalysisTests.datafiles")
    u = paceline.Universe(data.PSF, data.DCD)
    select = "name CA and around 8 resid 30"
    of_group, of_all = (
        SurvivalProbability(given, select).run(stop=5, tau_max=2) for given in (u.atoms, u)
    )
    np.testing.assert_array_equal(of_group.results.sp_timeseries, of_all.results.sp_timeseries)
