"""Model that predicts the time of a run for any number of workers, by arithmetic alone.

The manual explains the formula term by term under "The model".
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from paceline._util.option_values_and_selections import SCHEDULES, Schedule
from paceline.errors import UnsupportedError

if TYPE_CHECKING:
    from paceline.performance.record import BlockTiming

#: Number of requests that one node sends to an object store at the same time, and minimum size of
#: a request, bytes. The values are those of the crate `paceline-stores`.
IN_FLIGHT, REQUEST_BYTES = 24, 1 << 20

Layout = Literal["shared", "split"]
LAYOUTS: tuple[str, ...] = get_args(Layout)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """Speed of the file system or object store that contains the trajectory.

    Attributes
    ----------
    server_bandwidth : float
        Total bandwidth for all workers, bytes per second.
    t_lock : float
        Time for which a request locks the file, s; all workers of a node share this lock.
    latency : float
        Time until the response to a request begins, s; above 0 for object stores and servers.
    connection_bandwidth : float
        Bandwidth of one connection to a store, bytes per second.

    Raises
    ------
    UnsupportedError
        A bandwidth is not above 0, or a time is negative.
    """

    server_bandwidth: float = math.inf
    t_lock: float = 0.0
    latency: float = 0.0
    connection_bandwidth: float = math.inf

    def __post_init__(self) -> None:
        for name in ("server_bandwidth", "connection_bandwidth"):
            if not asdict(self)[name] > 0:
                raise UnsupportedError(
                    f"{name} of a file system: expected more than 0, found {asdict(self)[name]}"
                )
        for name in ("t_lock", "latency"):
            if not 0 <= asdict(self)[name] < math.inf:
                raise UnsupportedError(
                    f"{name} of a file system: expected 0 s or more, found {asdict(self)[name]}"
                )

    @property
    def node_bandwidth(self) -> float:
        """Total bandwidth of the requests that one node has in flight, bytes per second."""
        each = self.latency + REQUEST_BYTES / self.connection_bandwidth
        return IN_FLIGHT * REQUEST_BYTES / each if each else math.inf

    def read_time(self, n_bytes: float, request_frames: int | None = None) -> float:
        """Compute the time in which a single worker reads a frame.

        Parameters
        ----------
        n_bytes : float
            Bytes of the frame.
        request_frames : int, optional
            Number of frames per request of a program that does not read ahead, but sends one
            request after another. By default, paceline's simultaneous requests are assumed.

        Returns
        -------
        float
            Time, s.

        Examples
        --------
        >>> store = FileSystem(latency=0.1, connection_bandwidth=85e6)
        >>> f"{store.read_time(14e3) * 1e3:.3f} ms, {store.read_time(14e3, 1) * 1e3:.1f} ms"
        '0.062 ms, 100.2 ms'
        """
        if request_frames is None:
            return n_bytes / min(self.server_bandwidth, self.node_bandwidth)
        rate = min(self.server_bandwidth, self.connection_bandwidth)
        return self.latency / request_frames + n_bytes / rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of an object store, in any currency.

    Attributes
    ----------
    per_gb : float
        Price of 10⁹ bytes that leave the store.
    per_1000_requests : float
        Price of 1000 requests.

    Raises
    ------
    UnsupportedError
        A price is negative.

    Examples
    --------
    >>> f"{Prices(per_gb=0.09, per_1000_requests=0.0004).of(10e9, 8000):.4f}"
    '0.9032'
    """

    per_gb: float = 0.0
    per_1000_requests: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 <= value < math.inf:
                raise UnsupportedError(f"price {name}: expected 0 or more, found {value}")

    def of(self, n_bytes: float, n_requests: float) -> float:
        """Compute the price of a transfer.

        Parameters
        ----------
        n_bytes, n_requests : float
            Number of bytes, and number of requests.

        Returns
        -------
        float
            Price, in the currency of the prices.
        """
        return n_bytes / 1e9 * self.per_gb + n_requests / 1e3 * self.per_1000_requests


#: Example values: measure your own. Bandwidths are rounded values from data sheets, except for
#: "lustre" and "store". "lustre" has at least 6 GB/s, because 192 ranks read 30 GB in 5 s
#: (Khoshlessan et al. 2020, Table 5); its lock time was fitted to the same table (`python -m
#: benchmarks model`). "store" has the values that Amazon names as typical of S3: 100 to 200 ms
#: until a response begins, and 85 to 90 MB/s for each request ("Best practices design patterns:
#: optimizing Amazon S3 performance").
FILE_SYSTEMS = {
    "memory": FileSystem(),
    "ssd": FileSystem(server_bandwidth=2e9),
    "hdd": FileSystem(server_bandwidth=150e6),
    "nfs": FileSystem(server_bandwidth=117e6),
    "lustre": FileSystem(server_bandwidth=6e9, t_lock=22e-6),
    "store": FileSystem(latency=0.1, connection_bandwidth=85e6),
}

#: Minimum parallel efficiency of a worthwhile number of workers.
EFFICIENCY = 0.5


@dataclass(frozen=True, slots=True)
class FrameCost:
    """Cost of one frame for one worker.

    Attributes
    ----------
    read : float
        Time waiting for the frame's bytes, s: the part that prefetching does not hide.
    decode : float
        Time to decode positions, s.
    compute : float
        Time of the analyses, s.
    bytes : float
        Number of bytes read from the file.
    transform : float
        Time to transform positions, s.
    rest : float
        Remaining time, s, for example for assigning blocks and waiting for the interpreter lock.

    Raises
    ------
    UnsupportedError
        A number is negative, infinite or not a number, or all times are 0.

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
    transform: float = 0.0
    rest: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 <= value < math.inf:
                raise UnsupportedError(f"{name} of a frame: expected 0 or more, found {value}")
        if self.seconds == 0:
            raise UnsupportedError("cost of a frame: expected more than 0 s in total, found 0")

    @classmethod
    def of(cls, blocks: "Iterable[BlockTiming]") -> Self:
        """Compute the mean cost of a frame from a measured run with one worker.

        Parameters
        ----------
        blocks : iterable of BlockTiming
            Timings of the run's blocks.

        Returns
        -------
        FrameCost
            Mean cost, without the time to open the file.

        Raises
        ------
        UnsupportedError
            The blocks have no frames.

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
        return cls.mean_of(blocks, sum(block.end - block.start for block in blocks))

    @classmethod
    def mean_of(cls, blocks: "Sequence[BlockTiming]", length: int) -> Self:
        """Compute the mean cost of a frame; `length` is the total time for all blocks, ns."""
        n_frames = sum(block.n_frames for block in blocks)
        if n_frames == 0:
            raise UnsupportedError("no frames were timed: expected 1 or more, found 0")
        parts = {
            "read": sum(block.read for block in blocks),
            "decode": sum(block.decode for block in blocks),
            "transform": sum(block.transform for block in blocks),
            "compute": sum(block.compute for block in blocks),
        }
        rest = length - sum(block.open for block in blocks) - sum(parts.values())
        return cls(
            **{name: value / n_frames / 1e9 for name, value in parts.items()},
            rest=max(0, rest) / n_frames / 1e9,
            bytes=sum(block.bytes for block in blocks) / n_frames,
        )

    @property
    def parts(self) -> dict[str, float]:
        """Components of the time by name, s, in the order in which they happen."""
        return {
            "read": self.read,
            "decode": self.decode,
            "transform": self.transform,
            "compute": self.compute,
            "rest": self.rest,
        }

    @property
    def seconds(self) -> float:
        """Sum of the components, s."""
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Unevenness:
    """Stragglers: workers that are slower than the others, or start later.

    Attributes
    ----------
    slow_fraction : float
        Fraction of the workers that are stragglers.
    slow_factor : float
        Factor by which the work of stragglers takes longer.
    late : float
        Time by which each straggler starts later, s, or another delay that it has once in a run.

    Raises
    ------
    UnsupportedError
        `slow_fraction` is not between 0 and 1, `slow_factor` is below 1, or `late` is negative.
    """

    slow_fraction: float = 0.0
    slow_factor: float = 1.0
    late: float = 0.0

    def __post_init__(self) -> None:
        possible = 0 <= self.slow_fraction <= 1 and self.slow_factor >= 1
        if not (possible and 0 <= self.late < math.inf):
            raise UnsupportedError(
                "stragglers: expected slow_fraction= from 0 to 1, slow_factor= of 1 or more and "
                f"late= of 0 s or more, found {self.slow_fraction}, {self.slow_factor} and "
                f"{self.late}"
            )


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected times of a run, s, which add up to `t_total`.

    Attributes
    ----------
    n_workers : int
        Number of workers.
    t_start : float
        Time until the first worker can start.
    t_io, t_decode, t_comp : float
        Times of reading, of decoding and of all other work: means over the workers that get work.
        `t_io` includes queueing at the file system.
    t_wait : float
        Time from the end of an average worker to the end of the last worker. An average worker has
        a mean share, and is not a straggler.
    """

    n_workers: int
    t_start: float
    t_io: float
    t_decode: float
    t_comp: float
    t_wait: float

    @property
    def t_total(self) -> float:
        """Time of the whole run, s."""
        return self.t_start + self.t_io + self.t_decode + self.t_comp + self.t_wait


def predict(
    cost: FrameCost,
    n_frames: int,
    n_workers: int,
    *,
    file_system: FileSystem = FILE_SYSTEMS["memory"],
    per_node: int | None = None,
    schedule: Schedule = "dynamic",
    layout: Layout = "shared",
    uneven: Unevenness | None = None,
    block_frames: int | None = None,
    request_frames: int | None = None,
    t_start: float = 0.0,
) -> Prediction:
    """Predict the time of a run.

    Parameters
    ----------
    cost : FrameCost
        Cost of one frame, measured with one worker.
    n_frames : int
        Number of frames of the run.
    n_workers : int
        Number of threads, processes or ranks.
    file_system : FileSystem
        File system of the trajectory; by default without limits.
    per_node : int, optional
        Number of workers per node; by default all workers are on one node.
    schedule : {"dynamic", "static"}
        "dynamic" assigns blocks to idle workers; "static" gives each worker an equal share.
    layout : {"shared", "split"}
        "shared": one file, read under a lock; "split": access without a lock, by one file per
        worker or by MPI-IO.
    uneven : Unevenness, optional
        Stragglers; by default none.
    block_frames : int, optional
        Number of frames in a block; by default as in paceline's plan.
    request_frames : int, optional
        Number of frames in a read request; by default one block.
    t_start : float
        Time to start the workers, s.

    Returns
    -------
    Prediction

    Raises
    ------
    UnsupportedError
        A number that must be positive is not, or the schedule or the layout is unknown.

    Examples
    --------
    >>> cost = FrameCost(read=0.0, decode=300e-6, compute=100e-6, bytes=12_000)
    >>> [f"{predict(cost, 100_000, n).t_total:.2f} s" for n in (1, 2, 4)]
    ['40.00 s', '20.10 s', '10.15 s']
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
    _check_numbers(0, t_start=t_start)
    uneven = uneven or Unevenness()
    busy = min(n_workers, n_frames)
    block_frames = block_frames or usual_block(cost, n_frames, busy)
    held = file_system.t_lock / (request_frames or block_frames) if layout == "shared" else 0.0
    on_node = min(busy, per_node or busy)
    # `request_frames` describes programs that do not read ahead. Their workers do not share a
    # limited number of simultaneous requests, and do not queue for them.
    sent = 0.0 if request_frames else cost.bytes / file_system.node_bandwidth
    # Only the longest queue counts: a worker that has waited in it finds the other queues short.
    frame = max(
        queued(cost.seconds, cost.bytes / file_system.server_bandwidth, busy),
        queued(cost.seconds, held, on_node),
        queued(cost.seconds, sent, on_node),
    )
    share = n_frames / busy * frame
    if schedule == "static":
        last = static_time(math.ceil(n_frames / busy) * frame, busy, uneven)
    else:
        last = dynamic_time(share, min(block_frames * frame, share), busy, uneven)
    return Prediction(
        n_workers=n_workers,
        t_start=t_start,
        t_io=n_frames / busy * (cost.read + frame - cost.seconds),
        t_decode=n_frames / busy * cost.decode,
        t_comp=n_frames / busy * (cost.transform + cost.compute + cost.rest),
        t_wait=last - share,
    )


def sweep(
    cost: FrameCost, n_frames: int, n_workers: Iterable[int], **options: Any
) -> list[Prediction]:
    """Predict the same run with different numbers of workers.

    Parameters
    ----------
    cost : FrameCost
        Cost of one frame.
    n_frames : int
        Number of frames of the run.
    n_workers : iterable of int
        Numbers of workers.
    **options : object
        Further arguments of `predict`.

    Returns
    -------
    list of Prediction
        Predictions in the order of `n_workers`.
    """
    return [predict(cost, n_frames, n, **options) for n in n_workers]


def doublings(most: int) -> list[int]:
    """Return numbers of workers for a logarithmic curve: 1, 2, 4 … and the maximum.

    Examples
    --------
    >>> doublings(24)
    [1, 2, 4, 8, 16, 24]
    """
    powers = [2**k for k in range(most.bit_length()) if 2**k < most]
    return [*powers, most]


def fastest(predictions: Sequence[Prediction]) -> Prediction:
    """Return the shortest run; among equally short runs, the one with the fewest workers."""
    return min(predictions, key=lambda found: (found.t_total, found.n_workers))


def last_that_pays(
    predictions: Sequence[Prediction], *, efficiency: float = EFFICIENCY
) -> Prediction:
    """Find the maximum number of workers that are used efficiently: the knee of the curve.

    Parameters
    ----------
    predictions : sequence of Prediction
        Predictions in ascending order of their numbers of workers; efficiencies are relative to the
        first one.
    efficiency : float
        Minimum of speed-up divided by number of workers.

    Returns
    -------
    Prediction
        Last prediction before the efficiency falls below the minimum.

    Examples
    --------
    >>> from paceline.model import FileSystem
    >>> cost = FrameCost(read=0.0, decode=300e-6, compute=100e-6, bytes=12_000)
    >>> one_disk = FileSystem(server_bandwidth=150e6)
    >>> found = sweep(cost, 10**6, doublings(64), file_system=one_disk)
    >>> last_that_pays(found).n_workers
    8
    """
    by_workers = {found.n_workers: found for found in predictions}
    times = {n_workers: found.t_total for n_workers, found in by_workers.items()}
    return by_workers[most_that_pay(times, efficiency)]


def most_that_pay(times: Mapping[int, float], efficiency: float) -> int:
    """Return the last number of workers before the efficiency falls below `efficiency`.

    `times` contains the time of a run, s, by number of workers. Efficiencies are relative to its
    first entry.
    """
    n_first, t_first = next(iter(times.items()))
    best = n_first
    for n_workers, seconds in times.items():
        if n_first * t_first / (n_workers * seconds) < efficiency:
            break
        best = n_workers
    return best


def usual_block(cost: FrameCost, n_frames: int, n_workers: int) -> int:
    """Choose the number of frames in a block, similarly to `paceline.contract.plan.make_plan`."""
    # Imported here, because this import loads NumPy, which the command line does not need.
    from paceline.contract.plan import BLOCK_BYTES, BLOCKS_PER_WORKER, LEAF_FRAMES

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


def queued(alone: float, service: float, n_workers: float) -> float:
    """Return the time of a frame, s, if workers queue for a shared resource once in each frame.

    The model is a closed queue. Each worker works for `alone - service` without the resource, waits
    for it, and uses it for `service`. The formula is Schweitzer's approximation of mean value
    analysis (Schweitzer 1979, Bard 1979), which has a closed form for one queue. It is exact for
    one worker. For many workers it approaches `n_workers * service`: the resource is always busy,
    and more workers gain nothing.

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
    """Return the expected time until all workers have finished equal shares, s.

    A worker that is not a straggler needs `share` s for its share.

    Examples
    --------
    >>> static_time(10.0, 100, Unevenness(slow_fraction=0.5, slow_factor=3, late=4.0))
    34.0
    """
    some_slow = 1 - (1 - uneven.slow_fraction) ** n_workers
    return share + some_slow * ((uneven.slow_factor - 1) * share + uneven.late)


def dynamic_time(share: float, block: float, n_workers: int, uneven: Unevenness) -> float:
    """Return the expected time until the last block is finished, s, with dynamic assignment.

    `share` is the total work per worker, and `block` the work of one block; both are in s for a
    worker that is not a straggler.

    While blocks are left, no worker is idle, except stragglers that have not started yet. When no
    block is left, each worker finishes its last block, and waits for the last worker. The wait is
    half a block on average, because idle workers repeat the blocks of slow workers.

    Examples
    --------
    >>> dynamic_time(10.0, 0.1, 1, Unevenness())
    10.0
    """
    others = 1 - uneven.slow_fraction
    slow = uneven.slow_fraction / uneven.slow_factor
    none_left = (share + slow * uneven.late) / (others + slow)
    if others > 0:
        none_left = min(none_left, share / others)
    return none_left + block / 2 * (1 - 1 / n_workers)
