"""Run one task in a worker: read, decode, transform and compute.

The worker's process may cache decoded frames of one stage of a run for the next stage. This module
does not import MDAnalysis.
"""

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import cloudpickle
import numpy as np

from paceline import _core
from paceline._util.machine_and_software import free_memory_fraction
from paceline.block import DAMAGED_STEP, Block, FrameBuffer, without_placeholders
from paceline.contract.analysis_kinds import Kind
from paceline.contract.source import ReadStats
from paceline.contract.transform_interface import advice_without_cell, find_scan
from paceline.engine.reduce import join_rows, merge_results, tree_accumulate, tree_reduce
from paceline.engine.result_arrays import unread_rows
from paceline.engine.tasks_and_results import (
    AnyJob,
    AnyTask,
    BlockResult,
    FrameCaching,
    FunctionJob,
    FunctionTask,
    Job,
    LongBonds,
    Records,
    Task,
    TaskBatch,
    WorkerAnalysis,
    sum_long_bonds,
)
from paceline.engine.transform_states import Relay
from paceline.errors import (
    AnalysisError,
    MissingDataError,
    PacelineError,
    TransformError,
    UnwritableError,
    WorkerError,
    with_hint,
)
from paceline.performance.record import PARTS, BlockTiming

#: Values, times, damaged frames and long bonds of one block, and a dict of measurements: the time
#: of each phase, and the traffic.
_Computed = tuple[list[object], np.ndarray, list[tuple[int, str]], list[LongBonds], dict[str, int]]
_NO_PARTS = dict.fromkeys(
    (*PARTS, "comm", "bytes", "calls", "cached", "requests", "repeated", "latency", "stalled"), 0
)
#: If the user sets no memory limit, decoded frames are cached only while more than this fraction of
#: the machine's memory is free.
LEAST_FREE = 0.5
#: Time for which a measured fraction of free memory is reused, s.
MOMENT = 0.05


class DecodedBlock(NamedTuple):
    """Frames of a block; for each frame that was left out, its number and the reason.

    The first `n_transforms` transformations of the run have been applied to the frames.
    """

    frames: FrameBuffer
    damaged: list[tuple[int, str]]
    n_transforms: int


class FrameCache:
    """Decoded blocks of one run, by block number, as many as memory allows.

    All threads of this process share the cache.
    """

    _of_runs: ClassVar[dict[str, "FrameCache"]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()
    #: Time of the last measurement of free memory, s, and the measured fraction.
    _looked: ClassVar[tuple[float, float]] = -math.inf, 0.0

    def __init__(self, caching: FrameCaching):
        self._memory, self._is_last = caching.memory, False
        self._blocks: dict[int, DecodedBlock] = {}
        self._n_bytes = 0

    @classmethod
    def open(cls, runs: Iterable[FrameCaching]) -> None:
        """Open the caches of runs in this process, unless they are open."""
        with cls._lock:
            for caching in runs:
                cls._of_runs.setdefault(caching.key, cls(caching))

    @classmethod
    def of(cls, caching: FrameCaching) -> "FrameCache | None":
        """Return the cache of a run; None if the run has already ended.

        In the last stage of a run, the cache stores no more blocks.
        """
        with cls._lock:
            cache = cls._of_runs.get(caching.key)
        if cache is not None and caching.last:
            cache._is_last = True
        return cache

    @classmethod
    def drop(cls, keys: Collection[str]) -> None:
        """Drop the caches of runs that have ended."""
        with cls._lock:
            for key in keys:
                cache = cls._of_runs.pop(key, None)
                if cache is not None:
                    cache._memory.release(cache._n_bytes)

    @classmethod
    def drop_others(cls, keys: Collection[str]) -> None:
        """Drop the caches of all runs except `keys`, such as those of failed runs."""
        cls.drop(cls._of_runs.keys() - set(keys))

    def put(self, number: int, block: DecodedBlock) -> None:
        """Store a block for the next stage, if there is one and memory suffices."""
        if self._is_last or (self._memory.limit is None and not self._has_memory()):
            return
        with self._lock:
            n_bytes = block.frames.nbytes
            if number not in self._blocks and self._memory.reserve(n_bytes):
                self._blocks[number] = block
                self._n_bytes += n_bytes

    @classmethod
    def _has_memory(cls) -> bool:
        """True if enough memory is free, or was free less than `MOMENT` ago.

        Each measurement takes 0.5 ms.
        """
        now = time.monotonic()
        if now - cls._looked[0] > MOMENT:
            cls._looked = now, free_memory_fraction()
        return cls._looked[1] > LEAST_FREE

    def get(self, number: int) -> DecodedBlock | None:
        """Return a cached block; None if it was not stored."""
        with self._lock:
            return self._blocks.get(number)


class Worker:
    """Runs tasks one after another; keeps the files of the current job open between tasks.

    `job_of` returns a job by its number; `name` is host:process:thread.
    """

    def __init__(self, job_of: Callable[[int], AnyJob], name: str | None = None):
        self._job_of = job_of
        self._number: int | None = None
        self._free_since = time.monotonic_ns()
        self.name = thread_name() if name is None else name

    def run(self, task: AnyTask) -> BlockResult:
        """Read, decode and compute one block, or call the job's function.

        Raises `DamagedFileError` for a frame that cannot be read, and `TransformError` for a frame
        that cannot be transformed, unless the job skips such frames. Raises `AnalysisError` if an
        analysis raised an error or returned rows of a wrong shape.
        """
        _at_work.add(self.name)
        try:
            return self._run(task)
        finally:
            _at_work.discard(self.name)

    def _run(self, task: AnyTask) -> BlockResult:
        start, free_since = time.monotonic_ns(), self._free_since
        self._open_job(task.job)
        if isinstance(task, Task) and isinstance(task.state, Relay):
            task.state.begin(task)
        opened = time.monotonic_ns()
        compute: Any = self._call if isinstance(task, FunctionTask) else self._compute_block
        values, times, damaged, long_bonds, parts = compute(task)
        parts["open"] += opened - start
        threads = _core.used_threads()
        end = self._free_since = time.monotonic_ns()
        timing = BlockTiming(
            job=task.job,
            block=task.number,
            first_frame=task.first_frame,
            n_frames=task.n_frames,
            worker=self.name,
            start=start,
            end=end,
            wait=start - free_since,
            threads=threads,
            **parts,
        )
        return BlockResult(
            task.job,
            0,
            task.number,
            task.first,
            task.n_frames,
            values,
            times,
            damaged,
            [timing],
            long_bonds,
        )

    def _open_job(self, number: int) -> None:
        """Open a job, unless it is open already; opening its files closes those of another job."""
        if number != self._number:
            job = self._job_of(number)
            _core.share_requests(job.sharers, job.estimates)
            if isinstance(job, FunctionJob):
                self._function_job, self._function = job, unpickle(job.function)
            else:
                self._job, self._reader = job, job.source.open()
                self._cache = FrameCache.of(job.caching) if job.caching else None
            self._number = number

    def _call(self, task: FunctionTask) -> _Computed:
        """Call the function of a `FunctionJob` with the item of a task."""
        begun = time.monotonic_ns()
        try:
            value = self._function(task.item)
        except PacelineError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            name = self._function_job.name
            raise AnalysisError.of(f"{name} raised on {task.what}: {reason}", error) from error
        parts = {**_NO_PARTS, "compute": time.monotonic_ns() - begun}
        return [value], np.full(task.n_frames, np.nan), [], [], parts

    def _compute_block(self, task: Task) -> _Computed:
        """Read, decode, transform and compute one block."""
        cached = self._cache.get(task.number) if self._cache is not None else None
        if cached is not None:
            return self._compute_cached(task.without_transform_frames(), cached)
        begun = time.monotonic_ns()
        if task.ahead is not None:
            self._reader.read_ahead(task.ahead)
        asked_ahead = time.monotonic_ns()
        decoded, cost = self._read(task)
        read = time.monotonic_ns()
        untransformed, long_bonds = self._transform(task, decoded)
        damaged = _damaged_rows(task, [*cost.damaged, *untransformed])
        if task.lead or task.step > 1:
            decoded = decoded[np.arange(len(task.window))[task.own]]
            task = task.without_transform_frames()
        decoded.seal()
        transformed = time.monotonic_ns()
        values = self._compute_all(task, decoded)
        parts = {
            **_NO_PARTS,
            "open": cost.open,
            "read": cost.read + asked_ahead - begun,
            "decode": cost.decode,
            "transform": transformed - read,
            "compute": time.monotonic_ns() - transformed,
            "bytes": cost.bytes,
            "calls": cost.calls,
            "cached": cost.cached,
            "requests": cost.requests.sent,
            "repeated": cost.requests.repeated,
            "latency": cost.requests.latency,
            "stalled": cost.requests.waited,
        }
        if self._cache is not None:
            self._cache.put(task.number, DecodedBlock(decoded, damaged, self._n_applied(task)))
        return values, decoded.times[task.own], damaged, long_bonds, parts

    def _n_applied(self, task: Task) -> int:
        """Number of the job's transformations that were applied to the frames of a block."""
        scan = find_scan(self._job.transforms) if task.state is None else None
        return len(self._job.transforms) if scan is None else scan

    def _compute_cached(self, task: Task, block: DecodedBlock) -> _Computed:
        """Compute one block from frames that an earlier stage cached."""
        parts, frames, damaged = dict(_NO_PARTS), block.frames, block.damaged
        long_bonds: list[LongBonds] = []
        begun = time.monotonic_ns()
        if block.n_transforms < len(self._job.transforms):
            frames = frames[np.arange(len(task.window))]  # a copy: do not change cached frames
            failed, long_bonds = self._transform(task, frames, block.n_transforms)
            damaged = damaged + _damaged_rows(task, failed)
            frames.seal()
            parts["transform"] = time.monotonic_ns() - begun
        values = self._compute_all(task, frames)
        parts["compute"] = time.monotonic_ns() - begun - parts["transform"]
        return values, frames.times[task.own], damaged, long_bonds, parts

    def _read(self, task: Task) -> tuple[FrameBuffer, ReadStats]:
        """Read the frames of a block, and measure the time and the traffic."""
        source = self._job.source
        decoded = FrameBuffer.allocate(
            task.window,
            source.n_wanted,
            source.fields,
            check_validity=any(
                analysis.declared.checks_validity for analysis in self._job.analyses
            ),
        )
        try:
            cost = self._reader.read(task.extents, decoded, skip=self._job.skip_damaged)
        except MissingDataError as error:
            remedy = 'on_error="skip" leaves such frames out'
            raise with_hint(error, remedy) from None
        without_placeholders(decoded.cells, source.n_atoms)
        decoded.times[:] = source.time_axis(decoded.frames, decoded.times, decoded.steps)
        return decoded, cost

    def _transform(
        self, task: Task, decoded: FrameBuffer, done: int = 0
    ) -> tuple[list[tuple[int, str]], list[LongBonds]]:
        """Transform a block in place, and blank the rows that failed.

        The first `done` transformations have already been applied. Returns row and reason of each
        frame that failed, and a list with one summary of the long bonds, empty if there are none.
        """
        failed: dict[int, str] = {}
        noted = []
        if decoded.positions is None:
            return [], []
        vectors = [one for one in (decoded.velocities, decoded.forces) if one is not None]
        for transform in self._job.transforms[done:]:
            if task.state is not None and transform.scans:
                refused = self._apply_scan(task, transform, decoded)
            else:
                refused, rows = transform.apply_noting(decoded.positions, decoded.cells, vectors)
                noted += rows
            for row, reason in refused:
                failed.setdefault(row, f"{self._job.source.name_of(task.extents, row)}: {reason}")
        if failed and not self._job.skip_damaged:
            first = failed[min(failed)]
            raise TransformError(f"{first}{advice_without_cell(first)}")
        for row in failed:
            decoded.blank(row)
        own = range(len(task.window))[task.own]
        long_bonds = [
            LongBonds(1, n_bonds, length, int(decoded.frames[row]), (int(atoms[0]), int(atoms[1])))
            for row, n_bonds, atoms, length in noted
            if row not in failed and row in own
        ]
        return sorted(failed.items()), [sum_long_bonds(long_bonds)] if long_bonds else []

    def _apply_scan(self, task: Task, scan: Any, decoded: FrameBuffer) -> list[tuple[int, str]]:
        """Apply a transformation that starts from the block's initial state.

        Returns row and reason of each frame that failed.
        """
        positions: Any = decoded.positions
        if not isinstance(task.state, Relay):
            return scan.apply_from(task.state, positions, decoded.cells)

        def catch_up(late: Task) -> None:
            self._transform(late, self._read(late)[0])

        return task.state.apply(task.number, positions, decoded.cells, catch_up)

    def _compute_all(self, task: Task, decoded: FrameBuffer) -> list[object]:
        """Compute all analyses for a block; return their results in the order of the job."""
        states = task.states or [None] * len(self._job.analyses)
        try:
            return [
                self._compute(analysis, task, decoded, state)
                for analysis, state in zip(self._job.analyses, states, strict=True)
            ]
        finally:
            _core.allow_threads(1)

    def _compute(
        self, analysis: WorkerAnalysis, task: Task, decoded: FrameBuffer, state: object
    ) -> Any:
        """Compute one analysis for a block: its rows, records, partial result, or value."""
        window = task.rows_with(analysis.halo)
        if window != slice(0, len(decoded.frames), 1):
            decoded = decoded[window]
        block = Block(decoded, analysis.columns, analysis.attributes)
        where = task.what
        computation: Any = analysis.computation
        _core.allow_threads(task.threads if analysis.declared.splits_frames else 1)
        try:
            if analysis.kind is Kind.BLOCKS:
                return {task.number: computation.compute_block(_readable(block), task.first)}
            if analysis.kind is Kind.SCAN:
                changes = [_change_over(analysis, leaf) for leaf in self._leaves_of(block, task)]
                return {task.number: tree_reduce(changes, analysis.merge_states)}
            if analysis.kind is Kind.SUM:
                leaves = map(_readable, self._leaves_of(block, task))
                return tree_reduce(
                    [computation.compute(leaf) for leaf in leaves], computation.merge
                )
            if analysis.kind is Kind.RECORDS:
                return _records_of(analysis, block, f"{analysis.name} on {where}")
            if analysis.declared.fills_rows and len(block) == task.n_frames:
                place = analysis.shared.take(task.first, task.n_frames)
                if place is not None:
                    return computation.compute(block, place)
            if analysis.has_states:
                parts = _rows_from(analysis, self._leaves_of(block, task), state, where)
            else:
                parts = [_rows_of(analysis, block, f"{analysis.name} on {where}")]
        except _Unusable as error:
            raise AnalysisError(str(error)) from None
        except Exception as error:
            # Errors of a writer already contain the file and the frame.
            if analysis.kind is Kind.BLOCKS and isinstance(error, UnwritableError | OSError):
                raise
            reason = f"{type(error).__name__}: {error}"
            raise AnalysisError.of(f"{analysis.name} raised on {where}: {reason}", error) from error
        rows = parts[0] if len(parts) == 1 else join_rows(analysis, parts)
        begin = task.own.start - window.start
        # A copy, because a view would keep the rows of the halo in memory.
        return rows if len(rows) == task.n_frames else rows[begin : begin + task.n_frames].copy()

    def _leaves_of(self, block: Block, task: Task) -> list[Block]:
        """Divide a block into leaves: ranges of frames whose partial results merge over a tree."""
        cuts = self._job.leaves.cuts(task.first, len(block))
        return [block[begin:end] for begin, end in pairwise(cuts)]


def _damaged_rows(task: Task, failed: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return frame number and reason of each row that failed, without rows of the halo."""
    begin, stop = task.halo[0], len(task.window) - task.halo[1]
    return [(int(task.window[row]), reason) for row, reason in failed if begin <= row < stop]


def thread_name() -> str:
    """Name of the calling thread as a worker, host:process:thread."""
    return f"{socket.gethostname()}:{os.getpid()}:{threading.get_native_id()}"


def _readable(block: Block) -> Block:
    """Leave out frames that could not be read, because a reduction must not include them."""
    readable = block.steps != DAMAGED_STEP
    return block if readable.all() else block[readable]


class _Unusable(Exception):
    """Raised if a function of an analysis returned an object that is not valid rows or records."""


def _rows_of(analysis: WorkerAnalysis, block: Block, where: str) -> np.ndarray:
    """Compute an analysis's rows for a block, one per frame, and check their shape."""
    computation = analysis.computation
    if analysis.declared.returns_new:
        rows = computation.compute(block)
    elif any(analysis.halo):
        rows = _array(computation.compute(block), where).copy()
    else:
        return _rows_of_readable(computation.compute, block, where)
    _check_rows(rows, len(block), where)
    return rows


def _rows_of_readable(
    compute: Callable[..., object], block: Block, where: str, *state: object
) -> np.ndarray:
    """Compute the rows of readable frames; all other rows are zeros, and are dropped later."""
    readable = block.steps != DAMAGED_STEP
    if not readable.any():
        return unread_rows(len(block))
    if readable.all():
        own = _array(compute(block, *state), where)
        _check_rows(own, len(block), where)
        # A copy, because the function may reuse the array for the next block.
        return own.copy()
    own = _array(compute(block[readable], *state), where)
    _check_rows(own, int(readable.sum()), where)
    rows = np.zeros((len(block), *own.shape[1:]), own.dtype)
    rows[readable] = own
    return rows


def _array(found: object, where: str) -> np.ndarray:
    """Convert an object to an array; raise `_Unusable` for an array with masked values."""
    if np.ma.is_masked(found):
        raise _Unusable(
            f"{where}: expected an array, found one with masked numbers: fill them, as with "
            ".filled(np.nan)"
        )
    return np.asarray(found)


def _check_rows(rows: np.ndarray, n_frames: int, where: str) -> None:
    """Raise `_Unusable` unless there is one row of numbers for each frame."""
    if rows.ndim == 0 or len(rows) != n_frames:
        raise _Unusable(
            f"{where}: expected one row for each of the {n_frames} frames, found an array of shape "
            f"{rows.shape}"
        )
    if rows.dtype.hasobject:
        raise _Unusable(f"{where}: expected numbers, found {rows.dtype}")


def _records_of(analysis: WorkerAnalysis, block: Block, where: str) -> Records:
    """Compute the records of a block; the counts of frames that were left out are 0."""
    counts = np.zeros(len(block), np.int64)
    readable = block.steps != DAMAGED_STEP
    is_whole = readable.all()
    if not (is_whole or readable.any()):
        return Records(counts, None)
    found = analysis.computation.compute_records(block if is_whole else block[readable])
    if found is None and analysis.declared.returns_new:
        return Records(counts, None)
    if not (isinstance(found, tuple) and len(found) == 2):
        raise _Unusable(
            f"{where}: expected a pair, the number of records of each frame and the records, found "
            f"{type(found).__name__}"
        )
    numbers, records = (_array(one, where) for one in found)
    n_frames = int(readable.sum())
    if numbers.shape != (n_frames,) or numbers.dtype.kind not in "iu" or (numbers < 0).any():
        raise _Unusable(
            f"{where}: expected the number of records of each of {n_frames} frames, found "
            f"an array of {numbers.dtype} of shape {numbers.shape}"
        )
    if records.ndim == 0 or len(records) != numbers.sum() or records.dtype.hasobject:
        raise _Unusable(
            f"{where}: expected {numbers.sum()} records of numbers, the sum of the frames' counts, "
            f"found an array of {records.dtype} of shape {records.shape}"
        )
    counts[readable] = numbers
    # A copy, because the function may reuse the array for the next block.
    return Records(counts, records if analysis.declared.returns_new else records.copy())


def _change_over(analysis: WorkerAnalysis, leaf: Block) -> object:
    """Compute the state change of a leaf; None if no frame of the leaf could be read."""
    computation: Any = analysis.computation
    readable = _readable(leaf)
    # A copy, because the function may reuse the array for the next leaf.
    return analysis.own_state(computation.scan(readable)) if len(readable) else None


def _rows_from(
    analysis: WorkerAnalysis, leaves: Sequence[Block], state: object, where: str
) -> list[np.ndarray]:
    """Compute the rows of each leaf of a block, starting from the block's initial state."""
    computation: Any = analysis.computation
    changes = (_change_over(analysis, leaf) for leaf in leaves[:-1])
    states = tree_accumulate(changes, analysis.merge_states, state)
    parts: list[np.ndarray] = []
    for leaf, before in zip(leaves, states, strict=True):
        own = analysis.own_state(before)
        rows = _rows_of_readable(computation.compute, leaf, f"{analysis.name} on {where}", own)
        parts.append(rows)
    return parts


def run_batch(worker: Worker, job: AnyJob, batch: TaskBatch) -> BlockResult:
    """Run the tasks of a batch and merge their results, so that few results are in memory."""
    if isinstance(job, FunctionJob):
        return worker.run(batch.tasks[0])
    tasks = [replace(task, ahead=after.extents) for task, after in pairwise(batch.tasks)]
    return _run_subtree(worker, job, batch.level, [*tasks, batch.tasks[-1]])


def _run_subtree(worker: Worker, job: Job, level: int, tasks: Sequence[Task]) -> BlockResult:
    if level == 0:
        return worker.run(tasks[0])
    half = 2 ** (level - 1)
    halves = [_run_subtree(worker, job, level - 1, some) for some in (tasks[:half], tasks[half:])]
    return merge_results(job, level, halves)


def unpickle(data: bytes) -> Any:
    """Unpickle data in a worker; raise `WorkerError` if that is impossible."""
    try:
        return cloudpickle.loads(data)
    except PacelineError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise WorkerError(f"a worker cannot open an analysis: {reason}") from error


#: Names of workers in this process that are running a task.
_at_work: set[str] = set()


class ThreadNames:
    """Worker names of the numbered threads of a run.

    A backend starts its threads again for each pass. Threads with the same number are one worker in
    all passes, named after the first of these threads.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def of(self, number: int) -> str:
        """Return the worker name of the thread with this number.

        If no name is stored, or a running worker has it, return the name of the calling thread.
        """
        name = self._names.get(number)
        if name is None or name in _at_work:
            name = thread_name()
            if name in self._names.values():  # the system has reused the id of an ended thread
                name += f".{number}"
            self._names.setdefault(number, name)
        return name
