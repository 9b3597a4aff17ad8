"""Whose an atom is, as a user says it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from paceline.errors import AnalysisError, UnsupportedError
from paceline.snapshot.moments import Moment


def shape_of(grid: Any, n_ranks: int) -> tuple[int, int, int]:
    """Domains of a grid along each vector of the cell.

    Parameters
    ----------
    grid : sequence of int
        As a user gives it.
    n_ranks : int
        Ranks, one for each domain.

    Returns
    -------
    tuple of int
        Three.

    Raises
    ------
    ValueError
        It is no grid of three numbers, or one of more or fewer domains than ranks.

    Examples
    --------
    >>> shape_of([2, 2, 1], 4)
    (2, 2, 1)
    """
    numbers = np.asarray(grid)
    if numbers.shape != (3,) or numbers.dtype.kind not in "iu" or numbers.min() < 1:
        raise ValueError(f"expected a grid of three numbers of domains, found {grid!r}")
    x, y, z = numbers.tolist()
    if x * y * z != n_ranks:
        raise ValueError(
            f"expected a grid of {n_ranks} domains, one for each rank, found {x} × {y} × {z}"
        )
    return x, y, z


class Function:
    """A user's function of positions, whose answers are looked at.

    Parameters
    ----------
    function : callable
        Of positions, (n, 3), in Å; gives as many ranks.
    moment : Moment
        The frame.

    Raises
    ------
    MissingDataError
        The frame has no positions.
    """

    def __init__(self, function: Callable[[np.ndarray], Any], moment: Moment):
        moment.require_positions()
        self._function = function
        self._moment = moment

    def __call__(self, ids: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Ranks of atoms.

        Parameters
        ----------
        ids : numpy.ndarray of int64, shape (n,)
            Their numbers.
        positions : numpy.ndarray of uint8
            Bytes of as many positions.

        Returns
        -------
        numpy.ndarray of int64, shape (n,)
            Of which the core makes sure that they are ranks.

        Raises
        ------
        UnsupportedError
            A position is not finite.
        AnalysisError
            The function raised, or its answer is not one rank for each atom.
        """
        positions = positions.view(self._moment.dtype).reshape(-1, 3)
        odd = ~np.isfinite(positions).all(axis=1)
        if odd.any():
            atom = int(odd.argmax())
            x, y, z = positions[atom].tolist()
            raise UnsupportedError(
                f"{self._moment.name}: atom {ids[atom]} is at ({x}, {y}, {z}), nowhere; without "
                "owner= it can be read"
            )
        positions.flags.writeable = False
        try:
            ranks = np.asarray(self._function(positions))
        except Exception as error:
            raise AnalysisError(f"owner= raised {type(error).__name__}: {error}") from error
        if ranks.shape != (len(ids),) or ranks.dtype.kind not in "iu":
            raise AnalysisError(
                f"expected owner= to give whole numbers of ranks, shape ({len(ids)},), found "
                f"{ranks.dtype} of shape {ranks.shape}"
            )
        return np.ascontiguousarray(ranks, dtype=np.int64)
