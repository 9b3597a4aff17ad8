"""Random frames, and windows of frames, of many trajectories in an order that a seed determines.

A *sample* is one frame, or one window of frames, of a trajectory. Samples are numbered through all
trajectories. `SampleOrder` puts their numbers in order, and `SampleReader` decodes any of them. If
reading adjacent frames together is faster (frames in chunks, or in object stores), these frames are
a block. A decoded block is kept in memory, and the order takes samples from few blocks at a time.
"""

import os
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar, cast

import numpy as np

from paceline._util.files import is_address
from paceline.block import DAMAGED_STEP, FrameBuffer, vectors_of, without_placeholders
from paceline.contract.source import Extents, FrameReader, FrameSource, runs_by_file
from paceline.contract.transform_interface import WorkerTransform, advice_without_cell
from paceline.errors import DamagedFileError, MissingDataError, TransformError
from paceline.trajectory.chain import Chain
from paceline.trajectory.read_ahead import BLOCK_BYTES, BLOCK_FRAMES, CallsAhead

#: Possible numbers of lanes: groups of blocks, from which batches are taken in turn. If the number
#: of workers divides the number of lanes, no two workers read the same block.
LANES = (16, 8, 4, 2, 1)
#: Maximum number of readers that keep files open; each reader has at most two open files.
OPEN_READERS = 64
#: Remedy for a sample that cannot be read.
REMEDY = 'on_error="skip" leaves such frames out'


@dataclass(frozen=True, eq=False)
class FrameBatch:
    """Samples as arrays; the first axis is that of samples, the second that of a window's frames.

    Attributes
    ----------
    positions : numpy.ndarray of float32, shape (n_samples, n_window, n_atoms, 3), or None
        Positions, Å; None if they were not requested.
    velocities, forces : the same
        Velocities (Å/ps) and forces (kJ/(mol·Å)); None if they were not requested.
    dimensions : numpy.ndarray of float32, shape (n_samples, n_window, 6)
        Lengths of the cell (Å) and its angles (degrees); zeros for frames without a cell.
    cell_vectors : numpy.ndarray of float32, shape (n_samples, n_window, 3, 3)
        Cell vectors as rows, Å, in the orientation of the positions; zeros without a cell.
    times : numpy.ndarray of float64, shape (n_samples, n_window)
        Times of the frames, ps; NaN if a time is not known.
    frames : numpy.ndarray of int64, shape (n_samples, n_window)
        Frame numbers in their trajectories.
    trajectories : numpy.ndarray of int64, shape (n_samples,)
        Numbers of the trajectories, in the order in which they were given.
    samples : numpy.ndarray of int64, shape (n_samples,)
        Numbers of the samples.
    features : mapping of str to numpy.ndarray, shape (n_samples, n_window, …)
        Features of the frames by name.
    damaged : sequence of str
        Reasons why samples were left out, one for each.
    """

    positions: np.ndarray | None
    velocities: np.ndarray | None
    forces: np.ndarray | None
    dimensions: np.ndarray
    cell_vectors: np.ndarray
    times: np.ndarray
    frames: np.ndarray
    trajectories: np.ndarray
    samples: np.ndarray
    features: Mapping[str, np.ndarray] = field(default_factory=dict)
    damaged: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.samples)

    def without(self, lost: Mapping[int, str]) -> "FrameBatch":
        """Leave out some samples.

        Parameters
        ----------
        lost : mapping of int to str
            Rows to leave out, with the reasons.

        Returns
        -------
        FrameBatch
            The other samples, and the reasons as `damaged`.
        """
        keep = np.ones(len(self), dtype=bool)
        keep[list(lost)] = False
        kept = {name: values[keep] for name, values in self.arrays().items()}
        arrays = {name: kept.get(name) for name in ARRAYS}
        features = {name: kept[name] for name in self.features}
        damaged = list(lost.values())
        return FrameBatch(**arrays, features=features, damaged=damaged)  # type: ignore[arg-type]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays by name, without fields that were not requested.

        Returns
        -------
        dict of str to numpy.ndarray
            Arrays of the attributes, and the features.
        """
        given = {name: vars(self)[name] for name in ARRAYS}
        return {**{name: one for name, one in given.items() if one is not None}, **self.features}


#: Type of a batch of samples, as arrays or as tensors.
Batch = TypeVar("Batch")
#: Names of the arrays of a batch, which features cannot have.
ARRAYS = (
    *("positions", "velocities", "forces", "dimensions", "cell_vectors"),
    *("times", "frames", "trajectories", "samples"),
)


class SampledTrajectory:
    """Trajectory from which samples are taken. Its pickle contains file names, and no open file.

    `frames` are the chosen frames. The trajectory is divided into blocks of `block_frames` adjacent
    frames; the chosen frames in a block are read together. `columns` are the indices of the wanted
    atoms among the decoded atoms; None if both are the same. Features have a row for each frame of
    the trajectory.
    """

    def __init__(
        self,
        name: str,
        chain: Chain,
        source: FrameSource,
        frames: range,
        *,
        block_frames: int = 1,
        transforms: Sequence[WorkerTransform] = (),
        columns: np.ndarray | None = None,
    ):
        self.name, self.source, self.frames = name, source, frames
        self.block_frames, self.transforms, self.columns = block_frames, transforms, columns
        self.features: dict[str, np.ndarray] = {}
        self.n_atoms = source.n_wanted if columns is None else len(columns)
        self._chain: Chain | bytes = chain

    def __getstate__(self) -> dict[str, object]:
        chain = self._chain
        return {**vars(self), "_chain": chain if isinstance(chain, bytes) else pickle.dumps(chain)}

    @property
    def chain(self) -> Chain:
        """Files with their frame indexes; another process opens them when it first needs them."""
        chain = self._chain
        if isinstance(chain, bytes):
            self._chain = chain = cast(Chain, pickle.loads(chain))
        return chain

    def in_block(self, block: int) -> np.ndarray:
        """Return the chosen frames in a block of `block_frames` adjacent frames.

        >>> one = SampledTrajectory.__new__(SampledTrajectory)
        >>> one.frames, one.block_frames = range(3, 40, 4), 10
        >>> one.in_block(1)
        array([11, 15, 19])
        """
        return np.asarray(
            self.frames[self._row_of(block) : self._row_of(block + 1)], dtype=np.int64
        )

    def _row_of(self, block: int) -> int:
        """Return the row of the first chosen frame in a block or after it."""
        row = -(-(block * self.block_frames - self.frames.start) // self.frames.step)
        return min(max(row, 0), len(self.frames))

    def borders(self, n_samples: int) -> np.ndarray:
        """Return the number of the first sample of each block; sample k begins at chosen frame k.

        >>> one = SampledTrajectory.__new__(SampledTrajectory)
        >>> one.frames, one.block_frames = range(3, 40, 4), 10
        >>> one.borders(10)
        array([0, 2, 5, 7])
        """
        if n_samples == 0 or self.block_frames == 1:
            return np.arange(n_samples)
        blocks = np.arange(
            self.frames.start // self.block_frames,
            self.frames[n_samples - 1] // self.block_frames + 1,
        )
        rows = -(-(blocks * self.block_frames - self.frames.start) // self.frames.step)
        return np.unique(np.maximum(rows, 0))


def frames_together(chain: Chain, n_chosen: int) -> int:
    """Choose the number of adjacent frames to read together if `n_chosen` frames may be used.

    The number is 1 if a random frame is read as fast as the next frame. Otherwise it is the number
    of frames in a chunk or, for an object store, the number of frames in a request of some MiB.
    """
    if any(is_address(file.path) for file in chain.files):
        wanted = max(1, min(BLOCK_FRAMES, int(BLOCK_BYTES / chain.bytes_per_frame)))
    else:
        wanted = 1
    chunk = chain.chunk_frames
    return min(max(1, n_chosen), chunk * max(1, wanted // chunk))


@dataclass(frozen=True, eq=False)
class SampleOrder:
    """Order of samples: shuffled anew in each epoch, and equal for any number of workers.

    If frames are read one by one, all samples are shuffled together. If frames are read together in
    blocks, blocks are shuffled and dealt to `n_lanes` lanes. A lane shuffles the samples of some
    blocks at a time, at least `pool` samples, and batches come from the lanes in turn. So only few
    blocks are in use at any time.
    """

    #: First sample and number of samples of each block, int64; None if blocks are single samples.
    blocks: tuple[np.ndarray, np.ndarray] | None
    n_samples: int
    #: Number of samples in a batch.
    size: int
    seed: int
    shuffle: bool = True
    #: True to leave out the last batch if it is shorter, and the last batches if their number does
    #: not suffice for all shares.
    drop_last: bool = False
    pool: int = 0
    n_lanes: int = 1

    @property
    def n_batches(self) -> int:
        """Number of batches in an epoch."""
        whole, rest = divmod(self.n_samples, self.size)
        return whole + (rest > 0 and not self.drop_last)

    def of_epoch(self, epoch: int, share: tuple[int, int] = (0, 1)) -> Iterator[np.ndarray]:
        """Yield the samples of each batch, or of the batches of one share.

        The share (rank, n) gets every n-th batch, from batch number `rank` on, counted from 0.
        """
        rank, n_shares = share
        batches = self._by_lanes(epoch) if self.blocks and self.shuffle else self._all(epoch)
        rest = self.n_batches % n_shares if self.drop_last else 0
        for number, batch in zip(range(self.n_batches - rest), batches, strict=False):
            if number % n_shares == rank:
                yield batch.astype(np.int64)

    def _all(self, epoch: int) -> Iterator[np.ndarray]:
        """Yield batches of all samples, which are shuffled together, or in order."""
        small = self.n_samples < 2**32
        numbers = np.arange(self.n_samples, dtype=np.uint32 if small else np.int64)
        if self.shuffle:
            np.random.default_rng([self.seed, epoch]).shuffle(numbers)
        return _cut(numbers, self.size)

    def _by_lanes(self, epoch: int) -> Iterator[np.ndarray]:
        """Yield batches from the lanes in turn, and finally batches of their remaining samples."""
        assert self.blocks is not None
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.blocks[0]))
        lanes = [
            self._lane(order[k :: self.n_lanes], np.random.default_rng([self.seed, epoch, k]))
            for k in range(self.n_lanes)
        ]
        rest = []
        while lanes:
            for lane in list(lanes):
                batch = next(lane)
                if len(batch) == self.size:
                    yield batch
                else:
                    rest.append(batch)
                    lanes.remove(lane)
        yield from _cut(np.concatenate(rest), self.size)

    def _lane(self, blocks: np.ndarray, random: np.random.Generator) -> Iterator[np.ndarray]:
        """Yield batches of samples from the blocks of a lane; the last one is shorter, or empty."""
        assert self.blocks is not None
        begins, sizes = (one[blocks] for one in self.blocks)
        left, pool, n_pool = np.empty(0, dtype=np.int64), list[np.ndarray](), 0
        for number, (begin, size) in enumerate(zip(begins.tolist(), sizes.tolist(), strict=True)):
            pool.append(np.arange(begin, begin + size))
            n_pool += size
            if n_pool < self.pool and number + 1 < len(blocks):
                continue
            numbers = np.concatenate(pool)
            random.shuffle(numbers)
            numbers = np.concatenate([left, numbers])
            n_whole = len(numbers) // self.size * self.size
            yield from _cut(numbers[:n_whole], self.size)
            left, pool, n_pool = numbers[n_whole:], [], 0
        yield left


def replace_empty(
    batches: Iterable[Batch],
    samples_of: Callable[[Batch], np.ndarray],
    read: Callable[[np.ndarray], Batch],
) -> Iterator[Batch]:
    """Replace each batch without samples by the last batch before it that has samples.

    If there is none before it, the first batch with samples is used. So all processes that share an
    epoch get equally many batches. Raises `DamagedFileError` if no batch has a sample.
    """
    last, n_lost = None, 0
    for batch in batches:
        samples = samples_of(batch)
        if len(samples):
            last = samples
            yield batch
        n_lost += not len(samples)
        if last is not None:
            for _ in range(n_lost):
                yield read(last)
            n_lost = 0
    if n_lost:
        raise DamagedFileError(f"none of {n_lost} batches of this process has a readable sample")


def _cut(numbers: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Cut numbers of samples into batches of `size`."""
    for first in range(0, len(numbers), size):
        yield numbers[first : first + size]


class SampleReader:
    """Decodes samples on any thread; stores decoded blocks of up to `max_memory` bytes in total.

    A window has `window` frames that are `lag` chosen frames apart. With `skip`, samples that
    cannot be read are left out. Few files are open at a time. A pickle contains neither open files
    nor blocks.
    """

    def __init__(
        self,
        trajectories: Sequence[SampledTrajectory],
        *,
        window: int = 1,
        lag: int = 1,
        skip: bool = False,
        max_memory: int = 2**28,
    ):
        self.trajectories = trajectories
        self.window, self.lag = window, lag
        self._skip, self._max_memory = skip, max_memory
        n_frames = np.array([len(one.frames) for one in trajectories], dtype=np.int64)
        #: Number of samples of each trajectory.
        self.counts = np.maximum(0, n_frames - (window - 1) * lag)
        self._stops = np.cumsum(self.counts)
        self._begins = self._stops - self.counts
        self._first = np.array([one.frames.start for one in trajectories], dtype=np.int64)
        self._step = np.array([one.frames.step for one in trajectories], dtype=np.int64)
        self._open_nothing()

    def _open_nothing(self) -> None:
        """Set the state of this process: no open files and no decoded blocks."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._readers: OrderedDict[int, list[FrameReader]] = OrderedDict()
        self._n_readers = 0
        self._blocks: OrderedDict[tuple[int, int], _Decoded] = OrderedDict()
        self._bytes_kept = 0
        #: Inode, size and time of modification of the files that were read, by path.
        self._states: dict[str, tuple[int, int, int]] = {}

    def __getstate__(self) -> dict[str, object]:
        own = ("_lock", "_readers", "_n_readers", "_blocks", "_bytes_kept", "_states", "_process")
        return {name: value for name, value in vars(self).items() if name not in own}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._open_nothing()

    @property
    def n_samples(self) -> int:
        """Number of samples of all trajectories."""
        return int(self._stops[-1])

    @cached_property
    def sample_bytes(self) -> int:
        """Size of the decoded fields of one sample, bytes."""
        one = self.trajectories[0]
        return 12 * one.n_atoms * len(one.source.fields) * self.window

    def order(
        self, size: int, seed: int, *, shuffle: bool, drop_last: bool, mixed_blocks: int
    ) -> SampleOrder:
        """Choose the order of samples in batches of `size` samples.

        It depends neither on the number of atoms nor on memory. About `mixed_blocks` blocks are in
        use at any time.
        """
        order = SampleOrder(None, self.n_samples, size, seed, shuffle, drop_last)
        largest = self.largest_block
        if largest == 1:
            return order
        begins = [
            first + one.borders(count)
            for one, first, count in zip(
                self.trajectories, self._begins.tolist(), self.counts.tolist(), strict=True
            )
        ]
        begin = np.concatenate(begins)
        of_batch = -(-size // largest)
        n_lanes = next(n for n in LANES if n == 1 or n * of_batch <= min(mixed_blocks, len(begin)))
        pool = max(size, mixed_blocks // n_lanes * largest)
        blocks = begin, np.diff(begin, append=self.n_samples)
        return replace(order, blocks=blocks, pool=pool, n_lanes=n_lanes)

    @property
    def largest_block(self) -> int:
        """Largest number of frames that are read together."""
        return max(one.block_frames for one in self.trajectories)

    def memory_of(self, n_blocks: int) -> int:
        """Return the size of the decoded fields of `n_blocks` blocks, bytes."""
        return n_blocks * self.largest_block * self.sample_bytes // self.window

    def locate(self, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the index of each sample's trajectory, and the sample's frames.

        The frames have shape (n_samples, window).
        """
        if len(samples) and not 0 <= samples.min() <= samples.max() < self.n_samples:
            odd = samples[(samples < 0) | (samples >= self.n_samples)][0]
            raise IndexError(f"sample {odd} is out of range for {self.n_samples} samples")
        owners = np.searchsorted(self._stops, samples, side="right")
        rows = (samples - self._begins[owners])[:, None] + self.lag * np.arange(self.window)
        return owners, self._first[owners, None] + self._step[owners, None] * rows

    def read_ahead(
        self, batches: Iterable[np.ndarray], size: int, *, keep_number: bool = False
    ) -> Iterator[FrameBatch]:
        """Decode batches of at most `size` samples on the threads of this process, in order.

        Batches without a readable sample are left out; with `keep_number`, they are replaced.
        """
        found = (batch for _, batch in CallsAhead(self.read, batches, size * self.sample_bytes))
        if keep_number:
            yield from replace_empty(found, lambda one: one.samples, self.read)
        else:
            yield from (batch for batch in found if len(batch))

    def read(
        self,
        samples: np.ndarray,
        allocate: Callable[[str, tuple[int, ...]], np.ndarray] | None = None,
    ) -> FrameBatch:
        """Decode samples; `allocate` returns an array of float32 for a field and a shape."""
        if self._process != os.getpid():  # the open files belong to the parent process
            self._open_nothing()
        owners, frames = self.locate(samples)
        values, cells, times, lost = self._decode_all(owners, frames, allocate or _empty)
        vectors = vectors_of(cells.reshape(-1, cells.shape[-1])).astype(np.float32)
        batch = FrameBatch(
            positions=values.get("positions"),
            velocities=values.get("velocities"),
            forces=values.get("forces"),
            dimensions=cells[..., :6].astype(np.float32),
            cell_vectors=vectors.reshape(*frames.shape, 3, 3),
            times=times,
            frames=frames,
            trajectories=owners,
            samples=samples,
            features=self._features_of(owners, frames),
        )
        return batch.without(lost) if lost else batch

    def _decode_all(
        self,
        owners: np.ndarray,
        frames: np.ndarray,
        allocate: Callable[[str, tuple[int, ...]], np.ndarray],
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, dict[int, str]]:
        """Decode frames of samples; return fields, cells, times, and unreadable samples.

        The latter are the rows of samples that cannot be read, with reasons.
        """
        first = self.trajectories[0]
        shape = (*frames.shape, first.n_atoms, 3)
        values = {name: allocate(name, shape) for name in first.source.fields}
        # The frames of each trajectory are decoded together.
        order = np.argsort(owners, kind="stable")
        in_place = bool((order[1:] > order[:-1]).all())
        into = {name: one if in_place else _empty(name, shape) for name, one in values.items()}
        rows_of = {name: one.reshape(-1, *shape[2:]) for name, one in into.items()}
        buffer = replace(FrameBuffer.allocate(frames[order].ravel(), 0, ()), **rows_of)
        lost: dict[int, str] = {}
        for number, rows in runs_by_file(np.repeat(owners[order], self.window)):
            for row, reason in self._fill(number, buffer[rows]).items():
                lost.setdefault(int(order[(rows.start + row) // self.window]), reason)
        cells = np.empty((*frames.shape, buffer.cells.shape[-1]))
        times = np.empty(frames.shape)
        cells[order], times[order] = (
            buffer.cells.reshape(cells.shape),
            buffer.times.reshape(times.shape),
        )
        if not in_place:
            for name, one in into.items():
                # Other modes of `np.take` would make an additional copy.
                np.take(one, np.argsort(order), axis=0, out=values[name], mode="clip")
        return values, cells, times, lost

    def _features_of(self, owners: np.ndarray, frames: np.ndarray) -> dict[str, np.ndarray]:
        """Return the features of the frames of samples by name, shape (n_samples, window, …)."""
        found: dict[str, np.ndarray] = {}
        for name, one in self.trajectories[0].features.items():
            values = np.empty((*frames.shape, *one.shape[1:]), dtype=one.dtype)
            for number in np.unique(owners):
                rows = owners == number
                values[rows] = self.trajectories[number].features[name][frames[rows]]
            found[name] = values
        return found

    def _fill(self, number: int, part: FrameBuffer) -> dict[int, str]:
        """Read frames of one trajectory; return the rows that could not be read, with reasons."""
        one = self.trajectories[number]
        if one.block_frames == 1:
            return self._decode(number, part, skip=self._skip)
        lost: dict[int, str] = {}
        blocks = part.frames // one.block_frames
        for block in np.unique(blocks).tolist():
            held = self._block(number, block)
            for row in np.flatnonzero(blocks == block).tolist():
                of_block = int(part.frames[row] - held.buffer.frames[0]) // one.frames.step
                if of_block in held.lost:
                    lost[row] = held.lost[of_block]
                    if not self._skip:
                        self._raise(number, part[row : row + 1], lost[row])
                for mine, theirs in zip(part.arrays(), held.buffer.arrays(), strict=True):
                    if mine is not None and theirs is not None:
                        mine[row] = theirs[of_block]
        return lost

    def _raise(self, number: int, frame: FrameBuffer, reason: str) -> None:
        """Raise the error of one frame that could not be read."""
        self._decode(number, frame, skip=False)
        # The frame was read now, so the file has changed since.
        raise DamagedFileError(f"{reason}; {REMEDY}")

    def _block(self, number: int, block: int) -> "_Decoded":
        """Return a decoded block, and keep it in memory for later samples."""
        key = number, block
        with self._lock:
            if (found := self._blocks.get(key)) is not None:
                self._blocks.move_to_end(key)
                return found
        one = self.trajectories[number]
        buffer = FrameBuffer.allocate(one.in_block(block), one.n_atoms, one.source.fields)
        found = _Decoded(buffer, self._decode(number, buffer, skip=True))
        with self._lock:
            if key not in self._blocks:
                self._bytes_kept += buffer.nbytes
            self._blocks[key] = found
            while self._bytes_kept > self._max_memory and len(self._blocks) > 1:
                _, oldest = self._blocks.popitem(last=False)
                self._bytes_kept -= oldest.buffer.nbytes
        return found

    def _decode(self, number: int, buffer: FrameBuffer, *, skip: bool) -> dict[int, str]:
        """Decode and transform frames of one trajectory; with `skip`, return unreadable rows."""
        one = self.trajectories[number]
        source, columns, into = one.source, one.columns, buffer
        if columns is not None:
            shape = len(buffer.frames), source.n_wanted, 3
            decoded = {name: np.empty(shape, dtype=np.float32) for name in source.fields}
            into = replace(buffer, **decoded)
        extents = one.chain.extents(into.frames)
        files = np.unique(extents.files).tolist()
        reader = self._take(number) or source.open()
        try:
            stats = reader.read(extents, into, skip=skip)
        except DamagedFileError:
            self._check_unchanged(one, files)
            raise
        except MissingDataError as error:
            raise MissingDataError(f"{error}; {REMEDY}") from None
        self._give_back(number, reader)
        self._check_unchanged(one, files)
        lost = dict(stats.damaged)
        for row in lost:
            into.blank(row)
        without_placeholders(into.cells, source.n_atoms)
        into.times[:] = source.time_axis(into.frames, into.times, into.steps)
        for row, problem in self._problems(one, extents, into):
            if not skip:
                raise problem
            lost.setdefault(row, str(problem))
            into.blank(row)
        if columns is not None:
            for name, values in decoded.items():
                # Other modes of `np.take` would make an additional copy.
                np.take(values, columns, axis=1, out=buffer.array_of(name), mode="clip")
        return lost

    def _problems(
        self, one: SampledTrajectory, extents: Extents, into: FrameBuffer
    ) -> Iterator[tuple[int, DamagedFileError | TransformError]]:
        """Transform decoded frames; yield errors of rows that fail, or have an impossible cell."""
        odd = ~np.isfinite(into.cells[:, :15]).all(axis=1) & (into.steps != DAMAGED_STEP)
        for row in np.flatnonzero(odd).tolist():
            path, frame = one.source.files[extents.files[row]].path, int(extents.frames[row])
            expected = "a cell of finite numbers (Å and degrees)"
            found = " ".join(f"{number:g}" for number in into.cells[row, :6])
            error = DamagedFileError.in_object(path, f"frame {frame}", expected, found)
            error.frame = frame
            yield row, error
        if not one.transforms or into.positions is None:
            return
        vectors = [given for given in (into.velocities, into.forces) if given is not None]
        for transform in one.transforms:
            for row, reason in transform.apply(into.positions, into.cells, vectors):
                where = one.source.name_of(extents, row)
                yield row, TransformError(f"{where}: {reason}{advice_without_cell(reason)}")

    def _take(self, number: int) -> FrameReader | None:
        """Take a reader of a trajectory that no other thread uses; None without one."""
        with self._lock:
            free = self._readers.get(number)
            if not free:
                return None
            self._n_readers -= 1
            self._readers.move_to_end(number)
            return free.pop()

    def _give_back(self, number: int, reader: FrameReader) -> None:
        """Keep a reader for later, and close those that were used least recently."""
        with self._lock:
            self._readers.setdefault(number, []).append(reader)
            self._readers.move_to_end(number)
            self._n_readers += 1
            while self._n_readers > OPEN_READERS:
                oldest, free = next(iter(self._readers.items()))
                if free:
                    free.pop()
                    self._n_readers -= 1
                if not free:
                    del self._readers[oldest]

    def _check_unchanged(self, one: SampledTrajectory, files: Sequence[int]) -> None:
        """Raise `FileChangedError` if a file has changed since this process first read it.

        Each reader itself compares the bytes around its first frames with those of the indexed
        file, and object stores compare versions. So this check is for later changes of local files.
        """
        for k in files:
            path = one.source.files[k].path
            if is_address(path) or one.chain.in_memory:
                continue
            status = os.stat(path)
            state = status.st_ino, status.st_size, status.st_mtime_ns
            if self._states.setdefault(path, state) != state:
                one.chain.files[k].verify()
                self._states[path] = state


@dataclass(frozen=True, eq=False)
class _Decoded:
    """Decoded block, and its rows that could not be read, with reasons."""

    buffer: FrameBuffer
    lost: Mapping[int, str]


def _empty(field: str, shape: tuple[int, ...]) -> np.ndarray:
    """Allocate an array of float32 for the values of a field."""
    return np.empty(shape, dtype=np.float32)
