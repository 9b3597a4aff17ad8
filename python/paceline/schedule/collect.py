"""Outcomes of blocks, as they come, into whole results."""

import math
import os
import pickle
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import cloudpickle
import numpy as np

from paceline._util.files import writing_to
from paceline.errors import CheckpointError
from paceline.performance.records import BlockTiming, DuplicateAttempt
from paceline.performance.timings import Timings
from paceline.schedule.plan import Plan
from paceline.schedule.reduce import Tree
from paceline.schedule.tasks import (
    BlockResult,
    CollectedResult,
    Receiver,
    WorkerAnalysis,
    merging,
    refuse_unlike,
)

#: Arrays larger than this are kept in a file that vanishes with them, bytes.
LARGE = 2**30


def allocate(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Make room for an array: in memory, or in a nameless file if it is large.

    Parameters
    ----------
    shape : tuple of int
        Of the array.
    dtype : numpy.dtype
        Of its elements.

    Returns
    -------
    numpy.ndarray
        Not filled.
    """
    size = math.prod(shape) * dtype.itemsize
    if size <= LARGE:
        return np.empty(shape, dtype)
    file = tempfile.TemporaryFile()  # noqa: SIM115
    if hasattr(os, "posix_fallocate"):
        # On a full disk, writing to mapped bytes that the file does not have yet is a crash.
        with writing_to(tempfile.gettempdir()):
            os.posix_fallocate(file.fileno(), 0, size)
    return np.memmap(file, dtype=dtype, shape=shape)


@dataclass(frozen=True)
class RowRange:
    """Rows of neighbouring frames.

    Attributes
    ----------
    first, stop : int
        Of the frames of the run, `stop` not included.
    times : numpy.ndarray of float64, shape (n_frames,)
        ps.
    rows : list of numpy.ndarray
        Of each analysis that gives rows.
    """

    first: int
    stop: int
    times: np.ndarray
    rows: list[np.ndarray]


@dataclass(frozen=True)
class Record:
    """What came to a trajectory's results in the course of time: enough to put it there again.

    Attributes
    ----------
    spans : list of RowRange
        Rows of all frames that came.
    nodes : dict
        By (level, number) of a subtree of blocks, that was not there before, the partial results
        of the analyses that give one; in a file each is pickled by itself.
    damaged : list of (int, str)
        Frames that were left out, and why.
    timings : list of BlockTiming
        Of the blocks that came.
    """

    spans: list[RowRange] = field(default_factory=list)
    nodes: dict[tuple[int, int], Any] = field(default_factory=dict)
    damaged: list[tuple[int, str]] = field(default_factory=list)
    timings: list[BlockTiming] = field(default_factory=list)


@dataclass(frozen=True)
class Cursor:
    """A moment, by how much had come until then."""

    n_frames: int = 0
    spans: int = 0
    damaged: int = 0
    timings: int = 0
    nodes: frozenset[tuple[int, int]] = frozenset()


def cut(span: RowRange, size: int) -> Iterator[RowRange]:
    """Cut a span into parts of some size.

    Parameters
    ----------
    span : RowRange
        What is to be cut.
    size : int
        Bytes, about, in a part; of one row at least.

    Yields
    ------
    RowRange
    """
    n_rows = span.stop - span.first
    n_bytes = span.times.nbytes + sum(rows.nbytes for rows in span.rows)
    step = max(1, n_rows * size // n_bytes)
    for k in range(0, n_rows, step):
        part = slice(k, min(k + step, n_rows))
        rows = [values[part] for values in span.rows]
        yield RowRange(span.first + k, span.first + part.stop, span.times[part], rows)


def uppermost(nodes: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
    """Subtrees that are no part of another one.

    Parameters
    ----------
    nodes : collection of (int, int)
        Level and number of each.

    Returns
    -------
    list of (int, int)

    Examples
    --------
    >>> uppermost([(0, 0), (0, 1), (1, 0), (0, 2)])
    [(1, 0), (0, 2)]
    """
    there = set(nodes)
    top = max((level for level, _ in there), default=0)
    return [
        (level, number)
        for level, number in nodes
        if not any((up, number >> (up - level)) in there for up in range(level + 1, top + 1))
    ]


def pickled(page: Record) -> Record:
    """Pickle each subtree's partial results by themselves: those of no use need not be read back.

    Parameters
    ----------
    page : Record
        As `Collected.since` gives it.

    Returns
    -------
    Record
        With bytes in the place of partial results.

    Raises
    ------
    CheckpointError
        One cannot be pickled.
    """
    try:
        nodes = {key: _pickle(values) for key, values in page.nodes.items()}
    except Exception as error:  # pickling runs code of every object's own
        raise CheckpointError(
            f"a partial result cannot be kept in a checkpoint: {type(error).__name__}: {error}"
        ) from error
    return replace(page, nodes=nodes)


def _pickle(value: Any) -> bytes:
    """By reference where that is possible: a class shall be the same one afterwards."""
    try:
        return pickle.dumps(value, 5)
    except (pickle.PicklingError, AttributeError, TypeError):
        return cloudpickle.dumps(value, 5)


class Collected:
    """Results of all blocks so far.

    Parameters
    ----------
    number : int
        Which of the run's trajectories this is.
    plan : Plan
        The blocks.
    parts : sequence of WorkerAnalysis
        The analyses' halves, in the order of `BlockResult.values`.
    receivers : sequence of Receiver or None
        Of each part that gives something for each block, who takes it.
    timings : Timings
        Is given every block's timing, and the time spent here.
    """

    def __init__(
        self,
        number: int,
        plan: Plan,
        parts: Sequence[WorkerAnalysis],
        receivers: Sequence[Receiver | None],
        timings: Timings,
    ):
        self._number = number
        self._plan = plan
        self._timings = timings
        self._collectors = [
            _collector(plan, part, receiver)
            for part, receiver in zip(parts, receivers, strict=True)
        ]
        self._rows = [one for one in self._collectors if isinstance(one, _Rows)]
        self._merged = [one for one in self._collectors if isinstance(one, _Merged)]
        self.times = np.empty(len(plan.frames))
        self.damaged: list[tuple[int, str]] = []
        self._spans: list[tuple[int, int]] = []

    def add(self, outcome: BlockResult) -> None:
        """Put the results of one or several blocks where they belong."""
        begun = time.monotonic_ns()
        if outcome.values is not None:
            for collector, value in zip(self._collectors, outcome.values, strict=True):
                collector.add(outcome, value)
            stop = outcome.first + outcome.n_frames
            self.times[outcome.first : stop] = outcome.times
            self._spans.append((outcome.first, stop))
        self.damaged.extend(outcome.damaged)
        done = time.monotonic_ns()
        # Another host's clock may have drifted since it was compared, by more than the way takes.
        self._timings.blocks.extend(
            replace(timing, job=self._number, comm=max(0, done - timing.end))
            for timing in outcome.timings
        )
        self._timings.t_comm += (done - begun) / 1e9

    def note(self, attempt: DuplicateAttempt) -> None:
        """Take note of an attempt that does not count."""
        timing = replace(attempt.timing, job=self._number)
        self._timings.abandoned.append(replace(attempt, timing=timing))

    def take(self, gathered: CollectedResult, since: int) -> None:
        """Take the results of all blocks, that were kept where they were done.

        Parameters
        ----------
        gathered : CollectedResult
            The results.
        since : int
            When the last of them was done, or the last job's were taken, ns.
        """
        for collector, value in zip(self._collectors, gathered.values, strict=True):
            collector.take(value)
        self.times = gathered.times
        self._timings.t_comm += (time.monotonic_ns() - since) / 1e9

    def since(self, mark: Cursor) -> tuple[Record, Cursor]:
        """What came since some moment.

        Parameters
        ----------
        mark : Cursor
            That moment; `Mark()` is the beginning.

        Returns
        -------
        Record
            Its values are those that are merged and filled further on: to be copied, or written,
            at once.
        Cursor
            The present moment.
        """
        spans = [
            RowRange(
                first, stop, self.times[first:stop], [one.rows(first, stop) for one in self._rows]
            )
            for first, stop in _united(self._spans[mark.spans :])
        ]
        trees = [merged.tree.waiting for merged in self._merged]
        keys = frozenset(trees[0] if trees else ())
        nodes = {key: [tree[key] for tree in trees] for key in keys - mark.nodes}
        blocks = [block for block in self._timings.blocks if block.job == self._number]
        page = Record(spans, nodes, self.damaged[mark.damaged :], blocks[mark.timings :])
        now = (self.n_frames, len(self._spans), len(self.damaged), len(blocks), keys)
        return page, Cursor(*now)

    @property
    def n_frames(self) -> int:
        """Frames that have come."""
        return sum(stop - first for first, stop in self._spans)

    def restore(self, page: Record) -> None:
        """Put back what an earlier run had collected.

        Parameters
        ----------
        page : Record
            Of all that had come, each subtree's partial results once.
        """
        for span in page.spans:
            for collector, rows in zip(self._rows, span.rows, strict=True):
                collector.put(span.first, rows)
            self.times[span.first : span.stop] = span.times
            self._spans.append((span.first, span.stop))
        for (level, number), values in page.nodes.items():
            for merged, value in zip(self._merged, values, strict=True):
                merged.tree.add(number, value, level)
        self.damaged.extend(page.damaged)
        self._timings.blocks.extend(page.timings)

    def missing(self) -> np.ndarray:
        """Blocks that did not come yet.

        Returns
        -------
        numpy.ndarray of int64, shape (n_missing,)
            Their numbers.
        """
        missing = np.ones(len(self._plan), bool)
        for first, stop in self._spans:
            missing[self._plan.number(first) : self._plan.number(stop - 1) + 1] = False
        return np.flatnonzero(missing)

    @property
    def values(self) -> list[Any]:
        """All rows, or the merged partial result, of each analysis."""
        missing = np.isin(self._plan.frames, [frame for frame, _ in self.damaged])
        return [collector.whole(missing) for collector in self._collectors]


def _collector(
    plan: Plan, part: WorkerAnalysis, receiver: Receiver | None
) -> "_Rows | _Merged | _Received":
    if receiver is not None:
        return _Received(receiver)
    return _Merged(len(plan), part) if part.reduces else _Rows(len(plan.frames), part)


class _Received:
    """What each block gave, handed on."""

    def __init__(self, receiver: Receiver):
        self._receiver = receiver

    def add(self, outcome: BlockResult, values: dict[int, Any]) -> None:
        for number, value in values.items():
            self._receiver.add(number, value)

    def take(self, value: None) -> None:
        """Nothing: such results are not kept."""

    def whole(self, missing: np.ndarray) -> None:
        """Nothing: the receiver has it all."""


class _Rows:
    """One row a frame, each straight to its place."""

    def __init__(self, n_rows: int, part: WorkerAnalysis):
        self._n_rows = n_rows
        self._name = part.name
        self.value: np.ndarray | None = None

    def add(self, outcome: BlockResult, rows: np.ndarray) -> None:
        self.put(outcome.first, rows)

    def put(self, first: int, rows: np.ndarray) -> None:
        """Rows of neighbouring frames, from that of `first`."""
        if self.value is None:
            self.value = allocate((self._n_rows, *rows.shape[1:]), rows.dtype)
        refuse_unlike(self._name, rows, self.value)
        self.value[first : first + len(rows)] = rows

    def rows(self, first: int, stop: int) -> np.ndarray:
        """Rows that were put there."""
        return self.value[first:stop]  # type: ignore[index]

    def take(self, rows: np.ndarray) -> None:
        self.value = rows

    def whole(self, missing: np.ndarray) -> np.ndarray | None:
        """All rows; NaN, or what comes next to it, for frames that were left out."""
        if self.value is None or not missing.any():
            return self.value
        kind = self.value.dtype.kind
        if kind in "biu":  # no whole number says that there is none
            numbers = allocate(self.value.shape, np.dtype(np.float64))
            numbers[:] = self.value
            self.value = numbers
        self.value[missing] = "NaT" if kind in "mM" else "" if kind in "SU" else np.nan
        return self.value


class _Merged:
    """One result for all frames, merged over the tree of blocks."""

    def __init__(self, n_blocks: int, part: WorkerAnalysis):
        self.tree = Tree(n_blocks, merging(part))

    def add(self, outcome: BlockResult, partial: Any) -> None:
        self.tree.add(outcome.number, partial, outcome.level)

    def take(self, merged: Any) -> None:
        self.tree.root = merged

    def whole(self, missing: np.ndarray) -> Any:
        """What all frames gave; those that were left out never came here."""
        return self.tree.root


def _united(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in order, neighbours as one."""
    united: list[tuple[int, int]] = []
    for first, stop in sorted(spans):
        if united and united[-1][1] == first:
            united[-1] = united[-1][0], stop
        else:
            united.append((first, stop))
    return united
