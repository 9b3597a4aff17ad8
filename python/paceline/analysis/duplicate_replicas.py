"""Copies among replicas: by the content of their trajectories, or by the values of their series."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from paceline._util.python_object_digest import file_digest
from paceline.analysis.table import Table, matching_rows
from paceline.analysis.uncertainty import LEAST_VALUES
from paceline.contract.system_interface import System, attribute_of
from paceline.errors import UnsupportedError

#: Maximum fluctuation of the difference of a series and its rounded copy, relative to that of the
#: series. A fluctuation is the median of absolute second differences. The ratio is 0.9 to 2.2 for
#: two simulations of one forced transition. For copies with coordinates rounded to 0.01 Å, it is up
#: to 0.01 (Rg, RMSD) and 0.25 (area). The first limit is for the median over all series, the second
#: one for each series.
MOST_ROUNDING, MOST_OF_ONE = 0.25, 0.7
#: Minimum number of rows of a part, and maximum number of consecutive parts of a series. Each part
#: must show that the series is a rounded copy: simulations that only start alike are not copies.
LEAST_ROWS, MOST_PARTS = 20, 4
#: Approximate number of rows that are compared first, and maximum number of compared series.
SOME_ROWS, MOST_COMPARED = 200, 16


#: Kind of a copy: all values are equal to those of the original, or equal within rounding.
Match = Literal["exact", "rounded"]


class ReplicaSeries(NamedTuple):
    """Series of a replica by title, all of one length, and their times (None if unknown)."""

    series: Mapping[str, np.ndarray]
    times: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows of each series."""
        return len(next(iter(self.series.values()), ()))


def find_copies(replicas: Mapping[str, ReplicaSeries]) -> dict[str, tuple[str, Match]]:
    """Find replicas that repeat others, whole or in part, exactly or within rounding.

    Returns the name of the original for each copy, and the kind of the copy. Of two equal replicas,
    the longer one is the original; if lengths are equal, the first one is. Replicas whose series
    have other titles are from other parts of a system, and are not copies.

    Examples
    --------
    >>> first, other = np.random.default_rng(1).standard_normal((2, 100))
    >>> series = {"a": first[:80], "b": other, "c": first, "d": other.round(2)}
    >>> find_copies({name: ReplicaSeries({"Rg": one}) for name, one in series.items()})
    {'d': ('b', 'rounded'), 'a': ('c', 'exact')}
    """
    found: dict[str, tuple[str, Match]] = {}
    originals: list[str] = []
    for name in sorted(replicas, key=lambda one: -replicas[one].n_rows):
        for known in originals:
            match = _match(replicas[known], replicas[name])
            if match is not None:
                found[name] = known, match
                break
        else:
            originals.append(name)
    return found


def copy_of(original: str, match: Match) -> str:
    """Describe a copy by its original.

    Examples
    --------
    >>> copy_of("a.csv", "rounded")
    'a copy of a.csv within rounding'
    """
    return f"a copy of {original}{' within rounding' if match == 'rounded' else ''}"


def left_out_copies(copies: Mapping[str, tuple[str, Match]]) -> list[str]:
    """Describe copies that are left out of a result.

    Examples
    --------
    >>> left_out_copies({"b.csv": ("a.csv", "exact")})
    ['left out: b.csv (a copy of a.csv)']
    """
    return [f"left out: {name} ({copy_of(*known)})" for name, known in copies.items()]


def _match(first: ReplicaSeries, second: ReplicaSeries) -> Match | None:
    """Compare two replicas by some rows of some series first, and then by all rows."""
    if first.series.keys() != second.series.keys():
        return None
    titles = [*first.series][:: -(-len(first.series) // MOST_COMPARED) or 1]
    for rows in _common_rows(first, second):
        match: Match | None = None
        for step in dict.fromkeys((max(1, len(rows[0]) // SOME_ROWS), 1)):
            ones, others = (
                [replica.series[title][row[::step]] for title in titles]
                for replica, row in zip((first, second), rows, strict=True)
            )
            match = _match_rows(ones, others)
            if match is None:
                break
        if match is not None:
            return match
    return None


def _common_rows(
    first: ReplicaSeries, second: ReplicaSeries
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield rows that may be the same frames: the first ones, and those at the same times."""
    n = min(first.n_rows, second.n_rows)
    yield np.arange(n), np.arange(n)
    if first.times is None or second.times is None:
        return
    found = matching_rows(first.times, second.times)
    if found is not None and 2 * len(found[0]) >= n and not np.array_equal(*found):
        yield found


def _match_rows(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> Match | None:
    """Compare the series of one replica with those of another, all of the same length.

    Returns the kind of the copy; None if the second replica is not a copy.
    """
    if not first or len(first[0]) < LEAST_VALUES:
        return None
    if any(map(_varies, first)) and all(map(_same_values, first, second)):
        return "exact"
    ratios = []
    for one, other in zip(first, second, strict=True):
        if {one.dtype.kind, other.dtype.kind} != {"f"}:
            continue  # whole numbers, such as numbers of bonds, differ by 1 or are equal
        known = np.isfinite(one) & np.isfinite(other)
        ratios += _largest_ratio(one[known], other[known])
    if not ratios or max(ratios) > MOST_OF_ONE or np.median(ratios) > MOST_ROUNDING:
        return None
    return "rounded"


def _largest_ratio(one: np.ndarray, other: np.ndarray) -> list[float]:
    """Compare the difference of two series with their fluctuations; return the largest ratio.

    One ratio is computed in each of several consecutive parts. The list contains the largest one,
    or is empty if there are few rows or no fluctuations.
    """
    n_parts = min(MOST_PARTS, len(one) // LEAST_ROWS)
    ratios = []
    for rows in np.array_split(np.arange(len(one)), n_parts) if n_parts else ():
        # Second differences ignore a steady drift, such as a common pull.
        typical = float(np.median(np.abs(np.diff(one[rows], 2))))
        if typical > 0:
            ratios.append(float(np.median(np.abs(np.diff((one - other)[rows], 2)))) / typical)
    return [max(ratios)] if ratios else []


def _varies(values: np.ndarray) -> bool:
    """True if a series varies so much that equal values cannot be a coincidence.

    It must contain three or more distinct values, or change many times.
    """
    changes = np.count_nonzero(values[1:] != values[:-1])
    return len(np.unique(values)) > 2 or int(changes) >= LEAST_ROWS


def _same_values(first: np.ndarray, second: np.ndarray) -> bool:
    """True if all values are equal; NaN equals NaN."""
    are_floats = first.dtype.kind == second.dtype.kind == "f"
    return np.array_equal(first, second, equal_nan=are_floats)


def files_of(universe: System) -> list[str]:
    """Names of the files of a trajectory; empty for a trajectory in memory."""
    trajectory = universe.trajectory
    names = attribute_of(trajectory, "filenames")
    if names is None:
        names = [trajectory.filename]
    return [os.fspath(one) for one in names if one is not None]


def content_of(universe: System) -> str:
    """Return a text that identifies the content of a trajectory's files; empty if it is unknown.

    It is unknown for a trajectory in memory, and for files that cannot be read.
    """
    if (files := attribute_of(universe.trajectory, "chain")) is not None:
        return f"{files.content}"
    digests = [file_digest(one) for one in files_of(universe)]
    return ", ".join(digests) if all(digests) else ""


def copies_by_content(
    replicas: Mapping[str, tuple[str, str, System]],
) -> dict[str, tuple[str, Match]]:
    """Return the original of each replica whose trajectory has the content of another one.

    Each replica has a group, a text that describes its analyses, and a system. A replica with other
    analyses, such as those of another chain, is not a copy. Raises `UnsupportedError` if groups
    share a trajectory.
    """
    known: dict[object, str] = {}
    found: dict[str, tuple[str, Match]] = {}
    for name, (group, described, universe) in replicas.items():
        # One HDF5 file may contain several replicas, which options choose.
        opened = attribute_of(universe, "opened_with")
        content = content_of(universe)
        key = content, repr(opened and opened[1]), described
        if content and (first := known.setdefault(key, name)) != name:
            if replicas[first][0] != group:
                raise UnsupportedError(
                    f"{name} is a copy of {first}, by the content of its trajectory: name each "
                    "trajectory in one group only"
                )
            found[name] = first, "exact"
    return found


def copies_by_values(
    replicas: Mapping[str, tuple[str, Mapping[str, Table | None]]],
) -> dict[str, tuple[str, Match]]:
    """Return the original of each replica with equal or nearly equal series in its group.

    Each replica has a group, and the tables of its analyses.
    """
    found: dict[str, tuple[str, Match]] = {}
    for group in dict.fromkeys(group for group, _ in replicas.values()):
        of_group = {name: tables for name, (of, tables) in replicas.items() if of == group}
        found |= find_copies({name: series_of(tables) for name, tables in of_group.items()})
    return found


def series_of(tables: Mapping[str, Table | None]) -> ReplicaSeries:
    """Collect the time series of a replica from the tables of its analyses, with their times."""
    found: dict[str, np.ndarray] = {}
    times = None
    for name, table in tables.items():
        if table is None or not table.is_series:
            continue
        found |= {f"{name}: {title}": table.columns[title] for title in table.y}
        if times is None and table.times_known:
            times = np.asarray(table.columns[table.x], dtype=np.float64)
    n_rows = len(next(iter(found.values()), ()))
    found = {title: values for title, values in found.items() if len(values) == n_rows}
    return ReplicaSeries(found, times if times is not None and len(times) == n_rows else None)
