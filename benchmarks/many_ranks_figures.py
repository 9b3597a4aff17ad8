"""Draw predictions of layouts and schedules for up to ten thousand ranks."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.many_ranks import (
    CURVE,
    FILES,
    OURS,
    PAPERS,
    RANKS,
    Reading,
    slowed,
    slowed_by_events,
    stragglers,
)
from benchmarks.model_fit import fit
from benchmarks.model_rows import TOTALS, stated
from paceline.model import Unevenness

#: Of Okabe and Ito's colours, which most people can tell apart.
COLOURS = ("#D55E00", "#E69F00", "#0072B2", "#009E73")
DYNAMIC = "#0072B2"
SCHEDULES = {"static": ("#D55E00", "equal shares"), "dynamic": (DYNAMIC, "dynamic scheduling")}


def draw_layouts() -> Figure:
    """t_total of each layout, read as the papers do and as paceline does."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, way in zip(panels, (PAPERS, OURS), strict=True):
        for colour, file in zip(COLOURS, FILES, strict=True):
            _draw_layout(axes, Reading(way, file, fit()[0]), colour)
        _finish(axes, way)
    points = [(one.case.n_ranks, one.measured) for one in stated() if one.what in TOTALS]
    panels[0].plot(*zip(*points, strict=True), "kx", markersize=5, label="measured")
    panels[0].set_ylabel("t_total, s")
    panels[0].legend(frameon=False, fontsize=8, loc="upper right", bbox_to_anchor=(0.9, 1))
    return figure


def _draw_layout(axes: Axes, reading: Reading, colour: str) -> None:
    totals = [reading.predict(n).t_total for n in CURVE]
    low, high = zip(*(reading.range_at(n) for n in CURVE), strict=True)
    axes.fill_between(CURVE, low, high, color=colour, alpha=0.2, linewidth=0)
    # Of two that are the same, both are seen.
    dashed = (0, (4, 4)) if reading.file.endswith("servers") else "-"
    axes.plot(CURVE, totals, color=colour, linestyle=dashed, linewidth=1.3, label=reading.file)


def _finish(axes: Axes, title: str) -> None:
    axes.set(title=title, xlabel="ranks", xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,g}")
    axes.spines[["top", "right"]].set_visible(False)


def draw_schedules() -> Figure:
    """Draw static and dynamic scheduling with some slow ranks and with none."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    panels = figure.subplots(1, 2)
    _draw_slow_part(panels[0])
    _draw_slow_factor(panels[1])
    panels[0].set_ylabel("until the last is done /\nthat without slow ranks")
    panels[0].legend(frameon=False, fontsize=8, loc="center right")
    for axes in panels:
        axes.set_ylim(0.9)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _draw_slow_part(axes: Axes) -> None:
    """Against ranks, with as many slow ones as Fig. 6 has."""
    uneven = stragglers()
    for schedule, (colour, label) in SCHEDULES.items():
        axes.plot(CURVE, [slowed(n, schedule, uneven) for n in CURVE], color=colour, label=label)
    simulated = [slowed_by_events(n, uneven) for n in RANKS]
    style = {"color": DYNAMIC, "markerfacecolor": "white", "label": "dynamic, event by event"}
    axes.plot(RANKS, simulated, "o", **style)
    title = f"{uneven.slow_fraction:.1%} of the ranks {uneven.slow_factor:.1f} times slower"
    axes.set(title=title, xlabel="ranks", xscale="log")
    axes.xaxis.set_major_formatter("{x:,g}")


def _draw_slow_factor(axes: Axes) -> None:
    """Against how slow the slow ones are, 384 ranks."""
    part, n_ranks = stragglers().slow_fraction, RANKS[1]
    factors = [1 + k / 4 for k in range(37)]
    for schedule, (colour, _) in SCHEDULES.items():
        uneven = [Unevenness(slow_fraction=part, slow_factor=factor) for factor in factors]
        axes.plot(factors, [slowed(n_ranks, schedule, one) for one in uneven], color=colour)
    axes.set(title=f"{n_ranks} ranks, {part:.1%} slow", xlabel="how many times slower")
