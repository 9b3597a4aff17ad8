"""Predictions as a table and as a figure."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paceline.analysis.results import FIGURE_STYLE, Table
from paceline.files import new_file
from paceline.model import Prediction
from paceline.report.parts import COLOURS

#: What a run's time consists of, and its colour; waiting is darker than in bars, to be seen.
PARTS = {
    "t_start": ("start", "0.6"),
    "t_open": ("open", COLOURS["open"]),
    "t_io": ("read", COLOURS["read"]),
    "t_decode": ("decode", COLOURS["decode"]),
    "t_comp": ("compute", COLOURS["compute"]),
    "t_wait": ("wait", "0.4"),
    "t_comm": ("collect", COLOURS["communicate"]),
}
#: Of curves that are compared: Okabe and Ito's, which most can tell apart.
CYCLE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")

Curves = Mapping[tuple[str, str], Sequence[Prediction]]


def table_of(curves: Curves) -> Table:
    """Columns of all predictions.

    Parameters
    ----------
    curves : mapping of (str, str) to sequence of Prediction
        By schedule and layout; the first of each is the one of which speed-up is told.

    Returns
    -------
    Table
        One row a prediction.
    """
    titles = ["schedule", "layout", "workers", "t_total (s)", "speed-up", "efficiency"]
    titles += [f"{part} (s)" for part in PARTS]
    columns: dict[str, list[Any]] = {title: [] for title in titles}
    for (schedule, layout), found in curves.items():
        first = found[0]
        for one in found:
            speed_up = first.n_workers * first.t_total / one.t_total
            times = [getattr(one, part) for part in PARTS]
            numbers = [one.t_total, speed_up, speed_up / one.n_workers, *times]
            # A prediction is not known to more digits than these.
            row = [schedule, layout, one.n_workers, *(float(f"{value:.4g}") for value in numbers)]
            for title, value in zip(titles, row, strict=True):
                columns[title].append(value)
    return Table(
        {title: np.array(values) for title, values in columns.items()},
        x="workers",
        y={"t_total (s)": "t_total"},
        y_label="t_total (s)",
    )


def save_curves(curves: Curves, path: str | os.PathLike, *, overwrite: bool = False) -> None:
    """Draw t_total against workers; of a single curve, its parts as well.

    Parameters
    ----------
    curves : mapping of (str, str) to sequence of Prediction
        By schedule and layout.
    path : path-like
        Ending in .pdf, .png, .svg or another that matplotlib knows.
    overwrite : bool
        Whether an existing file may be replaced.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({**FIGURE_STYLE, "figure.figsize": (4.5, 3.2)}):
        figure = Figure()
        axes = figure.subplots()
        draw_curves(curves, axes)
        with new_file(path, overwrite=overwrite, binary=True) as file:
            figure.savefig(file, format=Path(path).suffix[1:].lower())


def draw_curves(curves: Curves, axes: Any) -> None:
    """Draw into axes that are there.

    Parameters
    ----------
    curves : mapping of (str, str) to sequence of Prediction
        By schedule and layout.
    axes : matplotlib.axes.Axes
        Become logarithmic.
    """
    first = next(iter(curves.values()))
    workers = [one.n_workers for one in first]
    ideal = [first[0].t_total * first[0].n_workers / n for n in workers]
    lowest = ideal[-1] / 10
    axes.plot(workers, ideal, color="0.5", linestyle=":", label="perfect scaling")
    if len(curves) == 1:
        axes.plot(workers, [one.t_total for one in first], color="black", label="t_total")
        for part, (name, colour) in PARTS.items():
            times = [getattr(one, part) for one in first]
            if max(times) > lowest:
                axes.plot(workers, times, color=colour, label=name)
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
