"""paceline advise."""

import argparse
import math
import sys
from typing import Any

from paceline.cli import rdf
from paceline.cli.arguments import (
    add_frame_arguments,
    add_system_arguments,
    add_transform_arguments,
)
from paceline.cli.values import positive

EXAMPLES = """\
examples:
  paceline advise md.tpr md.xtc
  paceline advise md.tpr md.xtc --for rmsf --unwrap --fit --begin 10ns
  paceline advise md.tpr md.xtc --for rdf --select "name OW" --range 0 10
  paceline advise md.tpr "md.part*.xtc" --select backbone --n-workers 16
  paceline advise md.tpr md.xtc --tsv | cut -f 1,4
"""

#: Atoms that each analysis takes unless others are named, as its own command does.
SELECT = {"rmsd": "protein and name CA", "rmsf": "protein and name CA", "rdf": rdf.SELECT}

COLUMNS = ("workers", "from memory (s)", "from the disk (s)", "now (s)", "efficiency")


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "advise",
        help="what an analysis would take, what bounds it, and what would help",
        description="Measure an analysis on a few blocks from the middle of the trajectory, and "
        "tell in some seconds how long all of it would take with 1, 2, 4 … workers, what bounds "
        "it, how many workers pay off, and whether another file would be faster.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_system_arguments(parser, select="as that analysis does")
    parser.set_defaults(select=None)
    add = parser.add_argument
    add(
        "--for",
        dest="analysis",
        choices=tuple(SELECT),
        default="rmsd",
        help="the analysis [%(default)s]",
    )
    add_frame_arguments(parser)
    add_transform_arguments(parser)
    add(
        "--backend",
        choices=("threads", "processes", "serial"),
        help="where blocks of frames would be computed [threads]",
    )
    add("--n-workers", type=positive, metavar="N", help="ask about so many workers, too")
    add(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="end at a damaged frame, or leave it out [%(default)s]",
    )
    add("--tsv", action="store_true", help="the times alone, tab-separated")
    rdf.add_pair_arguments(parser.add_argument_group("with --for rdf"))
    return parser


def run(args: argparse.Namespace) -> None:
    """Do it."""
    from paceline.advice import advise
    from paceline.cli.common import chain_options, transforms_of
    from paceline.universe import Universe

    # A long file needs no index for it, which may take a minute to make.
    options = {**chain_options(args), "sampled": not args.continuous}
    universe = Universe(args.topology, *args.trajectory, **options)
    if sys.stderr.isatty():
        print("paceline: measuring, for some seconds", file=sys.stderr)
    advice = advise(
        _analysis(universe, args),
        backend=args.backend,
        n_workers=args.n_workers,
        frames=_frames(universe.trajectory, args),
        transforms=transforms_of(args),
        on_error=args.on_error,
    )
    if not args.tsv:
        print(advice)
        return
    print(*COLUMNS, sep="\t")
    for n_workers, *times, efficiency in advice.rows():
        cells = ("-" if math.isnan(value) else f"{value:.4g}" for value in times)
        print(n_workers, *cells, f"{efficiency:.2f}", sep="\t")


def _analysis(universe: Any, args: argparse.Namespace) -> Any:
    """What advice is asked about."""
    from paceline.analysis.rms import RMSD, RMSF
    from paceline.cli.common import selected

    if args.select is None:
        args.select = SELECT[args.analysis]
    if args.analysis == "rdf":
        return rdf.rdf_of(universe, args)
    return {"rmsd": RMSD, "rmsf": RMSF}[args.analysis](selected(universe, args.select))


def _frames(trajectory: Any, args: argparse.Namespace) -> Any:
    """Frames that were asked for; of a sample, as if all frames were known."""
    from paceline.advice import Outline
    from paceline.cli.frames import frames_between

    chain = getattr(trajectory, "chain", None)
    if chain is not None and chain.is_sample:
        trajectory = Outline(chain)
    return frames_between(trajectory, args.begin, args.end)[:: args.step]
