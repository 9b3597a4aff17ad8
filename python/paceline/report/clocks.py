"""Blocks of hosts whose clocks show another time, brought to the time of the run."""

from dataclasses import replace

from paceline.timing import BlockTiming, Timings
from paceline.timing.records import host_of

#: Time stamps may be out by so many ns before a host's clock is called another one.
TOLERANCE = 50_000_000


def on_one_clock(timings: Timings) -> tuple[Timings, list[str]]:
    """Move the blocks of hosts that were not within the run, to end with it.

    A run does this by itself while it goes on, and better; where it could not, as for timings that
    were put together by hand, at least lengths are right.

    Parameters
    ----------
    timings : Timings
        Of a run.

    Returns
    -------
    timings : Timings
        The same where no host had to be moved.
    moved : list of str
        The hosts.
    """
    spans: dict[str, tuple[int, int]] = {}
    hosts = {worker: host_of(worker) for worker in {block.worker for block in timings.blocks}}
    for block in timings.blocks:
        host = hosts[block.worker]
        first, last = spans.get(host, (block.start, block.end))
        spans[host] = min(first, block.start), max(last, block.end)
    longest = max((last - first for first, last in spans.values()), default=0)
    end = max(timings.end, timings.dealt + longest)
    shifts = {
        host: end - last
        for host, (first, last) in spans.items()
        if first < timings.dealt - TOLERANCE or last > end + TOLERANCE
    }
    if not shifts:
        return timings, []
    blocks = [_moved(block, shifts.get(hosts[block.worker], 0)) for block in timings.blocks]
    abandoned = [
        replace(one, timing=_moved(one.timing, shifts.get(host_of(one.timing.worker), 0)))
        for one in timings.abandoned
    ]
    return replace(timings, end=end, blocks=blocks, abandoned=abandoned), list(shifts)


def _moved(block: BlockTiming, shift: int) -> BlockTiming:
    return replace(block, start=block.start + shift, end=block.end + shift) if shift else block
