"""End process pools that would hang after a worker was killed.

The pools of loky and of `concurrent.futures` have one thread that reads results from a pipe and
detects dead workers. If a killed worker leaves a truncated message, this thread waits for ever for
the rest: other processes have the same pipe open, so that the pipe does not end. When loky shuts
down a pool, it sends idle workers a stop message through a queue, whose lock a killed worker may
still hold.
"""

import contextlib
import multiprocessing
import os
import signal
import time
import weakref
from concurrent.futures import Executor
from multiprocessing.connection import wait
from multiprocessing.util import Finalize
from typing import Any

#: Time after which a pool that has not noticed a dead worker is considered hung, seconds.
PATIENCE = 2.0


class HangCheck:
    """Regular check for a hanging pool; its workers are killed, so that it raises an error."""

    def __init__(self, executor: Executor):
        self._executor: Any = executor
        self._dead_since: float | None = None
        #: True if the pool hung; the error that the pool raises afterwards is not the cause.
        self.found = False

    def check(self) -> None:
        """Look for a worker that has been dead for some time; skip executors without processes."""
        processes = self._processes()
        if not any(map(_has_ended, processes)):
            self._dead_since = None
        elif self._dead_since is None:
            self._dead_since = time.monotonic()
        elif time.monotonic() - self._dead_since >= PATIENCE:
            self.found = True
            _break_pool(processes, self._executor._result_queue)

    def _processes(self) -> list[object]:
        found = getattr(self._executor, "_processes", None)
        return list(found.values()) if isinstance(found, dict) else []


#: Executors that are ended before this process waits for its children.
_ended_early: weakref.WeakSet[object] = weakref.WeakSet()


def kill_at_exit(executor: Any) -> None:
    """Kill the idle workers of a loky executor at the end of this process."""
    with contextlib.suppress(AttributeError):
        executor._flags.kill_workers = True
    if multiprocessing.parent_process() is not None and executor not in _ended_early:
        # Processes of multiprocessing wait for their children before functions of atexit run.
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
        thread.join(PATIENCE)
        if thread.is_alive():
            _break_pool(processes, results)
            thread.join()
    # Without readers, sending fails. Otherwise a thread that must send more than the pipe can store
    # would wait for ever.
    if calls is not None:
        with contextlib.suppress(OSError):
            calls._reader.close()


def _has_ended(process: Any) -> bool:
    """Check whether a process has ended, and leave its exit status for the pool."""
    try:
        return bool(wait([process.sentinel], 0))
    except (OSError, ValueError, AttributeError):
        return False


def _break_pool(processes: list[Any], queue: Any) -> None:
    """Kill all processes that have the results pipe open, and close it in this process."""
    for process in processes:
        with contextlib.suppress(OSError, ValueError, TypeError):
            if process.exitcode is None:
                os.kill(process.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
    # The pool's thread now reads the end of the pipe.
    with contextlib.suppress(OSError, AttributeError):
        queue._writer.close()
