"""Molecules and other compounds of atoms: which atoms they have, and their centers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline import _core
from paceline.block import Block
from paceline.errors import (
    SelectionError,
)
from paceline.transform.base import (
    CoreTransform,
    WorkerTransform,
    bonds_of,
    compound_of_atoms,
    fragments_of,
    masses_of,
)


@dataclass(frozen=True)
class Compounds:
    """Compounds of a group: atoms, one compound after the other, sizes, and weights of atoms."""

    kind: str | None
    indices: np.ndarray
    sizes: np.ndarray
    weights: np.ndarray

    @property
    def firsts(self) -> np.ndarray:
        """Place of the first atom of each compound."""
        return np.cumsum(self.sizes) - self.sizes


def compounds_of(group: Any, compound: str | None, center: str, name: str) -> Compounds:
    """Find the compounds of a group, or take each atom as one; `center` is "mass" or "geometry".

    Raises
    ------
    UnsupportedError
        The topology does not know the compounds, or masses.
    SelectionError
        A compound has no mass, or the group has an atom twice.
    """
    if compound is None:
        ones = np.ones(len(group))
        return Compounds(None, group.indices, ones.astype(np.int64), ones)
    if len(group.unique) != len(group):
        raise SelectionError(f"{name}: a group of {compound} has an atom twice; give group.unique")
    numbers = np.asarray(compound_of_atoms(group, compound, name))
    order = np.argsort(numbers, kind="stable")
    _, sizes = np.unique(numbers, return_counts=True)
    sizes, weights = sizes.astype(np.int64), np.ones(len(group))
    if center == "mass":
        weights = masses_of(group, f"{name}, center='mass',")[order]
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise ValueError(f"{name}: masses must be finite numbers, and none negative")
        heavy, firsts = weights > 0, np.cumsum(sizes) - sizes
        n_heavy = np.add.reduceat(heavy, firsts, dtype=np.int64)
        if not n_heavy.all():
            massless = np.flatnonzero(n_heavy == 0)
            first = group[order[firsts[massless[0]]]]
            raise SelectionError(
                f"{name}: {len(massless)} of the {compound} (the first is that of {first}) have no "
                "mass, and so no center of mass; leave them out, or take center='geometry'"
            )
        # Virtual sites have no mass, and often no bonds.
        order, sizes, weights = order[heavy], n_heavy, weights[heavy]
    return Compounds(compound, group.indices[order], sizes, weights)


class CompoundCenters:
    """Centers of the compounds of some groups, one group after the other: a worker's half.

    If `whole`, molecules are made whole along their bonds first, as `unwrap` does. `indices` are
    the atoms that it needs.
    """

    def __init__(self, groups: Sequence[Compounds], universe: Any, whole: bool, name: str):
        several = [np.repeat(one.sizes, one.sizes) > 1 for one in groups]
        parts = [one.indices[some] for one, some in zip(groups, several, strict=True)]
        joined = np.unique(np.concatenate(parts))
        self._groups = groups
        self._unwrap: WorkerTransform | None = None
        molecules = joined[:0]
        if whole and len(joined):
            bonds = bonds_of(universe, f"{name}, to make {groups[0].kind or groups[1].kind} whole,")
            fragments = fragments_of(universe, bonds)
            for one in groups:
                _check_connected(one, fragments, universe, name)
            molecules = np.flatnonzero(np.isin(fragments, fragments[joined]))
            bonds = bonds[np.isin(bonds[:, 0], molecules)]
        #: Of each group, columns of its atoms as they are, and in whole molecules.
        self._columns: list[tuple[np.ndarray, np.ndarray]] = []
        first = len(molecules)
        for one, some in zip(groups, several, strict=True):
            alone = first + np.arange(len(one.indices))
            places = alone.copy()
            if len(molecules):
                places[some] = np.searchsorted(molecules, one.indices[some])
            self._columns.append((alone, places))
            first += len(places)
        self.indices = np.concatenate([molecules, *(one.indices for one in groups)])
        if len(molecules):
            bonds = np.searchsorted(molecules, bonds).astype(np.int64)
            self._unwrap = CoreTransform("unwrap", len(self.indices), bonds)

    def of(self, block: Block) -> np.ndarray:
        """Compute the centers, Å: float32, shape (n_frames, n_compounds, 3)."""
        columns = np.concatenate([places for _, places in self._columns])
        sizes = np.concatenate([one.sizes for one in self._groups])
        weights = np.concatenate([one.weights for one in self._groups])
        return _core.centers(self.positions(block), columns, sizes, weights)

    def of_some(
        self, positions: np.ndarray, group: int, atoms: np.ndarray, sizes: np.ndarray
    ) -> np.ndarray:
        """Compute centers of those compounds that some atoms of a group make up, Å.

        Positions are those of `positions`; atoms are places in `indices` of the group, compound by
        compound. One alone is where it is, in whichever image.
        """
        alone, places = (columns[atoms] for columns in self._columns[group])
        columns = np.where(np.repeat(sizes, sizes) > 1, places, alone)
        return _core.centers(positions, columns, sizes, self._groups[group].weights[atoms])

    def positions(self, block: Block) -> np.ndarray:
        """Collect positions, Å, those of molecules whole: shape (n_frames, n_indices, 3)."""
        positions, columns = block.raw
        if columns is not None:
            positions = np.take(positions, columns[: len(self.indices)], axis=1)
        if self._unwrap is None:
            return positions
        # Frames without a cell have no images, and their molecules are whole.
        rows = np.flatnonzero(block.dimensions[:, :3].any(axis=1))
        some = positions[rows]
        self._make_whole(some, block.dimensions[rows], block.frames[rows])
        if len(rows) == len(positions):
            return some
        positions = positions.copy()
        positions[rows] = some
        return positions

    def _make_whole(
        self, positions: np.ndarray, dimensions: np.ndarray, frames: np.ndarray
    ) -> None:
        """Make molecules whole; raise `ValueError` for the first frame where that is impossible."""
        refused, long = self._unwrap.apply_noting(positions, dimensions)  # type: ignore[union-attr]
        for row, reason in refused:
            raise ValueError(f"frame {frames[row]}: {reason}")
        for row, n_bonds, atoms, length in long:
            first, second = self.indices[list(atoms)]
            raise ValueError(
                f"frame {frames[row]}: {n_bonds} bonds are longer than half the cell after "
                f"molecules were made whole; the longest has {length:.1f} Å, between the atoms of "
                f"index {first} and {second}: the centers of such compounds are not known"
            )


def _check_connected(compounds: Compounds, fragments: np.ndarray, universe: Any, name: str) -> None:
    """Raise `SelectionError` where a compound's atoms are of several molecules."""
    of_atoms = fragments[compounds.indices]
    apart = np.flatnonzero(of_atoms != np.repeat(of_atoms[compounds.firsts], compounds.sizes))
    if len(apart):
        raise SelectionError(
            f"{name}: no bonds connect {universe.atoms[compounds.indices[apart[0]]]} to the rest "
            f"of its compound, one of the {compounds.kind}, so that its center is not known: "
            "leave it out, take compound='fragments', or make compounds whole by transforms, and "
            "give unwrap=False"
        )
