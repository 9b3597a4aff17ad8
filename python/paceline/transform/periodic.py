"""Transformations in periodic cells: unwrap molecules, center a group, wrap atoms."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline import _core
from paceline.errors import UnsupportedError
from paceline.trajectory.open import warn
from paceline.transform.base import (
    CoreTransform,
    Transform,
    WorkerTransform,
    describe,
    known_weights,
    masses_of,
    select,
)


def bonds_of(universe: Any, name: str) -> np.ndarray:
    """Get pairs of bonded atoms, int64, shape (n_bonds, 2), for a transformation `name`.

    Raises
    ------
    UnsupportedError
        The topology has none.
    """
    # Universe.bonds makes an object of them first: 0.3 s for 25,000 bonds, and this 0.02 s.
    bonds = getattr(universe._topology, "bonds", None)
    if bonds is None or len(bonds.values) == 0:
        raise UnsupportedError(
            f"{name} needs bonds, and the topology has none; load a topology that has them (TPR, "
            "PSF, PRMTOP, MOL2, …), or guess them with universe.atoms.guess_bonds()"
        )
    return np.array(bonds.values, dtype=np.int64)


def fragments_of(universe: Any, bonds: np.ndarray) -> np.ndarray:
    """Find the molecule of each atom, by its first atom: int64, shape (n_atoms,)."""
    # AtomGroup.fragindices takes 0.6 s for 50,000 atoms, and this 0.001 s.
    return _core.fragments(len(universe.atoms), bonds)


def with_any(members: np.ndarray, compounds: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Select members of compounds of which any member is among the atoms.

    Examples
    --------
    >>> with_any(np.arange(6), np.array([0, 0, 2, 2, 2, 5]), np.array([1, 5]))
    array([0, 1, 5])
    """
    return members[np.isin(compounds, compounds[np.isin(members, atoms)])]


def with_all(members: np.ndarray, compounds: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Select members of compounds of which every member is among the atoms.

    Examples
    --------
    >>> with_all(np.arange(6), np.array([0, 0, 2, 2, 2, 5]), np.array([0, 1, 2, 5]))
    array([0, 1, 5])
    """
    return members[~np.isin(compounds, compounds[~np.isin(members, atoms)])]


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
        whose atoms belong to several molecules is named in a warning. Another one, at the end of
        the run, counts bonds that are longer than half the cell afterwards.

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
        self, atoms: np.ndarray, universe: Any, before: Sequence[WorkerTransform]
    ) -> WorkerTransform:
        bonds = bonds_of(universe, "unwrap")
        fragments = fragments_of(universe, bonds)
        members = self._members(universe, fragments)
        whole = with_all(members, fragments[members], atoms)
        bonds = bonds[np.isin(bonds[:, 0], whole)]
        return CoreTransform("unwrap", len(atoms), np.searchsorted(atoms, bonds))

    def _members(self, universe: Any, fragments: np.ndarray) -> np.ndarray:
        """Find the atoms of all molecules that are to be made whole."""
        if self.atomgroup is None:
            return np.arange(len(fragments))
        group = select(self.atomgroup, universe, "unwrap")
        return np.flatnonzero(np.isin(fragments, fragments[group.indices]))

    def parameters(self) -> str:
        return describe("unwrap", self.atomgroup)


def _check_residues(universe: Any, fragments: np.ndarray, atoms: np.ndarray) -> None:
    """Raise or warn if bonds are missing in residues: their atoms are of several fragments."""
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
    """Describe residues: their number, and the first of them by name."""
    residues = universe.residues[resindices[:3]]
    columns = [getattr(residues, name, None) for name in ("resnames", "resids")]
    columns = [column for column in columns if column is not None]
    names = [" ".join(str(value) for value in row) for row in zip(*columns, strict=True)]
    more = ", …" if len(resindices) > 3 else ""
    return f"{len(resindices)} residues ({', '.join(names)}{more})"


_COMPOUNDS = ("atoms", "group", "residues", "segments", "molecules", "fragments")


def center(
    atomgroup: Any,
    *,
    weights: str | None = None,
    point: Sequence[float] | None = None,
    wrap: bool = False,
) -> Transform:
    """Move the centre of a group to the middle of the cell, and all other atoms with it.

    As `MDAnalysis.transformations.center_in_box`. The group must be whole.

    Parameters
    ----------
    atomgroup : AtomGroup or str
        The group, or its selection.
    weights : {"mass"}, optional
        Take the centre of mass; by default the centre of geometry.
    point : sequence of float, shape (3,), optional
        Position of the centre, Å, instead of the middle of the cell.
    wrap : bool
        Take the centre of the atoms' images within the cell.

    Returns
    -------
    Transform
        For `paceline.run(…, transforms=[…])`.

    Raises
    ------
    ValueError
        Invalid weights or point.

    Examples
    --------
    >>> from paceline.transform import center
    >>> center("protein", weights="mass").parameters()
    "center('protein', weights=mass)"
    """
    if point is not None:
        point = tuple(float(x) for x in point)
        if len(point) != 3 or not np.isfinite(point).all():
            raise ValueError(f"point must be three finite numbers, not {point}")
    return _Center(atomgroup, known_weights(weights), point, wrap)


def wrap(atomgroup: Any = None, *, compound: str = "atoms") -> Transform:
    """Move atoms, or whole compounds of atoms, back into the cell.

    As `MDAnalysis.transformations.wrap`: the centre of mass of a compound ends within the cell.
    Only compounds with an atom that is analysed are decoded.

    Parameters
    ----------
    atomgroup : AtomGroup or str, optional
        The atoms, or their selection; by default all atoms. Atoms of a compound that are not in it
        do not move, and do not count for its centre.
    compound : {"atoms", "group", "residues", "segments", "molecules", "fragments"}
        Compounds that stay together.

    Returns
    -------
    Transform
        For `paceline.run(…, transforms=[…])`. In the run, it raises `UnsupportedError` where the
        topology does not know the compounds, or masses.

    Raises
    ------
    ValueError
        An unknown compound.

    Examples
    --------
    >>> from paceline.transform import wrap
    >>> wrap(compound="residues").parameters()
    'wrap(compound=residues)'
    """
    if compound not in _COMPOUNDS:
        raise ValueError(f"compound must be one of {', '.join(_COMPOUNDS)}, not {compound!r}")
    return _Wrap(atomgroup, compound)


@dataclass(frozen=True)
class _Center:
    atomgroup: Any
    weights: str | None
    point: tuple[float, ...] | None
    wrap: bool
    turns = False

    def atoms(self, wanted: np.ndarray, universe: Any) -> np.ndarray:
        return np.union1d(wanted, select(self.atomgroup, universe, "center").indices)

    def prepare(
        self, atoms: np.ndarray, universe: Any, before: Sequence[WorkerTransform]
    ) -> WorkerTransform:
        group = select(self.atomgroup, universe, "center")
        columns = np.searchsorted(atoms, group.indices)
        masses = None if self.weights is None else masses_of(group, "center")
        return CoreTransform("center", len(atoms), columns, masses, self.point, self.wrap)

    def parameters(self) -> str:
        options = {"weights": self.weights, "point": self.point, "wrap": self.wrap or None}
        return describe("center", self.atomgroup, **options)


@dataclass(frozen=True)
class _Wrap:
    atomgroup: Any
    compound: str
    turns = False

    def atoms(self, wanted: np.ndarray, universe: Any) -> np.ndarray:
        members, compounds = self._compounds(universe)
        return np.union1d(wanted, with_any(members, compounds, wanted))

    def prepare(
        self, atoms: np.ndarray, universe: Any, before: Sequence[WorkerTransform]
    ) -> WorkerTransform:
        members, compounds = self._compounds(universe)
        kept = np.isin(members, with_all(members, compounds, atoms))
        members, compounds = members[kept], compounds[kept]
        order = np.argsort(compounds, kind="stable")
        members = members[order]
        _, sizes = np.unique(compounds, return_counts=True)
        masses = None
        if (sizes > 1).any():
            masses = masses_of(universe.atoms[members], "wrap")
            # A virtual site alone is its own centre, whatever it weighs.
            masses[np.repeat(sizes, sizes) == 1] = 1.0
        columns = np.searchsorted(atoms, members)
        return CoreTransform("wrap", len(atoms), columns, sizes.astype(np.int64), masses)

    def _compounds(self, universe: Any) -> tuple[np.ndarray, np.ndarray]:
        """Find the atoms that are wrapped, and the compound of each."""
        group = universe.atoms
        if self.atomgroup is not None:
            group = select(self.atomgroup, universe, "wrap").unique
        members = group.indices
        if self.compound == "atoms":
            return members, members
        if self.compound == "group":
            return members, np.zeros_like(members)
        if self.compound == "fragments":
            bonds = bonds_of(universe, "wrap by fragments")
            return members, fragments_of(universe, bonds)[members]
        if self.compound == "molecules":
            if not hasattr(group, "molnums"):
                raise UnsupportedError(
                    "wrap by molecules needs their numbers, which TPR and ITP files have; "
                    "wrap by fragments takes what bonds connect"
                )
            return members, group.molnums
        return members, group.resindices if self.compound == "residues" else group.segindices

    def parameters(self) -> str:
        return describe("wrap", self.atomgroup, compound=self.compound)
