"""Passes over the frames of one trajectory: create the tasks and collect their results."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from paceline.contract.analysis import Analysis
from paceline.contract.analysis_kinds import Kind, Receiver, declaration_of
from paceline.contract.plan import Plan
from paceline.engine.collect import Collected, DamagedFrames
from paceline.engine.reduce import states_before
from paceline.engine.run_plan import TrajectoryRun, make_worker_part
from paceline.engine.stage_over_collected_rows import PartsRun
from paceline.engine.tasks_and_results import BlockResult, Job, SharedRows, Task, WorkerAnalysis
from paceline.engine.transform_states import TransformStates
from paceline.timing import Timings


class Before(NamedTuple):
    """Findings of earlier passes over the same frames."""

    #: Frames that were left out: number and reason of each.
    damaged: list[tuple[int, str]]
    #: True if a pass has warned of bonds that are longer than half the cell.
    warned_of_bonds: bool


class FramePass:
    """One pass over frames of a trajectory."""

    #: Results; set by `start_collecting`.
    collected: Collected

    def __init__(self, run: TrajectoryRun, plan: Plan, job: Job):
        #: Run that contains this pass; blocks of the pass; job that the blocks share.
        self.run, self.plan, self.job = run, plan, job
        #: True if workers read the frames themselves.
        self.shareable = run.trajectory.shareable

    @property
    def is_first(self) -> bool:
        """True for the first pass over the trajectory."""
        return True

    @property
    def is_continued(self) -> bool:
        """True if results of earlier frames stay the same when the trajectory grows."""
        return True

    @property
    def n_final(self) -> int:
        """Number of rows that stay the same if the trajectory gets further frames."""
        return len(self.plan.frames) - self.run.halo[1]

    @property
    def bytes_used(self) -> int:
        """Total size of the decoded values, bytes."""
        source = self.job.source
        return 12 * source.n_wanted * len(source.fields) * len(self.plan.frames)

    def start_collecting(self, number: int, timings: Timings, stack: ExitStack) -> None:
        """Prepare to collect results, and enter the receivers into `stack`.

        `number` is the number of this pass in the run.
        """
        receivers = self._receivers(stack)
        self.collected = Collected(number, self.plan, self.job.analyses, receivers, timings)

    def _receivers(self, stack: ExitStack) -> list[Receiver | None]:
        """Return None for each analysis, because no analysis returns one result per block."""
        return [None] * len(self.job.analyses)

    def tasks(self, job: int, n_workers: int) -> Iterator[Task]:
        """Yield a task for every block that is neither done nor postponed.

        `job` is the number of this job in the backend's run. If tasks are assigned to `n_workers`
        workers in turn, each task contains the extents of its worker's next task.
        """
        trajectory = self.run.trajectory
        locate = trajectory.locator(self.job.source, by_file=self.run.parts_by_file)

        def located() -> Iterator[Task]:
            for number in self.collected.missing().tolist():
                rows = self.plan.rows(number)
                frames, shape = self._window(rows)
                extents, begin = locate(frames), self._initial_state_of(number, frames)
                yield Task(job, number, rows.start, frames, extents, None, **shape, **begin)

        tasks = located()
        coming = deque(islice(tasks, n_workers))
        while coming:
            task = coming.popleft()
            coming.extend(islice(tasks, 1))
            has_next = len(coming) == n_workers and not trajectory.in_memory
            yield replace(task, ahead=coming[-1].extents) if has_next else task

    def _window(self, rows: slice) -> tuple[np.ndarray, dict[str, Any]]:
        """Return the frames to read for the rows of a block, and keywords of `Task` about them."""
        return self.plan.frames[rows], {}

    def _initial_state_of(self, number: int, frames: np.ndarray) -> dict[str, Any]:
        """Return keywords of `Task` for initial states; `frames` are the block's frames to read."""
        return {}

    def frames_of(self, result: BlockResult) -> int:
        """Number of frames that a result adds to the progress."""
        return result.n_frames

    def release(self, result: BlockResult) -> None:
        """Free data of a collected block that were stored in case the block had to be repeated."""

    @property
    def n_frames_done(self) -> int:
        """Number of frames that were collected."""
        return self.collected.n_frames

    @property
    def n_frames_here(self) -> int:
        """Number of frames to read in this pass."""
        return len(self.plan.frames)

    @property
    def n_frames(self) -> int:
        """Number of frames to read in this pass and all later passes."""
        raise NotImplementedError

    def next_stages(self) -> "list[FramePass | PartsRun]":
        """Make the next passes after all blocks of this pass are done."""
        raise NotImplementedError

    def finish(self, timings: Timings) -> None:
        """Set the results and issue the warnings."""
        raise NotImplementedError


class AnalysisPass(FramePass):
    """One pass over the frames for several analyses; it runs one stage of each analysis."""

    def __init__(
        self,
        run: TrajectoryRun,
        stage: int,
        analyses: Sequence[Analysis],
        parts: Sequence[WorkerAnalysis],
        states: Sequence[list[object] | None],
        before: Before,
    ):
        job = replace(run.job, analyses=parts, caching=run.caching_of(stage))
        super().__init__(run, run.plan, job)
        self.stage, self.analyses = stage, analyses
        #: For each analysis the state before each block; None for an analysis without states.
        self._states, self._before = states, before

    @classmethod
    def first_of(cls, run: TrajectoryRun, before: Before | None = None) -> "AnalysisPass":
        """Make the first pass of all analyses; `before` contains findings of an earlier pass."""
        states = [None] * len(run.analyses)
        return cls(run, 0, run.analyses, run.job.analyses, states, before or Before([], False))

    @property
    def is_first(self) -> bool:
        """True for the first pass over the trajectory."""
        return self.stage == 0 and not self.run.scans_before

    @property
    def is_continued(self) -> bool:
        """True if results of earlier frames stay the same when the trajectory grows.

        A second pass depends on results of all frames, except for the second pass of a prefix scan.
        """
        return self.stage == 0 or all(part.has_states for part in self.job.analyses)

    @property
    def n_frames(self) -> int:
        """Number of frames to read in this pass and all later passes."""
        return (max(one.stages for one in self.analyses) - self.stage) * len(self.plan.frames)

    def release(self, result: BlockResult) -> None:
        """Free the initial state of a block if no later pass needs it."""
        if self.run.relay is not None and self.stage == 0 and self.run.n_passes == 1:
            self.run.relay.release(result.number)

    def next_stages(self) -> list[FramePass | PartsRun]:
        """Make the next pass, for the analyses that need another one, after all blocks are done.

        The next pass has the same frames, blocks and decoded atoms. Each analysis with a stage over
        parts gets its own `PartsRun`.
        """
        stage = self.stage + 1
        if all(one.stages == stage for one in self.analyses):
            return []
        found: list[tuple[Analysis, WorkerAnalysis, object]] = []
        following: list[FramePass | PartsRun] = []
        known = self._known()
        with self.run.facts_shown(**known):
            for analysis, part, value in zip(
                self.analyses, self.job.analyses, self.collected.values, strict=True
            ):
                if analysis.over_parts and analysis.stages == stage + 1:
                    parts = analysis.next_stage(value)
                    following.append(
                        PartsRun(self.run, analysis, parts, value, stage=stage, **known)
                    )
                elif analysis.stages > stage:
                    found.append((analysis, part, value))
            return [self._next_pass(found), *following] if found else following

    def _next_pass(self, found: Sequence[tuple[Analysis, WorkerAnalysis, Any]]) -> "AnalysisPass":
        """Make the next pass of some analyses from the results of this pass."""
        stage, parts, states = self.stage + 1, list[WorkerAnalysis](), list[list[Any] | None]()
        for analysis, part, value in found:
            if part.kind is Kind.SCAN:
                states.append(states_before(part, value))
                parts.append(replace(part, has_states=True, shared=SharedRows()))
            else:
                states.append(None)
                following = analysis.next_stage(value)
                frames = self.plan.frames
                parts.append(make_worker_part(analysis, following, part.columns, stage, frames))
        analyses = [analysis for analysis, _, _ in found]
        warned = self._before.warned_of_bonds or bool(self.collected.long_bonds)
        before = Before(self._all_damaged, warned)
        return AnalysisPass(self.run, stage, analyses, parts, states, before)

    def _receivers(self, stack: ExitStack) -> list[Receiver | None]:
        """Enter the receivers of analyses that return one result per block; None for the others."""
        if not any(part.kind is Kind.BLOCKS for part in self.job.analyses):
            return super()._receivers(stack)
        with self.run.facts_shown():
            return [
                stack.enter_context(analysis.receiver()) if part.kind is Kind.BLOCKS else None
                for analysis, part in zip(self.analyses, self.job.analyses, strict=True)
            ]

    def _window(self, rows: slice) -> tuple[np.ndarray, dict[str, Any]]:
        """Return the frames to read for the rows of a block, and keywords of `Task` about them."""
        frames, per_row = self.plan.frames, self.run.per_row
        if per_row is None:
            before, after = self.run.halo
            before, after = min(before, rows.start), min(after, len(frames) - rows.stop)
            return frames[rows.start - before : rows.stop + after], {"halo": (before, after)}
        lead, begin = 0, int(frames[rows.start])
        if self.run.relay is not None:
            lead = begin - int(frames[rows.start - 1]) - 1 if rows.start else begin
            begin -= lead
        return np.arange(begin, frames[rows.stop - 1] + 1), {"lead": lead, "step": per_row}

    def _initial_state_of(self, number: int, frames: np.ndarray) -> dict[str, Any]:
        """Return keywords of `Task` for initial states; `frames` are the block's frames to read."""
        of_transform = self.run.transform_states
        return {
            "state": of_transform.of_window(frames) if of_transform else None,
            "states": [states and states[number] for states in self._states],
        }

    def finish(self, timings: Timings) -> None:
        """Set the results of every analysis that ends with this pass, after all blocks are done."""
        known = self._known()
        for analysis, value in zip(self.analyses, self.collected.values, strict=True):
            if analysis.stages == self.stage + 1:
                self.run.conclude(analysis, value, timings, **known)
        if self.is_first:
            self.run.warn_of_repeats(self.collected.times)
            self.run.warn_of_long_steps(self.collected.times)
            if self.run.relay is not None:
                self.run.warn_of_scan(self.collected.damaged, self.run.relay.changes)
        if not self._before.warned_of_bonds:
            self.run.warn_of_long_bonds(self.collected.long_bonds)

    def _known(self) -> dict[str, Any]:
        """Return the times and the damaged frames, as arguments of a `RunInfo`."""
        damaged = DamagedFrames(sorted(self._all_damaged))
        return {"times": self.collected.times, "damaged": damaged}

    @property
    def _all_damaged(self) -> list[tuple[int, str]]:
        """Frames that were left out in any stage: number and reason of each."""
        now = self.collected.damaged
        known = {frame for frame, _ in now}
        return now + [one for one in self._before.damaged if one[0] not in known]


class ScanPass(FramePass):
    """First pass for a transformation that follows atoms from frame to frame, such as nojump.

    The pass reads all frames from the first frame of the trajectory on. It computes the initial
    states for the blocks of the analyses. States of adjacent blocks merge exactly, so they are
    merged as soon as they arrive.
    """

    def __init__(self, run: TrajectoryRun, states: TransformStates):
        self._states, scan, job = states, states.scan, run.job
        frames = np.arange(run.plan.frames[-1] + 1)
        # Blocks have the size of the analyses' blocks, so that a checkpoint of the pass can be read
        # with any number of workers.
        block_frames = run.plan.block_frames * (run.per_row or 1)
        plan = run.make_plan(frames, block_frames=block_frames)
        #: True if this pass reads the same frames in the same blocks as the analyses, without
        #: halos. Only then are its decoded frames cached, and its findings about long bonds apply
        #: to the analyses.
        self._keeps = np.array_equal(frames, run.plan.frames) and not any(run.halo)
        self._scan = scan.scan_of(states.frames)
        finding = WorkerAnalysis("nojump", self._scan, declaration_of(self._scan), None)
        job = replace(
            job,
            transforms=job.transforms[: job.transforms.index(scan) + 1],
            analyses=[finding],
            leaves=plan.leaves,
            caching=job.caching if self._keeps else None,
        )
        super().__init__(run, plan, job)

    @property
    def n_final(self) -> int:
        """Number of frames before the first frame that new blocks of a grown trajectory may read.

        This pass records only the states at frames where existing blocks begin to read. A new block
        begins to read before its first row, at the first frame of its halo.
        """
        plan = self.run.plan
        n_leaves = len(plan) * plan.block_frames // plan.leaf_frames
        begin = max(0, plan.leaves.begin(n_leaves) - self.run.halo[0])
        n_frames = len(self.plan.frames)
        return int(plan.frames[begin]) if begin < len(plan.frames) else n_frames

    @property
    def n_frames(self) -> int:
        """Number of frames to read in this pass and all later passes."""
        return len(self.plan.frames) + self.run.n_stages * len(self.run.plan.frames)

    def next_stages(self) -> list[FramePass | PartsRun]:
        """Make the first pass of the analyses from the states that this pass computed."""
        [merged] = self.collected.values
        self._states.found, cells = self._scan.states(merged)
        warned = self._keeps and bool(self.collected.long_bonds)
        self.run.warn_of_scan(self.collected.damaged, cells)
        return [AnalysisPass.first_of(self.run, Before(self.collected.damaged, warned))]

    def finish(self, timings: Timings) -> None:
        """Warn of long bonds, if this pass checked exactly the frames of the analyses."""
        if self._keeps:
            self.run.warn_of_long_bonds(self.collected.long_bonds)


def first_pass(run: TrajectoryRun) -> FramePass:
    """Make the first pass of a run: a `ScanPass` if a transformation needs initial states."""
    states = run.transform_states
    return ScanPass(run, states) if states and run.scans_before else AnalysisPass.first_of(run)
