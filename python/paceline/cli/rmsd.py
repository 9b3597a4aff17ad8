"""paceline rmsd."""

import argparse
from typing import Any

from paceline.cli.arguments import add_analysis_arguments
from paceline.cli.common import open_universe, run_and_report

EXAMPLES = """\
examples:
  paceline rmsd adk.psf adk.dcd
  paceline rmsd md.tpr md.xtc --select "backbone" -o rmsd.csv --plot rmsd.png
  paceline rmsd md.tpr "md.part*.xtc" --continuous --unwrap
  paceline rmsd md.tpr md.xtc --ref crystal.pdb --begin 10ns --end 100ns --step 10
"""


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "rmsd",
        help="root mean square deviation from a reference structure",
        description="RMSD (Å) of each frame from a reference after optimal superposition. "
        "Molecules must be whole: --unwrap makes them so.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_analysis_arguments(parser, select="protein and name CA")
    parser.add_argument(
        "--ref",
        default="0",
        metavar="FRAME|FILE",
        help="reference: a frame number of the trajectory, or a structure file, taken as it is "
        "[%(default)s]",
    )
    parser.add_argument("--mass", action="store_true", help="weigh atoms by their masses")
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="TEXT",
        help="further atoms: their RMSD after the same superposition; may be repeated",
    )
    return parser


def run(args: argparse.Namespace) -> None:
    """Do it."""
    run_and_report(args, *analysis_of(args))


def analysis_of(args: argparse.Namespace) -> tuple[Any, Any]:
    """The Universe, and the analysis of it, that arguments ask for."""
    from paceline.analysis.rms import RMSD
    from paceline.universe import Universe

    universe = open_universe(args)
    is_frame = args.ref.lstrip("-").isdigit()
    analysis = RMSD(
        universe,
        None if is_frame else Universe(args.ref),
        select=args.select,
        groupselections=args.group,
        weights="mass" if args.mass else None,
        ref_frame=int(args.ref) if is_frame else 0,
    )
    return universe, analysis
