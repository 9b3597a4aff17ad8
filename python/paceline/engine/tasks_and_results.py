"""Jobs, tasks and results: the plain data that backends exchange with workers.

A *job* contains the data that all blocks of one pass over a trajectory share. A *task* is one block
of a job. A *batch* is a subtree of adjacent tasks for one worker.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from paceline._util.machine_and_software import MemoryLimit
from paceline.contract.analysis_kinds import Kind, WorkerDeclaration
from paceline.contract.plan import LeafBoundaries
from paceline.contract.source import Extents, FrameSource
from paceline.errors import AnalysisError
from paceline.performance.record import BlockTiming

if TYPE_CHECKING:
    from paceline.contract.transform_interface import WorkerTransform
    from paceline.engine.transform_states import Relay


class Records(NamedTuple):
    """Records of some frames, for an analysis that returns any number of records per frame."""

    #: Number of records of each frame, int64, shape (n_frames,); 0 for frames that were left out.
    counts: np.ndarray
    #: Records of all frames in the order of frames; None if no frame could be read.
    records: np.ndarray | None


class SharedRows:
    """Output array of an analysis. Workers in the collecting process write rows directly into it.

    Workers of other processes send their rows instead: pickling drops the array. The array is
    allocated when the first rows arrive.
    """

    def __init__(self) -> None:
        self.replace(None)

    def __reduce__(self) -> tuple[object, ...]:
        return SharedRows, ()

    def replace(self, rows: np.ndarray | None, done: Iterable[int] = ()) -> None:
        """Use views of another array from now on, except for blocks that are done."""
        # One tuple, so that the array and its views are replaced in one step.
        self._state: tuple[np.ndarray | None, dict[int, object]] = rows, dict.fromkeys(done)

    @property
    def are_shared(self) -> bool:
        """True if workers get views of the output array."""
        return self._state[0] is not None

    def take(self, first: int, n_rows: int) -> np.ndarray | None:
        """Return the view for a block, only once: a second attempt at the block gets None."""
        rows, taken = self._state
        mine = object()
        if rows is None or taken.setdefault(first, mine) is not mine:
            return None
        return rows[first : first + n_rows]


@dataclass(frozen=True)
class WorkerAnalysis:
    """Worker part of one analysis, and the columns of its atoms in the decoded coordinates."""

    name: str
    computation: Any
    declared: WorkerDeclaration
    columns: np.ndarray | None
    attributes: Mapping[str, np.ndarray] = field(default_factory=dict)
    #: Number of frames before and after a block that the analysis reads in addition.
    halo: tuple[int, int] = (0, 0)
    shared: SharedRows = field(default_factory=SharedRows)
    #: True in the second pass of a scan: its tasks contain the state before each block.
    has_states: bool = False

    @cached_property
    def kind(self) -> Kind:
        """Kind of the results in this pass.

        The first pass of a scan computes how each block changes the state; the change is None if
        all frames of the block were left out. The second pass computes rows.
        """
        return Kind.ROWS if self.has_states else self.declared.kind

    def merge(self, left: Any, right: Any) -> Any:
        """Merge the partial results of two neighbours; an error names the analysis."""
        if self.kind is Kind.SCAN:
            return {**left, **right}
        with self.naming_errors():
            return self._merge_checked(left, right)

    def merge_states(self, left: object, right: object) -> object:
        """Merge two changes of state, or a state and the following change; None means no change."""
        if left is None or right is None:
            return right if left is None else left
        return self._merge_checked(self.own_state(left), right)

    def _merge_checked(self, left: object, right: object) -> object:
        """Merge with the user's method; raise an error if the method returns None."""
        found = self.computation.merge(left, right)
        if found is None and not (left is None and right is None):
            raise TypeError("merge returned None: it must return the merged result, also in place")
        return found

    def own_state(self, state: object) -> object:
        """Return a copy of a shared state if a method of the user's class may change it."""
        return state if self.declared.returns_new else copy.deepcopy(state)

    @contextmanager
    def naming_errors(self) -> Iterator[None]:
        """In a `with` block, turn errors of `merge` into `AnalysisError`s naming the analysis."""
        try:
            yield
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            message = f"{self.name} raised when blocks were merged: {reason}"
            raise AnalysisError.of(message, error) from error

    def check_rows_match(self, rows: np.ndarray, others: np.ndarray) -> None:
        """Raise `AnalysisError` if rows of two blocks differ in shape or dtype."""
        # Rows must match exactly; otherwise the result would depend on the order of blocks.
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
    """Parameters of a cache of decoded frames that all stages of one run share."""

    #: Text by which workers recognise the run and the trajectory whose frames they cached.
    key: str
    #: Limit of the cache. Without a limit, frames are cached while half of the memory is free.
    memory: MemoryLimit
    #: True in the last stage, which adds no frames to the cache.
    last: bool = False


@dataclass(frozen=True)
class Job:
    """Parameters and analyses that all tasks of one pass over a trajectory share.

    With `skip_damaged`, unreadable frames are left out. A `streamed` job needs the result of each
    block as soon as the block is done. With `caching`, decoded frames are cached for the next
    stage. The rows of one frame take at least `row_bytes`.
    """

    source: FrameSource
    transforms: "Sequence[WorkerTransform]"
    analyses: Sequence[WorkerAnalysis]
    leaves: LeafBoundaries
    skip_damaged: bool
    streamed: bool = False
    caching: FrameCaching | None = None
    row_bytes: int = 0
    #: Number of processes of a machine that share its requests to object stores.
    sharers: int = 1
    #: For each object store that was measured so far: its number, its latency (s), and its
    #: bandwidth (bytes per second).
    estimates: tuple[tuple[int, float, float], ...] = ()


@dataclass(frozen=True)
class FunctionJob:
    """Pickled function that all tasks of a job call; `name` appears in error messages."""

    #: Results are passed on one by one, because results of functions are not merged.
    streamed: ClassVar[bool] = True
    analyses: ClassVar[Sequence[WorkerAnalysis]] = ()

    name: str
    function: bytes
    sharers: int = 1
    estimates: tuple[tuple[int, float, float], ...] = ()


@dataclass(frozen=True)
class Task:
    """One block of frames for one worker, with the part of the frame index that it needs."""

    #: Number of the job in the run.
    job: int
    #: Number of the block.
    number: int
    #: First row of the block in the results.
    first: int
    #: Numbers of the frames to read, int64, shape (n_window,): the frames of the block, of its
    #: halo, and intermediate frames that a transformation needs.
    window: np.ndarray
    #: Byte ranges of these frames.
    extents: Extents
    #: Byte ranges of the block that this worker will probably process next.
    ahead: Extents | None
    #: Initial state of a transformation that follows atoms from frame to frame, or the `Relay` that
    #: provides the state.
    state: "np.ndarray | Relay | None" = None
    #: Number of frames of the window before and after the block.
    halo: tuple[int, int] = (0, 0)
    #: Number of frames of the window before the first frame of the block.
    lead: int = 0
    #: Spacing of the block's frames in the window; only a transformation uses the frames between.
    step: int = 1
    #: State before the block for each analysis. The state is None for an analysis without scan, and
    #: before the first frame. Empty if no analysis has states.
    states: Sequence[Any] = ()
    #: Maximum number of threads that compute a frame together.
    threads: int = 1

    #: Level of the subtree: a single block.
    level: ClassVar[int] = 0

    @cached_property
    def own(self) -> slice:
        """Rows of the block within its window."""
        return self.rows_with((0, 0))

    def rows_with(self, halo: tuple[int, int]) -> slice:
        """Rows of the block and a halo in the window; halos are cut off at the ends of the run."""
        if self.halo == (0, 0):  # fast path for most runs, as it is called 12 times per block
            return slice(self.lead, len(self.window), self.step)
        before, after = (min(*two) for two in zip(halo, self.halo, strict=True))
        begin = self.lead + self.halo[0] - before
        return slice(begin, len(self.window) - self.halo[1] + after, self.step)

    def without_transform_frames(self) -> "Task":
        """Copy the task without the frames that only a transformation uses."""
        return replace(self, window=self.window[self.lead :: self.step], lead=0, step=1)

    @property
    def frames(self) -> np.ndarray:
        """Frame numbers of the block."""
        return self.window[self.own]

    @cached_property
    def first_frame(self) -> int:
        """Frame number of the block's first frame."""
        return int(self.frames[0])

    @cached_property
    def n_frames(self) -> int:
        """Number of frames of the block, without halo."""
        return len(self.frames)

    @property
    def what(self) -> str:
        """Name of the task in error messages: the first and last frame of its block."""
        return f"frames {self.frames[0]} to {self.frames[-1]}"


@dataclass(frozen=True)
class FunctionTask:
    """Call of the function of a `FunctionJob` with one item."""

    level: ClassVar[int] = 0
    threads: ClassVar[int] = 1

    #: Number of the job in the run, and number of the call.
    job: int
    number: int
    #: Number of frames of all earlier calls.
    first: int
    #: First frame and number of frames of the call; for a call without frames, any number and 1.
    first_frame: int
    n_frames: int
    #: Name of the call in error messages.
    what: str
    #: Argument of the function.
    item: Any


#: Any job that a backend runs.
AnyJob = Job | FunctionJob
AnyTask = Task | FunctionTask


@dataclass(frozen=True)
class TaskBatch:
    """Adjacent tasks for one worker: an aligned subtree of 2**level blocks, or one call."""

    level: int
    tasks: Sequence[Any]

    @property
    def job(self) -> int:
        """Number of the job in the run."""
        return self.tasks[0].job

    @property
    def number(self) -> int:
        """Index of the subtree among the subtrees of its level."""
        return self.tasks[0].number >> self.level

    @property
    def threads(self) -> int:
        """Maximum number of threads that compute a frame together."""
        return max(task.threads for task in self.tasks)

    @property
    def n_frames(self) -> int:
        """Number of frames of all tasks together."""
        return sum(task.n_frames for task in self.tasks)

    @property
    def first_frame(self) -> int:
        """Frame number of the first task's first frame."""
        return self.tasks[0].first_frame

    @property
    def what(self) -> str:
        """Name of the batch in error messages: its first task and its number of frames."""
        if self.level == 0:
            return self.tasks[0].what
        return f"{self.tasks[0].what} and so on, {self.n_frames} in all"


class LongBonds(NamedTuple):
    """Bonds that are longer than half the cell after molecules were made whole."""

    #: Number of frames with long bonds.
    n_frames: int
    #: Total number of long bonds in these frames.
    n_bonds: int
    #: Length of the longest bond, Å.
    length: float
    #: Number of the frame with the longest bond.
    frame: int
    #: Columns of the two atoms of the longest bond in the decoded coordinates.
    atoms: tuple[int, int]


def sum_long_bonds(found: Sequence[LongBonds]) -> LongBonds:
    """Combine at least one summary of long bonds; the result does not depend on the order."""
    longest = max(found, key=lambda one: (one.length, -one.frame, one.atoms))
    return longest._replace(
        n_frames=sum(one.n_frames for one in found), n_bonds=sum(one.n_bonds for one in found)
    )


@dataclass(frozen=True)
class BlockResult:
    """Result of one block, or of a whole subtree of blocks."""

    #: Number of the job in the run.
    job: int
    #: Level of the subtree, which contains up to 2**level blocks from block number · 2**level on.
    level: int
    number: int
    #: First row in the results, and number of frames.
    first: int
    n_frames: int
    #: Result of each analysis: its rows, its `Records`, its partial result merged over the subtree,
    #: or a dict of results by block number. None if a rank stores the result until the end.
    values: list[Any] | None
    #: Times, ps, float64, shape (n_frames,); None if a rank stores them until the end.
    times: np.ndarray | None
    #: Frames that were left out: number and reason of each.
    damaged: list[tuple[int, str]]
    timings: list[BlockTiming]
    #: Summary of the long bonds of each block that has any.
    long_bonds: list[LongBonds] = field(default_factory=list)


@dataclass(frozen=True)
class CollectedResult:
    """Results of a whole job, stored by the workers and collected at the end."""

    #: Number of the job in the run.
    job: int
    #: Result of each analysis: all rows, all `Records`, or the partial result merged over all
    #: blocks.
    values: list[Any]
    #: Times, ps, float64, shape (n_frames,).
    times: np.ndarray
