"""Make molecules whole, and move the molecules of a complex into one image."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline._util.sorted_unique import sorted_unique
from paceline.block import cell_of
from paceline.contract.system_interface import Selected, System, residue_name
from paceline.contract.transform_interface import CoreTransform, Transform, WorkerTransform
from paceline.errors import UnsupportedError, warn, with_script_advice
from paceline.performance.number_format import many
from paceline.transform.bonds_and_compounds import (
    MolecularBonds,
    advice_on_sites,
    known_bonds,
    molecular_bonds_of,
    molecules_with,
    with_all,
    with_any,
)
from paceline.transform.find_ligands import COMPLEXES, complex_atoms, complexes_in
from paceline.transform.same_image_links import nearest_contacts
from paceline.transform.selections_and_weights import describe


def unwrap(atomgroup: Selected | None = None, *, together: Selected | None = None) -> Transform:
    """Make molecules whole along their bonds.

    The first atom of a molecule keeps its position. Every other atom moves to the image nearest to
    its bonded neighbour, in the order of `MDAnalysis.transformations.unwrap`. Only molecules with
    an analysed atom are decoded.

    Virtual sites have no bonds in TPR files, and would not move with their molecule. Therefore an
    atom without bonds, to which the topology assigns a mass of 0, is bonded to the first of the
    heaviest atoms of its residue, if all other atoms of the residue belong to one molecule. Guessed
    masses do not identify virtual sites.

    Parameters
    ----------
    atomgroup : AtomGroup or str, optional
        Group or selection; molecules with an atom in it are made whole. By default all molecules.
    together : AtomGroup or str, optional
        Group or selection; molecules with an atom in it are kept side by side, such as the chains
        of a complex. The closest atoms of two such molecules in the first frame of the trajectory
        are treated as bonded, so that each complex is whole in each frame. "complexes" selects the
        proteins, nucleic acids and ligands that are within 5 Å of each other in the first frame, as
        the commands' `--unwrap` does. A ligand has at least 5 heavy atoms, and is not water, an ion
        or a lipid. By default each molecule is made whole on its own, and may be in another image
        than its neighbours.

    Returns
    -------
    Transform
        For `paceline.run(…, transforms=[…])`. The run raises `UnsupportedError` if the topology has
        no bonds, or no bonds in an analysed residue of several atoms. A warning names residues
        whose atoms belong to several molecules. At the end of the run, warnings count two kinds of
        frames: those in which chains that touch in the first frame are in different images, and
        those with bonds longer than half the cell.

    Examples
    --------
    >>> from paceline.transform import unwrap
    >>> unwrap("protein").parameters()
    "unwrap('protein')"
    >>> unwrap(together="protein or resname LIG").parameters()
    'unwrap(together=protein or resname LIG)'
    """
    return _Unwrap(atomgroup, together)


def unwrap_known(universe: System, indices: np.ndarray) -> Transform | None:
    """Create the transformation that makes the molecules of these atoms whole, and complexes, too.

    Atoms of residues without bonds are not included. Returns None if there are no bonds, or if the
    current frame has no cell.
    """
    bonds = known_bonds(universe)
    if not len(bonds) or not cell_of(universe.trajectory)[:, :6].any():
        return None
    fragments = bonds.fragments
    is_unbonded = np.zeros(len(universe.residues), bool)
    is_unbonded[_unbonded_residues(universe, fragments, indices)] = True
    known = indices[~is_unbonded[universe.atoms.resindices[indices]]]
    sizes = np.bincount(fragments, minlength=len(fragments))
    known = known[sizes[fragments[known]] > 1]
    return _Unwrap(universe.atoms[np.unique(known)], COMPLEXES) if len(known) else None


@dataclass(frozen=True)
class _Unwrap(Transform):
    atomgroup: Selected | None
    together: Selected | None = None
    makes_whole = True

    def made_whole(self, universe: System) -> np.ndarray:
        fragments = molecular_bonds_of(universe, "unwrap").fragments
        return molecules_with(universe, self.atomgroup, fragments, "unwrap")

    def atoms(self, wanted: np.ndarray, universe: System) -> np.ndarray:
        bonds = molecular_bonds_of(universe, "unwrap")
        fragments = bonds.fragments
        members = molecules_with(universe, self.atomgroup, fragments, "unwrap")
        complexes = fragments
        if self.together is not None:  # each molecule of a complex needs the other molecules
            contacts = contacts_between(universe, bonds, self.together, self.atomgroup)
            complexes = bonds.with_pairs(contacts).fragments
        touched = with_any(members, complexes[members], wanted)
        _check_residues(universe, fragments, wanted[np.isin(wanted, touched)])
        return sorted_unique(wanted, touched)

    def prepare(
        self, atoms: np.ndarray, universe: System, before: Sequence[WorkerTransform]
    ) -> WorkerTransform:
        bonds = molecular_bonds_of(universe, "unwrap")
        fragments = bonds.fragments
        members = molecules_with(universe, self.atomgroup, fragments, "unwrap")
        whole = with_all(members, fragments[members], atoms)
        if self.together is not None:
            contacts = contacts_between(universe, bonds, self.together, self.atomgroup, tell=True)
            bonds = bonds.with_pairs(contacts)
        pairs = bonds.pairs[np.isin(bonds.pairs, whole).all(axis=1)]
        return CoreTransform("unwrap", len(atoms), np.searchsorted(atoms, pairs))

    def parameters(self) -> str:
        together = self.together
        if together is not None and not isinstance(together, str):
            together = describe("atoms", together)
        return describe("unwrap", self.atomgroup, together=together)


def contacts_between(
    universe: System,
    bonds: MolecularBonds,
    together: Selected,
    atomgroup: Selected | None = None,
    *,
    tell: bool = False,
) -> np.ndarray:
    """Find contacts that connect the molecules of each complex in `together`: (n_pairs, 2).

    Only molecules with an atom in `atomgroup` are used. With `tell`, a warning reports molecules
    that have no other molecule of `together` within half the cell.
    """
    fragments = bonds.fragments
    is_default = isinstance(together, str) and together == COMPLEXES
    if is_default:
        atoms = complex_atoms(universe, bonds)
        if not len(atoms):
            return np.empty((0, 2), np.int64)
        together = universe.atoms[atoms]
    of_complex, moved = (
        molecules_with(universe, one, fragments, "unwrap") for one in (together, atomgroup)
    )
    members = np.intersect1d(of_complex, moved)
    if is_default:
        return complexes_in(universe, members, fragments)
    found, alone = nearest_contacts(universe, members, fragments[members])
    if tell and len(alone):
        warn(
            f"unwrap: {many(len(alone), 'molecule')} of together= have no other molecule within "
            "half the cell in the first frame, and keep their positions; the first has atom "
            f"{alone[0]}"
        )
    return found


def _unbonded_residues(universe: System, fragments: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Find residues of several atoms in which all atoms belong to different fragments."""
    residue_of = universe.atoms.resindices
    concerned = np.isin(residue_of, residue_of[atoms])
    parts = np.unique(np.stack([residue_of[concerned], fragments[concerned]]), axis=1)
    residues, n_parts = np.unique(parts[0], return_counts=True)
    n_atoms = np.bincount(residue_of[concerned])[residues]
    return residues[(n_atoms > 1) & (n_parts == n_atoms)]


def _check_residues(universe: System, fragments: np.ndarray, atoms: np.ndarray) -> None:
    """Raise or warn if residues lack bonds, so that their atoms are in several fragments."""
    unbonded = _unbonded_residues(universe, fragments, atoms)
    if len(unbonded):
        raise with_script_advice(
            UnsupportedError(
                f"unwrap: the topology has no bonds for {_names(universe, unbonded)}; load a "
                "topology that has them, or have them guessed by distance: guess_bonds=True "
                "(--guess-bonds)"
            ),
            ", or name the molecules that have bonds: unwrap(atomgroup)",
        )
    # Check only analysed atoms: others, such as virtual sites, may be in any image.
    residue_of = universe.atoms.resindices
    parts = np.unique(np.stack([residue_of[atoms], fragments[atoms]]), axis=1)
    residues, n_parts = np.unique(parts[0], return_counts=True)
    divided = residues[n_parts > 1]
    if len(divided):
        warn(
            f"unwrap: the topology has no bonds between some atoms of "
            f"{_names(universe, divided)}; these atoms may be placed in different "
            f"images{advice_on_sites(universe)}"
        )


def _names(universe: System, resindices: np.ndarray) -> str:
    """Describe residues by their count, and by the names of the first three."""
    names = [residue_name(residue) for residue in universe.residues[resindices[:3]]]
    more = ", …" if len(resindices) > 3 else ""
    return f"{many(len(resindices), 'residue')} ({', '.join(names)}{more})"
