"""Run short parts of an analysis and time them, with the code of a whole run."""

import math
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from paceline import _core
from paceline._util.files import is_address
from paceline._util.os_calls import cached_share, cached_share_of_all, drop_from_cache
from paceline.contract.analysis import Analysis
from paceline.contract.analysis_kinds import Kind
from paceline.contract.plan import Borders, LeafBoundaries, Plan, make_plan
from paceline.contract.source import FrameSource, IndexedFile, TrajectoryFile
from paceline.contract.system_interface import attribute_of
from paceline.contract.transform_interface import Transform, find_scan
from paceline.engine.passes import first_pass
from paceline.engine.run_plan import Facilities, TrajectoryRun
from paceline.engine.tasks_and_results import AnyJob, AnyTask, BlockResult, CollectedResult
from paceline.errors import UnsupportedError
from paceline.hdf5.open_hdf5_trajectory import Hdf5File
from paceline.performance.forecast import SampleTimes, StoreSpeed
from paceline.performance.model import REQUEST_BYTES
from paceline.performance.record import DuplicateAttempt
from paceline.timing import Timings
from paceline.trajectory.chain import Chain
from paceline.trajectory.file_trajectory import Trajectory
from paceline.trajectory.open import open_files

#: Maximum number of bytes that one reader reads when the read rate of a disk is measured.
_BYTES = 32 << 20
#: Maximum number of bytes of one call in which `_read` or `_read_again` reads from a file.
_CALL = 4 << 20
#: Maximum time for which one reader reads in a measurement of a disk's read rate, s.
_SECONDS = 0.25
#: A read rate is measured only if one reader can read at least this many bytes of the file.
_LEAST = 4 << 20
#: If less than this fraction of a file is in memory, the file counts as not in memory, since other
#: reads may load some pages.
_DROPPED = 0.05
#: If more than this fraction of a file is in memory, the file counts as completely in memory.
_MOST = 0.5
#: Maximum size of a folio, Linux's unit of the page cache, bytes. Linux keeps a whole folio in
#: memory if any part of it must stay.
_PIECE = 2 << 20
#: Minimum number of blocks per worker in a measurement, so that one slow block does not dominate.
_BLOCKS = 3
#: Shift of the blocks of the next measurement, in units of the distance between blocks. With the
#: golden ratio, a few measurements never use the same blocks.
_SHIFT = 0.618034
#: Maximum number of frames that are examined to find the fraction of a file in memory.
_LOOKS = 256
#: In a long file without an index, only frames in the middle are indexed: total size of these parts
#: of all files, bytes.
SAMPLE = 64 << 20
#: Total size of the indexed parts if a file is in an object store, bytes.
_OBJECT_SAMPLE = 16 << 20
#: Maximum number of bytes, and maximum time (s), for measuring the speed of an object store.
_STORE_BYTES = 48 << 20
_STORE_SECONDS = 1.0


class RunsTasks(Protocol):
    """Interface of a backend for a `SampleRun`; classes of `paceline.backends` implement it."""

    name: str
    n_workers: int

    def run(
        self, jobs: Sequence[AnyJob], tasks: Iterable[AnyTask]
    ) -> Generator[BlockResult | CollectedResult | DuplicateAttempt, None, None]:
        """Run every task; yield results in order of completion."""


class SampledFile(IndexedFile):
    """File of which only frames in the middle are indexed, if it is long and has no index."""

    @property
    def is_sample(self) -> bool:
        """True if some frames are not indexed."""
        return self.index_origin == "sampled"

    @property
    def bytes_per_frame(self) -> float:
        """Mean size of the indexed frames, bytes."""
        if not self.is_sample:
            return super().bytes_per_frame
        _, sizes = self.extents(np.arange(self.n_frames, dtype=np.uint64))
        return float(sizes.mean())


def open_samples(paths: Sequence[str | os.PathLike], **options: Any) -> list[TrajectoryFile]:
    """Open files, as the `opener` of a `Chain`; index only the middle of long, unindexed files."""
    sample = _OBJECT_SAMPLE if any(map(is_address, paths)) else SAMPLE
    open_indexed = partial(SampledFile, sample=sample // len(paths))
    return open_files(paths, open_indexed=open_indexed, **options)


def _is_sampled(chain: Chain) -> bool:
    """True if only some frames of a chain are indexed."""
    return any(isinstance(file, SampledFile) and file.is_sample for file in chain.files)


class Outline:
    """Number and times of all frames, estimated if only frames in the middle are indexed."""

    def __init__(self, chain: Chain):
        self._chain = chain
        self.n_frames = round(sum(file.size / file.bytes_per_frame for file in chain.files))

    @classmethod
    def of(cls, trajectory: object) -> Any:
        """Make the outline of a trajectory; return the trajectory itself if it is fully indexed."""
        chain = attribute_of(trajectory, "chain")
        return trajectory if chain is None or not _is_sampled(chain) else cls(chain)

    def times(self) -> np.ndarray:
        """Times of all frames, ps, extrapolated from the indexed frames with a constant step."""
        known, _ = self._chain.times_and_steps()
        numbers = np.arange(len(known)) + (self.n_frames - len(known)) // 2
        # The median is robust: a file may contain the times of several runs.
        dt = np.nanmedian(np.diff(known)) if len(known) > 1 else 0.0
        return np.nanmedian(known - dt * numbers) + dt * np.arange(self.n_frames)


class SampleRun:
    """Run of which short parts can be executed and timed; the analyses stay unchanged.

    `is_sample` is true if only some frames of the trajectory are indexed.
    """

    def __init__(
        self,
        analyses: Sequence[Analysis],
        transforms: Sequence[Transform],
        frames: np.ndarray,
        opener: Callable[[], Trajectory],
        *,
        skip_damaged: bool,
    ):
        for analysis in analyses:
            if analysis.stages > 1:
                raise UnsupportedError(
                    f"{analysis.name} reads the frames {analysis.stages} times, but advice covers "
                    "one pass: ask for advice without this analysis"
                )
        if find_scan(transforms) is not None:
            raise UnsupportedError(
                "nojump needs all frames, but advice reads only some: ask for advice without nojump"
            )

        begun = time.perf_counter()
        self._run = TrajectoryRun(analyses, transforms, opener())
        self._t_open = time.perf_counter() - begun
        self._skip_damaged = skip_damaged
        self._run_frames = self._frames = frames
        #: Chain of files; None for a trajectory in memory.
        self.chain = None if self.trajectory.in_memory else self.trajectory.chain
        self.is_sample = self.chain is not None and _is_sampled(self.chain)
        objects = [file for file in self.chain.files if is_address(file.path)] if self.chain else []
        #: Bytes of files in an object store; they stay in memory as long as this list exists.
        self._objects = [_core.ObjectBytes(one.path, one.samples) for one in objects]
        self.of_store = bool(objects)
        if self.of_store and self.is_sample:
            self._t_open = 0.0  # most of the time was spent on finding frames in the middle
        if self.is_sample:
            self._frames = _readable(frames, self.trajectory.n_frames)
        self._prepare(frames, 1, None)
        for analysis, part in zip(analyses, self._run.job.analyses, strict=True):
            if part.kind is Kind.BLOCKS:
                raise UnsupportedError(
                    f"{analysis.name} would write a file; ask for advice about another analysis"
                )

    @property
    def trajectory(self) -> Trajectory:
        """Opened trajectory."""
        return self._run.trajectory

    @property
    def source(self) -> FrameSource:
        """Description of the trajectory, from which workers open it."""
        return self._run.job.source

    def middle(self, n: int, *, part: int = 0, parts: int = 1) -> np.ndarray:
        """Return at most `n` frames near the middle of the analysed frames.

        With several `parts`, return part number `part`. Parts are adjacent; each begins at a chunk.
        """
        n = min(n, max(1, len(self._frames) // parts))
        first = (len(self._frames) - n * parts) // 2 + n * part
        first = max(0, min(first, len(self._frames) - n))
        first -= (first - self._borders.head) % self.frames_per_chunk
        return self._frames[max(0, first) :][:n]

    def throughout(self, n: int, block_frames: int, number: int) -> np.ndarray:
        """Return `n` frames of the run, as equally spaced blocks of `block_frames` frames.

        Another `number` selects other blocks. If the run is short, frames are repeated.
        """
        n_there = max(1, len(self._frames) // block_frames)
        n_blocks = min(n_there, -(-n // block_frames))
        shift = number * _SHIFT % 1
        firsts = ((np.arange(n_blocks) + shift) * n_there / n_blocks).astype(int) * block_frames
        firsts -= (firsts - self._borders.head) % self.frames_per_chunk
        blocks = [self._frames[max(0, first) :][:block_frames] for first in firsts]
        return np.resize(np.concatenate(blocks), n)

    @property
    def frames_per_chunk(self) -> int:
        """Number of frames in one stored chunk: reading one of these frames decodes all of them."""
        return self._borders.rows

    @property
    def _borders(self) -> Borders:
        return Borders.of(self._run_frames, self.trajectory.chunk_frames)

    def run(
        self, backend: RunsTasks, frames: np.ndarray, block_frames: int | None = None
    ) -> SampleTimes:
        """Analyse some frames, which may be repeated, in blocks of any size; return the times."""
        begun = time.monotonic_ns()
        self._prepare(frames, backend.n_workers, block_frames)
        timings = Timings(backend.name, begun, time.monotonic_ns())
        one = first_pass(self._run)
        with ExitStack() as receivers:
            one.start_collecting(0, timings, receivers)
            tasks = one.tasks(0, backend.n_workers)
            # Close the backend at once even after an error here: otherwise its workers would
            # continue.
            with closing(backend.run([one.job], tasks)) as outcomes:
                for outcome in outcomes:
                    # Ignore abandoned attempts, and results stored by ranks, which only MPI yields.
                    if isinstance(outcome, BlockResult):
                        one.collected.add(outcome)
        timings.end = time.monotonic_ns()
        times = SampleTimes.of(timings, self._t_open)
        if self.of_store and any(block.cached for block in timings.blocks):
            # Count all bytes of a frame: a run of another process must also request those that are
            # in memory here.
            wanted = float(min(self._wanted_bytes, self.frame_bytes))
            times = replace(times, cost=replace(times.cost, bytes=wanted))
        if self.of_store and backend.name == "processes":
            # Other processes request the bytes again. The time for this is calculated from the
            # store's speed, so it is omitted here.
            times = replace(times, cost=replace(times.cost, read=0.0))
        return times

    def speed_of_store(self, backend: RunsTasks, frames: np.ndarray) -> StoreSpeed | None:
        """Measure the object store of the largest file, and read frames into memory.

        Returns None for local files.
        """
        if self.chain is None or not self.of_store:
            return None
        file = max(self.chain.files, key=lambda file: file.size * is_address(file.path))
        opened = _core.requests_sent()
        # Measure before the run, because the run also requests bytes beyond its frames.
        one = _core.ObjectBytes(file.path, file.samples)
        latency, rate_of_one, rate_of_all = one.measure(_STORE_BYTES, _STORE_SECONDS)
        before = _core.requests_sent()
        n_measured, n_repeated, _, total, _ = np.subtract(before, opened).tolist()
        # Assume that all times between the fastest and the slowest are equally probable: then their
        # mean is in the middle.
        mean = total / 1e9 / max(1, n_measured - n_repeated)
        slowest = max(latency, 2 * mean - latency)
        self.run(backend, frames, self.block_frames(2))
        n_sent, _, received, *_ = np.subtract(_core.requests_sent(), before).tolist()
        sent, _, n_bytes, *_ = np.subtract(_core.requests_sent(), opened).tolist()
        request_bytes = received / n_sent if received else REQUEST_BYTES
        speeds = latency, slowest, rate_of_one, rate_of_all
        return StoreSpeed(*speeds, request_bytes, sent, n_bytes)

    def _prepare(self, frames: np.ndarray, n_workers: int, block_frames: int | None) -> None:
        with _restoring_attributes(self._run.analyses):
            self._run.prepare(
                frames,
                Facilities(n_workers),
                skip_damaged=self._skip_damaged,
                block_frames=block_frames,
            )
        leaf = self._run.plan.leaf_frames
        if block_frames is not None and block_frames < leaf:
            # Make the leaves smaller, because a whole leaf of a slow analysis would take too long.
            # Results are not needed here, so they need not be those of a usual run.
            leaves = LeafBoundaries(block_frames)
            self._run.plan = Plan(frames, leaves, block_frames)
            self._run.job = replace(self._run.job, leaves=leaves)

    @property
    def _wanted_bytes(self) -> float:
        """Approximate number of bytes to be read per frame."""
        atoms = self.source.atoms
        every = np.arange(self.trajectory.n_atoms)
        return self.trajectory.frame_bytes(every if atoms is None else atoms)

    def block_frames(self, n_workers: int) -> int:
        """Number of frames that the whole run would assign to a worker at a time."""
        return make_plan(
            self._run_frames,
            n_atoms=self.trajectory.n_atoms,
            n_wanted=self.source.n_wanted,
            frame_bytes=self._wanted_bytes,
            n_workers=n_workers,
            chunk_frames=self.trajectory.chunk_frames,
        ).block_frames

    def block_of(self, n_frames: int) -> int:
        """Choose the number of frames of a block such that each worker gets several blocks.

        The number of frames in the whole run's blocks is used if it is small enough.
        """
        size = self.block_frames(2)
        while size > max(self.frames_per_chunk, n_frames // _BLOCKS):
            size //= 2
        return size

    @property
    def chunk_bytes(self) -> float:
        """Mean size of a chunk of the first HDF5 file, bytes; infinite without chunks."""
        file = self.chain.files[0] if self.chain else None
        if not isinstance(file, Hdf5File):
            return math.inf
        datasets = [one.dataset for one in file.chunk_index.elements.values()]
        rows = [(one.shape, one.chunk) for one in datasets if one.chunk is not None]
        n_chunks = sum(
            math.prod(-(-n // length) for n, length in zip(shape, chunk, strict=True))
            for shape, chunk in rows
        )
        return file.size / n_chunks if n_chunks else math.inf

    @property
    def frame_bytes(self) -> float:
        """Mean size of a frame in the file, bytes; 0 if unknown."""
        return 0.0 if self.chain is None else self.chain.bytes_per_frame

    def _ranges(self, frames: np.ndarray) -> dict[str, list[tuple[int, int]]]:
        """Byte ranges of some frames in each file."""
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
        """Fraction of the bytes of some frames that is in memory; None if unknown."""
        if self.chain is None:
            return None
        if self.of_store:
            return 0.0
        looked_at = frames[np.unique(np.linspace(0, len(frames) - 1, _LOOKS).astype(int))]
        # If only a part of each frame is read, only this part may be in memory.
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
        """Fraction of the bytes of the whole run that is in memory; None if unknown."""
        if self.of_store or self.chain is None or not self.is_sample:
            return self.in_memory(self._run_frames)
        return cached_share_of_all({file.path for file in self.chain.files})

    @contextmanager
    def from_disk(self, frames: np.ndarray) -> Iterator[bool]:
        """Drop frames from the page cache; yield True if they will be read from the disk."""
        with ExitStack() as stack:
            ranges = self._ranges(frames).items()
            gone = [stack.enter_context(_dropped_from_cache(path, some)) for path, some in ranges]
            yield all(gone)


@contextmanager
def _restoring_attributes(analyses: Sequence[Analysis]) -> Iterator[None]:
    """Context manager that restores the attributes of analyses at its end."""
    before = [(vars(one), dict(vars(one))) for one in analyses]
    try:
        yield
    finally:
        for present, earlier in before:
            present.clear()
            present.update(earlier)


def _readable(frames: np.ndarray, n_known: int) -> np.ndarray:
    """Choose indexed frames with the same spacing as the frames of the run."""
    stride = max(1, round((frames[-1] - frames[0]) / max(len(frames) - 1, 1)))
    return np.arange(0, n_known, stride, dtype=np.int64)


def disk_rates(path: str) -> tuple[float, float] | None:
    """Measure the read rate of the disk, bytes per second: of one reader, and of two together.

    Returns None if the file is small, if the bytes stay in memory, or if the system does not report
    whether they do.
    """
    size = os.path.getsize(path)
    n_bytes = min(_BYTES, size // 8)
    if n_bytes < _LEAST:
        return None
    # These offsets are outside the middle of the file, where other measurements read frames.
    starts = [size // 8, size // 4, 5 * size // 8]
    with _dropped_from_cache(path, [(start, n_bytes) for start in starts]) as from_disk:
        if not from_disk:
            return None
        one = _rate(path, starts[:1], n_bytes)
        return one, _rate(path, starts[1:], n_bytes)


def _rate(path: str, starts: list[int], n_bytes: int) -> float:
    """Measure the total read rate of several readers, bytes per second."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(len(starts)) as readers:
        read = readers.map(lambda start: _read(path, start, n_bytes), starts)
        return sum(read) / (time.perf_counter() - begun)


def _read(path: str, start: int, n_bytes: int) -> int:
    """Read for a limited time, at least one call; return the number of bytes read."""
    buffer, done = bytearray(_CALL), 0
    end = time.perf_counter() + _SECONDS
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        while True:
            done += file.readinto(buffer)
            if done >= n_bytes or time.perf_counter() >= end:
                return done


@contextmanager
def _dropped_from_cache(path: str, ranges: Sequence[tuple[int, int]]) -> Iterator[bool]:
    """Drop byte ranges of a file from the page cache; yield True if they are certainly dropped.

    At the end, bytes that were cached are read again sequentially. Blocks read pages in random
    order, and Linux then caches them in small folios. Reading from small folios takes up to three
    times as long, so a later run or forecast would find the file slower than before.
    """
    ranges = [_extend_to_folios(*one) for one in ranges]
    before = cached_share(path, ranges) or 0.0
    try:
        drop_from_cache(path, ranges)
    except UnsupportedError:
        yield False
        return
    left = cached_share(path, ranges)
    try:
        yield left is not None and left < _DROPPED
    finally:
        if before > _MOST:
            drop_from_cache(path, ranges)
            _read_again(path, ranges)


def _extend_to_folios(start: int, size: int) -> tuple[int, int]:
    """Extend a byte range to whole folios of the page cache, by at most half its length."""
    if size < 4 * _PIECE:
        return start, size
    begin = start // _PIECE * _PIECE
    return begin, -(-(start + size) // _PIECE) * _PIECE - begin


def _read_again(path: str, ranges: Sequence[tuple[int, int]]) -> None:
    buffer = memoryview(bytearray(_CALL))
    with open(path, "rb", buffering=0) as file:
        for start, size in ranges:
            file.seek(start)
            while size > 0 and (n_read := file.readinto(buffer[: min(size, _CALL)])):
                size -= n_read
