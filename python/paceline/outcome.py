"""What workers return: plain data that travels from any process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.errors import AnalysisError
from paceline.job import Job, Part
from paceline.merging import fold
from paceline.timing import BlockTiming


@dataclass(frozen=True)
class Outcome:
    """What one block gave, or a whole subtree of blocks.

    Attributes
    ----------
    job : int
        Which of the run's jobs it belongs to.
    level, number : int
        The subtree: block number · 2**level and those that follow it, 2**level in all or as many
        as there are. A single block is a subtree of level 0.
    first, n_frames : int
        Its first row in the results, and its frames.
    values : list or None
        Of each analysis its rows, its partial result merged over the subtree, or what it made of
        each block, by the block's number. None where they are kept until all blocks are done.
    times : numpy.ndarray of float64, shape (n_frames,), or None
        ps. None where they are kept.
    damaged : list of (int, str)
        Frame number and reason of each frame that was left out.
    timings : list of BlockTiming
        Of each block.
    """

    job: int
    level: int
    number: int
    first: int
    n_frames: int
    values: list[Any] | None
    times: np.ndarray | None
    damaged: list[tuple[int, str]]
    timings: list[BlockTiming]


@dataclass(frozen=True)
class Gathered:
    """What all blocks of a job gave, kept where they were done and brought together at the end.

    Attributes
    ----------
    job : int
        Which of the run's jobs.
    values : list
        Of each analysis all rows, or the partial result merged over all blocks.
    times : numpy.ndarray of float64, shape (n_frames,)
        ps.
    """

    job: int
    values: list[Any]
    times: np.ndarray


def join(job: Job, level: int, outcomes: Sequence[Outcome]) -> Outcome:
    """Make one outcome of those of all the blocks of a subtree, or of its two halves.

    Parameters
    ----------
    job : Job
        To which all belong.
    level : int
        Of the subtree.
    outcomes : sequence of Outcome
        Of each block, or of each half, in their order.

    Returns
    -------
    Outcome
        Its partial results are merged as `Tree` would have merged them.

    Raises
    ------
    AnalysisError
        Rows of the blocks are not alike.
    """
    first = outcomes[0]
    values = [outcome.values for outcome in outcomes if outcome.values is not None]
    return Outcome(
        first.job,
        level,
        first.number >> level - first.level,
        first.first,
        sum(outcome.n_frames for outcome in outcomes),
        [
            _join_values(part, [of_block[k] for of_block in values])
            for k, part in enumerate(job.parts)
        ],
        np.concatenate([outcome.times for outcome in outcomes if outcome.times is not None]),
        [damage for outcome in outcomes for damage in outcome.damaged],
        [timing for outcome in outcomes for timing in outcome.timings],
    )


def _join_values(part: Part, values: Sequence[Any]) -> Any:
    if part.per_block:
        return {number: value for of_block in values for number, value in of_block.items()}
    if part.reduces:
        return fold(values, merging(part))
    for rows in values:
        refuse_unlike(part.name, rows, values[0])
    return np.concatenate(values)


def merging(part: Part) -> Callable[[Any, Any], Any]:
    """The `merge` of an analysis, whose errors say whose they are.

    Parameters
    ----------
    part : Part
        That gives one result for all frames.

    Returns
    -------
    callable
        Takes two neighbours, left and right.
    """

    def merge(left: Any, right: Any) -> Any:
        try:
            return part.computation.merge(left, right)  # type: ignore[union-attr]
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise AnalysisError(f"{part.name} raised when blocks were merged: {reason}") from error

    return merge


def refuse_unlike(name: str, rows: np.ndarray, others: np.ndarray) -> None:
    """Raise `AnalysisError` where rows of blocks are not of one shape and dtype.

    Parameters
    ----------
    name : str
        Of the analysis.
    rows, others : numpy.ndarray
        What it gave of one block, and of those before.
    """
    # Were some differences allowed, the order in which blocks come would decide.
    for what, found, expected in (
        ("rows of shape ", rows.shape[1:], others.shape[1:]),
        ("", rows.dtype, others.dtype),
    ):
        if found != expected:
            raise AnalysisError(
                f"{name}: expected {what}{expected} as from the other blocks, found {found}"
            )
