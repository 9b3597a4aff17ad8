"""Collect the results of all ranks on the coordinator, and send them to all ranks if required.

Rows and records are collected by Gatherv (Khoshlessan et al. 2020, Algorithm 1), or each rank puts
them into a window on the coordinator's memory (as Global Arrays in their Algorithm 2). Partial
results are merged along a binary tree of ranks. If every rank needs the results, the ranks of one
host share the memory of large arrays.
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
from paceline.contract.analysis_kinds import MERGED, Kind, PartlyKept
from paceline.engine.collect import RecordLog
from paceline.engine.reduce import TreeReduction, join_rows
from paceline.engine.result_arrays import allocate, are_unread, replace_unread
from paceline.engine.tasks_and_results import AnyJob, BlockResult, CollectedResult, Job, Records
from paceline.errors import PacelineError, WorkerError
from paceline.performance.record import moved

#: Maximum number of bytes that are gathered in one step, in addition to the output arrays.
ROUND = 2**25
#: Minimum size of arrays for which the ranks of a host share memory, bytes. Smaller arrays are
#: copied, because the shared arrays of each run need an open file descriptor.
SHARED = 2**22
#: Alignment of the shared arrays, bytes.
_ALIGNMENT = 64

#: Key of a column: number of the job, and either None (for the times) or the number of an analysis.
#: The column of an analysis contains its rows, or its numbers of records.
ColumnKey = tuple[int, int | None]
Columns = dict[ColumnKey, np.ndarray | None]
#: Numbers of the job, the block and the analysis of a part of a result that a rank stores.
Place = tuple[int, int, int]
#: First row and number of rows of each range of adjacent rows, shape (n_ranges, 2), by job.
RowRanges = dict[int, np.ndarray]


class LocalResults:
    """Rows, records and merged partial results of one rank.

    The result of a block is held back until it is known that no other rank finished the block
    sooner. `clock_offset` (ns) converts times of this host's clock to the coordinator's clock.
    """

    def __init__(
        self,
        jobs: Sequence[AnyJob],
        n_blocks: Sequence[int],
        clock_offset: int = 0,
        *,
        keeps: bool = False,
    ):
        self._jobs = jobs
        #: True if this process stores parts of results, and writes these parts itself.
        self._keeps = keeps
        self._kept: dict[Place, object] = {}
        self._clock_offset = clock_offset
        self._held: deque[BlockResult] = deque()
        self.jobs = {
            number: JobResults(job, n)
            for number, (job, n) in enumerate(zip(jobs, n_blocks, strict=True))
            if isinstance(job, Job) and not job.streamed
        }

    def hold(self, result: BlockResult) -> BlockResult:
        """Hold back a result; return the part to send, with values that are needed immediately."""
        if self._keeps and self._jobs[result.job].streamed:
            result = self._keep_parts(result)
        self._held.append(result)
        timings = [moved(timing, self._clock_offset) for timing in result.timings]
        if self._jobs[result.job].streamed:
            return replace(result, timings=timings)
        return replace(result, values=None, times=None, timings=timings)

    def settle(self, accepted: Sequence[bool]) -> None:
        """Store the accepted results and drop the others, in the order in which they were held.

        Raises `AnalysisError` if rows of different blocks have different shapes or dtypes.
        """
        for counts in accepted:
            result = self._held.popleft()
            if counts and result.job in self.jobs:
                self.jobs[result.job].add(result)
            if not counts:
                for place in [one for one in self._kept if one[:2] == (result.job, result.number)]:
                    del self._kept[place]

    def _keep_parts(self, result: BlockResult) -> BlockResult:
        """Store parts of the values of a block, and return the rest."""
        values = list(result.values or ())
        for k, analysis in enumerate(self._jobs[result.job].analyses):
            if isinstance(analysis.computation, PartlyKept):
                sent, kept = analysis.computation.keep(values[k][result.number])
                values[k] = {result.number: sent}
                if kept is not None:
                    self._kept[result.job, result.number, k] = kept
        return replace(result, values=values)

    def put(self, offsets: Sequence[tuple[Place, int]]) -> None:
        """Write the stored parts, given the offset of each part's block."""
        for place, offset in offsets:
            job, _, k = place
            self._jobs[job].analyses[k].computation.put(self._kept.pop(place), offset)

    def drop(self) -> None:
        """Delete all results that this rank stores."""
        self._held.clear()
        self._kept.clear()
        self.jobs.clear()


class JobResults:
    """Rows, records and merged partial results of one job on one rank.

    `n_blocks` is the total number of blocks on all ranks.
    """

    def __init__(self, job: Job, n_blocks: int):
        self.parts = job.analyses
        self._ranges: list[tuple[int, int]] = []
        self._times: list[np.ndarray] = []
        self._rows: dict[int, list[np.ndarray]] = {
            k: [] for k, part in enumerate(job.analyses) if part.kind in (Kind.ROWS, Kind.BLOCKS)
        }
        #: Records by number of the analysis.
        self.logs = {
            k: RecordLog(part) for k, part in enumerate(job.analyses) if part.kind is Kind.RECORDS
        }
        #: Partial results by number of the analysis.
        self.trees = {
            k: TreeReduction(n_blocks, part.merge)
            for k, part in enumerate(job.analyses)
            if part.kind in MERGED
        }

    def add(self, result: BlockResult) -> None:
        """Store the result of a block."""
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
        """Join adjacent blocks; return first row and number of rows of each range, shape (n, 2)."""
        ranges: list[list[int]] = []
        for first, n_rows in sorted(self._ranges):
            if ranges and sum(ranges[-1]) == first:
                ranges[-1][1] += n_rows
            else:
                ranges.append([first, n_rows])
        return np.array(ranges, dtype=np.int64).reshape(-1, 2)

    def columns(self) -> dict[int | None, np.ndarray | None]:
        """Return the columns, one row per frame, in the order of `row_ranges`; None if empty.

        The key None stands for times; the number of an analysis stands for its rows or numbers of
        records.
        """
        order = sorted(range(len(self._ranges)), key=self._ranges.__getitem__)
        if not order:
            return dict.fromkeys([None, *self._rows, *self.logs])
        found: dict[int | None, np.ndarray | None] = {
            None: np.concatenate([self._times[i] for i in order])
        }
        for k, blocks in self._rows.items():
            found[k] = join_rows(self.parts[k], [blocks[i] for i in order])
        return found | {k: log.counts() for k, log in self.logs.items()}


@dataclass(frozen=True)
class ColumnLayout:
    """Shape and dtype of a column's rows; total number of rows, and maximum number on one rank."""

    shape: tuple[int, ...]
    dtype: np.dtype
    n_rows: int
    most_rows: int

    @property
    def row_bytes(self) -> int:
        """Size of a row, bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def gather(
    comm: Comm, results: LocalResults, how: str, error: Exception | None = None
) -> list[CollectedResult]:
    """Collect the stored results of all ranks on the coordinator. All ranks call this function.

    `how` is "gather" or "one-sided". Only the coordinator returns results. If a rank passes an
    `error`, if rows have different shapes, if partial results cannot be merged or sent, or if
    memory is insufficient, the coordinator raises `AnalysisError`, `WorkerError` or `OSError`.
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
    except Exception as reason:  # held records may differ in shape, or exceed the memory
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
                rows = replace_unread(rows, layout.shape, layout.dtype)
            _gather_rows(comm, how, rows, ranges[number], places, layout, whole.get((number, k)))
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
    """Collect records on the coordinator; `counts` contains the record counts of all frames.

    Other ranks return an empty dict, or None if the coordinator raises.
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
            _gather_rows(comm, how, own[key], places[comm.rank], places, layout, whole.get(key))
    return whole


def _gather_rows(
    comm: Comm,
    how: str,
    rows: np.ndarray | None,
    own: np.ndarray,
    places: Sequence[np.ndarray],
    layout: ColumnLayout,
    whole: np.ndarray | None,
) -> None:
    """Collect rows in `whole`: `own` are the ranges of this rank, `places` those of all ranks."""
    data = np.empty(0, np.uint8) if rows is None else _bytes(rows)
    if how == "one-sided" and comm.size > 1:  # Open MPI 4 has no windows of one rank
        _put_rows(comm, data, own, layout, whole)
    else:
        _gatherv(comm, data, places, layout, whole)


def _layouts(
    results: LocalResults, ranges: Sequence[RowRanges], columns: Sequence[Columns]
) -> dict[ColumnKey, ColumnLayout]:
    """Return the layout of each column; raise if rows of different ranks do not match."""
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
    """Gather rows of all ranks in steps, and copy each step into `whole`."""
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
    """Yield start and stop of each range of adjacent rows among `n_rows` rows after `skipped`."""
    for first, length in ranges.tolist():
        start, stop = first + max(0, skipped), first + min(length, skipped + n_rows)
        if start < stop:
            yield start, stop
        skipped -= length


def _put_rows(
    comm: Comm,
    data: np.ndarray,
    ranges: np.ndarray,
    layout: ColumnLayout,
    whole: np.ndarray | None,
) -> None:
    """Put each rank's rows directly into `whole` on the coordinator, by one-sided communication."""
    size = layout.row_bytes
    if size == 0:
        return
    row = MPI.BYTE.Create_contiguous(size).Commit()
    window = MPI.Win.Create(None if whole is None else _bytes(whole), 1, comm=comm.intracomm)
    # All ranks call this function together, so a fence is fast. Locks are slow: the coordinator
    # would have to poll often to let the others progress, and was ten times slower.
    window.Fence()
    if len(ranges):
        # One message contains all ranges of rows, each with its offset in `whole`.
        target = row.Create_hindexed(ranges[:, 1].tolist(), (ranges[:, 0] * size).tolist()).Commit()
        window.Put([data, len(data) // size, row], 0, (0, 1, target))
        target.Free()
    window.Fence()
    window.Free()
    row.Free()


def _merge_up(comm: Comm, results: LocalResults) -> None:
    """Merge partial results along a binary tree of ranks, until the coordinator has all."""
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
            except Exception as reason:  # the results cannot be unpickled
                error = error or _unsendable(reason)
        step *= 2
    if rank > 0:
        comm.send_bytes(rank - step, _pack_or_error([tree.waiting for tree in trees], error))
    elif error is not None:
        raise error


def _pack_or_error(subtrees: object, error: Exception | None) -> bytes:
    """Pack partial results, or an error: the one passed, or the reason why packing failed."""
    try:
        return pack(None, error) if error is not None else pack(subtrees)
    except Exception as reason:
        return pack(error=_unsendable(reason))


def _unsendable(error: Exception) -> WorkerError:
    reason = f"{type(error).__name__}: {error}"
    return WorkerError(f"partial results cannot be sent from rank to rank: {reason}")


class _ResultsPickler(cloudpickle.Pickler):
    """Pickler that leaves out the bytes of large arrays, including arrays stored in a file."""

    def reducer_override(self, value: object) -> object:
        if type(value) is np.memmap:
            return np.asarray(value).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return super().reducer_override(value)


def pack_results(value: object) -> tuple[bytes, list[memoryview]]:
    """Pickle a value; return its large arrays separately, without copying them."""
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
    """Return the coordinator's packed value on all ranks, which call this function together.

    Ranks of one host map the same memory for its large arrays. A page is copied when a rank writes
    to it. MPI's own shared windows do not suit results: a rank's write is visible to all ranks,
    and a window ends on all ranks at the same time.
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
    """Send bytes to one rank of each host, which shares them with the host; return them on all."""
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
    """Map the first rank's file on all ranks of a host; if a rank cannot, copy it to all ranks."""
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
    """Allocate memory that no other process shares."""
    return memoryview(mmap.mmap(-1, n_bytes, access=mmap.ACCESS_COPY))
