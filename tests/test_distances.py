"""Tests of distances and angles in any cell against MDAnalysis, MDTraj and cases by hand."""

import inspect
import itertools
import warnings
from types import SimpleNamespace

import MDAnalysis
import mdtraj
import numpy as np
import pytest
from MDAnalysis.analysis import atomicdistances as theirs_atomicdistances
from MDAnalysis.lib import distances as theirs_lib

import paceline
import paceline.analysis.atomicdistances
from paceline.analysis import distances
from paceline.analysis.distances import (
    Angles,
    AtomicDistances,
    CenterDistance,
    DistanceMatrixSeries,
    MinimumDistance,
)
from paceline.analysis.neighbors import CoordinationNumbers, NeighborList
from paceline.engine import result_arrays
from paceline.errors import AnalysisError, SelectionError, UnsupportedError

CELLS = {
    "rectangular": (25, 30, 35, 90, 90, 90),
    "dodecahedron": (32, 32, 32, 60, 60, 90),
    "octahedron": (30, 30, 30, 70.53, 109.47, 70.53),
    "triclinic": (40, 25, 30, 80, 100, 115),
    "none": None,
}
N_ATOMS = 120


@pytest.fixture(scope="module", params=CELLS)
def box(request, tmp_path_factory):
    """Topology and trajectory of atoms in and around a cell that changes from frame to frame."""
    random = np.random.default_rng(5)
    made = MDAnalysis.Universe.empty(N_ATOMS, trajectory=True)
    made.add_TopologyAttr("masses", random.uniform(1, 20, N_ATOMS))
    path = str(tmp_path_factory.mktemp("box") / "box.trr")
    cell = CELLS[request.param]
    with MDAnalysis.Writer(path, N_ATOMS) as writer:
        for size in (1.0, 1.013, 0.991):
            made.atoms.positions = random.uniform(-30, 60, (N_ATOMS, 3))
            if cell:
                made.dimensions = [*(size * edge for edge in cell[:3]), *cell[3:]]
            writer.write(made.atoms)
    return made._topology, path


@pytest.fixture(params=[True, False], ids=["pbc", "no pbc"])
def both(request, box):
    """Paceline's Universe, MDAnalysis's, periodicity of distances, and the cell of a frame."""
    ours, theirs = paceline.Universe(*box), MDAnalysis.Universe(*box)
    return ours, theirs, request.param, lambda: theirs.dimensions if request.param else None


def assert_close(found, wanted):
    """Check equality up to the single precision in which MDAnalysis wraps atoms into triclinic
    cells.
    """
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-5)


def test_pairs_are_mdanalysis_s(both):
    ours, theirs, pbc, _ = both
    first, second = slice(0, 60), slice(119, 59, -1)
    found = AtomicDistances(ours.atoms[first], ours.atoms[second], pbc).run()
    wanted = theirs_atomicdistances.AtomicDistances(theirs.atoms[first], theirs.atoms[second], pbc)
    assert_close(found.results.distances, wanted.run().results.distances)
    assert found.n_atoms == 60
    assert np.array_equal(found.results.frames, [0, 1, 2])


def test_matrices_are_mdanalysis_s(both):
    ours, theirs, pbc, cell = both
    own = DistanceMatrixSeries(ours.atoms[::-2], pbc=pbc).run().results.distances
    between = DistanceMatrixSeries(ours.atoms[:50], ours.atoms[40:], pbc=pbc).run()
    between = between.results.distances
    assert own.shape == (3, 60 * 59 // 2)
    assert between.shape == (3, 50, 80)
    for k, _ in enumerate(theirs.trajectory):
        x = theirs.atoms.positions
        assert_close(own[k], theirs_lib.self_distance_array(x[::-2], cell()))
        assert_close(between[k], theirs_lib.distance_array(x[:50], x[40:], cell()))


def test_minima_are_those_of_the_matrix(both):
    ours, _, pbc, _ = both
    first, second = ours.atoms[:50], ours.atoms[:49:-1]
    found = MinimumDistance(first, second, pbc=pbc).run().results
    matrices = DistanceMatrixSeries(first, second, pbc=pbc).run().results.distances
    np.testing.assert_array_equal(found.distances, matrices.min(axis=(1, 2)))
    places = [np.unravel_index(one.argmin(), one.shape) for one in matrices]
    wanted = [(first.indices[i], second.indices[j]) for i, j in places]
    np.testing.assert_array_equal(found.pairs, wanted)
    assert found.pairs.dtype == np.int64


@pytest.mark.parametrize("weights", ["mass", None])
def test_distances_of_centers_are_mdanalysis_s(weights, both):
    ours, theirs, pbc, cell = both
    found = CenterDistance(ours.atoms[:50], ours.atoms[90:40:-1], weights=weights, pbc=pbc)
    found = found.run().results.distances
    kind = "center_of_mass" if weights else "center_of_geometry"
    groups = theirs.atoms[:50], theirs.atoms[90:40:-1]
    wanted = []
    for _ in theirs.trajectory:
        centers = [getattr(group, kind)()[None].astype(np.float32) for group in groups]
        wanted.append(theirs_lib.calc_bonds(*centers, cell())[0])
    assert_close(found, wanted)


def test_angles_are_mdanalysis_s(both):
    ours, theirs, pbc, cell = both
    parts = slice(0, 40), slice(40, 80), slice(119, 79, -1)
    found = Angles(*(ours.atoms[part] for part in parts), pbc=pbc).run().results.angles
    for k, _ in enumerate(theirs.trajectory):
        groups = [theirs.atoms[part].positions for part in parts]
        wanted = np.degrees(theirs_lib.calc_angles(*groups, cell()))
        np.testing.assert_allclose(found[k], wanted, rtol=0, atol=1e-4)


def test_protein_in_water(adk_in_water):
    """Check a dodecahedron, with molecules broken at its faces."""
    ours, theirs = paceline.Universe(*adk_in_water), MDAnalysis.Universe(*adk_in_water)
    selections = "name CA", "name OW and index 0:6000"
    groups = [ours.select_atoms(selection) for selection in selections]
    own = DistanceMatrixSeries(groups[1]).run(stop=1).results.distances
    least = MinimumDistance(*groups).run(stop=2).results
    for k, ts in enumerate(theirs.trajectory[:2]):
        ca, water = (theirs.select_atoms(selection) for selection in selections)
        matrix = theirs_lib.distance_array(ca.positions, water.positions, ts.dimensions)
        assert_close(least.distances[k], matrix.min())
        assert matrix[ca.indices == least.pairs[k, 0], water.indices == least.pairs[k, 1]] == (
            pytest.approx(matrix.min(), abs=1e-5)
        )
        if k == 0:
            wanted = theirs_lib.self_distance_array(water.positions, ts.dimensions)
            assert_close(own[0], wanted)


def test_they_are_mdtraj_s(adk_xtc):
    trajectory = mdtraj.load(adk_xtc.trajectory, top=adk_xtc.topology)[:4]
    ca = paceline.Universe(*adk_xtc).select_atoms("name CA")
    pairs = list(itertools.combinations(ca.indices, 2))
    wanted = 10 * mdtraj.compute_distances(trajectory, pairs)
    found = DistanceMatrixSeries(ca).run(stop=4).results.distances
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    triples = np.column_stack([ca.indices[:-2], ca.indices[1:-1], ca.indices[2:]])
    angles = Angles(ca[:-2], ca[1:-1], ca[2:]).run(stop=4).results.angles
    wanted = np.degrees(mdtraj.compute_angles(trajectory, triples))
    np.testing.assert_allclose(angles, wanted, atol=1e-2)


def run_in_memory(make, positions, cell=None):
    """Return the results of an analysis of frames in memory, given a function of their Universe."""
    positions = np.asarray(positions, dtype=np.float32)
    made = MDAnalysis.Universe.empty(positions.shape[1])
    made.load_new(positions, dimensions=cell)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(made.atoms).run(backend="serial").results


def test_by_hand():
    positions, cell = [[[1, 1, 1], [9, 1, 1], [1, 4, 1]]], [10, 20, 20, 90, 90, 90]
    matrix = run_in_memory(DistanceMatrixSeries, positions, cell).distances
    np.testing.assert_allclose(matrix, [[2, 3, np.sqrt(13)]], rtol=1e-14)
    least = run_in_memory(lambda x: MinimumDistance(x[1:], x[:1]), positions, cell)
    assert (least.distances[0], least.pairs.tolist()) == (2.0, [[1, 0]])
    angle = run_in_memory(lambda x: Angles(x[1:2], x[:1], x[2:]), positions, cell).angles
    np.testing.assert_allclose(angle, [[90.0]], rtol=1e-14)
    centers = run_in_memory(lambda x: CenterDistance(x[:1], x[1:], weights=None), positions)
    np.testing.assert_allclose(centers.distances, [np.hypot(4, 1.5)], rtol=1e-14)


def test_nan_stays_in_its_pairs():
    positions = np.random.default_rng(1).random((3, 4, 3))
    positions[1, 2, 1] = np.nan
    pairs = run_in_memory(lambda x: AtomicDistances(x[:2], x[2:]), positions).distances
    assert np.array_equal(np.isnan(pairs), [[False, False], [True, False], [False, False]])
    least = run_in_memory(lambda x: MinimumDistance(x[:2], x[2:]), positions)
    assert np.array_equal(np.isnan(least.distances), [False, True, False])
    assert least.pairs[1].tolist() == [-1, -1]
    assert (least.pairs[[0, 2]] >= 0).all()


def test_parameters_are_theirs():
    wanted = inspect.signature(theirs_atomicdistances.AtomicDistances.__init__).parameters
    found = inspect.signature(AtomicDistances.__init__).parameters
    assert list(found) == [name for name in wanted if name != "kwargs"] + ["verbose"]
    assert found["pbc"].default is wanted["pbc"].default is True


def test_their_module_has_our_class(adk_in_water):
    assert paceline.analysis.atomicdistances.AtomicDistances is AtomicDistances
    assert paceline.analysis.distances.dist is MDAnalysis.analysis.distances.dist
    assert distances.NeighborList is NeighborList
    assert distances.CoordinationNumbers is CoordinationNumbers
    with paceline.register():
        u = MDAnalysis.Universe(*adk_in_water)
        one = theirs_atomicdistances.AtomicDistances(u.atoms[:9], u.atoms[90:99])
        ours = AtomicDistances(u.atoms[:9], u.atoms[90:99]).run().results.distances
        assert np.array_equal(one.run().results.distances, ours)
        empty = theirs_atomicdistances.AtomicDistances(u.atoms[:0], u.atoms[:0]).run(stop=2)
    assert empty.results.distances.shape == (2, 0)


def test_tables_have_units(universe):
    n, ca = universe.select_atoms("name N")[:2], universe.select_atoms("name CA")[:2]
    pairs = AtomicDistances(n, ca).run(stop=3).results
    titles = ["frame", "time (ps)", "distance 0: atoms 0-4 (Å)", "distance 1: atoms 19-21 (Å)"]
    assert list(pairs.to_dataframe()) == titles
    least = MinimumDistance(n, ca).run(stop=3).results
    assert list(least.to_dataframe()) == ["frame", "time (ps)", "minimum distance (Å)"]
    assert least.plot().get_ylabel() == "minimum distance (Å)"


def test_results_without_room_are_refused(universe, monkeypatch):
    matrix = DistanceMatrixSeries(universe.atoms)
    room = SimpleNamespace(free=10**9)
    monkeypatch.setattr(result_arrays.shutil, "disk_usage", lambda folder: room)
    words = r"DistanceMatrixSeries: the results need 4\.37 GB, but 1 GB are free in .*TMPDIR"
    with pytest.raises(UnsupportedError, match=words):
        matrix.run()


def test_blocks_are_small_where_rows_are_large(universe):
    group = universe.select_atoms("index 0:800")
    matrix = DistanceMatrixSeries(group)
    assert matrix.row_bytes == 8 * 801 * 800 // 2
    frames = [0, 1] * 700  # with rows of a few bytes, blocks have 64 frames
    ca = universe.select_atoms("name CA")
    largest = [
        max(block.n_frames for block in one.run(frames=frames[:n], n_workers=1).timings.blocks)
        for one, n in ((matrix, 40), (AtomicDistances(ca, ca[::-1]), 1400))
    ]
    assert largest[0] < largest[1]


def test_what_makes_no_distance_is_refused(universe, adk):
    ca = universe.select_atoms("name CA")
    other = paceline.Universe(*adk).atoms[:10]
    with pytest.raises(SelectionError, match=r"same number of atoms \(ag1: 10, ag2: 9\)"):
        AtomicDistances(ca[:10], ca[:9])
    with pytest.raises(SelectionError, match="ag3: 1"):
        Angles(ca[:2], ca[:2], ca[:1])
    with pytest.raises(SelectionError, match="angle 1 has the atom with index 21 twice"):
        Angles(ca[2:4], ca[:2], ca[[5, 1]])
    with pytest.raises(SelectionError, match="ag1 contains no atoms"):
        AtomicDistances(ca[:0], ca[:0])
    with pytest.raises(TypeError, match="expected an AtomGroup or a Universe, found 'protein'"):
        DistanceMatrixSeries(ca, "protein")
    with pytest.raises(SelectionError, match="ag2 contains no atoms"):
        DistanceMatrixSeries(ca, ca[:0])
    with pytest.raises(SelectionError, match="one atom"):
        DistanceMatrixSeries(ca[:1])
    with pytest.raises(SelectionError, match=r"2 atoms are in both .* index 140"):
        MinimumDistance(ca[:10], ca[8:])
    with pytest.raises(UnsupportedError, match="same Universe"):
        CenterDistance(ca, other)
    with pytest.raises(ValueError, match="weights must be None or 'mass'"):
        CenterDistance(ca, ca, weights="charge")
    with pytest.raises(UnsupportedError, match="UpdatingAtomGroup"):
        MinimumDistance(ca, universe.select_atoms("around 5 resid 10", updating=True))
    with pytest.raises(UnsupportedError, match="needs masses"):
        run_in_memory(lambda x: CenterDistance(x, x), np.zeros((1, 3, 3)))
    with pytest.raises(
        AnalysisError, match="frame 0: two atoms of angle 0 are at the same position"
    ):
        run_in_memory(lambda x: Angles(x[:1], x[1:2], x[2:]), np.zeros((1, 3, 3)))
    flat = [30, 30, 30, 30, 30, 60]
    with pytest.raises(AnalysisError, match="make no cell, and pbc=True needs one"):
        run_in_memory(lambda x: AtomicDistances(x[:1], x[1:2]), np.zeros((1, 3, 3)), flat)


@pytest.mark.parametrize("block_frames", [16, 128])
@pytest.mark.parametrize("most", [2**25, 8 * 20 * 30 * 3])
def test_a_distance_map_has_moments_of_all_distances(universe, monkeypatch, most, block_frames):
    """Check the moments, also if few rows are computed at a time."""
    monkeypatch.setattr(distances, "LARGEST_ROWS", most)
    first, second = universe.select_atoms("name CA")[:20], universe.select_atoms("name CB")[:30]
    found = distances.DistanceMap(first, second).run(block_frames=block_frames).results
    every = distances.DistanceMatrixSeries(first, second).run().results.distances
    assert found.n_frames == len(every)
    np.testing.assert_allclose(found.mean, every.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.deviation, every.std(axis=0), rtol=1e-9)
    alone = distances.DistanceMap(first).run().results
    pairs = distances.DistanceMatrixSeries(first).run().results.distances
    assert (np.diag(alone.mean) == 0).all()
    np.testing.assert_array_equal(alone.mean, alone.mean.T)
    np.testing.assert_allclose(alone.mean[np.triu_indices(20, 1)], pairs.mean(axis=0), rtol=1e-12)
    assert alone.table.image.x_label == "residue"
    assert len(alone.to_dataframe()) == 190


def test_a_distance_map_of_one_atom_is_refused(universe):
    with pytest.raises(SelectionError, match="contains only one atom"):
        distances.DistanceMap(universe.atoms[:1])
