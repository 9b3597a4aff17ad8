"""Compute systems of a survey again, and compare their rows with those of its tables.

Another kind of processor may add numbers in another order. The table of systems names the processor
that computed each system. If the processor has changed, small differences of numbers are tolerated.
"""

import json
import math
import os
import random
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from paceline._util.files import is_address
from paceline._util.json_types import JsonObject
from paceline.analysis.compare_recomputed_results import (
    TOLERANCE,
    Check,
    Difference,
    Differences,
    deviation_of_cells,
)
from paceline.analysis.read_survey_catalogue import SEPARATOR, SurveyEntry
from paceline.analysis.survey_one_trajectory import (
    SurveyItem,
    SurveySettings,
    analyse,
    core_digest,
    program_versions,
    with_digest,
)
from paceline.analysis.survey_result_encoding import PROGRAMS, arrow_array, need_arrow, read_parquet
from paceline.analysis.survey_tables import (
    COUNTED,
    MANIFEST,
    TABLES,
    FoundRows,
    StoredTables,
    Survey,
    rows_of,
    schema_of,
)
from paceline.errors import FileChangedError, PacelineError, UnsupportedError
from paceline.performance.number_format import many
from paceline.runner import FramesChosen

if TYPE_CHECKING:
    import pyarrow

#: Seed of the sample, so that everyone who repeats a replay checks the same systems.
SEED = 0
#: Options of a run that a manifest may contain, and options of a Universe that the table of systems
#: may contain. Others are refused, because a survey from somebody else must not write files.
OPTIONS, OF_UNIVERSE = ("start", "stop", "step", "frames", "on_error"), ("dataset", "dt")
#: Columns of the table of systems that are compared, because they are computed.
COMPARED = tuple(
    name
    for name in TABLES["systems"]
    if name not in ("topology", "trajectory", "options", "digests", "processor", "key")
)
#: Columns of numbers that are not computed by sums, such as times of frames, and so are equal on
#: all processors.
EXACT = ("first_time", "last_time", "time", "equilibrated_at", "equilibrated_from")
#: Possible types of the columns of a catalogue.
TYPES = ("string", "bool", "int64", "double")
#: Columns whose values identify a row in a message.
NAMES = ("analysis", "quantity", "x", "frame", "message")


def _no_frames(text: str) -> FramesChosen:
    """Return None, because a function that chose frames cannot be found by its text."""
    return None


def replay_survey(
    folder: str | os.PathLike,
    frames_named: Callable[[str], FramesChosen] = _no_frames,
    *,
    sample: int | None = None,
    files: str | os.PathLike | None = None,
) -> Check:
    """Compute all or some systems of a survey again, and compare every value.

    Digests of all tables, their columns and numbers of rows are compared with the manifest. Then,
    columns that occur in several tables are compared with each other, and the rows of each system
    with the new ones, bit by bit. A system that cannot be computed now does not end the comparison
    of the others. Another processor is no difference, but if numbers differ, the check mentions it.

    `frames_named` returns the choice of frames that a text in a manifest describes, or None.
    `files` is the folder to which the names of files are relative, if it is no longer that of the
    catalogue.

    Raises `UnsupportedError` if the survey chose frames by a function, which no file records.
    """
    survey = Survey(folder)
    check = Check(f"{folder}", "equal")
    for name in survey.facts["tables"]:
        try:
            survey.check(name)
        except FileChangedError as error:
            check.reasons.append(f"{error}")
    changed = bool(check.reasons)
    missing = {name for name in survey.facts["tables"] if not survey.path(name).exists()}
    differences = Differences()
    processors: set[tuple[str, str]] = set()
    n_systems = 0
    #: Systems that cannot be computed now, with the reasons.
    lost: list[str] = []
    try:
        tables = _ComparedTables(survey, missing)
        differences.add_all(tables.differences())
        systems = tables.rows_of_systems
        settings = settings_of(survey, frames_named)
        differences.add_all(_keys_that_differ(survey, systems, settings))
        entries = entries_of(systems)
        settings = replace(settings, folder=_folder_of(settings.folder, entries, survey, files))
        if settings.folder != survey.facts["catalogue"]["folder"]:
            check.reasons.append(f"files were looked up from the folder {settings.folder}")
        if sample is not None and sample < len(entries):
            entries = random.Random(SEED).sample(entries, sample)
        stored = StoredTables(survey, tables.comparable, checked=False) if entries else None
        for entry in entries:
            assert stored is not None
            [was] = stored.rows([entry.key])
            found = rows_of(analyse(SurveyItem(entry), settings, "serial"))
            n_before = differences.n
            try:
                differences.add_all(compare(entry, was, found, tables.comparable))
            except UnsupportedError as error:
                lost.append(f"{error}")
                continue
            if differences.n > n_before:
                processors.add((was.facts[0]["processor"], found.facts[0]["processor"]))
            n_systems += 1
        for name in tables.names:
            if name not in tables.comparable:
                check.reasons.append(f"the rows of {name}.parquet were not compared one by one")
    except need_arrow().ArrowException as error:
        changed = True  # no survey writes such a table, whatever the manifest says
        check.reasons.append(f"the tables cannot be compared: {error}")
    except (PacelineError, KeyError, IndexError, ValueError) as error:
        if not (changed or differences.n):
            raise
        # The content of a changed table is arbitrary, so that it may cause any error.
        check.reasons.append(f"the tables cannot be compared: {error}")
    verdict = "differs" if changed or differences.n else "not checked" if lost else "equal"
    if lost:
        check.reasons.append(
            f"{len(lost):,} of {many(len(lost) + n_systems, 'system')} could not be compared: "
            f"{lost[0]}"
        )
    if differences.n:
        other_programs = list(_other_programs(survey.facts))
        others = sorted(f"{was}; now {now}" for was, now in processors if was != now)
        check.reasons += other_programs
        check.reasons += [f"another processor computed a system ({one})" for one in others]
        of_processors = len(others) == len(processors) > 0 and not (changed or other_programs)
        of_processors &= not lost
        if of_processors and differences.are_small:
            verdict = "equal within tolerance"
            check.reasons.append(f"all numbers agree to {TOLERANCE:g} of the largest of their kind")
    return replace(
        check,
        verdict=verdict,
        compared=f"{many(n_systems, 'system')} of a survey",
        differences=differences.first,
        largest=differences.largest,
        n_differences=differences.n,
    )


def _other_programs(about: JsonObject) -> Iterator[str]:
    """Describe the programs whose versions have changed since a survey."""
    now = program_versions()
    for name in PROGRAMS:
        if about[name] != now[name]:
            yield f"{name} {about[name]} computed the survey, and {name} {now[name]} again"
    if about["core"] != core_digest():
        yield f"build {about['core']} computed the survey, and build {core_digest()} again"


def _folder_of(
    recorded: str,
    entries: Sequence[SurveyEntry],
    survey: Survey,
    files: str | os.PathLike | None,
) -> str:
    """Return the folder that contains the files of a survey; if none does, the recorded one."""
    if files is None and is_address(recorded):
        return recorded
    beside = [f"{survey.folder}", f"{survey.folder.parent}"] if files is None else []
    for folder in (recorded if files is None else os.fspath(files), *beside):
        names = (os.path.join(folder, entry.trajectories[0]) for entry in entries)
        if any(map(os.path.exists, names)):
            return os.path.abspath(folder)
    if files is not None and entries:
        raise UnsupportedError(
            f"{os.fspath(files)}: expected the folder of the whole deposit, in which "
            f"{entries[0].trajectories[0]} is, as in the catalogue"
        )
    return recorded


class _ComparedTables:
    """Tables of a survey, compared with each other and with the manifest."""

    def __init__(self, survey: Survey, missing: Set[str]):
        self._survey = survey
        #: Tables that exist, without that of systems.
        self.names = [name for name in COUNTED if name in survey.facts["tables"].keys() - missing]
        #: Tables whose rows can be found by the table of systems.
        self.comparable = list[str]()
        self._has_systems = "systems" not in missing
        self._systems: pyarrow.Table | None = None

    @property
    def rows_of_systems(self) -> list[JsonObject]:
        """Rows of the table of systems; none if it is missing or has other columns."""
        return [] if self._systems is None else self._systems.to_pylist()

    def differences(self) -> Iterator[Difference]:
        """Compare types of columns, numbers of rows, and the columns that several tables have."""
        if not self._has_systems:
            return
        found = read_parquet(self._survey.path("systems"))
        types = {
            field.name: f"{field.type}"
            for field in found.schema
            if field.name not in schema_of("systems", {}).names and f"{field.type}" in TYPES
        }
        broken = set[str]()
        for name in ("systems", *self.names):
            with need_arrow("parquet").ParquetFile(self._survey.path(name)) as file:
                schema, n_rows = file.schema_arrow, file.metadata.num_rows
            expected = schema_of(name, types)
            yield from _schemas_that_differ(name, schema, expected)
            if any(field not in schema for field in expected):
                broken.add(name)
            if (recorded := self._survey.facts["tables"][name]["rows"]) != n_rows:
                place = f"{MANIFEST}: rows of the table {name}"
                yield Difference(place, f"{recorded}", f"{n_rows}", source=f"{name}.parquet has")
        if "systems" in broken:
            return
        self._systems = found.select(schema_of("systems", types).names)
        yield from self._systems_that_differ()
        for name in self.names:
            if name not in broken:
                yield from self._rows_that_differ(name, broken)
        self.comparable = [name for name in self.names if name not in broken]

    def _systems_that_differ(self) -> Iterator[Difference]:
        """Compare the number of systems with the manifest; find repeated systems."""
        assert self._systems is not None
        recorded = self._survey.facts["catalogue"]["systems"]
        if recorded != len(self._systems):
            both = f"{recorded}", f"{len(self._systems)}"
            place = f"{MANIFEST}: number of systems in the catalogue"
            yield Difference(place, *both, source="systems.parquet has")
        known = set[tuple[str, str]]()
        for number, row in enumerate(self.rows_of_systems, start=1):
            place = f"systems.parquet, row {number}"
            if (key := (row["id"], row["replica"])) in known:
                name = f"{row['id']} ({row['replica']})"
                yield Difference(f"{place}: id and replica", name, "it once", source="a survey has")
            known.add(key)

    def _rows_that_differ(self, name: str, broken: set[str]) -> Iterator[Difference]:
        """Compare the columns of a table that the table of systems has, too.

        A table whose number of rows is not that of the table of systems is added to `broken`.
        """
        assert self._systems is not None
        counts = self._systems[f"n_{name}"].fill_null(-1).to_numpy()
        which = np.repeat(np.arange(len(counts)), np.maximum(counts, 0))
        path = self._survey.path(name)
        with need_arrow("parquet").ParquetFile(path) as file:
            if file.metadata.num_rows != len(which) or (counts < 0).any():
                broken.add(name)
                place, n = f"{name}.parquet", file.metadata.num_rows
                expected = f"{counts.sum()}, the sum of n_{name}"
                yield Difference(f"{place}: rows", f"{n}", expected, source="systems.parquet has")
                return
            columns = [one for one in self._systems.column_names if one in file.schema_arrow.names]
            columns = [one for one in columns if one not in TABLES["systems"]]
            right, begin = self._systems.select(columns), 0
            for group in range(file.num_row_groups):
                part = file.read_row_group(group, columns=columns).select(columns)
                numbers = which[begin : begin + len(part)]
                expected = right.take(arrow_array(numbers, "int64"))
                if not part.equals(expected):
                    yield from _columns_that_differ(name, begin, part, expected)
                begin += len(part)


def _schemas_that_differ(
    name: str, found: "pyarrow.Schema", expected: "pyarrow.Schema"
) -> Iterator[Difference]:
    """Compare the names, types and order of a table's columns with those that a survey writes."""
    types, right = ({one.name: f"{one.type}" for one in some} for some in (found, expected))
    for column in dict.fromkeys([*right, *types]):
        was, wanted = types.get(column, "none"), right.get(column, "none")
        if was != wanted:
            place = f"{name}.parquet: type of the column {column!r}"
            yield Difference(place, was, wanted, source="a survey has")
    if types == right and found.names != expected.names:
        order = ", ".join(found.names), ", ".join(expected.names)
        yield Difference(f"{name}.parquet: order of the columns", *order, source="a survey has")


def _columns_that_differ(
    table: str, begin: int, found: "pyarrow.Table", expected: "pyarrow.Table"
) -> Iterator[Difference]:
    """Compare the columns of some rows, from row `begin`, with those of the table of systems."""
    rows = zip(found.to_pylist(), expected.to_pylist(), strict=True)
    for number, (row, right) in enumerate(rows, start=begin + 1):
        for name, value in row.items():
            if repr(value) != repr(right[name]):
                place = f"{table}.parquet, row {number}: {right['id']}: {name}"
                others = repr(value), repr(right[name])
                yield Difference(place, *others, source="systems.parquet has")


def _keys_that_differ(
    survey: Survey, systems: Sequence[JsonObject], settings: SurveySettings
) -> Iterator[Difference]:
    """Compare the digests of settings in the manifest and in each key with those of `settings`."""
    recorded = survey.facts["settings"]["digest"]
    for row in systems:
        if row["key"].partition("-")[0] != recorded:
            place = f"systems.parquet: {row['id']}: digest of the settings in its key"
            yield Difference(place, row["key"], recorded, source=f"{MANIFEST} has")
    # Another version of a program also changes the digest, which is not a difference.
    if recorded != settings.digest and not list(_other_programs(survey.facts)):
        yield Difference(f"{MANIFEST}: digest of the settings", recorded, settings.digest)


def settings_of(
    survey: Survey, frames_named: Callable[[str], FramesChosen] = _no_frames
) -> SurveySettings:
    """Return the settings that a manifest records."""
    recorded = survey.facts["settings"]
    options = {**recorded["options"]}
    if (given := options.get("frames")) is not None:
        is_list = isinstance(given, list) and all(isinstance(one, int) for one in given)
        options["frames"] = given if is_list else frames_named(f"{given}")
        if options["frames"] is None:
            raise UnsupportedError(
                f"{survey.folder}: its frames were chosen by a function of a script: run the "
                "survey again into another folder, and compare the tables"
            )
    unknown = options.keys() - OPTIONS
    if unknown:
        raise UnsupportedError(
            f"{survey.folder}: its manifest has an unknown option {sorted(unknown)[0]!r}"
        )
    text = recorded["battery"]
    tables = survey.facts["tables"]
    settings = SurveySettings(
        survey.facts["catalogue"]["folder"],
        None if text == "default" else tomllib.loads(text),
        options,
        recorded["unwrap"],
        "series" in tables,
        "profiles" in tables,
    )
    return with_digest(settings)


def entries_of(systems: Sequence[JsonObject]) -> list[SurveyEntry]:
    """Return the entries of the catalogue, from the rows of the table of systems."""
    return [
        SurveyEntry(
            row["id"],
            row["topology"],
            tuple(row["trajectory"].split(SEPARATOR)),
            row["replica"],
            row["group"],
            options=_options(row),
        )
        for row in systems
    ]


def _options(row: JsonObject) -> JsonObject:
    """Return the options of a system; raise `UnsupportedError` if no survey writes such options."""
    found = None
    with suppress(ValueError):
        found = json.loads(row["options"] or "{}")
    if not isinstance(found, dict) or not found.keys() <= set(OF_UNIVERSE):
        raise UnsupportedError(f"{row['id']}: unexpected options of a trajectory: {row['options']}")
    return found


def compare(
    entry: SurveyEntry, stored: FoundRows, found: FoundRows, tables: Sequence[str] = COUNTED
) -> Iterator[Difference]:
    """Compare the rows of one system in some tables, or the digests of its files if these changed.

    Raises `UnsupportedError` if the system cannot be computed now.
    """
    [old], [new] = stored.facts, found.facts
    was, now = (one["key"].rpartition("-")[2] for one in (old, new))
    if was and not now:
        reason = found.failure or "an error that may pass"
        raise UnsupportedError(f"{entry.name}: it cannot be computed now: {reason}")
    if was and (was, old["digests"]) != (now, new["digests"]):
        yield from _files_that_differ(entry, old, new)
        return
    for column in COMPARED:
        if repr(old[column]) != repr(new[column]):
            place = f"systems.parquet: {entry.name}: {column}"
            yield Difference(place, repr(old[column]), repr(new[column]), may_be_small=False)
    for name in tables:
        both = stored.tables.get(name), found.tables.get(name)
        yield from _rows_that_differ(f"{name}.parquet: {entry.name}", *both)


def _files_that_differ(
    entry: SurveyEntry, old: JsonObject, new: JsonObject
) -> Iterator[Difference]:
    """Yield the digests of a system's files that differ; if all are equal, yield its keys."""
    names = entry.topology, *entry.trajectories
    before, after = (one["digests"].split(SEPARATOR) for one in (old, new))
    place = f"systems.parquet: {entry.name}"
    if before == after:
        yield Difference(f"{place}: key", old["key"], new["key"])
    elif not len(names) == len(before) == len(after):
        yield Difference(f"{place}: digests", old["digests"], new["digests"])
    else:
        for name, was, now in zip(names, before, after, strict=True):
            if was != now:
                yield Difference(f"{place}: digest of {name}", was, now)


def _rows_that_differ(
    place: str, before: "pyarrow.Table | None", after: "pyarrow.Table | None"
) -> Iterator[Difference]:
    """Yield the cells of two tables that differ."""
    old, new = (() if one is None else one.to_pylist() for one in (before, after))
    largest = _largest_numbers(new)
    for was, now in zip_longest(old, new):
        if was is None or now is None:
            yield Difference(place, many(len(old), "row"), many(len(new), "row"))
            return
        for column, value in was.items():
            # The texts of two different numbers differ, and the texts of NaN are equal.
            first, second = repr(value), repr(now[column])
            if first == second:
                continue
            named = " ".join(f"{was[key]}" for key in NAMES if was.get(key, "") != "")
            deviation = deviation_of_cells(first, second, largest.get(_kind_of(now, column), 0.0))
            is_exact = column in EXACT or not isinstance(value, float)
            yield Difference(f"{place}: {named}: {column}", first, second, deviation, not is_exact)


def _kind_of(row: JsonObject, column: str) -> tuple[str, str, str]:
    """Return the kind of a number: analysis, quantity, and column.

    The mean of a quantity, its limits and its standard deviation have the same kind.
    """
    kind = "mean" if column in ("low", "high", "standard_deviation", "mean_of_all") else column
    return row.get("analysis", ""), row.get("quantity", ""), kind


def _largest_numbers(rows: Iterable[JsonObject]) -> Mapping[tuple[str, str, str], float]:
    """Return the largest magnitude of the finite numbers of each kind."""
    found: dict[tuple[str, str, str], float] = {}
    for row in rows:
        for column, value in row.items():
            if isinstance(value, float) and math.isfinite(value):
                kind = _kind_of(row, column)
                found[kind] = max(found.get(kind, 0.0), abs(value))
    return found
