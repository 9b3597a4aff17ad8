"""Tests of Martini systems: names of lipids, proteins, water and ions, and their battery."""

import warnings

import MDAnalysis
import numpy as np
import pytest
from MDAnalysis.analysis.rms import rmsd
from MDAnalysisTests.datafiles import DCD, PSF, Martini_membrane_gro

import paceline
from paceline._util.option_values_and_selections import LIPIDS, WATER_OXYGENS
from paceline.analysis.battery import Battery
from paceline.analysis.bilayer import Bilayer
from paceline.analysis.density_profile import DensityProfile
from paceline.analysis.describe_system_and_frames import describe_system
from paceline.analysis.distances import CenterDistance
from paceline.analysis.functions import TimeSeries
from paceline.analysis.lineardensity import LinearDensity
from paceline.analysis.rms import RMSD
from paceline.cli.universe_with_named_groups import DEFAULT_GROUPS
from paceline.errors import PacelineWarning, UnsupportedError
from paceline.transform.find_ligands import ligand_names


def of_beads(residues):
    """Return a Universe of residues, each given by its name and the names of its beads."""
    beads = [text.split() for _, text in residues]
    numbers = np.repeat(np.arange(len(residues)), [len(one) for one in beads])
    universe = MDAnalysis.Universe.empty(
        len(numbers), len(residues), atom_resindex=numbers, trajectory=True
    )
    universe.add_TopologyAttr("names", [one for names in beads for one in names])
    universe.add_TopologyAttr("resnames", [name for name, _ in residues])
    universe.add_TopologyAttr("resids", np.arange(1, len(residues) + 1))
    return universe


#: Lipids of Martini 2 and 3, their first beads, and the bead that counts.
OF_LIPIDS = [
    ("POPC", "NC3 PO4 GL1 GL2 C1A D2A", "PO4"),
    ("POPE", "NH3 PO4 GL1 GL2 C1A D2A", "PO4"),
    ("POPG", "GL0 PO4 GL1 GL2 C1A D2A", "PO4"),
    ("POPS", "CNO PO4 GL1 GL2 C1A D2A", "PO4"),
    ("POPA", "PO4 GL1 GL2 C1A D2A", "PO4"),
    ("DPSM", "NC3 PO4 AM1 AM2 T1A C2A", "PO4"),
    ("PSM", "NC3 PO4 OH1 AM2 T1A C2A", "PO4"),
    ("POP6", "C1 C2 C3 C4 PO4 P4 P5 GL1 GL2 C1A", "PO4"),
    ("POP2", "C1 C2 C3 PO4 P1 P2 GL1 GL2 C1A", "PO4"),
    ("PI34", "C1 C2 C3 CP PO1 PO2 GL1 GL2 C1A", "CP"),
    ("DPCE", "AM1 AM2 T1A C2A", "AM1"),
    ("DPG3", "GM1 GM2 GM17 AM1 AM2 T1A", "AM1"),
    ("DPMG", "C1 C2 C3 GL1 GL2 C1A", "GL1"),
    ("CDL0", "GL5 PO41 GL1 GL2 C1A PO42 GL3 GL4 C1C", ""),
    ("CHOL", "ROH R1 R2 R3 R4 R5 C1 C2", ""),
    ("W", "W", ""),
    ("ION", "NC3", ""),
]


def test_one_bead_of_each_lipid_counts():
    universe = of_beads([one[:2] for one in OF_LIPIDS])
    found = universe.select_atoms(LIPIDS)
    wanted = [(name, bead) for name, _, bead in OF_LIPIDS if bead]
    assert list(zip(found.resnames, found.names, strict=True)) == wanted
    assert ligand_names(of_beads([("ALA", "BB SC1"), *(one[:2] for one in OF_LIPIDS[:-2])])) == []


def test_water_and_ions_are_known():
    residues = [("W", "W"), ("WF", "WF"), ("PW", "W WP WM"), ("ION", "NA+"), ("NA", "NA")]
    residues += [("ALA", "BB"), ("POPC", "NC3 PO4 GL1 GL2"), ("SOL", "OW HW1 HW2")]
    universe = of_beads(residues)
    waters = universe.select_atoms(WATER_OXYGENS)
    assert waters.resnames.tolist() == ["W", "WF", "PW", "SOL"]
    groups = {"Water": "W WF PW SOL", "Ion": "ION NA", "Other": "POPC", "Protein": "ALA"}
    for name, wanted in groups.items():
        found = universe.select_atoms(DEFAULT_GROUPS[name]).residues.resnames
        assert found.tolist() == wanted.split()
    assert describe_system(universe) == (
        "a protein of 1 residue, 1 lipid, 3 water beads, 1 water, 1 ION and 1 NA"
    )


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    """AdK as beads above the membrane, with water and ions, five frames."""
    folder = tmp_path_factory.mktemp("martini")
    atoms, membrane = MDAnalysis.Universe(PSF, DCD), MDAnalysis.Universe(Martini_membrane_gro)
    residues, groups = [], []
    for one in atoms.residues:
        parts = [one.atoms.select_atoms("backbone"), one.atoms.select_atoms("not backbone")]
        parts = parts[:1] if one.resname == "GLY" else parts
        residues.append((one.resname, "BB SC1" if len(parts) > 1 else "BB"))
        groups += parts
    residues += [(one.resname, " ".join(one.atoms.names)) for one in membrane.residues]
    residues += [("W", "W")] * 100 + [("ION", "NA+"), ("ION", "CL-")] * 4
    universe = of_beads(residues)
    cell = membrane.dimensions.copy()
    cell[2] = 160
    rng = np.random.default_rng(7)
    water = rng.uniform(0, 1, (108, 3)) * [cell[0], cell[1], 60] + [0, 0, 95]
    names = str(folder / "martini.gro"), str(folder / "martini.xtc")
    with MDAnalysis.Writer(names[1], len(universe.atoms)) as writer:
        for ts in atoms.trajectory[:50:10]:
            protein = np.array([one.center_of_mass() for one in groups])
            protein += [cell[0] / 2, cell[1] / 2, 120] - protein.mean(axis=0)
            universe.atoms.positions = np.concatenate([protein, membrane.atoms.positions, water])
            universe.dimensions = cell
            universe.trajectory.ts.time = float(ts.frame)
            writer.write(universe.atoms)
    universe.atoms.write(names[0])
    return names


def test_the_battery_has_what_makes_sense_for_beads(system, tmp_path):
    universe = paceline.Universe(*system)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        battery = Battery.default(universe).run()
        battery.save(tmp_path)
    wanted = {"rmsd", "rmsf", "pca", "leaflets", "bilayer", "rdf-water"}
    assert battery.analyses.keys() == wanted
    lacking = {"sasa", "dssp", "ramachandran", "hbonds", "contact-map", "order"}
    assert battery.left_out.keys() == lacking | {"gyration"}
    assert all("the system is coarse-grained, and it" in battery.left_out[one] for one in lacking)
    assert "those of this coarse-grained system are not known" in battery.left_out["gyration"]
    assert "its radii are for atoms" in (tmp_path / "index.html").read_text(encoding="utf-8")
    theirs = MDAnalysis.Universe(*system).select_atoms("name BB")
    first = theirs.positions.copy()
    for _ in theirs.universe.trajectory[3:4]:
        value = rmsd(theirs.positions, first, superposition=True)
    assert battery.analyses["rmsd"].results.rmsd[3, 2] == pytest.approx(value, abs=1e-5)
    assert battery.analyses["bilayer"].results.n_lipids.tolist() == [[180, 180]] * 5
    battery.suit(stop=5)
    assert lacking <= battery.left_out.keys()


def test_masses_guessed_from_names_of_beads_are_not_used(system):
    universe = paceline.Universe(*system)
    lipids = universe.select_atoms("resname DPPC")
    lack = "needs masses, and those of this coarse-grained system are not known: NC3 would have 14"
    for make in (
        lambda: LinearDensity(lipids),
        lambda: DensityProfile(lipids, quantity="mass"),
        lambda: RMSD(lipids, weights="mass"),
        lambda: CenterDistance(lipids[:12], lipids[12:24]),
    ):
        with pytest.raises(UnsupportedError, match=lack):
            make()
    with pytest.warns(
        PacelineWarning, match="all atoms of the origin have equal weights: those of"
    ):
        DensityProfile(lipids, quantity="number", origin=lipids).run(stop=1)
    with pytest.raises(Exception, match="masses"):
        TimeSeries(lambda block: block.masses.sum() * np.ones(len(block)), lipids).run(stop=1)
    with pytest.raises(UnsupportedError, match="element"):
        DensityProfile(lipids, quantity="electron")


def test_atoms_are_analysed_as_before(universe):
    """Check that an atomistic protein has no entries for beads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        battery = Battery.default(universe)
    assert "sasa" in battery.analyses
    assert battery.descriptions["rmsd"] == {"select": "backbone"}


def test_lipids_without_phosphate_count_in_the_area(tmp_path):
    """Check a membrane in which a third of the lipids are ceramides."""
    grid = 8.0 * np.stack(np.meshgrid(np.arange(6), np.arange(6)), axis=-1).reshape(-1, 2)
    kinds = {"DPPC": ("NC3 PO4 GL1 GL2 C1A C2A", 24, 20), "DPCE": ("AM1 AM2 T1A C2A", 16, 12)}
    residues, rows = [], []
    for side in (1, -1):
        for k, (x, y) in enumerate(grid):
            name = "DPCE" if k % 3 == 0 else "DPPC"
            beads, top, _ = kinds[name]
            residues.append((name, beads))
            rows += [[x, y, 50 + side * (top - 4 * i)] for i in range(len(beads.split()))]
    universe = of_beads(residues)
    universe.atoms.positions = rows
    universe.dimensions = [48, 48, 100, 90, 90, 90]
    universe.atoms.write(tmp_path / "mixed.gro")
    mixed = paceline.Universe(tmp_path / "mixed.gro")
    found = Bilayer(mixed.select_atoms(LIPIDS)).run().results
    np.testing.assert_allclose(found.area_per_lipid, [[64, 64]], rtol=1e-5)
    np.testing.assert_allclose(found.thickness, 2 * (20 * 24 + 16 * 12) / 36, rtol=1e-4)
