"""Tests of principal component analysis against MDAnalysis, and with known components."""

import inspect

import MDAnalysis
import numpy as np
import pytest
from MDAnalysis.analysis import pca as theirs_pca
from MDAnalysis.analysis.align import AlignTraj
from scipy.spatial.transform import Rotation

import paceline
from benchmarks.coverage import autoregressive
from paceline.analysis import pca
from paceline.analysis.jackknife_intervals import errors_of_series
from paceline.analysis.pca import PCA, cosine_content, cosine_contents
from paceline.analysis.saved_table_format import read_saved
from paceline.errors import PacelineWarning, SelectionError, UnsupportedError

#: Error of MDAnalysis, which multiplies deviations and moves atoms in single precision, Å².
ANGSTROM_2 = 5e-4

CASES = {
    "defaults": {"select": "resid 1-20 and name CA"},
    "align": {"select": "name CA and resid 1-70", "align": True},
    "mean": {"select": "name CA and resid 3-22", "mean": np.full((20, 3), 1.5)},
    "align, mean": {
        "select": "name CA and resid 3-22",
        "align": True,
        "mean": np.linspace(0, 9, 60).reshape(20, 3),
    },
    "n_components": {"select": "resid 1 and backbone", "n_components": 5},
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_mdanalysis_s(case, universe, theirs):
    ours = PCA(universe, **CASES[case]).run(start=5, step=2)
    wanted = theirs_pca.PCA(theirs, **CASES[case]).run(start=5, step=2)
    np.testing.assert_allclose(ours.mean, wanted.mean, atol=1e-4)
    np.testing.assert_allclose(ours.cov, wanted.cov, atol=ANGSTROM_2, rtol=1e-5)
    assert ours.n_components == wanted.n_components
    for name in PCA.SHARED_RESULTS:
        assert ours.results[name].shape == wanted.results[name].shape
        assert ours.results[name].dtype == np.float64
    np.testing.assert_allclose(ours.results.variance[:5], wanted.results.variance[:5], rtol=1e-4)
    np.testing.assert_allclose(
        ours.results.cumulated_variance, wanted.results.cumulated_variance, atol=1e-5
    )
    # Components with distinct variances are equal except for their sign.
    inner = ours.results.p_components[:, :3].T @ wanted.results.p_components[:, :3].real
    np.testing.assert_allclose(np.abs(inner), np.eye(3), atol=1e-3)
    assert ours.rmsip(wanted, 3) > 0.9999


def oscillating():
    """Six atoms that move along two orthogonal directions, with amplitudes of 3 and 1 Å."""
    rng = np.random.default_rng(4)
    start = rng.normal(0, 9, (6, 3))
    first, second = np.linalg.qr(rng.normal(size=(18, 2)))[0].T
    phase = 2 * np.pi * np.arange(80) / 80
    steps = 3 * np.outer(np.cos(phase), first) + np.outer(np.sin(phase), second)
    made = MDAnalysis.Universe.empty(6, trajectory=True)
    made.load_new((start.ravel() + steps).reshape(80, 6, 3).astype(np.float32))
    return made, start, np.array([first, second]), phase


def test_known_components():
    universe, start, directions, phase = oscillating()
    pca = PCA(universe, n_components=2, n_projected=2).run()
    np.testing.assert_allclose(pca.mean, start, atol=1e-5)
    # The mean of cos² over whole periods is ½.
    np.testing.assert_allclose(pca.results.variance, [4.5 * 80 / 79, 0.5 * 80 / 79], rtol=1e-5)
    np.testing.assert_allclose(pca.results.cumulated_variance, [0.9, 1.0], rtol=1e-5)
    signs = np.sign(np.sum(pca.results.p_components.T * directions, axis=1))
    np.testing.assert_allclose(pca.results.p_components.T, directions * signs[:, None], atol=1e-5)
    expected = np.column_stack([3 * np.cos(phase), np.sin(phase)]) * signs
    np.testing.assert_allclose(pca.results.projection, expected, atol=1e-4)
    np.testing.assert_allclose(pca.transform(universe), expected, atol=1e-4)
    largest = np.abs(pca.results.p_components).argmax(axis=0)
    assert (pca.results.p_components[largest, [0, 1]] > 0).all()
    # The cosine content is computed as in MDAnalysis.
    assert 0.0 <= cosine_content(pca.results.projection, 0) <= 1.0


def test_rigid_motion_is_no_component_once_superposed():
    universe, *_ = oscillating()
    rng = np.random.default_rng(9)
    still = universe.trajectory.get_array()
    turns = Rotation.random(80, rng=rng).as_matrix()
    turns[0] = np.eye(3)
    moved = np.einsum("fij,faj->fai", turns, still - still[0].mean(axis=0))
    moved += rng.normal(0, 20, (80, 1, 3))
    turning = MDAnalysis.Universe.empty(6, trajectory=True)
    turning.load_new(moved.astype(np.float32))
    fitted, kept = (PCA(one, align=True, n_projected=1).run() for one in (turning, universe))
    np.testing.assert_allclose(fitted.results.variance, kept.results.variance, atol=1e-4)
    np.testing.assert_allclose(fitted.results.projection, kept.results.projection, atol=1e-3)
    assert PCA(turning).run().results.variance[0] > 100


def test_a_projection_is_that_of_the_fitted_trajectory(universe, theirs):
    select = "name CA and resid 1-40"
    pca = PCA(universe, select=select, align=True, n_projected=4).run(start=3)
    assert pca.stages == 2
    fitted = theirs.copy()
    reference = theirs.copy()
    reference.trajectory[3]
    AlignTraj(fitted, reference, select=select, in_memory=True).run()
    wanted = pca.transform(fitted.select_atoms(select), 4, start=3)
    np.testing.assert_allclose(pca.results.projection, wanted, atol=2e-3)
    variance = pca.results.projection.var(axis=0, ddof=1)
    np.testing.assert_allclose(variance, pca.results.variance[:4], rtol=1e-9)


def test_a_transformed_trajectory_is_mdanalysis_s(universe, theirs):
    select = "name CA and resid 1-20"
    pca = PCA(universe, select=select).run()
    wanted = theirs_pca.PCA(theirs, select=select).run()
    found, expected = (
        one.transform(theirs.select_atoms(select), 2, start=10, stop=60, step=3)
        for one in (pca, wanted)
    )
    signs = np.sign(np.sum(found * expected, axis=0))
    np.testing.assert_allclose(found, expected * signs, atol=1e-3)
    with pytest.raises(ValueError, match=r"20 atoms\. Your atomgroup has 214"):
        pca.transform(theirs.select_atoms("name CA"))
    with pytest.warns(UserWarning, match="Atom types do not match"):
        pca.transform(theirs.select_atoms("name N and resid 1-20"), 1, stop=2)
    with pytest.raises(ValueError, match=r"call run\(\) first"):
        PCA(universe, select=select).transform(universe)


def test_subspaces_are_compared(universe):
    first, second = (PCA(universe, select="name CA and resid 1-9") for _ in range(2))
    first.run(stop=49)
    second.run(start=49)
    assert first.rmsip(first) == pytest.approx(1)
    a, b = first.results.p_components[:, :3], second.results.p_components[:, :3]
    assert first.rmsip(second, 3) == pytest.approx(np.sqrt(((a.T @ b) ** 2).sum() / 3))
    overlap = np.sqrt(((a[:, 1] @ b) ** 2).sum())
    assert first.cumulative_overlap(second, i=1, n_components=3) == pytest.approx(overlap)
    with pytest.raises(ValueError, match=r"call run\(\) first"):
        PCA(universe, select="name CA").rmsip(first)


def test_a_frame_is_projected_back():
    universe, start, *_ = oscillating()
    pca = PCA(universe).run()
    project = pca.project_single_frame(0)
    ts = project(universe.trajectory[20])
    # After a quarter of a period, the displacement along the first component is zero.
    np.testing.assert_allclose(ts.positions, start, atol=1e-4)


def test_atoms_that_move_together_are_correlated(universe, theirs):
    rng = np.random.default_rng(2)
    steps = rng.normal(0, 1, (50, 3))
    frames = np.zeros((50, 4, 3))
    frames[:, 0], frames[:, 1], frames[:, 2] = steps, 3 * steps + 7, -0.5 * steps
    made = MDAnalysis.Universe.empty(4, trajectory=True)
    made.load_new(frames.astype(np.float32))
    found = PCA(made).run().cross_correlation()
    np.testing.assert_allclose(found[:3, :3], [[1, 1, -1], [1, 1, -1], [-1, -1, 1]], atol=1e-6)
    assert np.isnan(found[3]).all()
    pca = PCA(universe, select="name CA and resid 1-30", align=True)
    with pytest.raises(ValueError, match=r"call run\(\) first"):
        pca.cross_correlation()
    pca.run()
    fitted = theirs.copy()
    fitted.trajectory[0]
    AlignTraj(fitted, theirs, select="name CA and resid 1-30", in_memory=True).run()
    atoms = fitted.select_atoms("name CA and resid 1-30")
    x = np.array([atoms.positions for _ in fitted.trajectory], dtype=float)
    x -= x.mean(axis=0)
    products = np.einsum("fix,fjx->ij", x, x)
    size = np.sqrt(np.diagonal(products))
    np.testing.assert_allclose(pca.cross_correlation(), products / np.outer(size, size), atol=1e-4)


def test_many_atoms_are_named_before_the_run(universe, monkeypatch):
    monkeypatch.setattr(pca, "MANY_ATOMS", 10)
    with pytest.warns(PacelineWarning, match="a matrix of 60 × 60 numbers is diagonalised"):
        PCA(universe.atoms[:20]).run(stop=5)


def test_components_may_be_left_out_afterwards(universe):
    pca = PCA(universe, select="name CA and resid 1-9", n_projected=2).run(step=9)
    whole, projection = pca.results.p_components, pca.results.projection
    pca.n_components = 3
    np.testing.assert_array_equal(pca.results.p_components, whole[:, :3])
    assert pca.results.variance.shape == (3,)
    assert pca.results.projection is projection
    assert list(pca.results.to_dataframe()) == ["component", "variance (Å²)", "cumulative variance"]
    assert pca.results.provenance["analysis"] == "PCA"


def components_of(files):
    universe = MDAnalysis.Universe(*files)
    pca = theirs_pca.PCA(universe, select="name CA and resid 1-20", align=True, n_components=4)
    pca.run(step=2)
    atoms = universe.select_atoms("name CA and resid 1-20")
    return pca, pca.transform(atoms, 2), pca.project_single_frame(0)(universe.trajectory[3])


def test_a_script_of_mdanalysis_goes_on_with_the_results(adk):
    with paceline.register():
        ours, space, ts = components_of(adk)
    theirs, expected, other = components_of(adk)
    np.testing.assert_allclose(ours.cov, theirs.cov, atol=ANGSTROM_2)
    # MDAnalysis's covariance has single precision.
    assert not np.array_equal(ours.cov, theirs.cov)
    assert ours.results.p_components.shape == (60, 4)
    np.testing.assert_allclose(np.abs(space), np.abs(expected), atol=1e-2)
    np.testing.assert_allclose(ts.positions, other.positions, atol=1e-2)
    ours.n_components = 2
    assert ours.results.variance.shape == (2,)


def test_parameters_are_mdanalysis_s():
    def parameters(function):
        named = inspect.signature(function).parameters.values()
        return [(p.name, p.default) for p in named if p.kind is not p.VAR_KEYWORD]

    assert parameters(PCA.__init__) == [
        *parameters(theirs_pca.PCA.__init__),
        ("n_projected", 0),
        ("errors", False),
        ("verbose", False),
    ]
    for name in ("transform", "project_single_frame", "rmsip", "cumulative_overlap"):
        assert parameters(getattr(PCA, name)) == parameters(getattr(theirs_pca.PCA, name))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"select": "name XYZ"}, SelectionError, "no atoms match 'name XYZ'"),
        ({"mean": np.zeros((5, 3))}, ValueError, r"Number of atoms in reference \(5\)"),
        ({"mean": np.zeros(20)}, ValueError, r"shape \(3341, 3\)"),
        ({"select": "resid 1 and name CA", "n_projected": 4}, ValueError, "from 0 to 3, not 4"),
    ],
)
def test_what_has_no_components_is_refused(options, error, words, universe):
    with pytest.raises(error, match=words):
        PCA(universe, **options)


def test_groups_that_update_themselves_are_refused(universe):
    near = universe.select_atoms("around 5 resid 10", updating=True)
    with pytest.raises(UnsupportedError, match="UpdatingAtomGroup"):
        PCA(near)


def test_too_few_frames_are_refused(universe, damaged):
    with pytest.raises(ValueError, match="from a single frame"):
        PCA(universe, select="name CA").run(stop=1)
    system, frames = damaged
    pca = PCA(paceline.Universe(*system), select="name CA")
    with pytest.raises(ValueError, match="from 1 of 20 frames: all others are damaged"):
        pca.run(frames=[0, *frames], on_error="skip")


def test_positions_that_are_no_numbers_are_refused():
    universe, *_ = oscillating()
    universe.trajectory.get_array()[7, 2, 1] = np.nan
    with pytest.raises(ValueError, match="frame 7: positions are not all finite numbers"):
        PCA(universe).run()


def test_damaged_frames_are_left_out(damaged, adk_xtc):
    system, frames = damaged
    select = "name CA and resid 1-20"
    pca = PCA(paceline.Universe(*system), select=select, align=True, n_projected=2)
    pca.run(on_error="skip")
    kept = [frame for frame in range(98) if frame not in frames]
    wanted = PCA(paceline.Universe(*adk_xtc), select=select, align=True).run(frames=kept)
    np.testing.assert_allclose(pca.cov, wanted.cov, rtol=1e-10, atol=1e-12)
    assert np.flatnonzero(np.isnan(pca.results.projection[:, 0])).tolist() == frames


def test_projections_are_a_table_and_a_figure(universe, tmp_path, adk, run):
    pca = PCA(universe, "name CA", align=True, n_projected=2).run(stop=9)
    table = pca.further_tables()["projections"]
    np.testing.assert_array_equal(table.columns["PC2 (Å)"], pca.results.projection[:, 1])
    assert (table.drawn.x, [*table.drawn.y], table.drawn.colour) == (
        *("PC1 (Å)", ["PC2 (Å)"], "time (ps)"),
    )
    assert PCA(universe, "name CA").run(stop=5).further_tables() == {}
    path = tmp_path / "pc.csv"
    options = ["--align", "--end", 9, "--projections", path, "-o", tmp_path / "pca.csv"]
    assert run("pca", *adk, *options)[0] == 0
    found = np.loadtxt(path, delimiter=",", comments=("#", "f"))
    np.testing.assert_array_equal(found[:, 2:], pca.results.projection)


def in_memory(positions):
    """Universe of atoms at these positions, shape (n_frames, n_atoms, 3)."""
    made = MDAnalysis.Universe.empty(positions.shape[1], trajectory=True)
    made.load_new(positions.astype(np.float32))
    return made


def moving(n_frames, deviations, seed=1, time=0.0):
    """Atoms that move along orthogonal directions with these standard deviations."""
    noise = autoregressive(np.random.default_rng(seed), time, n_frames, len(deviations)).T
    return in_memory((noise * deviations).reshape(n_frames, -1, 3))


DEVIATIONS = 3.0 / 1.4 ** np.arange(12)


def test_results_are_those_without_intervals():
    universe = moving(1100, DEVIATIONS, time=4)
    plain = PCA(universe, n_projected=2).run()
    found = PCA(universe, n_projected=2, errors=True).run(block_frames=64, backend="threads")
    assert found.results.projection.shape == (1100, 3)
    for name in ("variance", "p_components", "cumulated_variance"):
        np.testing.assert_allclose(found.results[name], plain.results[name], atol=1e-9)
    np.testing.assert_allclose(found.results.projection[:, :2], plain.results.projection, atol=1e-8)
    assert "jackknife" in found.results.provenance["intervals"]
    assert "variance_interval" not in plain.results
    found.n_components = 4
    assert found.results.variance_interval.shape == found.results.rmsip_of_halves.shape == (4,)


def test_intervals_are_the_jackknife_of_the_eigenvalues():
    universe = moving(1024, DEVIATIONS, time=3)
    results = PCA(universe, errors=True).run(block_frames=16).results
    assert "64 parts of up to 16 frames" in results.provenance["intervals"]
    rows = universe.trajectory.get_array().reshape(64, 16, 12).astype(np.float64)

    def variances(some):
        found = np.linalg.eigvalsh(np.cov(some.reshape(-1, 12).T))[::-1]
        return np.stack([found, found.cumsum() / found.sum()])

    without = np.stack([variances(np.delete(rows, k, axis=0)) for k in range(64)])
    wanted, _ = errors_of_series(64 * variances(rows) - 63 * without)
    np.testing.assert_allclose(results.variance_interval, wanted[0], rtol=1e-6)
    np.testing.assert_allclose(results.cumulated_variance_interval[:-1], wanted[1][:-1], rtol=1e-5)
    outside = np.abs(results.variance - DEVIATIONS**2) > results.variance_interval
    assert outside.sum() <= 2
    # Of independent frames, the variance of a variance is 2 variance² / (n - 1).
    still = PCA(moving(4096, DEVIATIONS, seed=2), errors=True).run().results
    usual = 1.96 * still.variance * np.sqrt(2 / 4095)
    assert 1 < np.median(still.variance_interval / usual) < 1.5


def test_components_beyond_the_first_have_no_interval():
    universe = moving(200, 3.0 / 1.1 ** np.arange(75))
    results = PCA(universe, errors=True).run().results
    for name in ("variance_interval", "cumulated_variance_interval", "rmsip_of_halves"):
        assert np.isnan(results[name]).tolist() == [False] * 20 + [True] * 55
    # Variances without a part are computed in the space of the first 40 of 75 components.
    rows = universe.trajectory.get_array().reshape(100, 2, 75).astype(np.float64)
    rest = [np.delete(rows, k, axis=0).reshape(-1, 75) for k in range(100)]
    without = np.stack([np.linalg.eigvalsh(np.cov(one.T))[::-1][:5] for one in rest])
    spread = without.std(axis=0)
    ratio = results.variance_interval[:5] / spread
    assert (ratio / np.median(ratio)).round(1).tolist() == pytest.approx([1] * 5, abs=0.3)


@pytest.mark.parametrize(("axes", "wanted"), [([0, 1], 1.0), ([1, 2], np.sqrt(0.5)), ([2, 3], 0.0)])
def test_rmsip_of_halves_with_known_subspaces(axes, wanted):
    positions = np.zeros((512, 6))
    rng = np.random.default_rng(5)
    for half, (first, second) in zip((slice(256), slice(256, 512)), ([0, 1], axes), strict=True):
        positions[half, first], positions[half, second] = 3 * rng.normal(size=(2, 256))
    positions += 1e-3 * rng.normal(size=positions.shape)
    pca = PCA(in_memory(positions.reshape(512, 2, 3)), errors=True).run(block_frames=16)
    assert pca.results.rmsip_of_halves[1] == pytest.approx(wanted, abs=5e-3)
    assert pca.results.rmsip_of_halves[5] == pytest.approx(1)


def test_rmsip_of_halves_is_that_of_two_runs(universe):
    found = PCA(universe, "name CA and resid 1-70", align=True, errors=True).run(stop=64)
    halves = [
        PCA(universe, "name CA and resid 1-70", align=True, n_components=20) for _ in range(2)
    ]
    halves[0].run(frames=range(32))
    # All frames are superposed on the first one of the whole run, and those of the second half on
    # their own first one.
    halves[1].run(frames=range(32, 64))
    first, second = (half.rmsip(halves[1 - k], 5) for k, half in enumerate(halves))
    assert first == pytest.approx(second)
    assert found.results.rmsip_of_halves[4] == pytest.approx(first, abs=0.1)


def test_components_without_motion_have_no_rmsip():
    still = np.broadcast_to(np.random.default_rng(2).normal(20, 5, (20, 4, 3))[:1], (20, 4, 3))
    results = PCA(in_memory(still), errors=True).run().results
    assert np.isnan(results.rmsip_of_halves).all()
    assert "RMSIP of both halves" not in results.table.notes
    moving_along_two = still.copy()
    moving_along_two[:, 0, :2] += np.random.default_rng(3).normal(size=(20, 2))
    for align in (False, True):
        results = PCA(in_memory(moving_along_two), align=align, errors=True).run().results
        assert np.isnan(results.rmsip_of_halves[9:]).all()
        if not align:
            assert results.rmsip_of_halves[1] == pytest.approx(1)
            assert np.isnan(results.rmsip_of_halves[2:]).all()


def test_too_few_frames_have_no_rmsip():
    results = PCA(moving(3, DEVIATIONS[:6]), errors=True).run().results
    assert np.isnan(results.rmsip_of_halves).all()
    assert np.isnan(results.variance_interval).all()
    assert results.cosine_content.shape == (3,)
    assert np.isnan(PCA(moving(2, DEVIATIONS[:6]), errors=True).run().results.cosine_content).all()


def test_the_cosine_content_of_a_random_walk_is_near_1():
    steps = np.random.default_rng(3).normal(size=(2000, 60, 3))
    walk = PCA(in_memory(steps.cumsum(axis=0)), errors=True).run().results
    assert walk.cosine_content[0] > 0.95
    assert (walk.cosine_content > 0.8).all()
    noise = PCA(in_memory(steps), errors=True).run().results
    assert (noise.cosine_content < 0.05).all()
    notes = noise.table.notes
    assert "near 1: like random diffusion" in notes["cosine content of the first components"]
    assert "of 10 components (equal: 1, unrelated: 0.24)" in notes["RMSIP of both halves"]


def test_cosine_contents_of_known_projections():
    at = (np.arange(500) + 0.5) / 500
    cosines = np.cos(np.pi * np.multiply.outer(at, [1, 2, 3]))
    none = np.zeros(500, bool)
    np.testing.assert_allclose(cosine_contents(cosines, none), [1, 1, 1])
    np.testing.assert_allclose(cosine_contents(cosines[:, ::-1], none), [0, 1, 0], atol=1e-20)
    # A projection relative to given positions has an offset.
    np.testing.assert_allclose(cosine_contents(cosines + 3, none), [1, 1, 1])
    gaps = none.copy()
    gaps[[3, 77, 400]] = True
    cosines[gaps] = np.nan
    np.testing.assert_allclose(cosine_contents(cosines, gaps), [1, 1, 1])
    # MDAnalysis integrates by Simpson's rule, with times that begin at 0.
    walk = np.random.default_rng(1).normal(size=(2000, 2)).cumsum(axis=0)
    walk -= walk.mean(axis=0)
    found = cosine_contents(walk, np.zeros(2000, bool))
    np.testing.assert_allclose(found, [cosine_content(walk, k) for k in (0, 1)], atol=5e-3)


def test_cosine_contents_do_not_depend_on_a_given_mean_and_need_equally_spaced_frames():
    at = (np.arange(200) + 0.5) / 200
    positions = np.zeros((200, 2, 3))
    positions[:, 0, 0], positions[:, 1, 1] = 4 * np.cos(np.pi * at), np.cos(2 * np.pi * at)
    universe = in_memory(positions)
    for mean in (None, np.array([[-3.0, 0, 0], [0, 0, 0]])):
        pca = PCA(universe, mean=mean, errors=True)
        contents = pca.run().results.cosine_content
        np.testing.assert_allclose(contents[:2], 1, atol=1e-4)
        backwards = pca.run(frames=range(199, -1, -1)).results.cosine_content
        np.testing.assert_allclose(backwards[:2], 1, atol=1e-4)
    results = pca.run(frames=[0, 1, 2, 5, *range(10, 200)]).results
    assert np.isnan(results.cosine_content).all()
    assert "cosine content of the first components" not in results.table.notes


def test_intervals_are_in_tables_and_figures(tmp_path, adk, run):
    path = tmp_path / "pca.csv"
    assert run("pca", *adk, "--errors", "-o", path, "--plot", tmp_path / "pca.svg")[0] == 0
    text = path.read_text(encoding="utf-8")
    assert "# RMSIP of both halves: 0." in text
    assert "# cosine content of the first components: 0." in text
    saved = read_saved(path)
    assert list(saved.columns) == [
        *("component", "variance (Å²)", "variance, 95 % ± (Å²)", "cumulative variance"),
        *("cumulative variance, 95 % ±", "RMSIP of halves"),
    ]
    svg = (tmp_path / "pca.svg").read_text(encoding="utf-8")
    assert "RMSIP of both halves of the run" in svg


def test_intervals_of_too_many_atoms_are_refused():
    universe = MDAnalysis.Universe.empty(2000, trajectory=True)
    universe.load_new(np.zeros((3, 2000, 3), np.float32))
    with pytest.raises(UnsupportedError, match=r"PCA: intervals need .* choose fewer atoms"):
        PCA(universe, errors=True).run()
