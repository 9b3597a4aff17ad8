"""Chains of molecules: backbone atoms of polymers in order, and neighbours among residues."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from paceline._util.arguments import one_of
from paceline.analysis.base import AnalysisBase
from paceline.contract.analysis_declaration import Option
from paceline.contract.run_info_and_descriptions import describe_atoms
from paceline.contract.system_interface import Atoms, Residues, System, are_several, attribute_of
from paceline.errors import SelectionError, UnsupportedError
from paceline.performance.number_format import many
from paceline.transform.bonds_and_compounds import bonds_of, compound_of_atoms
from paceline.transform.compare_atom_names import name_atom
from paceline.transform.selections_and_weights import check_static

#: Minimum number of atoms in a chain; three atoms form an angle.
LEAST_ATOMS = 3
#: A note reports the lengths of the longest and the shortest chain if their ratio is this or more.
UNEQUAL = 10
#: Minimum number of chains, or of time blocks, for a 95 % interval.
FEWEST = 10
#: Maximum number of groups of chains for the jackknife.
MOST_SAMPLES = 100
#: If adjacent atoms are farther apart than this multiple of their mean distance, a warning reports
#: that they may not be bonded.
STRETCHED = 3.0
ADVICE = "select the atoms of linear backbones (--select), without side groups and solvent"

#: Methods to find chains among selected atoms.
ChainKind = Literal["bonds", "fragments", "segments", "residues"]
CHAINS = Option(
    "chains",
    "chains: selected atoms connected by bonds, in bond order; or the atoms of each molecule, "
    "segment or residue, in the order of the topology [%(default)s]",
)


class PolymerChains(NamedTuple):
    """Backbones of chains: the atoms of all chains, and the number of atoms per chain.

    `indices` are indices in the Universe, int64, shape (n_atoms,), chain by chain. `sizes` has
    shape (n_chains,).
    """

    group: Atoms
    indices: np.ndarray
    sizes: np.ndarray

    @property
    def firsts(self) -> np.ndarray:
        """Position in `indices` of the first atom of each chain."""
        return np.cumsum(self.sizes) - self.sizes

    def __str__(self) -> str:
        least, most = self.sizes.min(), self.sizes.max()
        atoms = f"{least}" if least == most else f"{least} to {most}"
        return f"{many(len(self.sizes), 'chain')} of {atoms} atoms"

    def note(self, name: str) -> str | None:
        """Describe the lengths of chains if they are very unequal; otherwise return None.

        The lengths are very unequal, for example, if the selection contains solvent.
        """
        if self.sizes.max() < UNEQUAL * self.sizes.min():
            return None
        return (
            f"{name}: the selection contains {self}, and all of them count as chains: exclude "
            "small molecules, such as solvent, from it (--select)"
        )


class ChainAnalysis(AnalysisBase):
    """Base class of analyses of polymer chains."""

    needs_whole = measures_each = True

    def __init__(self, atomgroups: object, chains: ChainKind, verbose: bool):
        self._chains = chains_of(atomgroups, chains, type(self).__name__)
        super().__init__(self._chains.group, verbose=verbose)
        self.chains = "as given" if are_several(atomgroups) else chains

    @property
    def indices(self) -> np.ndarray:
        """Indices of the atoms of each chain, chain by chain, in the order along the chain."""
        return self._chains.indices

    def parameters(self) -> dict[str, object]:
        """Return descriptions of the atoms and of the chains, which are saved with the results."""
        return {
            "atoms": describe_atoms(self.atomgroup),
            "chains": f"{self._chains}, by {self.chains}",
        }

    def _note(self, longest: float, mean: float) -> None:
        """Warn of very unequal chains, and of adjacent atoms that are far apart.

        `longest` and `mean` are distances of adjacent atoms of a chain, Å.
        """
        self.remark("chains", self._chains.note(self.name))
        far = None
        if longest > STRETCHED * mean:
            far = (
                f"{self.name}: adjacent atoms of a chain are up to {longest:.4g} Å apart, and "
                f"{mean:.4g} Å on average: a chain is broken across the cell (--unwrap), or "
                "contains several molecules (--chains fragments, or bonds)"
            )
        self.remark("neighbours", far)


def samples_of_chains(n_chains: int) -> np.ndarray:
    """Return the number of the group of each chain; the jackknife leaves out one group at a time.

    A group consists of consecutive chains.
    """
    return np.arange(n_chains) * min(n_chains, MOST_SAMPLES) // n_chains


def chains_of(given: Any, kind: str, name: str) -> PolymerChains:
    """Find the chains among atoms by the method `kind`; each group of a list is one chain.

    Raises `SelectionError` if atoms do not form linear chains of at least three atoms.
    """
    one_of("chains", kind, *get_args(ChainKind))
    if are_several(given):
        return _chains_given(given, name)
    check_static(given, name)
    group = given.atoms.unique
    if len(group) == 0:
        raise SelectionError(f"{name}: the group contains no atoms")
    if kind == "bonds":
        indices, sizes = _follow_bonds(group, name)
    else:
        numbers = np.asarray(compound_of_atoms(group, kind, name))
        indices = group.indices[np.argsort(numbers, kind="stable")]
        _, sizes = np.unique(numbers, return_counts=True)
    return _check_lengths(PolymerChains(group, indices, sizes.astype(np.int64)), name)


def _chains_given(groups: Sequence[Any], name: str) -> PolymerChains:
    """Use each group of a list as a chain, with the atoms in the given order."""
    for one in groups:
        check_static(one, name)
    if not len(groups):
        raise SelectionError(f"{name}: the list contains no chains")
    atoms = [one.atoms for one in groups]
    if any(one.universe is not atoms[0].universe for one in atoms):
        raise UnsupportedError(f"{name}: all chains must belong to one Universe")
    indices = np.concatenate([one.indices for one in atoms])
    sizes = np.array([len(one) for one in atoms], dtype=np.int64)
    if len(np.unique(indices)) < len(indices):
        raise SelectionError(f"{name}: the chains contain an atom more than once")
    return _check_lengths(PolymerChains(sum(atoms[1:], atoms[0]), indices, sizes), name)


def _check_lengths(chains: PolymerChains, name: str) -> PolymerChains:
    """Raise `SelectionError` if a chain has too few atoms."""
    short = np.flatnonzero(chains.sizes < LEAST_ATOMS)
    if len(short):
        first = chains.group.universe.atoms[chains.indices[chains.firsts[short[0]]]]
        raise SelectionError(
            f"{name}: {len(short)} of {many(len(chains.sizes), 'chain')} (the first is that of "
            f"{name_atom(first)}) have less than {LEAST_ATOMS} selected atoms; {ADVICE}"
        )
    return chains


def _follow_bonds(group: Atoms, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of atoms, chain by chain, and the number of atoms of each chain.

    Atoms are ordered along the bonds of a chain, from the end with the lower index. Raises
    `SelectionError` if chains are branched, or have no ends.
    """
    bonds = bonds_of(group.universe, name)
    places = np.full(len(group.universe.atoms), -1)
    places[group.indices] = np.arange(len(group))
    bonds = places[np.unique(np.sort(bonds, axis=1), axis=0)]
    bonds = bonds[(bonds >= 0).all(axis=1)]
    degrees = np.bincount(bonds.ravel(), minlength=len(group))
    _check_degrees(group, degrees, name)
    # Sort bonds by their first atom; each bond occurs in both directions.
    both = np.concatenate([bonds, bonds[:, ::-1]])
    partners = both[np.argsort(both[:, 0], kind="stable"), 1].tolist()
    firsts = (np.cumsum(degrees) - degrees).tolist()
    n_partners, seen = degrees.tolist(), [False] * len(group)
    order, sizes = [], []
    for start in np.flatnonzero(degrees == 1).tolist():
        if seen[start]:
            continue
        before, at, length = -1, start, 0
        while True:
            seen[at] = True
            order.append(at)
            length += 1
            near = partners[firsts[at] : firsts[at] + n_partners[at]]
            onward = [one for one in near if one != before]
            if not onward:
                break
            before, at = at, onward[0]
        sizes.append(length)
    if len(order) < len(group):
        first = group[seen.index(False)]
        raise SelectionError(
            f"{name}: selected atoms are bonded to rings, which have no ends; the first atom of "
            f"one is {name_atom(first)}; {ADVICE}"
        )
    return group.indices[np.array(order)], np.array(sizes)


def _check_degrees(group: Atoms, degrees: np.ndarray, name: str) -> None:
    """Raise `SelectionError` if chains are branched, or if atoms have no bonded neighbour."""
    for wrong, what in (
        (degrees > 2, "bonded to more than two other selected atoms: the chains are branched"),
        (degrees == 0, "not bonded to another selected atom"),
    ):
        if wrong.any():
            count = int(wrong.sum())
            verb = "is" if count == 1 else "are"
            first = group[int(np.argmax(wrong))]
            others = ""
            if "not" in what:
                others = (
                    "; if chain neighbours are not bonded, such as Cα atoms, use "
                    "chains='fragments' (--chains fragments), in the order of the topology"
                )
            raise SelectionError(
                f"{name}: {many(count, 'selected atom')} {verb} {what} (the first is "
                f"{name_atom(first)}); {ADVICE}{others}"
            )


class Chains:
    """Residues of a Universe in the order of the topology.

    Two residues are neighbours if they are adjacent in one segment, and their numbers are
    consecutive or equal (as with insertion codes).
    """

    def __init__(self, universe: System):
        self._residues = universe.residues
        resids, segments = self._residues.resids, self._residues.segindices
        follows = (np.diff(segments) == 0) & np.isin(np.diff(resids), (0, 1))
        #: `_has_before` is True for residues with a previous neighbour, and `_has_after` for
        #: residues with a next neighbour.
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

        Returns five groups, with one atom per residue each. Residues without both neighbours, or
        without exactly one atom for each of the five, are left out.
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
