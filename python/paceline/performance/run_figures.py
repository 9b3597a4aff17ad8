"""Figures of a run: bars per worker, components, a task stream, and curves over time."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.performance.figure_style_and_elements import (
    GRID,
    INK,
    STYLE,
    add_legend,
    draw_boxes,
    name_workers,
    rate_unit,
    styled,
    time_unit,
)
from paceline.performance.number_format import natural, number, short_names
from paceline.performance.record import (
    COMM,
    READ,
    WAIT,
    WALL_TIME,
    WORKING,
    Columns,
    Component,
    RunTimings,
    WorkerTiming,
    host_of,
)
from paceline.performance.time_breakdown_and_stragglers import Report, report_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Width of a figure, inches.
WIDTH = 8.5
#: Maximum number of distinguishable bars; if there are more workers, a bar is a group of them.
BARS = 200
#: Maximum number of bars of a histogram.
BINS = 30
#: Space is reserved for at least this number of bars, so that a single bar is not too wide.
LEAST_BARS = 12
#: Space is reserved for at least this number of rows, so that a single row is not too high.
LEAST_ROWS = 4
#: Maximum number of rows in a task stream. If there are more workers, the slowest, the middle and
#: the fastest ones are drawn.
ROWS = 36
#: Maximum number of blocks in a task stream that are drawn one by one. If there are more, the
#: stream is dense: it shows the fractions of components in equal parts of the run's time.
BLOCKS = 1500
#: Number of equal parts into which a dense task stream divides the time of a run.
STREAM_STEPS = 300
#: Number of equal parts into which a curve divides the time of a run.
STEPS = 120
#: Number of coloured pixel lines in a row of a dense task stream.
LINES = 24


@dataclass(frozen=True)
class Drawing:
    """Figure of a run: its texts, its height, and the function that draws it."""

    #: Title of the figure, a few words.
    title: str
    #: Explanation of the figure, including omitted or grouped workers.
    caption: str
    #: Height, inches.
    height: float
    #: Function that draws the figure into `matplotlib.axes.Axes`.
    draw: "Callable[[Axes], None]"

    def figure(self, width: float = WIDTH) -> "Figure":
        """Return this figure alone, drawn without its title; `width` is in inches."""
        from matplotlib.figure import Figure

        with styled(STYLE):
            figure = Figure(figsize=(width, self.height), layout="constrained")
            self.draw(figure.subplots())
        return figure


def drawings_of(timings: RunTimings, report: Report) -> list[Drawing]:
    """Return the figures for which the run has data."""
    if not any(spread.most for spread in report.over_workers.values()):
        return []
    return [*_per_worker(report), *_over_time(timings)]


def figure_of(timings: RunTimings) -> "Figure":
    """Draw all figures of a run below each other, as one figure."""
    from matplotlib.figure import Figure

    drawings = drawings_of(timings, report_of(timings))
    with styled(STYLE):
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
    together = workers_per_bar(len(workers))
    caption = "Time of each worker by component, until the last worker was done."
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
        "Mean over workers as a bar, maximum as a mark. Communication overlaps with the worker's "
        "next block.",
        2.3,
        partial(draw_components, report=report),
    )

    if len(workers) > 1:
        yield Drawing(
            "Tasks of a worker",
            "How many workers did how many blocks. Where blocks are dealt, slow workers do fewer.",
            1.9,
            partial(draw_histogram, workers=workers),
        )


def _over_time(timings: RunTimings) -> Iterator[Drawing]:
    timeline = timeline_of(timings)
    n_rows, n_workers = len(rows_of(timeline)), len(timeline.workers)
    caption = "One row per worker with its blocks; in each block, the components in order."
    if n_rows < n_workers:
        caption += (
            f" Of {n_workers:,} workers, the figure shows the {n_rows // 3} with the longest time "
            f"per frame, {n_rows // 3} in the middle and the {n_rows // 3} fastest."
        )
    if is_dense(timeline):
        caption += (
            " There are too many blocks to draw each: a row shows, for each time step, the "
            "fractions of its components."
        )
    yield Drawing(
        "Task stream",
        caption,
        0.9 + 0.13 * max(n_rows, 4),
        partial(draw_stream, timeline=timeline),
    )
    if n_rows < n_workers:
        yield Drawing(
            "All workers over time",
            "Number of workers in each component over time; the other workers waited.",
            2.2,
            partial(draw_activity, timeline=timeline),
        )
    if timeline.bytes.any():
        yield Drawing(
            "Read rate",
            "Bytes read from the file by all workers together. Only the sum for each block is "
            "known: "
            "it is spread evenly over the block's time.",
            1.8,
            partial(draw_read_rate, timeline=timeline),
        )


def workers_per_bar(n_workers: int) -> int:
    """Return the number of adjacent workers that are drawn as one bar."""
    return -(-n_workers // BARS) or 1


def draw_bars(axes: "Axes", workers: Sequence[WorkerTiming], slow: Collection[str]) -> None:
    """Draw a stacked bar per worker, as in Khoshlessan et al. 2020, Fig. 2d."""
    together = workers_per_bar(len(workers))
    parts = np.array([[part.of(one) for part in WALL_TIME] for one in workers])
    first = np.arange(0, len(workers), together)
    members = np.diff(np.append(first, len(workers)))
    means = np.add.reduceat(parts, first) / members[:, None]
    longest = np.maximum.reduceat(parts[:, : len(WORKING)].sum(axis=1), first)
    unit = time_unit(means.sum(axis=1).max())
    tops = np.cumsum(means, axis=1) * unit.factor
    margin = 0.1 if together == 1 and len(workers) <= BARS / 2 else 0
    left, right = first + 0.5 + margin, first + members + 0.5 - margin
    for k, part in enumerate(WALL_TIME):
        draw_boxes(axes, left, right, tops[:, k - 1] if k else 0 * left, tops[:, k], part)
    more: list[Artist] = []
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
    seen = [part for part, took in zip(WALL_TIME, parts.T, strict=True) if took.any()]
    add_legend(axes, seen, *more)
    spare = max(LEAST_BARS - len(workers), 0) / 2
    axes.set_xlim(0.4 - spare, len(workers) + 0.6 + spare)
    axes.set_ylim(0, tops[:, -1].max() * 1.07)
    axes.grid(axis="y")
    axes.set_xlabel("worker")
    axes.set_ylabel(f"time ({unit.name})")
    name_workers(axes.xaxis, [worker.worker for worker in workers])


def draw_histogram(axes: "Axes", workers: Sequence[WorkerTiming]) -> None:
    """Draw how many workers did how many blocks, as in Khoshlessan et al. 2017, Table 1."""
    counts = np.array([worker.n_blocks for worker in workers])
    width = max(1, -(-int(np.ptp(counts) + 1) // BINS))
    edges = np.arange(counts.min(), counts.max() + width + 1, width) - 0.5
    axes.hist(counts, edges.tolist(), color=INK, alpha=0.6, rwidth=0.9)
    spare = max(LEAST_BARS - len(edges) + 1, 0) * width / 2
    axes.set_xlim(edges[0] - spare, edges[-1] + spare)
    axes.locator_params(integer=True)
    axes.grid(axis="y")
    axes.set_xlabel("blocks of a worker")
    axes.set_ylabel("workers")


def draw_components(axes: "Axes", report: Report) -> None:
    """Draw mean and maximum over workers for each component of their time."""
    over = {part: report.over_workers[part.quantity] for part in (*WALL_TIME, COMM)}
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


@dataclass(frozen=True)
class Timeline:
    """Blocks and unused attempts of a run as arrays, with one element for each.

    An unused attempt is an attempt at a block whose result was not used. The descriptions of the
    fields call it a block, too.
    """

    #: Names of workers, sorted by host and number.
    workers: list[str]
    #: Index in `workers` of each block's worker, int, shape (n_blocks,).
    row: np.ndarray
    #: Start and end of each block, s since blocks were first assigned, float, shape (n_blocks,).
    start: np.ndarray
    end: np.ndarray
    #: Duration of each component in `record.WORKING`, s, float, shape (n_parts, n_blocks). For an
    #: attempt whose result was not used, all are 0 except the last, `ABANDONED`.
    parts: np.ndarray
    #: Time from `end` until the results were stored, s, float, shape (n_blocks,).
    comm: np.ndarray
    #: Number of frames in each block, int, shape (n_blocks,).
    frames: np.ndarray
    #: Number of bytes read for each block, 0 if its result was not used, int, shape (n_blocks,).
    bytes: np.ndarray

    def __len__(self) -> int:
        return len(self.row)

    @property
    def kinds(self) -> list[Component]:
        """Components that take time in any block."""
        return [part for part, took in zip(WORKING, self.parts, strict=True) if took.any()]

    @property
    def borders(self) -> np.ndarray:
        """Start of each component in each block, and end of the last one, s.

        The shape is (n_parts + 1, n_blocks).
        """
        return np.vstack((self.start, self.start + np.cumsum(self.parts, axis=0)))


def timeline_of(timings: RunTimings) -> Timeline:
    """Convert the blocks and unused attempts of a run to arrays."""
    lost = [attempt.timing for attempt in timings.abandoned if attempt.timing.worker]
    columns, counted = Columns([*timings.blocks, *lost]), len(timings.blocks)
    workers = sorted(columns.workers, key=natural)
    rows = {worker: row for row, worker in enumerate(workers)}
    row = np.array([rows[worker] for worker in columns.workers], dtype=int)[columns.worker]
    start, end = ((columns[name] - timings.dealt) / 1e9 for name in ("start", "end"))
    parts = np.zeros((len(WORKING), len(row)))
    for k, part in enumerate(WORKING[:-1]):
        parts[k, :counted] = np.maximum(columns[part.attribute][:counted], 0) / 1e9
    # Cut off attempts at the end of the last used block, because the run has ended then.
    last = max(end[:counted].max(initial=0), 0)
    end[counted:] = np.clip(last, start[counted:], end[counted:])
    parts[-1, counted:] = (end - start)[counted:]
    read = columns["bytes"].copy()
    read[counted:] = 0
    return Timeline(
        workers, row, start, end, parts, columns["comm"] / 1e9, columns["n_frames"], read
    )


def cumulative_amount(
    start: np.ndarray, end: np.ndarray, amount: np.ndarray, at: np.ndarray
) -> np.ndarray:
    """Return the sum, at each time in `at`, of amounts that accrue evenly from `start` to `end`.

    Examples
    --------
    >>> from numpy import array
    >>> amounts, times = array([4.0, 8.0]), array([1.0, 2.0, 9.0])
    >>> cumulative_amount(array([0.0, 1.0]), array([2.0, 3.0]), amounts, times)
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


def rows_of(timeline: Timeline) -> np.ndarray:
    """Indices of the drawn workers: all, or the slowest, middle and fastest by time per frame."""
    n_workers = len(timeline.workers)
    if n_workers <= ROWS:
        return np.arange(n_workers)
    work = np.bincount(timeline.row, timeline.end - timeline.start, n_workers)
    frames = np.bincount(timeline.row, timeline.frames, n_workers)
    order = np.argsort(-work / np.maximum(frames, 1), kind="stable")
    third, middle = ROWS // 3, (n_workers - ROWS // 3) // 2
    return np.concatenate((order[:third], order[middle : middle + third], order[-third:]))


def is_dense(timeline: Timeline) -> bool:
    """Return True if the drawn workers have too many blocks to distinguish them."""
    return bool(np.isin(timeline.row, rows_of(timeline)).sum() > BLOCKS)


def draw_stream(axes: "Axes", timeline: Timeline) -> None:
    """Draw one row per worker, with its blocks coloured by component."""
    rows = rows_of(timeline)
    unit = time_unit(timeline.end.max())
    place = np.full(len(timeline.workers), -1)
    place[rows] = np.arange(len(rows))
    if is_dense(timeline):
        _paint(axes, timeline, rows, unit.factor)
        add_legend(axes, timeline.kinds)
    else:
        _draw_blocks(axes, timeline, place[timeline.row], unit.factor)
        add_legend(axes, (*timeline.kinds, COMM))
    axes.set_xlim(min(timeline.start.min(), 0) * unit.factor, timeline.end.max() * unit.factor)
    spare = max(LEAST_ROWS - len(rows), 0) / 2
    axes.set_ylim(len(rows) + 0.6 + spare, 0.4 - spare)
    axes.set_xlabel(f"time since blocks were first assigned ({unit.name})")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    if len(rows) == len(timeline.workers):
        axes.set_ylabel("worker")
        name_workers(axes.yaxis, timeline.workers)
    else:
        _name_chosen(axes, timeline, rows)


def _draw_blocks(axes: "Axes", timeline: Timeline, place: np.ndarray, factor: float) -> None:
    """Draw each block as consecutive boxes, one for each component."""
    drawn = place >= 0
    top, borders = place[drawn] + 0.62, timeline.borders[:, drawn] * factor
    for part, left, right in zip(WORKING, borders[:-1], borders[1:], strict=True):
        draw_boxes(axes, left, right, top, top + 0.66, part)
    # Communication is drawn below the row, because the worker may already process its next block.
    left, right = timeline.end[drawn] * factor, (timeline.end + timeline.comm)[drawn] * factor
    draw_boxes(axes, left, right, top + 0.66, top + 0.76, COMM)
    # Mark the start of each block, so that consecutive blocks can be distinguished.
    x = np.repeat(borders[0], 3)
    y = np.stack((top - 0.08, top + 0.66, np.full(len(top), np.nan)), axis=-1).ravel()
    axes.plot(x, y, color=INK, linewidth=0.4)


def _paint(axes: "Axes", timeline: Timeline, rows: np.ndarray, factor: float) -> None:
    """Draw one image: for each worker and part of the time, the fractions of the components."""
    from matplotlib.colors import to_rgba

    colours = np.array([to_rgba(part.colour) for part in WORKING] + [(0, 0, 0, 0)])
    steps = np.linspace(min(timeline.start.min(), 0), timeline.end.max(), STREAM_STEPS + 1)
    heights = ((np.arange(LINES) + 0.5) / LINES)[:, None] * (steps[1] - steps[0])
    # A quarter of each row is left empty, so that rows can be distinguished.
    picture = np.zeros((len(rows), LINES + LINES // 4, STREAM_STEPS, 4))
    for place, row in enumerate(rows):
        borders = timeline.borders[:, timeline.row == row]
        spent = [
            np.diff(cumulative_amount(left, right, right - left, steps))
            for left, right in pairwise(borders)
        ]
        part = sum((heights > tops).astype(int) for tops in np.cumsum(spent, axis=0))
        picture[place, :LINES] = colours[part]
    extent = (steps[0] * factor, steps[-1] * factor, len(rows) + 0.6, 0.6)
    lines = picture.reshape(-1, STREAM_STEPS, 4)
    axes.imshow(lines, extent=extent, aspect="auto", interpolation="none")


def _name_chosen(axes: "Axes", timeline: Timeline, rows: np.ndarray) -> None:
    """Label the drawn workers with host and number, and their groups as slowest to fastest."""
    hosts = [host_of(timeline.workers[row]) for row in rows]
    names = short_names(list(dict.fromkeys(hosts)))
    labels = [f"{names[host]} · {row + 1}" for host, row in zip(hosts, rows, strict=True)]
    axes.set_yticks(np.arange(len(rows)) + 1, labels, fontsize=6)
    third = len(rows) // 3
    for k, why in enumerate(("slowest", "in the middle", "fastest")):
        middle = 1 - (k * third + (third + 1) / 2 - 0.4) / (len(rows) + 0.2)
        axes.text(1.01, middle, why, transform=axes.transAxes, rotation=270, va="center", ha="left")
        if k:
            axes.axhline(k * third + 0.5, color=INK, linewidth=0.6)


def draw_activity(axes: "Axes", timeline: Timeline) -> None:
    """Draw the numbers of busy workers (by component) and of waiting workers over time."""
    unit = time_unit(timeline.end.max())
    steps = np.linspace(min(timeline.start.min(), 0), timeline.end.max(), STEPS + 1)
    borders = timeline.borders
    below = np.zeros(STEPS)
    for part, left, right in zip(WORKING, borders[:-1], borders[1:], strict=True):
        at_it = np.diff(cumulative_amount(left, right, right - left, steps)) / np.diff(steps)
        _fill(axes, below + at_it, steps * unit.factor, below, part.colour)
        below = below + at_it
    everybody = np.full(STEPS, len(timeline.workers))
    _fill(axes, everybody, steps * unit.factor, below, WAIT.colour)
    add_legend(axes, (*timeline.kinds, WAIT))
    axes.set_xlim(steps[0] * unit.factor, steps[-1] * unit.factor)
    axes.set_ylim(0, len(timeline.workers))
    axes.set_xlabel(f"time since blocks were first assigned ({unit.name})")
    axes.set_ylabel("workers")


def draw_read_rate(axes: "Axes", timeline: Timeline) -> None:
    """Draw bytes read per second by all workers over time, and their mean."""
    time = time_unit(timeline.end.max())
    steps = np.linspace(min(timeline.start.min(), 0), timeline.end.max(), STEPS + 1)
    rate = np.diff(
        cumulative_amount(timeline.start, timeline.end, timeline.bytes, steps)
    ) / np.diff(steps)
    mean = timeline.bytes.sum() / (steps[-1] - steps[0])
    unit = rate_unit(rate.max())
    colour = READ.colour
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
    axes.set_xlabel(f"time since blocks were first assigned ({time.name})")
    axes.set_ylabel(f"read ({unit.name})")


def _fill(axes: "Axes", top: np.ndarray, edges: np.ndarray, below: Any, colour: str) -> None:
    axes.stairs(top, edges, baseline=below, fill=True, color=colour, linewidth=0)
