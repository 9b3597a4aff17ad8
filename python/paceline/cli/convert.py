"""paceline convert."""

import argparse
import sys
from pathlib import Path
from typing import Any

from paceline.cli.arguments import (
    add_frame_arguments,
    add_transform_arguments,
    add_worker_arguments,
    given,
)
from paceline.cli.common import (
    chain_options,
    refuse_impossible_report,
    run_analysis,
    save_report,
    selected,
)
from paceline.cli.storing import add_layout_arguments, layout_options
from paceline.files import refuse_clashes, refuse_impossible, size_in_words

EXAMPLES = """\
examples:
  paceline convert md.xtc md.dcd
  paceline convert md.trr md.xtc --precision 10000 --begin 10ns --step 10
  paceline convert "md.part*.xtc" all.xtc --continuous
  paceline convert -s md.tpr md.xtc protein.xtc --select protein --unwrap --fit
  paceline convert md.xtc md.h5md
  paceline convert md.xtc small.h5md --compress shuffle+gzip:4 --precision 0.001
  paceline convert md.xtc md.h5md --chunk auto --for atoms --align 1MiB
  paceline convert dump.h5 md.xtc --particles solute --units "nm, fs"
"""


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "convert",
        help="write frames to a new trajectory file, of any format",
        description="Decode, select, transform, encode and write frames, in their order, with all "
        "workers. The format is told by the ending: .xtc, .trr, .dcd, .nc, .ncdf, .h5md, .h5, "
        ".hdf5. TRR, NetCDF and H5MD keep velocities and forces; H5MD also keeps what the topology "
        "(-s) knows of the atoms. What was written is told on standard error.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("input", nargs="+", help="trajectory; several, or a pattern, are one after another")
    add("output", type=Path, help="what to write")
    add("-s", "--topology", metavar="FILE", help="the system; selections and bonds need it")
    add("--select", metavar="TEXT", help="atoms, in MDAnalysis's words [all]")
    add(
        "--precision",
        type=float,
        metavar="P",
        help="of XTC: integers per nm [1000]; of H5MD: Å, such as 0.001: positions are rounded to "
        "that, so that they compress better [not rounded]",
    )
    add_frame_arguments(parser)
    add_transform_arguments(parser)
    add_worker_arguments(parser)
    add_layout_arguments(parser)
    add("--overwrite", action="store_true", help="replace a file that exists")
    return parser


def run(args: argparse.Namespace) -> None:
    """Do it."""
    from paceline.convert import Write, format_with

    refuse_clashes(args.output, args.report)
    refuse_impossible_report(args)
    refuse_impossible(args.output, overwrite=args.overwrite)
    options = {**given(args, "precision"), **layout_options(args)}
    format_with(args.output, options)
    universe = _universe(args)
    atoms = universe.atoms if args.select is None else selected(universe, args.select)
    analysis = Write(atoms, args.output, overwrite=args.overwrite, **options)
    run_analysis(args, universe, analysis)
    save_report(args, analysis.timings)
    results = analysis.results
    print(
        f"{args.output}: {results.n_written} frames of {len(atoms)} atoms, "
        f"{size_in_words(results.n_bytes)}",
        file=sys.stderr,
    )


def _universe(args: argparse.Namespace) -> Any:
    """The system, or as many atoms as the trajectory has where nothing must be known of them."""
    from paceline.opening import files_named
    from paceline.reader import Reader
    from paceline.universe import Universe

    if args.topology is not None:
        return Universe(args.topology, *args.input, **chain_options(args))
    for option in ("select", "unwrap", "center", "wrap", "fit"):
        if getattr(args, option) not in (None, False):
            raise ValueError(f"--{option} needs to know the system: give its file with -s")
    files = [file for name in args.input for file in files_named(name)]
    trajectory = Reader(files, **chain_options(args))
    universe = Universe.empty(trajectory.n_atoms)
    universe.trajectory = trajectory
    return universe
