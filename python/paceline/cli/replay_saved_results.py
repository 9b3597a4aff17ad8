"""Command `replay`, which computes saved results again and compares them with their files."""

import argparse
import contextlib
import fnmatch
import glob
import io
import os
import random
import re
import shlex
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath, PureWindowsPath
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from paceline._util.files import check_local_pattern, is_address, is_stream
from paceline._util.launcher import BAD_ARGUMENTS, FAILED
from paceline._util.python_object_digest import file_digest
from paceline.cli.command_line import modules, parser_of, resolve_addresses
from paceline.cli.options import add_json_argument, add_thread_argument, positive, print_json
from paceline.cli.parser_and_file_arguments import CommandParser, Commands, resolve_files
from paceline.errors import UnsupportedError

if TYPE_CHECKING:
    from paceline.analysis.compare_recomputed_results import Check, ResultFile

EXAMPLES = """\
examples:
  paceline replay rmsd.csv rdf.npz
  paceline replay results                       # all tables of a battery
  paceline replay deposit/*/results --sample 20
  paceline replay results --files /archive/run7     # where the trajectories are now
"""

#: Modules whose commands compute results from trajectories, energies or tables.
COMPUTING = ("analysis_commands", "battery_commands", "table_and_energy_commands")
#: Commands of these modules that compute no table.
NOT_COMPUTING = ("analyses", "plot")
#: Sections whose options do not change results, except the options in `KEPT`.
NOT_OF_RESULTS = ("output", "figure", "workers", "while the simulation runs", "other options")
KEPT = ("on_error", "output_files")
#: Seed with which --sample chooses results at random.
SEED = 1
#: Beginning of a Windows path: a drive, or the text before a backslash.
_OF_WINDOWS = re.compile(r"[A-Za-z]:[/\\]|[^/]*\\")
#: Arguments that name no input.
_NO_INPUTS = ("command_line", "folder", "form", "names", "output")


class Options(NamedTuple):
    """Options of `paceline replay` that computing a result again needs."""

    #: Folder that contains files that were moved, or None.
    files: Path | None = None
    n_workers: int | None = None
    #: Number of systems of a survey to check, or None for all.
    sample: int | None = None


class Item(NamedTuple):
    """Result to check: a file, or a part of a larger file."""

    #: Name in the output.
    name: str
    path: Path
    #: Items with equal jobs are computed again together, in one call of `again`.
    job: tuple[str, ...]
    again: "Callable[[Sequence[Item], Options], list[Check]]"
    #: Folder that is checked completely, so that missing tables are reported; None for a file.
    folder: Path | None = None


def add_replay(commands: Commands) -> CommandParser:
    """Add the command `replay` and its arguments."""
    parser = commands.add_parser(
        "replay",
        help="compute results again and compare every number",
        description="Compute results again, from the command or the call in Python that their "
        "files name, and compare every number, bit by bit. If a number differs, the answer names "
        "it, and the reason: a file has changed, another version or another processor computed it "
        "(then numbers may differ by one millionth of the largest number of their column), or the "
        "result was edited. Names and digests of files in a result must be true, too, except for "
        "folders of files that were moved. The exit status is 0 if all is equal, 1 if a number or "
        "a file differs or a table of a battery is missing, and 2 if a result could not be "
        "checked.",
        epilog=EXAMPLES,
    )
    parser.usage = "%(prog)s [options] RESULT..."
    add = parser.section("files").add_argument
    add(
        "results",
        nargs="+",
        type=Path,
        metavar="RESULT",
        help="table (.csv, .tsv, .xvg), arrays (.npz), or folder of a battery, replicas or survey",
    )
    add(
        "--files",
        dest="inputs",
        type=Path,
        metavar="FOLDER",
        help="folder with topologies and trajectories that are no longer where they were, by name; "
        "of a survey: the folder of the whole deposit",
    )
    parser.section("calculation").add_argument(
        "--sample",
        type=positive,
        metavar="N",
        help="check only N of the results, or N systems of a survey [all]",
    )
    add_json_argument(parser.section("output"), "ReplayDocument")
    meaning = "number of workers [the CPUs this process may use]"
    add_thread_argument(parser, meaning)
    parser.set_defaults(run=run_replay)
    return parser


def run_replay(args: argparse.Namespace) -> int:
    """Run the command `replay`."""
    from paceline.cli.print_results import say
    from paceline.performance.number_format import many

    items = [item for path in args.results for item in KINDS[kind_of(path)](path)]
    items = [*{(item.path.resolve(), item.name): item for item in items}.values()]
    if args.sample is not None and args.sample < len(items):
        chosen = sorted(random.Random(SEED).sample(range(len(items)), args.sample))
        say(f"checking {args.sample} of {many(len(items), 'result')}, chosen with seed {SEED}")
        items = [items[k] for k in chosen]
    jobs: dict[object, list[Item]] = {}
    for item in items:
        jobs.setdefault((item.again, item.job), []).append(item)
    options = Options(args.inputs, args.n_workers, args.sample)
    # Several jobs may report the same missing table.
    found = {one.name: one for some in jobs.values() for one in _checked(some, options)}
    checks = [*found.values()]
    n_equal = sum(check.is_equal for check in checks)
    n_different = sum(check.verdict == "differs" for check in checks)
    unchecked = len(checks) - n_equal - n_different
    if args.json:
        counts = {"equal": n_equal, "different": n_different, "not_checked": unchecked}
        print_json("replay", results=[*map(_as_json, checks)], written=[], **counts)
    else:
        _print(checks)
        parts = [f"{n_equal} equal", f"{n_different} different"]
        parts += [f"{unchecked} not checked"] if unchecked else []
        say(f"checked {many(len(checks), 'result')}: {', '.join(parts)}")
    return FAILED if n_different else BAD_ARGUMENTS if unchecked else 0


def _print(checks: "Sequence[Check]") -> None:
    """Print a line for each result, then all reasons and the first differences."""
    from paceline.performance.number_format import aligned, many

    rows = [("result", "verdict", "compared")]
    rows += [(one.name, one.verdict, one.compared) for one in checks]
    print(*(line.rstrip() for line in aligned(rows, left=3)), sep="\n")
    for one in checks:
        if not (one.reasons or one.differences):
            continue
        print(f"\n{one.name}")
        print(*(f"  {reason}" for reason in one.reasons), sep="\n")
        if one.differences:
            print(*(f"  {difference}" for difference in one.differences), sep="\n")
        more = one.n_differences - len(one.differences)
        if one.differences and more > 0:
            is_new = one.largest is not None and one.largest not in one.differences
            largest = f"; the largest: {one.largest}" if is_new else ""
            print(f"  and {many(more, 'further difference')}{largest}")


def _as_json(check: "Check") -> dict[str, object]:
    """Convert the outcome of a check to JSON values."""
    kept = [check.largest] if check.largest is not None else []
    differences, largest = (
        [{"place": one.place, "file": one.saved, "computed": one.computed} for one in some]
        for some in (check.differences, kept)
    )
    return {**vars(check), "differences": differences, "largest": next(iter(largest), None)}


def kind_of(path: Path) -> str:
    """Find the kind of a result, a key of `KINDS`; raise an error if `path` does not exist."""
    folder = path.parent if path.suffix.lower() == ".parquet" else path
    if folder.is_dir() and (folder / "survey.json").exists():
        return "survey"
    if path.is_dir():
        return "folder"
    if not path.exists():
        raise FileNotFoundError(2, os.strerror(2), os.fspath(path))
    return "file"


def _file(path: Path) -> list[Item]:
    """Return a table or an .npz file as one item."""
    from paceline.analysis.compare_recomputed_results import ENDINGS

    if path.suffix.lower() not in ENDINGS:
        raise UnsupportedError(
            f"{path}: expected a result as {', '.join(ENDINGS)}, or the folder of a battery, of "
            "replicas or of a survey"
        )
    return [_item(path)]


def _item(path: Path, folder: Path | None = None) -> Item:
    """Return the item of a file. Files of one command in one folder are computed together."""
    from paceline.analysis.compare_recomputed_results import ResultFile
    from paceline.analysis.saved_table_format import COMMAND, FOLDER, IN_PYTHON

    try:
        facts = ResultFile.read(path).facts
    except Exception:
        facts = {}  # the check reports the error
    command = facts.get(COMMAND)
    if command in (None, IN_PYTHON):
        return Item(os.fspath(path), path, (os.fspath(path),), _check_call)
    # The same command may occur in several projects: the folders of the command and of the result
    # distinguish the jobs.
    job = f"{command}", facts.get(FOLDER, ""), os.path.realpath(path.parent)
    return Item(os.fspath(path), path, job, _check_command, folder)


def _folder(path: Path) -> list[Item]:
    """Return the tables and arrays in a folder and its subfolders."""
    from paceline.analysis.compare_recomputed_results import ENDINGS

    found = sorted(one for one in path.rglob("*") if one.suffix.lower() in ENDINGS)
    if not found:
        raise UnsupportedError(f"{path}: expected results of paceline, found none in this folder")
    return [_item(one, path) for one in found if one.is_file()]


def _survey(path: Path) -> list[Item]:
    """Return a survey as one item, given its folder or one of its tables."""
    folder = path if path.is_dir() else path.parent
    return [Item(os.fspath(path), folder, (os.fspath(folder),), _check_survey)]


def _check_survey(items: Sequence[Item], options: Options) -> "list[Check]":
    """Check a survey, or only some of its systems if a sample was requested."""
    from paceline.analysis.survey_replay import replay_survey
    from paceline.cli.survey_commands import recorded_frames

    with _quiet():
        check = replay_survey(
            items[0].path, recorded_frames, sample=options.sample, files=options.files
        )
    return [replace(check, name=item.name) for item in items]


#: Function that lists the results at a path, by the kind of the path.
KINDS: dict[str, Callable[[Path], list[Item]]] = {
    "file": _file,
    "folder": _folder,
    "survey": _survey,
}


def _checked(items: Sequence[Item], options: Options) -> "list[Check]":
    """Check the items of one job; after an error, all of them are reported as not checked."""
    from paceline.analysis.compare_recomputed_results import Check
    from paceline.cli.command_line import one_line

    try:
        return items[0].again(items, options)
    except Exception as error:  # a file may contain anything, and must not end the check of others
        reason = one_line(error, {})
        return [Check(item.name, "not checked", reasons=[reason]) for item in items]


def _check_call(items: Sequence[Item], options: Options) -> "list[Check]":
    """Check results of a script, each from the call that its file describes."""
    from paceline.analysis.compare_recomputed_results import ResultFile, compare
    from paceline.analysis.repeat_recorded_call import RepeatedCall

    checks = []
    for item in items:
        saved = ResultFile.read(item.path)
        places = _Places(saved, options)
        call = RepeatedCall(saved.facts, places.locate)
        places.find_folder(call.files)
        with _quiet(), tempfile.TemporaryDirectory(prefix="paceline-") as temporary:
            path = Path(temporary) / f"result{item.path.suffix}"
            call.results(options.n_workers).save(path)
            checks.append(compare(saved, ResultFile.read(path), moved=places.moved))
        checks[-1].reasons += places.notes
    return checks


class _Places:
    """Search for the current paths of the files that the result of a script names."""

    def __init__(self, saved: "ResultFile", options: Options):
        self._saved, self._options = saved, options
        #: Folder of the script, to which names may be relative; None if it is not known.
        self._folder: str | None = None
        self._found: dict[str, _Place] = {}

    def find_folder(self, names: Sequence[str]) -> None:
        """Derive the folder of the script from recorded paths of trajectories, which are absolute.

        `names` are the names of files in the call of the script.
        """
        for name in names:
            if not (is_address(name) or os.path.isabs(name) or ".." in PurePath(name).parts):
                n = len(PurePath(name).parts)
                self._folder = self._folder or _recorded_folder(name, "", n, self._saved)

    def locate(self, name: str) -> str:
        """Return the current path of a file; if several fit, that with the recorded content."""
        places = [*dict.fromkeys(self._candidates(name))]
        if not places:
            raise FileNotFoundError(
                f"{self._saved.path} was computed from {name}, which does not exist here: --files "
                "names the folder that contains it now"
            )
        fitting = (one for one in places if len(places) == 1 or self._has_content(name, one))
        self._found[name] = next(fitting, places[0])
        return os.fspath(self._found[name].path)

    def _candidates(self, name: str) -> "Iterator[_Place]":
        """Yield files that may be the named one, beginning with a file in the folder of --files."""
        beside, given, local = self._saved.path.parent, self._options.files, _local_name(name)
        if given is not None and (place := _find_elsewhere(name, [given])):
            yield place
        for folder in [Path(self._folder or beside), beside, Path()]:
            if _endings(local) and _exists(folder, name):
                yield _Place.of(folder, local)
        if place := _find_elsewhere(name, [beside]):
            yield place

    def _has_content(self, name: str, place: "_Place") -> bool:
        """True if a file has the digest or a fingerprint that the result records."""
        from paceline.analysis.compare_recomputed_results import FINGERPRINT, has_fingerprint

        facts = self._saved.facts
        if _local_name(name) == facts.get("topology"):
            return file_digest(place.path) == facts.get("topology sha256")
        known = facts.get(FINGERPRINT, "").split(", ")
        return all(any(has_fingerprint(path, one) for one in known) for path in place.files)

    @property
    def moved(self) -> list[dict[str, str]]:
        """Two maps from current paths to recorded names: names as they were given, and absolute."""
        as_given, absolute = dict[str, str](), dict[str, str]()
        for name, place in self._found.items():
            as_given[os.fspath(place.path)] = _local_name(name)
            absolute |= place.recorded_names(name, self._folder or "", self._saved)
        return [as_given, absolute]

    @property
    def notes(self) -> list[str]:
        """Notes on the files that are not at their recorded paths."""
        found = []
        for name, place in self._found.items():
            recorded = os.path.join(self._folder or "", _local_name(name))
            if os.path.abspath(place.path) != os.path.abspath(recorded):
                found.append(_note(name, place.path))
        return found


def _note(name: str, path: Path) -> str:
    """Return the note that a file was found at `path` and not at its recorded path."""
    return f"{name} was found as {path}"


class _Place(NamedTuple):
    """Place of a file or a pattern: its current folder, and the last parts of its recorded path."""

    folder: Path
    ending: Path

    @classmethod
    def of(cls, folder: Path, name: str) -> "_Place":
        """Locate a name in a folder; the name may be absolute, or begin with `..`."""
        ending = _endings(name)[0]
        whole = Path(os.path.normpath(folder / name))
        return cls(whole.parents[len(ending.parts) - 1], ending)

    @property
    def path(self) -> Path:
        """Path of the file, or a pattern in which only `ending` has wildcards."""
        path = self.folder / self.ending
        return path if path.exists() else Path(glob.escape(os.fspath(self.folder)), self.ending)

    @property
    def files(self) -> list[Path]:
        """Paths of the file, or of the files of a pattern."""
        return [self.path] if self.path.exists() else [*map(Path, glob.glob(os.fspath(self.path)))]

    def recorded_names(self, name: str, base: str, saved: "ResultFile") -> dict[str, str]:
        """Map the current paths of the files to their recorded paths, if their folder was recorded.

        `name` is the recorded name, which may be relative to the folder `base`.
        """
        n = len(self.ending.parts)
        folder = _recorded_folder(name, base, n, saved)
        if folder is None:
            return {}
        found = {os.path.abspath(one): "/".join([folder, *one.parts[-n:]]) for one in self.files}
        if _OF_WINDOWS.match(name):
            return {place: recorded.replace("/", "\\") for place, recorded in found.items()}
        return found


def _recorded_folder(name: str, base: str, n: int, saved: "ResultFile") -> str | None:
    """Find the folder that contained the last `n` parts of a recorded path.

    The folder is written with slashes, also if the path is a Windows path. Returns None if the name
    is relative to an unknown base, and no recorded absolute path ends with the name.
    """
    from paceline.analysis.compare_recomputed_results import files_in

    whole = name if _OF_WINDOWS.match(name) else os.path.join(base, _local_name(name))
    pattern = os.path.normpath(whole).replace("\\", "/")
    is_absolute = os.path.isabs(pattern) or _OF_WINDOWS.match(pattern) is not None
    tail = f"/{_endings(pattern)[0].as_posix()}"
    wanted = pattern if is_absolute else f"*{tail}"
    files = [one.replace("\\", "/") for one in files_in(saved.facts)]
    # Compare names literally first: brackets in a name need not be a pattern.
    plain = [one for one in files if one == wanted or (one.endswith(tail) and not is_absolute)]
    found = [*plain, *fnmatch.filter(files, wanted), *([wanted] if is_absolute else [])]
    return "/".join(found[0].split("/")[:-n]) if found else None


def _find_elsewhere(name: str, folders: Sequence[Path]) -> _Place | None:
    """Find a file in one of `folders`, by as many of the last parts of its path as possible."""
    for ending in _endings(name):
        for folder in folders:
            if _exists(folder, os.fspath(ending)):
                return _Place(folder, ending)
    return None


def _endings(name: str) -> list[Path]:
    r"""Return the last parts of a path, or of a Windows path, beginning with the longest.

    >>> [one.as_posix() for one in _endings("D:\\runs\\wt*\\md.xtc")]
    ['runs/wt*/md.xtc', 'wt*/md.xtc', 'md.xtc']
    """
    plain = PureWindowsPath(name) if _OF_WINDOWS.match(name) else PurePath(_local_name(name))
    parts = plain.parts[1:] if plain.anchor else plain.parts
    return [Path(*parts[k:]) for k in range(len(parts)) if ".." not in parts[k:]]


def _local_name(name: str) -> str:
    """Return the path of a `file://` address, and other names unchanged."""
    return unquote(urlsplit(name).path) if name.startswith("file://") else name


def _exists(folder: Path, name: str) -> bool:
    """True if a file exists in a folder, or if files match a pattern; also for a `file://` name.

    If this process is confined to a folder, files outside of it count as missing.
    """
    from paceline.trajectory.addresses import source_name

    pattern = os.path.join(glob.escape(os.fspath(folder)), _local_name(name))
    try:
        path = source_name(name, folder)
        if os.path.exists(path) or not glob.has_magic(name):
            return os.path.exists(path)
        check_local_pattern(pattern)
    except UnsupportedError:
        return False
    return next(glob.iglob(pattern), None) is not None


def _check_command(items: Sequence[Item], options: Options) -> "list[Check]":
    """Check the results of one command, which runs once."""
    from paceline.analysis.compare_recomputed_results import (
        Check,
        ResultFile,
        changed_programs,
        compare,
    )
    from paceline.analysis.saved_table_format import FURTHER

    command, folder, _ = items[0].job
    saved = [ResultFile.read(item.path) for item in items]
    checks, programs = [], list[str]()
    with tempfile.TemporaryDirectory(prefix="paceline-") as temporary:
        repeated = _Repeated(command, Path(folder), Path(temporary), items[0].path, options)
        repeated.run(saved[0])
        for item, one in zip(items, saved, strict=True):
            path = repeated.result_of(item.path, one.facts.get(FURTHER))
            if path is None:
                reason = f"its command, {command}, writes no result of this name"
                checks.append(Check(item.name, "not checked", reasons=[reason]))
                continue
            computed = repeated.read(path, one)
            checks.append(compare(one, computed, moved=repeated.moved(one)))
            programs, _ = changed_programs(one.facts, computed.facts)
            checks[-1].reasons += repeated.notes
        missing = [*repeated.check_missing(items)]
        if any(one.startswith("paceline ") for one in programs):
            skipped = "missing tables were not looked for: another version may write others"
            checks[-1].reasons += [skipped] if missing else []
        else:
            checks += [replace(one, reasons=[*one.reasons, *programs]) for one in missing]
    return checks


class _Repeated:
    """Command of a result that runs again in this process, with its output in another folder.

    A result file may come from somebody else. Its command runs only if it computes results, and
    writes only to the temporary folder.
    """

    def __init__(self, command: str, folder: Path, temporary: Path, result: Path, options: Options):
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise UnsupportedError(f"the recorded command is not valid ({error})") from None
        self._words, self._command, self._recorded = words[1:], command, folder
        self._temporary, self._result, self._options = temporary, result, options
        self._output = temporary / "output"
        name = words[1] if len(words) > 1 else ""
        is_known = words[:1] == ["paceline"] and modules().get(name) in COMPUTING
        if not is_known or name in NOT_COMPUTING:
            raise UnsupportedError(
                f"the recorded command is {command[:80]!r}, which does not compute results: it is "
                "not run"
            )
        self._name = name
        #: Notes on files that are not at their recorded paths.
        self.notes: list[str] = []
        #: Recorded names of files that the command writes besides results, by their current names.
        self._written: dict[str, str] = {}
        self._is_battery = modules()[name] == "battery_commands"

    def moved(self, saved: "ResultFile") -> list[dict[str, str]]:
        """Return two maps from current to recorded names of files that the command reads or writes.

        The recorded names are in the first map as they were given, in the second map absolute.
        """
        recorded = os.fspath(self._recorded)
        as_given = {self._moved[name]: _local_name(name) for name in self._places}
        absolute = dict[str, str]()
        if self._base != self._recorded:
            absolute[os.path.join(os.path.realpath(self._base), "")] = os.path.join(recorded, "")
        for name, place in self._places.items():
            absolute |= place.recorded_names(name, recorded, saved)
        return [{**self._written, **some} for some in (as_given, absolute)]

    def result_of(self, path: Path, further: str | None) -> Path | None:
        """Return the newly computed file that corresponds to a saved result; None if missing.

        `further` is the name of an additional table; None for the main table.
        """
        if not self._is_battery:
            stem = "output" if further is None else f"further-{further}"
            made = self._temporary / f"{stem}{path.suffix.lower()}"
            return made if made.exists() else None
        parts = path.resolve().parts
        ends = (self._output.joinpath(*parts[-n:]) for n in range(len(parts) - 1, 0, -1))
        return next((path for path in ends if path.exists()), None)

    def check_missing(self, items: "Sequence[Item]") -> "Iterator[Check]":
        """Report tables that a battery writes, and that are missing in a folder of results."""
        from paceline.analysis.compare_recomputed_results import ENDINGS, Check

        made = sorted(one for one in self._output.rglob("*") if one.suffix.lower() in ENDINGS)
        for item in items:
            path = self.result_of(item.path, None) if item.folder else None
            if not self._is_battery or item.folder is None or path is None:
                continue
            # Folder of the battery, which may be above or below the folder that is checked.
            n_parts = len(path.relative_to(self._output).parts)
            results, checked = item.path.resolve().parents[n_parts - 1], item.folder.resolve()
            # Skip a folder that is not the output folder, but contains copies of some tables.
            if results.name != self._output_name and not (results / "battery.toml").exists():
                continue
            for one in made:
                place = results / one.relative_to(self._output)
                if not place.exists() and place.is_relative_to(checked):
                    name = os.fspath(item.folder / place.relative_to(checked))
                    reason = f"this table is missing, which its command, {self._command}, writes"
                    yield Check(name, "differs", reasons=[reason], n_differences=1)
            return

    def read(self, path: Path, saved: "ResultFile") -> "ResultFile":
        """Read a computed result; in its facts, replace current file names by recorded names."""
        from paceline.analysis.compare_recomputed_results import ResultFile
        from paceline.analysis.saved_table_format import INPUT

        computed, facts = ResultFile.read(path), dict[str, str]()
        for key, value in computed.facts.items():
            for name, place in self._moved.items():
                key = f"{INPUT}{name}" if key == f"{INPUT}{place}" else key
            facts[key] = value
        # Add the digests of files that were not read again because they do not change the numbers,
        # such as a style.
        for name in _inputs_of(saved):
            place = self._moved.get(name, name)
            if place in self._read:
                facts.setdefault(f"{INPUT}{name}", file_digest(self._base / place))
        return replace(computed, facts=facts)

    def run(self, saved: "ResultFile") -> None:
        """Run the command in the folder in which the names of its files are valid."""
        from paceline.cli.shared_analysis_steps import further_inputs

        args = self._parsed(self._words)
        named = [*_names_in(args), *_inputs_of(saved)]
        self._base = self._find_base(args, named)
        places = {name: self._find(name) for name in dict.fromkeys(named)}
        self._places = {name: place for name, place in places.items() if place is not None}
        self._moved = {name: os.fspath(place.path) for name, place in self._places.items()}
        if self._base != self._recorded:
            self.notes.append(f"files were looked up from the folder {self._base}")
        self.notes += [_note(name, Path(place)) for name, place in self._moved.items()]
        for name, value in vars(args).items():
            if name not in _NO_INPUTS:
                vars(args)[name] = _placed(value, self._moved)
        args.folder = os.fspath(self._recorded)
        with contextlib.chdir(self._base), _quiet():
            resolve_addresses(args)
            resolve_files(args)
            self._read = further_inputs(args)
            self._set_outputs(args, saved)
            args.run(args)

    def _parsed(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the command as the command line does; raise `UnsupportedError` if it is invalid."""
        said = io.StringIO()
        self._parser = parser_of([self._name])
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                given = argparse.Namespace(command_line=self._command)
                return self._parser.parse_args([*words], given)
        except SystemExit:
            reason = said.getvalue().strip().removeprefix("paceline: error: ")
            raise UnsupportedError(f"the recorded command is not valid: {reason}") from None

    def _find_base(self, args: argparse.Namespace, named: Sequence[str]) -> Path:
        """Find the folder in which the names of the command's files are valid.

        Folders are tried in this order: one in which the command would write this result; the
        recorded folder; the folder of the result; and the current folder.
        """
        result, output = self._result.resolve(), vars(args).get("output")
        near = []
        if output is not None and not output.is_absolute():
            for parent in result.parents:
                at = Path(os.path.normpath(parent / output))
                near += [parent] if at == result or at in result.parents else []
        every = [*near, self._recorded, result.parent, Path.cwd()]
        self._folders = [base for base in dict.fromkeys(every) if base.is_dir()]
        fitting = (
            base
            for base in self._folders
            if all(is_address(name) or _exists(base, name) for name in named)
        )
        return next(fitting, self._folders[0])

    def _find(self, name: str) -> _Place | None:
        """Find an input that is no longer at its recorded path; None if it is still there."""
        if is_address(name) or _exists(self._base, name):
            return None
        given = [self._options.files.absolute()] if self._options.files else []
        place = _find_elsewhere(name, [*given, *self._folders])
        if place is None:
            raise UnsupportedError(
                f"{self._result} was computed from {name}, which does not exist in {self._base}: "
                "--files names the folder that contains it now"
            )
        return place

    def _set_outputs(self, args: argparse.Namespace, saved: "ResultFile") -> None:
        """Direct output to the temporary folder, and reset options that do not change results."""
        given, sections = vars(args), self._parser.of_command(self._name)
        output, tee, follows = given.get("output"), given.get("tee"), given.get("follow")
        is_part = not given.get("tee_atoms") is given.get("tee_step") is None
        for title in NOT_OF_RESULTS:
            for action in sections.section(title)._group_actions:
                if action.dest in given and action.dest not in KEPT:
                    given[action.dest] = sections.get_default(action.dest)
        for name in args.further:
            given[name] = None
        if any(map(is_stream, given.get("trajectory") or ())):
            if tee is None:
                raise UnsupportedError(
                    "it was computed from a running simulation, whose frames were not kept (--tee)"
                )
            if is_part:
                raise UnsupportedError(
                    f"it was computed from a running simulation, of which {tee} contains only some "
                    "atoms or frames (--tee-atoms, --tee-step)"
                )
            args.trajectory = [os.fspath(tee)]
        if follows:
            last = re.search(r"(\d+)$", saved.facts.get("frames analysed", ""))
            args.end = ("frame", int(last[1]) + 1) if last else args.end
        self._redirect(args, output)

    def _redirect(self, args: argparse.Namespace, output: Path | None) -> None:
        """Set output files in the temporary folder, and the number of workers."""
        given, parsed = vars(args), self._parsed(self._words)
        for name in args.further:
            path = vars(parsed)[name]
            if path is not None:
                ending = path.suffix if path.suffix.lower() in (".csv", ".tsv") else ".csv"
                given[name] = self._temporary / f"further-{name}{ending.lower()}"
        if "n_workers" in given:
            args.n_workers = self._options.n_workers
        args.only_tables = True
        if self._is_battery:
            self._output_name = Path(os.path.normpath(f"{output or ''}")).name
            args.output = self._output
        elif self._name == "align":
            args.output = self._temporary / (output or self._result).name
            self._written = {os.fspath(args.output): os.fspath(output or self._result)}
            ending = parsed.rmsd.suffix if parsed.rmsd else ".csv"
            args.rmsd = self._temporary / f"output{ending.lower()}"
        else:
            ending = output.suffix.lower() if output is not None else ""
            args.output = self._temporary / f"output{ending or '.csv'}"


def _names_in(args: argparse.Namespace) -> list[str]:
    """Names of topologies, trajectories, batteries and tables in parsed arguments."""
    given = {name: vars(args).get(name) for name in ("topology", "trajectory", "files")}
    of_lists = [vars(args).get(name) or [] for name in ("energies", "tables")]
    found = [one for value in given.values() if value for one in _listed(value)]
    found += [os.fspath(one) for value in of_lists for one in value]
    found += [os.fspath(args.battery)] if "battery" in args else []
    if "replicas" in args:
        found += [one for group in args.group for one in group]
    output = vars(args).get("output")
    # In a command without -o, the last file may be the output.
    return [one for one in found if not is_stream(one) and one != os.fspath(output or "")]


def _placed(value: object, moved: Mapping[str, str]) -> object:
    """Replace names of files in an argument by the paths under which they were found."""
    if isinstance(value, list):
        return [_placed(one, moved) for one in value]
    place = moved.get(f"{value}") if isinstance(value, str | Path) else None
    if place is None:
        return value
    return Path(place) if isinstance(value, Path) else place


def _listed(value: object) -> list[str]:
    """Return one name, or several, as a list."""
    return [value] if isinstance(value, str) else [f"{one}" for one in value]  # type: ignore[attr-defined]


def _inputs_of(saved: "ResultFile") -> Iterator[str]:
    """Names of further files that a command read, from the lines with their digests."""
    from paceline.analysis.saved_table_format import INPUT

    return (key.removeprefix(INPUT) for key in saved.facts if key.startswith(INPUT))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Discard what a command prints, and its warnings, which are in its results."""
    nothing = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(nothing),
        contextlib.redirect_stderr(nothing),
    ):
        warnings.showwarning = _ignore
        yield


def _ignore(*_: object, **__: object) -> None:
    """Do nothing with a warning."""


PARSERS = {"replay": add_replay}
