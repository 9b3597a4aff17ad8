"""Tests of clusters of frames: cases by hand for each method, and independent implementations."""

import itertools
import shutil
from pathlib import Path

import MDAnalysis
import mdtraj
import numpy as np
import pytest
from MDAnalysisTests.datafiles import GRO, XTC
from scipy.spatial.distance import squareform
from scipy.spatial.transform import Rotation

import paceline
from benchmarks.coverage import POPULATIONS, Presence, markov_chain
from paceline import checkpoint
from paceline.analysis.clustering import Clustering, Pairs, k_medoids
from paceline.analysis.diffusionmap import DistanceMatrix
from paceline.analysis.jackknife_intervals import errors_of_states
from paceline.analysis.results import Results
from paceline.analysis.saved_table_format import read_saved
from paceline.analysis.structure_writer import write_structures
from paceline.engine import stage_over_collected_rows
from paceline.engine.worker import Worker
from paceline.errors import PacelineWarning, SelectionError, UnsupportedError

CROSS = np.vstack([np.eye(3), -np.eye(3)])


@pytest.fixture(scope="module")
def ca(adk_xtc):
    return paceline.Universe(*adk_xtc).select_atoms("name CA")


@pytest.fixture(scope="module")
def distances(ca):
    return DistanceMatrix(ca, superposition=True).run(backend="serial").results.dist_matrix


@pytest.fixture
def on_a_line(tmp_path):
    """Create a Universe of rotating crosses, whose RMSDs are the differences of their sizes."""

    def make(sizes):
        turns = Rotation.random(len(sizes), random_state=3)
        made = MDAnalysis.Universe.empty(6, trajectory=True)
        made.add_TopologyAttr("names", ["C"] * 6)
        topology, path = tmp_path / "made.pdb", tmp_path / "made.dcd"
        with MDAnalysis.Writer(str(path), 6) as writer:
            for turn, size in zip(turns, sizes, strict=True):
                made.atoms.positions = turn.apply(size * CROSS) + size
                writer.write(made.atoms)
        made.atoms.write(str(topology))
        return paceline.Universe(str(topology), str(path))

    return make


def found(universe, *arguments, **options):
    """Run an analysis; return labels and centers."""
    results = Clustering(universe, *arguments, **options).run().results
    np.testing.assert_array_equal(np.bincount(results.labels[results.labels >= 0]), results.sizes)
    assert (results.labels[results.centers] == np.arange(len(results.centers))).all()
    return results.labels.tolist(), results.centers.tolist()


def test_gromos_on_a_line(on_a_line):
    """Check that 6.3, with most neighbours (5.4, 6, 6.9, 7.2), is the first center. Then 9 and 9.5
    are a pair, and 4 and 5 are single.
    """
    universe = on_a_line([4, 5, 5.4, 6, 6.3, 6.9, 9, 9.5, 7.2])
    labels, centers = found(universe, cutoff=0.95)
    assert labels == [2, 3, 0, 0, 0, 0, 1, 1, 0]
    assert centers == [4, 6, 0, 1]


def test_gromos_counts_again_once_a_cluster_has_left(on_a_line):
    """Check that neighbours are counted again: 3.1 first has more than 3.9, and fewer after 2.1 and
    2.2 are assigned.
    """
    universe = on_a_line([1.0, 2.0, 2.1, 2.2, 3.1, 3.9, 4.7])
    # Neighbours within 1.05: 0 {1}, 1 {0 2 3}, 2 {1 3 4}, 3 {1 2 4}, 4 {2 3 5}, 5 {4 6}, 6 {5}.
    # Four frames have three neighbours, and the first of them is 1: cluster 1 with 0, 2, 3. Then
    # cluster 5 with 4 and 6.
    assert found(universe, cutoff=1.05) == ([0, 0, 0, 0, 1, 1, 1], [1, 5])


def test_leader_on_a_line(on_a_line):
    """Check that a frame near two leaders joins the first one, even if the second one is nearer."""
    universe = on_a_line([3.0, 5.0, 4.4, 4.6, 8.0, 3.2, 6.9])
    # Leaders are 3, 5 and 8. Frames 4.4 and 4.6 are near 3 and 5, and 6.9 is near only 8.
    assert found(universe, method="leader", cutoff=1.85) == ([0, 2, 0, 0, 1, 0, 1], [0, 4, 1])


def test_k_medoids_on_a_line(on_a_line):
    universe = on_a_line([1.0, 9.0, 1.5, 8.6, 2.1, 5.0, 9.7])
    labels, centers = found(universe, method="k-medoids", n_clusters=3)
    # Of clusters with equal size, the one whose medoid is earlier comes first.
    assert labels == [1, 0, 1, 0, 1, 2, 0]
    assert centers == [1, 2, 5]
    assert found(universe, method="k-medoids", n_clusters=1) == ([0] * 7, [5])
    assert found(universe, method="k-medoids", n_clusters=7)[1] == list(range(7))


def test_the_cutoff_itself_is_too_far(ca, distances):
    two = distances[3, 40]
    for cutoff, n in ((two, 2), (np.nextafter(two, np.inf), 1)):
        for method in ("gromos", "leader"):
            one = Clustering(ca, method=method, cutoff=cutoff).run(frames=[3, 40])
            assert len(one.results.sizes) == n


def gromos(near):
    """Compute clusters by the method of Daura et al., with sets."""
    left, clusters = set(range(len(near))), []
    while left:
        center = max(sorted(left), key=lambda i: sum(near[i, j] for j in left))
        members = {j for j in left if near[center, j]}
        clusters.append((center, members))
        left -= members
    return clusters


def leader(near):
    """Compute clusters by the first near leader."""
    clusters = []
    for i in range(len(near)):
        of = next((one for one in clusters if near[one[0], i]), None)
        if of is None:
            clusters.append((i, {i}))
        else:
            of[1].add(i)
    return sorted(clusters, key=lambda one: (-len(one[1]), one[0]))


@pytest.mark.parametrize("method", [gromos, leader], ids=lambda method: method.__name__)
@pytest.mark.parametrize("cutoff", [0.5, 0.9, 1.4, 2.5, 9.0])
@pytest.mark.parametrize("n_frames", [33, 98])
def test_as_sets(method, cutoff, n_frames, ca, distances):
    wanted = method(distances[:n_frames, :n_frames] < cutoff)
    one = Clustering(ca, method=method.__name__, cutoff=cutoff).run(stop=n_frames)
    assert one.results.centers.tolist() == [center for center, _ in wanted]
    for number, (_, members) in enumerate(wanted):
        assert one.members(number).tolist() == sorted(members)


def test_as_mdtraj(adk_xtc, ca):
    """Compare with clusters from MDTraj's single-precision RMSDs. The cutoff equals no RMSD."""
    trajectory = mdtraj.load(adk_xtc.trajectory, top=mdtraj.load_psf(adk_xtc.topology))
    trajectory = trajectory.atom_slice(ca.indices)
    trajectory.center_coordinates()
    theirs = np.array(
        [10 * mdtraj.rmsd(trajectory, trajectory, k, precentered=True) for k in range(98)]
    )
    cutoffs = np.linspace(1.2, 2.2, 400)
    room = [np.abs(theirs - cutoff).min() for cutoff in cutoffs]
    cutoff = cutoffs[np.argmax(room)]
    assert max(room) > 5e-4
    theirs[np.diag_indices(98)] = 0
    wanted = gromos(theirs < cutoff)
    results = Clustering(ca, cutoff=cutoff).run().results
    assert results.centers.tolist() == [center for center, _ in wanted]


def cost(matrix, medoids):
    return round(matrix[list(medoids)].min(axis=0).sum(), 9)


def test_k_medoids_cannot_be_bettered_by_an_exchange(ca, distances):
    single = distances.astype(np.float32).astype(float)
    for k in (2, 3, 6):
        results = Clustering(ca, method="k-medoids", n_clusters=k).run().results
        medoids = results.centers.tolist()
        best = cost(single, medoids)
        for number, frame in itertools.product(range(k), set(range(98)) - set(medoids)):
            other = [*medoids[:number], *medoids[number + 1 :], frame]
            assert cost(single, other) >= best * (1 - 1e-9)
        np.testing.assert_array_equal(
            np.array(medoids)[results.labels],
            np.array(sorted(medoids))[single[sorted(medoids)].argmin(axis=0)],
        )


def plain_k_medoids(matrix, k):
    """Compute PAM directly from the definition."""
    medoids = []
    for _ in range(k):
        others = [i for i in range(len(matrix)) if i not in medoids]
        medoids.append(min(others, key=lambda i: cost(matrix, [*medoids, i])))
    while True:
        exchanges = [
            (cost(matrix, [*medoids[:m], i, *medoids[m + 1 :]]), i, m)
            for i in range(len(matrix))
            if i not in medoids
            for m in range(k)
        ]
        if not exchanges or min(exchanges)[0] >= cost(matrix, medoids) * (1 - 1e-9):
            return sorted(medoids)
        _, frame, number = min(exchanges)
        medoids[number] = frame


@pytest.mark.parametrize("k", [2, 4, pytest.param(12, marks=pytest.mark.full)])
def test_k_medoids_as_by_the_definition(k):
    exchanged = 0
    for seed in range(6):
        points = np.random.default_rng(seed).normal(size=(30, 2)) ** 3
        matrix = np.linalg.norm(points[:, None] - points, axis=2)
        known = np.ones(30, bool)
        _, centers = k_medoids(Pairs(squareform(matrix, checks=False), known), k)
        wanted = plain_k_medoids(matrix, k)
        assert centers.tolist() == wanted
        built = []
        for _ in range(k):
            built.append(min(set(range(30)) - set(built), key=lambda i: cost(matrix, [*built, i])))
        exchanged += sorted(built) != wanted
        # Frames with unknown RMSDs are ignored.
        some = np.arange(30) % 5 != 2
        _, others = k_medoids(Pairs(squareform(matrix, checks=False), some), k)
        assert (
            others.tolist()
            == np.flatnonzero(some)[plain_k_medoids(matrix[np.ix_(some, some)], k)].tolist()
        )
    assert exchanged


def test_frames_that_are_equal(on_a_line):
    """Check that medoids are distinct, even for equal frames."""
    universe = on_a_line([2.0, 2.0, 2.0, 5.0])
    labels, centers = found(universe, method="k-medoids", n_clusters=3)
    assert sorted(labels) == [0, 0, 1, 2]
    assert len(set(centers)) == 3


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("n_done", [9, 12])
def test_it_resumes_amid_its_tiles(n_done, ca, tmp_path, monkeypatch):
    """The 98 frames have 7 blocks of 16, and 10 tiles of 32 × 32."""
    wanted = Clustering(ca, cutoff=1.2).run(backend="serial").results.labels
    path, do, done = tmp_path / "checkpoint", Worker.run, []

    def counting(self, task):
        done.append(task)
        return do(self, task)

    def failing(self, task):
        if len(done) == n_done:
            raise Interrupted
        return counting(self, task)

    options = {"backend": "serial", "block_frames": 16, "checkpoint": path}
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", 0.0)
    monkeypatch.setattr(Worker, "run", failing)
    with pytest.raises(Interrupted):
        Clustering(ca, cutoff=1.2).run(**options)
    done.clear()
    monkeypatch.setattr(Worker, "run", counting)
    one = Clustering(ca, cutoff=1.2).run(**options)
    assert len(done) == 17 - n_done + 1  # the last one reads the cells of the centers
    np.testing.assert_array_equal(one.results.labels, wanted)


@pytest.mark.parametrize(
    "options", [{"cutoff": 1.5}, {"method": "leader", "cutoff": 1.5}, {"n_clusters": 4}], ids=str
)
def test_frames_that_were_left_out(options, damaged, ca):
    options = {"method": "k-medoids"} | options if "n_clusters" in options else options
    system, frames = damaged
    universe = paceline.Universe(*system)
    one = Clustering(universe, "name CA", **options).run(on_error="skip")
    kept = np.setdiff1d(np.arange(98), frames)
    assert (one.results.labels[frames] == -1).all()
    other = Clustering(ca, **options).run(frames=kept)
    np.testing.assert_array_equal(one.results.labels[kept], other.results.labels)
    np.testing.assert_array_equal(one.results.center_frames, other.results.center_frames)
    assert one.results.sizes.sum() == len(kept)


def test_frames_and_structures(ca, tmp_path):
    one = Clustering(ca, cutoff=1.5).run(frames=[90, 3, 50, 4, 91, 5])
    results = one.results
    assert results.labels.tolist() == [1, 0, 2, 0, 1, 0]
    assert results.center_frames.tolist() == [3, 90, 50]
    assert one.members(1).tolist() == [90, 91]
    wanted = np.array([ca.positions for _ in ca.universe.trajectory[[3, 90, 50]]])
    np.testing.assert_array_equal(results.universe.trajectory.get_array(), wanted)
    results.save(tmp_path / "centers.pdb")
    written = MDAnalysis.Universe(str(tmp_path / "centers.pdb"))
    read = np.array([written.atoms.positions for _ in written.trajectory])
    np.testing.assert_allclose(read, wanted, atol=1e-3)
    assert (written.atoms.resnames == ca.resnames).all()
    # Some programs, such as chemfiles, would read MDAnalysis's placeholder of 1 Å as a cell.
    assert written.dimensions is None
    assert mdtraj.load(str(tmp_path / "centers.pdb")).unitcell_lengths is None
    text = (tmp_path / "centers.pdb").read_text(encoding="utf-8")
    assert "CRYST1" not in text
    assert text.count("MODEL ") == 3
    with pytest.raises(FileExistsError):
        results.save(tmp_path / "centers.pdb")


@pytest.mark.parametrize("options", [{"transforms": [paceline.transform.fit("name CA")]}, {}])
def test_centers_have_the_cells_of_their_frames(options, tmp_path):
    universe = paceline.Universe(GRO, XTC)
    universe.trajectory[4]
    one = Clustering(universe, "name CA", cutoff=0.8).run(start=1, **options)
    assert universe.trajectory.ts.frame == 4
    centers = one.results.center_frames
    wanted = np.array([ts.dimensions.copy() for ts in universe.trajectory[centers]])
    assert len(np.unique(wanted[:, 0])) == len(centers) > 1
    for found in (one.results.universe, tmp_path / "centers.pdb"):
        if isinstance(found, Path):
            one.results.save(found)
            assert found.read_text(encoding="utf-8").count("CRYST1 ") == len(centers)
            found = MDAnalysis.Universe(str(found))
        cells = np.array([ts.dimensions.copy() for ts in found.trajectory])
        np.testing.assert_allclose(cells, wanted, atol=1e-3)


def test_other_atoms_of_the_centers_are_written(adk_in_water, tmp_path, run):
    universe = paceline.Universe(*adk_in_water)
    written = "protein or (resname SOL and resid 215:300)"
    options = {"transforms": [paceline.transform.wrap(compound="residues")]}
    plain = Clustering(universe, "name CA", cutoff=0.8).run(**options).results
    one = Clustering(universe, "name CA", cutoff=0.8, written=written).run(**options)
    np.testing.assert_array_equal(one.results.labels, plain.labels)
    assert one.parameters()["written"] == written
    atoms, found = universe.select_atoms(written), one.results.universe
    assert found.atoms.names.tolist() == atoms.names.tolist()
    for frame, ts, other in zip(
        plain.center_frames.tolist(), found.trajectory, plain.universe.trajectory, strict=True
    ):
        ca = found.select_atoms("name CA").positions
        np.testing.assert_array_equal(ca, other.positions)
        np.testing.assert_array_equal(ts.positions, _wrapped(universe, atoms, frame, options))
        np.testing.assert_array_equal(ts.dimensions, universe.trajectory[frame].dimensions)
    arguments = ["--cutoff", "0.8", "--select", "name CA", "--select-2", "protein"]
    for name in ("centers.gro", "centers.pdb"):
        status, _, _ = run("cluster", *adk_in_water, *arguments, "--structures", tmp_path / name)
        assert status == 0
        assert len(MDAnalysis.Universe(str(tmp_path / name)).atoms) == 3341
    with pytest.raises(SelectionError, match="written: no atoms match"):
        Clustering(universe, "name CA", cutoff=0.8, written="resname LIG")


def _wrapped(universe, atoms, frame, options):
    series = paceline.TimeSeries(lambda block: block.positions, atoms)
    return series.run(frames=[frame], **options).results.timeseries[0]


def test_a_model_without_a_cell_has_no_cell(tmp_path):
    universe = MDAnalysis.Universe.empty(1, trajectory=True)
    universe.add_TopologyAttr("names", ["CA"])
    cells = np.array([[0] * 6, [30, 30, 30, 90, 90, 90], [0] * 6], np.float32)
    universe.load_new(np.zeros((3, 1, 3), np.float32), dimensions=cells)
    write_structures(universe, str(tmp_path / "models.pdb"))
    lines = (tmp_path / "models.pdb").read_text(encoding="utf-8").splitlines()
    records = [line.split()[0] for line in lines if line.startswith(("CRYST1", "MODEL"))]
    assert records == ["MODEL", "CRYST1", "MODEL", "MODEL"]


def test_table_and_figure(damaged):
    one = Clustering(paceline.Universe(*damaged[0]), "name CA", cutoff=1.5).run(on_error="skip")
    frame = one.results.to_dataframe()
    assert list(frame) == ["frame", "time (ps)", "cluster"]
    np.testing.assert_array_equal(frame["cluster"], one.results.labels)
    assert one.results.means == {}
    (line,) = one.results.plot().get_lines()
    assert line.get_linestyle() == "None"
    np.testing.assert_array_equal(np.isnan(line.get_ydata()), one.results.labels < 0)
    ticks = Clustering(one.atoms, cutoff=2.5).run(on_error="skip").results.plot().get_yticks()
    assert (ticks % 1 == 0).all()
    assert one.results.provenance["method"] == "gromos"


def test_table_of_sizes(damaged):
    one = Clustering(paceline.Universe(*damaged[0]), "name CA", cutoff=1.5).run(on_error="skip")
    table = one.further_tables()["sizes"]
    n_known = 98 - len(damaged[1])
    np.testing.assert_array_equal(table.columns["frames"], one.results.sizes)
    np.testing.assert_allclose(table.columns["fraction of frames"] * n_known, one.results.sizes)
    centers = table.columns["center (frame)"]
    np.testing.assert_array_equal(centers, one.results.center_frames)
    times = [one.atoms.universe.trajectory[frame].time for frame in centers]
    np.testing.assert_allclose(table.columns["center (ps)"], times)
    assert table.columns["cluster"].tolist() == [str(k) for k in range(len(centers))]


def test_populations_have_the_intervals_of_states(on_a_line, tmp_path):
    """Check populations of three known states; each frame deviates from its state."""
    rng = np.random.default_rng(2)
    states = markov_chain(rng, 1, 60, n=300)[0]
    assert len(np.unique(states)) == 4
    universe = on_a_line(4 + 3 * states + 0.3 * rng.random(300))
    plain = Clustering(universe, cutoff=1.0).run()
    assert "populations" not in plain.results
    one = Clustering(universe, cutoff=1.0, errors=True).run()
    np.testing.assert_array_equal(one.results.labels, plain.results.labels)
    order = np.argsort(-np.bincount(states), kind="stable")
    assert (order[one.results.labels] == states).all()
    np.testing.assert_allclose(one.results.populations, one.results.sizes / 300)
    low, high = one.results.population_intervals.T
    wanted, errors = errors_of_states(Presence(300), states, 4)
    np.testing.assert_allclose(np.stack([low, high], 1), errors.limits(wanted)[order])
    assert ((low < np.array(POPULATIONS)[order]) & (np.array(POPULATIONS)[order] < high)).all()
    table = one.further_tables()["sizes"]
    np.testing.assert_array_equal(table.columns["fraction of frames, 95 % from"], low)
    np.testing.assert_array_equal(table.columns["fraction of frames, 95 % to"], high)
    assert "jackknife of 100 parts" in one.results.provenance["intervals"]
    sizes = Results(table=table, provenance={})
    (bars,) = sizes.plot().containers[1:]
    assert bars.has_xerr
    sizes.save(tmp_path / "sizes.csv")
    again = read_saved(tmp_path / "sizes.csv").table().limits_of("fraction of frames")
    np.testing.assert_allclose(again, [low, high])


def test_a_single_cluster_has_no_interval(on_a_line):
    with pytest.warns(PacelineWarning):
        one = Clustering(on_a_line([4.0, 4.1, 4.2]), cutoff=9.0, errors=True).run()
    assert one.results.populations.tolist() == [1.0]
    assert np.isnan(one.results.population_intervals).all()


def test_large_ones_are_in_a_file(ca, monkeypatch):
    wanted = found(ca, cutoff=1.5), found(ca, method="k-medoids", n_clusters=3)
    monkeypatch.setattr(stage_over_collected_rows, "IN_MEMORY", 0)
    assert (found(ca, cutoff=1.5), found(ca, method="k-medoids", n_clusters=3)) == wanted


def test_no_room_is_said_before_the_work(ca, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    many = np.arange(120_000) % 98
    one = Clustering(ca[:1], cutoff=1.0)
    assert one.stored_bytes(120_000) == 120_000 * (12 + 15_000)
    with pytest.raises(UnsupportedError, match=r"Clustering: the results need .* free"):
        one.run(frames=many)
    with pytest.raises(UnsupportedError, match=r"Clustering: the results need .* free"):
        Clustering(ca[:1], method="k-medoids", n_clusters=2).run(frames=many[:40_000])


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"cutoff": 1, "select": "name XX"}, SelectionError, "no atoms"),
        ({"method": "dbscan"}, ValueError, "'gromos', 'leader' or 'k-medoids'"),
        ({}, ValueError, "gromos needs cutoff="),
        ({"cutoff": 0.0}, ValueError, "above 0, in Å, not 0.0"),
        ({"cutoff": np.nan}, ValueError, "not nan"),
        ({"cutoff": 1.0, "n_clusters": 2}, ValueError, "n_clusters= is for"),
        ({"method": "k-medoids"}, ValueError, "needs n_clusters"),
        ({"method": "k-medoids", "n_clusters": 1.5}, ValueError, "not 1.5"),
        ({"method": "k-medoids", "n_clusters": 2, "cutoff": 1}, ValueError, "cutoff= is for"),
        ({"cutoff": 1.0, "weights": [1.0]}, ValueError, "weights"),
    ],
    ids=str,
)
def test_bad_input(options, error, words, ca):
    with pytest.raises(error, match=words):
        Clustering(ca, **options)


def test_clusters_that_cannot_be(ca):
    few = Clustering(ca, method="k-medoids", n_clusters=4)
    with pytest.raises(ValueError, match="3 frames for 4 clusters"):
        few.run(stop=3)
    one = Clustering(ca, cutoff=1.5)
    with pytest.raises(ValueError, match=r"call run\(\) first"):
        one.members(0)
    with pytest.raises(ValueError, match="no cluster 7: clusters are 0 to"):
        one.run(stop=5).members(7)
    assert one.run(stop=1).results.labels.tolist() == [0]
