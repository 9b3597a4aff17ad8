"""Times of blocks, workers and runs, by component."""

import math
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter

import numpy as np


@dataclass(frozen=True, slots=True)
class Component:
    """One component of a worker's time."""

    #: Attribute of `BlockTiming` that measures the component, or `overhead`; empty if the times of
    #: a single block do not contain the component.
    attribute: str
    #: Name in `WorkerTiming`, after Khoshlessan et al. 2020, Table 3.
    quantity: str
    #: Name in scaling tables. It is `t_open` for the opening by workers, because in these tables,
    #: `t_init_traj` is the time to open the trajectory once, before the run.
    column: str
    #: Name in figures and in tables for readers, such as "compute".
    label: str
    #: Name in sentences, such as "computing".
    activity: str
    #: Colour of Okabe and Ito's palette, which colour-blind readers can distinguish
    #: (jfly.uni-koeln.de/color). As in Khoshlessan et al. 2020, computing is yellowish, reading
    #: blue, communicating red.
    colour: str
    #: Explanation for readers of a report, as one clause.
    meaning: str

    def of(self, worker: "WorkerTiming") -> float:
        """Return the time of a worker in this component, s."""
        return float(getattr(worker, self.quantity))


OPEN = Component(
    *("open", "t_init_traj", "t_open", "open", "opening", "#cc79a7"),
    "opening the trajectory file, once per worker",
)
READ = Component(
    *("read", "t_io", "t_io", "read", "reading", "#0072b2"),
    "waiting for bytes of the file that were not prefetched in time",
)
DECODE = Component(
    *("decode", "t_decode", "t_decode", "decode", "decoding", "#56b4e9"),
    "turning bytes into positions",
)
TRANSFORM = Component(
    *("transform", "t_transform", "t_transform", "transform", "transforming", "#009e73"),
    "transforming positions before the analysis",
)
COMPUTE = Component(
    *("compute", "t_compute", "t_compute", "compute", "computing", "#e69f00"),
    "the analysis itself",
)
OVERHEAD = Component(
    *("overhead", "t_overhead", "t_overhead", "rest", "overhead", "#84898e"),
    "remaining time in blocks",
)
ABANDONED = Component(
    *("", "t_abandoned", "t_abandoned", "abandoned", "abandoned blocks", "#f0e442"),
    "in blocks that another worker finished first",
)
WAIT = Component(
    *("wait", "t_wait", "t_wait", "wait", "waiting", "#d3d9de"),
    "idle: before the first block, between blocks, and after the last one until all were done",
)
COMM = Component(
    *("comm", "t_comm", "t_comm", "communicate", "communicating", "#d55e00"),
    "from the end of a block until its results were stored; the worker usually processes its "
    "next block meanwhile, so this is not part of its wall time",
)
#: Waiting before a worker's first block, which scaling tables list separately.
STARTUP = Component(
    *("", "t_wait_first", "t_startup", "start-up", "starting", "#7f3c8d"),
    "idle before the first block",
)
#: Time before and after all blocks, a component of the run rather than of a worker.
AROUND = Component(
    *("", "t_around", "t_around", "plan, collect", "planning and collecting", "#000000"),
    "before the first block was assigned, and after the last one was done",
)

#: Components measured in each block, in the order in which they happen.
MEASURED = (OPEN, READ, DECODE, TRANSFORM, COMPUTE)
#: Components that add up to the time of blocks whose results were used.
AT_BLOCKS = (*MEASURED, OVERHEAD)
#: Components that add up to a worker's time in blocks, including attempts whose results were not
#: used.
WORKING = (*AT_BLOCKS, ABANDONED)
#: Components that add up to a worker's wall time.
WALL_TIME = (*WORKING, WAIT)

#: Attributes of a block that measure its components, in the order in which they happen.
PARTS = tuple(part.attribute for part in MEASURED)

#: Provisional value of `BlockTiming.comm` for a block whose result will be sent together with a
#: later result of the same worker.
SENT_WITH_LATER = -1


@dataclass(frozen=True, slots=True)
class BlockTiming:
    """Times of one block, ns; `start` and `end` are readings of the host's clock.

    Attributes
    ----------
    job, block, first_frame, n_frames : int
        Number of the trajectory in the run, number of the block, number of its first frame, and
        number of frames.
    worker : str
        Worker's name, host:process:thread.
    start, end : int
        Times at which the worker started and finished the block.
    wait : int
        Idle time of the worker before `start`.
    open, read, decode, transform, compute : int
        Times to open the file, wait for bytes, decode, transform positions, and run the
        analyses.
    comm : int
        Time from `end` until the results were stored; the worker may already process its next
        block. It is 0 if the results were sent together with those of a later block.
    bytes, calls : int
        Number of bytes read from the file, and number of calls that requested them.
    threads : int
        Largest number of threads that computed a frame together.
    cached : int
        Number of bytes read from a cache instead of the file.
    requests, repeated : int
        Number of requests to object stores, and how many of them repeated a failed request.
    latency, stalled : int
        Time from a request until the response began, summed over the requests; and the part of
        `read` in which the worker waited for bytes of a store.
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
    threads: int = 1
    cached: int = 0
    requests: int = 0
    repeated: int = 0
    latency: int = 0
    stalled: int = 0


def moved(block: BlockTiming, shift: int) -> BlockTiming:
    """Shift the times of a block by `shift` ns, to convert them to another clock."""
    return replace(block, start=block.start + shift, end=block.end + shift) if shift else block


class HostClocks:
    """Offsets between the clocks of hosts, estimated from the arrival times of results.

    A block cannot end after its result has arrived. Therefore the result that arrives fastest gives
    the offset of its host's clock. The error is one latency: some milliseconds within a network.
    Times of workers on this host are not changed.
    """

    def __init__(self) -> None:
        self._own = socket.gethostname()
        self._offsets: dict[str, int] = {}

    def to_this_host(self, timings: list[BlockTiming]) -> list[BlockTiming]:
        """Convert the times of blocks, whose result has just arrived, to this host's clock."""
        host = host_of(timings[0].worker) if timings else self._own
        if host == self._own:
            return timings
        offset = time.monotonic_ns() - max(timing.end for timing in timings)
        offset = self._offsets[host] = min(offset, self._offsets.get(host, offset))
        return [moved(timing, offset) for timing in timings]


@dataclass(frozen=True, slots=True)
class DuplicateAttempt:
    """Attempt at a block whose result was not used: another worker finished the block first.

    Attributes
    ----------
    timing : BlockTiming
        Timing of the attempt. If the attempt never ended, `start` and `end` are the times of its
        assignment and its abandonment, and all components are 0. The worker is then "" if it is
        unknown, or host:port PORT:unknown for a Dask thread that has returned no block.
    came : bool
        True if the result arrived too late, False if it never arrived.
    """

    timing: BlockTiming
    came: bool


@dataclass(frozen=True, slots=True)
class WorkerTiming:
    """Sums over the blocks of one worker, seconds.

    The parts `t_init_traj`, `t_io`, `t_decode`, `t_transform`, `t_compute`, `t_abandoned`, `t_wait`
    and `t_overhead` add up to the time from the first assignment of blocks to the end of the last
    worker.

    Attributes
    ----------
    worker : str
        Worker's name, host:process:thread.
    n_blocks, n_frames : int
        Numbers of the worker's blocks and frames.
    t_init_traj : float
        Time to open the file, s.
    t_io : float
        Time waiting for bytes, s; reading itself happens in the background.
    t_decode, t_transform, t_compute : float
        Times to decode, to transform positions, and to run the analyses, s.
    t_abandoned : float
        Time in blocks that other workers finished first, s.
    t_wait : float
        Idle time, s: until the first block (a process must start), between blocks, and at the end.
    t_wait_first, t_wait_last : float
        Parts of `t_wait` before the worker's first block and after its last block, s.
    t_overhead : float
        Remaining time of blocks, s.
    t_comm : float
        Time during which any result of the worker was in transit, s. It overlaps with the next
        block, and is therefore not part of the sum.
    bytes, calls : int
        Number of bytes read from the file, and number of calls that requested them.
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
        """Name of the worker's host."""
        return host_of(self.worker)

    @property
    def t_io_stall(self) -> float:
        """Time waiting for bytes, s; equal to `t_io`."""
        return self.t_io

    @property
    def t_work(self) -> float:
        """Time of blocks whose results were used, s."""
        return float(sum(part.of(self) for part in AT_BLOCKS))

    @property
    def seconds_per_frame(self) -> float:
        """Time per frame in blocks whose results were used, s."""
        return self.t_work / max(self.n_frames, 1)


@dataclass
class RunTimings:
    """Times of one run and of its blocks; `paceline.timing.Timings` describes the attributes."""

    backend: str = ""
    start: int = 0
    dealt: int = 0
    end: int = 0
    t_init_top: float = math.nan
    t_init_traj: float = math.nan
    t_comm: float = 0.0
    blocks: list[BlockTiming] = field(default_factory=list)
    abandoned: list[DuplicateAttempt] = field(default_factory=list)
    n_workers: int = 0
    schedule: str = "dynamic"
    trajectory: str = ""
    bytes_used: int = 0
    host: str = ""
    date: str = ""
    version: str = ""
    n_chosen: int = 0

    @property
    def t_total(self) -> float:
        """Time of the whole run, s."""
        return (self.end - self.start) / 1e9

    @property
    def n_frames(self) -> int:
        """Number of analysed frames; several passes over a frame count once."""
        done = sum(block.n_frames for block in self.blocks)
        return min(done, self.n_chosen or done)

    @property
    def n_threads(self) -> int:
        """Largest number of threads that computed a frame together."""
        return max((block.threads for block in self.blocks), default=1)

    @property
    def last(self) -> int:
        """End of the last block whose result was used, ns; `dealt` if there was none."""
        return max((block.end for block in self.blocks), default=self.dealt)

    def workers(self) -> list[WorkerTiming]:
        """Return the times of each worker, summed over its blocks, sorted by worker name."""
        return _sum_workers(self)


def host_of(worker: str) -> str:
    """Return the host in a worker's name, which is host:process:thread or a Dask address.

    Examples
    --------
    >>> host_of("node7:4711:4712"), host_of("tcp://10.0.0.7:40123")
    ('node7', '10.0.0.7')
    """
    _, _, address = worker.rpartition("://")
    return address.rsplit(":", 2 if address == worker else 1)[0]


_NUMBERS = tuple(column.name for column in fields(BlockTiming) if column.name != "worker")


class Columns:
    """Attributes of blocks as arrays, with one element per block.

    `workers` contains the sorted names of the workers, and `worker` each block's index into it.
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
        """Return an attribute, `length` or `overhead` of all blocks: int64; times are in ns."""
        return self._of[name]

    def sums(self, name: str, groups: np.ndarray, n_groups: int) -> np.ndarray:
        """Sum an attribute over groups of blocks; `groups` contains each block's group.

        The sums are float64, which is exact up to 2**53.
        """
        return np.bincount(groups, self[name], n_groups)


_SUMMED = (
    "n_frames",
    *(part.attribute for part in AT_BLOCKS),
    *("length", "bytes", "calls"),
)
#: Sums for a worker if no result of its blocks was used.
_NOTHING = dict.fromkeys(("n_blocks", "comm", *_SUMMED), 0)


def _sum_workers(run: RunTimings) -> list[WorkerTiming]:
    """Sum the times of each worker's blocks and attempts; leave out attempts of unknown workers."""
    attempts_of: dict[str, list[BlockTiming]] = {}
    for attempt in run.abandoned:
        if attempt.timing.worker:
            attempts_of.setdefault(attempt.timing.worker, []).append(attempt.timing)
    sums_of = _sums_of_blocks(run.blocks)
    last = run.last
    return [
        _sum_worker(name, sums_of.get(name, _NOTHING), attempts_of.get(name, []), run.dealt, last)
        for name in sorted({*sums_of, *attempts_of})
    ]


def _sums_of_blocks(blocks: Sequence[BlockTiming]) -> dict[str, dict[str, int]]:
    """Sum the attributes in `_SUMMED` over the blocks of each worker; return the sums by worker.

    The items `first` and `last` are the start of the worker's first block, and the end of its last.
    """
    columns = Columns(blocks)
    n = len(columns.workers)
    sums = {name: columns.sums(name, columns.worker, n) for name in _SUMMED}
    sums["n_blocks"] = np.bincount(columns.worker, minlength=n)
    sums["comm"] = np.bincount(columns.worker, _new_comm(columns), n)
    first, last = np.full(n, np.iinfo(np.int64).max), np.full(n, np.iinfo(np.int64).min)
    np.minimum.at(first, columns.worker, columns["start"])
    np.maximum.at(last, columns.worker, columns["end"])
    sums |= {"first": first, "last": last}
    return {
        worker: {name: int(of_workers[k]) for name, of_workers in sums.items()}
        for k, worker in enumerate(columns.workers)
    }


def _new_comm(columns: Columns) -> np.ndarray:
    """Return the part of each block's `comm` in which no earlier result was in transit, ns.

    Results of several blocks of a worker may be in transit at the same time; this time counts once.
    """
    order = np.lexsort((columns["end"], columns.worker))
    begin, comm = columns["end"][order], columns["comm"][order]
    if len(order) == 0:
        return comm
    # Times are shifted so that those of different workers do not overlap. Then one running maximum
    # is enough for all workers.
    span = (begin + comm).max() - begin.min() + 1
    begin = begin - begin.min() + span * columns.worker[order]
    covered = np.maximum.accumulate(begin + comm)
    found = np.empty(len(order), np.int64)
    found[order] = covered - np.maximum(begin, np.concatenate(([0], covered[:-1])))
    return found


def _sum_worker(
    name: str, sums: dict[str, int], attempts: Sequence[BlockTiming], dealt: int, last: int
) -> WorkerTiming:
    """Convert one worker's sums to seconds; the wall time is from `dealt` to `last`."""
    lost = _length(attempts, last)
    begun = min([sums.get("first", math.inf), *(attempt.start for attempt in attempts)])
    done = max([sums.get("last", -math.inf), *(attempt.end for attempt in attempts)])
    return WorkerTiming(
        worker=name,
        n_blocks=sums["n_blocks"],
        n_frames=sums["n_frames"],
        **{part.quantity: sums[part.attribute] / 1e9 for part in AT_BLOCKS},
        t_abandoned=lost / 1e9,
        t_wait=(last - dealt - sums["length"] - lost) / 1e9,
        t_wait_first=(begun - dealt) / 1e9,
        t_wait_last=max(0, last - done) / 1e9,
        t_comm=sums["comm"] / 1e9,
        bytes=sums["bytes"],
        calls=sums["calls"],
    )


def _length(attempts: Iterable[BlockTiming], last: int) -> int:
    """Return the time that a worker spent on attempts before the time `last`, ns.

    Attempts may overlap, because a worker may be assigned another block during an attempt. Time in
    which they overlap counts once.
    """
    length, done = 0, -math.inf
    for attempt in sorted(attempts, key=lambda attempt: attempt.start):
        begin, end = max(attempt.start, done), min(attempt.end, last)
        length += max(0, int(end - begin))
        done = max(done, end)
    return length
