"""Rows of a run in leaves, on which partial results form. Pure."""

from dataclasses import dataclass
from math import gcd
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
