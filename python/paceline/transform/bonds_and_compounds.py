"""Bonds, fragments and virtual sites; compounds of atoms, such as residues, and their centers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from paceline import _core
from paceline._util.sorted_unique import sorted_unique
from paceline.block import Block
from paceline.contract.system_interface import (
    Atoms,
    Selected,
    System,
    attribute_of,
    topology_attributes_of,
    topology_of,
)
from paceline.contract.transform_interface import CoreTransform, WorkerTransform
from paceline.errors import SelectionError, UnsupportedError
from paceline.transform.compare_atom_names import name_atom
from paceline.transform.known_and_guessed_bonds import bond_list
from paceline.transform.masses import masses_of
from paceline.transform.selections_and_weights import select

T = TypeVar("T")

#: Masses and residue indices of atoms; None if the topology contains no masses.
_Given = tuple[np.ndarray, np.ndarray] | None


@dataclass(eq=False)
class MolecularBonds:
    """Bonds that connect the atoms of each molecule, and results that were computed from them."""

    n_atoms: int
    #: Bonds of `bond_list`, and one for each virtual site without bonds: int64, shape (n_bonds, 2).
    pairs: np.ndarray
    #: Bonds of `bond_list`, which include added and guessed bonds.
    listed: np.ndarray
    #: Masses and residues from which the bonds of virtual sites were derived.
    given: _Given = None
    #: Key and result of the last computation of each kind of result.
    _made: dict[str, tuple[object, Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.pairs)

    @cached_property
    def fragments(self) -> np.ndarray:
        """Index of the first atom of each atom's molecule: int64, shape (n_atoms,), read-only."""
        # AtomGroup.fragindices takes 0.6 s for 50,000 atoms, `_core.fragments` 0.001 s.
        found = _core.fragments(self.n_atoms, self.pairs)
        found.flags.writeable = False
        return found

    def compute_once(self, kind: str, key: object, make: Callable[[], T]) -> T:
        """Return the result of `make` for a key, computed only if the last key was another one.

        `kind` names the result; the last key and result of each kind are stored.
        """
        last = self._made.get(kind)
        if last is None or last[0] != key:
            last = self._made[kind] = key, make()
        made: T = last[1]
        return made

    def with_pairs(self, further: np.ndarray) -> "MolecularBonds":
        """Return bonds that also contain the pairs of atoms `further`, shape (n_pairs, 2)."""
        pairs = np.concatenate([self.pairs, further])
        return MolecularBonds(self.n_atoms, pairs, self.listed, self.given)


#: Molecular bonds by topology, valid while its bonds, masses and residues stay the same.
_known: WeakKeyDictionary[Any, MolecularBonds] = WeakKeyDictionary()


def bonds_of(universe: System, name: str) -> np.ndarray:
    """Return pairs of bonded atoms, int64, shape (n_bonds, 2), read-only.

    If the topology lacks them, bonds of standard residues are added (`bond_list`). Raises
    `UnsupportedError` if there are no bonds; its message states that `name` needs them.
    """
    found = bond_list(universe)
    if not len(found.bonds):
        raise UnsupportedError(
            f"{name} needs bonds, but the topology has none; load a topology that has them (TPR, "
            "PSF, PRMTOP, MOL2, …), or have them guessed by distance: guess_bonds=True "
            "(--guess-bonds)"
        )
    found.used = True
    return found.bonds


def known_bonds(universe: System) -> MolecularBonds:
    """Return the bonds that connect the atoms of each molecule; empty without bonds."""
    return _molecular(universe, bond_list(universe).bonds)


def molecular_bonds_of(universe: System, name: str) -> MolecularBonds:
    """Return all bonds, and an additional bond for each virtual site without bonds.

    TPR files list no bonds of virtual sites, such as MW of four-site water. Therefore an atom that
    has a mass of 0 and no bonds is bonded to the first of the heaviest atoms of its residue. This
    is not done if masses are guessed, because any unknown atom may then have a mass of 0. It is
    also not done if the other atoms of the residue belong to several molecules or have no mass. The
    arrays are read-only. Raises the errors of `bonds_of`.
    """
    return _molecular(universe, bonds_of(universe, name))


def _molecular(universe: System, bonds: np.ndarray) -> MolecularBonds:
    """Add bonds of virtual sites to the bonds of a topology, unless this was done before."""
    if not len(bonds):
        return MolecularBonds(len(universe.atoms), bonds, bonds)
    topology, given = topology_of(universe), None
    if not _lacks_masses(universe):
        given = topology.masses.values, universe.atoms.resindices
    known = _known.get(topology)
    if known is None or known.listed is not bonds or _differ(given, known.given):
        pairs = bonds if given is None else _with_sites(universe, bonds, *given)
        pairs.flags.writeable = False
        given = given and (given[0].copy(), given[1].copy())
        known = _known[topology] = MolecularBonds(len(universe.atoms), pairs, bonds, given)
    return known


def _differ(given: _Given, known: _Given) -> bool:
    """Return True if masses or residues differ from the cached ones."""
    if given is None or known is None:
        return given is not known
    return not all(map(np.array_equal, given, known))


def _with_sites(
    universe: System, bonds: np.ndarray, masses: np.ndarray, residues: np.ndarray
) -> np.ndarray:
    """Return the bonds, and one more for each virtual site without bonds."""
    is_site = masses == 0
    is_site[bonds] = False
    sites = np.flatnonzero(is_site)
    if len(sites) == 0:
        return bonds
    concerned = np.zeros(len(universe.residues), bool)
    concerned[residues[sites]] = True
    others = np.flatnonzero(concerned[residues] & ~is_site)
    others = others[np.lexsort([-masses[others], residues[others]])]
    numbers, firsts, places = np.unique(residues[others], return_index=True, return_inverse=True)
    molecules = _core.fragments(len(masses), bonds)[others]
    n_apart = np.bincount(places, weights=molecules != molecules[firsts][places])
    heaviest = others[firsts]
    is_one = (n_apart == 0) & (masses[heaviest] > 0)
    partners = np.full(len(universe.residues), -1)
    partners[numbers[is_one]] = heaviest[is_one]
    added = np.stack([partners[residues[sites]], sites], axis=1)
    return np.concatenate([bonds, added[added[:, 0] >= 0]])


def molecules_with(
    universe: System, atomgroup: Selected | None, fragments: np.ndarray, name: str
) -> np.ndarray:
    """Return all atoms of the molecules that have an atom in a group; by default of all molecules.

    The group may be a selection text of the transformation `name`. `fragments` are those of
    `MolecularBonds`.
    """
    if atomgroup is None:
        return np.arange(len(fragments))
    group = select(atomgroup, universe, name)
    return np.flatnonzero(np.isin(fragments, fragments[group.indices]))


def _lacks_masses(universe: System) -> bool:
    """Return True if a topology has no masses, or only masses that MDAnalysis has guessed."""
    (attribute,) = topology_attributes_of(universe, "masses")
    return attribute is None or bool(attribute.is_guessed)


def advice_on_sites(universe: System) -> str:
    """Return advice for the end of a message if virtual sites cannot be identified, else ""."""
    if not _lacks_masses(universe):
        return ""
    return (
        "; virtual sites are identified by a mass of 0, but the topology contains no masses: use "
        "one that does (TPR, PSF, PRMTOP, …)"
    )


def fragindices_of(group: Atoms, name: str) -> np.ndarray:
    """Number the molecule of each atom, as MDAnalysis's `fragindices`, but with virtual sites.

    Raises `UnsupportedError` if the topology has no bonds.
    """
    fragments = molecular_bonds_of(group.universe, name).fragments
    numbers = np.cumsum(fragments == np.arange(len(fragments))) - 1
    return numbers[fragments[group.indices]]


def compound_of_atoms(group: Atoms, compound: str, name: str) -> np.ndarray:
    """Return the number of each atom's residue, segment, molecule or fragment.

    Raises `UnsupportedError` if the topology does not define the compound; the message states that
    `name` needs it.
    """
    if compound == "fragments":
        return fragindices_of(group, f"{name} by fragments")
    if compound == "molecules":
        if (numbers := attribute_of(group, "molnums")) is None:
            raise UnsupportedError(
                f"{name} by molecules needs molecule numbers, which TPR and ITP files contain; "
                f"{name} by fragments uses sets of bonded atoms instead"
            )
        return np.asarray(numbers)
    return group.resindices if compound == "residues" else group.segindices


def with_any(members: np.ndarray, compounds: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Return all members of the compounds that have at least one member among the atoms.

    Examples
    --------
    >>> with_any(np.arange(6), np.array([0, 0, 2, 2, 2, 5]), np.array([1, 5]))
    array([0, 1, 5])
    """
    return members[np.isin(compounds, compounds[np.isin(members, atoms)])]


def with_all(members: np.ndarray, compounds: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Return all members of the compounds whose members are all among the atoms.

    Examples
    --------
    >>> with_all(np.arange(6), np.array([0, 0, 2, 2, 2, 5]), np.array([0, 1, 2, 5]))
    array([0, 1, 5])
    """
    return members[~np.isin(compounds, compounds[~np.isin(members, atoms)])]


@dataclass(frozen=True)
class Compounds:
    """Compounds of a group: atoms sorted by compound, sizes of compounds, and atom weights."""

    kind: str | None
    indices: np.ndarray
    sizes: np.ndarray
    weights: np.ndarray

    @property
    def firsts(self) -> np.ndarray:
        """Index in `indices` of the first atom of each compound."""
        return np.cumsum(self.sizes) - self.sizes


def compounds_of(group: Atoms, compound: str | None, center: str, name: str) -> Compounds:
    """Find the compounds of a group; with `compound` None, each atom is a compound.

    `center` is "mass" or "geometry". Raises `UnsupportedError` if the topology does not define the
    compounds or masses. Raises `SelectionError` if a compound has no mass, or if the group contains
    an atom twice, and `ValueError` for masses that are negative or not finite.
    """
    if compound is None:
        ones = np.ones(len(group))
        return Compounds(None, group.indices, ones.astype(np.int64), ones)
    if len(group.unique) != len(group):
        raise SelectionError(f"{name}: a group of {compound} has an atom twice; use group.unique")
    numbers = np.asarray(compound_of_atoms(group, compound, name))
    order = np.argsort(numbers, kind="stable")
    _, sizes = np.unique(numbers, return_counts=True)
    sizes, weights = sizes.astype(np.int64), np.ones(len(group))
    if center == "mass":
        weights = masses_of(group, f"{name}: a center of mass")[order]
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise ValueError(f"{name}: masses must be finite numbers, and none negative")
        heavy, firsts = weights > 0, np.cumsum(sizes) - sizes
        n_heavy = np.add.reduceat(heavy, firsts, dtype=np.int64)
        if not n_heavy.all():
            massless = np.flatnonzero(n_heavy == 0)
            first = group[order[firsts[massless[0]]]]
            raise SelectionError(
                f"{name}: {len(massless)} of the {compound} (the first is that of "
                f"{name_atom(first)}) have no mass, and so no center of mass; leave them out, or "
                "use center='geometry' (--geometry)"
                f"{advice_on_sites(group.universe)}"
            )
        # Leave out massless virtual sites: they do not affect a center, and may have no bonds.
        order, sizes, weights = order[heavy], n_heavy, weights[heavy]
    return Compounds(compound, group.indices[order], sizes, weights)


class CompoundCenters:
    """Worker part that computes the centers of compounds, for one or several groups.

    With `whole`, molecules are first made whole along their bonds, as by `unwrap`. The attribute
    `indices` contains the atoms that must be decoded.
    """

    def __init__(self, groups: Sequence[Compounds], universe: System, whole: bool, name: str):
        several = [np.repeat(one.sizes, one.sizes) > 1 for one in groups]
        parts = [one.indices[some] for one, some in zip(groups, several, strict=True)]
        joined = sorted_unique(*parts)
        self._groups = groups
        self._unwrap: WorkerTransform | None = None
        molecules = joined[:0]
        if whole and len(joined):
            kind = groups[0].kind or groups[1].kind
            bonds = molecular_bonds_of(universe, f"{name}, to make {kind} whole,")
            fragments = bonds.fragments
            for one in groups:
                _check_connected(one, fragments, universe, name)
            molecules = np.flatnonzero(np.isin(fragments, fragments[joined]))
            pairs = bonds.pairs[np.isin(bonds.pairs[:, 0], molecules)]
        #: For each group, two columns of each atom among `indices`: the column of its decoded
        #: position, and the column of its position in a whole molecule.
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
            pairs = np.searchsorted(molecules, pairs).astype(np.int64)
            self._unwrap = CoreTransform("unwrap", len(self.indices), pairs)

    def of(self, block: Block) -> np.ndarray:
        """Compute the centers, Å: float32, shape (n_frames, n_compounds, 3)."""
        columns = np.concatenate([places for _, places in self._columns])
        sizes = np.concatenate([one.sizes for one in self._groups])
        weights = np.concatenate([one.weights for one in self._groups])
        return _core.centers(self.positions(block), columns, sizes, weights)

    def of_some(
        self, positions: np.ndarray, group: int, atoms: np.ndarray, sizes: np.ndarray
    ) -> np.ndarray:
        """Compute the centers of the compounds that some atoms of a group form, Å.

        `positions` is a result of the method `positions`. `atoms` are indices into the group's
        `indices`, sorted by compound. The center of a single atom is its position, in any image.
        """
        alone, places = (columns[atoms] for columns in self._columns[group])
        columns = np.where(np.repeat(sizes, sizes) > 1, places, alone)
        return _core.centers(positions, columns, sizes, self._groups[group].weights[atoms])

    def positions(self, block: Block) -> np.ndarray:
        """Return positions of the atoms `indices`, in whole molecules, Å, for `of_some`.

        The shape is (n_frames, n_indices, 3).
        """
        positions, columns = block.raw
        if columns is not None:
            positions = np.take(positions, columns[: len(self.indices)], axis=1)
        if self._unwrap is None:
            return positions
        # Skip frames without a cell: they have no periodic images, and their molecules are whole.
        rows = np.flatnonzero(block.dimensions[:, :3].any(axis=1))
        some = positions[rows]
        self._make_whole(some, block.cells[rows], block.frames[rows])
        if len(rows) == len(positions):
            return some
        positions = positions.copy()
        positions[rows] = some
        return positions

    def _make_whole(self, positions: np.ndarray, cells: np.ndarray, frames: np.ndarray) -> None:
        """Make molecules whole; raise `ValueError` for the first frame in which this fails."""
        refused, long = self._unwrap.apply_noting(positions, cells)  # type: ignore[union-attr]
        for row, reason in refused:
            raise ValueError(f"frame {frames[row]}: {reason}")
        for row, n_bonds, atoms, length in long:
            first, second = self.indices[list(atoms)]
            raise ValueError(
                f"frame {frames[row]}: {n_bonds} bonds are longer than half the cell after "
                f"molecules were made whole; the longest has {length:.1f} Å, between the atoms of "
                f"index {first} and {second}: the centers of such compounds are not defined"
            )


def _check_connected(
    compounds: Compounds, fragments: np.ndarray, universe: System, name: str
) -> None:
    """Raise `SelectionError` if a compound's atoms belong to several molecules."""
    of_atoms = fragments[compounds.indices]
    apart = np.flatnonzero(of_atoms != np.repeat(of_atoms[compounds.firsts], compounds.sizes))
    if len(apart):
        raise SelectionError(
            f"{name}: no bonds connect {name_atom(universe.atoms[compounds.indices[apart[0]]])} to "
            f"the rest of its compound (one of the {compounds.kind}), so that its center is "
            "not defined: leave it out, use compound='fragments', or make compounds whole by "
            "transforms, and set unwrap=False"
            f"{advice_on_sites(universe)}"
        )
