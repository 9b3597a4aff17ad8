"""The threads of a rank that compute, while its main thread talks with the others."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from paceline.backends.attempts import given_up
from paceline.job import AnyJob, AnyWork
from paceline.outcome import Outcome
from paceline.timing import Abandoned
from paceline.worker import Worker

#: Blocks are dealt in batches of about so long, seconds: some ten messages a second and thread.
BATCH = 0.1
#: The next batch is asked for when what is left lasts so long, seconds: an answer takes less.
AHEAD = 0.05

Done = tuple[int, Outcome | BaseException]


class Thread:
    """One that computes, and what is known of its pace.

    Parameters
    ----------
    number : int
        Which of the rank's.
    job_of : callable
        Gives the job of a number.
    done : queue.Queue
        Is given this number, and the outcome of each block, or an error.
    """

    def __init__(self, number: int, job_of: Callable[[int], AnyJob], done: "queue.Queue[Done]"):
        self._number = number
        self._done = done
        self._queue: queue.SimpleQueue[AnyWork | None] = queue.SimpleQueue()
        self._held: deque[AnyWork] = deque()
        self._since = 0.0
        self._pace: float | None = None
        self._stopped = False
        self._worker = ""
        self.asked = False
        # A daemon, so that a function that never returns cannot hold the interpreter's exit.
        threading.Thread(target=self._work, args=(job_of,), daemon=True).start()

    def _work(self, job_of: Callable[[int], AnyJob]) -> None:
        try:
            worker = Worker(job_of)
            self._worker = worker.name
            while (work := self._queue.get()) is not None and not self._stopped:
                self._done.put((self._number, worker.run(work)))
        except BaseException as error:
            self._done.put((self._number, error))

    @property
    def idle(self) -> bool:
        """Whether it has nothing to do."""
        return not self._held

    def give(self, works: Iterable[AnyWork]) -> None:
        """Let it do blocks after those that it has."""
        if not self._held:
            self._since = time.monotonic()
        self.asked = False
        for work in works:
            self._held.append(work)
            self._queue.put(work)

    def finished(self, outcome: Outcome) -> None:
        """Take note that it is done with the first of its blocks."""
        self._held.popleft()
        # By its own clock: two outcomes may be taken note of at once, however long each took.
        (timing,) = outcome.timings
        self._pace = max(1, timing.end - timing.start) / 1e9 / timing.n_frames
        self._since = timing.end / 1e9

    def wanted(self) -> int | None:
        """Frames that it should be dealt now; None while it has enough or has asked."""
        if self.asked:
            return None
        if self._pace is None:  # nobody knows yet how long a block takes
            return 1 if self.idle else None
        if self._left(self._pace) >= AHEAD:
            return None
        return max(1, int(BATCH / self._pace))

    def _left(self, pace: float) -> float:
        """How long its blocks will last, s; the first may be overdue, the others are not."""
        if not self._held:
            return 0.0
        present = self._held[0].n_frames * pace - (time.monotonic() - self._since)
        others = sum(work.n_frames for work in self._held) - self._held[0].n_frames
        return max(0.0, present) + others * pace

    def given_up(self, offset: int) -> Abandoned | None:
        """What it is at, if it is at anything."""
        if not self._held:
            return None
        return given_up(self._held[0], self._worker, int(1e9 * self._since), offset=offset)

    def stop(self) -> None:
        """Let it end after its present block."""
        self._stopped = True
        self._queue.put(None)


class Crew:
    """All threads of a rank that compute.

    Parameters
    ----------
    n_threads : int
        How many.
    job_of : callable
        Gives the job of a number.
    """

    def __init__(self, n_threads: int, job_of: Callable[[int], AnyJob]):
        # No SimpleQueue: in CPython 3.11 its `get` may forget a timeout as short as ours, and wait.
        self._done: queue.Queue[Done] = queue.Queue()
        self._threads = [Thread(k, job_of, self._done) for k in range(n_threads)]

    def give(self, thread: int, works: Iterable[AnyWork]) -> None:
        """Let a thread do blocks."""
        self._threads[thread].give(works)

    def finished(self, seconds: float) -> list[Outcome]:
        """Outcomes of blocks that were done.

        Parameters
        ----------
        seconds : float
            How long to wait for the first.

        Returns
        -------
        list of Outcome

        Raises
        ------
        BaseException
            What a thread raised.
        """
        outcomes = []
        try:
            number, outcome = self._done.get(timeout=seconds)
            while True:
                if isinstance(outcome, BaseException):
                    raise outcome
                self._threads[number].finished(outcome)
                outcomes.append(outcome)
                number, outcome = self._done.get_nowait()
        except queue.Empty:
            return outcomes

    def asks(self) -> dict[int, int]:
        """Threads that have little left to do, and the frames each should be dealt; each once."""
        asks = {}
        for number, thread in enumerate(self._threads):
            wanted = thread.wanted()
            if wanted is not None:
                thread.asked = True
                asks[number] = wanted
        return asks

    def idle(self) -> list[int]:
        """Threads that have nothing to do."""
        return [number for number, thread in enumerate(self._threads) if thread.idle]

    def given_up(self, offset: int) -> list[Abandoned]:
        """What threads are at though all is done.

        Parameters
        ----------
        offset : int
            What is added to this host's clock to have that of the first rank's, ns.

        Returns
        -------
        list of Abandoned
        """
        attempts = (thread.given_up(offset) for thread in self._threads)
        return [attempt for attempt in attempts if attempt is not None]

    def stop(self) -> None:
        """Let all end after their present blocks."""
        for thread in self._threads:
            thread.stop()
