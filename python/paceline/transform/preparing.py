"""All transformations of a run made ready, and single frames seen through them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from paceline.errors import TransformError
from paceline.job import Transform as Transformation
from paceline.transform.base import Transform


def prepare_all(
    transforms: Sequence[Transform], wanted: np.ndarray, universe: Any
) -> tuple[np.ndarray, list[Transformation]]:
    """Make the worker's half of each transformation.

    Parameters
    ----------
    transforms : sequence of Transform
        In the order in which they are done.
    wanted : numpy.ndarray of int64, shape (n_wanted,)
        Indices of the atoms that are to be seen after them, increasing.
    universe : Universe
        Their system.

    Returns
    -------
    atoms : numpy.ndarray of int64, shape (n_atoms,)
        Indices of all atoms that must be decoded for that, increasing.
    prepared : list of Transformation
        The worker's halves.
    """
    atoms = wanted
    for transform in reversed(transforms):
        atoms = transform.atoms(atoms, universe)
    prepared: list[Transformation] = []
    for transform in transforms:
        prepared.append(transform.prepare(atoms, universe, tuple(prepared)))
    return atoms, prepared


def reference_positions(
    atomgroup: Any, frame: int, transforms: Sequence[Transform] = ()
) -> np.ndarray:
    """Positions of a group in one frame, as transformations leave them.

    The trajectory stays where it is.

    Parameters
    ----------
    atomgroup : AtomGroup
        The atoms.
    frame : int
        Frame number.
    transforms : sequence of Transform
        What is done first.

    Returns
    -------
    numpy.ndarray of float32, shape (n_atoms, 3)
        Å.

    Raises
    ------
    TransformError
        The frame cannot be transformed.
    """
    universe, indices = atomgroup.universe, atomgroup.indices
    atoms, prepared = prepare_all(transforms, np.unique(indices), universe)
    return read_frame(universe, frame, atoms, prepared)[np.searchsorted(atoms, indices)]


def read_frame(
    universe: Any, frame: int, atoms: np.ndarray, before: Sequence[Transformation]
) -> np.ndarray:
    """Positions in one frame after some transformations that are prepared for these atoms.

    Parameters
    ----------
    universe : Universe
        Whose trajectory is read; it stays where it is.
    frame : int
        Frame number.
    atoms : numpy.ndarray of int64, shape (n_atoms,)
        Indices, increasing.
    before : sequence of Transformation
        What is done to them.

    Returns
    -------
    numpy.ndarray of float32, shape (n_atoms, 3)
        Å.

    Raises
    ------
    TransformError
        The frame cannot be transformed.
    """
    trajectory = universe.trajectory
    current = trajectory.ts.frame
    try:
        ts = trajectory[frame]
        positions = ts.positions[np.newaxis, atoms]
        cell = np.zeros(6) if ts.dimensions is None else ts.dimensions
        dimensions = np.array([cell], dtype=np.float32)
    finally:
        trajectory[current]
    for step in before:
        for _, reason in step.apply(positions, dimensions):
            raise TransformError(
                f"frame {frame} cannot be the reference: {reason}; give another reference"
            )
    return positions[0]
