"""Numbers that a file gives its atoms, which are counted from 1 here."""

from dataclasses import dataclass
from typing import Self

import numpy as np

#: Atoms that are looked at together: what that takes of memory shall not grow with them.
_AT_A_TIME = 2**16


@dataclass(frozen=True)
class Numbering:
    """Rows of numbers without gaps.

    Attributes
    ----------
    starts : numpy.ndarray of int64, shape (n_rows,)
        First number of each row, rising.
    before : numpy.ndarray of int64, shape (n_rows + 1,)
        Atoms before each row, and in all.
    """

    starts: np.ndarray
    before: np.ndarray

    @classmethod
    def of(cls, numbers: np.ndarray) -> Self:
        """That of some atoms.

        Parameters
        ----------
        numbers : numpy.ndarray of int64, shape (n_atoms,)
            All of them, rising.

        Returns
        -------
        Numbering

        Examples
        --------
        >>> Numbering.of(np.array([0, 1, 2, 7, 8])).starts
        array([0, 7])
        """
        n_atoms = len(numbers)
        cuts = []
        for begin in range(0, n_atoms, _AT_A_TIME):
            some = numbers[begin : begin + _AT_A_TIME + 1]
            cuts.append(begin + 1 + np.flatnonzero(np.diff(some) != 1))
        before = np.concatenate([[0], *cuts, [n_atoms]]).astype(np.int64)
        return cls(numbers[before[:-1]], before)

    @property
    def n_gaps(self) -> int:
        """Between numbers."""
        return len(self.starts) - 1

    @property
    def is_plain(self) -> bool:
        """Whether the file counts from 1, without gaps."""
        return self.starts.tolist() == [1]

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return self.starts.nbytes + self.before.nbytes

    def ids_of(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count atoms in the order of their numbers.

        Parameters
        ----------
        numbers : numpy.ndarray of int64, shape (n,)
            In any order; some may be no atom's.

        Returns
        -------
        ids : numpy.ndarray of int64, shape (n,)
            From 1.
        are_atoms : numpy.ndarray of bool, shape (n,)
            Where they are.

        Examples
        --------
        >>> ids, are_atoms = Numbering.of(np.array([0, 1, 2, 7, 8])).ids_of(np.array([8, 3, 0]))
        >>> ids[are_atoms]
        array([5, 1])
        """
        ids = np.empty(len(numbers), dtype=np.int64)
        are_atoms = np.empty(len(numbers), dtype=bool)
        for first in range(0, len(numbers), _AT_A_TIME):
            some = slice(first, first + _AT_A_TIME)
            row = np.searchsorted(self.starts, numbers[some], side="right") - 1
            start, before = self.starts[row], self.before[:-1][row]
            within = numbers[some] - start
            n_atoms = self.before[1:][row] - before
            are_atoms[some] = (row >= 0) & (within >= 0) & (within < n_atoms)
            ids[some] = before + within + 1
        return ids, are_atoms

    def restore(self, ids: np.ndarray) -> None:
        """Give atoms that were counted their numbers.

        Parameters
        ----------
        ids : numpy.ndarray of int64, shape (n,)
            From 1; become the numbers.

        Examples
        --------
        >>> ids = np.array([5, 1])
        >>> Numbering.of(np.array([0, 1, 2, 7, 8])).restore(ids)
        >>> ids
        array([8, 0])
        """
        for first in range(0, len(ids), _AT_A_TIME):
            some = ids[first : first + _AT_A_TIME]
            row = np.searchsorted(self.before, some - 1, side="right") - 1
            some += self.starts[row] - self.before[row] - 1
