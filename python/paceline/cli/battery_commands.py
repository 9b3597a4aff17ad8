"""Commands of several analyses in one pass: run and battery."""

import argparse
from pathlib import Path
from typing import Any

from paceline.cli.options import (
    add_checkpoint_argument,
    add_frame_arguments,
    add_index_argument,
    add_memory_argument,
    add_transform_arguments,
    add_worker_arguments,
)
from paceline.cli.parser import CommandParser, FileForm, add_file_arguments

RUN_EXAMPLES = """\
examples:
  paceline run battery.toml -s md.tpr -f md.xtc -o results
  paceline run battery.toml -s md.tpr -f md.part*.xtc --continuous --unwrap --fit -b 10ns

battery.toml has a table of each analysis, named as its files are to be:

  [rmsd]
  select = "backbone"
  groupselections = ["resid 1-29"]

  [loop]
  analysis = "rmsf"
  select = "name CA and resid 40-60"
"""

BATTERY_EXAMPLES = """\
examples:
  paceline battery md.tpr md.xtc -o results
  paceline battery md.tpr md.xtc --unwrap --fit -b 10ns -dt 100
  paceline run results/battery.toml -s md.tpr -f md.xtc -o more    # after editing it
"""


def add_run(commands: Any) -> CommandParser:
    """Add the command and its arguments."""
    parser: CommandParser = commands.add_parser(
        "run",
        help="several analyses in one pass, as a file describes them",
        description="Run the analyses that a TOML file describes in one pass over the trajectory, "
        "and write a table and a figure of each, and one page of all results.",
        epilog=RUN_EXAMPLES,
    )
    parser.section("files").add_argument(
        "battery", type=Path, metavar="BATTERY", help="file that describes the analyses, TOML"
    )
    _add_arguments(parser, run_run)
    parser.usage = (parser.usage or "").replace("[options]", "[options] BATTERY")
    return parser


def add_battery(commands: Any) -> CommandParser:
    """Add the command and its arguments."""
    parser: CommandParser = commands.add_parser(
        "battery",
        help="the usual analyses of what the system holds, in one pass",
        description="Run the usual analyses of protein, nucleic acid and water, whichever the "
        "system holds, in one pass over the trajectory, and write a table and a figure of each, "
        "and one page of all results.",
        epilog=BATTERY_EXAMPLES,
    )
    return _add_arguments(parser, run_battery)


def _add_arguments(parser: CommandParser, run: Any) -> CommandParser:
    add_file_arguments(parser, FileForm(topology="required"), formats="trajectory")
    add_index_argument(parser)
    add_frame_arguments(parser)
    add_transform_arguments(parser)
    add = parser.section("output").add_argument
    add(
        "-o",
        "--output",
        type=Path,
        default=Path("results"),
        metavar="FOLDER",
        help="folder of tables, figures and index.html [%(default)s]",
    )
    add("--overwrite", action="store_true", help="replace files that exist")
    add_worker_arguments(parser)
    add_checkpoint_argument(parser)
    add_memory_argument(parser)
    parser.set_defaults(run=run)
    return parser


def run_run(args: argparse.Namespace) -> None:
    """Run the command."""
    from paceline.analysis.battery import Battery

    _run(args, lambda universe: Battery.from_file(args.battery, universe))


def run_battery(args: argparse.Namespace) -> None:
    """Run the command."""
    from paceline.analysis.battery import Battery

    _run(args, Battery.default)


def _run(args: argparse.Namespace, make: Any) -> None:
    from paceline.cli.analysis_steps import run_battery_of, system_of

    run_battery_of(args, make(system_of(args)))
