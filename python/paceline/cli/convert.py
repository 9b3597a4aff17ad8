"""paceline convert."""

import argparse
import sys
from pathlib import Path
from typing import Any

from paceline.cli.common import (
    add_frame_arguments,
    add_transform_arguments,
    add_worker_arguments,
    chain_options,
    run_analysis,
)

EXAMPLES = """\
examples:
  paceline convert md.xtc md.dcd
  paceline convert md.trr md.xtc --precision 10000 --begin 10ns --step 10
  paceline convert part1.xtc part2.xtc all.xtc
  paceline convert -s md.tpr md.xtc protein.xtc --select protein --unwrap --fit
"""


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "convert",
        help="write frames to a new trajectory file, of any format",
        description="Decode, select, transform, encode and write frames, in their order, with all "
        "workers. The format is told by the ending: .xtc, .trr, .dcd, .nc, .ncdf. TRR and NetCDF "
        "keep velocities and forces.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("input", nargs="+", help="trajectory; several, or a pattern, are one after another")
    add("output", type=Path, help="what to write")
    add("-s", "--topology", metavar="FILE", help="the system; selections and bonds need it")
    add("--select", metavar="TEXT", help="atoms, in MDAnalysis's words [all]")
    add("--precision", type=float, metavar="P", help="of XTC: integers per nm [1000]")
    add_frame_arguments(parser)
    add_transform_arguments(parser)
    add_worker_arguments(parser)
    add("--overwrite", action="store_true", help="replace a file that exists")
    return parser


def run(args: argparse.Namespace) -> None:
    """Do it."""
    from paceline.convert import Write

    universe = _universe(args)
    atoms = universe.atoms if args.select is None else universe.select_atoms(args.select)
    analysis = Write(atoms, args.output, precision=args.precision, overwrite=args.overwrite)
    run_analysis(args, universe, analysis)
    results = analysis.results
    print(
        f"{args.output}: {results.n_written} frames of {len(atoms)} atoms, "
        f"{results.n_bytes / 1e6:.1f} MB",
        file=sys.stderr,
    )


def _universe(args: argparse.Namespace) -> Any:
    """The system, or as many atoms as the trajectory has where nothing must be known of them."""
    from paceline.opening import files_named, open_file
    from paceline.universe import Universe

    if args.topology is not None:
        return Universe(args.topology, *args.input, **chain_options(args))
    for option in ("select", "unwrap", "center", "wrap", "fit"):
        if getattr(args, option) not in (None, False):
            raise ValueError(f"--{option} needs to know the system: give its file with -s")
    first = files_named(args.input[0])[0]
    universe = Universe.empty(open_file(first, notes=False).n_atoms)
    universe.load_new(args.input, **chain_options(args))
    return universe
