"""What workers return: plain data that travels from any process."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from paceline.block import Block, Decoded
from paceline.errors import AnalysisError
from paceline.performance.records import BlockTiming
from paceline.schedule.plan import Leaves
from paceline.schedule.reduce import fold
from paceline.trajectory.source import Extents, FrameSource


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
class WorkerAnalysis:
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
    parts : sequence of WorkerAnalysis
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
    parts: Sequence[WorkerAnalysis]
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
class FunctionJob:
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
    parts: ClassVar[Sequence[WorkerAnalysis]] = ()

    name: str
    function: bytes


@dataclass(frozen=True)
class FunctionTask:
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
AnyJob = Job | FunctionJob
AnyWork = Work | FunctionTask


@dataclass(frozen=True)
class BlockResult:
    """What one block gave, or a whole subtree of blocks.

    Attributes
    ----------
    job : int
        Which of the run's jobs it belongs to.
    level, number : int
        The subtree: block number · 2**level and those that follow it, 2**level in all or as many
        as there are. A single block is a subtree of level 0.
    first, n_frames : int
        Its first row in the results, and its frames.
    values : list or None
        Of each analysis its rows, its partial result merged over the subtree, or what it made of
        each block, by the block's number. None where they are kept until all blocks are done.
    times : numpy.ndarray of float64, shape (n_frames,), or None
        ps. None where they are kept.
    damaged : list of (int, str)
        Frame number and reason of each frame that was left out.
    timings : list of BlockTiming
        Of each block.
    """

    job: int
    level: int
    number: int
    first: int
    n_frames: int
    values: list[Any] | None
    times: np.ndarray | None
    damaged: list[tuple[int, str]]
    timings: list[BlockTiming]


@dataclass(frozen=True)
class CollectedResult:
    """What all blocks of a job gave, kept where they were done and brought together at the end.

    Attributes
    ----------
    job : int
        Which of the run's jobs.
    values : list
        Of each analysis all rows, or the partial result merged over all blocks.
    times : numpy.ndarray of float64, shape (n_frames,)
        ps.
    """

    job: int
    values: list[Any]
    times: np.ndarray


def join(job: Job, level: int, outcomes: Sequence[BlockResult]) -> BlockResult:
    """Make one outcome of those of all the blocks of a subtree, or of its two halves.

    Parameters
    ----------
    job : Job
        To which all belong.
    level : int
        Of the subtree.
    outcomes : sequence of BlockResult
        Of each block, or of each half, in their order.

    Returns
    -------
    BlockResult
        Its partial results are merged as `Tree` would have merged them.

    Raises
    ------
    AnalysisError
        Rows of the blocks are not alike.
    """
    first = outcomes[0]
    values = [outcome.values for outcome in outcomes if outcome.values is not None]
    return BlockResult(
        first.job,
        level,
        first.number >> level - first.level,
        first.first,
        sum(outcome.n_frames for outcome in outcomes),
        [
            _join_values(part, [of_block[k] for of_block in values])
            for k, part in enumerate(job.parts)
        ],
        np.concatenate([outcome.times for outcome in outcomes if outcome.times is not None]),
        [damage for outcome in outcomes for damage in outcome.damaged],
        [timing for outcome in outcomes for timing in outcome.timings],
    )


def _join_values(part: WorkerAnalysis, values: Sequence[Any]) -> Any:
    if part.per_block:
        return {number: value for of_block in values for number, value in of_block.items()}
    if part.reduces:
        return fold(values, merging(part))
    for rows in values:
        refuse_unlike(part.name, rows, values[0])
    return np.concatenate(values)


def merging(part: WorkerAnalysis) -> Callable[[Any, Any], Any]:
    """The `merge` of an analysis, whose errors say whose they are.

    Parameters
    ----------
    part : WorkerAnalysis
        That gives one result for all frames.

    Returns
    -------
    callable
        Takes two neighbours, left and right.
    """

    def merge(left: Any, right: Any) -> Any:
        try:
            return part.computation.merge(left, right)  # type: ignore[union-attr]
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise AnalysisError(f"{part.name} raised when blocks were merged: {reason}") from error

    return merge


def refuse_unlike(name: str, rows: np.ndarray, others: np.ndarray) -> None:
    """Raise `AnalysisError` where rows of blocks are not of one shape and dtype.

    Parameters
    ----------
    name : str
        Of the analysis.
    rows, others : numpy.ndarray
        What it gave of one block, and of those before.
    """
    # Were some differences allowed, the order in which blocks come would decide.
    for what, found, expected in (
        ("rows of shape ", rows.shape[1:], others.shape[1:]),
        ("", rows.dtype, others.dtype),
    ):
        if found != expected:
            raise AnalysisError(
                f"{name}: expected {what}{expected} as from the other blocks, found {found}"
            )
