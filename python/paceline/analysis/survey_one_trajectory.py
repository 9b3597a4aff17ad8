"""Analyse single trajectories of a survey, in any process."""

import hashlib
import io
import json
import os
import re
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from paceline import _core
from paceline._util.files import is_address
from paceline._util.json_types import JsonArray, JsonObject
from paceline._util.machine_and_software import software
from paceline._util.python_object_digest import digest, file_digest
from paceline.analysis.base import AnalysisBase
from paceline.analysis.battery_definitions import toml_of
from paceline.analysis.convergence_of_table_series import MOST_SERIES, SeriesVerdict, table_verdicts
from paceline.analysis.read_survey_catalogue import SEPARATOR, SurveyEntry, topology_beside
from paceline.analysis.series_verdict import usable_rows
from paceline.analysis.survey_result_encoding import (
    PROGRAMS,
    QUANTITY,
    WITH_INCLUDED,
    SystemResults,
    encode,
)
from paceline.analysis.table import Table, name_and_unit
from paceline.contract.analysis_declaration import Description
from paceline.contract.read_catalogue import catalogue
from paceline.contract.system_interface import Frames, attribute_of
from paceline.errors import PacelineError, UnsupportedError, warn
from paceline.hdf5 import mdcath
from paceline.performance.number_format import many
from paceline.trajectory.addresses import local_copy, source_name
from paceline.trajectory.open import cache_folder, files_named, is_decoded

if TYPE_CHECKING:
    from paceline.analysis.battery import Battery
    from paceline.universe import Universe

#: Titles of the column with residue numbers: a table of residues has one of them.
OF_RESIDUES = ("resid", "residue")
#: Size of a trajectory file, bytes, above which its blocks are distributed over threads, and its
#: content is identified by samples.
LARGE = 2**29
#: Extensions of topologies that may include other files.
INCLUDING = (".top", ".itp")
#: Beginning of a battery's warnings about analyses that a system does not allow.
LEFT_OUT = "left out of the battery: "
#: Kind of the failure of an analysis that has results, but no means.
NOT_ASSESSED = "not assessed"
#: Index of the number of values in a row of the table of quantities.
N_VALUES = list(QUANTITY).index("n")
#: Maximum number of left-out frames with a warning each; a last warning counts the others.
MOST_DAMAGED = 20
#: Approximate size of the positions in a block of frames, bytes.
BLOCK_BYTES = 2**24
#: Length of the digests in keys, hexadecimal digits.
DIGITS = 16


@dataclass(frozen=True)
class SurveySettings:
    """Everything that determines the results of a trajectory, except for its files.

    `descriptions` are those of a battery; None stands for the default battery of each system.
    `folder` is that of the catalogue. `series` and `profiles` request the tables of these names.
    """

    folder: str
    descriptions: Mapping[str, Description] | None
    options: JsonObject = field(default_factory=dict)
    unwrap: bool = True
    series: bool = False
    profiles: bool = False
    #: Digest of these settings and of the programs; the first part of the key of results.
    digest: str = ""

    def path(self, name: str) -> str:
        """Return the path or address of a file that an entry names."""
        return source_name(name, self.folder)


@cache
def core_digest() -> str:
    """Digest of the compiled module."""
    found = file_digest(_core.__file__)
    if not found:
        raise UnsupportedError(f"{_core.__file__}: paceline's compiled module cannot be read")
    return found[:DIGITS]


@cache
def program_versions() -> dict[str, str]:
    """Return the versions of the packages that determine the bits of results, by name."""
    return {"paceline": _core.__version__} | {name: version(name) for name in PROGRAMS[1:]}


def with_digest(given: SurveySettings) -> SurveySettings:
    """Return settings to which the digest of the settings and of the programs is added."""
    about = vars(given) | {"folder": "", "descriptions": battery_text(given)}
    programs = core_digest(), sorted(program_versions().items())
    return replace(given, digest=digest(programs, sorted(about.items()))[:DIGITS])


def battery_text(settings: SurveySettings) -> str:
    """Return the descriptions of a battery in TOML, or "default"."""
    return "default" if settings.descriptions is None else toml_of(settings.descriptions)


class SurveyItem(NamedTuple):
    """Trajectory to analyse, and the key of its results in an earlier run, if there are any."""

    entry: SurveyEntry
    key: str = ""

    @property
    def has_failed(self) -> bool:
        """True if an earlier run ended with an error that may pass, such as a killed worker."""
        return self.key.endswith("-")


class SurveyWork:
    """Function of a worker: analyse some trajectories, and return their encoded results."""

    def __init__(self, settings: SurveySettings):
        self._settings = settings

    def __call__(self, items: Sequence[SurveyItem]) -> bytes:
        """Analyse trajectories one after another; an error is a row of the results."""
        return encode([analyse(one, self._settings, "serial") for one in items])


def analyse(item: SurveyItem, settings: SurveySettings, backend: object) -> SystemResults:
    """Analyse one trajectory; if its key equals that of `item`, only return its facts."""
    entry = item.entry
    results = SystemResults(facts_of(entry, settings))
    with _alone, _collected_warnings() as texts:
        try:
            universe, content, digests = open_system(entry, settings)
            results.facts["digests"] = SEPARATOR.join(digests)
            results.facts["key"] = f"{settings.digest}-{content}"
            results.facts["unchanged"] = results.facts["key"] == item.key
            if not results.facts["unchanged"]:
                _analyse_universe(universe, settings, backend, results)
        except Exception as error:  # an error of one trajectory does not end the survey
            _drop_universe()
            _add_failure(results, "", error, settings)
        if _last.universe is not None and _attributes_of(_last.universe) != _last.attributes:
            # The next trajectory must not depend on attributes that this one has added.
            _drop_universe()
    # The warnings about analyses that were left out are recorded as failures.
    known = [text for text in texts if not text.startswith(LEFT_OUT)]
    rows = [*(["", text] for text in known), *results.warnings]
    results.warnings = [[name, _one_line(text, settings)] for name, text in rows]
    return results


def facts_of(entry: SurveyEntry, settings: SurveySettings) -> JsonObject:
    """Return the facts about a trajectory that are known before its files are opened."""
    return {
        "id": entry.id,
        "replica": entry.replica,
        "folder": settings.folder,
        "digests": "",
        "processor": software()["processor"],
        "key": f"{settings.digest}-",
        "unchanged": False,
        "state": state_of(entry, settings),
        "n_atoms": 0,
        "n_frames": 0,
        "n_analysed": 0,
        "first_time": np.nan,
        "last_time": np.nan,
    }


def state_of(entry: SurveyEntry, settings: SurveySettings) -> str:
    """Return a digest of an entry's options, and of names, sizes and times of all its files.

    It includes files that a topology includes. It is empty unless all files are local and exist.
    """
    topology = entry.topology
    if topology.endswith(f"/{mdcath.ATOMS}"):
        topology = topology.rpartition(mdcath.SEPARATOR)[0]
    found: list[object] = [entry.topology, *entry.trajectories, sorted(entry.options.items())]
    try:
        paths = [settings.path(name) for name in (topology, *entry.trajectories)]
        for path in (*paths, *_with_included(paths[0])[1:]):
            known = os.stat(path)
            found += [known.st_size, known.st_mtime_ns]
    except (OSError, ValueError):
        return ""
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:DIGITS]


def _add_failure(
    results: SystemResults, name: str, error: BaseException, settings: SurveySettings
) -> None:
    """Add a failure to the results.

    If the error may be temporary, such as a full disk, the key of the results gets an empty second
    part, so that a later run computes them again.
    """
    text = f"{error}"
    if not isinstance(error, PacelineError | OSError):
        text = f"{type(error).__name__}: {text}"
    if isinstance(error, OSError | MemoryError):
        results.facts["key"] = f"{settings.digest}-"
    results.failures.append([name, type(error).__name__, _one_line(text, settings)])


def _one_line(text: str, settings: SurveySettings) -> str:
    """Return a message in one line, with paths relative to the folder of the catalogue."""
    return " ".join(text.replace(f"{settings.folder}{os.sep}", "").split())


@contextmanager
def _collected_warnings() -> Iterator[list[str]]:
    """Collect the texts of warnings, without issuing them."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Ignore warnings of files that a library leaves open: they do not concern the trajectory.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            yield texts
        finally:
            texts += dict.fromkeys(" ".join(f"{one.message}".split()) for one in caught)


#: Lock, so that only one thread of a process analyses a trajectory: warnings are recorded for all
#: threads, and MDAnalysis's parser has a state.
_alone = threading.RLock()


class _LastUniverse:
    """Universe that was opened last, to be used again for an equal topology.

    Attributes: the digest of its topology, the warnings from parsing it, and the names of its
    topology attributes. Analyses may add attributes, such as bonds.
    """

    digest = ""
    universe: "Universe | None" = None
    warnings: Sequence[str] = ()
    attributes: Sequence[str] = ()


_last = _LastUniverse()


def _drop_universe() -> None:
    _last.digest, _last.universe = "", None


def open_system(entry: SurveyEntry, settings: SurveySettings) -> "tuple[Universe, str, list[str]]":
    """Open a trajectory; return the Universe, a digest of all files, and the digest of each.

    In the list of digests, the first one is that of the topology (empty if the topology is also the
    trajectory), and the others are those of the trajectory files.

    If the topology equals that of the last trajectory, it is not parsed again.
    """
    # Deferred: other processes of a survey do not need MDAnalysis.
    from paceline.universe import Universe

    # Replace patterns by names before files are counted: files of one pattern may repeat frames.
    names = [one for name in entry.trajectories for one in files_named(settings.path(name))]
    files = names if len(names) > 1 else names[0]
    # Files of restarts repeat the last frame of the previous file, which "continuous" removes.
    continuous = {"continuous": True} if len(names) > 1 and all(map(is_decoded, names)) else {}
    topology, content, options = _topology_of(entry, settings)
    if not content or content != _last.digest:
        _drop_universe()
        with _collected_warnings() as of_all:
            universe = Universe(topology, files, **entry.options, **continuous, **options)
        with _collected_warnings() as of_trajectory:
            universe.load_new(files, **entry.options, **continuous)
        _last.digest, _last.universe = content, universe
        _last.warnings = [text for text in of_all if text not in of_trajectory]
        _last.attributes = _attributes_of(universe)
        for text in of_trajectory:
            warn(text)
    else:
        assert _last.universe is not None
        universe = _last.universe
        universe.load_new(files, **entry.options, **continuous)
    for text in _last.warnings:
        warn(text)
    digests = [content.partition(".")[0], *_fingerprints(universe.trajectory)]
    of_files = content, digests, sorted(entry.options.items())
    return universe, hashlib.sha256(json.dumps(of_files).encode()).hexdigest()[:DIGITS], digests


def _attributes_of(universe: "Universe") -> list[str]:
    """Return the names of the topology attributes of a Universe."""
    return [one.attrname for one in universe._topology.attrs]


def _topology_of(entry: SurveyEntry, settings: SurveySettings) -> tuple[object, str, JsonObject]:
    """Return a topology, the digest of its content, and keywords to open it.

    The digest is empty for a file that is also the trajectory.
    """
    beside = entry.topology or topology_beside(settings.folder, entry.trajectories[0])
    name = settings.path(beside)
    if entry.topology.endswith(f"/{mdcath.ATOMS}"):
        text = mdcath.read_atoms(name)
        content = hashlib.sha256(text.encode()).hexdigest()
        return io.StringIO(text), content, {"topology_format": "PDB"}
    if entry.topology in entry.trajectories:
        return name, "", {}
    path = f"{local_copy(name, cache_folder())}"
    # The digest contains the extension, because it determines the parser.
    return path, f"{_digest_with_includes(path)}{os.path.splitext(path)[1]}", {}


def _digest_with_includes(path: str) -> str:
    """Digest the content of a topology, and of the files that a GROMACS topology includes."""
    if os.path.splitext(path)[1].lower() not in INCLUDING:
        return _digest_of(path)
    digests = sorted(map(_digest_of, _with_included(path)))
    return f"{WITH_INCLUDED}{hashlib.sha256(json.dumps(digests).encode()).hexdigest()}"


def _with_included(path: str) -> list[str]:
    """Return a topology and the files that it includes, directly or through other files."""
    if os.path.splitext(path)[1].lower() not in INCLUDING:
        return [path]
    found: list[str] = []
    waiting = [path]
    while waiting:
        one = waiting.pop()
        if one in found or not os.path.isfile(one):
            continue
        found.append(one)
        known = os.stat(one)
        named = _included_by(one, known.st_size, known.st_mtime_ns)
        waiting += [os.path.join(os.path.dirname(one), name) for name in named]
    return found


@lru_cache(maxsize=256)  # many trajectories of a survey often have one topology
def _included_by(path: str, size: int, time: int) -> list[str]:
    """Return the names of the files that a file of this size and modification time includes."""
    with open(path, encoding="utf-8", errors="replace") as file:
        found: list[str] = re.findall(r'^\s*#\s*include\s*["<](.+?)[">]', file.read(), re.MULTILINE)
    return found


def _digest_of(path: str) -> str:
    """Digest the content of a file."""
    known = os.stat(path)
    return _digest_of_state(path, known.st_size, known.st_mtime_ns)


@lru_cache(maxsize=4)  # several trajectories may be in one file
def _digest_of_state(path: str, size: int, time: int) -> str:
    """Digest the content of a file of this size and modification time."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fingerprints(trajectory: Frames) -> list[str]:
    """Return the digest of each trajectory file.

    For large files, and for objects in an object store, return the fingerprint instead, which is
    computed from samples of the content.
    """
    chain = attribute_of(trajectory, "chain")
    if chain is None:
        names = attribute_of(trajectory, "filenames")
        return list(map(_digest_of, [trajectory.filename] if names is None else names))
    return [
        file.fingerprint
        if is_address(file.path) or os.path.getsize(file.path) > LARGE
        else _digest_of(file.path)
        for file in chain.files
    ]


def battery_of(universe: "Universe", settings: SurveySettings) -> "Battery":
    """Make the battery of a system, without the analyses for which it lacks data."""
    # Deferred: the process that distributes the work makes no battery.
    from paceline.analysis.battery import Battery, check_writes_nothing

    battery = _battery_of(Battery, universe, settings)
    check_writes_nothing(battery.analyses.values())
    return battery


def _battery_of(
    Battery: "type[Battery]", universe: "Universe", settings: SurveySettings
) -> "Battery":
    """Make the battery of the settings' descriptions, or else the default battery."""
    if settings.descriptions is None:
        return Battery.default(universe)
    return Battery(settings.descriptions, universe, optional=True)


def _batteries_of(
    universe: "Universe", settings: SurveySettings, results: SystemResults
) -> "list[Battery]":
    """Make the battery of a system; if that fails, a battery of each analysis that is possible."""
    try:
        return [battery_of(universe, settings)]
    except Exception as error:
        if settings.descriptions is None or len(settings.descriptions) == 1:
            raise
        failed, found = error, []
    several = SystemResults(dict(results.facts))
    for name, one in settings.descriptions.items():
        try:
            found.append(battery_of(universe, replace(settings, descriptions={name: one})))
        except Exception as error:
            _add_failure(several, name, error, settings)
    if not found:
        raise failed
    results.facts["key"] = several.facts["key"]
    results.failures += several.failures
    return found


def _analyse_universe(
    universe: "Universe", settings: SurveySettings, backend: object, results: SystemResults
) -> None:
    """Run the battery on a Universe, and add rows to the results."""
    trajectory = universe.trajectory
    results.facts |= {"n_atoms": trajectory.n_atoms, "n_frames": trajectory.n_frames}
    analyses: dict[str, AnalysisBase] = {}
    for battery in _batteries_of(universe, settings, results):
        analyses |= _run(battery, settings, backend, results)
        for name, reason in battery.left_out.items():
            results.failures.append([name, "left out", _one_line(reason, settings)])
    for name, analysis in analyses.items():
        _add_rows(name, analysis, settings, results)
    first = next(iter(analyses.values()), None)
    if first is not None:
        results.facts["n_analysed"] = len(first.frames) - len(first.damaged)
        known = np.asarray(first.times)[np.isfinite(first.times)]
        if first.times_known and len(known):
            results.facts |= {"first_time": float(known.min()), "last_time": float(known.max())}
        results.warnings += _damage(first.damaged)


def _damage(damaged: Sequence[tuple[int, str]]) -> list[list[str]]:
    """Return rows of warnings: one for each of the first frames that were left out, and a count."""
    rows = [["", f"frame {frame}: {why}"] for frame, why in damaged[:MOST_DAMAGED]]
    more = len(damaged) - MOST_DAMAGED
    return [*rows, ["", f"left out, too: {many(more, 'further frame')}"]] if more > 0 else rows


def _run(
    battery: "Battery", settings: SurveySettings, backend: object, results: SystemResults
) -> dict[str, AnalysisBase]:
    """Run a battery; after an error, run its analyses one by one, and return those with results."""
    run = {"backend": backend, "progress": False, "unwrap": settings.unwrap, **settings.options}
    if backend == "serial":
        # Choose few large blocks: for a short trajectory, the overhead per block takes most of the
        # time.
        run["block_frames"] = max(1, BLOCK_BYTES // (12 * battery.universe.trajectory.n_atoms))
    try:
        return battery.run(**run).analyses
    except Exception as error:
        failed = error
    done: dict[str, AnalysisBase] = {}
    names = list(battery.analyses) if len(battery.analyses) > 1 else []
    several = SystemResults(dict(results.facts))
    for name in names:
        try:
            one = type(battery)({name: battery.descriptions[name]}, battery.universe)
            done[name] = one.run(**run).analyses[name]
        except Exception as error:
            _add_failure(several, name, error, settings)
    if done:
        results.facts["key"] = several.facts["key"]
        results.failures += several.failures
    else:
        _add_failure(results, "", failed, settings)
    return done


def _add_rows(
    name: str, analysis: AnalysisBase, settings: SurveySettings, results: SystemResults
) -> None:
    """Add the rows of one analysis to all tables."""
    found, table = analysis.results, analysis.results.table
    rows = results.quantities
    for title, text in found.findings.items():
        rows.append(_quantity(name, title, text=text))
    declared = attribute_of(analysis, "declaration")
    for one in catalogue().get(declared.name if declared else "", {}).get("results", ()):
        value = found.get(one["name"])
        if one["type"] == "float" and np.ndim(value) == 0 and value is not None:
            rows.append(_quantity(name, one["name"], unit=one["unit"] or "", mean=float(value)))
    if table is None:
        return
    n_before = len(rows)
    if table.is_series:
        verdicts = _verdicts(table)
        if not verdicts and len(table.y) <= MOST_SERIES and _numeric(table):
            reason = "its series have no means, because times do not increase from frame to frame"
            results.failures.append([name, NOT_ASSESSED, reason])
        for title, verdict in verdicts.items():
            rows.append(_of_series(name, table, title, verdict))
    elif any(title in table.columns for title in OF_RESIDUES):
        rows += [_over_residues(name, table, title) for title in _numeric(table)]
    if len(rows) > n_before and not any(row[N_VALUES] for row in rows[n_before:]):
        reason = "none of its values is a finite number: check the positions for NaN"
        results.failures.append([name, NOT_ASSESSED, reason])
    if settings.series and table.is_series:
        _add_series(name, analysis, table, results)
    if settings.profiles and not table.is_series:
        _add_profiles(name, table, results)


def _quantity(analysis: str, quantity: str, **values: object) -> JsonArray:
    """Return a row of the table of quantities."""
    row = {**QUANTITY, "analysis": analysis, "quantity": quantity, **values}
    return [*row.values()]


def _numeric(table: Table) -> list[str]:
    """Return the titles of the columns on the y axis that contain numbers."""
    return [title for title in table.y if np.asarray(table.columns[title]).dtype.kind in "iufb"]


def _verdicts(table: Table) -> dict[str, SeriesVerdict]:
    """Assess all series of a table; if there are more than `MOST_SERIES`, only its headlines."""
    titles = list(table.y) if len(table.y) <= MOST_SERIES else list(table.headlines)
    return table_verdicts(table, titles) if titles else {}


def _of_series(analysis: str, table: Table, title: str, verdict: SeriesVerdict) -> JsonArray:
    """Return the row of the table of quantities for the mean of a time series over frames."""
    found = verdict.found
    spread = np.nan
    if verdict.kind == "linear":
        columns = (table.columns[title], table.columns[table.abscissa])
        values, times = (np.asarray(one, dtype=float) for one in columns)
        rows = usable_rows(values, times)
        known = values[rows[rows >= (found.equilibrated_from or 0)]]
        spread = float(known.std(ddof=1)) if len(known) > 1 else np.nan
    start = found.equilibrated_from
    name, unit = name_and_unit(title)
    return _quantity(
        analysis,
        name,
        unit=unit,
        kind=verdict.kind,
        over="frames",
        n=int(found.n_values),
        mean=float(found.mean),
        low=float(found.interval[0]),
        high=float(found.interval[1]),
        standard_deviation=spread,
        mean_of_all=float(found.mean_of_all),
        n_independent=float(found.n_independent),
        equilibrated_from=np.nan if start is None else float(start),
        equilibrated_at=float(found.equilibrated_at),
        verdict=found.verdict,
    )


def _over_residues(analysis: str, table: Table, title: str) -> JsonArray:
    """Return the row of the table of quantities for the mean of a column over residues."""
    values = np.asarray(table.columns[title], dtype=float)
    known = values[np.isfinite(values)]
    name, unit = name_and_unit(title)
    return _quantity(
        analysis,
        name,
        unit=unit,
        kind="linear",
        over="residues",
        n=len(known),
        mean=float(known.mean()) if len(known) else np.nan,
        standard_deviation=float(known.std(ddof=1)) if len(known) > 1 else np.nan,
    )


def _add_series(name: str, analysis: AnalysisBase, table: Table, results: SystemResults) -> None:
    """Add all time series of an analysis to the results."""
    for title in _numeric(table):
        values = np.asarray(table.columns[title], dtype=float)
        times = np.asarray(analysis.times, dtype=float)
        if not analysis.times_known:
            times = np.full(len(times), np.nan)
        if not len(values) == len(analysis.frames) == len(times):
            continue
        quantity, unit = name_and_unit(title)
        results.series.append([name, quantity, unit, len(values)])
        results.numbers.insert(
            len(results.series) - 1, np.stack([analysis.frames.astype(float), times, values])
        )


def _add_profiles(name: str, table: Table, results: SystemResults) -> None:
    """Add all columns of a table whose rows are not frames, but for example residues."""
    x_title = next((title for title in OF_RESIDUES if title in table.columns), table.x)
    x = np.asarray(table.columns[x_title])
    labels = _labels(table)
    at = x.astype(float) if x.dtype.kind in "iufb" else np.arange(len(x), dtype=float)
    for title in _numeric(table):
        values = np.asarray(table.columns[title], dtype=float)
        if len(values) != len(at):
            continue
        quantity, unit = name_and_unit(title)
        results.profiles.append([name, quantity, unit, x_title, labels, len(values)])
        results.numbers.append(np.stack([at, values]))


def _labels(table: Table) -> list[str]:
    """Return names of the rows: those of residues, or texts on the x axis; empty if none."""
    if "resname" in table.columns:
        return [f"{name}" for name in table.columns["resname"]]
    x = np.asarray(table.columns[table.x])
    return [f"{value}" for value in x] if x.dtype.kind in "UO" else []
