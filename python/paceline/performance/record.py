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

    #: Its name in `BlockTiming`, or `overhead`; empty where blocks do not have it.
    attribute: str
    #: Its name in `WorkerTiming`; after Khoshlessan et al. 2020, Table 3.
    quantity: str
    #: Its name in tables of scaling, where `t_init_traj` is that of the whole run.
    column: str
    #: Its name in figures and tables.
    label: str
    #: Its name in sentences.
    activity: str
    #: Of Okabe and Ito's palette, which the colour-blind can tell apart (jfly.uni-koeln.de/color);
    #: as in Khoshlessan et al. 2020, computing is yellowish, reading blue, communicating red.
    colour: str
    #: One clause for readers of a report.
    meaning: str


OPEN = Component(
    *("open", "t_init_traj", "t_open", "open", "opening", "#cc79a7"),
    "opening the trajectory file, once a worker",
)
READ = Component(
    *("read", "t_io", "t_io", "read", "reading", "#0072b2"),
    "waiting for bytes of the file that reading ahead did not have ready",
)
DECODE = Component(
    *("decode", "t_decode", "t_decode", "decode", "decoding", "#56b4e9"),
    "turning bytes into positions",
)
TRANSFORM = Component(
    *("transform", "t_transform", "t_transform", "transform", "transforming", "#009e73"),
    "changing positions before they are analysed",
)
COMPUTE = Component(
    *("compute", "t_compute", "t_compute", "compute", "computing", "#e69f00"),
    "the analysis itself",
)
OVERHEAD = Component(
    *("overhead", "t_overhead", "t_overhead", "rest", "overhead", "#84898e"),
    "the rest of the time at blocks",
)
ABANDONED = Component(
    *("", "t_abandoned", "t_abandoned", "abandoned", "abandoned blocks", "#f0e442"),
    "at blocks that another worker was done with sooner",
)
WAIT = Component(
    *("wait", "t_wait", "t_wait", "wait", "waiting", "#d3d9de"),
    "idle: before the first block, between blocks, and after the last one until all were done",
)
COMM = Component(
    *("comm", "t_comm", "t_comm", "communicate", "communicating", "#d55e00"),
    "from the end of a block until its results were in their place, mostly while the worker was "
    "at its next block: no part of its wall time",
)
#: Tables of scaling tell it from other waiting.
STARTUP = Component(
    *("", "t_wait_first", "t_startup", "start-up", "starting", "#7f3c8d"),
    "idle before the first block",
)
#: Of the run, not of a worker: the time around blocks.
AROUND = Component(
    *("", "t_around", "t_around", "plan, collect", "planning and collecting", "#000000"),
    "before the first block was assigned, and after the last one was done",
)

#: Measured in each block, in the order in which they happen.
MEASURED = (OPEN, READ, DECODE, TRANSFORM, COMPUTE)
#: Adds up to the time at blocks that count.
AT_BLOCKS = (*MEASURED, OVERHEAD)
#: Adds up to the time at all blocks.
WORKING = (*AT_BLOCKS, ABANDONED)
#: Components that add up to a worker's wall time.
WALL_TIME = (*WORKING, WAIT)

#: Attributes of a block that measure it, in the order in which they happen.
PARTS = tuple(part.attribute for part in MEASURED)

#: `comm` of a block, until it has come, that is sent together with a later one of its worker.
SENT_WITH_LATER = -1


@dataclass(frozen=True, slots=True)
class BlockTiming:
    """Times of one block, nanoseconds; `start` and `end` are those of the host's clock.

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
        From `end` until the results were in their place; the worker may be at its next block. 0 for
        a block whose results were sent with those of a later one.
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


def moved(block: BlockTiming, shift: int) -> BlockTiming:
    """Move a block by `shift` ns, to another clock."""
    return replace(block, start=block.start + shift, end=block.end + shift) if shift else block


class HostClocks:
    """Offsets between the clocks of hosts, estimated by when results come from there.

    A block cannot have ended after its result arrived, and the result that was quickest on its way
    shows by how much a host's clock differs: too late by its time on the way, some milliseconds
    within one network. Time stamps of this host stay as they are.
    """

    def __init__(self) -> None:
        self._own = socket.gethostname()
        self._offsets: dict[str, int] = {}

    def to_this_host(self, timings: list[BlockTiming]) -> list[BlockTiming]:
        """Convert the time stamps of a result that arrived now to this host's clock."""
        host = host_of(timings[0].worker) if timings else self._own
        if host == self._own:
            return timings
        offset = time.monotonic_ns() - max(timing.end for timing in timings)
        offset = self._offsets[host] = min(offset, self._offsets.get(host, offset))
        return [moved(timing, offset) for timing in timings]


@dataclass(frozen=True, slots=True)
class DuplicateAttempt:
    """An attempt at a block that did not count: another worker was done with it sooner.

    Attributes
    ----------
    timing : BlockTiming
        Of the attempt. Of one that never came: when it was assigned and given up, without parts;
        the worker is empty where nobody knows who had it, and host:port of Dask's:unknown where a
        thread of its has returned no block.
    came : bool
        Whether it came too late, rather than never.
    """

    timing: BlockTiming
    came: bool


@dataclass(frozen=True, slots=True)
class WorkerTiming:
    """Sums over the blocks of one worker, seconds.

    The parts `t_init_traj`, `t_io`, `t_decode`, `t_transform`, `t_compute`, `t_abandoned`, `t_wait`
    and `t_overhead` add up to the time from when blocks were first assigned until the last worker
    was done.

    Attributes
    ----------
    worker : str
        host:process:thread.
    n_blocks, n_frames : int
        Number of its blocks and frames.
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
        While any of its results were on their way, s: mostly at its next block, so no part of the
        sum.
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
        """Name of the host that it ran on."""
        return host_of(self.worker)

    @property
    def t_io_stall(self) -> float:
        """The part of reading that was not hidden, s: as the rest is not counted, `t_io`."""
        return self.t_io

    @property
    def t_work(self) -> float:
        """Time at blocks that counted, s."""
        return float(sum(getattr(self, part.quantity) for part in AT_BLOCKS))

    @property
    def seconds_per_frame(self) -> float:
        """Time at work per frame, s."""
        return self.t_work / max(self.n_frames, 1)


@dataclass
class RunTimings:
    """Times of one run and of its blocks; `Timings` describes them."""

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
        """The whole run, s."""
        return (self.end - self.start) / 1e9

    @property
    def n_frames(self) -> int:
        """Frames analysed, each once, though there may be several passes over them."""
        done = sum(block.n_frames for block in self.blocks)
        return min(done, self.n_chosen or done)

    @property
    def last(self) -> int:
        """End of the last block that counts, ns; `dealt` where no block does."""
        return max((block.end for block in self.blocks), default=self.dealt)

    def workers(self) -> list[WorkerTiming]:
        """Sums for each worker, in the order of their names."""
        return _sum_workers(self)


def host_of(worker: str) -> str:
    """Host of a worker's name, which is host:process:thread or an address of Dask's.

    Examples
    --------
    >>> host_of("node7:4711:4712"), host_of("tcp://10.0.0.7:40123")
    ('node7', '10.0.0.7')
    """
    _, _, address = worker.rpartition("://")
    return address.rsplit(":", 2 if address == worker else 1)[0]


_NUMBERS = tuple(column.name for column in fields(BlockTiming) if column.name != "worker")


class Columns:
    """Attributes of blocks as arrays; `worker` numbers the names in `workers`, which are sorted."""

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
        """Sum an attribute over numbered groups of rows: float64, exact up to 2**53."""
        return np.bincount(groups, self[name], n_groups)


_SUMMED = (
    "n_frames",
    *(part.attribute for part in AT_BLOCKS),
    *("length", "bytes", "calls"),
)
#: Sums of a worker that was done with no block in time.
_NOTHING = dict.fromkeys(("n_blocks", "comm", *_SUMMED), 0)


def _sum_workers(run: RunTimings) -> list[WorkerTiming]:
    """Sum blocks of each worker; attempts of unknown workers are left out."""
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
    """Sum blocks by worker; with the `first` start and the `last` end."""
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
    """Part of each block's `comm` that no earlier block of the same worker covers, ns.

    Results of several blocks may travel at the same time.
    """
    order = np.lexsort((columns["end"], columns.worker))
    begin, comm = columns["end"][order], columns["comm"][order]
    if len(order) == 0:
        return comm
    # Each worker's times after those of the one before: so one running maximum serves all.
    span = (begin + comm).max() - begin.min() + 1
    begin = begin - begin.min() + span * columns.worker[order]
    covered = np.maximum.accumulate(begin + comm)
    found = np.empty(len(order), np.int64)
    found[order] = covered - np.maximum(begin, np.concatenate(([0], covered[:-1])))
    return found


def _sum_worker(
    name: str, sums: dict[str, int], attempts: Sequence[BlockTiming], dealt: int, last: int
) -> WorkerTiming:
    """Convert sums of one worker to seconds; its wall time is from `dealt` to `last`."""
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
    """Time of a worker at attempts until `last`, ns.

    Attempts may overlap: another may have been assigned to it while it was still at one.
    """
    length, done = 0, -math.inf
    for attempt in sorted(attempts, key=lambda attempt: attempt.start):
        begin, end = max(attempt.start, done), min(attempt.end, last)
        length += max(0, int(end - begin))
        done = max(done, end)
    return length
