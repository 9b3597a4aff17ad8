"""Compute systems of a survey again, and compare their rows with those of its tables."""

import json
import os
import random
import tomllib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from paceline import _core
from paceline._util.json_object import JsonObject
from paceline.analysis.survey_catalogue import SEPARATOR, SurveyEntry
from paceline.analysis.survey_tables import TABLES, FoundRows, StoredTables, Survey, rows_of
from paceline.analysis.survey_worker import (
    SurveyItem,
    SurveySettings,
    analyse,
    core_digest,
    with_digest,
)
from paceline.errors import FileChangedError, UnsupportedError
from paceline.runner import FramesChosen

if TYPE_CHECKING:
    import pyarrow

#: Seed of the sample, so that everyone who repeats a replay checks the same systems.
SEED = 0
#: Options of a run that a manifest may have, and options of a Universe that a table may have. A
#: survey may come from somebody else: other options would write files.
OPTIONS, OF_UNIVERSE = ("start", "stop", "step", "frames", "on_error"), ("dataset", "dt")
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
) -> tuple[list[str], int]:
    """Compute all or some systems of a survey again; return differences, and their number.

    Differences are sentences that name the table, the row and both values. First, the digests of
    all tables are compared with the manifest. Then rows are compared bit by bit. `frames_named`
    returns the choice of frames that a text in a manifest describes, or None.

    Raises `UnsupportedError` if the survey chose frames by a function, which no file records.
    """
    survey = Survey(folder)
    differences = []
    for name in survey.facts["tables"]:
        try:
            survey.check(name)
        except FileChangedError as error:
            differences.append(f"{error}")
    if differences:
        return differences, 0
    stored = StoredTables(survey)
    settings = settings_of(survey, frames_named)
    entries = entries_of(survey)
    if sample is not None and sample < len(entries):
        entries = random.Random(SEED).sample(entries, sample)
    for entry in entries:
        found = rows_of(analyse(SurveyItem(entry), settings, "serial"))
        [was] = stored.rows([entry.key])
        differences += compare(entry, was, found)
    about = survey.facts
    if differences and (about["paceline"], about["core"]) != (_core.__version__, core_digest()):
        differences.append(
            f"the survey was computed by paceline {about['paceline']} (build {about['core']}), and "
            f"again by {_core.__version__} (build {core_digest()})"
        )
    return differences, len(entries)


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


def entries_of(survey: Survey) -> list[SurveyEntry]:
    """Return the entries of the catalogue, from the table of systems."""
    return [
        SurveyEntry(
            row["id"],
            row["topology"],
            tuple(row["trajectory"].split(SEPARATOR)),
            row["replica"],
            row["group"],
            options=_options(row),
        )
        for row in survey.systems.to_pylist()
    ]


def _options(row: JsonObject) -> JsonObject:
    """Return the options of a system; raise `UnsupportedError` for others than a survey writes."""
    found = json.loads(row["options"] or "{}")
    if not isinstance(found, dict) or not found.keys() <= set(OF_UNIVERSE):
        raise UnsupportedError(f"{row['id']}: unexpected options of a trajectory: {row['options']}")
    return found


def compare(entry: SurveyEntry, stored: FoundRows, found: FoundRows) -> list[str]:
    """Describe the first difference of each table of one system."""
    [old], [new] = stored.facts, found.facts
    was, now = (one["key"].rpartition("-")[2] for one in (old, new))
    if was and not now:
        reason = found.failure or "an error that may pass"
        raise UnsupportedError(f"{entry.name}: it cannot be computed now: {reason}")
    if was != now and was:
        return [f"{entry.name}: its files have changed since the survey"]
    differences = []
    for name in TABLES:
        if name == "systems":
            differences += [
                f"systems.parquet: {entry.name}: {column}: expected {expected!r}, found {value!r}"
                for column, expected, value in _different_facts(old, new)
            ]
            continue
        before, after = stored.tables.get(name), found.tables.get(name)
        difference = _first_difference(before, after)
        if difference:
            differences.append(f"{name}.parquet: {entry.name}: {difference}")
    return differences


def _different_facts(stored: JsonObject, found: JsonObject) -> Iterator[tuple[str, object, object]]:
    """Yield the columns in which the facts of a system differ."""
    for column in ("n_atoms", "n_frames", "n_analysed", "first_time", "last_time"):
        old, new = stored[column], found[column]
        if repr(old) != repr(new):
            yield column, old, new


def _first_difference(before: "pyarrow.Table | None", after: "pyarrow.Table | None") -> str:
    """Describe the first difference between two tables; empty if their bits are equal."""
    rows: list[Sequence[JsonObject]] = [
        () if one is None else one.to_pylist() for one in (before, after)
    ]
    if len(rows[0]) != len(rows[1]):
        return f"expected {len(rows[0]):,} rows, found {len(rows[1]):,}"
    for old, new in zip(*rows, strict=True):
        for column, value in old.items():
            # The texts of two different numbers differ, and the texts of NaN are equal.
            if repr(value) != repr(new[column]):
                named = " ".join(f"{old[key]}" for key in NAMES if old.get(key, "") != "")
                return f"{named}: {column}: expected {value!r}, found {new[column]!r}"
    return ""
