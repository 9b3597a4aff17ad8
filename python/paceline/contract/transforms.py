"""Declarations of transformations: client parts, worker parts, and those that scan the frames."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from paceline.block import Block

if TYPE_CHECKING:
    from paceline.contract.atoms import System

#: A row with bonds that are longer than half the cell: row, number of bonds, the longest one's
#: atoms, its length in Å.
LongBondsOfRow = tuple[int, int, Any, float]


class WorkerTransform:
    """Worker part of a transformation."""

    #: True for a `WorkerScan`.
    scans: ClassVar[bool] = False

    def apply(
        self, positions: np.ndarray, cells: np.ndarray, vectors: Sequence[np.ndarray] = ()
    ) -> list[tuple[int, str]]:
        """Transform a block in place; return rows that cannot be transformed, with the reason.

        `cells` are those of `FrameBuffer`, and `vectors` the velocities and forces, which turn with
        the positions.
        """
        raise NotImplementedError

    def apply_noting(
        self, positions: np.ndarray, cells: np.ndarray, vectors: Sequence[np.ndarray] = ()
    ) -> tuple[list[tuple[int, str]], list[LongBondsOfRow]]:
        """Transform as `apply` does; also return rows with bonds that are too long afterwards."""
        return self.apply(positions, cells, vectors), []


class Follower(Protocol):
    """Transforms blocks in the order of frames, from the first frame of a trajectory on."""

    @property
    def changes(self) -> np.ndarray:
        """Frames whose cell differs by more than half from that of the frame before."""

    def move_on(
        self,
        number: int,
        positions: np.ndarray,
        cells: np.ndarray,
        state: np.ndarray | None = None,
    ) -> list[tuple[int, str]] | None:
        """Transform block `number` in place as those before it are.

        Threads may have one block each. `state` is filled with that in the first frame of it.
        Returns rows that cannot be transformed, with the reason; None after `close`.
        """

    def close(self) -> None:
        """Release the blocks that wait for others."""


class TransformScan(Protocol):
    """Worker part of the pass that finds states: partial results hold those of some frames."""

    def compute(self, block: Block) -> Any:
        """Compute the partial result of neighbouring frames; there may be none."""

    def merge(self, left: Any, right: Any) -> Any:
        """Merge those of neighbours."""

    def states(self, merged: Any) -> tuple[np.ndarray, np.ndarray]:
        """Make the states of frames from the partial result of all.

        Their shape is (n_states, …). Also returns frames whose cell differs by more than half from
        that of the frame before.
        """


class WorkerScan(WorkerTransform):
    """Worker part of a transformation that follows atoms from frame to frame.

    A first pass over all frames, from the first of the trajectory on, finds the states in which
    blocks begin (`apply`, `scan_of`); in the next one each block goes on from its state
    (`apply_from`). States must merge exactly. `apply` changes nothing, and returns rows that
    cannot be followed. Where one process has all frames, blocks are transformed in order instead
    (`follower`).
    """

    scans = True

    @property
    def state_bytes(self) -> int:
        """Bytes of the state in one frame."""
        raise NotImplementedError

    def apply_from(
        self, state: np.ndarray, positions: np.ndarray, cells: np.ndarray
    ) -> list[tuple[int, str]]:
        """Transform a block in place, given its states: of every frame, or of the first."""
        raise NotImplementedError

    def follower(self, skip_damaged: bool) -> Follower:
        """Make what transforms blocks in order.

        With `skip_damaged`, rows that cannot be followed are left out; else the first one ends
        the run.
        """
        raise NotImplementedError

    def no_states(self, n: int) -> np.ndarray:
        """States of `n` frames before anything has changed, shape (n, …)."""
        raise NotImplementedError

    def scan_of(self, frames: np.ndarray) -> TransformScan:
        """Make the worker part of the first pass, given the frames of the states."""
        raise NotImplementedError


class Transform:
    """Client part of a transformation; it serves any number of runs."""

    #: True if `prepare` makes a `WorkerScan`.
    scans: ClassVar[bool] = False
    #: True if it makes molecules whole (`made_whole`).
    makes_whole: ClassVar[bool] = False
    #: True if atoms of one molecule may come to lie in different images.
    breaks: ClassVar[bool] = False

    @property
    def turns(self) -> bool:
        """True if it rotates positions, and velocities and forces with them."""
        return False

    def made_whole(self, universe: "System") -> np.ndarray:
        """Find the atoms of the molecules that it makes whole: indices."""
        raise NotImplementedError

    def whole_atoms(self, universe: "System") -> np.ndarray | None:
        """Find the atoms whose molecules must be whole for it, indices; None if none must."""
        return None

    def atoms(self, wanted: np.ndarray, universe: "System") -> np.ndarray:
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
            Without any MDAnalysis object.
        """
        raise NotImplementedError

    def parameters(self) -> str:
        """Describe the call in one line, for the record that is saved with results."""
        raise NotImplementedError
