"""Outcomes of blocks, as they come, into whole results."""

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from paceline.files import writing_to
from paceline.job import Part, Receiver
from paceline.outcome import Outcome, merging, refuse_unlike
from paceline.plan import Plan, Tree
from paceline.timing import Timings

#: Per-frame results larger than this are kept in a file that vanishes with them, bytes.
LARGE = 2**30


class Collected:
    """Results of all blocks so far.

    Parameters
    ----------
    number : int
        Which of the run's trajectories this is.
    plan : Plan
        The blocks.
    parts : sequence of Part
        The analyses' halves, in the order of `Outcome.values`.
    receivers : sequence of Receiver or None
        Of each part that gives something for each block, who takes it.
    timings : Timings
        Is given every block's timing, and the time spent here.
    """

    def __init__(
        self,
        number: int,
        plan: Plan,
        parts: Sequence[Part],
        receivers: Sequence[Receiver | None],
        timings: Timings,
    ):
        self._number = number
        self._frames = plan.frames
        self._timings = timings
        self._collectors = [
            _collector(plan, part, receiver)
            for part, receiver in zip(parts, receivers, strict=True)
        ]
        self.times = np.empty(len(plan.frames))
        self.damaged: list[tuple[int, str]] = []

    def add(self, outcome: Outcome) -> None:
        """Put the results of one or several blocks where they belong."""
        begun = time.monotonic_ns()
        for collector, value in zip(self._collectors, outcome.values, strict=True):
            collector.add(outcome, value)
        self.times[outcome.first : outcome.first + outcome.n_frames] = outcome.times
        self.damaged.extend(outcome.damaged)
        done = time.monotonic_ns()
        self._timings.blocks.extend(
            replace(timing, job=self._number, comm=done - timing.end) for timing in outcome.timings
        )
        self._timings.t_comm += (done - begun) / 1e9

    @property
    def values(self) -> list[Any]:
        """All rows, or the merged partial result, of each analysis."""
        missing = np.isin(self._frames, [frame for frame, _ in self.damaged])
        return [collector.whole(missing) for collector in self._collectors]


def _collector(plan: Plan, part: Part, receiver: Receiver | None) -> "_Rows | _Merged | _Received":
    if receiver is not None:
        return _Received(receiver)
    return _Merged(len(plan), part) if part.reduces else _Rows(len(plan.frames), part)


class _Received:
    """What each block gave, handed on."""

    def __init__(self, receiver: Receiver):
        self._receiver = receiver

    def add(self, outcome: Outcome, values: dict[int, Any]) -> None:
        for number, value in values.items():
            self._receiver.add(number, value)

    def whole(self, missing: np.ndarray) -> None:
        """Nothing: the receiver has it all."""


class _Rows:
    """One row a frame, each straight to its place."""

    def __init__(self, n_rows: int, part: Part):
        self._n_rows = n_rows
        self._name = part.name
        self.value: np.ndarray | None = None

    def add(self, outcome: Outcome, rows: np.ndarray) -> None:
        if self.value is None:
            self.value = _allocate((self._n_rows, *rows.shape[1:]), rows.dtype)
        refuse_unlike(self._name, rows, self.value)
        self.value[outcome.first : outcome.first + outcome.n_frames] = rows

    def whole(self, missing: np.ndarray) -> np.ndarray | None:
        """All rows; NaN, or what comes next to it, for frames that were left out."""
        if self.value is None or not missing.any():
            return self.value
        kind = self.value.dtype.kind
        if kind in "biu":  # no whole number says that there is none
            numbers = _allocate(self.value.shape, np.dtype(np.float64))
            numbers[:] = self.value
            self.value = numbers
        self.value[missing] = "NaT" if kind in "mM" else "" if kind in "SU" else np.nan
        return self.value


class _Merged:
    """One result for all frames, merged over the tree of blocks."""

    def __init__(self, n_blocks: int, part: Part):
        self._tree = Tree(n_blocks, merging(part))

    def add(self, outcome: Outcome, partial: Any) -> None:
        self._tree.add(outcome.number, partial, outcome.level)

    def whole(self, missing: np.ndarray) -> Any:
        """What all frames gave; those that were left out never came here."""
        return self._tree.root


def _allocate(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    size = int(np.prod(shape)) * dtype.itemsize
    if size <= LARGE:
        return np.empty(shape, dtype)
    file = tempfile.TemporaryFile()  # noqa: SIM115
    if hasattr(os, "posix_fallocate"):
        # On a full disk, writing to mapped bytes that the file does not have yet is a crash.
        with writing_to(tempfile.gettempdir()):
            os.posix_fallocate(file.fileno(), 0, size)
    return np.memmap(file, dtype=dtype, shape=shape)
