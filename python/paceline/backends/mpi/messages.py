"""What ranks tell each other."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from paceline.job import AnyWork
from paceline.outcome import Outcome
from paceline.timing import Abandoned


class Hand(NamedTuple):
    """A thread that computes."""

    rank: int
    thread: int


@dataclass(frozen=True)
class Run:
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
class End:
    """From the first rank to all: there will be no more runs."""


@dataclass(frozen=True)
class Report:
    """From a rank to the first: what was done there, and what is wanted.

    Attributes
    ----------
    outcomes : sequence of Outcome
        Of blocks that were done; what the rank keeps is not in them.
    asks : mapping of int to int
        Threads that have little left to do, and how many frames each would like.
    idle : sequence of int
        Threads that have nothing to do.
    error : BaseException or None
        What a thread raised.
    """

    outcomes: Sequence[Outcome] = ()
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
class Over:
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
class Understood:
    """From a rank to the first: nothing of this run will come from it any more.

    Attributes
    ----------
    abandoned : sequence of Abandoned
        What its threads are still at, though others were done with it sooner.
    """

    abandoned: Sequence[Abandoned]
