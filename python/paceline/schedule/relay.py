"""Blocks that wait for one another: states that the threads of one process hand on."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.errors import WorkerError

if TYPE_CHECKING:
    from paceline.transform.base import WorkerScan

#: Time after which a block that all wait for is read by another worker too, seconds.
LATE = 10.0


class Relay:
    """Transforms blocks in the order of their numbers, each after the one before.

    Workers decode their blocks meanwhile. What a block began with is kept, so that it may be done
    again: by another attempt, or in a later pass.

    Parameters
    ----------
    scan : WorkerScan
        What is done to each block.
    states : numpy.ndarray, shape (n_blocks, …)
        Where the states are kept in which blocks begin.
    """

    def __init__(self, scan: "WorkerScan", states: np.ndarray):
        self._scan, self._states = scan, states
        self._follower = scan.follower()
        self._next = 0
        self._closed = False
        self._changed = threading.Condition()
        self._tasks: dict[int, Any] = {}

    def begin(self, task: Any) -> None:
        """Note the task of a block that a worker is about to read."""
        with self._changed:
            if task.number >= self._next:
                self._tasks[task.number] = task

    def apply(
        self,
        number: int,
        positions: np.ndarray,
        dimensions: np.ndarray,
        catch_up: Callable[[Any], None],
    ) -> list[tuple[int, str]]:
        """Transform a block in place once those before it are; return rows that cannot be.

        `catch_up` reads and transforms the block of another task, which its worker may never do.
        """
        while (late := self._wait(number)) is not None:
            catch_up(late)
        with self._changed:
            if number == self._next:
                refused, self._states[number] = self._follower.move_on(positions, dimensions)
                self._next += 1
                self._tasks.pop(number, None)
                self._changed.notify_all()
                return refused
        return self._scan.apply_from(self._states[number : number + 1], positions, dimensions)

    def _wait(self, number: int) -> Any:
        """Wait for all blocks before one; return the task of the first if it takes long."""
        with self._changed:
            while self._next < number:
                if self._closed:
                    raise WorkerError("the run has ended")
                before = self._next
                in_time = self._changed.wait(LATE)
                if not (in_time or self._closed) and before == self._next and before in self._tasks:
                    return self._tasks[before]
            return None

    @property
    def changes(self) -> np.ndarray:
        """Frames whose cell differs by more than half from that of the frame before."""
        return self._follower.changes

    def close(self) -> None:
        """Release the workers that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
