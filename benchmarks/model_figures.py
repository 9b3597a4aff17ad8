"""The figures and tables of the manual's pages about the model; arithmetic alone.

python -m benchmarks.model_figures docs
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.bench_model import constants_table, rows_table, stated_table
from benchmarks.many_ranks import dealing_lines, layout_lines, schedule_lines
from benchmarks.many_ranks_figures import draw_layouts, draw_schedules
from benchmarks.model_fit import fit
from benchmarks.model_rows import Case, Constants, at_work, cases
from benchmarks.table import Table, is_number

PANELS = {
    "single": "one shared XTC file",
    "splitting": "one XTC file a rank",
    "phdf5": "one HDF5 file, MPI-IO",
}
#: Of Okabe and Ito's colours, which most people can tell apart.
CLUSTERS = {"Comet": ("#0072B2", "o"), "SuperMIC": ("#D55E00", "s"), "Bridges": ("#009E73", "^")}


def draw_published(constants: Constants) -> Figure:
    """Each row of Table 5 and its prediction, above; by how much they differ, below."""
    figure = Figure(figsize=(9, 5.4), layout="constrained")
    rows = figure.subplots(2, len(PANELS), sharex=True, sharey="row", height_ratios=(3, 2))
    for (access, title), above, below in zip(PANELS.items(), *rows, strict=True):
        for case in (found := [case for case in cases() if case.access == access]):
            _draw_row(case, constants, above, below)
        _draw_lines(found, constants, above)
        _draw_allowed(found, below)
        above.set(title=title, xscale="log", yscale="log")
        above.set_yticks([3, 10, 30, 100], labels=["3", "10", "30", "100"])
        above.minorticks_off()
        below.set_xlabel("ranks")
        below.set_xticks([24, 48, 96, 192, 384], labels=["24", "48", "96", "192", "384"])
        below.minorticks_off()
    rows[0][0].set_ylabel("t_io + t_comp, s")
    rows[1][0].set_ylabel("predicted beside\nmeasured, %")
    _add_legend(rows[0][-1])
    for axes in rows.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=9)
    return figure


def _draw_row(case: Case, constants: Constants, above: Axes, below: Axes) -> None:
    colour, marker = CLUSTERS[case.cluster]
    predicted = at_work(case.predict(constants))
    # Rows with Global Arrays read as those with MPI do: another sample of the same thing.
    face = "none" if case.gather == "ga" else colour
    style = {"marker": marker, "color": colour, "markerfacecolor": face, "markersize": 5}
    above.plot(case.n_ranks, case.measured, linestyle="none", **style)
    apart = 100 * (predicted / case.measured - 1)
    below.plot(case.n_ranks, apart, linestyle="none", **style)


def _draw_lines(found: list[Case], constants: Constants, axes: Axes) -> None:
    for cluster, (colour, _) in CLUSTERS.items():
        times = {
            case.n_ranks: at_work(case.predict(constants))
            for case in found
            if case.cluster == cluster and case.gather == "mpi"
        }
        axes.plot(times.keys(), times.values(), color=colour, linewidth=1)


def _draw_allowed(found: list[Case], axes: Axes) -> None:
    """Shade what was asked of a prediction, half a second more where that is the larger."""
    allowed: dict[int, float] = {}
    for case in found:
        part = 100 * case.allowed / case.measured
        allowed[case.n_ranks] = max(part, allowed.get(case.n_ranks, 0.0))
    ranks = sorted(allowed)
    bounds = [allowed[n] for n in ranks]
    axes.fill_between(ranks, bounds, [-bound for bound in bounds], color="0.9", linewidth=0)
    axes.axhline(0, color="0.5", linewidth=0.8)


def _add_legend(axes: Axes) -> None:
    for cluster, (colour, marker) in CLUSTERS.items():
        role = "fitted" if cluster == "Comet" else "tested"
        axes.plot([], [], color=colour, marker=marker, linewidth=1, label=f"{cluster} ({role})")
    axes.plot(
        [],
        [],
        marker="o",
        color="0.3",
        markerfacecolor="none",
        linewidth=0,
        label="with Global Arrays",
    )
    axes.legend(frameon=False, fontsize=8)


def main() -> None:
    folder = Path(sys.argv[1])
    constants, _ = fit()
    figures = {
        "model-published": draw_published(constants),
        "many-ranks-layouts": draw_layouts(),
        "many-ranks-schedules": draw_schedules(),
    }
    for name, figure in figures.items():
        figure.savefig(folder / "images" / f"{name}.svg")
    tables = {
        "model-constants": markdown(constants_table(*fit())),
        "model-rows": markdown(rows_table(constants), joined=4, leave_out="role"),
        "model-stated": markdown(stated_table(constants), joined=3),
        "many-ranks-layouts": layout_lines(),
        "many-ranks-schedules": schedule_lines(),
        "many-ranks-dealing": dealing_lines(),
    }
    (folder / "tables").mkdir(exist_ok=True)
    for name, lines in tables.items():
        text = "".join(f"{line}\n" for line in lines)
        (folder / "tables" / f"{name}.txt").write_text(text, encoding="utf-8")


def markdown(table: Table, *, joined: int = 1, leave_out: str = "") -> Iterator[str]:
    """A table for the manual, whose pages are narrow: its first columns are put into one."""
    kept = [k for k, heading in enumerate(table.headings) if heading != leave_out]
    lines = [[row[k] for k in kept] for row in (table.headings, *table.rows)]
    heads, *rows = [[", ".join(line[:joined]), *line[joined:]] for line in lines]
    columns = zip(*rows, strict=True)
    rules = ["---:" if all(map(is_number, column)) else "---" for column in columns]
    for cells in (heads, rules, *rows):
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
