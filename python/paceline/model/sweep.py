"""Predictions for many numbers of workers, and how many of them pay."""

from collections.abc import Iterable, Sequence
from typing import Any

from paceline.model.cost import FrameCost
from paceline.model.formula import Prediction, predict

#: A worker should save at least so much of what it could.
EFFICIENCY = 0.5


def sweep(
    cost: FrameCost, n_frames: int, n_workers: Iterable[int], **options: Any
) -> list[Prediction]:
    """Predict the same run with different numbers of workers.

    Parameters
    ----------
    cost : FrameCost
        Of one frame.
    n_frames : int
        Frames of the run.
    n_workers : iterable of int
        The numbers.
    **options : object
        As `predict` takes them.

    Returns
    -------
    list of Prediction
        In the order of `n_workers`.
    """
    return [predict(cost, n_frames, n, **options) for n in n_workers]


def doublings(most: int) -> list[int]:
    """Numbers of workers that give an evenly spaced curve: 1, 2, 4 … and the most.

    Parameters
    ----------
    most : int
        The last.

    Returns
    -------
    list of int
        In order.

    Examples
    --------
    >>> doublings(24)
    [1, 2, 4, 8, 16, 24]
    """
    powers = [2**k for k in range(most.bit_length()) if 2**k < most]
    return [*powers, most]


def fastest(predictions: Sequence[Prediction]) -> Prediction:
    """Find the shortest run; of equal ones, that with the fewest workers.

    Parameters
    ----------
    predictions : sequence of Prediction
        At least one.

    Returns
    -------
    Prediction
    """
    return min(predictions, key=lambda found: (found.t_total, found.n_workers))


def last_that_pays(
    predictions: Sequence[Prediction], *, efficiency: float = EFFICIENCY
) -> Prediction:
    """Find the most workers that are still used well: the knee of the curve.

    Parameters
    ----------
    predictions : sequence of Prediction
        In the order of their workers; efficiencies are relative to the first.
    efficiency : float
        Speed-up divided by workers, at least.

    Returns
    -------
    Prediction
        The last before the efficiency falls below that.

    Examples
    --------
    >>> from paceline.model import FileSystem
    >>> cost = FrameCost(read=0.0, decode=300e-6, compute=100e-6, bytes=12_000)
    >>> one_disk = FileSystem(server_bandwidth=150e6)
    >>> found = sweep(cost, 10**6, doublings(64), file_system=one_disk)
    >>> last_that_pays(found).n_workers
    8
    """
    first = predictions[0]
    work = first.t_total * first.n_workers
    best = first
    for found in predictions:
        if work / (found.t_total * found.n_workers) < efficiency:
            break
        best = found
    return best
