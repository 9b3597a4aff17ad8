"""Derive quantities that describe a run's speed, and find its slow workers, from its timings.

Names are those of Khoshlessan et al. 2020, Table 3 and equations 4 to 8, as far as they apply.
Units are seconds and bytes.

A worker is slow if its time per frame is long. With dynamic scheduling, a slow worker processes
fewer blocks, and all workers end together. Khoshlessan et al. 2020 (section 6.1) define a straggler
as a rank that takes about twice as long as the group that finished first.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from paceline._util.json_types import JsonObject
from paceline.performance.record import (
    AT_BLOCKS,
    COMM,
    WAIT,
    WALL_TIME,
    Columns,
    DuplicateAttempt,
    RunTimings,
    WorkerTiming,
    host_of,
)

#: A worker is a straggler by the rule "median" if its time per frame exceeds the median by this
#: factor.
OF_MEDIAN = 1.5
#: A worker is a straggler by the rule "fastest quarter" if its time per frame exceeds the mean of
#: the fastest quarter of workers by this factor.
OF_FASTEST = 2.0
#: Minimum time that a straggler loses, s; smaller losses may be chance.
NOTICEABLE = 0.1

#: Names of the causes of slowness, by attribute of `BlockTiming`, or "overhead"; "hang" is not an
#: attribute, but the cause of a block that never ended.
CAUSES = {part.attribute: part.activity for part in (*AT_BLOCKS, WAIT, COMM)} | {"hang": "hanging"}


@dataclass(frozen=True)
class Straggler:
    """Slow worker.

    Attributes
    ----------
    worker, host : str
        Names of the worker and of its host.
    factor : float
        Ratio of the worker's time to that of the median worker for the same frames.
    factor_fastest : float
        Ratio of the worker's time to that of the fastest quarter of workers.
    rules : tuple of str
        Rules by which the worker is slow: "median" if `factor` exceeds 1.5; "fastest quarter" if
        `factor_fastest` exceeds 2.
    cause : str
        Component with the largest excess over the usual time. The usual time is the median, or that
        of the fastest quarter if the worker is slow only by that rule. Values are opening, reading,
        decoding, transforming, computing, overhead, waiting, communicating, or hanging (a block
        never ended).
    seconds_lost : float
        Excess over the time of a worker of usual speed, s.
    excess : dict of str to float
        Excess by cause, s; negative if the worker is faster.
    n_frames : int
        Number of attempted frames.
    """

    worker: str
    host: str
    factor: float
    factor_fastest: float
    rules: tuple[str, ...]
    cause: str
    seconds_lost: float
    excess: dict[str, float]
    n_frames: int


@dataclass
class _Spent:
    """Time by cause, ns, that a worker, or a worker of usual speed, spent on one trajectory."""

    n_frames: int
    parts: np.ndarray
    #: Time per frame, ns.
    pace: float


#: Time per frame of a worker of usual speed, by rule and number of the trajectory.
_Usual = Mapping[str, Mapping[int, _Spent]]


def find_stragglers(run: RunTimings) -> list[Straggler]:
    """Find workers that are slow by the rule "median" or "fastest quarter"; most lost time first.

    With two workers, the faster one counts as the median, so that the slower one can be a
    straggler. Frames are compared only with frames of the same trajectory.

    Examples
    --------
    >>> from paceline.timing import BlockTiming
    >>> nothing = dict.fromkeys(("wait", "open", "read", "decode", "transform", "comm"), 0)
    >>> blocks = [
    ...     BlockTiming(0, k, 10 * k, 10, f"node{k}:1:1", 0, length, compute=length, bytes=0,
    ...                 calls=1, **nothing)
    ...     for k, length in enumerate([10**9, 10**9, 3 * 10**9])
    ... ]
    >>> (slow,) = find_stragglers(RunTimings(blocks=blocks))
    >>> slow.host, slow.cause, slow.factor, slow.seconds_lost
    ('node2', 'computing', 3.0, 2.0)
    """
    if not run.blocks:
        return []
    spent = _spent(run)
    by_job: dict[int, list[_Spent]] = {}
    for own in spent.values():
        for job, one in own.items():
            by_job.setdefault(job, []).append(one)
    usual = {
        "median": {job: _median(some) for job, some in by_job.items()},
        "fastest quarter": {job: _fastest(some) for job, some in by_job.items()},
    }
    _add_hanging(spent, usual["median"], run.abandoned)
    if len(spent) < 2:
        return []
    found = (_straggler(worker, spent[worker], usual) for worker in sorted(spent))
    slow = [straggler for straggler in found if straggler is not None]
    return sorted(slow, key=lambda straggler: -straggler.seconds_lost)


def _spent(run: RunTimings) -> dict[str, dict[int, _Spent]]:
    """Sum the blocks that ended, by worker and trajectory.

    Blocks whose results came too late to be used are included.
    """
    columns = Columns([*run.blocks, *(attempt.timing for attempt in run.abandoned if attempt.came)])
    n_workers = len(columns.workers)
    keys, groups = np.unique(columns["job"] * n_workers + columns.worker, return_inverse=True)
    counted = {"wait": _waits(columns, run), "comm": _last_comm(columns), "hang": 0 * groups}
    values = [counted[name] if name in counted else columns[name] for name in CAUSES]
    parts = np.stack([np.bincount(groups, one, len(keys)) for one in values], axis=1)
    n_frames = columns.sums("n_frames", groups, len(keys))
    spent: dict[str, dict[int, _Spent]] = {}
    for key, own, n in zip(keys.tolist(), parts, n_frames.astype(int).tolist(), strict=True):
        job, worker = divmod(key, n_workers)
        spent.setdefault(columns.workers[worker], {})[job] = _Spent(n, own, own.sum() / n)
    return spent


def _waits(columns: Columns, run: RunTimings) -> np.ndarray:
    """Return the idle time of each block's worker before the block, ns.

    With dynamic assignment, three kinds of idle time count as 0: before a worker's first block,
    because a process may have to start; before blocks that were assigned twice; and before the
    block that started last in the run, because there was no other work.
    """
    order = np.lexsort((columns["start"], columns.worker))
    worker, start, end = columns.worker[order], columns["start"][order], columns["end"][order]
    follows = worker[1:] == worker[:-1]
    waits = np.zeros(len(order), np.int64)
    waits[order[1:]] = np.where(follows, start[1:] - end[:-1], 0)
    if run.schedule == "static":
        firsts = order[np.concatenate(([True], ~follows))]
        waits[firsts] = columns["start"][firsts] - run.dealt
        return waits
    twice = {(attempt.timing.job, attempt.timing.block) for attempt in run.abandoned}
    keys = zip(columns["job"].tolist(), columns["block"].tolist(), strict=True)
    once = np.array([key not in twice for key in keys] if twice else np.ones(len(order)), bool)
    last_dealt = columns["start"][once].max(initial=run.dealt)
    return np.where(once & (columns["start"] < last_dealt), waits, 0)


def _last_comm(columns: Columns) -> np.ndarray:
    """Return the transit time of the results of each worker's last block, ns; 0 for other blocks.

    Results of other blocks cost the worker no time, because it processed its next block meanwhile.
    """
    order = np.lexsort((columns["end"], columns.worker))
    worker = columns.worker[order]
    lasts = order[np.concatenate((worker[1:] != worker[:-1], [True]))]
    comm = np.zeros(len(order), np.int64)
    comm[lasts] = columns["comm"][lasts]
    return comm


def _median(of_job: Sequence[_Spent]) -> _Spent:
    """Return the median time per frame, and the median of each component.

    Of two middle values, the lower one is the median.
    """
    paces = np.array([[one.pace, *one.parts / one.n_frames] for one in of_job])
    pace, *parts = np.sort(paces, axis=0)[(len(of_job) - 1) // 2]
    return _Spent(1, np.array(parts), pace)


def _fastest(of_job: Sequence[_Spent]) -> _Spent:
    """Return the mean time per frame of the fastest quarter, and the mean of each component."""
    quickest = sorted(of_job, key=lambda spent: spent.pace)[: math.ceil(len(of_job) / 4)]
    n_frames = sum(spent.n_frames for spent in quickest)
    parts = np.sum([spent.parts for spent in quickest], axis=0) / n_frames
    return _Spent(1, parts, parts.sum())


def _add_hanging(
    spent: dict[str, dict[int, _Spent]],
    usual: Mapping[int, _Spent],
    abandoned: Iterable[DuplicateAttempt],
) -> None:
    """Add attempts that never ended to `spent`, if they took longer than usual."""
    for attempt in abandoned:
        timing = attempt.timing
        length = timing.end - timing.start
        if attempt.came or not timing.worker or timing.job not in usual:
            continue
        if length > usual[timing.job].pace * timing.n_frames:
            nothing = _Spent(0, np.zeros(len(CAUSES)), 0.0)
            own = spent.setdefault(timing.worker, {}).setdefault(timing.job, nothing)
            own.n_frames += timing.n_frames
            own.parts[-1] += length


def _straggler(worker: str, own: Mapping[int, _Spent], usual: _Usual) -> Straggler | None:
    """Describe a worker as a straggler; None if it is not slow."""
    took = float(sum(spent.parts.sum() for spent in own.values()))
    expected = {
        rule: float(sum(of_rule[job].pace * spent.n_frames for job, spent in own.items()))
        for rule, of_rule in usual.items()
    }
    rules = tuple(
        rule
        for rule, limit in (("median", OF_MEDIAN), ("fastest quarter", OF_FASTEST))
        if took > limit * expected[rule] and took - expected[rule] >= NOTICEABLE * 1e9
    )
    if not rules:
        return None
    usual_parts = usual[rules[0]]
    beyond = sum(one.parts - usual_parts[job].parts * one.n_frames for job, one in own.items())
    excess = dict(zip(CAUSES.values(), (np.asarray(beyond) / 1e9).tolist(), strict=True))
    factors = [took / one if one else math.inf for one in expected.values()]
    return Straggler(
        worker=worker,
        host=host_of(worker),
        factor=factors[0],
        factor_fastest=factors[1],
        rules=rules,
        cause=max(excess, key=excess.__getitem__),
        seconds_lost=(took - expected[rules[0]]) / 1e9,
        excess=excess,
        n_frames=sum(spent.n_frames for spent in own.values()),
    )


#: Quantities of a worker that add up to its wall time, s.
PARTS = tuple(part.quantity for part in WALL_TIME)
#: Further quantities of a worker, which overlap with those in `PARTS`.
BESIDE = ("t_wait_first", "t_wait_last", "t_work", COMM.quantity)
#: Meanings of the whole run's quantities, for readers of a report.
OF_RUN = {
    "t_total": "the whole run",
    "t_init_top": "parsing the topology, once, before the run",
    "t_init_traj": "opening the trajectory and its index, once, before the run",
    "t_before": "from the beginning of the run until blocks were first assigned",
    "t_blocks": "from then until the last block was done: the wall time of every worker",
    "t_after": "from then until the results were available",
    "t_comm": "receiving and merging results, in the process that collects them",
    "R_comp_IO": "computing over reading and decoding: if much above 1, computing limits the "
    "speed, "
    "and more workers help; if much below 1, reading limits it",
    "R_comp_comm": "mean computing of a worker over communicating: much above 1, more workers pay",
    "imbalance": "the last worker's end over the mean of all workers' ends: 1 if all end together",
    "bytes_read": "requested from the files",
    "calls": "number of calls that requested these bytes",
    "bytes_cached": "read from a cache on local disks instead",
    "requests": "sent to object stores",
    "requests_repeated": "requests among them that repeat one that failed",
    "latency": "mean time to the beginning of a response",
    "t_stalled": "mean time that a worker waited for bytes of a store",
    "bytes_used": "size of the decoded numbers that the analyses used",
    "read_per_used": "bytes read per byte used: below 1 if the file is compressed, above 1 "
    "if it contains much unused data",
    "read_rate": "bytes read per second of t_blocks, by all workers together",
}


#: Quantities of a rank in Khoshlessan et al. 2020, Table 3, expressed by paceline's quantities of a
#: worker.
PUBLISHED = {
    "t_opening_trajectory": "t_init_traj",
    "t_IO": "t_io + t_decode",
    "t_comp": "t_transform + t_compute",
    "t_all_frame": "t_IO + t_comp + t_Overhead1",
    "t_Overhead1": "t_overhead, with t_end_loop, which no block has by itself",
    "t_Overhead2": "t_wait between blocks + t_abandoned",
    "t_RMSD": "t_opening_trajectory + t_all_frame + t_Overhead2: from the first block to the last",
    "t_comm": "t_wait_last + t_after: from the worker's last block until the results were there",
    "t_N": "t_RMSD + t_comm",
}


@dataclass(frozen=True)
class Spread:
    """Statistics of a quantity over the workers, s.

    Attributes
    ----------
    mean, most : float
        Mean over all workers, as in equations 4 to 6 of Khoshlessan et al. 2020, and maximum.
    """

    mean: float
    most: float


@dataclass(frozen=True)
class Report:
    """Quantities of a run, from its timings. Times are in seconds; unknown values are NaN.

    Attributes
    ----------
    backend, schedule, trajectory : str
        Attributes of the run's `paceline.timing.Timings`.
    n_workers : int
        Number of workers that processed a block.
    n_asked : int
        Number of workers for which blocks were planned.
    n_threads : int
        Largest number of threads that computed one frame together. Workers without a block help to
        compute frames of other workers.
    n_hosts : int
        Number of hosts on which the workers ran.
    n_blocks, n_frames : int
        Numbers of processed blocks and frames.
    t_total : float
        Time of the whole run.
    t_init_top, t_init_traj : float
        Times to parse the topology, and to open the trajectory and its index, once, before the
        run.
    t_before : float
        Time from the beginning of the run until blocks were first assigned.
    t_blocks : float
        Time from the first assignment to the end of the last block: the wall time of every worker.
    t_after : float
        Time from the end of the last block until the results were available.
    t_comm : float
        Time to receive and merge results, in the process that collects them.
    workers : list of WorkerTiming
        Sums for each worker.
    over_workers : dict of str to Spread
        Statistics of the workers' `t_init_traj`, `t_io`, `t_decode`, `t_transform`, `t_compute`,
        `t_overhead`, `t_abandoned` and `t_wait`, which add up to their wall time; and of
        `t_wait_first`, `t_wait_last`, `t_work` and `t_comm`.
    shares : dict of str to float
        Fractions, from 0 to 1, of the workers' wall time, for the components that add up to it.
    published : dict of str to Spread
        Statistics over the workers of the quantities of Khoshlessan et al. 2020, Table 3, by their
        names there: `PUBLISHED` has their definitions.
    R_comp_IO : float
        Ratio of computing to reading and decoding (equation 7); infinite without reading and
        decoding.
    R_comp_comm : float
        Ratio of a worker's mean computing time to `t_comm` (equation 8, which assumes that all
        ranks wait during communication).
    imbalance : float
        Ratio of the last worker's end to the mean end of all workers, both measured from the first
        assignment of blocks; 1 if all workers end together.
    bytes_read, calls : int
        Number of bytes requested from the files, and number of calls that requested them.
    bytes_cached : int
        Number of bytes read from a cache instead of the files.
    requests, requests_repeated : int
        Number of requests to object stores, and how many of them repeated a failed request.
    latency : float
        Mean time from a request until the response began, s; 0 without requests.
    t_stalled : float
        Mean time that a worker waited for bytes of a store, s.
    bytes_used : int
        Size of the decoded values that the analyses requested, bytes.
    read_per_used : float
        Ratio of `bytes_read` to `bytes_used`.
    read_rate : float
        Bytes read per second of `t_blocks`.
    stragglers : list of Straggler
        Slow workers, ordered by lost time.
    abandoned : list of DuplicateAttempt
        Attempts at blocks that other workers finished first.
    """

    backend: str
    schedule: str
    trajectory: str
    n_workers: int
    n_asked: int
    n_threads: int
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
    published: dict[str, Spread]
    R_comp_IO: float
    R_comp_comm: float
    imbalance: float
    bytes_read: int
    calls: int
    bytes_cached: int
    requests: int
    requests_repeated: int
    latency: float
    t_stalled: float
    bytes_used: int
    read_per_used: float
    read_rate: float
    stragglers: list[Straggler]
    abandoned: list[DuplicateAttempt]

    def to_dict(self) -> JsonObject:
        """Convert to dicts, lists, strings and numbers, with None for a number that is not finite.

        Returns
        -------
        dict
            Argument for `json.dumps`, which writes strictly valid JSON.
        """
        return _plain(asdict(self))


def report_of(timings: RunTimings) -> Report:
    """Compute the quantities that explain the speed of a run.

    Parameters
    ----------
    timings : Timings
        Timings of the run.

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
    requests = sum(block.requests for block in timings.blocks)
    return Report(
        backend=timings.backend,
        schedule=timings.schedule,
        trajectory=timings.trajectory,
        n_workers=len(workers),
        n_asked=timings.n_workers,
        n_threads=timings.n_threads,
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
        published=_published(workers, (timings.end - last) / 1e9),
        R_comp_IO=_ratio(computing, over_workers["t_io"].mean + over_workers["t_decode"].mean),
        R_comp_comm=_ratio(computing, timings.t_comm),
        imbalance=_ratio(t_blocks, t_blocks - over_workers["t_wait_last"].mean),
        bytes_read=bytes_read,
        calls=sum(worker.calls for worker in workers),
        bytes_cached=sum(block.cached for block in timings.blocks),
        requests=requests,
        requests_repeated=sum(block.repeated for block in timings.blocks),
        latency=_ratio(sum(block.latency for block in timings.blocks) / 1e9, requests or math.inf),
        t_stalled=_ratio(sum(block.stalled for block in timings.blocks) / 1e9, len(workers)),
        bytes_used=timings.bytes_used,
        read_per_used=_ratio(bytes_read, timings.bytes_used or math.nan),
        read_rate=_ratio(bytes_read, t_blocks),
        stragglers=find_stragglers(timings),
        abandoned=list(timings.abandoned),
    )


def _published(workers: Sequence[WorkerTiming], t_after: float) -> dict[str, Spread]:
    """Return the statistics over workers of the quantities in `PUBLISHED`, by name."""
    found: dict[str, list[float]] = {name: [] for name in PUBLISHED}
    for one in workers:
        reading, computing = one.t_io + one.t_decode, one.t_transform + one.t_compute
        between = one.t_wait - one.t_wait_first - one.t_wait_last + one.t_abandoned
        in_blocks = reading + computing + one.t_overhead
        whole, comm = one.t_init_traj + in_blocks + between, one.t_wait_last + t_after
        values = one.t_init_traj, reading, computing, in_blocks, one.t_overhead, between, whole
        for name, value in zip(PUBLISHED, (*values, comm, whole + comm), strict=True):
            found[name].append(value)
    return {name: _spread(values) for name, values in found.items()}


def _spread(values: Iterable[float]) -> Spread:
    values = list(values)
    return Spread(sum(values) / len(values), max(values)) if values else Spread(0.0, 0.0)


def _ratio(above: float, below: float) -> float:
    """Return a ratio; infinite for a positive number divided by 0, and NaN for 0/0."""
    if below > 0 or math.isnan(below):
        return above / below
    return math.inf if above > 0 else math.nan


def _plain(value: object) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
