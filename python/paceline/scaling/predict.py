"""Model of a run: predictions of its time for any number of workers."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Self

from paceline.errors import UnsupportedError
from paceline.performance.records import BlockTiming
from paceline.scaling.systems import (
    FILE_SYSTEMS,
    LAYOUTS,
    SCHEDULES,
    FileSystem,
    Layout,
    Network,
    Schedule,
)
from paceline.schedule.plan import BLOCK_BYTES, BLOCKS_PER_WORKER, LEAF_FRAMES
from paceline.schedule.scheduler import OVERDUE, SHORTEST

#: A worker should save at least so much of what it could.
EFFICIENCY = 0.5


@dataclass(frozen=True, slots=True)
class FrameCost:
    """Cost of one frame for a worker that has the machine to itself.

    Attributes
    ----------
    read : float
        Waiting for its bytes, s: the part that reading ahead does not hide.
    decode : float
        Turning bytes into positions, s.
    compute : float
        The analysis, s, with transformations and what else a block takes.
    bytes : float
        Bytes read from the file.

    Raises
    ------
    UnsupportedError
        A number is negative, infinite or not a number, or nothing takes any time.

    Examples
    --------
    >>> cost = FrameCost(read=20e-6, decode=30e-6, compute=90e-6, bytes=12_000)
    >>> f"{cost.seconds * 1e6:.0f} µs"
    '140 µs'
    """

    read: float
    decode: float
    compute: float
    bytes: float

    def __post_init__(self) -> None:
        for name in ("read", "decode", "compute", "bytes"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise UnsupportedError(f"{name} of a frame: expected 0 or more, found {value}")
        if self.seconds == 0:
            raise UnsupportedError("a frame that takes no time: expected more than 0 s in all")

    @classmethod
    def of(cls, blocks: Iterable[BlockTiming]) -> Self:
        """Take the mean of a run that was measured, of one worker.

        Parameters
        ----------
        blocks : iterable of BlockTiming
            Its timings.

        Returns
        -------
        FrameCost
            Opening the file is no part of it.

        Raises
        ------
        UnsupportedError
            There are no frames.

        Examples
        --------
        >>> import paceline
        >>> from MDAnalysisTests.datafiles import PSF, DCD
        >>> from paceline.analysis.rms import RMSD
        >>> rmsd = RMSD(paceline.Universe(PSF, DCD), select="name CA").run(backend="serial")
        >>> FrameCost.of(rmsd.timings.blocks).seconds > 0
        True
        """
        blocks = list(blocks)
        n_frames = sum(block.n_frames for block in blocks)
        if n_frames == 0:
            raise UnsupportedError("no frames were timed: expected 1 or more, found 0")
        at_work = sum(block.end - block.start - block.open for block in blocks)
        read, decode = (
            sum(getattr(block, part) for block in blocks) for part in ("read", "decode")
        )
        return cls(
            read=read / n_frames / 1e9,
            decode=decode / n_frames / 1e9,
            compute=(at_work - read - decode) / n_frames / 1e9,
            bytes=sum(block.bytes for block in blocks) / n_frames,
        )

    @property
    def seconds(self) -> float:
        """Time of a frame, s: reading, decoding and computing."""
        return self.read + self.decode + self.compute


@dataclass(frozen=True, slots=True)
class Unevenness:
    """Differences between workers.

    Attributes
    ----------
    spread : float
        Standard deviation of workers' time per frame, as a part of its mean.
    slow_fraction : float
        Part of the workers that are slow.
    slow_factor : float
        How many times as long those take.

    Raises
    ------
    UnsupportedError
        A part is not between 0 and 1, `spread` is negative, or who is slow is fast.
    """

    spread: float = 0.0
    slow_fraction: float = 0.0
    slow_factor: float = 1.0

    def __post_init__(self) -> None:
        if not (self.spread >= 0 and 0 <= self.slow_fraction <= 1 and self.slow_factor >= 1):
            raise UnsupportedError(
                "workers' unevenness: expected spread of 0 or more, slow_fraction from 0 to 1 and "
                f"slow_factor of 1 or more, found {self.spread}, {self.slow_fraction} and "
                f"{self.slow_factor}"
            )

    @property
    def pace(self) -> float:
        """Mean number of frames that workers do while one that is not slow does one."""
        return 1 - self.slow_fraction + self.slow_fraction / self.slow_factor


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected time of a run, seconds: the parts add up to `t_total`.

    Attributes
    ----------
    n_workers : int
        Workers that share the work.
    t_start : float
        Until the first worker can begin.
    t_open : float
        Opening the file, as far as it delays the end.
    t_io, t_decode, t_comp : float
        Reading, decoding and computing, mean over the workers that find something to do. Waiting
        for one another at the file system is part of `t_io`.
    t_wait : float
        Waiting to be assigned blocks, and from when a worker of mean pace is done until the slowest
        is.
    t_comm : float
        Bringing results together.
    """

    n_workers: int
    t_start: float
    t_open: float
    t_io: float
    t_decode: float
    t_comp: float
    t_wait: float
    t_comm: float

    @property
    def t_total(self) -> float:
        """The whole run, s."""
        at_work = self.t_io + self.t_decode + self.t_comp
        return self.t_start + self.t_open + at_work + self.t_wait + self.t_comm


def predict(
    cost: FrameCost,
    n_frames: int,
    n_workers: int,
    *,
    file_system: FileSystem = FILE_SYSTEMS["memory"],
    per_node: int | None = None,
    schedule: Schedule = "dynamic",
    layout: Layout = "shared",
    network: Network | None = None,
    uneven: Unevenness | None = None,
    block_frames: int | None = None,
    request_frames: int | None = None,
    result_bytes: float = 16.0,
    t_start: float = 0.0,
    t_deal: float = 0.0,
) -> Prediction:
    """Predict how long a run takes.

    Parameters
    ----------
    cost : FrameCost
        Of one frame, measured with one worker.
    n_frames : int
        Frames of the run.
    n_workers : int
        Threads, processes or ranks.
    file_system : FileSystem
        Where the trajectory lies; by default nothing is shared but the work.
    per_node : int, optional
        Workers on one node; by default all are on one.
    schedule : {"dynamic", "static"}
        Blocks assigned as workers come free, or equal shares.
    layout : {"shared", "split", "h5md"}
        One file for all, one for each worker, or one that is opened together (MPI-IO).
    network : Network, optional
        Over which results come back; by default at no cost.
    uneven : Unevenness, optional
        How workers differ; by default not at all.
    block_frames : int, optional
        Frames of a block; by default as paceline cuts them.
    request_frames : int, optional
        Frames that are read at once; by default a block.
    result_bytes : float
        Of results per frame.
    t_start : float
        What starting the workers takes, s.
    t_deal : float
        Cost of a block for the process that assigns, s.

    Returns
    -------
    Prediction

    Raises
    ------
    UnsupportedError
        A number that must be positive is not, or no such schedule or layout.

    Examples
    --------
    >>> cost = FrameCost(read=0.0, decode=300e-6, compute=100e-6, bytes=12_000)
    >>> [f"{predict(cost, 100_000, n).t_total:.2f} s" for n in (1, 2, 4)]
    ['40.00 s', '20.07 s', '10.12 s']
    """
    _check_choices(schedule, layout)
    _check_numbers(
        1,
        n_frames=n_frames,
        n_workers=n_workers,
        per_node=per_node,
        block_frames=block_frames,
        request_frames=request_frames,
    )
    _check_numbers(0, result_bytes=result_bytes, t_start=t_start, t_deal=t_deal)
    uneven = uneven or Unevenness()
    network = network or Network()
    busy = min(n_workers, n_frames)
    block_frames = block_frames or usual_block(cost, n_frames, busy)
    requests = 1 / (request_frames or block_frames)

    def frame_time(n: int) -> float:
        return _frame_time(cost, file_system, layout, n, min(n, per_node or n), requests)

    t_each = file_system.t_metadata + (file_system.t_open if layout == "shared" else 0.0)
    if schedule == "static":
        t_open = busy * t_each
    else:
        busy = opened_in_time(lambda n: n_frames * frame_time(n), busy, t_each)
        t_open = (busy + 1) / 2 * t_each
    frame = frame_time(busy)
    share = n_frames / busy * frame
    if schedule == "static":
        slowest = static_time(math.ceil(n_frames / busy) * frame, busy, uneven)
    else:
        dealt = queued(frame + t_deal / block_frames, t_deal / block_frames, busy)
        block = min(block_frames * frame, share)
        slowest = dynamic_time(n_frames / busy * dealt, block, busy, uneven)
    return Prediction(
        n_workers=n_workers,
        t_start=t_start,
        t_open=t_open,
        t_io=n_frames / busy * (cost.read + frame - cost.seconds),
        t_decode=n_frames / busy * cost.decode,
        t_comp=n_frames / busy * cost.compute,
        t_wait=slowest - share,
        t_comm=_gathering(network, n_frames * result_bytes, n_workers, per_node),
    )


def sweep(
    cost: FrameCost, n_frames: int, n_workers: Iterable[int], **options: Any
) -> list[Prediction]:
    """Predict the same run with different numbers of workers.

    Parameters
    ----------
    cost : FrameCost
        Of one frame.
    n_frames : int
        Frames of the run.
    n_workers : iterable of int
        The numbers.
    **options : object
        As `predict` takes them.

    Returns
    -------
    list of Prediction
        In the order of `n_workers`.
    """
    return [predict(cost, n_frames, n, **options) for n in n_workers]


def doublings(most: int) -> list[int]:
    """Numbers of workers that give an evenly spaced curve: 1, 2, 4 … and the most.

    Examples
    --------
    >>> doublings(24)
    [1, 2, 4, 8, 16, 24]
    """
    powers = [2**k for k in range(most.bit_length()) if 2**k < most]
    return [*powers, most]


def fastest(predictions: Sequence[Prediction]) -> Prediction:
    """Find the shortest run; of equal ones, that with the fewest workers."""
    return min(predictions, key=lambda found: (found.t_total, found.n_workers))


def last_that_pays(
    predictions: Sequence[Prediction], *, efficiency: float = EFFICIENCY
) -> Prediction:
    """Find the most workers that are still used well: the knee of the curve.

    Parameters
    ----------
    predictions : sequence of Prediction
        In the order of their workers; efficiencies are relative to the first.
    efficiency : float
        Speed-up divided by workers, at least.

    Returns
    -------
    Prediction
        The last before the efficiency falls below that.

    Examples
    --------
    >>> from paceline.model import FileSystem
    >>> cost = FrameCost(read=0.0, decode=300e-6, compute=100e-6, bytes=12_000)
    >>> one_disk = FileSystem(server_bandwidth=150e6)
    >>> found = sweep(cost, 10**6, doublings(64), file_system=one_disk)
    >>> last_that_pays(found).n_workers
    8
    """
    first = predictions[0]
    work = first.t_total * first.n_workers
    best = first
    for found in predictions:
        if work / (found.t_total * found.n_workers) < efficiency:
            break
        best = found
    return best


def usual_block(cost: FrameCost, n_frames: int, n_workers: int) -> int:
    """Choose the frames of a block, about as `paceline.schedule.plan.make_plan` does."""
    wanted = min(BLOCK_BYTES / max(cost.bytes, 1), n_frames / (BLOCKS_PER_WORKER * n_workers))
    size = LEAF_FRAMES
    while 2 * size <= wanted:
        size *= 2
    return size


def _check_choices(schedule: str, layout: str) -> None:
    for what, chosen, known in (("schedule", schedule, SCHEDULES), ("layout", layout, LAYOUTS)):
        if chosen not in known:
            raise UnsupportedError(f"{what}: expected one of {', '.join(known)}, found {chosen!r}")


def _check_numbers(least: int, **numbers: float | None) -> None:
    for name, value in numbers.items():
        if value is not None and not least <= value < math.inf:
            raise UnsupportedError(f"{name}: expected {least} or more, found {value}")


def _frame_time(
    cost: FrameCost,
    system: FileSystem,
    layout: Layout,
    n_workers: int,
    on_a_node: int,
    requests: float,
) -> float:
    """Time of a frame, waiting for others included; `requests` are those of a frame."""
    servers = system.stripe_count
    if layout == "split":
        servers = min(system.servers, n_workers * system.stripe_count)
    at_server = cost.bytes / system.server_bandwidth + requests * system.t_request
    queues = [
        (at_server / servers, n_workers),
        (cost.bytes / system.node_bandwidth, on_a_node),
    ]
    if layout == "shared":
        queues.append((requests * system.t_lock, on_a_node))
    # Who waits in the longest queue comes to the others when they are short.
    return max(queued(cost.seconds, service, n) for service, n in queues)


def queued(alone: float, service: float, n_workers: float) -> float:
    """Time of a frame where workers take turns at something for a part of it.

    A closed queue: each worker spends `alone - service` by itself, then waits for its turn, which
    takes `service`. Found by Schweitzer's approximation of mean value analysis (Schweitzer 1979,
    Bard 1979), which has a closed form for one queue. It is exact for one worker, and for many it
    tends to `n_workers * service`: then the thing is always busy, and more workers gain nothing.

    Examples
    --------
    >>> queued(alone=1.0, service=0.1, n_workers=1)
    1.0
    >>> f"{queued(alone=1.0, service=0.1, n_workers=10):.2f} {queued(1.0, 0.1, 1000):.1f}"
    '1.25 100.0'
    """
    own = max(0.0, alone - service)
    busy = n_workers * service
    return (own + busy + math.sqrt((own - busy) ** 2 + 4 * own * service)) / 2


def static_time(share: float, n_workers: int, uneven: Unevenness) -> float:
    """Expected time until the last of equal shares is done; `share` is that of a worker, s.

    Examples
    --------
    >>> static_time(10.0, 100, Unevenness(slow_fraction=0.5, slow_factor=3))
    30.0
    """
    some_slow = 1 - (1 - uneven.slow_fraction) ** n_workers
    # Blom's approximation: the largest of so many normal deviates.
    largest = NormalDist().inv_cdf((n_workers - 0.375) / (n_workers + 0.25))
    return share * (1 + uneven.spread * largest + (uneven.slow_factor - 1) * some_slow)


def dynamic_time(share: float, block: float, n_workers: int, uneven: Unevenness) -> float:
    """Expected time until the last block is done, s, if workers take blocks as they come free.

    `share` is all work divided by the workers, `block` a block, s of a worker that is not slow.

    Nobody is idle until no block is left; then workers are in the midst of one each. The last of
    them to end is almost a block's time away, and a slow one's block is done once more by another
    when it is overdue.

    Examples
    --------
    >>> dynamic_time(10.0, 0.1, 1, Unevenness())
    10.0
    """
    none_left = (share - block / 2) / uneven.pace
    n_slow = uneven.slow_fraction * n_workers
    n_others = n_workers - n_slow
    repeated = max(OVERDUE * block, SHORTEST) + block
    last_slow = min(uneven.slow_factor * block, repeated) * n_slow / (n_slow + 1)
    last = max(block * n_others / (n_others + 1), last_slow)
    return none_left + last


def opened_in_time(work: Callable[[int], float], n_workers: int, t_open: float) -> int:
    """Number of workers that find blocks left to do, where they open the file one after another.

    A worker that has opened it works while others wait for their turn. The last of n that is in
    time opens it when the others are done: n (n - 1) / 2 opens take as long as all work.

    Examples
    --------
    >>> opened_in_time(lambda n: 100.0, 1000, 1.0), opened_in_time(lambda n: 100.0, 1000, 0.0)
    (14, 1000)
    """
    in_time = 1
    while True:
        more = n_workers
        if t_open > 0:
            more = min(n_workers, int(0.5 + math.sqrt(0.25 + 2 * work(in_time) / t_open)))
        if more <= in_time:
            return in_time
        in_time = more


def _gathering(network: Network, n_bytes: float, n_workers: int, per_node: int | None) -> float:
    """Bring results to one process, over a tree; a node's own cross no network."""
    if n_workers <= (per_node or n_workers):
        return 0.0
    return math.ceil(math.log2(n_workers)) * network.latency + n_bytes / network.bandwidth
