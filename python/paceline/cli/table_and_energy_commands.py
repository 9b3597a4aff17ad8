"""Commands on tables: `energy`, `plot` and `surface`."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from paceline._util.files import check_distinct, check_output, saved_together
from paceline.cli.options import (
    TABLE_ENDINGS,
    Bound,
    add_bound_arguments,
    add_figure_arguments,
    add_json_argument,
    add_output_arguments,
    add_table_arguments,
    figure_options,
    label_tables,
    positive,
    print_json,
)
from paceline.cli.parser_and_file_arguments import CommandParser, Commands
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
    """Add the command `energy` and its arguments."""
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
    """Run the command `energy`."""
    from paceline.analysis.energies import read_energies
    from paceline.cli.print_results import files_of, json_of_results, say, say_results
    from paceline.cli.shared_analysis_steps import (
        check_outputs,
        note_command,
        save_figure,
        save_results,
    )
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
    """Return the energies between two bounds; each bound is a row number or a time."""
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


PLOT_EXAMPLES = """\
examples:
  paceline plot rmsd.csv -o rmsd.pdf --figsize 8x6cm --time-unit ns
  paceline plot wild.csv mutant.csv --label "wild type" --label mutant -o both.svg
  paceline plot gmx-rmsd.xvg --title "RMSD by GROMACS" --plot rmsd.png
  paceline plot angles.csv --y "phi ALA 2" --y "psi ALA 2" -o ala.png
"""
SURFACE_EXAMPLES = """\
examples:
  paceline surface rmsd.csv gyration.csv --plot surface.png
  paceline surface rmsd.csv gyration.csv --temperature 310 --bins 40 -o surface.tsv
  paceline surface pca.npz --plot surface.png     # after paceline pca --n-projected 2 -o pca.npz
  paceline surface angles.csv --x "phi ALA 2" --y "psi ALA 2" --range -180 180 -180 180
"""


def add_plot(commands: Commands) -> CommandParser:
    """Add the command `plot` and its arguments."""
    parser = commands.add_parser(
        "plot",
        help="draw saved tables",
        description="Draw one saved table, or several tables of one kind in one figure. A table "
        "that paceline wrote determines its figure. For other tables, all columns are drawn "
        "against the time, or against the first column.",
        epilog=PLOT_EXAMPLES,
    )
    add_table_arguments(parser, "columns of the table's figure")
    add = parser.section("output").add_argument
    endings = "figure: .png, .svg, .pdf"
    add("-o", "--plot", type=Path, required=True, metavar="FILE", help=endings)
    add("--overwrite", action="store_true", help="replace files that exist")
    add_json_argument(parser.section("output"), "PlotDocument")
    add_figure_arguments(parser)
    parser.set_defaults(run=run_plot)
    return parser


def run_plot(args: argparse.Namespace) -> None:
    """Run the command `plot`."""
    from paceline.analysis.results import check_figure_ending, save_figure
    from paceline.analysis.saved_table_format import read_saved
    from paceline.cli.print_results import say

    for table in args.tables:
        check_distinct(table, args.plot)
    options = figure_options(args, args.plot)
    check_figure_ending(args.plot, style=options.style)
    check_output(args.plot, overwrite=args.overwrite)
    tables = [read_saved(path).table(args.y or ()) for path in args.tables]
    label_tables(options, args.tables)
    save_figure(tables, args.plot, options, overwrite=args.overwrite)
    say(f"wrote {args.plot}")
    if args.json:
        print_json("plot", tables=args.tables, written=[args.plot])


def add_surface(commands: Commands) -> CommandParser:
    """Add the command `surface` and its arguments."""
    parser = commands.add_parser(
        "surface",
        help="free-energy surface of two series in saved tables",
        description="Compute the free energy -kT ln(p / p_max), kJ/mol, along two time series, "
        "where p is the frequency of a pair of values. The series are columns of saved tables, or "
        "projections on principal components. Bins without frames are nan. Series that are not "
        "converged are listed.",
        epilog=SURFACE_EXAMPLES,
    )
    parser.usage = "%(prog)s [options] TABLE [TABLE]"
    add = parser.section("files").add_argument
    add("tables", nargs="+", type=Path, metavar="TABLE", help=f"{TABLE_ENDINGS}, one or two")
    add = parser.section("calculation").add_argument
    for axis, which in (("x", "first"), ("y", "last")):
        add(
            f"--{axis}",
            metavar="TITLE",
            help=f"series of the {which} table: its title or the beginning of its title [the first"
            f"{', or second if there is one table' if axis == 'y' else ''}]",
        )
    add(
        "--temperature",
        type=float,
        default=300.0,
        metavar="K",
        help="temperature of the simulation, K [%(default)g]",
    )
    add(
        "--bins",
        nargs="+",
        type=positive,
        default=[50],
        metavar="N",
        help="number of bins for both series, or for x and for y [50]",
    )
    add(
        "--range",
        nargs=4,
        type=float,
        metavar=("X0", "X1", "Y0", "Y1"),
        help="limits of the bins of x and of y [minimum and maximum]",
    )
    add("--errors", action="store_true", help="also compute 95 %% intervals of all bins")
    add_output_arguments(parser)
    parser.set_defaults(run=run_surface)
    return parser


def run_surface(args: argparse.Namespace) -> None:
    """Run the command `surface`."""
    from paceline.analysis.free_energy import free_energy_surface, series_of_tables
    from paceline.cli.print_results import files_of, json_of_results, say_results
    from paceline.cli.shared_analysis_steps import check_outputs, note_command, save_results

    if len(args.tables) > 2 or len(args.bins) > 2:
        raise UnsupportedError("expected one or two tables, and one or two numbers of bins")
    for table in args.tables:
        check_distinct(table, args.output, args.plot)
    check_outputs(args, args.output)
    (x_label, x), (y_label, y) = series_of_tables(args.tables, args.x, args.y)
    bounds = None if args.range is None else (args.range[:2], args.range[2:])
    results = free_energy_surface(
        x,
        y,
        temperature=args.temperature,
        bins=args.bins if len(args.bins) == 2 else args.bins[0],
        range=bounds,
        labels=(x_label, y_label),
        errors=args.errors,
    )
    note_command(args, results)
    results.provenance["tables"] = ", ".join(map(str, args.tables))
    with saved_together():
        left_out = save_results(args, results)
    say_results(results, args.output, args.plot, left_out=left_out)
    if args.json:
        written = files_of(args.output, args.plot)
        print_json("surface", **json_of_results(results), written=written)


PARSERS: dict[str, Callable[[Commands], CommandParser]] = {
    "energy": add_energy,
    "plot": add_plot,
    "surface": add_surface,
}
