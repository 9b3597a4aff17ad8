"""Commands of single analyses, made from the catalogue of analyses."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from paceline._util.files import check_distinct, check_output, saved_together
from paceline.cli.options import (
    TABLE_ENDINGS,
    add_analysis_arguments,
    add_figure_arguments,
    add_frame_arguments,
    add_json_argument,
    add_system_arguments,
    add_transform_arguments,
    add_worker_arguments,
    lag,
    positive,
)
from paceline.cli.parser_and_file_arguments import CommandParser, Commands, plain_text
from paceline.contract.read_catalogue import Entry, catalogue
from paceline.errors import UnsupportedError, warn

#: Default width of the bins of distances, Å.
BIN = 0.1
#: Functions that convert the values of options, by the names used in declarations.
READERS = {"int": int, "float": float, "positive": positive, "lag": lag}


class Command(NamedTuple):
    """Command with its catalogue entry, which describes the analysis."""

    entry: Entry

    @property
    def name(self) -> str:
        """Name of the command; a battery uses the same name for the analysis."""
        name: str = self.entry["name"]
        return name

    @property
    def select(self) -> tuple[str, ...]:
        """Default selections, tried in this order; empty if --select is required."""
        first = self.entry["select"]
        return (first, *self.entry["select_otherwise"]) if first else ()

    def parser(self, commands: Commands) -> CommandParser:
        """Add a parser that has help and examples, but no arguments."""
        lines = [f"  paceline {self.name} {example}" for example in self.entry["examples"]]
        parser = commands.add_parser(
            self.name,
            help=self.entry["summary"],
            description=self.entry["description"],
            epilog="\n".join(["examples:", *lines]) + "\n",
        )
        return parser

    def add(self, commands: Commands) -> CommandParser:
        """Add the command of this analysis, and its arguments."""
        entry, parser = self.entry, self.parser(commands)
        add_analysis_arguments(parser, select=self.select, files=tuple(entry["files"]))
        if entry["chooses"]:
            parser.set_defaults(select=None)
        for number, explained in enumerate(entry["groups"], start=2):
            parser.section("atoms").add_argument(
                f"--select-{number}",
                required=True,
                type=plain_text,
                metavar="TEXT",
                help=explained,
            )
        if entry["structures"]:
            explained = f"{entry['structures']}: .pdb, .gro or .xyz"
            parser.section("output").add_argument(
                "--structures", type=Path, metavar="FILE", help=explained
            )
        for name, explained in entry["further"].items():
            parser.section("output").add_argument(
                f"--{name}", type=Path, metavar="FILE", help=f"{explained}: .csv, .tsv, or a figure"
            )
        for option in entry["options"]:
            add_option(parser, **option)
        if entry["fits"]:
            parser.section("calculation").add_argument(
                "--no-align",
                dest="align",
                action="store_false",
                help="leave positions unchanged, or as --fit leaves them",
            )
            parser.set_defaults(align=None)
        parser.set_defaults(
            run=run_analysis_command,
            analysis_of=self.analysis_of,
            further=[*entry["further"]],
            analysis_names=(self.name, entry["class"].partition(".")[2]),
        )
        return parser

    def analysis_of(self, args: argparse.Namespace) -> Any:
        """Open the Universe, and make the analysis that the arguments describe."""
        from paceline.analysis.described_analyses import class_of
        from paceline.cli import special_analyses
        from paceline.cli.shared_analysis_steps import open_universe, select_nonempty

        universe = open_universe(args)
        options = {one["keyword"]: vars(args)[one["keyword"]] for one in self.entry["options"]}
        if self.entry["fits"]:
            options["align"] = args.fit is None if args.align is None else args.align
        others = (f"select_{k}" for k, _ in enumerate(self.entry["groups"], start=2))
        texts = [args.select or "all", *(vars(args)[name] for name in others)]
        updating = self.entry["updating"]
        groups = [select_nonempty(universe, text, updating=updating) for text in texts]
        selected = selections_of(*texts)
        for one in self.entry["options"]:
            if one["flag"].startswith("--select") and options[one["keyword"]] is not None:
                selected[one["flag"].lstrip("-")] = f"{options[one['keyword']]}"
        make = special_analyses.MAKE.get(self.name)
        if make is not None:
            analysis = make(universe, args, groups, options)
        else:
            analysis = class_of(self.name)(*groups, **options)
        if not analysis.atom_selections:
            analysis.atom_selections = selected
        return analysis


def selections_of(*texts: str) -> dict[str, str]:
    """Map the names of the selection options to the given selections.

    Examples
    --------
    >>> selections_of("resname LIG", "protein")
    {'select': 'resname LIG', 'select-2': 'protein'}
    """
    numbered = enumerate(texts, start=1)
    return {"select" if k == 1 else f"select-{k}": str(text) for k, text in numbered}


def command_of(name: str) -> Command:
    """Return the command of an analysis of the catalogue."""
    return Command(catalogue()[name])


def add_option(parser: CommandParser, keyword: str, flag: str, **given: Any) -> None:
    """Add the option `flag`, which sets a keyword of the analysis.

    `given` are arguments of argparse from the catalogue.
    """
    if given.get("action") != "append":
        given = {key: tuple(one) if isinstance(one, list) else one for key, one in given.items()}
    if "type" in given:
        given["type"] = READERS[given["type"]]
    parser.section("calculation").add_argument(flag, dest=keyword, **given)


def run_analysis_command(args: argparse.Namespace) -> None:
    """Make the analysis with `args.analysis_of`, run it, and write its results."""
    from paceline.cli.shared_analysis_steps import run_and_report

    run_and_report(args, args.analysis_of(args))


def add_rmsd(commands: Commands) -> CommandParser:
    """Add the command `rmsd` and its arguments."""
    parser = command_of("rmsd").add(commands)
    parser.set_defaults(analysis_of=rmsd_of)
    return parser


def rmsd_of(args: argparse.Namespace) -> Any:
    """Open the Universe, and make the `RMSD` analysis that the arguments describe."""
    from paceline.analysis.rms import RMSD
    from paceline.cli.shared_analysis_steps import open_universe, reference_and_frame

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


def add_rdf(commands: Commands) -> CommandParser:
    """Add the command `rdf` and its arguments."""
    parser = command_of("rdf").add(commands)
    add_pair_arguments(parser.section("calculation"))
    parser.set_defaults(analysis_of=rdf_analysis_of)
    return parser


def add_pair_arguments(section: Any) -> None:
    """Add the options that choose the pairs of atoms and how they are counted."""
    choices = {one["name"]: one["choices"] for one in catalogue()["rdf"]["parameters"]}
    add = section.add_argument
    add(
        "--select-2",
        type=plain_text,
        metavar="TEXT",
        help="atoms of the second group [the atoms of --select]; if both groups are equal, no "
        "atom is paired with itself",
    )
    add(
        "--range",
        nargs=2,
        type=float,
        default=(0.0, 15.0),
        metavar="Å",
        help="start of the first bin and end of the last bin, Å [0 15]",
    )
    add("--nbins", type=positive, metavar="N", help="number of bins [bins of 0.1 Å]")
    add(
        "--norm",
        choices=choices["norm"],
        default="rdf",
        help="g(r), a density in Å⁻³, or pairs per frame [%(default)s]; only rdf needs a cell",
    )
    add(
        "--exclusion-block",
        nargs=2,
        type=positive,
        metavar="N",
        help="leave out pairs within molecules: number of atoms of a molecule in the first and in "
        "the second group",
    )
    add(
        "--exclude-same",
        choices=choices["exclude_same"],
        help="leave out pairs of atoms in the same residue, segment, chain or fragment",
    )
    compounds = ("residues", "segments", "molecules", "fragments")
    add(
        "--compound",
        choices=compounds,
        help="use centers of mass of these units instead of atoms; units are made whole along "
        "bonds",
    )
    add(
        "--compound-2",
        choices=(*compounds, "atoms"),
        help="--compound of the second group [the value of --compound]",
    )
    add("--geometry", action="store_true", help="use centers of geometry, not centers of mass")
    add("--errors", action="store_true", help="also compute 95 %% intervals, from parts of the run")
    add(
        "--sites",
        action="store_true",
        help="one function for each pair of atoms; a table can contain 100 pairs, a .npz file any "
        "number",
    )


def rdf_analysis_of(args: argparse.Namespace) -> object:
    """Open the Universe, and make the RDF analysis that the arguments describe."""
    from paceline.cli.shared_analysis_steps import open_universe

    analysis = rdf_of(open_universe(args), args)
    texts = [args.select, *([] if args.select_2 is None else [args.select_2])]
    analysis.atom_selections = selections_of(*texts)
    return analysis


def rdf_of(universe: Any, args: argparse.Namespace) -> Any:
    """Make an `InterRDF`, or with --sites an `InterRDF_s`, for an opened Universe."""
    from paceline.analysis.rdf import InterRDF, InterRDF_s
    from paceline.cli.shared_analysis_steps import select_nonempty
    from paceline.performance.number_format import many

    first = select_nonempty(universe, args.select)
    second = first if args.select_2 is None else select_nonempty(universe, args.select_2)
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
            "--errors": args.errors,
        }
        wrong = [name for name, value in given.items() if value]
        if wrong:
            raise UnsupportedError(f"--sites treats each atom separately: omit {wrong[0]}")
        return InterRDF_s(universe, [(first, second)], exclude_same=args.exclude_same, **bins)
    kinds = args.compound, args.compound_2 or args.compound
    compounds = [None if kind == "atoms" else kind for kind in kinds]
    if blocks is None and args.exclude_same is None and compounds[0] == compounds[1]:
        n_shared = len(first & second)
        if first == second:
            blocks = (1, 1)  # omit each atom's pair with itself, because its peak would dwarf g(r)
        elif n_shared and not any(compounds) and args.range[0] <= 0:
            warn(
                f"InterRDF: --select and --select-2 share {many(n_shared, 'atom')}, and each of "
                "them is counted with itself at r = 0: begin --range above 0, or use --exclude-same"
            )
    return InterRDF(
        first,
        second,
        exclusion_block=blocks,
        exclude_same=args.exclude_same,
        compound=compounds if any(compounds) else None,
        center="geometry" if args.geometry else "mass",
        errors=args.errors,
        **bins,
    )


def add_align(commands: Commands) -> CommandParser:
    """Add the command `align` and its arguments."""
    command = command_of("align")
    parser = command.parser(commands)
    add_system_arguments(parser, select=command.select)
    add_frame_arguments(parser)
    add_transform_arguments(parser)
    for option in command.entry["options"]:
        add_option(parser, **option)
    add = parser.section("output").add_argument
    add("-o", "--output", type=Path, required=True, metavar="FILE", help="trajectory to write")
    add("--rmsd", type=Path, metavar="FILE", help=f"table of RMSDs (Å): {TABLE_ENDINGS}")
    add("--plot", type=Path, metavar="FILE", help="draw the RMSDs: .png, .svg, .pdf")
    add("--overwrite", action="store_true", help="replace files that exist")
    add_json_argument(parser.section("output"), "AnalysisDocument")
    add_figure_arguments(parser)
    add_worker_arguments(parser)
    parser.set_defaults(run=run_align)
    return parser


def run_align(args: argparse.Namespace) -> None:
    """Run the command `align`."""
    from paceline.analysis.align import AlignTraj
    from paceline.cli.print_results import say_results
    from paceline.cli.shared_analysis_steps import (
        check_outputs,
        check_report,
        print_analysis,
        reference_at,
        run_analysis,
        save_figure,
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
            save_figure(args, analysis.results)
        save_report(args, analysis.timings)
    say_results(analysis.results, args.rmsd, args.plot, args.report)
    if args.json:
        print_analysis(args.command, analysis, args.output, args.rmsd, args.plot, args.report)
    else:
        print(args.output)


PARSERS: dict[str, Callable[[Commands], CommandParser]] = {
    **{name: Command(entry).add for name, entry in catalogue().items() if entry["has_command"]},
    **{"rmsd": add_rmsd, "rdf": add_rdf, "align": add_align},
}
