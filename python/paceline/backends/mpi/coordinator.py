"""The first rank's part in a run: it deals blocks, and yields outcomes as they come."""

import time
from collections.abc import Generator, Sequence

from paceline.backends.mpi.comm import (
    SHORTEST,
    Backoff,
    Comm,
    abort,
    answer_clocks,
    broadcast,
    unbroken,
)
from paceline.backends.mpi.gather import gather
from paceline.backends.mpi.worker import (
    Ack,
    Answer,
    Assignment,
    RankWorker,
    Report,
    RunFinished,
    RunRequest,
)
from paceline.performance.records import DuplicateAttempt
from paceline.schedule.scheduler import Scheduler, StealingPartition, too_late
from paceline.schedule.tasks import AnyJob, AnyWork, BlockResult, CollectedResult

#: A rank whose main thread does not answer for so long, when a run failed, will not, seconds.
UNANSWERED = 30.0
#: The longest time between looks for requests, seconds.
ATTENTIVE = 2e-3


class Dealing:
    """Who is dealt which blocks.

    Parameters
    ----------
    works : sequence of Work
        All blocks.
    n_ranks, n_threads : int
        Ranks, and threads on each.
    static : bool
        Whether each thread does an equal share, and nobody another's.
    in_order : bool
        Whether outcomes are wanted in order, as nearly as may be.
    """

    def __init__(
        self,
        works: Sequence[AnyWork],
        n_ranks: int,
        n_threads: int,
        *,
        static: bool,
        in_order: bool,
    ):
        self._n_threads = n_threads
        self._static = static
        self._shares = StealingPartition(
            works, n_ranks * n_threads, fixed=static, in_order=in_order
        )
        self._dealer: Scheduler[AnyWork] = Scheduler(())
        self._asking: dict[Assignment, int] = {}
        self._idle: dict[int, Sequence[int]] = {}
        self._answers: dict[int, Answer] = {rank: Answer() for rank in range(n_ranks)}

    @property
    def finished(self) -> bool:
        """Whether every block is done."""
        return not self._shares and self._dealer.finished

    def hear(self, rank: int, report: Report) -> list[BlockResult | DuplicateAttempt]:
        """Take note of what a rank says.

        Parameters
        ----------
        rank : int
            Which.
        report : Report
            What.

        Returns
        -------
        list of BlockResult or DuplicateAttempt
            Outcomes that count, and attempts that do not.
        """
        accepted = [self._dealer.done(outcome) for outcome in report.outcomes]
        self._answers[rank].accepted += accepted
        self._asking |= {Assignment(rank, thread): n for thread, n in report.asks.items()}
        self._idle[rank] = report.idle
        heard: list[BlockResult | DuplicateAttempt] = []
        for outcome, counts in zip(report.outcomes, accepted, strict=True):
            heard += [outcome] if counts else too_late(outcome)
        return heard

    def deal(self) -> dict[int, Answer]:
        """Deal to all who ask what there is for them.

        Returns
        -------
        dict of int to Answer
            By rank.
        """
        answers = {}
        for hand in list(self._asking):
            works = self._for(hand)
            if works:
                del self._asking[hand]
                self._answers[hand.rank].works += [(hand.thread, work) for work in works]
                answers[hand.rank] = self._answers[hand.rank]
        for rank in answers:
            self._answers[rank] = Answer()
        return answers

    def _for(self, hand: Assignment) -> list[AnyWork]:
        works = self._shares.take(hand.rank * self._n_threads + hand.thread, self._asking[hand])
        for work in works:
            self._dealer.deal(work)
        if not works and not self._static and not self._shares and self._is_idle(hand):
            again = self._dealer.again()
            works = [] if again is None else [again]
        return works

    def _is_idle(self, hand: Assignment) -> bool:
        """Whether nothing at all is left to do for it: it may be at the overdue block itself."""
        return hand.thread in self._idle[hand.rank]

    def last_answer(self, rank: int) -> Answer:
        """What a rank was not told yet."""
        return self._answers[rank]


def lead(
    wire: Comm,
    jobs: Sequence[AnyJob],
    sealed: bytes,
    works: Sequence[AnyWork],
    settings: RunRequest,
    *,
    static: bool,
) -> Generator[BlockResult | CollectedResult | DuplicateAttempt, None, None]:
    """Have all ranks do every block; called on the first.

    Parameters
    ----------
    wire : Comm
        To the other ranks, who are waiting for a run.
    jobs : sequence of Job
        What blocks have in common.
    sealed : bytes
        The same, to be sent.
    works : sequence of Work
        The blocks.
    settings : RunRequest
        What all ranks must know of the run.
    static : bool
        Whether each thread does an equal share, and nobody another's.

    Yields
    ------
    BlockResult, DuplicateAttempt or CollectedResult
        As they come; what ranks keep comes at the end.
    """
    with unbroken(wire.comm):
        for rank in wire.others:
            wire.send(rank, settings)
        broadcast(wire.comm, sealed)
        if settings.compare_clocks:
            answer_clocks(wire.comm)
    member = RankWorker(jobs, settings.n_blocks, settings.n_threads)
    dealing = Dealing(
        works,
        wire.comm.Get_size(),
        settings.n_threads,
        static=static,
        in_order=any(job.streamed for job in jobs),
    )
    failed = True
    try:
        yield from _deal(wire, dealing, member)
        failed = False
    finally:
        abandoned = member.stop()
        with unbroken(wire.comm):
            for rank in wire.others:
                wire.send(rank, RunFinished(dealing.last_answer(rank), failed))
            abandoned += _wait_for_all(wire, failed=failed)
    error = member.settle(dealing.last_answer(0))
    with unbroken(wire.comm, Exception):
        gathered = gather(wire.comm, member.keeper, settings.collect, error)
    yield from abandoned
    yield from gathered or ()


def _deal(
    wire: Comm, dealing: Dealing, member: RankWorker
) -> Generator[BlockResult | DuplicateAttempt, None, None]:
    """Answer everybody until all blocks are done."""
    pause = Backoff(ATTENTIVE)
    while not dealing.finished:
        own = member.report(SHORTEST if wire.sending else pause.next())
        news = [] if own is None else [(0, own)]
        while (received := wire.receive()) is not None:
            news.append(received)
        heard = []
        for rank, report in news:
            pause.news()
            if report.error is not None:
                raise report.error
            heard += dealing.hear(rank, report)
        for rank, answer in dealing.deal().items():
            if rank == 0:
                member.take(answer)
            else:
                wire.send(rank, answer)
        yield from heard


def _wait_for_all(wire: Comm, *, failed: bool) -> list[DuplicateAttempt]:
    """Attempts of all ranks that came too late, or not, once they know that all is done."""
    abandoned: list[DuplicateAttempt] = []
    waiting, deadline = set(wire.others), time.monotonic() + UNANSWERED
    while waiting:
        received = wire.receive()
        if received is None:
            if failed and time.monotonic() > deadline:
                ranks = ", ".join(map(str, sorted(waiting)))
                abort(wire.comm, f"the run has failed, and rank {ranks} does not answer")
            time.sleep(SHORTEST)
        elif isinstance(received[1], Ack):
            waiting.remove(received[0])
            abandoned += received[1].abandoned
        else:
            for outcome in received[1].outcomes:
                abandoned += too_late(outcome)
    wire.finish_sending()
    return abandoned
