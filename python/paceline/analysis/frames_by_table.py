"""Select frames by saved tables: a condition, extreme values, or a bin of a free-energy surface."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paceline._util.arguments import whole_number
from paceline.analysis.row_condition import RowCondition, find_title
from paceline.analysis.saved_table_format import OF_FRAMES, SavedTable, names_in, read_saved
from paceline.analysis.table import rounding_of
from paceline.contract.system_interface import attribute_of
from paceline.errors import UnsupportedError

FRAME, TIME = OF_FRAMES


@dataclass(frozen=True)
class ChosenFrames:
    """Selected frames in trajectory order, without repeats.

    Attributes
    ----------
    frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers; None if the table contains only times.
    columns : mapping of str to numpy.ndarray
        Selected rows of the table: frames, times, and the columns used for the selection. If
        several tables have a column of the same title, the title begins with the filename.
    tables : sequence of SavedTable
        Tables that were read.
    """

    frames: np.ndarray | None
    columns: Mapping[str, np.ndarray]
    tables: Sequence[SavedTable]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def in_trajectory(self, trajectory: Any) -> np.ndarray:
        """Find the frame numbers in a trajectory, by times if the table has no frame numbers.

        Parameters
        ----------
        trajectory : MDAnalysis reader, or trajectory of `paceline.open`
            Trajectory from which the table was computed.

        Returns
        -------
        numpy.ndarray of int64, shape (n_frames,)
            Frame numbers.

        Raises
        ------
        UnsupportedError
            The trajectory lacks a frame or a time, or has several frames with one of the times.
        """
        where = self.tables[0].path
        if self.frames is not None:
            if self.frames[-1] >= trajectory.n_frames or self.frames[0] < 0:
                raise UnsupportedError(
                    f"{where} has frame {self.frames[-1]}, but the trajectory has only "
                    f"{trajectory.n_frames} frames: the table belongs to another trajectory"
                )
            return self.frames
        known = np.asarray(times_of(trajectory), dtype=float)
        wanted = self.columns[TIME]
        order = np.argsort(known, kind="stable")
        places = np.searchsorted(known[order], wanted)
        pairs = np.stack([np.clip(places - 1, 0, None), np.clip(places, None, len(known) - 1)])
        apart = np.nan_to_num(np.abs(known[order][pairs] - wanted), nan=np.inf)
        nearest = pairs[apart.argmin(axis=0), np.arange(len(wanted))]
        slack = rounding_of(known, wanted)[order[nearest]]
        bad = apart.min(axis=0) > slack
        if bad.any():
            raise UnsupportedError(
                f"{where} has a row at {wanted[bad][0]:g} ps, but the trajectory has no such "
                f"frame: its times are {known.min():g} to {known.max():g} ps"
            )
        first = np.searchsorted(known[order], wanted - slack)
        repeated = np.searchsorted(known[order], wanted + slack, side="right") - first > 1
        if repeated.any():
            raise UnsupportedError(
                f"{where} has no frame numbers, and the trajectory has several frames at "
                f"{wanted[repeated][0]:g} ps: compute the table again, with frame numbers or with "
                "continuous=True (--continuous)"
            )
        return np.unique(order[nearest])


def times_of(trajectory: Any) -> np.ndarray:
    """Return the times of all frames, ps; read from the frame index if there is one."""
    times = attribute_of(trajectory, "times")
    if times is None:
        return np.array([ts.time for ts in trajectory])
    return times() if callable(times) else times


def choose_frames(
    tables: str | os.PathLike | Sequence[str | os.PathLike] = (),
    *,
    where: str | None = None,
    lowest: str | None = None,
    highest: str | None = None,
    surface: str | os.PathLike | None = None,
    at: Sequence[float] | None = None,
    number: int | None = None,
) -> ChosenFrames:
    r"""Select frames by the rows of tables that were saved with results.

    Parameters
    ----------
    tables : path-like or sequence of path-like
        Tables as `Results.save` writes them, .csv, .tsv, .xvg or .npz. With several tables, only
        frames in all of them are used. By default the tables from which `surface` was computed.
    where : str, optional
        Condition, such as "rmsd < 2 and time > 10ns" or "cluster == 3". Columns are written by
        name without unit, in quotes unless the name is a plain word. Numbers may have units.
        Comparisons, "and", "or", "not" and parentheses are allowed.
    lowest, highest : str, optional
        Column whose smallest or largest values select rows, among rows that meet the condition.
    surface : path-like, optional
        Saved free-energy surface, .npz or .csv; frames of one of its bins are selected.
    at : (float, float), optional
        Point in this bin; by default the bin with the lowest free energy.
    number : int, optional
        Number of frames; by default one with `lowest` or `highest`, otherwise all. In a bin, the
        frames nearest to its center are selected.

    Returns
    -------
    ChosenFrames
        Selected frames, for `paceline.Write(atoms, path).run(frames=chosen.frames)`.

    Raises
    ------
    UnsupportedError
        A table has no frames, a column does not exist, a condition is invalid or no row meets it,
        or parameters contradict each other.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "rmsd.csv"
    >>> _ = path.write_text("frame,time (ps),RMSD (Å)\n0,0,0.0\n1,1,2.5\n2,2,1.5\n")
    >>> choose_frames(path, where="rmsd > 1").frames
    array([1, 2])
    >>> choose_frames(path, highest="rmsd").columns["RMSD (Å)"]
    array([2.5])
    """
    given: list[str | os.PathLike] = []
    given += [tables] if isinstance(tables, str | os.PathLike) else tables
    if number is not None:
        whole_number("number", number, 1)
    ways = {"where": where, "lowest": lowest, "highest": highest, "surface": surface}
    if lowest is not None and highest is not None:
        raise UnsupportedError("use only one of lowest= (--lowest) and highest= (--highest)")
    if all(way is None for way in ways.values()):
        raise UnsupportedError(
            "no parameter selects frames: use where= (--where), lowest= (--lowest), highest= "
            "(--highest) or surface= (--minimum)"
        )
    bins = None if surface is None else _Surface(surface)
    if bins is not None and not given:
        given += bins.tables()
    if not given:
        raise UnsupportedError("expected a table that was saved with results, found none")
    read = [read_saved(path) for path in given]
    columns, name = _join_tables(read), ", ".join(f"{one.path}" for one in read)
    rows, titles = np.ones(len(next(iter(columns.values()))), bool), []
    distance = None
    if where is not None:
        condition = RowCondition(where, columns, name)
        rows, titles = condition.rows, condition.titles
        if not rows.any():
            raise UnsupportedError(
                f"condition {where!r}: no row of {name} meets it{_ranges(columns, titles)}"
            )
    if bins is not None:
        axes = bins.find(columns, name)
        inside, distance = bins.rows([columns[axis] for axis in axes], at)
        rows = rows & inside
        titles = [*titles, *axes]
        if not rows.any():
            raise UnsupportedError(f"{bins.path}: no frame of {name} is in this bin")
    if (by := lowest or highest) is not None:
        title = find_title(columns, by, name)
        distance = columns[title] if lowest is not None else -columns[title]
        rows, titles = rows & np.isfinite(distance), [*titles, title]
        number = number or 1
    chosen = np.flatnonzero(rows)
    if number is not None:
        order = chosen if distance is None else chosen[np.argsort(distance[chosen], kind="stable")]
        chosen = np.sort(order[:number])
    shown = [title for title in dict.fromkeys([FRAME, TIME, *titles]) if title in columns]
    frames = np.unique(columns[FRAME][chosen].astype(np.int64)) if FRAME in columns else None
    return ChosenFrames(frames, {title: columns[title][chosen] for title in shown}, read)


def _ranges(columns: Mapping[str, np.ndarray], titles: Sequence[str]) -> str:
    """Describe the ranges of columns, for the error message if no row meets a condition."""
    known = [(title, columns[title][np.isfinite(columns[title])]) for title in titles]
    parts = [f"{title} is {one.min():g} to {one.max():g}" for title, one in known if len(one)]
    return f": {', '.join(parts)}" if parts else ""


def columns_of(table: SavedTable) -> dict[str, np.ndarray]:
    """Return columns with one number per frame; frames and times have their usual titles.

    Raises `UnsupportedError` if no column contains frame numbers or times.
    """
    columns = {TIME if title == "times" else title: one for title, one in table.columns.items()}
    known = table.facts.get("frames analysed", "")
    # Parse the text that `describe_frames` writes.
    bounds = re.search(r"every(?: (\d+)\w\w)? frame from (\d+) to (\d+)$", known)
    alone = re.match(r"frame (\d+)", known)
    found_at = bounds.groups() if bounds else (None, alone[1], alone[1]) if alone else None
    if FRAME not in columns and found_at is not None:
        step, first, last = found_at
        numbers = np.arange(int(first), int(last) + 1, int(step or 1))
        lengths = [len(columns[TIME])] if TIME in columns else [*map(len, columns.values())]
        if len(numbers) in lengths:
            columns[FRAME] = numbers.astype(np.float64)
    if FRAME not in columns and TIME not in columns:
        listed = ", ".join([*columns][:20])
        raise UnsupportedError(f"{table.path} has no frames: its columns are {listed}")
    rows = len(columns[FRAME if FRAME in columns else TIME])
    found = {title: values for title, values in columns.items() if len(values) == rows}
    if FRAME in found and not np.isfinite(found[FRAME]).all():
        raise UnsupportedError(f"{table.path} has rows without a frame")
    return found


def _join_tables(tables: Sequence[SavedTable]) -> dict[str, np.ndarray]:
    """Join tables by frame; the rows of a single table stay in their order."""
    every = [columns_of(table) for table in tables]
    if len(tables) == 1:
        return every[0]
    keys = []
    for table, columns in zip(tables, every, strict=True):
        if FRAME not in columns:
            raise UnsupportedError(f"{table.path} has no frame numbers to compare with tables")
        if len(np.unique(columns[FRAME])) < len(columns[FRAME]):
            raise UnsupportedError(f"{table.path} has several rows for one frame")
        keys.append(columns[FRAME])
    both = keys[0]
    for one in keys[1:]:
        both = np.intersect1d(both, one)
    if len(both) == 0:
        raise UnsupportedError(
            f"{' and '.join(f'{one.path}' for one in tables)} have no frames in common"
        )
    found: dict[str, np.ndarray] = {FRAME: both}
    for table, columns, key in zip(tables, every, keys, strict=True):
        rows = np.argsort(key)[np.searchsorted(np.sort(key), both)]
        for title, values in columns.items():
            known = title in found and title not in OF_FRAMES
            found.setdefault(f"{table.path.stem} {title}" if known else title, values[rows])
    return found


class _Surface:
    """Bins of a saved free-energy surface."""

    def __init__(self, path: str | os.PathLike):
        self.path, table = Path(path), read_saved(path)
        self._facts = table.facts
        if "free_energy" in table.arrays:
            self._energy = table.arrays["free_energy"]
            self._edges = [table.arrays[f"{axis}_edges"] for axis in "xy"]
            self._axes = table.facts.get("axes", "").split("; ")
        else:
            titles = [*table.columns]
            if len(titles) != 4 or not titles[2].startswith("free energy"):
                raise UnsupportedError(f"{path} is not a free-energy surface of 'paceline surface'")
            self._axes = titles[:2]
            middles = [np.unique(table.columns[title]) for title in self._axes]
            if min(map(len, middles)) < 2:
                raise UnsupportedError(f"{path} has one bin along an axis: save it as .npz")
            self._energy = table.columns[titles[2]].reshape([*map(len, middles)])
            self._edges = [_edges(one) for one in middles]
        if len(self._axes) != 2:
            raise UnsupportedError(f"{path} lacks the names of its axes: compute it again")

    def tables(self) -> list[Path]:
        """Paths of the tables from which the surface was computed."""
        named = self._facts.get("tables")
        if named is None:
            raise UnsupportedError(f"{self.path} lacks the names of its tables: add the tables")
        return [_find_near_table(name, self.path) for name in named.split(", ")]

    def find(self, columns: Mapping[str, np.ndarray], name: str) -> list[str]:
        """Return the titles of the columns that belong to the two axes of the surface."""
        if self._axes[0] == self._axes[1]:
            raise UnsupportedError(f"{self.path} has two axes with the same name, {self._axes[0]}")
        return [find_title(columns, axis, name) for axis in self._axes]

    def rows(
        self, series: Sequence[np.ndarray], at: Sequence[float] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the mask of the rows in the bin at a point, by default the bin of lowest energy.

        Also return the squared distances of all rows from the center of the bin, in bin widths.
        """
        if at is None:
            place = np.unravel_index(np.nanargmin(self._energy), self._energy.shape)
        else:
            place = tuple(
                _bins(edges, np.array([x]))[0] for edges, x in zip(self._edges, at, strict=True)
            )
            if -1 in place:
                limits = [f"{edges[0]:g} to {edges[-1]:g}" for edges in self._edges]
                raise UnsupportedError(
                    f"{self.path}: ({at[0]:g}, {at[1]:g}) is outside its bins, "
                    f"{self._axes[0]} {limits[0]} and {self._axes[1]} {limits[1]}"
                )
        inside, distance = np.ones(len(series[0]), bool), np.zeros(len(series[0]))
        for edges, values, k in zip(self._edges, series, place, strict=True):
            inside &= _bins(edges, values) == k
            distance += ((values - (edges[k] + edges[k + 1]) / 2) / (edges[k + 1] - edges[k])) ** 2
        return inside, distance


def _edges(middles: np.ndarray) -> np.ndarray:
    """Compute the edges of equal bins from their centers."""
    half = (middles[-1] - middles[0]) / (len(middles) - 1) / 2
    return np.linspace(middles[0] - half, middles[-1] + half, len(middles) + 1)


def _bins(edges: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Bin of each value as in `numpy.histogram2d`, which closes the last bin; -1 outside."""
    slack = 1e-12 * (edges[-1] - edges[0])  # edges in a table are rounded
    inside = (values >= edges[0] - slack) & (values <= edges[-1] + slack)
    found = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    return np.where(inside, found, -1)


def _find_near_table(name: str, path: Path) -> Path:
    """Return the path of a file; if it is missing and relative, look in the folder of `path`."""
    found = Path(name)
    return found if found.exists() or found.is_absolute() else path.parent / found


def files_of(tables: Sequence[SavedTable]) -> tuple[str, list[str], list[str]]:
    """Read topology, trajectories and fingerprints from the headers of tables.

    Raises `UnsupportedError` if a header lacks them, or if headers differ.
    """
    found = set()
    for table in tables:
        facts = table.facts
        if not (facts.get("topology") and facts.get("trajectory")):
            raise UnsupportedError(
                f"{table.path} does not name topology and trajectory: add them with -s and -f"
            )
        prints = tuple(facts.get("fingerprint", "").split(", "))
        files = names_in(facts["trajectory"], len(prints) if prints[0] else None)
        trajectories = [f"{_find_near_table(one, table.path)}" for one in files]
        found.add(
            (f"{_find_near_table(facts['topology'], table.path)}", tuple(trajectories), prints)
        )
    if len({names for _, names, _ in found}) > 1:
        raise UnsupportedError("the tables name different trajectories: use tables of one run")
    topology, names, prints = sorted(found)[0]
    return topology, [*names], [*prints]
