"""Threads of this process. The core releases the interpreter while it reads and decodes."""

import queue
import threading
from collections.abc import Generator, Iterable, Sequence

from paceline.job import Job, Outcome, Work
from paceline.worker import Worker


class ThreadsBackend:
    """Blocks dealt to threads as they come free.

    Parameters
    ----------
    n_workers : int
        Number of threads.
    """

    name = "threads"

    def __init__(self, n_workers: int):
        self.n_workers = n_workers

    def run(self, jobs: Sequence[Job], works: Iterable[Work]) -> Generator[Outcome, None, None]:
        """Do every block; yield outcomes as they come."""
        deal = _Deal(works)
        outcomes: queue.SimpleQueue[Outcome | BaseException | None] = queue.SimpleQueue()
        for k in range(self.n_workers):
            # Daemons, so that a function that never returns cannot hold the interpreter's exit
            # after Ctrl-C; concurrent.futures would wait for it.
            threading.Thread(
                target=_work, args=(jobs, deal, outcomes), name=f"paceline-{k}", daemon=True
            ).start()
        working = self.n_workers
        try:
            while working:
                outcome = outcomes.get()
                if outcome is None:
                    working -= 1
                elif isinstance(outcome, BaseException):
                    raise outcome
                else:
                    yield outcome
        finally:
            deal.stop()


class _Deal:
    """An iterator that threads share."""

    def __init__(self, works: Iterable[Work]):
        self._works = iter(works)
        self._lock = threading.Lock()
        self._stopped = False

    def next(self) -> Work | None:
        with self._lock:
            return None if self._stopped else next(self._works, None)

    def stop(self) -> None:
        self._stopped = True


def _work(jobs: Sequence[Job], deal: _Deal, outcomes: queue.SimpleQueue) -> None:
    try:
        worker = Worker(jobs.__getitem__)
        while (work := deal.next()) is not None:
            outcomes.put(worker.run(work))
    except BaseException as error:
        outcomes.put(error)
    outcomes.put(None)
