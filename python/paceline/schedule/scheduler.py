"""Which blocks are whose: neighbours to the same thread, so that they merge where they are."""

import socket
import statistics
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any, Generic, Protocol, TypeVar

from paceline.errors import WorkerError
from paceline.performance.records import PARTS, BlockTiming, DuplicateAttempt
from paceline.schedule.tasks import AnyJob, AnyWork, BlockResult, FunctionJob, Job, Work, join
from paceline.schedule.worker import SealedJob, Worker
from paceline.trajectory.source import Extents


class Clocks:
    """What the clocks of hosts show, compared by when outcomes come from there.

    A block cannot have ended after its outcome arrived, and the outcome that was quickest on its
    way tells by how much a host's clock differs: too late by its time on the way, some
    milliseconds within one network. Time stamps of this host are left as they are.
    """

    def __init__(self) -> None:
        self._own = socket.gethostname()
        self._offsets: dict[str, int] = {}

    def here(self, outcome: BlockResult) -> BlockResult:
        """Set the time stamps of an outcome that arrived now to this host's clock.

        Parameters
        ----------
        outcome : BlockResult
            With time stamps of the host that its timings name.

        Returns
        -------
        BlockResult
        """
        # Workers are named host:process:thread.
        host = outcome.timings[0].worker.rsplit(":", 2)[0]
        if host == self._own:
            return outcome
        latest = max(timing.end for timing in outcome.timings)
        offset = time.monotonic_ns() - latest
        offset = self._offsets[host] = min(offset, self._offsets.get(host, offset))
        timings = [
            replace(timing, start=timing.start + offset, end=timing.end + offset)
            for timing in outcome.timings
        ]
        return replace(outcome, timings=timings)


#: A block is dealt once more if it takes so many times what blocks of its job usually take …
OVERDUE = 2.0
#: … and longer than this, seconds; less is not worth a second worker.
SHORTEST = 0.5
#: … by the latest of them: the median of all of some ten thousand takes milliseconds, and is asked
#: for often.
REMEMBERED = 255
#: Where no block was done yet, nobody knows what is usual: so long is too long, seconds.
UNKNOWN = 10.0
#: A block whose workers were lost so many times is given up: it may be what kills them.
MOST_LOSSES = 3


class Schedulable(Protocol):
    """A block (`Work`), a `Call`, or a run of them: an aligned subtree of a job's."""

    @property
    def job(self) -> int:
        """Which of the run's jobs it belongs to."""

    @property
    def level(self) -> int:
        """Of the subtree."""

    @property
    def number(self) -> int:
        """Of the subtree among those of its level."""

    @property
    def what(self) -> str:
        """What a message calls it."""

    @property
    def first_frame(self) -> int:
        """Number of the first frame."""

    @property
    def n_frames(self) -> int:
        """Number of frames."""


T = TypeVar("T", bound=Schedulable)


@dataclass
class _Dealt(Generic[T]):
    """A block that somebody is at."""

    work: T
    since: float
    times: int = 1


class Scheduler(Generic[T]):
    """Deals blocks to workers as they come free, so that nobody waits for a slow one.

    A block that takes too long is dealt again to a worker that has nothing else to do, and the
    first outcome of it counts. It is no part of this to run anything: the backends do.

    Parameters
    ----------
    works : iterable of Work or of TaskBatch
        The blocks, or runs of them; taken from it as they are dealt.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> works = [SimpleNamespace(job=0, level=0, number=k, n_frames=16) for k in range(2)]
    >>> dealer = Dealer(works)
    >>> dealer.next().number, dealer.next().number, dealer.next()
    (0, 1, None)
    >>> outcome = SimpleNamespace(job=0, level=0, number=1)
    >>> dealer.done(outcome), dealer.done(outcome), dealer.finished
    (True, False, False)
    """

    def __init__(self, works: Iterable[T]):
        self._works = iter(works)
        # One ahead: so it is known at any time whether there is another.
        self._upcoming = next(self._works, None)
        self._returned: deque[T] = deque()
        self._unfinished: dict[tuple[int, int, int], _Dealt[T]] = {}
        self._losses: dict[tuple[int, int, int], int] = {}
        self._paces: dict[int, deque[float]] = {}

    @property
    def finished(self) -> bool:
        """Whether every block is done."""
        return self._upcoming is None and not self._returned and not self._unfinished

    @property
    def unfinished(self) -> list[T]:
        """Blocks that were dealt and are not done."""
        return [dealt.work for dealt in self._unfinished.values()]

    def next(self) -> T | None:
        """Deal a block that nobody is at.

        Returns
        -------
        Work, Run or None
            None where all were dealt.
        """
        if self._returned:
            work = self._returned.popleft()
        elif self._upcoming is not None:
            work, self._upcoming = self._upcoming, next(self._works, None)
        else:
            return None
        self.deal(work)
        return work

    def deal(self, work: T) -> None:
        """Take note that a block is dealt, by whomever.

        Parameters
        ----------
        work : Work or TaskBatch
            The block.
        """
        self._unfinished[_key(work)] = _Dealt(work, time.monotonic())

    def again(self) -> T | None:
        """Deal once more the block that is longest overdue, to a worker with nothing else to do.

        Returns
        -------
        Work, Run or None
            None where no block is overdue, or new ones are left.
        """
        now = time.monotonic()
        if self._upcoming is not None or self._returned:
            return None
        for dealt in sorted(self._unfinished.values(), key=lambda dealt: dealt.since):
            if now >= self._due(dealt):
                dealt.since, dealt.times = now, dealt.times + 1
                return dealt.work
        return None

    def patience(self) -> float | None:
        """How long it takes until `again` may deal a block.

        Returns
        -------
        float or None
            s; None where nothing is unfinished.
        """
        if not self._unfinished:
            return None
        soonest = min(self._due(dealt) for dealt in self._unfinished.values())
        return max(0.0, soonest - time.monotonic())

    def _due(self, dealt: _Dealt[T]) -> float:
        """When a block is overdue. Each time it is dealt again, twice as much patience is had."""
        paces = self._paces.get(dealt.work.job)
        allowed = UNKNOWN
        if paces:
            # The lower one of two in the middle: a slow worker's blocks are not what is usual.
            usual = statistics.median_low(paces) * dealt.work.n_frames
            allowed = max(SHORTEST, OVERDUE * usual)
        return dealt.since + allowed * 2 ** (dealt.times - 1)

    def done(self, outcome: BlockResult) -> bool:
        """Take note that a block is done.

        Parameters
        ----------
        outcome : BlockResult
            Of one block, or one run.

        Returns
        -------
        bool
            Whether this is the block's first outcome; another is not to be counted.
        """
        dealt = self._unfinished.pop(_key(outcome), None)
        if dealt is None:
            return False
        pace = (time.monotonic() - dealt.since) / dealt.work.n_frames
        self._paces.setdefault(outcome.job, deque(maxlen=REMEMBERED)).append(pace)
        return True

    def lost(self, work: T) -> None:
        """Take back a block whose worker is gone; it is dealt next.

        Parameters
        ----------
        work : Work or TaskBatch
            The block.

        Raises
        ------
        WorkerError
            Its workers were lost too often.
        """
        key = _key(work)
        if self._unfinished.pop(key, None) is None:
            return
        self._losses[key] = self._losses.get(key, 0) + 1
        if self._losses[key] == MOST_LOSSES:
            raise WorkerError(
                f"workers were killed {MOST_LOSSES} times while they were at {work.what}: "
                "perhaps for want of memory, or the analysis crashes them there"
            )
        self._returned.append(work)


def _key(dealt: Schedulable | BlockResult) -> tuple[int, int, int]:
    return dealt.job, dealt.level, dealt.number


def too_late(outcome: BlockResult) -> list[DuplicateAttempt]:
    """What is told of an outcome that does not count.

    Parameters
    ----------
    outcome : BlockResult
        Another came before it.

    Returns
    -------
    list of DuplicateAttempt
        One a block.
    """
    return [DuplicateAttempt(timing, came=True) for timing in outcome.timings]


def given_up(work: Schedulable, worker: str, since: int, *, offset: int = 0) -> DuplicateAttempt:
    """What is told of an attempt that nobody waits for any more.

    Parameters
    ----------
    work : Work, Call or TaskBatch
        What was dealt.
    worker : str
        To whom; empty where nobody knows.
    since : int
        When, ns.
    offset : int
        What is added to this host's clock to have that of the run, ns.

    Returns
    -------
    DuplicateAttempt
    """
    timing = BlockTiming(
        job=work.job,
        block=work.number << work.level,
        first_frame=work.first_frame,
        n_frames=work.n_frames,
        worker=worker,
        start=since + offset,
        end=time.monotonic_ns() + offset,
        **dict.fromkeys(("wait", *PARTS, "comm", "bytes", "calls"), 0),
    )
    return DuplicateAttempt(timing, came=False)


#: A run shall take at least so long, seconds: many times what it costs to deal it.
RUN_SECONDS = 0.2
#: Where less than a run is left for each worker, one takes only this part of that, so that all end
#: together: of a second's work 16 simulated workers else wait for 4 % of the time.
LAST = 0.25
#: Frames of a run are no more than this once they are decoded, bytes: what an analysis returns
#: of them is seldom larger, and some runs' results are in memory at a time.
RUN_BYTES = 256 * 2**20
#: A run has at most 2 to this power blocks.
DEEPEST = 12


@dataclass(frozen=True)
class TaskBatch:
    """Neighbouring blocks for one worker: an aligned subtree, whole. Or a single call.

    Attributes
    ----------
    level : int
        Of the subtree: of 2**level blocks.
    works : sequence of Work or Call
        The blocks, in their order.
    """

    level: int
    works: Sequence[Any]

    @property
    def job(self) -> int:
        """Which of the run's jobs the blocks belong to."""
        return self.works[0].job

    @property
    def number(self) -> int:
        """Of the subtree among those of its level."""
        return self.works[0].number >> self.level

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return sum(work.n_frames for work in self.works)

    @property
    def first_frame(self) -> int:
        """Number of the first frame."""
        return self.works[0].first_frame

    @property
    def what(self) -> str:
        """What a message calls it."""
        if self.level == 0:
            return self.works[0].what
        return f"{self.works[0].what} and so on, {self.n_frames} in all"


class TaskBatches:
    """Cuts works into runs: single blocks, until it is known how long they take.

    Parameters
    ----------
    jobs : sequence of Job
        To which the works belong.
    works : iterable of Work
        The blocks of each job, one after another, in the order of their numbers.
    n_workers : int
        How many runs are done at a time.
    seconds : float
        What a run shall take at least; shorter ones come at the end.
    """

    def __init__(
        self,
        jobs: Sequence[AnyJob],
        works: Iterable[AnyWork],
        n_workers: int,
        seconds: float = RUN_SECONDS,
    ):
        self._jobs = jobs
        self._works = iter(works)
        self._n_workers = n_workers
        self._seconds = seconds
        self._ahead: deque[Any] = deque()
        # Of each job: frames that were done, and how long they took, nanoseconds.
        self._done = [(0, 0)] * len(jobs)

    def __iter__(self) -> Iterator[TaskBatch]:
        return self

    def __next__(self) -> TaskBatch:
        """Next run, as long as it should be by all that is known now."""
        self._look_ahead(1)
        if not self._ahead:
            raise StopIteration
        level = self._level(self._ahead[0], self._seconds)
        least = self._level(self._ahead[0], LAST * self._seconds)
        self._look_ahead(self._n_workers * 2**level + 1)
        while level > least and self._n_workers * 2**level > len(self._ahead):
            level -= 1
        while not self._is_whole(level):
            level -= 1
        works = [self._ahead.popleft() for _ in range(2**level)]
        if level > 0:
            # Within a run a worker asks ahead by itself.
            works = [replace(work, ahead=None) for work in works]
            works[-1] = replace(works[-1], ahead=self._ahead_of(works[-1], level))
        return TaskBatch(level, works)

    def _ahead_of(self, last: AnyWork, level: int) -> Extents | None:
        """Where the run begins that the worker of this one is likely to be dealt next."""
        following = (self._n_workers - 1) * 2**level
        if following >= len(self._ahead) or self._ahead[following].job != last.job:
            return None
        return self._ahead[following].extents

    def _level(self, first: AnyWork, seconds: float) -> int:
        """Of the smallest subtree that takes long enough, or the largest that begins here."""
        job, (n_frames, took) = self._jobs[first.job], self._done[first.job]
        if n_frames == 0 or isinstance(job, FunctionJob):  # what calls return cannot be merged
            return 0
        block_seconds = took / n_frames * first.n_frames / 1e9
        source = job.source
        block_bytes = 12 * source.n_wanted * len(source.fields) * first.n_frames
        level = 0
        while (
            block_seconds * 2**level < seconds
            and block_bytes * 2 ** (level + 1) <= RUN_BYTES
            and first.number % 2 ** (level + 1) == 0
            and level < DEEPEST
        ):
            level += 1
        return level

    def _look_ahead(self, n_works: int) -> None:
        self._ahead.extend(islice(self._works, max(0, n_works - len(self._ahead))))

    def _is_whole(self, level: int) -> bool:
        """Whether all blocks of the subtree come next: some may be done, or the job end."""
        first, last = self._ahead[0], 2**level - 1
        if len(self._ahead) <= last:
            return False
        return (self._ahead[last].job, self._ahead[last].number) == (first.job, first.number + last)

    def took(self, outcome: BlockResult) -> None:
        """Take note how long blocks took.

        Parameters
        ----------
        outcome : BlockResult
            Of blocks that are done.
        """
        n_frames, took = self._done[outcome.job]
        took += sum(timing.end - timing.start for timing in outcome.timings)
        self._done[outcome.job] = n_frames + outcome.n_frames, took


def do_run(worker: Worker, job: AnyJob, run: TaskBatch) -> BlockResult:
    """Do the blocks of a run one after another, or its call.

    Parameters
    ----------
    worker : Worker
        Does them.
    job : Job or FunctionJob
        To which they belong.
    run : TaskBatch
        The blocks.

    Returns
    -------
    BlockResult
        One, of them all. Of partial results a logarithm of the blocks is held at a time.
    """
    if isinstance(job, FunctionJob):
        return worker.run(run.works[0])
    works = [replace(work, ahead=after.extents) for work, after in pairwise(run.works)]
    return _do_subtree(worker, job, run.level, [*works, run.works[-1]])


def _do_subtree(worker: Worker, job: Job, level: int, works: Sequence[Work]) -> BlockResult:
    if level == 0:
        return worker.run(works[0])
    half = 2 ** (level - 1)
    halves = [_do_subtree(worker, job, level - 1, part) for part in (works[:half], works[half:])]
    return join(job, level, halves)


_here = threading.local()


def run_sealed(sealed: SealedJob, run: TaskBatch) -> BlockResult | None:
    """Do one run in whatever thread or process this is; None where it lacks the job."""
    if getattr(_here, "key", None) != sealed.key:
        if not sealed.data:
            return None
        job = sealed.open()
        _here.worker, _here.job = Worker(lambda _: job), job
        _here.key = sealed.key
    return do_run(_here.worker, _here.job, run)


class StealingPartition:
    """A contiguous share of the blocks for each worker, who may take over half of another's.

    So a rank reads its part of the file in order, and holds few partial results, neighbours being
    merged at once; but whoever has done his share goes on with those of the slower ones.

    Parameters
    ----------
    works : sequence of Work or Call
        All blocks, in order.
    n_workers : int
        Among whom they are shared.
    fixed : bool
        Whether to leave to each what is his, however slow he is.
    in_order : bool
        Whether to share nothing out, but to deal the blocks one after another.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> works = [SimpleNamespace(job=0, number=k, n_frames=16) for k in range(10)]
    >>> shares = Shares(works, 2)
    >>> [work.number for work in shares.take(0, 70)], [work.number for work in shares.take(1, 1)]
    ([0, 1, 2, 3], [5])
    >>> [[work.number for work in shares.take(0, 80)] for _ in range(3)]
    [[4], [8, 9], [7]]
    """

    def __init__(
        self,
        works: Sequence[AnyWork],
        n_workers: int,
        *,
        fixed: bool = False,
        in_order: bool = False,
    ):
        self._works = works
        self._fixed = fixed
        n_shares = 1 if in_order and not fixed else n_workers
        bounds = [k * len(works) // n_shares for k in range(n_shares + 1)]
        #: First and end of what is left of each.
        self._left = [[bounds[k], bounds[k + 1]] for k in range(n_shares)]

    def __bool__(self) -> bool:
        """Whether any block is left."""
        return any(first < stop for first, stop in self._left)

    def take(self, worker: int, n_frames: int) -> list[AnyWork]:
        """Take the next blocks of a worker's share.

        Parameters
        ----------
        worker : int
            Who.
        n_frames : int
            How many frames he wants; he gets one block at least, and those of one job.

        Returns
        -------
        list of Work or Call
            None where nothing is left for him. Each knows what is next in the share.
        """
        share = self._left[worker % len(self._left)]
        if share[0] == share[1] and not self._fixed:
            self._take_over(share)
        taken: list[AnyWork] = []
        while share[0] < share[1]:
            work = self._works[share[0]]
            n_frames -= work.n_frames
            if taken and (n_frames < 0 or work.job != taken[0].job):
                break
            share[0] += 1
            taken.append(self._with_next(work, share))
        return taken

    def _take_over(self, share: list[int]) -> None:
        """Give to a share that is done the back half of the largest."""
        largest = max(self._left, key=lambda other: other[1] - other[0])
        middle = (largest[0] + largest[1]) // 2
        share[:] = middle, largest[1]
        largest[1] = middle

    def _with_next(self, work: AnyWork, share: list[int]) -> AnyWork:
        """The block, with where the one is that is likely to be dealt after it, if there is one."""
        if not isinstance(work, Work):
            return work
        following = self._works[share[0]] if share[0] < share[1] else None
        if isinstance(following, Work) and following.job == work.job:
            return replace(work, ahead=following.extents)
        return replace(work, ahead=None)
