"""Tables of results: columns by title, and what figures show of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from paceline.analysis.uncertainty import SeriesMean, mean_of_series
from paceline.contract.atoms import Atoms, Residues, attribute_of, has_attribute

#: Rows of a table of what is there most often, at most.
MOST_FREQUENT = 1000
#: Rows of a bar code of what is there most often, at most.
MOST_MARKED = 20
#: Parts of a map, at most.
MOST_MAPPED = 200
#: Parts of a map, at most, that have their names beside them; others are numbered.
MOST_NAMED = 60
#: Error of times that is taken for rounding, relative to the largest.
ROUNDING = 1e-6


@dataclass(frozen=True)
class States:
    """States or values of residues, or of other parts, in each row of a table, drawn as colours.

    `numbers`, shape (n_rows, n_parts), are indices in `names`, pairs of a name and its colour, or
    -1 for none. `parts` are the numbers of the parts, or their names, and `label` is that of the
    ordinate. Without `names`, `numbers` are values, or NaN for none, in the `colours` of a scale,
    and `bar` is the label of that, which begins at `low`, or at the lowest value.
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
    Columns of `right` have an ordinate of their own, with `right_label`. Points have the colours of
    the column `colour`. If both axes are angles of a full `turn`, from one to another, they are a
    square, in which the regions of a `reference` are drawn. `stacks` name columns of the whole
    table that are one column of the figure, one after another. Figures of a `logarithmic` table
    have logarithmic axes. Sentences name the columns of `headlines` before the others.
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
    right: Mapping[str, str] = field(default_factory=dict)
    right_label: str = ""
    colour: str = ""
    turn: Sequence[float] = ()
    reference: str = ""
    stacks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    logarithmic: bool = False
    headlines: Sequence[str] = ()

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

    def with_panels_of_units(self, labels: Mapping[str, str] | None = None) -> "Table":
        """Draw the columns along the ordinate in panels, one for each of their units."""
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
        """Make the same table for frames whose times are not known."""
        drawn = None if self.drawn is None else self.drawn.without_times()
        panels = [one.without_times() for one in self.panels]
        return replace(self, times_known=False, drawn=drawn, panels=panels)

    @property
    def answering(self) -> list[str]:
        """Columns along the ordinate, in the order in which sentences name them."""
        return sorted(self.y, key=lambda title: title not in self.headlines)

    def means(self, titles: Sequence[str] | None = None) -> dict[str, SeriesMean]:
        """Mean of each series in time, or of some, by title; empty where frames are unordered."""
        if self.no_mean or not self.is_series:
            return {}
        times = np.asarray(self.columns[self.x], dtype=float)
        if not np.all(np.diff(times[~np.isnan(times)]) > 0):
            return {}
        return {title: mean_of_series(self.columns[title]) for title in titles or self.y}


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


def part_labels(names: Sequence[str], numbers: np.ndarray) -> np.ndarray:
    """Labels of the parts of a map: names of a few, else numbers."""
    return np.array(names, dtype=str) if len(names) <= MOST_NAMED else np.asarray(numbers)


def names_of(atoms: Atoms) -> np.ndarray:
    """Names of atoms, or their indices where the topology has none."""
    return atoms.names if has_attribute(atoms, "names") else atoms.indices
