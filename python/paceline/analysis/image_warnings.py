"""Warnings if distances between nearest periodic images are not the intended distances."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from paceline.analysis.kernels import least_width
from paceline.block import cell_of, dimensions_of, periodic_vectors, upright_vectors, vectors_of
from paceline.contract.system_interface import Atoms, System, positions_in
from paceline.contract.transform_interface import CoreTransform
from paceline.errors import UnsupportedError
from paceline.transform.bonds_and_compounds import molecular_bonds_of
from paceline.transform.compare_atom_names import name_atom

#: Selection of polymers. In topologies without bonds, their consecutive residues count as bonded.
POLYMER = "protein or nucleic"
#: Minimum difference between the distances of a pair without and with images, Å.
SHORTER = 0.01
#: Maximum number of compared atoms of a group; of larger groups, equally spaced atoms are used.
MOST_ATOMS = 1000


def beyond_half_the_cell(name: str, what: str, reach: float, width: float) -> str | None:
    """Return a warning of missing pairs if a cutoff exceeds half the smallest height of the cell.

    `what` is the keyword of the cutoff with its value. Lengths are in Å.
    """
    if not reach > width / 2:
        return None
    return (
        f"{name}: {what} Å is more than half the smallest height of the cell, {width / 2:.4g} Å: "
        "pairs at larger distances are missing, because only nearest images are used; use a "
        "smaller cutoff, or a larger cell"
    )


def first_middle_last(frames: np.ndarray) -> list[int]:
    """Choose the first, the middle and the last frame, or all if there are fewer."""
    return list(dict.fromkeys(frames[[0, len(frames) // 2, -1]].tolist())) if len(frames) else []


class _Frame(NamedTuple):
    """Frame number, positions of some atoms (Å), and the cell, shape (1, 19)."""

    number: int
    positions: np.ndarray
    cell: np.ndarray


def _read_frames(universe: System, frames: Sequence[int], atoms: np.ndarray) -> list[_Frame]:
    """Read frames with a cell and positions; the trajectory's current frame does not change."""
    trajectory, found = universe.trajectory, []
    current = trajectory.ts.frame
    try:
        for number in frames:
            try:
                trajectory[number]
                positions, cell = positions_in(trajectory, atoms), cell_of(trajectory)
                if least_width(cell) < np.inf:
                    found.append(_Frame(number, positions, cell))
            except (EOFError, OSError, ValueError):  # the run reports damaged frames
                continue
    finally:
        trajectory[current]
    return found


def least_width_of(universe: System, frames: np.ndarray) -> float:
    """Smallest height of the cell in the first, the middle and the last frame, Å."""
    some = _read_frames(universe, first_middle_last(frames), np.arange(1))
    return min((least_width(one.cell) for one in some), default=np.inf)


def nearer_images(
    name: str, groups: Sequence[Atoms], frames: np.ndarray, kind: str = "all"
) -> str | None:
    """Return a warning if atoms of a molecule are nearer to each other's images than to each other.

    `kind` is the kind of distance between two groups: "all", "pairs" in order, or "centers". The
    first, the middle and the last frame are checked. Molecules are made whole along bonds, or
    polymers along their residues if the topology has no bonds.
    """
    universe = groups[0].universe
    atoms = np.unique(np.concatenate([group.indices for group in groups]))
    found = _molecules_of(universe, atoms)
    if found is None:
        return None
    decoded, bonds, molecules = found
    rows = [np.searchsorted(decoded, group.indices) for group in (groups[0], groups[-1])]
    if kind == "centers" and len(np.unique(molecules[np.concatenate(rows)])) > 1:
        return None
    unwrapping = CoreTransform("unwrap", len(decoded), bonds)
    for one in _read_frames(universe, first_middle_last(frames), decoded):
        whole = one.positions[np.newaxis].copy()
        refused, long = unwrapping.apply_noting(whole, one.cell)
        if refused or long or not periodic_vectors(one.cell).all():
            continue
        # MDAnalysis's functions describe cells by lengths and angles, so rotate the cell upright.
        turned = np.linalg.inv(vectors_of(one.cell)[0]) @ upright_vectors(one.cell)[0]
        upright = (whole[0] @ turned).astype(np.float32)
        if (worst := _COMPARE[kind](upright, rows, molecules, one.cell)) is not None:
            ends, plain, nearest = worst
            first, second = (name_atom(universe.atoms[decoded[end]]) for end in ends)
            pair = "their centers" if kind == "centers" else f"such as {first} and {second}"
            return (
                f"{name}: atoms of one molecule are closer to each other's images than to each "
                f"other, {pair} in frame {one.number}: {plain:.1f} Å within the molecule, but "
                f"{nearest:.1f} Å to the image, and this distance is used; for distances within "
                "molecules, make them whole (--unwrap), and ignore images (--no-pbc)"
            )
    return None


def _molecules_of(
    universe: System, atoms: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Find the atoms needed to make the molecules of `atoms` whole.

    Returns indices of these atoms, their bonds, and for each atom the number of its molecule.
    Returns None if no molecule contains two of `atoms`, or if molecules are unknown.
    """
    everything = universe.atoms
    try:
        bonds = molecular_bonds_of(universe, "unwrap")
    except UnsupportedError:
        return _polymers_of(universe, atoms)
    fragments = bonds.fragments
    concerned = np.zeros(len(everything), bool)
    concerned[fragments[atoms]] = True
    several = np.bincount(fragments[atoms], minlength=len(everything)) > 1
    inside = concerned[fragments]
    if not several.any():
        return None
    decoded = np.flatnonzero(inside)
    places = np.cumsum(inside) - 1
    return decoded, places[bonds.pairs[inside[bonds.pairs[:, 0]]]], fragments[decoded]


def _polymers_of(
    universe: System, atoms: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Link consecutive atoms of polymers, in topologies without bonds.

    Returns the same arrays as `_molecules_of`. Atoms outside polymers count as separate molecules.
    """
    group = universe.atoms[atoms]
    try:
        polymers = universe.atoms.select_atoms(POLYMER)
    except AttributeError:  # topology without residue names
        return None
    concerned = np.isin(polymers.segindices, group.segindices)
    decoded = np.union1d(polymers.indices[concerned], atoms)
    is_linked = np.isin(decoded, polymers.indices)
    everything = universe.atoms[decoded]
    links = is_linked[1:] & is_linked[:-1] & (np.diff(everything.segindices) == 0)
    links &= np.isin(np.diff(everything.resids), (0, 1))
    if not links.any():
        return None
    first = np.flatnonzero(links)
    bonds = np.column_stack([first, first + 1])
    return decoded, bonds, np.cumsum(np.concatenate([[True], ~links]))


#: Rows of two atoms, their distance within the molecule, and their distance by images, Å.
_Pair = tuple[tuple[int, int], float, float]


def _worst(ends: Any, plain: np.ndarray, nearest: np.ndarray) -> _Pair | None:
    """Return the pair whose distance decreases most by images; None if at most by `SHORTER`."""
    if not len(plain):
        return None
    k = int(np.argmax(plain - nearest))
    if plain[k] - nearest[k] <= SHORTER:
        return None
    return (int(ends[0][k]), int(ends[1][k])), float(plain[k]), float(nearest[k])


def _compare_all(
    whole: np.ndarray, rows: Sequence[np.ndarray], molecules: np.ndarray, cell: np.ndarray
) -> _Pair | None:
    """Compare distances without and with images, of all pairs of two groups within one molecule."""
    from MDAnalysis.lib.distances import distance_array

    half, found = least_width(cell) / 2, []
    for molecule in np.intersect1d(*(molecules[some] for some in rows)):
        first, second = (some[molecules[some] == molecule] for some in rows)
        both = whole[np.concatenate([first, second])]
        # In most molecules, no distance exceeds half the smallest height of the cell, so that no
        # image is nearer.
        if np.linalg.norm(np.ptp(both, axis=0)) <= half:
            continue
        first, second = (some[:: -(-len(some) // MOST_ATOMS)] for some in (first, second))
        plain, nearest = (
            distance_array(whole[first], whole[second], box).ravel()
            for box in (None, dimensions_of(cell)[0])
        )
        ends = np.repeat(first, len(second)), np.tile(second, len(first))
        found.append(_worst(ends, plain, nearest))
    return max(filter(None, found), key=lambda one: one[1] - one[2], default=None)


def _compare_pairs(
    whole: np.ndarray, rows: Sequence[np.ndarray], molecules: np.ndarray, cell: np.ndarray
) -> _Pair | None:
    """Compare distances without and with images, of pairs of corresponding atoms."""
    from MDAnalysis.lib.distances import calc_bonds

    same = molecules[rows[0]] == molecules[rows[1]]
    ends = rows[0][same], rows[1][same]
    plain, nearest = (
        calc_bonds(whole[ends[0]], whole[ends[1]], box) for box in (None, dimensions_of(cell)[0])
    )
    return _worst(ends, plain, nearest)


def _compare_centers(
    whole: np.ndarray, rows: Sequence[np.ndarray], molecules: np.ndarray, cell: np.ndarray
) -> _Pair | None:
    """Compare the distance of the centers of two groups without and with images."""
    from MDAnalysis.lib.distances import calc_bonds

    centers = [whole[some].mean(axis=0, keepdims=True) for some in rows]
    plain, nearest = (calc_bonds(*centers, box) for box in (None, dimensions_of(cell)[0]))
    return _worst([some[:1] for some in rows], plain, nearest)


_COMPARE = {"all": _compare_all, "pairs": _compare_pairs, "centers": _compare_centers}
