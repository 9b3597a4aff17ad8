"""Command `energy`: energies and other time series in files of simulation programs."""

import argparse
from typing import TYPE_CHECKING

from paceline._util.files import check_distinct, saved_together
from paceline.cli.command_parser import CommandParser, Commands
from paceline.cli.options import Bound, add_bound_arguments, add_output_arguments, print_json
from paceline.errors import UnsupportedError

if TYPE_CHECKING:
    from paceline.analysis.energies import Energies
    from paceline.analysis.uncertainty import SeriesMean

ENERGY_EXAMPLES = """\
examples:
  paceline energy md.edr                               # list terms with their means
  paceline energy md.edr --terms potential "LJ (SR)" -b 1ns -o energy.csv --plot energy.png
  paceline energy md.part*.edr --terms temperature
  paceline energy log.lammps --plot energy.png
  paceline energy md.mdout md2.mdout -o energy.csv
  paceline surface energy.csv rmsd.csv --x Potential --plot surface.png
"""


def add_energy(commands: Commands) -> CommandParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "energy",
        help="energies, temperature, pressure … of a simulation, as time series",
        description="Read energies and other terms of a simulation from .edr and .xvg files of "
        "GROMACS, tables of OpenMM, logs of LAMMPS and NAMD, mdout files of Amber, and STATIS "
        "files of DL_POLY. Without --terms and -o, list the terms with mean, 95 % interval and "
        "unit. Several files are parts of one simulation: a file ends where the next one begins. "
        "Units are those of the files.",
        epilog=ENERGY_EXAMPLES,
    )
    parser.usage = "%(prog)s [options] FILE..."
    parser.section("files").add_argument(
        "energies",
        nargs="+",
        metavar="FILE",
        help='energies of one simulation, or a pattern such as "md.part*.edr"',
    )
    parser.section("calculation").add_argument(
        "--terms",
        nargs="+",
        action="extend",
        metavar="TERM",
        help="names of terms or beginnings of names, in upper or lower case; or potential, "
        "kinetic, total, conserved, temperature, pressure, density, volume, which work for all "
        "programs [all terms; figures show the usual ones]",
    )
    add_bound_arguments(parser.section("frames"))
    add_output_arguments(parser)
    parser.set_defaults(run=run_energy)
    return parser


def run_energy(args: argparse.Namespace) -> None:
    """Run the command."""
    from paceline.analysis.energies import read_energies
    from paceline.cli.analysis_steps import (
        check_outputs,
        note_command,
        save_figure,
        save_results,
    )
    from paceline.cli.answer import files_of, json_of_results, say, say_results
    from paceline.trajectory.open import files_named

    paths = [path for name in args.energies for path in files_named(name)]
    for path in paths:
        check_distinct(path, args.output, args.plot)
    check_outputs(args, args.output)
    energies = within(read_energies(*paths), args.begin, args.end)
    if args.terms is not None:
        energies = energies.select(*args.terms)
    results = energies.results
    note_command(args, results)
    if args.output is None and args.terms is None and not args.json:
        if args.plot is not None:
            save_figure(args, results)
        print(format_energies(energies))
        return
    with saved_together():
        left_out = save_results(args, results)
    say(f"read {results.provenance['files']}: {energies.span}")
    say_results(results, args.output, args.plot, left_out=left_out)
    if args.json:
        written = files_of(args.output, args.plot)
        print_json("energy", **json_of_results(results), written=written)


def within(energies: "Energies", begin: Bound, end: Bound) -> "Energies":
    """Return the rows between two bounds; a bound is a row number or a time."""
    bounds = {key: dict([bound]) for key, bound in (("begin", begin), ("end", end)) if bound}
    times = {key: one["time"] for key, one in bounds.items() if "time" in one}
    rows = {key: int(one["frame"]) for key, one in bounds.items() if "frame" in one}
    if times and energies.axis_title != "time (ps)":
        raise UnsupportedError(
            f"there is no time in ps ({energies.axis_title}): use row numbers for --begin and --end"
        )
    if rows:
        energies = energies.rows(**rows)
    return energies.between(**times) if times else energies


def format_energies(energies: "Energies") -> str:
    """Format the list of terms, with means and units, and the list of findings."""
    results = energies.results
    rows = [("term", "mean and 95 % interval", "unit")]
    means = zip(energies.units.items(), results.means.values(), strict=True)
    rows += [(name, _mean(mean), unit) for (name, unit), mean in means]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"{results.provenance['files']}: {energies.span}"]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(cells).rstrip())
    lines += [f"{name}: {text}" for name, text in results.findings.items()]
    return "\n".join(lines)


def _mean(mean: "SeriesMean") -> str:
    """Format a mean with its interval, if there is one."""
    from paceline.analysis.uncertainty import with_error

    if not mean.interval > 0:
        return mean.short.removeprefix("mean ")
    note = "" if mean.converged else ", not converged"
    return with_error(mean.mean, mean.interval) + note


PARSERS = {"energy": add_energy}
