"""Processes of this machine, by loky: they need no `__main__` guard and import no user's script."""

import os
import re
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, wait
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from paceline._util.progress import Progress
from paceline._util.system import ignore_interrupts, interrupts_blocked, wait_for_parent
from paceline.backends.base import worker_count
from paceline.backends.executor import BATCH_SECONDS, run_batches
from paceline.backends.mdanalysis import (
    ForMDAnalysis,
    NotPicklableError,
    OrderedError,
    RemoteCall,
    changed_by,
    keep_state,
)
from paceline.errors import PacelineWarning
from paceline.performance.records import DuplicateAttempt
from paceline.schedule.pickled_jobs import pickle_jobs
from paceline.schedule.scheduler import Scheduler, TaskBatcher, late_attempts
from paceline.schedule.tasks import AnyJob, AnyTask, BlockResult, FunctionTask

#: Time that a worker has to end a block that others have done, seconds.
GRACE = 0.1
#: Seconds of work by which the time left is estimated.
SAMPLE = 0.3
#: Seconds left, at least, for which starting processes pays: they take about one to import
#: MDAnalysis.
WORTH = 3.0


class Processes(ForMDAnalysis):
    """Compute blocks in worker processes, for functions that hold the interpreter.

    Parameters
    ----------
    n_workers : int, optional
        Number of processes; by default the CPUs that this process may use.
    """

    name = "processes"
    reads_files_of_caller = True

    def __init__(self, n_workers: int | None = None):
        self.n_workers = worker_count(n_workers)

    def run(
        self, jobs: Sequence[AnyJob], tasks: Iterable[AnyTask]
    ) -> Generator[BlockResult | DuplicateAttempt, None, None]:
        """Run every task; yield results as they come. Dead processes are replaced.

        Raises
        ------
        WorkerError
            An analysis cannot be sent, or processes die again and again at the same frames.
        """
        from loky import get_reusable_executor

        pickled = pickle_jobs(jobs, self.name)
        batches = TaskBatcher(jobs, tasks, self.n_workers, BATCH_SECONDS)
        scheduler = Scheduler(batches)
        while not scheduler.finished:
            # Kept for a minute, so that the next run of a notebook finds its workers ready.
            with interrupts_blocked():
                executor = get_reusable_executor(
                    self.n_workers, timeout=60, initializer=_attach, initargs=(os.getpid(),)
                )
            try:
                left = yield from run_batches(
                    _Uninterrupted(executor), self.n_workers, pickled, batches, scheduler
                )
                late, hanging = wait(left, GRACE)
                if hanging:
                    executor.shutdown(wait=True, kill_workers=True)
                for future in late:
                    if not future.exception() and (result := future.result()) is not None:
                        yield from late_attempts(result)
                for future in hanging:
                    yield left[future]
            except BrokenExecutor as error:
                executor.shutdown(wait=True, kill_workers=True)
                _warn_of_loss(error)
            except BaseException:
                executor.shutdown(wait=True, kill_workers=True)
                raise


class _Uninterrupted(Executor):
    """An executor whose `submit` may start workers, and blocks Ctrl-C for them.

    An interpreter that is interrupted while it starts would print a traceback.
    """

    def __init__(self, executor: Executor):
        self._executor = executor

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Submit to the executor."""
        with interrupts_blocked():
            return self._executor.submit(function, *args, **options)


def _warn_of_loss(error: BrokenExecutor) -> None:
    """Warn that worker processes are replaced: why, as far as loky knows."""
    codes = re.search(r"\{(.*)\}", str(error))
    what = "a worker process was killed, perhaps for want of memory"
    if error.__cause__:  # of what could not be unpickled
        what = f"worker processes were given up: {error}"
    elif codes and "SIGKILL" not in codes[1]:
        what = f"a worker process ended by itself ({codes[1]}), perhaps the analysis crashed it"
    warnings.warn(f"{what}; what it was at is done again", PacelineWarning, stacklevel=2)


def _attach(parent: int) -> None:
    """Ignore Ctrl-C in a worker, and end it when its parent has ended."""
    ignore_interrupts()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    wait_for_parent(parent)
    os._exit(1)


class Adaptive(ForMDAnalysis):
    """Begin an analysis of MDAnalysis in this process; do the rest in processes, where that pays.

    Each part is computed by a copy of the analysis, here as in a process, so that results have the
    same bits whatever is decided. An analysis that cannot be copied, or whose function keeps
    something from frame to frame, is computed as MDAnalysis does; one of a program that has changed
    MDAnalysis stays here.

    Parameters
    ----------
    n_workers : int, optional
        Number of processes; by default the CPUs that this process may use.

    Attributes
    ----------
    description : str
        How the last analysis was computed.
    """

    name = "adaptive"
    description = "in this process"

    def __init__(self, n_workers: int | None = None):
        self.n_workers = worker_count(n_workers)

    def _analyse(self, analysis: Any, compute: partial, parts: Sequence[np.ndarray]) -> list[Any]:
        try:
            return super()._analyse(analysis, compute, parts)
        except (NotPicklableError, OrderedError) as error:
            self.description = f"in this process: {error}"
            return [compute(np.concatenate(parts))]

    def found_state(self, name: str) -> None:
        """Have all frames computed in order."""
        raise OrderedError

    def call_remote(
        self, remote: RemoteCall, name: str, calls: Sequence[FunctionTask], bar: Progress
    ) -> list[Any]:
        """Call a function with the item of each call, here or in processes."""
        n_left, n_done = sum(call.n_frames for call in calls), 0
        done: list[Any] = []
        begun, may_send = time.monotonic(), self.n_workers > 1
        for number, call in enumerate(calls, start=1):
            done.append(remote.receive(remote(call.item)))
            if keep_state(done[-1]):
                self.found_state(name)
            bar.add(call.n_frames)
            n_done, n_left = n_done + call.n_frames, n_left - call.n_frames
            spent = time.monotonic() - begun
            if may_send and spent > SAMPLE and spent / n_done * n_left > WORTH:
                if who := changed_by():
                    may_send = False
                    self.description = (
                        f"in this process: {who} changes MDAnalysis, which others would not see"
                    )
                    continue
                rest = [replace(call, number=k) for k, call in enumerate(calls[number:])]
                processes = Processes(self.n_workers)
                done += processes.call_remote(remote, name, rest, bar)
                self.description = f"on {self.n_workers} processes"
                break
        return done
