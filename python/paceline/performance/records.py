"""Sums over the blocks of each worker."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

import numpy as np

#: Parts of a block, in the order in which they happen.
PARTS = ("open", "read", "decode", "transform", "compute")


@dataclass(frozen=True, slots=True)
class BlockTiming:
    """What one block took. Times are nanoseconds; `start` and `end` those of the host's clock.

    Attributes
    ----------
    job, block, first_frame, n_frames : int
        The trajectory, where a run has several; the block, the number of its first frame, and its
        frames.
    worker : str
        host:process:thread.
    start, end : int
        When the worker took the block, and when it was done with it.
    wait : int
        Before `start`, since the worker was free.
    open, read, decode, transform, compute : int
        Opening the file, waiting for bytes, decoding, transforming positions, and the analyses'
        own time.
    comm : int
        From `end` until the results were in their place; the worker may be at its next block.
    bytes, calls : int
        Bytes read from the file, and in how many calls.
    """

    job: int
    block: int
    first_frame: int
    n_frames: int
    worker: str
    start: int
    end: int
    wait: int
    open: int
    read: int
    decode: int
    transform: int
    compute: int
    comm: int
    bytes: int
    calls: int


@dataclass(frozen=True, slots=True)
class DuplicateAttempt:
    """An attempt at a block that did not count: another worker was done with it sooner.

    Attributes
    ----------
    timing : BlockTiming
        Of the attempt. Of one that never came: when it was dealt and given up, without parts; the
        worker is empty where nobody knows who had it.
    came : bool
        Whether it came too late, rather than never.
    """

    timing: BlockTiming
    came: bool


@dataclass(frozen=True, slots=True)
class WorkerTiming:
    """Sums over the blocks of one worker, seconds.

    The parts `t_init_traj`, `t_io`, `t_decode`, `t_transform`, `t_compute`, `t_abandoned`, `t_wait`
    and `t_overhead` add up to the time from when blocks were first dealt until the last worker was
    done.

    Attributes
    ----------
    worker : str
        host:process:thread.
    n_blocks, n_frames : int
        What it did.
    t_init_traj : float
        Opening the file, s.
    t_io : float
        Reading, s. Bytes are fetched in the background ahead of it, so this is waiting alone.
    t_decode, t_transform, t_compute : float
        Decoding, transforming positions, and the analyses' own time, s.
    t_abandoned : float
        At blocks that other workers were done with sooner, s.
    t_wait : float
        Idle, s: until the first block (a process must start), between blocks, and at the end.
    t_wait_first, t_wait_last : float
        Of `t_wait` what came before its first block, and after its last one, s.
    t_overhead : float
        The rest of the time at blocks, s.
    t_comm : float
        Returning results, s: mostly while the worker is at its next block, so no part of the sum.
    bytes, calls : int
        Bytes read from the file, and in how many calls.
    """

    worker: str
    n_blocks: int
    n_frames: int
    t_init_traj: float
    t_io: float
    t_decode: float
    t_transform: float
    t_compute: float
    t_abandoned: float
    t_wait: float
    t_wait_first: float
    t_wait_last: float
    t_overhead: float
    t_comm: float
    bytes: int
    calls: int

    @property
    def host(self) -> str:
        """Where it ran."""
        return host_of(self.worker)

    @property
    def t_io_stall(self) -> float:
        """The part of reading that was not hidden, s: as the rest is not counted, `t_io`."""
        return self.t_io

    @property
    def t_work(self) -> float:
        """Time at blocks that counted, s."""
        opening_and_reading = self.t_init_traj + self.t_io
        return (
            opening_and_reading
            + self.t_decode
            + self.t_transform
            + self.t_compute
            + self.t_overhead
        )

    @property
    def seconds_per_frame(self) -> float:
        """Time at work per frame, s."""
        return self.t_work / max(self.n_frames, 1)


def host_of(worker: str) -> str:
    """The host of a worker.

    Parameters
    ----------
    worker : str
        host:process:thread, or an address of Dask's.

    Returns
    -------
    str

    Examples
    --------
    >>> host_of("node7:4711:4712"), host_of("tcp://10.0.0.7:40123")
    ('node7', '10.0.0.7')
    """
    _, _, address = worker.rpartition("://")
    return address.rsplit(":", 2 if address == worker else 1)[0]


_NUMBERS = tuple(column.name for column in fields(BlockTiming) if column.name != "worker")


class Columns:
    """Attributes of blocks.

    Parameters
    ----------
    timings : sequence of BlockTiming
        One a row.

    Attributes
    ----------
    workers : list of str
        Names, in order.
    worker : numpy.ndarray of int64, shape (n_blocks,)
        Of each row the number of its name.
    """

    def __init__(self, timings: Sequence[BlockTiming]):
        names = [timing.worker for timing in timings]
        self.workers = sorted(set(names))
        number = {name: k for k, name in enumerate(self.workers)}
        self.worker = np.array([number[name] for name in names], dtype=np.int64)
        rows = np.array(list(map(attrgetter(*_NUMBERS), timings)), dtype=np.int64)
        self._of = dict(zip(_NUMBERS, rows.reshape(-1, len(_NUMBERS)).T, strict=True))
        length = self._of["end"] - self._of["start"]
        self._of["length"] = length
        self._of["overhead"] = length - sum(self._of[part] for part in PARTS)

    def __getitem__(self, name: str) -> np.ndarray:
        """An attribute of all rows, or their `length` or `overhead`, ns: numpy.ndarray of int64."""
        return self._of[name]

    def sums(self, name: str, groups: np.ndarray, n_groups: int) -> np.ndarray:
        """Sums of an attribute over groups of rows.

        Parameters
        ----------
        name : str
            Of the attribute.
        groups : numpy.ndarray of int64, shape (n_blocks,)
            Of each row the number of its group.
        n_groups : int
            How many there are.

        Returns
        -------
        numpy.ndarray of float64, shape (n_groups,)
            Whole numbers, exact up to 2**53.
        """
        return np.bincount(groups, self[name], n_groups)


def sum_workers(
    blocks: Sequence[BlockTiming], abandoned: Iterable[DuplicateAttempt], dealt: int
) -> list[WorkerTiming]:
    """Sums for each worker, in the order of their names.

    Parameters
    ----------
    blocks : sequence of BlockTiming
        Every block that counts.
    abandoned : iterable of DuplicateAttempt
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
