"""Free pools that would wait for ever once a worker was killed.

The pools of loky and of `concurrent.futures` have one thread that reads results from a pipe and
sees workers die. Of a message that ends in the middle it awaits the rest, without an end, since
other processes have the same pipe open; meanwhile it sees no worker die. And where a pool of loky's
ends, idle workers are asked to, by a queue whose lock the one that was killed may have held.
"""

import contextlib
import os
import signal
import time
from concurrent.futures import Executor
from multiprocessing.connection import wait
from typing import Any

#: A pool that does not notice within so many seconds that a worker died is held up.
PATIENCE = 2.0


class HalfResults:
    """Looks from time to time whether a pool is held up, and has it break if so."""

    def __init__(self, executor: Executor):
        self._executor: Any = executor
        self._dead_since: float | None = None
        #: True if the pool hung: the error that it then raises is not the cause.
        self.found = False

    def look(self) -> None:
        """Look for a worker that has been dead for some time; for other executors do nothing."""
        processes = self._processes()
        if not any(map(_has_ended, processes)):
            self._dead_since = None
        elif self._dead_since is None:
            self._dead_since = time.monotonic()
        elif time.monotonic() - self._dead_since >= PATIENCE:
            self.found = True
            _cut_off(processes, self._executor._result_queue)

    def _processes(self) -> list[Any]:
        found = getattr(self._executor, "_processes", None)
        return list(found.values()) if isinstance(found, dict) else []


def kill_at_exit(executor: Any) -> None:
    """Have the idle workers of an executor of loky killed at the end of this process, not asked."""
    with contextlib.suppress(AttributeError):
        executor._flags.kill_workers = True


def end_pool(executor: Any) -> None:
    """Kill the workers of an executor of loky, and wait for its thread, also if it is held up."""
    processes = HalfResults(executor)._processes()
    names = "_result_queue", "_call_queue", "_executor_manager_thread"
    results, calls, thread = (getattr(executor, name, None) for name in names)
    executor.shutdown(wait=False, kill_workers=True)
    if thread is not None:
        thread.join(PATIENCE)
        if thread.is_alive():
            _cut_off(processes, results)
            thread.join()
    # Else a thread that has more to send than a pipe holds would wait for ever.
    if calls is not None:
        with contextlib.suppress(OSError):
            calls._reader.close()


def _has_ended(process: Any) -> bool:
    """Tell whether a process has ended, without taking its exit status from the pool."""
    try:
        return bool(wait([process.sentinel], 0))
    except (OSError, ValueError, AttributeError):
        return False


def _cut_off(processes: list[Any], queue: Any) -> None:
    """Kill all that have the pipe of results open, and close this process's own end of it."""
    for process in processes:
        with contextlib.suppress(OSError, ValueError, TypeError):
            if process.exitcode is None:
                os.kill(process.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
    # Its thread reads the end of the pipe now.
    with contextlib.suppress(OSError, AttributeError):
        queue._writer.close()
