"""Parquet tables of a survey: their columns, how they are written, and how they are read.

Rows are in the order of the catalogue. A row group contains the rows of `WINDOW` trajectories, so
that equal rows give equal bytes, whatever the order in which trajectories were analysed. The
manifest `survey.json` lists the tables with their digests.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from paceline._util.files import new_file
from paceline._util.json_types import JsonObject
from paceline._util.os_calls import sync_folder
from paceline.analysis.read_survey_catalogue import (
    SEPARATOR,
    SurveyCatalogue,
    SurveyEntry,
    type_of_numbers,
)
from paceline.analysis.survey_result_encoding import (
    PROGRAMS,
    QUANTITY,
    SystemResults,
    arrow_array,
    need_arrow,
    read_parquet,
)
from paceline.errors import FileChangedError, UnsupportedError
from paceline.performance.number_format import shortened

if TYPE_CHECKING:
    import pyarrow

#: Name and version of the layout; the version increases when columns change.
FORMAT = "paceline survey 2"
MANIFEST = "survey.json"
#: File with digests of names, sizes and times of input files, by which a later run recognises
#: unchanged files.
STATES = "states.json"
#: Folder of new tables, until all are complete.
NEXT = ".next"
#: Number of trajectories whose rows form one row group.
WINDOW = 200
#: Types of the columns of each table, after the columns of the catalogue.
TABLES: Mapping[str, Mapping[str, str]] = {
    "systems": {
        "topology": "string",
        "trajectory": "string",
        "options": "string",
        "digests": "string",
        "processor": "string",
        "key": "string",
        "n_atoms": "int64",
        "n_frames": "int64",
        "n_analysed": "int64",
        "first_time": "double",
        "last_time": "double",
        "n_quantities": "int64",
        "n_series": "int64",
        "n_profiles": "int64",
        "n_failures": "int64",
        "n_warnings": "int64",
    },
    "quantities": {
        name: "string" if value == "" else "int64" if name == "n" else "double"
        for name, value in QUANTITY.items()
    },
    "series": {
        **dict.fromkeys(("analysis", "quantity", "unit"), "string"),
        **{"frame": "int64", "time": "double", "value": "double"},
    },
    "profiles": {
        **dict.fromkeys(("analysis", "quantity", "unit", "x_name", "label"), "string"),
        **{"x": "double", "value": "double"},
    },
    "failures": dict.fromkeys(("analysis", "kind", "message"), "string"),
    "warnings": dict.fromkeys(("analysis", "message"), "string"),
}
#: Tables with the columns of the catalogue; the others only have id and replica.
WITH_COLUMNS = ("systems", "quantities", "failures")
#: Tables whose numbers of rows are columns of the table of systems.
COUNTED = tuple(name for name in TABLES if name != "systems")
#: Names, in messages, of the types of values of the manifest.
NAMES_OF_TYPES = {str: "a text", int: "a whole number", bool: "true or false", dict: "an object"}
#: Tables that are made on request, and maximum number of row groups of each in memory.
LONG, MOST_LONG = ("series", "profiles"), 4


class FoundRows(NamedTuple):
    """Rows of consecutive trajectories in each table, without the columns of the catalogue.

    A table that is not in `tables` has no rows. `facts` contains the facts of each trajectory.
    """

    facts: Sequence[JsonObject]
    tables: Mapping[str, "pyarrow.Table"]

    @property
    def failure(self) -> str:
        """Message of the first failure; empty if there is none."""
        found = self.tables.get("failures")
        return "" if found is None else f"{found['message'][0].as_py()}"


class Survey:
    """Tables of a finished survey.

    Attributes
    ----------
    folder : pathlib.Path
        Folder of the tables.
    facts : dict
        Content of the manifest: settings, versions, and tables with their digests.

    Raises
    ------
    UnsupportedError
        The folder contains no survey, or a survey of another version.

    See Also
    --------
    paceline.open_survey : Open a survey.
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        self.facts = read_manifest(self.folder)

    def __repr__(self) -> str:
        counts = (f"{one['rows']:,} {name}" for name, one in self.facts["tables"].items())
        return f"<Survey {self.folder}: {', '.join(counts)}>"

    def path(self, table: str) -> Path:
        """Return the path of a table.

        Parameters
        ----------
        table : str
            Name of the table.

        Returns
        -------
        pathlib.Path
            Path of the Parquet file.

        Raises
        ------
        UnsupportedError
            The survey lacks the table.
        """
        if table not in self.facts["tables"]:
            known = ", ".join(self.facts["tables"])
            advice = f"; run the survey with {table}=True (--{table})" if table in LONG else ""
            raise UnsupportedError(f"{self.folder} has no table {table!r}; it has {known}{advice}")
        return self.folder / f"{table}.parquet"

    def table(self, name: str) -> "pyarrow.Table":
        """Read a table, and check that it is the one that the survey wrote.

        Parameters
        ----------
        name : {"systems", "quantities", "failures", "warnings", "series", "profiles"}
            Name of the table.

        Returns
        -------
        pyarrow.Table
            The table; `to_pandas()` converts it, `polars.from_arrow` and DuckDB read it.

        Raises
        ------
        FileChangedError
            The file was changed after the survey wrote it.
        UnsupportedError
            The survey lacks the table, or pyarrow is not installed.
        """
        self.check(name)
        return read_parquet(self.path(name))

    def check(self, name: str) -> None:
        """Raise `FileChangedError` if a table is not the one that the survey wrote.

        Parameters
        ----------
        name : str
            Name of the table.
        """
        path, expected = self.path(name), self.facts["tables"][name]["sha256"]
        if not path.exists():
            raise FileChangedError(f"{path}: the table is missing; run the survey again")
        found = _digest_of(path)
        if found != expected:
            raise FileChangedError(
                f"{path}: expected SHA-256 {expected}, as in {MANIFEST}, found {found}: the table "
                "was changed after the survey wrote it; delete it and run the survey again"
            )

    @property
    def systems(self) -> "pyarrow.Table":
        """Trajectories: files, numbers of atoms and frames, times (ps), number of failures."""
        return self.table("systems")

    @property
    def quantities(self) -> "pyarrow.Table":
        """Mean, 95 % interval and verdict of each quantity of each trajectory."""
        return self.table("quantities")

    @property
    def series(self) -> "pyarrow.Table":
        """Values of all time series in each frame, with times in ps."""
        return self.table("series")

    @property
    def profiles(self) -> "pyarrow.Table":
        """Values along residues, distances and so on."""
        return self.table("profiles")

    @property
    def failures(self) -> "pyarrow.Table":
        """Trajectories and analyses without results or without means, with the reasons."""
        return self.table("failures")

    @property
    def warnings(self) -> "pyarrow.Table":
        """Warnings of each trajectory."""
        return self.table("warnings")


def open_survey(folder: str | os.PathLike) -> Survey:
    """Open the tables of a survey.

    Parameters
    ----------
    folder : path-like
        Folder that `paceline.survey` or ``paceline survey`` wrote.

    Returns
    -------
    Survey
        Its tables as attributes, which are Arrow tables: `systems`, `quantities`, `failures`,
        `warnings`, and on request `series` and `profiles`.

    Raises
    ------
    UnsupportedError
        The folder contains no survey, or a survey of another version.
    """
    return Survey(folder)


def read_manifest(folder: Path) -> JsonObject:
    """Read the manifest of a survey; raise `UnsupportedError` if it is missing or unknown."""
    path = folder / MANIFEST
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UnsupportedError(f"{folder}: expected a survey, but {MANIFEST} is missing") from None
    except NotADirectoryError:
        raise UnsupportedError(
            f"{folder}: expected the folder of a survey, found a file: name the folder"
        ) from None
    except ValueError as error:
        raise UnsupportedError(
            f"{path}: expected JSON, found invalid text ({error}): the file was damaged or "
            "edited; restore it, or write a new survey (--overwrite)"
        ) from None
    version = found.get("format") if isinstance(found, dict) else None
    if version != FORMAT:
        raise UnsupportedError(
            f"{path}: expected {FORMAT!r}, found {version!r}: it belongs to another version of "
            "paceline; name another folder, or write a new survey (--overwrite)"
        )
    if lacking := {"tables", "settings", "catalogue", "core", *PROGRAMS} - found.keys():
        raise UnsupportedError(f"{path}: expected the keys {', '.join(sorted(lacking))}")
    _check_types(path, found)
    return found


def _check_types(path: Path, facts: JsonObject) -> None:
    """Raise `UnsupportedError` if a value of a manifest has another type than a survey writes."""
    types: dict[str, Mapping[str, type]] = {
        "": dict.fromkeys(("core", *PROGRAMS), str),
        "catalogue": {"folder": str, "systems": int, "digest": str},
        "settings": {"digest": str, "battery": str, "options": dict, "unwrap": bool},
        "tables": dict.fromkeys((name for name in TABLES if name not in LONG), dict),
    }
    tables = facts["tables"]
    if isinstance(tables, dict):
        types["tables"] = {**types["tables"], **dict.fromkeys(tables.keys() & TABLES.keys(), dict)}
    for name, expected in types.items():
        part = facts[name] if name else facts
        if not isinstance(part, dict):
            raise _wrong_value(path, name, "an object", part)
        for key, kind in expected.items():
            if type(part.get(key)) is not kind:
                place = f"{name}.{key}" if name else key
                raise _wrong_value(path, place, NAMES_OF_TYPES[kind], part.get(key))
    for name, table in tables.items():
        if name not in TABLES:
            raise _wrong_value(path, f"tables.{name}", "no such table", table)
        for key, kind in {"rows": int, "sha256": str}.items():
            if type(table.get(key)) is not kind:
                place = f"tables.{name}.{key}"
                raise _wrong_value(path, place, NAMES_OF_TYPES[kind], table.get(key))


def _wrong_value(path: Path, place: str, expected: str, found: object) -> UnsupportedError:
    """Return the error for a value of a manifest."""
    shown = shortened("nothing" if found is None else json.dumps(found))
    return UnsupportedError(
        f"{path}: {place}: expected {expected}, found {shown}: the file was damaged or edited; "
        "restore it, or write a new survey (--overwrite)"
    )


def publish_next(folder: Path) -> None:
    """Move complete new tables to their final names, or complete a move that was killed.

    The manifest of the new tables is written last and moved last. If it is missing, the new tables
    are incomplete, and are deleted.
    """
    new = folder / NEXT
    if (new / MANIFEST).exists():
        try:
            kept = read_manifest(new)["tables"]
        except UnsupportedError as error:
            raise UnsupportedError(
                f"{error}; delete the folder {new}, which contains new tables of a run that was "
                "killed, before you run the survey again"
            ) from None
        for path in sorted(new.iterdir()):
            if path.name != MANIFEST and not path.name.startswith("."):
                path.replace(folder / path.name)
        for name in TABLES.keys() - kept.keys():
            (folder / f"{name}.parquet").unlink(missing_ok=True)
        sync_folder(f"{folder}")
        (new / MANIFEST).replace(folder / MANIFEST)
        sync_folder(f"{folder}")
    if new.exists():
        shutil.rmtree(new)


def _digest_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def schema_of(table: str, columns: Mapping[str, str]) -> "pyarrow.Schema":
    """Return the schema of a table; `columns` are types of the catalogue's columns."""
    arrow = need_arrow()
    types = {"id": "string", "replica": "string"}
    if table in WITH_COLUMNS:
        types |= {"group": "string", **columns}
    return arrow.schema(list((types | dict(TABLES[table])).items()))


def types_of(catalogue: SurveyCatalogue) -> dict[str, str]:
    """Return the types of the catalogue's further columns, by name.

    A column is text unless all values are numbers, or all are true or false. Raises
    `UnsupportedError` if the survey's tables have a column of the same name.
    """
    found = {}
    for name in catalogue.columns:
        values = [one.columns[name] for one in catalogue.entries if name in one.columns]
        kinds = set(map(type, values))
        found[name] = "string"
        if kinds <= {bool}:
            found[name] = "bool"
        elif kinds <= {int, float}:
            found[name] = type_of_numbers(values)
    taken = {"id", "replica", "group"}.union(*(TABLES[name] for name in WITH_COLUMNS))
    if both := sorted(taken & found.keys()):
        raise UnsupportedError(
            f"the catalogue has a column {both[0]!r}, which is a column of the survey's tables: "
            "give it another name"
        )
    return found


def rows_of(found: SystemResults) -> FoundRows:
    """Convert the results of one trajectory to Arrow tables."""
    arrow = need_arrow()

    def table(name: str, columns: Sequence[Sequence[object]]) -> "pyarrow.Table":
        types = TABLES[name]
        arrays = [
            arrow_array(values, kind) for values, kind in zip(columns, types.values(), strict=True)
        ]
        return arrow.table(arrays, names=list(types))

    tables = {
        name: table(name, list(zip(*rows, strict=True)))
        for name in ("quantities", "failures", "warnings")
        if (rows := vars(found)[name])
    }
    numbers = iter(found.numbers)
    for name in LONG:
        parts = []
        for *texts, n in vars(found)[name]:
            first, *others = next(numbers)
            if name == "series":
                parts.append([*([text] * n for text in texts), first.astype(np.int64), *others])
            else:
                labels = texts.pop() or [""] * n
                parts.append([*([text] * n for text in texts), labels, first, *others])
        if parts:
            tables[name] = arrow.concat_tables([table(name, part) for part in parts])
    counts = {name: len(tables[name]) if name in tables else 0 for name in COUNTED}
    return FoundRows([found.facts | {f"n_{name}": n for name, n in counts.items()}], tables)


class TableWriter:
    """Writes all tables of a survey, in the order of the catalogue.

    Parameters
    ----------
    folder : pathlib.Path
        Folder of the tables.
    catalogue : SurveyCatalogue
        Catalogue of the survey.
    names : sequence of str
        Names of the tables.
    """

    def __init__(self, folder: Path, catalogue: SurveyCatalogue, names: Sequence[str]):
        self._folder, self._catalogue, self._names = folder, catalogue, names
        self._types = types_of(catalogue)

    def write(
        self, rows: Callable[[Sequence[SurveyEntry]], Iterable[FoundRows]]
    ) -> dict[str, JsonObject]:
        """Write the rows of all entries; return digest and number of rows of each table.

        `rows` returns the rows of some entries, in their order. The files are in the folder of new
        tables until `publish_next` moves them.
        """
        arrow, parquet = need_arrow(), need_arrow("parquet")
        schemas = {name: schema_of(name, self._types) for name in self._names}
        counts = dict.fromkeys(self._names, 0)
        with ExitStack() as files:
            outputs = {
                name: files.enter_context(
                    new_file(self._folder / NEXT / f"{name}.parquet", overwrite=True, binary=True)
                )
                for name in self._names
            }
            hashes = {name: _Hashing(output) for name, output in outputs.items()}
            writers = {
                name: files.enter_context(
                    parquet.ParquetWriter(
                        arrow.PythonFile(hashes[name], mode="w"), schemas[name], compression="zstd"
                    )
                )
                for name in self._names
            }
            for window in _windows(self._catalogue.entries):
                found = list(rows(window))
                for name in self._names:
                    table = self._window(name, schemas[name], window, found)
                    counts[name] += len(table)
                    if len(table):
                        writers[name].write_table(table, row_group_size=len(table))
            for writer in writers.values():
                writer.close()
        return {
            name: {"rows": counts[name], "sha256": hashes[name].hexdigest()} for name in self._names
        }

    def _window(
        self,
        name: str,
        schema: "pyarrow.Schema",
        entries: Sequence[SurveyEntry],
        found: Sequence[FoundRows],
    ) -> "pyarrow.Table":
        """Join the rows of some entries, with the columns of the catalogue before them."""
        arrow = need_arrow()
        facts = [one for some in found for one in some.facts]
        if name == "systems":
            own = _systems(entries, facts)
            counts = [1] * len(entries)
        else:
            parts = [some.tables[name] for some in found if name in some.tables]
            counts = [one[f"n_{name}"] for one in facts]
            if not parts:
                return arrow.Table.from_batches([], schema=schema)
            own = arrow.concat_tables(parts)
        which = np.repeat(np.arange(len(entries)), counts)
        columns = {}
        for field in schema:
            if field.name in own.column_names:
                columns[field.name] = own[field.name].combine_chunks()
                continue
            values = [_value(entry, field.name, f"{field.type}") for entry in entries]
            column = arrow_array(values, f"{field.type}")
            columns[field.name] = column.take(arrow_array(which, "int64"))
        return arrow.table(columns, schema=schema)


def _value(entry: SurveyEntry, name: str, kind: str) -> object:
    """Return the value of an entry in a column of the catalogue; None if it has none."""
    if name in ("id", "replica", "group"):
        return vars(entry)[name]
    value = entry.columns.get(name)
    return f"{value}" if kind == "string" and value is not None else value


def _systems(entries: Sequence[SurveyEntry], facts: Sequence[JsonObject]) -> "pyarrow.Table":
    """Make rows of the table of systems."""
    arrow = need_arrow()
    rows = [one | _files_of(entry) for entry, one in zip(entries, facts, strict=True)]
    types = TABLES["systems"]
    return arrow.table(
        [arrow_array([row[name] for row in rows], kind) for name, kind in types.items()],
        names=list(types),
    )


def _files_of(entry: SurveyEntry) -> JsonObject:
    """Return the files of an entry and their options, as columns of the table of systems."""
    return {
        "topology": entry.topology,
        "trajectory": SEPARATOR.join(entry.trajectories),
        "options": json.dumps(entry.options, sort_keys=True) if entry.options else "",
    }


def _windows(entries: Sequence[SurveyEntry]) -> Iterator[Sequence[SurveyEntry]]:
    for first in range(0, len(entries), WINDOW):
        yield entries[first : first + WINDOW]


class _Hashing:
    """File for writing that computes the digest of the bytes that it passes on."""

    def __init__(self, file: IO[bytes]):
        self._file, self._sha = file, hashlib.sha256()
        self.closed = False

    def write(self, data: bytes) -> int:
        self._sha.update(data)
        return int(self._file.write(data))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.closed = True

    def hexdigest(self) -> str:
        """Return the digest of all bytes, as hexadecimal digits."""
        return self._sha.hexdigest()


class StoredTables:
    """Rows of an earlier survey, by id and replica; a row group is read when it is needed.

    `names` are the tables, besides that of systems, that are read; by default all. If `checked`,
    the digests of all tables are compared with the manifest.
    """

    def __init__(self, survey: Survey, names: Sequence[str] | None = None, *, checked: bool = True):
        self.survey = survey
        if checked:
            for name in survey.facts["tables"]:
                survey.check(name)
        systems = read_parquet(survey.path("systems"))
        ids, replicas = (systems[name].to_pylist() for name in ("id", "replica"))
        self._facts = [
            dict(zip(TABLES["systems"], row, strict=True))
            for row in zip(*(systems[name].to_pylist() for name in TABLES["systems"]), strict=True)
        ]
        self._number = {key: k for k, key in enumerate(zip(ids, replicas, strict=True))}
        if names is None:
            names = [name for name in survey.facts["tables"] if name != "systems"]
        self._readers = {name: _RowGroups(survey, name) for name in names}
        self._begins = {
            name: np.concatenate(
                [[0], np.cumsum([facts[f"n_{name}"] for facts in self._facts])]
            ).astype(np.int64)
            for name in names
        }

    def keys(self) -> dict[tuple[str, str], str]:
        """Return the key of the results of each trajectory, by id and replica."""
        return {key: self._facts[k]["key"] for key, k in self._number.items()}

    def rows(self, keys: Sequence[tuple[str, str]]) -> Iterator[FoundRows]:
        """Yield the rows of some trajectories; neighbours in one row group are yielded together."""
        numbers = np.array([self._number[key] for key in keys])
        joined = (np.diff(numbers) == 1) & (numbers[1:] % WINDOW != 0)
        for run in np.split(numbers, np.flatnonzero(~joined) + 1):
            first, end = int(run[0]), int(run[-1]) + 1
            tables = {}
            for name, reader in self._readers.items():
                begin, stop = map(int, self._begins[name][[first, end]])
                if stop > begin:
                    tables[name] = reader.rows(begin, stop).select(list(TABLES[name]))
            yield FoundRows(self._facts[first:end], tables)


class _RowGroups:
    """Rows of a Parquet file.

    Row groups stay in memory once they are read; of a table in `LONG`, only the last `MOST_LONG`
    row groups stay.
    """

    def __init__(self, survey: Survey, name: str):
        self._path = survey.path(name)
        self._most = MOST_LONG if name in LONG else np.inf
        self._kept: dict[int, pyarrow.Table] = {}

    @cached_property
    def _file(self) -> "pyarrow.parquet.ParquetFile":
        return need_arrow("parquet").ParquetFile(self._path)

    @cached_property
    def _begins(self) -> np.ndarray:
        """First row of each row group, and the number of all rows."""
        metadata = self._file.metadata
        sizes = [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    def rows(self, begin: int, end: int) -> "pyarrow.Table":
        """Return the rows from `begin` to `end`, which are in one row group."""
        number = int(np.searchsorted(self._begins, begin, side="right")) - 1
        if number not in self._kept:
            if len(self._kept) >= self._most:
                del self._kept[next(iter(self._kept))]
            self._kept[number] = self._file.read_row_group(number)
        first = int(self._begins[number])
        return self._kept[number].slice(begin - first, end - begin)
