"""Tests of water bridges: MDAnalysis's, those of a search of all pairs, and each kind."""

import itertools

import MDAnalysis
import numpy as np
import pytest
from MDAnalysis.analysis.hydrogenbonds import WaterBridgeAnalysis
from MDAnalysis.lib.mdamath import triclinic_vectors
from MDAnalysisTests.datafiles import TPR, XTC
from test_ligands import moving
from test_ligands import system as complex_of

import paceline
from paceline.analysis.battery import Battery
from paceline.analysis.results import further_results
from paceline.analysis.water_bridges import WaterBridges
from paceline.errors import SelectionError, UnsupportedError

#: Names of donors and acceptors, for MDAnalysis's class.
DONORS = ["N", "OW", "NE", "NH1", "NH2", "ND2", "NE2", "ND1", "NZ", "OG", "OG1", "NE1", "OH"]
ACCEPTORS = ["O", "OW", "OD1", "OD2", "OE1", "OE2", "ND1", "NE2", "OG", "OG1", "OH"]
CELLS = {"rectangular": (20, 24, 22, 90, 90, 90), "triclinic": (24, 22, 20, 80, 100, 110)}


@pytest.mark.parametrize("limits", [(3.0, 150), (3.5, 120)])
def test_bridges_are_those_of_mdanalysis(limits):
    """Compare atoms, distances and angles; MDAnalysis repeats some bonds."""
    groups = "resid 10-15", "protein and not resid 10-15"
    distance, angle = limits
    universe = MDAnalysis.Universe(TPR, XTC)
    # MDAnalysis takes ten seconds to find the hydrogens of all water.
    near = universe.select_atoms("resname SOL and same residue as around 7 resid 10-15")
    water = f"resid {' '.join(map(str, near.residues.resids))} and resname SOL"
    theirs = WaterBridgeAnalysis(
        universe,
        *groups,
        water,
        update_selection=True,
        forcefield="other",
        donors=DONORS,
        acceptors=ACCEPTORS,
        distance_type="heavy",
        distance=distance,
        angle=angle,
        pbc=True,
    ).run()
    ours = paceline.Universe(TPR, XTC)
    found = WaterBridges(
        *map(ours.select_atoms, groups),
        water=water,
        hydrogens_sel=f"name H* and bonded (name {' '.join(DONORS)})",
        acceptors_sel=f"name {' '.join(ACCEPTORS)}",
        d_a_cutoff=distance,
        d_h_a_angle_cutoff=angle,
    ).run()
    resindices = universe.atoms.resindices
    expected = {}
    for frame, network in enumerate(theirs.results.network):
        for (atom, donor, bridging, _, *one), others in network.items():
            for _, _, last, last_donor, *other in others or ():
                first = atom if donor is None else donor
                second = last if last_donor is None else last_donor
                key = frame, first, resindices[bridging], second
                expected.setdefault(key, []).append((*one, *other))
    assert len(expected) > 4
    assert [one.item()[:4] for one in found.results.bridges] == sorted(expected)
    for one in found.results.bridges:
        bonds = expected[one.item()[:4]]
        pairs = {(bond[0], -bond[1]) for bond in bonds}, {(bond[2], -bond[3]) for bond in bonds}
        best = [number for pair in pairs for number in min(pair)]
        values = [one["distance_1"], -one["angle_1"], one["distance_2"], -one["angle_2"]]
        assert values == best


def system(n_water, positions, cell=None):
    """Return a ligand and a residue, each an acceptor and a donor with its hydrogen, and water."""
    sizes = [3] * (2 + n_water)
    universe = MDAnalysis.Universe.empty(
        sum(sizes), len(sizes), atom_resindex=np.repeat(range(len(sizes)), sizes), trajectory=True
    )
    names = ["O1", "N1", "H1", "O", "N", "H", *["OW", "HW1", "HW2"] * n_water]
    universe.add_TopologyAttr("names", names)
    universe.add_TopologyAttr("resnames", ["LIG", "ALA", *["SOL"] * n_water])
    universe.add_TopologyAttr("resids", range(1, len(sizes) + 1))
    bonds = [(0, 1), (1, 2), (3, 4), (4, 5)]
    for first in range(6, sum(sizes), 3):
        bonds += [(first, first + 1), (first, first + 2)]
    universe.add_TopologyAttr("bonds", bonds)
    dimensions = None if cell is None else np.float32([cell] * len(positions))
    universe.load_new(np.float32(positions), dimensions=dimensions)
    return universe


X, Y = np.eye(3)[:2]
#: For each case: directions of the hydrogens of a water, positions of other atoms relative to its
#: oxygen, and the bridges, given by atoms and number of the water.
CASES = {
    "donates twice": ((X, Y), {0: 2.8 * X, 3: 2.8 * Y}, [(0, 3)]),
    "accepts twice": ((-X, -Y), {1: 2.8 * X, 2: 1.8 * X, 4: 2.8 * Y, 5: 1.8 * Y}, [(1, 4)]),
    "one of each": ((X, -Y), {0: 2.8 * X, 4: 2.8 * Y, 5: 1.8 * Y}, [(0, 4)]),
    "the other way": ((Y, -X), {1: 2.8 * X, 2: 1.8 * X, 3: 2.8 * Y}, [(1, 3)]),
    "of one side": ((X, -Y), {0: 2.8 * X, 3: 2.8 * Y}, []),
    "of the other side": ((-X, Y), {0: 2.8 * X, 3: 2.8 * Y}, []),
    "three bonds": (
        (X, Y),
        {0: 2.8 * X, 3: 2.8 * Y, 4: -2.8 * X, 5: -1.8 * X},
        [(0, 3), (0, 4)],
    ),
    "both of the ligand": ((X, -X), {0: 2.8 * X, 1: 2.8 * Y, 2: 1.8 * Y}, []),
    "too far": ((X, Y), {0: 3.1 * X, 3: 2.8 * Y}, []),
}


def placed(case, oxygen, *, second=None):
    """Return the positions of a case; atoms without a position, and water 2, are far away."""
    hydrogens, places, _ = CASES[case]
    positions = np.array([[6.0 * k, 40, 40] for k in range(12)])
    waters = [(6, oxygen, hydrogens)]
    if second is not None:
        waters.append((9, oxygen + second[0], second[1]))
    for first, place, directions in waters:
        positions[first] = place
        positions[first + 1 : first + 3] = place + 0.96 * np.array(directions)
    for atom, place in places.items():
        positions[atom] = oxygen + place
    return positions


@pytest.mark.parametrize("shift", [0.0, 48.0])
def test_bridges_of_each_kind(shift):
    """Check bridges across cell faces, too, with atoms wrapped one by one."""
    frames = [placed(case, np.full(3, 10.0) - shift * X) for case in CASES]
    frames = np.array(frames)
    if shift:
        frames[..., 0] %= 40 + shift
    universe = system(2, frames, (40 + shift, 90, 90, 90, 90, 90))
    found = WaterBridges(*map(universe.select_atoms, ("resname LIG", "resname ALA"))).run()
    expected = [
        (frame, first, 2, second)
        for frame, (_, _, bridges) in enumerate(CASES.values())
        for first, second in bridges
    ]
    assert [one.item()[:4] for one in found.results.bridges] == expected
    np.testing.assert_allclose(found.results.bridges["distance_1"], 2.8, atol=1e-4)
    np.testing.assert_allclose(found.results.bridges["angle_2"], 180, atol=0.1)


def test_pairs_of_residues_count_once_a_frame():
    """Check that two waters in a frame make two bridges between the same atoms."""
    mirrored = 2.8 * (X + Y), (-X, -Y)
    frames = [
        placed("donates twice", np.full(3, 10.0), second=mirrored),
        placed("of one side", np.full(3, 10.0)),
    ]
    universe = system(2, frames)
    found = WaterBridges(*map(universe.select_atoms, ("resname LIG", "resname ALA"))).run()
    assert found.results.counts.tolist() == [2, 0]
    assert found.results.bridges[["first", "water", "second"]].tolist() == [(0, 2, 3), (0, 3, 3)]
    tables = further_results(found)
    frequent, timeline = (tables[name].table.columns for name in ("frequent", "timeline"))
    assert frequent["residues"].tolist() == ["LIG 1–ALA 2"]
    assert frequent["fraction of frames"].tolist() == [0.5]
    assert timeline["LIG 1–ALA 2"].tolist() == [1, 0]
    one = WaterBridges(
        *map(universe.select_atoms, ("resname LIG", "resname ALA")), water="resid 4 and name OW"
    ).run()
    assert one.results.bridges["water"].tolist() == [3]


def nearest(vectors, cell):
    """Return the shortest image of each vector."""
    edges = triclinic_vectors(cell).astype(np.float64)
    vectors = vectors - np.round(vectors @ np.linalg.inv(edges)) @ edges
    images = np.array([*itertools.product((-1, 0, 1), repeat=3)]) @ edges
    every = vectors[..., None, :] + images
    best = np.linalg.norm(every, axis=-1).argmin(axis=-1)
    return np.take_along_axis(every, best[..., None, None], axis=-2)[..., 0, :]


def searched(positions, cell, first, second, waters):
    """Return the water bridges of one frame from all pairs: keys, and the best bond of each."""
    oxygens = np.arange(0, len(positions), 3)
    bonds = {}
    for donor, acceptor in itertools.permutations(range(len(oxygens)), 2):
        if (donor in waters) == (acceptor in waters):
            continue
        d, a = oxygens[donor], oxygens[acceptor]
        distance = np.linalg.norm(nearest(positions[a] - positions[d], cell))
        for h in (d + 1, d + 2):
            one = nearest(positions[d] - positions[h], cell)
            other = nearest(positions[a] - positions[h], cell)
            cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
            angle = np.degrees(np.arccos(np.clip(cosine, -1, 1)))
            if 1 < distance <= 4.5 and angle > 100:
                key = (donor, acceptor) if donor in waters else (acceptor, donor)
                bonds.setdefault(key, []).append((distance, -angle))
    best = {key: min(values) for key, values in bonds.items()}
    found = {}
    for (water, one), (also, other) in itertools.product(best, best):
        both = {one, other} <= {*first} & {*second}
        if water != also or one == other or one not in first or other not in second:
            continue
        if not (both and one > other):
            found[3 * one, water, 3 * other] = *best[water, one], *best[water, other]
    return found


@pytest.mark.parametrize("cell", CELLS)
def test_bridges_are_those_of_all_pairs(cell):
    """Check groups that share molecules; many molecules are bonded by several hydrogens."""
    random, n = np.random.default_rng(5), 100
    frames = []
    for _ in range(2):
        oxygens, turns = random.uniform(-20, 45, (n, 1, 3)), random.normal(size=(n, 2, 3))
        turns /= np.linalg.norm(turns, axis=2, keepdims=True)
        frames.append(np.concatenate([oxygens, oxygens + turns], axis=1).reshape(-1, 3))
    universe = MDAnalysis.Universe.empty(
        3 * n, n, atom_resindex=np.repeat(range(n), 3), trajectory=True
    )
    universe.add_TopologyAttr("names", ["OW", "HW1", "HW2"] * n)
    universe.add_TopologyAttr("resnames", ["SOL"] * n)
    bonds = [(3 * k, 3 * k + j) for k in range(n) for j in (1, 2)]
    universe.add_TopologyAttr("bonds", bonds)
    size = np.float32([CELLS[cell]] * 2)
    universe.load_new(np.float32(frames), dimensions=size)
    first, second, waters = range(30), range(20, 50), range(50, n)
    groups = (universe.residues[[*one]].atoms for one in (first, second))
    found = WaterBridges(*groups, d_a_cutoff=4.5, d_h_a_angle_cutoff=100).run().results
    for frame in range(2):
        positions = universe.trajectory[frame].positions.astype(np.float64)
        expected = searched(positions, CELLS[cell], first, second, waters)
        some = found.bridges[found.offsets[frame] : found.offsets[frame + 1]]
        assert [one.item()[1:4] for one in some] == sorted(expected)
        assert len(some) == found.counts[frame] > 10
        values = np.array([expected[key] for key in sorted(expected)]) * [1, -1, 1, -1]
        ours = [some[f"{kind}_{end}"] for end in (1, 2) for kind in ("distance", "angle")]
        np.testing.assert_allclose(np.transpose(ours), values, atol=0.01)


def test_what_has_no_bridges_is_refused():
    universe = system(2, [placed("donates twice", np.full(3, 10.0))])
    ligand, residue = map(universe.select_atoms, ("resname LIG", "resname ALA"))
    dry = MDAnalysis.Merge(ligand, residue)
    with pytest.raises(SelectionError, match="no residue with a name of water outside the groups"):
        WaterBridges(dry.atoms[:3], dry.atoms[3:])
    with pytest.raises(SelectionError, match="no atom of water='resname XYZ' outside the groups"):
        WaterBridges(ligand, residue, water="resname XYZ")
    with pytest.raises(SelectionError, match="with a name of water outside"):
        WaterBridges(ligand, universe.select_atoms("resname SOL"))
    with pytest.raises(SelectionError, match="ag1: none of the 1 atoms is a donor"):
        WaterBridges(ligand[2:], residue).run()
    with pytest.raises(SelectionError, match="ag2 contains no atoms"):
        WaterBridges(ligand, universe.atoms[:0])
    with pytest.raises(UnsupportedError, match="ag2 must belong to the same Universe"):
        WaterBridges(ligand, dry.atoms)
    with pytest.raises(UnsupportedError, match="UpdatingAtomGroup changes"):
        WaterBridges(ligand, universe.select_atoms("around 9 resname LIG", updating=True))
    with pytest.raises(ValueError, match="has fixed limits"):
        WaterBridges(ligand, residue, criterion="gromacs", d_a_cutoff=3.5).run()


def test_the_command_line_writes_bridges(tmp_path, run):
    names = "bridges.npz", "frequent.csv", "timeline.csv", "timeline.svg"
    bridges, frequent, timeline, figure = (tmp_path / name for name in names)
    given = ["water-bridges", TPR, XTC, "--select", "resid 10-15", "--select-2"]
    given += ["protein and not resid 10-15", "--end", 4, "-o", bridges, "--frequent", frequent]
    assert run(*given, "--timeline", timeline)[0] == 0
    universe = paceline.Universe(TPR, XTC)
    ours = WaterBridges(
        *map(universe.select_atoms, ("resid 10-15", "protein and not resid 10-15"))
    ).run(stop=4)
    with np.load(bridges) as saved:
        np.testing.assert_array_equal(saved["bridges"], ours.results.bridges)
    head, first, *_ = [one for one in frequent.read_text("utf-8").splitlines() if one[0] != "#"]
    assert head == "residues,first,second,frames,fraction of frames"
    assert first.partition(",")[0] in timeline.read_text("utf-8")
    assert run(*given, "--overwrite", "--timeline", figure)[0] == 0
    assert first.partition(",")[0] in figure.read_text("utf-8")
    code, _, err = run(*given, "--overwrite", "--water", "resname XYZ")
    assert (code, "no atom of --water" in err) == (2, True)


@pytest.mark.filterwarnings("ignore")
def test_batteries_of_ligands_in_water_have_bridges(tmp_path):
    dry = complex_of()
    dry.atoms.positions = moving(0, None)[0]
    water = system(2, [placed("donates twice", np.full(3, 10.0))]).select_atoms("resname SOL")
    water.universe.add_TopologyAttr("elements", ["O", "N", "H"] * 2 + ["O", "H", "H"] * 2)
    water.universe.add_TopologyAttr("masses", [16.0, 1.0, 1.0] * 4)
    wet = MDAnalysis.Merge(dry.atoms, water)
    name = "ligand-water-bridges"
    batteries = {there: Battery.default(one) for there, one in ((False, dry), (True, wet))}
    for there, battery in batteries.items():
        assert (name in battery.descriptions, name in battery.left_out) == (there, False)
    batteries[True].run().save(tmp_path)
    assert (tmp_path / f"{name}.csv").is_file()
