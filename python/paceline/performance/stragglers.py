"""Find slow workers: by how much they are slow, and by which component of their time.

A worker is measured by its time per frame: if workers take blocks as they come free, a slow one
does fewer, and all end together. Khoshlessan et al. 2020 (section 6.1) call a rank a straggler
that takes about twice as long as the group that finished first.
"""

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from paceline.performance.components import AT_BLOCKS, COMM, WAIT
from paceline.performance.records import Columns, DuplicateAttempt, RunTimings, host_of

#: A worker whose seconds per frame exceed the median's by this factor is a straggler …
OF_MEDIAN = 1.5
#: … and so is one whose seconds per frame exceed those of the fastest quarter by this factor …
OF_FASTEST = 2.0
#: … if its frames took so many seconds more than at that pace; less is chance.
NOTICEABLE = 0.1

#: Causes of slowness by attribute; a worker hangs at a block that never comes.
CAUSES = {part.attribute: part.activity for part in (*AT_BLOCKS, WAIT, COMM)} | {"hang": "hanging"}


@dataclass(frozen=True)
class Straggler:
    """A worker that is slow.

    Attributes
    ----------
    worker, host : str
        Its name, and that of its host.
    factor : float
        Its time over that of a worker of median pace for the same frames.
    factor_fastest : float
        The same over the fastest quarter of the workers.
    rules : tuple of str
        By which it is slow: "median", if `factor` exceeds 1.5; "fastest quarter", if
        `factor_fastest` exceeds 2.
    cause : str
        Component that took it longest beyond what is usual, which is the median, or the fastest
        quarter where it is slow by that alone: opening, reading, decoding, transforming,
        computing, overhead, waiting, communicating, or hanging at a block that never came.
    seconds_lost : float
        Beyond the time of a worker of usual pace, s.
    excess : dict of str to float
        The same by cause, s; negative where it is quicker.
    n_frames : int
        Frames that it attempted.
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
    """Time of one worker on the frames of one job, ns by attribute."""

    n_frames: int = 0
    parts: Counter[str] = field(default_factory=Counter)

    @property
    def pace(self) -> float:
        return self.parts.total() / self.n_frames


@dataclass(frozen=True)
class _Usual:
    """Usual time of a frame of one job, ns, in all and by attribute."""

    pace: float
    parts: Mapping[str, float]


#: By job, by worker.
_Table = dict[int, dict[str, _Spent]]


def find_stragglers(run: RunTimings) -> list[Straggler]:
    """Workers that are slow by either rule, those first that lost most.

    Of two in the middle, the faster is the median: so one of two workers can be slow. Frames of
    several trajectories are compared each with those of their own.

    Examples
    --------
    >>> from paceline.performance.records import BlockTiming
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
    usual = {job: _median(of_job.values()) for job, of_job in spent.items()}
    fastest = {job: _fastest(of_job.values()) for job, of_job in spent.items()}
    _add_hanging(spent, usual, run.abandoned)
    workers = sorted({worker for of_job in spent.values() for worker in of_job})
    if len(workers) < 2:
        return []
    found = (_straggler(worker, spent, usual, fastest) for worker in workers)
    slow = [straggler for straggler in found if straggler is not None]
    return sorted(slow, key=lambda straggler: -straggler.seconds_lost)


def _spent(run: RunTimings) -> _Table:
    """Sum up what each worker spent on blocks that came, in time or too late."""
    columns = Columns([*run.blocks, *(attempt.timing for attempt in run.abandoned if attempt.came)])
    waits, comm = _waits(columns, run), _last_comm(columns)
    n_workers = len(columns.workers)
    keys, groups = np.unique(columns["job"] * n_workers + columns.worker, return_inverse=True)
    parts = {part.attribute: columns.sums(part.attribute, groups, len(keys)) for part in AT_BLOCKS}
    parts["wait"] = np.bincount(groups, waits, len(keys))
    parts["comm"] = np.bincount(groups, comm, len(keys))
    n_frames = columns.sums("n_frames", groups, len(keys))
    table: _Table = {}
    for k, (job, worker) in enumerate(zip(*divmod(keys, n_workers), strict=True)):
        of_group = Counter({part: float(of_groups[k]) for part, of_groups in parts.items()})
        spent = _Spent(int(n_frames[k]), of_group)
        table.setdefault(int(job), {})[columns.workers[worker]] = spent
    return table


def _waits(columns: Columns, run: RunTimings) -> np.ndarray:
    """Wait of each block's worker for it, ns, since it was done with its last one.

    Where blocks are assigned, the first does not count: a process may have to start. Nor do those
    blocks that were assigned twice, or after which none was assigned: there was nothing else to do.
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
    """Time that results of each worker's last block were on their way, ns; 0 of its others.

    Those travelled while it was at the next one.
    """
    order = np.lexsort((columns["end"], columns.worker))
    worker = columns.worker[order]
    lasts = order[np.concatenate((worker[1:] != worker[:-1], [True]))]
    comm = np.zeros(len(order), np.int64)
    comm[lasts] = columns["comm"][lasts]
    return comm


def _median(of_job: Collection[_Spent]) -> _Usual:
    """Median pace, and median of each part."""
    parts = {
        part: statistics.median_low(spent.parts[part] / spent.n_frames for spent in of_job)
        for part in CAUSES
    }
    return _Usual(statistics.median_low(spent.pace for spent in of_job), parts)


def _fastest(of_job: Collection[_Spent]) -> _Usual:
    """Mean pace of the fastest quarter, and of each part."""
    quickest = sorted(of_job, key=lambda spent: spent.pace)[: math.ceil(len(of_job) / 4)]
    n_frames = sum(spent.n_frames for spent in quickest)
    parts = {part: sum(spent.parts[part] for spent in quickest) / n_frames for part in CAUSES}
    return _Usual(sum(parts.values()), parts)


def _add_hanging(
    table: _Table, usual: Mapping[int, _Usual], abandoned: Iterable[DuplicateAttempt]
) -> None:
    """Count attempts that never came, where they took longer than is usual."""
    for attempt in abandoned:
        timing = attempt.timing
        length = timing.end - timing.start
        if attempt.came or not timing.worker or timing.job not in usual:
            continue
        if length > usual[timing.job].pace * timing.n_frames:
            spent = table[timing.job].setdefault(timing.worker, _Spent())
            spent.n_frames += timing.n_frames
            spent.parts["hang"] += length


def _straggler(
    worker: str, table: _Table, median: Mapping[int, _Usual], fastest: Mapping[int, _Usual]
) -> Straggler | None:
    """Describe a worker if it is slow."""
    own = {job: of_job[worker] for job, of_job in table.items() if worker in of_job}
    took = sum(spent.parts.total() for spent in own.values())
    at_median, at_fastest = (
        sum(usual[job].pace * spent.n_frames for job, spent in own.items())
        for usual in (median, fastest)
    )
    by_rule = {
        "median": took > OF_MEDIAN * at_median and took - at_median >= NOTICEABLE * 1e9,
        "fastest quarter": took > OF_FASTEST * at_fastest and took - at_fastest >= NOTICEABLE * 1e9,
    }
    if not any(by_rule.values()):
        return None
    usual, at_usual = (median, at_median) if by_rule["median"] else (fastest, at_fastest)
    excess = {name: _beyond(own, usual, part) / 1e9 for part, name in CAUSES.items()}
    return Straggler(
        worker=worker,
        host=host_of(worker),
        factor=took / at_median if at_median else math.inf,
        factor_fastest=took / at_fastest if at_fastest else math.inf,
        rules=tuple(rule for rule, slow in by_rule.items() if slow),
        cause=max(excess, key=excess.__getitem__),
        seconds_lost=(took - at_usual) / 1e9,
        excess=excess,
        n_frames=sum(spent.n_frames for spent in own.values()),
    )


def _beyond(own: Mapping[int, _Spent], usual: Mapping[int, _Usual], part: str) -> float:
    """Time of a worker on a part beyond what is usual for its frames, ns."""
    return sum(
        spent.parts[part] - usual[job].parts[part] * spent.n_frames for job, spent in own.items()
    )
