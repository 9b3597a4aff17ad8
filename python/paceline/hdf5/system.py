"""The atoms of a system as plain data, and MDAnalysis's topology of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.hdf5.file import Array, damaged


@dataclass(frozen=True)
class System:
    """Atoms, residues and segments, and what is known of each, by MDAnalysis's names.

    Attributes
    ----------
    atoms : mapping of str to numpy.ndarray, shape (n_atoms,)
        Out of "names", "types", "elements", "ids", "masses" (u), "charges" (e), "chainIDs", and
        "atomic_numbers".
    residue : numpy.ndarray of int64, shape (n_atoms,)
        Residue of each atom, counted from 0.
    residues : mapping of str to numpy.ndarray, shape (n_residues,)
        Out of "resids", "resnames", "moltypes", "molnums".
    segment : numpy.ndarray of int64, shape (n_residues,)
        Segment of each residue, counted from 0.
    segids : numpy.ndarray of object, shape (n_segments,)
        Names of the segments.
    bonds : numpy.ndarray of int64, shape (n_bonds, 2), or None
        Pairs of atoms, counted from 0; None where nothing is known of them.
    """

    atoms: Mapping[str, np.ndarray]
    residue: np.ndarray
    residues: Mapping[str, np.ndarray]
    segment: np.ndarray
    segids: np.ndarray
    bonds: np.ndarray | None = None

    @classmethod
    def without_residues(
        cls, atoms: Mapping[str, np.ndarray], n_atoms: int, bonds: np.ndarray | None = None
    ) -> "System":
        """Atoms of which no residues are known.

        Parameters
        ----------
        atoms : mapping of str to numpy.ndarray, shape (n_atoms,)
            What is known of each.
        n_atoms : int
            Their number.
        bonds : numpy.ndarray of int64, shape (n_bonds, 2), optional
            Pairs of atoms.

        Returns
        -------
        System
            With one residue and one segment, as MDAnalysis makes them.
        """
        one = np.zeros(n_atoms, dtype=np.int64)
        segids = np.array(["SYSTEM"], dtype=object)
        return cls(atoms, one, {"resids": np.ones(1, dtype=np.int64)}, one[:1], segids, bonds)

    def topology(self) -> Any:
        """MDAnalysis's topology of the system.

        Returns
        -------
        MDAnalysis.core.topology.Topology
        """
        # Where systems are made of files, MDAnalysis is not needed.
        from MDAnalysis.core import topologyattrs
        from MDAnalysis.core.topology import Topology
        from MDAnalysis.guesser.tables import SYMB2Z, Z2SYMB

        kinds = {
            "names": topologyattrs.Atomnames,
            "types": topologyattrs.Atomtypes,
            "elements": topologyattrs.Elements,
            "ids": topologyattrs.Atomids,
            "masses": topologyattrs.Masses,
            "charges": topologyattrs.Charges,
            "chainIDs": topologyattrs.ChainIDs,
            "resids": topologyattrs.Resids,
            "resnums": topologyattrs.Resnums,
            "resnames": topologyattrs.Resnames,
            "moltypes": topologyattrs.Moltypes,
            "molnums": topologyattrs.Molnums,
        }
        atoms = dict(self.atoms)
        if "atomic_numbers" in atoms:
            symbols = [Z2SYMB.get(number, "") for number in atoms.pop("atomic_numbers").tolist()]
            atoms["elements"] = np.array(symbols, dtype=object)
        if "elements" not in atoms and set(atoms.get("types", [""])) <= set(SYMB2Z):
            atoms["elements"] = atoms["types"].copy()
        residues = {**self.residues, "resnums": self.residues["resids"].copy()}
        attributes = [kinds[name](values) for name, values in {**atoms, **residues}.items()]
        attributes.append(topologyattrs.Segids(self.segids))
        if self.bonds is not None:
            attributes.append(topologyattrs.Bonds([tuple(pair) for pair in self.bonds.tolist()]))
        return Topology(
            len(self.residue),
            len(self.segment),
            len(self.segids),
            attrs=attributes,
            atom_resindex=self.residue,
            residue_segindex=self.segment,
        )


def pairs_of(array: Array, n_atoms: int) -> np.ndarray:
    """Pairs of atoms.

    Parameters
    ----------
    array : Array
        A dataset of them.
    n_atoms : int
        Number of atoms.

    Returns
    -------
    numpy.ndarray of int64, shape (n_pairs, 2)

    Raises
    ------
    DamagedFileError
        They are not pairs, or of atoms that there are not.
    """
    if array.dtype.kind not in "iu" or len(array.shape) != 2 or array.shape[1] != 2:
        found = f"{array.dtype} of shape {array.shape}"
        raise damaged(array.file.path, array.name, "pairs of atoms", found)
    pairs: np.ndarray = array.read().astype(np.int64)
    if len(pairs) and not 0 <= pairs.min() <= pairs.max() < n_atoms:
        raise damaged(
            array.file.path,
            array.name,
            f"pairs of {n_atoms} atoms, counted from 0",
            f"{pairs.min()} to {pairs.max()}",
        )
    return pairs
