"""One analysis of each class that MDAnalysis provides."""

from collections.abc import Mapping
from pathlib import Path

import MDAnalysis
import numpy as np
from MDAnalysis.analysis import (
    align,
    atomicdistances,
    bat,
    contacts,
    density,
    dielectric,
    diffusionmap,
    dihedrals,
    dssp,
    gnm,
    helix_analysis,
    hydrogenbonds,
    lineardensity,
    msd,
    nucleicacids,
    pca,
    polymer,
    rdf,
    rms,
)
from MDAnalysis.analysis.base import AnalysisFromFunction
from MDAnalysisTests.datafiles import DCD, PSF, RNA_PDB, RNA_PSF

#: One analysis of each parallelisable class of MDAnalysis, for `protein`.
SPLIT = {
    "AnalysisFromFunction": lambda u: AnalysisFromFunction(gyration, u.atoms),
    "AtomicDistances": lambda u: atomicdistances.AtomicDistances(ca(u)[:5], ca(u)[5:10]),
    "BAT": lambda u: bat.BAT(u.select_atoms("resid 1:3")),
    "Contacts": lambda u: contacts.Contacts(
        u, select=("name CA", "name CB"), refgroup=(ca(u), u.select_atoms("name CB"))
    ),
    "DensityAnalysis": lambda u: density.DensityAnalysis(ca(u), delta=2.0, padding=4.0),
    "DistanceMatrix": lambda u: diffusionmap.DistanceMatrix(u, select="name CA"),
    "Dihedral": lambda u: dihedrals.Dihedral([u.residues[3].phi_selection()]),
    "Janin": lambda u: dihedrals.Janin(u.select_atoms("resname MET ARG ILE LEU")),
    "Ramachandran": lambda u: dihedrals.Ramachandran(u.select_atoms("resid 2:10")),
    "DSSP": lambda u: dssp.DSSP(u),
    "GNMAnalysis": lambda u: gnm.GNMAnalysis(u, select="name CA"),
    "closeContactGNMAnalysis": lambda u: gnm.closeContactGNMAnalysis(u, select="name CA", cutoff=9),
    "HydrogenBondAnalysis": lambda u: hydrogenbonds.HydrogenBondAnalysis(
        u, "name N", "name HN", "name O", d_a_cutoff=3.6, d_h_a_angle_cutoff=120
    ),
    "LinearDensity": lambda u: lineardensity.LinearDensity(u.select_atoms("mass 2 to 99")),
    "NucPairDist": lambda u: nucleicacids.NucPairDist([ca(u)[:1]], [ca(u)[7:8]]),
    "PersistenceLength": lambda u: polymer.PersistenceLength(
        [ca(u)[k : k + 5] for k in (0, 5, 10)]
    ),
    "InterRDF": lambda u: rdf.InterRDF(ca(u), u.select_atoms("name O"), nbins=20),
    "InterRDF_s": lambda u: rdf.InterRDF_s(u, [[ca(u)[:1], ca(u)[1:3]]], nbins=20),
    "RMSD": lambda u: rms.RMSD(u, select="name CA", groupselections=["resid 1:8"], ref_frame=7),
}

#: Names of bases in `strands`.
BASES = {"a_name": "ADE", "c_name": "CYT", "g_name": "GUA", "u_name": "URA"}
#: Further analyses, for `strands`.
OF_STRANDS = {
    "WatsonCrickDist": lambda u: nucleicacids.WatsonCrickDist(*pairs(u), **BASES),
    "MinorPairDist": lambda u: nucleicacids.MinorPairDist(*pairs(u, (2, 19), (16, 4)), **BASES),
    "MajorPairDist": lambda u: nucleicacids.MajorPairDist(*pairs(u, (1, 4), (11, 8)), **BASES),
}
#: One analysis of each class that needs all frames in order. `AlignTraj` writes a file.
ORDERED = {
    "AlignTraj": lambda u: align.AlignTraj(u, u, select="name CA", filename="aligned.xtc"),
    "AverageStructure": lambda u: align.AverageStructure(u, u, select="name CA"),
    "DielectricConstant": lambda u: dielectric.DielectricConstant(neutral(u), make_whole=False),
    "EinsteinMSD": lambda u: msd.EinsteinMSD(u, select="name CA", fft=False),
    "HELANAL": lambda u: helix_analysis.HELANAL(u, select="name CA and resid 13:24"),
    "PCA": lambda u: pca.PCA(u, select="name CA", align=True),
    "RMSF": lambda u: rms.RMSF(ca(u)),
    "WaterBridgeAnalysis": lambda u: hydrogenbonds.WaterBridgeAnalysis(
        u, "resid 1:8", "resid 14:30", water_selection="resid 9:13"
    ),
}
EVERY = SPLIT | OF_STRANDS | ORDERED
#: Classes that sum over frames, with the tolerance for sums in another order. MDAnalysis merges one
#: sum per part.
SUMS = {
    "DensityAnalysis": 1e-13,
    "InterRDF": 1e-13,
    "InterRDF_s": 1e-13,
    "LinearDensity": 1e-13,
    "PersistenceLength": 2e-6,  # sums in single precision
}


def ca(universe):
    return universe.select_atoms("name CA")


def gyration(atoms):
    return atoms.radius_of_gyration()


def neutral(universe):
    """Return residues without charge."""
    return sum(one.atoms for one in universe.residues if abs(one.charge) < 1e-6)


def pairs(universe, ones=(0, 21), others=(1, 22)):
    """Return two groups of nucleotides."""
    rna = universe.select_atoms("segid RNAA").residues
    return rna[list(ones)], rna[list(others)]


def protein(folder: Path) -> tuple:
    """Write the first 30 residues of adenylate kinase, in a cell: a topology, and 98 frames."""
    whole = MDAnalysis.Universe(PSF, DCD)
    part = whole.select_atoms("resid 1:30")
    path = folder / "part.xtc"
    with MDAnalysis.Writer(str(path), part.n_atoms) as writer:
        for ts in whole.trajectory:
            ts.dimensions = [60, 60, 60, 90, 90, 90]
            writer.write(part)
    return MDAnalysis.Merge(part)._topology, str(path)


def strands(folder: Path) -> tuple:
    """Write RNA whose atoms move at random: a topology, and 20 frames."""
    universe = MDAnalysis.Universe(RNA_PSF, RNA_PDB)
    path, rng = folder / "strands.xtc", np.random.default_rng(3)
    at = universe.atoms.positions
    with MDAnalysis.Writer(str(path), len(at)) as writer:
        for _ in range(20):
            universe.atoms.positions = at + rng.normal(0, 0.5, at.shape)
            writer.write(universe.atoms)
    return universe._topology, str(path)


def assert_same(found, expected, *, rounding):
    """Check equal bits, or equality up to rounding for results that are sums of parts."""
    if isinstance(expected, Mapping):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_same(found[key], expected[key], rounding=rounding)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, rounding=rounding)
    elif isinstance(expected, MDAnalysis.Universe):
        np.testing.assert_array_equal(found.atoms.positions, expected.atoms.positions)
    elif hasattr(expected, "grid"):
        assert_same(found.grid, expected.grid, rounding=rounding)
    elif rounding and expected is not None and np.asarray(expected).dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=rounding, atol=rounding)
    else:
        np.testing.assert_array_equal(found, expected)
