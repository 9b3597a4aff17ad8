"""paceline rmsf."""

import argparse
from typing import Any

from paceline.cli.common import add_analysis_arguments, open_universe, run_and_report
from paceline.errors import SelectionError

EXAMPLES = """\
examples:
  paceline rmsf adk.psf fitted.dcd
  paceline rmsf md.tpr fitted.xtc --select "backbone" -o rmsf.tsv --plot rmsf.png
"""


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "rmsf",
        help="root mean square fluctuation of each atom",
        description="RMSF (Å) of each atom about its mean position. Nothing is superimposed: "
        "the trajectory must be fitted before.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_analysis_arguments(parser, select="protein and name CA")
    return parser


def run(args: argparse.Namespace) -> None:
    """Do it."""
    from paceline.analysis.rms import RMSF

    universe = open_universe(args)
    atoms = universe.select_atoms(args.select)
    if len(atoms) == 0:
        raise SelectionError(f"no atoms match {args.select!r}")
    run_and_report(args, universe, RMSF(atoms))
