"""Figures over time: a task stream, what all workers are at, and how fast they read."""

from itertools import pairwise
from typing import Any

import numpy as np

from paceline.report.drawing import add_legend, draw_boxes, name_workers, rate_unit, time_unit
from paceline.report.naming import short_names
from paceline.report.parts import COMMUNICATING, GRID, INK, WAITING, WORKING
from paceline.report.stream import Stream, accumulated
from paceline.timing.records import host_of

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
