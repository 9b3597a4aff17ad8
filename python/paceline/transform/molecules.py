"""Make molecules whole, put those of a complex side by side, and find broken ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from paceline import _core
from paceline._util.sorting import sorted_unique
from paceline.block import cell_of, vectors_of
from paceline.errors import (
    TransformError,
    UnsupportedError,
    warn,
    with_script_advice,
)
from paceline.performance.number_format import joined, many
from paceline.transform.base import CoreTransform, Transform, WorkerTransform, describe
from paceline.transform.compounds import (
    advice_on_sites,
    fragments_of,
    molecular_bonds_of,
    molecules_with,
    with_all,
    with_any,
)


def unwrap(atomgroup: Any = None, *, together: Any = None) -> Transform:
    """Make molecules whole along their bonds.

    The first atom of a molecule stays where it is, and from bond to bond every other atom takes
    the image that is nearest to its neighbour, in the order of
    `MDAnalysis.transformations.unwrap`. Only molecules of which an atom is analysed are decoded.

    Virtual sites have no bonds in TPR files, and would stay behind. So an atom without bonds, to
    which the topology gives a mass of 0, counts as bonded to the heaviest atom of its residue (the
    first of these), if all other atoms there are of one molecule. Masses that are guessed do not
    tell sites.

    Parameters
    ----------
    atomgroup : AtomGroup or str, optional
        Molecules of which to make whole those that have an atom in it, or a selection; by default
        all molecules.
    together : AtomGroup or str, optional
        Molecules that lie side by side, such as the chains of a complex: those that have an atom in
        it. The two atoms by which two of them are nearest in the first frame of the trajectory
        count as bonded, so that each complex comes as one whole into each frame. By default each
        molecule is made whole by itself, and may be in another image than its neighbours.

    Returns
    -------
    Transform
        For `paceline.run(…, transforms=[…])`. In the run, it raises `UnsupportedError` where the
        topology has no bonds, or none for a residue of several atoms that is analysed. A residue
        whose atoms belong to several molecules is named in a warning, and so are chains that are in
        contact in the first frame, but not in the images that they get. Another one, at the end of
        the run, counts bonds that are longer than half the cell afterwards.

    Examples
    --------
    >>> from paceline.transform import unwrap
    >>> unwrap("protein").parameters()
    "unwrap('protein')"
    >>> unwrap(together="protein or resname LIG").parameters()
    'unwrap(together=protein or resname LIG)'
    """
    return _Unwrap(atomgroup, together)


@dataclass(frozen=True)
class _Unwrap:
    atomgroup: Any
    together: Any = None
    turns = False

    def atoms(self, wanted: np.ndarray, universe: Any) -> np.ndarray:
        bonds = molecular_bonds_of(universe, "unwrap")
        fragments = fragments_of(universe, bonds)
        members = molecules_with(universe, self.atomgroup, fragments, "unwrap")
        complexes = fragments
        if self.together is not None:  # molecules of a complex are needed for each other
            complexes = fragments_of(universe, self._with_contacts(bonds, fragments, universe))
        touched = with_any(members, complexes[members], wanted)
        _check_residues(universe, fragments, wanted[np.isin(wanted, touched)])
        return sorted_unique(wanted, touched)

    def prepare(
        self, atoms: np.ndarray, universe: Any, before: Sequence[WorkerTransform]
    ) -> WorkerTransform:
        bonds = molecular_bonds_of(universe, "unwrap")
        fragments = fragments_of(universe, bonds)
        members = molecules_with(universe, self.atomgroup, fragments, "unwrap")
        whole = with_all(members, fragments[members], atoms)
        if self.together is None:
            _warn_of_chains_apart(universe, fragments, whole, bonds)
        else:
            bonds = self._with_contacts(bonds, fragments, universe, tell=True)
        bonds = bonds[np.isin(bonds, whole).all(axis=1)]
        return CoreTransform("unwrap", len(atoms), np.searchsorted(atoms, bonds))

    def _with_contacts(
        self, bonds: np.ndarray, fragments: np.ndarray, universe: Any, *, tell: bool = False
    ) -> np.ndarray:
        """Add a bond to each molecule of `together` but the first of each complex.

        With `tell`, warn of molecules that are near no other one.
        """
        of_complex, moved = (
            molecules_with(universe, one, fragments, "unwrap")
            for one in (self.together, self.atomgroup)
        )
        members = np.intersect1d(of_complex, moved)
        added, alone = _nearest_contacts(universe, members, fragments[members])
        if tell and len(alone):
            warn(
                f"unwrap: {many(len(alone), 'molecule')} of together= have no other one within "
                "half the cell in the first frame, and stay where they are; the first has atom "
                f"{alone[0]}"
            )
        return np.concatenate([bonds, added])

    def parameters(self) -> str:
        together = self.together
        if together is not None and not isinstance(together, str):
            together = describe("atoms", together)
        return describe("unwrap", self.atomgroup, together=together)


#: Pair of atoms near each other: rows or indices of both, and the distance between them, Å.
PAIR = np.dtype([("first", np.int32), ("second", np.int32), ("distance", np.float64)])


#: Distance at which molecules are in contact, Å; where none is, so many times as far, and so on.
CONTACT, FARTHER = 4.0, 1.25


#: Largest number of chains of which contacts are looked for unasked, and residues of the least one.
CHAINS, CHAIN_RESIDUES = 64, 3


def _contacts(
    positions: np.ndarray,
    cell: np.ndarray,
    molecules: np.ndarray,
    cutoff: float,
    some: np.ndarray | None = None,
) -> tuple[np.ndarray, str | None]:
    """Find pairs of atoms of different molecules within `cutoff` (Å), as nearest images.

    Their rows in `positions`, and distances; with `some` rows, pairs of one of these and any other
    one. Also returns why none can be found.
    """
    rows, labels = np.arange(len(positions)), np.ascontiguousarray(molecules, dtype=np.int64)
    first = rows if some is None else some
    second = None if some is None else rows
    given = cutoff, True, (first, rows), (labels[first], labels)
    _, records, refused = _core.NearPairs(None, first, second, *given).find(
        positions[np.newaxis], cell
    )
    return records.view(PAIR), refused and refused[1]


def _read_frame(universe: Any, atoms: np.ndarray, number: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Read positions of atoms in a frame, and the cell, shape (1, 19)."""
    trajectory = universe.trajectory
    current = trajectory.ts.frame
    try:
        return trajectory[number].positions[atoms], cell_of(trajectory)
    finally:
        trajectory[current]


def _positions_and_cell(ts: Any, atoms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Take positions of atoms of a frame, and the cell, shape (1, 19)."""
    cell = np.zeros(6) if ts.dimensions is None else ts.dimensions
    return ts.positions[atoms], _core.cells_of_dimensions(np.array([cell], np.float32))


class _MadeWhole(NamedTuple):
    """Positions of atoms in a frame, and in whole molecules, with the cell, shape (1, 19)."""

    positions: np.ndarray
    whole: np.ndarray
    cell: np.ndarray
    #: Bonds are longer than half the cell still.
    in_vain: bool


def _make_whole_in(
    universe: Any, number: int, atoms: np.ndarray, unwrapping: CoreTransform, read: Any = None
) -> _MadeWhole | None:
    """Make molecules whole in a frame; None where it is damaged, or without positions or a cell.

    `unwrapping` is of these atoms. The frame is read by the Universe, unless `read` does.
    """
    try:
        if read is None:
            positions, cell = _read_frame(universe, atoms, number)
        else:
            positions, cell = _positions_and_cell(read(number), atoms)
    except (EOFError, OSError, ValueError):  # MDAnalysis's readers raise any of these
        return None  # which the run says, or leaves out
    whole = positions[np.newaxis].copy()
    refused, long = unwrapping.apply_noting(whole, cell)
    return None if refused else _MadeWhole(positions, whole[0], cell, bool(long))


def _nearest_contacts(
    universe: Any, atoms: np.ndarray, molecules: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Connect molecules by the nearest pairs of their atoms in the first frame.

    Returns the pairs, shape (n_pairs, 2), and the first atom of each molecule that has no other one
    within half the cell.
    """
    positions, cell = _read_frame(universe, atoms)
    farthest = float(_widths(cell).min() / 2)
    spread = float(np.ptp(positions, axis=0).sum()) if len(positions) else 0.0
    labels, firsts = np.unique(molecules, return_index=True)
    complexes, some, found = molecules, None, []
    cutoff = min(CONTACT, farthest)
    while len(np.unique(complexes[firsts])) > 1:
        pairs, refused = _contacts(positions, cell, complexes, cutoff, some)
        if refused:
            raise TransformError(
                f"unwrap: contacts of together= are those of the first frame, and {refused}"
            )
        joined, complexes = _join(pairs, complexes)
        found.append(joined)
        if cutoff >= farthest or cutoff > spread:
            break
        cutoff = min(FARTHER * cutoff, farthest)
        # Of what is connected by now, there would be ever more pairs.
        numbers, sizes = np.unique(complexes, return_counts=True)
        some = np.flatnonzero(complexes != numbers[sizes.argmax()])
    numbers, sizes = np.unique(complexes[firsts], return_counts=True)
    is_alone = np.isin(complexes[firsts], numbers[sizes == 1]) & (len(labels) > 1)
    rows = np.concatenate([np.empty((0, 2), np.int64), *found])
    return atoms[rows], labels[is_alone]


def _widths(cell: np.ndarray) -> np.ndarray:
    """Compute the distances of a cell's opposite faces, Å: shape (3,), infinite without a cell."""
    vectors = vectors_of(_core.cells_without_noise(cell))[0]
    volume = abs(np.linalg.det(vectors))
    if not volume > 0:
        return np.full(3, np.inf)
    sides = np.cross(np.roll(vectors, -1, axis=0), np.roll(vectors, -2, axis=0))
    return volume / np.linalg.norm(sides, axis=1)


def _join(pairs: np.ndarray, complexes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Join complexes by the nearest pairs of atoms.

    Returns the rows of the pairs that join two, and the complex of each atom then.
    """
    rows = np.sort(np.stack([pairs["first"], pairs["second"]], axis=1).astype(np.int64), axis=1)
    rows = rows[np.lexsort([rows[:, 1], rows[:, 0], pairs["distance"]])]
    numbers, places = np.unique(complexes, return_inverse=True)
    ends = np.sort(places[rows], axis=1)
    # Of each two of them, the nearest pair.
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


def _warn_of_chains_apart(
    universe: Any, fragments: np.ndarray, whole: np.ndarray, bonds: np.ndarray
) -> None:
    """Warn of chains in contact in the first frame, of which one is in another image if whole."""
    chains = _chains(universe, fragments, whole)
    if not 1 < len(chains) <= CHAINS:
        return
    atoms = whole[np.isin(fragments[whole], chains)]
    bonds = bonds[np.isin(bonds, atoms).all(axis=1)]
    unwrapping = CoreTransform("unwrap", len(atoms), np.searchsorted(atoms, bonds))
    found = _make_whole_in(universe, 0, atoms, unwrapping)
    if found is None:
        return
    for two in _across_faces(found.whole, found.cell, fragments[atoms]):
        pairs, _ = _contacts(found.positions[two], found.cell, fragments[atoms[two]], CONTACT)
        ends = found.whole[two][np.stack([pairs["first"], pairs["second"]])]
        if len(pairs) and np.linalg.norm(ends[0] - ends[1], axis=1).min() >= 2 * CONTACT:
            firsts = universe.atoms[np.unique(fragments[atoms[two]])]
            names = [_name(residue) for residue in firsts.residues]
            warn(
                "unwrap: chains that are in contact are in different images in the first frame, "
                f"such as those that begin with {' and '.join(names)}; what is computed of both "
                "together, such as the radius of gyration, is not of their complex: put them side "
                "by side with together= (--together)"
            )
            return


def _across_faces(
    positions: np.ndarray, cell: np.ndarray, molecules: np.ndarray
) -> Iterator[np.ndarray]:
    """Yield the rows of each two whole molecules that may be in contact across faces of the cell.

    Boxes around them, along the vectors of the cell, come as near as that in other images.
    """
    order = np.argsort(molecules, kind="stable")
    firsts = np.unique(molecules[order], return_index=True)[1]
    places = (positions @ np.linalg.inv(vectors_of(_core.cells_without_noise(cell))[0]))[order]
    low, high = np.minimum.reduceat(places, firsts), np.maximum.reduceat(places, firsts)
    margin = CONTACT / _widths(cell)
    of_molecules = np.split(order, firsts[1:])
    for one, other in combinations(range(len(firsts)), 2):
        least = np.ceil(low[one] - high[other] - margin)
        most = np.floor(high[one] - low[other] + margin)
        if (least <= most).all() and (least.any() or most.any()):
            yield np.concatenate([of_molecules[one], of_molecules[other]])


class BrokenBond(NamedTuple):
    """Bond across the cell: a frame, the indices of two atoms, and their distance there, Å."""

    frame: int
    atoms: tuple[int, int]
    length: float


def find_broken(
    universe: Any, groups: Sequence[np.ndarray], frames: Sequence[int], read: Any = None
) -> BrokenBond | None:
    """Find a molecule of which atoms of a group are in different images in a frame.

    Returns its bond that `unwrap` shortens most; None where nothing is known to be broken: without
    bonds or a cell, or in a frame that cannot be read. What `unwrap` cannot make whole, such as a
    sheet that is bonded to its own image, does not count. Frames are read by `read`, if given.
    """
    try:
        bonds = molecular_bonds_of(universe, "unwrap")
    except UnsupportedError:
        return None
    fragments = fragments_of(universe, bonds)
    several = np.zeros(len(fragments), bool)
    for group in groups:
        is_inside = np.zeros(len(fragments), bool)
        is_inside[group] = True
        several |= np.bincount(fragments[is_inside], minlength=len(fragments)) > 1
    concerned = several[fragments]
    atoms, bonds = np.flatnonzero(concerned), bonds[concerned[bonds[:, 0]]]
    if not len(bonds):
        return None
    row_of = np.cumsum(concerned) - 1
    bonds, molecules = row_of[bonds], fragments[atoms]
    unwrapping = CoreTransform("unwrap", len(atoms), bonds)
    compared = []
    for group in groups:
        rows = row_of[group[concerned[group]]]
        other = np.zeros(len(fragments), np.int64)
        other[molecules[rows]] = rows  # any one of each molecule
        compared.append((rows, other[molecules[rows]]))
    for number in frames:
        found = _make_whole_in(universe, number, atoms, unwrapping, read)
        if found is None or found.in_vain:
            continue
        moved = found.whole - found.positions
        if not moved.any():
            continue
        broken = np.zeros(len(fragments), bool)
        for rows, others in compared:
            # They move by edges of the cell, if at all.
            differ = (np.abs(moved[rows] - moved[others]) > 0.1).any(axis=1)
            broken[molecules[rows[differ]]] = True
        if not broken.any():
            continue
        crossing = bonds[broken[molecules[bonds[:, 0]]]]
        before, after = (
            np.linalg.norm(np.diff(one[crossing], axis=1)[:, 0], axis=1)
            for one in (found.positions, found.whole)
        )
        longest = int(np.argmax(np.nan_to_num(before - after)))
        first, second = atoms[crossing[longest]].tolist()
        return BrokenBond(number, (first, second), float(before[longest]))
    return None


def warn_of_broken(
    analyses: Sequence[Any], transforms: Sequence[Transform], frames: np.ndarray, opened: Any
) -> bool:
    """Warn of a molecule that is broken across the cell, where a run needs whole ones.

    Looks at the first, the middle and the last of the frames, for analyses of one Universe, whose
    trajectory is `opened`. Returns True if it has warned.
    """
    if any(isinstance(one, _Unwrap) for one in transforms) or not len(frames):
        return False
    universe = analyses[0].atomgroup.universe
    wanted = [one for one in analyses if getattr(one, "needs_whole", False)]
    moving = [one for one in transforms if hasattr(one, "whole_atoms")]
    groups = [one.indices for one in wanted] + [one.whole_atoms(universe) for one in moving]
    # Transformations that MDAnalysis applies may make molecules whole, or take frames in order.
    theirs = getattr(getattr(universe, "trajectory", None), "transformations", ())
    if not groups or theirs or not hasattr(universe, "_topology"):
        return False
    # With nojump, molecules that begin whole stay so.
    follows = any(getattr(one, "scans", False) for one in transforms)
    looked_at = [0] if follows else frames[[0, len(frames) // 2, -1]].tolist()
    # MDAnalysis's reader need not survive a damaged frame.
    read = getattr(opened, "read_frame", None)
    found = find_broken(universe, groups, list(dict.fromkeys(looked_at)), read)
    if found is None:
        return False
    kinds = [one.parameters().partition("(")[0] for one in moving]
    names = list(
        dict.fromkeys([*(one.name for one in wanted), *(f"{kind} (--{kind})" for kind in kinds)])
    )
    first, second = found.atoms
    warn(
        f"a molecule is broken across the cell in frame {found.frame}: atoms {first} and {second} "
        f"are bonded, and {found.length:.1f} Å apart; {joined(names)} "
        f"{'needs' if len(names) == 1 else 'need'} whole molecules: unwrap (--unwrap) makes them so"
    )
    return True


def _chains(universe: Any, fragments: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Find the molecules of several residues, by their first atoms."""
    residues = universe.atoms.resindices
    # Without the first residue of each, which is the only one of most, such as water.
    atoms = atoms[residues[atoms] != residues[fragments[atoms]]]
    others = np.unique(fragments[atoms] * len(universe.residues) + residues[atoms])
    numbers, n_others = np.unique(others // len(universe.residues), return_counts=True)
    return numbers[n_others + 1 >= CHAIN_RESIDUES]


def _check_residues(universe: Any, fragments: np.ndarray, atoms: np.ndarray) -> None:
    """Raise or warn if bonds are missing in residues: their atoms are of several fragments."""
    residue_of = universe.atoms.resindices
    concerned = np.isin(residue_of, residue_of[atoms])
    parts = np.unique(np.stack([residue_of[concerned], fragments[concerned]]), axis=1)
    residues, n_parts = np.unique(parts[0], return_counts=True)
    n_atoms = np.bincount(residue_of[concerned])[residues]
    unbonded = residues[(n_atoms > 1) & (n_parts == n_atoms)]
    if len(unbonded):
        raise with_script_advice(
            UnsupportedError(
                f"unwrap: the topology has no bonds for {_names(universe, unbonded)}; load a "
                "topology that has them"
            ),
            ", guess them with universe.atoms.guess_bonds(), or name the molecules that have "
            "bonds: unwrap(atomgroup)",
        )
    # Atoms that nobody looks at, such as virtual sites, may lie anywhere.
    parts = np.unique(np.stack([residue_of[atoms], fragments[atoms]]), axis=1)
    residues, n_parts = np.unique(parts[0], return_counts=True)
    divided = residues[n_parts > 1]
    if len(divided):
        warn(
            f"unwrap: the topology has no bonds between some atoms of "
            f"{_names(universe, divided)}; these atoms may come to lie in different "
            f"images{advice_on_sites(universe)}"
        )


def _names(universe: Any, resindices: np.ndarray) -> str:
    """Describe residues: their number, and the first of them by name."""
    names = [_name(residue) for residue in universe.residues[resindices[:3]]]
    more = ", …" if len(resindices) > 3 else ""
    return f"{many(len(resindices), 'residue')} ({', '.join(names)}{more})"


def _name(residue: Any) -> str:
    """Describe a residue by what the topology knows of it."""
    known = [getattr(residue, name, None) for name in ("resname", "resid")]
    return " ".join(str(value) for value in known if value is not None)
