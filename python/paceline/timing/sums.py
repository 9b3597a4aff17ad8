"""Sums over the blocks of each worker."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from paceline.timing.columns import Columns
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
    attempts_of: dict[str, list[BlockTiming]] = {}
    for attempt in abandoned:
        if attempt.timing.worker:
            attempts_of.setdefault(attempt.timing.worker, []).append(attempt.timing)
    sums_of = _sums_of_blocks(blocks)
    last = max((block.end for block in blocks), default=dealt)
    return [
        _sum_worker(name, sums_of.get(name, _NOTHING), attempts_of.get(name, []), dealt, last)
        for name in sorted({*sums_of, *attempts_of})
    ]


_SUMMED = ("n_frames", *PARTS, "overhead", "length", "comm", "bytes", "calls")
#: What a worker has that was done with no block in time.
_NOTHING = dict.fromkeys(("n_blocks", *_SUMMED), 0)


def _sums_of_blocks(blocks: Sequence[BlockTiming]) -> dict[str, dict[str, int]]:
    """Of each worker the sums of its blocks, and the ends of the time from first to last."""
    columns = Columns(blocks)
    n = len(columns.workers)
    sums = {name: columns.sums(name, columns.worker, n) for name in _SUMMED}
    sums["n_blocks"] = np.bincount(columns.worker, minlength=n)
    first, last = np.full(n, np.iinfo(np.int64).max), np.full(n, np.iinfo(np.int64).min)
    np.minimum.at(first, columns.worker, columns["start"])
    np.maximum.at(last, columns.worker, columns["end"])
    sums |= {"first": first, "last": last}
    return {
        worker: {name: int(of_workers[k]) for name, of_workers in sums.items()}
        for k, worker in enumerate(columns.workers)
    }


def _sum_worker(
    name: str,
    sums: dict[str, int],
    attempts: Sequence[BlockTiming],
    dealt: int,
    last: int,
) -> WorkerTiming:
    """Sums of one worker; `dealt` and `last` are the ends of its wall time."""
    lost = _length(attempts, last)
    begun = min([sums.get("first", math.inf), *(attempt.start for attempt in attempts)])
    done = max([sums.get("last", -math.inf), *(attempt.end for attempt in attempts)])
    return WorkerTiming(
        worker=name,
        n_blocks=sums["n_blocks"],
        n_frames=sums["n_frames"],
        t_init_traj=sums["open"] / 1e9,
        t_io=sums["read"] / 1e9,
        t_decode=sums["decode"] / 1e9,
        t_transform=sums["transform"] / 1e9,
        t_compute=sums["compute"] / 1e9,
        t_abandoned=lost / 1e9,
        t_wait=(last - dealt - sums["length"] - lost) / 1e9,
        t_wait_first=(begun - dealt) / 1e9,
        t_wait_last=max(0, last - done) / 1e9,
        t_overhead=sums["overhead"] / 1e9,
        t_comm=sums["comm"] / 1e9,
        bytes=sums["bytes"],
        calls=sums["calls"],
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
