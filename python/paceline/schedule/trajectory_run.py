"""Passes over the frames of one trajectory: plan them, make their tasks, collect the results."""

import copy
import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from paceline._util.machine import free_memory
from paceline._util.sorting import sorted_unique
from paceline.analysis.interfaces import Analysis, Receiver
from paceline.errors import MissingDataError, SelectionError, UnsupportedError, warn
from paceline.performance.number_format import amount
from paceline.performance.timings import Timings
from paceline.schedule.collect import Collected, DamagedFrames
from paceline.schedule.parts import PartsRun
from paceline.schedule.plan import LARGEST_BLOCK_BYTES, Plan, make_plan, scanned_per_row
from paceline.schedule.reduce import states_before
from paceline.schedule.result_arrays import check_room
from paceline.schedule.tasks import (
    BlockResult,
    FrameCaching,
    Job,
    LongBonds,
    SharedRows,
    Task,
    WorkerAnalysis,
    sum_long_bonds,
)
from paceline.schedule.transform_states import Relay, TransformStates
from paceline.trajectory.source import UNKNOWN_TIMES
from paceline.transform.base import (
    Transform,
    TransformsOfEach,
    WorkerScan,
    find_scan,
    prepare_transforms,
    transforms_of,
)
from paceline.transform.jumps import warn_of_jumps
from paceline.transform.locations import warn_of_locations

if TYPE_CHECKING:
    from paceline.trajectory.file_trajectory import Trajectory


class FramePass:
    """One pass over frames of a trajectory."""

    trajectory: "Trajectory"
    #: The blocks, and what is done to each.
    plan: Plan
    job: Job
    #: Set by `start_collecting`.
    collected: Collected
    #: Frames that are read before and after those of each block.
    halo: tuple[int, int] = (0, 0)
    #: True for the first pass over the trajectory.
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
                rows = self.plan.rows(number)
                frames, shape = self._window(rows)
                extents, begin = self.trajectory.extents(frames), self._begin_of(number, frames)
                yield Task(job, number, rows.start, frames, extents, None, **shape, **begin)

        tasks = located()
        coming = deque(islice(tasks, n_workers))
        while coming:
            task = coming.popleft()
            coming.extend(islice(tasks, 1))
            ahead = coming[-1].extents if len(coming) == n_workers else None
            yield replace(task, ahead=ahead)

    def _window(self, rows: slice) -> tuple[np.ndarray, dict[str, Any]]:
        """Frames that are read for the rows of a block, and attributes of the task about them."""
        before, after = self.halo
        before, after = min(before, rows.start), min(after, len(self.plan.frames) - rows.stop)
        frames = self.plan.frames[rows.start - before : rows.stop + after]
        return frames, {"halo": (before, after)}

    def _begin_of(self, number: int, frames: np.ndarray) -> dict[str, Any]:
        """Attributes of a task with what its block begins with, given the frames that it reads."""
        return {}

    def frames_of(self, result: BlockResult) -> int:
        """Frames as which a result counts in the progress."""
        return result.n_frames

    def release(self, result: BlockResult) -> None:
        """Free what was kept for other attempts at a block that was collected."""

    @property
    def n_frames_done(self) -> int:
        """Frames that were collected."""
        return self.collected.n_frames

    @property
    def n_frames_here(self) -> int:
        """Number of frames of this pass."""
        return len(self.plan.frames)

    @property
    def planned(self) -> "TrajectoryRun":
        """First pass of the analyses."""
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


class TrajectoryRun(FramePass):
    """One pass of several analyses over one trajectory; `plan` and `job` are set by `prepare`."""

    def __init__(self, analyses: Sequence[Analysis], transforms: Sequence[Transform]):
        self.analyses = analyses
        self.transforms = transforms
        self.trajectory = _open([analysis.atomgroup for analysis in analyses], transforms)
        #: Number of the pass: analyses may need several, each with what the last one found.
        self.stage = 0
        #: None here: a reference to itself would keep all rows until garbage is collected.
        self._planned: TrajectoryRun | None = None
        self._damaged: list[tuple[int, str]] = []
        #: True if a pass before this one has told of bonds that are longer than half the cell.
        self._told_of_bonds = False
        #: Of a transformation that follows atoms from frame to frame.
        self.transform_states: TransformStates | None = None
        #: Frames that blocks hold for each one that is analysed, if these are all frames.
        self._per_row: int | None = None
        #: Of each analysis the state before each block, None where it needs none.
        self._states: list[list[Any] | None] = []

    def prepare(
        self,
        frames: np.ndarray,
        *,
        skip_damaged: bool,
        n_workers: float,
        block_frames: int | None,
        streamed: bool = False,
        hands_on: bool = False,
        caching: FrameCaching | None = None,
        parts_by_file: bool = False,
    ) -> None:
        """Make the plan, and the worker's half of everything.

        `n_workers` share the blocks: a fraction of one that has other trajectories to do. With
        `streamed`, results of blocks are needed as they come, for all analyses. With `hands_on`, a
        block may wait for what another one hands on. `caching` is used if there are several passes.
        With `parts_by_file`, parts of what is collected are for other
        processes of this machine.
        """
        indices = self._indices
        universe = self.analyses[0].atomgroup.universe
        atoms, transforms = prepare_transforms(self.transforms, sorted_unique(*indices), universe)
        self._atoms = atoms
        check_room([(one.name, one.stored_bytes(len(frames))) for one in self.analyses])
        row_bytes = sum(one.row_bytes for one in self.analyses)
        self._parts_by_file = parts_by_file
        self.halo = _halo(self.analyses, frames)
        self.make_plan = partial(
            make_plan,
            n_atoms=self.trajectory.n_atoms,
            n_wanted=len(atoms),
            frame_bytes=max(self.trajectory.frame_bytes(atoms), row_bytes),
            n_workers=n_workers,
            chunk_frames=self.trajectory.chunk_frames,
            frames_together=math.lcm(*(one.frames_together for one in self.analyses)),
        )
        self._check_window(frames, len(atoms))
        scan = find_scan(transforms)
        if scan is not None and (np.diff(frames) < 1).any():
            raise UnsupportedError(
                "nojump follows atoms from frame to frame: give frames in increasing order"
            )
        for analysis in self.analyses:
            analysis.transforms = self.transforms
            analysis.skip_damaged = skip_damaged
            analysis.frames = frames
            analysis.provenance = self._provenance()
        warn_of_locations(self.analyses)
        # Before the fields: an analysis may see only now which ones it needs.
        halves = [
            _half(analysis, analysis.prepare(), _columns(atoms, own), self.stage)
            for analysis, own in zip(self.analyses, indices, strict=True)
        ]
        if scan is None:
            n_halo = sum(self.halo)
            self.plan = self.make_plan(frames, block_frames=block_frames, n_halo=n_halo)
        else:
            self._plan_scan(
                cast(WorkerScan, transforms[scan]),
                frames,
                block_frames,
                skip_damaged=skip_damaged if hands_on else None,
            )
        if block_frames is None:
            self.trajectory.warn_of_rereading(self.plan)
        self.job = Job(
            self.trajectory.frame_source(atoms, *self._fields(), n_again=sum(self.halo)),
            transforms,
            halves,
            self.plan.leaves,
            skip_damaged,
            streamed or any(half.per_block for half in halves),
            caching if self._n_passes > 1 or self.scans_before else None,
            row_bytes,
        )

    def _plan_scan(
        self,
        scan: WorkerScan,
        frames: np.ndarray,
        block_frames: int | None,
        *,
        skip_damaged: bool | None,
    ) -> None:
        """Make the plan of a run with a transformation that follows atoms from frame to frame.

        Blocks hand on their states unless `skip_damaged` is None, if there is room for the frames
        between those that are analysed. So that there is, blocks may be smaller than wanted.
        """
        n_atoms, sizes = len(self._atoms), dict[str, Any]()
        per_row = None if any(self.halo) else scanned_per_row(frames, self.trajectory.n_atoms)
        if per_row is not None:
            sizes["n_atoms"] = per_row * self.trajectory.n_atoms
            sizes["n_wanted"] = per_row * n_atoms
            sizes["frame_bytes"] = per_row * self.make_plan.keywords["frame_bytes"]
            if per_row > 1 and block_frames is not None:
                room = LARGEST_BLOCK_BYTES // (12 * sizes["n_wanted"])
                block_frames = min(block_frames, max(1, room))
        self._per_row = per_row
        n_halo = sum(self.halo)
        plan = self.make_plan(frames, block_frames=block_frames, n_halo=n_halo, **sizes)
        if skip_damaged is None or per_row is None:
            states = TransformStates.of(plan, scan, n_atoms, self.halo, per_row)
        else:
            states = TransformStates.handed_on(
                plan, scan, n_atoms, per_row, skip_damaged=skip_damaged, keeps=self._n_passes > 1
            )
        self.transform_states = states
        self.plan = self.make_plan(frames, block_frames=states.block_frames, **sizes)

    @property
    def planned(self) -> "TrajectoryRun":
        """First pass of the analyses."""
        return self if self._planned is None else self._planned

    @property
    def _relay(self) -> Relay | None:
        """Hands states of a transformation on from block to block."""
        return None if self.transform_states is None else self.transform_states.relay

    @property
    def scans_before(self) -> bool:
        """True if a `ScanRun` before the first pass finds what a transformation begins with."""
        return self.transform_states is not None and self._relay is None

    def release(self, result: BlockResult) -> None:
        """Free the state in which a block began, if no later pass needs it."""
        if self._relay is not None and self.is_first and self._n_passes == 1:
            self._relay.release(result.number)

    def close(self) -> None:
        """Release the workers that wait for one another, and the trajectory."""
        if self._relay is not None:
            self._relay.close()
        self.trajectory.go_back()

    @property
    def n_frames(self) -> int:
        """Number of frames to be read in this pass and all that follow."""
        return (self.n_stages - self.stage) * len(self.plan.frames)

    @property
    def n_stages(self) -> int:
        """Number of stages of the analysis that needs most."""
        return max(one.stages for one in self.analyses)

    @property
    def _n_passes(self) -> int:
        """Number of passes over the frames of the analysis that needs most."""
        return max(one.stages - one.over_parts for one in self.analyses)

    def _check_window(self, frames: np.ndarray, n_atoms: int) -> None:
        """Raise `UnsupportedError` where a halo has no room in memory."""
        n_halo, free = min(sum(self.halo), len(frames)), free_memory()
        needed = 12 * n_atoms * n_halo
        if n_halo and free is not None and needed > free:
            raise UnsupportedError(
                f"a halo of {n_halo} frames of {n_atoms} atoms takes {amount(needed)} for each "
                f"worker, and {amount(free)} of memory are free: make it smaller, or analyse fewer "
                "atoms"
            )

    @property
    def _indices(self) -> list[np.ndarray]:
        return [np.asarray(analysis.indices, dtype=np.int64) for analysis in self.analyses]

    def next_stages(self) -> list[FramePass | PartsRun]:
        """Make the next pass, of the analyses that need one, once all blocks are done.

        It has the same frames, blocks and decoded atoms. Each analysis over parts has a run of its
        own.
        """
        stage = self.stage + 1
        if all(analysis.stages <= stage for analysis in self.analyses):
            return []
        found: list[tuple[Analysis, WorkerAnalysis, Any]] = []
        following: list[FramePass | PartsRun] = []
        for analysis, half, value in zip(
            self.analyses, self.job.analyses, self.collected.values, strict=True
        ):
            if analysis.over_parts and analysis.stages == stage + 1:
                self._describe_frames(analysis)
                parts: Any = analysis.next_stage(value)
                run = PartsRun(analysis, parts, value, stage=stage, by_file=self._parts_by_file)
                following.append(run)
            elif analysis.stages > stage:
                found.append((analysis, half, value))
        return [self._next_pass(found), *following] if found else following

    def _next_pass(self, found: Sequence[tuple[Analysis, WorkerAnalysis, Any]]) -> "TrajectoryRun":
        """Make the next pass of some analyses, from what this one found."""
        stage = self.stage + 1
        following = copy.copy(self)
        following._planned = self.planned
        following.stage, following.is_first = stage, False
        following.analyses = [analysis for analysis, _, _ in found]
        following._damaged = self._all_damaged
        following._told_of_bonds = self._told_of_bonds or bool(self.collected.long_bonds)
        halves, following._states = [], []
        for analysis, half, value in found:
            if half.finds_states:
                following._states.append(states_before(half, value))
                halves.append(replace(half, has_states=True, shared=SharedRows()))
            else:
                following._states.append(None)
                halves.append(_half(analysis, analysis.next_stage(value), half.columns, stage))
        caching = self.job.caching
        if caching is not None and following._n_passes == stage + 1:
            caching = replace(caching, last=True)
        following.job = replace(self.job, analyses=halves, caching=caching)
        return following

    def follow(
        self, damaged: list[tuple[int, str]], changed_cells: np.ndarray, told_of_bonds: bool
    ) -> None:
        """Take what the pass before the first one found, beside states."""
        self._damaged, self._told_of_bonds = damaged, told_of_bonds
        caching = self.job.caching
        if caching is not None and self._n_passes == 1:
            self.job = replace(self.job, caching=replace(caching, last=True))
        self._warn_of_scan(damaged, changed_cells)

    def _warn_of_scan(self, damaged: Sequence[tuple[int, str]], changes: np.ndarray) -> None:
        """Warn of frames over which atoms may not have been followed rightly."""
        path = self.trajectory.provenance()["trajectory"]
        warn_of_jumps(path, "nojump", "an atom", [frame for frame, _ in damaged], changes)

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
                f"{path}: an analysis asks for {lacking}, but it holds {' and '.join(held)} "
                "only; analyse one that holds them"
            )
        wanted = required | optional.intersection(held)
        if self.transforms:
            wanted.add("positions")
            required.add("positions")
        return sorted(wanted), sorted(required)

    def _receivers(self, stack: ExitStack) -> list[Receiver | None]:
        """Enter the receivers of analyses that have a result for each block."""
        return [
            stack.enter_context(analysis.receiver()) if half.per_block else None  # type: ignore[attr-defined]
            for analysis, half in zip(self.analyses, self.job.analyses, strict=True)
        ]

    def _window(self, rows: slice) -> tuple[np.ndarray, dict[str, Any]]:
        """Frames that are read for the rows of a block, and attributes of the task about them."""
        if self._per_row is None:
            return super()._window(rows)
        frames, lead = self.plan.frames, 0
        begin = int(frames[rows.start])
        if self._relay is not None:
            lead = begin - int(frames[rows.start - 1]) - 1 if rows.start else begin
            begin -= lead
        return np.arange(begin, frames[rows.stop - 1] + 1), {"lead": lead, "step": self._per_row}

    def _begin_of(self, number: int, frames: np.ndarray) -> dict[str, Any]:
        """Attributes of a task with what its block begins with, given the frames that it reads."""
        of_transform = self.transform_states
        return {
            "state": of_transform.of_window(frames) if of_transform else None,
            "states": [states and states[number] for states in self._states],
        }

    def finish(self, timings: Timings) -> None:
        """Set the results of every analysis, once all blocks are done."""
        for analysis, value in zip(self.analyses, self.collected.values, strict=True):
            if analysis.stages == self.stage + 1:
                self._describe_frames(analysis)
                analysis.timings = timings
                analysis.finish(value)
        if self.is_first:
            self._warn_of_repeats()
        if self.is_first and self._relay is not None:
            self._warn_of_scan(self.collected.damaged, self._relay.changes)
        if not self._told_of_bonds:
            self.warn_of_long_bonds(self.collected.long_bonds)

    def _warn_of_repeats(self) -> None:
        """Warn where times go back within a file: a restart may have been appended to it."""
        chain, frames = self.trajectory.chain, self.plan.frames
        known = np.flatnonzero(np.isfinite(self.collected.times))
        steps = np.diff(self.collected.times[known])
        if chain is None or not (steps > 0).any() or (np.diff(frames) < 1).any():
            return
        for row in np.flatnonzero(steps < 0).tolist():
            before, after = (int(frames[known[k]]) for k in (row, row + 1))
            (file, _), (other, _) = chain.locate(before), chain.locate(after)
            if file == other:
                first, last = self.collected.times[known[[row + 1, row]]]
                warn(
                    f"{chain.names[file]}: frame {after} is at {first:g} ps, behind frame {before} "
                    f"at {last:g} ps: frames may be there twice, as where a restart was appended; "
                    "continuous=True (--continuous) leaves out those that later ones repeat"
                )
                return

    def _describe_frames(self, analysis: Analysis) -> None:
        """Tell an analysis the times of its frames, and those that were left out."""
        analysis.times = self.collected.times
        analysis.damaged = DamagedFrames(sorted(self._all_damaged))

    @property
    def _all_damaged(self) -> list[tuple[int, str]]:
        """Frames that any stage left out, and why."""
        now = self.collected.damaged
        known = {frame for frame, _ in now}
        return now + [one for one in self._damaged if one[0] not in known]

    def warn_of_long_bonds(self, noted: Sequence[LongBonds]) -> None:
        """Warn of bonds that are longer than half the cell, if there are any."""
        if not noted:
            return
        found = sum_long_bonds(noted)
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
        if self.trajectory.time_doubt:
            provenance[UNKNOWN_TIMES] = self.trajectory.time_doubt
        if self.transforms:
            done = [transform.parameters() for transform in self.transforms]
            provenance["transforms"] = "; ".join(done)
        return provenance


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
        block_frames = planned.plan.block_frames * (planned._per_row or 1)
        self.plan = planned.make_plan(frames, block_frames=block_frames)
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


def _open(atomgroups: Sequence[Any], transforms: Sequence[Transform]) -> "Trajectory":
    """Open the trajectory of groups of atoms, of a Universe or of files without a topology."""
    # Worker processes import the analyses, and so this, but never MDAnalysis.
    from paceline.trajectory.file_trajectory import FileTrajectory

    universe = atomgroups[0].universe
    if isinstance(universe, FileTrajectory):
        if any(len(group) == 0 for group in atomgroups):
            raise SelectionError("no atoms are chosen for an analysis")
        if transforms:
            raise UnsupportedError(
                f"{universe.filename}: transforms= need a topology: open it by paceline.Universe"
            )
        return universe
    from paceline.trajectory.universe_trajectory import open_trajectory

    return open_trajectory(atomgroups)


def n_passes(
    analyses: Sequence[Analysis], transforms: Sequence[Transform] | TransformsOfEach
) -> int:
    """Number of passes over the frames that a run makes."""
    return max(
        one.stages + (find_scan(transforms_of(transforms, one)) is not None) for one in analyses
    )


def _half(
    analysis: Analysis, computation: Any, columns: np.ndarray | None, stage: int
) -> WorkerAnalysis:
    """Make the worker's half of a pass, the number of which is `stage`."""
    half = WorkerAnalysis(analysis.name, computation, columns, analysis.attributes, analysis.halo)
    if half.scans:
        _check_scan(analysis, half, stage)
    if any(half.halo) and (half.reduces or half.ragged or half.per_block):
        raise UnsupportedError(
            f"{analysis.name}: a halo is for analyses that give a row for each frame, and this one "
            "gives something else"
        )
    return half


def _check_scan(analysis: Analysis, half: WorkerAnalysis, stage: int) -> None:
    """Raise `UnsupportedError` where a worker's half with `scan` cannot be run."""
    name, computation = analysis.name, half.computation
    lacking = [method for method in ("merge", "compute") if not hasattr(computation, method)]
    if lacking:
        raise UnsupportedError(f"{name}: its worker's half has scan, but no {lacking[0]}")
    for method in ("compute_records", "compute_block"):
        if hasattr(computation, method):
            raise UnsupportedError(
                f"{name}: its worker's half has scan and {method}, and a scan gives a row for each "
                "frame: make two analyses of it"
            )
    if any(half.halo):
        raise UnsupportedError(
            f"{name} has scan and a halo: keep in the state what it needs of the frames before"
        )
    if analysis.stages - analysis.over_parts < stage + 2:
        raise UnsupportedError(
            f"{name}: its worker's half has scan, for which two passes over the frames are needed, "
            f"and there {'is' if analysis.stages == 1 else 'are'} {analysis.stages} in all: set "
            f"stages = {stage + 2 + analysis.over_parts}"
        )
    if (np.diff(analysis.frames) < 1).any():
        raise UnsupportedError(
            f"{name} depends on all frames before each one (scan): give frames in increasing "
            "order, each once"
        )


def _halo(analyses: Sequence[Analysis], frames: np.ndarray) -> tuple[int, int]:
    """Find the halo that suffices for all analyses; frames must be in order if there is any."""
    before, after = (max(one.halo[k] for one in analyses) for k in range(2))
    if (before or after) and (np.diff(frames) < 1).any():
        name = next(one.name for one in analyses if any(one.halo))
        raise UnsupportedError(
            f"{name} needs frames before and after each one (halo): give frames in increasing "
            "order, each once"
        )
    return before, after


def _columns(atoms: np.ndarray, wanted: np.ndarray) -> np.ndarray | None:
    """Find the columns of wanted atoms among those that are decoded; None if they are all."""
    return None if np.array_equal(atoms, wanted) else np.searchsorted(atoms, wanted)
