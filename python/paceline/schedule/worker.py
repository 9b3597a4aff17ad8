"""What a worker does with one block: read, decode, compute. It imports no MDAnalysis by itself."""

import copy
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Self

import cloudpickle
import numpy as np

from paceline.block import DAMAGED_STEP, Block, Decoded
from paceline.errors import (
    AnalysisError,
    PacelineError,
    TransformError,
    UnwritableError,
    WorkerError,
)
from paceline.performance.records import BlockTiming
from paceline.schedule.reduce import fold
from paceline.schedule.tasks import (
    AnyJob,
    AnyWork,
    BlockResult,
    FunctionJob,
    FunctionTask,
    Work,
    WorkerAnalysis,
)
from paceline.trajectory.source import Cost, Extents


class Worker:
    """Does blocks and calls, one after another; its files are those of the last one's job.

    Parameters
    ----------
    job_of : callable
        Gives the job of a number.

    Attributes
    ----------
    name : str
        host:process:thread.
    """

    def __init__(self, job_of: Callable[[int], AnyJob]):
        self._job_of = job_of
        self._number: int | None = None
        self._free_since = time.monotonic_ns()
        self.name = f"{socket.gethostname()}:{os.getpid()}:{threading.get_native_id()}"

    def run(self, work: AnyWork) -> BlockResult:
        """Read, decode and compute one block, or do one call.

        Raises
        ------
        DamagedFileError
            A frame cannot be read and is not to be skipped.
        TransformError
            Positions of a frame cannot be transformed, and it is not to be skipped.
        AnalysisError
            An analysis raised, or returned rows of a wrong shape.
        """
        start, free_since = time.monotonic_ns(), self._free_since
        self._take_up(work.job)
        taken_up = time.monotonic_ns()
        if isinstance(work, FunctionTask):
            return self._call(work, start, taken_up)
        if work.ahead is not None:
            self._reader.read_ahead(work.ahead)
        asked_ahead = time.monotonic_ns()
        decoded, cost = self._read(work)
        read = time.monotonic_ns()
        untransformed = self._transform(work.extents, decoded)
        decoded.seal()
        transformed = time.monotonic_ns()
        values = [self._compute(part, work, decoded) for part in self._job.parts]
        end = self._free_since = time.monotonic_ns()
        return BlockResult(
            work.job,
            0,
            work.number,
            work.first,
            work.n_frames,
            values,
            decoded.times,
            [(int(decoded.frames[row]), reason) for row, reason in (*cost.damaged, *untransformed)],
            [
                BlockTiming(
                    job=work.job,
                    block=work.number,
                    first_frame=int(decoded.frames[0]),
                    n_frames=work.n_frames,
                    worker=self.name,
                    start=start,
                    end=end,
                    wait=start - free_since,
                    open=taken_up - start + cost.open,
                    read=cost.read + asked_ahead - taken_up,
                    decode=cost.decode,
                    transform=transformed - read,
                    compute=end - transformed,
                    comm=0,
                    bytes=cost.bytes,
                    calls=cost.calls,
                )
            ],
        )

    def _take_up(self, number: int) -> None:
        """Turn to a job, letting go of the last one's files."""
        if number != self._number:
            job = self._job_of(number)
            if isinstance(job, FunctionJob):
                self._calls, self._function = job, _opened(job.function)
            else:
                self._job, self._reader = job, job.source.open()
            self._number = number

    def _call(self, call: FunctionTask, start: int, taken_up: int) -> BlockResult:
        """Do one call."""
        free_since = self._free_since
        try:
            value = self._function(call.item)
        except PacelineError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise AnalysisError(f"{self._calls.name} raised on {call.what}: {reason}") from error
        end = self._free_since = time.monotonic_ns()
        timing = BlockTiming(
            job=call.job,
            block=call.number,
            first_frame=call.first_frame,
            n_frames=call.n_frames,
            worker=self.name,
            start=start,
            end=end,
            wait=start - free_since,
            open=taken_up - start,
            read=0,
            decode=0,
            transform=0,
            compute=end - taken_up,
            comm=0,
            bytes=0,
            calls=0,
        )
        times = np.full(call.n_frames, np.nan)
        return BlockResult(
            call.job, 0, call.number, call.first, call.n_frames, [value], times, [], [timing]
        )

    def _read(self, work: Work) -> tuple[Decoded, Cost]:
        """Frames of a block, and what they cost."""
        decoded = self._job.room_for(work.frames)
        cost = self._reader.read(work.extents, decoded, skip=self._job.skip_damaged)
        decoded.times[:] = self._job.source.clock(decoded.frames, decoded.times)
        return decoded, cost

    def _transform(self, extents: Extents, decoded: Decoded) -> list[tuple[int, str]]:
        """Transform a block in place; rows that cannot be, which are left out if that is asked."""
        failed: dict[int, str] = {}
        if decoded.positions is None:
            return []
        for transform in self._job.transforms:
            for row, reason in transform.apply(decoded.positions, decoded.dimensions):
                failed.setdefault(row, f"{self._job.source.name_of(extents, row)}: {reason}")
        if failed and not self._job.skip_damaged:
            raise TransformError(failed[min(failed)])
        for row in failed:
            decoded.blank(row)
        return sorted(failed.items())

    def _compute(self, part: WorkerAnalysis, work: Work, decoded: Decoded) -> Any:
        block = Block(decoded, part.columns, part.attributes)
        where = f"frames {decoded.frames[0]} to {decoded.frames[-1]}"
        try:
            if part.per_block:
                value = part.computation.compute_block(_whole(block), work.first)  # type: ignore[union-attr]
                return {work.number: value}
            if part.reduces:
                cuts = self._job.leaves.cuts(work.first, len(block))
                leaves = (_whole(block[begin:end]) for begin, end in pairwise(cuts))
                partials = [part.computation.compute(leaf) for leaf in leaves]  # type: ignore[union-attr]
                return fold(partials, part.computation.merge)  # type: ignore[union-attr]
            # A copy: the function may fill the same array again for the next block.
            rows = np.array(part.computation.compute(block))  # type: ignore[union-attr]
        except Exception as error:
            # A writer's own errors say where, in the user's words.
            if part.per_block and isinstance(error, UnwritableError | OSError):
                raise
            reason = f"{type(error).__name__}: {error}"
            raise AnalysisError(f"{part.name} raised on {where}: {reason}") from error
        if rows.ndim == 0 or len(rows) != len(block):
            raise AnalysisError(
                f"{part.name} on {where}: expected one row for each of the {len(block)} frames, "
                f"found an array of shape {rows.shape}"
            )
        if rows.dtype.hasobject:
            raise AnalysisError(f"{part.name} on {where}: expected numbers, found {rows.dtype}")
        return rows


def _whole(leaf: Block) -> Block:
    """A leaf without the frames that could not be read: a reduction never sees them."""
    whole = leaf.steps != DAMAGED_STEP
    return leaf if whole.all() else leaf[whole]


class SealedJob:
    """A job made ready to be sent: pickled once, opened once a worker.

    Attributes
    ----------
    key : str
        By which a worker knows it again.
    data : bytes
        The job; empty where only the key is sent.
    """

    def __init__(self, job: AnyJob):
        self.key = uuid.uuid4().hex
        self.data = cloudpickle.dumps(job)

    def key_alone(self) -> Self:
        """The same for a worker that may have it already."""
        other = copy.copy(self)
        other.data = b""
        return other

    def open(self) -> AnyJob:
        """The job.

        Raises
        ------
        WorkerError
            It cannot be made anew here.
        """
        return _opened(self.data)


def _opened(data: bytes) -> Any:
    """What was sent."""
    try:
        return cloudpickle.loads(data)
    except PacelineError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise WorkerError(f"a worker cannot open an analysis: {reason}") from error
