"""Executors: any pool of workers with the interface of `concurrent.futures`."""

import pickle
import time
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from itertools import count

from paceline.backends.base import worker_count
from paceline.backends.mdanalysis import ForMDAnalysis
from paceline.errors import PacelineError, WorkerError
from paceline.performance.records import DuplicateAttempt
from paceline.schedule.pickled_jobs import AttemptLog, PickledJob, pickle_jobs, run_pickled
from paceline.schedule.scheduler import (
    Scheduler,
    TaskBatcher,
    abandoned_attempt,
    late_attempts,
)
from paceline.schedule.tasks import AnyJob, AnyTask, BlockResult, TaskBatch

#: Shortest time of a batch, seconds: a worker of loky's waits 1.5 ms for its next one, and 11 % of
#: the time where it was given single blocks of 14 ms.
BATCH_SECONDS = 0.1

BatchFuture = Future[BlockResult | None]


class Pool(ForMDAnalysis):
    """Compute blocks on an executor of `concurrent.futures`.

    Parameters
    ----------
    executor : concurrent.futures.Executor
        Stays the caller's: it is not shut down.
    n_workers : int, optional
        Number of its workers; by default the executor's own number, else the CPUs of this process.
    """

    def __init__(self, executor: Executor, n_workers: int | None = None):
        self._executor = executor
        self.name = type(executor).__name__.lstrip("_")
        self.n_workers = worker_count(n_workers or getattr(executor, "_max_workers", None))

    def run(
        self, jobs: Sequence[AnyJob], tasks: Iterable[AnyTask]
    ) -> Generator[BlockResult | DuplicateAttempt, None, None]:
        """Run every task; yield results as they come."""
        pickled = pickle_jobs(jobs, self.name)
        batches = TaskBatcher(jobs, tasks, self.n_workers, BATCH_SECONDS)
        scheduler = Scheduler(batches)
        try:
            left = yield from run_batches(
                self._executor, self.n_workers, pickled, batches, scheduler
            )
        except BrokenExecutor as error:
            raise WorkerError(
                f"a worker of {self.name} ended abruptly: perhaps it was killed for want of "
                "memory, or the analysis crashed it"
            ) from error
        yield from left.values()


def run_batches(
    executor: Executor,
    n_workers: int,
    pickled: Sequence[PickledJob],
    batches: TaskBatcher,
    scheduler: Scheduler[TaskBatch],
) -> Generator[BlockResult | DuplicateAttempt, None, dict[BatchFuture, DuplicateAttempt]]:
    """Run every batch of a scheduler on an executor; yield results as they come.

    Parameters
    ----------
    executor : concurrent.futures.Executor
        Workers.
    n_workers : int
        Their number.
    pickled : sequence of PickledJob
        By number.
    batches : TaskBatcher
        Gets the time that blocks took.
    scheduler : Scheduler
        Of these batches; gets back those that a broken executor had.

    Returns
    -------
    dict of Future to DuplicateAttempt
        Futures that are still running though another result of their batch came first.

    Yields
    ------
    BlockResult or DuplicateAttempt

    Raises
    ------
    concurrent.futures.BrokenExecutor
        Its workers are gone.
    """
    log = AttemptLog()
    sender = _Sender(executor, n_workers, pickled)
    pending: dict[BatchFuture, tuple[TaskBatch, int, int]] = {}
    attempts = count()

    def send(batch: TaskBatch, since: int, *, whole: bool = False) -> None:
        attempt = next(attempts)
        future = sender.send(batch, log.folder, attempt, whole=whole)
        pending[future] = batch, since, attempt

    try:
        while not scheduler.finished:
            # Twice as many as workers: none waits for a batch while its last one is returned.
            while len(pending) < 2 * n_workers and (batch := scheduler.assign()) is not None:
                send(batch, time.monotonic_ns())
            while len(pending) < n_workers and (batch := scheduler.assign_overdue()) is not None:
                send(batch, time.monotonic_ns())
            idle = len(pending) < n_workers
            timeout = scheduler.seconds_until_overdue() if idle else None
            done, _ = wait(pending, timeout, FIRST_COMPLETED)
            # Of errors that come together, the first one's is raised.
            for future in sorted(done, key=lambda one: pending[one][2]):
                batch, since, _ = pending[future]
                result = _result_of(future, batch)
                del pending[future]
                if result is None:
                    send(batch, since, whole=True)
                    continue
                batches.record(result)
                if scheduler.complete(result):
                    yield result
                else:
                    yield from late_attempts(result)
        notes = log.read()
        return {
            future: abandoned_attempt(batch, *notes.get(attempt, ("", since)))
            for future, (batch, since, attempt) in pending.items()
            if not future.cancel()
        }
    except BrokenExecutor as error:
        # Not only what is pending: a batch may have been assigned and not been accepted any more.
        for batch in scheduler.running:
            # Only what could not be unpickled has a cause.
            scheduler.return_lost(batch, str(error) if error.__cause__ else "")
        raise
    finally:
        log.close()
        for future in pending:
            future.cancel()


def _result_of(future: BatchFuture, batch: TaskBatch) -> BlockResult | None:
    """Get the result of a batch; raise `WorkerError` where it, or the batch, cannot be pickled."""
    try:
        return future.result()
    except PacelineError:
        raise
    except Exception as error:
        if not isinstance(error, pickle.PicklingError) and "pickle" not in str(error):
            raise
        reason: BaseException = error
        # Loky's own error says no more than that; others have the text of a traceback as cause.
        if error.__cause__ and type(error.__cause__).__name__ != "_RemoteTraceback":
            reason = error.__cause__
        raise WorkerError(
            f"what an analysis gave of {batch.what}, or needs for them, cannot be sent: "
            f"{type(reason).__name__}: {reason}; backend='threads' sends nothing"
        ) from error


class _Sender:
    """Sends a whole job as often as there are workers, then only its key.

    An executor does not say which worker takes a batch: one without the job returns None, and its
    batch is sent again with the whole job.
    """

    def __init__(self, executor: Executor, n_workers: int, pickled: Sequence[PickledJob]):
        self._executor = executor
        self._n_workers = n_workers
        self._pickled = pickled
        self._keys = [job.key_alone() for job in pickled]
        self._n_sent = [0] * len(pickled)

    def send(self, batch: TaskBatch, notes: str, attempt: int, *, whole: bool) -> BatchFuture:
        self._n_sent[batch.job] += 1
        whole = whole or self._n_sent[batch.job] <= self._n_workers
        job = (self._pickled if whole else self._keys)[batch.job]
        return self._executor.submit(run_pickled, job, batch, notes, attempt)
