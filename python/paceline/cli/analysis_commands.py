"""Commands of analyses: how one is described; rmsd, rmsf, rdf, align; surface of their results."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from paceline._util.files import check_distinct, check_output, saved_together
from paceline.cli.options import (
    TABLE_ENDINGS,
    add_analysis_arguments,
    add_frame_arguments,
    add_output_arguments,
    add_system_arguments,
    add_transform_arguments,
    add_worker_arguments,
    positive,
)
from paceline.cli.parser import CommandParser
from paceline.errors import UnsupportedError, warn

RMSD_EXAMPLES = """\
examples:
  paceline rmsd adk.psf adk.dcd
  paceline rmsd md.tpr md.xtc --select "backbone" -o rmsd.csv --plot rmsd.png
  paceline rmsd -s md.tpr -f md.xtc -n index.ndx --select Core --group Loop -b 1000 -dt 10
  paceline rmsd md.tpr md.xtc --select Backbone --group SideChain-H
  paceline rmsd md.tpr "md.part*.xtc" --continuous --unwrap
  paceline rmsd md.tpr md.xtc --ref crystal.pdb --begin 10ns --end 100ns --step 10
"""

RDF_EXAMPLES = """\
examples:
  paceline rdf md.tpr md.xtc -o rdf.csv --plot rdf.png
  paceline rdf md.tpr md.xtc --select "name OW" --select-2 "name HW1 HW2" --exclusion-block 1 2
  paceline rdf md.tpr md.xtc --select "resname NA" --select-2 "name OW" --range 0 8 --nbins 160
  paceline rdf md.psf md.dcd --select protein --exclude-same residue --norm none
  paceline rdf md.tpr md.xtc --select "resname LIG" --compound residues --select-2 "name OW" \\
      --compound-2 atoms
  paceline rdf md.tpr md.xtc --select "resname SOL" --compound molecules --geometry
  paceline rdf md.tpr md.xtc --select "name NZ" --select-2 "name OE1 OE2" --sites -o sites.npz
"""

ALIGN_EXAMPLES = """\
examples:
  paceline align adk.psf adk.dcd -o fitted.xtc
  paceline align md.tpr md.xtc --unwrap --select backbone --ref crystal.pdb -o fitted.dcd
  paceline align md.tpr md.xtc --unwrap --mass -o fitted.xtc --rmsd rmsd.csv --plot rmsd.png
"""

#: Width of bins of distances by default, Å.
BIN = 0.1
#: Atoms of the first group of pairs by default: `paceline.analysis.guess.WATER_OXYGENS`.
RDF_SELECT = "name OW OH2 or (water and name O)"

SURFACE_EXAMPLES = """\
examples:
  paceline surface rmsd.csv gyration.csv --plot surface.png
  paceline surface rmsd.csv gyration.csv --temperature 310 --bins 40 -o surface.tsv
  paceline surface pca.npz --plot surface.png     # of paceline pca --n-projected 2 -o pca.npz
  paceline surface angles.csv --x "phi ALA 2" --y "psi ALA 2" --range -180 180 -180 180
"""


def choice(text: str, choices: Sequence[str], default: str | None) -> dict[str, Any]:
    """Make the option of one of some words, with its help."""
    return {"choices": choices, "default": default, "help": text}


def number(text: str, default: float | None, unit: str) -> dict[str, Any]:
    """Make the option of a number, with its help, which has the unit too."""
    return {"type": float, "default": default, "metavar": unit, "help": text}


def count(text: str, default: int | None) -> dict[str, Any]:
    """Make the option of a whole number, with its help."""
    return {"type": positive, "default": default, "metavar": "N", "help": text}


#: Options that several commands have.
REF = {
    "default": "0",
    "metavar": "FRAME|FILE",
    "help": "reference: a frame number of the trajectory, or a structure file, taken as it is "
    "[%(default)s]",
}
PBC = {
    "flag": "--no-pbc",
    "action": "store_false",
    "default": True,
    "help": "take positions as they are, and no nearest images",
}
MASS = {
    "flag": "--mass",
    "action": "store_const",
    "const": "mass",
    "default": None,
    "help": "weigh atoms by their masses",
}
TEMPERATURE = number("temperature of the simulation, K [%(default)g]", 300.0, "K")

#: Makes an analysis: of the Universe, the arguments, the atoms of each selection, and options.
Make = Callable[[Any, argparse.Namespace, list[Any], dict[str, Any]], Any]


#: Of the option --correlation, and its help.
LAGS = count("longest lag of --correlation, frames [20]", None)
CORRELATION = (
    "write the fraction of {} that are there after a lag, too: again (intermittent), or without a "
    "break (continuous)"
)


def correlation_lags(args: argparse.Namespace) -> int | None:
    """Get the longest lag of the table of correlations, frames; None if none is asked for."""
    if args.correlation is not None:
        return args.tau_max or 20
    if args.tau_max is not None:
        raise UnsupportedError("--tau-max is the longest lag of --correlation: give both")
    return None


class Command(NamedTuple):
    """A command, and the analysis that it runs."""

    #: Name of the command, and of the analysis in a battery.
    name: str
    #: Atoms by default; empty where they must be given.
    select: str
    #: What it computes, in a line and in a few.
    summary: str
    description: str
    #: Arguments of example calls.
    examples: Sequence[str]
    #: Keywords of the class, with the arguments of their options; `flag` is the option's name where
    #: that is another.
    options: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    #: Help for --select-2 and so on, which must be given.
    groups: Sequence[str] = ()
    #: Endings of other files than tables that -o may have.
    files: Sequence[str] = ()
    #: Makes the analysis, where it takes more than the atoms and the options.
    make: Make | None = None
    #: Help for --structures, where results are also saved as structures.
    structures: str = ""
    #: True if atoms are selected anew in each frame.
    updating: bool = False
    #: True if `make` chooses the atoms where --select is not given, as `select` says.
    chooses: bool = False
    #: Names of further tables of the analysis, with the help of options that save them.
    further: Mapping[str, str] = MappingProxyType({})

    def add(self, commands: Any) -> CommandParser:
        """Add the command and its arguments."""
        lines = [f"  paceline {self.name} {example}" for example in self.examples]
        parser: CommandParser = commands.add_parser(
            self.name,
            help=self.summary,
            description=self.description,
            epilog="\n".join(["examples:", *lines]) + "\n",
        )
        add_analysis_arguments(parser, select=self.select, files=self.files)
        if self.chooses:
            parser.set_defaults(select=None)
        for number, explained in enumerate(self.groups, start=2):
            parser.section("atoms").add_argument(
                f"--select-{number}", required=True, metavar="TEXT", help=explained
            )
        if self.structures:
            parser.section("output").add_argument(
                "--structures", type=Path, metavar="FILE", help=f"{self.structures}: .pdb or .xyz"
            )
        for name, explained in self.further.items():
            parser.section("output").add_argument(
                f"--{name}", type=Path, metavar="FILE", help=f"{explained}: .csv, .tsv, or a figure"
            )
        for keyword, given in self.options.items():
            add_option(parser, keyword, given)
        parser.set_defaults(
            run=run_analysis_command, analysis_of=self.analysis_of, further=[*self.further]
        )
        return parser

    def analysis_of(self, args: argparse.Namespace) -> Any:
        """Open the Universe, and make the analysis that arguments ask for."""
        from paceline.analysis.battery import class_of
        from paceline.cli.analysis_steps import open_universe, selected

        universe = open_universe(args)
        options = {name: getattr(args, name) for name in self.options}
        texts = [
            args.select or "all",
            *(getattr(args, f"select_{k + 2}") for k in range(len(self.groups))),
        ]
        groups = [selected(universe, text, updating=self.updating) for text in texts]
        if self.make is not None:
            return self.make(universe, args, groups, options)
        return class_of(self.name)(*groups, **options)


def add_option(parser: CommandParser, keyword: str, given: Mapping[str, Any]) -> None:
    """Add the option of a keyword: arguments of argparse, and `flag` where its name is another."""
    arguments = dict(given)
    flag = arguments.pop("flag", f"--{keyword.replace('_', '-')}")
    parser.section("calculation").add_argument(flag, dest=keyword, **arguments)


def run_analysis_command(args: argparse.Namespace) -> None:
    """Run the analysis that `args.analysis_of` makes, and write its results."""
    from paceline.cli.analysis_steps import run_and_report

    run_and_report(args, args.analysis_of(args))


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
    add_option(parser, "ref", REF)
    add = parser.section("calculation").add_argument
    add("--mass", action="store_true", help="weigh atoms by their masses")
    add(
        "--group",
        action="append",
        default=[],
        metavar="TEXT",
        help="further atoms: their RMSD after the same superposition; may be repeated",
    )
    parser.set_defaults(run=run_analysis_command, analysis_of=rmsd_of)
    return parser


def rmsd_of(args: argparse.Namespace) -> Any:
    """Open the Universe, and make the analysis that arguments ask for."""
    from paceline.analysis.rms import RMSD
    from paceline.cli.analysis_steps import open_universe, reference_and_frame

    universe = open_universe(args)
    reference, frame = reference_and_frame(universe, args.ref)
    return RMSD(
        universe,
        reference,
        select=args.select,
        groupselections=args.group,
        weights="mass" if args.mass else None,
        ref_frame=frame,
    )


RMSF_COMMAND = Command(
    "rmsf",
    "protein and name CA",
    "root mean square fluctuation of each atom",
    "RMSF (Å) of each atom about its mean position. Nothing is superimposed unless you say --align "
    "or --fit, and no molecule made whole unless you say --unwrap.",
    (
        "adk.psf fitted.dcd",
        "md.tpr md.xtc --unwrap --align",
        "md.tpr md.xtc --unwrap --align backbone --select protein -o rmsf.csv",
        'md.tpr fitted.xtc --select "backbone" -o rmsf.tsv --plot rmsf.png',
    ),
    {
        "align": {
            "nargs": "?",
            "const": True,
            "default": False,
            "metavar": "TEXT",
            "help": "superpose each frame on the average structure, which a first pass finds, by "
            "these atoms [those of --select]",
        },
    },
)


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
    parser.set_defaults(run=run_analysis_command, analysis_of=rdf_analysis_of)
    return parser


def add_pair_arguments(section: Any) -> None:
    """Add the pairs of atoms that are counted, and how."""
    add = section.add_argument
    add(
        "--select-2",
        metavar="TEXT",
        help="atoms of the second group [those of --select]; of the same atoms, none makes a pair "
        "with itself",
    )
    add(
        "--range",
        nargs=2,
        type=float,
        default=(0.0, 15.0),
        metavar="Å",
        help="where the first bin begins and the last one ends, Å [0 15]",
    )
    add("--nbins", type=positive, metavar="N", help="number of bins [those of 0.1 Å]")
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
        choices=("residue", "segment", "chain", "fragment"),
        help="leave out pairs that share it",
    )
    compounds = ("residues", "segments", "molecules", "fragments")
    add(
        "--compound",
        choices=compounds,
        help="take centers of mass of these instead of atoms; they are made whole along bonds",
    )
    add(
        "--compound-2",
        choices=(*compounds, "atoms"),
        help="the same of the second group [that of --compound]",
    )
    add("--geometry", action="store_true", help="take means of positions, not centers of mass")
    add(
        "--sites",
        action="store_true",
        help="one function for each pair of atoms, of which there may be 100 in a table; a .npz "
        "file has all",
    )


def rdf_analysis_of(args: argparse.Namespace) -> Any:
    """Open the Universe, and make the analysis that arguments ask for."""
    from paceline.cli.analysis_steps import open_universe

    return rdf_of(open_universe(args), args)


def rdf_of(universe: Any, args: argparse.Namespace) -> Any:
    """Make the analysis of a Universe that arguments ask for."""
    from paceline.analysis.rdf import InterRDF, InterRDF_s
    from paceline.cli.analysis_steps import selected
    from paceline.performance.number_format import many

    first = selected(universe, args.select)
    second = first if args.select_2 is None else selected(universe, args.select_2)
    blocks = args.exclusion_block
    begin, end = args.range
    nbins = args.nbins or max(1, round(min(end - begin, 1e6) / BIN))
    bins = {"nbins": nbins, "range": (begin, end), "norm": args.norm}
    if args.sites:
        given = {
            "--exclusion-block": blocks,
            "--compound": args.compound,
            "--compound-2": args.compound_2,
            "--geometry": args.geometry,
        }
        wrong = [name for name, value in given.items() if value]
        if wrong:
            raise UnsupportedError(f"--sites takes each atom by itself: leave {wrong[0]} out")
        return InterRDF_s(universe, [(first, second)], exclude_same=args.exclude_same, **bins)
    kinds = args.compound, args.compound_2 or args.compound
    compounds = [None if kind == "atoms" else kind for kind in kinds]
    if blocks is None and args.exclude_same is None and compounds[0] == compounds[1]:
        n_shared = len(first & second)
        if first == second:
            blocks = (1, 1)  # no pairs of an atom with itself, which would dwarf all others
        elif n_shared and not any(compounds) and args.range[0] <= 0:
            warn(
                f"InterRDF: --select and --select-2 share {many(n_shared, 'atom')}, and pairs of "
                "an atom with itself count at r = 0: begin --range above 0, or give --exclude-same"
            )
    return InterRDF(
        first,
        second,
        exclusion_block=blocks,
        exclude_same=args.exclude_same,
        compound=compounds if any(compounds) else None,
        center="geometry" if args.geometry else "mass",
        **bins,
    )


def add_align(commands: Any) -> CommandParser:
    """Add the command and its arguments."""
    parser: CommandParser = commands.add_parser(
        "align",
        help="superpose all frames on a reference, and write the trajectory",
        description="Move all atoms of each frame so that the RMSD of the selected ones from the "
        "reference is the least, and write the trajectory, in any format of 'paceline convert'. "
        "Molecules must be whole: --unwrap makes them so.",
        epilog=ALIGN_EXAMPLES,
    )
    add_system_arguments(parser, select="protein and name CA")
    add_frame_arguments(parser)
    add_transform_arguments(parser)
    add_option(parser, "ref", REF)
    add_option(parser, "weights", MASS)
    add = parser.section("output").add_argument
    add("-o", "--output", type=Path, required=True, metavar="FILE", help="trajectory to write")
    add("--rmsd", type=Path, metavar="FILE", help=f"table of RMSDs (Å): {TABLE_ENDINGS}")
    add("--plot", type=Path, metavar="FILE", help="draw the RMSDs: .png, .svg, .pdf")
    add("--overwrite", action="store_true", help="replace files that exist")
    add_worker_arguments(parser)
    parser.set_defaults(run=run_align)
    return parser


def run_align(args: argparse.Namespace) -> None:
    """Run the command."""
    from paceline.analysis.align import AlignTraj
    from paceline.cli.analysis_steps import (
        check_outputs,
        check_report,
        reference_at,
        run_analysis,
        save_report,
        system_of,
    )

    check_distinct(args.output, args.rmsd, args.plot, args.report)
    check_outputs(args, args.rmsd)
    check_output(args.output, overwrite=args.overwrite)
    check_report(args)
    universe = system_of(args)
    analysis = AlignTraj(
        universe,
        reference_at(universe, args.ref),
        select=args.select,
        filename=args.output,
        weights=args.weights,
        force=args.overwrite,
    )
    with saved_together():
        run_analysis(args, analysis)
        if args.rmsd is not None:
            analysis.results.save(args.rmsd, overwrite=args.overwrite)
        if args.plot is not None:
            analysis.results.save_figure(args.plot, overwrite=args.overwrite)
        save_report(args, analysis.timings)
    print(args.output)


def add_surface(commands: Any) -> CommandParser:
    """Add the command and its arguments."""
    parser: CommandParser = commands.add_parser(
        "surface",
        help="free-energy surface of two series of saved tables",
        description="Free energy -kT ln(p / p_max), kJ/mol, along two series in time, of which p "
        "is how often their values occur together: columns of saved tables, or projections on "
        "principal components. Bins without frames are nan. Series that are not converged are "
        "named.",
        epilog=SURFACE_EXAMPLES,
    )
    parser.usage = "%(prog)s [options] TABLE [TABLE]"
    add = parser.section("files").add_argument
    add("tables", nargs="+", type=Path, metavar="TABLE", help=".csv, .tsv or .npz, one or two")
    add = parser.section("calculation").add_argument
    for axis, which in (("x", "first"), ("y", "last")):
        add(
            f"--{axis}",
            metavar="TITLE",
            help=f"series of the {which} table, by its title or the beginning of that [its first"
            f"{', or second if there is one table' if axis == 'y' else ''}]",
        )
    add_option(parser, "temperature", TEMPERATURE)
    add(
        "--bins",
        nargs="+",
        type=positive,
        default=[50],
        metavar="N",
        help="bins along both, or along x and y [50]",
    )
    add(
        "--range",
        nargs=4,
        type=float,
        metavar=("X0", "X1", "Y0", "Y1"),
        help="where bins begin and end [least and largest values]",
    )
    add_output_arguments(parser)
    parser.set_defaults(run=run_surface)
    return parser


def run_surface(args: argparse.Namespace) -> None:
    """Run the command."""
    from paceline.analysis.free_energy import free_energy_surface, series_of_tables
    from paceline.cli.analysis_steps import check_outputs, save_results

    if len(args.tables) > 2 or len(args.bins) > 2:
        raise UnsupportedError("expected one table or two, and one number of bins or two")
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
    )
    results.provenance["command"] = args.command_line
    results.provenance["tables"] = ", ".join(map(str, args.tables))
    with saved_together():
        save_results(args, results)


PARSERS = {
    "rmsd": add_rmsd,
    RMSF_COMMAND.name: RMSF_COMMAND.add,
    "rdf": add_rdf,
    "align": add_align,
    "surface": add_surface,
}
