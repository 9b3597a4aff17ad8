"""Figures over time: a task stream, what all workers are at, and how fast they read."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from paceline.performance.components import COMMUNICATING, GRID, INK, WAITING, WORKING, Component
from paceline.performance.figure_style import (
    add_legend,
    draw_boxes,
    name_workers,
    rate_unit,
    time_unit,
)
from paceline.performance.records import Columns, host_of
from paceline.performance.text import natural, short_names
from paceline.performance.timings import Timings


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
        Length of each of `components.WORKING`, s; of an attempt that did not count, of
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
    def kinds(self) -> list[Component]:
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


#: Rows of a task stream that can be told apart; of more workers, so many thirds are drawn.
ROWS = 36
#: Room for so many at least, so that one of one worker is not a wall.
LEAST_ROWS = 4
#: Blocks whose borders can be told apart; of more, each step shows the shares of its parts.
BLOCKS = 1500
#: Steps of a task stream of many blocks, and of curves; lines of a row of such a task stream.
STREAM_STEPS, STEPS, LINES = 300, 120, 24


def rows_of(stream: Stream) -> np.ndarray:
    """Workers that a task stream shows.

    Parameters
    ----------
    stream : Stream
        Of a run.

    Returns
    -------
    numpy.ndarray, int
        Numbers of workers: all, or the slowest, those in the middle and the fastest by time per
        frame, a third each.
    """
    n_workers = len(stream.workers)
    if n_workers <= ROWS:
        return np.arange(n_workers)
    work = np.bincount(stream.row, stream.end - stream.start, n_workers)
    frames = np.bincount(stream.row, stream.frames, n_workers)
    order = np.argsort(-work / np.maximum(frames, 1), kind="stable")
    third, middle = ROWS // 3, (n_workers - ROWS // 3) // 2
    return np.concatenate((order[:third], order[middle : middle + third], order[-third:]))


def is_dense(stream: Stream) -> bool:
    """Whether there are more blocks than can be told apart.

    Parameters
    ----------
    stream : Stream
        Of a run.

    Returns
    -------
    bool
    """
    return bool(np.isin(stream.row, rows_of(stream)).sum() > BLOCKS)


def draw_stream(axes: Any, stream: Stream) -> None:
    """Draw a row a worker, with its blocks coloured by what it was at.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where.
    stream : Stream
        Of a run, with a block or more.
    """
    rows = rows_of(stream)
    unit = time_unit(stream.end.max())
    place = np.full(len(stream.workers), -1)
    place[rows] = np.arange(len(rows))
    if is_dense(stream):
        _paint(axes, stream, rows, unit.factor)
        add_legend(axes, stream.kinds)
    else:
        _draw_blocks(axes, stream, place[stream.row], unit.factor)
        add_legend(axes, (*stream.kinds, COMMUNICATING))
    axes.set_xlim(min(stream.start.min(), 0) * unit.factor, stream.end.max() * unit.factor)
    spare = max(LEAST_ROWS - len(rows), 0) / 2
    axes.set_ylim(len(rows) + 0.6 + spare, 0.4 - spare)
    axes.set_xlabel(f"time since blocks were first dealt ({unit.name})")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    if len(rows) == len(stream.workers):
        axes.set_ylabel("worker")
        name_workers(axes.yaxis, stream.workers)
    else:
        _name_chosen(axes, stream, rows)


def _draw_blocks(axes: Any, stream: Stream, place: np.ndarray, factor: float) -> None:
    """Draw blocks as boxes, in which their parts lie one after another."""
    drawn = place >= 0
    top, borders = place[drawn] + 0.62, stream.borders[:, drawn] * factor
    for part, left, right in zip(WORKING, borders[:-1], borders[1:], strict=True):
        draw_boxes(axes, left, right, top, top + 0.66, part)
    # Under the row: the worker may be at its next block.
    left, right = stream.end[drawn] * factor, (stream.end + stream.comm)[drawn] * factor
    draw_boxes(axes, left, right, top + 0.66, top + 0.76, COMMUNICATING)
    # A block's beginning, so that blocks that follow at once can be told apart.
    x = np.repeat(borders[0], 3)
    y = np.stack((top - 0.08, top + 0.66, np.full(len(top), np.nan)), axis=-1).ravel()
    axes.plot(x, y, color=INK, linewidth=0.4)


def _paint(axes: Any, stream: Stream, rows: np.ndarray, factor: float) -> None:
    """Divide each worker's row, at each step, into shares of what it was at; as one picture."""
    from matplotlib.colors import to_rgba

    colours = np.array([to_rgba(part.colour) for part in WORKING] + [(0, 0, 0, 0)])
    steps = np.linspace(min(stream.start.min(), 0), stream.end.max(), STREAM_STEPS + 1)
    heights = ((np.arange(LINES) + 0.5) / LINES)[:, None] * (steps[1] - steps[0])
    # A quarter of each row is left empty, so that rows can be told apart.
    picture = np.zeros((len(rows), LINES + LINES // 4, STREAM_STEPS, 4))
    for place, row in enumerate(rows):
        borders = stream.borders[:, stream.row == row]
        spent = [
            np.diff(accumulated(left, right, right - left, steps))
            for left, right in pairwise(borders)
        ]
        part = sum((heights > tops).astype(int) for tops in np.cumsum(spent, axis=0))
        picture[place, :LINES] = colours[part]
    extent = (steps[0] * factor, steps[-1] * factor, len(rows) + 0.6, 0.6)
    lines = picture.reshape(-1, STREAM_STEPS, 4)
    axes.imshow(lines, extent=extent, aspect="auto", interpolation="none")


def _name_chosen(axes: Any, stream: Stream, rows: np.ndarray) -> None:
    """Name chosen workers by number and host, and say why they were chosen."""
    hosts = [host_of(stream.workers[row]) for row in rows]
    names = short_names(list(dict.fromkeys(hosts)))
    labels = [f"{names[host]} · {row + 1}" for host, row in zip(hosts, rows, strict=True)]
    axes.set_yticks(np.arange(len(rows)) + 1, labels, fontsize=6)
    third = len(rows) // 3
    for k, why in enumerate(("slowest", "in the middle", "fastest")):
        middle = 1 - (k * third + (third + 1) / 2 - 0.4) / (len(rows) + 0.2)
        axes.text(1.01, middle, why, transform=axes.transAxes, rotation=270, va="center", ha="left")
        if k:
            axes.axhline(k * third + 0.5, color=INK, linewidth=0.6)


def draw_activity(axes: Any, stream: Stream) -> None:
    """Draw how many workers were at each part, and how many waited, over time.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where.
    stream : Stream
        Of a run, with a block or more.
    """
    unit = time_unit(stream.end.max())
    steps = np.linspace(min(stream.start.min(), 0), stream.end.max(), STEPS + 1)
    borders = stream.borders
    below = np.zeros(STEPS)
    for part, left, right in zip(WORKING, borders[:-1], borders[1:], strict=True):
        at_it = np.diff(accumulated(left, right, right - left, steps)) / np.diff(steps)
        _fill(axes, below + at_it, steps * unit.factor, below, part.colour)
        below = below + at_it
    everybody = np.full(STEPS, len(stream.workers))
    _fill(axes, everybody, steps * unit.factor, below, WAITING.colour)
    add_legend(axes, (*stream.kinds, WAITING))
    axes.set_xlim(steps[0] * unit.factor, steps[-1] * unit.factor)
    axes.set_ylim(0, len(stream.workers))
    axes.set_xlabel(f"time since blocks were first dealt ({unit.name})")
    axes.set_ylabel("workers")


def draw_read_rate(axes: Any, stream: Stream) -> None:
    """Draw bytes read per second by all workers over time, and their mean.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where.
    stream : Stream
        Of a run that has read something.
    """
    time = time_unit(stream.end.max())
    steps = np.linspace(min(stream.start.min(), 0), stream.end.max(), STEPS + 1)
    rate = np.diff(accumulated(stream.start, stream.end, stream.bytes, steps)) / np.diff(steps)
    mean = stream.bytes.sum() / (steps[-1] - steps[0])
    unit = rate_unit(rate.max())
    colour = WORKING[1].colour
    _fill(axes, rate * unit.factor, steps * time.factor, 0, colour)
    axes.axhline(mean * unit.factor, color=INK, linewidth=0.8, linestyle="--")
    axes.annotate(
        f"mean {mean * unit.factor:.3g} {unit.name}",
        (1, mean * unit.factor),
        (4, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        annotation_clip=False,
    )
    axes.set_xlim(steps[0] * time.factor, steps[-1] * time.factor)
    axes.set_ylim(0, None)
    axes.grid(axis="y", color=GRID)
    axes.set_xlabel(f"time since blocks were first dealt ({time.name})")
    axes.set_ylabel(f"read ({unit.name})")


def _fill(axes: Any, top: np.ndarray, edges: np.ndarray, below: Any, colour: str) -> None:
    axes.stairs(top, edges, baseline=below, fill=True, color=colour, linewidth=0)
