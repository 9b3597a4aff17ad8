"""Figures and tables for the manual's pages about the model; nothing is measured.

python -m benchmarks.model_figures docs
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.bench_model import ACCESS, TABLES
from benchmarks.many_ranks import draw_schedules, layout_lines, schedule_lines
from benchmarks.model_fit import LOCK, SMALL, left_out
from benchmarks.model_rows import Case
from benchmarks.table import Table, is_number

#: Colours of Okabe and Ito, which most people can distinguish.
CLUSTERS = {"Comet": ("#0072B2", "o"), "SuperMIC": ("#D55E00", "s"), "Bridges": ("#009E73", "^")}
#: Number of columns that are joined in each table, because the manual's pages are narrow.
JOINED = {"summary": 2, "ratios": 3, "rows": 4, "constants": 2}
TICKS = (24, 48, 96, 192, 384)


def draw_published() -> Figure:
    """Draw each row of Table 5 with its prediction, and their difference below."""
    figure = Figure(figsize=(9, 5.4), layout="constrained")
    rows: Any = figure.subplots(2, len(ACCESS), sharex=True, sharey="row", height_ratios=(3, 2))
    for (access, title), above, below in zip(ACCESS.items(), *rows, strict=True):
        found = {case: t for case, t in left_out((LOCK,)).items() if case.access == access}
        _draw_times(found, above)
        _draw_errors(found, below)
        above.set(title=title, xscale="log", yscale="log")
        above.set_yticks([3, 10, 30, 100], labels=["3", "10", "30", "100"])
        above.minorticks_off()
        below.set_xlabel("ranks")
        below.set_xticks(TICKS, labels=[f"{n}" for n in TICKS])
        below.minorticks_off()
    rows[0][0].set_ylabel("t_io + t_comp, s")
    rows[1][0].set_ylabel("predicted beside\nmeasured, %")
    _add_legend(rows[0][-1])
    for axes in rows.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=9)
    return figure


def _draw_times(found: dict[Case, float], axes: Axes) -> None:
    for case in found:
        axes.plot(case.n_ranks, case.measured, **_marker(case))
    for cluster, (colour, _) in CLUSTERS.items():
        some = {c: t for c, t in found.items() if (c.cluster, c.gather) == (cluster, "mpi")}
        ranks = [case.n_ranks for case in some]
        if any(case.access == "single" for case in some):
            shares = [case.share for case in some]
            axes.plot(ranks, shares, color=colour, linestyle=":", linewidth=1.3)
        axes.plot(ranks, list(some.values()), color=colour, linewidth=1)


def _draw_errors(found: dict[Case, float], axes: Axes) -> None:
    small = 100 * SMALL
    axes.axhspan(-small, small, color="0.92", linewidth=0)
    axes.axhline(0, color="0.5", linewidth=0.8)
    for case, predicted in found.items():
        plain = 100 * (case.share / case.measured - 1)
        colour, _ = CLUSTERS[case.cluster]
        if case.access == "single":
            axes.plot(case.n_ranks, plain, "x", color=colour, markersize=5)
        axes.plot(case.n_ranks, 100 * (predicted / case.measured - 1), **_marker(case))


def _marker(case: Case) -> dict[str, Any]:
    colour, marker = CLUSTERS[case.cluster]
    # Global Arrays and MPI read in the same way: their rows are two samples of one quantity.
    face = "none" if case.gather == "ga" else colour
    style = {"marker": marker, "color": colour, "markerfacecolor": face, "markersize": 5}
    return {**style, "linestyle": "none"}


def _add_legend(axes: Axes) -> None:
    for cluster, (colour, marker) in CLUSTERS.items():
        axes.plot([], [], color=colour, marker=marker, linewidth=0, label=cluster)
    hollow = {"marker": "o", "color": "0.3", "markerfacecolor": "none", "linewidth": 0}
    axes.plot([], [], **hollow, label="with Global Arrays")
    axes.plot([], [], color="0.3", linewidth=1, label="model")
    axes.plot([], [], "x:", color="0.3", markersize=5, linewidth=1.3, label="serial / N")
    axes.legend(frameon=False, fontsize=8)


def main() -> None:
    folder = Path(sys.argv[1])
    figures = {"model-published": draw_published(), "many-ranks-schedules": draw_schedules()}
    for name, figure in figures.items():
        figure.savefig(folder / "images" / f"{name}.svg")
    tables = {
        **{f"model-{name}": markdown(make(), JOINED.get(name, 1)) for name, make in TABLES.items()},
        "many-ranks-layouts": layout_lines(),
        "many-ranks-schedules": schedule_lines(),
    }
    (folder / "tables").mkdir(exist_ok=True)
    for name, lines in tables.items():
        text = "".join(f"{line}\n" for line in lines)
        (folder / "tables" / f"{name}.txt").write_text(text, encoding="utf-8")


def markdown(table: Table, joined: int = 1) -> Iterator[str]:
    """Format a table for the manual; its first columns are joined."""
    heads, *rows = [
        [", ".join(row[:joined]), *row[joined:]] for row in (table.headings, *table.rows)
    ]
    columns = zip(*rows, strict=True)
    rules = ["---:" if all(map(is_number, column)) else "---" for column in columns]
    for cells in (heads, rules, *rows):
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
