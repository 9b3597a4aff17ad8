"""Short parts of a run, done as the run would do them, and timed."""

import copy
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from paceline._util.page_cache import cached_share, cached_share_of_all, drop_from_cache
from paceline.backends.base import Backend
from paceline.errors import UnsupportedError
from paceline.performance.records import BlockTiming
from paceline.performance.timings import Timings
from paceline.schedule.interfaces import Analysis, Transform
from paceline.schedule.plan import Borders, Leaves, Plan, make_plan
from paceline.schedule.tasks import BlockResult
from paceline.schedule.trajectory_run import TrajectoryRun

#: Bytes that one reader reads, at the most, and in one call; and for how long, s.
_BYTES, _CALL, _SECONDS = 64 << 20, 4 << 20, 0.25
#: Of a file of so few bytes a rate would tell nothing.
_LEAST = 4 << 20
#: Less than this in memory counts as nothing: reading elsewhere may bring in some pages.
_DROPPED = 0.05


def let_go(path: str, ranges: Sequence[tuple[int, int]]) -> bool:
    """Let the next read of some bytes of a file come from the disk.

    Parameters
    ----------
    path : str
        The file.
    ranges : sequence of (int, int)
        Offset and size of each row of bytes.

    Returns
    -------
    bool
        Whether they are known to be out of memory now.
    """
    try:
        drop_from_cache(path, ranges)
    except UnsupportedError:
        return False
    left = cached_share(path, ranges)
    return left is not None and left < _DROPPED


def disk_rates(path: str) -> tuple[float, float] | None:
    """Bytes a second that one reader gets, and that two get together, that are not in memory.

    Parameters
    ----------
    path : str
        A file. Some of its bytes are let go of, and read.

    Returns
    -------
    tuple of float or None
        None where the bytes stay in memory, or the system does not tell.
    """
    size = os.path.getsize(path)
    n_bytes = min(_BYTES, size // 8)
    if n_bytes < _LEAST:
        return None
    # Away from the middle, where frames are read.
    starts = [size // 8, size // 4, 5 * size // 8]
    if not let_go(path, [(start, n_bytes) for start in starts]):
        return None
    one = _rate(path, starts[:1], n_bytes)
    return one, _rate(path, starts[1:], n_bytes)


def _rate(path: str, starts: list[int], n_bytes: int) -> float:
    """Bytes a second of several readers together."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(len(starts)) as readers:
        read = readers.map(lambda start: _read(path, start, n_bytes), starts)
        return sum(read) / (time.perf_counter() - begun)


def _read(path: str, start: int, n_bytes: int) -> int:
    """Read for a while, once at the least; how many bytes came."""
    buffer, done = bytearray(_CALL), 0
    end = time.perf_counter() + _SECONDS
    descriptor = os.open(path, os.O_RDONLY)
    try:
        while True:
            done += os.preadv(descriptor, [buffer], start + done)
            if done >= n_bytes or time.perf_counter() >= end:
                return done
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Costs:
    """What one frame costs one worker, seconds.

    Attributes
    ----------
    read : float
        Waiting for bytes: what reading ahead does not hide.
    decode, transform, compute : float
        Decoding, transforming positions, and the analyses' own time.
    rest : float
        All else: being dealt blocks, and waiting for the interpreter between them.
    """

    read: float
    decode: float
    transform: float
    compute: float
    rest: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, float]:
        """Each part by its name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class Measured:
    """What a part of a run told.

    Attributes
    ----------
    costs : Costs
        Of a frame, by one of them.
    n_bytes : float
        Read of a frame, bytes.
    opening : float
        Opening the file by one worker, s.
    fixed : float
        What such a run takes whatever its length: planning, starting workers, opening, ending, s.
    """

    costs: Costs
    n_bytes: float
    opening: float
    fixed: float

    @classmethod
    def middle(cls, several: Sequence[Self]) -> Self:
        """The median of several, by what a frame takes."""
        return sorted(several, key=lambda one: one.costs.seconds)[(len(several) - 1) // 2]


def measured(timings: Timings, t_open: float) -> Measured:
    """What the timings of a part of a run tell of a frame.

    Parameters
    ----------
    timings : Timings
        Of the part.
    t_open : float
        What looking at the trajectory took before, s.

    Returns
    -------
    Measured
    """
    blocks_of: dict[str, list[BlockTiming]] = {}
    for block in sorted(timings.blocks, key=lambda block: block.start):
        blocks_of.setdefault(block.worker, []).append(block)
    n_frames = timings.n_frames
    # From a worker's first block until its last: then the others may still be at work.
    spans = sum(own[-1].end - own[0].start for own in blocks_of.values())
    names = ("read", "decode", "transform", "compute")
    parts = {name: sum(getattr(block, name) for block in timings.blocks) for name in names}
    opening = sum(block.open for block in timings.blocks)
    parts["rest"] = max(0, spans - opening - sum(parts.values()))
    opening_each = opening / len(blocks_of) / 1e9
    begun = min(own[0].start for own in blocks_of.values())
    at_work = (max(own[-1].end for own in blocks_of.values()) - begun) / 1e9
    return Measured(
        costs=Costs(**{name: value / n_frames / 1e9 for name, value in parts.items()}),
        n_bytes=sum(block.bytes for block in timings.blocks) / n_frames,
        opening=opening_each,
        fixed=t_open + max(0.0, timings.t_total - at_work) + opening_each,
    )


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
        self._pass = TrajectoryRun([copy.copy(analysis) for analysis in analyses], transforms)
        self._t_open = time.perf_counter() - begun
        self._skip_damaged = skip_damaged
        self._run_frames = self._frames = frames
        self._chain = getattr(self.trajectory, "chain", None)
        self.is_sample = False
        if self._chain is not None and self._chain.is_sample:
            self.is_sample = True
            self._frames = _readable(frames, self._chain.n_frames)
        self._deal(frames, 1, None)
        for analysis, part in zip(analyses, self._pass.job.analyses, strict=True):
            if part.per_block:
                raise UnsupportedError(
                    f"{analysis.name} would write a file; ask for advice about an analysis"
                )

    @property
    def trajectory(self) -> Any:
        """The trajectory, opened: a `Trajectory`."""
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
            self._pass.start_collecting(0, timings, receivers)
            tasks = self._pass.tasks(0, backend.n_workers)
            # Closed at once, also by an error here: workers would go on.
            with closing(backend.run([self._pass.job], tasks)) as outcomes:
                for outcome in outcomes:
                    # Blocks that were abandoned count for nothing; MPI alone gathers.
                    if isinstance(outcome, BlockResult):
                        self._pass.collected.add(outcome)
        timings.end = time.monotonic_ns()
        return measured(timings, self._t_open)

    def _deal(self, frames: np.ndarray, n_workers: int, block_frames: int | None) -> None:
        self._pass.prepare(
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
            path = self.source.files[member].path
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
            extents.files, extents.offsets.tolist(), extents.sizes.tolist(), strict=True
        ):
            share = cached_share(self.source.files[member].path, [(offset, size)])
            if share is None:
                return None
            shares.append(min(1.0, share / wanted))
        return sum(shares) / len(shares)

    def in_memory_now(self) -> float | None:
        """How much of what the whole run reads is in memory; None where that is not told."""
        if not self.is_sample:
            return self.in_memory(self._run_frames)
        return cached_share_of_all({file.path for file in self.trajectory.chain.files})

    def drop(self, frames: np.ndarray) -> bool:
        """Let some frames come from the disk when they are read next; whether they will."""
        dropped = [let_go(path, some) for path, some in self._ranges(frames).items()]
        return bool(dropped) and all(dropped)


def _readable(frames: np.ndarray, n_known: int) -> np.ndarray:
    """Of a sample, frames that are as far apart as those of the run."""
    stride = max(1, round((frames[-1] - frames[0]) / max(len(frames) - 1, 1)))
    return np.arange(0, n_known, stride, dtype=np.int64)
