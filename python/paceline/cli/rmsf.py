"""paceline rmsf."""

import argparse
from typing import Any

from paceline.cli.arguments import add_analysis_arguments
from paceline.cli.common import open_universe, run_and_report, selected

EXAMPLES = """\
examples:
  paceline rmsf adk.psf fitted.dcd
  paceline rmsf md.tpr md.xtc --unwrap --fit
  paceline rmsf md.tpr fitted.xtc --select "backbone" -o rmsf.tsv --plot rmsf.png
"""


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "rmsf",
        help="root mean square fluctuation of each atom",
        description="RMSF (Å) of each atom about its mean position. Nothing is superimposed "
        "unless you say --fit, and no molecule made whole unless you say --unwrap.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_analysis_arguments(parser, select="protein and name CA")
    return parser


def run(args: argparse.Namespace) -> None:
    """Do it."""
    run_and_report(args, *analysis_of(args))


def analysis_of(args: argparse.Namespace) -> tuple[Any, Any]:
    """The Universe, and the analysis of it, that arguments ask for."""
    from paceline.analysis.rms import RMSF

    universe = open_universe(args)
    return universe, RMSF(selected(universe, args.select))
