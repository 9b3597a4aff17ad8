"""Simulate workers event by event, to check the closed formulas of the model.

Blocks are assigned as in `paceline.engine.scheduler.Scheduler`, with a simulated clock.
"""

import heapq
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.engine.scheduler import OVERDUE, REMEMBERED, SHORTEST, UNKNOWN

#: Block number for the start of a worker.
_NONE = -1


@dataclass(frozen=True, slots=True)
class Course:
    """Result of a simulated run.

    Attributes
    ----------
    end : float
        Time when the last block was finished, s.
    done_by : list of int
        For each block, the worker whose result was used.
    n_repeated : int
        Number of times that a block was assigned again.
    """

    end: float
    done_by: list[int]
    n_repeated: int


def simulate(
    blocks: Sequence[float], slowness: Sequence[float], late: Sequence[float] = ()
) -> Course:
    """Assign blocks to idle workers, and overdue blocks again.

    `blocks` are durations on a worker of normal speed, s; `slowness` are the workers' slowdown
    factors; `late` are delays with which the first workers start, s.
    """
    return _Run(blocks, slowness, late).course()


def simulate_in_turn(
    n_workers: int, n_parts: int, first: float, second: float, n_blocks: int = 2000
) -> float:
    """Simulate work whose second half is done in block order, part by part; return s per block.

    A worker does a part after the previous block has passed it. `first` and `second` are the mean
    durations of both halves, s; each block and part varies with a standard deviation of 15 %.
    """
    rng = np.random.default_rng(n_workers)
    free, passed = [0.0] * n_workers, [0.0] * n_parts
    for _ in range(n_blocks):
        now = heapq.heappop(free) + first * _varied(rng)
        for part in range(n_parts):
            now = passed[part] = max(now, passed[part]) + second / n_parts * _varied(rng)
        heapq.heappush(free, now)
    return max(free) / n_blocks


def _varied(rng: np.random.Generator) -> float:
    return max(0.3, rng.normal(1.0, 0.15))


class _Run:
    """A simulated run: its clock, and the state of its scheduler."""

    def __init__(self, blocks: Sequence[float], slowness: Sequence[float], late: Sequence[float]):
        self._blocks = blocks
        self._slowness = slowness
        self._late = late
        self._upcoming = 0
        self._done_by = [-1] * len(blocks)
        self._n_left = len(blocks)
        self._since = [0.0] * len(blocks)
        # Blocks by number of assignments, oldest first: only the first block of each group can be
        # the next overdue one. Blocks that were finished in between are skipped.
        self._assigned: list[deque[tuple[float, int]]] = [deque()]
        self._paces: deque[float] = deque(maxlen=REMEMBERED)
        self._events: list[tuple[float, int, int]] = []
        self._idle: deque[int] = deque()
        self._n_repeated = 0

    def course(self) -> Course:
        """Run until every block is finished."""
        for worker, begin in enumerate(self._late):
            heapq.heappush(self._events, (begin, worker, _NONE))
        for worker in range(len(self._late), len(self._slowness)):
            self._give(worker, 0.0)
        now = 0.0
        while self._n_left:
            overdue = self._next_overdue(now) if self._idle else None
            if overdue is not None and overdue[0] < self._events[0][0]:
                now, level = overdue
                self._repeat(self._idle.popleft(), level, now)
                continue
            now, worker, block = heapq.heappop(self._events)
            if block != _NONE:
                self._finish(worker, block, now)
            if self._n_left:
                self._give(worker, now)
        return Course(now, self._done_by, self._n_repeated)

    def _give(self, worker: int, now: float) -> None:
        if self._upcoming < len(self._blocks):
            block, self._upcoming = self._upcoming, self._upcoming + 1
            self._begin(worker, block, 0, now)
        else:
            self._idle.append(worker)

    def _repeat(self, worker: int, level: int, now: float) -> None:
        _, block = self._assigned[level].popleft()
        self._n_repeated += 1
        self._begin(worker, block, level + 1, now)

    def _begin(self, worker: int, block: int, level: int, now: float) -> None:
        if level == len(self._assigned):
            self._assigned.append(deque())
        self._assigned[level].append((now, block))
        self._since[block] = now
        heapq.heappush(
            self._events, (now + self._blocks[block] * self._slowness[worker], worker, block)
        )

    def _finish(self, worker: int, block: int, now: float) -> None:
        if self._done_by[block] < 0:
            self._done_by[block] = worker
            self._n_left -= 1
            self._paces.append(now - self._since[block])

    def _next_overdue(self, now: float) -> tuple[float, int] | None:
        """Return the time when the next block is overdue, and its number of repeats."""
        allowed = UNKNOWN
        if self._paces:
            allowed = max(SHORTEST, OVERDUE * statistics.median_low(self._paces))
        first = []
        for level, assigned in enumerate(self._assigned):
            while assigned and self._done_by[assigned[0][1]] >= 0:
                assigned.popleft()
            if assigned:
                since = assigned[0][0]
                first.append((since, since + allowed * 2**level, level))
        if not first:
            return None
        when = max(now, min(due for _, due, _ in first))
        # If several blocks are overdue, choose the one that was assigned first.
        return when, min((since, level) for since, due, level in first if due <= when)[1]
