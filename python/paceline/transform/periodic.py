"""Transformations in periodic cells: center a group, wrap atoms."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.transform.base import (
    CoreTransform,
    Transform,
    WorkerTransform,
    compound_of_atoms,
    describe,
    known_weights,
    masses_of,
    select,
    with_all,
    with_any,
)

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
        For `paceline.run(…, transforms=[…])`. The run raises `TransformError` at a frame in which a
        position of the group is not finite, or without a cell where one is needed.

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
        Compounds that stay together; "fragments" are what bonds connect, and their virtual sites,
        as in `unwrap`.

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

    def whole_atoms(self, universe: Any) -> np.ndarray:
        return select(self.atomgroup, universe, "center").indices

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
        return members, compound_of_atoms(group, self.compound, "wrap")

    def parameters(self) -> str:
        return describe("wrap", self.atomgroup, compound=self.compound)
