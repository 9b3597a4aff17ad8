"""Plan, run and collect the analyses of one trajectory."""

import copy
import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.analysis.interfaces import Analysis, Receiver
from paceline.errors import MissingDataError, UnsupportedError
from paceline.performance.timings import Timings
from paceline.schedule.collect import Collected, DamagedFrames, check_room
from paceline.schedule.plan import Plan, make_plan
from paceline.schedule.tasks import (
    FrameCaching,
    Job,
    LongBonds,
    Task,
    WorkerAnalysis,
    sum_long_bonds,
)
from paceline.trajectory.open import warn
from paceline.transform.base import Transform, prepare_transforms

if TYPE_CHECKING:
    from paceline.trajectory.universe_trajectory import Trajectory


class TrajectoryRun:
    """One pass of several analyses over one trajectory.

    Parameters
    ----------
    analyses : sequence of Analysis
        Of one Universe.
    transforms : sequence of Transform
        Applied to positions before any analysis sees them, in this order.

    Attributes
    ----------
    trajectory : Trajectory
        Opened.
    plan, job : Plan and Job
        Set by `prepare`.
    collected : Collected
        Set by `start_collecting`.
    stage : int
        Number of the pass: analyses may need several, each with what the last one found.
    """

    trajectory: "Trajectory"
    plan: Plan
    job: Job
    collected: Collected

    def __init__(self, analyses: Sequence[Analysis], transforms: Sequence[Transform]):
        # Worker processes import the analyses, and so this, but never MDAnalysis.
        from paceline.trajectory.universe_trajectory import open_trajectory

        self.analyses = analyses
        self.transforms = transforms
        self.trajectory = open_trajectory([analysis.atomgroup for analysis in analyses])
        self.stage = 0
        self._damaged: list[tuple[int, str]] = []

    def prepare(
        self,
        frames: np.ndarray,
        *,
        skip_damaged: bool,
        n_workers: float,
        block_frames: int | None,
        streamed: bool = False,
        caching: FrameCaching | None = None,
    ) -> None:
        """Make the plan, and the worker's half of everything.

        `n_workers` share the blocks: a fraction of one that has other trajectories to do. With
        `streamed`, results of blocks are needed as they come, for all analyses. `caching` is used
        if there are several stages.
        """
        indices = self._indices
        universe = self.analyses[0].atomgroup.universe
        atoms, transforms = prepare_transforms(
            self.transforms, np.unique(np.concatenate(indices)), universe
        )
        self._atoms = atoms
        check_room([(one.name, one.row_bytes * len(frames)) for one in self.analyses])
        row_bytes = sum(one.row_bytes for one in self.analyses)
        self.plan = make_plan(
            frames,
            n_atoms=self.trajectory.n_atoms,
            n_wanted=len(atoms),
            frame_bytes=max(self.trajectory.frame_bytes(atoms), row_bytes),
            n_workers=n_workers,
            block_frames=block_frames,
            chunk_frames=self.trajectory.chunk_frames,
            frames_together=math.lcm(*(one.frames_together for one in self.analyses)),
        )
        if block_frames is None:
            self.trajectory.warn_of_rereading(self.plan)
        for analysis in self.analyses:
            analysis.transforms = self.transforms
            analysis.skip_damaged = skip_damaged
            analysis.frames = frames
            analysis.provenance = self._provenance()
        # Before the fields: an analysis may see only now which ones it needs.
        halves = [
            WorkerAnalysis(
                analysis.name, analysis.prepare(), _columns(atoms, own), analysis.attributes
            )
            for analysis, own in zip(self.analyses, indices, strict=True)
        ]
        self.job = Job(
            self.trajectory.frame_source(atoms, *self._fields()),
            transforms,
            halves,
            self.plan.leaves,
            skip_damaged,
            streamed or any(half.per_block for half in halves),
            caching if self.n_stages > 1 else None,
            row_bytes,
        )

    @property
    def n_stages(self) -> int:
        """Number of stages of the analysis that needs most."""
        return max(one.stages for one in self.analyses)

    @property
    def _indices(self) -> list[np.ndarray]:
        return [np.asarray(analysis.indices, dtype=np.int64) for analysis in self.analyses]

    def next_stage(self) -> "TrajectoryRun | None":
        """Make the next pass, of the analyses that need one, once all blocks are done.

        It has the same frames, blocks and decoded atoms.
        """
        stage = self.stage + 1
        found = [
            (analysis, value)
            for analysis, value in zip(self.analyses, self.collected.values, strict=True)
            if analysis.stages > stage
        ]
        if not found:
            return None
        following = copy.copy(self)
        following.stage = stage
        following.analyses = [analysis for analysis, _ in found]
        following._damaged = self._all_damaged
        halves = [
            WorkerAnalysis(
                analysis.name,
                analysis.next_stage(value),
                _columns(self._atoms, own),
                analysis.attributes,
            )
            for (analysis, value), own in zip(found, following._indices, strict=True)
        ]
        caching = self.job.caching
        if caching is not None and following.n_stages == stage + 1:
            caching = replace(caching, last=True)
        following.job = replace(self.job, analyses=halves, caching=caching)
        return following

    def _fields(self) -> tuple[list[str], list[str]]:
        """Find the fields to decode, and those of them that every frame must hold."""
        required = {field for analysis in self.analyses for field in analysis.fields}
        optional = {field for analysis in self.analyses for field in analysis.optional_fields}
        held = self.trajectory.fields
        # Of MDAnalysis's own readers only the fields of the present frame are known.
        if self.trajectory.shareable and not required.issubset(held):
            lacking = " and ".join(sorted(required.difference(held)))
            path = self.trajectory.provenance()["trajectory"]
            raise MissingDataError(
                f"{path}: an analysis asks for {lacking}, but it holds {' and '.join(held)} only"
            )
        wanted = required | optional.intersection(held)
        for transform in self.transforms:
            if transform.turns and wanted - {"positions"}:
                raise UnsupportedError(
                    f"{transform.parameters()} turns positions but not velocities and forces, "
                    "which an analysis of this run asks for; run that one without it"
                )
        if self.transforms:
            wanted.add("positions")
            required.add("positions")
        return sorted(wanted), sorted(required)

    @property
    def bytes_used(self) -> int:
        """Size of the decoded numbers of all frames."""
        source = self.job.source
        return 12 * source.n_wanted * len(source.fields) * len(self.plan.frames)

    def start_collecting(self, number: int, timings: Timings, stack: ExitStack) -> None:
        """Get ready to collect results; receivers are entered into `stack`.

        `number` is that of this trajectory in the run.
        """
        receivers: list[Receiver | None] = []
        for analysis, half in zip(self.analyses, self.job.analyses, strict=True):
            if half.per_block:
                manager: AbstractContextManager[Receiver] = analysis.receiver()  # type: ignore[attr-defined]
                receivers.append(stack.enter_context(manager))
            else:
                receivers.append(None)
        self.collected = Collected(number, self.plan, self.job.analyses, receivers, timings)

    def tasks(self, job: int, n_workers: int) -> Iterator[Task]:
        """Yield a task for every block still to be done.

        `job` is the number of this job among those that are run together. Each task has the extents
        of its worker's next one, if tasks are assigned to `n_workers` in turn.
        """

        def located() -> Iterator[Task]:
            for number in self.collected.missing().tolist():
                rows = self.plan.rows(number)
                frames = self.plan.frames[rows]
                extents = self.trajectory.extents(frames)
                yield Task(job, number, rows.start, frames, extents, None)

        tasks = located()
        coming = deque(islice(tasks, n_workers))
        while coming:
            task = coming.popleft()
            coming.extend(islice(tasks, 1))
            ahead = coming[-1].extents if len(coming) == n_workers else None
            yield replace(task, ahead=ahead)

    def finish(self, timings: Timings) -> None:
        """Set the results of every analysis, once all blocks are done."""
        for analysis, value in zip(self.analyses, self.collected.values, strict=True):
            if analysis.stages == self.stage + 1:
                analysis.times = self.collected.times
                analysis.damaged = DamagedFrames(sorted(self._all_damaged))
                analysis.timings = timings
                analysis.finish(value)
        if self.collected.long_bonds and self.stage == 0:
            self._warn_of_long_bonds(sum_long_bonds(self.collected.long_bonds))

    @property
    def _all_damaged(self) -> list[tuple[int, str]]:
        """Frames that any stage left out, and why."""
        now = self.collected.damaged
        known = {frame for frame, _ in now}
        return now + [one for one in self._damaged if one[0] not in known]

    def _warn_of_long_bonds(self, found: LongBonds) -> None:
        first, second = self.analyses[0].atomgroup.universe.atoms[self._atoms[list(found.atoms)]]
        path = self.trajectory.provenance()["trajectory"]
        warn(
            f"{path}: {found.n_bonds} bonds in {found.n_frames} of {len(self.plan.frames)} frames "
            "are longer than half the cell after unwrap; the longest, "
            f"{found.length:.1f} Å, is between {first} and {second} in frame {found.frame}. "
            "Perhaps a molecule is bonded to its own image, or the topology is of other atoms"
        )

    def _provenance(self) -> dict[str, Any]:
        """Describe the files, and the transformations."""
        provenance = self.trajectory.provenance()
        if self.transforms:
            done = [transform.parameters() for transform in self.transforms]
            provenance["transforms"] = "; ".join(done)
        return provenance


def _columns(atoms: np.ndarray, wanted: np.ndarray) -> np.ndarray | None:
    """Find the columns of wanted atoms among those that are decoded; None if they are all."""
    return None if np.array_equal(atoms, wanted) else np.searchsorted(atoms, wanted)
