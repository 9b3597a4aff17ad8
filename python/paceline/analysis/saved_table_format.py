"""Read saved tables; describe figures in a line of a file, and make figures from such lines."""

import csv
import hashlib
import io
import itertools
import json
import math
import os
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from paceline._util.json_types import JsonObject
from paceline.analysis.energy_text_files import Content, distinct_names, read_xvg
from paceline.analysis.table import Image, States, Table, name_and_unit
from paceline.errors import UnsupportedError, warn

#: Key of the line that describes the figure of a saved table.
FIGURE = "figure"
#: Key of the line that names a further table of an analysis.
FURTHER = "table"
#: Keys of the first line, which contains a SHA-256: in text files that of all other lines, in .npz
#: files that of the arrays and all other lines.
DIGESTS = LINES, ARRAYS = "sha256 of all other lines", "sha256 of arrays and other lines"
#: Columns that identify frames, by which the rows of tables are joined.
OF_FRAMES = ("frame", "time (ps)")
#: Column of simulation steps, which is not a time series.
STEP = "step"
#: Keys of the lines with the command that computed a table, and the folder in which it ran.
COMMAND, FOLDER = "command", "folder"
#: Text instead of a command, for tables that a script computed from several analyses.
IN_PYTHON = "in Python"
#: Key of the line with the call, in a script, that computed a table.
CALL = "call"
#: Name of the file that describes a folder of results as an RO-Crate.
METADATA = "ro-crate-metadata.json"
#: Separator of names of files before an absolute path or an address.
_BEFORE_ABSOLUTE = re.compile(r", (?=/|[A-Za-z]:[/\\\\]|[a-z0-9]+://)")
#: Beginning of the keys of lines with the SHA-256 of further files that a command read.
INPUT = "sha256 of file "
#: Names of arrays in .npz files that identify frames, and the titles of these columns in tables.
IN_ARRAYS = {"frames": OF_FRAMES[0], "times": OF_FRAMES[1], "steps": STEP}
#: Numbers that replace True and False in cells.
TRUTH = {"True": "1", "False": "0"}
#: Maximum number of values that the line of a figure contains because the table lacks them.
MOST_NUMBERS = 4000
#: Maximum number of panels (one for each unit) if the file does not describe its figure.
MOST_UNITS = 6
#: Maximum number of equidistant numbers that JSON lists one by one; more are written as a range.
SHORT_ROW = 4
#: Fields of `Table` that the line of a figure contains if they differ from their defaults.
FIELDS = (
    *("points", "no_mean", "bars", "times_known", "right", "right_label", "colour", "turn"),
    *("reference", "bands", "keys", "notes", "logarithmic"),
)
#: Fields of `Image` that are copied to the line of a figure: all except values, edges and parts.
IMAGE_FIELDS = ("x_label", "y_label", "label", "note", "colours", "limits", "equal")
#: Fields of a `States` object with values that are copied to the line of a figure.
VALUE_FIELDS = ("label", "bar", "colours", "low")


@dataclass(frozen=True)
class SavedTable:
    """Columns or arrays of a file, and the facts in its first lines."""

    path: Path
    arrays: Mapping[str, np.ndarray]
    facts: Mapping[str, str]
    #: True if the file has no titles, so that columns are numbered.
    untitled: bool = False

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """Numeric columns, float64; each column of a two-dimensional array is a separate one."""
        found = {}
        names = IN_ARRAYS if self.path.suffix.lower() == ".npz" else {}
        # Put projections first, because they are time series.
        for name in sorted(self.arrays, key=lambda name: name != "projection"):
            values = self.arrays[name]
            if values.dtype.kind not in "fiu" or values.ndim not in (1, 2):
                continue
            for k, column in enumerate(np.atleast_2d(values.T), start=1):
                title = name if values.ndim == 1 else f"{name} {k}"
                found[names.get(title, title)] = column.astype(np.float64)
        return found

    @property
    def _description(self) -> JsonObject:
        """Description of the figure; empty if there is none."""
        try:
            found = json.loads(self.facts.get(FIGURE, "{}"))
        except ValueError as error:
            raise UnsupportedError(
                f"{self.path}: the line {FIGURE!r} is no JSON: {error}"
            ) from None
        return found if isinstance(found, dict) else {}

    def table(self, chosen: Sequence[str] = ()) -> Table:
        """Return the table for the original figure, or with other columns on the y axis."""
        described = self._description
        if {"x", "panels"} & described.keys() and not chosen:
            try:
                return table_of(described, self.arrays)
            except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
                raise UnsupportedError(
                    f"{self.path}: the line {FIGURE!r} does not describe the columns ({error!r}): "
                    "select columns with --y"
                ) from error
        if "map" in described and not chosen:
            if not any(title in self.columns for title in OF_FRAMES):
                raise UnsupportedError(
                    f"{self.path} does not contain the whole map: draw the .npz of these results"
                )
            warn(f"{self.path} does not contain the whole map: time series are drawn")
        return self._guess_table(chosen, MOST_UNITS)

    def in_time(self, chosen: Sequence[str] = (), *, texts: bool = False) -> Table:
        """Return a table of all or some columns against time, even if its figure shows no times.

        The figure of the table has a panel for each unit. With `texts`, the table includes columns
        of text.
        """
        described = self._description
        if {"x", "panels"} & described.keys() and not chosen and not texts:
            table = self.table()
            if all(one.is_series for one in table.panels or [table]):
                return table
        return self._guess_table(chosen, len(self.arrays) + 1, texts=texts)

    def _guess_table(self, chosen: Sequence[str], most_units: int, *, texts: bool = False) -> Table:
        """Make a table without a description; x is the time, frame number, or first column."""
        columns = self.columns
        if texts:
            columns |= {name: one for name, one in self.arrays.items() if one.dtype.kind == "U"}
        if not columns:
            raise UnsupportedError(f"{self.path}: expected columns of numbers, found none")
        times = [title for title in columns if title.lower().startswith("time")]
        x = next(iter([*times, *(title for title in columns if title == "frame"), *columns]))
        y = [title for wanted in chosen for title in self._titles_like(columns, wanted)]
        y = y or [title for title in columns if title not in (x, *OF_FRAMES, STEP)]
        if not y:
            raise UnsupportedError(f"{self.path}: expected a second column besides {x!r}")
        rows = len(columns[x])
        ragged = [title for title in y if len(columns[title]) != rows]
        if ragged:
            raise UnsupportedError(
                f"{self.path}: {ragged[0]!r} has {len(columns[ragged[0]])} numbers, but {x!r} has "
                f"{rows}: select columns with --y"
            )
        label = self.facts.get("y_label", "")
        by_unit: dict[str, list[str]] = {}
        for title in y:
            by_unit.setdefault(name_and_unit(title)[1], []).append(title)
        if label or len(by_unit) == 1:
            return _along(columns, x, y, label)
        if len(by_unit) > most_units:
            raise UnsupportedError(
                f"{self.path} has columns with {len(by_unit)} units, but a figure has at most "
                f"{most_units}: select columns with --y"
            )
        # Draw one panel for each unit.
        panels = [_along(columns, x, titles) for titles in by_unit.values()]
        return replace(panels[0], panels=panels, y={})

    def _titles_like(self, columns: Mapping[str, object], wanted: str) -> list[str]:
        """Find the title `wanted`, or the titles of the columns on a y axis with this label."""
        found: list[str] = []
        if not any(wanted in (title, name_and_unit(title)[0]) for title in columns):
            axes = self._description.get("panels", [self._description])
            for axis in axes if isinstance(axes, list) else []:
                y = axis.get("y") if isinstance(axis, dict) else None
                label = str(axis.get("y_label")) if isinstance(y, dict) else ""
                if wanted in (label, name_and_unit(label)[0]):
                    found += [title for title in y or () if title in columns]
        return found or [title_like(columns, self.path, wanted)]


def _along(columns: Mapping[str, np.ndarray], x: str, y: Sequence[str], label: str = "") -> Table:
    """Make a table of columns with a common unit, or with a given label."""
    unit = name_and_unit(y[0])[1]
    label = label or (y[0] if len(y) == 1 else f"value ({unit})" if unit else "value")
    turn = all(title.endswith("(°)") for title in y)  # the mean of periodic angles is meaningless
    names = {title: name_and_unit(title)[0] for title in y}
    return Table(columns, x, names, label, no_mean=turn)


def read_saved(path: str | os.PathLike) -> SavedTable:
    """Read a saved table: .csv, .tsv, .npz, or .xvg, also from GROMACS.

    Raises
    ------
    UnsupportedError
        The extension is unknown, or the file does not contain such a table.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending == ".npz":
        try:
            with np.load(path) as saved:
                arrays = {name: saved[name] for name in saved.files}
        except (ValueError, zipfile.BadZipFile, AttributeError) as error:
            raise UnsupportedError(
                f"{path}: expected arrays as .npz, found another file"
            ) from error
        facts = _facts(arrays.pop("provenance", np.empty(0, dtype=str)).tolist())
        return SavedTable(path, arrays, facts)
    if ending == ".xvg":
        return _read_xvg(path)
    if ending not in (".csv", ".tsv"):
        raise UnsupportedError(f"{path}: expected .csv, .tsv, .npz or .xvg, not {ending!r}")
    with open(path, encoding="utf-8", newline="") as file:
        lines = file.readlines()
    facts = _facts(line[2:] for line in lines if line.startswith("# "))
    cells = (line for line in lines if not line.startswith("#"))
    delimiter = "," if ending == ".csv" else "\t"
    titles, *rows = [*csv.reader(cells, delimiter=delimiter)] or [[]]
    untitled = bool(titles) and _column(titles).dtype.kind == "f"
    if untitled:
        rows = [titles, *rows]
        titles, untitled = _titles_before(lines, delimiter, len(titles))
    if not rows:
        raise UnsupportedError(f"{path}: expected a row of titles and rows of numbers, found none")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(titles):
            raise UnsupportedError(
                f"{path}: row {number} has {len(row)} cells, but there are {len(titles)} titles"
            )
    arrays = dict(zip(titles, map(_column, zip(*rows, strict=True)), strict=True))
    return SavedTable(path, arrays, facts, untitled)


def _titles_before(lines: Sequence[str], delimiter: str, n_columns: int) -> tuple[list[str], bool]:
    """Return titles for a table that begins with numbers, and True if the file contains none.

    Programs such as numpy.savetxt write titles as a comment, in the line before the numbers.
    """
    number = next(k for k, line in enumerate(lines) if line.strip() and not line.startswith("#"))
    before = lines[number - 1].lstrip("#").strip() if number else ""
    (titles,) = [*csv.reader([before], delimiter=delimiter)] or [[]]
    titles = [title.strip() for title in titles]
    if len(titles) == n_columns == len({*titles} - {""}) and _column(titles).dtype.kind == "U":
        return titles, False
    return [f"column {k}" for k in range(1, n_columns + 1)], True


def _column(cells: Sequence[str]) -> np.ndarray:
    """Convert the cells of a column to numbers, if possible; empty cells become NaN.

    True is 1, and False is 0.
    """
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        pass
    try:
        known = [cell.strip() or "nan" for cell in cells]
        if {*known} <= {"nan", *TRUTH}:
            known = [TRUTH.get(cell, cell) for cell in known]
        return np.array(known if any(map(str.strip, cells)) else cells, dtype=np.float64)
    except ValueError:
        return np.array(cells, dtype=str)


def _facts(lines: Iterable[str]) -> dict[str, str]:
    """Split lines into keys and values at their first colon; ignore lines without a colon."""
    pairs = (line.strip().partition(": ") for line in lines)
    return {key: value for key, colon, value in pairs if colon}


def _read_xvg(path: Path) -> SavedTable:
    """Read an .xvg table for Grace."""
    content = Content(os.fspath(path))
    with open(path, "rb") as file:
        found = read_xvg(content, file)
    for remark in content.remarks:
        warn(remark)
    if content.n_unread or not found.columns:
        where = f", found others in line {content.first_unread}" if content.n_unread else ""
        raise UnsupportedError(f"{path}: expected rows of numbers of equal length{where}")
    facts = _facts(found.comments) | {f"{axis}_label": text for axis, text in found.labels.items()}
    titles = SavedTable(path, {}, facts)._description.get("titles", ())
    if len(titles) != len(found.columns):
        x = found.labels.get("x", "x")
        x = x[0].lower() + x[1:] if x.startswith("Time") else x
        named = found.names_and_units()
        titles = distinct_names(
            [x, *(f"{name} ({unit})" if unit else name for name, unit in named)]
        )
    arrays = dict(zip(titles, found.columns, strict=True))
    return SavedTable(path, arrays, facts, untitled=not (found.labels or found.legends))


def title_like(columns: Mapping[str, object], path: Path | str, wanted: str) -> str:
    """Find a single title by its text, with or without unit, or by its beginning."""
    titles = [title for title in columns if title not in (*OF_FRAMES, STEP)]
    found = [wanted] if wanted in columns else []
    found = found or [one for one in titles if name_and_unit(one)[0] == wanted]
    found = found or [one for one in titles if one.startswith(wanted)]
    if len(found) != 1:
        known = ", ".join(titles[:20]) + ", …" * (len(titles) > 20)
        several = f"has {len(found)} series" if found else "has no series"
        raise UnsupportedError(f"{path} {several} {wanted!r}; it has {known}")
    return found[0]


def is_of_command(key: str) -> bool:
    """True for the keys of lines about the command that computed a table."""
    return key in (COMMAND, FOLDER) or key.startswith(INPUT)


def names_in(text: str, n: int | None = None) -> list[str]:
    """Split a fact into the names of `n` files; the names may contain commas.

    Examples
    --------
    >>> names_in("/data/a, b/md.xtc, /data/c.xtc"), names_in("a, b.xtc", 1)
    (['/data/a, b/md.xtc', '/data/c.xtc'], ['a, b.xtc'])
    """
    if n == 1:
        return [text]
    found = text.split(", ")
    # Names of trajectories are absolute paths or addresses.
    absolute = _BEFORE_ABSOLUTE.split(text)
    is_absolute = _BEFORE_ABSOLUTE.match(f", {text}") is not None
    return absolute if is_absolute and len(found) != n else found


class DigestedText(io.TextIOBase):
    """Text file for writing, whose first line contains the SHA-256 of all following lines."""

    def __init__(self, file: IO[str]):
        self._file, self._sha = file, hashlib.sha256()
        self._write_first()

    def _write_first(self) -> None:
        """Write the first line, or replace it: its length does not depend on the digest."""
        self._file.write(f"# {LINES}: {self._sha.hexdigest()}\n")

    def write(self, text: str) -> int:
        """Append text to the file, and to the digest."""
        # Text must be encoded as `new_file` encodes it in the file.
        self._sha.update(text.encode("utf-8", "backslashreplace"))
        return self._file.write(text)

    def __exit__(self, *error: object) -> None:
        if error == (None, None, None):
            self._file.seek(0)
            self._write_first()


def with_digest(facts: Sequence[str], arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Return the lines of an .npz file, with the SHA-256 of arrays and lines in the first one."""
    return [f"{ARRAYS}: {digest_of(facts, arrays)}", *facts]


def digest_of(facts: Sequence[str], arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of arrays and lines, 64 hex digits."""
    sha = hashlib.sha256()
    for name, values in arrays.items():
        sha.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
        sha.update(b"object" if values.dtype.hasobject else np.asarray(values).tobytes())
    sha.update("".join(f"{line}\n" for line in facts).encode("utf-8", "backslashreplace"))
    return sha.hexdigest()


def describe(table: Table, arrays: Mapping[str, np.ndarray]) -> JsonObject | None:
    """Describe a figure by references to `arrays`.

    Returns None if there is no figure, or if `arrays` lack more than `MOST_NUMBERS` of its values.
    Returns {"map": False} if `arrays` lack values of a map.
    """
    drawn = table.drawn or table
    if drawn.panels:
        panels = [describe(replace(one, panels=()), arrays) for one in drawn.panels]
        y = {"y": dict(drawn.y), "y_label": drawn.y_label} if drawn.y else {}
        known = all(one and "x" in one for one in panels)
        return {"panels": panels, **y} if known else {"map": False}
    x = drawn.x if drawn.x in arrays or drawn.x == drawn.abscissa else drawn.abscissa
    found: JsonObject = {"x": x, "y": dict(drawn.y), "y_label": drawn.y_label}
    usual = Table({}, "", {}, "")
    for name in FIELDS:
        value = vars(drawn)[name]
        if value != vars(usual)[name]:
            found[name] = value
    if drawn.image is not None:
        image = _describe_image(drawn.image, table, arrays)
        return {"map": False} if image is None else {**found, "image": image}
    if drawn.states is not None:
        found["states"] = _describe_states(drawn.states, arrays)
        if found["states"] is None:
            return {"map": False}
    titles = [x, *drawn.y, *drawn.right]
    titles += [one for title in drawn.bands for one in drawn.band_titles(title)]
    titles += ["frame"] if {"frame", "time (ps)"} <= set(drawn.columns) and x != "frame" else []
    titles += [drawn.colour] if drawn.colour else []
    has_lines = drawn.y or drawn.states is not None
    if not has_lines or any(title not in drawn.columns for title in titles):
        return None  # such as a summary, which has no figure
    columns = {}
    room = MOST_NUMBERS
    for title in dict.fromkeys(titles):
        stack = drawn.stacks.get(title)
        if stack and set(stack) <= set(arrays):
            columns[title] = {"stack": _describe_stack(stack, arrays)}
            continue
        reference = _reference(title, drawn.columns[title], arrays)
        if reference is None:
            values = np.asarray(drawn.columns[title])
            reference = _with_gaps(values, arrays)
        if reference is None:
            room -= values.size
            if room < 0:
                return None
            reference = {"values": _numbers(values)}
        if reference != title:
            columns[title] = reference
    if columns:
        found["columns"] = columns
    if drawn.ticks:
        found["ticks"] = list(drawn.ticks)
    return found


def _reference(title: str, values: np.ndarray, arrays: Mapping[str, object]) -> Any:
    """Find an array, or a column of an array, that equals the values of a column.

    Returns its name, or its name and the index of the column; None if there is none. The array
    `title` is compared first.
    """
    for name in [title, *arrays]:
        there = np.asarray(arrays.get(name, ()))
        if there.ndim == 1 and _same(there, values):
            return name
        if there.ndim == 2 and len(there) == len(values):
            for k, column in enumerate(there.T):
                if _same(column, values):
                    return [name, k]
        if there.ndim == 3 and there[..., 0].size == len(values):
            for k in range(there.shape[2]):
                if _same(there[..., k].ravel(), values):
                    return [name, k]
    return None


def _describe_stack(stack: Sequence[str], arrays: Mapping[str, object]) -> Any:
    """Describe columns by common beginning and end of their titles, or list their titles."""
    begin, end = stack[0].partition(" ")[0] + " ", stack[0].rpartition(" ")[2]
    alike = _titles_between(begin, end, arrays)
    return {"begin": begin, "end": end} if alike == [*stack] else list(stack)


def _titles_between(begin: str, end: str, titles: Iterable[str]) -> list[str]:
    """Find the titles with a given beginning and end."""
    return [one for one in titles if one.startswith(begin) and one.endswith(end)]


def _with_gaps(values: np.ndarray, arrays: Mapping[str, object]) -> JsonObject | None:
    """Find the column, or the means over residues, that equals `values` without its NaN rows.

    None if there is none.
    """
    if values.dtype.kind != "f":
        return None
    gaps = np.flatnonzero(np.isnan(values))
    known = np.delete(values, gaps)
    column = _reference("", known, arrays) if len(gaps) else None
    column = _mean_of_residues(known, arrays) if column is None else column
    return None if column is None else {"column": column, "gaps": _numbers(gaps)}


def _mean_of_residues(values: np.ndarray, arrays: Mapping[str, Any]) -> JsonObject | None:
    """Find a column of atoms whose means over residues equal the values; None if none does."""
    for name, column in arrays.items() if "resid" in arrays else ():
        if np.ndim(column) == 1 and np.asarray(column).dtype.kind == "f":
            found = {"mean": name}
            if _same(_resolve_reference(found, arrays), values):
                return found
    return None


def _resolve_reference(reference: Any, arrays: Mapping[str, Any]) -> np.ndarray:
    """Return the column that a reference describes."""
    if isinstance(reference, str):
        return np.asarray(arrays[reference])
    if isinstance(reference, dict):  # means over residues, whose atoms are consecutive
        changes = np.diff(arrays["resid"], prepend=arrays["resid"][:1]) != 0
        residues = np.cumsum(changes)
        return np.bincount(residues, arrays[reference["mean"]]) / np.bincount(residues)
    name, k = reference
    return np.asarray(arrays[name])[..., k].ravel()


def _same(first: np.ndarray, second: np.ndarray) -> bool:
    """True if numbers or texts are equal; NaN equals NaN."""
    if first is second:
        return True
    first, second = np.asarray(first), np.asarray(second)
    if first.shape != second.shape or (first.dtype.kind in "US") != (second.dtype.kind in "US"):
        return False
    if not {first.dtype.kind, second.dtype.kind} <= set("fiubUS"):
        return False
    return np.array_equal(first, second, equal_nan=first.dtype.kind not in "US")


def _numbers(values: np.ndarray) -> list[Any]:
    """Convert numbers for JSON, which has no NaN; equidistant numbers are written as a range."""
    if values.dtype.kind not in "fiu":
        return values.tolist()
    found: list[object] = []
    ends = [0, *np.flatnonzero(np.diff(values, 2) != 0) + 2, len(values)] if len(values) else [0]
    for first, stop in itertools.pairwise(ends):
        some = values[first:stop].tolist()
        step = some[1] - some[0] if len(some) > SHORT_ROW else 0
        if step and some == [some[0] + step * k for k in range(len(some))]:
            found.append({"first": some[0], "step": step, "n": len(some)})
        else:
            found += [None if one != one else one for one in some]
    return found


def _encode_parts(parts: object) -> list[Any]:
    """Convert the numbers or names of parts for JSON."""
    parts = np.asarray(parts)
    return parts.tolist() if parts.dtype.kind in "US" else _numbers(parts)


def _array(given: Sequence[Any]) -> np.ndarray:
    """Convert numbers or texts from JSON to an array."""
    values: list[Any] = []
    for one in given:
        row = isinstance(one, dict)
        values += [one["first"] + one["step"] * k for k in range(one["n"])] if row else [one]
    if values and all(isinstance(one, int) for one in values):
        return np.array(values)
    if any(isinstance(one, str) for one in values):
        return np.array(values, dtype=str)
    return np.array([math.nan if one is None else one for one in values], dtype=np.float64)


def _describe_image(
    image: Image, table: Table, arrays: Mapping[str, np.ndarray]
) -> JsonObject | None:
    """Describe an image if its values are an array, or can be computed from columns."""
    edges = image.x_edges, image.y_edges
    if sum(map(len, edges)) > MOST_NUMBERS:
        return None
    found: JsonObject = {name: vars(image)[name] for name in IMAGE_FIELDS}
    found |= {"x_edges": _numbers(edges[0]), "y_edges": _numbers(edges[1])}
    if image.parts is not None:
        found["parts"] = [_encode_parts(parts) for parts in image.parts]
    for name, values in arrays.items():
        if np.ndim(values) == 2 and _same(values, image.values):
            return {**found, "values": name}
    if len(table.keys) == 2 and set(table.keys) <= set(arrays):
        for title in table.y:
            for mirrored in (False, True):
                rule = {"column": title, "keys": list(table.keys)}
                if mirrored:
                    rule["diagonal"] = _numbers(image.values.diagonal()[:1])
                made = _grid(rule, found, arrays)
                if made is not None and _same(made, image.values):
                    return {**found, "values": rule}
    return None


def _describe_states(states: States, arrays: Mapping[str, object]) -> JsonObject | None:
    """Describe states by an array of letters, or of one text per row; None without such an array.

    If `states` contains values, they are described as in `_describe_values`.
    """
    numbers = states.numbers
    if len(states.parts) > MOST_NUMBERS:
        return None
    if not states.names:
        return _describe_values(states, arrays)
    for name, values in arrays.items():
        letters = _letters(np.asarray(values), numbers.shape[1])
        if letters is None or letters.shape != numbers.shape:
            continue
        codes = {str(letter): int(numbers[letters == letter][0]) for letter in np.unique(letters)}
        if all((numbers[letters == letter] == code).all() for letter, code in codes.items()):
            facts = {"label": states.label, "names": [list(one) for one in states.names]}
            return {
                "letters": name,
                "codes": codes,
                "parts": _encode_parts(states.parts),
                **facts,
            }
    return None


def _describe_values(states: States, arrays: Mapping[str, Any]) -> JsonObject | None:
    """Describe values of parts by an array of two dimensions, or by columns; None without these."""
    found = {name: vars(states)[name] for name in VALUE_FIELDS}
    found["parts"] = _encode_parts(states.parts)
    for name, values in arrays.items():
        if np.ndim(values) == 2 and _same(values, states.numbers):
            return {**found, "values": name}
    columns = [_reference("", column, arrays) for column in states.numbers.T]
    return None if None in columns else {**found, "values": columns}


def _states_of(given: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> States:
    """Make states, or values of parts, from their description in the line of a figure."""
    parts = _array(given["parts"])
    if "values" in given:
        values = given["values"]
        if isinstance(values, str):
            numbers = arrays[values]
        else:
            n_rows = len(next(iter(arrays.values())))
            columns = [_resolve_reference(one, arrays) for one in values]
            numbers = np.column_stack(columns) if columns else np.empty((n_rows, 0))
        return States(numbers, parts, **{name: given[name] for name in VALUE_FIELDS})
    letters = _letters(np.asarray(arrays[given["letters"]]), len(parts))
    if letters is None:
        raise ValueError("the letters of states")
    numbers = np.full(letters.shape, -1)
    for letter, code in given["codes"].items():
        numbers[letters == letter] = code
    names = [(name, colour) for name, colour in given["names"]]
    return States(numbers, parts, given["label"], names)


def _letters(values: np.ndarray, n_parts: int) -> np.ndarray | None:
    """Return `values` as letters, shape (n_rows, n_parts); None if they are not such letters."""
    if values.dtype.kind != "U" or not values.size:
        return None
    if values.ndim == 1:
        if n_parts < 2 or {*map(len, values)} - {0, n_parts}:
            return None
        rows = [list(row or " " * n_parts) for row in values.tolist()]
        return np.array(rows, dtype="U1").reshape(len(values), n_parts)
    return values if values.ndim == 2 and values.dtype.itemsize == 4 else None


def _grid(
    rule: JsonObject, image: JsonObject, arrays: Mapping[str, np.ndarray]
) -> np.ndarray | None:
    """Arrange the values of a column on a grid, at the coordinates in the key columns.

    Returns None if a coordinate is not on the grid.
    """
    places = []
    for k, key in enumerate(rule["keys"]):
        values = np.asarray(arrays[key], dtype=np.float64)
        if "parts" in image:
            parts = _array(image["parts"][k]).astype(np.float64)
            order = np.argsort(parts, kind="stable")
            if len(np.unique(parts)) < len(parts) or not np.isin(values, parts).all():
                return None
            places.append(order[np.searchsorted(parts[order], values)])
        else:
            edges = _array(image["xy"[k] + "_edges"])
            places.append(np.searchsorted(edges, values, side="right") - 1)
    shape = len(_array(image["x_edges"])) - 1, len(_array(image["y_edges"])) - 1
    if any(
        len(one) and not 0 <= one.min() <= one.max() < n
        for one, n in zip(places, shape, strict=True)
    ):
        return None
    grid = np.full(shape, np.nan)
    grid[places[0], places[1]] = arrays[rule["column"]]
    if "diagonal" in rule:  # the columns contain only the upper triangle of a symmetric matrix
        if shape[0] != shape[1]:
            return None
        grid[places[1], places[0]] = arrays[rule["column"]]
        np.fill_diagonal(grid, _array(rule["diagonal"]))
    return grid


def table_of(described: JsonObject, arrays: Mapping[str, np.ndarray]) -> Table:
    """Make the table of a figure from its description and the arrays in a file."""
    if "panels" in described:
        panels = [table_of(one, arrays) for one in described["panels"]]
        y = {key: described[key] for key in ("y", "y_label") if key in described}
        return replace(panels[0], states=None, panels=panels, **y)
    fields = {name: described[name] for name in FIELDS if name in described}
    columns = {name: np.asarray(values) for name, values in arrays.items() if np.ndim(values) == 1}
    for title, reference in described.get("columns", {}).items():
        if isinstance(reference, str | list):
            columns[title] = _resolve_reference(reference, arrays)
        elif "stack" in reference:
            stack = reference["stack"]
            if isinstance(stack, dict):
                stack = _titles_between(stack["begin"], stack["end"], arrays)
            columns[title] = np.concatenate([arrays[one] for one in stack])
        elif "gaps" in reference:
            columns[title] = _resolve_reference(reference["column"], arrays).astype(np.float64)
            for gap in _array(reference["gaps"]).astype(int):
                columns[title] = np.insert(columns[title], gap, np.nan)
        else:
            columns[title] = _array(reference["values"])
    image = None
    if "image" in described:
        given = described["image"]
        values = given["values"]
        grid = arrays[values] if isinstance(values, str) else _grid(values, given, arrays)
        if grid is None:
            raise ValueError("the keys of a map")
        parts = [_array(one) for one in given["parts"]] if "parts" in given else None
        image = Image(
            *(np.asarray(grid), _array(given["x_edges"]), _array(given["y_edges"])),
            **{name: given[name] for name in IMAGE_FIELDS if name != "limits"},
            limits=(given["limits"][0], given["limits"][1]),
            parts=None if parts is None else (parts[0], parts[1]),
        )
    states = None
    if "states" in described:
        states = _states_of(described["states"], arrays)
    elif image is None:
        for title in (described["x"], *described["y"]):
            _ = columns[title]
    return Table(
        *(columns, described["x"], described["y"], described["y_label"]),
        **fields,
        image=image,
        states=states,
        ticks=described.get("ticks", ()),
    )
