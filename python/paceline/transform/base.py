"""All transformations of a run made ready, and single frames seen through them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from paceline import _core
from paceline.errors import SelectionError, TransformError, UnsupportedError
from paceline.schedule.interfaces import Transform, WorkerTransform, prepare_transforms


class Made:
    """A transformation of the core, which is made anew where it is unpickled.

    Parameters
    ----------
    kind : {"unwrap", "center", "wrap", "fit"}
        Which of `_core.Transform` it is.
    *arguments : object
        Its arguments.
    """

    def __init__(self, kind: str, *arguments: Any):
        self._made_of = kind, *arguments
        self._core: _core.Transform = getattr(_core.Transform, kind)(*arguments)

    def __reduce__(self) -> tuple[type, tuple]:
        return Made, self._made_of

    def apply(self, positions: np.ndarray, dimensions: np.ndarray) -> list[tuple[int, str]]:
        """Change the positions of a block in place.

        Parameters
        ----------
        positions : numpy.ndarray of float32, shape (n_frames, n_atoms, 3)
            Å, of the atoms for which it was prepared. Frames of nothing but NaN stay so.
        dimensions : numpy.ndarray of float32, shape (n_frames, 6)
            Lengths of the cells (Å) and their angles (degrees); zeros where there is none.

        Returns
        -------
        list of (int, str)
            Rows that cannot be transformed, and why; their positions are NaN.
        """
        return self._core.apply(positions, dimensions)


def describe(name: str, atomgroup: Any, **options: Any) -> str:
    """A call as it is kept in a record, without the options that were not given.

    Parameters
    ----------
    name : str
        The transformation.
    atomgroup : AtomGroup, str or None
        Its atoms.
    **options : object
        What else it was given.

    Returns
    -------
    str
        One line.

    Examples
    --------
    >>> describe("center", "protein", weights="mass", point=None)
    "center('protein', weights=mass)"
    """
    words = [f"{key}={value}" for key, value in options.items() if value is not None]
    if isinstance(atomgroup, str):
        words.insert(0, repr(atomgroup))
    elif atomgroup is not None:
        indices = atomgroup.atoms.indices
        words.insert(0, f"{len(indices)} atoms, indices {indices.min()} to {indices.max()}")
    return f"{name}({', '.join(words)})"


def select(atomgroup: Any, universe: Any, name: str) -> Any:
    """The group of atoms that a transformation was given, or its selection from the Universe.

    Parameters
    ----------
    atomgroup : AtomGroup, Universe or str
        What the user gave.
    universe : Universe
        The one that is analysed.
    name : str
        The transformation.

    Returns
    -------
    AtomGroup
        At least one atom.

    Raises
    ------
    SelectionError
        There are no such atoms.
    UnsupportedError
        They belong to another Universe, or the group updates itself.
    """
    if isinstance(atomgroup, str):
        group = universe.select_atoms(atomgroup)
    else:
        refuse_updating(atomgroup, name)
        group = atomgroup.atoms
    if len(group) == 0:
        raise SelectionError(f"{name}: no atoms match {atomgroup!r}")
    if group.universe is not universe:
        raise UnsupportedError(
            f"{name}: its atoms belong to another Universe than the analysis; "
            "give a selection, as text"
        )
    return group


def refuse_updating(atomgroup: Any, name: str) -> None:
    """Raise `UnsupportedError` for a group that updates itself: workers could not follow it.

    Parameters
    ----------
    atomgroup : AtomGroup or Universe
        What the user gave.
    name : str
        The transformation, or what else it was given to.
    """
    # Only groups that update themselves know whether they are up to date.
    if hasattr(atomgroup, "is_uptodate"):
        raise UnsupportedError(
            f"{name}: an UpdatingAtomGroup changes from frame to frame; "
            "give a fixed selection (updating=False)"
        )


def known_weights(weights: str | None) -> str | None:
    """The weights that a user asked for, if there are such.

    Parameters
    ----------
    weights : str or None
        What the user gave.

    Returns
    -------
    "mass" or None

    Raises
    ------
    ValueError
        Any other word.
    """
    if weights not in (None, "mass"):
        raise ValueError(f"weights must be None or 'mass', not {weights!r}")
    return weights


def refuse_other_masses(
    mobile: Any, fixed: Any, tolerance: float, name: str, advice: str = ""
) -> None:
    """Raise for atoms that do not correspond, as far as their masses are known.

    Parameters
    ----------
    mobile : AtomGroup
        Atoms that move.
    fixed : AtomGroup
        As many that they are compared with.
    tolerance : float
        What masses may differ by, u.
    name : str
        The transformation, or the argument that chose the atoms.
    advice : str
        What can be done where they do correspond.

    Raises
    ------
    SelectionError
        Some differ by more.
    """
    if not (hasattr(mobile, "masses") and hasattr(fixed, "masses")):
        return
    differing = np.flatnonzero(np.abs(mobile.masses - fixed.masses) > tolerance)
    if len(differing):
        first = differing[0]
        raise SelectionError(
            f"{name}: {len(differing)} pairs of atoms differ in mass by more than {tolerance} u, "
            f"the first is {mobile[first]} ({mobile[first].mass:.3f} u) and "
            f"{fixed[first]} ({fixed[first].mass:.3f} u) of the reference{advice}"
        )


def masses_of(group: Any, name: str) -> np.ndarray:
    """Masses of atoms.

    Parameters
    ----------
    group : AtomGroup
        The atoms.
    name : str
        The transformation that needs them.

    Returns
    -------
    numpy.ndarray of float64, shape (n_atoms,)
        In u.

    Raises
    ------
    UnsupportedError
        The topology has none.
    """
    if not hasattr(group, "masses"):
        raise UnsupportedError(f"{name} needs masses, and the topology has none")
    return group.masses.astype(np.float64)


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
    atoms, prepared = prepare_transforms(transforms, np.unique(indices), universe)
    return read_frame(universe, frame, atoms, prepared)[np.searchsorted(atoms, indices)]


def read_frame(
    universe: Any, frame: int, atoms: np.ndarray, before: Sequence[WorkerTransform]
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
    before : sequence of WorkerTransform
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
