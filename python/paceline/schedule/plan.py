"""Frames chosen, into blocks, and blocks into leaves. Pure: nothing is opened here.

Partial results form on *leaves*, numbers of frames that depend on the system, on what must stay
together and on the frames asked for alone, and are merged over the binary tree of leaf numbers. A
*task* is a block of 2**k neighbouring leaves, a subtree, so that any number of workers and any size
of block merge the same pairs in the same order and give the same bits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd, lcm
from typing import Self

import numpy as np


@dataclass(frozen=True, slots=True)
class Borders:
    """Rows of a run at which something that is stored together ends, and something else begins.

    Attributes
    ----------
    rows : int
        Rows that are stored together, at the most.
    period : int
        Rows after which borders come again in the same way: more, where a step that does not
        divide what is stored together takes now more, now fewer frames of it.
    head : int
        Rows before the first border; 0 where the first row is the first one that is chosen of
        what is stored with it.
    """

    rows: int = 1
    period: int = 1
    head: int = 0

    @classmethod
    def of(cls, frames: np.ndarray, chunk_frames: int) -> Self:
        """Borders between frames of a run; everywhere, where frames were chosen at random.

        Parameters
        ----------
        frames : numpy.ndarray of int64, shape (n_frames,)
            Frame numbers to be analysed.
        chunk_frames : int
            Neighbours in the trajectory that are stored together, from its first frame.
        """
        step = _step(frames)
        if not 0 < step < chunk_frames:
            return cls()
        before = int(frames[0]) % chunk_frames
        head = -(-(chunk_frames - before) // step) if before >= step else 0
        return cls(-(-chunk_frames // step), chunk_frames // gcd(chunk_frames, step), head)


def _step(frames: np.ndarray) -> int:
    """Between all frames; 0 where it is not the same."""
    if len(frames) < 2:
        return 0
    step = int(frames[1] - frames[0])
    return step if frames[-1] - frames[0] == step * (len(frames) - 1) else 0


@dataclass(frozen=True, slots=True)
class Leaves:
    """Where the leaves of a run begin.

    Rows before the first border are cut into as many leaves as what lies between two of them,
    smaller ones, so that subtrees of leaves end at borders wherever a run starts.

    Attributes
    ----------
    size : int
        Rows of a leaf.
    head : int
        Rows that are cut otherwise, at the start.
    n_head : int
        Into how many leaves; 0 where these rows are so few that the first leaf has them too.

    Examples
    --------
    >>> Leaves(16, head=10, n_head=2).cuts(0, 50)
    [0, 5, 10, 26, 42, 50]
    """

    size: int
    head: int = 0
    n_head: int = 0

    @classmethod
    def between(cls, borders: Borders, size: int) -> Self:
        """Leaves of a size which, times a power of two, is a period of borders, or a multiple."""
        if not borders.head:
            return cls(size)
        wanted = max(1, borders.period // size)
        head = borders.head + max(0, size - borders.period)
        return cls(size, head, wanted if head >= wanted else 0)

    def begin(self, number: int) -> int:
        """First row of a leaf."""
        if number < self.n_head:
            return number * self.head // self.n_head
        return self.head + (number - self.n_head) * self.size if number else 0

    def number(self, row: int) -> int:
        """The leaf that has a row."""
        if self.n_head and row < self.head:
            return ((row + 1) * self.n_head - 1) // self.head
        return max(0, (row - self.head) // self.size + self.n_head)

    def cuts(self, first: int, n_rows: int) -> list[int]:
        """Where leaves begin in a block, and its end, counted from its first row."""
        numbers = range(self.number(first) + 1, self.number(first + n_rows - 1) + 1)
        return [0, *(self.begin(number) - first for number in numbers), n_rows]


#: Frames in a leaf of a small system.
LEAF_FRAMES = 16
#: Positions of a leaf, and about of a block: few enough to stay near the processor, bytes.
LEAF_BYTES = BLOCK_BYTES = 16 * 2**20
#: Positions of a leaf, at the most, where frames are stored together, bytes.
LARGEST_LEAF_BYTES = 64 * 2**20
#: Positions of a block, at the most, for the sake of frames that are stored together, bytes.
LARGEST_BLOCK_BYTES = 256 * 2**20
#: Blocks dealt to each worker at the least, where there are frames enough: the last block then
#: delays the end by a few per cent.
BLOCKS_PER_WORKER = 16


def choose_frames(
    n_frames: int,
    start: int | None,
    stop: int | None,
    step: int | None,
    frames: Sequence[int] | np.ndarray | None,
) -> np.ndarray:
    """Frame numbers asked for, by slice or one by one.

    Parameters
    ----------
    n_frames : int
        Of the trajectory.
    start, stop, step : int, optional
        As in a slice.
    frames : sequence of int or of bool, optional
        Instead of a slice.

    Returns
    -------
    numpy.ndarray of int64, shape (n_chosen,)

    Raises
    ------
    ValueError
        None is left, or both ways are used.
    IndexError
        There is no such frame.
    """
    if frames is None:
        numbers = np.arange(n_frames)[start:stop:step]
    else:
        if not (start is stop is step is None):
            raise ValueError("give either frames or start, stop and step, not both")
        numbers = np.asarray(frames)
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "biu"):
            raise ValueError("frames must be a one-dimensional sequence of integers or booleans")
        if numbers.dtype == bool:
            if len(numbers) != n_frames:
                raise ValueError(
                    f"frames has {len(numbers)} booleans, but the trajectory {n_frames} frames"
                )
            numbers = np.flatnonzero(numbers)
        outside = (numbers < -n_frames) | (numbers >= n_frames)
        if outside.any():
            raise IndexError(f"frame {numbers[outside][0]} is out of range for {n_frames} frames")
        numbers = numbers.astype(np.int64)
        numbers[numbers < 0] += n_frames
    if len(numbers) == 0:
        raise ValueError(f"no frames to analyse: the trajectory has {n_frames}, none was chosen")
    return numbers


@dataclass(frozen=True, slots=True)
class Task:
    """A block to be done.

    Attributes
    ----------
    number : int
        The block.
    first, stop : int
        Its rows in the frames of the run, `stop` not included.
    """

    number: int
    first: int
    stop: int


@dataclass(frozen=True)
class Plan:
    """How the frames of one run are dealt.

    Attributes
    ----------
    frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers in the trajectory, in the order of the results.
    leaves : Leaves
        Where leaves begin.
    block_frames : int
        Frames in a block: a leaf times a power of two. At the start of a run there may be others.
    chunk_reads : int
        How often what is stored together is read at the most, because memory should not hold it,
        or not as many frames of it as a leaf would need.
    """

    frames: np.ndarray
    leaves: Leaves
    block_frames: int
    chunk_reads: int = 1

    @property
    def leaf_frames(self) -> int:
        """Frames in a leaf."""
        return self.leaves.size

    def __len__(self) -> int:
        return self.number(len(self.frames) - 1) + 1

    def number(self, row: int) -> int:
        """The block that has a row of the run."""
        return self.leaves.number(row) * self.leaf_frames // self.block_frames

    def task(self, number: int) -> Task:
        """Block `number` of the run."""
        n_leaves = self.block_frames // self.leaf_frames
        first, stop = (self.leaves.begin(k * n_leaves) for k in (number, number + 1))
        return Task(number, first, min(stop, len(self.frames)))

    def tasks(self) -> Iterator[Task]:
        """Every block, in order."""
        return (self.task(number) for number in range(len(self)))

    def frame_numbers(self, task: Task) -> np.ndarray:
        """Frame numbers of a block.

        Parameters
        ----------
        task : Task
            The block.

        Returns
        -------
        numpy.ndarray of int64, shape (task.stop - task.first,)
        """
        return self.frames[task.first : task.stop]


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
) -> Plan:
    """Choose the size of leaves and blocks.

    Parameters
    ----------
    frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers to be analysed.
    n_atoms : int
        Atoms of the system; they, the first frame and the step, and the last two parameters, alone
        fix the leaves.
    n_wanted : int
        Atoms to be decoded.
    frame_bytes : float
        Bytes to be read of a frame, about.
    n_workers : float
        Workers that will share the blocks; a fraction of one that has other trajectories to do.
    block_frames : int, optional
        Frames in a block, rounded up to a leaf times a power of two. By default as many as give
        each worker 16 blocks or more and keep a block within 16 MiB, read and decoded.
    chunk_frames : int
        Neighbours in the trajectory that are stored together, counted from its first frame: blocks
        end where they do, as far as frames were chosen so that this can be, memory holds them, and
        each worker has one.
    frames_together : int
        Frames of the run that blocks must not part.

    Returns
    -------
    Plan

    Examples
    --------
    >>> frames = np.arange(1000)
    >>> plan = make_plan(frames, n_atoms=3341, n_wanted=214, frame_bytes=12_000, n_workers=2)
    >>> plan.leaf_frames, plan.block_frames, len(plan)
    (16, 16, 63)
    """
    borders = Borders.of(frames, chunk_frames)
    size = leaf = _leaf(n_atoms, borders.period, frames_together)
    while size % frames_together:
        size *= 2
    # Not a power of two times the size where a leaf of whole chunks would be too large.
    whole, held = lcm(size, borders.period), LARGEST_BLOCK_BYTES / max(12 * n_wanted, 1)
    parted = (whole // size).bit_count() > 1
    # What a writer wants together is counted from the first frame of the run.
    followed = not parted and frames_together == 1
    leaves = Leaves.between(borders, leaf) if followed else Leaves(leaf)
    if block_frames is not None:
        return Plan(frames, leaves, _doubled(size, until=block_frames))
    if parted:
        whole = _doubled(size, until=borders.rows)
    if whole <= min(held, len(frames) / n_workers):
        size = whole
    largest = BLOCK_BYTES / max(frame_bytes, 12 * n_wanted, 1)
    wanted = min(largest, len(frames) / (BLOCKS_PER_WORKER * n_workers))
    while 2 * size <= wanted:
        size *= 2
    reads = _reads(borders, size, leaves) if parted or whole > held else 1
    return Plan(frames, leaves, size, reads)


def _reads(borders: Borders, size: int, leaves: Leaves) -> int:
    """Blocks of a size that have frames of one chunk, at the most."""
    apart = gcd(borders.rows, size) if borders.rows == borders.period else 1
    before = 0 if leaves.head else borders.head % apart
    return 1 + -(-(borders.rows - apart + before) // size)


def _doubled(size: int, *, until: int) -> int:
    """A size, times the power of two with which it is as large as is asked."""
    while size < until:
        size *= 2
    return size


def _leaf(n_atoms: int, chunk: int, together: int) -> int:
    """Frames of a leaf: such that it, times a power of two, is what stays together."""
    frame = 12 * max(n_atoms, 1)
    for whole in (lcm(chunk, together), together):
        leaf = whole // (whole & -whole)
        while 2 * leaf <= min(LEAF_FRAMES, LEAF_BYTES // frame):
            leaf *= 2
        if leaf * frame <= LARGEST_LEAF_BYTES or whole == together:
            return leaf
    raise AssertionError("the last one is taken")
