"""Command that analyses many trajectories and writes tables of all results (survey)."""

import argparse
import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paceline._util.json_types import JsonObject
from paceline._util.launcher import FAILED
from paceline._util.option_values_and_selections import BACKENDS, ON_ERROR
from paceline.cli import print_results
from paceline.cli.options import (
    Bound,
    add_choice_of_frames,
    add_crate_argument,
    add_json_argument,
    add_thread_argument,
    positive,
    print_json,
)
from paceline.cli.parser_and_file_arguments import CommandParser, Commands
from paceline.contract.system_interface import Frames
from paceline.errors import UnsupportedError, warn
from paceline.performance.number_format import aligned, many, shortened

if TYPE_CHECKING:
    from paceline.analysis.survey_tables import Survey

#: Backends that a survey can use; the first is the default.
SURVEY_BACKENDS = (
    "processes",
    *(name for name in BACKENDS if name not in ("threads", "processes")),
)
#: Maximum number of failures and of warnings that are printed.
MOST_SHOWN = 10

EXAMPLES = """\
examples:
  paceline survey deposit.csv -o tables
  paceline survey deposit.csv -o tables --battery battery.toml --series
  paceline survey deposit --pattern "{id}/{replica}/md.xtc" --topology "{id}/top.pdb" -o tables
  paceline survey "mdcath/*.h5" --layout mdcath --battery battery.toml -o tables
  paceline survey deposit.csv -o tables --shard 3/16     # in a job array; then, once:
  paceline survey deposit.csv -o tables --merge

deposit.csv has a row for each trajectory; replica, group and further columns are optional:

  id,topology,trajectory,replica,group,temperature
  1abc,1abc/md.tpr,1abc/1/md.xtc,1,wild type,300
  1abc,1abc/md.tpr,1abc/2/md.part1.xtc;1abc/2/md.part2.xtc,2,wild type,300

The same command continues a survey that was killed, and computes what is new or changed.
"""


def add_survey(commands: Commands) -> CommandParser:
    """Add the command `survey` and its arguments."""
    parser = commands.add_parser(
        "survey",
        help="analyse many trajectories, and write tables of all results",
        description="Analyse all trajectories of a catalogue with the same battery, and write "
        "Parquet tables: mean, 95 % interval and verdict of each quantity of each trajectory, and "
        "failures and warnings.",
        epilog=EXAMPLES,
    )
    parser.usage = "%(prog)s CATALOGUE -o TABLES [options]"
    add = parser.section("files").add_argument
    add(
        "catalogue",
        metavar="CATALOGUE",
        help="table of the trajectories (.csv, .tsv, .toml, .parquet); with --pattern a folder or "
        "address; with --layout HDF5 files",
    )
    add(
        "--pattern",
        metavar="TEXT",
        help="paths of trajectories in the folder; names in braces become columns: "
        "'{id}/{replica}/md.xtc'",
    )
    add(
        "--topology",
        metavar="TEXT",
        help="paths of topologies in the folder, such as '{id}/top.pdb' [the topology in the "
        "trajectory's folder, or in the nearest folder above]",
    )
    add("--layout", choices=("mdcath",), help="layout of HDF5 files with several trajectories each")
    add(
        "--battery",
        type=Path,
        metavar="FILE",
        help="file that describes the analyses, as for 'paceline run' [the usual analyses of the "
        "molecules in each system]",
    )
    parser.section("transformations").add_argument(
        "--no-unwrap",
        action="store_true",
        help="do not unwrap molecules; by default analyses that need whole molecules unwrap them, "
        "if the topology has bonds",
    )
    _add_frames(parser)
    _add_output(parser)
    _add_workers(parser)
    parser.set_defaults(run=run_survey)
    return parser


def _add_frames(parser: CommandParser) -> None:
    section = parser.section("frames")
    add_choice_of_frames(section)
    section.add_argument(
        "--on-error",
        choices=ON_ERROR,
        default="raise",
        help="a trajectory with a damaged frame fails, or the frame is left out [%(default)s]",
    )


def _add_output(parser: CommandParser) -> None:
    add = parser.section("output").add_argument
    add(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="TABLES",
        help="folder for the tables",
    )
    add("--series", action="store_true", help="also write a table of the values of all frames")
    add(
        "--profiles",
        action="store_true",
        help="also write a table of the values of residues, distances and so on",
    )
    add(
        "--pages",
        type=positive,
        default=5,
        metavar="N",
        help="write a page of distributions, index.html, and pages of at most N outliers "
        "[%(default)s]",
    )
    add("--no-page", action="store_true", help="write tables only")
    add(
        "--overwrite",
        action="store_true",
        help="compute everything again; replace a survey of another catalogue",
    )
    add_json_argument(parser.section("output"), "SurveyDocument")
    add_crate_argument(parser)


def _add_workers(parser: CommandParser) -> None:
    add = parser.section("workers").add_argument
    add(
        "--backend",
        choices=SURVEY_BACKENDS,
        help=f"workers that analyse trajectories [{SURVEY_BACKENDS[0]}; mpi with mpirun or srun]",
    )
    add_thread_argument(parser, "number of workers [the CPUs this process may use]")
    parts = parser.section("workers").add_mutually_exclusive_group()
    parts.add_argument(
        "--shard",
        type=shard,
        metavar="N/COUNT",
        help="compute one of COUNT parts of the catalogue, such as 3/16, for job arrays",
    )
    parts.add_argument(
        "--merge", action="store_true", help="compute nothing, and write the tables of all shards"
    )


def shard(text: str) -> tuple[int, int]:
    """Parse a shard, such as "3/16"; return its number and the number of shards.

    Examples
    --------
    >>> shard("3/16")
    (3, 16)
    """
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"expected N/COUNT, such as 3/16, found {text!r}")
    return int(number), int(count)


def run_survey(args: argparse.Namespace) -> int:
    """Run the command `survey`; return the exit status."""
    from paceline.analysis.crate import write_crate_of_survey
    from paceline.analysis.saved_table_format import METADATA
    from paceline.analysis.survey import survey
    from paceline.analysis.survey_page import PAGE
    from paceline.analysis.survey_tables import MANIFEST

    if args.crate and args.shard:
        raise UnsupportedError("--crate describes the tables of all shards: use it with --merge")
    if args.topology and not args.pattern:
        raise UnsupportedError("--topology needs --pattern: a catalogue names its topologies")
    found = survey(
        args.catalogue,
        args.output,
        battery=args.battery,
        pattern=args.pattern,
        topology=args.topology,
        layout=args.layout,
        series=args.series,
        profiles=args.profiles,
        shard=args.shard,
        merge=args.merge,
        pages=None if args.no_page else args.pages,
        overwrite=args.overwrite,
        unwrap=not args.no_unwrap,
        on_error=args.on_error,
        backend=args.backend,
        n_workers=args.n_workers,
        **_frames(args),
    )
    if found is None:
        number, count = args.shard
        print_results.say(
            f"shard {number} of {count} is done; after the others, "
            "'paceline survey … --merge' writes the tables"
        )
        if args.json:
            print_json("survey", folder=f"{args.output}", shard=[number, count], tables={})
        return 0
    failures = found.failures.to_pylist()
    written = [found.path(name) for name in found.facts["tables"]]
    written += [path for name in (PAGE, MANIFEST) if (path := found.folder / name).exists()]
    error: Exception | None = None
    try:
        if args.crate and write_crate_of_survey(
            found, written, args.command_line, overwrite=args.overwrite
        ):
            written.append(found.folder / METADATA)
    except Exception as stop:  # first report the tables, which are written already
        error = stop
    _report(found, failures, written, as_json=args.json)
    if error is not None:
        raise error
    lost = {(one["id"], one["replica"]) for one in failures if not one["analysis"]}
    return FAILED if len(lost) == found.facts["tables"]["systems"]["rows"] else 0


def _frames(args: argparse.Namespace) -> JsonObject:
    """Return the options that choose frames; a choice by time is a function of the trajectory."""
    bounds = args.begin, args.end
    if args.every is None and all(bound is None or bound[0] == "frame" for bound in bounds):
        start, stop = (None if bound is None else int(bound[1]) for bound in bounds)
        step = None if args.step == 1 else args.step
        return {"start": start, "stop": stop, "step": step}
    return {"frames": _FramesInTime(*bounds, args.step, args.every)}


@dataclass(frozen=True)
class _FramesInTime:
    """Choice of frames between two bounds; the manifest of a survey records its fields as text."""

    begin: Bound
    end: Bound
    step: int
    every: float | None

    def __call__(self, trajectory: Frames) -> np.ndarray:
        """Return the numbers of the chosen frames of a trajectory."""
        from paceline.cli.shared_analysis_steps import frames_of

        return frames_of(trajectory, argparse.Namespace(**vars(self)))


def recorded_frames(text: str) -> Callable[[Frames], np.ndarray] | None:
    """Convert the text in a manifest to a choice of frames; None for a function of a script.

    Examples
    --------
    >>> recorded_frames("_FramesInTime(begin=('time', 10.0), end=None, step=1, every=None)")
    _FramesInTime(begin=('time', 10.0), end=None, step=1, every=None)
    """
    try:
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        given = {f"{one.arg}": ast.literal_eval(one.value) for one in call.keywords}
        found = _FramesInTime(**given)
        bounds = [one for one in (found.begin, found.end) if one is not None]
        assert all(kind in ("frame", "time") and float(value) == value for kind, value in bounds)
        assert found.every is None or float(found.every) > 0
        assert found.step == int(found.step) >= 1
    except (AssertionError, SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        return None
    return found if repr(found) == text else None


def _report(
    found: "Survey", failures: Sequence[JsonObject], files: Sequence[Path], *, as_json: bool
) -> None:
    """Print a summary of the tables; `failures` are the rows of the table of failures."""
    from paceline.analysis.survey_page import warnings_of_systems

    tables = {name: one["rows"] for name, one in found.facts["tables"].items()}
    failed = {(one["id"], one["replica"]) for one in failures}
    print_results.say(
        f"{many(tables['systems'], 'system')}, {len(failed):,} of them with failures; "
        f"{many(tables['quantities'], 'row')} of quantities"
    )
    for one in failures[:MOST_SHOWN]:
        where = " ".join(filter(None, (one["id"], one["replica"], one["analysis"])))
        print_results.say(f"failed: {where}: {shortened(one['message'])}")
    if len(failures) > MOST_SHOWN:
        print_results.say(
            f"{many(len(failures) - MOST_SHOWN, 'further failure')} in failures.parquet"
        )
    warned = warnings_of_systems(found)
    for text in warned[:MOST_SHOWN]:
        warn(shortened(text))
    if len(warned) > MOST_SHOWN:
        warn(f"{many(len(warned) - MOST_SHOWN, 'further warning')} in warnings.parquet")
    written = [f"{path}" for path in files]
    print_results.say(f"wrote {', '.join(written)}")
    rows = _summary(found)
    if as_json:
        facts = {"folder": f"{found.folder}", "tables": tables, "quantities": rows}
        columns = ("id", "replica", "analysis", "kind", "message")
        some = [{name: one[name] for name in columns} for one in failures[:MOST_SHOWN]]
        print_json("survey", **facts, failures=some, written=written)
        return
    titles = ("analysis", "quantity", "unit", "systems", "mean", "standard_deviation")
    cells = [[_cell(row[title]) for title in titles] for row in rows]
    heads = [title.replace("_", " ") for title in titles]
    print(*aligned([heads, *cells], left=3), sep="\n", flush=True)


def _cell(value: object) -> str:
    """Format a value of the printed table."""
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else f"{value}"


def _summary(found: "Survey") -> list[JsonObject]:
    """Return, for each quantity, mean and standard deviation of the means of all trajectories."""
    from paceline.analysis.survey_page import distributions

    return [
        {
            "analysis": one.analysis,
            "quantity": one.quantity,
            "unit": one.unit,
            "systems": len(one.means),
            "mean": float(np.mean(one.means)),
            "standard_deviation": float(np.std(one.means, ddof=1)) if len(one.means) > 1 else None,
        }
        for one in distributions(found)
    ]


PARSERS = {"survey": add_survey}
