"""The figures of a run: which there are, and what is said about each."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from paceline.performance import timeline as over_time
from paceline.performance.components import COMMUNICATING, INK, WAITING, WORKING
from paceline.performance.figure_style import STYLE, add_legend, draw_boxes, name_workers, time_unit
from paceline.performance.metrics import Report, on_one_clock, report_of
from paceline.performance.records import WorkerTiming
from paceline.performance.text import natural, number
from paceline.performance.timeline import stream_of
from paceline.performance.timings import Timings

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


#: Width of a figure, inches.
WIDTH = 8.5


@dataclass(frozen=True)
class Drawing:
    """One figure.

    Attributes
    ----------
    title : str
        A few words.
    caption : str
        How to read it, and what was left out or put together.
    height : float
        Inches.
    draw : callable
        Draws it into `matplotlib.axes.Axes`.
    """

    title: str
    caption: str
    height: float
    draw: Callable[[Any], None]

    def figure(self) -> Any:
        """It alone.

        Returns
        -------
        matplotlib.figure.Figure
            Without the title.
        """
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        with rc_context(STYLE):
            figure = Figure(figsize=(WIDTH, self.height), layout="constrained")
            self.draw(figure.subplots())
        return figure


def drawings_of(timings: Timings, report: Report) -> list[Drawing]:
    """The figures that a run has the numbers for.

    Parameters
    ----------
    timings : Timings
        Of the run.
    report : Report
        Its numbers.

    Returns
    -------
    list of Drawing
        None where no block took any time.
    """
    if not any(spread.most for spread in report.over_workers.values()):
        return []
    return [*_per_worker(report), *_over_time(timings)]


def figure_of(timings: Timings) -> Any:
    """All figures of a run as one.

    Parameters
    ----------
    timings : Timings
        Of the run.

    Returns
    -------
    matplotlib.figure.Figure
        One below the other, with titles.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    timings, _ = on_one_clock(timings)
    drawings = drawings_of(timings, report_of(timings))
    with rc_context(STYLE):
        heights = [drawing.height + 0.35 for drawing in drawings]
        figure = Figure(figsize=(WIDTH, sum(heights) or 1), layout="constrained")
        if not drawings:
            figure.text(0.5, 0.5, "no block took any time", ha="center")
            return figure
        all_axes = figure.subplots(len(drawings), height_ratios=heights, squeeze=False)[:, 0]
        for axes, drawing in zip(all_axes, drawings, strict=True):
            drawing.draw(axes)
            axes.set_title(drawing.title, pad=20 if axes.get_legend() else 6)
    return figure


def _per_worker(report: Report) -> Iterator[Drawing]:
    workers = sorted(report.workers, key=lambda worker: natural(worker.worker))
    slow = {worker.worker for worker in report.stragglers}
    together = workers_a_bar(len(workers))
    caption = "What each worker spent its time on, until the last one was done."
    if together > 1:
        caption += (
            f" Each bar is the mean of {together} neighbouring workers of {len(workers):,}; the "
            "line is the longest time at work among them."
        )
    yield Drawing(
        "Time of each worker",
        caption,
        2.8,
        partial(draw_bars, workers=workers, slow=slow),
    )
    yield Drawing(
        "Parts of the time",
        "Mean over workers as a bar, the largest as a mark. Communicating goes on while the "
        "worker is at its next block.",
        2.3,
        partial(draw_components, report=report),
    )


def _over_time(timings: Timings) -> Iterator[Drawing]:
    stream = stream_of(timings)
    n_rows, n_workers = len(over_time.rows_of(stream)), len(stream.workers)
    caption = "A row a worker; its blocks, and in each the parts one after another."
    if n_rows < n_workers:
        caption += (
            f" Of {n_workers:,} workers the {n_rows // 3} with the longest time per frame, "
            f"{n_rows // 3} in the middle and the {n_rows // 3} fastest."
        )
    if over_time.is_dense(stream):
        caption += (
            " There are too many blocks to show each: a row is divided, at each moment, into the "
            "shares of its parts."
        )
    yield Drawing(
        "Task stream",
        caption,
        0.9 + 0.13 * max(n_rows, 4),
        partial(over_time.draw_stream, stream=stream),
    )
    if n_rows < n_workers:
        yield Drawing(
            "All workers over time",
            "How many workers were at each part at a time; the rest of them waited.",
            2.2,
            partial(over_time.draw_activity, stream=stream),
        )
    if stream.bytes.any():
        yield Drawing(
            "Read rate",
            "Bytes read from the file by all workers together. Only sums over a block are known: "
            "they are spread evenly over its time.",
            1.8,
            partial(over_time.draw_read_rate, stream=stream),
        )
