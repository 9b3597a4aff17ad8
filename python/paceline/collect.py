"""Outcomes of blocks, as they come, into whole results."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from paceline.files import allocate
from paceline.job import Part, Receiver
from paceline.outcome import Gathered, Outcome, merging, refuse_unlike
from paceline.plan import Plan, Tree
from paceline.timing import Timings


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
        if outcome.values is not None:
            for collector, value in zip(self._collectors, outcome.values, strict=True):
                collector.add(outcome, value)
            self.times[outcome.first : outcome.first + outcome.n_frames] = outcome.times
        self.damaged.extend(outcome.damaged)
        done = time.monotonic_ns()
        self._timings.blocks.extend(
            replace(timing, job=self._number, comm=done - timing.end) for timing in outcome.timings
        )
        self._timings.t_comm += (done - begun) / 1e9

    def take(self, gathered: Gathered) -> None:
        """Take the results of all blocks, that were kept where they were done."""
        for collector, value in zip(self._collectors, gathered.values, strict=True):
            collector.take(value)
        self.times = gathered.times

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

    def take(self, value: None) -> None:
        """Nothing: such results are not kept."""

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
            self.value = allocate((self._n_rows, *rows.shape[1:]), rows.dtype)
        refuse_unlike(self._name, rows, self.value)
        self.value[outcome.first : outcome.first + outcome.n_frames] = rows

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

    def __init__(self, n_blocks: int, part: Part):
        self._tree = Tree(n_blocks, merging(part))

    def add(self, outcome: Outcome, partial: Any) -> None:
        self._tree.add(outcome.number, partial, outcome.level)

    def take(self, merged: Any) -> None:
        self._tree.root = merged

    def whole(self, missing: np.ndarray) -> Any:
        """What all frames gave; those that were left out never came here."""
        return self._tree.root
