"""Interactive charts of tables for a page: time series, and profiles of moderate size."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from paceline.analysis.figure_text_layout import MINUS
from paceline.analysis.figures import (
    MANY_POINTS,
    NAMED,
    WINDOWS,
    in_time_unit,
    possible_range,
    running_mean,
    times_in_unit,
)
from paceline.analysis.replica_figures import Profile, differences, line_ends
from paceline.analysis.table import Table, name_and_unit
from paceline.performance.html_elements import MOST_CURVES, Chart, Curve

#: Number of points from which a running mean is drawn while a simulation runs, and number of
#: windows of this mean along the series. They are smaller than in figures of finished runs, because
#: the series are short.
LIVE_POINTS, LIVE_WINDOWS = 100, 10


def charts_of(table: Table, time_unit: str | None = None, *, is_live: bool = False) -> list[Chart]:
    """Make charts of the curves in a table's figure; none for images and for many columns."""
    drawn = table.drawn or table
    more = partial(charts_of, time_unit=time_unit, is_live=is_live)
    if drawn.panels:
        return [chart for one in drawn.panels for chart in more(replace(one, panels=()))]
    if drawn.right:  # a second y axis with another unit
        beside = replace(drawn, y=drawn.right, y_label=drawn.right_label, right={})
        return [*more(replace(drawn, right={})), *more(beside)]
    if drawn.states is not None or drawn.image is not None:
        if not table.is_series:
            return []
        drawn = table
    if drawn.bars or drawn.ticks or drawn.turn or drawn.colour:
        return []
    x = np.asarray(drawn.columns[drawn.abscissa])
    if x.dtype.kind not in "iuf" or not 0 < len(drawn.y) <= MOST_CURVES:
        return []
    points = drawn.points or drawn.no_mean
    least, windows = (LIVE_POINTS, LIVE_WINDOWS) if is_live else (MANY_POINTS, WINDOWS)
    smoothed = drawn.is_series and len(x) >= least and not points and len(drawn.y) <= NAMED
    curves: list[Curve] = []
    for number, (title, name) in enumerate(drawn.y.items()):
        values = np.asarray(drawn.columns[title])
        if values.dtype.kind not in "iufb":
            return []
        values = values.astype(np.float64)
        band = drawn.limits_of(title)
        smooth = running_mean(values, len(x) // windows | 1) if smoothed else None
        curve = Curve(name, x.astype(np.float64), values, number, band, smooth)
        curves += [curve] if drawn.is_series else _pieces(curve)
    chart = Chart(drawn.abscissa, drawn.y_label, _with_times(curves), points)
    return _valid_charts(chart, time_unit)


def charts_of_replicas(
    tables: Mapping[str, Sequence[Table | None]],
    numbers: Mapping[str, Sequence[int]],
    time_unit: str | None = None,
) -> list[Chart]:
    """Make one chart per series, with a curve for each replica in the colour of its group."""
    known = [table for of_group in tables.values() for table in of_group if table is not None]
    if not known or not known[0].is_series or known[0].no_mean:
        return []
    found = []
    for title in list(known[0].y)[:NAMED]:
        curves = [
            Curve(
                f"{group} {k}",
                np.asarray(table.columns[table.abscissa], dtype=np.float64),
                np.asarray(table.columns[title], dtype=np.float64),
                number if len(tables) > 1 else k - 1,
            )
            for number, (group, of_group) in enumerate(tables.items())
            for k, table in zip(numbers[group], of_group, strict=True)
            if table is not None and title in table.columns
        ]
        chart = Chart(known[0].abscissa, title, _with_times(curves))
        found += _valid_charts(chart, time_unit)
    return found


def charts_of_profile(profile: Profile) -> list[Chart]:
    """Make charts with intervals: means of groups, and differences from the first group."""
    if len(profile.keys) > 1:
        return []
    ((x_label, x),) = profile.keys.items()
    ends = line_ends(profile.chains, x)
    x = np.insert(x.astype(np.float64), ends, np.nan)

    def curve(name: str, number: int, mean: np.ndarray, half: np.ndarray) -> list[Curve]:
        values, low, high = np.insert([mean, mean - half, mean + half], ends, np.nan, axis=1)
        return list(_pieces(Curve(name, x, values, number, (low, high))))

    found = []
    for title in list(profile.values)[:NAMED]:
        label = profile.label if len(profile.values) == 1 else title
        means = profile.means(title)
        of_groups = [
            curve(f"mean of {group}", number, one.mean, one.interval)
            for number, (group, one) in enumerate(means.items())
        ]
        between = [
            curve(pair, number, one.difference, one.interval)
            for number, (pair, one) in enumerate(differences(means).items(), start=1)
        ]
        unit = name_and_unit(label)[1] if label != "g(r)" else ""
        labels = (label, f"difference{unit and f' ({unit})'}")
        for one, curves in zip(labels, (of_groups, between), strict=True):
            if curves:
                found += _valid_charts(Chart(x_label, one, [part for of in curves for part in of]))
    return found


def _pieces(curve: Curve) -> Iterator[Curve]:
    """Split a curve at NaN in its x values, such as between chains."""
    runs = np.split(np.arange(len(curve.x)), np.flatnonzero(np.isnan(curve.x)))
    runs = [rows[~np.isnan(curve.x[rows])] for rows in runs]
    runs = [rows for rows in runs if len(rows)]
    for k, rows in enumerate(runs, start=1):
        name = curve.name if len(runs) == 1 else f"{curve.name}, chain {k}"
        colour = curve.colour if len(runs) == 1 else curve.colour * len(runs) + k - 1
        band = None if curve.band is None else (curve.band[0][rows], curve.band[1][rows])
        yield Curve(name, curve.x[rows], curve.values[rows], colour, band)


def _with_times(curves: Sequence[Curve]) -> list[Curve]:
    """Interpolate, in each curve, the times of frames that were left out."""
    found = []
    for one in curves:
        known = np.flatnonzero(np.isfinite(one.x))
        if 0 < len(known) < len(one.x):
            x = np.interp(np.arange(len(one.x)), known, one.x[known])
            one = Curve(one.name, x, one.values, one.colour, one.band, one.smooth)
        found.append(one)
    return found


def _valid_charts(chart: Chart, time_unit: str | None = None) -> list[Chart]:
    """Convert times to a readable unit; drop charts with unsorted x or with too many curves."""
    fits = 0 < len(chart.curves) <= MOST_CURVES
    sorted_ones = all(
        np.isfinite(one.x).all() and (np.diff(one.x) > 0).all() for one in chart.curves
    )
    if not fits or not sorted_ones:
        return []
    label, abscissas = in_time_unit(chart.x_label, [one.x for one in chart.curves], time_unit)
    pairs = zip(chart.curves, abscissas, strict=True)
    curves = [replace(one, x=x, name=times_in_unit(one.name, label)) for one, x in pairs]
    y_label = re.sub(r"^-(?=[A-Z]_)", MINUS, chart.y_label)
    limits = possible_range(chart.y_label)
    return [replace(chart, x_label=label, y_label=y_label, curves=curves, limits=limits)]
