"""Figures of tables: time series, points, bars, states and images, with options."""

import copy
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from paceline.analysis.convergence_of_table_series import (
    MOST_DIGITS,
    SeriesVerdict,
    kind_of_series,
    verdicts_with_angles,
)
from paceline.analysis.figure_text_layout import (
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
from paceline.analysis.series_verdict import DRIFTING
from paceline.analysis.table import Image, States, Table, name_and_unit, rounding_of
from paceline.analysis.uncertainty import with_error
from paceline.contract.figure_options import FigureOptions
from paceline.contract.time_units import TIME_UNITS, readable_unit
from paceline.errors import UnsupportedError, warn
from paceline.performance.number_format import many

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.collections import PathCollection
    from matplotlib.container import ErrorbarContainer
    from matplotlib.figure import Figure
    from matplotlib.gridspec import GridSpecBase
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

#: Number of points above which a running mean is drawn.
MANY_POINTS = 2000
#: Number of windows of the running mean along the series.
WINDOWS = 100
#: Number of points above which a curve is drawn as pixels, also in files of vector formats.
LARGE = 20_000
#: Maximum number of points of a scatter plot. Of more points, a random subset is drawn.
MOST_POINTS = 200_000
#: Maximum number of points that are drawn large, because few small points are hard to see.
FEW_POINTS = 300
#: Maximum number of series whose means are in the legend.
NAMED = 4
#: Maximum number of names along an x axis in the default font size.
MANY_TICKS = 16
#: Maximum number of bars.
MOST_BARS = 20
#: Maximum fraction of the figure's width for the names of bars.
NAMES = 0.4
#: Height of a named row of a map, inches.
NAME_HEIGHT = 0.095
#: Height of the space around all rows, inches.
AROUND_NAMES = 0.7
#: Number of states in a row of a legend.
STATES_IN_A_ROW = 3
#: Start of the range of angles, degrees, in MDAnalysis's files with the reference angles of 500
#: structures (Lovell et al. 2003).
REFERENCES = {"Ramachandran": -180, "Janin": 0}
#: Fractions of the reference angles inside the drawn regions.
REGIONS = (0.98, 0.9)
#: Colours of `REGIONS`.
GREYS = ("#e6e6e6", "#cccccc")
#: Range of values that differ by rounding only, as a fraction of the largest one.
ROUNDING = 1e-12
#: Identifier (gid) of the note in a figure without values.
NOTE_INSIDE = "nothing"
#: Line styles, which distinguish the series of a table if colours distinguish tables.
PATTERNS = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Series:
    """Data series of a figure: its values and the style of drawing."""

    x: np.ndarray
    values: np.ndarray
    name: str
    points: bool = False
    #: Number of frames in the window of the running mean; 0 for no running mean.
    window: int = 0
    #: Lower and upper limits of the intervals.
    band: tuple[np.ndarray, np.ndarray] | None = None
    colours: np.ndarray | None = None
    pattern: str = "-"
    colour: str | None = None
    #: Smallest and largest possible values, which limit the bands.
    limits: tuple[float, float] = (-np.inf, np.inf)
    #: Rows before which the line is interrupted.
    ends: Sequence[int] = ()
    #: True if the x axis contains names, so that values are points with error bars.
    of_names: bool = False
    #: True if the name in the legend is followed by a mean or a verdict.
    is_described: bool = False
    #: x value from which on the series is equilibrated.
    start: float = -np.inf


@dataclass(frozen=True)
class ShownVerdicts:
    """Verdicts in a figure: on the series of each table, or between tables of replicas."""

    #: Verdicts on the series of each table, by title.
    of_tables: Sequence[Mapping[str, SeriesVerdict]] = ()
    #: If the tables belong to replicas: verdicts on each series over all replicas, by title.
    between: Mapping[str, SeriesVerdict] = field(default_factory=dict)


def draw(
    tables: Table | Sequence[Table],
    ax: "Axes",
    options: FigureOptions | None = None,
    verdicts: ShownVerdicts | None = None,
) -> "Axes":
    """Draw one table, or several tables of one kind, into `matplotlib.axes.Axes`.

    The legend contains verdicts on the series; by default, they are computed.
    """
    options = FigureOptions() if options is None else options
    given = [tables] if isinstance(tables, Table) else list(tables)
    chosen = [table.drawn or table for table in given]
    first = chosen[0]
    if len(chosen) > 1:
        check_same_kind(chosen)
    has_names = first.states is None and first.image is None and not first.bars
    if options.label and not has_names:
        warn("label: this figure has no legend of series, so the names are not shown")
    if first.panels:
        panels = zip(*(table.panels for table in chosen), strict=True)
        return _draw_panels(list(panels), ax, options, verdicts)
    write_in_full(ax)
    if first.states is not None:
        _draw_states(first, ax, options)
    elif first.image is not None:
        _draw_image(first.image, ax, options)
    elif first.bars:
        _draw_bars(first, ax)
    else:
        _draw_columns(chosen, ax, options, verdicts)
    if note := _note_on_nothing(chosen):
        text = ax.text(0.5, 0.5, note, ha="center", va="center", fontsize="small")
        text.set(transform=ax.transAxes, gid=NOTE_INSIDE)
        if first.states is None and first.image is None:  # ticks around zero have no meaning
            ax.set_xticks([])
            ax.set_yticks([])
    if options.xlim is not None:
        ax.set_xlim(options.xlim)
    if options.ylim is not None:
        ax.set_ylim(options.ylim)
    spread_ticks(ax)
    fit_labels(ax)
    if options.title:
        put_title(ax, options.title)
    return ax


def _note_on_nothing(tables: Sequence[Table]) -> str:
    """Return a text for a figure without any row or value; empty for other figures."""
    first = tables[0]
    if first.states is not None:
        found, name = [first.states.numbers], first.states.label
    elif first.image is not None:
        found, name = [first.image.values], first.image.label
    else:
        found = [one.columns[title] for one in tables for title in one.y]
        name = first.x if first.bars else first.y_label
    if not sum(np.size(one) for one in found):
        return f"no {name_and_unit(name)[0]} found"
    is_known = (np.isfinite(np.asarray(one, dtype=float)).any() for one in found)
    return "" if any(is_known) else "no values: all are NaN"


def _draw_panels(
    panels: Sequence[tuple[Table, ...]],
    ax: "Axes",
    options: FigureOptions,
    verdicts: ShownVerdicts | None,
) -> "Axes":
    """Draw tables as panels in place of the axes, and return the axes of the lowest panel."""
    if len(panels) == 1:
        return draw(panels[0], ax, options, verdicts)
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
        draw(one, axes, below, verdicts)
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
    """Increase the height of a figure with only these axes, inches, unless the user set a size."""
    from matplotlib.figure import Figure

    figure = ax.figure
    if isinstance(figure, Figure) and len(figure.axes) == 1 and options.figsize is None:
        figure.set_figheight(max(height, figure.get_figheight()))


def new_figure(make: "Callable[[], Figure]", options: FigureOptions) -> "Figure":
    """Make a figure of the requested size."""
    figure = make()
    inches = options.inches(_saved_resolution(figure))
    if inches is not None:
        figure.set_size_inches(inches)
    return figure


def _saved_resolution(figure: "Figure") -> float:
    """Resolution of a saved figure, pixels per inch."""
    from matplotlib import rcParams

    saved = rcParams["savefig.dpi"]
    return float(figure.dpi if saved == "figure" else saved)


def check_same_kind(tables: Sequence[Table]) -> None:
    """Raise `UnsupportedError` if tables cannot be drawn into one figure."""
    for table in tables:
        if table.panels and not table.y:
            raise UnsupportedError(
                "columns with several units cannot share a figure with another table: select those "
                "of one unit with --y"
            )
        is_map = table.states is not None or table.image is not None or not table.y
        if is_map or table.bars or table.ticks:
            raise UnsupportedError("a map or bars cannot share a figure: use a single table")
    if len({len(table.panels) for table in tables}) > 1:
        raise UnsupportedError("tables in one figure must be of one kind: panels differ")
    labels = [(name_and_unit(table.abscissa)[0], table.y_label) for table in tables]
    if len(set(labels)) > 1:
        found = " and ".join(f"{y!r} against {x!r}" for x, y in dict.fromkeys(labels))
        raise UnsupportedError(
            f"tables in one figure must be of one kind, not {found}: draw each alone"
        )


def in_time_unit(
    label: str, values: Sequence[np.ndarray], unit: str | None = None
) -> tuple[str, list[np.ndarray]]:
    """Convert times (ps) to a unit, by default to one with short numbers.

    Values whose label contains another unit than ps are not converted.

    Examples
    --------
    >>> in_time_unit("time (ps)", [np.array([0, 20_000])])
    ('time (ns)', [array([ 0., 20.])])
    """
    name, of_label = name_and_unit(label)
    if of_label != "ps":
        return label, list(values)
    if unit is None:
        unit = readable_unit(max(0.0, finite_range([np.abs(one) for one in values])[1]))
    if TIME_UNITS[unit] == 1:
        return label, list(values)
    return f"{name} ({unit.replace('u', 'µ')})", [one / TIME_UNITS[unit] for one in values]


def finite_range(values: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the smallest and the largest finite value; inf and -inf if there are none."""
    known = np.concatenate([np.ravel(one).astype(float) for one in values])
    known = known[np.isfinite(known)]
    return float(known.min(initial=np.inf)), float(known.max(initial=-np.inf))


def begin_together(times: Sequence[np.ndarray]) -> bool:
    """True if the first finite times, or frames, of all tables are equal within rounding.

    The start of one replica cannot be compared with the times of others that begin elsewhere.
    """
    known = [one[np.isfinite(one)] for one in (one.astype(float) for one in times)]
    known = [one for one in known if len(one)]
    firsts = [one.min() for one in known]
    slacks = [rounding_of(one, firsts)[one.argmin()] for one in known]
    return not firsts or max(firsts) - min(firsts) <= min(slacks)


def times_in_unit(text: str, label: str) -> str:
    """Convert times (ps) within a text to the unit in the label of an axis.

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


def _draw_columns(
    tables: Sequence[Table],
    ax: "Axes",
    options: FigureOptions,
    verdicts: ShownVerdicts | None,
) -> None:
    """Draw columns against the x values as lines or points, with a legend above."""
    first = tables[0]
    x_label, abscissas = in_time_unit(
        first.abscissa, [table.columns[table.abscissa] for table in tables], options.time_unit
    )
    if options.time_unit is not None and name_and_unit(first.abscissa)[1] != "ps":
        warn(f"time_unit: the x axis is {x_label!r}, not a time")
    series = _series_of(tables, abscissas, options, x_label, verdicts)
    artists: list[Artist | ErrorbarContainer] = [_draw_series(one, ax) for one in series]
    names = [one.name for one in series]
    begin, end = finite_range(abscissas)
    is_common = begin_together(abscissas)
    between = verdicts.between if verdicts is not None and options.stats else {}
    for title in (one for one in first.y if one in between):
        one = between[title]
        since = _start_on_axis(one, np.array([end]), x_label)
        artists.append(_draw_mean(one, ax, max(begin, since) if is_common else begin, end))
        of = f", {first.y[title]}" if len(first.y) > 1 else ""
        n_replicas = many(len(one.found.replica_means), "replica")
        names.append(f"{n_replicas}{of}: {_in_legend(one, x_label)}")
    start = max(one.start for one in series) if is_common else -np.inf
    if start > begin:
        shade = ax.axvspan(begin, start, color="0.88", linewidth=0, zorder=0)
        artists.append(shade)
    points = any(one.points for one in series)
    ax.set_xlabel(x_label)
    n_points = max(len(x) for x in abscissas)
    few = f", {MOST_POINTS:,} of {n_points:,} points" if points and n_points > MOST_POINTS else ""
    ax.set_ylabel(f"{shown_label(first.y_label)}{few}")
    ax.margins(x=0.03 if points else 0)  # avoid half points at the border
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
    _widen_constant(series, ax)
    whole = not any(np.nan_to_num(one.values % 1).any() for one in series)
    if whole and not first.logarithmic:
        ax.locator_params(axis="y", integer=True)
    ax.spines[["top", "right"]].set_visible(False)
    if first.turn:
        make_square(ax, first.turn)
    patches, regions = draw_reference(first.reference, ax)
    if first.colour:
        label, _ = in_time_unit(first.colour, [first.columns[first.colour]], options.time_unit)
        points_drawn = cast("PathCollection", artists[len(series) - 1])
        bar = ax.figure.colorbar(points_drawn, ax=ax, label=label)
        bar.outline.set_linewidth(0.5)
        return
    if first.right and len(tables) == 1:
        _draw_right(first, abscissas[0], ax, len(series))
    windows = {one.window for one in series} - {0}
    has_means = any(one.is_described for one in series)
    names += ["not equilibrated"] * int(start > begin)
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


def _widen_constant(series: Sequence[Series], ax: "Axes") -> None:
    """Show values that only differ by rounding as a constant, with ticks next to it."""
    values = np.concatenate([one.values.astype(float).ravel() for one in series])
    low, high = np.nanmin(values, initial=np.inf), np.nanmax(values, initial=-np.inf)
    if low < high and high - low < ROUNDING * max(abs(low), abs(high)):
        middle = (low + high) / 2
        ax.set_ylim(middle - 0.05 * abs(middle), middle + 0.05 * abs(middle))


def _tick_abscissa(label: str, ax: "Axes") -> None:
    """Set the ticks of the x axis: few ticks for times, and every 60° for a full turn."""
    if name_and_unit(label)[1] == "°":
        ax.locator_params(axis="x", nbins=7, steps=[1, 3, 6, 10])
    else:
        ax.locator_params(axis="x", nbins=6)


def _series_of(
    tables: Sequence[Table],
    abscissas: Sequence[np.ndarray],
    options: FigureOptions,
    x_label: str,
    verdicts: ShownVerdicts | None,
) -> list[Series]:
    """Collect the series of tables, with their names in the legend."""
    several = len(tables) > 1
    names = list(options.label)
    n_named = len(tables) if several else len(tables[0].y)
    if names and len(names) != n_named:
        what = "tables" if several else "series"
        warn(f"label: {len(names)} names for {n_named} {what}; all others keep their own names")
    names += [""] * (n_named - len(names))
    found = []
    for k, (table, x) in enumerate(zip(tables, abscissas, strict=True)):
        turns = any(kind_of_series(table, title) == "angle" for title in table.y)
        points = table.points or table.no_mean or turns  # lines would connect unrelated points
        window = 0
        if table.is_series and len(x) >= MANY_POINTS and not points:
            window = len(x) // WINDOWS | 1
        n_series = sum(len(one.y) for one in tables)
        assessed: Mapping[str, SeriesVerdict] = {}
        if options.stats and verdicts is not None:
            assessed = verdicts.between or verdicts.of_tables[k]
        elif options.stats and n_series <= NAMED:
            assessed = verdicts_with_angles(table)
        is_alone = verdicts is None or not verdicts.between
        for j, (title, name) in enumerate(table.y.items()):
            start = -np.inf
            given = names[k] if several else names[j]
            name = times_in_unit(name, x_label)
            name = f"{given}, {name}" if several and given and len(table.y) > 1 else given or name
            own_name = name
            if title in assessed:
                start = _start_on_axis(assessed[title], x, x_label)
                if n_series <= NAMED and is_alone:
                    name = f"{name}, {_in_legend(assessed[title], x_label)}"
            band = table.limits_of(title)
            one = Series(x, table.columns[title], name, points, window, band, start=start)
            one = replace(one, is_described=name != own_name)
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


def _start_on_axis(verdict: SeriesVerdict, x: np.ndarray, x_label: str) -> float:
    """Return the start of the equilibrated part of a series, in the unit of an axis.

    For a series that drifts, which has no equilibrated part, return the end of the axis. For a
    series without a value, or one that is equilibrated from its first value on, return -inf.
    """
    if verdict.found.verdict == DRIFTING:
        return finite_range([x])[1]
    if not verdict.found.equilibrated_from:
        return -np.inf
    start = np.array([verdict.found.equilibrated_at])
    _, (start,) = in_time_unit(verdict.x_title, [start], name_and_unit(x_label)[1])
    return float(np.nan_to_num(start[0], nan=-np.inf))


def _in_legend(verdict: SeriesVerdict, x_label: str) -> str:
    """Describe a verdict in a legend, with the start in the unit of the x axis."""
    since, unit = verdict.start_text, name_and_unit(x_label)[1]
    number, _, own = since.partition(" ")
    if own != unit and name_and_unit(verdict.x_title)[1] == "ps" and own in TIME_UNITS:
        # The units differ by a power of 10, so the digits of the number stay the same.
        time = float(number) * TIME_UNITS[own] / TIME_UNITS[unit]
        since = f"{time:.{MOST_DIGITS}g} {unit}"
    return with_minus(verdict.in_legend(since))


def _draw_mean(verdict: SeriesVerdict, ax: "Axes", start: float, end: float) -> "Line2D":
    """Draw the mean of replicas from `start` to `end`; return the line.

    The line is empty for populations of states, and if a replica drifts.
    """
    is_mean = verdict.kind != "states" and verdict.found.verdict != DRIFTING
    known = is_mean and np.isfinite([start, end]).all()
    ends = [start, end] if known else []
    means = [verdict.found.mean] * len(ends)
    style = "--" if known else "none"
    (line,) = ax.plot(ends, means, linestyle=style, color="black", linewidth=1.2)
    return line


def _draw_series(one: Series, ax: "Axes") -> "ErrorbarContainer | Line2D | PathCollection":
    """Draw a series; return the handle for the legend."""
    x, values, band = one.x, one.values, one.band
    if len(one.ends):
        x, values = (np.insert(c.astype(float), one.ends, np.nan) for c in (x, values))
        if band is not None:
            band = np.insert(band[0], one.ends, np.nan), np.insert(band[1], one.ends, np.nan)
    is_large, colour = len(x) > LARGE, one.colour
    if one.of_names:
        return ax.errorbar(
            *(x, values, None if band is None else _lengths(values, band)),
            fmt="o",
            label=one.name,
            color=colour,
            markersize=4,
            capsize=2,
            elinewidth=1,
        )
    if one.points:
        some = _sample_points(len(x))
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
        # A line through a single point is invisible.
        alone = np.isfinite(np.asarray(values, dtype=float)).sum() == 1
        (line,) = ax.plot(x, values, "." if alone else one.pattern, label=one.name, color=colour)
    if band is not None:
        low, high = np.clip(band, *one.limits)
        ax.fill_between(x, low, high, color=line.get_color(), alpha=0.25, linewidth=0)
    return line


def _lengths(values: np.ndarray, band: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Lengths of error bars below and above the values: shape (2, n_values)."""
    return np.stack([values - band[0], band[1] - values])


def find_gaps(x: np.ndarray) -> np.ndarray:
    """Return a mask of intervals in `x` that are more than twice the usual one: lines end there."""
    steps = np.diff(x)
    usual = np.median(steps[steps > 0]) if (steps > 0).any() else 1.0
    return np.asarray(steps > 2 * usual)


def _line_ends(table: Table, x: np.ndarray) -> list[int]:
    """Find rows where lines are interrupted: missing residues, or decreasing times."""
    x = x.astype(float)
    if table.abscissa == "residue":
        return [*np.flatnonzero(find_gaps(x)) + 1]
    return [*np.flatnonzero(np.diff(x) < 0) + 1] if table.is_series else []


def possible_range(label: str) -> tuple[float, float]:
    """Return the limits of a quantity by its axis label: a fraction is from 0 to 1.

    Examples
    --------
    >>> possible_range("helix (fraction of frames)"), possible_range("RMSF (Å)")
    ((0.0, 1.0), (0.0, inf))
    """
    name, unit = name_and_unit(label)
    if name.startswith(("RMSF", "g(r)", "n(r)")):
        return 0.0, np.inf
    if not any(one.startswith("fraction") for one in (name, unit)):
        return -np.inf, np.inf
    return (-1.0, 1.0) if name == "difference" else (0.0, 1.0)


def _sample_points(n_points: int) -> slice | np.ndarray:
    """Choose points of a scatter plot: all points, or a random subset that is always the same.

    Every n-th point is not suitable, because all these points might belong to a few residues.
    """
    if n_points <= MOST_POINTS:
        return slice(None)
    return np.sort(np.random.default_rng(0).choice(n_points, MOST_POINTS, replace=False))


def _draw_right(table: Table, x: np.ndarray, ax: "Axes", n_series: int) -> None:
    """Draw columns with a second y axis on the right; axis labels have the colours of lines."""
    beside, colour = ax.twinx(), f"C{n_series}"
    for title, name in table.right.items():
        band = table.limits_of(title)
        one = Series(x, table.columns[title], name, band=band, pattern="--", colour=colour)
        _draw_series(one, beside)
    beside.set_ylabel(table.right_label, color=colour)
    beside.tick_params(axis="y", labelcolor=colour)
    beside.set_ylim(bottom=0)
    beside.margins(x=0)
    beside.spines[["top", "left", "bottom"]].set_visible(False)
    if n_series == 1:
        ax.yaxis.label.set_color("C0")
        ax.tick_params(axis="y", labelcolor="C0")


def draw_reference(name: str, ax: "Axes") -> "tuple[list[Patch], list[str]]":
    """Draw regions that contain most reference angles; return the entries of the legend."""
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
    # The bins are periodic.
    grid = middles, middles, np.pad(counts, 1, mode="wrap")
    ax.contourf(*grid, levels=levels, colors=GREYS, extend="max", zorder=0)
    # Contours stay visible if many points cover the regions.
    ax.contour(*grid, levels=levels[:-1], colors="0.25", linewidths=0.5, zorder=3)
    patches = [Patch(facecolor=grey, edgecolor="0.25", linewidth=0.5) for grey in GREYS]
    return patches, [f"{part * 100:.0f} % of known structures" for part in REGIONS]


def make_square(ax: "Axes", turn: Sequence[float]) -> None:
    """Set both axes to the full range of an angle, with equal scales."""
    begin, end = turn
    for limits, ticks in ((ax.set_xlim, ax.set_xticks), (ax.set_ylim, ax.set_yticks)):
        limits(begin, end)
        ticks(np.arange(begin, end + 1, 90))
    ax.set_aspect("equal")
    ax.spines[["top", "right"]].set_visible(True)


def _draw_bars(table: Table, ax: "Axes") -> None:
    """Draw values with names as bars, the first one on top."""
    names, (title,) = table.columns[table.x][:MOST_BARS], table.y
    places, values = np.arange(len(names)), table.columns[title][:MOST_BARS]
    ax.barh(places, values)
    band = table.limits_of(title)
    if band is not None:
        lengths = _lengths(values, (band[0][:MOST_BARS], band[1][:MOST_BARS]))
        ax.errorbar(values, places, xerr=lengths, fmt="none", ecolor="0.2", elinewidth=1, capsize=2)
    room = NAMES * figure_of(ax).get_size_inches()[0] * 72
    widest = max((text_width(f"{name}", "x-small") for name in names), default=0.0)
    size = "x-small" if widest <= room else "xx-small"
    texts = [shortened_to(f"{name}", room, size) for name in names]
    ax.set_yticks(places, texts, fontsize=size)
    ax.invert_yaxis()
    ax.margins(y=0.02)
    ax.set_ylabel(table.x)
    ax.set_xlabel(table.y_label if band is None else f"{table.y_label}, and 95 % interval")
    ax.spines[["top", "right"]].set_visible(False)


def _draw_states(table: Table, ax: "Axes", options: FigureOptions) -> None:
    """Draw states as colours along the x axis; of many frames, only every n-th one is drawn."""
    assert table.states is not None
    states: States = table.states
    x_label, (x,) = in_time_unit(table.abscissa, [table.columns[table.abscissa]], options.time_unit)
    rows = np.arange(len(x))
    known = ~np.isnan(x)
    # Interpolate the times of frames that were left out; their cells stay white.
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
    """Draw the cells of a grid in the colours of their states, below a legend."""
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
    """Draw the cells of a grid in the colours of a scale, with a colour bar."""
    from matplotlib.ticker import MaxNLocator

    shown = np.ma.masked_invalid(values)
    if options.get("vmax") is None and shown.count():
        low = shown.min() if options.get("vmin") is None else options["vmin"]
        if shown.max() == low:  # otherwise the colour bar begins below the only value
            options |= {"vmin": low, "vmax": low + 1}
    mesh = ax.pcolormesh(*grid, shown, rasterized=True, **options)
    bar = ax.figure.colorbar(mesh, ax=ax, label=label)
    bar.outline.set_linewidth(0.5)
    if shown.count() and not (shown % 1).any():
        cast(MaxNLocator, bar.locator).set_params(integer=True)
        bar.update_ticks()


def _compress_layout(ax: "Axes") -> None:
    """Use compressed layout, because constrained layout cuts labels of axes of a fixed shape."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = figure_of(ax)
    if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
        figure.set_layout_engine("compressed")


def _draw_image(image: Image, ax: "Axes", options: FigureOptions) -> None:
    """Draw numbers as colours, with a colour bar."""
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
    """Label the rows of a map with the names or numbers in `parts`.

    If there is no space for all names, those of equally spaced rows are shown. Numbers may repeat,
    as in several chains.
    """
    from matplotlib.ticker import AutoLocator, MaxNLocator

    if parts.dtype.kind == "U":
        height = axis.axes.get_position(original=True).height * figure_of(axis.axes).get_figheight()
        some = slice(None, None, max(1, math.ceil(len(parts) * NAME_HEIGHT / height / 1.2)))
        axis.set_ticks(np.arange(len(parts))[some], parts[some], fontsize="x-small")
        axis.set_inverted(True)  # the first row is on top
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
    """Average over a window around each point, shorter at the ends, without NaN and infinity."""
    known = np.isfinite(values)
    sums = np.cumsum(np.concatenate([[0.0], np.where(known, values, 0.0)]))
    counts = np.cumsum(np.concatenate([[0], known]))
    places = np.arange(len(values))
    first = np.maximum(places - width // 2, 0)
    stop = np.minimum(places + width // 2 + 1, len(values))
    with np.errstate(invalid="ignore"):
        return (sums[stop] - sums[first]) / (counts[stop] - counts[first])
