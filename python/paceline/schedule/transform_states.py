"""States in which blocks begin, where a transformation follows atoms from frame to frame."""

from dataclasses import dataclass, field, replace

import numpy as np

from paceline.errors import UnsupportedError, with_script_advice
from paceline.performance.number_format import amount
from paceline.schedule.collect import STATES_BYTES
from paceline.schedule.plan import LARGEST_BLOCK_BYTES, Plan
from paceline.schedule.relay import Relay
from paceline.transform.base import WorkerScan


@dataclass
class TransformStates:
    """States in which blocks begin, or those of each frame if there are others between them.

    Attributes
    ----------
    scan : WorkerScan
        Finds them.
    frames : numpy.ndarray of int64, shape (n_states,)
        Their frames.
    block_frames : int
        Frames in a block.
    of_blocks : bool
        True if they are those of blocks, with what is read before them.
    found : numpy.ndarray, shape (n_states, …)
        Set when all frames were scanned.
    relay : Relay or None
        Hands states on from block to block instead.
    """

    scan: WorkerScan
    frames: np.ndarray
    block_frames: int
    of_blocks: bool
    found: np.ndarray = field(default_factory=lambda: np.empty(0))
    relay: Relay | None = None

    @classmethod
    def of(
        cls, plan: Plan, scan: WorkerScan, n_atoms: int, halo: tuple[int, int]
    ) -> "TransformStates":
        """Choose the frames, and blocks so large that there is room for their states."""
        steps = np.diff(plan.frames)
        if (steps < 1).any():
            raise UnsupportedError(
                "nojump follows atoms from frame to frame: give frames in increasing order"
            )
        of_blocks, frames = bool((steps == 1).all()), plan.frames
        if of_blocks:
            plan = with_room(plan, scan.state_bytes, n_atoms)
            firsts = np.unique([max(0, rows.start - halo[0]) for rows in plan.blocks()])
            frames = frames[firsts]
        n_bytes = len(frames) * scan.state_bytes
        check_room_for(n_bytes, f"images of {n_atoms} atoms in {len(frames)} frames")
        return cls(scan, frames, plan.block_frames, of_blocks)

    def hand_on(self) -> None:
        """Hand states on from block to block, if no frame between them is passed over."""
        if self.of_blocks and self.frames[0] == 0:
            self.relay = Relay(self.scan, self.scan.no_states(len(self.frames)))

    def of_window(self, frames: np.ndarray) -> np.ndarray | Relay:
        """Get the states for a block and its halo."""
        if self.relay is not None:
            return self.relay
        first = int(np.searchsorted(self.frames, frames[0]))
        return self.found[first : first + (1 if self.of_blocks else len(frames))]


def with_room(plan: Plan, block_bytes: int, n_atoms: int, besides: int = 0) -> Plan:
    """Enlarge blocks until what is kept of them has room, but not beyond what may be decoded."""
    room = LARGEST_BLOCK_BYTES // (12 * n_atoms)
    while len(plan) * block_bytes + besides > STATES_BYTES and 2 * plan.block_frames <= room:
        plan = replace(plan, block_frames=2 * plan.block_frames)
    return plan


def check_room_for(n_bytes: int, what: str) -> None:
    """Raise `UnsupportedError` if so much would be kept."""
    if n_bytes > STATES_BYTES:
        error = UnsupportedError(
            f"nojump would keep the {what}, {amount(n_bytes)} and more than "
            f"{amount(STATES_BYTES)}: analyse fewer frames"
        )
        raise with_script_advice(error, ", or follow fewer atoms, as nojump('name OW')")
