"""Initial states of blocks, for a transformation that follows atoms from frame to frame.

A pass before the analyses computes the states, or each block passes its final state to the next
block (`Relay`).
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from paceline.contract.plan import LARGEST_BLOCK_BYTES, STATES_BYTES, Plan
from paceline.contract.transform_interface import WorkerScan
from paceline.errors import UnsupportedError, WorkerError, with_script_advice
from paceline.performance.number_format import amount

#: Time for which a worker waits for an earlier block before it reads that block itself, s.
LATE = 10.0
ENDED = "the run has ended"


class Relay:
    """Transforms blocks in order; each block starts from the final state of the previous block.

    Workers decode their blocks in parallel. The initial state of a block is stored until it is
    released, so that another attempt or a later pass can repeat the block. With `skip_damaged`,
    frames that cannot be transformed are left out. Otherwise the first such frame ends the run.
    """

    def __init__(self, scan: WorkerScan, *, skip_damaged: bool):
        self._scan = scan
        self._follower = scan.follower(skip_damaged)
        #: Initial state of each block, by block number, shape (1, …); arrays of released states,
        #: which are reused, because allocating an array takes a sixth of the time of transforming
        #: a block.
        self._states: dict[int, np.ndarray] = {}
        self._unused: list[np.ndarray] = []
        #: Numbers of the blocks that more than one attempt has transformed.
        self._repeated: set[int] = set()
        #: Number of blocks whose transformation has begun; number of completely transformed blocks.
        self._n_begun = self._n_done = 0
        self._closed = False
        self._changed = threading.Condition()
        self._tasks: dict[int, object] = {}

    def begin(self, task: Any) -> None:
        """Register the task of a block before a worker reads the block."""
        with self._changed:
            if task.number >= self._n_begun:
                self._tasks[task.number] = task

    def apply(
        self,
        number: int,
        positions: np.ndarray,
        cells: np.ndarray,
        catch_up: Callable[[Any], None],
    ) -> list[tuple[int, str]]:
        """Transform a block in place after all earlier blocks.

        Returns the row in the block, and the reason, of each frame that could not be transformed.
        `catch_up` reads and transforms the block of another task whose worker may be stuck.
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
            return self._move_on(number, positions, cells)
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._n_done > number)
            self._check_open()
            state = self._states.get(number)
            self._repeated.add(number)
        if state is None:
            # Another attempt has delivered the result of this block, so the result of this attempt
            # is not used.
            return []
        return self._scan.apply_from(state, positions, cells)

    def _move_on(
        self, number: int, positions: np.ndarray, cells: np.ndarray
    ) -> list[tuple[int, str]]:
        """Transform a block in its first attempt; return row and reason of each failed frame."""
        try:
            with self._changed:
                state = self._unused.pop() if self._unused else self._scan.no_states(1)
            refused = self._follower.move_on(number, positions, cells, state[0])
        except BaseException:
            # Later blocks cannot start, because they need the final state of this block.
            self.close()
            raise
        if refused is None:
            raise WorkerError(ENDED)
        with self._changed:
            self._states[number] = state
            self._n_done = max(self._n_done, number + 1)
            self._changed.notify_all()
        return refused

    def release(self, number: int) -> None:
        """Free the initial state of a block that will not be transformed again."""
        with self._changed:
            state = self._states.pop(number, None)
            # Do not reuse an array that another attempt may still read.
            if state is not None and number not in self._repeated:
                self._unused.append(state)

    def _wait(self, number: int) -> object:
        """Wait until the transformation of all earlier blocks has begun, and return None.

        If an earlier block is late, return the task of that block instead.
        """
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
        """Frames whose cell differs by more than half an edge from the previous frame's cell."""
        return self._follower.changes

    def close(self) -> None:
        """End the transformation of blocks: workers that wait for a block raise `WorkerError`."""
        self._follower.close()
        with self._changed:
            self._closed = True
            self._changed.notify_all()


@dataclass
class TransformStates:
    """Initial states of blocks, or of each analysed frame if blocks lack the frames between."""

    #: Part of the transformation that runs in workers, and computes the states.
    scan: WorkerScan
    #: Frame to which each state belongs, int64, shape (n_states,).
    frames: np.ndarray
    #: Number of frames in a block.
    block_frames: int
    #: True for one state per block; False for one state per analysed frame.
    of_blocks: bool
    #: States, shape (n_states, …); set after a separate pass has read all frames.
    found: np.ndarray = field(default_factory=lambda: np.empty(0))
    #: Pipeline in which each block passes its state to the next one; None for a separate pass.
    relay: Relay | None = None

    @classmethod
    def of(
        cls,
        plan: Plan,
        scan: WorkerScan,
        n_atoms: int,
        halo: tuple[int, int],
        per_row: int | None,
    ) -> "TransformStates":
        """Choose the frames with states, and blocks so large that the states fit into memory.

        Blocks contain `per_row` frames for each frame of the plan, or only the frames of the plan
        if `per_row` is None. Raises `UnsupportedError` if the states do not fit.
        """
        of_blocks = per_row is not None or bool((np.diff(plan.frames) == 1).all())
        frames = plan.frames
        if of_blocks:
            plan = _with_room(plan, scan.state_bytes, n_atoms * (per_row or 1))
            firsts = np.unique([max(0, rows.start - halo[0]) for rows in plan.blocks()])
            frames = frames[firsts]
        _check_room(len(frames), scan.state_bytes, n_atoms)
        return cls(scan, frames, plan.block_frames, of_blocks)

    @classmethod
    def handed_on(
        cls,
        plan: Plan,
        scan: WorkerScan,
        n_atoms: int,
        per_row: int,
        *,
        skip_damaged: bool,
        keeps: bool,
    ) -> "TransformStates":
        """Pass states from block to block; with `keeps`, store them for a later pass.

        With `skip_damaged`, frames that cannot be transformed are left out. Raises
        `UnsupportedError` if stored states exceed the memory.
        """
        if keeps:
            plan = _with_room(plan, scan.state_bytes, n_atoms * per_row)
            _check_room(len(plan), scan.state_bytes, n_atoms)
        relay = Relay(scan, skip_damaged=skip_damaged)
        return cls(scan, plan.frames, plan.block_frames, of_blocks=True, relay=relay)

    def of_window(self, frames: np.ndarray) -> np.ndarray | Relay:
        """Return the initial state of a block, or the state of each of its frames.

        `frames` are the frames of the block with its halo. If blocks pass states on, return the
        `Relay`.
        """
        if self.relay is not None:
            return self.relay
        first = int(np.searchsorted(self.frames, frames[0]))
        return self.found[first : first + (1 if self.of_blocks else len(frames))]


def _check_room(n: int, state_bytes: int, n_atoms: int) -> None:
    """Raise `UnsupportedError` if states of `n` frames need more than `STATES_BYTES`."""
    if n * state_bytes > STATES_BYTES:
        error = UnsupportedError(
            f"nojump would store the images of {n_atoms} atoms in {n} frames, which takes "
            f"{amount(n * state_bytes)}, more than {amount(STATES_BYTES)}: analyse fewer frames"
        )
        raise with_script_advice(error, ", or follow fewer atoms, as nojump('name OW')")


def _with_room(plan: Plan, block_bytes: int, n_atoms: int) -> Plan:
    """Enlarge blocks until all states fit into memory, or a block reaches its maximum size."""
    room = LARGEST_BLOCK_BYTES // (12 * n_atoms)
    while len(plan) * block_bytes > STATES_BYTES and 2 * plan.block_frames <= room:
        plan = replace(plan, block_frames=2 * plan.block_frames)
    return plan
