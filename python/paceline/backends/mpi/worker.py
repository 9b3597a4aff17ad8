"""Workers: ranks that wait for runs, and compute the blocks that the coordinator assigns.

The module defines the messages between coordinator and workers, then a rank's compute threads.
"""

import pickle
import queue
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from paceline.backends.base import start_thread
from paceline.backends.mpi.comm import SHORTEST, Backoff, Comm, portable, quoted
from paceline.backends.mpi.gather import LocalResults, Place, gather
from paceline.engine.node_cache_locality import NodeBlocks, blocks_here, cached_files
from paceline.engine.scheduler import abandoned_attempt
from paceline.engine.tasks_and_results import AnyJob, AnyTask, BlockResult, Job
from paceline.engine.worker import FrameCache, ThreadNames, Worker
from paceline.errors import WorkerError
from paceline.performance.record import SENT_WITH_LATER, DuplicateAttempt

#: Duration of a batch, seconds, so that each thread sends about ten messages per second.
BATCH = 0.1
#: A thread requests its next batch when its remaining work takes less than this time, seconds. A
#: reply arrives sooner, so that the thread does not wait.
AHEAD = 0.05
#: Number of last blocks from which a thread's speed is estimated. One block is not enough: a block
#: that was prefetched from slow storage takes almost no time, after which the thread would request
#: too many blocks.
REMEMBERED = 8
#: Maximum time between reports of results, which are normally sent with the next request, seconds.
REPORT_INTERVAL = 0.1

Done = tuple[int, BlockResult | BaseException]


class ThreadAddress(NamedTuple):
    """Rank and number of a compute thread."""

    rank: int
    thread: int


@dataclass(frozen=True)
class RunRequest:
    """Message to workers that a run begins; the coordinator broadcasts the jobs next."""

    #: Number of compute threads on each rank.
    n_threads: int
    #: Number of blocks of each job.
    n_blocks: Sequence[int]
    #: How results are collected: "gather" or "one-sided".
    collect: str
    #: True if ranks run on several hosts, whose clocks differ.
    compare_clocks: bool
    #: Number of the run; several passes over the frames may belong to one run.
    run: int


@dataclass(frozen=True)
class Shutdown:
    """Message to workers that no more runs follow."""


@dataclass(frozen=True)
class WorkerReport:
    """Message from a rank to the coordinator: finished results and requests."""

    #: Results of finished blocks, without values that the rank stores.
    results: Sequence[BlockResult] = ()
    #: Number of frames requested by each thread that has little work left.
    requests: dict[int, int] = field(default_factory=dict)
    #: Threads without work, by number.
    idle: Sequence[int] = ()
    #: Error of a compute thread, or of this rank.
    error: BaseException | None = None
    #: Blocks in the cache of the rank's node; only in the first report of a run with a cache.
    blocks: NodeBlocks | None = None


@dataclass
class Reply:
    """Message from the coordinator to a rank: accepted results and new blocks."""

    #: For each result reported since the last reply, in order: False if another rank finished the
    #: block sooner.
    accepted: list[bool] = field(default_factory=list)
    #: Pairs of a thread number and a block for that thread.
    tasks: list[tuple[int, AnyTask]] = field(default_factory=list)
    #: Offsets at which the rank must write the parts of results that it stores.
    offsets: list[tuple[Place, int]] = field(default_factory=list)


@dataclass(frozen=True)
class RunFinished:
    """Message to workers that all blocks are finished, or that the run has failed."""

    #: Last reply to the rank in this run.
    reply: Reply
    #: True if the run failed, so that no results are collected.
    failed: bool


@dataclass(frozen=True)
class Ack:
    """Message to the coordinator: this rank sends nothing more in this run."""

    #: Attempts that this rank's threads still compute although others finished these blocks sooner.
    abandoned: Sequence[DuplicateAttempt]


class ComputeThread:
    """Compute thread, with an estimate of its speed."""

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
        #: Duration (s) and number of frames of each of the last blocks.
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
        """True while the thread has no blocks."""
        return not self._held

    def give(self, tasks: Iterable[AnyTask]) -> None:
        """Add blocks to the thread's queue."""
        if not self._held:
            self._since = time.monotonic()
        self.has_asked = False
        for task in tasks:
            self._held.append(task)
            self._queue.put(task)

    def finished(self, result: BlockResult) -> None:
        """Record the result of the first block in the queue."""
        self._held.popleft()
        # Use the thread's own clock: two results may be recorded at once, however long each took.
        (timing,) = result.timings
        self._paces.append((max(1, timing.end - timing.start) / 1e9, timing.n_frames))
        self._since = timing.end / 1e9

    def wanted(self) -> int | None:
        """Return the number of frames to request; None if work remains or a request is pending."""
        if self.has_asked:
            return None
        if not self._paces:  # the duration of a block is not known yet
            return 1 if self.idle else None
        pace = sum(spent for spent, _ in self._paces) / sum(n for _, n in self._paces)
        if self._remaining_time(pace) >= AHEAD:
            return None
        return max(1, int(BATCH / pace))

    def _remaining_time(self, pace: float) -> float:
        """Estimate the remaining time of the queued blocks, s; only the first may be overdue."""
        if not self._held:
            return 0.0
        present = self._held[0].n_frames * pace - (time.monotonic() - self._since)
        others = sum(task.n_frames for task in self._held) - self._held[0].n_frames
        return max(0.0, present) + others * pace

    def abandoned(self, offset: int) -> DuplicateAttempt | None:
        """Return the attempt that the thread has not finished; None if it is idle."""
        if not self._held:
            return None
        return abandoned_attempt(self._held[0], self._worker, int(1e9 * self._since), offset=offset)

    def stop(self) -> None:
        """End the thread after its current block."""
        self._stopped = True
        self._queue.put(None)


class ComputeThreads:
    """All compute threads of a rank."""

    def __init__(self, n_threads: int, names: ThreadNames, job_of: Callable[[int], AnyJob]):
        # Not a SimpleQueue: in CPython 3.11 its `get` may ignore a short timeout and block.
        self._done: queue.Queue[Done] = queue.Queue()
        self._threads = [ComputeThread(k, names, job_of, self._done) for k in range(n_threads)]

    def give(self, thread: int, tasks: Iterable[AnyTask]) -> None:
        """Add blocks to a thread's queue."""
        self._threads[thread].give(tasks)

    def finished(self, seconds: float) -> list[BlockResult]:
        """Wait at most `seconds` for a result; return all results, or raise a thread's error."""
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
        """Return the numbers of frames to request, by thread, and mark these threads as waiting."""
        requests = {}
        for number, thread in enumerate(self._threads):
            wanted = thread.wanted()
            if wanted is not None:
                thread.has_asked = True
                requests[number] = wanted
        return requests

    def idle(self) -> list[int]:
        """Return the numbers of idle threads."""
        return [number for number, thread in enumerate(self._threads) if thread.idle]

    def abandoned(self, offset: int) -> list[DuplicateAttempt]:
        """Return unfinished attempts; adding `offset` (ns) converts to the coordinator's clock."""
        attempts = (thread.abandoned(offset) for thread in self._threads)
        return [attempt for attempt in attempts if attempt is not None]

    def stop(self) -> None:
        """End all threads after their current blocks."""
        for thread in self._threads:
            thread.stop()


class RankWorker:
    """Threads and results of one rank in a run, also on the coordinator's rank.

    Adding `clock_offset` (ns) converts times of this host's clock to the coordinator's clock. `run`
    is the number of the run. With `keeps`, the rank stores those parts of results that a
    `PartlyKept` computation does not send to the coordinator.
    """

    #: Number of the last run, and names of its threads.
    _names: tuple[int, ThreadNames] = 0, ThreadNames()

    def __init__(
        self,
        jobs: Sequence[AnyJob],
        n_blocks: Sequence[int],
        n_threads: int,
        clock_offset: int = 0,
        run: int = 0,
        *,
        keeps: bool = False,
    ):
        if run != RankWorker._names[0]:
            RankWorker._names = run, ThreadNames()
        #: Results that this rank stores until the end of the run.
        self.results = LocalResults(jobs, n_blocks, clock_offset, keeps=keeps)
        self._clock_offset = clock_offset
        self._threads = ComputeThreads(n_threads, self._names[1], jobs.__getitem__)
        self._unreported: list[BlockResult] = []
        self._reported = time.monotonic()
        self._idle: list[int] = []
        self._error: Exception | None = None
        files = cached_files(jobs)
        self._blocks = blocks_here(files) if files else None

    def report(self, seconds: float) -> WorkerReport | None:
        """Wait at most `seconds` for a result; return a report, or None if reporting can wait."""
        try:
            self._unreported += map(self.results.hold, self._threads.finished(seconds))
        except BaseException as error:
            return WorkerReport(error=error)
        requests, idle = self._threads.requests(), self._threads.idle()
        late = bool(self._unreported) and time.monotonic() - self._reported > REPORT_INTERVAL
        if not requests and idle == self._idle and not late:
            return None
        together = _mark_sent_together(self._unreported)
        report = WorkerReport(together, requests, idle, blocks=self._blocks)
        self._unreported, self._idle, self._reported = [], idle, time.monotonic()
        self._blocks = None
        return report

    def accept(self, reply: Reply) -> None:
        """Start the blocks of a reply; raise `AnalysisError` if rows of blocks do not match."""
        for thread, task in reply.tasks:
            self._threads.give(thread, [task])
        error = self.settle(reply)
        if error is not None:
            raise error

    def settle(self, reply: Reply) -> Exception | None:
        """Store the accepted results; return the error of this or an earlier call, or None.

        `accept` raises this error. After the last reply of a run, it is passed to `gather`, so that
        the run fails even if the error occurs after all blocks are finished.
        """
        if self._error is None:
            try:
                self.results.settle(reply.accepted)
                self.results.put(reply.offsets)
            except Exception as error:
                # The frames of the traceback would keep results and files until garbage collection.
                self._error = error.with_traceback(None)
                error.__cause__ = error.__context__ = None
                self.results.drop()
        return self._error

    def stop(self) -> list[DuplicateAttempt]:
        """Start no more blocks; return unfinished attempts."""
        self._threads.stop()
        return self._threads.abandoned(self._clock_offset)


def _mark_sent_together(results: Sequence[BlockResult]) -> list[BlockResult]:
    """Mark the results that are sent together with a later result of the same thread."""
    last = {result.timings[-1].worker: result for result in results}
    return [
        result
        if last[result.timings[-1].worker] is result
        else replace(result, timings=[replace(one, comm=SENT_WITH_LATER) for one in result.timings])
        for result in results
    ]


def serve(comm: Comm) -> None:
    """Work in every run of the coordinator, until the coordinator ends the session."""
    while work_in_run(comm):
        pass


def work_in_run(comm: Comm) -> bool:
    """Work in the next run; return False if there is none. A failing rank aborts all ranks."""
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
    n_threads = request.n_threads if jobs else 0
    worker = RankWorker(jobs, n_blocks, n_threads, offset, request.run, keeps=True)
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
    """Unpickle the jobs of a run; return them, and the error if unpickling fails."""
    try:
        return [pickle.loads(job) for job in pickle.loads(data)], None
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return [], WorkerError(f"a rank cannot open an analysis: {reason}")


def _compute(comm: Comm, worker: RankWorker) -> RunFinished:
    """Compute blocks until all blocks of the run are finished; return the last message."""
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
    """Send a report, or the reason why it cannot be sent."""
    if report.error is not None:
        report.error.add_note(f"raised on rank {comm.rank}, host {socket.gethostname()}")
        report = WorkerReport(error=portable(report.error))
    try:
        comm.send_message(0, report)
    except Exception as reason:
        comm.send_message(0, WorkerReport(error=quoted(reason)))
