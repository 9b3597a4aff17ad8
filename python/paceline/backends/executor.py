"""Any pool of workers with the interface of `concurrent.futures`."""

import time
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait

from paceline.backends.base import worker_count
from paceline.backends.mdanalysis import ForMDAnalysis
from paceline.errors import WorkerError
from paceline.performance.records import DuplicateAttempt
from paceline.schedule.scheduler import (
    Scheduler,
    TaskBatch,
    TaskBatches,
    given_up,
    run_sealed,
    too_late,
)
from paceline.schedule.tasks import AnyJob, AnyWork, BlockResult
from paceline.schedule.worker import SealedJob

#: A run of blocks shall take at least so long, seconds: a worker of loky's waits 1.5 ms for its
#: next one, and 11 % of the time where it was given single blocks of 14 ms.
RUN_SECONDS = 0.1


class Pool(ForMDAnalysis):
    """Blocks submitted to an executor, a few ahead of those that are being computed.

    Parameters
    ----------
    executor : concurrent.futures.Executor
        Stays the caller's: it is not shut down.
    n_workers : int, optional
        How many workers it has; by default what it says of itself, else the CPUs of this process.
    """

    def __init__(self, executor: Executor, n_workers: int | None = None):
        self._executor = executor
        self.name = type(executor).__name__.lstrip("_")
        self.n_workers = worker_count(n_workers or getattr(executor, "_max_workers", None))

    def run(
        self, jobs: Sequence[AnyJob], works: Iterable[AnyWork]
    ) -> Generator[BlockResult | DuplicateAttempt, None, None]:
        """Do every block; yield outcomes as they come."""
        sealed = seal(jobs, self.name)
        runs = TaskBatches(jobs, works, self.n_workers, RUN_SECONDS)
        try:
            left = yield from submit(self._executor, self.n_workers, sealed, runs, Scheduler(runs))
        except BrokenExecutor as error:
            raise WorkerError(
                f"a worker of {self.name} ended abruptly: it was killed, perhaps for want of "
                "memory, or the analysis crashed it"
            ) from error
        yield from left.values()


def seal(jobs: Sequence[AnyJob], name: str) -> list[SealedJob]:
    """Make jobs ready to be sent.

    Parameters
    ----------
    jobs : sequence of Job or Calls
        What the blocks of each trajectory have in common.
    name : str
        What the error calls the backend.

    Returns
    -------
    list of SealedJob

    Raises
    ------
    WorkerError
        A job cannot be pickled.
    """
    try:
        return [SealedJob(job) for job in jobs]
    except Exception as error:  # pickling runs code of every object's own
        raise WorkerError(
            f"an analysis cannot be sent to the workers of {name}: {error}; "
            "backend='threads' sends nothing"
        ) from error


def submit(
    executor: Executor,
    n_workers: int,
    sealed: Sequence[SealedJob],
    runs: TaskBatches,
    dealer: Scheduler[TaskBatch],
) -> Generator[
    BlockResult | DuplicateAttempt, None, dict[Future[BlockResult | None], DuplicateAttempt]
]:
    """Do every block that a dealer has; yield outcomes as they come.

    Parameters
    ----------
    executor : concurrent.futures.Executor
        Does them.
    n_workers : int
        Runs that it does at a time.
    sealed : sequence of SealedJob
        By number.
    runs : TaskBatchs
        Is told how long blocks took.
    dealer : Scheduler
        Of these runs; is given back those that a broken executor had.

    Returns
    -------
    dict of Future to DuplicateAttempt
        What is still being done, of blocks of which another outcome came first.

    Yields
    ------
    BlockResult or DuplicateAttempt

    Raises
    ------
    concurrent.futures.BrokenExecutor
        Its workers are gone.
    """
    sender = _Sender(executor, n_workers, sealed)
    pending: dict[Future[BlockResult | None], tuple[TaskBatch, int]] = {}
    try:
        while not dealer.finished:
            # Twice as many as workers: none waits for a block while its last one is returned.
            while len(pending) < 2 * n_workers and (run := dealer.next()) is not None:
                pending[sender.send(run)] = run, time.monotonic_ns()
            while len(pending) < n_workers and (run := dealer.again()) is not None:
                pending[sender.send(run)] = run, time.monotonic_ns()
            idle = len(pending) < n_workers
            done, _ = wait(pending, dealer.patience() if idle else None, FIRST_COMPLETED)
            for future in done:
                outcome, (run, since) = future.result(), pending.pop(future)
                if outcome is None:
                    pending[sender.send(run, whole=True)] = run, since
                    continue
                runs.took(outcome)
                if dealer.done(outcome):
                    yield outcome
                else:
                    yield from too_late(outcome)
        return {
            future: given_up(run, "", since)
            for future, (run, since) in pending.items()
            if not future.cancel()
        }
    except BrokenExecutor:
        # Not only what is pending: a block may have been dealt and not been taken any more.
        for run in dealer.unfinished:
            dealer.lost(run)
        raise
    finally:
        for future in pending:
            future.cancel()


class _Sender:
    """Sends a job whole as often as there are workers, then only its key.

    An executor does not say who takes what: a worker that lacks the job says so, and its run is
    sent again with the whole job.
    """

    def __init__(self, executor: Executor, n_workers: int, sealed: Sequence[SealedJob]):
        self._executor = executor
        self._n_workers = n_workers
        self._sealed = sealed
        self._keys = [job.key_alone() for job in sealed]
        self._times = [0] * len(sealed)

    def send(self, run: TaskBatch, *, whole: bool = False) -> "Future[BlockResult | None]":
        self._times[run.job] += 1
        whole = whole or self._times[run.job] <= self._n_workers
        job = (self._sealed if whole else self._keys)[run.job]
        return self._executor.submit(run_sealed, job, run)
