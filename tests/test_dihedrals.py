"""Tests of dihedral angles against MDAnalysis, MDTraj and atoms placed at known angles."""

import inspect

import matplotlib
import MDAnalysis
import mdtraj
import numpy as np
import pytest
from MDAnalysis.analysis import dihedrals as theirs_dihedrals

import paceline
from paceline.analysis.dihedrals import ChiAngles, Dihedral, Janin, Ramachandran
from paceline.errors import AnalysisError, SelectionError, UnsupportedError

matplotlib.use("Agg")

# MDAnalysis computes bond vectors in single precision, and their images with large numbers.
DEGREES, DEGREES_IN_CELL = 1e-4, 2e-3
# Cells: none, rectangular, and triclinic.
CELLS = {
    "none": None,
    "rectangular": [30, 40, 50, 90, 90, 90],
    "dodecahedron": [40, 40, 40, 60, 60, 90],
    "triclinic": [50, 40, 45, 80, 100, 115],
}
# Warnings about residues at the ends of chains, or without side chains.
pytestmark = pytest.mark.filterwarnings("ignore:Cannot determine phi", "ignore:All residues sel")


def groups(universe):
    """Groups of four atoms in random order, some of them repeated."""
    phi = [residue.phi_selection() for residue in universe.residues[9:1:-1]]
    return [*phi, universe.atoms[[7, 3, 99, 2000]], phi[0], universe.atoms[[8, 3, 1, 7]]]


def ends(universe):
    return universe.select_atoms("protein")


CASES = {
    "Dihedral": lambda m, u: m.Dihedral(groups(u)),
    "Ramachandran": lambda m, u: m.Ramachandran(ends(u)),
    "Ramachandran of residues": lambda m, u: m.Ramachandran(u.residues[5:60:3]),
    "Ramachandran of names": lambda m, u: m.Ramachandran(
        u.select_atoms("resid 3-60"), c_name="CB", n_name="CA", ca_name="N", check_protein=False
    ),
    "Janin": lambda m, u: m.Janin(ends(u)),
    "Janin of fewer": lambda m, u: m.Janin(
        u.select_atoms("resname LYS ARG LEU and resid 3-200"), "resname LEU", "resid 3-200"
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_angles_are_mdanalysis_s(case, universe, theirs, adk_in_water):
    in_water = paceline.Universe(*adk_in_water), MDAnalysis.Universe(*adk_in_water)
    for ours, other, tolerance in (
        (universe, theirs, DEGREES),
        (*in_water, DEGREES_IN_CELL),
    ):
        found = CASES[case](paceline.analysis.dihedrals, ours).run()
        wanted = CASES[case](theirs_dihedrals, other).run()
        angles = found.results.angles
        assert angles.shape == wanted.results.angles.shape
        assert angles.dtype == wanted.results.angles.dtype
        turns = (angles - wanted.results.angles + 180) % 360 - 180
        np.testing.assert_allclose(turns, 0, atol=tolerance)
        for number in range(1, 6 if hasattr(wanted, "ag5") else 5):
            name = f"ag{number}"
            np.testing.assert_array_equal(
                getattr(found, name).indices, getattr(wanted, name).indices
            )


def written(tmp_path, frames, cell=None):
    """Return a Universe of a DCD file of frames with the same atoms."""
    frames = np.asarray(frames, dtype=np.float32)
    universe = MDAnalysis.Universe.empty(frames.shape[1], trajectory=True)
    path = tmp_path / "made.dcd"
    with MDAnalysis.Writer(str(path), frames.shape[1]) as writer:
        for positions in frames:
            universe.atoms.positions = positions
            universe.dimensions = cell
            writer.write(universe.atoms)
    return paceline.Universe(universe._topology, str(path))


def chain(degrees):
    """Return four atoms with this dihedral angle."""
    sin, cos = np.sin(np.radians(degrees)), np.cos(np.radians(degrees))
    return [[1, 1, 0], [0, 1, 0], [0, -1, 0], [1.5 * cos, -1, 1.5 * sin]]


@pytest.mark.parametrize("cell", CELLS)
def test_angles_are_those_that_atoms_were_placed_at(cell, tmp_path):
    dimensions = CELLS[cell]
    degrees = np.arange(-175.0, 181, 5)
    frames = np.array([chain(angle) for angle in degrees])
    if dimensions is not None:
        vectors = MDAnalysis.lib.mdamath.triclinic_vectors(dimensions)
        images = np.random.default_rng(5).integers(-3, 4, frames.shape)
        frames += images @ vectors
    universe = written(tmp_path, frames, dimensions)
    found = Dihedral([universe.atoms]).run().results.angles
    turns = (found[:, 0] - degrees + 180) % 360 - 180
    np.testing.assert_allclose(turns, 0, atol=2e-3 if dimensions else 1e-5)


@pytest.fixture(scope="module")
def trajectory(adk_in_water):
    """MDTraj's trajectory of the protein in a triclinic cell, with broken molecules."""
    part = MDAnalysis.Universe(*adk_in_water).select_atoms("protein").indices
    return mdtraj.load(adk_in_water.trajectory, top=adk_in_water.topology, atom_indices=part)


def test_phi_and_psi_are_mdtraj_s(trajectory, adk_in_water):
    found = Ramachandran(paceline.Universe(*adk_in_water).select_atoms("protein")).run()
    _, phi = mdtraj.compute_phi(trajectory)
    _, psi = mdtraj.compute_psi(trajectory)
    wanted = np.degrees(np.stack([phi[:, :-1], psi[:, 1:]], axis=2))
    turns = (found.results.angles - wanted + 180) % 360 - 180
    np.testing.assert_allclose(turns, 0, atol=DEGREES_IN_CELL)


def test_chi_angles_are_mdtraj_s(trajectory, adk_in_water):
    protein = paceline.Universe(*adk_in_water).select_atoms("protein")
    with pytest.MonkeyPatch.context() as patch:
        # In GROMACS, the last atom of isoleucine is CD, a name that MDTraj does not know.
        chi2 = [*mdtraj.geometry.dihedral.CHI2_ATOMS, ["CA", "CB", "CG1", "CD"]]
        patch.setattr(mdtraj.geometry.dihedral, "CHI2_ATOMS", chi2)
        wanted = [getattr(mdtraj, f"compute_chi{k}")(trajectory) for k in range(1, 6)]
    chi = ChiAngles(protein).run()
    assert chi.results.angles.shape == (10, len(chi.results.chi))
    atoms = np.column_stack([g.indices for g in (chi.ag1, chi.ag2, chi.ag3, chi.ag4)])
    for number, (indices, angles) in enumerate(wanted, start=1):
        of_number = chi.results.chi == number
        order = np.lexsort(indices.T)
        ours = np.lexsort(atoms[of_number].T)
        np.testing.assert_array_equal(atoms[of_number][ours], indices[order])
        turns = chi.results.angles[:, of_number][:, ours] - np.degrees(angles[:, order])
        np.testing.assert_allclose((turns + 180) % 360 - 180, 0, atol=DEGREES_IN_CELL)
    np.testing.assert_array_equal(
        protein.universe.atoms[atoms[:, 0]].resindices, chi.ag4.resindices
    )
    np.testing.assert_array_equal(chi.results.resindices, chi.ag1.resindices)
    assert (np.diff(chi.results.resindices) >= 0).all()


def test_chi_angles_are_janin_s(universe):
    janin = Janin(ends(universe)).run(stop=3).results.angles
    chi = ChiAngles(Janin(ends(universe)).ag1.residues).run(stop=3).results
    for number, wanted in ((1, janin[:, :, 0]), (2, janin[:, :, 1])):
        found = chi.angles[:, chi.chi == number]
        np.testing.assert_allclose(found % 360, wanted, atol=1e-10)


@pytest.mark.parametrize("kind", ["Ramachandran", "Janin"])
def test_plots_are_mdanalysis_s(kind, universe, theirs):
    from matplotlib.figure import Figure

    drawn = []
    for module, one in ((paceline.analysis.dihedrals, universe), (theirs_dihedrals, theirs)):
        analysis = getattr(module, kind)(one.select_atoms("resid 3-30")).run(stop=4)
        ax = Figure().subplots()
        assert analysis.plot(ax, ref=True, color="black") is ax
        drawn.append(ax)
    ours, other = drawn
    assert (ours.get_xlabel(), ours.get_ylabel()) == (other.get_xlabel(), other.get_ylabel())
    assert ours.axis() == other.axis()
    # Both figures have the contours of the reference, and the points.
    assert len(ours.collections) == len(other.collections) == 2
    for one, two in zip(ours.collections, other.collections, strict=True):
        for path, wanted in zip(one.get_paths(), two.get_paths(), strict=True):
            np.testing.assert_array_equal(path.vertices, wanted.vertices)
        np.testing.assert_allclose(one.get_offsets(), two.get_offsets(), atol=DEGREES)


def test_tables_name_each_angle(universe, tmp_path):
    protein = universe.select_atoms("resid 10-12")
    rama = Ramachandran(protein).run(stop=4).results
    frame = rama.to_dataframe()
    assert list(frame)[:4] == ["frame", "time (ps)", "phi GLY 10 (°)", "psi GLY 10 (°)"]
    np.testing.assert_array_equal(frame["psi GLY 12 (°)"], rama.angles[:, 2, 1])
    ax = rama.plot()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("phi (°)", "psi (°)")
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), rama.angles.reshape(-1, 2))
    assert ax.lines[0].get_linestyle() == "None"
    chi = ChiAngles(universe.select_atoms("resid 12-13")).run(stop=4).results
    assert list(chi.to_dataframe())[2:4] == ["chi1 LYS 13 (°)", "chi2 LYS 13 (°)"]
    group = [universe.atoms[[1, 4, 6, 8]], universe.atoms[[4, 6, 8, 9]]]
    dihedral = Dihedral(group).run(stop=4).results
    assert list(dihedral.to_dataframe())[2:] == ["dihedral 1-4-6-8 (°)", "dihedral 4-6-8-9 (°)"]
    twice = Dihedral(group * 6).run(stop=4).results
    assert twice.to_dataframe().shape == (4, 14)
    assert len(twice.plot().lines) == 8
    twice.save(tmp_path / "angles.csv")
    assert "# angles: 12" in (tmp_path / "angles.csv").read_text().splitlines()


@pytest.mark.parametrize("kind", ["Dihedral", "Ramachandran", "Janin"])
def test_mdanalysis_s_classes_are_done_natively(kind, adk, theirs):
    argument = groups if kind == "Dihedral" else ends
    wanted = getattr(theirs_dihedrals, kind)(argument(theirs)).run().results.angles
    with paceline.register() as registration:
        universe = MDAnalysis.Universe(*adk)
        found = getattr(theirs_dihedrals, kind)(argument(universe)).run().results.angles
    assert registration.runs == [(kind, "native")]
    np.testing.assert_allclose((found - wanted + 180) % 360, 180, atol=DEGREES)


def test_parameters_are_mdanalysis_s():
    def parameters(function):
        named = inspect.signature(function).parameters.values()
        return [(p.name, p.default) for p in named if p.kind not in (p.VAR_KEYWORD, p.KEYWORD_ONLY)]

    for kind in (Dihedral, Ramachandran, Janin):
        wanted = getattr(theirs_dihedrals, kind.__name__)
        assert parameters(kind.__init__) == parameters(wanted.__init__)


def test_nan_positions_make_nan_angles(tmp_path):
    frames = np.array([chain(60) + chain(70)] * 3)
    frames[1, 2, 1] = np.nan
    frames[2, :4, 1:] = 0  # four atoms on a line
    for dimensions in CELLS.values():
        universe = written(tmp_path, frames, dimensions)
        found = Dihedral([universe.atoms[:4], universe.atoms[4:]]).run().results.angles
        np.testing.assert_array_equal(
            np.isnan(found), [[False, False], [True, False], [True, False]]
        )
        np.testing.assert_allclose(found[:, 1], 70, atol=1e-4)


def test_an_impossible_cell_is_an_error(tmp_path):
    universe = written(tmp_path, [chain(60)] * 2, [10, 10, 10, 120, 120, 120])
    with pytest.raises(AnalysisError, match=r"frame 0.* make no cell"):
        Dihedral([universe.atoms]).run()


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda u: Dihedral([]), SelectionError, "at least one group"),
        (lambda u: Dihedral(u.atoms[:4]), SelectionError, "a list of groups .* found one group"),
        (lambda u: Dihedral([u.atoms[:4], u.atoms[:3]]), ValueError, "must contain 4 .* has 3"),
        (lambda u: Dihedral([u.atoms[:4], u.copy().atoms[:4]]), UnsupportedError, "same Universe"),
        (
            lambda u: Dihedral([u.select_atoms("index 0-3", updating=True)]),
            UnsupportedError,
            "UpdatingAtomGroup",
        ),
        (lambda u: Ramachandran(u.atoms[:0]), SelectionError, "contains no atoms"),
        (lambda u: Ramachandran(u.residues[:1]), SelectionError, "no residue"),
        (lambda u: Ramachandran(ends(u), c_name="X"), SelectionError, "no residue"),
        (lambda u: Janin(u.select_atoms("resname GLY")), SelectionError, "no residue"),
        (lambda u: Janin(ends(u), select_protein="resid 1"), ValueError, "outside of protein"),
        (lambda u: ChiAngles(u.select_atoms("resname GLY ALA")), SelectionError, "no residue"),
        (lambda u: ChiAngles(u.atoms[:0]), SelectionError, "no residue"),
    ],
)
def test_what_has_no_angles_is_refused(make, error, words, universe):
    with pytest.raises(error, match=words):
        make(universe)


@pytest.mark.parametrize("kind", [Ramachandran, Janin, ChiAngles])
def test_topologies_without_names_are_refused(kind):
    bare = MDAnalysis.Universe.empty(9, trajectory=True)
    with pytest.raises(SelectionError, match=f"{kind.__name__} finds angles by the names"):
        kind(bare.atoms)


def test_atoms_that_are_there_twice_are_refused(adk):
    universe = paceline.Universe(*adk)
    lysines = universe.select_atoms("resname LYS")
    lysines.residues[1].atoms.select_atoms("name HB1").names = "CG"
    with pytest.raises(SelectionError, match=r"LYS.* has several atoms CG"):
        ChiAngles(lysines)
    # One residue has CD twice and another has none: the total is right, but the assignment is not.
    universe = paceline.Universe(*adk)
    lysines = universe.select_atoms("resname LYS")
    lysines.residues[0].atoms.select_atoms("name CE").names = "CD"
    lysines.residues[1].atoms.select_atoms("name CD").names = "CX"
    with pytest.raises(ValueError, match="to two residues"):
        Janin(lysines)
