"""Processes of this machine, by loky: they need no `__main__` guard and import no user's script."""

import os
import signal
import threading
import time
from collections.abc import Generator, Iterable, Sequence

from paceline.backends.executor import ExecutorBackend
from paceline.job import Job, Outcome, Work

#: Between a worker's looks whether its parent still lives, seconds.
PARENT_INTERVAL = 0.5


class ProcessesBackend:
    """Blocks dealt to worker processes, for functions that hold the interpreter.

    Parameters
    ----------
    n_workers : int
        Number of processes.
    """

    name = "processes"

    def __init__(self, n_workers: int):
        self.n_workers = n_workers

    def run(self, jobs: Sequence[Job], works: Iterable[Work]) -> Generator[Outcome, None, None]:
        """Do every block; yield outcomes as they come."""
        from loky import get_reusable_executor

        # Kept for a minute, so that the next run of a notebook finds its workers there.
        executor = get_reusable_executor(
            self.n_workers, timeout=60, initializer=_belong_to, initargs=(os.getpid(),)
        )
        try:
            yield from ExecutorBackend(executor, self.n_workers, name=self.name).run(jobs, works)
        except BaseException:
            executor.shutdown(wait=True, kill_workers=True)
            raise


def _belong_to(parent: int) -> None:
    """Leave Ctrl-C to the parent process, and end when it has ended, however it did."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_INTERVAL)
    os._exit(1)
