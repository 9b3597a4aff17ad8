"""Cases of labels, images and units: identity of atoms, their distances, and units."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import MDAnalysis
import numpy as np
from MDAnalysis.analysis import dihedrals, rdf, rms
from MDAnalysisTests import datafiles

import paceline
from benchmarks.right_values.case import Found, RightValue
from paceline.analysis.contacts import ContactMap
from paceline.analysis.density import DensityAnalysis
from paceline.analysis.dihedrals import Ramachandran
from paceline.analysis.distances import DistanceMap
from paceline.analysis.hydrogenbonds import HydrogenBondAnalysis
from paceline.analysis.neighbors import CoordinationNumbers
from paceline.analysis.rdf import InterRDF
from paceline.analysis.rms import RMSD
from paceline.analysis.sasa import SASA
from paceline.errors import PacelineWarning, SelectionError
from paceline.transform import nojump

#: Protease with side chains at two alternate locations.
LOCATIONS = str(Path(datafiles.__file__).parent / "data" / "4E43.pdb")


def told(function: Callable[[], Any]) -> str:
    """Call a function; return paceline's warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    found = [str(one.message) for one in caught if issubclass(one.category, PacelineWarning)]
    return "; ".join(dict.fromkeys(found)) or "nothing is said"


def other_order(folder: Path) -> Found:
    """Compare the Cα atoms with themselves in reverse order."""
    universe = paceline.Universe(datafiles.PSF, datafiles.DCD)
    other = MDAnalysis.Merge(universe.select_atoms("name CA")[::-1])
    theirs = MDAnalysis.Universe(datafiles.PSF, datafiles.DCD)
    found = rms.RMSD(theirs, other, select="name CA").run(stop=1).results.rmsd[0, 2]
    return Found(
        told(lambda: RMSD(universe, other, select="name CA").run(stop=1)), f"{found:.1f} Å"
    )


def names_of_coordinates(folder: Path) -> Found:
    """Open a GRO file with a topology whose atoms are in another order."""
    path = folder / "reversed.gro"
    MDAnalysis.Universe(datafiles.PSF, datafiles.PDB_small).atoms[::-1].write(path)
    return Found(told(lambda: paceline.Universe(datafiles.PSF, path)), "nothing is said")


def insertion_codes(folder: Path) -> Found:
    """Count residues in Ramachandran whose neighbours are not bonded to them."""

    def count(found: Any) -> int:
        pairs = (found.ag1, found.ag2), (found.ag4, found.ag5)
        lengths = [np.linalg.norm(a.positions - b.positions, axis=1) for a, b in pairs]
        return int((np.max(lengths, axis=0) > 2).sum())

    ours, theirs = (
        make(datafiles.PDB_icodes).select_atoms("protein")
        for make in (paceline.Universe, MDAnalysis.Universe)
    )
    return Found(count(Ramachandran(ours)), count(dihedrals.Ramachandran(theirs)))


def locations(folder: Path) -> Found:
    """Compute the area of a protein with atoms at two locations."""
    atoms = paceline.Universe(LOCATIONS).select_atoms("protein")
    return Found(told(lambda: SASA(atoms, n_points=10).run()))


def segments(folder: Path) -> Found:
    """Count rows of a contact map whose labels another row has, too."""
    atoms = paceline.Universe(LOCATIONS).select_atoms("protein and resid 20-30")
    columns = ContactMap(atoms).run().results.table.columns
    labels = [values.tolist() for title, values in columns.items() if title != "frequency"]
    return Found(len(labels[0]) - len({*zip(*labels, strict=True)}))


def copper(folder: Path) -> Any:
    """Write one cubic cell of copper, and open it."""
    made, edge = MDAnalysis.Universe.empty(4, trajectory=True), 3.61
    made.atoms.positions = np.array([[0, 0, 0], [1, 1, 0], [1, 0, 1], [0, 1, 1]]) * edge / 2
    made.dimensions = [edge, edge, edge, 90, 90, 90]
    with MDAnalysis.Writer(str(folder / "cu.dcd"), 4) as writer:
        writer.write(made.atoms)
    return made


def neighbours(folder: Path) -> Found:
    """Count the neighbours of a copper atom."""
    made = copper(folder)
    ours, theirs = (
        make(made._topology, str(folder / "cu.dcd"))
        for make in (paceline.Universe, MDAnalysis.Universe)
    )
    options = {"nbins": 26, "range": (0.1, 2.7), "norm": "none"}
    found = rdf.InterRDF(theirs.atoms, theirs.atoms, **options).run().results.count.sum() / 4
    return Found(
        told(lambda: CoordinationNumbers(ours.atoms, cutoff=2.6).run()), f"{found:.0f} neighbours"
    )


def long_range(folder: Path) -> Found:
    """Compute g(r) beyond half the smallest height of the cell."""
    water = paceline.Universe(datafiles.GRO, datafiles.XTC).select_atoms("name OW")[:50]
    return Found(told(lambda: InterRDF(water, water, range=(0, 40)).run(stop=1)))


def images(folder: Path) -> Found:
    """Compute distances in a protein that is longer than half the cell."""
    ca = paceline.Universe(datafiles.TPR, datafiles.XTC).select_atoms("name CA")
    return Found(told(lambda: DistanceMap(ca).run(stop=1)))


def grid(folder: Path) -> Found:
    """Count the atoms that leave the default grid after nojump."""
    water = paceline.Universe(datafiles.TPR, datafiles.XTC).select_atoms("name OW")
    density = DensityAnalysis(water, delta=2.0)
    return Found(told(lambda: density.run(transforms=[nojump()])))


def beads(folder: Path) -> Found:
    """Compute the area of lipid beads with the radius of carbon."""
    tails = paceline.Universe(datafiles.Martini_membrane_gro).select_atoms("name C*")
    try:
        return Found(told(lambda: SASA(tails, n_points=10)))
    except SelectionError as error:
        return Found(str(error))


def cutoff_in_nm(folder: Path) -> Found:
    """Request hydrogen bonds with a cutoff of 0.35 Å."""
    universe = paceline.Universe(datafiles.PSF, datafiles.DCD)
    return Found(told(lambda: HydrogenBondAnalysis(universe, d_a_cutoff=0.35).run(stop=1)))


def range_in_nm(folder: Path) -> Found:
    """Request g(r) up to 1.5 Å."""
    water = paceline.Universe(datafiles.GRO, datafiles.XTC).select_atoms("name OW")[:50]
    return Found(told(lambda: InterRDF(water, water, range=(0, 1.5))))


def selection_in_nm(folder: Path) -> Found:
    """Request atoms within 0.35 Å."""
    universe = paceline.Universe(datafiles.PSF, datafiles.DCD)
    near = universe.select_atoms("protein")
    select = "name CA and not around 0.35 resid 30"
    return Found(told(lambda: RMSD(near, select=select)))


SAID = "it must be said"
CASES = [
    RightValue(
        *("order of atoms: RMSD from the same atoms in the opposite order", ""),
        *("214 of 214 differ from those of the reference", "0 Å in one order; " + SAID),
        other_order,
    ),
    RightValue(
        *("order of atoms: coordinates and topology", ""),
        *("the names of the topology in another order", "the file was written so"),
        names_of_coordinates,
    ),
    RightValue(
        *("insertion codes: residues with angles to others than their neighbours", "residues"),
        *(0, "bonds of 1.3 Å"),
        insertion_codes,
    ),
    RightValue(
        *("alternate locations: atoms of a surface that are there twice", ""),
        *("'not altLoc B'", "by the names of the file; " + SAID),
        locations,
    ),
    RightValue(
        *("labels: pairs of residues that a contact map does not tell apart", "pairs"),
        *(0, "there are three chains"),
        segments,
    ),
    RightValue(
        *("images: neighbours of an atom of copper, 12 at 2.55 Å, in a cell of 3.61 Å", ""),
        *("pairs at larger distances are missing", "12, of which 3 are nearest images; " + SAID),
        neighbours,
    ),
    RightValue(
        *("images: g(r) up to 40 Å in a cell of 28.3 Å to half its height", ""),
        *("28.29 Å", "0.5 × 80 Å × sin 45°; " + SAID),
        long_range,
    ),
    RightValue(
        *("images: distances of CA in a protein longer than half the cell", ""),
        *("within the molecule", "55.8 Å along the bonds, 30.0 Å to the image; " + SAID),
        images,
    ),
    RightValue(
        *("grid: atoms outside the grid of a density after nojump", ""),
        *("32 % of the atoms", "counted with NumPy; " + SAID),
        grid,
    ),
    RightValue(
        *("beads: area of coarse-grained lipids", ""),
        *("seem to be coarse-grained", "a bead of Martini has 2.6 Å, not 1.7; " + SAID),
        beads,
    ),
    RightValue(
        *("nm: a cutoff of hydrogen bonds of 0.35", ""),
        *("did you mean d_a_cutoff=3.5", SAID),
        cutoff_in_nm,
    ),
    RightValue(
        *("nm: a range of g(r) up to 1.5", ""),
        *("did you mean range=(0, 15)", SAID),
        range_in_nm,
    ),
    RightValue(
        *("nm: a selection around 0.35", ""),
        *("did you mean 'around 3.5'", SAID),
        selection_in_nm,
    ),
]
