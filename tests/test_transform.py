"""Tests of transformations against those of MDAnalysis."""

import contextlib
import pickle
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import MDAnalysis
import numpy as np
import pytest
from helpers import virtual_sites
from MDAnalysis import transformations
from MDAnalysis.lib.distances import apply_PBC
from MDAnalysis.lib.mdamath import triclinic_vectors
from MDAnalysisTests import datafiles

import paceline
from paceline import _core, transform
from paceline.analysis.contacts import ContactMap
from paceline.analysis.gyration import Gyration
from paceline.analysis.rms import RMSD, RMSF
from paceline.contract.run_info_and_descriptions import RunInfo
from paceline.errors import (
    AnalysisError,
    PacelineWarning,
    SelectionError,
    TransformError,
    UnsupportedError,
)
from paceline.transform import bonds_and_compounds, check_broken_molecules, same_image_links

#: Rounding error, Å: some units in the last place of positions in single precision.
ROUNDING = 4e-5

EVERY = slice(None)
#: Frames of the system in water, for which MDAnalysis is slow.
SOME = slice(0, 10, 6)

CELLS = [
    [40, 50, 60, 90, 90, 90],
    [45, 45, 45, 60, 60, 90],
    [45, 45, 45, 70.52878, 109.47122, 70.52878],
    [38, 52, 44, 80, 102, 115],
]


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    """Adenylate kinase in water, in rhombic dodecahedra, with bonds."""
    trajectory = shutil.copy(datafiles.XTC, tmp_path_factory.mktemp("transform"))
    return datafiles.TPR, str(trajectory)


@pytest.fixture(scope="module")
def ours(system):
    return paceline.Universe(*system)


@pytest.fixture(scope="module")
def theirs(system):
    return MDAnalysis.Universe(*system)


def made_up(cell, *, wrapped=False):
    """Return branched chains of up to 40 atoms in any image, or wrapped, in five frames."""
    random = np.random.default_rng(5)
    n_molecules = 12
    sizes = random.integers(1, 41, n_molecules)
    n_atoms = sizes.sum()
    molecule = np.repeat(np.arange(n_molecules), sizes)
    universe = MDAnalysis.Universe.empty(
        n_atoms,
        n_residues=n_molecules,
        n_segments=2,
        atom_resindex=molecule,
        residue_segindex=np.arange(n_molecules) % 2,
        trajectory=True,
    )
    bonds, start = [], 0
    whole = np.empty((5, n_atoms, 3))
    for size in sizes:
        whole[:, start] = random.uniform(-30, 90, (5, 3))
        for atom in range(start + 1, start + size):
            neighbour = random.integers(max(start, atom - 3), atom)
            # A drift makes some molecules longer than the cell.
            whole[:, atom] = whole[:, neighbour] + random.uniform(-1, 1.4, (5, 3))
            bonds.append((neighbour, atom))
        start += size
    universe.add_TopologyAttr("bonds", bonds)
    universe.add_TopologyAttr("masses", random.uniform(1, 20, n_atoms))
    universe.add_TopologyAttr("names", [f"A{i}" for i in range(n_atoms)])
    universe.add_TopologyAttr("resnames", ["MOL"] * n_molecules)
    universe.add_TopologyAttr("resids", np.arange(n_molecules) + 1)
    images = random.integers(-1, 2, whole.shape)
    broken = whole + images @ triclinic_vectors(cell).astype(float)
    if wrapped:
        broken = np.array([apply_PBC(frame.astype(np.float32), cell) for frame in whole])
    dimensions = np.tile(np.array(cell, dtype=np.float32), (5, 1))
    universe.load_new(broken.astype(np.float32), dimensions=dimensions, order="fac")
    return universe


def frames_of(universe, atoms, frames=EVERY):
    """Return positions and cells as decoded by the core."""
    positions, dimensions = [], []
    for ts in universe.trajectory[frames]:
        positions.append(ts.positions[atoms])
        dimensions.append(np.zeros(6) if ts.dimensions is None else ts.dimensions.copy())
    cells = _core.cells_of_dimensions(np.array(dimensions, dtype=np.float32))
    return np.array(positions), cells


def transformed(universe, steps, wanted=None, frames=EVERY):
    """Return positions of the wanted atoms after transformations, as in a run, Å."""
    wanted = universe.atoms.indices if wanted is None else wanted
    atoms = wanted
    for step in reversed(steps):
        atoms = step.atoms(atoms, universe)
    prepared = []
    for step in steps:
        prepared.append(step.prepare(atoms, universe, prepared))
    positions, dimensions = frames_of(universe, atoms, frames)
    for step in pickle.loads(pickle.dumps(prepared)):
        assert step.apply(positions, dimensions) == []
    return positions[:, np.searchsorted(atoms, wanted)]


def by_mdanalysis(universe, *steps, wanted=None, frames=EVERY):
    """Return the same with MDAnalysis's transformations, which change positions in place."""
    wanted = universe.atoms.indices if wanted is None else wanted
    found = []
    for ts in universe.trajectory[frames]:
        # An array in memory would keep the change.
        kept = ts.positions.copy()
        for step in steps:
            step(ts)
        found.append(ts.positions[wanted].copy())
        ts.positions[:] = kept
    return np.array(found)


def assert_close(found, expected):
    assert found.dtype == np.float32
    scale = max(1, np.abs(expected).max(initial=0) / 100)
    np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING * scale)


def test_unwrap_is_mdanalysis_s_in_water(ours, theirs):
    protein = theirs.select_atoms("protein")
    wanted = protein.indices
    expected = by_mdanalysis(theirs, transformations.unwrap(protein), wanted=wanted, frames=SOME)
    found = transformed(ours, [transform.unwrap()], wanted, SOME)
    assert_close(found, expected)
    before, _ = frames_of(ours, wanted, SOME)
    moved = (np.abs(found - before) > 1).any(axis=2).sum(axis=1)
    assert (moved > 50).all()
    # Positions that did not move have the same bits.
    assert np.array_equal(found[np.abs(found - before) < 1], before[np.abs(found - before) < 1])


@pytest.mark.parametrize("cell", CELLS)
def test_unwrap_makes_molecules_whole(cell):
    universe = made_up(cell)
    found = transformed(universe, [transform.unwrap()])
    a, b = universe.bonds.to_indices().T
    bonds = np.linalg.norm(found[:, a] - found[:, b], axis=2)
    assert bonds.max() < 2.5
    start = [fragment[0].index for fragment in universe.atoms.fragments]
    before, _ = frames_of(universe, universe.atoms.indices)
    assert np.array_equal(found[:, start], before[:, start])
    # Each atom is at an image of its position.
    for found_frame, before_frame in zip(found, before, strict=True):
        moved = (found_frame - before_frame) @ np.linalg.inv(triclinic_vectors(cell).astype(float))
        assert np.abs(moved - moved.round()).max() < 1e-5


@pytest.mark.parametrize("cell", CELLS)
def test_unwrap_is_mdanalysis_s_where_that_is_whole(cell):
    # MDAnalysis searches only adjacent cells, and does nothing if all atoms are within half a cell
    # of the first one. It leaves bonds of such molecules broken.
    universe = made_up(cell, wrapped=True)
    expected = by_mdanalysis(universe, transformations.unwrap(universe.atoms))
    found = transformed(universe, [transform.unwrap()])
    n_compared = 0
    for fragment in universe.atoms.fragments:
        if len(fragment) < 2:
            continue
        a, b = fragment.bonds.to_indices().T
        bonds = np.linalg.norm(expected[:, a] - expected[:, b], axis=2)
        whole = (bonds < 2.5).all(axis=1)
        n_compared += whole.sum()
        assert_close(found[whole][:, fragment.indices], expected[whole][:, fragment.indices])
    assert n_compared > 40


def test_unwrap_needs_only_molecules_that_are_wanted(ours):
    ca = ours.select_atoms("protein and name CA").indices
    protein = ours.select_atoms("protein").indices
    assert np.array_equal(transform.unwrap().atoms(ca, ours), protein)
    ion = ours.select_atoms("resname NA+").indices[:1]
    atoms = transform.unwrap("protein").atoms(np.union1d(ca[:3], ion), ours)
    assert np.array_equal(atoms, np.union1d(protein, ion))


@pytest.fixture(scope="module", params=CELLS)
def chains(request, tmp_path_factory):
    """Two adjacent chains, and a ligand near the second one, each in any image in each frame.

    An ion is far from them. The attribute `complex` contains the positions without the images.
    """
    random = np.random.default_rng(7)
    universe = MDAnalysis.Universe.empty(10, 8, atom_resindex=[0, 1, 2, 3, 4, 5, 6, 6, 6, 7])
    universe.add_TopologyAttr("bonds", [(0, 1), (1, 2), (3, 4), (4, 5), (6, 7), (7, 8)])
    universe.add_TopologyAttr("names", ["CA"] * 6 + ["L1", "L2", "L3", "NA"])
    universe.add_TopologyAttr("resnames", ["ALA"] * 3 + ["GLY"] * 3 + ["LIG", "NA"])
    universe.add_TopologyAttr("resids", np.arange(1, 9))
    universe.add_TopologyAttr("masses", np.ones(10))
    x = np.array([0, 3, 6, 0, 3, 6, 6, 7, 8, 2], float)
    y = np.array([0, 0, 0, 3, 3, 3, 6.5, 6.5, 6.5, 17], float)
    whole = np.stack([x, y, np.zeros(10)], axis=1) + random.normal(0, 0.2, (20, 10, 3))
    vectors = triclinic_vectors(request.param)
    images = random.integers(-1, 2, (20, 10, 3))
    images[0] = 0
    images[0, 3:6, 0] = 1
    universe.load_new(
        (whole + images @ vectors).astype(np.float32),
        dimensions=np.float32([request.param] * 20),
    )
    path = str(tmp_path_factory.mktemp("chains") / "chains.trr")
    universe.atoms.write(path, frames="all")
    universe.load_new(path)
    universe.complex = whole
    return universe


def test_unwrap_puts_molecules_of_a_complex_side_by_side(chains):
    """Check that the result depends neither on the analysed atoms nor on images of molecules."""
    together = transform.unwrap(together="resname ALA GLY LIG")
    series = paceline.TimeSeries(lambda block: block.positions, chains.atoms[:9])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = series.run(transforms=[together]).results.timeseries
    expected = chains.complex[:, :9]
    for frame in (found, expected):
        frame -= frame[:, :1].copy()
    assert np.abs(found - expected).max() < ROUNDING
    assert np.array_equal(together.atoms(np.array([4]), chains), np.arange(9))
    assert np.array_equal(together.atoms(np.array([9]), chains), [9])


def test_chains_that_are_apart_warn(chains):
    one = paceline.TimeSeries(lambda block: block.positions, chains.atoms)
    words = r"in different images in \d+ of 20 frames, first in frame 0: .* with together= "
    with pytest.warns(PacelineWarning, match=words):
        one.run(transforms=[transform.unwrap()])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Only one of the chains is analysed.
        other = paceline.TimeSeries(lambda block: block.positions, chains.atoms[:3])
        other.run(transforms=[transform.unwrap()])
        one.run(transforms=[transform.unwrap("index 0"), transform.unwrap("resname LIG")])


def test_a_molecule_without_neighbours_warns():
    universe = MDAnalysis.Universe.empty(4, 2, atom_resindex=[0, 0, 1, 1], trajectory=True)
    universe.add_TopologyAttr("bonds", [(0, 1), (2, 3)])
    universe.atoms.positions = [[0, 0, 0], [1, 0, 0], [15, 15, 15], [16, 15, 15]]
    universe.dimensions = [30, 30, 30, 90, 90, 90]
    with pytest.warns(
        PacelineWarning, match="2 molecules of together= have no other molecule .* 0$"
    ):
        transform.unwrap(together="all").prepare(np.arange(4), universe, [])


def lattices(*corners, n=12):
    """Return a Universe of cubes of atoms 3 Å apart, one molecule per cube, in a cell of 400 Å."""
    plane = np.stack(np.unravel_index(np.arange(n**3), (n,) * 3), axis=1)
    plane[:, 1] = np.where(plane[:, 0] % 2, n - 1 - plane[:, 1], plane[:, 1])
    plane[:, 2] = np.where(np.arange(n**3) // n % 2, n - 1 - plane[:, 2], plane[:, 2])
    cubes = np.concatenate([3.0 * plane + corner for corner in corners])
    residues = np.arange(len(cubes)) // n
    universe = MDAnalysis.Universe.empty(
        len(cubes), residues[-1] + 1, atom_resindex=residues, trajectory=True
    )
    universe.add_TopologyAttr("resnames", ["ALA"] * (residues[-1] + 1))
    universe.add_TopologyAttr("resids", 1 + np.arange(residues[-1] + 1))
    bonded = np.arange(len(cubes)).reshape(len(corners), -1)
    pairs = np.stack([bonded[:, :-1].ravel(), bonded[:, 1:].ravel()], axis=1)
    universe.add_TopologyAttr("bonds", [*map(tuple, pairs.tolist())])
    universe.atoms.positions, universe.dimensions = cubes % 400, [400, 400, 400, 90, 90, 90]
    return universe


def test_molecules_far_from_a_complex_join_it_by_few_pairs(monkeypatch):
    """Check that few pairs are searched, and not all pairs within the distance."""
    universe = lattices((0, 0, 0), (36, 0, 0), (0, 0, 100))
    found, core = [], same_image_links._core.NearPairs

    class NearPairs:
        def __init__(self, *args):
            self._core = core(*args)

        def find(self, *args):
            counts, records, refused = self._core.find(*args)
            found.append(int(counts.sum()))
            return counts, records, refused

    monkeypatch.setattr(same_image_links._core, "NearPairs", NearPairs)
    atoms = np.arange(len(universe.atoms))
    fragments = bonds_and_compounds.molecular_bonds_of(universe, "unwrap").fragments
    pairs, alone = same_image_links.nearest_contacts(universe, atoms, fragments)
    places = universe.atoms.positions[pairs]
    lengths = np.linalg.norm(places[:, 0] - places[:, 1], axis=1)
    np.testing.assert_allclose(lengths, [3, 67])
    assert fragments[pairs].tolist() == [[0, 12**3], [0, 2 * 12**3]]
    assert len(alone) == 0
    assert max(found) < 12**6 / 10


def test_contacts_that_cannot_be_found_are_refused():
    universe = lattices((0, 0, 0), (36, 0, 0), n=3)
    universe.atoms[4].position = [np.nan] * 3
    with pytest.raises(TransformError, match="together= uses contacts in the first frame"):
        transform.unwrap(together="all").prepare(np.arange(54), universe, [])


@pytest.mark.parametrize(
    ("corners", "apart"),
    [
        ([(0, 0, 0), (36, 0, 0)], False),
        ([(300, 0, 0), (336, 0, 0), (300, 36, 0)], False),  # the first atoms are in one cell
        ([(360, 0, 0), (396, 0, 0)], False),
        ([(366, 0, 0), (402, 0, 0)], True),
        ([(0, 0, 0), (0, 364, 0)], True),
        ([(0, 0, 0), (0, 350, 0)], False),  # not in contact
        ([(0, 0, 0), (364, 0, 0), (364, 36, 0)], True),
    ],
)
def test_only_chains_in_contact_across_faces_warn(corners, apart):
    universe = lattices(*corners)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        Gyration(universe.atoms, weights=None).run(transforms=[transform.unwrap()])
    told = [str(one.message) for one in told if "different images" in str(one.message)]
    assert len(told) == apart
    if apart:
        assert "in 1 of 1 frames, first in frame 0: atom " in told[0]
        assert " what Gyration computes for both is wrong for their complex: " in told[0]


def test_unwrap_of_a_group_leaves_other_molecules():
    universe = made_up(CELLS[0])
    inside, outside = universe.residues[:4].atoms, universe.residues[4:].atoms
    # One atom identifies its molecule.
    named = universe.residues[:4].atoms.groupby("resids")
    group = sum((atoms[-1:] for atoms in named.values()), universe.atoms[:0])
    found = transformed(universe, [transform.unwrap(group)])
    everywhere = transformed(universe, [transform.unwrap()])
    before, _ = frames_of(universe, universe.atoms.indices)
    assert np.array_equal(found[:, inside.indices], everywhere[:, inside.indices])
    assert np.array_equal(found[:, outside.indices], before[:, outside.indices])
    assert not np.array_equal(found[:, inside.indices], before[:, inside.indices])


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("weights", [None, "mass"])
@pytest.mark.parametrize("wrap", [False, True])
def test_center_is_mdanalysis_s(cell, weights, wrap):
    universe = made_up(cell)
    group = universe.residues[2:5].atoms
    method = "geometry" if weights is None else "mass"
    expected = by_mdanalysis(
        universe, transformations.center_in_box(group, center=method, wrap=wrap)
    )
    found = transformed(universe, [transform.center(group, weights=weights, wrap=wrap)])
    assert_close(found, expected)


def test_center_may_be_anywhere(theirs, ours):
    point = [1.0, -20.0, 30.0]
    expected = by_mdanalysis(
        theirs, transformations.center_in_box(theirs.select_atoms("protein"), point=point)
    )
    assert_close(transformed(ours, [transform.center("protein", point=point)]), expected)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("compound", ["atoms", "group", "residues", "segments", "fragments"])
def test_wrap_is_mdanalysis_s(cell, compound):
    universe = made_up(cell)
    for group in (universe.atoms, universe.atoms[7:90:2]):
        expected = by_mdanalysis(universe, transformations.wrap(group, compound=compound))
        assert_close(transformed(universe, [transform.wrap(group, compound=compound)]), expected)


@pytest.mark.parametrize("compound", ["atoms", "residues", "molecules"])
def test_wrap_is_mdanalysis_s_in_water(compound, ours, theirs):
    by = [33.0, -70.0, 170.0]
    wrap = transformations.wrap(theirs.atoms, compound=compound)
    expected = by_mdanalysis(theirs, transformations.translate(by), wrap, frames=SOME)
    steps = [Shifted(by), transform.wrap(compound=compound)]
    assert_close(transformed(ours, steps, frames=SOME), expected)


class Shifted:
    """A transformation of another package."""

    def __init__(self, by):
        self.by = np.float32(by)

    def atoms(self, wanted, universe):
        return wanted

    def prepare(self, atoms, universe, before):
        return self

    def apply(self, positions, dimensions):
        positions += self.by
        return []


def test_wrap_needs_only_compounds_that_are_wanted():
    universe = made_up(CELLS[0])
    wanted = universe.residues[3].atoms.indices[:1]
    for compound, expected in {
        "atoms": wanted,
        "residues": universe.residues[3].atoms.indices,
        "fragments": universe.residues[3].atoms.indices,
        "segments": universe.residues[3].segment.atoms.indices,
        "group": universe.atoms.indices,
    }.items():
        step = transform.wrap(compound=compound)
        assert np.array_equal(step.atoms(wanted, universe), expected), compound
        found = transformed(universe, [step], wanted)
        assert np.array_equal(found, transformed(universe, [step])[:, wanted]), compound


@pytest.fixture(scope="module")
def crystal():
    return MDAnalysis.Universe(datafiles.PSF, datafiles.PDB_small)


@pytest.fixture(scope="module")
def tumbling():
    """Positions that rotate and drift, in memory, and a similar structure."""
    universe = MDAnalysis.Universe(datafiles.PSF, datafiles.DCD)
    random = np.random.default_rng(3)
    positions, _ = frames_of(universe, universe.atoms.indices)
    positions = positions[:10]
    for k in range(len(positions)):
        turn, _ = np.linalg.qr(random.normal(size=(3, 3)))
        turn *= np.linalg.det(turn)
        positions[k] = positions[k] @ turn + random.uniform(-30, 30, 3)
    return MDAnalysis.Universe(datafiles.PSF, positions, order="fac")


@pytest.mark.parametrize("weights", [None, "mass"])
@pytest.mark.parametrize("plane", [None, "xy", "yz", "xz"])
@pytest.mark.parametrize("rotation", [True, False])
def test_fit_is_mdanalysis_s(weights, plane, rotation, tumbling, crystal):
    kind = transformations.fit_rot_trans if rotation else transformations.fit_translation
    mobile, fixed = (u.select_atoms("name CA") for u in (tumbling, crystal))
    expected = by_mdanalysis(tumbling, kind(mobile, fixed, plane=plane, weights=weights))
    for group, reference in ((mobile, fixed), ("name CA", crystal)):
        step = transform.fit(group, reference, weights=weights, rotation=rotation, plane=plane)
        assert_close(transformed(tumbling, [step]), expected)


def test_a_fit_takes_a_weight_of_each_atom(tumbling, crystal):
    atoms = tumbling.select_atoms("protein and name CA C")
    first = MDAnalysis.Merge(atoms)
    by_mass, by_number = (
        transformed(tumbling, [transform.fit(atoms, first, weights=weights)])
        for weights in ("mass", 3 * atoms.masses)
    )
    # Only ratios of weights matter, except for the last bits.
    assert_close(by_mass, by_number)
    with pytest.raises(ValueError, match="428 atoms"):
        transformed(tumbling, [transform.fit(atoms, weights=[1.0, 2.0])])
    other, fixed = tumbling.select_atoms("name N"), crystal.select_atoms("name CA")
    with pytest.raises(SelectionError, match="differ in mass"):
        transformed(tumbling, [transform.fit(other, fixed)])
    transformed(tumbling, [transform.fit(other, fixed, tol_mass=3)])
    assert "weights=given" in transform.fit(atoms, weights=atoms.masses).parameters()


def test_a_fit_starts_from_the_first_frame(ours):
    ca = ours.select_atoms("protein and name CA")
    ours.trajectory[4]
    found = transformed(ours, [transform.unwrap(), transform.fit(ca)], ca.indices)
    unwrapped = transformed(ours, [transform.unwrap()], ca.indices)
    assert_close(found[0], unwrapped[0])
    assert np.abs(found[4] - unwrapped[4]).max() > 1
    # The trajectory is unchanged.
    ours.trajectory[4]
    step = transform.fit(ca)
    step.prepare(ca.indices, ours, [])
    assert ours.trajectory.ts.frame == 4


def test_a_frame_of_the_same_trajectory_is_transformed_first(ours):
    ca = ours.select_atoms("protein and name CA")
    unwrapped = transformed(ours, [transform.unwrap()], ca.indices)
    ours.trajectory[6]
    steps = [transform.unwrap(), transform.fit(ca, ca)]
    atoms = steps[0].atoms(steps[1].atoms(ca.indices, ours), ours)
    first = steps[0].prepare(atoms, ours, [])
    second = steps[1].prepare(atoms, ours, [first])
    positions, dimensions = frames_of(ours, atoms)
    assert first.apply(positions, dimensions) == second.apply(positions, dimensions) == []
    assert_close(positions[6][np.searchsorted(atoms, ca.indices)], unwrapped[6])


def test_a_chain_is_mdanalysis_s(system, ours, theirs):
    reference = MDAnalysis.Universe(*system)
    for fragment in reference.select_atoms("protein").fragments:
        transformations.unwrap(fragment)(reference.trajectory.ts)
    protein = theirs.select_atoms("protein")
    backbone = theirs.select_atoms("backbone")
    expected = by_mdanalysis(
        theirs,
        transformations.unwrap(protein),
        transformations.center_in_box(protein, center="mass"),
        transformations.wrap(theirs.atoms, compound="residues"),
        transformations.fit_rot_trans(backbone, reference.select_atoms("backbone")),
        frames=SOME,
    )
    steps = [
        transform.unwrap("protein"),
        transform.center("protein", weights="mass"),
        transform.wrap(compound="residues"),
        transform.fit("backbone", reference),
    ]
    found = transformed(ours, steps, frames=SOME)
    assert_close(found, expected)
    wanted = np.array([5, 700, 3340, 3341, 40001])
    assert np.array_equal(transformed(ours, steps, wanted, SOME), found[:, wanted])


def test_frames_without_a_cell_are_named(ours):
    universe = made_up(CELLS[1])
    positions, dimensions = frames_of(universe, universe.atoms.indices)
    lengths_and_angles = dimensions[:, :6].astype(np.float32)
    lengths_and_angles[1] = 0
    lengths_and_angles[2] = [40, 40, 40, 130, 130, 130]
    lengths_and_angles[3, 0] = np.nan
    dimensions = _core.cells_of_dimensions(lengths_and_angles)
    positions[0] = np.nan
    dimensions[0] = np.nan  # a skipped frame
    for step in (transform.unwrap(), transform.center("all"), transform.wrap()):
        found = positions.copy()
        prepared = step.prepare(universe.atoms.indices, universe, [])
        refused = dict(prepared.apply(found, dimensions))
        assert list(refused) == [1, 2, 3]
        name = step.parameters().partition("(")[0]
        assert refused[1] == f"the frame has no cell, which {name} needs"
        assert "40 40 40 Å and angles of 130 130 130°, which make no cell" in refused[2]
        assert np.isnan(found[:4]).all()
        assert np.isfinite(found[4]).all()
    fitted = transform.fit("all", universe).prepare(universe.atoms.indices, universe, [])
    found = positions.copy()
    assert fitted.apply(found, dimensions) == []
    assert np.isfinite(found[1:]).all()


def test_a_first_frame_without_a_cell_is_no_reference(universe):
    steps = [transform.unwrap(), transform.fit("name CA")]
    with pytest.raises(TransformError, match=r"frame 0 cannot be the reference.*has no cell"):
        transformed(universe, steps)


@pytest.fixture(scope="module")
def rings(tmp_path_factory):
    """A ring that extends through the cell in every tenth of 80 frames, and a whole molecule."""
    universe = MDAnalysis.Universe.empty(6, atom_resindex=[0] * 4 + [1] * 2, n_residues=2)
    universe.add_TopologyAttr("bonds", [(0, 1), (1, 2), (2, 3), (3, 0), (4, 5)])
    universe.add_TopologyAttr("names", ["A", "B", "C", "D", "E", "F"])
    whole = [[1, 1, 1], [3, 1, 1], [3, 3, 1], [1, 3, 1], [5, 5, 0], [5, 5, 19]]
    positions = np.array([whole] * 80, dtype=np.float32)
    positions[::10, 1:4, 0] = [6, 11, 16]
    # The longest bond.
    positions[50, 1:4, 1] = [1, 4, 1]
    dimensions = np.float32([[20, 30, 20, 90, 90, 90]] * 80)
    universe.load_new(positions, dimensions=dimensions)
    path = str(tmp_path_factory.mktemp("rings") / "rings.trr")
    universe.atoms.write(path, frames="all")
    return universe.load_new(path)


LONG_BONDS = (
    r"rings\.trr: 8 bonds in 8 of 80 frames are longer than half the cell after unwrap; the "
    r"longest, 15\.3 Å, is between C \(index 2\) and D \(index 3\) in frame 50\. Perhaps"
)


def long_bonds_of(rings, atoms="all", transforms=(), **options):
    """Return the warnings of a run, and its rows."""
    series = paceline.TimeSeries(lambda block: block.positions, rings.select_atoms(atoms))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        series.run(transforms=transforms or [transform.unwrap()], **options)
    told = [str(one.message) for one in told if one.category is PacelineWarning]
    return told, series.results.timeseries


def test_bonds_that_stay_long_are_reported_once(rings, where):
    (told,), _ = long_bonds_of(rings, block_frames=16, **where)
    assert re.search(LONG_BONDS, told)


def test_only_frames_and_molecules_of_the_run_warn(rings):
    assert long_bonds_of(rings, start=1, step=2)[0] == []
    told, positions = long_bonds_of(rings, "index 4 5")
    assert told == []
    assert np.isclose(positions[:, 1, 2], -1).all()


@pytest.mark.parametrize("steps", ["unwrap nojump", "nojump unwrap"])
@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_long_bonds_warn_whatever_an_earlier_pass_sees(steps, backend, rings):
    """Check threads, which unwrap atoms in the only pass, and processes, which do so in a pass
    before.
    """
    steps = [getattr(transform, name)() for name in steps.split()]
    (told,), _ = long_bonds_of(rings, transforms=steps, backend=backend, block_frames=16)
    assert re.search(LONG_BONDS, told)
    few = {"start": 1, "step": 2, "backend": backend}
    assert long_bonds_of(rings, transforms=steps, **few)[0] == []


def test_long_bonds_are_kept_in_a_checkpoint(rings, tmp_path):
    marker, path = tmp_path / "marker", tmp_path / "checkpoint"
    marker.touch()

    def fail(block):
        if marker.exists() and 70 in block.frames:
            raise RuntimeError("not yet")
        return block.times

    series = paceline.TimeSeries(fail, rings.atoms)
    options = {"transforms": [transform.unwrap()], "checkpoint": path, "backend": "serial"}
    with pytest.raises(AnalysisError):
        series.run(block_frames=16, **options)
    marker.unlink()
    with pytest.warns(PacelineWarning, match=LONG_BONDS):
        series.run(**options)


def test_missing_bonds_are_named(ours):
    everything = MDAnalysis.Universe(datafiles.GRO)
    everything.residues.resnames = "LIG"  # standard names would identify them
    everything.select_atoms("name OW").names = "O1"
    with pytest.raises(UnsupportedError, match=r"has none; load a topology.*guess_bonds"):
        transform.unwrap().atoms(everything.atoms.indices, everything)
    with pytest.raises(UnsupportedError, match="wrap by fragments needs bonds"):
        transform.wrap(compound="fragments").atoms(everything.atoms.indices, everything)
    # As in a PDB file that lists only the bonds of its ligand.
    everything.add_TopologyAttr("bonds", [(0, 1), (47680, 47679)])
    with pytest.raises(UnsupportedError, match=r"no bonds for 213 residues \(LIG 2, LIG 3, LIG 4"):
        transform.unwrap().atoms(np.arange(3341), everything)


def test_divided_residues_are_named(ours):
    made = four_sites(masses=None, bonds=O_H)
    words = r"2 residues \(SOL 1, SOL 2\).* a mass of 0, but the topology contains no masses"
    with pytest.warns(PacelineWarning, match=words):
        transform.unwrap().atoms(np.arange(8), made)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        transform.unwrap().atoms(np.array([0, 1, 2, 4]), made)
        transform.unwrap().atoms(np.arange(10), ours)
        transform.unwrap().atoms(ours.select_atoms("resname SOL").indices[:8], ours)


def four_sites(masses, bonds, residues=(0, 0, 0, 0, 1, 1, 1, 1)):
    """Return two waters with four sites each, with the given data in the topology."""
    made = MDAnalysis.Universe.empty(8, n_residues=max(residues) + 1, atom_resindex=residues)
    made.add_TopologyAttr("names", ["OW", "HW1", "HW2", "MW"] * 2)
    made.add_TopologyAttr("resnames", ["SOL"] * len(made.residues))
    made.add_TopologyAttr("resids", np.arange(len(made.residues)) + 1)
    made.add_TopologyAttr("bonds", bonds)
    if masses is None:
        made.guess_TopologyAttrs(to_guess=["masses"])
    else:
        made.add_TopologyAttr("masses", masses)
    return made


O_H = [(0, 1), (0, 2), (4, 5), (4, 6)]
TWO, O_FIRST, SITE_FIRST = (0, 0, 0, 0, 1, 1, 1, 1), [16, 1, 1, 0] * 2, [0, 16, 1, 1] * 2


@pytest.mark.parametrize(
    ("masses", "bonds", "residues", "added"),
    [
        (O_FIRST, O_H, TWO, [(0, 3), (4, 7)]),
        (SITE_FIRST, [(1, 2), (1, 3), (5, 6), (5, 7)], TWO, [(1, 0), (5, 4)]),
        ([16, 1, 1, 0, 16, 0, 0, 0], O_H[:2], TWO, [(4, 5), (4, 6), (4, 7), (0, 3)]),
        ([14, 14, 0, 0, 16, 1, 1, 0], O_H, TWO, [(0, 3), (4, 7)]),
        (O_FIRST, [*O_H, (1, 3)], TWO, [(4, 7)]),
        (O_FIRST, O_H, (0, 0, 0, 1, 2, 2, 2, 2), [(4, 7)]),
        (O_FIRST, O_H, (0, 0, 0, 0, 0, 0, 0, 0), []),
        (O_FIRST, O_H[:3], TWO, [(0, 3)]),
        ([0] * 8, O_H, TWO, []),
        (None, O_H, TWO, []),
    ],
    ids=[
        *("four sites", "the site first", "an atom alone", "equal masses", "a bond of its own"),
        *("a residue of its own", "two molecules", "a hydrogen alone", "no masses", "guessed"),
    ],
)
def test_sites_are_of_the_molecule_of_their_residue(masses, bonds, residues, added):
    universe = four_sites(masses, bonds, residues)
    found = bonds_and_compounds.molecular_bonds_of(universe, "unwrap").pairs
    assert found[: len(bonds)].tolist() == [list(bond) for bond in bonds]
    assert [tuple(bond) for bond in found[len(bonds) :].tolist()] == added


def test_bonds_are_found_anew_where_the_topology_changes():
    universe = four_sites(O_FIRST, O_H)

    def found():
        bonds = bonds_and_compounds.molecular_bonds_of(universe, "unwrap")
        pairs, fragments = bonds.pairs, bonds.fragments
        assert bonds_and_compounds.molecular_bonds_of(universe, "unwrap") is bonds
        assert bonds.fragments is fragments
        assert [pairs.flags.writeable, fragments.flags.writeable] == [False, False]
        return [tuple(bond) for bond in pairs.tolist()], fragments.tolist()

    assert found() == ([*O_H, (0, 3), (4, 7)], [0, 0, 0, 0, 4, 4, 4, 4])
    universe.delete_bonds([(0, 1)])
    universe.add_bonds([(1, 2)])  # the same number as before, in the same list
    assert found() == ([*O_H[1:], (1, 2), (0, 3), (4, 7)], [0, 0, 0, 0, 4, 4, 4, 4])
    universe.delete_bonds([(1, 2)])
    assert found() == ([*O_H[1:], (4, 7)], [0, 1, 0, 3, 4, 4, 4, 4])
    universe.atoms[7].mass = 1.0  # in the same array
    assert found() == (O_H[1:], [0, 1, 0, 3, 4, 4, 4, 7])
    universe.add_TopologyAttr("bonds", O_H[:1])
    of_names = [(4, 5), (4, 6), (4, 7)]
    assert found() == ([*O_H[:1], *of_names], [0, 0, 2, 3, 4, 4, 4, 4])
    universe.del_TopologyAttr("bonds")
    assert found() == ([(0, 1), (0, 2), (0, 3), *of_names], [0, 0, 0, 0, 4, 4, 4, 4])
    universe.del_TopologyAttr("names")
    with pytest.raises(UnsupportedError, match="the topology has none"):
        found()


def test_bonds_of_sites_in_the_topology_are_kept():
    """Check OPC water: Amber's topologies contain these bonds."""
    universe = MDAnalysis.Universe(datafiles.PRM19SBOPC)
    sites = universe.select_atoms("name EPW")
    assert (len(sites), sites.masses.any()) == (6, False)
    bonds = bonds_and_compounds.bonds_of(universe, "unwrap")
    assert np.array_equal(bonds_and_compounds.molecular_bonds_of(universe, "unwrap").pairs, bonds)
    found = bonds_and_compounds.fragindices_of(universe.atoms, "unwrap")
    assert np.array_equal(found, universe.atoms.fragindices)


def test_fragments_are_numbered_as_mdanalysis_s(ours, theirs):
    rest = theirs.select_atoms("not name MW")
    found = bonds_and_compounds.fragindices_of(ours.atoms, "wrap")
    _, expected = np.unique(rest.fragindices, return_inverse=True)
    assert np.array_equal(found[rest.indices], expected)
    waters = found[theirs.select_atoms("resname SOL").indices].reshape(-1, 4)
    assert (waters == waters[:, :1]).all()


def positions_of_all(block):
    return block.positions


@pytest.mark.parametrize("model", [virtual_sites.TIP4P, virtual_sites.TIP5P], ids=["four", "five"])
def test_sites_move_with_their_water(model, where, tmp_path):
    made, whole = virtual_sites.write_waters(tmp_path / "water.trr", model)
    atoms = paceline.Universe(made._topology, str(tmp_path / "water.trr")).atoms
    n, masses = len(model[0]), np.array(model[1])

    def places(*transforms):
        series = paceline.TimeSeries(positions_of_all, atoms)
        found = series.run(transforms=transforms, block_frames=8, **where).results.timeseries
        waters = found.reshape(len(found), -1, n, 3)
        return waters, waters[:, :, 1:] - waters[:, :, :1]

    expected = whole.reshape(len(whole), -1, n, 3)
    from_oxygen = expected[:, :, 1:] - expected[:, :, :1]
    _, broken = places()
    assert np.abs(broken - from_oxygen)[:, :, 2:].max() > 15
    unwrap, tor = transform.unwrap(), transform.nojump(scheme="tor")
    for steps in (
        [unwrap],
        [unwrap, tor],
        [unwrap, transform.nojump("name OW", scheme="tor")],
        [unwrap, transform.wrap(compound="fragments")],
    ):
        waters, found = places(*steps)
        np.testing.assert_allclose(found, from_oxygen, atol=1e-4)
        if steps[1:] == [tor]:
            centers, moved = (
                np.average(one - one[0], axis=2, weights=masses) for one in (waters, expected)
            )
            np.testing.assert_allclose(centers, moved, atol=1e-3)


def ring(places, edge, *, closed):
    """Return atoms along x, 1 Å apart, in a cell; if `closed`, the last is bonded to the first."""
    n = len(places)
    universe = MDAnalysis.Universe.empty(n, trajectory=True)
    universe.atoms.positions = np.array([[x % edge, 1, 1] for x in places], dtype=float)
    universe.dimensions = [edge, 20, 20, 90, 90, 90]
    universe.add_TopologyAttr("bonds", [(k, (k + 1) % n) for k in range(n if closed else n - 1)])
    return universe


def broken_in(universe, *groups, transforms=()):
    """Return the atoms and the distance of a broken molecule in the frame, or None."""
    needs = check_broken_molecules._Requirements([("RMSD", group) for group in groups], [], [])
    known = bonds_and_compounds.known_bonds(universe)
    found = same_image_links.find_links(universe, known, list(groups))
    if found is None:
        return None
    look = check_broken_molecules.MoleculeCheck(
        [RMSD(universe)], needs, found, np.empty((0, 2), np.int64)
    )
    look.run_info = RunInfo(np.arange(1), {})
    half, nothing = look.prepare(), (np.zeros(1, int), np.empty((0, 5)))
    series = paceline.RaggedTimeSeries(
        lambda block: half.compute_records(block) or nothing, universe.atoms[look.indices]
    )
    records = series.run(backend="serial").results.records
    return (*records[0, 2:4].astype(int).tolist(), records[0, 4]) if len(records) else None


def test_a_broken_molecule_is_found():
    chain = ring(range(16, 24), 20, closed=False)
    every = chain.atoms.indices
    assert broken_in(chain, every) == (3, 4, 19.0)
    # Each group is checked separately, by its own atoms.
    assert broken_in(chain, np.array([2]), np.array([6])) is None
    assert broken_in(chain, np.arange(4), np.arange(4, 8)) is None
    assert broken_in(chain, np.arange(4), np.array([2, 7])) == (3, 7, 16.0)
    assert broken_in(chain, np.array([7, 2, 7, 0])) == (2, 7, 15.0)
    # Three cases: a molecule within the cell, one bonded to its own image, and a frame without a
    # cell.
    assert broken_in(ring(range(8), 20, closed=False), every) is None
    assert broken_in(ring(range(20), 20, closed=True), np.arange(20)) is None
    chain.dimensions = None
    assert broken_in(chain, every) is None


def test_guessed_bonds_will_do(ours):
    universe = MDAnalysis.Universe(datafiles.PDB_small)
    universe.residues.resnames = "LIG"
    start = universe.select_atoms("resid 1-3")
    start.guess_bonds()
    assert np.array_equal(transform.unwrap().atoms(np.array([0]), universe), start.indices)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda u: transform.center("name XYZ"), SelectionError, "center: no atoms match"),
        (lambda u: transform.center(MDAnalysis.Universe.empty(3).atoms), UnsupportedError, "other"),
        (lambda u: transform.fit("index 0-1"), SelectionError, "no orientation"),
        (lambda u: transform.fit("index 0-9", u.atoms[:3]), SelectionError, "10 atoms .* 3 atoms"),
        (lambda u: transform.fit(u.atoms[:3], u.atoms[1:4]), SelectionError, "differ in mass"),
        (
            lambda u: transform.wrap(u.select_atoms("around 3 index 0", updating=True)),
            UnsupportedError,
            "UpdatingAtomGroup",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(make, error, words):
    universe = made_up(CELLS[0])
    with pytest.raises(error, match=words):
        make(universe).atoms(universe.atoms.indices, universe)


def test_wrap_by_molecules_needs_them():
    universe = made_up(CELLS[0])
    with pytest.raises(UnsupportedError, match="wrap by fragments"):
        transform.wrap(compound="molecules").atoms(universe.atoms.indices, universe)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda ca: transform.fit(ca), r"a list of transformations, such as \[unwrap\(\)\]"),
        (lambda ca: "unwrap", "a list of transformations"),
        (lambda ca: [transform.fit], r"those of .* not fit: call it, as fit\(\)"),
        (lambda ca: ["unwrap"], "those of paceline.transform, not 'unwrap'"),
        (
            lambda ca: [transformations.unwrap(ca)],
            r"those of .*; add MDAnalysis's transformations to",
        ),
    ],
)
def test_what_is_no_transformation_is_refused(make, words, universe):
    ca = universe.select_atoms("name CA")
    with pytest.raises(TypeError, match=f"transforms must be {words}"):
        RMSD(ca).run(transforms=make(ca))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: transform.wrap(compound="chains"), "'chains'"),
        (lambda: transform.fit("all", plane="zy"), "'zy'"),
        (lambda: transform.fit("all", weights="charge"), "'charge'"),
        (lambda: transform.center("all", point=[1, 2]), r"\(1.0, 2.0\)"),
        (lambda: transform.center("all", point=[1, 2, np.nan]), "nan"),
    ],
)
def test_unknown_options_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_one_line_says_what_was_done(ours):
    protein = ours.select_atoms("protein")
    steps = [
        transform.unwrap(),
        transform.center(protein, point=[1, 2, 3], wrap=True),
        transform.wrap(compound="residues"),
        transform.fit("protein", protein, rotation=False, plane="xy"),
    ]
    assert [step.parameters() for step in steps] == [
        "unwrap()",
        "center(3341 atoms, indices 0 to 3340, point=(1.0, 2.0, 3.0), wrap=True)",
        "wrap(compound=residues)",
        "fit('protein', reference=3341 atoms, indices 0-3340 of "
        f"{ours.trajectory.filename}, rotation=False, plane=xy)",
    ]


def test_workers_load_no_mdanalysis(ours):
    prepared = transform.center("protein").prepare(np.arange(3341), ours, [])
    probe = (
        "import pickle, sys; pickle.loads(sys.stdin.buffer.read()); "
        "sys.exit('MDAnalysis' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", probe], input=pickle.dumps(prepared), check=True)


def test_arrays_of_another_shape_are_refused():
    universe = made_up(CELLS[0])
    prepared = transform.wrap().prepare(universe.atoms.indices, universe, [])
    positions, dimensions = frames_of(universe, universe.atoms.indices)
    with pytest.raises(ValueError, match="expected positions of"):
        prepared.apply(positions[:, 1:].copy(), dimensions)
    with pytest.raises(ValueError, match="numbers of cells"):
        prepared.apply(positions, dimensions[1:].copy())


def test_a_run_sees_what_is_transformed(ours):
    ca = ours.select_atoms("protein and name CA")
    steps = [transform.unwrap(), transform.center("protein"), transform.fit(ca, weights="mass")]
    everything = paceline.TimeSeries(lambda block: block.positions, ca).run(
        transforms=steps, backend="serial"
    )
    expected = transformed(ours, steps, ca.indices)
    assert np.array_equal(everything.results.timeseries, expected)
    in_pairs = paceline.TimeSeries(lambda block: block.positions[:, 0], ca)
    in_pairs.run(transforms=steps, block_frames=1, n_workers=2)
    assert np.array_equal(in_pairs.results.timeseries, expected[:, 0])
    assert everything.provenance["transforms"] == (
        "unwrap(); center('protein'); "
        "fit(214 atoms, indices 4 to 3335, reference=frame 0, weights=mass)"
    )


def test_velocities_do_not_turn(ours):
    turning = [transform.fit("name CA"), transform.fit("name CA", rotation=False)]
    assert [step.rotates for step in turning] == [True, False]
    others = [transform.unwrap(), transform.center("all"), transform.wrap()]
    assert not any(step.rotates for step in others)


@contextlib.contextmanager
def warned_of_broken():
    """Collect warnings about broken molecules."""
    said = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield said
    said += [text for text in (str(one.message) for one in caught) if "broken across" in text]


class TestBrokenMolecules:
    """Tests of warnings about broken molecules, if an analysis or a transformation needs whole
    ones.
    """

    @pytest.mark.parametrize("kind", [paceline.Universe, MDAnalysis.Universe])
    def test_in_any_frame(self, kind, drifting):
        ca = kind(*drifting).select_atoms("protein and name CA")
        with warned_of_broken() as said:
            rmsd = RMSD(ca).run()
        (text,) = said
        assert rmsd.results.provenance["warnings"].startswith(f"{text}; ")  # and of equal times
        assert "in 1 of 3 frames, first in frame 2: atoms " in text
        assert text.endswith(
            " Å apart; RMSD needs whole molecules: unwrap (--unwrap) makes molecules whole"
        )

    def test_once_for_all_analyses_of_a_run(self, drifting):
        ca = paceline.Universe(*drifting).select_atoms("protein and name CA")
        again = paceline.Universe(*drifting).select_atoms("protein and name CA")
        with warned_of_broken() as said:
            paceline.run([RMSD(ca), RMSF(ca), RMSD(again)], transforms=[transform.fit("name CA")])
        (text, of_other) = said
        assert "RMSD, RMSF and fit (--fit) need whole molecules" in text
        assert "RMSD and fit (--fit) need whole molecules" in of_other

    @pytest.mark.parametrize(
        "options",
        [
            {"stop": 2},
            {"transforms": [transform.unwrap()]},
            # Whole in the first frame, and unwrapped from there.
            {"transforms": [transform.nojump()]},
        ],
    )
    def test_not_where_there_are_none(self, options, drifting):
        ca = paceline.Universe(*drifting).select_atoms("protein and name CA")
        with warned_of_broken() as said:
            RMSD(ca).run(**options)
            ContactMap(ca, scheme="ca").run()
        assert said == []

    def test_not_of_atoms_that_choose_a_group(self, drifting):
        universe = paceline.Universe(*drifting)
        near = universe.select_atoms("name OW and around 4 protein", updating=True)
        with warned_of_broken() as said:
            Gyration(near).run()
        assert said == []

    def test_not_where_mdanalysis_transforms(self, drifting):
        universe = paceline.Universe(*drifting)
        universe.trajectory.add_transformations(transformations.unwrap(universe.atoms))
        with warned_of_broken() as said:
            RMSD(universe, select="protein and name CA").run(backend="serial")
        assert said == []

    def test_frames_that_cannot_be_read_are_left_to_the_run(self, drifting, tmp_path):
        path = tmp_path / "cut.xtc"
        data = bytearray(Path(drifting.trajectory).read_bytes())
        offsets = MDAnalysis.Universe(*drifting).trajectory._xdr.offsets
        data[offsets[2] + 92 : offsets[2] + 108] = b"\xff" * 16
        path.write_bytes(data)
        for kind in (paceline.Universe, MDAnalysis.Universe):
            ca = kind(drifting.topology, str(path)).select_atoms("protein and name CA")
            with warned_of_broken() as said:
                assert [frame for frame, _ in RMSD(ca).run(on_error="skip").damaged] == [2]
            assert said == []
