"""The figures of a run: which there are, and what is said about each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from paceline.report import over_time, per_worker
from paceline.report.clocks import on_one_clock
from paceline.report.drawing import STYLE
from paceline.report.naming import natural
from paceline.report.numbers import Report, report_of
from paceline.report.stream import stream_of
from paceline.timing import Timings

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
    together = per_worker.workers_a_bar(len(workers))
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
        partial(per_worker.draw_bars, workers=workers, slow=slow),
    )
    yield Drawing(
        "Parts of the time",
        "Mean over workers as a bar, the largest as a mark. Communicating goes on while the "
        "worker is at its next block.",
        2.3,
        partial(per_worker.draw_components, report=report),
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
