"""Catalogues of surveys: which trajectories belong to which topologies, replicas and groups.

A catalogue is a table (CSV, TSV, TOML, Parquet), a folder with a pattern of paths, or HDF5 files of
a known layout.
"""

import csv
import glob
import hashlib
import itertools
import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from paceline._util.files import is_address
from paceline._util.json_types import JsonArray, JsonObject
from paceline.analysis.survey_result_encoding import need_arrow, read_parquet
from paceline.errors import PacelineError, UnsupportedError
from paceline.hdf5 import mdcath
from paceline.performance.number_format import joined
from paceline.trajectory.addresses import source_name
from paceline.trajectory.open import files_named

#: Columns of a catalogue that have a meaning; all other columns are copied to the results.
TRAJECTORIES, DATASET = ("trajectory", "trajectories"), "dataset"
KNOWN = ("id", "replica", "group", "topology", *TRAJECTORIES, DATASET)
#: Separator of the paths of several trajectories in one cell of a text table.
SEPARATOR = ";"
#: Usual separators of cells in tables.
DELIMITERS = (";", "\t", ",", "|")
#: Extensions of topologies that are looked for beside trajectories, in order of preference.
TOPOLOGIES = (".tpr", ".psf", ".prmtop", ".parm7", ".top", ".gro", ".pdb", ".cif", ".mol2")
_FIELD = re.compile(r"\{([A-Za-z_]\w*)\}")
#: Texts that count as numbers in a table. Other texts that Python can convert, such as 1e10 or 007,
#: may be names.
_WHOLE, _DECIMAL = re.compile(r"-?(0|[1-9]\d*)"), re.compile(r"[+-]?\d+\.\d*")

#: Maximum length of the text of a number, and the whole number up to which floats are exact.
MOST_DIGITS, MOST_EXACT = 300, 2**53


@dataclass(frozen=True)
class SurveyEntry:
    """One trajectory of a survey.

    Paths are as in the catalogue, relative to its folder. `topology` is empty if none could be
    chosen beside the trajectory; opening the trajectory then fails. `options` are keywords of the
    Universe. `columns` are further values of the catalogue.
    """

    id: str
    topology: str
    trajectories: tuple[str, ...]
    replica: str = ""
    group: str = ""
    columns: JsonObject = field(default_factory=dict)
    options: JsonObject = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name in messages: the id, and the replica if there is one."""
        return f"{self.id} ({self.replica})" if self.replica else self.id

    @property
    def key(self) -> tuple[str, str]:
        """Id and replica, which differ between all entries of a catalogue."""
        return self.id, self.replica


@dataclass(frozen=True)
class SurveyCatalogue:
    """Trajectories of a survey, in order, and the folder to which their paths are relative."""

    folder: str
    entries: Sequence[SurveyEntry]

    @property
    def columns(self) -> list[str]:
        """Titles of the columns that are copied to the results, in order."""
        return list(dict.fromkeys(chain.from_iterable(one.columns for one in self.entries)))

    @property
    def digest(self) -> str:
        """SHA-256 digest of all entries, as hexadecimal digits."""
        sha = hashlib.sha256()
        for one in self.entries:
            sha.update(f"{json.dumps([*vars(one).values()], default=str)}\n".encode())
        return sha.hexdigest()


def read_catalogue(
    source: str | os.PathLike,
    *,
    pattern: str | None = None,
    topology: str | None = None,
    layout: str | None = None,
) -> SurveyCatalogue:
    """Read a catalogue; see `paceline.survey` for the arguments.

    Raises `UnsupportedError` for a catalogue without entries, with a missing column, a value of a
    wrong type, or two entries of the same id and replica.
    """
    name = source_name(source)
    if layout is not None and pattern is not None:
        raise UnsupportedError("a catalogue has a pattern or a layout, not both")
    if layout is not None:
        if layout not in LAYOUTS:
            raise UnsupportedError(f"layout {layout!r}: expected one of {', '.join(LAYOUTS)}")
        found = LAYOUTS[layout](name)
    elif pattern is not None:
        found = _from_pattern(name, pattern, topology)
    elif os.path.isdir(name):
        raise UnsupportedError(
            f"{name} is a folder: set a pattern of its trajectories (--pattern), such as "
            "'{id}/{replica}/md.xtc'"
        )
    else:
        folder = os.path.abspath(os.path.dirname(name))
        try:
            rows = _rows_of(name)
        except UnicodeDecodeError as error:
            raise UnsupportedError(f"{name}: not a table in UTF-8: {error}") from None
        found = SurveyCatalogue(folder, [_entry(name, k, row) for k, row in enumerate(rows, 1)])
    if not found.entries:
        raise UnsupportedError(f"{name}: expected at least one trajectory, found none")
    _check_keys(name, found.entries)
    return found


def _check_keys(name: str, entries: Sequence[SurveyEntry]) -> None:
    """Raise `UnsupportedError` if two entries have the same id and replica.

    The error is also raised for paths with separators or unprintable characters.
    """
    known: dict[tuple[str, str], int] = {}
    for number, entry in enumerate(entries, start=1):
        for path in (entry.topology, *entry.trajectories):
            if SEPARATOR in path or not path.isprintable():
                raise UnsupportedError(
                    f"{name}: row {number}: {path!r}: expected a file name of printable letters "
                    f"without {SEPARATOR!r}: rename the file"
                )
        if (before := known.setdefault(entry.key, number)) != number:
            raise UnsupportedError(
                f"{name}: rows {before} and {number} have the same id and replica, "
                f"{entry.name!r}: each trajectory needs its own"
            )


def _rows_of(name: str) -> list[JsonObject]:
    """Read the rows of a catalogue as dictionaries."""
    ending = os.path.splitext(name)[1].lower()
    if ending in (".csv", ".tsv"):
        return _text_rows(name, "," if ending == ".csv" else "\t")
    if ending == ".toml":
        return _toml_rows(name)
    if ending == ".parquet":
        arrow = need_arrow()
        try:
            table = read_parquet(name)
        except arrow.ArrowException as error:
            raise UnsupportedError(f"{name}: not a Parquet table: {error}") from None
        _check_titles(name, table.column_names)
        return table.to_pylist()
    raise UnsupportedError(
        f"{name}: expected a catalogue as .csv, .tsv, .toml or .parquet, or a folder with a pattern"
    )


def _text_rows(name: str, delimiter: str) -> list[JsonObject]:
    """Read rows of text; convert columns of numbers, except for the columns in `KNOWN`."""
    with open(name, encoding="utf-8-sig", newline="") as file:
        lines = itertools.dropwhile(lambda line: line.startswith("#"), file)
        read = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
        try:
            rows = [[cell.strip() for cell in row] for row in read if row]
        except csv.Error as error:
            raise UnsupportedError(
                f"{name}: not a table: {error}: check that each quotation mark is closed, and that "
                "a separator follows it"
            ) from None
    titles, *cells = rows or [[]]
    others = [one for one in DELIMITERS if len(titles) == 1 and one in titles[0]]
    if others:
        raise UnsupportedError(
            f"{name}: cells are separated by {others[0]!r}: expected {delimiter!r}; in a .csv "
            "file cells are separated by commas, and in a .tsv file by tabs"
        )
    if "" in titles:
        raise UnsupportedError(f"{name}: column {titles.index('') + 1} has no title")
    for number, row in enumerate(cells, start=1):
        if len(row) != len(titles):
            raise UnsupportedError(
                f"{name}: row {number} has {len(row)} cells, but there are {len(titles)} titles"
            )
    _check_titles(name, titles)
    columns = {
        title: [*column] if title in KNOWN else _numbers(column)
        for title, column in zip(titles, zip(*cells, strict=True), strict=cells != [])
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _check_titles(name: str, titles: Sequence[str]) -> None:
    """Raise `UnsupportedError` if two columns have the same title."""
    if len(set(titles)) < len(titles):
        twice = next(title for k, title in enumerate(titles) if title in titles[:k])
        raise UnsupportedError(f"{name}: two columns have the title {twice!r}")


def _numbers(cells: Sequence[str]) -> JsonArray:
    """Convert a column to integers or floats if all cells allow it; empty cells become None."""
    known = [cell for cell in cells if cell != ""]
    # Python refuses to convert very long texts, and a float of so many digits is infinite.
    if any(len(cell) > MOST_DIGITS for cell in known):
        return [*cells]
    if not known or not all(_WHOLE.fullmatch(one) or _DECIMAL.fullmatch(one) for one in known):
        return [*cells]
    kind = type_of_numbers([int(one) if _WHOLE.fullmatch(one) else float(one) for one in known])
    if kind == "string":
        return [*cells]
    convert = int if kind == "int64" else float
    return [convert(cell) if cell != "" else None for cell in cells]


def type_of_numbers(values: Sequence[float]) -> str:
    """Return the type of a column of numbers: "int64", "double" or "string".

    It is "string" if the other types would change whole numbers.
    """
    whole = [one for one in values if isinstance(one, int)]
    if len(whole) == len(values):
        return "int64" if all(-(2**63) <= one < 2**63 for one in whole) else "string"
    return "double" if all(abs(one) <= MOST_EXACT for one in whole) else "string"


def _toml_rows(name: str) -> list[JsonObject]:
    """Read tables [[trajectories]] of a TOML file."""
    with open(name, "rb") as file:
        try:
            found = tomllib.load(file)
        except ValueError as error:  # wrong format or encoding, or a number of too many digits
            raise UnsupportedError(f"{name}: not valid TOML: {error}") from None
    rows = found.get("trajectories")
    if found.keys() != {"trajectories"} or not isinstance(rows, list):
        raise UnsupportedError(
            f"{name}: expected tables [[trajectories]], found {', '.join(found) or 'none'}"
        )
    return rows


def _entry(name: str, number: int, row: object) -> SurveyEntry:
    """Check one row of a catalogue, and convert it to an entry."""
    where = f"{name}: row {number}"
    if not isinstance(row, dict):
        raise UnsupportedError(f"{where}: expected columns by name, found {row!r}")
    given = {key: value for key, value in row.items() if value is not None}
    lacking = [key for key in ("id", "topology") if given.get(key, "") == ""]
    several = [key for key in TRAJECTORIES if given.get(key, "") not in ("", [])]
    if lacking or len(several) != 1:
        lacking += [] if several else ["trajectory"]
        problem = f"lacks {joined(lacking)}" if lacking else f"has {joined(several)}"
        raise UnsupportedError(f"{where}: {problem}; expected id, topology and trajectory")
    trajectories = given.pop(several[0])
    if isinstance(trajectories, str):
        trajectories = [one.strip() for one in trajectories.split(SEPARATOR) if one.strip()]
    if not isinstance(trajectories, list) or not trajectories or "" in trajectories:
        raise UnsupportedError(
            f"{where}: column {several[0]!r}: expected a text, found {row[several[0]]!r}"
        )
    texts = {key: given.pop(key, "") for key in ("id", "topology", "replica", "group")}
    dataset = given.pop(DATASET, "")
    named = [*texts.items(), (DATASET, dataset), *((several[0], one) for one in trajectories)]
    for key, value in named:
        if not (isinstance(value, str) or (key in ("id", "replica", "group") and _is_id(value))):
            raise UnsupportedError(f"{where}: column {key!r}: expected a text, found {value!r}")
    for key, value in given.items():
        if not isinstance(value, str | int | float):
            raise UnsupportedError(
                f"{where}: column {key!r}: expected a text or number, found {value!r}"
            )
    given = {key: value for key, value in given.items() if key not in TRAJECTORIES}
    return SurveyEntry(
        _text_of_id(texts["id"]),
        texts["topology"],
        tuple(trajectories),
        _text_of_id(texts["replica"]),
        _text_of_id(texts["group"]),
        given,
        {DATASET: dataset} if dataset else {},
    )


def _is_id(value: object) -> bool:
    """True for a whole number, which may name a system or a replica, also if stored as a float."""
    if isinstance(value, float):
        return value.is_integer() and abs(value) <= MOST_EXACT
    return isinstance(value, int) and not isinstance(value, bool)


def _text_of_id(value: str | float) -> str:
    """Return an id as text; a whole number that is stored as a float gets no decimals."""
    return f"{int(value)}" if isinstance(value, float) else f"{value}"


def _from_pattern(root: str, pattern: str, topology: str | None) -> SurveyCatalogue:
    """List the trajectories below a folder or address whose paths match a pattern."""
    names = _FIELD.findall(pattern)
    if "id" not in names:
        raise UnsupportedError(
            f"pattern {pattern!r}: expected {{id}} in it, such as '{{id}}/{{replica}}/md.xtc'"
        )
    if unknown := [key for key in _FIELD.findall(topology or "") if key not in names]:
        raise UnsupportedError(
            f"topology {topology!r}: {{{unknown[0]}}} is not in the pattern {pattern!r}"
        )
    if root.startswith(("http://", "https://")):
        raise UnsupportedError(
            f"{root}: a web server cannot list its files: write a catalogue that names them"
        )
    root = root.rstrip("/") if is_address(root) else os.path.abspath(root)
    matches = re.compile(_regular_expression(pattern))
    fixed = root if is_address(root) else glob.escape(root)
    try:
        paths = files_named(f"{fixed}/{_glob(pattern)}")
    except FileNotFoundError:
        paths = []
    entries: list[SurveyEntry] = []
    errors: list[UnsupportedError] = []
    for path in paths:
        inner = os.fspath(path)[len(root) :].lstrip("/\\").replace(os.sep, "/")
        found = matches.fullmatch(inner)
        if found is None:
            continue
        values = found.groupdict()
        beside = _FIELD.sub(lambda one: values[one[1]], topology or "")  # noqa: B023
        try:
            beside = beside or topology_beside(root, inner)
        except UnsupportedError as error:
            errors.append(error)
        name, replica, group = (values.pop(key, "") for key in ("id", "replica", "group"))
        entries.append(SurveyEntry(name, beside, (inner,), replica, group, values))
    if not entries:
        raise UnsupportedError(f"{root}: no file matches the pattern {pattern!r}")
    if len(errors) == len(entries):
        raise errors[0]
    return SurveyCatalogue(root, entries)


def _glob(pattern: str) -> str:
    """Return a pattern for `glob`, in which only stars and names in braces match anything."""
    return "*".join(map(glob.escape, _FIELD.sub("*", pattern).split("*")))


def _regular_expression(pattern: str) -> str:
    """Return the regular expression of a pattern; equal names in braces match equal texts."""
    parts, known = [], set()
    for k, piece in enumerate(_FIELD.split(pattern)):
        if k % 2 == 0:
            parts.append("[^/]*".join(map(re.escape, piece.split("*"))))
        else:
            parts.append(f"(?P={piece})" if piece in known else f"(?P<{piece}>[^/]+)")
            known.add(piece)
    return "".join(parts)


def topology_beside(root: str, trajectory: str) -> str:
    """Return the topology in the folder of a trajectory, or in the nearest folder above it.

    Paths are relative to `root`. Raises `UnsupportedError` if a folder contains several topologies,
    or if there is none up to `root`.
    """
    if is_address(root):
        raise UnsupportedError(
            f"{root}: set the topology's pattern (--topology), such as '{{id}}/topology.pdb'"
        )
    folder = os.path.dirname(trajectory)
    while True:
        names = sorted(os.listdir(os.path.join(root, folder)))
        for ending in TOPOLOGIES:
            found = [name for name in names if name.lower().endswith(ending)]
            if len(found) > 1:
                raise UnsupportedError(
                    f"{os.path.join(root, folder)}: it contains several topologies "
                    f"({found[0]}, {found[1]}): set the pattern of topologies (--topology)"
                )
            if found:
                return "/".join(filter(None, (folder, found[0])))
        if not folder:
            raise UnsupportedError(
                f"{os.path.join(root, trajectory)}: no topology in its folder or above: set the "
                "pattern of topologies (--topology), such as '{id}/topology.pdb'"
            )
        folder = os.path.dirname(folder)


def _mdcath_entries(source: str) -> SurveyCatalogue:
    """List the trajectories of mdCATH files: one for each domain, temperature and replica."""
    is_folder = os.path.isdir(source)
    folder = os.path.abspath(source if is_folder else os.path.dirname(source))
    names = [os.path.abspath(name) for name in _hdf5_files(source, is_folder)]
    entries: list[SurveyEntry] = []
    errors: list[PacelineError | OSError] = []
    for path in names:
        name = os.path.relpath(path, folder)
        try:
            found = mdcath.list_trajectories(path)
        except (PacelineError, OSError) as error:
            errors.append(error)
            found = []
        # A file without trajectories becomes one entry. Opening it fails, which reports the reason.
        lacking = SurveyEntry(name, f"{name}{mdcath.SEPARATOR}/{mdcath.ATOMS}", (name,))
        entries += _mdcath_file(found, name) or [lacking]
    if names and len(errors) == len(names):
        raise errors[0]
    return SurveyCatalogue(folder, entries)


def _mdcath_file(found: Sequence[mdcath.DomainTrajectory], name: str) -> list[SurveyEntry]:
    """Make the entries of the trajectories that were `found` in the mdCATH file `name`."""
    return [
        SurveyEntry(
            id=f"{one.domain}.{one.temperature}",
            topology=f"{name}{mdcath.SEPARATOR}{one.atoms}",
            trajectories=(name,),
            replica=one.replica,
            group=one.temperature,
            columns={"domain": one.domain, "temperature": int(one.temperature)},
            options={"dataset": one.positions, "dt": mdcath.INTERVAL},
        )
        for one in found
    ]


def _hdf5_files(source: str, is_folder: bool) -> list[str]:
    """List the HDF5 files of a folder, or the files that match the pattern `source`."""
    if is_folder:
        source = os.path.join(glob.escape(source), "*.h5")
    return files_named(source)


#: Functions that list the trajectories of HDF5 files, by the name of their layout.
LAYOUTS: Mapping[str, Callable[[str], SurveyCatalogue]] = {"mdcath": _mdcath_entries}
