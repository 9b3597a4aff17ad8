"""Molecules made whole along their bonds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.errors import UnsupportedError
from paceline.job import Transform as Transformation
from paceline.opening import warn
from paceline.transform.base import Made, Transform, describe, select
from paceline.transform.compounds import bonds_of, fragments_of, with_all, with_any


def unwrap(atomgroup: Any = None) -> Transform:
    """Make molecules whole along their bonds.

    The first atom of a molecule stays where it is, and from bond to bond every other atom takes
    the image that is nearest to its neighbour, in the order of
    `MDAnalysis.transformations.unwrap`. Only molecules of which an atom is analysed are decoded.

    Parameters
    ----------
    atomgroup : AtomGroup or str, optional
        Molecules of which to make whole those that have an atom in it, or a selection; by default
        all molecules.

    Returns
    -------
    Transform
        For `paceline.run(…, transforms=[…])`. In the run, it raises `UnsupportedError` where the
        topology has no bonds, or none for a residue of several atoms that is analysed. A residue
        whose atoms belong to several molecules is named in a warning.

    Examples
    --------
    >>> from paceline.transform import unwrap
    >>> unwrap("protein").parameters()
    "unwrap('protein')"
    """
    return _Unwrap(atomgroup)


@dataclass(frozen=True)
class _Unwrap:
    atomgroup: Any
    turns = False

    def atoms(self, wanted: np.ndarray, universe: Any) -> np.ndarray:
        fragments = fragments_of(universe, bonds_of(universe, "unwrap"))
        members = self._members(universe, fragments)
        touched = with_any(members, fragments[members], wanted)
        _check_residues(universe, fragments, np.intersect1d(wanted, touched))
        return np.union1d(wanted, touched)

    def prepare(
        self, atoms: np.ndarray, universe: Any, before: Sequence[Transformation]
    ) -> Transformation:
        bonds = bonds_of(universe, "unwrap")
        fragments = fragments_of(universe, bonds)
        members = self._members(universe, fragments)
        whole = with_all(members, fragments[members], atoms)
        bonds = bonds[np.isin(bonds[:, 0], whole)]
        return Made("unwrap", len(atoms), np.searchsorted(atoms, bonds))

    def _members(self, universe: Any, fragments: np.ndarray) -> np.ndarray:
        """Atoms of all molecules that may be made whole."""
        if self.atomgroup is None:
            return np.arange(len(fragments))
        group = select(self.atomgroup, universe, "unwrap")
        return np.flatnonzero(np.isin(fragments, fragments[group.indices]))

    def parameters(self) -> str:
        return describe("unwrap", self.atomgroup)


def _check_residues(universe: Any, fragments: np.ndarray, atoms: np.ndarray) -> None:
    """Say where bonds are missing: in residues whose atoms belong to several fragments."""
    residue_of = universe.atoms.resindices
    concerned = np.isin(residue_of, residue_of[atoms])
    parts = np.unique(np.stack([residue_of[concerned], fragments[concerned]]), axis=1)
    residues, n_parts = np.unique(parts[0], return_counts=True)
    n_atoms = np.bincount(residue_of[concerned])[residues]
    unbonded = residues[(n_atoms > 1) & (n_parts == n_atoms)]
    if len(unbonded):
        raise UnsupportedError(
            f"unwrap: the topology has no bonds for {_names(universe, unbonded)}; load a topology "
            "that has them, guess them with universe.atoms.guess_bonds(), or name the molecules "
            "that have bonds: unwrap(atomgroup)"
        )
    divided = residues[n_parts > 1]
    if len(divided):
        warn(
            f"unwrap: the topology has no bonds between some atoms of "
            f"{_names(universe, divided)}; these atoms may come to lie in different images"
        )


def _names(universe: Any, resindices: np.ndarray) -> str:
    """How many residues, and the first of them by name."""
    residues = universe.residues[resindices[:3]]
    columns = [getattr(residues, name, None) for name in ("resnames", "resids")]
    columns = [column for column in columns if column is not None]
    names = [" ".join(str(value) for value in row) for row in zip(*columns, strict=True)]
    more = ", …" if len(resindices) > 3 else ""
    return f"{len(resindices)} residues ({', '.join(names)}{more})"
