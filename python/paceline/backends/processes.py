"""Processes of this machine, by loky: they need no `__main__` guard and import no user's script."""

import signal
from collections.abc import Iterable, Iterator

from paceline.backends.executor import ExecutorBackend
from paceline.worker import Job, Outcome, Work


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

    def run(self, job: Job, works: Iterable[Work]) -> Iterator[Outcome]:
        """Do every block; yield outcomes as they come."""
        from loky import get_reusable_executor

        # Kept for a minute, so that the next run of a notebook finds its workers there.
        executor = get_reusable_executor(
            self.n_workers, timeout=60, initializer=_leave_ctrl_c_to_the_parent
        )
        try:
            yield from ExecutorBackend(executor, self.n_workers).run(job, works)
        except BaseException:
            executor.shutdown(wait=True, kill_workers=True)
            raise


def _leave_ctrl_c_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
