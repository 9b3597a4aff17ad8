"""Figures of measured and predicted scaling."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline._util.files import escaped, new_file
from paceline.contract.figure_options import FigureOptions
from paceline.performance.figure_style_and_elements import FIGURE_STYLE, styled, write_figure
from paceline.performance.model import Prediction
from paceline.performance.record import (
    ABANDONED,
    AROUND,
    AT_BLOCKS,
    COMPUTE,
    DECODE,
    READ,
    STARTUP,
    WAIT,
    Component,
)
from paceline.performance.scaling_benchmark import (
    COMMAND,
    TOTAL,
    Point,
    ScalingRun,
    Statistics,
    column_of,
    points,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Waiting, in a darker colour than in reports, because it is drawn as a line.
_WAIT = replace(WAIT, colour="#5b6770")
#: Components within blocks, by column of the scaling table.
IN_TASK = {column_of(part): part for part in AT_BLOCKS}
SCHEDULER = {column_of(part): part for part in (ABANDONED, STARTUP, _WAIT, AROUND)}
#: Components whose label and colour the attributes of a `Prediction` get in figures.
PREDICTED = {
    "t_start": STARTUP,
    "t_io": READ,
    "t_decode": DECODE,
    "t_comp": COMPUTE,
    "t_wait": _WAIT,
}
#: Colours of compared curves: Okabe and Ito's palette, which colour-blind readers can distinguish.
CYCLE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
#: Components below this fraction of the total time, at every number of workers, are left out.
NEGLIGIBLE = 0.01
#: Default width of the figure of measured runs, inches.
WIDTH = 7.2
#: Height of the panels of strong scaling, or of weak scaling, inches.
HEIGHT = 4.6

#: Predictions, in ascending order of their numbers of workers, by schedule and layout.
Curves = Mapping[tuple[str, str], Sequence[Prediction]]


def draw_runs(
    runs: Sequence[ScalingRun], *, title: str, cpus: int, options: FigureOptions | None = None
) -> "Figure":
    """Draw runs of one backend: total time, speed-up, efficiency, and components of the time.

    Strong and weak scaling have separate panels. Error bars are standard deviations over repeats.
    """
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    modes = list(dict.fromkeys(run.mode for run in runs))
    options = options or FigureOptions()
    with styled(FIGURE_STYLE, options.style):
        size = options.inches(float(rcParams["savefig.dpi"])) or (WIDTH, HEIGHT * len(modes))
        figure = Figure(figsize=size)
        figure.suptitle(escaped(title), fontsize=8)
        for part, mode in zip(
            figure.subfigures(len(modes), squeeze=False)[:, 0], modes, strict=True
        ):
            _draw_mode(part, mode, points([run for run in runs if run.mode == mode]), cpus)
    return figure


def save_figure(figure: "Figure", path: str | os.PathLike, *, overwrite: bool = False) -> None:
    """Write a figure in the format of the file name's extension."""
    with (
        styled(FIGURE_STYLE),
        new_file(path, overwrite=overwrite, binary=True) as file,
    ):
        write_figure(figure, file, Path(path).suffix[1:].lower())


def draw_predictions(curves: Curves) -> "Figure":
    """Draw `t_total` against the number of workers; for a single curve, also its components."""
    from matplotlib.figure import Figure

    with styled({**FIGURE_STYLE, "figure.figsize": (4.5, 3.2)}):
        figure = Figure()
        _draw_curves(curves, figure.subplots())
    return figure


def _draw_curves(curves: Curves, axes: "Axes") -> None:
    """Draw predictions into axes with logarithmic scales."""
    first = next(iter(curves.values()))
    workers = [one.n_workers for one in first]
    ideal = [first[0].t_total * first[0].n_workers / n for n in workers]
    lowest = ideal[-1] / 10
    axes.plot(workers, ideal, color="0.5", linestyle=":", label="perfect scaling")
    if len(curves) == 1:
        axes.plot(workers, [one.t_total for one in first], color="black", label="t_total")
        for name, part in PREDICTED.items():
            times = [getattr(one, name) for one in first]
            if max(times) > lowest:
                axes.plot(workers, times, color=part.colour, label=part.label)
    else:
        for k, ((schedule, layout), found) in enumerate(curves.items()):
            style = "--" if schedule == "static" else "-"
            axes.plot(
                [one.n_workers for one in found],
                [one.t_total for one in found],
                color=CYCLE[k % len(CYCLE)],
                linestyle=style,
                label=f"{schedule}, {layout}",
            )
    axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="predicted time (s)")
    axes.set_ylim(bottom=lowest)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower left", bbox_to_anchor=(1, 0), frameon=False)


def _draw_mode(figure: "Figure", mode: str, some: Sequence[Point], cpus: int) -> None:
    """Draw the six panels of a mode ("strong" or "weak"): four of curves, one of bars, one legend.

    `cpus` is the number of CPUs; a line marks it if there are more workers.
    """
    panels = figure.subplots(2, 3)
    total, speed_up, efficiency, parts, bars, legend = panels.flat
    lines = _draw_total(total, mode, some)
    _draw_ratios(speed_up, some, "speed-up", "scaled speed-up" if mode == "weak" else "speed-up")
    _draw_ratios(efficiency, some, "efficiency", "efficiency")
    shown = _worth_showing(some)
    most = _draw_parts(parts, some, shown)
    boxes = _draw_bars(bars, some, shown)
    for axes in (total, speed_up, efficiency, parts):
        _ticks_at(axes, [point.workers for point in some])
        if some[-1].workers > cpus:
            limit = axes.axvline(cpus, color="0.8", linewidth=0.8, zorder=0)
            lines[f"all {cpus} CPUs"] = limit
    for letter, axes in zip("abcde", panels.flat, strict=False):
        axes.set_title(f"{letter}", loc="left", fontweight="bold", fontsize=9)
        axes.set_xlabel("workers")
        axes.spines[["top", "right"]].set_visible(False)
    total.set_title(f"{mode} scaling", fontsize=8)
    _draw_legend(legend, {**lines, **boxes, "worker with most of it": most}, some)


def _draw_total(axes: "Axes", mode: str, some: Sequence[Point]) -> dict[str, Any]:
    """Draw the times of the run and of the whole command; return the lines by name."""
    counts = [point.workers for point in some]
    lines = {
        name: _curve(axes, counts, [one.columns[column] for one in some], style, _colour_of(column))
        for name, column, style in (("the run", TOTAL, "o-"), ("the whole command", COMMAND, "s--"))
    }
    first = some[0].columns[TOTAL].mean
    ideal = [first * (counts[0] / n if mode == "strong" else 1.0) for n in counts]
    name = "ideal" if counts[0] == 1 else f"ideal, of {counts[0]} workers"
    (lines[name],) = axes.plot(counts, ideal, ":", color="0.5")
    axes.set_yscale("log")
    _plain_seconds(axes)
    axes.set_ylabel("time (s)")
    return lines


def _draw_ratios(axes: "Axes", some: Sequence[Point], name: str, title: str) -> None:
    counts = [point.workers for point in some]
    for prefix, column, style in (("", TOTAL, "o-"), ("command ", COMMAND, "s--")):
        spreads = [point.columns[f"{prefix}{name}"] for point in some]
        _curve(axes, counts, spreads, style, _colour_of(column))
    if name == "speed-up":
        axes.plot(counts, counts, ":", color="0.5")
        _ticks_at(axes, counts, "y")
    else:
        axes.axhline(1, linestyle=":", color="0.5")
        axes.set_ylim(bottom=0)
    axes.set_ylabel(title)


def _draw_parts(axes: "Axes", some: Sequence[Point], shown: Mapping[str, Component]) -> Any:
    """Draw each component: the mean over workers, and the maximum as a thin line.

    Returns a thin line for the legend.
    """
    counts = [point.workers for point in some]
    for column, part in shown.items():
        # A logarithmic axis has no position for 0.
        kept = [one for one in some if one.columns[column].mean > 0]
        spreads = [one.columns[column] for one in kept]
        _curve(axes, [one.workers for one in kept], spreads, "o-", part.colour)
        most = column.replace("mean", "max")
        if most != column:
            values = [point.columns[most].mean or float("nan") for point in some]
            axes.plot(counts, values, color=part.colour, linewidth=0.5)
    axes.set_yscale("log")
    _plain_seconds(axes)
    axes.set_ylabel("time of a worker (s)")
    (thin,) = axes.plot([], [], color="k", linewidth=0.5)
    return thin


def _draw_bars(
    axes: "Axes", some: Sequence[Point], shown: Mapping[str, Component]
) -> dict[str, Any]:
    """Draw stacked mean components and the mean total time for each number of workers.

    Returns the boxes by name of the component, for the legend.
    Components of the scheduler are hatched.
    """
    positions, boxes = range(len(some)), {}
    below = [0.0] * len(some)
    for column, part in shown.items():
        values = [max(point.columns[column].mean, 0.0) for point in some]
        where, hatch = ("scheduler", "////") if column in SCHEDULER else ("in task", None)
        boxes[f"{part.label} ({where})"] = axes.bar(
            positions,
            values,
            bottom=below,
            color=part.colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.3,
        )
        below = [a + b for a, b in zip(below, values, strict=True)]
    totals = [point.columns[TOTAL] for point in some]
    spread = [one.sd for one in totals]
    axes.errorbar(positions, [one.mean for one in totals], spread, fmt="none", color="k", capsize=2)
    axes.set_xticks(positions, [f"{point.workers}" for point in some])
    axes.set_ylabel("time of a worker (s)")
    return boxes


def _draw_legend(axes: "Axes", named: Mapping[str, Any], some: Sequence[Point]) -> None:
    n = max(point.columns[TOTAL].n for point in some)
    title = f"mean and standard deviation of {n}" if n > 1 else "one run each: no error bars"
    axes.axis("off")
    axes.legend(
        *(list(named.values()), list(named)),
        title=title,
        alignment="left",
        loc="center left",
        frameon=False,
        fontsize=7,
        title_fontsize=7,
        borderaxespad=0,
    )


def _worth_showing(some: Sequence[Point]) -> dict[str, Component]:
    """Return the components that are not negligible, by column."""
    return {
        column: part
        for column, part in {**IN_TASK, **SCHEDULER}.items()
        if any(
            point.columns[column].mean > NEGLIGIBLE * point.columns[TOTAL].mean for point in some
        )
    }


def _colour_of(column: str) -> str:
    return "k" if column == TOTAL else "0.45"


def _curve(
    axes: "Axes", counts: Sequence[int], spreads: Sequence[Statistics], style: str, colour: str
) -> Any:
    """Draw a curve of means with standard deviations as error bars; return its line."""
    means, sds = [spread.mean for spread in spreads], [spread.sd for spread in spreads]
    line, *_ = axes.errorbar(counts, means, sds, fmt=style, color=colour, markersize=3, capsize=2)
    return line


def _ticks_at(axes: "Axes", counts: Sequence[int], which: str = "x") -> None:
    """Make an axis logarithmic, with ticks at the measured numbers of workers only."""
    from matplotlib.ticker import NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log", base=2)
    axis.set_ticks(counts, [f"{n}" for n in counts])
    axis.set_minor_locator(NullLocator())


def _plain_seconds(axes: "Axes") -> None:
    """Format a time axis in plain notation, with ticks at powers of ten.

    Axes of less than two decades also have ticks at 2 and 5 times the powers of ten.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator

    least, most = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if most < 100 * least else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
