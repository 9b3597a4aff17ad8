"""Parse the command line, run a command, and convert errors to exit statuses."""

import argparse
import contextlib
import functools
import io
import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from paceline._core import __version__
from paceline._util.files import check_local, is_stream
from paceline._util.launcher import BAD_ARGUMENTS, FAILED, INTERRUPTED, launched
from paceline._util.option_values_and_selections import PROGRESS
from paceline.cli.parser_and_file_arguments import CommandParser, WrongArguments, resolve_files
from paceline.contract.read_catalogue import PAGES, catalogue
from paceline.errors import (
    AtomCountError,
    PacelineError,
    PacelineWarning,
    Terminated,
    UnsupportedError,
    needs_mdanalysis,
    without_script_advice,
)

if TYPE_CHECKING:
    from paceline.cli.json_output import ErrorFacts

#: Keywords of functions, each with the different name under which argparse stores its value. An
#: option with the keyword's own name means something else, or does not exist.
KEPT_AS = {
    **{"group": "particles", "groupselections": "group"},
    **{"ref_frame": "ref", "unwrap": "unwrap_particles"},
    **{"g1": "select", "g2": "select_2"},
    **{"ag1": "select", "ag2": "select_2", "ag3": "select_3", "ag4": "select_4"},
}
#: Environment variable that requests access to stores without credentials.
_ANONYMOUS = "PACELINE_ANONYMOUS"
#: Errors about names of files that cannot be read or created; the user typed these names.
_WRONG_NAMES = (
    *(FileNotFoundError, FileExistsError, PermissionError),
    *(IsADirectoryError, NotADirectoryError),
)
#: Patterns of a keyword's value in a message, and of a keyword that the message itself explains by
#: an option, such as "continuous=True (--continuous)".
_VALUE = r"True\b|None\b|\"[^\"]*\"|'[^']*'|\([0-9., ]*\)|[0-9][\w.]*"
_NAMED = re.compile(
    rf"\b\w+=({_VALUE})?(?: \((?P<inside>--[\w-]+(?: [^)]*)?)\)|, (?P<behind>--[\w-]+))"
)

EXAMPLES = """\
examples:
  paceline info md.xtc
  paceline advise md.tpr md.xtc
  paceline rmsd md.tpr md.xtc --select backbone -o rmsd.csv --plot rmsd.png
  paceline rmsf md.tpr fitted.xtc --begin 10ns -o rmsf.csv
  paceline rdf md.tpr md.xtc --select "name OW" -o rdf.csv
  paceline battery md.tpr md.xtc -o results
  paceline run battery.toml -s md.tpr -f md.xtc -o results
  paceline energy md.edr --terms potential temperature -o energy.csv --plot energy.png
  paceline plot wild.csv mutant.csv -o both.pdf
  paceline surface results/rmsd.csv results/gyration.csv --plot surface.png
  paceline replay results
  paceline convert md.trr md.xtc
  paceline frames results/rmsd.csv --where "rmsd < 2 and time > 10ns" -o near.xtc
  paceline repack md.h5md --for atoms
  paceline index run*/md.xtc
  paceline split md.xtc -n 24
  paceline validate run*/md.xtc
  paceline relay imd://localhost:8888 --listen 8890
  paceline report run.csv
  paceline predict --frames 100000 --bytes 12kB --decode 30us --compute 90us
  paceline bench scaling rmsd md.tpr md.xtc --plot scaling.png

paceline COMMAND --help explains each command.
"""


@functools.cache
def modules() -> dict[str, str]:
    """Return the module of each command, in the order of the help; each defines `PARSERS`."""
    return {name: module for _, module, names in _groups() for name in names}


@functools.cache
def _groups() -> list[tuple[str, str, list[str]]]:
    """List the groups of commands in the help, each with heading, module and names of commands.

    A group with an empty heading belongs to the section of the previous group.
    """
    known = [one for one in catalogue().values() if one["has_command"]]
    of_pages = {page: [one["name"] for one in known if page in one["section"]] for page in PAGES}
    return [
        ("Before an analysis", "file_commands", ["info"]),
        ("", "performance_commands", ["advise"]),
        *((PAGES[page], "analysis_commands", names) for page, names in of_pages.items()),
        ("Several analyses at once", "battery_commands", ["analyses", "battery", "run"]),
        ("Many trajectories", "survey_commands", ["survey"]),
        ("", "table_and_energy_commands", ["energy", "plot", "surface"]),
        ("", "convergence_commands", ["convergence"]),
        ("", "replay_saved_results", ["replay"]),
        ("Files", "file_commands", ["convert"]),
        ("", "frames_by_table_command", ["frames"]),
        ("", "file_commands", ["repack", "split", "join", "validate", "index"]),
        ("Running simulations", "relay_and_mcp_commands", ["relay"]),
        ("Speed", "performance_commands", ["report", "predict", "bench"]),
        ("Programs and assistants", "relay_and_mcp_commands", ["schema", "mcp"]),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status.

    The status is 0 for success, 1 for errors in the data, 2 for errors in the arguments, and 130
    after Ctrl-C.
    """
    if "_ARGCOMPLETE" in os.environ:  # a shell requests completions
        import argcomplete

        argcomplete.autocomplete(parser_of())
    argv = sys.argv[1:] if argv is None else list(argv)
    with _anonymously() if "--anonymous" in argv else contextlib.nullcontext():
        return _launch(argv)


@contextlib.contextmanager
def _anonymously() -> Iterator[None]:
    """Use no credentials for object stores, in this process and in workers."""
    before = os.environ.get(_ANONYMOUS)
    os.environ[_ANONYMOUS] = "1"
    try:
        yield
    finally:
        del os.environ[_ANONYMOUS]
        if before is not None:
            os.environ[_ANONYMOUS] = before


def _launch(argv: list[str]) -> int:
    """Run the command line in this process, or on the ranks of an MPI job."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # Filenames need not be UTF-8, and a pipe on Windows cannot encode all printed characters.
        utf8 = sys.stdout.encoding.lower() == "utf-8"
        sys.stdout.reconfigure(errors="surrogateescape" if utf8 else "backslashreplace")
    size, _ = launched()
    if size == 1:
        return _main(argv)
    # With MPI, only the first rank runs the command; the other ranks are its workers.
    from paceline.backends.mpi import run_on_first_rank

    return run_on_first_rank(lambda: _status_of(argv))


def _status_of(argv: Sequence[str]) -> int:
    """Run a command; return its exit status, also if argparse requests to end the process."""
    try:
        return _main(argv)
    except SystemExit as stop:  # argparse has printed the reason
        return stop.code if isinstance(stop.code, int) else 0


def _main(argv: Sequence[str]) -> int:
    parser = _parser_for(argv)
    if not argv:
        parser.print_help()
        return 0
    line = argparse.Namespace(command_line=f"paceline {shlex.join(argv)}")
    try:
        args = parser.parse_args(argv, line)
    except WrongArguments as stop:
        if "--json" in argv:
            from paceline.cli.json_output import Answer, wrong_arguments

            Answer(argv[0]).print(failure=wrong_arguments(stop.message, stop.program))
        raise
    # Imported here, because --help and --version do not need these modules.
    from paceline._util.progress import shown_as
    from paceline.cli.json_output import Answer, failure_of

    answer, said = Answer(args.command), _Warnings(args.option_names)
    with warnings.catch_warnings(), answer.kept(), shown_as(args.progress):
        warnings.showwarning = said.show
        try:
            status, failure = _run(args)
        except Terminated as stop:
            if args.json:
                answer.print(said.texts, failure_of(stop, "ended by SIGTERM"))
            raise
        try:
            answer.print(said.texts, failure if args.json else None)
        except BrokenPipeError:
            _flush_or_discard_output()
    return status


def _run(args: argparse.Namespace) -> "tuple[int, ErrorFacts | None]":
    """Run a command; return its exit status, and a description of its error (None if none)."""
    from paceline.cli.json_output import failure_of

    try:
        _check_backend(args)
        resolve_addresses(args)
        resolve_files(args)
        if isinstance(output := vars(args).get("output"), Path):
            check_local(output)
        status = args.run(args) or 0
        sys.stdout.flush()
        return status, None
    except BrokenPipeError:
        _flush_or_discard_output()  # the reader of the pipe has stopped reading
        return 0, None
    except KeyboardInterrupt as stop:
        print("paceline: interrupted", file=sys.stderr)
        return INTERRUPTED, failure_of(stop, "interrupted")
    except Exception as error:
        _flush_or_discard_output()
        if isinstance(error, ModuleNotFoundError) and error.name == "MDAnalysis":
            error = needs_mdanalysis("this command")
        message = one_line(error, args.option_names)
        notes = [in_options(note, args.option_names) for note in vars(error).get("__notes__", ())]
        if args.debug:
            import traceback

            traceback.print_exc()
        else:
            print(f"paceline: error: {message}", file=sys.stderr)
            for note in notes:
                print(f"paceline: {note}", file=sys.stderr)
        may_skip = vars(args).get("on_error") == "raise"
        facts = failure_of(error, "; ".join([message, *notes]), may_skip=may_skip)
        if facts["hint"] is not None:
            facts["hint"] = in_options(facts["hint"], args.option_names)
        return _status(error), facts


def _check_backend(args: argparse.Namespace) -> None:
    """Raise an error if the backend would use only one of several launched processes."""
    size, _ = launched()
    backend = vars(args).get("backend")
    if size > 1 and backend not in (None, "mpi"):
        raise UnsupportedError(
            f"--backend {backend} would use only one of the {size} processes that mpirun or srun "
            "started; omit --backend to use all of them, or omit mpirun or srun"
        )


def resolve_addresses(args: argparse.Namespace) -> None:
    """Replace addresses of local files by paths; raise an error for URLs that are not allowed.

    Only trajectories and topologies may be addresses of objects in object stores.
    """
    sources = {"files", "topology", "trajectory"} if vars(args).get("form") else set()
    for name, value in vars(args).items():
        several = isinstance(value, list | tuple)
        if name in sources and value is not None:
            # Imported here, because --help does not need this module.
            from paceline.trajectory.addresses import source_name

            follows = name != "topology" and "follow" in vars(args)
            named = [
                one if follows and is_stream(one) else source_name(one)
                for one in (value if several else [value])
            ]
            setattr(args, name, named if several else named[0])
            continue
        # `engine` is the address of a running simulation. With a pattern, `catalogue` is a folder
        # or address of trajectories, which `paceline survey` checks itself.
        if name == "engine" or (name == "catalogue" and args.pattern is not None):
            continue
        if name in vars(args).get("text_names", ()):
            continue
        for one in value if several else (value,):
            if isinstance(one, str | Path):
                check_local(one)


def _flush_or_discard_output() -> None:
    """Flush the output or discard it, so that Python does not report an error at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser_for(argv: Sequence[str]) -> CommandParser:
    """Make the parser of the called command only, or of all commands if no command is called."""
    if argv[:1] == ["--version"]:
        return parser_of(())
    return parser_of(argv[:1] if argv and argv[0] in modules() else modules())


def parser_of(names: Iterable[str] | None = None) -> CommandParser:
    """Make the parser of some commands, by default of all."""
    parser = CommandParser(
        prog="paceline",
        description="Analyse molecular dynamics trajectories on every core.",
        epilog=EXAMPLES,
    )
    parser.section("other options").add_argument(
        "--version", action="version", version=f"paceline {__version__}"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    headings = {some[0]: heading for heading, _, some in _groups()}
    for name in modules() if names is None else names:
        module = import_module(f"paceline.cli.{modules()[name]}")
        command = module.PARSERS[name](commands)
        command.set_defaults(command=name)
        vars(commands._choices_actions[-1])["heading"] = headings.get(name, "")
        debug = "print the traceback of an error"
        command.section("other options").add_argument("--debug", action="store_true", help=debug)
        progress = (
            "bar: on a terminal after some seconds, otherwise a line per minute; json: a JSON line "
            "on standard error each half second; none [%(default)s]"
        )
        command.section("other options").add_argument(
            "--progress", choices=PROGRESS, default=PROGRESS[0], help=progress
        )
        anonymous = "use no credentials for object stores and servers"
        command.section("other options").add_argument(
            "--anonymous", action="store_true", help=anonymous
        )
    return parser


def _status(error: Exception) -> int:
    """Exit status of an error: 2 for errors in the arguments, 1 for errors in the data."""
    # Compare the name: importing MDAnalysis for its SelectionError would take too long.
    if type(error).__name__ == "SelectionError":
        return BAD_ARGUMENTS
    if isinstance(error, (UnsupportedError, AtomCountError, *_WRONG_NAMES)):
        return BAD_ARGUMENTS
    if isinstance(error, PacelineError):
        return FAILED
    return BAD_ARGUMENTS if isinstance(error, ValueError | TypeError | IndexError) else FAILED


def one_line(error: Exception, options: Mapping[str, str]) -> str:
    """Return the message of an error in one line, with options instead of arguments."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    message = " ".join(without_script_advice(error).split())
    return in_options(message, options) or type(error).__name__


def in_options(message: str, options: Mapping[str, str]) -> str:
    """Replace names of arguments in a message by the options of the command.

    `options` maps each name under which argparse stores a value to its option.

    Examples
    --------
    >>> options = {"on_error": "--on-error", "dt": "--dt", "cutoff": "--cutoff"}
    >>> in_options('frame 3 has no velocities (on_error="skip")', options)
    'frame 3 has no velocities (--on-error skip)'
    >>> in_options("cutoff must be above 0, and on_error 'skip' or 'raise'", options)
    "--cutoff must be above 0, and --on-error 'skip' or 'raise'"
    >>> in_options("continuous=True (--continuous) leaves them out", options)
    '--continuous leaves them out'
    >>> in_options("undo them with unwrap='tor' (--unwrap-particles tor)", options)
    'undo them with --unwrap-particles tor'
    >>> in_options("where the trajectory is opened (dt=2)", options)
    'where the trajectory is opened (--dt 2ps)'
    >>> options = {"unwrap": "--unwrap", "unwrap_particles": "--unwrap-particles"}
    >>> in_options("unwrap: no bonds for 3 residues; unwrap= must be 'tor'", options)
    "--unwrap: no bonds for 3 residues; --unwrap-particles must be 'tor'"
    """
    known = {name: option for name, option in options.items() if name not in KEPT_AS}
    known |= {keyword: options[name] for keyword, name in KEPT_AS.items() if name in options}
    # The subject of a message may also be an option that is no keyword, such as the transformation
    # `--unwrap`.
    topics = {**known, **options}
    message = _NAMED.sub(lambda found: found["inside"] or found["behind"], message)
    words = "|".join(known)
    # Only a word with an underscore or a digit is certainly a name of an argument.
    long = "|".join(name for name in known if re.search(r"[_\d]", name)) or "(?!)"
    places = (
        rf"(?<![\w-])(?P<keyword>{words})=(?!False\b|None\b)(?P<value>{_VALUE})?",
        rf"(?:^|(?<=: ))(?P<first>{words})(?:\[\d+\])?(?= must )",
        rf"(?:^|(?<=: ))(?P<topic>{'|'.join(topics)})(?:\[\d+\])?(?=: )",
        rf"(?<![\w'\"/.-])(?P<long>{long})(?![\w='\"/-]|\.\w)",
    )

    def option(found: re.Match) -> str:
        if found["topic"]:
            return topics[found["topic"]]
        keyword = found["keyword"] or found["first"] or found["long"]
        value = (found["value"] or "").strip("\"'")
        if value.startswith("("):
            value = value.strip("()").replace(",", "")
        elif " " in value:
            value = f'"{value}"'
        if keyword == "dt" and value:
            value += "ps"
        return known[keyword] + (f" {value}" if value not in ("", "True") else "")

    return re.sub("|".join(places), option, message)


class _Warnings:
    """Print each warning of paceline once; omit those of libraries, which are for programmers."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self.texts: list[str] = []

    def show(
        self, message: Warning | str, category: type[Warning], *place: object, **more: object
    ) -> None:
        text = str(message)
        if text.startswith("1 A^3 CRYST1 record"):  # MDAnalysis's reader of PDB drops the cell
            text = "a cell of 1 × 1 × 1 Å is the placeholder in PDB files without a cell: left out"
        elif not issubclass(category, PacelineWarning):
            return
        text = in_options(text, self._options)
        if text not in self.texts:
            self.texts.append(text)
            print(f"paceline: warning: {text}", file=sys.stderr)
