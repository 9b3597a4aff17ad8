"""Tables of results: columns by title, with a description of the figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from paceline.analysis.uncertainty import SeriesMean, in_order, mean_of_series, used_rows
from paceline.contract.system_interface import Atoms, Residues, attribute_of, has_attribute

#: Maximum number of rows in a table of the most frequent items.
MOST_FREQUENT = 1000
#: Maximum number of items in a timeline of the most frequent items.
MOST_MARKED = 20
#: Maximum number of parts, such as residues, in a map of parts and time.
MOST_MAPPED = 200
#: Maximum number of parts in a map that names them; in larger maps, parts are numbered.
MOST_NAMED = 60
#: Maximum rounding error of a time, as a fraction of it; of times below 1, the error itself.
ROUNDING = 1e-6
#: Maximum difference between the times of a repeated frame, as a fraction of the time.
OF_REPEATS = 1e-13
#: Whole numbers up to this one are exact in single precision.
MOST_EXACT = 2**24


@dataclass(frozen=True)
class States:
    """States or values of residues, or of other parts, in each row of a table, drawn as colours.

    `parts` are the numbers or names of the parts, and `label` is the label of the y axis. For
    states, `numbers`, shape (n_rows, n_parts), are indices in `names`, or -1 for none. `names` are
    pairs of a name and its colour. For values, `names` is empty, and `numbers` are values, or NaN
    for none. They are drawn with the colour scale `colours`, which begins at `low` or at the
    smallest value. `bar` is the label of the scale.
    """

    numbers: np.ndarray
    parts: np.ndarray
    label: str
    names: Sequence[tuple[str, str]] = ()
    bar: str = ""
    colours: str = "viridis"
    low: float | None = None


@dataclass(frozen=True)
class Image:
    """Values on a grid, drawn as colours.

    `values`, shape (n_x, n_y), are between `x_edges` and `y_edges`; NaN values stay white. The axis
    labels `x_label` and `y_label`, and the label of the colours, `label`, contain units. If rows
    and columns are atoms or residues, `parts` are their numbers, and the edges count them. `note`
    is shown above the figure. `limits` are the limits of the colours. With `equal`, both axes have
    the same scale.
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
    """Columns of equal length by title, with a description of the figure.

    `x` is the column on the x axis. `y` maps the columns on the y axis to their legends, and
    `y_label` is the label of the y axis with unit. Figures show the table `drawn`, `states` or an
    `image` instead of the columns if one of these is set. With `points`, points are drawn instead
    of lines. `no_mean` marks values without a meaningful mean, such as periodic angles and numbers
    of clusters; they are drawn as points, too. `profile` is a table of means over frames, for
    example of residues. `keys` are the columns by which rows of several runs are compared, by
    default `x`. A table is `partial` if the results contain more data. `ticks` are names of the
    rows, which the x axis counts. With `bars`, the names in `x` label bars. Columns in `counts`
    contain integers, or NaN in frames that were left out. If times are unknown (`times_known`),
    frame numbers are on the x axis. `notes` are sentences on single values, such as an integral
    with its interval. `bands` map columns on the y axis to columns of half the widths of their
    95 % intervals, or to two columns with their limits. With `panels`, figures show these tables
    one above the other, with a common x axis. Columns in `right` have a second y axis with the
    label `right_label`. The column `colour` sets the colours of points. If both axes are periodic
    angles, `turn` is their range, the axes are square, and regions of a `reference` are drawn.
    `stacks` list columns of the whole table that form one column of the figure, one after another.
    With `logarithmic`, both axes are logarithmic. Sentences name the columns of `headlines` first.
    `n_series` is the number of series that are assessed together: by default those of the y axis,
    or of all panels.
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
    bands: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    times_known: bool = True
    panels: "Sequence[Table]" = ()
    right: Mapping[str, str] = field(default_factory=dict)
    right_label: str = ""
    colour: str = ""
    turn: Sequence[float] = ()
    reference: str = ""
    stacks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    logarithmic: bool = False
    headlines: Sequence[str] = ()
    n_series: int = 0

    def __post_init__(self) -> None:
        """Count the series of the table and its panels; each panel gets this number, too."""
        series = {title for one in (self, *self.panels) for title in one.y}
        n_series = max(1, self.n_series, len(series))
        object.__setattr__(self, "n_series", n_series)
        panels = [replace(one, n_series=n_series) for one in self.panels]
        object.__setattr__(self, "panels", panels)

    def cells(self, title: str, rows: slice = slice(None)) -> list[object]:
        """Return the numbers or names in some rows of a column; counts become integers."""
        found = self.columns[title][rows].tolist()
        if title in self.counts:
            return [value if value != value else int(value) for value in found]
        return found

    @property
    def is_series(self) -> bool:
        """True if rows are frames or simulation steps."""
        return self.x.lower().startswith(("time", "step")) or self.x.lower() == "frame"

    @property
    def abscissa(self) -> str:
        """Title of the column on the x axis of figures.

        The x axis shows frame numbers if times are unknown or all equal.
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
    def in_order(self) -> bool:
        """True if rows are frames in the order of time; see `uncertainty.in_order`."""
        return self.is_series and in_order(np.asarray(self.columns[self.abscissa], dtype=float))

    @property
    def title(self) -> str:
        """Title of a figure, from the labels of its axes without units.

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

    def with_panels_of_units(self, labels: Mapping[str, str] | None = None) -> "Table":
        """Make a table whose figure has one panel for each unit of the columns on the y axis."""
        titles = {title: name_and_unit(title)[1] for title in self.y}
        units = list(dict.fromkeys(titles.values()))
        if len(units) < 2:
            return self
        panels = []
        for unit in units:
            y = {title: name for title, name in self.y.items() if titles[title] == unit}
            label = (labels or {}).get(unit, f"value ({unit})" if unit else "value")
            panels.append(replace(self, y=y, y_label=next(iter(y)) if len(y) == 1 else label))
        return replace(self, panels=panels)

    def without_times(self) -> "Table":
        """Make the same table for frames with unknown times."""
        drawn = None if self.drawn is None else self.drawn.without_times()
        panels = [one.without_times() for one in self.panels]
        return replace(self, times_known=False, drawn=drawn, panels=panels)

    def band_titles(self, title: str) -> list[str]:
        """Titles of the columns with the intervals of a column; empty if it has none."""
        band = self.bands.get(title, ())
        return [band] if isinstance(band, str) else [*band]

    def limits_of(self, title: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Lower and upper limits of the 95 % intervals of a column; None if it has none."""
        band = [self.columns[one] for one in self.band_titles(title)]
        if len(band) == 1:
            values = self.columns[title]
            return values - band[0], values + band[0]
        return (band[0], band[1]) if band else None

    @property
    def answering(self) -> list[str]:
        """Columns on the y axis, in the order in which sentences name them."""
        return sorted(self.y, key=lambda title: title not in self.headlines)

    def means(self, titles: Sequence[str] | None = None) -> dict[str, SeriesMean]:
        """Means of all or some time series, by title.

        Empty if frames are not in the order of time, or if means have no meaning (`no_mean`).
        """
        if self.no_mean or not self.in_order:
            return {}
        along = np.asarray(self.columns[self.abscissa], dtype=float)
        return {title: mean_of_series(self.columns[title], along) for title in titles or self.y}

    def values_in_time(self, title: str) -> tuple[np.ndarray, bool]:
        """Return the values of a series from which its mean is computed.

        Also returns True if values are repeated, because times are uneven.
        """
        times = np.asarray(self.columns[self.abscissa], dtype=float) if self.is_series else None
        values = np.asarray(self.columns[title], dtype=float)
        used = used_rows(values, times)
        return values[used.rows], used.by_time


def rounding_of(times: np.ndarray, others: np.ndarray | Sequence[float] = ()) -> np.ndarray:
    """Maximum difference from each time that counts as rounding.

    Files store times, or the time between frames, in single precision and various units, so 95 ps
    may be read as 94.99999 ps. More than a tenth of the time to the nearest other frame is not
    rounding. If these times and the `others`, which are compared with them, are all whole numbers,
    such as numbers of frames, no difference is rounding.
    """
    finite = np.isfinite(times)
    known = times[finite]
    distinct, places = np.unique(known, return_inverse=True)
    apart = np.diff(distinct, prepend=-np.inf, append=np.inf)
    apart[:-1][apart[:-1] <= OF_REPEATS * np.abs(distinct)] = np.inf
    nearest = np.minimum(apart[:-1], apart[1:])[places]
    slack = np.minimum(ROUNDING * np.maximum(np.abs(known), 1), nearest / 10)
    if _are_whole(known) and _are_whole(np.asarray(others, dtype=float)):
        slack[np.abs(known) <= MOST_EXACT] = 0
    found = np.zeros(len(times))
    found[finite] = slack
    return found


def _are_whole(values: np.ndarray) -> bool:
    """Check whether all finite values are whole numbers."""
    return bool((np.rint(values) == values)[np.isfinite(values)].all())


def matching_rows(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the rows of two columns of times or frame numbers that are equal within rounding.

    Each value is paired with the nearest one. Returns None if a column contains equal values, or
    if two values have the same partner; NaN matches nothing.

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
    one, other = values
    after = np.clip(np.searchsorted(other, one), 1, max(1, len(other) - 1))
    before, after = after - 1, np.minimum(after, len(other) - 1)
    near = np.where(one - other[before] <= other[after] - one, before, after)
    slack = np.minimum(rounding_of(one, other), rounding_of(other, one)[near])
    equal = np.abs(other[near] - one) <= slack
    partners = near[equal]
    if (np.diff(partners) == 0).any():
        return None
    return orders[0][equal], orders[1][partners]


def name_and_unit(title: str) -> tuple[str, str]:
    """Split the title of a column, such as "time (ps)", into name and unit; "g(r)" has no unit."""
    name, blank, unit = title.rpartition(" (")
    return (name, unit[:-1]) if blank and unit.endswith(")") else (title, "")


def title_of_band(title: str) -> str:
    """Title of the column with half the widths of the 95 % intervals of a column.

    Examples
    --------
    >>> title_of_band("RMSF (Å)"), title_of_band("g(r)")
    ('RMSF, 95 % ± (Å)', 'g(r), 95 % ±')
    """
    name, unit = name_and_unit(title)
    return f"{name}, 95 % ± ({unit})" if unit else f"{name}, 95 % ±"


def titles_of_limits(title: str) -> tuple[str, str]:
    """Titles of the columns with the limits of the 95 % intervals of a column.

    Examples
    --------
    >>> titles_of_limits("fraction of frames")
    ('fraction of frames, 95 % from', 'fraction of frames, 95 % to')
    >>> titles_of_limits("helix (fraction of frames)")
    ('helix, 95 % from (fraction of frames)', 'helix, 95 % to (fraction of frames)')
    """
    name, unit = name_and_unit(title)
    below, above = (f"{name}, 95 % {end}{f' ({unit})' if unit else ''}" for end in ("from", "to"))
    return below, above


def with_gaps(counts: np.ndarray, left_out: np.ndarray) -> np.ndarray:
    """Replace the counts of left-out frames by NaN; without such frames, return the integers."""
    return np.where(left_out, np.nan, counts) if left_out.any() else counts


def along_residues(
    residues: Residues,
    values: Mapping[str, np.ndarray],
    label: str,
    intervals: Mapping[str, np.ndarray] | None = None,
) -> Table | None:
    """Make a profile of values of residues along their numbers; None for a single residue.

    A row of NaN is inserted where numbers do not increase, such as between chains, so that lines
    are interrupted. `intervals` are half the widths of 95 % intervals of some values, or their
    limits, shape (n_residues, 2).
    """
    if not has_attribute(residues, "resids") or len(residues) < 2:
        return None
    numbers = residues.resids.astype(float)
    ends = np.flatnonzero(np.diff(numbers) <= 0) + 1
    columns: dict[str, np.ndarray] = {"residue": numbers, **values}
    bands: dict[str, str | Sequence[str]] = {}
    for title, half in (intervals or {}).items():
        limits = titles_of_limits(title) if half.ndim == 2 else (title_of_band(title),)
        bands[title] = limits if half.ndim == 2 else limits[0]
        columns |= zip(limits, np.atleast_2d(half.T), strict=True)
    columns = {title: np.insert(column, ends, np.nan) for title, column in columns.items()}
    legend = {
        title: f"{title.partition(' (')[0]}{' and 95 % interval' * (title in bands)}"
        for title in values
    }
    return Table(columns, "residue", legend, label, bands=bands)


def fractions_of_frames(
    kind: str,
    labels: Sequence[str],
    columns: Mapping[str, np.ndarray],
    counts: np.ndarray,
    n_frames: int,
    intervals: np.ndarray | None = None,
) -> Table:
    """Make a table of items by label, with the fraction of frames in which each item occurs.

    `intervals` are the limits of the 95 % intervals of the fractions, shape (n_items, 2).
    """
    title = "fraction of frames"
    found = {kind: np.array(labels, dtype=str), **columns}
    found |= {"frames": counts, title: counts / (n_frames or np.nan)}
    if intervals is None:
        return Table(found, kind, {title: title}, title, bars=True)
    limits = titles_of_limits(title)
    found |= zip(limits, intervals.T, strict=True)
    return Table(found, kind, {title: title}, title, bars=True, bands={title: limits})


def numbers_of(residues: Residues) -> np.ndarray:
    """Numbers of residues, with insertion codes if there are any, such as "163A"."""
    numbers, codes = residues.resids, attribute_of(residues, "icodes")
    if codes is None or not any(codes):
        return numbers
    return np.array([f"{number}{code}" for number, code in zip(numbers, codes, strict=True)])


def telling_columns(residues: Residues, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return columns that distinguish residues with equal numbers, such as insertion codes.

    `rows` maps the beginnings of titles to the indices of the residues in the rows of a table.
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
    """Name atoms by residue and name, such as "LYS 13 NZ"; with segment if names are ambiguous."""
    names = names_of(atoms)
    if not any(has_attribute(atoms, name) for name in ("resnames", "resids")):
        return [f"{name}" for name in names]
    residues = residue_labels(atoms.universe.residues, np.unique(atoms.resindices))
    return [
        f"{residues[k]} {name}" for k, name in zip(atoms.resindices.tolist(), names, strict=True)
    ]


def residue_labels(residues: Residues, indices: np.ndarray) -> dict[int, str]:
    """Name some residues, such as "LYS 13"; with segment or index if names are ambiguous."""
    some = residues[indices]
    # Consider the other residues of the Universe, too.
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


def part_labels(names: Sequence[str], numbers: np.ndarray) -> np.ndarray:
    """Labels for the parts of a map: names if there are few parts, otherwise numbers."""
    return np.array(names, dtype=str) if len(names) <= MOST_NAMED else np.asarray(numbers)


def names_of(atoms: Atoms) -> np.ndarray:
    """Names of atoms, or their indices if the topology has no names."""
    return atoms.names if has_attribute(atoms, "names") else atoms.indices
