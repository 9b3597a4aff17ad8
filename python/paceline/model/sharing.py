"""How long the slowest worker takes, where work is shared out beforehand or dealt."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

from paceline.backends.dealing import OVERDUE, SHORTEST
from paceline.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class Unevenness:
    """How workers differ.

    Attributes
    ----------
    spread : float
        Standard deviation of workers' time per frame, as a part of its mean.
    slow_fraction : float
        Part of the workers that are slow.
    slow_factor : float
        How many times as long those take.

    Raises
    ------
    UnsupportedError
        A part is not between 0 and 1, `spread` is negative, or who is slow is fast.
    """

    spread: float = 0.0
    slow_fraction: float = 0.0
    slow_factor: float = 1.0

    def __post_init__(self) -> None:
        if not (self.spread >= 0 and 0 <= self.slow_fraction <= 1 and self.slow_factor >= 1):
            raise UnsupportedError(
                "workers' unevenness: expected spread of 0 or more, slow_fraction from 0 to 1 and "
                f"slow_factor of 1 or more, found {self.spread}, {self.slow_fraction} and "
                f"{self.slow_factor}"
            )

    @property
    def pace(self) -> float:
        """Mean number of frames that workers do while one that is not slow does one."""
        return 1 - self.slow_fraction + self.slow_fraction / self.slow_factor


def static_time(share: float, n_workers: int, uneven: Unevenness) -> float:
    """When the last of equal shares is done, expected.

    Parameters
    ----------
    share : float
        What a share takes a worker that is not slow, s.
    n_workers : int
        Who have a share.
    uneven : Unevenness
        How workers differ.

    Returns
    -------
    float
        Seconds.

    Examples
    --------
    >>> static_time(10.0, 100, Unevenness(slow_fraction=0.5, slow_factor=3))
    30.0
    """
    some_slow = 1 - (1 - uneven.slow_fraction) ** n_workers
    # Blom's approximation: the largest of so many normal deviates.
    largest = NormalDist().inv_cdf((n_workers - 0.375) / (n_workers + 0.25))
    return share * (1 + uneven.spread * largest + (uneven.slow_factor - 1) * some_slow)


def dynamic_time(share: float, block: float, n_workers: int, uneven: Unevenness) -> float:
    """When the last block is done where workers take the next as they come free, expected.

    Nobody is idle until no block is left; then workers are in the midst of one each. The last of
    them to end is almost a block's time away, and a slow one's block is done once more by another
    when it is overdue.

    Parameters
    ----------
    share : float
        All work divided by the workers, for one that is not slow, s.
    block : float
        What a block takes it, s.
    n_workers : int
        Who take blocks.
    uneven : Unevenness
        How workers differ.

    Returns
    -------
    float
        Seconds.

    Examples
    --------
    >>> dynamic_time(10.0, 0.1, 1, Unevenness())
    10.0
    """
    none_left = (share - block / 2) / uneven.pace
    n_slow = uneven.slow_fraction * n_workers
    n_others = n_workers - n_slow
    repeated = max(OVERDUE * block, SHORTEST) + block
    last_slow = min(uneven.slow_factor * block, repeated) * n_slow / (n_slow + 1)
    last = max(block * n_others / (n_others + 1), last_slow)
    return none_left + last


def opened_in_time(work: Callable[[int], float], n_workers: int, t_open: float) -> int:
    """How many of those who open the file one after another find blocks left to do.

    Who has opened it works while others wait for their turn. The last of n who is in time opens it
    when the others are done: n (n - 1) / 2 opens take as long as all work.

    Parameters
    ----------
    work : callable
        From a number of workers to the time that all blocks take them together, s.
    n_workers : int
        Who open the file.
    t_open : float
        An open, s.

    Returns
    -------
    int
        At least 1.

    Examples
    --------
    >>> opened_in_time(lambda n: 100.0, 1000, 1.0), opened_in_time(lambda n: 100.0, 1000, 0.0)
    (14, 1000)
    """
    in_time = 1
    while True:
        more = n_workers
        if t_open > 0:
            more = min(n_workers, int(0.5 + math.sqrt(0.25 + 2 * work(in_time) / t_open)))
        if more <= in_time:
            return in_time
        in_time = more
