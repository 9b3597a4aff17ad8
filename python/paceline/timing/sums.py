"""Sums over the blocks of each worker."""

import math
from collections.abc import Iterable, Sequence

from paceline.timing.records import PARTS, Abandoned, BlockTiming, WorkerTiming


def sum_workers(
    blocks: Sequence[BlockTiming], abandoned: Iterable[Abandoned], dealt: int
) -> list[WorkerTiming]:
    """Sums for each worker, in the order of their names.

    Parameters
    ----------
    blocks : sequence of BlockTiming
        Every block that counts.
    abandoned : iterable of Abandoned
        Attempts that do not; those of nobody knows whom are left out.
    dealt : int
        When blocks were first dealt, ns.

    Returns
    -------
    list of WorkerTiming
    """
    blocks_of: dict[str, list[BlockTiming]] = {}
    attempts_of: dict[str, list[BlockTiming]] = {}
    for block in blocks:
        blocks_of.setdefault(block.worker, []).append(block)
    for attempt in abandoned:
        if attempt.timing.worker:
            attempts_of.setdefault(attempt.timing.worker, []).append(attempt.timing)
    last = max((block.end for block in blocks), default=dealt)
    return [
        _sum_worker(name, blocks_of.get(name, []), attempts_of.get(name, []), dealt, last)
        for name in sorted({*blocks_of, *attempts_of})
    ]


def _sum_worker(
    name: str,
    blocks: Sequence[BlockTiming],
    attempts: Sequence[BlockTiming],
    dealt: int,
    last: int,
) -> WorkerTiming:
    """Sums of one worker; `dealt` and `last` are the ends of its wall time."""
    parts = {key: sum(getattr(block, key) for block in blocks) for key in PARTS}
    busy = sum(block.end - block.start for block in blocks)
    lost = _length(attempts, last)
    at_work = [*blocks, *attempts]
    return WorkerTiming(
        worker=name,
        n_blocks=len(blocks),
        n_frames=sum(block.n_frames for block in blocks),
        t_init_traj=parts["open"] / 1e9,
        t_io=parts["read"] / 1e9,
        t_decode=parts["decode"] / 1e9,
        t_transform=parts["transform"] / 1e9,
        t_compute=parts["compute"] / 1e9,
        t_abandoned=lost / 1e9,
        t_wait=(last - dealt - busy - lost) / 1e9,
        t_wait_first=(min(one.start for one in at_work) - dealt) / 1e9,
        t_wait_last=max(0, last - max(one.end for one in at_work)) / 1e9,
        t_overhead=(busy - sum(parts.values())) / 1e9,
        t_comm=sum(block.comm for block in blocks) / 1e9,
        bytes=sum(block.bytes for block in blocks),
        calls=sum(block.calls for block in blocks),
    )


def _length(attempts: Iterable[BlockTiming], last: int) -> int:
    """How long a worker was at attempts, ns, until the last block that counts was done.

    It may have been dealt another while it was still at one.
    """
    length, done = 0, -math.inf
    for attempt in sorted(attempts, key=lambda attempt: attempt.start):
        begin, end = max(attempt.start, done), min(attempt.end, last)
        length += max(0, int(end - begin))
        done = max(done, end)
    return length
