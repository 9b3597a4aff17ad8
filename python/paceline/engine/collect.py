"""Collect the results of blocks, which may arrive in any order."""

import math
import pickle
import tempfile
import time
from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import IO, Any

import numpy as np

from paceline.contract.analysis_kinds import Kind, Receiver
from paceline.contract.plan import STATES_BYTES, Plan
from paceline.engine import result_arrays
from paceline.engine.reduce import UNKNOWN_LENGTH, TreeReduction
from paceline.engine.result_arrays import (
    allocate,
    are_unread,
    file_of,
    in_file,
    in_memory,
    memory_limit,
    put_rows,
    unread_rows,
)
from paceline.engine.tasks_and_results import (
    BlockResult,
    CollectedResult,
    LongBonds,
    Records,
    WorkerAnalysis,
)
from paceline.errors import AnalysisError, UnsupportedError
from paceline.performance.number_format import amount, many
from paceline.performance.record import SENT_WITH_LATER, BlockTiming, DuplicateAttempt
from paceline.timing import Timings

#: Maximum size of records that wait for records of earlier frames, bytes. With a memory limit, the
#: maximum is `SMALL`.
AHEAD = 2**25
#: Maximum number of damaged frames in the list that a notebook shows.
LISTED = 10


class DamagedFrames(list[tuple[int, str]]):
    """Damaged frames that a run left out: frame number and reason of each."""

    def _repr_html_(self) -> str:
        from paceline.performance.html_elements import html_table, notebook_page

        title = f"{many(len(self), 'damaged frame')} left out"
        if not self:
            return notebook_page("No damaged frames")
        rows = [(f"{frame:,}", reason) for frame, reason in self[:LISTED]]
        caption = f"The first {LISTED} are listed." if len(self) > LISTED else ""
        return notebook_page(title, html_table(("frame", "reason"), rows, about=caption))


@dataclass(frozen=True)
class RowRange:
    """Results of rows `first` to `stop` of the run: times (ps), and the rows of each analysis.

    If an analysis returns any number of records per frame, its rows are a `RecordRange`; in a range
    that was read from a checkpoint, they are a tuple (counts, records).
    """

    first: int
    stop: int
    times: np.ndarray
    rows: list[Any]


@dataclass(frozen=True)
class Record:
    """Results of one pass, collected between two cursors. `Collected.restore` reads them."""

    #: Rows of all frames that were collected.
    ranges: list[RowRange] = field(default_factory=list)
    #: Merged partial results of each new subtree of blocks, by (level, number).
    nodes: dict[tuple[int, int], Any] = field(default_factory=dict)
    #: Frames that were left out: number and reason of each.
    damaged: list[tuple[int, str]] = field(default_factory=list)
    #: Timings of the blocks that were collected.
    timings: list[BlockTiming] = field(default_factory=list)
    #: Summary of the long bonds of each block that has any.
    long_bonds: list[LongBonds] = field(default_factory=list)


@dataclass(frozen=True)
class Cursor:
    """Position in the sequence of collected results: the numbers of results collected by then."""

    n_frames: int = 0
    ranges: int = 0
    damaged: int = 0
    timings: int = 0
    long_bonds: int = 0
    nodes: frozenset[tuple[int, int]] = frozenset()


class Collected:
    """Results of all completed blocks of one pass; `number` is the number of the pass in the run.

    Results are in the order of the analyses. If an analysis returns one result per block, its
    receiver gets these results. `timings` gets the timing of each block and the time of collecting.
    """

    def __init__(
        self,
        number: int,
        plan: Plan,
        analyses: Sequence[WorkerAnalysis],
        receivers: Sequence[Receiver | None],
        timings: Timings,
    ):
        self._number = number
        self._plan = plan
        self._timings = timings
        self._collectors = [
            _collector(plan, analysis, receiver)
            for analysis, receiver in zip(analyses, receivers, strict=True)
        ]
        self._rows = [one for one in self._collectors if isinstance(one, _Rows | RecordLog)]
        self._merged = [one for one in self._collectors if isinstance(one, _Merged)]
        self.times = np.empty(len(plan.frames))
        self.damaged: list[tuple[int, str]] = []
        self.long_bonds: list[LongBonds] = []
        self._ranges: list[tuple[int, int]] = []
        self._n_held = 0

    def hold_last(self, n_blocks: int) -> None:
        """Postpone the last `n_blocks` blocks: `missing` omits them until `release_last` is called.

        Until then, `since` returns only merged results of complete subtrees of the merge tree.
        These stay valid if the run later gets more blocks.
        """
        self._n_held = n_blocks
        for merged in self._merged:
            merged.regrow(None)

    def release_last(self) -> None:
        """End the postponement: the postponed blocks are now the last blocks of this run."""
        self._n_held = 0
        for merged in self._merged:
            merged.regrow(len(self._plan))

    def add(self, result: BlockResult) -> None:
        """Store the results of one or several blocks at their rows."""
        begun = time.monotonic_ns()
        if result.values is not None:
            for collector, value in zip(self._collectors, result.values, strict=True):
                collector.add(result, value)
            stop = result.first + result.n_frames
            self.times[result.first : stop] = result.times
            self._ranges.append((result.first, stop))
        self.damaged.extend(result.damaged)
        self.long_bonds.extend(result.long_bonds)
        done = time.monotonic_ns()
        timings = [replace(timing, job=self._number, comm=0) for timing in result.timings]
        # Results that arrive together were sent when the last block was done. If the clock of the
        # worker's host has drifted by more than the latency, this end is later than the arrival.
        if timings and result.timings[-1].comm != SENT_WITH_LATER:
            timings[-1] = replace(timings[-1], comm=max(0, done - timings[-1].end))
        self._timings.blocks.extend(timings)
        self._timings.t_comm += (done - begun) / 1e9

    def add_duplicate(self, attempt: DuplicateAttempt) -> None:
        """Record an attempt at a block; the block's result came from another attempt."""
        timing = replace(attempt.timing, job=self._number)
        self._timings.abandoned.append(replace(attempt, timing=timing))

    def add_collected(self, collected: CollectedResult, since: int) -> None:
        """Store the results of all blocks that the ranks stored until the end.

        `since` is the start of collecting, ns: the end of the last block, or the end of collecting
        the previous job.
        """
        for collector, value in zip(self._collectors, collected.values, strict=True):
            collector.put_all(value)
        self.times = collected.times
        self._timings.t_comm += (time.monotonic_ns() - since) / 1e9

    def since(self, cursor: Cursor) -> tuple[Record, Cursor]:
        """Return the results that came after a cursor, and a cursor at the current position.

        The record refers to the output arrays, and later results overwrite them. Copy or write the
        record at once.
        """
        ranges = [
            RowRange(
                first, stop, self.times[first:stop], [one.rows(first, stop) for one in self._rows]
            )
            for first, stop in _join_ranges(self._ranges[cursor.ranges :])
        ]
        trees = [merged.tree.waiting for merged in self._merged]
        keys = frozenset(trees[0] if trees else ())
        nodes = {key: [tree[key] for tree in trees] for key in keys - cursor.nodes}
        blocks = [block for block in self._timings.blocks if block.job == self._number]
        record = Record(
            ranges,
            nodes,
            self.damaged[cursor.damaged :],
            blocks[cursor.timings :],
            self.long_bonds[cursor.long_bonds :],
        )
        now = Cursor(
            self.n_frames,
            len(self._ranges),
            len(self.damaged),
            len(blocks),
            len(self.long_bonds),
            keys,
        )
        return record, now

    def restore(self, record: Record) -> None:
        """Restore all results of an earlier run; each subtree has one merged partial result."""
        for rows in record.ranges:
            for collector, values in zip(self._rows, rows.rows, strict=True):
                collector.put(rows.first, values)
            self.times[rows.first : rows.stop] = rows.times
            self._ranges.append((rows.first, rows.stop))
        for (level, number), values in record.nodes.items():
            for merged, value in zip(self._merged, values, strict=True):
                merged.tree.add(number, value, level)
        self.damaged.extend(record.damaged)
        self.long_bonds.extend(record.long_bonds)
        self._timings.blocks.extend(record.timings)

    @property
    def n_frames(self) -> int:
        """Number of frames collected so far."""
        return sum(stop - first for first, stop in self._ranges)

    def missing(self) -> np.ndarray:
        """Return the numbers of the blocks that are not done and not postponed."""
        missing = np.ones(len(self._plan), bool)
        for first, stop in self._ranges:
            missing[self._plan.number(first) : self._plan.number(stop - 1) + 1] = False
        missing[len(missing) - self._n_held :] = False
        return np.flatnonzero(missing)

    @property
    def values(self) -> list[Any]:
        """Result of each analysis: its rows; its offsets and records; or its merged result."""
        missing = np.isin(self._plan.frames, [frame for frame, _ in self.damaged])
        for one in self._rows:
            if isinstance(one, _Rows) and one.value is None:
                _, reason = min(self.damaged)
                raise UnsupportedError(f"{one.name}: no frame could be read; {reason}")
        return [collector.whole(missing) for collector in self._collectors]


def _collector(
    plan: Plan, analysis: WorkerAnalysis, receiver: Receiver | None
) -> "_Rows | RecordLog | _Merged | _Received":
    if receiver is not None:
        return _Received(receiver)
    if analysis.kind is Kind.RECORDS:
        return RecordLog(analysis, len(plan.frames))
    if analysis.kind is Kind.SCAN:
        return _Changes(plan, analysis)
    is_sum = analysis.kind is Kind.SUM
    return _Merged(len(plan), analysis) if is_sum else _Rows(len(plan.frames), analysis)


class _Received:
    """Results of blocks that are passed to a receiver."""

    def __init__(self, receiver: Receiver):
        self._receiver = receiver

    def add(self, result: BlockResult, values: dict[int, Any]) -> None:
        for number, value in values.items():
            self._receiver.add(number, value)

    def put_all(self, value: None) -> None:
        """Do nothing, because MPI ranks never store results for a receiver until the end."""

    def whole(self, missing: np.ndarray) -> None:
        """Return None, because the receiver has all results."""


class _Rows:
    """Rows of all frames in one output array. Workers of this process write into it if possible."""

    def __init__(self, n_rows: int, analysis: WorkerAnalysis):
        self._n_rows = n_rows
        self._analysis = analysis
        self.value: np.ndarray | None = None
        #: First row of each range that was added.
        self._done: set[int] = set()
        analysis.shared.replace(None)

    def add(self, result: BlockResult, rows: np.ndarray) -> None:
        self.put(result.first, rows)

    def put(self, first: int, rows: np.ndarray) -> None:
        """Write the rows of adjacent frames at indices `first` and following."""
        shared, n_rows = self._analysis.shared, len(rows)
        if are_unread(rows):  # `whole` fills these rows with NaN
            self._done.add(first)
            return
        if self.value is None:
            self._allocate(rows.shape[1:], rows.dtype)
        assert self.value is not None
        self._analysis.check_rows_match(rows, self.value)
        self._done.add(first)
        if np.may_share_memory(rows, self.value[first : first + n_rows]):
            return
        if shared.are_shared and shared.take(first, n_rows) is None:
            # An earlier attempt at this block may still be running and write to the output array:
            # use a copy of the array.
            rest = self.value
            self._allocate(rest.shape[1:], rest.dtype)
            self.value[:] = rest
        put_rows(self.value, first, rows)

    def _allocate(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        """Allocate all rows. Workers write into the array if it is in memory, not in a file."""
        self.value = allocate((self._n_rows, *shape), dtype)
        in_memory = file_of(self.value) is None
        self._analysis.shared.replace(self.value if in_memory else None, self._done)

    @property
    def name(self) -> str:
        """Name of the analysis."""
        return self._analysis.name

    def rows(self, first: int, stop: int) -> np.ndarray:
        """Return rows that have been written."""
        return unread_rows(stop - first) if self.value is None else self.value[first:stop]

    def put_all(self, rows: np.ndarray) -> None:
        self.value = None if are_unread(rows) else rows

    def whole(self, missing: np.ndarray) -> np.ndarray:
        """Return all rows; rows of frames that were left out are NaN, NaT or empty text.

        If the halo of a row contains such a frame, the row is filled in the same way.
        """
        missing = _near_missing(missing, *self._analysis.halo)
        assert self.value is not None
        if not missing.any():
            return self.value
        kind = self.value.dtype.kind
        if kind in "biu":  # integers have no NaN
            numbers = allocate(self.value.shape, np.dtype(np.float64))
            numbers[:] = self.value
            self.value = numbers
        try:
            self.value[missing] = "NaT" if kind in "mM" else "" if kind in "SU" else np.nan
        except ValueError as error:  # a structured dtype has no NaN
            raise AnalysisError(
                f"{self._analysis.name}: rows of {self.value.dtype} have no NaN for frames that "
                "were left out: return floating-point numbers, or exclude these frames from the run"
            ) from error
        return self.value


def _near_missing(missing: np.ndarray, before: int, after: int) -> np.ndarray:
    """Mask of rows whose halo contains a missing row: from `before` rows before to `after` after.

    Examples
    --------
    >>> _near_missing(np.array([0, 0, 0, 1, 0, 0], bool), 2, 1).astype(int)
    array([0, 0, 1, 1, 1, 1])
    """
    counts = np.concatenate([[0], np.cumsum(missing)])
    rows = np.arange(len(missing))
    first, stop = np.maximum(rows - before, 0), np.minimum(rows + after + 1, len(missing))
    return counts[stop] > counts[first]


class RecordLog:
    """Records of ranges of frames, in the order in which the ranges arrive.

    The log is in memory while it is smaller than `LARGE` or the run's limit. A larger log is in an
    anonymous temporary file that grows. A range that arrives before earlier ranges waits for them,
    as long as all waiting ranges together are smaller than `AHEAD`. If ranges were written out of
    order, they are sorted at the end by one more copy. `n_rows` is the number of all frames, used
    to estimate the final size. It is None for a log of some frames, which may begin at any row.
    """

    def __init__(self, analysis: WorkerAnalysis, n_rows: int | None = None):
        self._analysis, self._n_rows = analysis, n_rows
        #: Array of records; its capacity exceeds the number of records.
        self._log: np.ndarray | None = None
        self._n_records = 0
        self._file: IO[bytes] | None = None
        #: First row, index of the first record in the log, and counts of each range. Ranges are
        #: sorted by their first rows; in the log, they are in the order in which they were written.
        self._ranges: list[tuple[int, int, np.ndarray]] = []
        #: Row after the last range that was written in order.
        self._next = 0
        self._ahead: dict[int, Records] = {}

    def add(self, result: BlockResult, found: Records) -> None:
        """Add the records of one or several adjacent blocks."""
        self.put(result.first, found)

    def put(self, first: int, found: Records) -> None:
        """Add the records of adjacent frames; `first` is the row of the first frame."""
        if self._n_rows is None and not self._ranges:
            self._next = first
        counts, records = found  # checkpoints contain a plain tuple
        self._ahead[first] = Records(np.asarray(counts), records)
        while self._ahead and min(self._ahead) <= self._next:
            self._write(min(self._ahead))
        waiting = sum(one.records.nbytes for one in self._ahead.values() if one.records is not None)
        if waiting > (AHEAD if memory_limit() is None else min(AHEAD, result_arrays.SMALL)):
            self._write_all()

    def _write_all(self) -> None:
        """Write the waiting ranges to the log, although they are out of order."""
        for first in sorted(self._ahead):
            self._write(first)

    def _write(self, first: int) -> None:
        """Append the records of a waiting range to the log."""
        counts, records = self._ahead.pop(first)
        insort(self._ranges, (first, self._n_records, counts), key=itemgetter(0))
        self._next = max(self._next, first + len(counts))
        if records is None:
            return
        if self._log is not None:
            self._analysis.check_rows_match(records, self._log)
        begin, self._n_records = self._n_records, self._n_records + len(records)
        log = self._log_with_room(records)
        log[begin : self._n_records] = records

    def _log_with_room(self, like: np.ndarray) -> np.ndarray:
        """Return the log, enlarged if necessary to the estimated number of records."""
        old = self._log
        if old is not None and self._n_records <= len(old):
            return old
        size = max(1, like.dtype.itemsize * math.prod(like.shape[1:]))
        rooms, new = [2 * self._n_records], None
        if self._n_rows:
            # Estimate generously: unused capacity takes no memory until it is written, but growing
            # an array copies it.
            n_known = sum(len(counts) for *_, counts in self._ranges)
            rooms.append(self._n_records * self._n_rows // n_known * 9 // 8)
        while self._file is None and new is None and rooms:
            new = in_memory((rooms.pop(), *like.shape[1:]), like.dtype, result_arrays.LARGE)
        if new is None:
            limit = memory_limit()
            most = result_arrays.LARGE
            if limit is not None:
                most = min(most, max(limit, result_arrays.SMALL))
            n_room = self._n_records + most // (4 * size)
            is_new = self._file is None
            self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115
            new = in_file(self._file, (n_room, *like.shape[1:]), like.dtype)
            old = old if is_new else None
        if old is not None:
            new[: len(old)] = old
        self._log = new
        return new

    def rows(self, first: int, stop: int) -> "RecordRange":
        """Return the records of rows that were added; `RecordRange.load` copies them."""
        self._write_all()
        return RecordRange(self, first, stop)

    def parts(self, first: int, stop: int) -> list[Records]:
        """Return the records of rows that were added, one item per range, without a copy."""
        parts = []
        for begin, place, counts in self._ranges[
            self._range_index(first) : self._range_index(stop - 1) + 1
        ]:
            low = max(0, first - begin)
            place += int(counts[:low].sum())
            counts = counts[low : stop - begin]
            end = place + int(counts.sum())
            parts.append(Records(counts, None if self._log is None else self._log[place:end]))
        return parts

    def _range_index(self, row: int) -> int:
        """Return the index of the range that contains a row."""
        return bisect_right(self._ranges, row, key=itemgetter(0)) - 1

    def put_all(self, found: Records) -> None:
        """Add the records of all frames."""
        self._ranges, self._n_records = [(0, 0, found.counts)], int(found.counts.sum())
        self._log, self._file = found.records, None

    def ordered(self) -> Records:
        """Return counts and records in the order of frames; without readable frames, no records."""
        counts = self.counts()
        if self._log is None:
            return Records(counts, None)
        places = [place for _, place, _ in self._ranges]
        if places != sorted(places):
            self._sort()
        return Records(counts, self._log[: self._n_records])

    def _sort(self) -> None:
        """Copy the log in the order of frames."""
        assert self._log is not None
        log = allocate((self._n_records, *self._log.shape[1:]), self._log.dtype)
        ranges, end = [], 0
        for first, place, counts in self._ranges:
            begin, end = end, end + int(counts.sum())
            log[begin:end] = self._log[place : place + end - begin]
            ranges.append((first, begin, counts))
        self._log, self._ranges, self._file = log, ranges, file_of(log)

    def counts(self) -> np.ndarray:
        """Return the counts of all rows that were added, in the order of frames."""
        self._write_all()
        return np.concatenate([np.zeros(0, np.int64), *(some for *_, some in self._ranges)])

    def whole(self, missing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return offsets and all records; frames that were left out have no records.

        The offsets are the index of each frame's first record, and then the number of all records.
        """
        counts, records = self.ordered()
        offsets = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        return offsets, np.empty(0) if records is None else records


@dataclass(frozen=True)
class RecordRange:
    """Records of rows `first` to `stop` of a log; `load` copies them."""

    log: RecordLog
    first: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Size of the records, bytes."""
        arrays = [one for part in self._parts for one in part if one is not None]
        return sum(one.nbytes for one in arrays)

    def __getitem__(self, some: slice) -> "RecordRange":
        first, stop, _ = some.indices(self.stop - self.first)
        return RecordRange(self.log, self.first + first, self.first + stop)

    def load(self) -> Records:
        """Copy the records."""
        counts = np.concatenate([part.counts for part in self._parts])
        found = [part.records for part in self._parts if part.records is not None]
        return Records(counts, np.concatenate(found) if found else None)

    @property
    def _parts(self) -> list[Records]:
        return self.log.parts(self.first, self.stop)


class _Merged:
    """Result over all frames, merged pairwise from the results of blocks."""

    def __init__(self, n_blocks: int, analysis: WorkerAnalysis):
        self._merge = analysis.merge
        self.tree = TreeReduction(n_blocks, self._merge)

    def regrow(self, n_blocks: int | None) -> None:
        """Merge the same partial results for another number of blocks; None if it is unknown."""
        subtrees = self.tree.waiting
        self.tree = TreeReduction(UNKNOWN_LENGTH if n_blocks is None else n_blocks, self._merge)
        for (level, number), value in subtrees.items():
            self.tree.add(number, value, level)

    def add(self, result: BlockResult, partial: Any) -> None:
        self.tree.add(result.number, partial, result.level)

    def put_all(self, merged: Any) -> None:
        self.tree.root = merged

    def whole(self, missing: np.ndarray) -> Any:
        """Return the merged result. Frames that were left out do not contribute."""
        return self.tree.root


class _Changes(_Merged):
    """State change of each block, by block number, for an analysis with `scan`."""

    def __init__(self, plan: Plan, analysis: WorkerAnalysis):
        super().__init__(len(plan), analysis)
        self._plan, self._name = plan, analysis.name
        self._n_blocks = self._n_bytes = 0

    def add(self, result: BlockResult, changes: dict[int, Any]) -> None:
        self._check_room(changes)
        super().add(result, changes)

    def put_all(self, changes: dict[int, Any]) -> None:
        self._check_room(changes)
        super().put_all(changes)

    def _check_room(self, changes: dict[int, object]) -> None:
        """Raise `UnsupportedError` if the state changes exceed the limit of memory."""
        self._n_blocks += len(changes)
        self._n_bytes += sum(map(_size_of, changes.values()))
        if self._n_bytes <= STATES_BYTES:
            return
        all_bytes = self._n_bytes / self._n_blocks * len(self._plan)
        larger = self._plan.block_frames * 2 ** math.ceil(math.log2(all_bytes / STATES_BYTES))
        raise UnsupportedError(
            f"{self._name}: states of {self._n_blocks} of {len(self._plan)} blocks take "
            f"{amount(self._n_bytes)}, but the limit is {amount(STATES_BYTES)}: use "
            f"fewer and larger blocks, block_frames={larger} or more"
        )


def _size_of(value: object) -> int:
    """Size of a state, bytes: size of the arrays in it, or of its pickle; 0 if neither is known."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.nbytes
    if isinstance(value, tuple):
        return sum(map(_size_of, value))
    try:
        return len(pickle.dumps(value, 5))
    except Exception:  # pickling runs arbitrary code
        return 0


def _join_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort ranges of rows, and join adjacent ranges."""
    united: list[tuple[int, int]] = []
    for first, stop in sorted(ranges):
        if united and united[-1][1] == first:
            united[-1] = united[-1][0], stop
        else:
            united.append((first, stop))
    return united
