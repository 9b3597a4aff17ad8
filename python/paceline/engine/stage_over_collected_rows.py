"""Process parts of the collected rows: pairs of frames, or time series of some atoms.

Each part is one call of a `FunctionJob`. The arguments of the call are numbers and views of the
collected array. Threads read the views directly. Processes of this machine read the views from an
anonymous temporary file. Other workers receive the views. Results are stored as they arrive.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import cloudpickle
import numpy as np
from numpy.lib.array_utils import byte_bounds

from paceline._util.os_calls import CAN_SHARE
from paceline._util.shared_arrays import Place, SharedArray, place_of
from paceline.contract.analysis import Analysis
from paceline.contract.analysis_kinds import OverParts
from paceline.contract.plan import LeafBoundaries, Plan
from paceline.engine.collect import Collected, Cursor, Record, RowRange
from paceline.engine.result_arrays import allocate, file_of
from paceline.engine.run_plan import TrajectoryRun
from paceline.engine.tasks_and_results import BlockResult, FunctionJob, FunctionTask
from paceline.timing import Timings

#: Maximum size of results in memory if the run has no memory limit, bytes. Larger results are in an
#: anonymous temporary file.
IN_MEMORY = 2**28


def allocate_results(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Allocate the array for the results of parts, in memory or in an anonymous temporary file."""
    return allocate(shape, dtype, IN_MEMORY)


class PartsRun:
    """Run of the last stage of an analysis over parts. The class has the interface of `FramePass`.

    Parameters
    ----------
    run : TrajectoryRun
        Run to which the stage belongs.
    analysis : Analysis
        Analysis that defines the parts.
    parts : OverParts
        Parts to process.
    collected : numpy.ndarray
        Array whose views are the arguments of the parts.
    stage : int
        Number of the stage.
    **known
        Facts about the frames, as arguments of a `RunInfo`.
    """

    def __init__(
        self,
        run: TrajectoryRun,
        analysis: Analysis,
        parts: OverParts,
        collected: np.ndarray,
        *,
        stage: int,
        **known: Any,
    ):
        self.stage, self._known = stage, known
        self._trajectory_run, self._analysis = run, analysis
        self._parts, self._collected = parts, collected
        # The parts of a user's class may lack the method `describe`.
        self._describe = getattr(parts, "describe", partial(OverParts.describe, parts))
        self.plan = Plan(np.arange(parts.n_parts), LeafBoundaries(1), 1)
        self._frames = run.plan.frames
        n_frames, n_parts = len(self._frames), parts.n_parts
        #: Progress, in frames, after a number of parts. It is a function, because a method would
        #: refer to this object, which would then keep all rows in memory until garbage collection.
        self._frames_at: Callable[[int], int] = lambda n_done: n_done * n_frames // n_parts
        self.job = FunctionJob(analysis.name, cloudpickle.dumps(_Call(parts.worker)))

    #: True, because no frame is read, so that the stage does not depend on the trajectory's reader.
    shareable = True

    def start_collecting(self, number: int, timings: Timings, stack: ExitStack) -> None:
        """Prepare to collect results."""
        self.collected = CollectedParts(number, self.plan, self._parts, timings, self._frames_at)

    def tasks(self, job: int, n_workers: int) -> Iterator[FunctionTask]:
        """Yield a task for every part that is not done."""
        file = _SharedFile.of(self._collected) if self._trajectory_run.parts_by_file else None
        for number in self.collected.missing().tolist():
            what = self._describe(number, self._frames)
            item = tuple(
                SharedArray(one, file) if isinstance(one, np.ndarray) else one
                for one in self._parts.arguments(number)
            )
            yield FunctionTask(job, number, number, number, 1, what, item)

    def frames_of(self, result: BlockResult) -> int:
        """Number of frames that a result adds to the progress; all parts count as one pass."""
        return self._frames_at(result.first + 1) - self._frames_at(result.first)

    def release(self, result: BlockResult) -> None:
        """Do nothing, because parts have no initial state."""

    @property
    def n_frames_here(self) -> int:
        """Number of frames that all parts together add to the progress."""
        return self._frames_at(len(self.plan))

    @property
    def n_frames_done(self) -> int:
        """Number of frames that the collected results have added to the progress."""
        return self._frames_at(self.collected.n_frames)

    def next_stages(self) -> list[Any]:
        """Return an empty list, because this stage is the last one."""
        return []

    def finish(self, timings: Timings) -> None:
        """Set the results of the analysis."""
        self._trajectory_run.conclude(self._analysis, self._parts, timings, **self._known)


class CollectedParts(Collected):
    """Results of all completed parts."""

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
        """Return the results that came after a cursor, and a cursor at the current position."""
        record, now = super().since(cursor)
        ranges = [
            RowRange(one.first, one.stop, one.times, _stack_parts(self._parts, one.first, one.stop))
            for one in record.ranges
        ]
        return replace(record, ranges=ranges), replace(now, n_frames=self._frames_at(now.n_frames))

    def restore(self, record: Record) -> None:
        """Restore all results of an earlier run."""
        for one in record.ranges:
            for number, *values in zip(range(one.first, one.stop), *one.rows, strict=True):
                self._parts.put(number, *values)
        super().restore(replace(record, ranges=[replace(one, rows=[]) for one in record.ranges]))


class _Placed:
    """Writes the results of parts into the output arrays."""

    def __init__(self, parts: OverParts):
        self._parts = parts

    def add(self, result: BlockResult, values: tuple[np.ndarray, ...]) -> None:
        self._parts.put(result.number, *values)


def _stack_parts(parts: OverParts, first: int, stop: int) -> list[object]:
    return [_Stack(parts, k, range(first, stop)) for k in range(len(parts.get(first)))]


class _Stack:
    """Results of adjacent parts as one array; the results are joined when the array is needed."""

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
        values = (one.array if isinstance(one, SharedArray) else one for one in item)
        return self._worker.compute(*values)


class _SharedFile:
    """Anonymous temporary file that shares an array with other processes of this machine."""

    def __init__(self, array: np.ndarray):
        self._array = array

    @classmethod
    def of(cls, array: np.ndarray) -> "_SharedFile | None":
        """Share an array; return None if processes cannot open files of another process."""
        return cls(array) if CAN_SHARE else None

    @cached_property
    def _copy(self) -> np.ndarray | None:
        """Array, if it is in a file, otherwise a copy in a file; None if the disk is too full."""
        if file_of(self._array) is not None:
            return self._array
        try:
            copy = allocate(self._array.shape, self._array.dtype, 0)
        except OSError:
            # Without a file, workers receive the views themselves.
            return None
        copy[:] = self._array
        return copy

    def place(self, view: np.ndarray) -> Place | None:
        """Return the place of a view in the file.

        Returns None if there is no file, or if the array does not contain the view.
        """
        begin, end = byte_bounds(self._array)
        first, last = byte_bounds(view)
        copy = self._copy if begin <= first < last <= end else None
        if copy is None:
            return None
        return place_of(view, self._array, copy.file.fileno())  # type: ignore[attr-defined]
