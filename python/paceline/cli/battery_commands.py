"""Commands that run several analyses in one pass (run, battery), and the list of analyses."""

import argparse
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline._util.files import is_stream
from paceline.cli import print_results
from paceline.cli.options import (
    add_checkpoint_argument,
    add_crate_argument,
    add_figure_arguments,
    add_frame_arguments,
    add_index_argument,
    add_json_argument,
    add_memory_argument,
    add_transform_arguments,
    add_worker_arguments,
    print_json,
)
from paceline.cli.parser_and_file_arguments import (
    STRUCTURE,
    TOPOLOGY,
    CommandParser,
    Commands,
    FileForm,
    add_file_arguments,
    kind_of,
)
from paceline.contract.figure_options import OF_ALL
from paceline.contract.read_catalogue import catalogue
from paceline.errors import UnsupportedError

ANALYSES_EXAMPLES = """\
examples:
  paceline analyses
  paceline analyses --json > analyses.json
"""

RUN_EXAMPLES = """\
examples:
  paceline run battery.toml -s md.tpr -f md.xtc -o results
  paceline run battery.toml -s md.tpr -f md.part*.xtc --continuous -b 10ns

battery.toml has one table for each analysis; the name of the table is the name of its files:

  [rmsd]
  select = "backbone"
  groupselections = ["resid 1-29"]

  [loop]
  analysis = "rmsf"
  select = "name CA and resid 40-60"

  [energies]
  files = ["md.edr"]
  terms = ["potential", "temperature"]

The file may also name the systems. Their trajectories are replicas (paceline run battery.toml):

  [groups.wt]
  topology = "wt.tpr"
  trajectories = "wt/*/md.xtc"

  [groups.mutant]
  topology = "mutant.tpr"
  trajectories = ["mutant/1/md.xtc", ["mutant/2/a.xtc", "mutant/2/b.xtc"]]
"""

BATTERY_EXAMPLES = """\
examples:
  paceline battery md.tpr md.xtc -o results
  paceline battery md.tpr md.xtc -b 10ns -dt 100 --energies md.edr
  paceline run results/battery.toml -s md.tpr -f md.xtc -o more    # after editing it
  paceline battery md.tpr md.xtc --follow --serve 8000       # while the simulation runs
  paceline battery md.tpr run*/md.xtc --replicas
  paceline battery wt.tpr wt/*/md.xtc --group mutant.tpr mutant/*/md.xtc --names wt mutant
"""


def add_analyses(commands: Commands) -> CommandParser:
    """Add the command `analyses` and its arguments."""
    parser = commands.add_parser(
        "analyses",
        help="list all analyses",
        description="List all analyses. For each analysis: its name in batteries, which is usually "
        "also its command, its class in paceline.analysis, its results, and its requirements. JSON "
        "output also contains parameters and results, with types, units and defaults.",
        epilog=ANALYSES_EXAMPLES,
    )
    parser.usage = "%(prog)s [options]"
    add_json_argument(parser.section("output"), "AnalysesDocument")
    parser.set_defaults(run=run_analyses)
    return parser


def run_analyses(args: argparse.Namespace) -> None:
    """Run the command `analyses`."""
    found = catalogue().values()
    if args.json:
        print_json("analyses", analyses=[*found])
        return
    rows = [("name", "class", "computes", "needs")]
    rows += [(one["name"], one["class"], one["summary"], ", ".join(one["needs"])) for one in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def add_run(commands: Commands) -> CommandParser:
    """Add the command `run` and its arguments."""
    parser = commands.add_parser(
        "run",
        help="run the analyses that a file describes, in one pass",
        description="Run the analyses that a TOML file describes, in one pass over the trajectory. "
        "Write a table and a figure for each analysis, and one page with all results.",
        epilog=RUN_EXAMPLES,
    )
    parser.section("files").add_argument(
        "battery", type=Path, metavar="BATTERY", help="file that describes the analyses, TOML"
    )
    _add_arguments(parser, run_run, FileForm(topology="required", alone=True, needed=False))
    files = r"(\[options\]) (.*)"  # optional, because the battery file may name the files
    parser.usage = re.sub(files, r"\1 BATTERY [\2]", parser.usage or "")
    return parser


def add_battery(commands: Commands) -> CommandParser:
    """Add the command `battery` and its arguments."""
    parser = commands.add_parser(
        "battery",
        help="run the usual analyses of the molecules in a system, in one pass",
        description="Run the usual analyses of protein, nucleic acid, ligands, lipids and water, "
        "as far as the system contains them, in one pass over the trajectory. Write a table and a "
        "figure for each analysis, and one page with all results.",
        epilog=BATTERY_EXAMPLES,
    )
    _add_arguments(parser, run_battery, FileForm(topology="required", alone=True))
    parser.section("atoms").add_argument(
        "--ligand",
        metavar="TEXT",
        help="atoms of the ligand, or none [found by residue name, size and number]",
    )
    return parser


def _add_arguments(parser: CommandParser, run: object, form: FileForm) -> CommandParser:
    add_file_arguments(parser, form, formats="trajectory")
    add = parser.section("files").add_argument
    add(
        "--replicas",
        action="store_true",
        help="treat each trajectory as a replica, not as the continuation of the previous one",
    )
    add(
        "--group",
        nargs="+",
        action="append",
        default=[],
        metavar="FILE",
        help="compare with these replicas: [TOPOLOGY] TRAJECTORY..., by default with the same "
        "topology; may be repeated",
    )
    add(
        "--names",
        nargs="+",
        metavar="NAME",
        help="names of the groups [names of their folders, if these differ]",
    )
    add(
        "--energies",
        nargs="+",
        metavar="FILE",
        help="files with energies of the simulation, as for 'paceline energy'; energies at the "
        "times of the frames are used",
    )
    add_index_argument(parser)
    add_frame_arguments(parser)
    parser.section("frames").add_argument(
        "--equilibrated",
        action="store_true",
        help="leave out the frames before all time series are equilibrated, of each replica its "
        "own, and run again",
    )
    add_transform_arguments(parser)
    parser.section("transformations").add_argument(
        "--no-unwrap",
        action="store_true",
        help="do not unwrap molecules; by default analyses that need whole molecules unwrap them, "
        "if the topology has bonds",
    )
    add = parser.section("output").add_argument
    add(
        "-o",
        "--output",
        type=Path,
        default=Path("results"),
        metavar="FOLDER",
        help="folder for tables, figures and index.html [%(default)s]",
    )
    add("--overwrite", action="store_true", help="replace files that exist")
    add_json_argument(parser.section("output"), "BatteryDocument")
    add_crate_argument(parser)
    add_figure_arguments(parser, OF_ALL)
    add_worker_arguments(parser)
    add_checkpoint_argument(parser)
    add_memory_argument(parser)
    parser.set_defaults(run=run)
    return parser


def run_run(args: argparse.Namespace) -> None:
    """Run the command `run`."""
    from paceline.analysis.battery import ENERGIES, Battery
    from paceline.analysis.battery_definitions import read_battery_file

    asked, groups = read_battery_file(args.battery)
    if groups and (args.topology or args.trajectory or args.group or args.names):
        raise UnsupportedError(
            f"{args.battery} names its own systems, as [groups.{next(iter(groups))}]: remove these "
            "tables, or omit files from the command line"
        )
    if not groups and not args.topology:
        raise UnsupportedError(
            f"expected {args.form.positional_usage}, or [groups.NAME] in {args.battery}"
        )
    args.analysis_names = asked.keys() - {ENERGIES}
    _run(args, groups, lambda universe: Battery(asked, universe), names=asked)


def run_battery(args: argparse.Namespace) -> None:
    """Run the command `battery`."""
    from paceline.analysis.battery import Battery
    from paceline.analysis.battery_definitions import DEFAULTS

    args.analysis_names = {name for one in DEFAULTS.values() for name in one}
    said: set[str] = set()

    def make(universe: Any) -> Battery:
        words = args.ligand in (None, "none")
        ligand = args.ligand if words else universe.as_selection(args.ligand)
        battery = Battery.default(universe, ligand=ligand)
        found = ", ".join(battery.ligands)
        if args.ligand is None and len(battery.ligands) == 1 and found not in said:
            said.add(found)
            print_results.say(f"the ligand is {found} (--ligand sets another)")
        return battery

    _run(args, {}, make)


def _run(
    args: argparse.Namespace, groups: Mapping[str, Any], make: Any, names: Iterable[str] = ()
) -> None:
    """Make a battery of analyses, or one for each replica, and run it.

    `names` are the names of analyses that every battery contains.
    """
    from paceline.cli.shared_analysis_steps import check_battery_options, run_battery_of, system_of

    groups = groups or _groups_of(args)
    grows = args.follow or any(map(is_stream, args.trajectory))
    check_battery_options(args, names, grows=grows, replicas=bool(groups))
    if not groups:
        battery = make(system_of(args))
        if args.energies is not None:
            battery.add_energies(*args.energies)
        run_battery_of(args, battery)
        return
    from paceline.analysis.replicas import Replicas

    batteries: dict[str, list[Any]] = {}
    for name, group in groups.items():
        batteries[name] = []
        for files in group.replicas:
            args.topology, args.trajectory = group.topology, files
            batteries[name].append(make(system_of(args)))
            if args.energies is not None or batteries[name][-1].energies is not None:
                raise UnsupportedError(
                    "--energies needs a single trajectory, not replicas: in Python, add_energies "
                    "of the battery of each replica adds its own"
                )
    run_battery_of(args, Replicas(batteries))


def _groups_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the groups of replicas that the arguments name; empty for a single trajectory."""
    from paceline.analysis.battery_definitions import ReplicaFiles, replicas_named

    if not (args.group or args.replicas):
        if args.names:
            raise UnsupportedError("--names needs groups: use --group or --replicas, too")
        return {}
    if not args.trajectory:
        raise UnsupportedError(
            f"--replicas and --group need trajectories, found only {args.topology}"
        )
    found = [ReplicaFiles(args.topology, replicas_named(args.trajectory))]
    for files in args.group:
        first, *others = files
        if others and kind_of(first) in (TOPOLOGY, STRUCTURE):
            found.append(ReplicaFiles(first, replicas_named(others)))
        else:
            found.append(ReplicaFiles(args.topology, replicas_named(files)))
    names = args.names or _names_of(found)
    if len(names) != len(found) or len(set(names)) < len(names):
        raise UnsupportedError(
            f"expected {len(found)} different names, found {' '.join(names)} (--names)"
        )
    return dict(zip(names, found, strict=True))


def _names_of(groups: Sequence[Any]) -> list[str]:
    """Name groups by the first folder in which their paths differ, or by numbers."""
    folders = []
    for group in groups:
        paths = [Path(path).absolute().parent for files in group.replicas for path in files]
        folders.append(Path(os.path.commonpath(paths)).parts)
    if len(folders) == 1 and len(folders[0]) > 1:
        return [folders[0][-1]]
    for names in zip(*folders, strict=False):
        if len(set(names)) == len(names) > 1:
            return list(names)
    return [f"group-{k}" for k in range(1, len(groups) + 1)]


PARSERS = {
    "analyses": add_analyses,
    "run": add_run,
    "battery": add_battery,
}
