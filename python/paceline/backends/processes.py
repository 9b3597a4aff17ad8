"""Processes of this machine, by loky: they need no `__main__` guard and import no user's script."""

import contextlib
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, wait
from multiprocessing import resource_tracker
from typing import Any

from paceline.backends.base import worker_count
from paceline.backends.executor import RUN_SECONDS, seal, submit
from paceline.backends.mdanalysis import ForMDAnalysis
from paceline.errors import PacelineWarning
from paceline.performance.records import DuplicateAttempt
from paceline.schedule.scheduler import Scheduler, TaskBatches, too_late
from paceline.schedule.tasks import AnyJob, AnyWork, BlockResult

#: Between a worker's looks whether its parent still lives, seconds.
PARENT_INTERVAL = 0.5
#: What is still at a block that others have done may take so long to end by itself, seconds.
GRACE = 0.1


class Processes(ForMDAnalysis):
    """Blocks dealt to worker processes, for functions that hold the interpreter.

    Parameters
    ----------
    n_workers : int, optional
        Number of processes; by default the CPUs that this process may use.
    """

    name = "processes"

    def __init__(self, n_workers: int | None = None):
        self.n_workers = worker_count(n_workers)

    def run(
        self, jobs: Sequence[AnyJob], works: Iterable[AnyWork]
    ) -> Generator[BlockResult | DuplicateAttempt, None, None]:
        """Do every block; yield outcomes as they come. New processes take the place of dead ones.

        Raises
        ------
        WorkerError
            An analysis cannot be sent, or processes die again and again at the same frames.
        """
        from loky import get_reusable_executor

        sealed = seal(jobs, self.name)
        runs = TaskBatches(jobs, works, self.n_workers, RUN_SECONDS)
        dealer = Scheduler(runs)
        while not dealer.finished:
            # Kept for a minute, so that the next run of a notebook finds its workers there.
            with _interrupts_blocked():
                executor = get_reusable_executor(
                    self.n_workers, timeout=60, initializer=_belong_to, initargs=(os.getpid(),)
                )
            try:
                started = _Starting(executor)
                left = yield from submit(started, self.n_workers, sealed, runs, dealer)
                late, hanging = wait(left, GRACE)
                if hanging:
                    executor.shutdown(wait=True, kill_workers=True)
                for future in late:
                    if not future.exception() and (outcome := future.result()) is not None:
                        yield from too_late(outcome)
                for future in hanging:
                    yield left[future]
            except BrokenExecutor:
                executor.shutdown(wait=True, kill_workers=True)
                _warn_of_loss()
            except BaseException:
                executor.shutdown(wait=True, kill_workers=True)
                raise


class _Starting(Executor):
    """An executor that may start workers when something is submitted to it.

    Parameters
    ----------
    executor : concurrent.futures.Executor
        Does all else.
    """

    def __init__(self, executor: Executor):
        self._executor = executor

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Hand it on."""
        with _interrupts_blocked():
            return self._executor.submit(function, *args, **options)


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Let what is started here find Ctrl-C blocked, until it can leave it to its parent.

    An interpreter that is interrupted while it starts would tell so. This process's own Ctrl-C
    waits for as long.
    """
    # Starts before the first worker, and then unblocks it.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _warn_of_loss() -> None:
    warnings.warn(
        "a worker process was killed, perhaps for want of memory; what it was at is done again",
        PacelineWarning,
        stacklevel=2,
    )


def _belong_to(parent: int) -> None:
    """Leave Ctrl-C to the parent process, and end when it has ended, however it did."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_INTERVAL)
    os._exit(1)
