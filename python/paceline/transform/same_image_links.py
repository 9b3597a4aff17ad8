"""Links between atoms that must be in the same image: known or guessed bonds, and contacts."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from paceline import _core
from paceline._util.sorted_unique import sorted_unique
from paceline.block import cell_of
from paceline.contract.system_interface import System, attribute_of, positions_in
from paceline.errors import TransformError
from paceline.transform.bonds_and_compounds import MolecularBonds
from paceline.transform.distances import REACH, distances, near_pairs, read_frame, widths

#: Distance below which atoms of different molecules are in contact, Å, in the first search.
CONTACT = 4.0
#: Factor by which this distance grows in each further search, until all molecules are connected.
FARTHER = 1.25
#: Maximum distance between analysed atoms, such as Cα, of two molecules in contact, Å.
NEAR = 8.0
#: Maximum number of molecules of a group between which contacts are searched.
MOLECULES = 64
#: Minimum number of residues of a chain whose contacts are searched.
CHAIN_RESIDUES = 3
#: Minimum number of atoms of other molecules whose contacts are searched. Ions and water, which
#: touch all molecules, have fewer atoms.
LEAST_ATOMS = 6
#: Assumed length of a bond of unknown length, Å.
USUAL_BOND = 2.0
#: Assumed smallest height of an unknown cell, Å.
USUAL_HEIGHT = 30.0
#: Maximum length of a guessed bond with hydrogen, Å; hydrogen bonds are longer.
HYDROGEN_BOND = 1.3
#: Maximum length of a guessed bond of heavy atoms, Å; heavy atoms without a bond are farther apart.
OTHER_BOND = 2.15
#: Maximum distance between atoms of one name in adjacent residues of a chain, Å, by atom name. It
#: replaces bond lengths for groups of such atoms, for example of all Cα.
IN_CHAIN = {"CA": 4.3, "BB": 4.6, "P": 7.8, "N": 4.6, "C": 4.6, "CB": 6.8}


class Links(NamedTuple):
    """Links: pairs of atoms that a path of bonds connects, and the number of bonds in each path.

    No path has more than `longest` bonds, and is therefore shorter than half the cell. `atoms` are
    all atoms that must be decoded, increasing. `guessed` is true if bonds were guessed from
    distances.
    """

    atoms: np.ndarray
    pairs: np.ndarray
    lengths: np.ndarray
    longest: int
    guessed: bool


def find_links(
    universe: System, bonds: MolecularBonds, groups: Sequence[np.ndarray]
) -> Links | None:
    """Find links between atoms of groups that belong to one molecule; None if there are none.

    If most atoms have no bonds in the topology, bonds are guessed from distances in the current
    frame.
    """
    key = [group.tobytes() for group in groups]
    guessed = bonds.compute_once("unbonded", key, lambda: _is_mostly_unbonded(bonds, groups))
    if guessed:
        bonds = bonds.with_pairs(_guess(universe, sorted_unique(*groups)))
    wanted, concerned, ends = bonds.compute_once(
        "concerned", key, lambda: _find_split_molecules(bonds, groups)
    )
    if not len(concerned):
        return None
    longest = bonds.compute_once(
        "longest", _frame_of(universe, ends), lambda: _longest_path(universe, concerned)
    )
    return bonds.compute_once(
        "links", (key, longest), lambda: _links(bonds.n_atoms, concerned, wanted, longest, guessed)
    )


def _is_mostly_unbonded(bonds: MolecularBonds, groups: Sequence[np.ndarray]) -> bool:
    """Return True if most atoms of the groups have no bonds."""
    wanted, is_bonded = sorted_unique(*groups), np.zeros(bonds.n_atoms, bool)
    is_bonded[bonds.pairs] = True
    return bool(2 * np.count_nonzero(is_bonded[wanted]) < len(wanted))


def _find_split_molecules(
    bonds: MolecularBonds, groups: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the molecules that contain several atoms of a group.

    Return the group atoms in these molecules, the bonds of these molecules, and the bonded atoms.
    """
    fragments, pairs = bonds.fragments, bonds.pairs
    wanted, several = sorted_unique(*groups), np.zeros(len(fragments), bool)
    for group in groups:
        is_inside = np.zeros(len(fragments), bool)
        is_inside[group] = True
        several |= np.bincount(fragments[is_inside], minlength=len(fragments)) > 1
    concerned = several[fragments]
    pairs = pairs[concerned[pairs[:, 0]]]
    return wanted[concerned[wanted]], pairs, sorted_unique(pairs.ravel())


def _frame_of(universe: System, atoms: np.ndarray) -> tuple[bytes, bytes]:
    """Return the cell and positions of the current frame as bytes, which identify the frame."""
    positions = positions_in(universe.trajectory, atoms)
    return cell_of(universe.trajectory).tobytes(), positions.tobytes()


def _links(
    n_atoms: int, bonds: np.ndarray, wanted: np.ndarray, longest: int, guessed: bool
) -> Links:
    pairs, lengths, added = _core.links(n_atoms, bonds, wanted, longest)
    return Links(sorted_unique(wanted, added), pairs, lengths, longest, guessed)


def _longest_path(universe: System, bonds: np.ndarray) -> int:
    """Return the largest number of bonds whose total length is surely less than half the cell."""
    cell = cell_of(universe.trajectory)
    height = widths(cell).min()
    if not np.isfinite(height):
        return max(1, int(REACH * USUAL_HEIGHT / USUAL_BOND))
    lengths = distances(positions_in(universe.trajectory), bonds, cell)
    lengths = lengths[lengths < REACH * height]
    length = max(lengths.max(initial=0.0), 1.0) if len(lengths) else USUAL_BOND
    return max(1, int(REACH * height / length))


def _guess(universe: System, atoms: np.ndarray) -> np.ndarray:
    """Guess bonds of atoms from distances in the current frame: int64, shape (n_bonds, 2)."""
    trajectory = universe.trajectory
    positions, cell = positions_in(trajectory, atoms), cell_of(trajectory)
    known = attribute_of(universe.atoms[atoms], "names")
    names = np.char.upper(np.array([""] * len(atoms) if known is None else known, dtype=str))
    records, refused = near_pairs(positions, cell, np.arange(len(atoms)), OTHER_BOND)
    if refused:
        return np.empty((0, 2), np.int64)
    ends = np.stack([records["first"], records["second"]], axis=1).astype(np.int64)
    is_hydrogen = np.char.startswith(np.char.lstrip(names, "0123456789"), "H")
    n_hydrogens = is_hydrogen[ends].sum(axis=1)
    most = np.array([OTHER_BOND, HYDROGEN_BOND, 0.0])[n_hydrogens]
    ends = ends[records["distance"] < most]
    return atoms[np.concatenate([ends, _chain(universe, atoms, names, positions, cell)])]


def _chain(
    universe: System, atoms: np.ndarray, names: np.ndarray, positions: np.ndarray, cell: np.ndarray
) -> np.ndarray:
    """Return pairs of atoms of adjacent residues that have one name in `IN_CHAIN`, such as Cα.

    The pairs are rows of `positions`, shape (n, 2).
    """
    group = universe.atoms[atoms]
    known = attribute_of(group, "resids")
    resids = np.asarray(group.resindices if known is None else known)
    segments, found = group.segindices, [np.empty((0, 2), np.int64)]
    for kind, most in IN_CHAIN.items():
        rows = np.flatnonzero(names == kind)
        ends = np.stack([rows[:-1], rows[1:]], axis=1)
        follow = (resids[ends[:, 1]] - resids[ends[:, 0]]) == 1
        ends = ends[follow & (segments[ends[:, 0]] == segments[ends[:, 1]])]
        found.append(ends[distances(positions, ends, cell) < most])
    return np.concatenate(found)


def molecules_side_by_side(
    universe: System, group: np.ndarray, fragments: np.ndarray
) -> np.ndarray:
    """Return the indices of a group's atoms in chains and other large molecules.

    Ions and water are ignored. Molecules other than chains are included only if there are at most
    64 molecules with them. The result is empty if there are more than 64 chains.
    """
    sizes = np.bincount(fragments, minlength=len(fragments))
    chains = np.isin(fragments[group], _chains(universe, fragments, group))
    for chosen in (group[chains | (sizes[fragments[group]] >= LEAST_ATOMS)], group[chains]):
        if len(np.unique(fragments[chosen])) <= MOLECULES:
            return chosen
    return group[:0]


def _chains(universe: System, fragments: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Return the first atoms of molecules that have `CHAIN_RESIDUES` or more residues in `atoms`.

    The residue of a molecule's first atom counts, too.
    """
    residues = universe.atoms.resindices
    # Select the atoms outside the first residue of their molecule. These are few, because most
    # molecules have only one residue.
    atoms = atoms[residues[atoms] != residues[fragments[atoms]]]
    others = np.unique(fragments[atoms] * len(universe.residues) + residues[atoms])
    numbers, n_others = np.unique(others // len(universe.residues), return_counts=True)
    return numbers[n_others + 1 >= CHAIN_RESIDUES]


def nearest_contacts(
    universe: System, atoms: np.ndarray, molecules: np.ndarray, most: float = np.inf
) -> tuple[np.ndarray, np.ndarray]:
    """Connect molecules by the nearest pairs of their atoms in the first frame.

    Returns the pairs, shape (n_pairs, 2), and the first atom of each isolated molecule: one that is
    farther than half the cell, or than `most` (Å), from every other molecule.
    """
    positions, cell = read_frame(universe, atoms)
    farthest = min(most, float(widths(cell).min() / 2))
    spread = float(np.ptp(positions, axis=0).sum()) if len(positions) else 0.0
    labels, firsts = np.unique(molecules, return_index=True)
    complexes, some, found = molecules, None, []
    cutoff = min(CONTACT, farthest)
    while len(np.unique(complexes[firsts])) > 1:
        pairs, refused = near_pairs(positions, cell, complexes, cutoff, some)
        if refused:
            raise TransformError(
                f"unwrap: together= uses contacts in the first frame, but {refused}"
            )
        joined, complexes = _join(pairs, complexes)
        found.append(joined)
        if cutoff >= farthest or cutoff > spread:
            break
        cutoff = min(FARTHER * cutoff, farthest)
        # Do not search from atoms of the largest complex, because its many inner pairs take time.
        numbers, sizes = np.unique(complexes, return_counts=True)
        some = np.flatnonzero(complexes != numbers[sizes.argmax()])
    numbers, sizes = np.unique(complexes[firsts], return_counts=True)
    is_alone = np.isin(complexes[firsts], numbers[sizes == 1]) & (len(labels) > 1)
    rows = np.concatenate([np.empty((0, 2), np.int64), *found])
    return atoms[rows], labels[is_alone]


def _join(pairs: np.ndarray, complexes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Join complexes by the nearest pairs of atoms.

    `complexes` contains the complex of each atom. Returns the pairs of atoms that join two
    complexes, as rows, and the complex of each atom after joining.
    """
    rows = np.sort(np.stack([pairs["first"], pairs["second"]], axis=1).astype(np.int64), axis=1)
    rows = rows[np.lexsort([rows[:, 1], rows[:, 0], pairs["distance"]])]
    numbers, places = np.unique(complexes, return_inverse=True)
    ends = np.sort(places[rows], axis=1)
    # Nearest pair of atoms for every two complexes.
    nearest = np.sort(np.unique(ends[:, 0] * len(numbers) + ends[:, 1], return_index=True)[1])
    parent, joining = list(range(len(numbers))), []

    def root(one: int) -> int:
        while parent[one] != one:
            one = parent[one]
        return one

    for row, two in zip(nearest.tolist(), ends[nearest].tolist(), strict=True):
        low, high = sorted(map(root, two))
        if low != high:
            parent[high] = low
            joining.append(row)
    roots = np.array([root(one) for one in parent], np.int64)
    return rows[joining], numbers[roots[places]]
