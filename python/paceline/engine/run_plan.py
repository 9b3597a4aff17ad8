"""Plan of a run of analyses over one trajectory; all passes over the frames share the plan."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from paceline._util.machine_and_software import free_memory
from paceline._util.sorted_unique import sorted_unique
from paceline.contract.analysis import Analysis, conclude, facts_shown
from paceline.contract.analysis_kinds import Kind, check_methods_of_scan, declaration_of
from paceline.contract.plan import LARGEST_BLOCK_BYTES, Plan, make_plan, scanned_per_row
from paceline.contract.run_info_and_descriptions import RunContext, RunInfo
from paceline.contract.source import UNKNOWN_TIMES
from paceline.contract.system_interface import attribute_of
from paceline.contract.transform_interface import Transform, WorkerScan, find_scan
from paceline.engine.result_arrays import check_room
from paceline.engine.tasks_and_results import (
    FrameCaching,
    Job,
    LongBonds,
    WorkerAnalysis,
    sum_long_bonds,
)
from paceline.engine.transform_states import Relay, TransformStates
from paceline.errors import MissingDataError, UnsupportedError, warn
from paceline.performance.number_format import amount
from paceline.timing import Timings
from paceline.transform.apply_transforms import TransformsOfEach, prepare_transforms, transforms_of
from paceline.transform.compare_atom_names import name_atom, warn_of_locations
from paceline.transform.known_and_guessed_bonds import note_on_bonds
from paceline.transform.masses import note_on_masses
from paceline.transform.nojump_workers import warn_of_jumps

if TYPE_CHECKING:
    from paceline.trajectory.file_trajectory import Trajectory

#: Formats whose times are in ps.
IN_PICOSECONDS = ("XTC", "TRR")
#: Time between frames, ps, above which times probably have another unit, such as fs.
LONG_STEP = 1e6


@dataclass(frozen=True)
class Facilities:
    """Properties of the backend and its workers that the plan of a run depends on."""

    #: Number of workers for this trajectory; a fraction if workers process several trajectories.
    n_workers: float
    #: True if the results of each block are needed as soon as the block is done.
    streamed: bool = False
    #: True if a block may wait for the state of the previous block.
    pipelined: bool = False
    #: Parameters of the cache of decoded frames, which runs with several passes use; None for no
    #: cache.
    caching: FrameCaching | None = None
    #: True if other processes of this machine read parts of the collected rows from files.
    parts_by_file: bool = False


class TrajectoryRun:
    """Run of several analyses over one trajectory; `prepare` makes the plan and the first job."""

    #: Leaves and blocks of the run.
    plan: Plan
    #: Job of the first pass.
    job: Job

    def __init__(
        self,
        analyses: Sequence[Analysis],
        transforms: Sequence[Transform],
        trajectory: "Trajectory",
    ):
        self.analyses = analyses
        self.transforms, self.trajectory = transforms, trajectory
        self.halo: tuple[int, int] = (0, 0)
        #: States of a transformation that follows atoms from frame to frame.
        self.transform_states: TransformStates | None = None
        #: Number of frames read per analysed frame, for a transformation that follows atoms from
        #: frame to frame; None if blocks contain only the analysed frames.
        self.per_row: int | None = None
        #: Warnings about the frames, found by companion analyses.
        self.warnings: list[str] = []

    def prepare(
        self,
        frames: np.ndarray,
        facilities: Facilities,
        *,
        skip_damaged: bool = False,
        block_frames: int | None = None,
    ) -> None:
        """Make the plan of the run, and the job of the first pass with all worker parts."""
        self._context = RunContext(self.transforms, skip_damaged)
        self._info = RunInfo(frames, self._provenance())
        with self.facts_shown():
            self._prepare(frames, facilities, block_frames)

    def _prepare(
        self, frames: np.ndarray, facilities: Facilities, block_frames: int | None
    ) -> None:
        skip_damaged = self._context.skip_damaged
        self.parts_by_file = facilities.parts_by_file
        indices = [np.asarray(analysis.indices, dtype=np.int64) for analysis in self.analyses]
        if self.trajectory.loaded is not None:
            # Check only the analyses that the user requested: transformations and companion
            # analyses may read atoms that are not loaded.
            for analysis, own in zip(self.analyses, indices, strict=True):
                if not analysis.is_companion:
                    self.trajectory.loaded.check(own)
        universe = self.analyses[0].atomgroup.universe
        atoms, transforms = prepare_transforms(self.transforms, sorted_unique(*indices), universe)
        self._atoms = atoms
        check_room([(one.name, one.stored_bytes(len(frames))) for one in self.analyses])
        row_bytes = sum(one.row_bytes for one in self.analyses)
        self.halo = _halo(self.analyses, frames)
        self.make_plan = partial(
            make_plan,
            n_atoms=self.trajectory.n_atoms,
            n_wanted=len(atoms),
            frame_bytes=max(self.trajectory.frame_bytes(atoms), row_bytes),
            n_workers=facilities.n_workers,
            chunk_frames=self.trajectory.chunk_frames,
            frames_together=math.lcm(*(one.frames_together for one in self.analyses)),
        )
        self._check_window(frames, len(atoms))
        scan = find_scan(transforms)
        if scan is not None and (np.diff(frames) < 1).any():
            raise UnsupportedError(
                "nojump follows atoms from frame to frame: pass frames in increasing order"
            )
        warn_of_locations(self.analyses)
        # Make worker parts before finding fields: an analysis may choose its fields in this step.
        parts = [
            make_worker_part(analysis, analysis.prepare(), columns_in(atoms, own), 0, frames)
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
                skip_damaged=skip_damaged if facilities.pipelined else None,
            )
        if block_frames is None:
            self.trajectory.warn_of_rereading(self.plan)
        self.job = Job(
            self.trajectory.frame_source(atoms, *self._fields(), n_again=sum(self.halo)),
            transforms,
            parts,
            self.plan.leaves,
            skip_damaged,
            facilities.streamed or any(part.kind is Kind.BLOCKS for part in parts),
            facilities.caching if self.n_passes > 1 or self.scans_before else None,
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

        If `skip_damaged` is None, or if a block cannot contain the frames between the analysed
        ones, a separate pass computes the initial states of the blocks. Otherwise each block passes
        its state to the next one. Blocks may be smaller than requested, to fit into memory.
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
        self.per_row = per_row
        n_halo = sum(self.halo)
        plan = self.make_plan(frames, block_frames=block_frames, n_halo=n_halo, **sizes)
        if skip_damaged is None or per_row is None:
            states = TransformStates.of(plan, scan, n_atoms, self.halo, per_row)
        else:
            states = TransformStates.handed_on(
                plan, scan, n_atoms, per_row, skip_damaged=skip_damaged, keeps=self.n_passes > 1
            )
        self.transform_states = states
        self.plan = self.make_plan(frames, block_frames=states.block_frames, **sizes)

    @property
    def relay(self) -> Relay | None:
        """Pipeline in which each block passes its transformation's state to the next; or None."""
        return None if self.transform_states is None else self.transform_states.relay

    @property
    def scans_before(self) -> bool:
        """True if a `ScanPass` computes a transformation's initial states before the first pass."""
        return self.transform_states is not None and self.relay is None

    @property
    def n_stages(self) -> int:
        """Number of stages of the analysis with the most stages."""
        return max(one.stages for one in self.analyses)

    @property
    def n_passes(self) -> int:
        """Number of passes over the frames that the analyses need, without passes of transforms."""
        return max(one.stages - one.over_parts for one in self.analyses)

    def close(self) -> None:
        """Release waiting workers, and return to the frame that was current before the run."""
        if self.relay is not None:
            self.relay.close()
        self.trajectory.restore_frame()

    def facts_shown(self, **known: Any) -> AbstractContextManager[None]:
        """During a `with` block, set options and facts of this run on the analyses.

        `known` are additional facts.
        """
        return facts_shown(self.analyses, self._context, replace(self._info, **known))

    def conclude(self, analysis: Analysis, value: Any, timings: Timings, **known: Any) -> None:
        """Set the results of an analysis; `known` are facts about its frames."""
        info = replace(self._info, timings=timings, **known).with_warnings(self.warnings)
        conclude(analysis, self._context, info, value)
        if analysis.is_companion:
            self.warnings += analysis.found

    def caching_of(self, stage: int) -> FrameCaching | None:
        """Return the parameters of the frame cache for a stage.

        The last stage reads the cache and adds no blocks to it.
        """
        caching = self.job.caching
        is_last = caching is not None and self.n_passes == stage + 1
        return replace(caching, last=True) if caching is not None and is_last else caching

    def warn_of_scan(self, damaged: Sequence[tuple[int, str]], changes: np.ndarray) -> None:
        """Warn of frames at which a transformation may have followed atoms wrongly."""
        path = str(self.trajectory.provenance()["trajectory"])
        warn_of_jumps(path, "nojump", "an atom", [frame for frame, _ in damaged], changes)

    def warn_of_long_bonds(self, noted: Sequence[LongBonds]) -> None:
        """Warn of bonds longer than half the cell, if there are any."""
        if not noted:
            return
        found = sum_long_bonds(noted)
        first, second = self.analyses[0].atomgroup.universe.atoms[self._atoms[list(found.atoms)]]
        path = str(self.trajectory.provenance()["trajectory"])
        warn(
            f"{path}: {found.n_bonds} bonds in {found.n_frames} of {len(self.plan.frames)} frames "
            "are longer than half the cell after unwrap; the longest, "
            f"{found.length:.1f} Å, is between {name_atom(first)} and {name_atom(second)} in "
            f"frame {found.frame}. Perhaps a molecule left its complex or is bonded to its own "
            "image, or the topology describes other atoms"
        )

    def warn_of_repeats(self, times: np.ndarray) -> None:
        """Warn of times that decrease within a file; a restart may have been appended to it."""
        chain, frames = self.trajectory.chain, self.plan.frames
        known = np.flatnonzero(np.isfinite(times))
        steps = np.diff(times[known])
        if chain is None or chain.is_streamed:
            return
        if not (steps > 0).any() or (np.diff(frames) < 1).any():
            return
        for row in np.flatnonzero(steps < 0).tolist():
            before, after = (int(frames[known[k]]) for k in (row, row + 1))
            (file, _), (other, _) = chain.locate(before), chain.locate(after)
            if file == other:
                first, last = times[known[[row + 1, row]]]
                warn(
                    f"{chain.names[file]}: frame {after} at {first:g} ps follows frame {before} "
                    f"at {last:g} ps: frames may be repeated, perhaps by an appended restart; "
                    "continuous=True (--continuous) leaves out frames that later frames repeat"
                )
                return

    def warn_of_long_steps(self, times: np.ndarray) -> None:
        """Warn of large steps between times in ps; the times may be in fs."""
        chain = self.trajectory.chain
        frames = np.diff(self.plan.frames)
        if chain is None or self.job.source.time_axis.dt is not None or (frames < 1).any():
            return
        steps = np.diff(times) / frames
        between = float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0
        if between >= LONG_STEP and chain.files[0].format in IN_PICOSECONDS:
            shown = self.analyses[0].atomgroup.universe.trajectory
            name = attribute_of(shown, "came_from") or chain.names[0]
            warn(
                f"{name}: its frames are {between / 1e6:g} µs apart; if a program wrote "
                f"times in fs, set the time between frames, dt={between / 1e3:g} (--dt "
                f"{between / 1e6:g}ns)"
            )

    def _check_window(self, frames: np.ndarray, n_atoms: int) -> None:
        """Raise `UnsupportedError` if the frames of a halo exceed the free memory."""
        n_halo = min(sum(self.halo), len(frames))
        if n_halo == 0:
            return
        needed, free = 12 * n_atoms * n_halo, free_memory()
        if free is not None and needed > free:
            raise UnsupportedError(
                f"a halo of {n_halo} frames of {n_atoms} atoms needs {amount(needed)} for each "
                f"worker, but {amount(free)} of memory are free: use a smaller halo, or fewer "
                "atoms"
            )

    def _fields(self) -> tuple[list[str], list[str]]:
        """Find the fields to decode, and the fields that every frame must contain."""
        required = {field for analysis in self.analyses for field in analysis.fields}
        optional = {field for analysis in self.analyses for field in analysis.optional_fields}
        held = self.trajectory.fields
        # Do not check MDAnalysis's readers, which report only the fields of the current frame.
        if self.trajectory.shareable and not required.issubset(held):
            lacking = " and ".join(sorted(required.difference(held)))
            path = str(self.trajectory.provenance()["trajectory"])
            raise MissingDataError(
                f"{path}: an analysis needs {lacking}, but this file contains only "
                f"{' and '.join(held)}; analyse a trajectory with the missing data"
            )
        wanted = required | optional.intersection(held)
        if self.transforms:
            wanted.add("positions")
            required.add("positions")
        return sorted(wanted), sorted(required)

    def _provenance(self) -> dict[str, object]:
        """Describe the files, and the transformations."""
        provenance = self.trajectory.provenance()
        if self.trajectory.time_doubt:
            provenance[UNKNOWN_TIMES] = self.trajectory.time_doubt
        if self.transforms:
            done = [transform.parameters() for transform in self.transforms]
            provenance["transforms"] = "; ".join(done)
        universe = self.analyses[0].atomgroup.universe
        if note := note_on_masses(universe):
            provenance["masses"] = note
        if note := note_on_bonds(universe):
            provenance["bonds"] = note
        return provenance


def n_passes(
    analyses: Sequence[Analysis], transforms: Sequence[Transform] | TransformsOfEach
) -> int:
    """Number of passes that a run needs, over the frames or over collected rows."""
    return max(
        one.stages + (find_scan(transforms_of(transforms, one)) is not None) for one in analyses
    )


def make_worker_part(
    analysis: Analysis,
    computation: object,
    columns: np.ndarray | None,
    stage: int,
    frames: np.ndarray,
) -> WorkerAnalysis:
    """Create and check the worker part of one stage of an analysis, given its atoms' columns."""
    part = WorkerAnalysis(
        analysis.name,
        computation,
        declaration_of(computation),
        columns,
        analysis.attributes,
        analysis.halo,
    )
    if part.kind is Kind.SCAN:
        _check_scan(analysis, part, stage, frames)
    if any(part.halo) and part.kind is not Kind.ROWS:
        raise UnsupportedError(
            f"{analysis.name}: a halo is only possible for analyses that return one row per frame, "
            "unlike this one"
        )
    return part


def _check_scan(analysis: Analysis, part: WorkerAnalysis, stage: int, frames: np.ndarray) -> None:
    """Raise `UnsupportedError` if a worker part with `scan` cannot run."""
    name = analysis.name
    check_methods_of_scan(name, part.computation)
    if any(part.halo):
        raise UnsupportedError(
            f"{name} has scan and a halo: store what it needs of earlier frames in the state"
        )
    if analysis.stages - analysis.over_parts < stage + 2:
        raise UnsupportedError(
            f"{name}: a worker part with scan needs two passes over the frames, but there "
            f"{'is' if analysis.stages == 1 else 'are'} {analysis.stages} in all: set "
            f"stages = {stage + 2 + analysis.over_parts}"
        )
    if (np.diff(frames) < 1).any():
        raise UnsupportedError(
            f"{name} depends on all earlier frames (scan): pass frames in increasing order, "
            "without repeats"
        )


def _halo(analyses: Sequence[Analysis], frames: np.ndarray) -> tuple[int, int]:
    """Find the smallest halo that suffices for all analyses.

    Raises `UnsupportedError` if there is a halo and the frames do not increase.
    """
    before, after = (max(one.halo[k] for one in analyses) for k in range(2))
    if (before or after) and (np.diff(frames) < 1).any():
        name = next(one.name for one in analyses if any(one.halo))
        raise UnsupportedError(
            f"{name} needs frames before and after each frame (halo): pass frames in increasing "
            "order, without repeats"
        )
    return before, after


def columns_in(atoms: np.ndarray, wanted: np.ndarray) -> np.ndarray | None:
    """Find the columns of wanted atoms in the decoded coordinates; None if all are wanted."""
    return None if np.array_equal(atoms, wanted) else np.searchsorted(atoms, wanted)
