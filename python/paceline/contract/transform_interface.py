"""Declarations of transformations: client parts, worker parts, and prefix scans over the frames."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from paceline import _core
from paceline.block import Block

if TYPE_CHECKING:
    from paceline.contract.system_interface import System

#: Bonds of a frame that are longer than half the cell: row of the frame, number of these bonds,
#: atoms of the longest bond, and length of the longest bond, Å.
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
        """Transform like `apply`; also return the rows with bonds longer than half the cell."""
        return self.apply(positions, cells, vectors), []


class CoreTransform(WorkerTransform):
    """Picklable transformation of the compiled module: `_core.Transform.kind(*arguments)`."""

    def __init__(self, kind: str, *arguments: object):
        self._made_of = kind, *arguments
        self._core: _core.Transform = getattr(_core.Transform, kind)(*arguments)

    def __reduce__(self) -> tuple[type, tuple]:
        return CoreTransform, self._made_of

    def apply(
        self, positions: np.ndarray, cells: np.ndarray, vectors: Sequence[np.ndarray] = ()
    ) -> list[tuple[int, str]]:
        """Transform the positions of a block in place; rotate velocities and forces with them.

        Parameters
        ----------
        positions : numpy.ndarray of float32, shape (n_frames, n_atoms, 3)
            Positions, Å. Frames that are all NaN are unchanged.
        cells : numpy.ndarray of float64, shape (n_frames, 19)
            Cells, in the layout of `paceline.block.FrameBuffer`.
        vectors : sequence of numpy.ndarray of float32, shape (n_frames, n_atoms, 3)
            Velocities and forces, Å/ps and kJ/(mol·Å).

        Returns
        -------
        list of (int, str)
            Rows that cannot be transformed, with the reasons; their positions are set to NaN.
        """
        return self.apply_noting(positions, cells, vectors)[0]

    def apply_noting(
        self, positions: np.ndarray, cells: np.ndarray, vectors: Sequence[np.ndarray] = ()
    ) -> tuple[list[tuple[int, str]], list[tuple[int, int, list[int], float]]]:
        """Transform like `apply`; also return rows with bonds longer than half the cell."""
        return self._core.apply(positions, cells, list(vectors))


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
    atoms cannot be tracked. If one process reads all frames, there is no first pass: that process
    transforms the blocks in order (`follower`).
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


def find_scan(transforms: Sequence[Transform | WorkerTransform]) -> int | None:
    """Return the index of the transformation that tracks atoms from frame to frame, or None."""
    return next((k for k, one in enumerate(transforms) if one.scans), None)


def advice_without_cell(reason: str) -> str:
    """Return advice for a frame without a cell; empty if the failure has another reason."""
    found = re.search("has no cell, which (unwrap|wrap|nojump) needs", reason)
    if found is None:
        return ""
    return f": without a cell molecules have no images: omit {found[1]} (--{found[1]})"
