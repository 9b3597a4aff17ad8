"""Tests of the page "Where tools disagree": the results of both tools, and the right result."""

import warnings
from pathlib import Path

import MDAnalysis
import mdtraj
import numpy as np
import pytest
from helpers.charmm_dcd import shape_matrix, write_dcd
from helpers.timed_files import LAMMPS, VMD, walk, write_dump, write_topology, write_xtc
from helpers.timed_files import write_dcd as write_timed_dcd
from MDAnalysis.analysis import (
    align,
    contacts,
    diffusionmap,
    dihedrals,
    lineardensity,
    pca,
    rdf,
    rms,
)
from MDAnalysis.analysis import density as density_of_mdanalysis
from MDAnalysis.analysis import dielectric as dielectric_of_mdanalysis
from MDAnalysis.analysis import msd as msd_of_mdanalysis
from MDAnalysis.analysis.hydrogenbonds import hbond_analysis
from MDAnalysis.coordinates.DCD import DCDReader
from MDAnalysis.lib.correlations import autocorrelation
from MDAnalysis.lib.distances import calc_angles, minimize_vectors
from MDAnalysis.lib.mdamath import triclinic_vectors
from MDAnalysis.transformations import NoJump
from MDAnalysis.transformations import unwrap as unwrap_of_mdanalysis
from MDAnalysisTests import datafiles
from scipy.spatial.transform import Rotation
from test_hydrogenbonds import Blinking, make

import paceline
import paceline.analysis.contacts
import paceline.analysis.density
import paceline.analysis.rdf
from benchmarks.agreement import __main__ as agreement
from benchmarks.agreement.case import Case, Peer
from benchmarks.right_values import cells
from paceline.analysis.align import AverageStructure
from paceline.analysis.contacts import ContactMap
from paceline.analysis.dielectric import DielectricConstant
from paceline.analysis.diffusionmap import DiffusionMap, DistanceMatrix
from paceline.analysis.dihedrals import Dihedral, Ramachandran
from paceline.analysis.distances import Angles
from paceline.analysis.dssp import DSSP
from paceline.analysis.guess_elements_and_donors import POLAR_ACCEPTORS, POLAR_HYDROGENS
from paceline.analysis.gyration import Gyration
from paceline.analysis.hydrogenbonds import HydrogenBondAnalysis
from paceline.analysis.lineardensity import LinearDensity
from paceline.analysis.msd import EinsteinMSD
from paceline.analysis.order import SCH
from paceline.analysis.pca import PCA
from paceline.analysis.rdf import InterRDF
from paceline.analysis.rms import RMSD, RMSF
from paceline.analysis.sasa import SASA
from paceline.analysis.waterdynamics import SurvivalProbability
from paceline.errors import PacelineWarning, UnsupportedError
from paceline.mdanalysis.reader import Reader
from paceline.transform import nojump, unwrap

PAGE = Path(__file__).parents[1] / "docs" / "where-tools-disagree.md"
#: Which tools are right.
BY_DEFINITION, OURS_AND_THEIRS = "both, by definition", "paceline and MDAnalysis"
#: Conversion from cm³/mol to Å³.
VOLUME = 6.02214076e23 * 1e-24
needs_parallel = pytest.mark.skipif(
    not hasattr(lineardensity.LinearDensity, "get_supported_backends")
    or "multiprocessing" not in lineardensity.LinearDensity.get_supported_backends(),
    reason="this MDAnalysis computes LinearDensity in one process only",
)


def check_row(case, *cells):
    """Check that the page's table has a row for this case, which ends with these cells."""
    (row,) = (line for line in PAGE.read_text().splitlines() if line.startswith(f"| {case}"))
    found = [cell.strip() for cell in row.strip("| ").split("|")][1:]
    assert found == [*cells]


def superposed(mobile, reference, weights):
    """Return the smallest weighted RMSD of two structures, Å, by Kabsch's method."""
    mobile = mobile - np.average(mobile, axis=0, weights=weights)
    reference = reference - np.average(reference, axis=0, weights=weights)
    left, singular, right = np.linalg.svd((mobile * weights[:, None]).T @ reference)
    singular[-1] *= np.sign(np.linalg.det(left @ right))
    squares = (weights[:, None] * (mobile**2 + reference**2)).sum() - 2 * singular.sum()
    return np.sqrt(max(0.0, squares) / weights.sum())


def test_rmsd_by_mass_with_other_masses_in_the_reference(universe, theirs, adk):
    same, other = MDAnalysis.Universe(*adk), MDAnalysis.Universe(*adk)
    rng = np.random.default_rng(1)
    other.atoms.masses += rng.uniform(-0.09, 0.09, len(other.atoms))
    how = {"select": "name CA", "weights": "mass"}
    found, expected = (
        (
            RMSD(universe, reference, **how).run().results.rmsd[:, 2],
            rms.RMSD(theirs, reference, **how).run().results.rmsd[:, 2],
        )
        for reference in (other, same)
    )
    atoms = theirs.select_atoms("name CA")
    frames = [atoms.positions.astype(float) for _ in theirs.trajectory]
    right = [superposed(frame, frames[0], atoms.masses) for frame in frames]
    np.testing.assert_allclose(found[0][1:], right[1:], rtol=0, atol=1e-9)
    np.testing.assert_allclose(*expected, rtol=0, atol=1e-6)
    check_row(
        "RMSD by mass",
        f"{found[1][0]:.4f} Å from a frame to itself",
        f"{found[0][0]:.4f} Å",
        "paceline",
    )


def test_dihedral_angles_in_a_triclinic_cell(adk_in_water):
    ours = Ramachandran(paceline.Universe(*adk_in_water).select_atoms("protein"))
    universe = MDAnalysis.Universe(*adk_in_water)
    theirs = dihedrals.Ramachandran(universe.select_atoms("protein"))
    right = []
    for ts in universe.trajectory:
        images = np.indices((3, 3, 3)).reshape(3, -1).T - 1.0
        images = images @ triclinic_vectors(ts.dimensions)
        atoms = [ours.ag1, ours.ag2, ours.ag3, ours.ag4]
        c, n, ca, other = (ts.positions[group.indices].astype(float) for group in atoms)
        bonds = np.array([n - c, ca - n, other - ca])[:, :, None] + images
        nearest = (bonds**2).sum(axis=-1).argmin(axis=-1)[..., None, None]
        first, middle, last = np.take_along_axis(bonds, nearest, axis=2)[:, :, 0]
        planes = np.cross(first, middle), np.cross(middle, last)
        sin = (np.cross(*planes) * middle).sum(axis=1) / np.linalg.norm(middle, axis=1)
        right.append(np.degrees(np.arctan2(sin, (planes[0] * planes[1]).sum(axis=1))))
    found = [one.run().results.angles[:, :, 0] for one in (theirs, ours)]
    off = [np.abs((angles - right + 180) % 360 - 180).max() for angles in found]
    assert off[1] < 1e-12
    check_row("dihedral angles", *(f"{one:.4f}° off" for one in off), "paceline")


@pytest.mark.filterwarnings("ignore:there is no reference", "ignore:No dimensions set")
def test_contacts_of_positions_that_are_nan(tmp_path):
    universe, path = MDAnalysis.Universe.empty(2, trajectory=True), str(tmp_path / "nan.dcd")
    groups = universe.atoms[:1], universe.atoms[1:]
    found = []
    for cell in (None, [20, 20, 20, 60, 60, 90]):
        universe.atoms.positions = [[0, 0, 0], [1, 1, 1]]
        with MDAnalysis.Writer(path, 2) as writer:
            universe.dimensions = cell
            for x in (1, np.nan):
                universe.atoms.positions = [[0, 0, 0], [1, 1, x]]
                writer.write(universe.atoms)
        universe.atoms.positions = [[0, 0, 0], [1, 1, 1]]
        theirs = MDAnalysis.Universe(universe._topology, path)
        ours = paceline.Universe(universe._topology, path)
        for one, module in ((theirs, contacts), (ours, paceline.analysis.contacts)):
            select = one.atoms[:1], one.atoms[1:]
            q = module.Contacts(one, select, groups, radius=5).run().results.timeseries[:, 1]
            assert q[0] == 1
            found.append(f"{q[1]:.0f}")
    plain, nan, triclinic, again = found
    assert nan == again
    cells = f"{plain} without a cell, {triclinic} in a triclinic one", nan, "paceline"
    check_row("Q of a contact", *cells)


@pytest.mark.filterwarnings("ignore")
def test_bins_of_interrdf_s(tmp_path):
    made, path = MDAnalysis.Universe.empty(2, trajectory=True), str(tmp_path / "two.trr")
    for x, limits, words in (
        (1.5, (2, 5), ["in none", "in the first bin"]),
        (5.0, (0, 5), ["in none", "`IndexError`"]),
    ):
        made.atoms.positions = [[0, 0, 0], [x, 0, 0]]
        made.dimensions = [32, 32, 32, 90, 90, 90]
        with MDAnalysis.Writer(path, 2) as writer:
            writer.write(made.atoms)
        found = []
        for universe, kind in (
            (paceline.Universe(made._topology, path), paceline.analysis.rdf.InterRDF_s),
            (MDAnalysis.Universe(made._topology, path), rdf.InterRDF_s),
        ):
            ags = [(universe.atoms[:1], universe.atoms[1:])]
            try:
                (count,) = kind(universe, ags, nbins=3, range=limits).run().results.count
            except IndexError:
                found.append("`IndexError`")
                continue
            found.append({(0, 0, 0): "in none", (1, 0, 0): "in the first bin"}[tuple(count[0, 0])])
        assert found == words
        case = f"`InterRDF_s` of {x:g} Å"
        check_row(case, found[1], found[0], "paceline")


@pytest.mark.filterwarnings("ignore")
def test_letters_of_dssp_at_breaks_of_the_chain(universe, adk):
    path = str(Path(datafiles.__file__).parent / "data" / "1hvr.pdb")
    protein = MDAnalysis.Universe(path).select_atoms("protein")
    n, c = (protein.select_atoms(f"name {name}").positions for name in ("N", "C"))
    behind = np.flatnonzero(np.linalg.norm(n[1:] - c[:-1], axis=1) > 2.5)
    near = np.unique(np.add.outer(behind, [-1, 0, 1, 2]))
    trajectory = mdtraj.load(path).atom_slice(protein.indices)
    theirs = mdtraj.compute_dssp(trajectory, simplified=False)[0]
    ours = DSSP(paceline.Universe(path), variant="dssp2").run().results.dssp[0]
    different = np.flatnonzero(np.where(theirs == " ", "-", theirs) != ours)
    assert np.isin(different, near).all()
    bends = [(letters[different] == "S").sum() for letters in (theirs, ours)]
    check_row("bends of 1hvr", f"MDTraj {bends[0]}", f"{bends[1]}", "paceline and mkdssp")
    trajectory = mdtraj.load(adk.trajectory, top=adk.topology)
    theirs = mdtraj.compute_dssp(trajectory, simplified=False)
    ours = DSSP(universe, variant="dssp2").run().results.dssp
    n_different = (np.where(theirs == " ", "-", theirs) != ours).sum()
    cells = f"MDTraj {n_different} others", f"{ours.size:,}", "paceline and mkdssp"
    check_row("letters of DSSP whose bond", *cells)


@pytest.fixture
def growing(tmp_path):
    """Write atoms in a cube growing from 40 to 50 Å; return topology, path and edges."""
    inside = np.random.default_rng(3).random((500, 3))
    made = MDAnalysis.Universe.empty(len(inside), trajectory=True)
    made.add_TopologyAttr("masses", np.ones(len(inside)))
    made.add_TopologyAttr("charges", np.zeros(len(inside)))
    sides, path = np.linspace(40, 50, 10), str(tmp_path / "growing.xtc")
    with MDAnalysis.Writer(path, len(inside)) as writer:
        for side in sides:
            made.atoms.positions = inside * side
            made.dimensions = [side, side, side, 90, 90, 90]
            writer.write(made.atoms)
    return made._topology, path, sides


@needs_parallel
@pytest.mark.filterwarnings("ignore")
def test_linear_density_in_a_varying_cell(growing):
    topology, path, sides = growing

    def density(universe, kind=lineardensity.LinearDensity, **where):
        return kind(universe.atoms, binsize=1.0).run(**where).results.x.mass_density

    theirs = MDAnalysis.Universe(topology, path)
    serial, parallel = (
        density(theirs),
        density(theirs, backend="multiprocessing", n_workers=2),
    )
    ours = density(paceline.Universe(topology, path), LinearDensity)
    right = np.mean(500 / sides**3) / VOLUME
    above = [f"{100 * (found.mean() / right - 1):.0f} %" for found in (serial, parallel)]
    check_row(
        "`LinearDensity` in a cell that grows",
        f"serial {above[0]}, parallel {above[1]} too dense",
        "right",
        "paceline",
    )
    assert ours.mean() == pytest.approx(right, rel=1e-6)
    between = 1 - parallel.mean() / serial.mean()
    words = " ".join(PAGE.read_text().split())
    assert f"{above[1]} in a parallel run: {100 * between:.0f} % between them" in words


@pytest.mark.filterwarnings("ignore:frames are read by MDAnalysis")
def test_asphericity_of_three_compounds():
    pairs = [[[0, 5 * k, 0], [2 + k, 5 * k, 0]] for k in range(3)]
    made = MDAnalysis.Universe.empty(6, n_residues=3, atom_resindex=[0, 0, 1, 1, 2, 2])
    made.add_TopologyAttr("masses", np.ones(6))
    made.load_new(np.array(pairs, dtype=np.float32).reshape(1, 6, 3))
    ours = Gyration(made.atoms, compound="residues").run(backend="serial")
    theirs = made.atoms.asphericity(compound="residues")
    found = [", ".join(f"{x:.2f}" for x in one) for one in (theirs, ours.results.asphericity[0])]
    check_row("asphericity of three equal linear molecules", *found, "paceline")
    with pytest.raises(ValueError, match="broadcast"):
        made.atoms[:4].asphericity(compound="residues")


@pytest.mark.filterwarnings("ignore:frames are read by MDAnalysis")
def test_radius_of_gyration_of_mdtraj():
    positions = np.array([[[5, 1, 1], [9, 1, 1]]], dtype=np.float32)
    made = MDAnalysis.Universe.empty(2)
    made.add_TopologyAttr("masses", [3.0, 1.0])
    made.load_new(positions)
    ours = Gyration(made.atoms).run(backend="serial").results.rg[0]
    topology = mdtraj.Topology()
    residue = topology.add_residue("X", topology.add_chain())
    for name in "AB":
        topology.add_atom(name, mdtraj.element.carbon, residue)
    trajectory = mdtraj.Trajectory(positions / 10, topology)
    mdtraj_s = 10 * mdtraj.compute_rg(trajectory, masses=np.array([3.0, 1.0]))[0]
    check_row(
        "`md.compute_rg` with masses",
        f"{made.atoms.radius_of_gyration():.2f} Å, MDTraj {mdtraj_s:.2f} Å",
        f"{ours:.2f} Å",
        "paceline and MDAnalysis",
    )


def glycines(positions):
    """Return two glycines with PDB names for MDTraj; the second is the last of its chain."""
    topology = mdtraj.Topology()
    chain = topology.add_chain()
    names = ("N", "H", "CA", "HA2", "HA3", "C", "O", "OXT")
    for n_atoms in (7, 8):
        residue = topology.add_residue("GLY", chain)
        for name in names[:n_atoms]:
            topology.add_atom(name, mdtraj.element.get_by_symbol(name[0]), residue)
    return mdtraj.Trajectory(np.array([positions], dtype=np.float32) / 10, topology)


@pytest.mark.filterwarnings("ignore:frames are read by MDAnalysis", "ignore:Reader has no dt")
def test_side_chains_at_the_ends_of_a_chain(tmp_path):
    # HA3 of the first is at the origin, OXT of the second 3 Å away; all other atoms are far apart.
    positions = np.zeros((15, 3))
    positions[:, 0] = [-14, -15, -12, -11, 0, -20, -21, 30, 31, 32, 34, 35, 40, 41, 3]
    theirs = glycines(positions)
    path = tmp_path / "glycines.pdb"
    theirs.save_pdb(path)
    distances, _ = mdtraj.compute_contacts(theirs, [(0, 1)], scheme="sidechain", periodic=False)
    ours = ContactMap(paceline.Universe(str(path)), 4.5, scheme="sidechain").run(backend="serial")
    n_theirs, n_ours = int(10 * distances[0, 0] <= 4.5), ours.results.counts[0, 1]
    check_row("contacts of side chains", f"–, MDTraj {n_theirs}", f"{n_ours}", "paceline")
    closest = ContactMap(paceline.Universe(str(path)), 4.5, scheme="closest").run(backend="serial")
    assert closest.results.counts[0, 1] == 1


def frames_of(positions, cells=None, elements="C"):
    """Return frames (Å) of separate atoms for MDTraj, and as a Universe in memory."""
    positions = np.asarray(positions, dtype=np.float32)
    topology = mdtraj.Topology()
    for _ in range(positions.shape[1]):
        residue = topology.add_residue("X", topology.add_chain())
        topology.add_atom("C", mdtraj.element.get_by_symbol(elements), residue)
    frames = mdtraj.Trajectory(positions / 10, topology)
    made = MDAnalysis.Universe.empty(positions.shape[1])
    made.add_TopologyAttr("elements", [elements] * positions.shape[1])
    made.add_TopologyAttr("masses", np.ones(positions.shape[1]))
    if cells is not None:
        cells = np.asarray(cells, dtype=float)
        frames.unitcell_lengths, frames.unitcell_angles = cells[:, :3] / 10, cells[:, 3:]
    made.load_new(positions, dimensions=cells)
    return frames, made


def in_file(made, tmp_path, suffix="trr"):
    """Write the same frames to a file that paceline reads."""
    path = str(tmp_path / f"made.{suffix}")
    with MDAnalysis.Writer(path, len(made.atoms)) as writer:
        for _ in made.trajectory:
            writer.write(made.atoms)
    return paceline.Universe(made._topology, path)


def test_rmsd_without_superposition(tmp_path):
    first = np.random.default_rng(5).normal(0, 5, (20, 3))
    _, made = frames_of([first, first + np.array([3, 0, 0])])
    found = RMSD(in_file(made, tmp_path), superposition=False).run().results.rmsd[1, 2]
    theirs = rms.RMSD(made, superposition=False).run().results.rmsd[1, 2]
    check_row("`RMSD(superposition=False)`", f"{theirs:.2f} Å", f"{found:.2f} Å", "paceline")


def test_rmsf_of_a_molecule_that_turns(tmp_path):
    first = np.random.default_rng(6).normal(0, 5, (20, 3))
    turns = Rotation.from_rotvec(np.radians(10) * np.outer(np.arange(9), [0, 0, 1])).as_matrix()
    theirs, made = frames_of(first @ turns)
    found = RMSF(in_file(made, tmp_path).atoms, align=True).run().results.rmsf.max()
    other = 10 * mdtraj.rmsf(theirs, None).max()
    assert mdtraj.rmsf(theirs, theirs, 0).max() < 1e-5
    check_row(
        "RMSF of a molecule that turns",
        f"–, MDTraj {other:.2f} Å",
        f"{found:.2f} Å",
        "both, by definition",
    )


def test_angles_near_180_degrees(tmp_path):
    angle = np.radians(179.99)
    ends = 10 * np.array([[1, 0, 0], [0, 0, 0], [np.cos(angle), np.sin(angle), 0]])
    theirs, made = frames_of([ends])
    atoms = in_file(made, tmp_path).atoms
    found = Angles(atoms[:1], atoms[1:2], atoms[2:]).run().results.angles[0, 0]
    other = np.degrees(mdtraj.compute_angles(theirs, [[0, 1, 2]], periodic=False)[0, 0])
    mine = np.degrees(calc_angles(*made.atoms.positions))
    check_row(
        "an angle of 179.99°",
        f"{mine:.2f}°, MDTraj {other:.2f}°",
        f"{found:.2f}°",
        "paceline and MDAnalysis",
    )


def test_dihedral_angles_of_three_atoms_on_a_line(tmp_path):
    theirs, made = frames_of([[[0, 0, 0], [2, 0, 0], [5, 0, 0], [5, 1, 1]]])
    found = Dihedral([in_file(made, tmp_path).atoms]).run().results.angles[0, 0]
    other = np.degrees(mdtraj.compute_dihedrals(theirs, [[0, 1, 2, 3]], periodic=False)[0, 0])
    mine = dihedrals.Dihedral([made.atoms]).run().results.angles[0, 0]
    check_row(
        "dihedral angle, three of its atoms",
        f"{mine:.0f}, MDTraj {other:.0f}°",
        f"{found:.0f}",
        "paceline and MDAnalysis",
    )


def test_asphericity_of_mdtraj(tmp_path):
    theirs, made = frames_of([[[0, 0, 0], [2, 0, 0]]])
    found = Gyration(in_file(made, tmp_path).atoms).run().results.asphericity[0]
    other = mdtraj.asphericity(theirs)[0]
    assert mdtraj.relative_shape_antisotropy(theirs)[0] == pytest.approx(1)
    mine = made.atoms.asphericity()
    check_row(
        "asphericity of a linear molecule of 2 Å",
        f"{mine:.2f}, MDTraj {other:.2f} nm²",
        f"{found:.2f}",
        "both, by definition",
    )


def test_surface_of_atoms_at_a_border(tmp_path):
    cell = [30, 30, 30, 90, 90, 90]
    theirs, made = frames_of([[[1, 15, 15], [29, 15, 15]]], [cell])
    found = SASA(in_file(made, tmp_path).atoms, n_points=20_000).run().results.total[0]
    other = 100 * mdtraj.shrake_rupley(theirs).sum()
    # The spheres are 2 Å apart across the boundary: each loses a cap of the height R - 1.
    radius = 1.7 + 1.4
    right = 2 * (4 * np.pi * radius**2 - 2 * np.pi * radius * (radius - 1))
    assert found == pytest.approx(right, rel=1e-3)
    check_row("surface of two atoms", f"–, MDTraj {other:.0f} Å²", f"{found:.0f} Å²", "paceline")


def test_rdf_of_atoms_with_themselves(tmp_path):
    cells = [[30, 30, 30, 90, 90, 90]]
    theirs, made = frames_of([[[5, 5, 5], [10, 5, 5]]], cells)
    how = {"nbins": 1, "range": (4.0, 6.0)}
    universe = in_file(made, tmp_path)
    found = InterRDF(universe.atoms, universe.atoms, **how).run().results.rdf[0]
    mine = rdf.InterRDF(made.atoms, made.atoms, **how).run().results.rdf[0]
    _, (other,) = mdtraj.compute_rdf(theirs, [[0, 1]], (0.4, 0.6), n_bins=1)
    check_row(
        "RDF of two atoms", f"{mine:.1f}, MDTraj {other:.1f}", f"{found:.1f}", "both, by definition"
    )


def test_rdf_of_a_group_that_changes(tmp_path):
    # One atom is above the plane z = 10 Å, and later three; each has one neighbour below it.
    above = np.array([[5.0, 5, 11], [17, 5, 5], [29, 5, 5]])
    below = np.column_stack([above[:, 0], [8.0] * 3, [8.0] * 3])
    frames = np.array([np.concatenate([above, below])] * 2)
    frames[1, :3, 2] = 11
    _, made = frames_of(frames, [[40, 40, 40, 90, 90, 90]] * 2)
    found = []
    for module, universe in (rdf, made), (paceline.analysis.rdf, in_file(made, tmp_path)):
        group = universe.select_atoms("prop z > 10", updating=True)
        run = module.InterRDF(group, universe.atoms[3:], nbins=1, range=(3.0, 5.0)).run()
        assert run.results.count.tolist() == [4]
        shell = 4 / 3 * np.pi * (5.0**3 - 3.0**3)
        found.append(f"{run.results.rdf[0] * shell * 3 / 40**3:.1f}")
    check_row("neighbours of an atom by `InterRDF` of an updating group", *found, "paceline")


@pytest.mark.filterwarnings("ignore")
def test_sites_of_a_group_that_changes(tmp_path):
    # One atom is above the plane z = 10 Å, and then another; each is 3 Å from the third.
    frames = np.array([[[5.0, 5, 11], [5, 15, 5], [5, 5, 8]], [[5, 15, 5], [5, 5, 11], [5, 5, 8]]])
    _, made = frames_of(frames, [[40, 40, 40, 90, 90, 90]] * 2)
    ours, how = in_file(made, tmp_path), {"nbins": 1, "range": (0.0, 5.0)}
    above = [one.select_atoms("prop z > 10", updating=True) for one in (made, ours)]
    found = rdf.InterRDF_s(made, [(above[0], made.atoms[2:])], **how).run().results
    ascribed, count = found.indices[0][0], found.count[0].sum()
    assert len(ascribed) == 1
    theirs = f"the {['first', 'second'][ascribed[0]]} {'twice' if count == 2 else count}"
    with pytest.raises(UnsupportedError, match="use InterRDF, which finds its atoms in each frame"):
        paceline.analysis.rdf.InterRDF_s(ours, [(above[1], ours.atoms[2:])], **how)
    check_row("`InterRDF_s` of an updating group", theirs, "refused", "paceline")


def test_rdf_in_a_cell_that_varies(tmp_path):
    # One atom is uniformly distributed around another, as in an ideal gas, so that g is 1.
    inside = np.random.default_rng(7).random((2, 20_001, 3))
    inside[:, 0] = 0.5
    sides = np.array([20.0, 40.0])
    cells = [[side] * 3 + [90] * 3 for side in sides]
    theirs, made = frames_of(inside * sides[:, None, None], cells)
    universe, how = in_file(made, tmp_path), {"nbins": 1, "range": (2.0, 10.0)}
    one, others = (lambda u: u.atoms[:1]), (lambda u: u.atoms[1:])
    found = InterRDF(one(universe), others(universe), **how).run().results.rdf[0]
    mine = rdf.InterRDF(one(made), others(made), **how).run().results.rdf[0]
    pairs = np.column_stack([np.zeros(20_000, dtype=int), np.arange(1, 20_001)])
    _, (other,) = mdtraj.compute_rdf(theirs, pairs, (0.2, 1.0), n_bins=1)
    check_row("RDF of an ideal gas", f"{mine:.1f}, MDTraj {other:.1f}", f"{found:.1f}", "MDTraj")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("case", "cell", "binsize"),
    [
        ("`LinearDensity` in a hexagonal cell", (40, 40, 50, 90, 90, 60), 0.25),
        ("`LinearDensity` with bins of 7 Å", (33, 40, 49, 90, 90, 90), 7.0),
    ],
)
def test_linear_density_in_other_cells(case, cell, binsize, tmp_path):
    vectors = MDAnalysis.lib.mdamath.triclinic_vectors(cell)
    made = MDAnalysis.Universe.empty(50_000, trajectory=True)
    made.add_TopologyAttr("masses", np.ones(50_000))
    made.add_TopologyAttr("charges", np.zeros(50_000))
    made.atoms.positions = np.random.default_rng(4).random((50_000, 3)) @ vectors
    made.dimensions = cell
    path = str(tmp_path / "even.xtc")
    made.atoms.write(path)
    right = 50_000 / abs(np.linalg.det(vectors)) / VOLUME
    found = []
    for kind, universe in (
        (lineardensity.LinearDensity, MDAnalysis.Universe),
        (LinearDensity, paceline.Universe),
    ):
        results = kind(universe(made._topology, path).atoms, binsize=binsize).run().results
        hexagonal = cell[5] == 60
        axis, edge = (results.z, cell[2]) if hexagonal else (results.x, cell[0])
        # Only whole bins are compared; the first and the last one may share an atom with the
        # outside.
        found.append(axis.mass_density[1 : int(edge // binsize) - 1].mean() / right)
    check_row(case, f"{100 * (1 - found[0]):.0f} % too thin", "right", "paceline")
    assert found[1] == pytest.approx(1, rel=0.01)


@pytest.mark.filterwarnings("ignore:DCDReader:DeprecationWarning")
def test_cells_of_charmms_own_dcd_files(tmp_path):
    cell = shape_matrix((4.159,) * 3, (105.0,) * 3)
    path = write_dcd(tmp_path / "charmm.dcd", 36, [cell])
    theirs, ours = (
        f"{length:.3f} Å and {angle:.2f}°"
        for length, angle in (one(str(path)).ts.dimensions[[0, 3]] for one in (DCDReader, Reader))
    )
    check_row("CHARMM's own DCD, a cell of 4.159 Å and 105°", theirs, ours, "paceline")


@pytest.mark.filterwarnings("ignore:DCDReader:DeprecationWarning")
def test_arrays_of_dcd_frames(universe, theirs):
    found = []
    for one in (theirs, universe):
        kept = [ts.positions for ts in one.trajectory]
        n_arrays = len({array.ctypes.data for array in kept})
        found.append(f"{n_arrays} arrays of {len(kept)} frames")
    check_row("positions kept", *found, "they agree, until version 3")


def test_files_that_average_structure_may_not_replace(universe, theirs, tmp_path):
    check_row("`AverageStructure(force=False)`", "replaced at once", "refused", "paceline")
    kept, lost = tmp_path / "kept.pdb", tmp_path / "lost.pdb"
    kept.write_text("mine")
    lost.write_text("mine")
    with pytest.raises(FileExistsError):
        AverageStructure(universe, filename=kept, force=False)
    align.AverageStructure(theirs, filename=str(lost), force=False)._writer.close()
    assert kept.read_text() == "mine"
    assert "mine" not in lost.read_text()


def test_projections_of_frames_that_turn(theirs, tmp_path):
    path, n_frames = tmp_path / "turning.dcd", len(theirs.trajectory)
    atoms = theirs.select_atoms("name CA")
    turns = Rotation.from_rotvec(
        np.radians(5) * np.outer(np.arange(n_frames), [0, 0, 1])
    ).as_matrix()
    with MDAnalysis.Writer(str(path), len(atoms)) as writer:
        turning = MDAnalysis.Merge(atoms)
        for turn, _ in zip(turns, theirs.trajectory, strict=True):
            turning.atoms.positions = atoms.positions @ turn.T
            writer.write(turning.atoms)
    topology = turning._topology
    expected = pca.PCA(MDAnalysis.Universe(topology, str(path)), align=True).run()
    space = expected.transform(expected._u.atoms, 1)
    found = PCA(paceline.Universe(topology, str(path)), align=True, n_projected=1).run()
    variance = found.results.projection.var(ddof=1)
    np.testing.assert_allclose(variance, found.results.variance[0], rtol=1e-9)
    np.testing.assert_allclose(variance, expected.results.variance[0], rtol=1e-4)
    ratios = [one.var(ddof=1) / variance for one in (space, found.results.projection)]
    check_row("projection after", *(f"{one:.2f}" for one in ratios), "paceline")


def test_lifetimes_of_hydrogen_bonds(tmp_path):
    made = Blinking(tmp_path, [[1, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0]])
    kinds = HydrogenBondAnalysis, hbond_analysis.HydrogenBondAnalysis
    ours, theirs = (
        kind(made.universe, hydrogens_sel="name H", acceptors_sel="name O").run() for kind in kinds
    )
    kept = ours.lifetime(tau_max=1)[1, 1]
    right = ours.time_correlation(tau_max=1).correlation[1]
    found = f"{right:.2f} (`time_correlation`), {kept:.2f} (`lifetime`)"
    averaged = f"{theirs.lifetime(tau_max=1)[1, 1]:.2f} (`lifetime`)"
    check_row("correlation of hydrogen bonds after one frame", averaged, found, "paceline")


@pytest.mark.filterwarnings("ignore")
def test_hydrogens_of_ambers_force_fields():
    files = datafiles.PRM7, datafiles.NCDFtruncoct
    theirs = hbond_analysis.HydrogenBondAnalysis(MDAnalysis.Universe(*files))
    theirs.hydrogens_sel = theirs.guess_hydrogens("protein")
    theirs.acceptors_sel = theirs.guess_acceptors("protein")
    protein = paceline.Universe(*files).select_atoms("protein")
    with pytest.warns(
        PacelineWarning, match="14 of 29 hydrogens .* such as H1 of SER 1, .* 0.29 e"
    ):
        guessed = HydrogenBondAnalysis(protein)
    found = HydrogenBondAnalysis(protein, hydrogens_sel=POLAR_HYDROGENS)
    bonds = [len(one.run().results.hbonds) for one in (theirs, guessed, found)]
    check_row(
        "hydrogen bonds of an Amber protein",
        f"{bonds[0]}",
        f"{bonds[1]} and a warning; {bonds[2]} by names and bonds",
        "paceline",
    )


@pytest.mark.filterwarnings("ignore")
def test_acceptors_of_oplss_force_fields():
    files = datafiles.TPR, datafiles.XTC
    theirs = hbond_analysis.HydrogenBondAnalysis(MDAnalysis.Universe(*files))
    theirs.hydrogens_sel = theirs.guess_hydrogens("protein")
    theirs.acceptors_sel = theirs.guess_acceptors("protein")
    protein = paceline.Universe(*files).select_atoms("protein")
    words = r"225 of 320 oxygens, such as O of MET 1, .* -0.50 e.* acceptors_sel='name O\* N\*"
    with pytest.warns(PacelineWarning, match=words):
        guessed = HydrogenBondAnalysis(protein)
    found = HydrogenBondAnalysis(protein, acceptors_sel=POLAR_ACCEPTORS)
    bonds = [len(one.run().results.hbonds) for one in (theirs, guessed, found)]
    check_row(
        "hydrogen bonds of an OPLS protein",
        f"{bonds[0]}",
        f"{bonds[1]} and a warning; {bonds[2]} by names and bonds",
        "paceline",
    )
    gromacs = HydrogenBondAnalysis(protein, acceptors_sel=POLAR_ACCEPTORS, criterion="gromacs")
    assert gromacs.run(stop=4).results.counts.tolist() == [
        165,
        160,
        159,
        164,
    ]  # by gmx hbond 2022.5


def test_origins_of_mrc_files(tmp_path):
    grid = {"delta": 4.0, "gridcenter": [41.3, 40.2, 39.9], "xdim": 30, "ydim": 22, "zdim": 17}
    origins = []
    for module, name in ((density_of_mdanalysis, "theirs"), (paceline.analysis.density, "ours")):
        universe = (MDAnalysis if name == "theirs" else paceline).Universe(
            datafiles.TPR, datafiles.XTC
        )
        water = universe.select_atoms("name OW")
        results = module.DensityAnalysis(water, **grid).run(stop=1).results
        path = str(tmp_path / f"{name}.mrc")
        if name == "theirs":
            results.density.export(path)
        else:
            results.save(path)
        origins.append(density_of_mdanalysis.Density(path).origin[0])
        assert results.density.origin[0] == pytest.approx(27.3)
    check_row(
        "MRC file of a density whose first voxel",
        *(f"{origin:.1f} Å" for origin in origins),
        "paceline",
    )


@pytest.mark.filterwarnings("ignore")
def test_hydrogens_that_were_made_heavier():
    files, found = (datafiles.TPR, datafiles.XTC), []
    for kind, analysis, made in (
        (MDAnalysis.Universe, hbond_analysis.HydrogenBondAnalysis, True),
        (paceline.Universe, HydrogenBondAnalysis, True),
        (MDAnalysis.Universe, hbond_analysis.HydrogenBondAnalysis, False),
    ):
        universe = kind(*files)
        masses = universe.atoms.masses
        for pair in universe.select_atoms("protein").bonds.indices if made else ():
            hydrogen, heavy = sorted(pair, key=masses.__getitem__)
            if masses[hydrogen] < 1.1:
                masses[[hydrogen, heavy]] += 2.016, -2.016
        universe.atoms.masses = masses
        if kind is MDAnalysis.Universe:
            universe = cells.near_protein(universe)
        bonds = analysis(universe, between=["protein", "resname SOL"]).run(stop=1)
        found.append(len(bonds.results.hbonds))
    theirs, ours, right = found
    assert ours == right
    check_row("hydrogen bonds of a protein to water, its", f"{theirs}", f"{ours}", "paceline")


def test_counts_of_repeated_frames():
    options = {"hydrogens_sel": "protein and name H", "acceptors_sel": "protein and name O"}
    files = datafiles.TPR, datafiles.XTC
    theirs = hbond_analysis.HydrogenBondAnalysis(MDAnalysis.Universe(*files), **options)
    ours = HydrogenBondAnalysis(paceline.Universe(*files), **options)
    (of_theirs, again), (found, same) = (
        one.run(frames=[2, 2]).count_by_time() for one in (theirs, ours)
    )
    assert (again, same) == (of_theirs, found)
    assert found == ours.run(start=2, stop=3).count_by_time()[0]
    check_row("hydrogen bonds in a frame", f"{of_theirs}", f"{found}", "paceline")


def crossing(path, edges):
    """Write an atom that moves along x by 1 Å per frame, in cubes with these edges; read by both
    tools.
    """
    made, x = MDAnalysis.Universe.empty(1, trajectory=True), 0.5
    with MDAnalysis.Writer(str(path), 1) as writer:
        for edge in edges:
            made.atoms.positions = [[x % edge, 1, 1]]
            made.dimensions = [edge, edge, edge, 90, 90, 90]
            writer.write(made.atoms)
            x = x % edge + 1
    theirs = MDAnalysis.Universe(made._topology, str(path))
    theirs.trajectory.add_transformations(NoJump())
    return theirs, paceline.Universe(made._topology, str(path))


def test_displacements_where_the_cell_varies(tmp_path):
    theirs, ours = crossing(tmp_path / "walk.dcd", [10 + k % 2 for k in range(101)])
    found = [
        one.run().results.timeseries[1]
        for one in (
            msd_of_mdanalysis.EinsteinMSD(theirs, fft=False),
            EinsteinMSD(ours, unwrap="tor"),
            EinsteinMSD(ours, unwrap="lattice"),
        )
    ]
    texts = [f"{value:.1f} Å²" for value in found]
    check_row(
        "MSD after one frame",
        texts[0],
        f'{texts[1]} (`unwrap="tor"`), {texts[2]} (`unwrap="lattice"`)',
        'paceline, by "tor"',
    )
    assert found[1] == pytest.approx(1)
    assert found[0] == pytest.approx(found[2])


def test_displacements_in_a_rhombic_dodecahedron():
    files = datafiles.TPR, datafiles.XTC
    theirs, ours = MDAnalysis.Universe(*files), paceline.Universe(*files)
    theirs.trajectory.add_transformations(NoJump())
    found = [
        one.run().results.timeseries[1]
        for one in (
            msd_of_mdanalysis.EinsteinMSD(theirs, "name OW", fft=False),
            EinsteinMSD(ours, "name OW", unwrap="tor"),
            EinsteinMSD(ours, "name OW", unwrap="lattice"),
        )
    ]
    texts = [f"{value:.1f} Å²" for value in found]
    check_row(
        "MSD of water after 100 ps",
        texts[0],
        f'{texts[1]} (`unwrap="tor"`), {texts[2]} (`unwrap="lattice"`)',
        'paceline, by "tor", and GROMACS',
    )
    assert found[1] == pytest.approx(204.458, abs=0.002)  # by gmx msd 2022.5


def along_x(block):
    return block.positions[:, 0, 0]


def test_nojump_in_some_frames(tmp_path):
    theirs, ours = crossing(tmp_path / "walk.dcd", [10] * 101)
    with pytest.warns(UserWarning, match="jumping between frames with a step of more than 1"):
        found = [ts.positions[0, 0] for ts in theirs.trajectory[::10]]
    series = paceline.TimeSeries(along_x, ours.atoms).run(step=10, transforms=[nojump()])
    np.testing.assert_allclose(found, 0.5)
    np.testing.assert_allclose(series.results.timeseries, 0.5 + 10 * np.arange(11), atol=1e-4)
    check_row(
        "`NoJump` in every tenth frame",
        "stays, and a warning",
        "crosses it ten times in 100 frames",
        "paceline",
    )


def positions_of_all(block):
    return block.positions


def test_virtual_sites_of_water(tmp_path):
    path = str(tmp_path / "wrapped.trr")
    theirs = MDAnalysis.Universe(datafiles.TPR, datafiles.XTC)
    with MDAnalysis.Writer(path, len(theirs.atoms)) as writer:
        for _ in theirs.trajectory:
            theirs.atoms.wrap()
            writer.write(theirs.atoms)
    theirs, ours = (kind(datafiles.TPR, path) for kind in (MDAnalysis.Universe, paceline.Universe))
    water = theirs.select_atoms("resname SOL")[:8000]
    theirs.trajectory.add_transformations(unwrap_of_mdanalysis(water))
    sites = water.positions.reshape(-1, 4, 3)
    sites = sites - sites[:, :1]
    assert np.linalg.norm(sites[:, 1:3], axis=2).max() < 1
    water = ours.select_atoms("resname SOL")
    series = paceline.TimeSeries(positions_of_all, water).run(transforms=[unwrap()])
    found = series.results.timeseries.reshape(10, -1, 4, 3).astype(float)
    found = found - found[:, :, :1]
    lengths = np.linalg.norm(found, axis=3)
    check_row(
        "farthest MW from its oxygen",
        f"{np.linalg.norm(sites[:, 3], axis=1).max():.1f} Å",
        f"{lengths[:, :, 3].max():.1f} Å",
        "paceline",
    )
    bisector = found[:, :, 1] + found[:, :, 2]
    bisector /= np.linalg.norm(bisector, axis=2)[:, :, np.newaxis]
    np.testing.assert_allclose(found[:, :, 3], 0.15 * bisector, atol=0.02)
    dipoles = (found * water.charges.reshape(-1, 4, 1)).sum(axis=2)
    assert np.linalg.norm(dipoles, axis=2).mean() * 4.80320 == pytest.approx(2.18, abs=0.005)
    dielectric = DielectricConstant(water).run().results
    np.testing.assert_allclose(dielectric.moments, dipoles.sum(axis=1), atol=1e-3)
    water = theirs.select_atoms("resname SOL")
    with pytest.raises(NotImplementedError, match="free charges"):
        dielectric_of_mdanalysis.DielectricConstant(water).run()
    check_row(
        "dielectric constant of that water",
        "refused, as charged",
        f"{dielectric.eps_mean:.1f}",
        "paceline",
    )


def test_survival_of_residues_with_one_number(tmp_path):
    turns = np.array([[1, 0], [0, 1], [1, 0], [0, 1]])
    made = MDAnalysis.Universe.empty(2, 2, atom_resindex=[0, 1])
    made.add_TopologyAttr("resids", [1, 1])
    made.load_new(np.where(turns[:, :, None], 1.0, -1.0) * np.ones(3))
    universe, text = in_file(made, tmp_path), "prop z > 0"
    found = SurvivalProbability(universe, text).run(1, residues=True).sp_timeseries[1]
    # Sets of atoms that the kit finds.
    sets = [set(made.select_atoms(text).residues.resids) for _ in made.trajectory]
    theirs = autocorrelation(sets, 1)[1][1]
    kit = f"{theirs:g} (the kit waterdynamics)"
    check_row("survival of residues of the same number", kit, f"{found:g}", "paceline")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("distance", "degrees"), [(2.9, 29), (3.4, 0)])
def test_criteria_of_hydrogen_bonds(distance, degrees, tmp_path):
    at = distance * np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees)), 0])
    positions = np.array([[0, 0, 0], [1, 0, 0], at])
    made = make(positions, names=["N", "H", "O"], bonds=[(0, 1)])
    path = str(tmp_path / "one.xtc")
    made.atoms.write(path)
    options = {"hydrogens_sel": "name H", "acceptors_sel": "name O"}
    kinds = {"MDAnalysis": hbond_analysis.HydrogenBondAnalysis(made, **options).run()}
    ours = paceline.Universe(made._topology, path)
    for name in ("mdanalysis", "baker_hubbard", "wernet_nilsson"):
        kinds[name] = HydrogenBondAnalysis(ours, **options, criterion=name).run()
    found = {name: len(one.results.hbonds) for name, one in kinds.items()}
    topology = mdtraj.Topology()
    residue = topology.add_residue("ALA", topology.add_chain())
    for name in "NHO":
        topology.add_atom(name, mdtraj.element.get_by_symbol(name), residue)
    topology.add_bond(topology.atom(0), topology.atom(1))
    traj = mdtraj.Trajectory(positions[None] / 10, topology)
    theirs = {
        "baker_hubbard": len(mdtraj.baker_hubbard(traj)),
        "wernet_nilsson": len(mdtraj.wernet_nilsson(traj)[0]),
    }
    assert found == {"MDAnalysis": found["mdanalysis"], **found, **theirs}
    words = ["bond" if found["MDAnalysis"] else "no bond"]
    words += [f"`{name}` {'bond' if n else 'no bond'}" for name, n in theirs.items()]
    check_row(
        f"hydrogen at 1 Å, acceptor at {distance} Å and {degrees}° from it",
        "; ".join(words),
        "each of these, by `criterion`",
        "a matter of definition",
    )


def test_diffusion_maps(universe, theirs):
    options = {"select": "name CA", "epsilon": 3}
    their_map = diffusionmap.DiffusionMap(theirs, **options).run()
    our_map = DiffusionMap(universe, **options).run()
    distances = DistanceMatrix(universe, select="name CA").run().results.dist_matrix
    diffusion = np.exp(-(distances**2) / 3)
    diffusion /= diffusion.sum(axis=1, keepdims=True)
    errors = []
    for one in (their_map, our_map):
        vector = one.transform(1, 0)[:, 0].real
        vector /= np.linalg.norm(vector)
        errors.append(np.linalg.norm(diffusion @ vector - one.eigenvalues[1].real * vector))
    np.testing.assert_allclose(their_map.eigenvalues.real, our_map.eigenvalues, atol=1e-9)
    assert errors[1] < 1e-12
    check_row("`DiffusionMap.transform`", *(f"{error:.2f}" for error in errors), "paceline")


def test_distances_from_frames_that_are_nan():
    frames = np.random.default_rng(2).normal(size=(3, 5, 3)).astype(np.float32)
    frames[1, 2] = np.nan
    made = MDAnalysis.Universe.empty(5, trajectory=True).load_new(frames)
    found = [
        cls(made).run().results.dist_matrix for cls in (diffusionmap.DistanceMatrix, DistanceMatrix)
    ]
    assert (found[0][1] == 0).all()
    assert np.isnan(found[1][1]).all()
    assert found[1][0, 2] == pytest.approx(found[0][0, 2])
    check_row(
        "`DistanceMatrix` of a frame", f"{found[0][0, 1]:.2f} Å", f"{found[1][0, 1]}", "paceline"
    )


class TestComparison:
    """Tests of the report of `make compare` on differences, for given numbers."""

    @pytest.fixture
    def compared(self, tmp_path):
        """Compare a row of zeros with these numbers."""

        def compare(numbers, **options):
            peers = {"MDAnalysis": Peer(numbers, **options)}
            case = Case("an analysis", "Å", lambda system: np.zeros(3), peers, systems=("adk",))
            (row,), missing = agreement.compare([case], tmp_path)
            assert missing == {}
            return row

        return compare

    @pytest.mark.parametrize(
        ("value", "verdict"),
        [
            (0.5, "as stated"),
            (2.0, "more than the stated 1"),
            (np.nan, "more than the stated 1"),
            (0.01, "less than the stated 0.1: has the cause gone?"),
        ],
    )
    def test_differences_are_judged(self, value, verdict, compared):
        row = compared(lambda system: np.array([0, -value, 0]), at_most=1, at_least=0.1)
        assert row.verdict == verdict

    def test_other_shapes_and_errors_are_failures(self, compared):
        verdict = compared(lambda system: np.zeros(4), at_most=1).verdict
        assert verdict.startswith("failed in adk: ValueError: expected an array of shape (3,)")

    def test_angles_and_letters(self):
        assert agreement.difference([179.0, np.nan], [-179.0, np.nan], period=360) == 2
        assert agreement.difference([1.0], [np.nan]) == np.inf
        assert agreement.difference(["H", "-"], ["H", "E"]) == 50

    def test_programs_that_are_missing_are_named(self, tmp_path, monkeypatch):
        agreement.version.cache_clear()
        monkeypatch.setenv("PACELINE_GMX", "no-gmx")
        peers = {"GROMACS": Peer(lambda system: 1 / 0, 0)}
        case = Case("an analysis", "Å", lambda system: 1 / 0, peers)
        rows, missing = agreement.compare([case], tmp_path)
        assert rows == []
        assert missing == {"GROMACS": "no program no-gmx, which PACELINE_GMX names"}

    def test_an_analysis_in_all_systems(self, tmp_path, capsys, monkeypatch):
        path = tmp_path / "shape.tsv"
        monkeypatch.setattr("sys.argv", ["", "shape parameter", "--tsv", str(path)])
        with warnings.catch_warnings():
            assert agreement.main() == 0
        assert "all differences are as stated" in capsys.readouterr().out
        _, head, *rows = [line.split("\t") for line in path.read_text().splitlines()]
        assert head == list(agreement.TSV)
        assert {row[3] for row in rows} == set(agreement.RECIPES)


def test_hydrogens_that_gmx_order_rebuilds(membrane_lipids):
    """Check S_CD = 2/3 S_xx + 1/3 S_yy of its manual, with axes along and across the neighbouring
    carbons.
    """
    theirs, ours, _ = membrane_lipids
    found = SCH(ours.select_atoms("resname POPE and name C2? C21?")).run().results
    for label, name in (("a carbon of a chain, C24", "C24"), ("a double bond's, C210", "C210")):
        place = found.labels.tolist().index(name)
        before, here, after = (
            theirs.select_atoms(f"resname POPE and name {one}")
            for one in found.labels[place - 1 : place + 2]
        )
        frames = []
        for ts in theirs.trajectory:
            cell = ts.dimensions.astype(float)
            middle = here.positions.astype(float)
            back, forth = (
                minimize_vectors(one.positions - middle, cell) for one in (before, after)
            )
            z = forth - back
            x = np.cross(back, forth)
            axes = [x, np.cross(z, x)]
            s = [1.5 * one[:, 2] ** 2 / (one**2).sum(axis=1) - 0.5 for one in axes]
            frames.append((2 * s[0] + s[1]).mean() / 3)
        given = f"–, `gmx order` {np.mean(frames):.3f}"
        check_row(f"S_CH of {label}", given, f"{found.mean[place]:.3f}", "paceline")


@pytest.mark.parametrize(
    ("row", "name", "digits"),
    [
        ("hydrogen bonds of a protein to water after", "hydrogen bonds to water after", ".0f"),
        ("two atoms a vector and 0.5 Å apart", "edges 0 10 10", ".2f"),
        ("two atoms 19 Å apart in a LAMMPS box", "boundary ff ff ff", ".1f"),
        ("MSD of atoms at rest while bounds", "x y z", ".2f"),
        ("the same, `xs ys zs`", "xs ys zs", ".2f"),
        ("a distance in a cell that leans over", "a tilt of three edges", ".2f"),
    ],
)
def test_images_in_cells(row, name, digits, tmp_path):
    (case,) = (one for one in cells.CASES if name in one.name)
    found = case.compute(tmp_path)
    assert case.holds(found)
    unit = f" {case.unit}" if case.unit else ""
    theirs, ours = (f"{value:{digits}}{unit}" for value in (found.mdanalysis, found.value))
    check_row(row, theirs, ours, "paceline")


def test_neighbours_of_residues_with_insertion_codes():
    found = []
    for opened, kind in (
        (MDAnalysis.Universe, dihedrals.Ramachandran),
        (paceline.Universe, Ramachandran),
    ):
        atoms = opened(datafiles.PDB_icodes).select_atoms("protein")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one = kind(atoms)
        pairs = (one.ag1, one.ag2), (one.ag4, one.ag5)
        bonds = np.max(
            [np.linalg.norm(a.positions - b.positions, axis=1) for a, b in pairs], axis=0
        )
        shared = one.ag2.resids == 163
        assert np.count_nonzero(shared) == 11
        assert bonds[~shared].max() < 1.5
        found.append(bonds[shared].max())
        if kind is not Ramachandran:
            assert np.count_nonzero(bonds > 2) == 11
    assert found[1] < 1.5
    check_row("longest C–N bond", *(f"{one:.1f} Å" for one in found), "paceline")


def test_rmsd_from_atoms_in_another_order(universe, theirs):
    other = MDAnalysis.Merge(theirs.select_atoms("name CA")[::-1])
    right = MDAnalysis.Merge(theirs.select_atoms("name CA"))
    expected = rms.RMSD(theirs, other, select="name CA").run(stop=1).results.rmsd[0, 2]
    with pytest.warns(PacelineWarning, match="214 of 214 differ"):
        found = RMSD(universe, other, select="name CA").run(stop=1).results.rmsd[0, 2]
    assert RMSD(universe, right, select="name CA").run(stop=1).results.rmsd[0, 2] < 1e-5
    check_row("RMSD of CA", f"{expected:.1f} Å", f"{found:.1f} Å and a warning", "paceline")


def test_neighbours_beyond_half_the_cell(tmp_path):
    made, edge = MDAnalysis.Universe.empty(4, trajectory=True), 3.61
    made.atoms.positions = np.array([[0, 0, 0], [1, 1, 0], [1, 0, 1], [0, 1, 1]]) * edge / 2
    made.dimensions = [edge, edge, edge, 90, 90, 90]
    images = (np.indices((5, 5, 5)).reshape(3, -1).T - 2) * edge
    apart = made.atoms.positions[:, None] + images - made.atoms.positions[0]
    right = np.count_nonzero(np.linalg.norm(apart, axis=2) < 2.7) - 1
    path = str(tmp_path / "cu.dcd")
    with MDAnalysis.Writer(path, 4) as writer:
        writer.write(made.atoms)
    options = {"nbins": 26, "range": (0.1, 2.7), "norm": "none"}
    one, other = (make(made._topology, path) for make in (MDAnalysis.Universe, paceline.Universe))
    expected = rdf.InterRDF(one.atoms, one.atoms, **options).run().results.count.sum() / 4
    with pytest.warns(PacelineWarning, match="pairs at larger distances are missing"):
        found = InterRDF(other.atoms, other.atoms, **options).run().results.count.sum() / 4
    words = f"{expected:.0f}", f"{found:.0f} and a warning", f"neither: {right}"
    check_row("neighbours of an atom of copper", *words)


@pytest.mark.filterwarnings("ignore")
def test_times_of_lammps_and_vmd(tmp_path):
    cases = {
        "time between frames in a DCD file of LAMMPS, 1,000 steps of 1 fs": (
            write_timed_dcd(tmp_path / "a.dcd", walk(8), LAMMPS, every=1000),
            {"units": "real"},
            'ps (`units="real"`), else not known',
        ),
        "time between frames in a DCD file of VMD": (
            write_timed_dcd(tmp_path / "b.dcd", walk(8), VMD),
            None,
            "not known",
        ),
        "time between frames in a dump, 500 steps of 1 fs": (
            write_dump(tmp_path / "c.dump", walk(8)),
            {},
            "ps (`ITEM: TIME`), else not known",
        ),
    }
    timed = write_dump(tmp_path / "d.dump", walk(8), units="real", time=500.0)
    for case, (path, options, words) in cases.items():
        assert Reader(path).time_axis.doubt is not None
        kind = {"format": "LAMMPSDUMP"} if path.endswith("dump") else {}
        theirs = MDAnalysis.Universe.empty(30)
        theirs.load_new(path, **kind)
        between = theirs.trajectory[1].time - theirs.trajectory[0].time
        shown = words
        if options is not None:
            ours = Reader(path if options else timed, **options)
            assert ours.time_axis.doubt is None
            shown = f"{ours[1].time - ours[0].time:.3f} {words}"
        check_row(f"{case}:", f"{between:.3f} ps", shown, "paceline")


@pytest.mark.filterwarnings("ignore")
def test_restarts_within_one_file(tmp_path):
    positions = walk(200)
    rows = np.r_[0:200, 100:200]
    catted = write_xtc(tmp_path / "a.xtc", positions[rows], np.arange(200.0)[rows])
    right = write_xtc(tmp_path / "b.xtc", positions, np.arange(200.0))
    top = write_topology(tmp_path / "top.gro")

    def off(universe, module):
        expected = module.RMSF(MDAnalysis.Universe(top, right).atoms).run().results.rmsf
        return np.abs(module.RMSF(universe.atoms).run().results.rmsf - expected).max()

    theirs = off(MDAnalysis.Universe(top, [catted], continuous=True), rms)
    ours = off(paceline.Universe(top, catted, continuous=True), rms)
    check_row(
        "largest error of the RMSF in a file to which a restart was appended",
        *(f"{theirs:.2f} Å", f"{ours:.2f} Å", "paceline"),
    )
