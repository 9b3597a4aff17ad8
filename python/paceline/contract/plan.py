"""Split frames into fixed-size leaves for reproducible reduction, and leaves into blocks.

Each partial result is computed over a *leaf*. The size of leaves depends only on the system, on the
requested frames and on frames that must stay together. Partial results are merged along the binary
tree of leaf numbers. A *block* is a subtree of 2**k adjacent leaves. Therefore any number of
workers and any block size merge the same pairs in the same order, and results are bit-identical.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd, inf, lcm
from typing import Self

import numpy as np

from paceline._util.arguments import slice_of, whole_number

#: Number of frames in a leaf of a small system.
LEAF_FRAMES = 16
#: Size of the positions in a leaf, and approximate size of a block, bytes; both fit into the CPU
#: caches.
LEAF_BYTES = BLOCK_BYTES = 16 * 2**20
#: Maximum size of the positions in a leaf that consists of whole chunks, bytes.
LARGEST_LEAF_BYTES = 64 * 2**20
#: Maximum size of the positions in a block that consists of whole chunks, bytes.
LARGEST_BLOCK_BYTES = 256 * 2**20
#: Maximum total size of the initial states, or the state changes, of all blocks of a scan, bytes.
STATES_BYTES = 2**31
#: Minimum number of blocks per worker, if there are enough frames. With 16, waiting for the last
#: block delays the end by a few per cent.
BLOCKS_PER_WORKER = 16


@dataclass(frozen=True, slots=True)
class Borders:
    """Chunk boundaries among the frames of a run, for files that store several frames per chunk."""

    #: Maximum number of the run's frames (rows) in a chunk.
    rows: int = 1
    #: Number of rows after which the pattern of boundaries repeats. It exceeds `rows` if the step
    #: does not divide the chunk size, so that chunks contain different numbers of rows.
    period: int = 1
    #: Number of rows before the first boundary; 0 if the run starts at a boundary.
    head: int = 0

    @classmethod
    def of(cls, frames: np.ndarray, chunk_frames: int) -> Self:
        """Find the chunk boundaries among frames; if the step varies, every row is a boundary."""
        step = _step(frames)
        if not 0 < step < chunk_frames:
            return cls()
        before = int(frames[0]) % chunk_frames
        head = -(-(chunk_frames - before) // step) if before >= step else 0
        return cls(-(-chunk_frames // step), chunk_frames // gcd(chunk_frames, step), head)


def _step(frames: np.ndarray) -> int:
    """Return the step between all frames; 0 if it varies, or for fewer than two frames."""
    if len(frames) < 2:
        return 0
    step = int(frames[1] - frames[0])
    return step if (np.diff(frames) == step).all() else 0


def scanned_per_row(frames: np.ndarray, n_atoms: int) -> int | None:
    """Count the frames to read per analysed frame if a scan starts at the trajectory's first frame.

    Returns None if the number varies, or if a leaf cannot contain this number of frames of
    `n_atoms` atoms.

    Examples
    --------
    >>> scanned_per_row(np.array([4, 7, 10]), n_atoms=3341)
    3
    >>> scanned_per_row(np.array([0, 2, 3, 6]), n_atoms=3341) is None
    True
    """
    step = _step(frames) if len(frames) > 1 else 1
    most = max(step, int(frames[0]) + 1)
    fits = most == 1 or 12 * n_atoms * most <= LARGEST_LEAF_BYTES
    return step if step > 0 and fits else None


@dataclass(frozen=True, slots=True)
class LeafBoundaries:
    """Boundaries of the leaves of a run.

    Rows before the first chunk boundary form smaller leaves. There are as many smaller leaves as
    there are leaves between two chunk boundaries, so that subtrees of leaves end at chunk
    boundaries wherever a run starts.

    Examples
    --------
    >>> LeafBoundaries(16, head=10, n_head=2).cuts(0, 50)
    [0, 5, 10, 26, 42, 50]
    """

    #: Number of rows in a leaf.
    size: int
    #: Number of rows at the start of the run that are cut into smaller leaves.
    head: int = 0
    #: Number of these smaller leaves; 0 if the rows are few and belong to the first leaf.
    n_head: int = 0

    @classmethod
    def between(cls, borders: Borders, size: int) -> Self:
        """Create leaves; `size` times a power of two must be a multiple of the borders' period."""
        if not borders.head:
            return cls(size)
        wanted = max(1, borders.period // size)
        head = borders.head + max(0, size - borders.period)
        return cls(size, head, wanted if head >= wanted else 0)

    def begin(self, number: int) -> int:
        """Return the first row of a leaf."""
        if number < self.n_head:
            return number * self.head // self.n_head
        return self.head + (number - self.n_head) * self.size if number else 0

    def number(self, row: int) -> int:
        """Return the number of the leaf that contains a row."""
        if self.n_head and row < self.head:
            return ((row + 1) * self.n_head - 1) // self.head
        return max(0, (row - self.head) // self.size + self.n_head)

    def cuts(self, first: int, n_rows: int) -> list[int]:
        """Return the boundaries of the leaves in a block, relative to its first row."""
        numbers = range(self.number(first) + 1, self.number(first + n_rows - 1) + 1)
        return [0, *(self.begin(number) - first for number in numbers), n_rows]


def choose_frames(
    n_frames: int,
    start: int | None,
    stop: int | None,
    step: int | None,
    frames: Sequence[int] | np.ndarray | None,
) -> np.ndarray:
    """Convert a slice, integers or booleans to frame numbers, int64.

    Raises `TypeError` for a bound that is not an integer, and `IndexError` for a frame that does
    not exist. Raises `ValueError` if no frame is selected, the step is 0, or both `frames` and a
    slice are given.
    """
    if frames is None:
        numbers = np.arange(n_frames)[slice_of(start, stop, step)]
    else:
        if not (start is stop is step is None):
            raise ValueError("give either frames or start, stop and step, not both")
        numbers = numbers_of(frames, n_frames, "frame")
    if len(numbers) == 0:
        raise ValueError(f"no frames to analyse: the trajectory has {n_frames}, none was chosen")
    return numbers


def numbers_of(chosen: object, n: int, thing: str) -> np.ndarray:
    """Convert integers or booleans to indices of `n` frames or atoms, as NumPy does.

    Raises `IndexError` for an index that does not exist, and `ValueError` for another type or a
    wrong number of booleans.
    """
    numbers = np.asarray(chosen)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "biu"):
        raise ValueError(f"{thing}s must be a one-dimensional sequence of integers or booleans")
    if numbers.dtype == bool:
        if len(numbers) != n:
            raise ValueError(
                f"{thing}s has {len(numbers)} booleans, but the trajectory {n} {thing}s"
            )
        return np.flatnonzero(numbers)
    outside = (numbers < -n) | (numbers >= n)
    if outside.any():
        raise IndexError(f"{thing} {numbers[outside][0]} is out of range for {n} {thing}s")
    numbers = numbers.astype(np.int64)
    numbers[numbers < 0] += n
    return numbers


@dataclass(frozen=True)
class Plan:
    """Blocks and leaves of one run."""

    #: Frame numbers in the trajectory, in the order of the results, int64, shape (n_frames,).
    frames: np.ndarray
    #: Boundaries of leaves.
    leaves: LeafBoundaries
    #: Number of frames in a block: a leaf times a power of two. The first blocks of a run may be
    #: smaller.
    block_frames: int
    #: Maximum number of blocks that read the same chunk. It exceeds 1 if a leaf or a block of whole
    #: chunks would take too much memory.
    chunk_reads: int = 1

    @property
    def leaf_frames(self) -> int:
        """Number of frames in a leaf."""
        return self.leaves.size

    def __len__(self) -> int:
        return self.number(len(self.frames) - 1) + 1

    def number(self, row: int) -> int:
        """Return the number of the block that contains a row."""
        return self.leaves.number(row) * self.leaf_frames // self.block_frames

    def rows(self, number: int) -> slice:
        """Return the rows of a block in the run."""
        n_leaves = self.block_frames // self.leaf_frames
        first, stop = (self.leaves.begin(k * n_leaves) for k in (number, number + 1))
        return slice(first, min(stop, len(self.frames)))

    def blocks(self) -> Iterator[slice]:
        """Yield the rows of every block, in order."""
        return map(self.rows, range(len(self)))


def make_plan(
    frames: np.ndarray,
    *,
    n_atoms: int,
    n_wanted: int,
    frame_bytes: float,
    n_workers: float,
    block_frames: int | None = None,
    chunk_frames: int = 1,
    frames_together: int = 1,
    n_halo: int = 0,
) -> Plan:
    """Choose the size of leaves and blocks for a run.

    Leaves depend only on `n_atoms`, the first frame, the step, `chunk_frames` and
    `frames_together`.

    Parameters
    ----------
    frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers to analyse.
    n_atoms : int
        Number of atoms of the system.
    n_wanted : int
        Number of atoms to decode.
    frame_bytes : float
        Approximate number of bytes to read per frame.
    n_workers : float
        Number of workers that share the blocks. A fraction is allowed, since a worker may process
        several trajectories.
    block_frames : int, optional
        Number of frames in a block, rounded up to a leaf times a power of two. By default each
        worker gets at least 16 blocks if there are enough frames, and a block has at most 16 MiB,
        both in the file and decoded.
    chunk_frames : int
        Number of frames that the file stores as one chunk, counted from its first frame. Blocks end
        at chunk boundaries if the chosen frames and the memory allow it and each worker still gets
        a block.
    frames_together : int
        Number of consecutive frames of the run that one block must contain.
    n_halo : int
        Number of frames before and after a block that are read with it. A block of the default size
        has at least four times as many frames, if memory suffices.

    Examples
    --------
    >>> frames = np.arange(1000)
    >>> plan = make_plan(frames, n_atoms=3341, n_wanted=214, frame_bytes=12_000, n_workers=2)
    >>> plan.leaf_frames, plan.block_frames, len(plan)
    (16, 16, 63)
    """
    if block_frames is not None and not 1 <= block_frames < inf:
        raise ValueError(f"block_frames must be at least 1, not {block_frames!r}")
    borders = Borders.of(frames, chunk_frames)
    size = leaf = _leaf(n_atoms, borders.period, frames_together)
    while size % frames_together:
        size *= 2
    # If a leaf of whole chunks would be too large, `whole` is not a power of two times `size`.
    whole, held = lcm(size, borders.period), LARGEST_BLOCK_BYTES / max(12 * n_wanted, 1)
    parted = (whole // size).bit_count() > 1
    # Leaves do not follow chunk boundaries if a writer requires groups of frames, because these
    # groups are counted from the first frame of the run.
    followed = not parted and frames_together == 1
    leaves = LeafBoundaries.between(borders, leaf) if followed else LeafBoundaries(leaf)
    if block_frames is not None:
        return Plan(frames, leaves, _double_until(size, until=block_frames))
    if parted:
        whole = _double_until(size, until=borders.rows)
    if whole <= min(held, len(frames) / n_workers):
        size = whole
    largest = BLOCK_BYTES / max(frame_bytes, 12 * n_wanted, 1)
    wanted = min(largest, len(frames) / (BLOCKS_PER_WORKER * n_workers))
    while 2 * size <= wanted or (size < 4 * n_halo and 2 * size <= held):
        size *= 2
    reads = _reads(borders, size, leaves) if parted or whole > held else 1
    return Plan(frames, leaves, size, reads)


def _reads(borders: Borders, size: int, leaves: LeafBoundaries) -> int:
    """Return the maximum number of blocks that contain frames of the same chunk."""
    apart = gcd(borders.rows, size) if borders.rows == borders.period else 1
    before = 0 if leaves.head else borders.head % apart
    return 1 + -(-(borders.rows - apart + before) // size)


def _double_until(size: int, *, until: int) -> int:
    """Double a size until it is at least `until`."""
    while size < until:
        size *= 2
    return size


def _leaf(n_atoms: int, chunk: int, together: int) -> int:
    """Choose the number of rows in a leaf.

    It is the largest odd factor of the number of rows that must stay together, doubled while the
    leaf remains small. If a leaf of whole chunks would be too large, chunks are divided, and only
    the rows of `together` stay together.
    """
    frame = 12 * max(n_atoms, 1)
    for whole in (lcm(chunk, together), together):
        leaf = whole // (whole & -whole)
        while 2 * leaf <= min(LEAF_FRAMES, LEAF_BYTES // frame):
            leaf *= 2
        if leaf * frame <= LARGEST_LEAF_BYTES or whole == together:
            return leaf
    raise AssertionError("the last one is taken")


def balanced_slices(n_frames: int, size: int, rank: int) -> slice:
    """Return the frames of one rank if frames are divided into contiguous shares of equal size.

    Shares differ by at most one frame, and larger shares come first, as in
    ``make_balanced_slices`` of PMDA and of Jakupovic & Beckstein (2021).

    Parameters
    ----------
    n_frames : int
        Number of frames.
    size : int
        Number of ranks, at least 1.
    rank : int
        Rank, from 0 to `size` - 1.

    Returns
    -------
    slice
        Frames of this rank, from ``start`` to ``stop``; empty if there are fewer frames than ranks
        and this rank gets none.

    Raises
    ------
    ValueError
        An argument is not a whole number, or is out of range.

    Examples
    --------
    >>> import paceline
    >>> [paceline.balanced_slices(10, 4, rank) for rank in range(4)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 8, None), slice(8, 10, None)]
    """
    n_frames = whole_number("n_frames", n_frames, 0)
    size = whole_number("size", size, 1)
    rank = whole_number("rank", rank, 0, size - 1)
    least, n_larger = divmod(n_frames, size)
    start = rank * least + min(rank, n_larger)
    return slice(start, start + least + (rank < n_larger))
