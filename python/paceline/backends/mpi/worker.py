"""The other ranks' part in runs: they wait for one, and do the blocks that they are dealt."""

import pickle
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import cloudpickle

from paceline.backends.mpi.comm import SHORTEST, Backoff, Comm, broadcast, clock_offset, unbroken
from paceline.backends.mpi.gather import LocalResults, gather
from paceline.errors import WorkerError
from paceline.performance.records import DuplicateAttempt
from paceline.schedule.scheduler import given_up
from paceline.schedule.tasks import AnyJob, AnyWork, BlockResult
from paceline.schedule.worker import Worker


class Assignment(NamedTuple):
    """A thread that computes."""

    rank: int
    thread: int


@dataclass(frozen=True)
class RunRequest:
    """From the first rank to all: a run begins; its jobs are broadcast next.

    Attributes
    ----------
    n_threads : int
        That compute on each rank.
    n_blocks : sequence of int
        Of each job.
    collect : {"gather", "one-sided"}
        How rows come together at the end.
    compare_clocks : bool
        Whether ranks are on several hosts, each with a clock of its own.
    """

    n_threads: int
    n_blocks: Sequence[int]
    collect: str
    compare_clocks: bool


@dataclass(frozen=True)
class Shutdown:
    """From the first rank to all: there will be no more runs."""


@dataclass(frozen=True)
class Report:
    """From a rank to the first: what was done there, and what is wanted.

    Attributes
    ----------
    outcomes : sequence of BlockResult
        Of blocks that were done; what the rank keeps is not in them.
    asks : mapping of int to int
        Threads that have little left to do, and how many frames each would like.
    idle : sequence of int
        Threads that have nothing to do.
    error : BaseException or None
        What a thread raised.
    """

    outcomes: Sequence[BlockResult] = ()
    asks: dict[int, int] = field(default_factory=dict)
    idle: Sequence[int] = ()
    error: BaseException | None = None


@dataclass
class Answer:
    """From the first rank to another.

    Attributes
    ----------
    accepted : list of bool
        Of each outcome reported since the last answer, in order, whether it counts: it does not
        where another rank did the block sooner.
    works : list of (int, Work)
        Threads, and blocks for them.
    """

    accepted: list[bool] = field(default_factory=list)
    works: list[tuple[int, AnyWork]] = field(default_factory=list)


@dataclass(frozen=True)
class RunFinished:
    """From the first rank to all: all blocks are done, or the run has failed.

    Attributes
    ----------
    answer : Answer
        The last.
    failed : bool
        Whether nothing will be collected.
    """

    answer: Answer
    failed: bool


@dataclass(frozen=True)
class Ack:
    """From a rank to the first: nothing of this run will come from it any more.

    Attributes
    ----------
    abandoned : sequence of DuplicateAttempt
        What its threads are still at, though others were done with it sooner.
    """

    abandoned: Sequence[DuplicateAttempt]


#: Blocks are dealt in batches of about so long, seconds: some ten messages a second and thread.
BATCH = 0.1
#: The next batch is asked for when what is left lasts so long, seconds: an answer takes less.
AHEAD = 0.05
#: A thread's pace is that of so many blocks: where bytes come slowly, one that was read ahead of
#: takes no time at all, and by it alone a thread would ask for what all others should do.
REMEMBERED = 8

Done = tuple[int, BlockResult | BaseException]


class ComputeThread:
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
        #: Seconds and frames of the last blocks.
        self._paces: deque[tuple[float, int]] = deque(maxlen=REMEMBERED)
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

    def finished(self, outcome: BlockResult) -> None:
        """Take note that it is done with the first of its blocks."""
        self._held.popleft()
        # By its own clock: two outcomes may be taken note of at once, however long each took.
        (timing,) = outcome.timings
        self._paces.append((max(1, timing.end - timing.start) / 1e9, timing.n_frames))
        self._since = timing.end / 1e9

    def wanted(self) -> int | None:
        """Frames that it should be dealt now; None while it has enough or has asked."""
        if self.asked:
            return None
        if not self._paces:  # nobody knows yet how long a block takes
            return 1 if self.idle else None
        pace = sum(spent for spent, _ in self._paces) / sum(n for _, n in self._paces)
        if self._left(pace) >= AHEAD:
            return None
        return max(1, int(BATCH / pace))

    def _left(self, pace: float) -> float:
        """How long its blocks will last, s; the first may be overdue, the others are not."""
        if not self._held:
            return 0.0
        present = self._held[0].n_frames * pace - (time.monotonic() - self._since)
        others = sum(work.n_frames for work in self._held) - self._held[0].n_frames
        return max(0.0, present) + others * pace

    def given_up(self, offset: int) -> DuplicateAttempt | None:
        """What it is at, if it is at anything."""
        if not self._held:
            return None
        return given_up(self._held[0], self._worker, int(1e9 * self._since), offset=offset)

    def stop(self) -> None:
        """Let it end after its present block."""
        self._stopped = True
        self._queue.put(None)


class ComputeThreads:
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
        self._threads = [ComputeThread(k, job_of, self._done) for k in range(n_threads)]

    def give(self, thread: int, works: Iterable[AnyWork]) -> None:
        """Let a thread do blocks."""
        self._threads[thread].give(works)

    def finished(self, seconds: float) -> list[BlockResult]:
        """Outcomes of blocks that were done.

        Parameters
        ----------
        seconds : float
            How long to wait for the first.

        Returns
        -------
        list of BlockResult

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

    def given_up(self, offset: int) -> list[DuplicateAttempt]:
        """What threads are at though all is done.

        Parameters
        ----------
        offset : int
            What is added to this host's clock to have that of the first rank's, ns.

        Returns
        -------
        list of DuplicateAttempt
        """
        attempts = (thread.given_up(offset) for thread in self._threads)
        return [attempt for attempt in attempts if attempt is not None]

    def stop(self) -> None:
        """Let all end after their present blocks."""
        for thread in self._threads:
            thread.stop()


#: Outcomes are reported with the next request, but no later than this, seconds.
LATEST = 0.1


class RankWorker:
    """Does blocks and says so.

    Parameters
    ----------
    jobs : sequence of Job or Calls
        Of the run.
    n_blocks : sequence of int
        Of each job.
    n_threads : int
        That compute.
    clock_offset : int
        What is added to this host's clock to have that of the first rank's, ns.

    Attributes
    ----------
    keeper : LocalResults
        What is collected at the end.
    """

    def __init__(
        self, jobs: Sequence[AnyJob], n_blocks: Sequence[int], n_threads: int, clock_offset: int = 0
    ):
        self.keeper = LocalResults(jobs, n_blocks, clock_offset)
        self._clock_offset = clock_offset
        self._crew = ComputeThreads(n_threads, jobs.__getitem__)
        self._unreported: list[BlockResult] = []
        self._reported = time.monotonic()
        self._idle: list[int] = []
        self._error: Exception | None = None

    def report(self, seconds: float) -> Report | None:
        """What the first rank should know now.

        Parameters
        ----------
        seconds : float
            How long to wait for news.

        Returns
        -------
        Report or None
            None where it can wait.
        """
        try:
            self._unreported += map(self.keeper.report, self._crew.finished(seconds))
        except BaseException as error:
            return Report(error=error)
        asks, idle = self._crew.asks(), self._crew.idle()
        late = bool(self._unreported) and time.monotonic() - self._reported > LATEST
        if not asks and idle == self._idle and not late:
            return None
        report = Report(self._unreported, asks, idle)
        self._unreported, self._idle, self._reported = [], idle, time.monotonic()
        return report

    def take(self, answer: Answer) -> None:
        """Do what the first rank says.

        Raises
        ------
        AnalysisError
            Rows of blocks are not alike.
        """
        for thread, work in answer.works:
            self._crew.give(thread, [work])
        error = self.settle(answer)
        if error is not None:
            raise error

    def settle(self, answer: Answer) -> Exception | None:
        """Hear which outcomes count, and no more; what `take` raises, now or before, is returned.

        So the run fails also where the first rank learnt of it too late, when all was done.
        """
        if self._error is None:
            try:
                self.keeper.settle(answer.accepted)
            except Exception as error:
                self._error = error
        return self._error

    def stop(self) -> list[DuplicateAttempt]:
        """Begin no more blocks; return what threads are still at."""
        self._crew.stop()
        return self._crew.given_up(self._clock_offset)


def serve(wire: Comm) -> None:
    """Take part in every run of the first rank, until it ends.

    Parameters
    ----------
    wire : Comm
        To the first rank.
    """
    while not follow(wire):
        pass


def follow(wire: Comm) -> bool:
    """Take part in the first rank's next run. A rank that cannot ends all.

    Parameters
    ----------
    wire : Comm
        To the first rank.

    Returns
    -------
    bool
        Whether there will be no more.
    """
    with unbroken(wire.comm):
        _, settings = wire.wait_for_message()
        if isinstance(settings, Shutdown):
            return True
        _follow(wire, settings)
    return False


def _follow(wire: Comm, settings: RunRequest) -> None:
    data = broadcast(wire.comm, None)
    offset = clock_offset(wire.comm) if settings.compare_clocks else 0
    jobs, error = _open(data)
    n_blocks = settings.n_blocks if jobs else ()
    member = RankWorker(jobs, n_blocks, settings.n_threads if jobs else 0, offset)
    if error is not None:
        wire.send(0, Report(error=error))
    over = _work(wire, member)
    wire.send(0, Ack(member.stop()))
    wire.finish_sending()
    if not over.failed:
        error = error or member.settle(over.answer)
        gather(wire.comm, member.keeper, settings.collect, error)


def _open(data: bytes | bytearray) -> tuple[Sequence[AnyJob], Exception | None]:
    """The jobs of a run, or why there are none."""
    try:
        return [pickle.loads(job) for job in pickle.loads(data)], None
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return [], WorkerError(f"a rank cannot open an analysis: {reason}")


def _work(wire: Comm, member: RankWorker) -> RunFinished:
    """Do blocks until all are done."""
    pause = Backoff()
    while True:
        report = member.report(SHORTEST if wire.sending else pause.next())
        if report is not None:
            pause.news()
            _send(wire, report)
        while (received := wire.receive()) is not None:
            pause.news()
            _, message = received
            if isinstance(message, RunFinished):
                return message
            try:
                member.take(message)
            except Exception as error:
                _send(wire, Report(error=error))


def _send(wire: Comm, report: Report) -> None:
    """Send a report, or why it cannot be sent."""
    try:
        if report.error is not None:
            rank, host = wire.comm.Get_rank(), socket.gethostname()
            report.error.add_note(f"raised on rank {rank}, host {host}")
            # Some that can be pickled cannot be opened again.
            pickle.loads(cloudpickle.dumps(report.error))
        wire.send(0, report)
    except Exception as reason:
        what = report.error or reason
        words = f"a rank raised {type(what).__name__}: {what}"
        wire.send(0, Report(error=WorkerError(words)))
