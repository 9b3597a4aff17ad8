"""The formula: from what a frame costs to the time of a run."""

import math
from dataclasses import dataclass

from paceline.errors import UnsupportedError
from paceline.model.cost import FrameCost
from paceline.model.queueing import queued
from paceline.model.sharing import Unevenness, dynamic_time, opened_in_time, static_time
from paceline.model.systems import (
    FILE_SYSTEMS,
    LAYOUTS,
    SCHEDULES,
    FileSystem,
    Layout,
    Network,
    Schedule,
)
from paceline.plan import BLOCK_BYTES, BLOCKS_PER_WORKER, LEAF_FRAMES


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a run is expected to take, seconds: the parts add up to `t_total`.

    Attributes
    ----------
    n_workers : int
        Who share the work.
    t_start : float
        Until the first worker can begin.
    t_open : float
        Opening the file, as far as it delays the end.
    t_io, t_decode, t_comp : float
        Reading, decoding and computing, mean over the workers that find something to do. Waiting
        for one another at the file system is part of `t_io`.
    t_wait : float
        Waiting to be dealt blocks, and from when a worker of mean pace is done until the slowest
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
        Blocks dealt as workers come free, or equal shares.
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
        What a block costs the process that deals, s.

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


def _check_choices(schedule: str, layout: str) -> None:
    for what, chosen, known in (("schedule", schedule, SCHEDULES), ("layout", layout, LAYOUTS)):
        if chosen not in known:
            raise UnsupportedError(f"{what}: expected one of {', '.join(known)}, found {chosen!r}")


def _check_numbers(least: int, **numbers: float | None) -> None:
    for name, value in numbers.items():
        if value is not None and not least <= value < math.inf:
            raise UnsupportedError(f"{name}: expected {least} or more, found {value}")


def usual_block(cost: FrameCost, n_frames: int, n_workers: int) -> int:
    """Choose the frames of a block, about as `paceline.plan.make_plan` does.

    Parameters
    ----------
    cost : FrameCost
        Of one frame.
    n_frames : int
        Frames of the run.
    n_workers : int
        Who share them.

    Returns
    -------
    int
        At least those of a small system's leaf.
    """
    wanted = min(BLOCK_BYTES / max(cost.bytes, 1), n_frames / (BLOCKS_PER_WORKER * n_workers))
    size = LEAF_FRAMES
    while 2 * size <= wanted:
        size *= 2
    return size


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


def _gathering(network: Network, n_bytes: float, n_workers: int, per_node: int | None) -> float:
    """Bring results to one process, over a tree; a node's own cross no network."""
    if n_workers <= (per_node or n_workers):
        return 0.0
    return math.ceil(math.log2(n_workers)) * network.latency + n_bytes / network.bandwidth
