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
ENDED = "the run has ended"


class Relay:
    """Transforms blocks in the order of their numbers, each as the one before is.

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
        #: Blocks that a worker has begun to transform, and that are transformed.
        self._n_begun = self._n_done = 0
        self._closed = False
        self._changed = threading.Condition()
        self._tasks: dict[int, Any] = {}

    def begin(self, task: Any) -> None:
        """Note the task of a block that a worker is about to read."""
        with self._changed:
            if task.number >= self._n_begun:
                self._tasks[task.number] = task

    def apply(
        self,
        number: int,
        positions: np.ndarray,
        dimensions: np.ndarray,
        catch_up: Callable[[Any], None],
    ) -> list[tuple[int, str]]:
        """Transform a block in place as those before it are; return rows that cannot be.

        `catch_up` reads and transforms the block of another task, which its worker may never do.
        """
        while (late := self._wait(number)) is not None:
            catch_up(late)
        with self._changed:
            is_first = number == self._n_begun
            if is_first:
                self._n_begun += 1
                self._tasks.pop(number, None)
                self._changed.notify_all()
        if is_first:
            return self._move_on(number, positions, dimensions)
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._n_done > number)
            self._check_open()
        return self._scan.apply_from(self._states[number : number + 1], positions, dimensions)

    def _move_on(
        self, number: int, positions: np.ndarray, dimensions: np.ndarray
    ) -> list[tuple[int, str]]:
        """Transform a block for the first time."""
        try:
            moved = self._follower.move_on(number, positions, dimensions)
        except BaseException:
            # The blocks that follow cannot go on from here.
            self.close()
            raise
        if moved is None:
            raise WorkerError(ENDED)
        refused, self._states[number] = moved
        with self._changed:
            self._n_done = max(self._n_done, number + 1)
            self._changed.notify_all()
        return refused

    def _wait(self, number: int) -> Any:
        """Wait until all blocks before one are begun; return the task of one that takes long."""
        with self._changed:
            while self._n_begun < number:
                self._check_open()
                before = self._n_begun
                in_time = self._changed.wait(LATE)
                if not in_time and before == self._n_begun and before in self._tasks:
                    self._check_open()
                    return self._tasks[before]
            return None

    def _check_open(self) -> None:
        if self._closed:
            raise WorkerError(ENDED)

    @property
    def changes(self) -> np.ndarray:
        """Frames whose cell differs by more than half from that of the frame before."""
        return self._follower.changes

    def close(self) -> None:
        """Release the workers that wait."""
        self._follower.close()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
