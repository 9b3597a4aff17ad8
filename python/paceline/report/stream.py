"""Blocks as arrays, in the order of workers: what is drawn over time."""

from dataclasses import dataclass

import numpy as np

from paceline.report.naming import natural
from paceline.report.parts import WORKING, Part
from paceline.timing import Timings
from paceline.timing.columns import Columns


@dataclass(frozen=True)
class Stream:
    """Blocks over time, and attempts at blocks that did not count.

    Attributes
    ----------
    workers : list of str
        Their names, by host and number.
    row : numpy.ndarray, shape (n_blocks,), int
        Which of `workers` did the block.
    start, end : numpy.ndarray, shape (n_blocks,), float
        Of the block, s since blocks were first dealt.
    parts : numpy.ndarray, shape (n_parts, n_blocks), float
        Length of each of `paceline.report.parts.WORKING`, s; of an attempt that did not count, of
        the last one alone.
    comm : numpy.ndarray, shape (n_blocks,), float
        From `end` until the results were in their place, s.
    frames, bytes : numpy.ndarray, shape (n_blocks,), int
        Of the block, and read for it if it counted.
    """

    workers: list[str]
    row: np.ndarray
    start: np.ndarray
    end: np.ndarray
    parts: np.ndarray
    comm: np.ndarray
    frames: np.ndarray
    bytes: np.ndarray

    def __len__(self) -> int:
        return len(self.row)

    @property
    def kinds(self) -> list[Part]:
        """Parts that took any time."""
        return [part for part, took in zip(WORKING, self.parts, strict=True) if took.any()]

    @property
    def borders(self) -> np.ndarray:
        """When each part of each block begins, and the last one ends; shape (n_parts + 1, n), s."""
        return np.vstack((self.start, self.start + np.cumsum(self.parts, axis=0)))


def stream_of(timings: Timings) -> Stream:
    """Blocks of a run as arrays.

    Parameters
    ----------
    timings : Timings
        Of the run.

    Returns
    -------
    Stream
    """
    lost = [attempt.timing for attempt in timings.abandoned if attempt.timing.worker]
    columns, counted = Columns([*timings.blocks, *lost]), len(timings.blocks)
    workers = sorted(columns.workers, key=natural)
    rows = {worker: row for row, worker in enumerate(workers)}
    row = np.array([rows[worker] for worker in columns.workers], dtype=int)[columns.worker]
    start, end = ((columns[name] - timings.dealt) / 1e9 for name in ("start", "end"))
    parts = np.zeros((len(WORKING), len(row)))
    for k, part in enumerate(WORKING[:-1]):
        parts[k, :counted] = np.maximum(columns[part.block][:counted], 0) / 1e9
    # What goes on after the last block that counts is no part of the run.
    last = max(end[:counted].max(initial=0), 0)
    end[counted:] = np.clip(last, start[counted:], end[counted:])
    parts[-1, counted:] = (end - start)[counted:]
    read = columns["bytes"].copy()
    read[counted:] = 0
    return Stream(workers, row, start, end, parts, columns["comm"] / 1e9, columns["n_frames"], read)


def accumulated(
    start: np.ndarray, end: np.ndarray, amount: np.ndarray, at: np.ndarray
) -> np.ndarray:
    """How much had come by some times, where amounts come evenly between a start and an end.

    Parameters
    ----------
    start, end : numpy.ndarray, shape (n,), float
        Of each, s.
    amount : numpy.ndarray, shape (n,), float
        Of each, in any unit.
    at : numpy.ndarray, shape (n_times,), float
        Times, ascending, s.

    Returns
    -------
    numpy.ndarray, shape (n_times,), float
        Sums, in the unit of `amount`.

    Examples
    --------
    >>> from numpy import array
    >>> accumulated(array([0.0, 1.0]), array([2.0, 3.0]), array([4.0, 8.0]), array([1.0, 2.0, 9.0]))
    array([ 2.,  8., 12.])
    """
    if len(start) == 0:
        return np.zeros(len(at))
    end = np.maximum(end, start + 1e-9)
    rate = amount / (end - start)
    times, changes = np.concatenate((start, end)), np.concatenate((rate, -rate))
    order = np.argsort(times, kind="stable")
    times, rates = times[order], np.cumsum(changes[order])
    sums = np.concatenate(([0.0], np.cumsum(rates[:-1] * np.diff(times))))
    return np.interp(at, times, sums)
