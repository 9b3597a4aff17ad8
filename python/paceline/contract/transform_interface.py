"""Declarations of transformations: client parts, worker parts, and prefix scans over the frames."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from paceline.block import Block

if TYPE_CHECKING:
    from paceline.contract.atoms import System

#: Row with bonds that are longer than half the cell: row, number of such bonds, atoms of the
#: longest bond, and the length of the longest bond, Å.
LongBondsOfRow = tuple[int, int, Any, float]


class WorkerTransform:
    """Worker part of a transformation."""

    #: True for a `WorkerScan`.
    scans: ClassVar[bool] = False

    def apply(
        self, positions: np.ndarray, cells: np.ndarray, vectors: Sequence[np.ndarray] = ()
    ) -> list[tuple[int, str]]:
        """Transform a block in place; return the rows that failed, each with the reason.

        `cells` are the cells of a `FrameBuffer`. `vectors` are velocities and forces, to which
        rotations of the positions are applied too.
        """
        raise NotImplementedError

    def apply_noting(
        self, positions: np.ndarray, cells: np.ndarray, vectors: Sequence[np.ndarray] = ()
    ) -> tuple[list[tuple[int, str]], list[LongBondsOfRow]]:
        """Transform as `apply` does; also return the rows that still have too long bonds."""
        return self.apply(positions, cells, vectors), []


class Follower(Protocol):
    """Transforms blocks in frame order, starting from the first frame of a trajectory."""

    @property
    def changes(self) -> np.ndarray:
        """Frames whose cell differs by more than half from the cell of the previous frame."""

    def move_on(
        self,
        number: int,
        positions: np.ndarray,
        cells: np.ndarray,
        state: np.ndarray | None = None,
    ) -> list[tuple[int, str]] | None:
        """Transform block `number` in place, starting from the state after the previous block.

        Each thread may transform one block at a time. `state` is filled with the state in the
        block's first frame. Returns the rows that failed, each with the reason; None after `close`.
        """

    def close(self) -> None:
        """Release the threads that wait for the states of earlier blocks."""


class TransformScan(Protocol):
    """Worker part of the pass that finds states; a partial result stores changes of the state."""

    def compute(self, block: Block) -> Any:
        """Compute the partial result of adjacent frames. The set of frames may be empty."""

    def merge(self, left: Any, right: Any) -> Any:
        """Merge the partial results of two adjacent ranges of frames."""

    def states(self, merged: Any) -> tuple[np.ndarray, np.ndarray]:
        """Compute the states of frames from the partial result of all frames.

        Returns the states, shape (n_states, …), and the frames whose cell differs by more than half
        from the cell of the previous frame.
        """


class WorkerScan(WorkerTransform):
    """Worker part of a transformation that tracks atoms from frame to frame.

    A first pass over all frames of the trajectory finds the initial state of each block (`apply`,
    `scan_of`). In the next pass, each block starts from its initial state (`apply_from`). States
    must merge exactly. In the first pass, `apply` changes nothing, and returns the rows in which
    atoms cannot be tracked. If one process has all frames, it transforms the blocks in order
    instead (`follower`).
    """

    scans = True

    @property
    def state_bytes(self) -> int:
        """Size of the state of one frame, bytes."""
        raise NotImplementedError

    def apply_from(
        self, state: np.ndarray, positions: np.ndarray, cells: np.ndarray
    ) -> list[tuple[int, str]]:
        """Transform a block in place, given the states of all its frames or of its first frame."""
        raise NotImplementedError

    def follower(self, skip_damaged: bool) -> Follower:
        """Create the object that transforms blocks in frame order.

        With `skip_damaged`, rows in which atoms cannot be tracked are skipped. Otherwise the first
        such row ends the run.
        """
        raise NotImplementedError

    def no_states(self, n: int) -> np.ndarray:
        """Return `n` initial states (no change from the first frame), shape (n, …)."""
        raise NotImplementedError

    def scan_of(self, frames: np.ndarray) -> TransformScan:
        """Create the worker part of the first pass, given the frames whose states are needed."""
        raise NotImplementedError


class Transform:
    """Client part of a transformation; it can be used in several runs."""

    #: True if `prepare` makes a `WorkerScan`.
    scans: ClassVar[bool] = False
    #: True if the transformation makes molecules whole (see `made_whole`).
    makes_whole: ClassVar[bool] = False
    #: True if the transformation may put atoms of one molecule into different periodic images.
    breaks: ClassVar[bool] = False

    @property
    def rotates(self) -> bool:
        """True if the transformation rotates positions, velocities and forces."""
        return False

    def made_whole(self, universe: "System") -> np.ndarray:
        """Return the indices of atoms in molecules that the transformation makes whole."""
        raise NotImplementedError

    def whole_atoms(self, universe: "System") -> np.ndarray | None:
        """Return the indices of atoms whose molecules must be whole beforehand, or None."""
        return None

    def atoms(self, wanted: np.ndarray, universe: "System") -> np.ndarray:
        """Return the atoms that must be decoded in order to transform the atoms `wanted`.

        Parameters
        ----------
        wanted : numpy.ndarray of int64, shape (n_wanted,)
            Indices, increasing.
        universe : Universe
            The system.

        Returns
        -------
        numpy.ndarray of int64, shape (n_atoms,)
            Indices, increasing, including `wanted`.
        """
        raise NotImplementedError

    def prepare(
        self, atoms: np.ndarray, universe: "System", before: Sequence[WorkerTransform]
    ) -> WorkerTransform:
        """Create the worker part.

        Parameters
        ----------
        atoms : numpy.ndarray of int64, shape (n_atoms,)
            Indices of all decoded atoms, increasing.
        universe : Universe
            The system.
        before : sequence of WorkerTransform
            Transformations applied before this one.

        Returns
        -------
        WorkerTransform
            Worker part, without MDAnalysis objects.
        """
        raise NotImplementedError

    def parameters(self) -> str:
        """Describe the transformation's call in one line, for the record saved with results."""
        raise NotImplementedError
