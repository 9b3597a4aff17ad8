"""One trajectory, and the analyses that a run makes of it in one pass."""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from paceline.errors import MissingDataError, UnsupportedError
from paceline.performance.records import DuplicateAttempt
from paceline.performance.timings import Timings
from paceline.schedule.collect import Collected
from paceline.schedule.plan import Plan, make_plan
from paceline.schedule.tasks import (
    BlockResult,
    CollectedResult,
    Job,
    PerBlock,
    PerFrame,
    Receiver,
    Reduction,
    Work,
    WorkerAnalysis,
)
from paceline.transform.base import Transform, prepare_all

if TYPE_CHECKING:
    from paceline.trajectory.mdanalysis import OpenTrajectory


class Analysis(Protocol):
    """What `run` asks of an analysis; `paceline.analysis.base.AnalysisBase` has it all.

    One whose worker's half is a `PerBlock` has also `receiver()`: a context manager of a
    `Receiver`, left when all blocks are done, or by an error.
    """

    atomgroup: Any
    fields: Sequence[str]
    optional_fields: Sequence[str]
    frames_together: int
    transforms: Sequence[Transform]
    skip_damaged: bool
    frames: np.ndarray
    times: np.ndarray
    damaged: list[tuple[int, str]]
    timings: Timings
    provenance: dict[str, Any]

    @property
    def name(self) -> str:
        """What errors call it."""

    @property
    def indices(self) -> np.ndarray:
        """Atoms wanted, in the order in which the computation wants them."""

    @property
    def attributes(self) -> Mapping[str, np.ndarray]:
        """What of the atoms, beside their positions, the computation wants to see."""

    def prepare(self) -> PerFrame | Reduction | PerBlock:
        """The worker's half; everything that is the same for all frames."""

    def finish(self, value: Any) -> None:
        """Turn all frames' rows, or the merged partial result, into results."""


class TrajectoryRun:
    """One trajectory, opened and planned.

    Parameters
    ----------
    analyses : sequence of Analysis
        Of one Universe.
    transforms : sequence of Transform
        What is done to positions before any analysis sees them, in this order.

    Attributes
    ----------
    analyses, transforms : sequence
        As given.
    trajectory : OpenTrajectory
    plan : Plan
        Once `deal` was called; so for `job`.
    job : Job
    collected : Collected
        Once `collect` was called.
    """

    trajectory: "OpenTrajectory"
    plan: Plan
    job: Job
    collected: Collected

    def __init__(self, analyses: Sequence[Analysis], transforms: Sequence[Transform]):
        # Worker processes import the analyses, and so this, but never MDAnalysis.
        from paceline.trajectory.mdanalysis import open_trajectory

        self.analyses = analyses
        self.transforms = transforms
        self.trajectory = open_trajectory([analysis.atomgroup for analysis in analyses])

    def deal(
        self,
        frames: np.ndarray,
        *,
        skip_damaged: bool,
        n_workers: float,
        block_frames: int | None,
        streamed: bool = False,
    ) -> None:
        """Make the plan and the worker's half of everything.

        Parameters
        ----------
        frames : numpy.ndarray of int64, shape (n_frames,)
            Frame numbers to be analysed.
        skip_damaged : bool
            Whether to leave out frames that cannot be read.
        n_workers : float
            Workers that will share the blocks; a fraction of one that has other passes to do.
        block_frames : int or None
            Frames in a block, if the user chose.
        streamed : bool
            Whether outcomes are wanted as they come, whatever the analyses make of them.
        """
        wanted = [np.asarray(analysis.indices, dtype=np.int64) for analysis in self.analyses]
        universe = self.analyses[0].atomgroup.universe
        atoms, transforms = prepare_all(
            self.transforms, np.unique(np.concatenate(wanted)), universe
        )
        self.plan = make_plan(
            frames,
            n_atoms=self.trajectory.n_atoms,
            n_wanted=len(atoms),
            frame_bytes=self.trajectory.frame_bytes(atoms),
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
        # Before the fields: an analysis may see only now which ones it wants.
        parts = [
            WorkerAnalysis(
                analysis.name, analysis.prepare(), _columns(atoms, own), analysis.attributes
            )
            for analysis, own in zip(self.analyses, wanted, strict=True)
        ]
        self.job = Job(
            self.trajectory.frame_source(atoms, *self._fields()),
            transforms,
            parts,
            self.plan.leaves,
            skip_damaged,
            streamed or any(part.per_block for part in parts),
        )

    def _fields(self) -> tuple[list[str], list[str]]:
        """What is decoded, and what of it every frame must hold."""
        required = {field for analysis in self.analyses for field in analysis.fields}
        optional = {field for analysis in self.analyses for field in analysis.optional_fields}
        held = self.trajectory.fields
        # MDAnalysis tells only what the present frame holds.
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
        """Size of the numbers that are decoded for the analyses, of all frames."""
        source = self.job.source
        return 12 * source.n_wanted * len(source.fields) * len(self.plan.frames)

    def works(self, job: int, n_workers: int) -> Iterator[Work]:
        """Every block still to be done, with its slice of the index, and of its worker's next one.

        Parameters
        ----------
        job : int
            This pass's number among those that are run together.
        n_workers : int
            Workers that blocks are dealt to in turn.

        Yields
        ------
        Work
        """
        numbers = self.collected.missing().tolist()
        tasks = map(self.plan.task, numbers)
        framed = ((task, self.plan.frame_numbers(task)) for task in tasks)
        located = ((task, frames, self.trajectory.extents(frames)) for task, frames in framed)
        coming = deque(islice(located, n_workers))
        while coming:
            task, frames, extents = coming.popleft()
            coming.extend(islice(located, 1))
            ahead = coming[-1][2] if len(coming) == n_workers else None
            yield Work(job, task.number, task.first, frames, extents, ahead)

    def collect(self, number: int, timings: Timings, stack: ExitStack) -> None:
        """Make ready to collect outcomes.

        Parameters
        ----------
        number : int
            This pass's number in the run.
        timings : Timings
            Of the run.
        stack : contextlib.ExitStack
            Left when all outcomes are in.
        """
        receivers: list[Receiver | None] = []
        for analysis, part in zip(self.analyses, self.job.parts, strict=True):
            if part.per_block:
                manager: AbstractContextManager[Receiver] = analysis.receiver()  # type: ignore[attr-defined]
                receivers.append(stack.enter_context(manager))
            else:
                receivers.append(None)
        self.collected = Collected(number, self.plan, self.job.parts, receivers, timings)

    def add(self, outcome: BlockResult) -> None:
        """Put the results of one or several blocks where they belong."""
        self.collected.add(outcome)

    def take(self, gathered: CollectedResult, since: int) -> None:
        """Take the results of all blocks, that were kept where they were done until then."""
        self.collected.take(gathered, since)

    def note(self, attempt: DuplicateAttempt) -> None:
        """Take note of an attempt that does not count."""
        self.collected.note(attempt)

    def finish(self, timings: Timings) -> None:
        """Give every analysis its results, once all outcomes are in."""
        for analysis, value in zip(self.analyses, self.collected.values, strict=True):
            analysis.times = self.collected.times
            analysis.damaged = sorted(self.collected.damaged)
            analysis.timings = timings
            analysis.finish(value)

    def _provenance(self) -> dict[str, Any]:
        """Where the numbers come from that the analyses see."""
        provenance = self.trajectory.provenance()
        if self.transforms:
            done = [transform.parameters() for transform in self.transforms]
            provenance["transforms"] = "; ".join(done)
        return provenance


def _columns(atoms: np.ndarray, wanted: np.ndarray) -> np.ndarray | None:
    """Where the wanted atoms stand among all that are decoded; None where these are all."""
    return None if np.array_equal(atoms, wanted) else np.searchsorted(atoms, wanted)
