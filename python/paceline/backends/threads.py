"""Threads of this process. The core releases the interpreter while it reads and decodes."""

import queue
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence

from paceline.backends.base import worker_count
from paceline.backends.mdanalysis import ForMDAnalysis
from paceline.performance.records import DuplicateAttempt
from paceline.schedule.scheduler import Scheduler, given_up, too_late
from paceline.schedule.tasks import AnyJob, AnyWork, BlockResult
from paceline.schedule.worker import Worker


class Threads(ForMDAnalysis):
    """Blocks dealt to threads as they come free.

    Parameters
    ----------
    n_workers : int, optional
        Number of threads; by default the CPUs that this process may use.
    """

    name = "threads"

    def __init__(self, n_workers: int | None = None):
        self.n_workers = worker_count(n_workers)

    def run(
        self, jobs: Sequence[AnyJob], works: Iterable[AnyWork]
    ) -> Generator[BlockResult | DuplicateAttempt, None, None]:
        """Do every block; yield outcomes as they come."""
        deal = _Deal(Scheduler(works), 2 * self.n_workers)
        outcomes: queue.SimpleQueue[BlockResult | BaseException] = queue.SimpleQueue()
        for k in range(self.n_workers):
            # Daemons, so that a function that never returns cannot hold the interpreter's exit
            # after Ctrl-C, or once another thread did its block; concurrent.futures would wait.
            threading.Thread(
                target=_work, args=(jobs, deal, outcomes), name=f"paceline-{k}", daemon=True
            ).start()
        try:
            while not deal.finished:
                outcome = outcomes.get()
                if isinstance(outcome, BaseException):
                    raise outcome
                if deal.done(outcome):
                    yield outcome
                else:
                    yield from too_late(outcome)
            yield from [*_late(outcomes), *deal.given_up()]
        finally:
            deal.stop()


class _Deal:
    """A dealer that threads share.

    Where outcomes are collected more slowly than they come (a slow disk), only so many blocks are
    under way: others would wait in memory, and be taken for overdue.
    """

    def __init__(self, dealer: Scheduler, most: int):
        self._dealer = dealer
        self._most = most
        self._changed = threading.Condition()
        self._stopped = False
        self._busy: dict[str, tuple[AnyWork, int]] = {}

    @property
    def finished(self) -> bool:
        with self._changed:
            return self._dealer.finished

    def next(self, worker: str) -> AnyWork | None:
        """A block for a worker, sooner or later; None once all are done."""
        with self._changed:
            while not self._stopped and not self._dealer.finished:
                patience = None
                if len(self._dealer.unfinished) < self._most:
                    work = self._dealer.next() or self._dealer.again()
                    if work is not None:
                        self._busy[worker] = work, time.monotonic_ns()
                        return work
                    patience = self._dealer.patience()
                self._changed.wait(patience)
        return None

    def free(self, worker: str) -> None:
        """Take note that a worker is at its block no more."""
        with self._changed:
            del self._busy[worker]

    def given_up(self) -> list[DuplicateAttempt]:
        """What workers are at though all is done."""
        with self._changed:
            return [given_up(work, worker, since) for worker, (work, since) in self._busy.items()]

    def done(self, outcome: BlockResult) -> bool:
        with self._changed:
            first = self._dealer.done(outcome)
            # All may be done now, or what is overdue be known better.
            self._changed.notify_all()
        return first

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


def _late(outcomes: "queue.SimpleQueue[BlockResult | BaseException]") -> Iterator[DuplicateAttempt]:
    """What came while the last outcome that counts was collected."""
    while not outcomes.empty():
        outcome = outcomes.get()
        if not isinstance(outcome, BaseException):
            yield from too_late(outcome)


def _work(
    jobs: Sequence[AnyJob], deal: _Deal, outcomes: "queue.SimpleQueue[BlockResult | BaseException]"
) -> None:
    try:
        worker = Worker(jobs.__getitem__)
        while (work := deal.next(worker.name)) is not None:
            outcome = worker.run(work)
            deal.free(worker.name)
            outcomes.put(outcome)
    except BaseException as error:
        outcomes.put(error)
