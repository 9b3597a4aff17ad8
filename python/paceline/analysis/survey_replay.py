"""Compute systems of a survey again, and compare their rows with those of its tables."""

import json
import os
import random
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from paceline import _core
from paceline._util.files import is_address
from paceline._util.json_object import JsonObject
from paceline.analysis.replay import MOST_LISTED, Check, Difference
from paceline.analysis.survey_catalogue import SEPARATOR, SurveyEntry
from paceline.analysis.survey_records import need_arrow, read_parquet
from paceline.analysis.survey_tables import (
    COUNTED,
    TABLES,
    WITH_COLUMNS,
    FoundRows,
    StoredTables,
    Survey,
    rows_of,
)
from paceline.analysis.survey_worker import (
    SurveyItem,
    SurveySettings,
    analyse,
    core_digest,
    with_digest,
)
from paceline.errors import FileChangedError, UnsupportedError
from paceline.performance.number_format import many
from paceline.runner import FramesChosen

if TYPE_CHECKING:
    import pyarrow

#: Seed of the sample, so that everyone who repeats a replay checks the same systems.
SEED = 0
#: Options of a run that a manifest may have, and options of a Universe that a table may have. A
#: survey may come from somebody else: other options would write files.
OPTIONS, OF_UNIVERSE = ("start", "stop", "step", "frames", "on_error"), ("dataset", "dt")
#: Columns of the table of systems that are computed.
COMPARED = tuple(
    name for name in TABLES["systems"] if name not in ("topology", "trajectory", "options", "key")
)
#: Columns that name a row in a message.
NAMES = ("analysis", "quantity", "x", "frame", "message")


def _no_frames(text: str) -> FramesChosen:
    """Know no choice of frames by its text."""
    return None


def replay_survey(
    folder: str | os.PathLike,
    frames_named: Callable[[str], FramesChosen] = _no_frames,
    *,
    sample: int | None = None,
    files: str | os.PathLike | None = None,
) -> Check:
    """Compute all or some systems of a survey again, and compare every value.

    Digests of all tables are compared with the manifest, then columns that occur in several tables,
    and then the rows of each system, bit by bit. `frames_named` returns the choice of frames that a
    text in a manifest describes, or None. `files` is the folder to which the names of files are
    relative, if it is no longer that of the catalogue.

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
    differences: list[Difference] = []
    n_systems = 0
    try:
        stored = StoredTables(survey, checked=False)
        systems = read_parquet(survey.path("systems")).to_pylist()
        differences += _columns_that_differ(survey, systems)
        settings = settings_of(survey, frames_named)
        entries = entries_of(systems)
        settings = replace(settings, folder=_folder_of(settings.folder, entries, survey, files))
        if settings.folder != survey.facts["catalogue"]["folder"]:
            check.reasons.append(f"files were looked up from the folder {settings.folder}")
        if sample is not None and sample < len(entries):
            entries = random.Random(SEED).sample(entries, sample)
        for entry in entries:
            found = rows_of(analyse(SurveyItem(entry), settings, "serial"))
            [was] = stored.rows([entry.key])
            differences += compare(entry, was, found)
            n_systems += 1
    except (need_arrow().ArrowException, KeyError, IndexError, ValueError) as error:
        if not changed:
            raise
        # A table that was changed may contain anything.
        check.reasons.append(f"the tables cannot be compared: {error!r}")
    about = survey.facts
    if differences and (about["paceline"], about["core"]) != (_core.__version__, core_digest()):
        check.reasons.append(
            f"the survey was computed by paceline {about['paceline']} (build {about['core']}), and "
            f"again by {_core.__version__} (build {core_digest()})"
        )
    return replace(
        check,
        verdict="differs" if changed or differences else "equal",
        compared=f"{many(n_systems, 'system')} of a survey",
        differences=differences[:MOST_LISTED],
        n_differences=len(differences),
    )


def _folder_of(
    recorded: str,
    entries: Sequence[SurveyEntry],
    survey: Survey,
    files: str | os.PathLike | None,
) -> str:
    """Return the folder in which the files of a survey are; the recorded one if none has them."""
    if files is None and is_address(recorded):
        return recorded
    beside = [f"{survey.folder}", f"{survey.folder.parent}"] if files is None else []
    for folder in (recorded if files is None else os.fspath(files), *beside):
        if entries and os.path.exists(os.path.join(folder, entries[0].trajectories[0])):
            return os.path.abspath(folder)
    return recorded


def _columns_that_differ(survey: Survey, systems: Sequence[JsonObject]) -> Iterator[Difference]:
    """Compare the columns of the catalogue, which several tables have, with those of `systems`."""
    names = [name for name in systems[0] if name not in TABLES["systems"]] if systems else []
    known = {(row["id"], row["replica"]): row for row in systems}
    for table in WITH_COLUMNS[1:]:
        rows = read_parquet(survey.path(table)).select(names).to_pylist()
        for number, row in enumerate(rows, start=1):
            right = known.get((row["id"], row["replica"]))
            if right is None:
                yield Difference(f"{table}.parquet, row {number}: id", f"{row['id']}", "none")
                continue
            for name, value in row.items():
                if repr(value) != repr(right[name]):
                    place = f"{table}.parquet, row {number}: {row['id']}: {name}"
                    yield Difference(place, repr(value), repr(right[name]))


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
    """Return the options of a system; raise `UnsupportedError` for others than a survey writes."""
    found = None
    with suppress(ValueError):
        found = json.loads(row["options"] or "{}")
    if not isinstance(found, dict) or not found.keys() <= set(OF_UNIVERSE):
        raise UnsupportedError(f"{row['id']}: unexpected options of a trajectory: {row['options']}")
    return found


def compare(entry: SurveyEntry, stored: FoundRows, found: FoundRows) -> list[Difference]:
    """Return the first difference of each table of one system."""
    [old], [new] = stored.facts, found.facts
    was, now = (one["key"].rpartition("-")[2] for one in (old, new))
    if was and not now:
        reason = found.failure or "an error that may pass"
        raise UnsupportedError(f"{entry.name}: it cannot be computed now: {reason}")
    if was != now and was:
        return [Difference(f"{entry.name}: the digest of its files, which have changed", was, now)]
    differences = [
        Difference(f"systems.parquet: {entry.name}: {column}", repr(value), repr(new[column]))
        for column, value in old.items()
        if column in COMPARED and repr(value) != repr(new[column])
    ]
    for name in COUNTED:
        difference = _first_difference(stored.tables.get(name), found.tables.get(name))
        if difference is not None:
            place, value, computed = difference
            place = f"{name}.parquet: {entry.name}{place}"
            differences.append(Difference(place, value, computed))
    return differences


def _first_difference(
    before: "pyarrow.Table | None", after: "pyarrow.Table | None"
) -> tuple[str, str, str] | None:
    """Return place and values of the first difference of two tables; None if bits are equal."""
    rows: list[Sequence[JsonObject]] = [
        () if one is None else one.to_pylist() for one in (before, after)
    ]
    for old, new in zip(*rows, strict=False):
        for column, value in old.items():
            # The texts of two different numbers differ, and the texts of NaN are equal.
            if repr(value) != repr(new[column]):
                named = " ".join(f"{old[key]}" for key in NAMES if old.get(key, "") != "")
                return f": {named}: {column}", repr(value), repr(new[column])
    if len(rows[0]) != len(rows[1]):
        return "", many(len(rows[0]), "row"), many(len(rows[1]), "row")
    return None
