"""Stages that compute parts of what was collected: pairs of frames, or series cut by atoms.

Each part is a call of a `FunctionJob`, with arguments that are numbers and views of the collected
array: read where they are by threads, from an anonymous temporary file by processes of this
machine, and sent to all other workers. Results are put in their places as they come.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import cloudpickle
import numpy as np
from numpy.lib.array_utils import byte_bounds

from paceline._util.system import CAN_SHARE, SharedFile
from paceline.contract.analysis import Analysis, info_of
from paceline.contract.kinds import OverParts
from paceline.contract.plan import Leaves, Plan
from paceline.engine.collect import Collected, Cursor, Record, RowRange
from paceline.engine.result_arrays import allocate, file_of
from paceline.engine.tasks import BlockResult, FunctionJob, FunctionTask
from paceline.engine.trajectory_run import TrajectoryRun
from paceline.timing import Timings

#: Bytes from which on a part is read from a file by processes of this machine.
LARGE_PART = 2**14
#: Results larger than this are kept in a file that vanishes with them, bytes.
IN_MEMORY = 2**28


def allocate_results(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Allocate the array in which results of parts are put: in a temporary file if it is large."""
    return allocate(shape, dtype, IN_MEMORY)


class PartsRun:
    """The last stage of an analysis, over parts, as a `TrajectoryRun` is one over frames.

    Parameters
    ----------
    run : TrajectoryRun
        The run whose last stage this is.
    analysis : Analysis
        The analysis that made the parts.
    parts : OverParts
        The parts.
    collected : numpy.ndarray
        The rows of which the parts have views.
    stage : int
        Number of the stage.
    """

    def __init__(
        self,
        run: TrajectoryRun,
        analysis: Analysis,
        parts: OverParts,
        collected: np.ndarray,
        *,
        stage: int,
    ):
        self.stage = stage
        self._trajectory_run, self._analysis = run, analysis
        self._parts, self._collected = parts, collected
        # Parts of a user's class may lack it.
        self._describe = getattr(parts, "describe", partial(OverParts.describe, parts))
        self.plan = Plan(np.arange(parts.n_parts), Leaves(1), 1)
        self._frames = info_of(analysis).frames
        n_frames, n_parts = len(self._frames), parts.n_parts
        #: No method: results that refer to this would keep all rows until garbage is collected.
        self._frames_at: Callable[[int], int] = lambda n_done: n_done * n_frames // n_parts
        self.job = FunctionJob(analysis.name, cloudpickle.dumps(_Call(parts.worker)))

    #: Whatever reads the trajectory: its frames are not needed any more.
    shareable = True

    def start_collecting(self, number: int, timings: Timings, stack: ExitStack) -> None:
        """Get ready to collect results."""
        self.collected = CollectedParts(number, self.plan, self._parts, timings, self._frames_at)

    def tasks(self, job: int, n_workers: int) -> Iterator[FunctionTask]:
        """Yield a task for every part still to be done."""
        file = _SharedFile.of(self._collected) if self._trajectory_run.parts_by_file else None
        for number in self.collected.missing().tolist():
            what = self._describe(number, self._frames)
            item = tuple(
                Part(one, file) if isinstance(one, np.ndarray) else one
                for one in self._parts.arguments(number)
            )
            yield FunctionTask(job, number, number, number, 1, what, item)

    def frames_of(self, result: BlockResult) -> int:
        """Frames as which a result counts in the progress: all parts are a pass over them."""
        return self._frames_at(result.first + 1) - self._frames_at(result.first)

    def release(self, result: BlockResult) -> None:
        """Free nothing: parts begin with nothing."""

    @property
    def n_frames_here(self) -> int:
        """Frames as which all parts count."""
        return self._frames_at(len(self.plan))

    @property
    def n_frames_done(self) -> int:
        """Frames as which all collected results count."""
        return self._frames_at(self.collected.n_frames)

    def next_stages(self) -> list[Any]:
        """Return nothing: this is the last."""
        return []

    def finish(self, timings: Timings) -> None:
        """Set the results of the analysis."""
        self._trajectory_run.conclude(self._analysis, self._parts, timings)


class CollectedParts(Collected):
    """Results of all parts so far."""

    def __init__(
        self,
        number: int,
        plan: Plan,
        parts: OverParts,
        timings: Timings,
        frames_at: Callable[[int], int],
    ):
        super().__init__(number, plan, [], [], timings)
        self._parts, self._frames_at = parts, frames_at
        self._collectors = [_Placed(parts)]  # type: ignore[list-item]

    def since(self, cursor: Cursor) -> tuple[Record, Cursor]:
        """Get the results that came after a cursor, and the present cursor."""
        record, now = super().since(cursor)
        ranges = [
            RowRange(one.first, one.stop, one.times, _stacked(self._parts, one.first, one.stop))
            for one in record.ranges
        ]
        return replace(record, ranges=ranges), replace(now, n_frames=self._frames_at(now.n_frames))

    def restore(self, record: Record) -> None:
        """Put back all results of an earlier run."""
        for one in record.ranges:
            for number, *values in zip(range(one.first, one.stop), *one.rows, strict=True):
                self._parts.put(number, *values)
        super().restore(replace(record, ranges=[replace(one, rows=[]) for one in record.ranges]))


class _Placed:
    """Gathers results of parts into the output arrays."""

    def __init__(self, parts: OverParts):
        self._parts = parts

    def add(self, result: BlockResult, values: tuple[np.ndarray, ...]) -> None:
        self._parts.put(result.number, *values)


def _stacked(parts: OverParts, first: int, stop: int) -> list[Any]:
    return [_Stack(parts, k, range(first, stop)) for k in range(len(parts.get(first)))]


class _Stack:
    """One array of the results of neighbouring parts; gathered when it is needed."""

    def __init__(self, parts: OverParts, number: int, members: range):
        self._parts, self._number, self._members = parts, number, members

    def __getitem__(self, some: slice) -> "_Stack":
        return _Stack(self._parts, self._number, self._members[some])

    @property
    def nbytes(self) -> int:
        return len(self._members) * self._parts.get(self._members[0])[self._number].nbytes

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        return np.stack([self._parts.get(member)[self._number] for member in self._members])


class _Call:
    """Calls the worker part with the arguments of a task."""

    def __init__(self, worker: Any):
        self._worker = worker

    def __call__(self, item: tuple[Any, ...]) -> tuple[np.ndarray, ...]:
        values = (one.array if isinstance(one, Part) else one for one in item)
        return self._worker.compute(*values)


class Part:
    """A view of an array, pickled as an offset in a file if it is mapped, else as its numbers."""

    def __init__(self, array: np.ndarray, file: "_SharedFile | None" = None):
        self.array, self._file = array, file

    def __reduce__(self) -> tuple[object, ...]:
        place = self._file.place(self.array) if self._file else None
        if place is not None and self.array.nbytes >= LARGE_PART:
            return _read_part, place
        return Part, (np.ascontiguousarray(self.array),)


class _SharedFile:
    """An anonymous temporary file that holds an array, for other processes of this machine."""

    def __init__(self, array: np.ndarray):
        self._array = array

    @classmethod
    def of(cls, array: np.ndarray) -> "_SharedFile | None":
        """Share an array; None where processes cannot open another one's files."""
        return cls(array) if CAN_SHARE else None

    @cached_property
    def _copy(self) -> np.ndarray | None:
        """The array in a file: itself, or a copy; None if the folder lacks the free space."""
        if file_of(self._array) is not None:
            return self._array
        try:
            copy = allocate(self._array.shape, self._array.dtype, 0)
        except OSError:  # parts are sent instead
            return None
        copy[:] = self._array
        return copy

    def place(self, view: np.ndarray) -> tuple[Any, ...] | None:
        """Find where in the file a view of the array is; None if it is none, or has no file."""
        begin, end = byte_bounds(self._array)
        first, last = byte_bounds(view)
        copy = self._copy if begin <= first < last <= end else None
        if copy is None:
            return None
        shared = SharedFile.of(copy.file.fileno())  # type: ignore[attr-defined]
        start = view.__array_interface__["data"][0] - first
        bounds = first - begin, last - first
        return shared, bounds, start, view.shape, view.strides, view.dtype.str


def _read_part(
    shared: SharedFile,
    bounds: tuple[int, int],
    start: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: str,
) -> Part:
    """Map a part of a file of another process of this machine."""
    with shared.open() as file:
        offset, size = bounds
        mapped = np.memmap(file, np.uint8, "r", offset, size)
    return Part(np.ndarray(shape, dtype, mapped, start, strides))
