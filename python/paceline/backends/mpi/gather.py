"""Results that ranks kept, to the first: few messages a rank, however many blocks.

Rows by Gatherv (Khoshlessan et al. 2020, Algorithm 1) or by each rank into their places in a
window on the first rank's memory (what Global Arrays did in their Algorithm 2); partial results
over a binary tree of ranks, siblings where they meet.
"""

import math
import pickle
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import cloudpickle
import numpy as np
from mpi4py import MPI

from paceline.backends.mpi.comm import (
    PROMPT,
    broadcast,
    gather_objects,
    receive_bytes,
    send_bytes,
    unbroken,
    wait_for,
)
from paceline.errors import PacelineError, WorkerError
from paceline.schedule.collect import allocate
from paceline.schedule.reduce import Tree
from paceline.schedule.tasks import (
    AnyJob,
    BlockResult,
    CollectedResult,
    Job,
    merging,
    refuse_unlike,
)


class LocalResults:
    """Rows and merged partial results of one rank.

    An outcome is held back until it is known that no other rank did the block sooner.

    Parameters
    ----------
    jobs : sequence of Job or Calls
        Of the run.
    n_blocks : sequence of int
        Of each job.
    clock_offset : int
        What is added to this host's clock to have that of the first rank's, ns.
    """

    def __init__(self, jobs: Sequence[AnyJob], n_blocks: Sequence[int], clock_offset: int = 0):
        self._jobs = jobs
        self._clock_offset = clock_offset
        self._held: deque[BlockResult] = deque()
        self.jobs = {
            number: JobResults(job, n)
            for number, (job, n) in enumerate(zip(jobs, n_blocks, strict=True))
            if isinstance(job, Job) and not job.streamed
        }

    def report(self, outcome: BlockResult) -> BlockResult:
        """What travels of an outcome; the rest is held.

        Parameters
        ----------
        outcome : BlockResult
            Of a block that was done here.

        Returns
        -------
        BlockResult
            With values where the job's are wanted at once.
        """
        self._held.append(outcome)
        timings = [
            replace(
                timing,
                start=timing.start + self._clock_offset,
                end=timing.end + self._clock_offset,
            )
            for timing in outcome.timings
        ]
        if self._jobs[outcome.job].streamed:
            return replace(outcome, timings=timings)
        return replace(outcome, values=None, times=None, timings=timings)

    def settle(self, accepted: Sequence[bool]) -> None:
        """Keep outcomes, or let go of them.

        Parameters
        ----------
        accepted : sequence of bool
            Of each outcome, in the order of `report`, whether it counts.

        Raises
        ------
        AnalysisError
            Rows of blocks are not alike.
        """
        for counts in accepted:
            outcome = self._held.popleft()
            if counts and outcome.job in self.jobs:
                self.jobs[outcome.job].add(outcome)


class JobResults:
    """What a rank keeps of one job.

    Parameters
    ----------
    job : Job
        Which.
    n_blocks : int
        All, those of other ranks too.

    Attributes
    ----------
    parts : sequence of Part
        The job's.
    trees : dict of int to Tree
        Partial results, by the number of their part.
    """

    def __init__(self, job: Job, n_blocks: int):
        self.parts = job.parts
        self._places: list[tuple[int, int]] = []
        self._times: list[np.ndarray] = []
        self._rows: dict[int, list[np.ndarray]] = {
            k: [] for k, part in enumerate(job.parts) if not part.reduces
        }
        self.trees = {
            k: Tree(n_blocks, merging(part)) for k, part in enumerate(job.parts) if part.reduces
        }

    def add(self, outcome: BlockResult) -> None:
        """Keep a block."""
        assert outcome.values is not None
        assert outcome.times is not None
        for k, rows in self._rows.items():
            if rows:
                refuse_unlike(self.parts[k].name, outcome.values[k], rows[0])
            rows.append(outcome.values[k])
        for k, tree in self.trees.items():
            tree.add(outcome.number, outcome.values[k], outcome.level)
        self._places.append((outcome.first, outcome.n_frames))
        self._times.append(outcome.times)

    def places(self) -> np.ndarray:
        """Where rows belong, in the order of their places.

        Returns
        -------
        numpy.ndarray of int64, shape (n_runs, 2)
            Of each run of neighbours its first row, and how many there are.
        """
        runs: list[list[int]] = []
        for first, n_rows in sorted(self._places):
            if runs and sum(runs[-1]) == first:
                runs[-1][1] += n_rows
            else:
                runs.append([first, n_rows])
        return np.array(runs, dtype=np.int64).reshape(-1, 2)

    def columns(self) -> dict[int | None, np.ndarray | None]:
        """Arrays with one row a frame, in the order of `places`.

        Returns
        -------
        dict
            Times under None, rows of each analysis under its number; None where nothing was done.
        """
        order = sorted(range(len(self._places)), key=self._places.__getitem__)
        columns: list[tuple[int | None, list[np.ndarray]]] = [(None, self._times)]
        columns.extend(self._rows.items())
        return {
            k: np.concatenate([blocks[i] for i in order]) if order else None
            for k, blocks in columns
        }


#: Bytes that are gathered at a time, beside the memory in which they end.
ROUND = 2**25


@dataclass(frozen=True)
class Layout:
    """Of an array with one row a frame.

    Attributes
    ----------
    shape : tuple of int
        Of a row.
    dtype : numpy.dtype
    n_rows : int
        Of all ranks.
    most_rows : int
        Of the rank that has most.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    n_rows: int
    most_rows: int

    @property
    def row_bytes(self) -> int:
        """Size of a row."""
        return math.prod(self.shape) * self.dtype.itemsize


#: A column of a job: its times, under None, or rows of an analysis, under its number.
Key = tuple[int, int | None]
Columns = dict[Key, np.ndarray | None]
Places = list[dict[int, np.ndarray]]


def gather(
    comm: MPI.Intracomm,
    keeper: LocalResults,
    how: str,
    error: Exception | None = None,
) -> list[CollectedResult] | None:
    """Bring together what ranks kept. Every rank calls it, at about the same time.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Of all ranks.
    keeper : LocalResults
        This rank's.
    how : {"gather", "one-sided"}
        How rows come.
    error : Exception or None
        Why this rank has nothing to give.

    Returns
    -------
    list of CollectedResult or None
        Of each job that was kept; None on all ranks but the first.

    Raises
    ------
    AnalysisError, WorkerError, OSError
        On the first rank: rows of several ranks are not alike, partial results cannot be merged or
        sent, or there is no room for all.
    """
    with unbroken(comm):
        own = {number: kept.places() for number, kept in keeper.jobs.items()}
        columns = {
            (number, k): rows
            for number, kept in keeper.jobs.items()
            for k, rows in kept.columns().items()
        }
        empty = {key: None if rows is None else rows[:0] for key, rows in columns.items()}
        told = gather_objects(comm, error or (own, empty))
    layouts, whole, places = _agree(comm, keeper, told)
    with unbroken(comm):
        for (number, k), layout in layouts.items():
            rows = columns[number, k]
            data = np.empty(0, np.uint8) if rows is None else _bytes(rows)
            if how == "one-sided":
                _put(comm, data, own[number], layout, whole.get((number, k)))
            else:
                of_ranks = None if places is None else [of_rank[number] for of_rank in places]
                _gatherv(comm, data, of_ranks, layout, whole.get((number, k)))
    if layouts:
        _merge_up(comm, keeper)
    if comm.Get_rank() > 0:
        return None
    return [
        CollectedResult(
            number,
            [
                kept.trees[k].root if k in kept.trees else whole[number, k]
                for k in range(len(kept.parts))
            ],
            whole[number, None],
        )
        for number, kept in keeper.jobs.items()
    ]


def _agree(
    comm: MPI.Intracomm, keeper: LocalResults, told: list[Any] | None
) -> tuple[dict[Key, Layout], dict[Key, np.ndarray], Places | None]:
    """Layout of each column; on the first rank room for it, and the places of all ranks' rows.

    Nothing at all if something is amiss on any of them.
    """
    if told is None:
        return pickle.loads(broadcast(comm, None)), {}, None
    try:
        for one in told:
            if isinstance(one, Exception):
                raise one
        places, of_ranks = [list(every) for every in zip(*told, strict=True)]
        layouts = {key: _layout(key, keeper, of_ranks, places) for key in of_ranks[0]}
        whole = {
            key: allocate((layout.n_rows, *layout.shape), layout.dtype)
            for key, layout in layouts.items()
        }
    except Exception:
        broadcast(comm, pickle.dumps({}))
        raise
    broadcast(comm, pickle.dumps(layouts))
    return layouts, whole, places


def _layout(key: Key, keeper: LocalResults, of_ranks: Sequence[Columns], places: Places) -> Layout:
    number, k = key
    alike = [rows for of_rank in of_ranks if (rows := of_rank[key]) is not None]
    if k is not None:
        for rows in alike:
            refuse_unlike(keeper.jobs[number].parts[k].name, rows, alike[0])
    n_rows = [int(of_rank[number][:, 1].sum()) for of_rank in places]
    return Layout(alike[0].shape[1:], alike[0].dtype, sum(n_rows), max(n_rows))


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _gatherv(
    comm: MPI.Intracomm,
    data: np.ndarray,
    places: Sequence[np.ndarray] | None,
    layout: Layout,
    whole: np.ndarray | None,
) -> None:
    """Rows of all ranks, gathered some at a time and then put where they belong."""
    size = layout.row_bytes
    if size == 0:
        return
    step = max(1, ROUND // (comm.Get_size() * size))
    for first in range(0, layout.most_rows, step):
        part = [data[first * size : (first + step) * size], MPI.BYTE]
        if places is None or whole is None:
            wait_for(comm.Igatherv(part, None, 0), PROMPT)
            continue
        runs = [list(_runs(of_rank, first, step)) for of_rank in places]
        counts = [size * sum(stop - start for start, stop in of_rank) for of_rank in runs]
        room = np.empty(sum(counts), np.uint8)
        wait_for(comm.Igatherv(part, [room, counts, MPI.BYTE], 0), PROMPT)
        rows, taken = room.view(layout.dtype).reshape(-1, *layout.shape), 0
        for start, stop in chain.from_iterable(runs):
            whole[start:stop] = rows[taken : (taken := taken + stop - start)]


def _runs(places: np.ndarray, skipped: int, n_rows: int) -> Iterator[tuple[int, int]]:
    """First row and end of each run of neighbours among some rows of a rank, by their order."""
    for first, length in places.tolist():
        start, stop = first + max(0, skipped), first + min(length, skipped + n_rows)
        if start < stop:
            yield start, stop
        skipped -= length


def _put(
    comm: MPI.Intracomm,
    data: np.ndarray,
    places: np.ndarray,
    layout: Layout,
    whole: np.ndarray | None,
) -> None:
    """Rows of all ranks, each put straight to its place by the rank that has it."""
    size = layout.row_bytes
    if size == 0:
        return
    row = MPI.BYTE.Create_contiguous(size).Commit()
    window = MPI.Win.Create(None if whole is None else _bytes(whole), 1, comm=comm)
    # All are here, so a fence is quick. Locks are not: the first rank would have to look often for
    # the others to get on, and was ten times slower.
    window.Fence()
    if len(places):
        # All runs of neighbours in one message, each with its place.
        target = row.Create_hindexed(places[:, 1].tolist(), (places[:, 0] * size).tolist()).Commit()
        window.Put([data, len(data) // size, row], 0, (0, 1, target))
        target.Free()
    window.Fence()
    window.Free()
    row.Free()


def _merge_up(comm: MPI.Intracomm, keeper: LocalResults) -> None:
    """Merge partial results of two ranks each, then of four, until the first has all."""
    rank, size, step = comm.Get_rank(), comm.Get_size(), 1
    trees = [tree for kept in keeper.jobs.values() for tree in kept.trees.values()]
    if not trees:
        return
    error: Exception | None = None
    while step < size and rank % (2 * step) == 0:
        if rank + step < size:
            data = receive_bytes(comm, rank + step)
            try:
                theirs = pickle.loads(data)
                if isinstance(theirs, Exception):
                    raise theirs
                for tree, subtrees in zip(trees, theirs, strict=True):
                    for (level, number), value in subtrees.items():
                        tree.add(number, value, level)
            except PacelineError as reason:
                error = error or reason
            except Exception as reason:  # they cannot be opened
                error = error or _unsendable(reason)
        step *= 2
    if rank > 0:
        send_bytes(comm, rank - step, _pickled(error or [tree.waiting for tree in trees]))
    elif error is not None:
        raise error


def _pickled(message: Any) -> bytes:
    """Partial results, or an error; or why they cannot be sent."""
    try:
        return cloudpickle.dumps(message)
    except Exception as error:
        return cloudpickle.dumps(_unsendable(error))


def _unsendable(error: Exception) -> WorkerError:
    reason = f"{type(error).__name__}: {error}"
    return WorkerError(f"partial results cannot be sent from rank to rank: {reason}")
