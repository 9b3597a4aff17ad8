"""What workers are told: plain data that travels to any process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from paceline.block import Block, Decoded
from paceline.frames import Extents, FrameSource
from paceline.leaves import Leaves


class PerFrame(Protocol):
    """The worker's half of an analysis that gives one row a frame."""

    def compute(self, block: Block) -> np.ndarray:
        """Rows of the block's frames, shape (n_frames, …)."""


class Judge(PerFrame, Protocol):
    """A `PerFrame` that has no use for numbers themselves, only for what is wrong with them.

    They are judged as they are read: its blocks have `judgements` and no positions.
    """

    judges: Literal[True]


class Reduction(Protocol):
    """The worker's half of an analysis that gives one result for all frames.

    A partial result must carry what can be merged exactly: counts and moments, never means alone.
    """

    def compute(self, block: Block) -> Any:
        """Partial result of one leaf."""

    def merge(self, left: Any, right: Any) -> Any:
        """Partial result of two neighbours."""


class PerBlock(Protocol):
    """The worker's half of an analysis that has use for each block's own result: a writer, say.

    Its other half has `receiver`, which is given them. Errors of writing leave it as they are.
    """

    def compute_block(self, block: Block, first: int) -> Any:
        """What the block gives; frames that could not be read are not in it.

        `first` is its first row in the results, those of such frames counted too.
        """


class Receiver(Protocol):
    """Takes what a `PerBlock` gives of each block, in the calling thread, in any order."""

    def add(self, number: int, value: Any) -> None:
        """Take what block `number` gave."""


class Transform(Protocol):
    """The worker's half of a transformation."""

    def apply(self, positions: np.ndarray, dimensions: np.ndarray) -> list[tuple[int, str]]:
        """Change a block's positions in place; rows where that cannot be, and why."""


@dataclass(frozen=True)
class Part:
    """The worker's half of one analysis, and the atoms that are its."""

    name: str
    computation: PerFrame | Reduction | PerBlock
    columns: np.ndarray | None
    attributes: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def reduces(self) -> bool:
        """Whether it gives one result for all frames."""
        return hasattr(self.computation, "merge")

    @property
    def judges(self) -> bool:
        """Whether it wants judgements in place of numbers."""
        return hasattr(self.computation, "judges")

    @property
    def per_block(self) -> bool:
        """Whether each block's result is of use by itself."""
        return hasattr(self.computation, "compute_block")


@dataclass(frozen=True)
class Job:
    """What every block of one trajectory has in common.

    Attributes
    ----------
    source : FrameSource
        Where frames come from.
    transforms : sequence of Transform
        What is done to them first.
    parts : sequence of Part
        The worker's half of each analysis.
    leaves : Leaves
        Where leaves begin.
    skip_damaged : bool
        Whether to leave out frames that cannot be read.
    streamed : bool
        Whether the outcome of each block is wanted as it comes, rather than at the end.
    """

    source: FrameSource
    transforms: Sequence[Transform]
    parts: Sequence[Part]
    leaves: Leaves
    skip_damaged: bool
    streamed: bool = False

    def room_for(self, frames: np.ndarray) -> Decoded:
        """Arrays to read a block's frames into."""
        judged = any(part.judges for part in self.parts)
        return Decoded.room_for(frames, self.source.n_wanted, self.source.fields, judged=judged)


@dataclass(frozen=True)
class Work:
    """One block for one worker, with its own slice of the index.

    Attributes
    ----------
    job : int
        Which of the run's jobs it belongs to.
    number : int
        The block.
    first : int
        Its first row in the results.
    frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers in the trajectory.
    extents : Extents
        Where these frames are.
    ahead : Extents or None
        Of the block that this worker is likely to be dealt next.
    """

    job: int
    number: int
    first: int
    frames: np.ndarray
    extents: Extents
    ahead: Extents | None

    #: Of the subtree of blocks that it is: a single one.
    level: ClassVar[int] = 0

    @property
    def first_frame(self) -> int:
        """Number of the first frame."""
        return int(self.frames[0])

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return len(self.frames)

    @property
    def what(self) -> str:
        """What a message calls it."""
        return f"frames {self.frames[0]} to {self.frames[-1]}"


@dataclass(frozen=True)
class Calls:
    """What all calls of one function have in common: a job of another kind, without a file.

    Attributes
    ----------
    name : str
        What errors call the function.
    function : bytes
        Pickled: each worker opens one of its own.
    """

    #: Each value is wanted as it is, and at once: there is nothing to merge.
    streamed: ClassVar[bool] = True
    parts: ClassVar[Sequence[Part]] = ()

    name: str
    function: bytes


@dataclass(frozen=True)
class Call:
    """One call for one worker.

    Attributes
    ----------
    job : int
        Which of the run's jobs it belongs to.
    number : int
        The call.
    first : int
        How many frames the calls before it have.
    first_frame, n_frames : int
        What it is about; other than of frames, a number and 1.
    what : str
        What a message calls it.
    item : object
        What the function is called with.
    """

    #: As of a block.
    level: ClassVar[int] = 0

    job: int
    number: int
    first: int
    first_frame: int
    n_frames: int
    what: str
    item: Any


#: What backends are given.
AnyJob = Job | Calls
AnyWork = Work | Call
