"""Sentences that describe the results of an analysis."""

import numpy as np

from paceline.analysis.convergence_of_table_series import usual_verdicts, verdicts_with_angles
from paceline.analysis.table import Table, name_and_unit
from paceline.performance.number_format import many

#: Maximum number of columns that are described.
MOST = 3


def answers(table: Table) -> list[str]:
    """Describe a table by its findings, or else by its series or the ranges of its columns."""
    if table.notes:
        return [f"{name}: {text}" for name, text in table.notes.items()]
    found = describe_columns(table)
    lines = [f"{name}: {text}" for name, text in found.items()]
    more = len(table.y) - len(lines)
    if len(lines) == MOST and more > MOST:
        return [f"{len(table.y):,} columns; the first: {lines[0]}"]
    return [*lines, f"{many(more, 'further column')} of the table"] if more and lines else lines


def describe_columns(table: Table) -> dict[str, str]:
    """Describe the first columns on the y axis by their means or ranges; return texts by name."""
    titles = table.answering[:MOST]
    is_angle = table.is_series and name_and_unit(table.y_label.partition(",")[0])[1] == "°"
    if means := table.means(titles):
        verdicts = usual_verdicts(table, titles)
        found = {
            title: mean.with_unit(
                name_and_unit(title)[1], verdicts[title].short if title in verdicts else ""
            )
            + _infinite(table, title)
            for title, mean in means.items()
        }
    elif is_angle:
        verdicts = verdicts_with_angles(table)
        found = {title: _describe_angles(*table.values_in_time(title)) for title in titles}
        found |= {
            title: f"{text}; {verdicts[title].short}"
            for title, text in found.items()
            if text and title in verdicts
        }
    else:
        found = {title: _describe_values(table, title) for title in titles}
    return {name_and_unit(title)[0]: text for title, text in found.items() if text}


def _infinite(table: Table, title: str) -> str:
    """Return a note on infinite values, which a mean leaves out; empty if there are none."""
    n = int(np.count_nonzero(np.isinf(np.asarray(table.columns[title], dtype=float))))
    return f"; {many(n, 'infinite value')} left out" if n else ""


def _describe_angles(degrees: np.ndarray, by_time: bool) -> str:
    """Describe periodic angles by their circular mean and standard deviation; "" without a mean."""
    turns = np.exp(1j * np.radians(degrees))
    if len(turns) == 0 or abs(turns.mean()) < np.finfo(float).eps:
        return ""
    mean = turns.mean()
    spread = np.degrees(np.sqrt(max(0.0, -2 * np.log(min(1.0, abs(mean))))))
    centre = f"{np.degrees(np.angle(mean)):.1f}°{', weighted by time' * by_time}"
    return f"circular mean {centre}, standard deviation {spread:.1f}°"


def _describe_values(table: Table, title: str) -> str:
    """Describe a column by first and last value if rows are lag times, else by mean and range."""
    values = np.asarray(table.columns[title])
    if table.no_mean or values.dtype.kind not in "iuf" or not np.isfinite(values).any():
        return ""
    unit = name_and_unit(title)[1]
    rows = np.flatnonzero(np.isfinite(values))
    if table.x.startswith("lag"):
        ends = [
            f"{_number(values[row], unit)} {_describe_row(table, row)}" for row in rows[[0, -1]]
        ]
        return " and ".join(dict.fromkeys(ends))
    known = values[rows]
    low, high = rows[known.argmin()], rows[known.argmax()]
    if known.min() == known.max():
        return f"{_number(known[0], unit)} in all {many(len(known), 'row')}"
    first, last = (
        f"{_number(values[row], unit)} {_describe_row(table, row)}" for row in (low, high)
    )
    return f"mean {_number(known.mean(), unit)}, minimum {first}, maximum {last}"


def _describe_row(table: Table, row: int) -> str:
    """Describe a row by the residue and name of its atom, or by the values in the key columns."""
    named = [name for name in ("resname", "resid", "name") if name in table.columns]
    if len(named) > 1:
        return "at " + " ".join(f"{table.columns[name][row]}" for name in named)
    cells = []
    for title in table.keys or [table.abscissa]:
        name, unit = name_and_unit(title)
        cells.append(f"{name} {'= ' * bool(unit)}{_number(table.columns[title][row], unit)}")
    return "at " + ", ".join(cells)


def _number(value: object, unit: str = "") -> str:
    """Format a number with four digits and its unit."""
    text = f"{value:.4g}" if isinstance(value, float | np.floating) else f"{value}"
    return f"{text}{'' if unit == '°' else ' '}{unit}".rstrip()
