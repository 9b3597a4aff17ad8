"""Collect the results that ranks kept on the coordinator, in few messages a rank; give all ranks.

Rows and records by Gatherv (Khoshlessan et al. 2020, Algorithm 1) or by each rank into their
places in a window on the coordinator's memory (what Global Arrays did in their Algorithm 2);
partial results over a binary tree of ranks, siblings where they meet. Where every rank is to have
the results, those of one host share memory for them.
"""

import contextlib
import io
import math
import mmap
import os
import pickle
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import cloudpickle
import numpy as np
from mpi4py import MPI

from paceline._util.os_calls import SharedFile, memory_file
from paceline.backends.mpi.comm import Comm, RankErrors, pack, unpack
from paceline.engine.collect import RecordLog
from paceline.engine.reduce import TreeReduction, joined
from paceline.engine.result_arrays import allocate, are_unread, like_others
from paceline.engine.tasks import AnyJob, BlockResult, CollectedResult, Job, Records
from paceline.errors import PacelineError, WorkerError
from paceline.performance.record import moved

#: Bytes that are gathered at a time, beside the memory in which they end.
ROUND = 2**25
#: Arrays of so many bytes, or more, are in memory that ranks of a host share. Those of a run take
#: a descriptor of an open file, so small ones are copied.
SHARED = 2**22
#: Such arrays begin at a multiple of so many bytes.
_ALIGNMENT = 64

#: A column of a job: its times, under None, or rows of an analysis, under its number; of one that
#: gives records, their counts.
ColumnKey = tuple[int, int | None]
Columns = dict[ColumnKey, np.ndarray | None]
#: First row and number of rows of each run of neighbours, shape (n_runs, 2), of each job.
RowRanges = dict[int, np.ndarray]


class LocalResults:
    """Rows, records and merged partial results of one rank.

    A block's result is held back until it is known that no other rank did the block sooner.
    `clock_offset` (ns) is added to this host's clock to give the coordinator's.
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

    def hold(self, result: BlockResult) -> BlockResult:
        """Hold a result; return what of it is sent, with values where they are wanted at once."""
        self._held.append(result)
        timings = [moved(timing, self._clock_offset) for timing in result.timings]
        if self._jobs[result.job].streamed:
            return replace(result, timings=timings)
        return replace(result, values=None, times=None, timings=timings)

    def settle(self, accepted: Sequence[bool]) -> None:
        """Keep or drop results, in the order in which they were held.

        Raises `AnalysisError` where rows of blocks are not alike.
        """
        for counts in accepted:
            result = self._held.popleft()
            if counts and result.job in self.jobs:
                self.jobs[result.job].add(result)

    def drop(self) -> None:
        """Drop all results."""
        self._held.clear()
        self.jobs.clear()


class JobResults:
    """Rows, records and merged partial results of one job on one rank.

    `n_blocks` are those of all ranks.
    """

    def __init__(self, job: Job, n_blocks: int):
        self.parts = job.analyses
        self._ranges: list[tuple[int, int]] = []
        self._times: list[np.ndarray] = []
        self._rows: dict[int, list[np.ndarray]] = {
            k: [] for k, part in enumerate(job.analyses) if not (part.reduces or part.ragged)
        }
        #: Records, by the number of their analysis.
        self.logs = {k: RecordLog(part) for k, part in enumerate(job.analyses) if part.ragged}
        #: Partial results, by the number of their analysis.
        self.trees = {
            k: TreeReduction(n_blocks, part.merge)
            for k, part in enumerate(job.analyses)
            if part.reduces
        }

    def add(self, result: BlockResult) -> None:
        """Keep a block's result."""
        assert result.values is not None
        assert result.times is not None
        for k, rows in self._rows.items():
            own = result.values[k]
            known = next((one for one in rows if not are_unread(one)), None)
            if known is not None and not are_unread(own):
                self.parts[k].check_rows_match(own, known)
            rows.append(own)
        for k, log in self.logs.items():
            log.add(result, result.values[k])
        for k, tree in self.trees.items():
            tree.add(result.number, result.values[k], result.level)
        self._ranges.append((result.first, result.n_frames))
        self._times.append(result.times)

    def row_ranges(self) -> np.ndarray:
        """Join neighbours; return the first row and the number of rows of each, shape (n, 2)."""
        ranges: list[list[int]] = []
        for first, n_rows in sorted(self._ranges):
            if ranges and sum(ranges[-1]) == first:
                ranges[-1][1] += n_rows
            else:
                ranges.append([first, n_rows])
        return np.array(ranges, dtype=np.int64).reshape(-1, 2)

    def columns(self) -> dict[int | None, np.ndarray | None]:
        """Return arrays with one row a frame, in the order of `row_ranges`; None if empty.

        Times are under None, rows of each analysis, or counts of its records, under its number.
        """
        order = sorted(range(len(self._ranges)), key=self._ranges.__getitem__)
        if not order:
            return dict.fromkeys([None, *self._rows, *self.logs])
        found: dict[int | None, np.ndarray | None] = {
            None: np.concatenate([self._times[i] for i in order])
        }
        for k, blocks in self._rows.items():
            found[k] = joined(self.parts[k], [blocks[i] for i in order])
        return found | {k: log.counts() for k, log in self.logs.items()}


@dataclass(frozen=True)
class ColumnLayout:
    """Shape and type of a row of a column, and how many rows all ranks and the fullest have."""

    shape: tuple[int, ...]
    dtype: np.dtype
    n_rows: int
    most_rows: int

    @property
    def row_bytes(self) -> int:
        """Size of a row."""
        return math.prod(self.shape) * self.dtype.itemsize


def gather(
    comm: Comm, results: LocalResults, how: str, error: Exception | None = None
) -> list[CollectedResult]:
    """Collect what ranks kept on the coordinator; others return nothing. All ranks call it.

    `how` is "gather" or "one-sided"; with `error` this rank has nothing to give. The coordinator
    raises `AnalysisError`, `WorkerError` or `OSError` where a rank has an error, rows are not
    alike, partial results cannot be merged or sent, or memory for all is lacking.
    """
    ranges: RowRanges = {}
    columns: Columns = {}
    try:
        ranges = {number: kept.row_ranges() for number, kept in results.jobs.items()}
        columns = {
            (number, k): rows
            for number, kept in results.jobs.items()
            for k, rows in kept.columns().items()
        }
    except Exception as reason:  # records that waited may not be like others, or have no room
        error = error or reason.with_traceback(None)
    empty = {key: None if rows is None else rows[:0] for key, rows in columns.items()}
    whole: dict[ColumnKey, np.ndarray] = {}
    of_ranks: list[RowRanges] = []

    def allocate_all(gathered: list[tuple[RowRanges, Columns]]) -> dict[ColumnKey, ColumnLayout]:
        of_ranks[:] = [one for one, _ in gathered]
        layouts = _layouts(results, of_ranks, [one for _, one in gathered])
        for key, layout in layouts.items():
            whole[key] = allocate((layout.n_rows, *layout.shape), layout.dtype)
        return layouts

    errors = RankErrors(comm, catch=(Exception,))
    nothing: dict[ColumnKey, ColumnLayout] = {}
    layouts = errors.combine((ranges, empty), error, allocate_all, nothing)
    with comm.abort_on_error():
        for (number, k), layout in layouts.items():
            places = [one[number] for one in of_ranks]
            rows = columns[number, k]
            if rows is not None:
                rows = like_others(rows, layout.shape, layout.dtype)
            _bring(comm, how, rows, ranges[number], places, layout, whole.get((number, k)))
    records: dict[ColumnKey, np.ndarray] | None = {}
    if layouts:
        records = _gather_records(comm, results, how, errors, of_ranks, whole)
        if records is not None:
            _merge_up(comm, results)
    if not comm.is_coordinator:
        return []
    assert records is not None

    def value(number: int, kept: JobResults, k: int) -> Any:
        if k in kept.trees:
            return kept.trees[k].root
        rows = whole[number, k]
        return Records(rows, records.get((number, k))) if k in kept.logs else rows

    return [
        CollectedResult(
            number,
            [value(number, kept, k) for k in range(len(kept.parts))],
            whole[number, None],
        )
        for number, kept in results.jobs.items()
    ]


def _gather_records(
    comm: Comm,
    results: LocalResults,
    how: str,
    errors: RankErrors,
    of_ranks: Sequence[RowRanges],
    counts: Mapping[ColumnKey, np.ndarray],
) -> dict[ColumnKey, np.ndarray] | None:
    """Collect records on the coordinator, which has the counts of all frames.

    Others return nothing, or None where the coordinator raises.
    """
    logs = {
        (number, k): log for number, kept in results.jobs.items() for k, log in kept.logs.items()
    }
    if not logs:
        return {}
    own: Columns = {}
    error: Exception | None = None
    try:
        own = {key: log.ordered().records for key, log in logs.items()}
    except Exception as reason:
        error = reason.with_traceback(None)
    empty = {key: None if records is None else records[:0] for key, records in own.items()}
    whole: dict[ColumnKey, np.ndarray] = {}

    def lay_out(of_each: list[Columns]) -> dict[ColumnKey, tuple[ColumnLayout, list[np.ndarray]]]:
        layouts: dict[ColumnKey, tuple[ColumnLayout, list[np.ndarray]]] = {}
        for key in logs:
            alike = [records for one in of_each if (records := one[key]) is not None]
            if not alike:
                continue
            for records in alike:
                results.jobs[key[0]].parts[key[1]].check_rows_match(records, alike[0])
            ends = np.concatenate([[0], np.cumsum(counts[key])])
            places = []
            for ranges in of_ranks:
                rows = ranges[key[0]]
                firsts = ends[rows[:, 0]]
                places.append(np.column_stack([firsts, ends[rows.sum(axis=1)] - firsts]))
            most = max(int(one[:, 1].sum()) for one in places)
            layout = ColumnLayout(alike[0].shape[1:], alike[0].dtype, int(ends[-1]), most)
            whole[key] = allocate((layout.n_rows, *layout.shape), layout.dtype)
            layouts[key] = layout, places
        return layouts

    nothing: dict[ColumnKey, tuple[ColumnLayout, list[np.ndarray]]] | None = None
    layouts = errors.combine(empty, error, lay_out, nothing)
    if layouts is None:
        return None
    with comm.abort_on_error():
        for key, (layout, places) in layouts.items():
            _bring(comm, how, own[key], places[comm.rank], places, layout, whole.get(key))
    return whole


def _bring(
    comm: Comm,
    how: str,
    rows: np.ndarray | None,
    own: np.ndarray,
    places: Sequence[np.ndarray],
    layout: ColumnLayout,
    whole: np.ndarray | None,
) -> None:
    """Bring rows to their places in `whole`: `own`, of all ranks `places` on the coordinator."""
    data = np.empty(0, np.uint8) if rows is None else _bytes(rows)
    if how == "one-sided":
        _put(comm, data, own, layout, whole)
    else:
        _gatherv(comm, data, places, layout, whole)


def _layouts(
    results: LocalResults, ranges: Sequence[RowRanges], columns: Sequence[Columns]
) -> dict[ColumnKey, ColumnLayout]:
    """Find the layout of each column; raise where rows of ranks are not alike."""
    layouts = {}
    for number, k in columns[0]:
        alike = [rows for of_rank in columns if (rows := of_rank[number, k]) is not None]
        if k is not None:
            alike = [rows for rows in alike if not are_unread(rows)] or alike
            for rows in alike:
                results.jobs[number].parts[k].check_rows_match(rows, alike[0])
        n_rows = [int(of_rank[number][:, 1].sum()) for of_rank in ranges]
        row = alike[0]
        layouts[number, k] = ColumnLayout(row.shape[1:], row.dtype, sum(n_rows), max(n_rows))
    return layouts


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _gatherv(
    comm: Comm,
    data: np.ndarray,
    ranges: Sequence[np.ndarray],
    layout: ColumnLayout,
    whole: np.ndarray | None,
) -> None:
    """Gather rows of all ranks some at a time, and copy them to their places in `whole`."""
    size = layout.row_bytes
    if size == 0:
        return
    step = max(1, ROUND // (comm.size * size))
    for first in range(0, layout.most_rows, step):
        part = data[first * size : (first + step) * size]
        if whole is None:
            comm.gather_sized(part)
            continue
        runs = [list(_runs(of_rank, first, step)) for of_rank in ranges]
        counts = [size * sum(stop - start for start, stop in of_rank) for of_rank in runs]
        room = np.empty(sum(counts), np.uint8)
        comm.gather_sized(part, counts, room)
        rows, taken = room.view(layout.dtype).reshape(-1, *layout.shape), 0
        for start, stop in chain.from_iterable(runs):
            whole[start:stop] = rows[taken : (taken := taken + stop - start)]


def _runs(ranges: np.ndarray, skipped: int, n_rows: int) -> Iterator[tuple[int, int]]:
    """Yield first row and end of each run of neighbours among some of a rank's rows."""
    for first, length in ranges.tolist():
        start, stop = first + max(0, skipped), first + min(length, skipped + n_rows)
        if start < stop:
            yield start, stop
        skipped -= length


def _put(
    comm: Comm,
    data: np.ndarray,
    ranges: np.ndarray,
    layout: ColumnLayout,
    whole: np.ndarray | None,
) -> None:
    """Put each rank's rows straight to their places in `whole`, by one-sided communication."""
    size = layout.row_bytes
    if size == 0:
        return
    row = MPI.BYTE.Create_contiguous(size).Commit()
    window = MPI.Win.Create(None if whole is None else _bytes(whole), 1, comm=comm.intracomm)
    # All are here, so a fence is quick. Locks are not: the coordinator would have to poll often for
    # the others to get on, and was ten times slower.
    window.Fence()
    if len(ranges):
        # All runs of neighbours in one message, each with its place.
        target = row.Create_hindexed(ranges[:, 1].tolist(), (ranges[:, 0] * size).tolist()).Commit()
        window.Put([data, len(data) // size, row], 0, (0, 1, target))
        target.Free()
    window.Fence()
    window.Free()
    row.Free()


def _merge_up(comm: Comm, results: LocalResults) -> None:
    """Merge partial results of two ranks each, then of four, until the coordinator has all."""
    rank, step = comm.rank, 1
    trees = [tree for kept in results.jobs.values() for tree in kept.trees.values()]
    if not trees:
        return
    error: Exception | None = None
    while step < comm.size and rank % (2 * step) == 0:
        if rank + step < comm.size:
            data = comm.receive_bytes(rank + step)
            try:
                for tree, subtrees in zip(trees, unpack(data), strict=True):
                    for (level, number), value in subtrees.items():
                        tree.add(number, value, level)
            except PacelineError as reason:
                error = error or reason
            except Exception as reason:  # they cannot be opened
                error = error or _unsendable(reason)
        step *= 2
    if rank > 0:
        comm.send_bytes(rank - step, _packed([tree.waiting for tree in trees], error))
    elif error is not None:
        raise error


def _packed(subtrees: object, error: Exception | None) -> bytes:
    """Pack partial results or an error, or why they cannot be sent."""
    try:
        return pack(None, error) if error is not None else pack(subtrees)
    except Exception as reason:
        return pack(error=_unsendable(reason))


def _unsendable(error: Exception) -> WorkerError:
    reason = f"{type(error).__name__}: {error}"
    return WorkerError(f"partial results cannot be sent from rank to rank: {reason}")


class _ResultsPickler(cloudpickle.Pickler):
    """Pickles without the bytes of large arrays, also of those that are kept in a file."""

    def reducer_override(self, value: object) -> object:
        if type(value) is np.memmap:
            return np.asarray(value).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return super().reducer_override(value)


def pack_results(value: object) -> tuple[bytes, list[memoryview]]:
    """Pickle a value; return the bytes of its large arrays apart, not copied."""
    buffers: list[memoryview] = []

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes >= SHARED:
            buffers.append(view)
        return view.nbytes < SHARED

    file = io.BytesIO()
    _ResultsPickler(file, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=is_small).dump(value)
    return file.getvalue(), buffers


def broadcast(comm: Comm, packed: tuple[bytes, list[memoryview]] | None = None) -> Any:
    """Give the coordinator's packed value to all ranks, which call it together.

    Ranks of one host have its large arrays in the same memory: a page is copied for the rank that
    writes to it. MPI's own shared windows end for all ranks together, and what one writes there
    the others read; results do neither.
    """
    with comm.abort_on_error():
        data, buffers = packed or (None, [])
        sizes = pickle.loads(
            comm.broadcast(pickle.dumps([len(one) for one in buffers]) if packed else None)
        )
        pickled = comm.broadcast(data)
        starts = np.cumsum([0, *(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)]).tolist()
        is_large = sizes and comm.size > 1
        room = _broadcast_to_hosts(comm, buffers, starts) if is_large else memoryview(b"")
    if comm.is_coordinator:
        return None
    views = [room[start : start + size] for start, size in zip(starts, sizes, strict=False)]
    return pickle.loads(pickled, buffers=views)


def _broadcast_to_hosts(
    comm: Comm, buffers: Sequence[memoryview], starts: Sequence[int]
) -> memoryview:
    """Send bytes to one rank of each host, which shares them with the others; return them all."""
    host = Comm(MPI.Intracomm(comm.intracomm.Split_type(MPI.COMM_TYPE_SHARED)))
    firsts = comm.intracomm.Split(0 if host.is_coordinator else MPI.UNDEFINED)
    with contextlib.ExitStack() as stack:
        stack.callback(host.free)
        n_bytes, file, room = starts[-1], None, None
        if host.is_coordinator:
            stack.callback(firsts.Free)
            file = memory_file(n_bytes) if host.size > 1 else None
            if file is not None:
                stack.callback(os.close, file)
            room = _memory(n_bytes) if file is None else memoryview(mmap.mmap(file, n_bytes))
            for buffer, start in zip(buffers, starts, strict=False):
                room[start : start + len(buffer)] = buffer
            Comm(MPI.Intracomm(firsts)).broadcast_into(room)
        if host.size == 1:
            assert room is not None
            return room
        return _share_on_host(host, file, room, n_bytes)


def _share_on_host(
    host: Comm, file: int | None, room: memoryview | None, n_bytes: int
) -> memoryview:
    """Map the first rank's file on all ranks of a host; where one cannot, copy its bytes."""
    own = None if file is None else SharedFile.of(file)
    shared = pickle.loads(host.broadcast(pickle.dumps(own) if host.is_coordinator else None))
    mapped = None
    if shared is not None:
        with contextlib.suppress(OSError), shared.open() as opened:
            mapped = mmap.mmap(opened.fileno(), n_bytes, access=mmap.ACCESS_COPY)
    all_mapped = np.array([mapped is not None], dtype=np.uint64)
    host.all_reduce(all_mapped, "min")
    if all_mapped[0]:
        assert mapped is not None
        return memoryview(mapped)
    copied = _memory(n_bytes)
    if room is not None:
        copied[:] = room
    host.broadcast_into(copied)
    return copied


def _memory(n_bytes: int) -> memoryview:
    """Memory of this process alone."""
    return memoryview(mmap.mmap(-1, n_bytes, access=mmap.ACCESS_COPY))
