"""Style of the figures; the page shows them 700 pixels wide."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from benchmarks.measure import Spread

#: Colours that colour-blind readers can distinguish (Okabe and Ito): tools, and the papers.
OURS, OTHER, PAPER = "#d55e00", "#0072b2", "#777777"
COLOURS = {"paceline": OURS, "MDAnalysis": OTHER}
#: Components of a worker's time, in the order in which they happen.
PARTS = {
    "t_open": ("opening", "#e69f00"),
    "t_io": ("reading, decoding", "#0072b2"),
    "t_comp": ("computing", "#009e73"),
    "t_wait": ("waiting", "#cccccc"),
    "t_comm": ("communicating", "#cc79a7"),
    "t_rest": ("the rest", "#777777"),
}
DPI = 150
#: Matplotlib's settings while a figure is drawn.
RC = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "font.size": 9,
    "legend.fontsize": 8,
    "legend.columnspacing": 1.2,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
}


def panels(n: int, height: float = 3.1) -> tuple[Figure, Sequence[Axes]]:
    """Create a figure with `n` panels in a row."""
    figure = Figure(figsize=(7.5, height), layout="constrained")
    return figure, figure.subplots(1, n, squeeze=False)[0]


def bars(
    axes: Axes, names: Sequence[str], values: Sequence[Spread], colours: Sequence[str]
) -> None:
    """Draw horizontal bars with ranges and values, the first at the top."""
    medians = [value.median for value in values]
    ranges = [
        [value.median - value.low for value in values],
        [value.high - value.median for value in values],
    ]
    drawn = axes.barh(
        range(len(names)), medians, xerr=ranges, color=colours, height=0.7, ecolor="#333"
    )
    # White background, because a line that marks a published value may cross the number.
    white = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}
    axes.bar_label(drawn, [_short(value) for value in medians], fontsize=8, padding=3, bbox=white)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.margins(x=0.25)


def stacked(
    axes: Axes,
    names: Sequence[str],
    parts: Sequence[dict[str, float]],
    known: Mapping[str, tuple[str, str]] = PARTS,
) -> None:
    """Draw a horizontal bar per worker or case, divided into `known` components (label, colour)."""
    left = [0.0] * len(names)
    for key, (label, colour) in known.items():
        widths = [part[key] for part in parts]
        axes.barh(range(len(names)), widths, left=left, label=label, color=colour, height=0.7)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()


def points(
    axes: Axes,
    x: Sequence[float],
    values: Sequence[Spread],
    colour: str,
    label: str,
    linestyle: str = "-",
) -> None:
    """Draw a line through medians, with ranges."""
    medians = [value.median for value in values]
    ranges = [
        [value.median - value.low for value in values],
        [value.high - value.median for value in values],
    ]
    style = {"linestyle": linestyle, "marker": "o", "markersize": 5, "capsize": 3}
    axes.errorbar(x, medians, ranges, color=colour, label=label, **style)


def logarithmic(axes: Axes, ticks: Sequence[float], names: Sequence[str]) -> None:
    """Make both axes logarithmic, with these ticks along x, and plain numbers along y."""
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(ticks, names)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()


def legend_below(figure: Figure, axes: Axes) -> None:
    """Put the legend of a panel under the whole figure."""
    handles, labels = axes.get_legend_handles_labels()
    ncols = len(labels) if len(labels) <= 6 else 4
    figure.legend(handles, labels, loc="outside lower center", ncols=ncols)


def _short(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
