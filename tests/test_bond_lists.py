"""Tests of bonds for topologies without bonds: bonds of standard residues by name, and guessed
bonds.
"""

from itertools import product
from pathlib import Path

import MDAnalysis
import mdtraj
import numpy as np
import pytest
from MDAnalysis.guesser.default_guesser import DefaultGuesser
from MDAnalysis.lib.distances import calc_bonds
from MDAnalysisTests import datafiles

import paceline
from paceline import transform
from paceline.analysis.battery import Battery
from paceline.analysis.diffusion import molecules_of
from paceline.analysis.guess_elements_and_donors import POLAR
from paceline.analysis.hydrogenbonds import HydrogenBondAnalysis
from paceline.errors import PacelineWarning
from paceline.transform.known_and_guessed_bonds import bond_list, note_on_bonds
from paceline.transform.residue_templates import template_of

CELL = [30.0, 35.0, 40.0, 90.0, 90.0, 90.0]
TRICLINIC = [40.0, 40.0, 40.0, 60.0, 60.0, 90.0]


def pairs(bonds):
    return set(map(tuple, np.sort(np.asarray(bonds, int).reshape(-1, 2), axis=1).tolist()))


def without_bonds(*files):
    universe = MDAnalysis.Universe(*files)
    if hasattr(universe, "bonds"):
        universe.del_TopologyAttr("bonds")
    return universe


def named(universe, bonds):
    return {
        tuple(sorted(f"{universe.atoms[k].resname} {universe.atoms[k].name}" for k in pair))
        for pair in bonds
    }


def peptide(*names, cell=None):
    """Return the first residues of adenylate kinase, optionally with other residue names."""
    atoms = MDAnalysis.Universe(datafiles.PSF, datafiles.DCD).select_atoms("resid 1-6")
    universe = MDAnalysis.Merge(atoms)
    universe.dimensions = cell
    universe.residues[: len(names)].resnames = names
    universe.del_TopologyAttr("bonds")
    universe.atoms.types = [name.lstrip("123")[0] for name in universe.atoms.names]
    return universe


@pytest.mark.parametrize(
    ("files", "missing", "extra"),
    [
        ((datafiles.PSF, datafiles.DCD), set(), set()),
        # GROMACS lists no bonds of the virtual site; Amber lists a bond between the hydrogens.
        ((datafiles.TPR, datafiles.XTC), set(), {("SOL MW", "SOL OW")}),
        ((datafiles.TPR2024,), set(), set()),
        ((datafiles.RNA_PSF, datafiles.RNA_PDB), {("TIP3 H1", "TIP3 H2")}, set()),
        ((datafiles.PRM, datafiles.TRJ), set(), set()),
        ((datafiles.PRM7, datafiles.NCDFtruncoct), {("WAT H1", "WAT H2")}, set()),
    ],
    ids=["PSF", "TPR", "TPR-2024", "RNA", "PRMTOP", "PRMTOP-water"],
)
def test_bonds_are_those_of_other_topologies(files, missing, extra):
    universe = MDAnalysis.Universe(*files)
    given = pairs(universe.bonds.indices)
    found = pairs(bond_list(without_bonds(*files)).bonds)
    assert named(universe, given - found) == missing
    assert named(universe, found - given) == extra


@pytest.mark.parametrize("name", ["PDB_small", "PDB_icodes", "PDB_sub_dry", "PDB_xsmall"])
def test_bonds_are_those_of_mdtraj(name):
    path = getattr(datafiles, name)
    universe = without_bonds(path)
    theirs = set()
    for standard in (False, True):  # one of the two topologies has other names of hydrogens
        topology = mdtraj.load(path, standard_names=standard).topology
        theirs |= pairs([(one.index, other.index) for one, other in topology.bonds])
    found = pairs(bond_list(universe).bonds)
    assert theirs - found == set()
    assert named(universe, found - theirs) <= {("CYS SG", "CYS SG")}


def test_each_hydrogen_has_one_bond():
    universe = without_bonds(datafiles.RNA_PDB)
    bonds = bond_list(universe).bonds
    positions = universe.atoms.positions
    lengths = calc_bonds(*positions[bonds.T], box=universe.dimensions)
    assert lengths.min() > 0.9
    assert lengths.max() < 1.8
    hydrogens = universe.select_atoms("name H*").indices
    assert (np.bincount(bonds.ravel())[hydrogens] == 1).all()


@pytest.mark.parametrize(
    ("residue", "names", "bonds"),
    [
        (
            "HSD",
            "CG ND1 HD1 CE1 HE1 NE2 CD2 HD2",
            "CG-ND1 ND1-CE1 CE1-NE2 NE2-CD2 CD2-CG ND1-HD1 CE1-HE1 CD2-HD2",
        ),
        ("CYX", "CB SG 1HB 2HB", "CB-SG CB-1HB CB-2HB"),
        ("ILE", "CB CG1 CD HD1 HG11 CG2 HG21", "CB-CG1 CG1-CD CB-CG2 CD-HD1 CG1-HG11 CG2-HG21"),
        ("NALA", "N H1 H2 H3 CA HA", "N-CA N-H1 N-H2 N-H3 CA-HA"),
        ("CALA", "C O OXT", "C-O C-OXT"),
        ("ACE", "CH3 HH31 1HH3 C O", "CH3-HH31 CH3-1HH3 CH3-C C-O"),
        ("NME", "N H CH3 HH31", "N-H N-CH3 CH3-HH31"),
        ("ALA", "CY OY CAY HY1 N", "CY-OY CY-CAY CY-N CAY-HY1"),
        ("DA5", "O5' HO5' C5' H5'1 H5''", "O5'-HO5' O5'-C5' C5'-H5'1 C5'-H5''"),
        ("RU", "C2' O2' HO'2 H2'1", "C2'-O2' O2'-HO'2 C2'-H2'1"),
        ("ADE", "C5* O5* H5T C6 N6 H61", "C5*-O5* O5*-H5T C6-N6 N6-H61"),
        ("THY", "C5 C5M H51", "C5-C5M C5M-H51"),
        ("DT", "C5 C7 H71", "C5-C7 C7-H71"),
        ("TIP3", "OH2 H1 H2", "OH2-H1 OH2-H2"),
        ("XYZ", "OW HW1 HW2 MW", "OW-HW1 OW-HW2 OW-MW"),
        ("LIG", "C1 C2", ""),
        ("ALA", "BB SC1", ""),
        ("HOH", "O H1 H2 O H1 H2", ""),
    ],
)
def test_residues_are_known_by_names(residue, names, bonds):
    names = names.split()
    found = template_of(residue, tuple(names)).bonds
    assert pairs(found) == pairs([[names.index(one) for one in bond.split("-")]
                                  for bond in bonds.split()])  # fmt: skip


@pytest.mark.parametrize("cell", [CELL, TRICLINIC], ids=["right angles", "triclinic"])
def test_residues_are_bonded_across_the_cell(cell):
    universe = peptide(cell=cell)
    expected = pairs(bond_list(universe).bonds)
    assert len(expected) == len(universe.atoms) - 1
    vectors = universe.trajectory.ts.triclinic_dimensions
    steps = np.array(list(product((-1, 0, 1), repeat=3)))
    chosen = steps[np.arange(len(universe.atoms)) % len(steps)]
    universe.atoms.positions += (chosen @ vectors).astype(np.float32)
    universe.add_TopologyAttr("names", universe.atoms.names)  # now another topology
    assert pairs(bond_list(universe).bonds) == expected


def test_a_break_of_a_chain_is_no_bond():
    universe = peptide()
    whole = pairs(bond_list(universe).bonds)
    broken = peptide()
    broken.select_atoms("resid 4-6").positions += [0, 0, 7]
    found = bond_list(broken)
    first, second = broken.select_atoms("(resid 3 and name C) or (resid 4 and name N)").indices
    assert whole - pairs(found.bonds) == {(first, second)}
    assert "no bond between ILE 3 and ILE 4" in found.note
    # Without positions, residue numbers decide.
    unknown = peptide()
    unknown.atoms.positions = np.nan
    assert pairs(bond_list(unknown).bonds) == whole


def test_residues_of_other_segments_are_not_bonded():
    universe = peptide()
    other = universe.add_Segment(segid="B")
    universe.select_atoms("resid 4-6").residues.segments = other
    of_whole = len(bond_list(peptide()).bonds)
    assert len(bond_list(universe).bonds) == of_whole - 1


def test_bonds_of_the_topology_are_kept():
    """Check that a residue with bonds in the topology gets no further bonds, and that no bond is
    repeated.
    """
    universe = peptide()
    methionine = universe.select_atoms("resid 1").indices
    others = pairs(bond_list(peptide()).bonds)
    given = [(int(methionine[0]), int(methionine[-1])), (int(methionine[0]), int(methionine[1]))]
    universe.add_bonds(given)
    found = bond_list(universe).bonds
    inside = {pair for pair in pairs(found) if set(pair) <= set(methionine.tolist())}
    assert inside == set(given)
    assert len(found) == len(pairs(found))
    assert {pair for pair in others if not set(pair) <= set(methionine.tolist())} <= pairs(found)


def test_other_residues_are_guessed_only_when_asked():
    universe = peptide("MET", "ARG", "LIG")
    unknown = universe.residues[2].atoms
    found = bond_list(universe)
    assert found.lacking.tolist() == [
        one for one in unknown.indices if universe.atoms[one].name not in ("N", "C")
    ]
    assert "atoms of residue LIG have none" in found.note
    inside = [pair for pair in pairs(found.bonds) if set(pair) <= set(unknown.indices.tolist())]
    assert inside == []
    transform.known_and_guessed_bonds.add_guessed_bonds(universe, guess=True)
    guesser = DefaultGuesser(unknown.universe)
    theirs = pairs(guesser.guess_bonds(unknown, unknown.positions))
    added = pairs(universe.bonds.indices) - pairs(found.bonds)
    assert added == theirs
    assert universe.bonds.indices.shape[0] == len(universe.atoms) - 1
    assert "guessed by distance" in bond_list(universe).note or note_on_bonds(universe)


def test_hydrogens_of_other_names_are_those_of_the_nearest_atom():
    universe = peptide(cell=CELL)
    expected = pairs(bond_list(universe).bonds)
    names = universe.atoms.names
    hydrogens = np.char.startswith(names.astype(str), "H")
    names[hydrogens] = [f"HX{k}" for k in range(hydrogens.sum())]
    other = peptide(cell=CELL)
    other.atoms.names = names
    assert pairs(bond_list(other).bonds) == expected


def test_alternate_locations_are_not_bonded_to_each_other():
    universe = without_bonds(datafiles.PDB_full)
    found = bond_list(universe)
    located = universe.atoms.altLocs.astype(str)
    assert (located != "").any()
    ends = located[found.bonds]
    assert ((ends[:, 0] == ends[:, 1]) | (ends == "").any(axis=1)).all()
    protein = universe.select_atoms("protein")
    assert not np.isin(found.lacking, protein.indices).any()


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """Adenylate kinase as written by OpenMM: a PDB file without bonds, broken across the cell, and
    a DCD.
    """
    folder = tmp_path_factory.mktemp("simulated")
    universe = MDAnalysis.Universe(datafiles.PSF, datafiles.DCD)
    pdb, dcd = str(folder / "system.pdb"), str(folder / "system.dcd")
    with MDAnalysis.Writer(dcd, len(universe.atoms)) as writer:
        for ts in universe.trajectory[:4]:
            ts.dimensions = [80, 84, 90, 90, 90, 90]
            universe.atoms.translate([0, 0, 20])
            universe.atoms.wrap()
            if ts.frame == 0:
                universe.atoms.write(pdb, bonds=None)
            writer.write(universe.atoms)
    assert "CONECT" not in Path(pdb).read_text()
    return pdb, dcd


def test_unwrap_takes_bonds_of_residues(simulated, run, tmp_path):
    tables = [tmp_path / "with.csv", tmp_path / "without.csv"]
    select = ("--select", "name CA", "--unwrap", "-o")
    assert run("rmsd", datafiles.PSF, simulated[1], *select, tables[0])[::2] == (0, "")
    status, _, err = run("rmsd", *simulated, *select, tables[1])
    assert (status, err) == (0, "paceline: bonds: 3,365 from standard residues by name\n")
    one, other = (np.genfromtxt(path, delimiter=",", skip_header=1) for path in tables)
    np.testing.assert_array_equal(one, other)
    assert "# bonds: 3,365 from standard residues by name" in tables[1].read_text()
    assert "# bonds" not in tables[0].read_text()


def test_hydrogen_bonds_are_found_without_bonds_or_charges(simulated, run, tmp_path):
    path = tmp_path / "hbonds.npz"
    status, _, err = run("hbonds", *simulated, "-o", path)
    assert (status, err) == (0, "paceline: bonds: 3,365 from standard residues by name\n")
    universe = paceline.Universe(datafiles.PSF, simulated[1])
    expected = HydrogenBondAnalysis(universe.select_atoms("protein"), **POLAR).run()
    np.testing.assert_array_equal(np.load(path)["hbonds"], expected.results.hbonds)
    assert len(expected.results.hbonds) > 300


def test_what_lacks_bonds_has_no_hydrogen_bonds(simulated):
    universe = paceline.Universe(*simulated)
    universe.select_atoms("resid 10").residues.resnames = "LIG"
    with pytest.warns(PacelineWarning, match="5 analysed atoms have no bonds.*of residue LIG"):
        HydrogenBondAnalysis(universe)
    guessed = paceline.Universe(*simulated)
    guessed.select_atoms("resid 10").residues.resnames = "LIG"
    transform.known_and_guessed_bonds.add_guessed_bonds(guessed, guess=True)
    whole = paceline.Universe(*simulated)
    assert HydrogenBondAnalysis(guessed).indices.tolist() == (
        HydrogenBondAnalysis(whole).indices.tolist()
    )


def test_guessed_bonds_are_asked_for(simulated, run, tmp_path):
    text = Path(simulated[0]).read_text().replace("PRO A   9", "LIG A   9")
    pdb = tmp_path / "ligand.pdb"
    pdb.write_text(text.replace("PRO X   9", "LIG X   9").replace("PRO 4   9", "LIG 4   9"))
    assert "LIG" in pdb.read_text()
    command = "rmsd", pdb, simulated[1], "--select", "name CA", "--unwrap"
    status, _, err = run(*command)
    assert status == 2
    assert "no bonds for 1 residue (LIG 9)" in err
    assert "--guess-bonds" in err
    status, guessed, err = run(*command, "--guess-bonds")
    assert status == 0
    assert "guessed by distance" in err
    assert guessed == run("rmsd", *simulated, "--select", "name CA", "--unwrap")[1]
    universe = paceline.Universe(pdb, simulated[1], guess_bonds=True)
    assert len(universe.bonds) == 3365
    assert not hasattr(universe, "angles")


def test_a_battery_makes_molecules_whole_by_bonds_of_residues(simulated, run, tmp_path):
    status, _, err = run("battery", *simulated, "-o", tmp_path / "results")
    assert (status, err) == (0, "paceline: bonds: 3,365 from standard residues by name\n")
    assert (tmp_path / "results" / "hbonds.csv").exists()
    header = (tmp_path / "results" / "gyration.csv").read_text()
    assert "# transforms: unwrap(" in header


def test_molecules_of_diffusion_are_known_by_residues(adk_in_water):
    universe = paceline.Universe(adk_in_water.topology)
    atoms = universe.select_atoms("name OW or name CA").indices
    numbers, guessed = molecules_of(universe, atoms)
    assert guessed == ""
    assert len(np.unique(numbers)) == 1 + len(universe.select_atoms("name OW"))


def test_cells_too_small_for_the_atoms_are_left_out(simulated, tmp_path):
    universe = MDAnalysis.Universe(datafiles.PSF, datafiles.DCD)
    path = str(tmp_path / "small.dcd")
    with MDAnalysis.Writer(path, len(universe.atoms)) as writer:
        for ts in universe.trajectory[:3]:
            ts.dimensions = [6.5, 6.5, 6.5, 90, 90, 90]  # 0.08 Å³ per atom
            writer.write(universe.atoms)
    found = paceline.Universe(simulated[0], path)
    cells = paceline.TimeSeries(lambda block: block.dimensions, found.atoms)
    with pytest.warns(PacelineWarning, match="6.5 × 6.5 × 6.5 Å is too small for 3,341 atoms"):
        cells.run()
    assert not cells.results.timeseries.any()
    assert pairs(bond_list(found).bonds) == pairs(bond_list(universe).bonds)


def test_a_battery_leaves_out_what_needs_a_cell(adk_in_water):
    universe = paceline.Universe(adk_in_water.topology)
    universe.trajectory.ts.dimensions = None
    with pytest.warns(PacelineWarning, match="left out of the battery: rdf-water: .* has no cell"):
        battery = Battery.default(universe)
    assert "rmsd" in battery.analyses
    assert "norm='rdf' needs" in battery.left_out["rdf-water"]


def test_selections_by_bonds_change_the_universe_that_is_given_and_no_copy():
    """Check what the manual states: added bonds remain, as guessed bonds do."""
    kept = MDAnalysis.Universe(datafiles.PDB_small)
    changed = kept.copy()
    HydrogenBondAnalysis(changed, acceptors_sel="name O", hydrogens_sel="name H* and bonded name N")
    assert not hasattr(kept, "bonds")
    assert all(changed.bonds._guessed)
