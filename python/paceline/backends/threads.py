"""Backend of threads; the compiled module releases the interpreter lock while it computes."""

import math
import queue
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from paceline.backends.base import join_threads, start_thread, worker_count
from paceline.backends.mdanalysis import ForMDAnalysis
from paceline.engine.scheduler import Scheduler, abandoned_attempt, late_attempts
from paceline.engine.tasks_and_results import AnyJob, AnyTask, BlockResult
from paceline.engine.worker import ThreadNames, Worker
from paceline.performance.record import DuplicateAttempt

#: Time to wait for earlier blocks after a block has failed, seconds. If several blocks fail, the
#: error of the first one is raised.
GRACE = 2.0


@dataclass
class _Failure:
    """Error in a thread, and the thread's task; None if the thread had no task."""

    task: AnyTask | None
    error: BaseException


Results = queue.SimpleQueue[BlockResult | _Failure]


class Threads(ForMDAnalysis):
    """Compute blocks in threads of this process; idle threads get the next blocks.

    Parameters
    ----------
    n_workers : int, optional
        Number of threads; by default the CPUs that this process may use.
    """

    name = "threads"
    keeps_frames = True
    pipelines = True

    def __init__(self, n_workers: int | None = None):
        self.n_workers = self.threads_in_frame = worker_count(n_workers)
        self._names = ThreadNames()

    def run(
        self, jobs: Sequence[AnyJob], tasks: Iterable[AnyTask]
    ) -> Generator[BlockResult | DuplicateAttempt, None, None]:
        """Run every task; yield results in order of completion."""
        scheduler = _SharedScheduler(Scheduler(tasks), 2 * self.n_workers)
        results: Results = queue.SimpleQueue()
        threads = [
            start_thread(_work, k, self._names, jobs, scheduler, results, name=f"paceline-{k}")
            for k in range(self.n_workers)
        ]
        try:
            while not scheduler.finished:
                result = results.get()
                if isinstance(result, _Failure):
                    raise _first_error(result, scheduler, results)
                if scheduler.complete(result):
                    yield result
                else:
                    yield from late_attempts(result)
            yield from [*_drain_attempts(results), *scheduler.abandoned()]
        except BaseException:
            scheduler.stop()
            join_threads(threads)
            raise
        finally:
            scheduler.stop()


class _SharedScheduler:
    """Scheduler that threads share.

    At most `limit` tasks run at a time. Without a limit, results would fill the memory when they
    are collected more slowly than computed (a slow disk), and running tasks would appear overdue.
    """

    def __init__(self, scheduler: Scheduler, limit: int):
        self._scheduler = scheduler
        self._limit = limit
        self._changed = threading.Condition()
        self._stopped = False
        self._busy: dict[str, tuple[AnyTask, int]] = {}

    @property
    def finished(self) -> bool:
        with self._changed:
            return self._scheduler.finished

    def assign(self, worker: str) -> AnyTask | None:
        """Wait for a task for a worker; return None if all tasks are finished, or after `stop`."""
        with self._changed:
            while not self._stopped and not self._scheduler.finished:
                timeout = None
                if len(self._scheduler.running) < self._limit:
                    task = self._scheduler.assign() or self._scheduler.assign_overdue()
                    if task is not None:
                        self._busy[worker] = task, time.monotonic_ns()
                        return task
                    timeout = self._scheduler.seconds_until_overdue()
                self._changed.wait(timeout)
        return None

    def release(self, worker: str) -> None:
        """Record that a worker has finished its task."""
        with self._changed:
            self._busy.pop(worker, None)
            if self._stopped:
                self._changed.notify_all()

    def wait_for_earlier(self, task: AnyTask | None, seconds: float) -> None:
        """Wait until no task that precedes `task` is running, but at most `seconds`."""

        def ended() -> bool:
            return all(_task_order(other) >= _task_order(task) for other, _ in self._busy.values())

        with self._changed:
            self._changed.wait_for(ended, seconds)

    def abandoned(self) -> list[DuplicateAttempt]:
        """Return attempts that are still running after all results were collected."""
        with self._changed:
            return [
                abandoned_attempt(task, worker, since)
                for worker, (task, since) in self._busy.items()
            ]

    def complete(self, result: BlockResult) -> bool:
        with self._changed:
            counts = self._scheduler.complete(result)
            # Wake waiting threads: all tasks may be finished now, or the time at which a running
            # task counts as overdue may have changed.
            self._changed.notify_all()
        return counts

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


def _drain_attempts(results: Results) -> Iterator[DuplicateAttempt]:
    """Yield the attempts whose results are still in the queue after all tasks are finished."""
    while not results.empty():
        result = results.get()
        if not isinstance(result, _Failure):
            yield from late_attempts(result)


def _first_error(failure: _Failure, scheduler: _SharedScheduler, results: Results) -> BaseException:
    """Stop the scheduler; return the error of the failed task that is first in frame order."""
    scheduler.stop()
    if isinstance(failure.error, Exception):
        scheduler.wait_for_earlier(failure.task, GRACE)
    while not results.empty():
        other = results.get()
        if isinstance(other, _Failure) and _task_order(other.task) < _task_order(failure.task):
            failure = other
    return failure.error


def _task_order(task: AnyTask | None) -> tuple[float, float]:
    """Sort key for tasks in frame order; a task that could not be created comes last."""
    return (task.job, task.number) if task is not None else (math.inf, math.inf)


def _work(
    number: int,
    names: ThreadNames,
    jobs: Sequence[AnyJob],
    scheduler: _SharedScheduler,
    results: Results,
) -> None:
    worker, task = Worker(jobs.__getitem__, names.of(number)), None
    try:
        while (task := scheduler.assign(worker.name)) is not None:
            result = worker.run(task)
            scheduler.release(worker.name)
            results.put(result)
            task = None
    except BaseException as error:
        results.put(_Failure(task, error))
        scheduler.release(worker.name)
