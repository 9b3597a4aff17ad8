"""Plan, run and collect the analyses of one trajectory."""

import copy
import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from paceline._util.machine import free_memory
from paceline.analysis.interfaces import Analysis, Receiver
from paceline.block import Block
from paceline.errors import MissingDataError, SelectionError, UnsupportedError
from paceline.performance.number_format import amount, many
from paceline.performance.timings import Timings
from paceline.schedule.collect import Collected, DamagedFrames, check_room
from paceline.schedule.parts import PartsRun
from paceline.schedule.plan import LARGEST_BLOCK_BYTES, Plan, make_plan
from paceline.schedule.relay import Relay
from paceline.schedule.tasks import (
    BlockResult,
    FrameCaching,
    Job,
    Task,
    WorkerAnalysis,
    sum_long_bonds,
)
from paceline.trajectory.open import warn
from paceline.transform.base import Transform, WorkerScan, find_scan, prepare_transforms

#: States of all blocks, at most, bytes.
STATES_BYTES = 2**31

if TYPE_CHECKING:
    from paceline.trajectory.file_trajectory import Trajectory


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
    is_first : bool
        True for the first pass over the trajectory.
    """

    trajectory: "Trajectory"
    plan: Plan
    job: Job
    collected: Collected

    def __init__(self, analyses: Sequence[Analysis], transforms: Sequence[Transform]):
        self.analyses = analyses
        self.transforms = transforms
        self.trajectory = _open([analysis.atomgroup for analysis in analyses], transforms)
        self.stage = 0
        self.is_first = True
        #: None here: a reference to itself would keep all rows until garbage is collected.
        self._planned: TrajectoryRun | None = None
        self._damaged: list[tuple[int, str]] = []
        #: True if a pass before this one has told of bonds that are longer than half the cell.
        self._told_of_bonds = False
        self._halo = (0, 0)
        self._states: _States | None = None

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
        atoms, transforms = prepare_transforms(
            self.transforms, np.unique(np.concatenate(indices)), universe
        )
        self._atoms = atoms
        check_room([(one.name, one.stored_bytes(len(frames))) for one in self.analyses])
        row_bytes = sum(one.row_bytes for one in self.analyses)
        self._parts_by_file = parts_by_file
        self._halo = _halo(self.analyses, frames)
        self._make_plan = partial(
            make_plan,
            n_atoms=self.trajectory.n_atoms,
            n_wanted=len(atoms),
            frame_bytes=max(self.trajectory.frame_bytes(atoms), row_bytes),
            n_workers=n_workers,
            chunk_frames=self.trajectory.chunk_frames,
            frames_together=math.lcm(*(one.frames_together for one in self.analyses)),
        )
        self._check_window(frames, len(atoms))
        n_halo = sum(self._halo)
        self.plan = self._make_plan(frames, block_frames=block_frames, n_halo=n_halo)
        scan = find_scan(transforms)
        if scan is not None:
            self._states = _States.of(
                self.plan, cast(WorkerScan, transforms[scan]), len(atoms), self._halo
            )
            self.plan = self._make_plan(frames, block_frames=self._states.block_frames)
            if hands_on and not any(self._halo):
                self._states.hand_on()
        if block_frames is None:
            self.trajectory.warn_of_rereading(self.plan)
        for analysis in self.analyses:
            analysis.transforms = self.transforms
            analysis.skip_damaged = skip_damaged
            analysis.frames = frames
            analysis.provenance = self._provenance()
        # Before the fields: an analysis may see only now which ones it needs.
        halves = [
            _half(analysis, analysis.prepare(), _columns(atoms, own))
            for analysis, own in zip(self.analyses, indices, strict=True)
        ]
        self.job = Job(
            self.trajectory.frame_source(atoms, *self._fields()),
            transforms,
            halves,
            self.plan.leaves,
            skip_damaged,
            streamed or any(half.per_block for half in halves),
            caching if self._n_passes > 1 or self.scans_before else None,
            row_bytes,
        )

    @property
    def planned(self) -> "TrajectoryRun":
        """First pass of the analyses."""
        return self if self._planned is None else self._planned

    @property
    def scans_before(self) -> bool:
        """True if a `ScanRun` before the first pass finds what a transformation begins with."""
        return self._states is not None and self._states.relay is None

    def close(self) -> None:
        """Release the workers that wait for one another."""
        if self._states is not None and self._states.relay is not None:
            self._states.relay.close()

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

    @property
    def shareable(self) -> bool:
        """True if workers read the frames by themselves."""
        return self.trajectory.shareable

    def _check_window(self, frames: np.ndarray, n_atoms: int) -> None:
        """Raise `UnsupportedError` where a halo has no room in memory."""
        n_halo, free = min(sum(self._halo), len(frames)), free_memory()
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

    def next_stages(self) -> "list[TrajectoryRun | PartsRun]":
        """Make the next pass, of the analyses that need one, once all blocks are done.

        It has the same frames, blocks and decoded atoms. Each analysis over parts has a run of its
        own.
        """
        stage = self.stage + 1
        if all(analysis.stages <= stage for analysis in self.analyses):
            return []
        found: list[tuple[Analysis, Any]] = []
        following: list[TrajectoryRun | PartsRun] = []
        for analysis, value in zip(self.analyses, self.collected.values, strict=True):
            if analysis.over_parts and analysis.stages == stage + 1:
                self._describe_frames(analysis)
                parts: Any = analysis.next_stage(value)
                run = PartsRun(analysis, parts, value, stage=stage, by_file=self._parts_by_file)
                following.append(run)
            elif analysis.stages > stage:
                found.append((analysis, value))
        return [self._next_pass(found), *following] if found else following

    def _next_pass(self, found: Sequence[tuple[Analysis, Any]]) -> "TrajectoryRun":
        """Make the next pass of some analyses, from what this one found."""
        stage = self.stage + 1
        following = copy.copy(self)
        following._planned = self.planned
        following.stage, following.is_first = stage, False
        following.analyses = [analysis for analysis, _ in found]
        following._damaged = self._all_damaged
        following._told_of_bonds = self._told_of_bonds or bool(self.collected.long_bonds)
        halves = [
            _half(analysis, analysis.next_stage(value), _columns(self._atoms, own))
            for (analysis, value), own in zip(found, following._indices, strict=True)
        ]
        caching = self.job.caching
        if caching is not None and following._n_passes == stage + 1:
            caching = replace(caching, last=True)
        following.job = replace(self.job, analyses=halves, caching=caching)
        return following

    def _warn_of_scan(self, damaged: Sequence[tuple[int, str]], changes: np.ndarray) -> None:
        """Warn of frames over which atoms may not have been followed rightly."""
        path = self.trajectory.provenance()["trajectory"]
        if damaged:
            warn(
                f"{path}: {many(len(damaged), 'frame')} left "
                f"out, the first is {min(damaged)[0]}; nojump went on from the frame before, as if "
                "no atom had moved by more than half the cell meanwhile"
            )
        if len(changes):
            warn(
                f"{path}: the cell changes by more than half an edge at "
                f"{many(len(changes), 'frame')}, the first is {changes[0]}; nojump may take an "
                "atom for another image there: analyse the parts before and after by themselves"
            )

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
        for k, half in enumerate(self.job.analyses):
            if half.per_block:
                analysis = self.analyses[k]
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
        states = self._states

        def located() -> Iterator[Task]:
            for number in self.collected.missing().tolist():
                rows, (before, after) = self.plan.rows(number), self._halo
                before = min(before, rows.start)
                after = min(after, len(self.plan.frames) - rows.stop)
                window = slice(rows.start - before, rows.stop + after)
                frames = self.plan.frames[window]
                extents = self.trajectory.extents(frames)
                state = states.of_window(frames) if states else None
                yield Task(job, number, rows.start, frames, extents, None, state, (before, after))

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
                self._describe_frames(analysis)
                analysis.timings = timings
                analysis.finish(value)
        if self.is_first and self._states is not None:
            relay = self._states.relay
            assert relay is not None
            self._warn_of_scan(self.collected.damaged, relay.changes)
        self._warn_of_long_bonds()

    def _describe_frames(self, analysis: Analysis) -> None:
        """Tell an analysis the times of its frames, and those that were left out."""
        analysis.times = self.collected.times
        analysis.damaged = DamagedFrames(sorted(self._all_damaged))

    def frames_of(self, result: BlockResult) -> int:
        """Frames as which a result counts in the progress."""
        return result.n_frames

    @property
    def n_frames_done(self) -> int:
        """Frames that were collected."""
        return self.collected.n_frames

    @property
    def _all_damaged(self) -> list[tuple[int, str]]:
        """Frames that any stage left out, and why."""
        now = self.collected.damaged
        known = {frame for frame, _ in now}
        return now + [one for one in self._damaged if one[0] not in known]

    def _warn_of_long_bonds(self) -> None:
        if self._told_of_bonds or not self.collected.long_bonds:
            return
        found = sum_long_bonds(self.collected.long_bonds)
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


class ScanRun(TrajectoryRun):
    """The pass before the first one, for a transformation that follows atoms from frame to frame.

    It passes over all frames, from the trajectory's first one on, and finds the states in which the
    blocks of the analyses begin.
    """

    def __init__(self, planned: TrajectoryRun):
        assert planned._states is not None
        vars(self).update(vars(planned))
        self._planned, self._states, self._halo = planned, None, (0, 0)
        planned.is_first = False
        self._wanted, job = planned._states, planned.job
        scan = self._wanted.scan
        frames = np.arange(planned.plan.frames[-1] + 1)
        #: True if the frames are those of the analyses, for which decoded ones can be kept.
        self._keeps = np.array_equal(frames, planned.plan.frames) and planned._halo == (0, 0)
        # Blocks of the analyses' size, which a checkpoint keeps, whatever the number of workers.
        self.plan = self._make_plan(frames, block_frames=planned.plan.block_frames)
        self.job = replace(
            job,
            transforms=job.transforms[: job.transforms.index(scan) + 1],
            analyses=[WorkerAnalysis("nojump", _Scan(scan, self._wanted.frames), None)],
            leaves=self.plan.leaves,
            caching=job.caching if self._keeps else None,
        )

    @property
    def n_frames(self) -> int:
        """Number of frames to be read in this pass and all that follow."""
        return len(self.plan.frames) + self.planned.n_frames

    def next_stages(self) -> "list[TrajectoryRun | PartsRun]":
        """Get the first pass of the analyses, from the states that this one found."""
        following = self.planned
        following._damaged = self.collected.damaged
        following._told_of_bonds = self._keeps and bool(self.collected.long_bonds)
        wanted = self._wanted
        scanned = self.collected.values[0]
        wanted.found = wanted.scan.states(scanned, wanted.frames)
        caching = following.job.caching
        if caching is not None and following._n_passes == 1:
            following.job = replace(following.job, caching=replace(caching, last=True))
        self._warn_of_scan(following._damaged, wanted.scan.changes(scanned))
        return [following]

    def finish(self, timings: Timings) -> None:
        """Warn of long bonds, unless the analyses have other frames."""
        if self._keeps:
            self._warn_of_long_bonds()


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


def n_passes(analyses: Sequence[Analysis], transforms: Sequence[Transform]) -> int:
    """Number of passes over the frames that a run makes."""
    return max(one.stages for one in analyses) + (find_scan(transforms) is not None)


class _Scan:
    """Worker's half of the pass that finds states."""

    def __init__(self, scan: WorkerScan, wanted: np.ndarray):
        self._scan, self._wanted = scan, wanted

    def compute(self, block: Block) -> Any:
        """Scan a leaf."""
        return self._scan.scan(block.frames, block.raw[0], block.dimensions, self._wanted)

    def merge(self, left: Any, right: Any) -> Any:
        """Join neighbours."""
        return self._scan.merge(left, right, self._wanted)


@dataclass
class _States:
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
    def of(cls, plan: Plan, scan: WorkerScan, n_atoms: int, halo: tuple[int, int]) -> "_States":
        """Choose the frames, and blocks so large that there is room for their states."""
        steps = np.diff(plan.frames)
        if (steps < 1).any():
            raise UnsupportedError(
                "nojump follows atoms from frame to frame: give frames in increasing order"
            )
        largest = STATES_BYTES // max(scan.state_bytes, 1)
        of_blocks, frames = bool((steps == 1).all()), plan.frames
        if of_blocks:
            room = LARGEST_BLOCK_BYTES // (12 * n_atoms)
            while len(plan) > largest and 2 * plan.block_frames <= room:
                plan = replace(plan, block_frames=2 * plan.block_frames)
            firsts = np.unique([max(0, rows.start - halo[0]) for rows in plan.blocks()])
            frames = frames[firsts]
        if len(frames) > largest:
            raise UnsupportedError(
                f"nojump would keep the images of {n_atoms} atoms in {len(frames)} frames, "
                f"{amount(len(frames) * scan.state_bytes)} and more than "
                f"{amount(STATES_BYTES)}: follow fewer atoms, as nojump('name OW'), or analyse "
                "fewer frames"
            )
        return cls(scan, frames, plan.block_frames, of_blocks)

    def hand_on(self) -> None:
        """Hand states on from block to block, if no frame between them is passed over."""
        if self.of_blocks and self.frames[0] == 0:
            none = self.scan.states((), self.frames[:1])
            self.relay = Relay(self.scan, np.zeros((len(self.frames), *none.shape[1:]), none.dtype))

    def of_window(self, frames: np.ndarray) -> np.ndarray | Relay:
        """Get the states for a block and its halo."""
        if self.relay is not None:
            return self.relay
        first = int(np.searchsorted(self.frames, frames[0]))
        return self.found[first : first + (1 if self.of_blocks else len(frames))]


def _half(analysis: Analysis, computation: Any, columns: np.ndarray | None) -> WorkerAnalysis:
    """Make the worker's half of a pass."""
    half = WorkerAnalysis(analysis.name, computation, columns, analysis.attributes, analysis.halo)
    if any(half.halo) and (half.reduces or half.ragged or half.per_block):
        raise UnsupportedError(
            f"{analysis.name}: a halo is for analyses that give a row for each frame, and this one "
            "gives something else"
        )
    return half


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
