"""Coordinator, on the first rank: assigns blocks to threads and yields results on arrival."""

import signal
import time
from collections.abc import Generator, Sequence

from paceline._util.signals import Stopping
from paceline.backends.mpi.comm import SHORTEST, Backoff, Comm
from paceline.backends.mpi.gather import gather
from paceline.backends.mpi.worker import (
    Ack,
    RankWorker,
    Reply,
    RunFinished,
    RunRequest,
    ThreadAddress,
    WorkerReport,
)
from paceline.contract.analysis_kinds import PartlyKept
from paceline.engine.node_cache_locality import NodeBlocks, cached_files, homes_of, share_by_node
from paceline.engine.scheduler import PartitionedScheduler, late_attempts
from paceline.engine.tasks_and_results import AnyJob, AnyTask, BlockResult, CollectedResult
from paceline.performance.record import DuplicateAttempt

#: If a run has failed, time after which a rank that does not answer is assumed to hang, seconds.
ANSWER_TIMEOUT = 30.0
#: Longest time between polls for requests, seconds.
LONGEST_POLL = 2e-3


class RankScheduler:
    """Assigns blocks to the threads of all ranks.

    With `static`, each thread gets an equal share, and idle threads do not take over blocks of
    other threads. With `in_order`, results arrive nearly in frame order. With `cached`, no block is
    assigned before every rank has reported which blocks are in the cache of its node. A rank then
    gets the blocks in its cache first.
    """

    def __init__(
        self,
        tasks: Sequence[AnyTask],
        n_ranks: int,
        n_threads: int,
        *,
        static: bool,
        in_order: bool,
        cached: bool = False,
    ):
        self._tasks, self._n_ranks, self._n_threads = tasks, n_ranks, n_threads
        self._awaits_caches = cached
        self._caches: dict[int, NodeBlocks] = {}
        self._scheduler = PartitionedScheduler(
            tasks, n_ranks * n_threads, static=static, in_order=in_order
        )
        self._requests: dict[ThreadAddress, int] = {}
        self._idle: dict[int, Sequence[int]] = {}
        self._replies: dict[int, Reply] = {rank: Reply() for rank in range(n_ranks)}
        #: Rank whose result of a block was accepted, by job and number of the block. Blocks that
        #: rank 0 computed are not included.
        self._ranks: dict[tuple[int, int], int] = {}

    @property
    def finished(self) -> bool:
        """True when every block is done."""
        return self._scheduler.finished

    def record(self, rank: int, report: WorkerReport) -> list[BlockResult | DuplicateAttempt]:
        """Record a rank's report; return the accepted results, and attempts that came too late."""
        if report.blocks is not None and self._awaits_caches:
            self._caches[rank] = report.blocks
            if len(self._caches) == self._n_ranks:
                self._arrange()
        accepted = [self._scheduler.complete(result) for result in report.results]
        self._replies[rank].accepted += accepted
        self._requests |= {ThreadAddress(rank, k): n for k, n in report.requests.items()}
        self._idle[rank] = report.idle
        recorded: list[BlockResult | DuplicateAttempt] = []
        for result, counts in zip(report.results, accepted, strict=True):
            if counts and rank:
                self._ranks[result.job, result.number] = rank
            recorded += [result] if counts else late_attempts(result)
        return recorded

    def _arrange(self) -> None:
        """Divide the blocks among nodes by the contents of their caches."""
        nodes = {cache.node: cache for _, cache in sorted(self._caches.items())}
        numbers = {name: number for number, name in enumerate(nodes)}
        of_ranks = [numbers[self._caches[rank].node] for rank in range(self._n_ranks)]
        of_threads = [node for node in of_ranks for _ in range(self._n_threads)]
        homes = homes_of(self._tasks, list(nodes.values()))
        self._scheduler.arrange(share_by_node(homes, of_threads))
        self._awaits_caches = False

    def add_offsets(self, jobs: Sequence[AnyJob]) -> None:
        """Add to replies the offsets at which ranks must write the parts of results they store."""
        for job, one in enumerate(jobs):
            for k, analysis in enumerate(one.analyses):
                if isinstance(analysis.computation, PartlyKept):
                    for number, offset in analysis.computation.placements.take():
                        place = job, number, k
                        self._replies[self._ranks[job, number]].offsets.append((place, offset))

    def assign(self) -> dict[int, Reply]:
        """Assign blocks to threads that requested some; return the replies by rank."""
        replies: dict[int, Reply] = {}
        if self._awaits_caches:
            return replies
        for thread in list(self._requests):
            tasks = self._blocks_for(thread)
            if tasks:
                del self._requests[thread]
                self._replies[thread.rank].tasks += [(thread.thread, task) for task in tasks]
                replies[thread.rank] = self._replies[thread.rank]
        for rank in replies:
            self._replies[rank] = Reply()
        return replies

    def _blocks_for(self, thread: ThreadAddress) -> list[AnyTask]:
        # Only an idle thread may get a copy of an overdue block, because a busy thread may be
        # computing this block itself.
        return self._scheduler.assign_to(
            thread.rank * self._n_threads + thread.thread,
            self._requests[thread],
            is_idle=thread.thread in self._idle[thread.rank],
        )

    def last_reply(self, rank: int) -> Reply:
        """Return the part of the reply to a rank that has not been sent yet."""
        return self._replies[rank]


def coordinate(
    comm: Comm,
    jobs: Sequence[AnyJob],
    sealed: bytes,
    tasks: Sequence[AnyTask],
    request: RunRequest,
    *,
    static: bool,
) -> Generator[BlockResult | CollectedResult | DuplicateAttempt, None, None]:
    """Compute every block on all ranks. Called on the first rank while the others wait for a run.

    `sealed` contains the pickled jobs. Results that ranks have stored are yielded at the end.
    """
    with comm.abort_on_error():
        for rank in comm.workers:
            comm.send_message(rank, request)
        comm.broadcast(sealed)
        if request.compare_clocks:
            comm.answer_clock_offsets()
    worker = RankWorker(jobs, request.n_blocks, request.n_threads, run=request.run)
    in_order = any(job.streamed for job in jobs)
    scheduler = RankScheduler(
        tasks,
        comm.size,
        request.n_threads,
        static=static,
        in_order=in_order,
        cached=bool(cached_files(jobs)) and not static and not in_order,
    )
    failed = True
    try:
        with Stopping([signal.SIGINT]):
            yield from _schedule(comm, jobs, scheduler, worker)
        scheduler.add_offsets(jobs)
        failed = False
    finally:
        abandoned = worker.stop()
        with comm.abort_on_error():
            for rank in comm.workers:
                comm.send_message(rank, RunFinished(scheduler.last_reply(rank), failed))
            abandoned += _wait_for_acks(comm, failed=failed)
    error = worker.settle(scheduler.last_reply(0))
    with comm.abort_on_error(Exception):
        collected = gather(comm, worker.results, request.collect, error)
    yield from abandoned
    yield from collected


def _schedule(
    comm: Comm, jobs: Sequence[AnyJob], scheduler: RankScheduler, worker: RankWorker
) -> Generator[BlockResult | DuplicateAttempt, None, None]:
    """Reply to reports until all blocks are done; yield the recorded results and late attempts."""
    backoff = Backoff(LONGEST_POLL)
    while not scheduler.finished:
        # An interrupted message would be lost, and its sender would wait for ever.
        with Stopping.delayed():
            recorded = _answer_reports(comm, jobs, scheduler, worker, backoff)
        yield from recorded


def _answer_reports(
    comm: Comm,
    jobs: Sequence[AnyJob],
    scheduler: RankScheduler,
    worker: RankWorker,
    backoff: Backoff,
) -> list[BlockResult | DuplicateAttempt]:
    """Receive the reports that have arrived, and send new blocks.

    Returns the accepted results, and attempts that came too late.
    """
    own = worker.report(SHORTEST if comm.sending else backoff.next())
    reports = [] if own is None else [(0, own)]
    while (received := comm.receive_message()) is not None:
        reports.append(received)
    recorded = []
    for rank, report in reports:
        backoff.reset()
        if report.error is not None:
            raise report.error
        recorded += scheduler.record(rank, report)
    scheduler.add_offsets(jobs)
    for rank, reply in scheduler.assign().items():
        if rank == 0:
            worker.accept(reply)
        else:
            comm.send_message(rank, reply)
    return recorded


def _wait_for_acks(comm: Comm, *, failed: bool) -> list[DuplicateAttempt]:
    """Wait until all ranks have ended the run; return attempts that ended too late or never."""
    abandoned: list[DuplicateAttempt] = []
    waiting, deadline = set(comm.workers), time.monotonic() + ANSWER_TIMEOUT
    while waiting:
        received = comm.receive_message()
        if received is None:
            if failed and time.monotonic() > deadline:
                ranks = ", ".join(map(str, sorted(waiting)))
                comm.abort(f"the run has failed, and rank {ranks} does not answer")
            time.sleep(SHORTEST)
        elif isinstance(received[1], Ack):
            waiting.remove(received[0])
            abandoned += received[1].abandoned
        else:
            for result in received[1].results:
                abandoned += late_attempts(result)
    comm.finish_sending()
    return abandoned
