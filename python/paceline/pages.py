"""Results in pieces, as they come: what can be kept, and put in its place again."""

import pickle
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import cloudpickle
import numpy as np

from paceline.errors import CheckpointError
from paceline.timing import BlockTiming


@dataclass(frozen=True)
class Span:
    """Rows of neighbouring frames.

    Attributes
    ----------
    first, stop : int
        Of the frames of the run, `stop` not included.
    times : numpy.ndarray of float64, shape (n_frames,)
        ps.
    rows : list of numpy.ndarray
        Of each analysis that gives rows.
    """

    first: int
    stop: int
    times: np.ndarray
    rows: list[np.ndarray]


@dataclass(frozen=True)
class Page:
    """What came to a trajectory's results in the course of time: enough to put it there again.

    Attributes
    ----------
    spans : list of Span
        Rows of all frames that came.
    nodes : dict
        By (level, number) of a subtree of blocks, that was not there before, the partial results
        of the analyses that give one; in a file each is pickled by itself.
    damaged : list of (int, str)
        Frames that were left out, and why.
    timings : list of BlockTiming
        Of the blocks that came.
    """

    spans: list[Span] = field(default_factory=list)
    nodes: dict[tuple[int, int], Any] = field(default_factory=dict)
    damaged: list[tuple[int, str]] = field(default_factory=list)
    timings: list[BlockTiming] = field(default_factory=list)


@dataclass(frozen=True)
class Mark:
    """A moment, by how much had come until then."""

    n_frames: int = 0
    spans: int = 0
    damaged: int = 0
    timings: int = 0
    nodes: frozenset[tuple[int, int]] = frozenset()


def cut(span: Span, size: int) -> Iterator[Span]:
    """Cut a span into parts of some size.

    Parameters
    ----------
    span : Span
        What is to be cut.
    size : int
        Bytes, about, in a part; of one row at least.

    Yields
    ------
    Span
    """
    n_rows = span.stop - span.first
    n_bytes = span.times.nbytes + sum(rows.nbytes for rows in span.rows)
    step = max(1, n_rows * size // n_bytes)
    for k in range(0, n_rows, step):
        part = slice(k, min(k + step, n_rows))
        rows = [values[part] for values in span.rows]
        yield Span(span.first + k, span.first + part.stop, span.times[part], rows)


def uppermost(nodes: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
    """Subtrees that are no part of another one.

    Parameters
    ----------
    nodes : collection of (int, int)
        Level and number of each.

    Returns
    -------
    list of (int, int)

    Examples
    --------
    >>> uppermost([(0, 0), (0, 1), (1, 0), (0, 2)])
    [(1, 0), (0, 2)]
    """
    there = set(nodes)
    top = max((level for level, _ in there), default=0)
    return [
        (level, number)
        for level, number in nodes
        if not any((up, number >> (up - level)) in there for up in range(level + 1, top + 1))
    ]


def pickled(page: Page) -> Page:
    """Pickle each subtree's partial results by themselves: those of no use need not be read back.

    Parameters
    ----------
    page : Page
        As `Collected.since` gives it.

    Returns
    -------
    Page
        With bytes in the place of partial results.

    Raises
    ------
    CheckpointError
        One cannot be pickled.
    """
    try:
        nodes = {key: _pickle(values) for key, values in page.nodes.items()}
    except Exception as error:  # pickling runs code of every object's own
        raise CheckpointError(
            f"a partial result cannot be kept in a checkpoint: {type(error).__name__}: {error}"
        ) from error
    return replace(page, nodes=nodes)


def _pickle(value: Any) -> bytes:
    """By reference where that is possible: a class shall be the same one afterwards."""
    try:
        return pickle.dumps(value, 5)
    except (pickle.PicklingError, AttributeError, TypeError):
        return cloudpickle.dumps(value, 5)
