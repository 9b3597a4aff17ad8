"""paceline rdf."""

import argparse
from typing import Any

from paceline.cli.arguments import add_analysis_arguments
from paceline.cli.common import open_universe, run_and_report, selected
from paceline.cli.values import positive

EXAMPLES = """\
examples:
  paceline rdf md.tpr md.xtc -o rdf.csv --plot rdf.png
  paceline rdf md.tpr md.xtc --select "name OW" --select-2 "name HW1 HW2" --exclusion-block 1 2
  paceline rdf md.tpr md.xtc --select "resname NA" --select-2 "name OW" --range 0 8 --nbins 160
  paceline rdf md.psf md.dcd --select protein --exclude-same residue --norm none
"""

#: Atoms of the first group unless others are named: the oxygens of water.
SELECT = "name OW OH2"


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "rdf",
        help="radial distribution function of one group of atoms around another",
        description="How often distances between the atoms of two groups occur, beside how often "
        "they would if the atoms were anywhere in the cell. Nearest images are taken: molecules "
        "need not be whole.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_analysis_arguments(parser, select=SELECT)
    add_pair_arguments(parser)
    return parser


def add_pair_arguments(parser: Any) -> None:
    """Add which pairs of atoms are counted, and how.

    Parameters
    ----------
    parser : argparse.ArgumentParser or group of one
        Of the command.
    """
    add = parser.add_argument
    add(
        "--select-2",
        metavar="TEXT",
        help="atoms of the second group [those of --select, but not the same atom twice]",
    )
    add(
        "--range",
        nargs=2,
        type=float,
        default=(0.0, 15.0),
        metavar="Å",
        help="where the first bin begins and the last one ends, Å [0 15]",
    )
    add("--nbins", type=positive, default=75, metavar="N", help="number of bins [%(default)s]")
    add(
        "--norm",
        choices=("rdf", "density", "none"),
        default="rdf",
        help="g(r), a density in Å⁻³, or pairs per frame [%(default)s]; only rdf needs a cell",
    )
    add(
        "--exclusion-block",
        nargs=2,
        type=positive,
        metavar="N",
        help="leave out pairs within molecules, of which so many atoms in a row are in each group",
    )
    add(
        "--exclude-same",
        choices=("residue", "segment", "chain"),
        help="leave out pairs that share it",
    )


def run(args: argparse.Namespace) -> None:
    """Do it."""
    run_and_report(args, *analysis_of(args))


def analysis_of(args: argparse.Namespace) -> tuple[Any, Any]:
    """The Universe, and the analysis of it, that arguments ask for."""
    universe = open_universe(args)
    return universe, rdf_of(universe, args)


def rdf_of(universe: Any, args: argparse.Namespace) -> Any:
    """The analysis of a Universe that arguments ask for.

    Parameters
    ----------
    universe : paceline.Universe
        The system.
    args : argparse.Namespace
        The command's arguments.

    Returns
    -------
    InterRDF
    """
    from paceline.analysis.rdf import InterRDF

    first = selected(universe, args.select)
    blocks = args.exclusion_block
    if args.select_2 is None and blocks is None and args.exclude_same is None:
        blocks = (1, 1)  # no pairs of an atom with itself, which would dwarf all others
    return InterRDF(
        first,
        first if args.select_2 is None else selected(universe, args.select_2),
        nbins=args.nbins,
        range=tuple(args.range),
        norm=args.norm,
        exclusion_block=blocks,
        exclude_same=args.exclude_same,
    )
