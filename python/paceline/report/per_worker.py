"""Figures of what workers did in all: stacked bars for each, and means and maxima over them."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from paceline.report.drawing import add_legend, draw_boxes, name_workers, time_unit
from paceline.report.numbers import Report
from paceline.report.parts import COMMUNICATING, INK, WAITING, WORKING
from paceline.report.wording import number
from paceline.timing import WorkerTiming

#: Bars that can be told apart; more workers than that are drawn in groups of neighbours.
BARS = 200
#: Room for so many bars at least, so that one of one worker is not a wall.
LEAST_ROOM = 12

_STACKED = (*WORKING, WAITING)


def workers_a_bar(n_workers: int) -> int:
    """How many neighbouring workers are drawn as one bar.

    Parameters
    ----------
    n_workers : int
        Of the run.

    Returns
    -------
    int
        1, unless there are too many.
    """
    return -(-n_workers // BARS) or 1


def draw_bars(axes: Any, workers: Sequence[WorkerTiming], slow: Collection[str]) -> None:
    """Draw a stacked bar a worker, as in Khoshlessan et al. 2020, Fig. 2d.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where.
    workers : sequence of WorkerTiming
        By host and number.
    slow : collection of str
        Names of stragglers.
    """
    together = workers_a_bar(len(workers))
    parts = np.array([[getattr(one, part.quantity) for part in _STACKED] for one in workers])
    first = np.arange(0, len(workers), together)
    members = np.diff(np.append(first, len(workers)))
    means = np.add.reduceat(parts, first) / members[:, None]
    longest = np.maximum.reduceat(parts[:, : len(WORKING)].sum(axis=1), first)
    unit = time_unit(means.sum(axis=1).max())
    tops = np.cumsum(means, axis=1) * unit.factor
    margin = 0.1 if together == 1 and len(workers) <= BARS / 2 else 0
    left, right = first + 0.5 + margin, first + members + 0.5 - margin
    for k, part in enumerate(_STACKED):
        draw_boxes(axes, left, right, tops[:, k - 1] if k else 0 * left, tops[:, k], part)
    more = []
    if together > 1:
        edges = np.append(first, len(workers)) + 0.5
        label = f"slowest of each {together}"
        more.append(
            axes.stairs(longest * unit.factor, edges, color=INK, linewidth=0.8, label=label)
        )
    slow_ones = np.array([worker.worker in slow for worker in workers])
    if slow_ones.any():
        at = np.flatnonzero(slow_ones) + 1
        height = np.full(len(at), tops[:, -1].max() * 1.03)
        more += axes.plot(at, height, "v", color=INK, markersize=4, label="straggler")
    seen = [part for part, took in zip(_STACKED, parts.T, strict=True) if took.any()]
    add_legend(axes, seen, *more)
    spare = max(LEAST_ROOM - len(workers), 0) / 2
    axes.set_xlim(0.4 - spare, len(workers) + 0.6 + spare)
    axes.set_ylim(0, tops[:, -1].max() * 1.07)
    axes.grid(axis="y")
    axes.set_xlabel("worker")
    axes.set_ylabel(f"time ({unit.name})")
    name_workers(axes.xaxis, [worker.worker for worker in workers])


def draw_components(axes: Any, report: Report) -> None:
    """Draw mean and maximum over workers of each part of their time.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where.
    report : Report
        Of a run that took time.
    """
    over = {part: report.over_workers[part.quantity] for part in (*_STACKED, COMMUNICATING)}
    parts = [part for part, spread in over.items() if spread.most]
    means = np.array([over[part].mean for part in parts])
    maxima = np.array([over[part].most for part in parts])
    unit = time_unit(maxima.max())
    means, maxima = means * unit.factor, maxima * unit.factor
    places = np.arange(len(parts))
    axes.barh(places, means, 0.62, color=[part.colour for part in parts])
    axes.hlines(places, means, maxima, color=INK, linewidth=0.8)
    axes.plot(maxima, places, "|", color=INK, markersize=8)
    for place, mean, most in zip(places, means, maxima, strict=True):
        text = number(mean)
        if report.n_workers > 1:
            text += f"  (max {number(most)})"
        axes.annotate(text, (most, place), (6, 0), textcoords="offset points", va="center")
    axes.set_yticks(places, [part.label for part in parts])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, (maxima.max() or 1) * 1.2)
    axes.grid(axis="x")
    axes.set_xlabel(f"time of a worker ({unit.name}): mean as a bar, maximum as a mark")
