"""Short parts of a run, done as the run would do them, and timed."""

import copy
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import numpy as np

from paceline.advice.costs import Measured, measured
from paceline.advice.disk import let_go
from paceline.backends import Backend
from paceline.errors import UnsupportedError
from paceline.leaves import Borders, Leaves
from paceline.outcome import Outcome
from paceline.pagecache import cached_share, cached_share_of_all
from paceline.passes import Analysis, Pass
from paceline.plan import Plan, make_plan
from paceline.timing import Timings
from paceline.transform import Transform

#: Blocks that each worker does at the least, so that one that is slow does not tell of all.
_BLOCKS = 3
#: Frames that are looked for in memory.
_LOOKS = 256


class Rehearsal:
    """A run, parts of which can be done; the analyses are left as they are.

    Parameters
    ----------
    analyses : sequence of Analysis
        Of one Universe.
    transforms : sequence of Transform
        What is done to positions first.
    frames : numpy.ndarray of int64, shape (n_frames,)
        Frames of the whole run.
    skip_damaged : bool
        Whether to leave out frames that cannot be read.

    Attributes
    ----------
    is_sample : bool
        Whether only some frames of the trajectory are known.

    Raises
    ------
    UnsupportedError
        An analysis writes files: it would write one.
    """

    def __init__(
        self,
        analyses: Sequence[Analysis],
        transforms: Sequence[Transform],
        frames: np.ndarray,
        *,
        skip_damaged: bool,
    ):
        begun = time.perf_counter()
        self._pass = Pass([copy.copy(analysis) for analysis in analyses], transforms)
        self._t_open = time.perf_counter() - begun
        self._skip_damaged = skip_damaged
        self._run_frames = self._frames = frames
        self._chain = getattr(self.trajectory, "chain", None)
        self.is_sample = False
        if self._chain is not None and self._chain.is_sample:
            self.is_sample = True
            self._frames = _readable(frames, self._chain.n_frames)
        self._deal(frames, 1, None)
        for analysis, part in zip(analyses, self._pass.job.parts, strict=True):
            if part.per_block:
                raise UnsupportedError(
                    f"{analysis.name} would write a file; ask for advice about an analysis"
                )

    @property
    def trajectory(self) -> Any:
        """The trajectory, opened: an `OpenTrajectory`."""
        return self._pass.trajectory

    @property
    def source(self) -> Any:
        """Where a worker's frames come from: a `FrameSource`."""
        return self._pass.job.source

    def middle(self, n: int, *, part: int = 0, parts: int = 1) -> np.ndarray:
        """Frames about the middle of those that the run analyses.

        Parameters
        ----------
        n : int
            How many, at the most.
        part, parts : int
            Which of so many rows of neighbours, none of which holds a frame of another.

        Returns
        -------
        numpy.ndarray of int64, shape (n,)
        """
        n = min(n, max(1, len(self._frames) // parts))
        first = max(0, (len(self._frames) - n * parts) // 2 + n * part)
        first -= (first - self._borders.head) % self.together
        return self._frames[max(0, first) :][:n]

    @property
    def together(self) -> int:
        """Frames of the run that are stored as one: read alone, each would cost as much as all."""
        return self._borders.rows

    @property
    def _borders(self) -> Borders:
        return Borders.of(self._run_frames, self.trajectory.chunk_frames)

    def run(
        self, backend: Backend, frames: np.ndarray, block_frames: int | None = None
    ) -> Measured:
        """Do some frames.

        Parameters
        ----------
        backend : Backend
            Who does them.
        frames : numpy.ndarray of int64, shape (n_frames,)
            Frame numbers; they may be repeated.
        block_frames : int, optional
            Frames dealt at a time: any number. By default as many as the plan has it.

        Returns
        -------
        Measured
        """
        begun = time.monotonic_ns()
        self._deal(frames, backend.n_workers, block_frames)
        timings = Timings(backend.name, begun, time.monotonic_ns())
        with ExitStack() as receivers:
            self._pass.collect(0, timings, receivers)
            works = self._pass.works(0, backend.n_workers)
            # Closed at once, also by an error here: workers would go on.
            with closing(backend.run([self._pass.job], works)) as outcomes:
                for outcome in outcomes:
                    # Blocks that were abandoned count for nothing; MPI alone gathers.
                    if isinstance(outcome, Outcome):
                        self._pass.add(outcome)
        timings.end = time.monotonic_ns()
        return measured(timings, self._t_open)

    def _deal(self, frames: np.ndarray, n_workers: int, block_frames: int | None) -> None:
        self._pass.deal(
            frames,
            skip_damaged=self._skip_damaged,
            n_workers=n_workers,
            block_frames=block_frames,
        )
        leaf = self._pass.plan.leaf_frames
        if block_frames is not None and block_frames < leaf:
            # Of slow functions a whole leaf would take too long. What is merged is thrown away.
            leaves = Leaves(block_frames)
            self._pass.plan = Plan(frames, leaves, block_frames)
            self._pass.job = replace(self._pass.job, leaves=leaves)

    @property
    def _wanted_bytes(self) -> float:
        """To be read of a frame, about."""
        atoms = getattr(self.source, "atoms", None)
        every = np.arange(self.trajectory.n_atoms)
        return self.trajectory.frame_bytes(every if atoms is None else atoms)

    def block_frames(self, n_workers: int) -> int:
        """Frames that the whole run would deal at a time."""
        return make_plan(
            self._run_frames,
            n_atoms=self.trajectory.n_atoms,
            n_wanted=self.source.n_wanted,
            frame_bytes=self._wanted_bytes,
            n_workers=n_workers,
            chunk_frames=self.trajectory.chunk_frames,
        ).block_frames

    def block_of(self, n_frames: int) -> int:
        """Frames of a block such that a worker gets several, of so many frames.

        As many as in the whole run, if these are few enough.
        """
        size = self.block_frames(2)
        while size > max(self.together, n_frames // _BLOCKS):
            size //= 2
        return size

    @property
    def frame_bytes(self) -> float:
        """Mean size of a frame in the file; 0 where that is not ours to know."""
        return 0.0 if self._chain is None else self._chain.bytes_per_frame

    def _ranges(self, frames: np.ndarray) -> dict[str, list[tuple[int, int]]]:
        """Byte ranges of each file that hold some frames."""
        extents = self.trajectory.extents(frames)
        found = {}
        for member, _, part in extents.parts():
            starts, sizes = part.offsets.astype(int), part.sizes.astype(int)
            ends = starts + sizes
            borders = np.flatnonzero(starts[1:] != ends[:-1]) + 1
            firsts, lasts = starts[np.r_[0, borders]], ends[np.r_[borders - 1, len(ends) - 1]]
            path = self.source.members[member].path
            found[path] = list(zip(firsts.tolist(), (lasts - firsts).tolist(), strict=True))
        return found

    def in_memory(self, frames: np.ndarray) -> float | None:
        """How much of what is read of some frames is in memory; None where that is not told."""
        if not self.trajectory.shareable:
            return None
        looked_at = frames[np.unique(np.linspace(0, len(frames) - 1, _LOOKS).astype(int))]
        # A frame of which no more is wanted is there as far as it is wanted.
        wanted = min(1.0, float(self._wanted_bytes / self.frame_bytes))
        extents = self.trajectory.extents(looked_at)
        shares = []
        for member, offset, size in zip(
            extents.members, extents.offsets.tolist(), extents.sizes.tolist(), strict=True
        ):
            share = cached_share(self.source.members[member].path, [(offset, size)])
            if share is None:
                return None
            shares.append(min(1.0, share / wanted))
        return sum(shares) / len(shares)

    def in_memory_now(self) -> float | None:
        """How much of what the whole run reads is in memory; None where that is not told."""
        if not self.is_sample:
            return self.in_memory(self._run_frames)
        return cached_share_of_all({core.path for core in self.trajectory.chain.cores})

    def drop(self, frames: np.ndarray) -> bool:
        """Let some frames come from the disk when they are read next; whether they will."""
        dropped = [let_go(path, some) for path, some in self._ranges(frames).items()]
        return bool(dropped) and all(dropped)


def _readable(frames: np.ndarray, n_known: int) -> np.ndarray:
    """Of a sample, frames that are as far apart as those of the run."""
    stride = max(1, round((frames[-1] - frames[0]) / max(len(frames) - 1, 1)))
    return np.arange(0, n_known, stride, dtype=np.int64)
