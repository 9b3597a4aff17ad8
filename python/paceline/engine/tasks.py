"""Jobs, tasks and results: plain data that backends send to workers and back.

A *job* holds all that the blocks of one trajectory have in common, a *task* is one block of it, and
a *batch* is a subtree of neighbouring tasks for one worker.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from paceline._util.machine import MemoryLimit
from paceline.contract.kinds import Kind, WorkerDeclaration
from paceline.contract.plan import Leaves
from paceline.contract.source import Extents, FrameSource
from paceline.errors import AnalysisError
from paceline.performance.record import BlockTiming

if TYPE_CHECKING:
    from paceline.contract.transforms import WorkerTransform
    from paceline.engine.transform_states import Relay


class Records(NamedTuple):
    """Records of some frames, of an analysis that gives any number of them per frame."""

    #: Number of records of each frame; 0 of those that were left out. Int64, shape (n_frames,).
    counts: np.ndarray
    #: Records of all frames, one after another; None if no frame could be read.
    records: np.ndarray | None


class SharedRows:
    """Output array of an analysis, to which workers of the collecting process write their rows.

    Other workers send their rows: a pickled one has no array, and none has one before the first
    rows came.
    """

    def __init__(self) -> None:
        self.replace(None)

    def __reduce__(self) -> tuple[object, ...]:
        return SharedRows, ()

    def replace(self, rows: np.ndarray | None, done: Iterable[int] = ()) -> None:
        """Give views of another array from now on, but for blocks that are done."""
        # Together: views that were taken are of the same array.
        self._state: tuple[np.ndarray | None, dict[int, object]] = rows, dict.fromkeys(done)

    @property
    def are_given(self) -> bool:
        """True if workers get views of the output array."""
        return self._state[0] is not None

    def take(self, first: int, n_rows: int) -> np.ndarray | None:
        """Get the view for a block, once: another attempt at it gets none."""
        rows, taken = self._state
        mine = object()
        if rows is None or taken.setdefault(first, mine) is not mine:
            return None
        return rows[first : first + n_rows]


@dataclass(frozen=True)
class WorkerAnalysis:
    """Worker part of one analysis, and the columns of its atoms among the decoded ones."""

    name: str
    computation: Any
    declared: WorkerDeclaration
    columns: np.ndarray | None
    attributes: Mapping[str, np.ndarray] = field(default_factory=dict)
    #: Frames that its blocks have before and after those whose rows it computes.
    halo: tuple[int, int] = (0, 0)
    shared: SharedRows = field(default_factory=SharedRows)
    #: True in the second pass of a scan, whose tasks have the states before their blocks.
    has_states: bool = False

    @property
    def scans(self) -> bool:
        """True if its rows depend on all frames before."""
        return self.declared.kind is Kind.SCAN

    @property
    def finds_states(self) -> bool:
        """True in the first pass of a scan: a block gives how it changes the state, by its number.

        None stands for no change, where all frames of a block were left out.
        """
        return self.scans and not self.has_states

    @property
    def reduces(self) -> bool:
        """True if it gives one result for all frames."""
        return self.finds_states or self.declared.kind is Kind.SUM

    @property
    def per_block(self) -> bool:
        """True if each block's result is passed on by itself."""
        return self.declared.kind is Kind.BLOCKS

    @property
    def ragged(self) -> bool:
        """True if it gives any number of records per frame."""
        return self.declared.kind is Kind.RECORDS

    def merge(self, left: Any, right: Any) -> Any:
        """Merge the partial results of two neighbours; an error names the analysis."""
        if self.finds_states:
            return {**left, **right}
        with self.naming_errors():
            return self._merged(left, right)

    def merge_states(self, left: object, right: object) -> Any:
        """Merge two changes of state, or a state and the change after it; None is none."""
        if left is None or right is None:
            return right if left is None else left
        return self._merged(self.own_state(left), right)

    def _merged(self, left: object, right: object) -> Any:
        """Merge by the method; None, of one that returns nothing, would count as no frames."""
        found = self.computation.merge(left, right)
        if found is None and not (left is None and right is None):
            raise TypeError("merge returned None: it must return the merged result, also in place")
        return found

    def own_state(self, state: object) -> Any:
        """Copy a state, which others have too, where a method of the user's may change it."""
        return state if self.declared.returns_new else copy.deepcopy(state)

    @contextmanager
    def naming_errors(self) -> Iterator[None]:
        """Raise `AnalysisError`, which names the analysis, for errors of its `merge`."""
        try:
            yield
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            message = f"{self.name} raised when blocks were merged: {reason}"
            raise AnalysisError.of(message, error) from error

    def check_rows_match(self, rows: np.ndarray, others: np.ndarray) -> None:
        """Raise `AnalysisError` if rows of two blocks differ in shape or dtype."""
        # Were some differences allowed, the order in which blocks come would decide.
        for what, found, expected in (
            ("rows of shape ", rows.shape[1:], others.shape[1:]),
            ("", rows.dtype, others.dtype),
        ):
            if found != expected:
                raise AnalysisError(
                    f"{self.name}: expected {what}{expected} as from the other blocks, found "
                    f"{found}"
                )


@dataclass(frozen=True)
class FrameCaching:
    """Parameters of a cache of decoded frames, which the stages of one run share."""

    #: Name of the run over this trajectory.
    key: str
    #: Counts what is kept; without a limit, frames are kept while half of the memory is free.
    memory: MemoryLimit
    #: True in the last stage, which keeps no more frames.
    last: bool = False


@dataclass(frozen=True)
class Job:
    """Parameters and analyses that all tasks of one trajectory share.

    `skip_damaged` leaves out unreadable frames. `streamed` jobs need the result of each block as it
    comes, rather than at the end. With `caching`, decoded frames stay for the next stage. A frame's
    rows take at least `row_bytes`.
    """

    source: FrameSource
    transforms: "Sequence[WorkerTransform]"
    analyses: Sequence[WorkerAnalysis]
    leaves: Leaves
    skip_damaged: bool
    streamed: bool = False
    caching: FrameCaching | None = None
    row_bytes: int = 0


@dataclass(frozen=True)
class FunctionJob:
    """A pickled function that all tasks of a job call; `name` is for error messages."""

    #: Each value is passed on at once: there is nothing to merge.
    streamed: ClassVar[bool] = True
    analyses: ClassVar[Sequence[WorkerAnalysis]] = ()

    name: str
    function: bytes


@dataclass(frozen=True)
class Task:
    """One block of frames for one worker, with its own slice of the index."""

    #: Number of its job in the run.
    job: int
    #: Number of the block.
    number: int
    #: Its first row in the results.
    first: int
    #: Frame numbers in the trajectory, of the block, of its halo, and of frames that are passed
    #: over, int64, shape (n_window,).
    window: np.ndarray
    #: Byte ranges of these frames.
    extents: Extents
    #: Byte ranges of the block that this worker is likely to do next.
    ahead: Extents | None
    #: First state of a transformation that follows atoms from frame to frame, or the relay that
    #: gives it when the block before is done.
    state: "np.ndarray | Relay | None" = None
    #: Frames of the window before and after those of the block.
    halo: tuple[int, int] = (0, 0)
    #: Frames of the window that are passed over before the first one of the block, and from one of
    #: the block to the next.
    lead: int = 0
    step: int = 1
    #: State before the block of each analysis that scans, None before the first frame; None for
    #: all other analyses. Empty if no analysis has states.
    states: Sequence[Any] = ()

    #: A single block is a subtree of level 0.
    level: ClassVar[int] = 0

    @property
    def own(self) -> slice:
        """Rows of the block in its window."""
        return self.rows_with((0, 0))

    def rows_with(self, halo: tuple[int, int]) -> slice:
        """Rows of the block and of a halo in its window, as many of the halo as there are."""
        if self.halo == (0, 0):  # as of most runs: it is asked for a dozen times a block
            return slice(self.lead, len(self.window), self.step)
        before, after = (min(*two) for two in zip(halo, self.halo, strict=True))
        begin = self.lead + self.halo[0] - before
        return slice(begin, len(self.window) - self.halo[1] + after, self.step)

    def thinned(self) -> "Task":
        """Make a copy without the frames that are passed over."""
        return replace(self, window=self.window[self.lead :: self.step], lead=0, step=1)

    @property
    def frames(self) -> np.ndarray:
        """Frame numbers of the block."""
        return self.window[self.own]

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
        """Name in error messages."""
        return f"frames {self.frames[0]} to {self.frames[-1]}"


@dataclass(frozen=True)
class FunctionTask:
    """One call of a `FunctionJob`'s function with one item."""

    level: ClassVar[int] = 0

    #: Number of its job in the run, and of the call.
    job: int
    number: int
    #: Number of frames of all calls before it.
    first: int
    #: Frames that the call is about; a number and 1 if it is about anything else.
    first_frame: int
    n_frames: int
    #: Name in error messages.
    what: str
    #: Argument of the function.
    item: Any


#: Types that backends are given.
AnyJob = Job | FunctionJob
AnyTask = Task | FunctionTask


@dataclass(frozen=True)
class TaskBatch:
    """Neighbouring tasks for one worker: an aligned subtree of 2**level blocks, or one call."""

    level: int
    tasks: Sequence[Any]

    @property
    def job(self) -> int:
        """Number of its job in the run."""
        return self.tasks[0].job

    @property
    def number(self) -> int:
        """Number of the subtree among those of its level."""
        return self.tasks[0].number >> self.level

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return sum(task.n_frames for task in self.tasks)

    @property
    def first_frame(self) -> int:
        """Number of the first frame."""
        return self.tasks[0].first_frame

    @property
    def what(self) -> str:
        """Name in error messages."""
        if self.level == 0:
            return self.tasks[0].what
        return f"{self.tasks[0].what} and so on, {self.n_frames} in all"


class LongBonds(NamedTuple):
    """Bonds that are longer than half the cell after molecules were made whole."""

    #: Frames that have any, and bonds of all these frames.
    n_frames: int
    n_bonds: int
    #: Longest bond: Å, number of its frame, and columns of its atoms.
    length: float
    frame: int
    atoms: tuple[int, int]


def sum_long_bonds(found: Sequence[LongBonds]) -> LongBonds:
    """Add up findings, at least one; the order does not matter."""
    longest = max(found, key=lambda one: (one.length, -one.frame, one.atoms))
    return longest._replace(
        n_frames=sum(one.n_frames for one in found), n_bonds=sum(one.n_bonds for one in found)
    )


@dataclass(frozen=True)
class BlockResult:
    """Result of one block, or of a whole subtree of blocks."""

    #: Number of its job in the run.
    job: int
    #: The subtree: block number · 2**level and those that follow it, 2**level in all or as many as
    #: exist.
    level: int
    number: int
    #: Its first row in the results, and its frames.
    first: int
    n_frames: int
    #: For each analysis its rows, its `Records`, its partial result merged over the subtree, or its
    #: result of each block by the block's number. None where a rank keeps them until all blocks are
    #: done.
    values: list[Any] | None
    #: ps; None where a rank keeps them. Float64, shape (n_frames,).
    times: np.ndarray | None
    #: Frame number and reason of each frame that was left out.
    damaged: list[tuple[int, str]]
    timings: list[BlockTiming]
    #: Long bonds of each block that has any.
    long_bonds: list[LongBonds] = field(default_factory=list)


@dataclass(frozen=True)
class CollectedResult:
    """Results of a whole job, kept by the workers and collected at the end."""

    #: Number of the job in the run.
    job: int
    #: For each analysis all rows, all `Records`, or the partial result merged over all blocks.
    values: list[Any]
    #: ps, float64, shape (n_frames,).
    times: np.ndarray
