"""The other ranks' part in runs: they wait for one, and compute the blocks assigned to them.

First the messages between coordinator and workers, then the threads of a rank that compute.
"""

import pickle
import queue
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from paceline._util.compute_threads import start_thread
from paceline.backends.mpi.comm import SHORTEST, Backoff, Comm, portable, quoted
from paceline.backends.mpi.gather import LocalResults, gather
from paceline.engine.scheduler import abandoned_attempt
from paceline.engine.tasks import AnyJob, AnyTask, BlockResult, Job
from paceline.engine.worker import FrameCache, ThreadNames, Worker
from paceline.errors import WorkerError
from paceline.performance.record import SENT_WITH_LATER, DuplicateAttempt

#: Blocks are assigned in batches of about so many seconds: some ten messages a second and thread.
BATCH = 0.1
#: The next batch is asked for when what is left lasts so many seconds: a reply takes less.
AHEAD = 0.05
#: A thread's pace is that of so many blocks: where bytes come slowly, one that was read ahead of
#: takes no time at all, and by it alone a thread would ask for what all others should do.
REMEMBERED = 8
#: Results are reported with the next request, but no later than after so many seconds.
REPORT_INTERVAL = 0.1

Done = tuple[int, BlockResult | BaseException]


class ThreadAddress(NamedTuple):
    """A thread that computes."""

    rank: int
    thread: int


@dataclass(frozen=True)
class RunRequest:
    """From the coordinator to workers: a run begins; its jobs are broadcast next."""

    #: Computing threads of each rank.
    n_threads: int
    #: Number of blocks of each job.
    n_blocks: Sequence[int]
    #: "gather" or "one-sided".
    collect: str
    #: True where ranks are on several hosts, each with a clock of its own.
    compare_clocks: bool
    #: Passes over frames of the same number are of one run.
    run: int


@dataclass(frozen=True)
class Shutdown:
    """From the coordinator to workers: no more runs follow."""


@dataclass(frozen=True)
class WorkerReport:
    """From a rank to the coordinator: what was computed, and what is wanted."""

    #: Results of blocks that were done, without the values that the rank keeps.
    results: Sequence[BlockResult] = ()
    #: Threads that have little left to do, and how many frames each would like.
    requests: dict[int, int] = field(default_factory=dict)
    #: Threads that have nothing to do.
    idle: Sequence[int] = ()
    #: Error of a thread.
    error: BaseException | None = None


@dataclass
class Reply:
    """From the coordinator to a rank."""

    #: For each result reported since the last reply, in order: False where another rank did the
    #: block sooner.
    accepted: list[bool] = field(default_factory=list)
    #: Threads, and blocks for them.
    tasks: list[tuple[int, AnyTask]] = field(default_factory=list)


@dataclass(frozen=True)
class RunFinished:
    """From the coordinator to workers: all blocks are done, or the run has failed."""

    #: The last.
    reply: Reply
    #: True where nothing is collected.
    failed: bool


@dataclass(frozen=True)
class Ack:
    """From a worker to the coordinator: nothing of this run follows."""

    #: Attempts that its threads still compute, though others finished these blocks sooner.
    abandoned: Sequence[DuplicateAttempt]


class ComputeThread:
    """One thread that computes, and the pace at which it does."""

    def __init__(
        self,
        number: int,
        names: ThreadNames,
        job_of: Callable[[int], AnyJob],
        done: "queue.Queue[Done]",
    ):
        self._number = number
        self._done = done
        self._queue: queue.SimpleQueue[AnyTask | None] = queue.SimpleQueue()
        self._held: deque[AnyTask] = deque()
        self._since = 0.0
        #: Seconds and frames of the last blocks.
        self._paces: deque[tuple[float, int]] = deque(maxlen=REMEMBERED)
        self._stopped = False
        self._worker = ""
        self.has_asked = False
        start_thread(self._work, names, job_of)

    def _work(self, names: ThreadNames, job_of: Callable[[int], AnyJob]) -> None:
        try:
            worker = Worker(job_of, names.of(self._number))
            self._worker = worker.name
            while (task := self._queue.get()) is not None and not self._stopped:
                self._done.put((self._number, worker.run(task)))
        except BaseException as error:
            self._done.put((self._number, error))

    @property
    def idle(self) -> bool:
        """True while it has nothing to do."""
        return not self._held

    def give(self, tasks: Iterable[AnyTask]) -> None:
        """Add blocks to those that it has."""
        if not self._held:
            self._since = time.monotonic()
        self.has_asked = False
        for task in tasks:
            self._held.append(task)
            self._queue.put(task)

    def finished(self, result: BlockResult) -> None:
        """Record that the first of its blocks is done."""
        self._held.popleft()
        # By its own clock: two results may be recorded at once, however long each took.
        (timing,) = result.timings
        self._paces.append((max(1, timing.end - timing.start) / 1e9, timing.n_frames))
        self._since = timing.end / 1e9

    def wanted(self) -> int | None:
        """Return how many frames it needs now; None while it has enough or has asked."""
        if self.has_asked:
            return None
        if not self._paces:  # nobody knows yet how long a block takes
            return 1 if self.idle else None
        pace = sum(spent for spent, _ in self._paces) / sum(n for _, n in self._paces)
        if self._left(pace) >= AHEAD:
            return None
        return max(1, int(BATCH / pace))

    def _left(self, pace: float) -> float:
        """Estimate how long its blocks will last, s; the first alone may be overdue."""
        if not self._held:
            return 0.0
        present = self._held[0].n_frames * pace - (time.monotonic() - self._since)
        others = sum(task.n_frames for task in self._held) - self._held[0].n_frames
        return max(0.0, present) + others * pace

    def abandoned(self, offset: int) -> DuplicateAttempt | None:
        """Return the attempt that it has not finished, if there is one."""
        if not self._held:
            return None
        return abandoned_attempt(self._held[0], self._worker, int(1e9 * self._since), offset=offset)

    def stop(self) -> None:
        """End after the present block."""
        self._stopped = True
        self._queue.put(None)


class ComputeThreads:
    """All threads of a rank that compute."""

    def __init__(self, n_threads: int, names: ThreadNames, job_of: Callable[[int], AnyJob]):
        # No SimpleQueue: in CPython 3.11 its `get` may forget a timeout as short as ours, and wait.
        self._done: queue.Queue[Done] = queue.Queue()
        self._threads = [ComputeThread(k, names, job_of, self._done) for k in range(n_threads)]

    def give(self, thread: int, tasks: Iterable[AnyTask]) -> None:
        """Add blocks to those of a thread."""
        self._threads[thread].give(tasks)

    def finished(self, seconds: float) -> list[BlockResult]:
        """Wait at most so long for a result; return all, or raise what a thread raised."""
        results = []
        try:
            number, result = self._done.get(timeout=seconds)
            while True:
                if isinstance(result, BaseException):
                    raise result
                self._threads[number].finished(result)
                results.append(result)
                number, result = self._done.get_nowait()
        except queue.Empty:
            return results

    def requests(self) -> dict[int, int]:
        """Return threads that have little left to do and the frames each needs, each once."""
        requests = {}
        for number, thread in enumerate(self._threads):
            wanted = thread.wanted()
            if wanted is not None:
                thread.has_asked = True
                requests[number] = wanted
        return requests

    def idle(self) -> list[int]:
        """Return the threads that have nothing to do."""
        return [number for number, thread in enumerate(self._threads) if thread.idle]

    def abandoned(self, offset: int) -> list[DuplicateAttempt]:
        """Return unfinished attempts; `offset` (ns) is_coordinator to the coordinator's clock."""
        attempts = (thread.abandoned(offset) for thread in self._threads)
        return [attempt for attempt in attempts if attempt is not None]

    def stop(self) -> None:
        """End all threads after their present blocks."""
        for thread in self._threads:
            thread.stop()


class RankWorker:
    """One rank's threads and results in a run; the coordinator's rank has one too.

    `clock_offset` (ns) is_coordinator from this host's clock to the coordinator's; `run` is the
    number of the run.
    """

    #: Number of the last run, and the names of its threads.
    _names: tuple[int, ThreadNames] = 0, ThreadNames()

    def __init__(
        self,
        jobs: Sequence[AnyJob],
        n_blocks: Sequence[int],
        n_threads: int,
        clock_offset: int = 0,
        run: int = 0,
    ):
        if run != RankWorker._names[0]:
            RankWorker._names = run, ThreadNames()
        #: Collected at the end.
        self.results = LocalResults(jobs, n_blocks, clock_offset)
        self._clock_offset = clock_offset
        self._threads = ComputeThreads(n_threads, self._names[1], jobs.__getitem__)
        self._unreported: list[BlockResult] = []
        self._reported = time.monotonic()
        self._idle: list[int] = []
        self._error: Exception | None = None

    def report(self, seconds: float) -> WorkerReport | None:
        """Wait at most so long for a result; return a report unless it can wait."""
        try:
            self._unreported += map(self.results.hold, self._threads.finished(seconds))
        except BaseException as error:
            return WorkerReport(error=error)
        requests, idle = self._threads.requests(), self._threads.idle()
        late = bool(self._unreported) and time.monotonic() - self._reported > REPORT_INTERVAL
        if not requests and idle == self._idle and not late:
            return None
        report = WorkerReport(_sent_together(self._unreported), requests, idle)
        self._unreported, self._idle, self._reported = [], idle, time.monotonic()
        return report

    def accept(self, reply: Reply) -> None:
        """Begin the blocks of a reply; raise `AnalysisError` where rows of blocks are not alike."""
        for thread, task in reply.tasks:
            self._threads.give(thread, [task])
        error = self.settle(reply)
        if error is not None:
            raise error

    def settle(self, reply: Reply) -> Exception | None:
        """Keep the results that count; return what `accept` raises, now or before.

        So the run fails also where the coordinator learnt of it too late, when all was done.
        """
        if self._error is None:
            try:
                self.results.settle(reply.accepted)
            except Exception as error:
                # Frames that failed would keep results and their files until garbage is collected.
                self._error = error.with_traceback(None)
                error.__cause__ = error.__context__ = None
                self.results.drop()
        return self._error

    def stop(self) -> list[DuplicateAttempt]:
        """Begin no more blocks; return unfinished attempts."""
        self._threads.stop()
        return self._threads.abandoned(self._clock_offset)


def _sent_together(results: Sequence[BlockResult]) -> list[BlockResult]:
    """Mark all results but the last of each thread: they have waited for it to be sent."""
    last = {result.timings[-1].worker: result for result in results}
    return [
        result
        if last[result.timings[-1].worker] is result
        else replace(result, timings=[replace(one, comm=SENT_WITH_LATER) for one in result.timings])
        for result in results
    ]


def serve(comm: Comm) -> None:
    """Work in every run of the coordinator, until it ends."""
    while work_in_run(comm):
        pass


def work_in_run(comm: Comm) -> bool:
    """Work in the next run; return False where none follows. A rank that cannot aborts all."""
    with comm.abort_on_error():
        _, request = comm.wait_for_message()
        if isinstance(request, Shutdown):
            return False
        _work_in_run(comm, request)
    return True


def _work_in_run(comm: Comm, request: RunRequest) -> None:
    data = comm.broadcast(None)
    offset = comm.clock_offset() if request.compare_clocks else 0
    jobs, error = _open(data)
    caches = [job.caching for job in jobs if isinstance(job, Job) and job.caching]
    FrameCache.drop_others({one.key for one in caches})
    FrameCache.open(caches)
    n_blocks = request.n_blocks if jobs else ()
    worker = RankWorker(jobs, n_blocks, request.n_threads if jobs else 0, offset, request.run)
    if error is not None:
        comm.send_message(0, WorkerReport(error=error))
    finished = _compute(comm, worker)
    comm.send_message(0, Ack(worker.stop()))
    comm.finish_sending()
    FrameCache.drop([one.key for one in caches if one.last])
    if not finished.failed:
        error = error or worker.settle(finished.reply)
        gather(comm, worker.results, request.collect, error)


def _open(data: bytes | bytearray) -> tuple[Sequence[AnyJob], Exception | None]:
    """Unpickle the jobs of a run; return why where that fails."""
    try:
        return [pickle.loads(job) for job in pickle.loads(data)], None
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return [], WorkerError(f"a rank cannot open an analysis: {reason}")


def _compute(comm: Comm, worker: RankWorker) -> RunFinished:
    """Compute blocks until all are done."""
    backoff = Backoff()
    while True:
        report = worker.report(SHORTEST if comm.sending else backoff.next())
        if report is not None:
            backoff.reset()
            _send(comm, report)
        while (received := comm.receive_message()) is not None:
            backoff.reset()
            _, message = received
            if isinstance(message, RunFinished):
                return message
            try:
                worker.accept(message)
            except Exception as error:
                _send(comm, WorkerReport(error=error))


def _send(comm: Comm, report: WorkerReport) -> None:
    """Send a report, or why it cannot be sent."""
    if report.error is not None:
        report.error.add_note(f"raised on rank {comm.rank}, host {socket.gethostname()}")
        report = WorkerReport(error=portable(report.error))
    try:
        comm.send_message(0, report)
    except Exception as reason:
        comm.send_message(0, WorkerReport(error=quoted(reason)))
