"""The pass over all frames that a transformation needs which follows atoms from frame to frame."""

from dataclasses import replace

import numpy as np

from paceline.performance.timings import Timings
from paceline.schedule.frame_pass import FramePass
from paceline.schedule.parts import PartsRun
from paceline.schedule.tasks import WorkerAnalysis
from paceline.schedule.trajectory_run import TrajectoryRun
from paceline.schedule.transform_states import TransformStates


class ScanRun(FramePass):
    """The pass before the first one, for a transformation that follows atoms from frame to frame.

    It passes over all frames, from the trajectory's first one on, and finds the states in which the
    blocks of the analyses begin. States merge exactly, so that neighbours can be merged at once.
    """

    def __init__(self, planned: TrajectoryRun, states: TransformStates):
        self._planned, self._states = planned, states
        self.trajectory, scan, job = planned.trajectory, states.scan, planned.job
        planned.is_first = False
        frames = np.arange(planned.plan.frames[-1] + 1)
        # Blocks as the analyses', which a checkpoint keeps, whatever the number of workers.
        self.plan = planned.make_plan(frames, block_frames=planned.plan.block_frames)
        #: True if the blocks are those of the analyses, for which decoded frames can be kept.
        self._keeps = np.array_equal(frames, planned.plan.frames) and not any(planned.halo)
        self._scan = scan.scan_of(states.frames)
        self.job = replace(
            job,
            transforms=job.transforms[: job.transforms.index(scan) + 1],
            analyses=[WorkerAnalysis("nojump", self._scan, None)],
            leaves=self.plan.leaves,
            caching=job.caching if self._keeps else None,
        )

    @property
    def n_frames(self) -> int:
        """Number of frames to be read in this pass and all that follow."""
        return len(self.plan.frames) + self.planned.n_frames

    @property
    def planned(self) -> TrajectoryRun:
        """First pass of the analyses."""
        return self._planned

    def next_stages(self) -> list[FramePass | PartsRun]:
        """Get the first pass of the analyses, from the states that this one found."""
        [merged] = self.collected.values
        self._states.found, cells = self._scan.states(merged)
        told_of_bonds = self._keeps and bool(self.collected.long_bonds)
        self.planned.follow(self.collected.damaged, cells, told_of_bonds)
        return [self.planned]

    def finish(self, timings: Timings) -> None:
        """Warn of long bonds, unless the analyses have other frames."""
        if self._keeps:
            self.planned.warn_of_long_bonds(self.collected.long_bonds)
