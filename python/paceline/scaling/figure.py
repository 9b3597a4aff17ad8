"""The figure of a scaling measurement."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline._util.files import new_file
from paceline.analysis.results import FIGURE_STYLE
from paceline.performance.components import COLOURS
from paceline.scaling.measure import Point, ScalingRun, Spread, points

#: Parts of a worker's time: column, name and colour, in task and out of it. What reports do not
#: tell apart, or show as bars alone, has a colour of its own.
IN_TASK = {
    "t_io mean (s)": ("read", COLOURS["read"]),
    "t_decode mean (s)": ("decode", COLOURS["decode"]),
    "t_transform mean (s)": ("transform", COLOURS["transform"]),
    "t_compute mean (s)": ("compute", COLOURS["compute"]),
    "t_open mean (s)": ("open", COLOURS["open"]),
    "t_overhead mean (s)": ("rest", COLOURS["rest"]),
}
SCHEDULER = {
    "t_abandoned mean (s)": ("abandoned", COLOURS["abandoned"]),
    "t_startup mean (s)": ("start-up", "#d55e00"),
    "t_wait mean (s)": ("wait", "#7f3c8d"),
    "t_around (s)": ("plan, collect", "#000000"),
}
#: Parts that are less than this of the total at every number of workers are left out.
NEGLIGIBLE = 0.01
#: Inches: the width of a page, and the height of one mode's panels.
WIDTH, HEIGHT = 7.2, 4.6


def draw(runs: Sequence[ScalingRun], *, title: str, cpus: int) -> Any:
    """Draw total time, speed-up, efficiency and what the time went to.

    Parameters
    ----------
    runs : sequence of ScalingRun
        Of one backend; each mode has panels of its own.
    title : str
        What was measured.
    cpus : int
        How many there are: more workers share them.

    Returns
    -------
    matplotlib.figure.Figure
        Error bars are standard deviations over repeats.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    modes = list(dict.fromkeys(run.mode for run in runs))
    with rc_context(FIGURE_STYLE):
        figure = Figure(figsize=(WIDTH, HEIGHT * len(modes)))
        figure.suptitle(title, fontsize=8)
        for part, mode in zip(
            figure.subfigures(len(modes), squeeze=False)[:, 0], modes, strict=True
        ):
            _draw_mode(part, mode, points([run for run in runs if run.mode == mode]), cpus)
    return figure


def save(figure: Any, path: str | os.PathLike, *, overwrite: bool = False) -> None:
    """Write a figure in the format that the name's ending tells.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.
    path : path-like
        Ending in .pdf, .png, .svg or another that matplotlib knows.
    overwrite : bool
        Whether an existing file may be replaced.

    Raises
    ------
    FileExistsError
        The file exists and is not to be overwritten.
    """
    from matplotlib import rc_context

    with (
        rc_context(FIGURE_STYLE),
        new_file(path, overwrite=overwrite, binary=True) as file,
    ):
        figure.savefig(file, format=Path(path).suffix[1:].lower())


def _draw_mode(figure: Any, mode: str, some: Sequence[Point], cpus: int) -> None:
    """Six panels: four curves, bars, and what their colours mean."""
    panels = figure.subplots(2, 3)
    total, speed_up, efficiency, parts, bars, legend = panels.flat
    _draw_total(total, mode, some)
    _draw_ratios(speed_up, some, "speed_up", "scaled speed-up" if mode == "weak" else "speed-up")
    _draw_ratios(efficiency, some, "efficiency", "efficiency")
    shown = _worth_showing(some)
    _draw_parts(parts, some, shown)
    _draw_bars(bars, some, shown)
    for axes in (total, speed_up, efficiency, parts):
        _ticks_at(axes, [point.workers for point in some])
        if some[-1].workers > cpus:
            axes.axvline(cpus, color="0.8", linewidth=0.8, zorder=0)
    for letter, axes in zip("abcde", panels.flat, strict=False):
        axes.set_title(f"{letter}", loc="left", fontweight="bold", fontsize=9)
        axes.set_xlabel("workers")
        axes.spines[["top", "right"]].set_visible(False)
    total.set_title(f"{mode} scaling", fontsize=8)
    _draw_legend(legend, some, shown, cpus)


def _draw_total(axes: Any, mode: str, some: Sequence[Point]) -> None:
    counts = [point.workers for point in some]
    for column, style in (("t_total (s)", "o-"), ("t_command (s)", "s--")):
        _curve(axes, counts, [point.columns[column] for point in some], style, _colour_of(column))
    first = some[0].columns["t_total (s)"].mean
    ideal = [first * (counts[0] / n if mode == "strong" else 1.0) for n in counts]
    axes.plot(counts, ideal, ":", color="0.5")
    axes.set_yscale("log")
    _plain_seconds(axes)
    axes.set_ylabel("time (s)")


def _draw_ratios(axes: Any, some: Sequence[Point], name: str, title: str) -> None:
    counts = [point.workers for point in some]
    for prefix, column, style in (("", "t_total (s)", "o-"), ("command_", "t_command (s)", "s--")):
        spreads = [getattr(point, f"{prefix}{name}") for point in some]
        _curve(axes, counts, spreads, style, _colour_of(column))
    if name == "speed_up":
        axes.plot(counts, counts, ":", color="0.5")
        _ticks_at(axes, counts, "y")
    else:
        axes.axhline(1, linestyle=":", color="0.5")
        axes.set_ylim(bottom=0)
    axes.set_ylabel(title)


def _draw_parts(axes: Any, some: Sequence[Point], shown: Mapping[str, tuple[str, str]]) -> None:
    """Each part of the mean worker's time; thin lines for the worker that has most of it."""
    counts = [point.workers for point in some]
    for column, (_, colour) in shown.items():
        spreads = [point.columns[column] for point in some]
        # A logarithmic axis has no place for nothing.
        kept = [(n, one) for n, one in zip(counts, spreads, strict=True) if one.mean > 0]
        _curve(axes, [n for n, _ in kept], [one for _, one in kept], "o-", colour)
        most = column.replace("mean", "max")
        if most != column:
            axes.plot(
                counts,
                [point.columns[most].mean or float("nan") for point in some],
                color=colour,
                linewidth=0.5,
            )
    axes.set_yscale("log")
    _plain_seconds(axes)
    axes.set_ylabel("time of a worker (s)")


def _draw_bars(axes: Any, some: Sequence[Point], shown: Mapping[str, tuple[str, str]]) -> None:
    """The same, added up to the total time: in task below, the scheduler's above."""
    places = range(len(some))
    below = [0.0] * len(some)
    for column, (_, colour) in shown.items():
        values = [max(point.columns[column].mean, 0.0) for point in some]
        hatch = "////" if column in SCHEDULER else None
        axes.bar(
            *(places, values),
            bottom=below,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.3,
        )
        below = [a + b for a, b in zip(below, values, strict=True)]
    totals = [point.columns["t_total (s)"] for point in some]
    spread = [one.sd for one in totals]
    axes.errorbar(places, [one.mean for one in totals], spread, fmt="none", color="k", capsize=2)
    axes.set_xticks(places, [f"{point.workers}" for point in some])
    axes.set_ylabel("time of a worker (s)")


def _draw_legend(
    axes: Any, some: Sequence[Point], shown: Mapping[str, tuple[str, str]], cpus: int
) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    ideal = "ideal" if some[0].workers == 1 else f"ideal, of {some[0].workers} workers"
    lines: list[Any] = [
        Line2D([], [], color=_colour_of("t_total (s)"), marker="o", markersize=3, label="the run"),
        Line2D(
            *([], []),
            color=_colour_of("t_command (s)"),
            marker="s",
            markersize=3,
            linestyle="--",
            label="the whole command",
        ),
        Line2D([], [], color="0.5", linestyle=":", label=ideal),
    ]
    if some[-1].workers > cpus:
        lines.append(Line2D([], [], color="0.8", linewidth=0.8, label=f"all {cpus} CPUs"))
    for column, (name, colour) in shown.items():
        out = column in SCHEDULER
        name = f"{name} (scheduler)" if out else f"{name} (in task)"
        lines.append(
            Patch(facecolor=colour, hatch="////" if out else None, edgecolor="w", label=name)
        )
    lines.append(Line2D([], [], color="k", linewidth=0.5, label="worker with most of it"))
    n = max(point.columns["t_total (s)"].n for point in some)
    title = f"mean ± standard deviation of {n}" if n > 1 else "one run each: no error bars"
    axes.axis("off")
    axes.legend(
        handles=lines,
        title=title,
        alignment="left",
        loc="center left",
        frameon=False,
        fontsize=7,
        title_fontsize=7,
        borderaxespad=0,
    )


def _worth_showing(some: Sequence[Point]) -> dict[str, tuple[str, str]]:
    """Parts that are not negligible."""
    return {
        column: how
        for column, how in {**IN_TASK, **SCHEDULER}.items()
        if any(
            point.columns[column].mean > NEGLIGIBLE * point.columns["t_total (s)"].mean
            for point in some
        )
    }


def _colour_of(column: str) -> str:
    return "k" if column == "t_total (s)" else "0.45"


def _curve(
    axes: Any, counts: Sequence[int], spreads: Sequence[Spread], style: str, colour: str
) -> None:
    axes.errorbar(
        counts,
        [spread.mean for spread in spreads],
        [spread.sd for spread in spreads],
        fmt=style,
        color=colour,
        markersize=3,
        capsize=2,
    )


def _ticks_at(axes: Any, counts: Sequence[int], which: str = "x") -> None:
    """Ticks at the numbers that were measured, of which each is about twice the one before."""
    from matplotlib.ticker import NullLocator

    getattr(axes, f"set_{which}scale")("log", base=2)
    getattr(axes, f"set_{which}ticks")(counts, [f"{n}" for n in counts])
    getattr(axes, f"{which}axis").set_minor_locator(NullLocator())


def _plain_seconds(axes: Any) -> None:
    """Seconds as people write them, and enough of them within a decade or two."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    least, most = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if most < 100 * least else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
