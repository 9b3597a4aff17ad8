"""Figures of tables: series, points, bars, states and images, with options."""

import copy
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from paceline.analysis.figure_text import (
    figure_of,
    fit_labels,
    fit_legends,
    legend_above,
    put_note,
    put_title,
    shortened_to,
    shown_label,
    spread_ticks,
    text_width,
    with_minus,
    write_in_full,
)
from paceline.analysis.table import Image, States, Table, name_and_unit
from paceline.analysis.uncertainty import with_error
from paceline.contract.figure_options import FigureOptions
from paceline.contract.time_units import TIME_UNITS, readable_unit
from paceline.errors import UnsupportedError, warn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.collections import PathCollection
    from matplotlib.container import ErrorbarContainer
    from matplotlib.figure import Figure
    from matplotlib.gridspec import GridSpecBase
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

#: Points from which on a series in time is drawn with a running mean, and windows in all of them.
MANY_POINTS, WINDOWS = 2000, 100
#: Points from which on they are drawn as an image, also in figures of lines, and the most of a
#: cloud: of more, some at random.
LARGE, MOST_POINTS = 20_000, 200_000
#: Points of a cloud, at most, that are drawn large: few small ones are hardly seen.
FEW_POINTS = 300
#: Series of a figure, at most, whose means are in its legend.
NAMED = 4
#: Names along an abscissa that find room in their usual size.
MANY_TICKS = 16
#: Bars of a figure, at most, and the part of its width that their names may take.
MOST_BARS, NAMES = 20, 0.4
#: Height of a row of a map that has a name, and of what is around its rows, inches.
NAME_HEIGHT, AROUND_NAMES = 0.095, 0.7
#: States in a row of a legend.
STATES_IN_A_ROW = 3
#: Angles of 500 structures (Lovell et al. 2003), files of MDAnalysis: where their turn begins.
REFERENCES = {"Ramachandran": -180, "Janin": 0}
#: Parts of them that regions hold, and the colours of these.
REGIONS, GREYS = (0.98, 0.9), ("#e6e6e6", "#cccccc")
#: Patterns of the series of one table, where colours tell tables apart.
PATTERNS = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Series:
    """One series of a figure: its values, and how they are drawn."""

    x: np.ndarray
    values: np.ndarray
    name: str
    points: bool = False
    #: Frames in the window of its running mean; 0 for none.
    window: int = 0
    #: Half the widths of intervals.
    band: np.ndarray | None = None
    colours: np.ndarray | None = None
    pattern: str = "-"
    colour: str | None = None
    #: Least and largest possible values, where bands end.
    limits: tuple[float, float] = (-np.inf, np.inf)
    #: Rows before which the line ends.
    ends: Sequence[int] = ()
    #: True if the abscissa counts names, which are points with bars of their intervals.
    of_names: bool = False


def draw(
    tables: Table | Sequence[Table], ax: "Axes", options: FigureOptions | None = None
) -> "Axes":
    """Draw a table, or several of one kind, into `matplotlib.axes.Axes`."""
    options = FigureOptions() if options is None else options
    given = [tables] if isinstance(tables, Table) else list(tables)
    chosen = [table.drawn or table for table in given]
    first = chosen[0]
    if len(chosen) > 1:
        check_same_kind(chosen)
    has_names = first.states is None and first.image is None and not first.bars
    if options.label and not has_names:
        warn("label: this figure has no legend of series, and leaves names of them out")
    if first.panels:
        panels = zip(*(table.panels for table in chosen), strict=True)
        return _draw_panels(list(panels), ax, options)
    write_in_full(ax)
    if first.states is not None:
        _draw_states(first, ax, options)
    elif first.image is not None:
        _draw_image(first.image, ax, options)
    elif first.bars:
        _draw_bars(first, ax)
    else:
        _draw_columns(chosen, ax, options)
    if options.xlim is not None:
        ax.set_xlim(options.xlim)
    if options.ylim is not None:
        ax.set_ylim(options.ylim)
    spread_ticks(ax)
    fit_labels(ax)
    if options.title:
        put_title(ax, options.title)
    return ax


def _draw_panels(panels: Sequence[tuple[Table, ...]], ax: "Axes", options: FigureOptions) -> "Axes":
    """Draw tables one above the other in the place of axes, and return the lowest one's axes."""
    if len(panels) == 1:
        return draw(panels[0], ax, options)
    figure, box = ax.figure, ax.get_position()
    _heighten(ax, options, figure_of(ax).get_figheight() * (1 + len(panels)) / 2.5)
    place = ax.get_subplotspec()
    places: GridSpecBase
    if place is None:
        sides = {"left": box.x0, "right": box.x1, "bottom": box.y0, "top": box.y1}
        places = figure.add_gridspec(len(panels), 1, **sides)
    else:
        places = place.subgridspec(len(panels), 1)
    ax.remove()
    all_axes: list[Axes] = [*places.subplots(sharex=True, squeeze=False)[:, 0]]
    below, labels = copy.copy(options), list(options.label)
    below.title = ""
    for one, axes in zip(panels, all_axes, strict=True):
        if options.label and len(one) == 1:
            below.label = tuple(labels[: len(one[0].y)])
            labels = labels[len(one[0].y) :]
        draw(one, axes, below)
    for axes in all_axes[:-1]:
        axes.set_xlabel("")
    seen = []
    for legend in filter(None, (axes.get_legend() for axes in all_axes)):
        names = [text.get_text() for text in legend.get_texts()]
        if names in seen:
            legend.remove()
        seen.append(names)
    fit_legends(all_axes)
    if options.title:
        put_title(all_axes[0], options.title)
    figure.align_ylabels(all_axes)
    return all_axes[-1]


def _heighten(ax: "Axes", options: FigureOptions, height: float) -> None:
    """Make a figure of these axes alone so high (inches), unless its size is given."""
    from matplotlib.figure import Figure

    figure = ax.figure
    if isinstance(figure, Figure) and len(figure.axes) == 1 and options.figsize is None:
        figure.set_figheight(max(height, figure.get_figheight()))


def new_figure(make: "Callable[[], Figure]", options: FigureOptions) -> "Figure":
    """Make a figure of the size that is asked for."""
    figure = make()
    inches = options.inches(_saved_resolution(figure))
    if inches is not None:
        figure.set_size_inches(inches)
    return figure


def _saved_resolution(figure: "Figure") -> float:
    """Pixels per inch of a saved figure."""
    from matplotlib import rcParams

    saved = rcParams["savefig.dpi"]
    return float(figure.dpi if saved == "figure" else saved)


def check_same_kind(tables: Sequence[Table]) -> None:
    """Raise `UnsupportedError` where tables cannot be drawn into one figure."""
    for table in tables:
        is_map = table.states is not None or table.image is not None or not table.y
        if is_map or table.bars or table.ticks:
            raise UnsupportedError("maps and bars are drawn alone: give one table of them")
    if len({len(table.panels) for table in tables}) > 1:
        raise UnsupportedError("tables of one kind are drawn into one figure: panels differ")
    labels = [(name_and_unit(table.abscissa)[0], table.y_label) for table in tables]
    if len(set(labels)) > 1:
        found = " and ".join(f"{y!r} against {x!r}" for x, y in dict.fromkeys(labels))
        raise UnsupportedError(f"tables of one kind are drawn into one figure, not {found}")


def in_time_unit(
    label: str, values: Sequence[np.ndarray], unit: str | None = None
) -> tuple[str, list[np.ndarray]]:
    """Bring times (ps) to a unit, by default one in which they are easy to read.

    Values whose label has another unit than ps stay as they are.

    Examples
    --------
    >>> in_time_unit("time (ps)", [np.array([0, 20_000])])
    ('time (ns)', [array([ 0., 20.])])
    """
    name, of_label = name_and_unit(label)
    if of_label != "ps":
        return label, list(values)
    if unit is None:
        longest = max(np.nanmax(np.abs(one), initial=0.0) for one in values)
        unit = readable_unit(longest)
    if TIME_UNITS[unit] == 1:
        return label, list(values)
    return f"{name} ({unit.replace('u', 'µ')})", [one / TIME_UNITS[unit] for one in values]


def times_in_unit(text: str, label: str) -> str:
    """Bring times (ps) within a text to the unit of the label of an axis.

    Examples
    --------
    >>> times_in_unit("lifetime 1.2e+07 ± 3e+06 ps, fit from 10 to 2e+07 ps", "lag time (µs)")
    'lifetime 12.0 ± 3.0 µs, fit from 1e-05 to 20 µs'
    """
    unit = name_and_unit(label)[1]
    scale = TIME_UNITS.get(unit, 1.0)
    if scale == 1:
        return text

    def convert(found: re.Match[str]) -> str:
        first, between, last = found[1], found[2], float(found[3]) / scale
        if between == "±":
            return f"{with_error(float(first) / scale, last)} {unit}"
        before = f"{float(first) / scale:.4g} {between} " if first else ""
        return f"{before}{last:.4g} {unit}"

    number = r"(-?\d+(?:\.\d*)?(?:e[+-]?\d+)?)"
    return re.sub(rf"(?:{number} (±|to) )?\b{number} ps\b", convert, text)


def _draw_columns(tables: Sequence[Table], ax: "Axes", options: FigureOptions) -> None:
    """Draw columns along the abscissa as lines or points, with a legend above."""
    first = tables[0]
    x_label, abscissas = in_time_unit(
        first.abscissa, [table.columns[table.abscissa] for table in tables], options.time_unit
    )
    if options.time_unit is not None and name_and_unit(first.abscissa)[1] != "ps":
        warn(f"time_unit: the abscissa is {x_label!r}, and no time")
    series = _series_of(tables, abscissas, options, x_label)
    artists = [_draw_one(one, ax) for one in series]
    points = any(one.points for one in series)
    ax.set_xlabel(x_label)
    n_points = max(len(x) for x in abscissas)
    few = f", {MOST_POINTS:,} of {n_points:,} points" if points and n_points > MOST_POINTS else ""
    ax.set_ylabel(f"{shown_label(first.y_label)}{few}")
    ax.margins(x=0.03 if points else 0)  # points at the border would be cut in half
    if first.logarithmic:
        ax.set(xscale="log", yscale="log")
    else:
        _tick_abscissa(x_label, ax)
    if first.is_series and n_points == 1:
        ax.set_xticks(abscissas[0])
    if first.ticks:
        ax.margins(x=0.03)
        size = "x-small" if len(first.ticks) > MANY_TICKS else None
        ax.set_xticks(abscissas[0], first.ticks, rotation=90, fontsize=size)
    whole = not any(np.nan_to_num(one.values % 1).any() for one in series)
    if whole and not first.logarithmic:
        ax.locator_params(axis="y", integer=True)
    ax.spines[["top", "right"]].set_visible(False)
    if first.turn:
        make_square(ax, first.turn)
    patches, regions = draw_reference(first.reference, ax)
    if first.colour:
        label, _ = in_time_unit(first.colour, [first.columns[first.colour]], options.time_unit)
        bar = ax.figure.colorbar(cast("PathCollection", artists[-1]), ax=ax, label=label)
        bar.outline.set_linewidth(0.5)
        return
    if first.right and len(tables) == 1:
        _draw_right(first, abscissas[0], ax, len(series))
    windows = {one.window for one in series} - {0}
    has_means = options.stats and len(series) <= NAMED and any(one.means() for one in tables)
    names = [one.name for one in series]
    if not (len(series) > 1 or windows or has_means or options.label or first.bands or first.notes):
        artists, names = [], []
    if names or patches:
        few = " to ".join(
            f"{one}"
            for one in sorted({*windows} & {min(windows, default=0), max(windows, default=0)})
        )
        legend_above(
            ax,
            [*artists, *patches],
            [*names, *regions],
            columns=2 if len(series) > NAMED else 1,
            title=f"running mean of {few} frames" if windows else None,
            markerscale=5 if points and len(series[0].x) > FEW_POINTS else None,
        )


def _tick_abscissa(label: str, ax: "Axes") -> None:
    """Put ticks along the abscissa: few, since times have many digits; of a turn at 60°."""
    if name_and_unit(label)[1] == "°":
        ax.locator_params(axis="x", nbins=7, steps=[1, 3, 6, 10])
    else:
        ax.locator_params(axis="x", nbins=6)


def _series_of(
    tables: Sequence[Table],
    abscissas: Sequence[np.ndarray],
    options: FigureOptions,
    x_label: str,
) -> list[Series]:
    """Collect the series of tables, each with its name in the legend."""
    several = len(tables) > 1
    names = list(options.label)
    n_named = len(tables) if several else len(tables[0].y)
    if names and len(names) != n_named:
        what = "tables" if several else "series"
        warn(f"label: {len(names)} names are given for {n_named} {what}; the others keep theirs")
    names += [""] * (n_named - len(names))
    found = []
    for k, (table, x) in enumerate(zip(tables, abscissas, strict=True)):
        points = table.points or table.no_mean  # lines would go through what is between
        window = 0
        if table.is_series and len(x) >= MANY_POINTS and not points:
            window = len(x) // WINDOWS | 1
        n_series = sum(len(one.y) for one in tables)
        means = table.means() if options.stats and n_series <= NAMED else {}
        for j, (title, name) in enumerate(table.y.items()):
            given = names[k] if several else names[j]
            name = times_in_unit(name, x_label)
            name = f"{given}, {name}" if several and given and len(table.y) > 1 else given or name
            if title in means:
                name = f"{name}, {with_minus(means[title].short)}"
            band = table.columns[table.bands[title]] if title in table.bands else None
            one = Series(x, table.columns[title], name, points, window, band)
            one = replace(one, limits=possible_range(table.y_label))
            if not points:
                one = replace(one, ends=_line_ends(table, x))
            one = replace(one, of_names=bool(table.ticks))
            if several and len(table.y) > 1:
                one = replace(one, colour=f"C{k % 10}", pattern=PATTERNS[j % len(PATTERNS)])
            if table.colour:
                _, (colours,) = in_time_unit(
                    table.colour, [table.columns[table.colour]], options.time_unit
                )
                one = replace(one, colours=colours)
            found.append(one)
    return found


def _draw_one(one: Series, ax: "Axes") -> "ErrorbarContainer | Line2D | PathCollection":
    """Draw a series; return what stands for it in the legend."""
    x, values, band = one.x, one.values, one.band
    if len(one.ends):
        x, values = (np.insert(c.astype(float), one.ends, np.nan) for c in (x, values))
        band = None if band is None else np.insert(band, one.ends, np.nan)
    is_large, colour = len(x) > LARGE, one.colour
    if one.of_names:
        return ax.errorbar(
            *(x, values, band),
            fmt="o",
            label=one.name,
            color=colour,
            markersize=4,
            capsize=2,
            elinewidth=1,
        )
    if one.points:
        some = _some_points(len(x))
        size = 1 if len(x) > FEW_POINTS else 4
        if one.colours is not None:
            colours = one.colours[some]
            return ax.scatter(
                x[some], values[some], size**2, colours, linewidths=0, rasterized=is_large
            )
        (line,) = ax.plot(
            x[some],
            values[some],
            ".",
            label=one.name,
            markersize=size,
            rasterized=is_large,
            color=colour,
        )
    elif one.window:
        (line,) = ax.plot(x, values, linewidth=0.3, alpha=0.4, rasterized=is_large, color=colour)
        ends = one.ends
        means = [running_mean(run, one.window) for run in np.split(one.values, ends)]
        mean = np.insert(np.concatenate(means), ends, np.nan) if len(ends) else means[0]
        (line,) = ax.plot(x, mean, one.pattern, color=line.get_color(), label=one.name)
    else:
        # A line through one point is not seen.
        alone = len(x) == 1
        (line,) = ax.plot(x, values, "." if alone else one.pattern, label=one.name, color=colour)
    if band is not None:
        low, high = np.clip([values - band, values + band], *one.limits)
        ax.fill_between(x, low, high, color=line.get_color(), alpha=0.25, linewidth=0)
    return line


def are_apart(x: np.ndarray) -> np.ndarray:
    """Find between which neighbours of an abscissa lines end: more than two usual steps apart."""
    steps = np.diff(x)
    usual = np.median(steps[steps > 0]) if (steps > 0).any() else 1.0
    return np.asarray(steps > 2 * usual)


def _line_ends(table: Table, x: np.ndarray) -> list[int]:
    """Find the rows before which lines end: where residues are missing, or times fall."""
    x = x.astype(float)
    if table.abscissa == "residue":
        return [*np.flatnonzero(are_apart(x)) + 1]
    return [*np.flatnonzero(np.diff(x) < 0) + 1] if table.is_series else []


def possible_range(label: str) -> tuple[float, float]:
    """Limits of what the label of an ordinate names: a fraction is from 0 to 1.

    Examples
    --------
    >>> possible_range("helix (fraction of frames)"), possible_range("RMSD (Å)")
    ((0.0, 1.0), (-inf, inf))
    """
    name, unit = name_and_unit(label)
    if not any(one.startswith("fraction") for one in (name, unit)):
        return -np.inf, np.inf
    return (-1.0, 1.0) if name == "difference" else (0.0, 1.0)


def _some_points(n_points: int) -> slice | np.ndarray:
    """Choose points of a cloud: all, or some at random, and always the same ones.

    Those at equal distances could be of a few residues alone.
    """
    if n_points <= MOST_POINTS:
        return slice(None)
    return np.sort(np.random.default_rng(0).choice(n_points, MOST_POINTS, replace=False))


def _draw_right(table: Table, x: np.ndarray, ax: "Axes", n_series: int) -> None:
    """Draw columns with an ordinate of their own on the right; labels have colours of lines."""
    beside, colour = ax.twinx(), f"C{n_series}"
    for title, name in table.right.items():
        _draw_one(Series(x, table.columns[title], name, pattern="--", colour=colour), beside)
    beside.set_ylabel(table.right_label, color=colour)
    beside.tick_params(axis="y", labelcolor=colour)
    beside.set_ylim(bottom=0)
    beside.margins(x=0)
    beside.spines[["top", "left", "bottom"]].set_visible(False)
    if n_series == 1:
        ax.yaxis.label.set_color("C0")
        ax.tick_params(axis="y", labelcolor="C0")


def draw_reference(name: str, ax: "Axes") -> "tuple[list[Patch], list[str]]":
    """Draw regions of angles that hold parts of a reference; return what is in the legend."""
    if name not in REFERENCES:
        return [], []
    from matplotlib.patches import Patch
    from MDAnalysis.analysis.data import filenames

    begin = REFERENCES[name]
    files = {"Ramachandran": filenames.Rama_ref, "Janin": filenames.Janin_ref}
    counts = np.load(files[name])
    width = 360 / len(counts)
    middles = begin + width * (np.arange(-1, len(counts) + 1) + 0.5)
    descending = np.sort(counts, axis=None)[::-1]
    shares = np.cumsum(descending) / descending.sum()
    levels = [descending[np.searchsorted(shares, part)] for part in (*REGIONS, 0)]
    # Bins go round.
    grid = middles, middles, np.pad(counts, 1, mode="wrap")
    ax.contourf(*grid, levels=levels, colors=GREYS, extend="max", zorder=0)
    # Many points cover regions, and not their borders.
    ax.contour(*grid, levels=levels[:-1], colors="0.25", linewidths=0.5, zorder=3)
    patches = [Patch(facecolor=grey, edgecolor="0.25", linewidth=0.5) for grey in GREYS]
    return patches, [f"{part * 100:.0f} % of known structures" for part in REGIONS]


def make_square(ax: "Axes", turn: Sequence[float]) -> None:
    """Give axes of angles their full turn, in one scale."""
    begin, end = turn
    for limits, ticks in ((ax.set_xlim, ax.set_xticks), (ax.set_ylim, ax.set_yticks)):
        limits(begin, end)
        ticks(np.arange(begin, end + 1, 90))
    ax.set_aspect("equal")
    ax.spines[["top", "right"]].set_visible(True)


def _draw_bars(table: Table, ax: "Axes") -> None:
    """Draw the values of names as bars, the first above."""
    names, (title,) = table.columns[table.x][:MOST_BARS], table.y
    places = np.arange(len(names))
    ax.barh(places, table.columns[title][:MOST_BARS])
    room = NAMES * figure_of(ax).get_size_inches()[0] * 72
    widest = max((text_width(f"{name}", "x-small") for name in names), default=0.0)
    size = "x-small" if widest <= room else "xx-small"
    texts = [shortened_to(f"{name}", room, size) for name in names]
    ax.set_yticks(places, texts, fontsize=size)
    ax.invert_yaxis()
    ax.margins(y=0.02)
    ax.set_ylabel(table.x)
    ax.set_xlabel(table.y_label)
    ax.spines[["top", "right"]].set_visible(False)


def _draw_states(table: Table, ax: "Axes", options: FigureOptions) -> None:
    """Draw states as colours, along the abscissa; of many rows, some at equal distances."""
    assert table.states is not None
    states: States = table.states
    x_label, (x,) = in_time_unit(table.abscissa, [table.columns[table.abscissa]], options.time_unit)
    rows = np.arange(len(x))
    known = ~np.isnan(x)
    # Frames that were left out have no time, and stay white.
    x = np.interp(rows, rows[known], x[known]) if known.any() else rows.astype(float)
    order = np.argsort(x, kind="stable")[:: -(-len(x) // MANY_POINTS)]
    x, numbers = x[order], states.numbers[order]
    middles = (x[1:] + x[:-1]) / 2
    first, last = (middles[0], middles[-1]) if len(middles) else (x[0] - 0.5, x[0] + 0.5)
    ends = (2 * x[0] - first, 2 * x[-1] - last) if len(middles) else (first, last)
    edges = np.concatenate([[ends[0]], middles, [ends[1]]])
    grid = edges, np.arange(len(states.parts) + 1) - 0.5
    if states.parts.dtype.kind == "U":
        _heighten(ax, options, NAME_HEIGHT * len(states.parts) + AROUND_NAMES)
    ax.set_xlabel(x_label)
    ax.set_ylabel(states.label)
    _tick_abscissa(x_label, ax)
    number_parts(ax.yaxis, states.parts)
    if states.names:
        _paint_states(states.names, grid, numbers.T, ax)
    else:
        _paint_values(grid, numbers.T, ax, states.bar, cmap=states.colours, vmin=states.low)


def _paint_states(
    states: Sequence[tuple[str, str]], grid: tuple[np.ndarray, ...], numbers: np.ndarray, ax: "Axes"
) -> None:
    """Paint the cells of a grid in the colours of their states, below a legend."""
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.patches import Patch

    names, colours = zip(*states, strict=True)
    norm = BoundaryNorm(np.arange(len(names) + 1) - 0.5, len(names))
    shown = np.ma.masked_less(numbers, 0)
    ax.pcolormesh(*grid, shown, cmap=ListedColormap(colours), norm=norm, rasterized=True)
    handles = [Patch(color=colour, label=name) for name, colour in states]
    legend_above(ax, handles, names, columns=STATES_IN_A_ROW, columnspacing=1.0, handlelength=1.2)


def _paint_values(
    grid: tuple[np.ndarray, ...], values: np.ndarray, ax: "Axes", label: str, **options: Any
) -> None:
    """Paint the cells of a grid in the colours of a scale, which is beside it."""
    from matplotlib.ticker import MaxNLocator

    shown = np.ma.masked_invalid(values)
    if options.get("vmax") is None and shown.count():
        low = shown.min() if options.get("vmin") is None else options["vmin"]
        if shown.max() == low:  # else the bar begins below the only number
            options |= {"vmin": low, "vmax": low + 1}
    mesh = ax.pcolormesh(*grid, shown, rasterized=True, **options)
    bar = ax.figure.colorbar(mesh, ax=ax, label=label)
    bar.outline.set_linewidth(0.5)
    if shown.count() and not (shown % 1).any():
        cast(MaxNLocator, bar.locator).set_params(integer=True)
        bar.update_ticks()


def _compress_layout(ax: "Axes") -> None:
    """Leave labels of axes of a fixed shape their room; else constrained layout cuts them."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = figure_of(ax)
    if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
        figure.set_layout_engine("compressed")


def _draw_image(image: Image, ax: "Axes", options: FigureOptions) -> None:
    """Draw numbers as colours, beside a bar that explains them."""
    low, high = image.limits
    x_label, (x_edges,) = in_time_unit(image.x_label, [image.x_edges], options.time_unit)
    y_label, (y_edges,) = in_time_unit(image.y_label, [image.y_edges], options.time_unit)
    scale = {"cmap": image.colours, "vmin": low, "vmax": high}
    _paint_values((x_edges, y_edges), image.values.T, ax, image.label, **scale)
    ax.set_xlabel(x_label)
    ax.set_ylabel(y_label)
    if image.equal or image.parts is not None:
        ax.set_aspect("equal")
        _compress_layout(ax)
    if image.parts is not None:
        for axis, parts in zip((ax.xaxis, ax.yaxis), image.parts, strict=True):
            number_parts(axis, parts)
    if image.note:
        put_note(ax, image.note)


def number_parts(axis: "Axis", parts: np.ndarray) -> None:
    """Label rows that are counted from 0 by names, or by numbers that several chains share.

    Of names that have no room, some at equal distances are shown.
    """
    from matplotlib.ticker import AutoLocator, MaxNLocator

    if parts.dtype.kind == "U":
        height = axis.axes.get_position(original=True).height * figure_of(axis.axes).get_figheight()
        some = slice(None, None, max(1, math.ceil(len(parts) * NAME_HEIGHT / height / 1.2)))
        axis.set_ticks(np.arange(len(parts))[some], parts[some], fontsize="x-small")
        axis.set_inverted(True)  # the first is the uppermost
        return
    if len(parts) > 1 and np.all(np.diff(parts) == 1):
        ticks = MaxNLocator(6, integer=True).tick_values(parts[0], parts[-1])
        ticks = ticks[(ticks >= parts[0]) & (ticks <= parts[-1])]
        axis.set_ticks(ticks - parts[0], [f"{tick:g}" for tick in ticks])
        return
    locator = AutoLocator()
    locator.set_params(integer=True, nbins=6)
    axis.set_major_locator(locator)
    axis.set_major_formatter(
        lambda row, _: f"{parts[round(row)]}" if 0 <= round(row) < len(parts) else ""
    )


def running_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Average over a window around each point, shorter at the ends; NaN values are left out."""
    known = ~np.isnan(values)
    sums = np.cumsum(np.concatenate([[0.0], np.where(known, values, 0.0)]))
    counts = np.cumsum(np.concatenate([[0], known]))
    places = np.arange(len(values))
    first = np.maximum(places - width // 2, 0)
    stop = np.minimum(places + width // 2 + 1, len(values))
    with np.errstate(invalid="ignore"):
        return (sums[stop] - sums[first]) / (counts[stop] - counts[first])
