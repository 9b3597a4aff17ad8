"""Commands that write trajectories: convert and repack."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from paceline._util.files import check_distinct, check_output, format_size
from paceline.cli.options import (
    add_frame_arguments,
    add_layout_arguments,
    add_transform_arguments,
    add_worker_arguments,
    given,
    layout_options,
    positive,
)

CONVERT_EXAMPLES = """\
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

REPACK_EXAMPLES = """\
examples:
  paceline repack md.h5md
  paceline repack md.h5md atoms.h5md --for atoms
  paceline repack md.h5md small.h5md --compress shuffle+gzip:4 --precision 0.001
"""

#: Reading that takes so many times the bytes that it took before is warned of.
_DEARER = 2.0


def add_convert(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "convert",
        help="write frames to a new trajectory file, of any format",
        description="Decode, select, transform, encode and write frames, in their order, with all "
        "workers. The format is told by the ending: .xtc, .trr, .dcd, .nc, .ncdf, .h5md, .h5, "
        ".hdf5. TRR, NetCDF and H5MD keep velocities and forces; H5MD also keeps what the topology "
        "(-s) knows of the atoms. What was written is told on standard error.",
        epilog=CONVERT_EXAMPLES,
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
    parser.set_defaults(run=run_convert)
    return parser


def run_convert(args: argparse.Namespace) -> None:
    """Run the command."""
    from paceline.cli.analysis_steps import (
        check_report,
        run_analysis,
        save_report,
        selected,
    )
    from paceline.convert import Write, format_with

    check_distinct(args.output, args.report)
    check_report(args)
    check_output(args.output, overwrite=args.overwrite)
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
        f"{format_size(results.n_bytes)}",
        file=sys.stderr,
    )


def _universe(args: argparse.Namespace) -> Any:
    """Open the system, or one of as many atoms as the trajectory has, if none is given."""
    from paceline.cli.analysis_steps import chain_options
    from paceline.trajectory.mdanalysis_reader import Reader
    from paceline.trajectory.open import files_named
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


def add_repack(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "repack",
        help="write an H5MD file anew in a layout that is read faster",
        description="Write positions, velocities and forces of an H5MD file anew in another "
        "layout, with the same numbers to the last bit, and copy everything else as it is. What is "
        "gained goes to standard output: bytes read for each byte used, before and after. "
        "'paceline info' tells whether it pays.",
        epilog=REPACK_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("file", type=Path, help="H5MD")
    add(
        "output",
        nargs="?",
        type=Path,
        help="the new file [it takes the place of the old one, once it is whole]",
    )
    add_layout_arguments(parser, compress="as it was, with gzip in place of other methods")
    add(
        "--precision",
        type=float,
        metavar="P",
        help="Å, such as 0.001: round positions to that, so that they compress better [not "
        "rounded]",
    )
    add("--overwrite", action="store_true", help="replace an output that exists")
    add(
        "--n-workers",
        type=positive,
        metavar="N",
        help="threads that read and compress [the CPUs this process may use]",
    )
    parser.set_defaults(run=run_repack)
    return parser


def run_repack(args: argparse.Namespace) -> None:
    """Run the command."""
    from paceline._util.machine import available_cpus
    from paceline.hdf5.repack import repack

    size = os.path.getsize(args.file)
    gains = repack(
        args.file,
        args.output,
        precision=args.precision,
        overwrite=args.overwrite,
        n_workers=args.n_workers or available_cpus(),
        **layout_options(args),
    )
    print("dataset", "access", "bytes read per byte used, before", "after", sep="\t")
    for gain in gains:
        for old, new in zip(*gain.costs, strict=False):
            print(gain.name, old.access, f"{old.ratio:.2f}", f"{new.ratio:.2f}", sep="\t")
    for gain in gains:
        print(f"{gain.name}: {gain.layouts[0]}, now {gain.layouts[1]}", file=sys.stderr)
        for old, new in zip(*gain.costs, strict=False):
            if new.ratio > _DEARER * old.ratio:
                print(
                    f"{gain.name}: {old.access} reads {new.ratio / old.ratio:.0f} times as many "
                    "bytes as before; --for, --chunk and --compress choose another layout",
                    file=sys.stderr,
                )
    made = args.output or args.file
    after = os.path.getsize(made)
    print(f"{made}: {format_size(size)}, now {format_size(after)}", file=sys.stderr)
