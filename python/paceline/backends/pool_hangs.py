"""Free pools of processes that would hang after a worker was killed.

The pools of loky and of `concurrent.futures` have one thread that reads results from a pipe and
notices dead workers. After a truncated message, it waits for ever for the rest, since other
processes have the same pipe open, and notices no dead worker. When loky shuts down a pool, it asks
idle workers to end through a queue, whose lock a killed worker may have held.
"""

import contextlib
import os
import signal
import time
from concurrent.futures import Executor
from multiprocessing.connection import wait
from typing import Any

#: Time after which a pool that has not noticed a dead worker is considered hung, seconds.
PATIENCE = 2.0


class HalfResults:
    """Checks regularly whether a pool hangs, and breaks the pool if so."""

    def __init__(self, executor: Executor):
        self._executor: Any = executor
        self._dead_since: float | None = None
        #: True if the pool hung: the error that the pool then raises is not the cause.
        self.found = False

    def look(self) -> None:
        """Check for a worker that has been dead for some time; for other executors do nothing."""
        processes = self._processes()
        if not any(map(_has_ended, processes)):
            self._dead_since = None
        elif self._dead_since is None:
            self._dead_since = time.monotonic()
        elif time.monotonic() - self._dead_since >= PATIENCE:
            self.found = True
            _cut_off(processes, self._executor._result_queue)

    def _processes(self) -> list[object]:
        found = getattr(self._executor, "_processes", None)
        return list(found.values()) if isinstance(found, dict) else []


def kill_at_exit(executor: Any) -> None:
    """Kill the idle workers of a loky executor at the end of this process."""
    with contextlib.suppress(AttributeError):
        executor._flags.kill_workers = True


def end_pool(executor: Any) -> None:
    """Kill the workers of a loky executor, and wait for its thread, even if it hangs."""
    processes = HalfResults(executor)._processes()
    names = "_result_queue", "_call_queue", "_executor_manager_thread"
    results, calls, thread = (getattr(executor, name, None) for name in names)
    executor.shutdown(wait=False, kill_workers=True)
    if thread is not None:
        thread.join(PATIENCE)
        if thread.is_alive():
            _cut_off(processes, results)
            thread.join()
    # Otherwise a thread that has more to send than the pipe can hold would wait for ever.
    if calls is not None:
        with contextlib.suppress(OSError):
            calls._reader.close()


def _has_ended(process: Any) -> bool:
    """Check whether a process has ended, without consuming the exit status for the pool."""
    try:
        return bool(wait([process.sentinel], 0))
    except (OSError, ValueError, AttributeError):
        return False


def _cut_off(processes: list[Any], queue: Any) -> None:
    """Kill all processes with the results pipe open, and close this process's end of it."""
    for process in processes:
        with contextlib.suppress(OSError, ValueError, TypeError):
            if process.exitcode is None:
                os.kill(process.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
    # The pool's thread now reads the end of the pipe.
    with contextlib.suppress(OSError, AttributeError):
        queue._writer.close()
