"""Which blocks are dealt next: new ones, or, when none is left, those that somebody sits on."""

import statistics
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from paceline.errors import WorkerError
from paceline.outcome import Outcome

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


class Dealable(Protocol):
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


T = TypeVar("T", bound=Dealable)


@dataclass
class _Dealt(Generic[T]):
    """A block that somebody is at."""

    work: T
    since: float
    times: int = 1


class Dealer(Generic[T]):
    """Deals blocks to workers as they come free, so that nobody waits for a slow one.

    A block that takes too long is dealt again to a worker that has nothing else to do, and the
    first outcome of it counts. It is no part of this to run anything: the backends do.

    Parameters
    ----------
    works : iterable of Work or of Run
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
        work : Work or Run
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

    def done(self, outcome: Outcome) -> bool:
        """Take note that a block is done.

        Parameters
        ----------
        outcome : Outcome
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
        work : Work or Run
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


def _key(dealt: Dealable | Outcome) -> tuple[int, int, int]:
    return dealt.job, dealt.level, dealt.number
