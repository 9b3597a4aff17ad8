"""What workers are told, and what they return: plain data that travels to any process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from paceline import _core
from paceline.block import Block
from paceline.timing import BlockTiming


class PerFrame(Protocol):
    """The worker's half of an analysis that gives one row a frame."""

    def compute(self, block: Block) -> np.ndarray:
        """Rows of the block's frames, shape (n_frames, …)."""


class Reduction(Protocol):
    """The worker's half of an analysis that gives one result for all frames.

    A partial result must carry what can be merged exactly: counts and moments, never means alone.
    """

    def compute(self, block: Block) -> Any:
        """Partial result of one leaf."""

    def merge(self, left: Any, right: Any) -> Any:
        """Partial result of two neighbours."""


@dataclass(frozen=True)
class Part:
    """The worker's half of one analysis, and the atoms that are its."""

    name: str
    computation: PerFrame | Reduction
    columns: np.ndarray | None
    attributes: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def reduces(self) -> bool:
        """Whether it gives one result for all frames."""
        return hasattr(self.computation, "merge")


@dataclass(frozen=True)
class Clock:
    """Times of frames: the file's, or those that the user set in their place.

    Attributes
    ----------
    first : float
        What the first frame counts as, in frames.
    dt : float, optional
        Time between frames, ps, in place of the file's times.
    offset : float
        Added to all times, ps.
    """

    first: float = 0.0
    dt: float | None = None
    offset: float = 0.0

    def __call__(self, frames: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Times of frames, ps, given those in the file."""
        if self.dt is not None:
            times = (frames + self.first) * self.dt
        return times + self.offset if self.offset else times


class FrameSource(Protocol):
    """Where a worker's frames come from."""

    @property
    def n_wanted(self) -> int:
        """Number of atoms that are decoded."""

    @property
    def clock(self) -> Clock:
        """Times of the frames."""

    def open(self) -> Any:
        """A reader with the methods `read` and `read_ahead` of `_core.Reader`."""


@dataclass(frozen=True)
class FileFrames:
    """Frames of a file that the core decodes: all that a worker must know of it.

    Attributes
    ----------
    path : str
    layout : bytes
        How the file's frames are coded.
    fingerprint : str
        What the file was recognised by when it was indexed.
    atoms : numpy.ndarray of int64 or None
        Atoms to be decoded, increasing; None for all.
    n_wanted : int
        Their number.
    clock : Clock
    """

    path: str
    layout: bytes
    fingerprint: str
    atoms: np.ndarray | None
    n_wanted: int
    clock: Clock

    def open(self) -> "_core.Reader":
        """Open the file, and make sure that it is the one that was indexed."""
        return _core.Reader(self.path, self.layout, self.fingerprint, atoms=self.atoms)


@dataclass(frozen=True)
class Job:
    """What every block of a run has in common."""

    source: FrameSource
    parts: Sequence[Part]
    leaf_frames: int
    skip_damaged: bool


@dataclass(frozen=True)
class Work:
    """One block for one worker, with its own slice of the index.

    Attributes
    ----------
    number : int
        The block.
    first : int
        Its first row in the results.
    extents : tuple of three numpy.ndarray of uint64, shape (n_frames,)
        Frame numbers, byte offsets and sizes.
    ahead : the same, or None
        The block that this worker is likely to be dealt next.
    """

    number: int
    first: int
    extents: tuple[np.ndarray, np.ndarray, np.ndarray]
    ahead: tuple[np.ndarray, np.ndarray, np.ndarray] | None


@dataclass(frozen=True)
class Outcome:
    """What a worker returns of one block.

    Attributes
    ----------
    number, first, n_frames : int
        The block, its first row and its frames.
    values : list
        Of each analysis its rows, or its partial result merged over the block's leaves.
    times : numpy.ndarray of float64, shape (n_frames,)
        ps.
    damaged : list of (int, str)
        Frame number and reason of each frame that was left out.
    timing : BlockTiming
    """

    number: int
    first: int
    n_frames: int
    values: list[Any]
    times: np.ndarray
    damaged: list[tuple[int, str]]
    timing: BlockTiming
