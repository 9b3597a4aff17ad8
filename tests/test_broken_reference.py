"""Tests of the warning about references with molecules that are broken across the cell."""

import warnings

import MDAnalysis
import pytest
from MDAnalysisTests.datafiles import DCD, GRO, PSF, TPR, XTC

import paceline
from paceline.analysis.align import AlignTraj, AverageStructure
from paceline.analysis.contacts import Contacts
from paceline.analysis.rms import RMSD
from paceline.transform import fit, unwrap

BROKEN = "a molecule of the reference is broken across its cell: atoms .* Å apart; {} needs a whole"
CA = "name CA"


@pytest.fixture
def protein():
    return paceline.Universe(PSF, DCD)


@pytest.fixture
def broken():
    return MDAnalysis.Universe(GRO)


def test_rmsd(protein, broken):
    with pytest.warns(UserWarning, match=BROKEN.format("RMSD")):
        RMSD(protein, broken, select=CA).run(stop=2)


def test_average(protein, broken):
    with pytest.warns(UserWarning, match=BROKEN.format("AverageStructure")):
        AverageStructure(protein, broken, select=CA).run(stop=2)


def test_fit_and_align(protein, broken, tmp_path):
    fixed = broken.select_atoms(CA)
    ca = protein.select_atoms(CA)
    with pytest.warns(UserWarning, match=BROKEN.format("fit")):
        paceline.run(RMSD(ca), stop=2, transforms=[fit(ca, fixed)])
    with pytest.warns(UserWarning, match=BROKEN.format("fit")):
        AlignTraj(protein, broken, select=CA, filename=str(tmp_path / "a.dcd")).run(stop=2)


def test_contacts(protein, broken):
    acidic, basic = "(resname GLU ASP) and name OE* OD*", "(resname ARG LYS) and name NH* NZ"
    there = broken.select_atoms(acidic), broken.select_atoms(basic)
    with pytest.warns(UserWarning, match=BROKEN.format("Contacts")):
        Contacts(protein, (acidic, basic), there, radius=6.0, pbc=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Contacts(protein, (acidic, basic), there, radius=6.0, pbc=True)


def test_a_frame_that_is_not_analysed():
    universe = paceline.Universe(TPR, XTC)
    with pytest.warns(UserWarning, match=r"adk_oplsaa\.xtc \(frame 3\): a molecule of the ref"):
        RMSD(universe, select=CA, ref_frame=3).run(stop=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RMSD(universe, select=CA, ref_frame=3).run(stop=1, transforms=[unwrap("protein")])


def test_a_reference_of_which_some_atoms_are_loaded():
    ends = "name CZ NZ"
    universe = paceline.Universe(GRO, XTC, atoms=ends)
    with pytest.warns(UserWarning, match=r"atoms 2043 and 2052 of it are 78\.8 Å apart; RMSD"):
        RMSD(universe, select=ends, ref_frame=3).run(stop=1)


def test_a_whole_reference_is_silent(protein, broken):
    whole = MDAnalysis.Universe(TPR, GRO)
    whole.atoms.unwrap(compound="fragments", reference=None)
    broken.atoms.positions = whole.atoms.positions
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RMSD(protein, broken, select=CA).run(stop=2)
