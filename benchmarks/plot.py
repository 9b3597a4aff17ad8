"""The figure of the front page, from what the benchmark printed.

python -m benchmarks --tsv > benchmarks/measured.tsv
python -m benchmarks.plot benchmarks/measured.tsv docs/images/path.svg
"""

import csv
import sys
from pathlib import Path

from matplotlib.figure import Figure

TITLES = {
    "adk.xtc": "protein, XTC\n3,341 atoms",
    "adk.dcd": "protein, DCD\n3,341 atoms",
    "water.xtc": "in water, XTC\n47,681 atoms",
    "water.dcd": "in water, DCD\n47,681 atoms",
}
OURS = "paceline"
OTHERS, MINE = "#b8c4cc", "#c8442d"


def read_warm(path: Path) -> dict[str, dict[str, float]]:
    """Median µs per frame of each case and tool, from the table of files in memory."""
    cases: dict[str, dict[str, float]] = {}
    for part in path.read_text(encoding="utf-8").split("\n\n"):
        if part.startswith("# file in memory"):
            for row in csv.DictReader(part.splitlines()[1:], delimiter="\t"):
                cases.setdefault(row["case"], {})[row["tool"]] = float(row["µs/frame"])
    return cases


def draw(cases: dict[str, dict[str, float]]) -> Figure:
    """One panel a case, one bar a tool."""
    figure = Figure(figsize=(9, 3.1), layout="constrained")
    # Not every tool reads every format.
    names = list(dict.fromkeys(name for times in cases.values() for name in times))
    # Bars grow from below: ours, then the others, the first at the top.
    names.sort(key=lambda name: name.startswith(OURS))
    names.reverse()
    panels = figure.subplots(1, len(cases), sharey=True)
    for axes, (case, times) in zip(panels, cases.items(), strict=True):
        values = [times.get(name, 0) for name in names]
        colours = [MINE if name.startswith(OURS) else OTHERS for name in names]
        labels = [_label(value) for value in values]
        bars = axes.barh(names, values, color=colours)
        axes.bar_label(bars, labels, padding=3, fontsize=8)
        axes.set_title(TITLES[case], fontsize=9)
        axes.set_xscale("log")
        axes.set_xlim(1, 6 * max(values))
        axes.set_xlabel("µs per frame", fontsize=8)
        axes.tick_params(labelsize=8, length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def _label(value: float) -> str:
    """Two or three digits; nothing where there is nothing."""
    if not value:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    draw(read_warm(source)).savefig(target)
