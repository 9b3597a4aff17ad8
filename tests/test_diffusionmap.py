"""Tests of RMSD matrices, of the tiles by which they are computed, and of diffusion maps."""

import errno
import pickle
import shutil

import MDAnalysis
import mdtraj
import numpy as np
import pytest
from MDAnalysis.analysis import diffusionmap
from MDAnalysis.analysis.rms import rmsd
from scipy.spatial.distance import squareform
from scipy.spatial.transform import Rotation

import paceline
from paceline import checkpoint
from paceline.analysis import diffusionmap as ours
from paceline.analysis import tiles
from paceline.analysis.diffusionmap import DiffusionMap, DistanceMatrix
from paceline.backends import Processes
from paceline.engine import stage_over_collected_rows
from paceline.engine.result_arrays import allocate
from paceline.engine.worker import Worker
from paceline.errors import (
    AnalysisError,
    CheckpointError,
    NotRunError,
    SelectionError,
    UnsupportedError,
)


@pytest.fixture(scope="module")
def ca(adk_xtc):
    return paceline.Universe(*adk_xtc).select_atoms("name CA")


@pytest.fixture(scope="module")
def superposed(ca):
    return DistanceMatrix(ca, superposition=True).run(backend="serial").results.dist_matrix


def matrix(group, backend="serial", **options):
    return DistanceMatrix(group, **options).run(backend=backend).results.dist_matrix


def farthest(factor):
    """Return a metric: the largest difference of a coordinate, in a unit."""
    return lambda a, b, weights: factor * np.abs(a - b).max()


def in_memory(tmp_path, positions):
    """Return a Universe of these positions, in a DCD file."""
    made = MDAnalysis.Universe.empty(positions.shape[1], trajectory=True)
    made.add_TopologyAttr("masses", np.arange(1.0, positions.shape[1] + 1))
    path = tmp_path / "made.dcd"
    with MDAnalysis.Writer(str(path), positions.shape[1]) as writer:
        for frame in positions:
            made.atoms.positions = frame
            writer.write(made.atoms)
    topology = tmp_path / "made.pdb"
    made.atoms.write(str(topology))
    return paceline.Universe(str(topology), str(path))


def test_sizes_of_a_cross_that_turns(tmp_path):
    """Check crosses of sizes a and b: after superposition, each atom is |a - b| from its
    counterpart.
    """
    cross = np.vstack([np.eye(3), -np.eye(3)])
    sizes = np.array([1.0, 2.5, 1.0, 4.0, 3.0])
    turns = Rotation.random(len(sizes), random_state=4)
    frames = [turn.apply(size * cross) + size for turn, size in zip(turns, sizes, strict=True)]
    universe = in_memory(tmp_path, np.array(frames))
    found = matrix(universe, superposition=True)
    np.testing.assert_allclose(found, np.abs(np.subtract.outer(sizes, sizes)), atol=1e-6)
    as_they_are = matrix(universe)
    expected = [[np.sqrt(((a - b) ** 2).sum() / 6) for b in frames] for a in frames]
    np.testing.assert_allclose(as_they_are, expected, atol=1e-6)


@pytest.mark.parametrize("weights", [None, "masses", "numbers"])
def test_as_mdanalysis(weights, adk):
    theirs, universe = MDAnalysis.Universe(*adk), paceline.Universe(*adk)
    atoms = theirs.select_atoms("name CA CB")
    given = {"masses": atoms.masses, "numbers": np.arange(len(atoms)) % 3.0}.get(weights)
    expected = diffusionmap.DistanceMatrix(theirs, "name CA CB", weights=given).run(step=9)
    options = {"weights": "mass" if weights == "masses" else given}
    found = DistanceMatrix(universe, "name CA CB", **options).run(step=9)
    wanted = expected.results.dist_matrix
    np.testing.assert_allclose(found.results.dist_matrix, wanted, rtol=1e-13)
    again = DistanceMatrix.from_mdanalysis(expected).run(step=9).results.dist_matrix
    np.testing.assert_array_equal(again, found.results.dist_matrix)
    with pytest.warns(DeprecationWarning, match="results.dist_matrix"):
        assert found.dist_matrix is found.results.dist_matrix


def test_superposed_as_pair_by_pair(ca, superposed):
    frames = np.array([ca.positions for _ in ca.universe.trajectory], dtype=float)
    weights = ca.masses * np.arange(1, len(ca) + 1)
    weighted = matrix(ca, superposition=True, weights=weights)
    for a in range(0, 98, 12):
        for b in range(0, 98, 7):
            plain = rmsd(frames[a], frames[b], superposition=True)
            assert superposed[a, b] == pytest.approx(plain, abs=1e-6)
            other = rmsd(frames[a], frames[b], weights=weights, superposition=True)
            assert weighted[a, b] == pytest.approx(other, abs=1e-6)
    assert (superposed == superposed.T).all()
    assert not superposed.diagonal().any()


def test_superposed_as_mdtraj(adk_xtc, ca, superposed):
    trajectory = mdtraj.load(adk_xtc.trajectory, top=mdtraj.load_psf(adk_xtc.topology))
    trajectory = trajectory.atom_slice(ca.indices)
    trajectory.center_coordinates()
    expected = [10 * mdtraj.rmsd(trajectory, trajectory, k, precentered=True) for k in range(98)]
    np.testing.assert_allclose(superposed, expected, atol=2e-3)


def largest_move(a, b, weights=None):
    """Return the largest displacement of an atom, Å."""
    assert weights is None
    assert a.dtype == np.float64
    return np.linalg.norm(a - b, axis=1).max()


@pytest.mark.parametrize("backend", ["serial", "threads", "processes"])
def test_a_metric_of_the_user(backend, ca):
    found = DistanceMatrix(ca, metric=largest_move, cutoff=4.0).run(step=12, backend=backend)
    frames = [ca.positions.astype(float) for _ in ca.universe.trajectory[::12]]
    expected = np.array([[largest_move(a, b) for b in frames] for a in frames])
    assert 0 < (expected[expected > 0] <= 4).mean() < 1
    expected[expected <= 4.0] = 0
    np.testing.assert_array_equal(found.results.dist_matrix, expected)


def fails(a, b, weights=None):
    raise KeyError("metric")


def test_a_metric_that_raises(ca):
    message = r"DistanceMatrix raised on pairs of frames 1 to 3: KeyError"
    with pytest.raises(AnalysisError, match=message):
        DistanceMatrix(ca, metric=fails).run(start=1, stop=4)

    def at_the_end(a, b, weights):
        return 1 / 0 if np.array_equal(b, last) else 1.0

    ca.universe.trajectory[97]
    last = ca.positions.astype(float)
    message = r"raised on pairs of frames 0 to 31 with 96 to 97: ZeroDivisionError"
    with pytest.raises(AnalysisError, match=message):
        DistanceMatrix(ca, metric=at_the_end).run(backend="serial")


def in_nanometres(a, b, weights=None):
    """Metric that changes the positions passed to it."""
    a *= 0.1
    b *= 0.1
    return np.sqrt(((a - b) ** 2).sum(axis=1).mean())


def test_a_metric_may_change_its_positions(ca):
    found = DistanceMatrix(ca, metric=in_nanometres).run(step=20).results.dist_matrix
    wanted = DistanceMatrix(ca).run(step=20).results.dist_matrix
    np.testing.assert_allclose(found, wanted / 10, rtol=1e-9)


def test_a_metric_that_gives_no_number(ca):
    with pytest.raises(AnalysisError, match=r"TypeError: .*NoneType"):
        DistanceMatrix(ca, metric=lambda a, b, weights: None).run(stop=3)


def test_no_metric_sees_frames_that_were_left_out(damaged):
    system, frames = damaged

    def one(a, b, weights):
        assert np.isfinite([a, b]).all()
        return 1.0

    group = paceline.Universe(*system).atoms[:5]
    found = DistanceMatrix(group, metric=one).run(on_error="skip").results.dist_matrix
    expected = np.zeros(98, bool)
    expected[frames] = True
    np.testing.assert_array_equal(np.isnan(found), expected[:, None] | expected)


def test_condensed_and_in_single_precision(ca, superposed):
    condensed = matrix(ca, superposition=True, condensed=True)
    np.testing.assert_array_equal(squareform(condensed), superposed)
    single = matrix(ca, superposition=True, dtype=np.float32)
    assert single.dtype == np.float32
    np.testing.assert_array_equal(single, superposed.astype(np.float32))


@pytest.mark.parametrize("condensed", [True, False])
@pytest.mark.parametrize("n_frames", [1, 2, 31, 32, 33, 65, 98])
def test_any_number_of_frames(n_frames, condensed, ca, superposed):
    found = DistanceMatrix(ca, superposition=True, condensed=condensed).run(stop=n_frames)
    wanted = superposed[:n_frames, :n_frames]
    found = found.results.dist_matrix
    if condensed:
        wanted = squareform(wanted) if n_frames > 1 else np.empty(0)
    np.testing.assert_array_equal(found, wanted)


def test_table_and_figure(ca, superposed, tmp_path, monkeypatch):
    results = DistanceMatrix(ca, superposition=True).run().results
    frame = results.to_dataframe()
    title = "mean RMSD from the other frames (Å)"
    assert list(frame) == ["frame", "time (ps)", title]
    np.testing.assert_allclose(frame[title], superposed.sum(axis=1) / 97)
    for drawn, n in ((1000, 98), (40, 33)):
        monkeypatch.setattr(ours, "DRAWN", drawn)
        results = DistanceMatrix(ca, superposition=True).run().results
        mesh = results.plot().collections[0]
        assert mesh.get_array().shape == (n, n)
    ax = DistanceMatrix(ca).run(frames=[5, 1, 9]).results.plot()
    assert ax.get_xlabel() == "frame in the order of the run"
    results.save_figure(tmp_path / "matrix.png")
    other = DistanceMatrix(ca, metric=largest_move).run(stop=3).results
    assert "mean distance from the other frames" in other.to_dataframe()
    one = DistanceMatrix(ca, condensed=True).run(stop=3).results
    with pytest.raises(UnsupportedError, match="have no table"):
        one.plot()


def test_large_ones_are_in_a_file(ca, superposed, monkeypatch):
    monkeypatch.setattr(stage_over_collected_rows, "IN_MEMORY", 0)
    found = matrix(ca, superposition=True)
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, superposed)


def test_no_room_is_said_before_the_work(ca, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(UnsupportedError, match=r"DistanceMatrix: the results need .* free"):
        DistanceMatrix(ca).run(frames=np.arange(20_000) % 98)


def test_frames_that_were_left_out(damaged):
    system, frames = damaged
    ca = paceline.Universe(*system).select_atoms("name CA")
    found = DistanceMatrix(ca, superposition=True).run(on_error="skip").results.dist_matrix
    nan = np.isnan(found)
    expected = np.zeros(98, bool)
    expected[frames] = True
    np.testing.assert_array_equal(nan, expected[:, None] | expected)


def test_parts_are_read_from_a_file_by_processes(ca, superposed, monkeypatch):
    sizes = []
    reduce = stage_over_collected_rows.SharedArray.__reduce__

    def noted(self):
        found = reduce(self)
        sizes.append(len(pickle.dumps(found)))
        return found

    monkeypatch.setattr(stage_over_collected_rows.SharedArray, "__reduce__", noted)
    assert Processes.reads_files_of_caller
    found = matrix(ca, Processes(2), superposition=True)
    np.testing.assert_array_equal(found, superposed)
    # Data of 32 frames of 214 atoms have 82 kB.
    assert sizes
    assert max(sizes) < 10_000


@pytest.mark.parametrize("in_file", [True, False])
def test_views_of_any_layout_are_found_in_a_file(in_file):
    array = allocate((40, 30, 20), np.dtype(np.float64), 0 if in_file else 2**30)
    array[:] = np.arange(array.size).reshape(array.shape)
    file = stage_over_collected_rows._SharedFile.of(array)
    for view in (array, array[3:17], array[:, 5:25:2], array[::-1, :, 3:].T):
        sent = pickle.loads(pickle.dumps(stage_over_collected_rows.SharedArray(view, file))).array
        np.testing.assert_array_equal(sent, view)
        assert not sent.flags.owndata
    other = np.ones((50, 50))
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(stage_over_collected_rows.SharedArray(other, file))).array, other
    )


class Interrupted(Exception):
    pass


def test_parts_are_sent_where_a_file_has_no_room(ca, superposed, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(stage_over_collected_rows, "allocate", full)
    monkeypatch.setattr(tiles, "allocate_results", np.empty)
    found = matrix(ca, Processes(2), superposition=True)
    np.testing.assert_array_equal(found, superposed)


@pytest.mark.parametrize("n_done", [3, 9, 12])
@pytest.mark.parametrize("condensed", [True, False])
def test_it_resumes_amid_its_tiles(n_done, condensed, ca, superposed, tmp_path, monkeypatch):
    """The 98 frames have 7 blocks of 16, and 10 tiles of 32 × 32."""
    path, do, done = tmp_path / "checkpoint", Worker.run, []

    def counting(self, task):
        done.append(type(task).__name__)
        return do(self, task)

    def failing(self, task):
        if len(done) == n_done:
            raise Interrupted
        return counting(self, task)

    def run():
        one = DistanceMatrix(ca, superposition=True, condensed=condensed)
        one.run(backend="serial", block_frames=16, checkpoint=path)
        return one.results.dist_matrix

    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", 0.0)
    monkeypatch.setattr(Worker, "run", failing)
    with pytest.raises(Interrupted) as caught:
        run()
    (note,) = caught.value.__notes__
    kept = 16 * n_done if n_done < 7 else 98 + (n_done - 7) * 98 // 10
    assert note.startswith(f"{kept} of 196 frames of all passes are kept")
    done.clear()
    monkeypatch.setattr(Worker, "run", counting)
    found = run()
    assert len(done) == 17 - n_done
    np.testing.assert_array_equal(squareform(found) if condensed else found, superposed)
    assert not path.exists()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"metric": farthest(1.0)}, {"metric": farthest(2.0)}),
        ({"weights": np.arange(1, 215)}, {"weights": np.arange(215, 1, -1)}),
        ({"dtype": np.float32}, {"dtype": np.float64}),
    ],
    ids=lambda options: next(iter(options)),
)
def test_other_tiles_are_not_gone_on_with(one, other, ca, tmp_path, monkeypatch):
    """Check that an analysis does not continue with tiles of another one with equal positions."""
    path, do = tmp_path / "checkpoint", Worker.run

    def failing(self, task):
        if type(task).__name__ == "FunctionTask" and task.number == 3:
            raise Interrupted
        return do(self, task)

    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(Worker, "run", failing)
    with pytest.raises(Interrupted):
        DistanceMatrix(ca, **one).run(backend="serial", checkpoint=path)
    monkeypatch.setattr(Worker, "run", do)
    named = "(function or reference of DistanceMatrix: not the|parameters of DistanceMatrix: atoms)"
    with pytest.raises(CheckpointError, match=named):
        DistanceMatrix(ca, **other).run(backend="serial", checkpoint=path)
    again = DistanceMatrix(ca, **one).run(backend="serial", checkpoint=path)
    np.testing.assert_array_equal(again.results.dist_matrix, matrix(ca, **one))


def test_beside_an_analysis_of_more_passes(ca, superposed):
    from paceline.analysis.rms import RMSF

    alone = RMSF(ca, align=True).run(backend="serial").results.rmsf
    for n_workers in (1, 2):
        one, other, third = paceline.run(
            [DistanceMatrix(ca, superposition=True), RMSF(ca, align=True), DistanceMatrix(ca)],
            n_workers=n_workers,
        )
        np.testing.assert_array_equal(one.results.dist_matrix, superposed)
        np.testing.assert_array_equal(other.results.rmsf, alone)
        np.testing.assert_array_equal(third.results.dist_matrix, matrix(ca))
    # Frames are not stored if no later stage needs them.
    timings = DistanceMatrix(ca).run().timings
    assert (timings.n_frames, sum(block.n_frames for block in timings.blocks)) == (98, 98 + 10)


def test_bad_input(ca):
    with pytest.raises(SelectionError, match="no atoms"):
        DistanceMatrix(ca, "name XX")
    with pytest.raises(ValueError, match="dtype must be float64 or float32"):
        DistanceMatrix(ca, dtype=int)
    with pytest.raises(ValueError, match="not both"):
        DistanceMatrix(ca, metric=largest_move, superposition=True)
    with pytest.raises((TypeError, ValueError), match="weights"):
        DistanceMatrix(ca, weights=[1.0])
    with pytest.raises(TypeError, match="metric must be a function"):
        DistanceMatrix(ca, metric="rmsd")
    theirs = diffusionmap.DistanceMatrix(ca, metric=largest_move)
    with pytest.raises(UnsupportedError, match="any function"):
        DistanceMatrix.from_mdanalysis(theirs)


def test_diffusion_map(adk):
    theirs, universe = MDAnalysis.Universe(*adk), paceline.Universe(*adk)
    expected = diffusionmap.DiffusionMap(theirs, epsilon=3, select="name CA").run(step=2)
    distances = DistanceMatrix(universe, select="name CA").run(step=2)
    found = DiffusionMap(distances, epsilon=3).run()
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues.real, atol=1e-12)
    kernel = np.exp(-(distances.results.dist_matrix**2) / 3)
    kernel /= kernel.sum(axis=1, keepdims=True)
    vectors = found.eigenvectors
    np.testing.assert_allclose(kernel @ vectors, vectors * found.eigenvalues, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=0), 1)
    wanted = vectors[:, 1:4] * found.eigenvalues[1:4] ** 2
    np.testing.assert_array_equal(found.transform(3, 2), wanted)
    for number in (0, len(vectors)):
        with pytest.raises(ValueError, match=f"={number}: expected a number from 1 to 48 for 49"):
            found.transform(number, 1)
    condensed = DistanceMatrix(universe, select="name CA", condensed=True).run(step=2)
    again = DiffusionMap(condensed, epsilon=3).run()
    np.testing.assert_array_equal(again.eigenvalues, found.eigenvalues)
    assert len(DiffusionMap(universe, select="name CA").run(step=20).eigenvalues) == 5


def test_diffusion_map_of_other_frames(ca):
    found = DiffusionMap(ca).run(step=20)
    assert len(found.run(step=33).eigenvalues) == 3
    matrix = DistanceMatrix(ca).run(step=20)
    with pytest.raises(UnsupportedError, match="pass frames and other options to its run"):
        DiffusionMap(matrix).run(step=33)
    assert len(DiffusionMap(matrix).run().eigenvalues) == 5


def test_coordinates_make_a_table(ca):
    found = DiffusionMap(ca, epsilon=4, superposition=True).run(step=4)
    frame = found.results.to_dataframe()
    titles = [f"diffusion coordinate {k}" for k in range(1, 11)]
    assert list(frame) == ["frame", "time (ps)", *titles]
    np.testing.assert_array_equal(frame["frame"], np.arange(0, 98, 4))
    np.testing.assert_array_equal(frame[titles], found.transform(10, 1))
    assert found.results.provenance["analysis"] == "DiffusionMap"
    axes = found.results.plot()
    (left, right), x = axes.get_xlim(), found.results.coordinates[:, 0]
    assert left < x.min() < x.max() < right
    assert (axes.get_xlabel(), axes.get_ylabel()) == tuple(titles[:2])
    eigenvalues = found.further_tables()["eigenvalues"].columns["eigenvalue"]
    assert eigenvalues[0] == pytest.approx(1)
    few = DiffusionMap(ca, n_eigenvectors=1, time=2).run(step=40)
    np.testing.assert_array_equal(few.results.coordinates, few.transform(1, 2))
    assert few.results.plot().get_ylabel() == "diffusion coordinate"
    with pytest.raises(ValueError, match="n_eigenvectors=3: expected a number from 1 to 2"):
        DiffusionMap(ca, n_eigenvectors=3).run(step=40)
    with pytest.raises(ValueError, match="needs two or more frames"):
        DiffusionMap(ca).run(stop=1)


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("results", lambda one: one.results.coordinates),
        ("timings", lambda one: one.timings),
        ("eigenvalues", lambda one: one.eigenvalues),
        ("eigenvectors", lambda one: one.eigenvectors),
        ("eigenvalues", lambda one: one.transform(2, 1)),
    ],
)
def test_diffusion_map_before_its_run(name, ask, ca):
    before = DiffusionMap(ca)
    with pytest.raises(NotRunError, match=rf"no {name} yet: call run\(\) first"):
        ask(before)
    with pytest.raises(AttributeError, match="'DiffusionMap' object has no attribute 'eigen'"):
        _ = before.eigen


@pytest.mark.parametrize("epsilon", [0, -1, np.nan])
def test_diffusion_map_of_no_scale(epsilon, ca):
    with pytest.raises(ValueError, match="epsilon must be above 0"):
        DiffusionMap(ca, epsilon=epsilon)


def test_diffusion_map_of_nothing(damaged):
    with pytest.raises(ValueError, match="U is not a Universe"):
        DiffusionMap([1, 2])
    ca = paceline.Universe(*damaged[0]).select_atoms("name CA")
    with pytest.raises(ValueError, match="NaN"):
        DiffusionMap(ca).run(on_error="skip")
