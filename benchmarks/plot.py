"""Draw the figure of the front page from the benchmark's output.

python -m benchmarks path --tsv > benchmarks/measured.tsv
python -m benchmarks.plot benchmarks/measured.tsv docs/images/path.svg
"""

import csv
import sys
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

#: For each data set, one row of panels; for each format, one panel in the row.
SETS = {"adk": "protein", "water": "in water"}
FORMATS = {"xtc": "XTC", "dcd": "DCD", "trr": "TRR", "nc": "NetCDF"}
OURS = "paceline"
OTHERS, MINE = "#b8c4cc", "#c8442d"


def read_warm(path: Path) -> dict[str, dict[str, float]]:
    """Return the median µs per frame of each case and tool, from the table of files in memory."""
    cases: dict[str, dict[str, float]] = {}
    for part in path.read_text(encoding="utf-8").split("\n\n"):
        if part.startswith("# file in memory"):
            for row in csv.DictReader(part.splitlines()[1:], delimiter="\t"):
                # With two threads, runs of the water sets are too short for a slope; their time is
                # in the table of one long job.
                if not row["tool"].startswith(f"{OURS}, "):
                    cases.setdefault(row["case"], {})[row["tool"]] = float(row["µs/frame"])
    return cases


def draw(cases: dict[str, dict[str, float]]) -> Figure:
    """Draw one panel per case, with one bar per tool."""
    figure = Figure(figsize=(9, 5.2), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.1)  # type: ignore[union-attr]
    # Not every tool reads every format.
    names = list(dict.fromkeys(name for times in cases.values() for name in times))
    # Bars are drawn from the bottom: paceline first, then the other tools.
    names.sort(key=lambda name: name.startswith(OURS))
    names.reverse()
    rows = figure.subplots(len(SETS), len(FORMATS), sharex="row", sharey=True)
    for row, (name, title) in zip(rows, SETS.items(), strict=True):
        for axes, (suffix, form) in zip(row, FORMATS.items(), strict=True):
            _draw_case(axes, names, cases[f"{name}.{suffix}"])
            axes.set_title(f"{title}, {form}", fontsize=9)
        slowest = max(max(cases[f"{name}.{suffix}"].values()) for suffix in FORMATS)
        row[0].set_xlim(1, 8 * slowest)
    for axes in rows[-1]:
        axes.set_xlabel("µs per frame", fontsize=8)
    return figure


def _draw_case(axes: Axes, names: list[str], times: dict[str, float]) -> None:
    values = [times.get(name, 0) for name in names]
    colours = [MINE if name.startswith(OURS) else OTHERS for name in names]
    bars = axes.barh(names, values, color=colours)
    axes.bar_label(bars, [_label(value) for value in values], padding=3, fontsize=8)
    axes.set_xscale("log")
    axes.tick_params(labelsize=8, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _label(value: float) -> str:
    """Format with two or three digits; empty without a value."""
    if not value:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    draw(read_warm(source)).savefig(target)
