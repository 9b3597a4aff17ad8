"""Backends that compute in processes of this machine, or on executors of `concurrent.futures`.

Loky starts the processes. They need no `__main__` guard, and do not import the user's script.

Each pool of loky or of `concurrent.futures` has one thread that reads results from a pipe and
detects dead workers. If a worker is killed in the middle of a message, this thread waits for ever
for the rest, because other processes have the same pipe open, so that the pipe does not end. When
loky shuts down a pool, it sends a stop message to idle workers through a queue; a killed worker may
still hold the lock of this queue. `HangCheck` therefore ends pools that would hang.
"""

import contextlib
import multiprocessing
import os
import pickle
import re
import signal
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import replace
from functools import partial
from itertools import count
from multiprocessing.connection import wait as wait_for_pipes
from multiprocessing.util import Finalize
from typing import Any

import numpy as np

from paceline._util.files import store_settings
from paceline._util.leftovers import remove_leftovers
from paceline._util.os_calls import ignore_interrupts, interrupts_blocked, wait_for_parent
from paceline._util.progress import Progress
from paceline.backends.base import sharing_requests, worker_count
from paceline.backends.mdanalysis import (
    ForMDAnalysis,
    NotPicklableError,
    OrderedError,
    RemoteCall,
    changed_by,
    has_changed_state,
)
from paceline.engine.pickled_jobs import AttemptLog, PickledJob, pickle_jobs, run_pickled
from paceline.engine.scheduler import Scheduler, TaskBatcher, abandoned_attempt, late_attempts
from paceline.engine.tasks_and_results import AnyJob, AnyTask, BlockResult, FunctionTask, TaskBatch
from paceline.errors import PacelineError, PacelineWarning, WorkerError
from paceline.performance.record import DuplicateAttempt, HostClocks

#: Maximum time to wait for a worker that still computes a block which another worker has finished,
#: seconds.
GRACE = 0.1
#: Time for which `Adaptive` computes in this process before it estimates the remaining time,
#: seconds.
SAMPLE = 0.3
#: Minimum remaining time for which processes are started, seconds. Starting them takes about one
#: second, because they import MDAnalysis.
WORTH = 3.0
#: Minimum duration of a batch, seconds. A loky worker waits 1.5 ms for its next batch. When each
#: batch was a single block of 14 ms, the waits took 11 % of the time.
BATCH_SECONDS = 0.1
#: Time between checks of a pool while no result arrives, seconds.
LOOK = 1.0
#: Time for which idle workers stay alive for the next run in a notebook, seconds.
IDLE = 60

#: Environment variable of paceline's workers, so that they do not register paceline with
#: MDAnalysis.
_NO_SCRIPT = {"PACELINE_SCRIPT": ""}

BatchFuture = Future[BlockResult | None]


class Processes(ForMDAnalysis):
    """Compute blocks in worker processes; useful for functions that hold the interpreter lock.

    Parameters
    ----------
    n_workers : int, optional
        Number of processes; by default the CPUs that this process may use.
    """

    name = "processes"
    reads_files_of_caller = True

    def __init__(self, n_workers: int | None = None):
        self.n_workers = self.threads_in_frame = worker_count(n_workers)

    def run(
        self, jobs: Sequence[AnyJob], tasks: Iterable[AnyTask]
    ) -> Generator[BlockResult | DuplicateAttempt, None, None]:
        """Run every task; yield results in order of completion. Dead workers are replaced.

        Raises `WorkerError` if an analysis cannot be sent, or if processes die repeatedly at the
        same frames.
        """
        from loky import get_reusable_executor

        remove_leftovers()
        jobs = sharing_requests(jobs, self.n_workers)
        pickled = pickle_jobs(jobs, self.name)
        batches = TaskBatcher(jobs, tasks, self.n_workers, BATCH_SECONDS)
        scheduler = Scheduler(batches)
        while not scheduler.finished:
            with interrupts_blocked():
                executor = get_reusable_executor(
                    self.n_workers,
                    timeout=IDLE,
                    initializer=_attach,
                    initargs=(os.getpid(),),
                    env=_environment(),
                )
            kill_at_exit(executor)
            try:
                left = yield from run_batches(
                    _Uninterrupted(executor),
                    self.n_workers,
                    pickled,
                    batches,
                    scheduler,
                    HangCheck(executor),
                    # Do not cancel futures: otherwise loky's thread fails when workers are killed.
                    cancels=False,
                )
                late, hanging = wait(left, GRACE)
                if hanging:
                    end_pool(executor)
                for future in late:
                    if not future.exception() and (result := future.result()) is not None:
                        yield from late_attempts(result)
                for future in hanging:
                    yield left[future]
            except BrokenExecutor as error:
                end_pool(executor)
                _warn_of_loss(error)
            except BaseException:
                end_pool(executor)
                raise


def _environment() -> dict[str, str]:
    """Return environment variables of workers; if they change, loky starts new workers."""
    return store_settings() | _NO_SCRIPT


class _Uninterrupted(Executor):
    """Executor whose `submit` blocks Ctrl-C, because `submit` may start workers.

    An interpreter that is interrupted while it starts would print a traceback.
    """

    def __init__(self, executor: Executor):
        self._executor = executor

    def submit(
        self, function: Callable[..., object], /, *args: object, **options: object
    ) -> Future[Any]:
        """Submit a call to the executor while Ctrl-C is blocked."""
        with interrupts_blocked():
            return self._executor.submit(function, *args, **options)


def _warn_of_loss(error: BrokenExecutor) -> None:
    """Warn that worker processes are replaced; name the reason if loky reports it."""
    codes = re.search(r"\{(.*)\}", str(error))
    what = "a worker process was killed, perhaps because memory ran out"
    if error.__cause__:  # the task could not be unpickled
        what = f"worker processes were replaced: {error}"
    elif codes and "SIGKILL" not in codes[1]:
        what = f"a worker process ended by itself ({codes[1]}), perhaps the analysis crashed it"
    warnings.warn(f"{what}; its work is repeated", PacelineWarning, stacklevel=2)


def _attach(parent: int) -> None:
    """In a worker: ignore Ctrl-C, and end when the parent process has ended."""
    ignore_interrupts()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    wait_for_parent(parent)
    os._exit(1)


class Adaptive(ForMDAnalysis):
    """Start an MDAnalysis analysis in this process; continue in worker processes if this is faster.

    A copy of the analysis computes each part, in this process or a worker, so that results are
    bit-identical in both cases. An analysis that cannot be copied, or whose function keeps state
    from frame to frame, is computed in this process, without copies. If a program has patched
    MDAnalysis, no workers are started. `description` states how the last analysis was computed.
    """

    name = "adaptive"
    description = "in this process"

    def __init__(self, n_workers: int | None = None):
        self.n_workers = worker_count(n_workers)

    def _analyse(
        self, analysis: object, compute: partial, parts: Sequence[np.ndarray]
    ) -> list[object]:
        try:
            return super()._analyse(analysis, compute, parts)
        except (NotPicklableError, OrderedError) as error:
            self.description = f"in this process: {error}"
            return [compute(np.concatenate(parts))]

    def warn_of_state(self, name: str) -> None:
        """Raise `OrderedError`; all frames are then computed in order in this process."""
        raise OrderedError

    def call_remote(
        self, remote: RemoteCall, name: str, calls: Sequence[FunctionTask], bar: Progress
    ) -> list[object]:
        """Call a function with the argument of each call, in this process or in workers.

        Returns the results in the order of the calls.
        """
        n_left, n_done = sum(call.n_frames for call in calls), 0
        done: list[object] = []
        begun, may_send = time.monotonic(), self.n_workers > 1
        for number, call in enumerate(calls, start=1):
            done.append(remote.receive(remote(call.item)))
            if has_changed_state(done[-1]):
                self.warn_of_state(name)
            bar.add(call.n_frames)
            n_done, n_left = n_done + call.n_frames, n_left - call.n_frames
            spent = time.monotonic() - begun
            if may_send and spent > SAMPLE and spent / n_done * n_left > WORTH:
                if who := changed_by():
                    may_send = False
                    self.description = (
                        f"in this process: {who} patches MDAnalysis, and workers lack the patch"
                    )
                    continue
                rest = [replace(call, number=k) for k, call in enumerate(calls[number:])]
                processes = Processes(self.n_workers)
                done += processes.call_remote(remote, name, rest, bar)
                self.description = f"on {self.n_workers} processes"
                break
        return done


class Pool(ForMDAnalysis):
    """Compute blocks on an executor of `concurrent.futures`.

    Parameters
    ----------
    executor : concurrent.futures.Executor
        Executor of the caller; it is not shut down.
    n_workers : int, optional
        Number of workers; by default that of the executor, or the CPUs that this process may use.
    """

    def __init__(self, executor: Executor, n_workers: int | None = None):
        self._executor = executor
        self.name = type(executor).__name__.lstrip("_")
        self.n_workers = worker_count(n_workers or getattr(executor, "_max_workers", None))
        # Workers of these two executors run on this machine, so that the CPUs of idle workers can
        # compute parts of another worker's frame.
        if isinstance(executor, ThreadPoolExecutor | ProcessPoolExecutor):
            self.threads_in_frame = self.n_workers

    def run(
        self, jobs: Sequence[AnyJob], tasks: Iterable[AnyTask]
    ) -> Generator[BlockResult | DuplicateAttempt, None, None]:
        """Run every task; yield results in order of completion."""
        # It is unknown where the executor's processes run. If all of them are on one machine, they
        # must share its requests to object stores.
        if not isinstance(self._executor, ThreadPoolExecutor):
            jobs = sharing_requests(jobs, self.n_workers)
        pickled = pickle_jobs(jobs, self.name)
        batches = TaskBatcher(jobs, tasks, self.n_workers, BATCH_SECONDS)
        scheduler = Scheduler(batches)
        try:
            left = yield from run_batches(
                self._executor,
                self.n_workers,
                pickled,
                batches,
                scheduler,
                HangCheck(self._executor),
            )
        except BrokenExecutor as error:
            raise WorkerError(
                f"a worker of {self.name} ended abruptly: perhaps memory ran out and it was "
                "killed, "
                "or the analysis crashed it"
            ) from error
        yield from left.values()


def run_batches(
    executor: Executor,
    n_workers: int,
    pickled: Sequence[PickledJob],
    batches: TaskBatcher,
    scheduler: Scheduler[TaskBatch],
    hang_check: "HangCheck",
    *,
    cancels: bool = True,
) -> Generator[BlockResult | DuplicateAttempt, None, dict[BatchFuture, DuplicateAttempt]]:
    """Run every batch of a scheduler on an executor; yield results in order of completion.

    `batches` receives the durations of blocks. If the executor breaks, unfinished batches are
    returned to the scheduler, and `BrokenExecutor` is raised. At the end, some futures may still
    run although another attempt at their batch finished first: returns these futures, each with a
    record of its attempt. With `cancels`, futures that have not started by then are cancelled.
    """
    log, clocks = AttemptLog(), HostClocks()
    sender = _Sender(executor, n_workers, pickled)
    pending: dict[BatchFuture, tuple[TaskBatch, int, int]] = {}
    attempts = count()

    def send(batch: TaskBatch, since: int, *, with_job: bool = False) -> None:
        attempt = next(attempts)
        future = sender.send(batch, log.folder, attempt, with_job=with_job)
        pending[future] = batch, since, attempt

    try:
        while not scheduler.finished:
            # Send two batches per worker, so that no worker waits while its result is returned.
            while len(pending) < 2 * n_workers and (batch := scheduler.assign()) is not None:
                send(batch, time.monotonic_ns())
            while len(pending) < n_workers and (batch := scheduler.assign_overdue()) is not None:
                send(batch, time.monotonic_ns())
            idle = len(pending) < n_workers
            timeout = scheduler.seconds_until_overdue() if idle else None
            timeout = LOOK if timeout is None else min(timeout, LOOK)
            done, _ = wait(pending, timeout, FIRST_COMPLETED)
            if not done:
                hang_check.check()
            # If several errors arrive together, the error of the batch that was sent first is
            # raised.
            for future in sorted(done, key=lambda one: pending[one][2]):
                batch, since, _ = pending[future]
                result = _result_of(future, batch)
                del pending[future]
                if result is None:
                    send(batch, since, with_job=True)
                    continue
                batches.record(result)
                result = replace(result, timings=clocks.to_this_host(result.timings))
                if scheduler.complete(result):
                    yield result
                else:
                    yield from late_attempts(result)
        notes = log.read()
        return {
            future: abandoned_attempt(batch, *notes.get(attempt, ("", since)))
            for future, (batch, since, attempt) in pending.items()
            if not (cancels and future.cancel())
        }
    except BrokenExecutor as error:
        if hang_check.found:
            error.__cause__ = None  # the cause was a killed worker, not an error of unpickling
        # Batches without a future are included: the executor may have refused a batch that was just
        # assigned.
        for batch in scheduler.running:
            # Only an unpickling error has a cause; such an error is the reason of the loss.
            scheduler.return_lost(batch, str(error) if error.__cause__ else "")
        raise
    finally:
        log.close()
        for future in pending if cancels else ():
            future.cancel()


def _result_of(future: BatchFuture, batch: TaskBatch) -> BlockResult | None:
    """Return the result of a batch, or None if the worker lacks the job.

    Raises `WorkerError` if result or batch cannot be pickled.
    """
    try:
        return future.result()
    except PacelineError:
        raise
    except Exception as error:
        if not isinstance(error, pickle.PicklingError) and "pickle" not in str(error):
            raise
        reason: BaseException = error
        # Report the cause of the error, except for a cause that is only the text of a traceback.
        if error.__cause__ and type(error.__cause__).__name__ != "_RemoteTraceback":
            reason = error.__cause__
        raise WorkerError(
            f"the result of an analysis for {batch.what}, or its input, cannot be sent between "
            f"processes: {type(reason).__name__}: {reason}; backend='threads' sends nothing"
        ) from error


class _Sender:
    """Sender that sends a job in full as often as there are workers, and then only the job's key.

    The sender cannot choose which worker gets a batch. A worker that lacks the job returns None,
    and the batch is sent again with the job.
    """

    def __init__(self, executor: Executor, n_workers: int, pickled: Sequence[PickledJob]):
        self._executor = executor
        self._n_workers = n_workers
        self._pickled = pickled
        self._keys = [job.key_alone() for job in pickled]
        self._n_sent = [0] * len(pickled)

    def send(self, batch: TaskBatch, notes: str, attempt: int, *, with_job: bool) -> BatchFuture:
        self._n_sent[batch.job] += 1
        with_job = with_job or self._n_sent[batch.job] <= self._n_workers
        job = (self._pickled if with_job else self._keys)[batch.job]
        return self._executor.submit(run_pickled, job, batch, notes, attempt)


#: Time after which a pool that has not noticed a dead worker is considered hung, seconds.
PATIENCE_WITH_POOLS = 2.0


class HangCheck:
    """Regular check if a pool hangs; kills the workers of a hanging pool, so that it raises."""

    def __init__(self, executor: Executor):
        self._executor: Any = executor
        self._dead_since: float | None = None
        #: True if the pool hung; the error that the pool then raises is only a consequence.
        self.found = False

    def check(self) -> None:
        """Break the pool if a worker has been dead for `PATIENCE_WITH_POOLS` seconds.

        Do nothing for an executor without processes.
        """
        processes = self._processes()
        if not any(map(_has_ended, processes)):
            self._dead_since = None
        elif self._dead_since is None:
            self._dead_since = time.monotonic()
        elif time.monotonic() - self._dead_since >= PATIENCE_WITH_POOLS:
            self.found = True
            _break_pool(processes, self._executor._result_queue)

    def _processes(self) -> list[object]:
        found = getattr(self._executor, "_processes", None)
        return list(found.values()) if isinstance(found, dict) else []


#: Loky executors whose workers are killed before this process waits for its children.
_ended_early: weakref.WeakSet[object] = weakref.WeakSet()


def kill_at_exit(executor: Any) -> None:
    """Kill the idle workers of a loky executor at the end of this process."""
    with contextlib.suppress(AttributeError):
        executor._flags.kill_workers = True
    if multiprocessing.parent_process() is not None and executor not in _ended_early:
        # A process that multiprocessing started waits for its children before functions of atexit
        # run; the workers must have been killed by then.
        _ended_early.add(executor)
        Finalize(None, _end_early, exitpriority=0)


def _end_early() -> None:
    while _ended_early:
        end_pool(_ended_early.pop())


def end_pool(executor: Any) -> None:
    """Kill the workers of a loky executor, and wait for its thread even if the pool hangs."""
    processes = HangCheck(executor)._processes()
    names = "_result_queue", "_call_queue", "_executor_manager_thread"
    results, calls, thread = (getattr(executor, name, None) for name in names)
    executor.shutdown(wait=False, kill_workers=True)
    if thread is not None:
        thread.join(PATIENCE_WITH_POOLS)
        if thread.is_alive():
            _break_pool(processes, results)
            thread.join()
    # Close the reading end, so that sending fails. Otherwise a thread that must send more than the
    # pipe can store would wait for ever.
    if calls is not None:
        with contextlib.suppress(OSError):
            calls._reader.close()


def _has_ended(process: Any) -> bool:
    """Check whether a process has ended, without reading its exit status, which the pool needs."""
    try:
        return bool(wait_for_pipes([process.sentinel], 0))
    except (OSError, ValueError, AttributeError):
        return False


def _break_pool(processes: list[Any], queue: Any) -> None:
    """Kill all workers, which have the results pipe open; close its writing end in this process."""
    for process in processes:
        with contextlib.suppress(OSError, ValueError, TypeError):
            if process.exitcode is None:
                os.kill(process.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
    # After the last writer has closed the pipe, the pool's thread reads the end of the pipe.
    with contextlib.suppress(OSError, AttributeError):
        queue._writer.close()
