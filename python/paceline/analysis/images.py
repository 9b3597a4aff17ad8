"""Say where distances to nearest images are not those that are meant."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from paceline.analysis.kernels import least_width
from paceline.block import cell_of, dimensions_of, periodic_vectors, upright_vectors, vectors_of
from paceline.contract.atoms import Atoms, System, positions_in
from paceline.errors import UnsupportedError
from paceline.transform.apply_transforms import CoreTransform
from paceline.transform.compounds import fragments_of, molecular_bonds_of
from paceline.transform.matching import described

#: Polymers whose residues follow each other, in topologies without bonds.
POLYMER = "protein or nucleic"
#: A pair is that much farther apart than its nearest images, at least, Å.
SHORTER = 0.01
#: Atoms of a group that are compared with each other, at most: of more some at equal distances.
MOST_ATOMS = 1000


def beyond_half_the_cell(name: str, what: str, reach: float, width: float) -> str | None:
    """Say that pairs are missing: the search reaches farther than half the least height of a cell.

    `what` is the keyword that says how far, with its value; lengths are in Å.
    """
    if not reach > width / 2:
        return None
    return (
        f"{name}: {what} Å is more than half the least height of the cell, {width / 2:.4g} Å: "
        "beyond it pairs are missing, since of each atom only the nearest image counts; take no "
        "more than that, or a larger cell"
    )


def first_middle_last(frames: np.ndarray) -> list[int]:
    """Choose three of some frames, or as many as there are."""
    return list(dict.fromkeys(frames[[0, len(frames) // 2, -1]].tolist())) if len(frames) else []


class _Frame(NamedTuple):
    """Number of a frame, positions of some atoms (Å), and the cell, shape (1, 19)."""

    number: int
    positions: np.ndarray
    cell: np.ndarray


def _look(universe: System, frames: Sequence[int], atoms: np.ndarray) -> list[_Frame]:
    """Read frames that have a cell and positions; the trajectory does not move."""
    trajectory, found = universe.trajectory, []
    current = trajectory.ts.frame
    try:
        for number in frames:
            try:
                trajectory[number]
                positions, cell = positions_in(trajectory, atoms), cell_of(trajectory)
                if least_width(cell) < np.inf:
                    found.append(_Frame(number, positions, cell))
            except (EOFError, OSError, ValueError):  # which the run says, or leaves out
                continue
    finally:
        trajectory[current]
    return found


def least_width_of(universe: System, frames: np.ndarray) -> float:
    """Find the least height of the cell in the first, the middle and the last frame, Å."""
    some = _look(universe, first_middle_last(frames), np.arange(1))
    return min((least_width(one.cell) for one in some), default=np.inf)


def nearer_images(
    name: str, groups: Sequence[Atoms], frames: np.ndarray, kind: str = "all"
) -> str | None:
    """Say that atoms of one molecule are nearer to each other's images than to each other.

    `kind` is which distances between two groups count: "all", "pairs" in their order, or that of
    the "centers". Looks at the first, the middle and the last frame; molecules are made whole along
    bonds, or where the topology has none, polymers along their residues.
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
    for one in _look(universe, first_middle_last(frames), decoded):
        whole = one.positions[np.newaxis].copy()
        refused, long = unwrapping.apply_noting(whole, one.cell)
        if refused or long or not periodic_vectors(one.cell).all():
            continue
        # MDAnalysis's functions know cells by lengths and angles.
        turned = np.linalg.inv(vectors_of(one.cell)[0]) @ upright_vectors(one.cell)[0]
        upright = (whole[0] @ turned).astype(np.float32)
        if (worst := _COMPARE[kind](upright, rows, molecules, one.cell)) is not None:
            ends, plain, nearest = worst
            first, second = (described(universe.atoms[decoded[end]]) for end in ends)
            pair = "their centers" if kind == "centers" else f"such as {first} and {second}"
            return (
                f"{name}: atoms of one molecule are nearer to each other's images than to each "
                f"other, {pair} in frame {one.number}: {plain:.1f} Å within the molecule, and "
                f"{nearest:.1f} Å to the image, which counts; for distances within molecules, make "
                "these whole (--unwrap), and take positions as they are (--no-pbc)"
            )
    return None


def _molecules_of(
    universe: System, atoms: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Find the atoms by which molecules are made whole, bonds between these, and molecules."""
    everything = universe.atoms
    try:
        bonds = molecular_bonds_of(universe, "unwrap")
    except UnsupportedError:
        return _polymers_of(universe, atoms)
    fragments = fragments_of(universe, bonds)
    concerned = np.zeros(len(everything), bool)
    concerned[fragments[atoms]] = True
    several = np.bincount(fragments[atoms], minlength=len(everything)) > 1
    inside = concerned[fragments]
    if not several.any():
        return None
    decoded = np.flatnonzero(inside)
    places = np.cumsum(inside) - 1
    return decoded, places[bonds[inside[bonds[:, 0]]]], fragments[decoded]


def _polymers_of(
    universe: System, atoms: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Link the atoms of polymers that follow each other in a chain of residues.

    Atoms that are in none are molecules of their own.
    """
    group = universe.atoms[atoms]
    try:
        polymers = universe.atoms.select_atoms(POLYMER)
    except AttributeError:  # the topology has no names of residues
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


#: Rows of two atoms, their distance within the molecule, and that of nearest images, Å.
_Pair = tuple[tuple[int, int], float, float]


def _worst(ends: Any, plain: np.ndarray, nearest: np.ndarray) -> _Pair | None:
    """Choose the pair whose nearest images are nearer than itself by most; None for none."""
    if not len(plain):
        return None
    k = int(np.argmax(plain - nearest))
    if plain[k] - nearest[k] <= SHORTER:
        return None
    return (int(ends[0][k]), int(ends[1][k])), float(plain[k]), float(nearest[k])


def _compare_all(
    whole: np.ndarray, rows: Sequence[np.ndarray], molecules: np.ndarray, cell: np.ndarray
) -> _Pair | None:
    """Compare the distances of all pairs of two groups that are in one molecule."""
    from MDAnalysis.lib.distances import distance_array

    half, found = least_width(cell) / 2, []
    for molecule in np.intersect1d(*(molecules[some] for some in rows)):
        first, second = (some[molecules[some] == molecule] for some in rows)
        both = whole[np.concatenate([first, second])]
        # What is within a box whose diagonal is half the cell has no nearer image: most molecules.
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
    """Compare the distances of the first atoms, the second ones and so on."""
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
    """Compare the distances of the centers of two groups."""
    from MDAnalysis.lib.distances import calc_bonds

    centers = [whole[some].mean(axis=0, keepdims=True) for some in rows]
    plain, nearest = (calc_bonds(*centers, box) for box in (None, dimensions_of(cell)[0]))
    return _worst([some[:1] for some in rows], plain, nearest)


_COMPARE = {"all": _compare_all, "pairs": _compare_pairs, "centers": _compare_centers}
