"""Runs of neighbouring blocks: what is dealt where dealing a single block would cost too much."""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any

from paceline.frames import Extents
from paceline.job import AnyJob, AnyWork, Calls, Job, Work
from paceline.outcome import Outcome, join
from paceline.worker import SealedJob, Worker

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
class Run:
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


class Runs:
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

    def __iter__(self) -> Iterator[Run]:
        return self

    def __next__(self) -> Run:
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
        return Run(level, works)

    def _ahead_of(self, last: AnyWork, level: int) -> Extents | None:
        """Where the run begins that the worker of this one is likely to be dealt next."""
        following = (self._n_workers - 1) * 2**level
        if following >= len(self._ahead) or self._ahead[following].job != last.job:
            return None
        return self._ahead[following].extents

    def _level(self, first: AnyWork, seconds: float) -> int:
        """Of the smallest subtree that takes long enough, or the largest that begins here."""
        job, (n_frames, took) = self._jobs[first.job], self._done[first.job]
        if n_frames == 0 or isinstance(job, Calls):  # what calls return cannot be merged
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

    def took(self, outcome: Outcome) -> None:
        """Take note how long blocks took.

        Parameters
        ----------
        outcome : Outcome
            Of blocks that are done.
        """
        n_frames, took = self._done[outcome.job]
        took += sum(timing.end - timing.start for timing in outcome.timings)
        self._done[outcome.job] = n_frames + outcome.n_frames, took


def do_run(worker: Worker, job: AnyJob, run: Run) -> Outcome:
    """Do the blocks of a run one after another, or its call.

    Parameters
    ----------
    worker : Worker
        Does them.
    job : Job or Calls
        To which they belong.
    run : Run
        The blocks.

    Returns
    -------
    Outcome
        One, of them all. Of partial results a logarithm of the blocks is held at a time.
    """
    if isinstance(job, Calls):
        return worker.run(run.works[0])
    works = [replace(work, ahead=after.extents) for work, after in pairwise(run.works)]
    return _do_subtree(worker, job, run.level, [*works, run.works[-1]])


def _do_subtree(worker: Worker, job: Job, level: int, works: Sequence[Work]) -> Outcome:
    if level == 0:
        return worker.run(works[0])
    half = 2 ** (level - 1)
    halves = [_do_subtree(worker, job, level - 1, part) for part in (works[:half], works[half:])]
    return join(job, level, halves)


_here = threading.local()


def run_sealed(sealed: SealedJob, run: Run) -> Outcome | None:
    """Do one run in whatever thread or process this is; None where it lacks the job."""
    if getattr(_here, "key", None) != sealed.key:
        if not sealed.data:
            return None
        job = sealed.open()
        _here.worker, _here.job = Worker(lambda _: job), job
        _here.key = sealed.key
    return do_run(_here.worker, _here.job, run)
