"""Survey: a battery of analyses over many trajectories, with Parquet tables of all results.

Results of finished trajectories are appended to a journal. If a run is killed, the next run
continues from the journal. At the end, the rows of the journal and of an earlier survey are written
to new tables.
"""

import json
import os
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

import cloudpickle
import numpy as np

from paceline._util.files import check_local, is_address, new_file
from paceline._util.journal import Journal
from paceline._util.json_types import JsonObject
from paceline._util.progress import Progress
from paceline._util.signals import Stopping
from paceline.analysis.battery import ENERGIES
from paceline.analysis.battery_definitions import read_battery_file, toml_of
from paceline.analysis.described_analyses import check_descriptions
from paceline.analysis.read_survey_catalogue import (
    SurveyCatalogue,
    SurveyEntry,
    read_catalogue,
)
from paceline.analysis.survey_earlier_results import FoundResults
from paceline.analysis.survey_one_trajectory import (
    LARGE,
    NOT_ASSESSED,
    SurveyItem,
    SurveySettings,
    SurveyWork,
    analyse,
    battery_of,
    battery_text,
    core_digest,
    facts_of,
    open_system,
    program_versions,
    with_digest,
)
from paceline.analysis.survey_page import PAGE, save_pages
from paceline.analysis.survey_result_encoding import SystemResults, encode, need_arrow
from paceline.analysis.survey_tables import (
    FORMAT,
    LONG,
    MANIFEST,
    NEXT,
    STATES,
    TABLES,
    StoredTables,
    Survey,
    TableWriter,
    publish_next,
    types_of,
)
from paceline.backends import make_backend
from paceline.backends.base import Backend
from paceline.contract.analysis_declaration import Description
from paceline.engine.tasks_and_results import BlockResult, FunctionJob, FunctionTask
from paceline.errors import UnsupportedError, WorkerError, warn
from paceline.performance.number_format import many
from paceline.runner import FramesChosen

#: Journal of a run, and journals of shards.
JOURNAL, SHARD_JOURNAL = "survey.journal", "shard-{:04d}-of-{:04d}.journal"
#: Maximum number of trajectories in a task, and size of their files after which a task ends, bytes.
#: Sending a task takes 1.5 ms, and analysing a trajectory some 5 ms.
TASK_SYSTEMS, TASK_BYTES = 32, 2**26
#: Minimum number of tasks for each worker, unless there are too few trajectories for this.
TASKS = 4
#: Maximum number of trajectories that a message names.
NAMED = 3


def survey(
    catalogue: str | os.PathLike,
    output: str | os.PathLike,
    *,
    battery: str | os.PathLike | Mapping[str, Description] | None = None,
    pattern: str | None = None,
    topology: str | None = None,
    layout: str | None = None,
    series: bool = False,
    profiles: bool = False,
    shard: tuple[int, int] | None = None,
    merge: bool = False,
    pages: int | None = None,
    overwrite: bool = False,
    unwrap: bool = True,
    start: int | None = None,
    stop: int | None = None,
    step: int | None = None,
    frames: FramesChosen = None,
    on_error: str = "raise",
    backend: object = None,
    n_workers: int | None = None,
    progress: bool | None = None,
) -> Survey | None:
    r"""Analyse many trajectories, and write tables of all results.

    A second call computes only trajectories that are new or changed. A trajectory counts as changed
    if its files, the analyses, the chosen frames or the version of paceline, NumPy or MDAnalysis
    differ. If a call was killed, the next call continues. The tables have the same bytes, however
    often the survey was interrupted, and for any number of workers.

    Parameters
    ----------
    catalogue : path-like
        Table (.csv, .tsv, .parquet, or .toml with [[trajectories]]) with the columns `id`,
        `topology` and `trajectory` (several trajectories that continue each other are separated by
        ";"), optionally `replica`, `group` and `dataset` (of positions in an HDF5 file), and any
        others, which are copied to the results. Paths are relative to the folder of the table. Or
        a folder or the address of a store, with `pattern`; or HDF5 files, with `layout`.
    output : path-like
        Folder for the tables, made if it does not exist.
    battery : path-like or mapping, optional
        Analyses: a battery file, or descriptions as for `paceline.analysis.battery.Battery`. By
        default the usual analyses of the molecules in each system.
    pattern : str, optional
        Pattern of the trajectories below the folder, such as "{id}/{replica}/md.xtc". Names in
        braces become columns.
    topology : str, optional
        Pattern of the topologies, such as "{id}/topology.pdb". By default the topology in the
        folder of the trajectory, or in the nearest folder above it.
    layout : {"mdcath"}, optional
        Layout of HDF5 files with several trajectories each.
    series, profiles : bool
        Also write a table of the values of all frames (`series`), and a table of values along
        residues, distances and so on (`profiles`).
    shard : (int, int), optional
        Compute only one of several equal parts of the catalogue, such as (3, 16) for the third of
        16 parts. Parts may be computed in any order, or at the same time. A call without `shard`
        then writes the tables.
    merge : bool
        Write the tables of finished shards, and raise an error if trajectories are missing.
    pages : int, optional
        Write index.html, a page with the distribution of each quantity, and a page for each of this
        number of outliers. This needs matplotlib.
    overwrite : bool
        Compute everything again, and replace a survey of another catalogue or version.
    unwrap : bool
        First make molecules whole for analyses that need it, if the topology has bonds and the
        frames have a cell.
    start, stop, step, frames : optional
        Frames of each trajectory, as for `paceline.run`.
    on_error : {"raise", "skip"}
        Treatment of a frame that cannot be read: the trajectory fails, or the frame is left out
        with a warning in the table.
    backend : {"processes", "serial", "dask", "mpi"} or object, optional
        Workers that analyse trajectories, "processes" by default.
    n_workers : int, optional
        Number of workers; by default the CPUs that this process may use.
    progress : bool, optional
        Show a progress bar; by default on a terminal.

    Returns
    -------
    Survey or None
        The tables; None for a shard.

    Raises
    ------
    CheckpointError
        Another run writes to the folder.
    FileChangedError
        A table in the folder was changed after a survey wrote it.
    UnsupportedError
        The catalogue or an option is invalid, the folder contains a survey of another catalogue, or
        pyarrow is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD, DCD2
    >>> folder = Path(tempfile.mkdtemp())
    >>> rows = ["id,topology,trajectory", f"closed,{PSF},{DCD}", f"open,{PSF},{DCD2}"]
    >>> _ = (folder / "adk.csv").write_text("\n".join(rows))
    >>> battery = {"rmsd": {"select": "name CA"}}
    >>> found = paceline.survey(
    ...     folder / "adk.csv", folder / "tables", battery=battery, backend="serial"
    ... )
    >>> found.quantities.select(["id", "quantity", "unit", "verdict"]).to_pylist()[0]
    {'id': 'closed', 'quantity': 'RMSD', 'unit': 'Å', 'verdict': 'drifting'}
    """
    need_arrow("parquet")
    if pages is not None and pages < 0:
        raise ValueError(f"pages must be at least 0, not {pages}")
    if backend == "threads":
        raise UnsupportedError(
            "a survey opens many files in Python, for which threads wait for each other: use "
            "backend='processes'"
        )
    check_local(output)
    workers = make_backend("processes" if backend is None else backend, n_workers)
    with workers.collective_run() as collective:
        if not collective.is_coordinator:
            collective.work()
        else:
            chosen = read_catalogue(catalogue, pattern=pattern, topology=topology, layout=layout)
            if frames is not None and not callable(frames):
                frames = np.asarray(frames).tolist()  # the manifest can record a list
            options = {"start": start, "stop": stop, "step": step, "frames": frames}
            options = {name: value for name, value in options.items() if value is not None}
            settings = with_digest(
                SurveySettings(
                    chosen.folder,
                    _descriptions(battery),
                    options | {"on_error": on_error},
                    unwrap,
                    series,
                    profiles,
                )
            )
            with _SurveyRun(
                chosen, settings, Path(output), shard, overwrite=overwrite, merge=merge
            ) as run:
                if merge:
                    run.check_complete()
                else:
                    run.compute(workers, progress)
                if shard is None:
                    run.write()
                if shard is None and pages is not None:
                    save_pages(Survey(output), pages, run.save_system)
        collective.broadcast(lambda: None)
    return Survey(output) if shard is None else None


def _descriptions(
    battery: str | os.PathLike | Mapping[str, Description] | None,
) -> Mapping[str, Description] | None:
    """Return the descriptions of a battery; None for the default batteries."""
    found: Mapping[str, Description] | None
    if battery is None or isinstance(battery, Mapping):
        found = battery
    else:
        found, groups = read_battery_file(battery)
        if groups:
            raise UnsupportedError(
                f"{battery} names its own systems, as [groups.{next(iter(groups))}]: remove these "
                "tables, because a survey analyses the trajectories of its catalogue"
            )
    if found is not None and (ENERGIES in found or not found):
        problem = f"[{ENERGIES}]" if found else "no analyses"
        raise UnsupportedError(f"the battery of a survey has {problem}: describe analyses only")
    check_descriptions(found or {})
    _check_plain(found or {})
    return found


def _check_plain(descriptions: Mapping[str, Description]) -> None:
    """Raise `UnsupportedError` for a parameter that TOML cannot record, such as an array."""
    for name, description in descriptions.items():
        try:
            read = tomllib.loads(toml_of({name: description}))[name]
            same = all(
                (list(value) if isinstance(value, tuple) else value) == read[key]
                for key, value in description.items()
            )
        except (tomllib.TOMLDecodeError, ValueError, TypeError):
            same = False
        if not same:
            raise UnsupportedError(
                f"[{name}]: the parameters of a survey are texts, numbers and lists of these, as "
                "in a battery file; give atoms as selections"
            )


class _SurveyRun:
    """One run of a survey: finds missing results, computes them, and writes the tables."""

    def __init__(
        self,
        catalogue: SurveyCatalogue,
        settings: SurveySettings,
        folder: Path,
        shard: tuple[int, int] | None,
        *,
        overwrite: bool,
        merge: bool,
    ):
        self._catalogue, self._settings, self._folder = catalogue, settings, folder
        self._shard = shard
        self._entries = _part(catalogue.entries, shard)
        types_of(catalogue)
        if folder.exists() and not folder.is_dir():
            raise UnsupportedError(f"{folder} is a file: expected a folder for the tables")
        self._overwrite, self._merge = overwrite, merge
        self._files = ExitStack()
        self._journals: list[Journal] = []
        self._found = FoundResults(settings)
        self._earlier: StoredTables | None = None
        #: Id and replica of the trajectories that this run has analysed.
        self._done: set[tuple[str, str]] = set()

    def __enter__(self) -> "_SurveyRun":
        self._folder.mkdir(parents=True, exist_ok=True)
        name = SHARD_JOURNAL.format(*self._shard) if self._shard else JOURNAL
        try:
            self._journal = self._files.enter_context(Journal(self._folder / name))
            self._journals.append(self._journal)
            if self._shard is None:
                publish_next(self._folder)
                for path in sorted(self._folder.glob("shard-*-of-*.journal")):
                    self._journals.append(self._files.enter_context(Journal(path)))
            if not self._overwrite:
                self._read_earlier()
            elif not self._merge:
                for journal in self._journals:
                    journal.rewrite([])
            for journal in self._journals:
                self._found.read(journal)
            self._check_folders()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for journal in self._journals:
            if not journal.has_records:
                journal.remove()
        self._files.close()

    def _read_earlier(self) -> None:
        """Read the tables of an earlier survey, if there are any."""
        if not (self._folder / MANIFEST).exists():
            foreign = [name for name in TABLES if (self._folder / f"{name}.parquet").exists()]
            # Without a manifest, tables belong to a survey only if a run was killed while it moved
            # them.
            if foreign and not (self._folder / NEXT).exists():
                raise UnsupportedError(
                    f"{self._folder / foreign[0]}.parquet belongs to no survey, because "
                    f"{MANIFEST} is missing: name another folder, or replace it (--overwrite)"
                )
            return
        survey = Survey(self._folder)
        if not all(survey.path(name).exists() for name in survey.facts["tables"]):
            return  # someone deleted a table, so that all are computed again
        earlier = StoredTables(survey)
        known = earlier.keys()
        was = survey.facts["catalogue"]["folder"]
        is_other = _is_elsewhere(was, self._catalogue)
        if known and (is_other or not any(one.key in known for one in self._catalogue.entries)):
            raise UnsupportedError(
                f"{self._folder} contains a survey of other trajectories, such as "
                f"{next(iter(known))[0]!r} in {was}: name another folder, or replace it "
                "(--overwrite)"
            )
        self._earlier = earlier
        states: dict[tuple[str, str], str] = {}
        with suppress(OSError, ValueError, TypeError):
            found = json.loads((self._folder / STATES).read_text(encoding="utf-8"))
            states = {(name, replica): state for name, replica, state in found}
        self._found.add_stored(earlier, states)

    def _check_folders(self) -> None:
        """Raise `UnsupportedError` if a journal has results of files in another folder."""
        for folder, journal in self._found.folders.items():
            if _is_elsewhere(folder, self._catalogue):
                raise UnsupportedError(
                    f"{journal.path} contains results of trajectories in {folder}, but the "
                    f"catalogue is that of {self._catalogue.folder}: name another folder, or "
                    "delete this file"
                )

    def _missing(self) -> list[SurveyItem]:
        """Return the entries to analyse.

        These have no results, ended with an error that may be temporary, or have changed files.
        """
        items = []
        for entry in self._entries:
            found = self._found.of(entry)
            if found is None or found.failed or not found.is_current(entry, self._settings):
                items.append(SurveyItem(entry, found.key if found else ""))
        return items

    def check_complete(self) -> None:
        """Raise `UnsupportedError` if an entry has no results for its current files."""
        lacking = [
            entry.name
            for entry in self._entries
            if (found := self._found.of(entry)) is None
            or not (found.failed or found.is_current(entry, self._settings, unknown=True))
        ]
        if lacking:
            names = ", ".join(lacking[:NAMED]) + ", …" * (len(lacking) > NAMED)
            raise UnsupportedError(
                f"{self._folder}: {many(len(lacking), 'result')} of {len(self._entries):,} are "
                f"missing ({names}): run the missing shards first"
            )

    def compute(self, workers: Backend, progress: bool | None) -> None:
        """Analyse the trajectories that have no current results."""
        items = self._missing()
        with Progress(len(self._entries), unit="system", show=progress) as bar:
            bar.skip(len(self._entries) - len(items))
            try:
                self._compute(workers, items, bar)
            except KeyboardInterrupt:
                left = sum(self._found.of(entry) is None for entry in self._entries)
                warn(
                    f"{self._folder}: {len(self._entries) - left:,} of {len(self._entries):,} "
                    "systems are done; the same call continues"
                )
                raise

    def _compute(self, workers: Backend, items: Sequence[SurveyItem], bar: Progress) -> None:
        sizes = [_size_of(item.entry, self._settings) for item in items]
        is_local = workers.reads_files_of_caller or workers.name == "serial"
        # Starting a worker takes a second, most of it to import MDAnalysis, so a single trajectory
        # is analysed in this process. If it failed before, use a worker, because it may have killed
        # one.
        alone = len(items) == 1 and not items[0].has_failed
        here: list[SurveyItem] = []
        small: list[tuple[SurveyItem, int]] = []
        for item, size in zip(items, sizes, strict=True):
            if is_local and (alone or size > LARGE):
                here.append(item)
            else:
                small.append((item, size))
        tasks = _batches(small, min(TASK_SYSTEMS, len(small) // (TASKS * workers.n_workers)))
        while True:
            try:
                self._run_tasks(workers, tasks, bar)
                break
            except WorkerError as error:
                tasks = self._after_loss(tasks, f"{error}", bar)
        for item in here:
            record = encode([analyse(item, self._settings, "threads")])
            self._add(record, bar)

    def _run_tasks(
        self, workers: Backend, batches: Sequence[Sequence[SurveyItem]], bar: Progress
    ) -> None:
        """Compute batches of trajectories on the workers."""
        job = FunctionJob("survey", cloudpickle.dumps(SurveyWork(self._settings)))
        tasks = [
            FunctionTask(0, k, k, k, len(items), _name_of(items), list(items))
            for k, items in enumerate(batches)
        ]
        with closing(workers.run([job], tasks)) as results:
            for result in results:
                if isinstance(result, BlockResult) and result.values is not None:
                    self._add(result.values[0], bar)

    def _add(self, record: bytes, bar: Progress) -> None:
        """Append the record of some trajectories to the journal, and count these as done."""
        self._journal.append(record)
        keys = self._found.add(self._journal, record)
        self._done.update(keys)
        bar.add(len(keys))

    def _after_loss(
        self, batches: Sequence[Sequence[SurveyItem]], message: str, bar: Progress
    ) -> list[list[SurveyItem]]:
        """Return tasks of one trajectory each, after a worker was killed.

        If each task already contained one trajectory, the one that `message` names is recorded as a
        failure, and is not returned.
        """
        left = [item for items in batches for item in items if item.entry.key not in self._done]
        if all(len(items) == 1 for items in batches):
            guilty = [item for item in left if f" {_name_of([item])}:" in message]
            if not guilty:
                raise WorkerError(message)
            for item in guilty:
                facts = facts_of(item.entry, self._settings)
                failed = SystemResults(facts, failures=[["", "WorkerError", message]])
                self._add(encode([failed]), bar)
        return [[item] for item in left if item.entry.key not in self._done]

    def write(self) -> None:
        """Write the tables, unless nothing has changed, and delete the journals."""
        if self._earlier is not None and not self._found.has_records and self._is_same_survey():
            self._remove_journals()
            return
        names = [name for name in TABLES if name not in LONG or vars(self._settings)[name]]
        new = self._folder / NEXT
        new.mkdir()
        tables = TableWriter(self._folder, self._catalogue, names).write(self._found.rows)
        with new_file(new / STATES) as file:
            json.dump(self._found.states(self._catalogue), file, indent=0, ensure_ascii=False)
        with new_file(new / MANIFEST) as file:
            json.dump(self._manifest(tables), file, indent=2, ensure_ascii=False)
            file.write("\n")
        with Stopping() as stopping, stopping.delayed():
            (self._folder / PAGE).unlink(missing_ok=True)
            publish_next(self._folder)
            self._remove_journals()

    def _remove_journals(self) -> None:
        for journal in self._journals:
            journal.remove()
        self._journals = []

    def save_system(self, key: tuple[str, str], folder: Path, title: str) -> None:
        """Analyse one system again without failed analyses; write tables, figures and a page."""
        entry = next(one for one in self._catalogue.entries if one.key == key)
        settings = self._settings
        failures = Survey(self._folder).failures.to_pylist()
        without = {
            one["analysis"]
            for one in failures
            if (one["id"], one["replica"]) == key and one["kind"] != NOT_ASSESSED
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the table of warnings already contains them
            universe = open_system(entry, settings)[0]
            if without:
                of_system = settings.descriptions or battery_of(universe, settings).descriptions
                kept = {name: one for name, one in of_system.items() if name not in without}
                settings = replace(settings, descriptions=kept)
            battery = battery_of(universe, settings)
            battery.run(unwrap=self._settings.unwrap, progress=False, **self._settings.options)
            battery.save(folder, overwrite=True, title=title)

    def _is_same_survey(self) -> bool:
        """True if catalogue, settings and program versions are those of the earlier tables."""
        assert self._earlier is not None
        facts = self._earlier.survey.facts
        same = facts["catalogue"]["digest"] == self._catalogue.digest
        same &= facts["catalogue"]["folder"] == self._catalogue.folder
        programs = program_versions() | {"core": core_digest()}
        same &= programs == {name: facts[name] for name in programs}
        return bool(same and facts["settings"]["digest"] == self._settings.digest)

    def _manifest(self, tables: Mapping[str, JsonObject]) -> JsonObject:
        settings = self._settings
        options = {
            name: value if isinstance(value, int | str | list) else f"{value!r}"
            for name, value in settings.options.items()
        }
        return {
            "format": FORMAT,
            **program_versions(),
            "core": core_digest(),
            "catalogue": {
                "folder": self._catalogue.folder,
                "systems": len(self._catalogue.entries),
                "digest": self._catalogue.digest,
            },
            "settings": {
                "digest": settings.digest,
                "battery": battery_text(settings),
                "options": options,
                "unwrap": settings.unwrap,
            },
            "tables": dict(tables),
        }


def _is_elsewhere(folder: str, catalogue: SurveyCatalogue) -> bool:
    """True if `folder` exists, but the catalogue names files relative to another folder.

    If `folder` does not exist, its files may have been moved to the folder of the catalogue.
    """
    if folder == catalogue.folder:
        return False
    if not (is_address(folder) or os.path.isdir(folder)):
        return False
    names = chain.from_iterable((one.topology, *one.trajectories) for one in catalogue.entries)
    if all(os.path.isabs(name) or is_address(name) for name in names):
        return False
    return not (
        os.path.isdir(folder)
        and os.path.isdir(catalogue.folder)
        and os.path.samefile(folder, catalogue.folder)
    )


def _part(entries: Sequence[SurveyEntry], shard: tuple[int, int] | None) -> Sequence[SurveyEntry]:
    """Return the entries of a shard: adjacent ones, because these often share a topology."""
    if shard is None:
        return entries
    number, count = shard
    if not 1 <= number <= count:
        raise UnsupportedError(f"shard {number}/{count}: expected a number from 1 to {count}")
    return entries[len(entries) * (number - 1) // count : len(entries) * number // count]


def _size_of(entry: SurveyEntry, settings: SurveySettings) -> int:
    """Return the size of the trajectory's local files, bytes; other files count as 0."""
    total = 0
    for name in entry.trajectories:
        # Ignore names that `path` refuses: the failure is reported when the trajectory is opened.
        with suppress(UnsupportedError):
            path = settings.path(name)
            if not is_address(path) and os.path.isfile(path):
                total += os.path.getsize(path)
    return total


def _batches(items: Sequence[tuple[SurveyItem, int]], most: int) -> list[list[SurveyItem]]:
    """Group adjacent trajectories into tasks of `most` trajectories, or of fewer large ones."""
    batches: list[list[SurveyItem]] = []
    n_bytes = 0
    for item, size in items:
        if not batches or len(batches[-1]) >= most or n_bytes > TASK_BYTES:
            batches.append([])
            n_bytes = 0
        batches[-1].append(item)
        n_bytes += size
    return batches


def _name_of(items: Sequence[SurveyItem]) -> str:
    """Return the name of a task for error messages."""
    first = items[0].entry.name
    return first if len(items) == 1 else f"{first} and {len(items) - 1} more"
