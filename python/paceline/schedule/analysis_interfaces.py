"""Interfaces of analyses and transformations.

Each has two halves. The user's half (`Analysis`, `Transform`) knows MDAnalysis's objects and stays
in the calling process; `prepare` makes the worker's half, which is pickled and sent to the workers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from paceline.block import Block
from paceline.performance.timings import Timings


class PerFrame(Protocol):
    """Worker's half of an analysis that gives one row per frame.

    With an attribute `checks_validity` that is true, its blocks have `validity` and no coordinates:
    each frame is checked while it is decoded.
    """

    def compute(self, block: Block) -> np.ndarray:
        """Compute the rows of a block's frames, shape (n_frames, …)."""


class Reduction(Protocol):
    """Worker's half of an analysis that gives one result for all frames.

    Partial results must merge exactly: carry counts and moments, never means alone.
    """

    def compute(self, block: Block) -> Any:
        """Compute the partial result of one leaf."""

    def merge(self, left: Any, right: Any) -> Any:
        """Merge the partial results of two neighbours."""


class PerBlock(Protocol):
    """Worker's half of an analysis with a result for each block, such as a writer.

    Its user's half has `receiver()`: a context manager of a `Receiver`, left when all blocks are
    done or by an error. Errors of writing are raised unchanged.
    """

    def compute_block(self, block: Block, first: int) -> Any:
        """Compute the result of a block without its unreadable frames.

        `first` is the block's first row in the results, counting unreadable frames.
        """


class Receiver(Protocol):
    """Takes the results of a `PerBlock`, in the calling thread, in any order."""

    def add(self, number: int, value: Any) -> None:
        """Take the result of block `number`."""


class WorkerTransform(Protocol):
    """Worker's half of a transformation.

    With a method `apply_noting`, this is called instead of `apply`: it returns the same, and rows
    with bonds that are longer than half the cell afterwards (row, number of bonds, the longest
    one's atoms, its length in Å).
    """

    def apply(self, positions: np.ndarray, dimensions: np.ndarray) -> list[tuple[int, str]]:
        """Transform a block in place; return rows that cannot be transformed, with the reason."""


class Transform(Protocol):
    """User's half of a transformation; it serves any number of runs."""

    @property
    def turns(self) -> bool:
        """True if it rotates positions, so that velocities and forces no longer match them."""

    def atoms(self, wanted: np.ndarray, universe: Any) -> np.ndarray:
        """Find the atoms to be decoded so that those of `wanted` can be transformed.

        Parameters
        ----------
        wanted : numpy.ndarray of int64, shape (n_wanted,)
            Indices, increasing.
        universe : Universe
            The system.

        Returns
        -------
        numpy.ndarray of int64, shape (n_atoms,)
            Indices, increasing; those of `wanted` among them.
        """

    def prepare(
        self, atoms: np.ndarray, universe: Any, before: Sequence[WorkerTransform]
    ) -> WorkerTransform:
        """Make the worker's half.

        Parameters
        ----------
        atoms : numpy.ndarray of int64, shape (n_atoms,)
            Indices of all atoms that are decoded, increasing.
        universe : Universe
            The system.
        before : sequence of WorkerTransform
            Transformations that are applied before this one.

        Returns
        -------
        WorkerTransform
            Without any MDAnalysis object.
        """

    def parameters(self) -> str:
        """Describe the call in one line, for the record that is saved with results."""


class Analysis(Protocol):
    """User's half of an analysis, as `run` needs it; see `paceline.analysis.base.AnalysisBase`."""

    atomgroup: Any
    fields: Sequence[str]
    optional_fields: Sequence[str]
    frames_together: int
    transforms: Sequence[Transform]
    skip_damaged: bool
    frames: np.ndarray
    times: np.ndarray
    damaged: list[tuple[int, str]]
    timings: Timings
    provenance: dict[str, Any]

    @property
    def name(self) -> str:
        """Name in error messages."""

    @property
    def indices(self) -> np.ndarray:
        """Atoms in the order in which the computation needs them."""

    @property
    def attributes(self) -> Mapping[str, np.ndarray]:
        """Attributes of the atoms that the computation needs, beside positions."""

    def prepare(self) -> PerFrame | Reduction | PerBlock:
        """Make the worker's half, with all that is the same for every frame."""

    def finish(self, value: Any) -> None:
        """Turn all rows, or the merged partial result, into results."""


def prepare_transforms(
    transforms: Sequence[Transform], wanted: np.ndarray, universe: Any
) -> tuple[np.ndarray, list[WorkerTransform]]:
    """Make the worker's halves of transformations, applied in this order.

    Parameters
    ----------
    transforms : sequence of Transform
        User's halves.
    wanted : numpy.ndarray of int64, shape (n_wanted,)
        Indices of the atoms to be analysed, increasing.
    universe : Universe
        The system.

    Returns
    -------
    atoms : numpy.ndarray of int64, shape (n_atoms,)
        Indices of all atoms that must be decoded for that, increasing.
    prepared : list of WorkerTransform
        The worker's halves.
    """
    atoms = wanted
    for transform in reversed(transforms):
        atoms = transform.atoms(atoms, universe)
    prepared: list[WorkerTransform] = []
    for transform in transforms:
        prepared.append(transform.prepare(atoms, universe, tuple(prepared)))
    return atoms, prepared
