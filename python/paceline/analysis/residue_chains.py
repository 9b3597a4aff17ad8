"""Neighbours of residues in the chains of a topology, also if residue numbers repeat."""

import numpy as np

from paceline.contract.system_interface import Atoms, Residues, System, attribute_of


class Chains:
    """Residues of a Universe in the order of the topology.

    Two residues are neighbours if they are adjacent in one segment, and their numbers are
    consecutive or equal (as with insertion codes).
    """

    def __init__(self, universe: System):
        self._residues = universe.residues
        resids, segments = self._residues.resids, self._residues.segindices
        follows = (np.diff(segments) == 0) & np.isin(np.diff(resids), (0, 1))
        #: The first array is True for residues with a previous neighbour, the second for those with
        #: a next neighbour.
        self._has_before = np.concatenate([[False], follows])
        self._has_after = np.concatenate([follows, [False]])

    @property
    def has_insertions(self) -> bool:
        """True if residues have insertion codes."""
        codes = attribute_of(self._residues, "icodes")
        return codes is not None and any(codes)

    def are_ends(self, residues: Residues) -> np.ndarray:
        """Mask of residues that begin or end a segment, or the protein in a segment."""
        protein = np.zeros(len(self._residues) + 2, bool)
        names = self._residues.universe.select_atoms("protein").residues.resindices
        protein[names + 1] = True
        segments = np.concatenate([[-1], self._residues.segindices, [-1]])
        places = residues.resindices + 1
        mask = np.zeros(len(residues), bool)
        for step in (-1, 1):
            mask |= ~protein[places + step] | (segments[places + step] != segments[places])
        return mask

    def backbone_of(
        self, residues: Residues, n_name: str, ca_name: str, c_name: str
    ) -> list[Atoms]:
        """Find C of the previous residue, N, CA and C of each residue, and N of the next residue.

        Residues that lack one of these atoms, or have two atoms of one name, are left out.
        """
        indices = residues.resindices
        indices = indices[self._has_before[indices] & self._has_after[indices]]
        n, ca, c = (self._atom_of_each(name) for name in (n_name, ca_name, c_name))
        found = np.column_stack([c[indices - 1], n[indices], ca[indices], c[indices]])
        found = np.column_stack([found, n[indices + 1]])
        found = found[(found >= 0).all(axis=1)]
        return [self._residues.universe.atoms[column] for column in found.T]

    def _atom_of_each(self, name: str) -> np.ndarray:
        """Index of the only atom with a name in each residue; -1 if there is none or several."""
        atoms = self._residues.universe.atoms
        places = np.flatnonzero(atoms.names == name)
        residues = atoms.resindices[places]
        found = np.full(len(self._residues), -1)
        found[residues] = places
        found[np.bincount(residues, minlength=len(found)) > 1] = -1
        return found
