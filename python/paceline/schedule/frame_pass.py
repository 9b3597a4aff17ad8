"""One pass over frames of a trajectory: a task for each block, and what comes back."""

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.analysis.interfaces import Receiver
from paceline.performance.timings import Timings
from paceline.schedule.collect import Collected
from paceline.schedule.parts import PartsRun
from paceline.schedule.plan import Plan
from paceline.schedule.tasks import BlockResult, Job, Task

if TYPE_CHECKING:
    from paceline.trajectory.file_trajectory import Trajectory


class FramePass:
    """One pass over frames of a trajectory.

    Attributes
    ----------
    trajectory : Trajectory
        Opened.
    plan, job : Plan and Job
        The blocks, and what is done to each.
    collected : Collected
        Set by `start_collecting`.
    halo : pair of int
        Frames that are read before and after those of each block.
    is_first : bool
        True for the first pass over the trajectory.
    """

    trajectory: "Trajectory"
    plan: Plan
    job: Job
    collected: Collected
    halo: tuple[int, int] = (0, 0)
    is_first: bool = True

    @property
    def shareable(self) -> bool:
        """True if workers read the frames by themselves."""
        return self.trajectory.shareable

    @property
    def bytes_used(self) -> int:
        """Size of the decoded numbers of all frames."""
        source = self.job.source
        return 12 * source.n_wanted * len(source.fields) * len(self.plan.frames)

    def start_collecting(self, number: int, timings: Timings, stack: ExitStack) -> None:
        """Get ready to collect results; receivers are entered into `stack`.

        `number` is that of this pass in the run.
        """
        receivers = self._receivers(stack)
        self.collected = Collected(number, self.plan, self.job.analyses, receivers, timings)

    def _receivers(self, stack: ExitStack) -> list[Receiver | None]:
        """Enter the receivers of analyses that have a result for each block."""
        return [None] * len(self.job.analyses)

    def tasks(self, job: int, n_workers: int) -> Iterator[Task]:
        """Yield a task for every block still to be done.

        `job` is the number of this job among those that are run together. Each task has the extents
        of its worker's next one, if tasks are assigned to `n_workers` in turn.
        """

        def located() -> Iterator[Task]:
            for number in self.collected.missing().tolist():
                rows, (before, after) = self.plan.rows(number), self.halo
                before = min(before, rows.start)
                after = min(after, len(self.plan.frames) - rows.stop)
                window = slice(rows.start - before, rows.stop + after)
                frames = self.plan.frames[window]
                extents = self.trajectory.extents(frames)
                begin = self._begin_of(number, frames)
                yield Task(
                    job, number, rows.start, frames, extents, None, halo=(before, after), **begin
                )

        tasks = located()
        coming = deque(islice(tasks, n_workers))
        while coming:
            task = coming.popleft()
            coming.extend(islice(tasks, 1))
            ahead = coming[-1].extents if len(coming) == n_workers else None
            yield replace(task, ahead=ahead)

    def _begin_of(self, number: int, frames: np.ndarray) -> dict[str, Any]:
        """Attributes of a task with what its block begins with, given the frames that it reads."""
        return {}

    def frames_of(self, result: BlockResult) -> int:
        """Frames as which a result counts in the progress."""
        return result.n_frames

    @property
    def n_frames_done(self) -> int:
        """Frames that were collected."""
        return self.collected.n_frames

    @property
    def planned(self) -> Any:
        """First pass of the analyses, a `TrajectoryRun`."""
        raise NotImplementedError

    @property
    def n_frames(self) -> int:
        """Number of frames to be read in this pass and all that follow."""
        raise NotImplementedError

    def next_stages(self) -> "list[FramePass | PartsRun]":
        """Make the passes that follow, once all blocks are done."""
        raise NotImplementedError

    def finish(self, timings: Timings) -> None:
        """Set results, and warn of what was found."""
        raise NotImplementedError
