"""Commands of analyses: rmsd, rmsf and rdf."""

import argparse
from typing import Any

from paceline.cli.options import add_analysis_arguments, add_memory_argument, positive
from paceline.cli.parser import CommandParser

RMSD_EXAMPLES = """\
examples:
  paceline rmsd adk.psf adk.dcd
  paceline rmsd md.tpr md.xtc --select "backbone" -o rmsd.csv --plot rmsd.png
  paceline rmsd -s md.tpr -f md.xtc -n index.ndx --select Core --group Loop -b 1000 -dt 10
  paceline rmsd md.tpr md.xtc --select Backbone --group SideChain-H
  paceline rmsd md.tpr "md.part*.xtc" --continuous --unwrap
  paceline rmsd md.tpr md.xtc --ref crystal.pdb --begin 10ns --end 100ns --step 10
"""

RMSF_EXAMPLES = """\
examples:
  paceline rmsf adk.psf fitted.dcd
  paceline rmsf md.tpr md.xtc --unwrap --align
  paceline rmsf md.tpr md.xtc --unwrap --align backbone --select protein -o rmsf.csv
  paceline rmsf md.tpr fitted.xtc --select "backbone" -o rmsf.tsv --plot rmsf.png
"""

RDF_EXAMPLES = """\
examples:
  paceline rdf md.tpr md.xtc -o rdf.csv --plot rdf.png
  paceline rdf md.tpr md.xtc --select "name OW" --select-2 "name HW1 HW2" --exclusion-block 1 2
  paceline rdf md.tpr md.xtc --select "resname NA" --select-2 "name OW" --range 0 8 --nbins 160
  paceline rdf md.psf md.dcd --select protein --exclude-same residue --norm none
"""

#: Atoms of the first group of pairs by default: the oxygens of water.
RDF_SELECT = "name OW OH2"


def add_rmsd(commands: Any) -> CommandParser:
    """Add the command and its arguments."""
    parser: CommandParser = commands.add_parser(
        "rmsd",
        help="root mean square deviation from a reference structure",
        description="RMSD (Å) of each frame from a reference after optimal superposition. "
        "Molecules must be whole: --unwrap makes them so.",
        epilog=RMSD_EXAMPLES,
    )
    add_analysis_arguments(parser, select="protein and name CA")
    add = parser.section("calculation").add_argument
    add(
        "--ref",
        default="0",
        metavar="FRAME|FILE",
        help="reference: a frame number of the trajectory, or a structure file, taken as it is "
        "[%(default)s]",
    )
    add("--mass", action="store_true", help="weigh atoms by their masses")
    add(
        "--group",
        action="append",
        default=[],
        metavar="TEXT",
        help="further atoms: their RMSD after the same superposition; may be repeated",
    )
    parser.set_defaults(run=run_rmsd, analysis_of=rmsd_of)
    return parser


def run_rmsd(args: argparse.Namespace) -> None:
    """Run the command."""
    from paceline.cli.analysis_steps import run_and_report

    run_and_report(args, *rmsd_of(args))


def rmsd_of(args: argparse.Namespace) -> tuple[Any, Any]:
    """Open the Universe, and make the analysis of it, that arguments ask for."""
    from paceline.analysis.rms import RMSD
    from paceline.cli.analysis_steps import open_universe, reference_of

    universe = open_universe(args)
    is_frame = args.ref.lstrip("-").isdigit()
    analysis = RMSD(
        universe,
        None if is_frame else reference_of(universe, args.ref),
        select=args.select,
        groupselections=args.group,
        weights="mass" if args.mass else None,
        ref_frame=int(args.ref) if is_frame else 0,
    )
    return universe, analysis


def add_rmsf(commands: Any) -> CommandParser:
    """Add the command and its arguments."""
    parser: CommandParser = commands.add_parser(
        "rmsf",
        help="root mean square fluctuation of each atom",
        description="RMSF (Å) of each atom about its mean position. Nothing is superimposed "
        "unless you say --fit, and no molecule made whole unless you say --unwrap.",
        epilog=RMSF_EXAMPLES,
    )
    add_analysis_arguments(parser, select="protein and name CA")
    parser.section("calculation").add_argument(
        "--align",
        nargs="?",
        const=True,
        default=False,
        metavar="TEXT",
        help="superpose each frame on the average structure, which a first pass finds, by these "
        "atoms [those of --select]",
    )
    add_memory_argument(parser)
    parser.set_defaults(run=run_rmsf, analysis_of=rmsf_of)
    return parser


def run_rmsf(args: argparse.Namespace) -> None:
    """Run the command."""
    from paceline.cli.analysis_steps import run_and_report

    run_and_report(args, *rmsf_of(args))


def rmsf_of(args: argparse.Namespace) -> tuple[Any, Any]:
    """Open the Universe, and make the analysis of it, that arguments ask for."""
    from paceline.analysis.rms import RMSF
    from paceline.cli.analysis_steps import open_universe, selected

    universe = open_universe(args)
    return universe, RMSF(selected(universe, args.select), align=args.align)


def add_rdf(commands: Any) -> CommandParser:
    """Add the command and its arguments."""
    parser: CommandParser = commands.add_parser(
        "rdf",
        help="radial distribution function of one group of atoms around another",
        description="How often distances between the atoms of two groups occur, beside how often "
        "they would if the atoms were anywhere in the cell. Nearest images are taken: molecules "
        "need not be whole.",
        epilog=RDF_EXAMPLES,
    )
    add_analysis_arguments(parser, select=RDF_SELECT)
    add_pair_arguments(parser.section("calculation"))
    parser.set_defaults(run=run_rdf, analysis_of=rdf_analysis_of)
    return parser


def add_pair_arguments(section: Any) -> None:
    """Add the pairs of atoms that are counted, and how."""
    add = section.add_argument
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


def run_rdf(args: argparse.Namespace) -> None:
    """Run the command."""
    from paceline.cli.analysis_steps import run_and_report

    run_and_report(args, *rdf_analysis_of(args))


def rdf_analysis_of(args: argparse.Namespace) -> tuple[Any, Any]:
    """Open the Universe, and make the analysis of it, that arguments ask for."""
    from paceline.cli.analysis_steps import open_universe

    universe = open_universe(args)
    return universe, rdf_of(universe, args)


def rdf_of(universe: Any, args: argparse.Namespace) -> Any:
    """Make the analysis of a Universe that arguments ask for."""
    from paceline.analysis.rdf import InterRDF
    from paceline.cli.analysis_steps import selected

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
