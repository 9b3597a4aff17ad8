"""The papers' quantities of one run, from its timings alone.

Names are those of Khoshlessan et al. 2020, Table 3 and equations 4 to 8, where they still exist
here; the units are seconds and bytes.
"""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from paceline.performance.components import COMM, WALL_TIME
from paceline.performance.records import (
    DuplicateAttempt,
    RunTimings,
    WorkerTiming,
    host_of,
    moved,
)
from paceline.performance.stragglers import Straggler, find_stragglers

#: Quantities of a worker that add up to its wall time, s …
PARTS = tuple(part.quantity for part in WALL_TIME)
#: … and others.
BESIDE = ("t_wait_first", "t_wait_last", "t_work", COMM.quantity)
#: Meanings of the quantities of a whole run, for readers of a report.
OF_RUN = {
    "t_total": "the whole run",
    "t_init_top": "parsing the topology, once, before the run",
    "t_init_traj": "opening the trajectory and its index, once, before the run",
    "t_before": "from the beginning of the run until blocks were first assigned",
    "t_blocks": "from then until the last block was done: the wall time of every worker",
    "t_after": "from then until the results were there",
    "t_comm": "receiving and merging results, in the process that collects them",
    "R_comp_IO": "computing over reading and decoding: much above 1, the job is bound by computing "
    "and scales; much below, by reading",
    "R_comp_comm": "mean computing of a worker over communicating: much above 1, more workers pay",
    "imbalance": "the last worker's end over the mean of all workers' ends: 1 where all end "
    "together",
    "bytes_read": "asked of the files",
    "calls": "in how many calls they were asked for",
    "bytes_used": "size of the decoded numbers that the analyses asked for",
    "read_per_used": "bytes read per byte used: below 1 where the file is compressed, above 1 "
    "where it holds much that nobody asked for",
    "read_rate": "bytes read per second of t_blocks, by all workers together",
}
#: Time stamps may be out by so many ns before a host's clock is called another one.
TOLERANCE = 50_000_000


@dataclass(frozen=True)
class Spread:
    """A quantity over the workers, s.

    Attributes
    ----------
    mean, most : float
        Over all workers, as in equations 4 to 6, and of the worker that has most.
    """

    mean: float
    most: float


@dataclass(frozen=True)
class Report:
    """Quantities of a run, from its timings. Times are seconds; NaN is what is not known.

    Attributes
    ----------
    backend, schedule, trajectory : str
        As in the timings.
    n_workers : int
        Workers that came to a block.
    n_asked : int
        Workers for whom blocks were cut.
    n_hosts : int
        Machines that they are on.
    n_blocks, n_frames : int
        Blocks and frames that they did.
    t_total : float
        The whole run.
    t_init_top, t_init_traj : float
        Parsing the topology, opening the trajectory and its index, once, before the run.
    t_before : float
        From the beginning of the run until blocks were first assigned.
    t_blocks : float
        From then until the last block was done: the wall time of every worker.
    t_after : float
        From then until the results were there.
    t_comm : float
        Receiving and merging results, in the process that collects them.
    workers : list of WorkerTiming
        Sums for each worker.
    over_workers : dict of str to Spread
        Of the workers' `t_init_traj`, `t_io`, `t_decode`, `t_transform`, `t_compute`,
        `t_overhead`, `t_abandoned` and `t_wait`, which add up to their wall time; and of
        `t_wait_first`, `t_wait_last`, `t_work` and `t_comm`.
    shares : dict of str to float
        Part of the workers' wall time that each of the former took, from 0 to 1.
    R_comp_IO : float
        Computing over reading and decoding (equation 7); infinite without the latter.
    R_comp_comm : float
        Mean computing of a worker over `t_comm` (equation 8, whose ranks all wait meanwhile).
    imbalance : float
        The last worker's end over the mean of the workers' ends, both since blocks were first
        assigned; 1 where all end together.
    bytes_read, calls : int
        Asked of the files, and in how many calls.
    bytes_used : int
        Size of the decoded numbers that the analyses asked for.
    read_per_used : float
        The first over the second.
    read_rate : float
        Bytes read per second of `t_blocks`.
    stragglers : list of Straggler
        Workers that are slow, those first that lost most.
    abandoned : list of DuplicateAttempt
        Attempts at blocks that other workers were done with sooner.
    """

    backend: str
    schedule: str
    trajectory: str
    n_workers: int
    n_asked: int
    n_hosts: int
    n_blocks: int
    n_frames: int
    t_total: float
    t_init_top: float
    t_init_traj: float
    t_before: float
    t_blocks: float
    t_after: float
    t_comm: float
    workers: list[WorkerTiming]
    over_workers: dict[str, Spread]
    shares: dict[str, float]
    R_comp_IO: float
    R_comp_comm: float
    imbalance: float
    bytes_read: int
    calls: int
    bytes_used: int
    read_per_used: float
    read_rate: float
    stragglers: list[Straggler]
    abandoned: list[DuplicateAttempt]

    def to_dict(self) -> dict[str, Any]:
        """The same as dicts, lists, strings and numbers, None for what is not a finite number.

        Returns
        -------
        dict
            `json.dumps` takes it, and what it writes is JSON also to the letter.
        """
        return _plain(asdict(self))


def report_of(timings: RunTimings) -> Report:
    """Compute the numbers that tell why a run was as fast as it was.

    Parameters
    ----------
    timings : Timings
        Of the run.

    Returns
    -------
    Report

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> from paceline.analysis.rms import RMSF
    >>> protein = paceline.Universe(PSF, DCD).select_atoms("protein")
    >>> report = report_of(RMSF(protein).run(backend="serial").timings)
    >>> report.n_frames, report.n_workers, report.stragglers
    (98, 1, [])
    >>> round(sum(report.shares.values()), 6)
    1.0
    """
    workers = timings.workers()
    last = timings.last
    t_blocks = (last - timings.dealt) / 1e9
    over_workers = {
        name: _spread([getattr(worker, name) for worker in workers]) for name in PARTS + BESIDE
    }
    wall = sum(over_workers[name].mean for name in PARTS)
    computing = over_workers["t_compute"].mean
    bytes_read = sum(worker.bytes for worker in workers)
    return Report(
        backend=timings.backend,
        schedule=timings.schedule,
        trajectory=timings.trajectory,
        n_workers=len(workers),
        n_asked=timings.n_workers,
        n_hosts=len({worker.host for worker in workers}),
        n_blocks=len(timings.blocks),
        n_frames=timings.n_frames,
        t_total=timings.t_total,
        t_init_top=timings.t_init_top,
        t_init_traj=timings.t_init_traj,
        t_before=(timings.dealt - timings.start) / 1e9,
        t_blocks=t_blocks,
        t_after=(timings.end - last) / 1e9,
        t_comm=timings.t_comm,
        workers=workers,
        over_workers=over_workers,
        shares={name: _ratio(over_workers[name].mean, wall) for name in PARTS},
        R_comp_IO=_ratio(computing, over_workers["t_io"].mean + over_workers["t_decode"].mean),
        R_comp_comm=_ratio(computing, timings.t_comm),
        imbalance=_ratio(t_blocks, t_blocks - over_workers["t_wait_last"].mean),
        bytes_read=bytes_read,
        calls=sum(worker.calls for worker in workers),
        bytes_used=timings.bytes_used,
        read_per_used=_ratio(bytes_read, timings.bytes_used or math.nan),
        read_rate=_ratio(bytes_read, t_blocks),
        stragglers=find_stragglers(timings),
        abandoned=list(timings.abandoned),
    )


def on_one_clock(timings: RunTimings) -> tuple[RunTimings, list[str]]:
    """Move the blocks of hosts that were not within the run, to end with it.

    A run does this by itself while it goes on, and better; where it could not, as for timings that
    were put together by hand, at least lengths are right. Returns the hosts that were moved, too.
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
    blocks = [moved(block, shifts.get(hosts[block.worker], 0)) for block in timings.blocks]
    abandoned = [
        replace(one, timing=moved(one.timing, shifts.get(host_of(one.timing.worker), 0)))
        for one in timings.abandoned
    ]
    return replace(timings, end=end, blocks=blocks, abandoned=abandoned), list(shifts)


def _spread(values: Iterable[float]) -> Spread:
    values = list(values)
    return Spread(sum(values) / len(values), max(values)) if values else Spread(0.0, 0.0)


def _ratio(above: float, below: float) -> float:
    """NaN for nothing over nothing, infinite for something over nothing."""
    if below > 0 or math.isnan(below):
        return above / below
    return math.inf if above > 0 else math.nan


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
