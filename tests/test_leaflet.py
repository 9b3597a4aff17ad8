"""Tests of membrane leaflets: bilayers made by hand, and MDAnalysis's leaflets of membranes in
files.
"""

import MDAnalysis
import numpy as np
import pytest
from MDAnalysis.analysis.distances import contact_matrix
from MDAnalysis.analysis.leaflet import LeafletFinder
from MDAnalysisTests.datafiles import Martini_membrane_gro
from scipy.sparse.csgraph import connected_components

import paceline
from paceline.analysis import leaflet
from paceline.analysis.leaflet import LeafletSeries
from paceline.errors import AnalysisError, PacelineWarning, SelectionError, UnsupportedError

CELL = [60, 60, 80, 90, 90, 90]


def bilayer(n=6, spacing=10.0, heights=(20.0, 60.0)):
    """Return lattices of head groups in two layers, shape (2 n², 3)."""
    lattice = spacing * np.arange(n) + spacing / 2
    x, y = (axis.ravel() for axis in np.meshgrid(lattice, lattice))
    return np.concatenate([np.column_stack([x, y, np.full(n * n, z)]) for z in heights])


def made(folder, frames, cell=CELL):
    """Return a Universe with these positions."""
    frames = np.asarray(frames)
    universe = MDAnalysis.Universe.empty(frames.shape[1], trajectory=True)
    universe.add_TopologyAttr("names", ["P"] * frames.shape[1])
    path = str(folder / "made.trr")
    with MDAnalysis.Writer(path, frames.shape[1]) as writer:
        for time, positions in enumerate(frames):
            universe.atoms.positions = positions
            universe.dimensions = cell
            universe.trajectory.ts.time = time
            writer.write(universe.atoms)
    return paceline.Universe(universe._topology, path)


def components_of(universe, select, cutoff, pbc):
    """Return the component number of each atom in each frame, from MDAnalysis's pairs."""
    atoms, rows = universe.select_atoms(select), []
    for ts in universe.trajectory:
        pairs = contact_matrix(atoms.positions, cutoff, box=ts.dimensions if pbc else None)
        rows.append(connected_components(pairs, directed=False)[1])
    return np.array(rows)


def test_a_bilayer(tmp_path):
    lipids = bilayer()
    universe = made(tmp_path, [lipids, lipids[::-1]])
    found = LeafletSeries(universe, "name P", 10.5).run().results
    wanted = np.repeat([[0, 1]] * 2, 36, axis=1)
    np.testing.assert_array_equal(found.components, wanted)
    np.testing.assert_array_equal(found.sizes, [[36, 36]] * 2)
    np.testing.assert_array_equal(found.leaflets, wanted)
    alone = LeafletSeries(universe, "name P", 9.5).run().results
    np.testing.assert_array_equal(alone.n_components, [72, 72])
    one = LeafletSeries(universe, "name P", 45).run().results
    np.testing.assert_array_equal(one.components, 0)
    np.testing.assert_array_equal(one.leaflets, -1)


def test_components_are_numbered_by_their_first_atoms(tmp_path):
    """Check the order of components. MDAnalysis sorts in the same way, although its manual says
    that it sorts by size.
    """
    lipids = np.concatenate([[[30, 30, 5]], bilayer(4)])
    universe = made(tmp_path, [lipids])
    found = LeafletSeries(universe, "name P", 10.5).run()
    np.testing.assert_array_equal(found.results.sizes, [[1, 16, 16]])
    assert [len(group) for group in found.groups(0)] == [1, 16, 16]
    np.testing.assert_array_equal(found.groups(0)[2].indices, np.arange(17, 33))
    # The single atom is in no leaflet.
    np.testing.assert_array_equal(found.results.leaflets[0, [0, 1, 17]], [-1, 0, 1])


def test_lipids_that_change_sides(tmp_path):
    """Move one lipid to the other side, and another between the layers and back."""
    first = bilayer()
    middle, there, bridge = first.copy(), first.copy(), first.copy()
    middle[7, 2] = 40
    there[7, 2] = 60
    bridge[7, 2] = 60
    bridge[20] = bridge[21] * [1, 1, 0] + [0, 0, 33]
    bridge[56] = bridge[57] * [1, 1, 0] + [0, 0, 47]
    frames = [first, middle, there, bridge, there, first]
    universe = made(tmp_path, frames)
    found = LeafletSeries(universe, "name P", 14.5).run()
    leaflets = found.results.leaflets
    np.testing.assert_array_equal(leaflets[:, 7], [0, -1, 1, -1, 1, 0])
    np.testing.assert_array_equal(leaflets[:, 0], [0, 0, 0, -1, 0, 0])
    np.testing.assert_array_equal(leaflets[3], -1)
    np.testing.assert_array_equal(np.flatnonzero(found.results.flip_flops), [7])
    assert found.results.flip_flops[7] == 2
    record = found.results.provenance
    assert record["frames with two leaflets"] == "5 of 6"
    assert record["flip-flops"] == found.results.findings["flip-flops"] == "2, by 1 headgroup"
    table = found.results.to_dataframe()
    np.testing.assert_array_equal(table["upper leaflet (atoms)"], [36, 36, 37, np.nan, 37, 36])


@pytest.mark.parametrize("shift", [0, 38])
@pytest.mark.parametrize("turned", [False, True])
def test_the_upper_leaflet_has_its_heads_above_tails(shift, turned):
    """Check a membrane that also lies across the boundary of the cell."""
    heads, tails = bilayer(heights=(20.0, 60.0)), bilayer(heights=(30.0, 50.0))
    if turned:
        heads, tails = np.roll(heads, 36, axis=0), np.roll(tails, 36, axis=0)
    universe = MDAnalysis.Universe.empty(
        144, 72, atom_resindex=np.repeat(np.arange(72), 2), trajectory=True
    )
    universe.add_TopologyAttr("names", ["P", "C"] * 72)
    positions = np.stack([heads, tails], axis=1).reshape(144, 3) + np.array([0, 0, shift])
    universe.atoms.positions = positions % CELL[:3]
    universe.dimensions = CELL
    found = LeafletSeries(universe, "name P", 10.5).run().results
    upper = "0" if turned else "1"
    names = ["upper", "lower"] if upper == "0" else ["lower", "upper"]
    assert found.provenance["leaflets 0 and 1"] == " and ".join(names)
    assert list(found.table.y.values()) == [f"{name} leaflet" for name in names]


def test_leaflets_keep_their_numbers_where_components_do_not(tmp_path):
    """Move the first atom to the other side, which changes the order of components."""
    first = bilayer()
    other = first.copy()
    other[0, 2] = 60
    found = LeafletSeries(made(tmp_path, [first, other]), "name P", 14.5).run().results
    np.testing.assert_array_equal(found.components[1, [0, 1, 36]], [0, 1, 0])
    np.testing.assert_array_equal(found.leaflets[1, [0, 1, 36]], [1, 0, 1])
    assert found.flip_flops.sum() == found.flip_flops[0] == 1


def test_nearest_images(tmp_path):
    """Check a layer across the boundary of the cell: one leaflet with pbc, and two without."""
    lipids = bilayer(heights=(1.0, 41.0))
    lipids[:18, 2] = 79.0
    universe = made(tmp_path, [lipids])
    found = LeafletSeries(universe, "name P", 12).run().results
    np.testing.assert_array_equal(found.sizes, [[36, 36]])
    plain = LeafletSeries(universe, "name P", 12, pbc=False).run().results
    np.testing.assert_array_equal(plain.sizes, [[18, 18, 36]])


@pytest.fixture(scope="module")
def martini():
    """Coarse-grained lipids and cholesterol, by MDAnalysis and by paceline."""
    return tuple(kind(Martini_membrane_gro) for kind in (MDAnalysis.Universe, paceline.Universe))


@pytest.mark.parametrize("pbc", [True, False])
@pytest.mark.parametrize(("select", "cutoff"), [("name PO4", 15.0), ("name PO4 ROH", 9.0)])
def test_a_bilayer_of_martini(select, cutoff, pbc, martini):
    check_as_leaflet_finder(*martini, select, cutoff, pbc)


@pytest.mark.parametrize("pbc", [True, False])
@pytest.mark.parametrize("cutoff", [15.0, 9.0])
def test_a_membrane_in_a_hexagonal_cell(cutoff, pbc, membrane_lipids):
    check_as_leaflet_finder(*membrane_lipids[:2], "name P", cutoff, pbc)


def check_as_leaflet_finder(theirs, ours, select, cutoff, pbc):
    wanted = components_of(theirs, select, cutoff, pbc)
    found = LeafletSeries(ours, select, cutoff, pbc).run().results
    np.testing.assert_array_equal(found.components, wanted)
    np.testing.assert_array_equal(found.n_components, wanted.max(axis=1) + 1)
    for row, sizes in zip(wanted, found.sizes, strict=True):
        np.testing.assert_array_equal(sizes[: row.max() + 1], np.bincount(row))
        assert not sizes[row.max() + 1 :].any()


def test_leaflet_finder_itself(membrane_lipids):
    """Compare with MDAnalysis's leaflets by networkx; components have paceline's order."""
    pytest.importorskip("networkx")
    theirs, universe, _ = membrane_lipids
    found = LeafletSeries(universe, "name P", 9.0).run()
    for row, _ in enumerate(theirs.trajectory):
        wanted = LeafletFinder(theirs, "name P", 9.0, pbc=True).groups()
        for ours, group in zip(found.groups(row), wanted, strict=True):
            np.testing.assert_array_equal(ours.indices, group.indices)
    assert min(found.results.sizes[0, :2]) < max(found.results.sizes[0, 2:])


def test_names_of_mdanalysis_stay():
    assert leaflet.LeafletFinder is LeafletFinder
    assert leaflet.optimize_cutoff.__module__ == "MDAnalysis.analysis.leaflet"


def test_frames_that_were_left_out(damaged):
    system, frames = damaged
    ca = paceline.Universe(*system).select_atoms("name CA")
    found = LeafletSeries(ca, ca, 6.0).run(on_error="skip").results
    left_out = np.isin(np.arange(98), frames)
    assert (found.components[left_out] == -1).all()
    assert (found.components[~left_out] >= 0).all()
    np.testing.assert_array_equal(found.n_components == 0, left_out)
    np.testing.assert_array_equal(np.isnan(found.to_dataframe()["components"]), left_out)


def test_frames_without_two_leaflets_warn(tmp_path):
    universe = made(tmp_path, [bilayer(2)])
    with pytest.warns(PacelineWarning, match="no frame has two leaflets: within 55 Å all"):
        found = LeafletSeries(universe, "name P", 55).run().results
    assert (found.leaflets == -1).all()


def test_leaflets_of_few_headgroups_warn(tmp_path):
    universe = made(tmp_path, [bilayer(4)])
    message = r"both leaflets have at most 2 of 32 headgroups: few are within 1.5 Å of another"
    with pytest.warns(PacelineWarning, match=message):
        LeafletSeries(universe, "name P", 1.5).run()


def test_what_is_refused(tmp_path):
    lipids = bilayer(2)
    universe = made(tmp_path, [lipids])
    with pytest.raises(SelectionError, match="no atoms match 'name X'"):
        LeafletSeries(universe, "name X")
    with pytest.raises(UnsupportedError, match="UpdatingAtomGroup"):
        LeafletSeries(universe, universe.select_atoms("around 3 index 0", updating=True))
    for cutoff in (0, np.nan, np.inf):
        with pytest.raises(ValueError, match="cutoff must be a length above 0"):
            LeafletSeries(universe, "name P", cutoff)
    with pytest.raises(AnalysisError, match="height of the cell is 60"):
        LeafletSeries(universe, "name P", 65).run()
    lipids[3, 1] = np.nan
    with pytest.raises(AnalysisError, match="frame 0: positions are not all finite"):
        LeafletSeries(made(tmp_path, [lipids]), "name P").run()
    # Kernels skip frames that contain only NaN; such a frame must not become one component.
    lost = np.full_like(lipids, np.nan)
    with pytest.raises(AnalysisError, match="frame 1: positions are not all finite"):
        LeafletSeries(made(tmp_path, [bilayer(2), lost]), "name P").run()
