"""Tables of results: columns by title, and how figures show them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.analysis.uncertainty import SeriesMean, mean_of_series
from paceline.contract.atoms import Atoms, Residues, attribute_of, has_attribute

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

#: Points from which on a series in time is drawn with a running mean, and windows in all of them.
MANY_POINTS, WINDOWS = 2000, 100
#: Points from which on they are drawn as an image, also in figures of lines, and the most of a
#: cloud: of more, some at equal distances.
LARGE, MOST_POINTS = 20_000, 200_000
#: Points of a cloud, at most, that are drawn large: few small ones are hardly seen.
FEW_POINTS = 300
#: Series of a figure, at most, whose means are in its legend.
NAMED = 4
#: Names along an abscissa that find room in their usual size.
MANY_TICKS = 16
#: Rows of a table of what is there most often, at most.
MOST_FREQUENT = 1000
#: Bars of a figure, at most.
MOST_BARS = 20
#: States in a row of a legend.
STATES_IN_A_ROW = 3
#: Error of times that is taken for rounding, relative to the largest.
ROUNDING = 1e-6
#: Letters of a legend that find room in their usual size, and those of a line in a small one.
LONG, LINE = 36, 46


@dataclass(frozen=True)
class States:
    """States of residues, or of other parts, in each row of a table, to be drawn as colours.

    `numbers`, shape (n_rows, n_parts), are indices in `names`, pairs of a name and its colour, or
    -1 for none. `parts` are the numbers of the parts, and `label` is that of the ordinate.
    """

    numbers: np.ndarray
    parts: np.ndarray
    label: str
    names: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Image:
    """Numbers on a grid, to be drawn as colours.

    `values`, shape (n_x, n_y), lie between `x_edges` and `y_edges`; those that are NaN stay white.
    `x_label`, `y_label` and `label`, that of the colours, have units. Rows and columns that are
    atoms or residues have numbers of these as `parts`, and `x_edges` count them. `note` stands
    above the figure. `limits` are those of the colours. Axes that are `equal` have one scale.
    """

    values: np.ndarray
    x_edges: np.ndarray
    y_edges: np.ndarray
    x_label: str
    y_label: str
    label: str
    parts: tuple[np.ndarray, np.ndarray] | None = None
    note: str = ""
    colours: str = "viridis"
    limits: tuple[float | None, float | None] = (None, None)
    equal: bool = False


@dataclass(frozen=True)
class Table:
    """Columns of equal length by title, and those that make a figure.

    `x` is the column along the abscissa, `y` maps columns along the ordinate to their legends, and
    `y_label` is the label of the ordinate, unit included. Where `drawn` is given, figures show
    that table, and where `states` or an `image` are, these. With `points`, they have points instead
    of lines. Angles of a full turn and numbers of clusters have `no_mean`, and are points, too.
    `profile` is the table of means over frames, such as those of residues. Rows of several runs are
    compared by `keys`, by default `x`. Of a `partial` table, the results hold more. With `ticks`,
    the abscissa counts rows that have these names. With `bars`, the names along `x` stand at bars.
    Columns that are `counts` have whole numbers, or NaN in frames that were left out. Where times
    are not known (`times_known`), frames are along the abscissa. `notes` are
    sentences on single numbers that the columns give, such as an integral with its interval.
    `bands` map columns along the ordinate to those of half the widths of their 95 % intervals.
    Where there are `panels`, figures show these tables one above the other, along one abscissa.
    """

    columns: Mapping[str, np.ndarray]
    x: str
    y: Mapping[str, str]
    y_label: str
    drawn: "Table | None" = None
    points: bool = False
    states: States | None = None
    no_mean: bool = False
    image: Image | None = None
    profile: "Table | None" = None
    keys: Sequence[str] = ()
    partial: bool = False
    ticks: Sequence[str] = ()
    bars: bool = False
    counts: Sequence[str] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    bands: Mapping[str, str] = field(default_factory=dict)
    times_known: bool = True
    panels: "Sequence[Table]" = ()

    def cells(self, title: str, rows: slice = slice(None)) -> list[object]:
        """Numbers or names of some rows of a column, those of counts without a decimal point."""
        found = self.columns[title][rows].tolist()
        if title in self.counts:
            return [value if value != value else int(value) for value in found]
        return found

    @property
    def is_series(self) -> bool:
        """True if rows are frames, or steps of a simulation."""
        return self.x.startswith(("time", "step"))

    @property
    def abscissa(self) -> str:
        """Column along the abscissa of figures.

        It is that of the numbers of frames where times are not known, or all the same.
        """
        if self.is_series and "frame" in self.columns:
            if not self.times_known:
                return "frame"
            times = np.asarray(self.columns[self.x], dtype=float)
            if len(times) > 1 and not np.nanmax(times, initial=-np.inf) > np.nanmin(
                times, initial=np.inf
            ):
                return "frame"
        return self.x

    @property
    def title(self) -> str:
        """Title of a figure, by the labels of its axes without their units.

        Examples
        --------
        >>> Table({}, "time (ps)", {}, "radius of gyration (Å)").title
        'Radius of gyration against time'
        >>> Table({}, "r (Å)", {}, "g(r)").title
        'g(r) against r'
        >>> Table({}, "x (Å)", {}, "density (Å⁻³)", keys=("x (Å)", "y (Å)")).title
        'Density against x and y'
        """
        keys = self.keys if len(self.keys) > 1 else [self.abscissa]
        of, *along = (name_and_unit(label)[0] for label in (self.y_label, *keys))
        first = of.partition(" ")[0].rstrip(",")
        is_word = len(first) > 1 and first.isalpha()
        return f"{of[0].upper() + of[1:] if is_word else of} against {' and '.join(along)}"

    def without_times(self) -> "Table":
        """Make the same table for frames whose times are not known."""
        drawn = None if self.drawn is None else self.drawn.without_times()
        return replace(self, times_known=False, drawn=drawn)

    def means(self, most: int | None = None) -> dict[str, SeriesMean]:
        """Mean of each series in time, or of some, by title; empty where frames are unordered."""
        if self.no_mean or not self.is_series:
            return {}
        times = np.asarray(self.columns[self.x], dtype=float)
        if not np.all(np.diff(times[~np.isnan(times)]) > 0):
            return {}
        return {title: mean_of_series(self.columns[title]) for title in [*self.y][:most]}


def rounding_of(times: np.ndarray) -> float:
    """Difference of times that is taken for rounding.

    Files keep times, or the time between frames, in single precision and units of their own: 95 ps
    may be 94.99999 ps. But a tenth of the time between frames is no rounding.
    """
    known = times[np.isfinite(times)]
    if len(known) == 0:
        return 0.0
    return min(ROUNDING * float(np.abs(known).max()), float(np.ptp(known)) / len(known) / 10)


def matching_rows(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Rows of two columns of times, or of frames, that are equal but for rounding.

    None is returned where one has equal values; NaN matches nothing.

    Examples
    --------
    >>> matching_rows(np.array([0.0, 2.0, 4.0]), np.array([1.0, 2.0, 3.0, 4.0]))
    (array([1, 2]), array([1, 3]))
    """
    places = [np.flatnonzero(np.isfinite(one)) for one in (first, second)]
    orders = [
        some[np.argsort(one[some])] for one, some in zip((first, second), places, strict=True)
    ]
    values = [one[order] for one, order in zip((first, second), orders, strict=True)]
    if any((np.diff(one) <= 0).any() for one in values):
        return None
    if not all(map(len, values)):
        return orders[0][:0], orders[1][:0]
    slack = max(map(rounding_of, values))
    near = np.searchsorted(values[1], values[0] - slack)
    near = np.minimum(near, len(values[1]) - 1)
    equal = np.abs(values[1][near] - values[0]) <= slack
    return orders[0][equal], orders[1][near[equal]]


def name_and_unit(title: str) -> tuple[str, str]:
    """Split the title of a column, as "time (ps)"; "g(r)" has no unit."""
    name, blank, unit = title.rpartition(" (")
    return (name, unit[:-1]) if blank and unit.endswith(")") else (title, "")


def with_gaps(counts: np.ndarray, left_out: np.ndarray) -> np.ndarray:
    """Put NaN in the places of frames that were left out; without any, counts stay integers."""
    return np.where(left_out, np.nan, counts) if left_out.any() else counts


def along_residues(
    residues: Residues, values: Mapping[str, np.ndarray], label: str
) -> Table | None:
    """Put values of residues, by title, along their numbers; None for a single residue.

    A row of NaN is where numbers do not increase, as between chains: lines end there.
    """
    if not has_attribute(residues, "resids") or len(residues) < 2:
        return None
    numbers = residues.resids.astype(float)
    ends = np.flatnonzero(np.diff(numbers) <= 0) + 1
    columns = {"residue": numbers, **values}
    columns = {title: np.insert(column, ends, np.nan) for title, column in columns.items()}
    return Table(columns, "residue", {title: title.partition(" (")[0] for title in values}, label)


def fractions_of_frames(
    kind: str,
    labels: Sequence[str],
    columns: Mapping[str, np.ndarray],
    counts: np.ndarray,
    n_frames: int,
) -> Table:
    """Tabulate things of a kind by their labels, and in how many of the frames each is."""
    title = "fraction of frames"
    found = {kind: np.array(labels, dtype=str), **columns}
    found |= {"frames": counts, title: counts / (n_frames or np.nan)}
    return Table(found, kind, {title: title}, title, bars=True)


def numbers_of(residues: Residues) -> np.ndarray:
    """Numbers of residues, with their insertion codes where there are any, as "163A"."""
    numbers, codes = residues.resids, attribute_of(residues, "icodes")
    if codes is None or not any(codes):
        return numbers
    return np.array([f"{number}{code}" for number, code in zip(numbers, codes, strict=True)])


def telling_columns(residues: Residues, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tell residues apart where numbers repeat: insertion codes, segments, or indices.

    `rows` are rows of a table, as places among the residues, by what their titles begin with.
    """
    if not has_attribute(residues, "resids"):
        return {}
    known: list[tuple[str, np.ndarray]] = [("", residues.resids)]
    further = {"insertion code": "icodes", "segment": "segids", "residue index": "resindices"}
    for title, name in further.items():
        if len({*zip(*(values for _, values in known), strict=True)}) == len(residues):
            break
        values = attribute_of(residues, name)
        if values is not None and len({*values}) > 1:
            known.append(
                (title, np.asarray(values if name == "resindices" else values.astype(str)))
            )
    return {
        f"{prefix}{title}": values[places]
        for title, values in known[1:]
        for prefix, places in rows.items()
    }


def atom_labels(atoms: Atoms) -> list[str]:
    """Name atoms by residue and name, as "LYS 13 NZ"; with segment where others are named so."""
    names = names_of(atoms)
    if not any(has_attribute(atoms, name) for name in ("resnames", "resids")):
        return [f"{name}" for name in names]
    residues = residue_labels(atoms.universe.residues, np.unique(atoms.resindices))
    return [
        f"{residues[k]} {name}" for k, name in zip(atoms.resindices.tolist(), names, strict=True)
    ]


def residue_labels(residues: Residues, indices: np.ndarray) -> dict[int, str]:
    """Name some residues, as "LYS 13"; with segment, or index, where others have that name."""
    some = residues[indices]
    # Others may have the names of these, too.
    rivals = np.arange(len(residues))
    if has_attribute(residues, "resids"):
        rivals = np.flatnonzero(np.isin(residues.resids, some.resids))
    all_of_them = residues[rivals]
    of_indices = [str(index) for index in rivals]
    parts: list[Sequence[str] | np.ndarray | None] = [attribute_of(all_of_them, "resnames")]
    parts.append(numbers_of(all_of_them) if has_attribute(residues, "resids") else None)
    known = [part for part in parts if part is not None] or [of_indices]
    names = np.array([" ".join(map(str, one)) for one in zip(*known, strict=True)], dtype=str)
    segments = attribute_of(all_of_them, "segids")
    for prefix in (of_indices if segments is None else segments, of_indices):
        _, number, counts = np.unique(names, return_inverse=True, return_counts=True)
        again = counts[number.reshape(-1)] > 1
        names = np.array(
            [
                f"{before} {name}" if more else name
                for before, name, more in zip(prefix, names, again, strict=True)
            ],
            dtype=str,
        )
    by_index = dict(zip(rivals.tolist(), names.tolist(), strict=True))
    return {index: by_index[index] for index in indices.tolist()}


def names_of(atoms: Atoms) -> np.ndarray:
    """Names of atoms, or their indices where the topology has none."""
    return atoms.names if has_attribute(atoms, "names") else atoms.indices


def draw(table: Table, ax: "Axes") -> "Axes":
    """Draw a table into `matplotlib.axes.Axes`."""
    table = table.drawn or table
    if table.panels:
        return _draw_panels(table.panels, ax)
    if table.states is not None:
        return _draw_states(table.columns[table.abscissa], table.abscissa, table.states, ax)
    if table.image is not None:
        return _draw_image(table.image, ax)
    if table.bars:
        return _draw_bars(table, ax)
    x = table.columns[table.abscissa]
    width = len(x) // WINDOWS | 1
    points = table.points or table.no_mean  # lines would go through what is between
    has_mean = table.is_series and len(x) >= MANY_POINTS and not points
    is_large = len(x) > LARGE
    means = table.means() if len(table.y) <= NAMED else {}
    for title, name in table.y.items():
        values = table.columns[title]
        if title in means:
            name = f"{name}, {means[title].short}"
        name = in_lines(name)
        if points:
            some = slice(None, None, -(-len(x) // MOST_POINTS))
            dot = 1 if len(x) > FEW_POINTS else 4
            ax.plot(x[some], values[some], ".", label=name, markersize=dot, rasterized=is_large)
        elif has_mean:
            (line,) = ax.plot(x, values, linewidth=0.3, alpha=0.4, rasterized=is_large)
            ax.plot(x, running_mean(values, width), color=line.get_color(), label=name)
        else:
            # A line through one point is not seen.
            ax.plot(x, values, "." if table.ticks or len(x) == 1 else "-", label=name)
        if title in table.bands:
            half = table.columns[table.bands[title]]
            ax.fill_between(x, values - half, values + half, alpha=0.25, linewidth=0)
    ax.set_xlabel(table.abscissa)
    ax.set_ylabel(table.y_label)
    ax.margins(x=0.03 if points else 0)  # points at the border would be cut in half
    # Times of many digits have room side by side.
    ax.locator_params(axis="x", nbins=6)
    if table.ticks:
        ax.margins(x=0.03)
        size = "x-small" if len(x) > MANY_TICKS else None
        ax.set_xticks(x, table.ticks, rotation=90, fontsize=size)
    if not any(np.nan_to_num(table.columns[title] % 1).any() for title in table.y):
        ax.locator_params(axis="y", integer=True)
    ax.spines[["top", "right"]].set_visible(False)
    if len(table.y) > 1 or has_mean or means or table.bands or table.notes:
        texts = ax.get_legend_handles_labels()[1]
        longest = max(len(line) for text in texts for line in text.split("\n"))
        legend_above(
            ax,
            fontsize="small" if longest > LONG else None,
            ncols=2 if len(table.y) > NAMED else 1,
            markerscale=5 if points and len(x) > FEW_POINTS else None,
            title=f"running mean of {width} frames" if has_mean else None,
            alignment="left",
        )
    return ax


def in_lines(text: str) -> str:
    r"""Break a text of a legend behind commas, so that it finds room.

    Examples
    --------
    >>> in_lines("lifetime 4.70 ± 0.31 ps (95 %) to 19 ps, where C = 0.082, not converged")
    'lifetime 4.70 ± 0.31 ps (95 %) to 19 ps,\nwhere C = 0.082, not converged'
    """
    lines = [""]
    for part in text.split(", "):
        joined = f"{lines[-1]}, {part}" if lines[-1] else part
        if lines[-1] and len(joined) > LINE:
            lines[-1] += ","
            lines.append(part)
        else:
            lines[-1] = joined
    return "\n".join(lines)


def legend_above(ax: "Axes", **options: Any) -> None:
    """Put the legend above the axes: nowhere else is sure to be free of lines."""
    # A power of ten of the ordinate stands left of it, not under its text.
    ax.yaxis.get_offset_text().set_horizontalalignment("right")
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0, **options)


def _draw_panels(panels: Sequence[Table], ax: Any) -> Any:
    """Draw tables one above the other in the place of axes, and return the lowest one's axes."""
    if len(panels) == 1:
        return draw(panels[0], ax)
    from matplotlib.figure import Figure

    figure, box = ax.figure, ax.get_position()
    if isinstance(figure, Figure) and len(figure.axes) == 1:  # with room for all
        figure.set_figheight(figure.get_figheight() * (1 + len(panels)) / 2.5)
    place = ax.get_subplotspec()
    if place is None:
        sides = {"left": box.x0, "right": box.x1, "bottom": box.y0, "top": box.y1}
        places = figure.add_gridspec(len(panels), 1, **sides)
    else:
        places = place.subgridspec(len(panels), 1)
    ax.remove()
    all_axes = places.subplots(sharex=True)
    for one, axes in zip(panels, all_axes, strict=True):
        draw(one, axes)
    for axes in all_axes[:-1]:
        axes.set_xlabel("")
    figure.align_ylabels(all_axes)
    return all_axes[-1]


def _draw_bars(table: Table, ax: "Axes") -> "Axes":
    """Draw the values of names as bars, the first above."""
    names, (title,) = table.columns[table.x][:MOST_BARS], table.y
    places = np.arange(len(names))
    ax.barh(places, table.columns[title][:MOST_BARS])
    ax.set_yticks(places, names, fontsize="x-small")
    ax.invert_yaxis()
    ax.margins(y=0.02)
    ax.set_ylabel(table.x)
    ax.set_xlabel(table.y_label)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _draw_states(x: np.ndarray, x_label: str, states: States, ax: "Axes") -> "Axes":
    """Draw states as colours, along the abscissa; of many rows, some at equal distances."""
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.patches import Patch

    rows = np.arange(len(x))
    known = ~np.isnan(x)
    # Frames that were left out have no time, and stay white.
    x = np.interp(rows, rows[known], x[known]) if known.any() else rows.astype(float)
    order = np.argsort(x, kind="stable")[:: -(-len(x) // MANY_POINTS)]
    x, numbers = x[order], np.ma.masked_less(states.numbers[order], 0)
    middles = (x[1:] + x[:-1]) / 2
    first, last = (middles[0], middles[-1]) if len(middles) else (x[0] - 0.5, x[0] + 0.5)
    ends = (2 * x[0] - first, 2 * x[-1] - last) if len(middles) else (first, last)
    edges = np.concatenate([[ends[0]], middles, [ends[1]]])
    names, colours = zip(*states.names, strict=True)
    n_parts = len(states.parts)
    ax.pcolormesh(
        edges,
        np.arange(n_parts + 1) - 0.5,
        numbers.T,
        cmap=ListedColormap(colours),
        norm=BoundaryNorm(np.arange(len(names) + 1) - 0.5, len(names)),
        rasterized=True,
    )
    ax.set_xlabel(x_label)
    ax.set_ylabel(states.label)
    ax.locator_params(axis="x", nbins=6)
    number_parts(ax.yaxis, states.parts)
    handles = [Patch(color=colour, label=name) for name, colour in states.names]
    legend_above(ax, handles=handles, ncols=STATES_IN_A_ROW, columnspacing=1.0, handlelength=1.2)
    return ax


def _draw_image(image: Image, ax: "Axes") -> "Axes":
    """Draw numbers as colours, beside a bar that explains them."""
    low, high = image.limits
    values = np.ma.masked_invalid(image.values.T)
    if image.limits == (None, None) and values.count() and values.min() == values.max():
        low, high = values.min(), values.min() + 1  # else the bar begins below the only number
    mesh = ax.pcolormesh(
        image.x_edges,
        image.y_edges,
        values,
        cmap=image.colours,
        vmin=low,
        vmax=high,
        rasterized=True,
    )
    bar = ax.figure.colorbar(mesh, ax=ax, label=image.label)
    bar.outline.set_linewidth(0.5)
    ax.set_xlabel(image.x_label)
    ax.set_ylabel(image.y_label)
    if image.equal or image.parts is not None:
        ax.set_aspect("equal")
    if image.parts is not None:
        for axis, parts in zip((ax.xaxis, ax.yaxis), image.parts, strict=True):
            number_parts(axis, parts)
    if image.note:
        ax.set_title(image.note, loc="left", fontsize="small", fontweight="normal")
    return ax


def number_parts(axis: "Axis", parts: np.ndarray) -> None:
    """Label rows that are counted from 0 by numbers, which parts of several chains share."""
    from matplotlib.ticker import MaxNLocator

    if len(parts) > 1 and np.all(np.diff(parts) == 1):
        ticks = MaxNLocator(6, integer=True).tick_values(parts[0], parts[-1])
        ticks = ticks[(ticks >= parts[0]) & (ticks <= parts[-1])]
        axis.set_ticks(ticks - parts[0], [f"{tick:g}" for tick in ticks])
        return
    if isinstance(locator := axis.get_major_locator(), MaxNLocator):
        locator.set_params(integer=True, nbins=6)
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
