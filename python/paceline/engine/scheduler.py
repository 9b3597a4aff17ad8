"""Schedule tasks: assign each one to the next idle worker.

`Scheduler` assigns tasks one by one, and assigns overdue tasks once more. `TaskBatcher` groups
tasks into batches, for backends whose messages take milliseconds. `PartitionedScheduler` assigns
each worker a contiguous share of the tasks (`StealingPartition`). An idle worker steals half of
another worker's share, unless the shares are static.
"""

import statistics
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Generic, TypeVar

from paceline.contract.source import Extents
from paceline.engine.node_cache_locality import NodeShares
from paceline.engine.tasks_and_results import (
    AnyJob,
    AnyTask,
    BlockResult,
    FunctionJob,
    Task,
    TaskBatch,
)
from paceline.errors import WorkerError
from paceline.performance.record import PARTS, BlockTiming, DuplicateAttempt

#: A task is overdue if it takes this many times the median of the latest tasks of its job.
OVERDUE = 2.0
#: Minimum time of an overdue task, s: a second attempt at a shorter task saves nothing.
SHORTEST = 0.5
#: Number of the latest tasks in the median. The median of some ten thousand tasks would take
#: milliseconds.
REMEMBERED = 255
#: Time until a task is overdue if no task of its job is done yet, s.
UNKNOWN = 10.0
#: A task for which this many workers were lost ends the run, because it may crash its workers.
MOST_LOSSES = 3

#: Minimum duration of a batch, s: much longer than the time to assign a batch.
BATCH_SECONDS = 0.2
#: When less than a batch per worker is left, a worker takes only this fraction of its share, so
#: that all workers end together. Without this rule, 16 simulated workers idle for 4 % of the time
#: of a run of one second.
LAST = 0.25
#: Maximum size of the decoded frames of a batch, or of its rows if larger, bytes. The results of
#: several batches are in memory at a time.
BATCH_BYTES = 256 * 2**20
#: Maximum level of a batch: a batch contains at most 2**level blocks.
DEEPEST = 12


#: Unit of scheduling: a task, or a batch of tasks. A batch is an aligned subtree of a job's blocks;
#: a task is a subtree of level 0.
Schedulable = AnyTask | TaskBatch
T = TypeVar("T", bound=Schedulable)


@dataclass
class _Running(Generic[T]):
    """Task that was assigned and is not done; `n_attempts` counts all attempts at it."""

    task: T
    since: float
    n_attempts: int = 1


class Scheduler(Generic[T]):
    """Assigns tasks to idle workers, and slow tasks once more (speculative execution).

    An overdue task is assigned again, to a worker without other work. The first result counts. The
    backends run the tasks; the scheduler only records their state. The next task is taken from the
    iterable when a task is assigned.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> tasks = [SimpleNamespace(job=0, level=0, number=k, n_frames=16) for k in range(2)]
    >>> scheduler = Scheduler(tasks)
    >>> scheduler.assign().number, scheduler.assign().number, scheduler.assign()
    (0, 1, None)
    >>> result = SimpleNamespace(job=0, level=0, number=1)
    >>> scheduler.complete(result), scheduler.complete(result), scheduler.finished
    (True, False, False)
    """

    def __init__(self, tasks: Iterable[T]):
        self._tasks = iter(tasks)
        # The next task, read ahead, to know whether another task is left.
        self._upcoming = next(self._tasks, None)
        self._returned: deque[T] = deque()
        self._running: dict[tuple[int, int, int], _Running[T]] = {}
        self._losses: dict[tuple[int, int, int], int] = {}
        self._paces: dict[int, deque[float]] = {}

    @property
    def finished(self) -> bool:
        """True once every task is done."""
        return self._upcoming is None and not self._returned and not self._running

    @property
    def running(self) -> list[T]:
        """Tasks that were assigned and are not done."""
        return [running.task for running in self._running.values()]

    def assign(self) -> T | None:
        """Assign a task that was returned, or else a new one; None if all tasks were assigned."""
        if self._returned:
            task = self._returned.popleft()
        elif self._upcoming is not None:
            task, self._upcoming = self._upcoming, next(self._tasks, None)
        else:
            return None
        self._start(task)
        return task

    def _start(self, task: T) -> None:
        self._running[_key(task)] = _Running(task, time.monotonic())

    def assign_overdue(self) -> T | None:
        """Assign the overdue task that has run longest once more, to an idle worker.

        Returns None if no task is overdue, or if unassigned tasks are left.
        """
        now = time.monotonic()
        if self._upcoming is not None or self._returned:
            return None
        for running in sorted(self._running.values(), key=lambda running: running.since):
            if now >= self._due(running):
                running.since, running.n_attempts = now, running.n_attempts + 1
                return running.task
        return None

    def seconds_until_overdue(self) -> float | None:
        """Time until `assign_overdue` may assign a task, s; None if no task is running."""
        if not self._running:
            return None
        soonest = min(self._due(running) for running in self._running.values())
        return max(0.0, soonest - time.monotonic())

    def _due(self, running: _Running[T]) -> float:
        """Time at which a task is overdue, s; each new attempt may take twice as long."""
        paces = self._paces.get(running.task.job)
        allowed = UNKNOWN
        if paces:
            # Of two middle values, use the lower one as the median, so that tasks of a slow worker
            # do not determine it.
            usual = statistics.median_low(paces) * running.task.n_frames
            allowed = max(SHORTEST, OVERDUE * usual)
        # Allow more time: workers without a task are not idle if their threads compute frames of
        # this task.
        allowed *= running.task.threads
        return running.since + allowed * 2 ** (running.n_attempts - 1)

    def complete(self, result: BlockResult) -> bool:
        """Record a result; return False if another attempt at the task was faster."""
        running = self._running.pop(_key(result), None)
        if running is None:
            return False
        pace = (time.monotonic() - running.since) / running.task.n_frames
        self._paces.setdefault(result.job, deque(maxlen=REMEMBERED)).append(pace)
        return True

    def return_lost(self, task: T, reason: str = "") -> None:
        """Schedule a task again, as the next one, because its worker was lost for this `reason`.

        Raises `WorkerError` if the task has lost too many workers.
        """
        key = _key(task)
        if self._running.pop(key, None) is None:
            return
        self._losses[key] = self._losses.get(key, 0) + 1
        if self._losses[key] == MOST_LOSSES:
            lost = "lost" if reason else "killed"
            guess = "perhaps memory was insufficient, or the analysis crashes the worker process"
            raise WorkerError(
                f"workers were {lost} {MOST_LOSSES} times while they processed {task.what}: "
                f"{reason or guess}"
            )
        self._returned.append(task)


def _key(task: Schedulable | BlockResult) -> tuple[int, int, int]:
    return task.job, task.level, task.number


def late_attempts(result: BlockResult) -> list[DuplicateAttempt]:
    """Record each block of a late result, whose task another attempt had finished."""
    return [DuplicateAttempt(replace(timing, comm=0), came=True) for timing in result.timings]


def abandoned_attempt(
    task: Schedulable, worker: str, since: int, *, offset: int = 0
) -> DuplicateAttempt:
    """Record an attempt whose result the run no longer waits for.

    `worker` is empty if unknown. `since` is the time of assignment by this host's clock, ns.
    `offset` is the run's clock minus this host's clock, ns.
    """
    timing = BlockTiming(
        job=task.job,
        block=task.number << task.level,
        first_frame=task.first_frame,
        n_frames=task.n_frames,
        worker=worker,
        start=since + offset,
        end=time.monotonic_ns() + offset,
        **dict.fromkeys(("wait", *PARTS, "comm", "bytes", "calls"), 0),
    )
    return DuplicateAttempt(timing, came=False)


def with_frame_threads(
    jobs: Sequence[AnyJob], tasks: Iterable[AnyTask], n_tasks: int, n_workers: int, most: int
) -> Iterator[AnyTask]:
    """Yield tasks with numbers of threads per frame: workers without a task help to compute.

    There are `n_workers` threads, or `most` if this is more. As long as all workers have a task,
    each task gets an equal share of the threads. The last tasks share all threads, at most `most`
    each. If no analysis of the job can split frames, each task gets one thread. Results do not
    depend on the threads.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> analysis = SimpleNamespace(declared=SimpleNamespace(splits_frames=True))
    >>> job, tasks = SimpleNamespace(analyses=[analysis]), [Task(0, 0, 0, [0], [], None)] * 5
    >>> [task.threads for task in with_frame_threads([job], tasks, 5, n_workers=3, most=3)]
    [1, 1, 1, 2, 1]
    """
    are_split = [any(one.declared.splits_frames for one in job.analyses) for job in jobs]
    n_threads, n_early = max(n_workers, most), n_tasks - n_tasks % n_workers
    for number, task in enumerate(tasks):
        is_early = number < n_early
        n_beside = n_workers if is_early else n_tasks - n_early
        threads, rest = divmod(n_threads, n_beside)
        threads += (number % n_workers if is_early else number - n_early) < rest
        if isinstance(task, Task) and are_split[task.job] and min(threads, most) > 1:
            task = replace(task, threads=min(threads, most))
        yield task


class TaskBatcher:
    """Groups tasks into batches of at least `seconds`; single tasks until the pace is known.

    The tasks of a job follow one another in the order of their numbers. `n_workers` batches run at
    a time. The last batches are shorter than `seconds`.
    """

    def __init__(
        self,
        jobs: Sequence[AnyJob],
        tasks: Iterable[AnyTask],
        n_workers: int,
        seconds: float = BATCH_SECONDS,
    ):
        self._jobs = jobs
        self._tasks = iter(tasks)
        self._n_workers = n_workers
        self._seconds = seconds
        self._ahead: deque[Any] = deque()
        # For each job: number of frames done, and their time, ns.
        self._done = [(0, 0)] * len(jobs)

    def __iter__(self) -> Iterator[TaskBatch]:
        return self

    def __next__(self) -> TaskBatch:
        """Make the next batch; its number of tasks follows from the measured pace."""
        self._look_ahead(1)
        if not self._ahead:
            raise StopIteration
        level = self._level(self._ahead[0], self._seconds)
        least = self._level(self._ahead[0], LAST * self._seconds)
        self._look_ahead(self._n_workers * 2**level + 1)
        while level > least and self._n_workers * 2**level > len(self._ahead):
            level -= 1
        while not self._is_whole(level):
            level -= 1
        tasks = [self._ahead.popleft() for _ in range(2**level)]
        if level > 0:
            # The worker itself prefetches within a batch.
            tasks = [replace(task, ahead=None) for task in tasks]
            tasks[-1] = replace(tasks[-1], ahead=self._ahead_of(tasks[-1], level))
        return TaskBatch(level, tasks)

    def record(self, result: BlockResult) -> None:
        """Record the duration of the blocks of a result."""
        n_frames, took = self._done[result.job]
        took += sum(timing.end - timing.start for timing in result.timings)
        self._done[result.job] = n_frames + result.n_frames, took

    def _level(self, first: AnyTask, seconds: float) -> int:
        """Level of the smallest subtree that takes `seconds`, or of the largest possible one."""
        job, (n_frames, took) = self._jobs[first.job], self._done[first.job]
        if n_frames == 0 or isinstance(job, FunctionJob):  # results of functions are not merged
            return 0
        block_seconds = took / n_frames * first.n_frames / 1e9
        source = job.source
        frame_bytes = max(12 * source.n_wanted * len(source.fields), job.row_bytes)
        block_bytes = frame_bytes * first.n_frames
        level = 0
        while (
            block_seconds * 2**level < seconds
            and block_bytes * 2 ** (level + 1) <= BATCH_BYTES
            and first.number % 2 ** (level + 1) == 0
            and level < DEEPEST
        ):
            level += 1
        return level

    def _look_ahead(self, n_tasks: int) -> None:
        self._ahead.extend(islice(self._tasks, max(0, n_tasks - len(self._ahead))))

    def _is_whole(self, level: int) -> bool:
        """True if the next 2**`level` tasks are adjacent blocks, so that they fill a subtree."""
        first, last = self._ahead[0], 2**level - 1
        if len(self._ahead) <= last:
            return False
        return (self._ahead[last].job, self._ahead[last].number) == (first.job, first.number + last)

    def _ahead_of(self, last: AnyTask, level: int) -> Extents | None:
        """Byte ranges of the block that this batch's worker will probably process next, or None."""
        following = (self._n_workers - 1) * 2**level
        if following >= len(self._ahead) or self._ahead[following].job != last.job:
            return None
        return self._ahead[following].extents


class StealingPartition:
    """Partition of tasks into contiguous shares, with work stealing.

    A worker reads its part of the file in order. The worker stores few partial results, because
    adjacent results are merged at once. An idle worker steals half of the largest remaining share.
    With `fixed`, each worker processes only its own share (static schedule). With `in_order`, tasks
    are assigned in the order of their numbers. With `shares`, a worker's share contains tasks in
    the cache of its node, and a worker steals first from workers of its node.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> tasks = [SimpleNamespace(job=0, number=k, n_frames=16) for k in range(10)]
    >>> shares = StealingPartition(tasks, 2)
    >>> [task.number for task in shares.take(0, 70)], [task.number for task in shares.take(1, 1)]
    ([0, 1, 2, 3], [5])
    >>> [[task.number for task in shares.take(0, 80)] for _ in range(3)]
    [[4], [8, 9], [7]]
    """

    def __init__(
        self,
        tasks: Sequence[AnyTask],
        n_workers: int,
        *,
        fixed: bool = False,
        in_order: bool = False,
        shares: NodeShares | None = None,
    ):
        self._tasks = tasks if shares is None else [tasks[k] for k in shares.order]
        self._fixed = fixed
        self._nodes = None if shares is None else shares.nodes
        n_shares = 1 if in_order and not fixed else n_workers
        bounds = [k * len(tasks) // n_shares for k in range(n_shares + 1)]
        if shares is not None:
            bounds = shares.bounds
        #: First index and end of the remaining tasks of each share.
        self._left = [[bounds[k], bounds[k + 1]] for k in range(n_shares)]

    def __bool__(self) -> bool:
        """True while any task is left."""
        return any(first < stop for first, stop in self._left)

    def take(self, worker: int, n_frames: int) -> list[AnyTask]:
        """Take the next tasks of a worker's share: at least one, all of one job, up to `n_frames`.

        Returns an empty list if no task is left for the worker. Each task contains the extents of
        the task after it, for prefetching.
        """
        share = self._left[worker % len(self._left)]
        if share[0] == share[1] and not self._fixed:
            self._steal(worker, share)
        taken: list[AnyTask] = []
        while share[0] < share[1]:
            task = self._tasks[share[0]]
            n_frames -= task.n_frames
            if taken and (n_frames < 0 or task.job != taken[0].job):
                break
            share[0] += 1
            taken.append(self._with_next(task, share))
        return taken

    def _steal(self, worker: int, share: list[int]) -> None:
        """Move the second half of the largest share to an idle worker's share."""
        others = self._left
        if self._nodes is not None:
            own = self._nodes[worker]
            pairs = zip(self._left, self._nodes, strict=True)
            beside = [left for left, node in pairs if node == own and left[0] < left[1]]
            others = beside or others
        largest = max(others, key=lambda other: other[1] - other[0])
        middle = (largest[0] + largest[1]) // 2
        share[:] = middle, largest[1]
        largest[1] = middle

    def _with_next(self, task: AnyTask, share: list[int]) -> AnyTask:
        """Set the extents that a task prefetches: the extents of the next task of its share."""
        if not isinstance(task, Task):
            return task
        following = self._tasks[share[0]] if share[0] < share[1] else None
        if isinstance(following, Task) and following.job == task.job:
            return replace(task, ahead=following.extents)
        return replace(task, ahead=None)


class PartitionedScheduler(Scheduler[AnyTask]):
    """Assigns each worker the tasks of its share, then stolen tasks, then overdue tasks.

    With `static`, each worker processes only its own share. With `in_order`, there are no shares,
    and results arrive nearly in order.
    """

    def __init__(self, tasks: Sequence[AnyTask], n_workers: int, *, static: bool, in_order: bool):
        super().__init__(())
        self._static = static
        self._all, self._n_workers = tasks, n_workers
        self._shares = StealingPartition(tasks, n_workers, fixed=static, in_order=in_order)

    def arrange(self, shares: NodeShares) -> None:
        """Divide the tasks by the caches of the nodes, before any task is assigned."""
        self._shares = StealingPartition(self._all, self._n_workers, shares=shares)

    @property
    def finished(self) -> bool:
        """True once every task is done."""
        return not self._shares and super().finished

    def assign_to(self, worker: int, n_frames: int, *, is_idle: bool) -> list[AnyTask]:
        """Assign about `n_frames` frames of a share; an idle worker may get an overdue task."""
        tasks = self._shares.take(worker, n_frames)
        for task in tasks:
            self._start(task)
        if not tasks and is_idle and not self._static and not self._shares:
            overdue = self.assign_overdue()
            tasks = [] if overdue is None else [overdue]
        return tasks
