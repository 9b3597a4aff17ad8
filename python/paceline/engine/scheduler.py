"""Schedule tasks: assign each one to the next idle worker.

`Scheduler` assigns tasks one after another and re-executes overdue ones speculatively.
`TaskBatcher` cuts its tasks into batches, for backends with a cost of milliseconds per message.
`PartitionedScheduler` assigns each worker a contiguous share of the tasks (`StealingPartition`);
a worker that has finished steals half of another's share, unless shares are static.
"""

import statistics
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Generic, TypeVar

from paceline.contract.source import Extents
from paceline.engine.tasks import AnyJob, AnyTask, BlockResult, FunctionJob, Task, TaskBatch
from paceline.errors import WorkerError
from paceline.performance.record import PARTS, BlockTiming, DuplicateAttempt

#: Factor by which an overdue task's time exceeds the median of its job's latest tasks.
OVERDUE = 2.0
#: Minimum time of an overdue task, seconds: less is not worth a second attempt.
SHORTEST = 0.5
#: Number of the latest tasks in the median. The median of some ten thousand tasks would take
#: milliseconds.
REMEMBERED = 255
#: Allowed time of a task before any task of its job is done, seconds.
UNKNOWN = 10.0
#: Maximum number of lost workers per task; the task may be the cause of the crashes.
MOST_LOSSES = 3

#: Minimum duration of a batch, seconds: many times the cost of assigning it.
BATCH_SECONDS = 0.2
#: When less than a batch per worker is left, a worker takes only this fraction of its share, so
#: that all workers end together. Without it, 16 simulated workers idle for 4 % of the time of a
#: second's work.
LAST = 0.25
#: Maximum size of a batch's decoded frames, or of their rows if larger, bytes: results of several
#: batches are in memory at a time.
BATCH_BYTES = 256 * 2**20
#: Maximum level of a batch: it has at most 2 to this power blocks.
DEEPEST = 12


#: Unit of scheduling: a batch is an aligned subtree of a job's blocks, and a task is a subtree of
#: level 0.
Schedulable = AnyTask | TaskBatch
T = TypeVar("T", bound=Schedulable)


@dataclass
class _Running(Generic[T]):
    """Task that was assigned and is not done; `n_attempts` includes speculative attempts."""

    task: T
    since: float
    n_attempts: int = 1


class Scheduler(Generic[T]):
    """Assigns tasks to idle workers, so that none waits for a slow one.

    A task that takes too long is assigned a second time, to a worker with nothing else to do, and
    the first result counts (speculative re-execution). The backends run the tasks; the scheduler
    only tracks them. A task is taken from the iterable when it is assigned.

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
        # One task ahead, to know at any time whether another task is left.
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
        """Assign a new task; None if all tasks were assigned."""
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
        """Assign the longest overdue task again, to an idle worker; None if new tasks are left."""
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
        """Time at which a task is overdue; each attempt may take twice as long as the last."""
        paces = self._paces.get(running.task.job)
        allowed = UNKNOWN
        if paces:
            # The lower of two middle values, so that tasks of a slow worker do not set the median.
            usual = statistics.median_low(paces) * running.task.n_frames
            allowed = max(SHORTEST, OVERDUE * usual)
        return running.since + allowed * 2 ** (running.n_attempts - 1)

    def complete(self, result: BlockResult) -> bool:
        """Record a result; False if another attempt at the same task was faster."""
        running = self._running.pop(_key(result), None)
        if running is None:
            return False
        pace = (time.monotonic() - running.since) / running.task.n_frames
        self._paces.setdefault(result.job, deque(maxlen=REMEMBERED)).append(pace)
        return True

    def return_lost(self, task: T, reason: str = "") -> None:
        """Take back a task whose worker was lost, with the reason if known; it is assigned next.

        Raises `WorkerError` if workers of the task were lost too often.
        """
        key = _key(task)
        if self._running.pop(key, None) is None:
            return
        self._losses[key] = self._losses.get(key, 0) + 1
        if self._losses[key] == MOST_LOSSES:
            lost = "lost" if reason else "killed"
            guess = "perhaps for want of memory, or the analysis crashes them there"
            raise WorkerError(
                f"workers were {lost} {MOST_LOSSES} times while they were at {task.what}: "
                f"{reason or guess}"
            )
        self._returned.append(task)


def _key(task: Schedulable | BlockResult) -> tuple[int, int, int]:
    return task.job, task.level, task.number


def late_attempts(result: BlockResult) -> list[DuplicateAttempt]:
    """Record a result that came after another result of the same task: one attempt per block."""
    return [DuplicateAttempt(replace(timing, comm=0), came=True) for timing in result.timings]


def abandoned_attempt(
    task: Schedulable, worker: str, since: int, *, offset: int = 0
) -> DuplicateAttempt:
    """Record an attempt that is no longer waited for.

    `worker` is empty if unknown. `since` is the time of assignment by this host's clock, `offset`
    the difference between the run's clock and this clock, both ns.
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


class TaskBatcher:
    """Cuts tasks into batches of a minimum duration; single tasks until the pace is known.

    Tasks of each job come one after another, in the order of their numbers. `n_workers` batches run
    at a time. Batches shorter than `seconds` come at the end.
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
        """Cut the next batch; its length follows from the measured pace."""
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
            # Within a batch, the worker itself prefetches.
            tasks = [replace(task, ahead=None) for task in tasks]
            tasks[-1] = replace(tasks[-1], ahead=self._ahead_of(tasks[-1], level))
        return TaskBatch(level, tasks)

    def record(self, result: BlockResult) -> None:
        """Record the duration of blocks."""
        n_frames, took = self._done[result.job]
        took += sum(timing.end - timing.start for timing in result.timings)
        self._done[result.job] = n_frames + result.n_frames, took

    def _level(self, first: AnyTask, seconds: float) -> int:
        """Level of the smallest subtree that is long enough, or of the largest that begins here."""
        job, (n_frames, took) = self._jobs[first.job], self._done[first.job]
        if n_frames == 0 or isinstance(job, FunctionJob):  # results of calls cannot be merged
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
        """True if all blocks of the subtree come next; some may be done or not exist."""
        first, last = self._ahead[0], 2**level - 1
        if len(self._ahead) <= last:
            return False
        return (self._ahead[last].job, self._ahead[last].number) == (first.job, first.number + last)

    def _ahead_of(self, last: AnyTask, level: int) -> Extents | None:
        """Byte ranges of the first block that this batch's worker will probably process next."""
        following = (self._n_workers - 1) * 2**level
        if following >= len(self._ahead) or self._ahead[following].job != last.job:
            return None
        return self._ahead[following].extents


class StealingPartition:
    """Partition of tasks into contiguous shares, with work stealing.

    A worker reads its part of the file in order, and holds few partial results, since adjacent ones
    are merged at once. A worker that has finished takes over half of the largest remaining share.
    With `fixed`, each worker processes its own share (static schedule). With `in_order`, tasks are
    assigned in the order of their numbers.

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
    ):
        self._tasks = tasks
        self._fixed = fixed
        n_shares = 1 if in_order and not fixed else n_workers
        bounds = [k * len(tasks) // n_shares for k in range(n_shares + 1)]
        #: First and end of the remainder of each share.
        self._left = [[bounds[k], bounds[k + 1]] for k in range(n_shares)]

    def __bool__(self) -> bool:
        """True while any task is left."""
        return any(first < stop for first, stop in self._left)

    def take(self, worker: int, n_frames: int) -> list[AnyTask]:
        """Take the next tasks of a worker's share: at least one, all of one job, up to `n_frames`.

        Returns an empty list if no task is left for the worker. Each task has the extents of the
        next one.
        """
        share = self._left[worker % len(self._left)]
        if share[0] == share[1] and not self._fixed:
            self._steal(share)
        taken: list[AnyTask] = []
        while share[0] < share[1]:
            task = self._tasks[share[0]]
            n_frames -= task.n_frames
            if taken and (n_frames < 0 or task.job != taken[0].job):
                break
            share[0] += 1
            taken.append(self._with_next(task, share))
        return taken

    def _steal(self, share: list[int]) -> None:
        """Move the back half of the largest share to a worker that has finished."""
        largest = max(self._left, key=lambda other: other[1] - other[0])
        middle = (largest[0] + largest[1]) // 2
        share[:] = middle, largest[1]
        largest[1] = middle

    def _with_next(self, task: AnyTask, share: list[int]) -> AnyTask:
        """Set the prefetched extents of a task to those of the next task of its share."""
        if not isinstance(task, Task):
            return task
        following = self._tasks[share[0]] if share[0] < share[1] else None
        if isinstance(following, Task) and following.job == task.job:
            return replace(task, ahead=following.extents)
        return replace(task, ahead=None)


class PartitionedScheduler(Scheduler[AnyTask]):
    """Assigns each worker tasks of its share, then stolen tasks, then overdue tasks.

    With `static`, each worker processes its own share. With `in_order`, there are no shares, and
    results arrive nearly in order.
    """

    def __init__(self, tasks: Sequence[AnyTask], n_workers: int, *, static: bool, in_order: bool):
        super().__init__(())
        self._static = static
        self._shares = StealingPartition(tasks, n_workers, fixed=static, in_order=in_order)

    @property
    def finished(self) -> bool:
        """True once every task is done."""
        return not self._shares and super().finished

    def assign_to(self, worker: int, n_frames: int, *, is_idle: bool) -> list[AnyTask]:
        """Assign about `n_frames` of a worker's share; an idle worker may get an overdue task."""
        tasks = self._shares.take(worker, n_frames)
        for task in tasks:
            self._start(task)
        if not tasks and is_idle and not self._static and not self._shares:
            overdue = self.assign_overdue()
            tasks = [] if overdue is None else [overdue]
        return tasks
