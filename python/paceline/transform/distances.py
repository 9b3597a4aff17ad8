"""Minimum-image distances between nearby atoms in one frame."""

import numpy as np

from paceline import _core
from paceline.block import cell_of, vectors_of
from paceline.contract.system_interface import (
    System,
    fields_of,
    positions_in,
    set_values,
    values_of,
)

#: Pair of nearby atoms: row or index of each atom, and the distance between them, Å.
PAIR = np.dtype([("first", np.int32), ("second", np.int32), ("distance", np.float64)])
#: If atoms of a molecule are farther apart than this fraction of the cell's smallest height, the
#: image of one cannot be inferred from the other.
REACH = 0.45


def read_frame(
    universe: System, atoms: np.ndarray, number: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Read positions of atoms, Å, and the cell, shape (1, 19), in one frame.

    The current frame of the trajectory stays the same, including values that a script has edited.
    """
    trajectory = universe.trajectory
    present = trajectory.ts.copy()
    try:
        trajectory[number]
        return positions_in(trajectory, atoms), cell_of(trajectory)
    finally:
        again = trajectory[present.frame]
        for name in fields_of(present):
            set_values(again, name, values_of(present, name))
        again.dimensions = present.dimensions


def distances(positions: np.ndarray, pairs: np.ndarray, cell: np.ndarray) -> np.ndarray:
    """Compute minimum-image distances of nearby atoms, Å: shape (n_pairs,)."""
    steps = positions[pairs[:, 1]].astype(np.float64) - positions[pairs[:, 0]]
    is_far = np.einsum("ij,ij->i", steps, steps) >= (REACH * widths(cell).min()) ** 2
    if is_far.any():  # this is rare; shorter vectors are minimum images already
        vectors = vectors_of(_core.cells_without_noise(cell))[0]
        far = steps[is_far]
        steps[is_far] = far - np.round(far @ np.linalg.inv(vectors)) @ vectors
    return np.sqrt(np.einsum("ij,ij->i", steps, steps))


def near_pairs(
    positions: np.ndarray,
    cell: np.ndarray,
    labels: np.ndarray,
    cutoff: float,
    some: np.ndarray | None = None,
) -> tuple[np.ndarray, str | None]:
    """Find pairs of atoms with different labels within `cutoff` (Å) by minimum images.

    Returns the pairs as records of `PAIR`, with rows in `positions`; and the reason why pairs
    cannot be found, or None. With `some` (rows), at least one atom of each pair is in `some`.
    """
    rows, labels = np.arange(len(positions)), np.ascontiguousarray(labels, dtype=np.int64)
    first = rows if some is None else some
    second = None if some is None else rows
    given = cutoff, True, (first, rows), (labels[first], labels)
    _, records, refused = _core.NearPairs(None, first, second, *given).find(
        positions[np.newaxis], cell
    )
    return records.view(PAIR), refused and refused[1]


def widths(cell: np.ndarray) -> np.ndarray:
    """Compute the distances between opposite faces of a cell, Å, (3,); infinite without a cell."""
    vectors = vectors_of(_core.cells_without_noise(cell))[0]
    if not abs(np.linalg.det(vectors)) > 0:
        return np.full(3, np.inf)
    return 1 / np.sqrt((np.linalg.inv(vectors) ** 2).sum(axis=0))
