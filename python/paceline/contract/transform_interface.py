"""Declarations of transformations: client parts, worker parts, and prefix scans over the frames."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from paceline.block import Block

if TYPE_CHECKING:
    from paceline.contract.atoms import System

#: Row with bonds that are longer than half the cell: row, number of such bonds, atoms of the
#: longest bond, and its length in Å.
LongBondsOfRow = tuple[int, int, Any, float]


class WorkerTransform:
    """Worker part of a transformation."""

    #: True for a `WorkerScan`.
    scans: ClassVar[bool] = False

    def apply(
        self, positions: np.ndarray, cells: np.ndarray, vectors: Sequence[np.ndarray] = ()
    ) -> list[tuple[int, str]]:
        """Transform a block in place; return the rows that failed, each with the reason.

        `cells` are the cells of a `FrameBuffer`. `vectors` are the velocities and forces, which are
        rotated with the positions.
        """
        raise NotImplementedError

    def apply_noting(
        self, positions: np.ndarray, cells: np.ndarray, vectors: Sequence[np.ndarray] = ()
    ) -> tuple[list[tuple[int, str]], list[LongBondsOfRow]]:
        """Transform as `apply` does; also return the rows whose bonds are too long afterwards."""
        return self.apply(positions, cells, vectors), []


class Follower(Protocol):
    """Transforms blocks in the order of frames, from the first frame of a trajectory on."""

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
        """Transform block `number` in place, starting from the state after the block before it.

        Each thread may transform one block at a time. `state` receives the state in the first frame
        of the block. Returns the rows that failed, each with the reason; None after `close`.
        """

    def close(self) -> None:
        """Release the threads that wait for the states of earlier blocks."""


class TransformScan(Protocol):
    """Worker part of the pass that finds states; partial results hold changes of some frames."""

    def compute(self, block: Block) -> Any:
        """Compute the partial result of adjacent frames; it is called for an empty set, too."""

    def merge(self, left: Any, right: Any) -> Any:
        """Merge the partial results of two adjacent ranges of frames."""

    def states(self, merged: Any) -> tuple[np.ndarray, np.ndarray]:
        """Compute the states of frames from the partial result of all frames.

        The array has the shape (n_states, …). Also returns the frames whose cell differs by more
        than half from the cell of the previous frame.
        """


class WorkerScan(WorkerTransform):
    """Worker part of a transformation that follows atoms from frame to frame.

    A first pass over all frames of the trajectory finds the initial state of each block (`apply`,
    `scan_of`). In the next pass, each block starts from its initial state (`apply_from`). States
    must merge exactly. `apply` changes nothing, and returns the rows that cannot be followed. If
    one process has all frames, it transforms the blocks in order instead (`follower`).
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
        """Make the object that transforms blocks in order.

        With `skip_damaged`, rows that cannot be followed are left out. Otherwise the first of them
        ends the run.
        """
        raise NotImplementedError

    def no_states(self, n: int) -> np.ndarray:
        """Return the states of `n` frames without any change, shape (n, …)."""
        raise NotImplementedError

    def scan_of(self, frames: np.ndarray) -> TransformScan:
        """Make the worker part of the first pass, given the frames whose states are needed."""
        raise NotImplementedError


class Transform:
    """Client part of a transformation; it can be used in several runs."""

    #: True if `prepare` makes a `WorkerScan`.
    scans: ClassVar[bool] = False
    #: True if the transformation makes molecules whole (`made_whole`).
    makes_whole: ClassVar[bool] = False
    #: True if atoms of one molecule may end up in different periodic images.
    breaks: ClassVar[bool] = False

    @property
    def turns(self) -> bool:
        """True if the transformation rotates positions, velocities and forces."""
        return False

    def made_whole(self, universe: "System") -> np.ndarray:
        """Find the atoms of the molecules that the transformation makes whole: indices."""
        raise NotImplementedError

    def whole_atoms(self, universe: "System") -> np.ndarray | None:
        """Find the atoms whose molecules must be whole beforehand: indices, or None."""
        return None

    def atoms(self, wanted: np.ndarray, universe: "System") -> np.ndarray:
        """Find the atoms that must be decoded to transform the atoms `wanted`.

        Parameters
        ----------
        wanted : numpy.ndarray of int64, shape (n_wanted,)
            Indices, increasing.
        universe : Universe
            The system.

        Returns
        -------
        numpy.ndarray of int64, shape (n_atoms,)
            Indices, increasing; they include `wanted`.
        """
        raise NotImplementedError

    def prepare(
        self, atoms: np.ndarray, universe: "System", before: Sequence[WorkerTransform]
    ) -> WorkerTransform:
        """Make the worker part.

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
            Worker part; it holds no MDAnalysis object.
        """
        raise NotImplementedError

    def parameters(self) -> str:
        """Describe the call in one line, for the record that is saved with results."""
        raise NotImplementedError
