"""Find ligands by residue names and sizes, and the complexes of ligands with polymers."""

from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np

from paceline.contract.system_interface import System, attribute_of
from paceline.errors import TransformError
from paceline.performance.number_format import joined
from paceline.transform.bonds_and_compounds import MolecularBonds, known_bonds
from paceline.transform.same_image_links import nearest_contacts

#: Keyword that users write instead of a selection to choose `complex_atoms`.
COMPLEXES = "complexes"
#: Maximum distance between the nearest atoms of two molecules in a complex, Å.
IN_CONTACT = 5.0
#: Minimum number of heavy atoms of a ligand.
LEAST_HEAVY = 5
#: Maximum number of residues with the name of a ligand; names of solvents, membranes and buffers
#: usually have more residues.
MOST_RESIDUES = 20
#: Residues with fewer heavy atoms are a solvent if more residues have their name than there are
#: chains.
SMALL = 10
#: Residue names that are never ligands: lipids, sterols, detergents, fatty acids, and components of
#: crystals, buffers and mixed solvents.
NOT_LIGANDS = (
    *(
        "??PC",
        "??PE",
        "??PG",
        "??PS",
        "??PA",
        "??PI*",
        "T[LMOY]CL*",
        "CDL",
        "[LNPS]SM",
        "CER[0-9]*",
    ),
    *("PC", "PE", "PS", "PGR", "PA", "OL", "LAL", "MY", "ST", "AR", "LAU", "OLA", "OLB", "OLC"),
    *("CHL1", "CHOL", "CLR", "ERG", "PLM", "MYR", "STE", "LMT", "DDM", "BDDM", "BOG", "BNG", "LDA"),
    *("LMNG", "SDS", "DPC", "FOS1*", "C8E", "HTG", "OCT", "SO4", "PO4", "PI", "2HP", "IPS", "CAC"),
    *("VO4", "ACT", "ACY", "MLI", "MLA", "TLA", "TAR", "CIT", "FLC", "OXL", "GOL", "EDO", "PGO"),
    *("MPD", "MRD", "BU1", "BU3", "HEZ", "PEG", "PGE", "PG0", "PG4", "PG5", "PG6", "1PE", "2PE"),
    *("P6G", "P33", "PE3", "PE4", "PE5", "PE8", "7PE", "12P", "15P", "XPE", "TOE", "DIO", "TBU"),
    *("TFE", "DMS", "DMSO", "DMF", "THF", "CHCL3", "CCL4", "TRS", "EPE", "MES", "BTB", "BCN"),
    *("NHE", "CXS", "MPO", "PIN", "IMD", "DTT", "GDM", "GAI", "SPM", "SPK", "TMA", "TMAO", "BET"),
    *("UNL", "UNX"),
)
#: Names of beads that only Martini lipids have.
LIPID_BEAD_NAMES = {"GL1", "GL2", "AM2", "ROH"}
#: Sets of atom names; only amino acids or nucleotides of a chain have all atoms of a set.
BACKBONES = ({"N", "CA", "C", "O"}, {"P", "O5'", "C5'", "C4'", "C3'", "O3'"})


class Ligands(NamedTuple):
    """Numbers of residues by name: ligands; lipids and additives excluded by name; solvents."""

    taken: dict[str, int]
    named: dict[str, int]
    solvents: dict[str, int]

    def describe(self) -> str:
        """Describe chosen and excluded residues; empty if at most one residue was a candidate."""
        kinds = (self.named, "a lipid or an additive by name"), (self.solvents, "a solvent")
        others = [f"{n:,} {name} ({kind})" for names, kind in kinds for name, n in names.items()]
        if not others and sum(self.taken.values()) < 2:
            return ""
        taken = joined([f"{n:,} {name}" for name, n in self.taken.items()] or ["none"])
        left_out = f"; not taken: {joined(others)}" if others else ""
        return f"ligands: taken: {taken}{left_out}"


def ligand_names(universe: System) -> list[str]:
    """Return the names of residues that are ligands, in topology order."""
    return [*find_ligands(universe).taken]


def find_ligands(universe: System) -> Ligands:
    """Find ligands, and excluded residues of similar size, by names and sizes.

    A ligand is a residue with at least 5 heavy atoms, and without bonds to other residues. It is
    not a protein, nucleic acid, water or ion, and its name is not that of a lipid or an additive.
    At most 20 residues have its name. If it has fewer than 10 heavy atoms, the number of these
    residues must not exceed the number of chains.
    """
    found = Ligands({}, {}, {})
    try:
        known = universe.select_atoms("protein or nucleic or water")
    except AttributeError:  # the topology has no residue names
        return found
    names = np.asarray(universe.residues.resnames).astype(str)
    heavy = _is_heavy(universe)
    if heavy is None or not len(known):
        return found
    n_heavy = np.bincount(universe.atoms.resindices[heavy], minlength=len(names))
    is_other = np.ones(len(names), bool)
    is_other[known.residues.ix] = False
    for name in dict.fromkeys(names[is_other & (n_heavy >= LEAST_HEAVY)].tolist()):
        of_name = np.flatnonzero(names == name)
        n_residues = len(of_name)
        if n_residues > MOST_RESIDUES:
            continue
        if any(fnmatchcase(name, one) for one in NOT_LIGANDS):
            found.named[name] = n_residues
            continue
        if not is_other[of_name].all() or _is_in_chain(universe, of_name):
            continue
        if n_heavy[of_name].max() < SMALL and n_residues > _n_chains(universe):
            found.solvents[name] = n_residues
        else:
            found.taken[name] = n_residues
    return found


def _n_chains(universe: System) -> int:
    """Count the molecules of proteins and nucleic acids."""
    atoms = universe.select_atoms("protein or nucleic").indices
    bonds = known_bonds(universe)
    of = bonds.fragments if len(bonds) else universe.atoms.segindices
    return len(np.unique(of[atoms]))


def _is_heavy(universe: System) -> np.ndarray | None:
    """Return a mask of the atoms that are not hydrogen by name; None without atom names."""
    known = attribute_of(universe.atoms, "names")
    if known is None:
        return None
    names = np.asarray(known).astype(str)
    unique, numbers = np.unique(names, return_inverse=True)
    heavy = [not name.lstrip("0123456789").upper().startswith(("H", "D")) for name in unique]
    return np.array(heavy)[numbers.reshape(-1)]


def _is_in_chain(universe: System, residues: np.ndarray) -> bool:
    """Return True if residues of one name have backbone or lipid atoms, or are bonded to others."""
    names = set(universe.residues[residues[:1]].atoms.names)
    if any(backbone <= names for backbone in BACKBONES) or names & LIPID_BEAD_NAMES:
        return True
    ends = universe.atoms.resindices[known_bonds(universe).pairs]
    return bool((np.isin(ends, residues).any(axis=1) & (ends[:, 0] != ends[:, 1])).any())


def complex_atoms(universe: System, bonds: MolecularBonds) -> np.ndarray:
    """Return the indices of atoms of proteins, nucleic acids and ligands; empty without polymers.

    The result is cached until bonds or residue names of the topology change.
    """
    names = attribute_of(universe.residues, "resnames")
    if names is None:
        return np.empty(0, np.int64)
    return bonds.compute_once("complexes", tuple(names), lambda: _find_complex_atoms(universe))


def _find_complex_atoms(universe: System) -> np.ndarray:
    polymers = universe.select_atoms("protein or nucleic").indices
    names = ligand_names(universe) if len(polymers) else []
    ligands = np.isin(np.asarray(universe.residues.resnames).astype(str), names)
    return np.union1d(polymers, np.flatnonzero(ligands[universe.atoms.resindices]))


def complexes_in(universe: System, members: np.ndarray, fragments: np.ndarray) -> np.ndarray:
    """Return the closest atoms of the molecules of each complex, in the first frame.

    `members` are the atoms of molecules that may be in complexes. Returns atom indices, shape
    (n_pairs, 2); empty if the first frame cannot be read or has no cell.
    """
    if len(np.unique(fragments[members])) < 2:
        return np.empty((0, 2), np.int64)
    try:
        return nearest_contacts(universe, members, fragments[members], IN_CONTACT)[0]
    except (EOFError, OSError, TransformError, ValueError):
        return np.empty((0, 2), np.int64)


def describe_complexes(universe: System) -> str:
    """Describe the molecules that `unwrap` keeps together; empty if there are none."""
    bonds = known_bonds(universe)
    members = complex_atoms(universe, bonds)
    if not len(bonds) or not len(members):
        return ""
    fragments = bonds.fragments
    members = np.flatnonzero(np.isin(fragments, fragments[members]))
    pairs = complexes_in(universe, members, fragments)
    if not len(pairs):
        return ""
    residues = universe.atoms.residues.resnames[universe.atoms.resindices]
    molecules, ligands = np.unique(fragments[pairs]), ligand_names(universe)
    small = [residues[first] for first in molecules if residues[first] in ligands]
    n_chains = len(molecules) - len(small)
    chains = [f"{n_chains} chains" if n_chains > 1 else "1 chain"] if n_chains else []
    return ", ".join([*chains, *map(str, small)])
