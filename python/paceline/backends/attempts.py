"""Attempts at blocks that other workers were done with sooner."""

import time

from paceline.backends.dealing import Dealable
from paceline.outcome import Outcome
from paceline.timing import Abandoned, BlockTiming
from paceline.timing.records import PARTS


def too_late(outcome: Outcome) -> list[Abandoned]:
    """What is told of an outcome that does not count.

    Parameters
    ----------
    outcome : Outcome
        Another came before it.

    Returns
    -------
    list of Abandoned
        One a block.
    """
    return [Abandoned(timing, came=True) for timing in outcome.timings]


def given_up(work: Dealable, worker: str, since: int, *, offset: int = 0) -> Abandoned:
    """What is told of an attempt that nobody waits for any more.

    Parameters
    ----------
    work : Work, Call or Run
        What was dealt.
    worker : str
        To whom; empty where nobody knows.
    since : int
        When, ns.
    offset : int
        What is added to this host's clock to have that of the run, ns.

    Returns
    -------
    Abandoned
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
    return Abandoned(timing, came=False)
