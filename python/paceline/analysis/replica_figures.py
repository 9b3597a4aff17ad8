"""Profiles of replicas at common positions, and figures of groups of replicas."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from paceline.analysis.convergence_of_table_series import SeriesVerdict
from paceline.analysis.figure_text_layout import fit_labels, legend_above, put_title, with_minus
from paceline.analysis.figures import (
    MANY_POINTS,
    MOST_BARS,
    NAMED,
    WINDOWS,
    begin_together,
    draw,
    draw_reference,
    find_gaps,
    in_time_unit,
    make_square,
    possible_range,
    running_mean,
)
from paceline.analysis.series_verdict import DRIFTING, SAMPLED
from paceline.analysis.table import Table, name_and_unit
from paceline.analysis.uncertainty import (
    GroupDifference,
    ReplicaMean,
    adjusted_p_values,
    difference_of_groups,
    levels_of_rows,
    mean_of_replicas,
)
from paceline.contract.figure_options import FigureOptions
from paceline.performance.number_format import many

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

#: Height of one panel in figures of series and of profiles, inches.
PANEL = 1.5
#: Height of the space around all panels, inches.
AROUND = 0.7
#: Height of a row in the figure of the most frequent items, inches.
HEIGHT = 0.13


@dataclass(frozen=True)
class Profile:
    """Values of all replicas along residues or along another x axis, at common positions.

    Attributes
    ----------
    keys : dict of str to numpy.ndarray, shape (n_rows,)
        Columns that identify a row; the first one contains the x values.
    chains : numpy.ndarray of int64, shape (n_rows,)
        Number of the chain of each row, from 0; lines are interrupted between chains.
    values : dict of str to dict of str to numpy.ndarray, shape (n_replicas, n_rows)
        Values by title and group; NaN if a replica lacks a row.
    label : str
        Label of the y axis.
    numbers : dict of str to list of int
        Numbers of the replicas of each group, as in titles of columns.
    """

    keys: Mapping[str, np.ndarray]
    chains: np.ndarray
    values: Mapping[str, Mapping[str, np.ndarray]]
    label: str
    numbers: Mapping[str, Sequence[int]]

    def means(self, title: str) -> dict[str, ReplicaMean]:
        """Return the mean of each group, shape (n_rows,); NaN in rows that a replica lacks.

        A mean of the other replicas would jump at the row where the values of one replica end, such
        as its longest lag. Replicas without any value are ignored.
        """
        means = {}
        for group, values in self.values[title].items():
            partly = np.isnan(values[~np.isnan(values).all(axis=1)]).any(axis=0)
            means[group] = mean_of_replicas(np.where(partly, np.nan, values))
        return means

    def table(self) -> Table:
        """Make a table of means, intervals, replicas, and differences from the first group."""
        columns: dict[str, np.ndarray] = {}
        if len(np.unique(self.chains)) > 1:
            columns["chain"] = self.chains + 1
        columns |= self.keys
        y, bands = {}, {}
        for title, of_groups in self.values.items():
            means = self.means(title)
            for group, mean in means.items():
                columns[add_to_title(title, f"mean of {group}")] = mean.mean
                columns[add_to_title(title, f"{group}, 95 % interval")] = mean.interval
                y[add_to_title(title, f"mean of {group}")] = group
                bands[add_to_title(title, f"mean of {group}")] = add_to_title(
                    title, f"{group}, 95 % interval"
                )
                for k, values in zip(self.numbers[group], of_groups[group], strict=True):
                    columns[add_to_title(title, f"{group} {k}")] = values
            for group, difference in differences(means).items():
                columns[add_to_title(title, group)] = difference.difference
                columns[add_to_title(title, f"{group}, 95 % interval")] = difference.interval
                columns[f"{name_and_unit(title)[0]}, {group}, adjusted p"] = adjusted_p_values(
                    difference.p_value
                )
                least = add_to_title(title, f"{group}, detectable with 80 % power")
                columns[least] = detectable_in_rows(difference)
        x = next(iter(self.keys))
        return Table(columns, x, y, self.label, bands=bands)


def differences(means: Mapping[str, ReplicaMean]) -> dict[str, GroupDifference]:
    """Return differences of the other groups from the first, by names like "mutant - wild type"."""
    first, *others = means
    return {
        f"{other} - {first}": difference_of_groups(means[first], means[other]) for other in others
    }


def detectable_in_rows(difference: GroupDifference) -> np.ndarray:
    """Return how large a true difference in each row must be to be found in 80 % of all cases.

    The level of the corrected test depends on the p values of the other rows, which are used
    unchanged.
    """
    return difference.detectable_at(levels_of_rows(difference.p_value))


def add_to_title(title: str, more: str) -> str:
    """Insert words into the title of a column, before its unit."""
    name, space, unit = title.partition(" (")
    return f"{name}, {more}{space}{unit}"


def profile_of(table: Table | None) -> Table | None:
    """Return the table of means over frames (the profile) for a table, or None if it has none."""
    if table is None or table.is_series:
        return None if table is None else table.profile
    drawn = table.drawn
    return table if drawn is None or drawn.image is not None else drawn


def profile_of_replicas(
    of_groups: Mapping[str, Sequence[Table | None]],
    numbers: Mapping[str, Sequence[int]],
    same_atoms: Callable[[], bool],
) -> Profile | None:
    """Align the profiles in the tables of replicas, by group; None if there are none.

    `numbers` contains the numbers of the replicas of each group. `same_atoms` is called if rows are
    identified by indices of atoms; it returns True if these can be compared between replicas.
    """
    tables = {
        (group, k): found
        for group, of_group in of_groups.items()
        for k, table in enumerate(of_group)
        if (found := profile_of(table)) is not None
    }
    if not tables:
        return None
    first = next(iter(tables.values()))
    names = first.keys or (first.x,)
    if any("atom index" in key for key in names) and not same_atoms():
        return None
    keys, chains, rows = align(list(tables.values()), names)
    if not len(chains):
        return None
    by_replica = dict(zip(tables, rows, strict=True))
    values: dict[str, dict[str, np.ndarray]] = {}
    for title in first.y:
        values[title] = {}
        for group, of_group in of_groups.items():
            columns = np.full((len(of_group), len(chains)), np.nan)
            for k in range(len(of_group)):
                if (group, k) in tables and title in tables[group, k].columns:
                    taken = by_replica[group, k]
                    column = np.asarray(tables[group, k].columns[title], dtype=float)
                    columns[k] = np.where(taken >= 0, column[taken], np.nan)
            values[title][group] = columns
    return Profile(keys, chains, values, first.y_label, numbers)


def align(
    tables: Sequence[Table], keys: Sequence[str]
) -> tuple[dict[str, np.ndarray], np.ndarray, list[np.ndarray]]:
    """Find corresponding rows of several tables.

    Returns columns of `keys`, the number of the chain of each row, and for each table the index of
    the row with these keys, or -1 if the table lacks the row. All are empty if non-integer x values
    differ by more than half a step, or if several rows have the same keys and tables have different
    keys.
    """
    columns = [[np.asarray(table.columns[key], dtype=float) for key in keys] for table in tables]
    if not all(
        np.array_equal(key, np.round(key), equal_nan=True) for one in columns for key in one
    ):
        return _align_by_number(columns, keys)
    places: list[dict[tuple[float, ...], int]] = []
    several = False
    for one in columns:
        chains = np.cumsum(np.isnan(one[0]))
        found: dict[tuple[float, ...], int] = {}
        for row in np.flatnonzero(~np.isnan(one[0])):
            place = (float(chains[row]), *(float(key[row]) for key in one), 0.0)
            while place in found:  # equal keys, such as pairs of residues of several chains
                place = (*place[:-1], place[-1] + 1)
                several = True
            found[place] = int(row)
        places.append(found)
    if several and any(one.keys() != places[0].keys() for one in places):
        return {}, np.empty(0, dtype=np.int64), []
    union = sorted(set().union(*places))
    rows = [np.array([one.get(place, -1) for place in union], dtype=np.int64) for one in places]
    together = np.array(union).reshape(len(union), len(keys) + 2)
    named = {key: together[:, k].astype(np.int64) for k, key in enumerate(keys, start=1)}
    return named, together[:, 0].astype(np.int64), rows


def _align_by_number(
    columns: Sequence[Sequence[np.ndarray]], keys: Sequence[str]
) -> tuple[dict[str, np.ndarray], np.ndarray, list[np.ndarray]]:
    """Align rows by index if their x values are nearly equal.

    Some tables may be shorter than others, for example with shorter lags.
    """
    rows = np.arange(max(len(one[0]) for one in columns))
    means = {}
    for key, of_tables in zip(keys, zip(*columns, strict=True), strict=True):
        stacked = np.full((len(of_tables), len(rows)), np.nan)
        for row, values in zip(stacked, of_tables, strict=True):
            row[: len(values)] = values
        known = np.ma.masked_invalid(stacked)
        means[key] = known.mean(axis=0).filled(np.nan)
        steps = np.abs(np.diff(means[key]))
        spread = np.ma.filled(np.ma.ptp(known, axis=0), 0.0)
        if spread.max() > steps[steps > 0].min(initial=np.inf) / 2:
            return {}, np.empty(0, dtype=np.int64), []
    of_tables = [np.where(rows < len(one[0]), rows, -1) for one in columns]
    return means, np.zeros(len(rows), dtype=np.int64), of_tables


def _panels(
    n_panels: int,
    width: float,
    *,
    ncols: int = 1,
    width_ratios: Sequence[float] | None = None,
    sharex: bool = False,
) -> "tuple[Figure, np.ndarray]":
    """Make a figure with `n_panels` rows of panels; return figure and axes.

    The axes have the shape (n_panels, ncols).
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, PANEL * n_panels + AROUND), layout="constrained")
    axes = figure.subplots(n_panels, ncols, squeeze=False, sharex=sharex, width_ratios=width_ratios)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.margins(x=0)
    return figure, axes


def _time_unit(tables: Sequence[Table]) -> str | None:
    """Choose a unit of time for all tables; None if there are no times."""
    times = [table.columns[table.abscissa] for table in tables if table.abscissa == "time (ps)"]
    label, _ = in_time_unit("time (ps)", times) if times else ("", [])
    return name_and_unit(label)[1] or None


def draw_series(
    tables: Mapping[str, Sequence[Table | None]],
    means: Mapping[str, Mapping[str, ReplicaMean]],
    width: float,
    options: FigureOptions,
    *,
    numbers: Mapping[str, Sequence[int]],
    verdicts: Mapping[str, Mapping[str, SeriesVerdict]],
) -> "Figure":
    """Draw all replicas against time, and to the right means of replicas and of groups.

    Times are shaded up to the latest start of an equilibrated part. If a replica drifts, all times
    are shaded. If replicas begin at different times, no times are shaded.
    """
    titles = list(means)[:NAMED]
    figure, axes = _panels(len(titles), width, ncols=2, width_ratios=[4, 1])
    unit = options.time_unit or _time_unit([*filter(None, chain.from_iterable(tables.values()))])
    for (ax, beside), title in zip(axes, titles, strict=True):
        of_groups, abscissa = verdicts.get(title, {}) if options.stats else {}, ""
        times = []
        for number, (group, of_group) in enumerate(tables.items()):
            if group not in means[title]:
                continue
            mean, colour = means[title][group], f"C{number}"
            label: str | None = group
            if options.stats:
                label = f"{group}, {with_minus(_mean_of_all(mean, of_groups.get(group)))}"
            heading = label if len(tables) == 1 else None
            for k, table in zip(numbers[group], of_group, strict=True):
                if table is None or title not in table.columns:
                    continue
                abscissa = table.abscissa
                x_label, (x,) = in_time_unit(abscissa, [table.columns[abscissa]], unit)
                times.append(x)
                values = np.asarray(table.columns[title], dtype=float)
                if len(x) >= MANY_POINTS:
                    values = running_mean(values, len(x) // WINDOWS | 1)
                if heading is not None:  # with a single group, each replica has its own colour
                    label, colour = f"{group} {k}", f"C{(k - 1) % 10}"
                ax.plot(x, values, color=colour, linewidth=0.7, alpha=0.8, label=label)
                label = None
                ax.set_xlabel(x_label)
                known, _ = table.values_in_time(title)
                mean_of_one = known.mean() if len(known) else np.nan
                beside.plot(number - 0.15, mean_of_one, ".", color=colour)
            interval = np.nan_to_num(mean.interval)
            bar = {"color": "black" if heading is not None else colour, "capsize": 2, "fmt": "_"}
            beside.errorbar([number + 0.15], [mean.mean], [interval], **bar)
        found = [one.found for one in of_groups.values()]
        starts = np.array([one.equilibrated_at for one in found if one.equilibrated_from])
        _, (starts,) = in_time_unit(abscissa, [starts], unit)
        begin, end = ax.get_xlim()
        drifts = any(one.verdict == DRIFTING for one in found)
        last = end if drifts else np.nanmax(starts, initial=-np.inf)
        if last > begin and begin_together(times):
            shade = {"color": "0.88", "linewidth": 0, "zorder": 0, "label": "not equilibrated"}
            ax.axvspan(begin, last, **shade)
        ax.set_ylabel(title)
        ax.locator_params(axis="x", nbins=6)
        beside.set_xticks(range(len(tables)), list(tables), rotation=45, ha="right")
        beside.set_xlim(-0.6, len(tables) - 0.4)
        beside.set_title("mean", fontsize="medium", fontweight="normal", loc="center")
        if len(tables) == 1:
            legend_above(ax, columns=2, title=heading)
        else:
            legend_above(ax)
    fit_labels(axes[0, 0])
    return figure


def _mean_of_all(mean: ReplicaMean, verdict: SeriesVerdict | None) -> str:
    """Format a mean over all frames, with the verdict, for a legend.

    If the first frames are not equilibrated, the text calls it the mean of all frames.
    """
    if verdict is None:
        return mean.short
    found = verdict.found
    is_later = found.verdict == DRIFTING or bool(found.equilibrated_from)
    text = mean.short.replace("mean ", "mean of all ", 1) if is_later else mean.short
    return text if found.verdict == SAMPLED else f"{text}, {found.verdict}"


def draw_points(tables: Mapping[str, Sequence[Table]], width: float) -> "Figure":
    """Draw pairs of angles as points, with groups side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, width / len(tables) + 1.5 * AROUND), layout="constrained")
    axes = figure.subplots(1, len(tables), squeeze=False, sharex=True, sharey=True)[0]
    patches: list[Patch] = []
    for number, (ax, (group, of_group)) in enumerate(zip(axes, tables.items(), strict=True)):
        for k, drawn in enumerate(table.drawn or table for table in of_group):
            colour = f"C{number if len(tables) > 1 else k % 10}"
            ((y, label),) = drawn.y.items()
            ax.plot(
                *(drawn.columns[drawn.x], drawn.columns[y], "."),
                **{"color": colour, "markersize": 0.5, "rasterized": True},
            )
            ax.set_xlabel(drawn.x)
            axes[0].set_ylabel(label)
        if drawn.turn:
            make_square(ax, drawn.turn)
        ax.set_aspect("equal")
        patches, regions = draw_reference(drawn.reference, ax)
        put_title(ax, f"{group} ({many(len(of_group), 'replica')})")
    if patches:
        figure.legend(
            patches,
            regions,
            loc="outside upper center",
            ncols=len(regions),
            frameon=False,
            fontsize="x-small",
        )
    return figure


def draw_maps(tables: Mapping[str, Sequence[Table]], width: float) -> "Figure | None":
    """Draw the mean map of each group, with groups side by side; None if maps differ in size."""
    from matplotlib.figure import Figure

    images = [table.image for of in tables.values() for table in of if table.image is not None]
    if len({(*one.values.shape, one.x_label) for one in images}) != 1:
        return None
    figure = Figure(figsize=(width, width / len(tables) + AROUND), layout="constrained")
    axes = figure.subplots(1, len(tables), squeeze=False)[0]
    for ax, (group, of_group) in zip(axes, tables.items(), strict=True):
        (first, *_) = (table for table in of_group if table.image is not None)
        assert first.image is not None
        values = np.mean([one.image.values for one in of_group if one.image is not None], axis=0)
        mean = replace(first, image=replace(first.image, values=values))
        draw(mean, ax, FigureOptions(title=f"{group} (mean of {many(len(of_group), 'replica')})"))
    return figure


def draw_frequent(replicas: Mapping[str, Table], width: float) -> "Figure | None":
    """Draw a map of the most frequent items, such as hydrogen bonds, and of replicas.

    Colours are the fractions of frames. None if there are no items.
    """
    from matplotlib.figure import Figure

    first = next(iter(replicas.values()))
    (title,) = first.y
    found = {
        name: dict(zip(one.columns[one.x].tolist(), one.columns[title].tolist(), strict=True))
        for name, one in replicas.items()
    }
    sums: dict[str, float] = {}
    for of_replica in found.values():
        for name, part in of_replica.items():
            sums[name] = sums.get(name, 0.0) + part
    names = sorted(sums, key=lambda name: -sums[name])[:MOST_BARS]
    if not names:
        return None
    values = np.array([[one.get(name, 0.0) for name in names] for one in found.values()])
    figure = Figure(figsize=(width, HEIGHT * len(names) + 2 * AROUND), layout="constrained")
    ax = figure.subplots()
    mesh = ax.pcolormesh(values.T, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(mesh, ax=ax, label=title)
    ax.set_xticks(np.arange(len(found)) + 0.5, [*found], rotation=45, ha="right")
    ax.set_yticks(np.arange(len(names)) + 0.5, names, fontsize="x-small")
    ax.set_ylabel(first.x)
    ax.invert_yaxis()
    return figure


def line_ends(chains: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Find the rows before which lines are interrupted: between chains, and at missing residues."""
    return np.flatnonzero((np.diff(chains) != 0) | find_gaps(x.astype(float))) + 1


def draw_profile(profile: Profile, width: float) -> "Figure":
    """Draw mean profiles of groups with their intervals, and differences in a panel below."""
    key, x = next(iter(profile.keys.items()))
    ends = line_ends(profile.chains, x)
    x = np.insert(x.astype(float), ends, np.nan)
    titles = list(profile.values)[:NAMED]
    n_groups = len(profile.values[titles[0]])
    figure, axes = _panels(len(titles) * min(n_groups, 2), width, sharex=True)
    panels = iter(axes[:, 0])
    for title in titles:
        means, ax = profile.means(title), next(panels)
        label = profile.label if len(titles) == 1 else title
        ax.set_ylabel(label)
        for number, (group, mean) in enumerate(means.items()):
            n_replicas = len(profile.values[title][group])
            name = f"{group} ({many(n_replicas, 'replica')})"
            _draw_band(ax, x, ends, mean.mean, mean.interval, f"C{number}", name)
        if title == titles[0]:
            legend_above(ax)
        if n_groups < 2:
            continue
        ax = next(panels)
        for number, (pair, one) in enumerate(differences(means).items(), start=1):
            _draw_band(ax, x, ends, one.difference, one.interval, f"C{number}", pair)
        ax.axhline(0, color="black", linewidth=0.5)
        unit = re.search(r" \([^()]+\)$", label)  # g(r) has no unit, and does not match
        ax.set_ylabel(f"difference{unit[0] if unit else ''}")
        if title == titles[0]:
            legend_above(ax)
    axes[-1, 0].set_xlabel(key)
    fit_labels(axes[-1, 0])
    figure.align_ylabels(axes[:, 0])
    return figure


def _draw_band(
    ax: "Axes",
    x: np.ndarray,
    ends: np.ndarray,
    mean: np.ndarray,
    interval: np.ndarray,
    colour: str,
    label: str,
) -> None:
    """Draw a line with the band of its interval."""
    mean, interval = np.insert(mean, ends, np.nan), np.insert(interval, ends, np.nan)
    ax.plot(x, mean, color=colour, linewidth=0.8, label=label)
    low, high = np.clip([mean - interval, mean + interval], *possible_range(ax.get_ylabel()))
    ax.fill_between(x, low, high, color=colour, alpha=0.25, linewidth=0)
