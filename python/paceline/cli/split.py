"""paceline split."""

import argparse
from typing import Any

from paceline.cli.values import positive, size

EXAMPLES = """\
examples:
  paceline split md.xtc -n 24                        md.000.xtc ... md.023.xtc
  paceline split md.dcd --size 2GB -o pieces         pieces/md.000.dcd ...
  paceline split md.trr --frames 10000 -o part.trr   part.000.trr ...
"""


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "split",
        help="cut a trajectory into several files",
        description="Cut a trajectory at frame borders by copying bytes, without decoding. The "
        "pieces are numbered so that their names in order are the frames in order, and appear "
        "when all are complete. Their names go to standard output.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trajectory", help="XTC, TRR, DCD or HISTORY")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("-n", type=positive, metavar="N", help="number of pieces, alike in frames")
    how.add_argument("--frames", type=positive, metavar="N", help="frames of a piece")
    how.add_argument("--size", type=size, metavar="SIZE", help="most bytes of a piece: 500MB, 2GiB")
    parser.add_argument(
        "-o",
        "--output",
        metavar="NAME",
        help="folder for the pieces, which must exist; or NAME.xtc for NAME.000.xtc ... [beside "
        "the trajectory, under its name]",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist")
    parser.add_argument(
        "--n-workers",
        type=positive,
        metavar="N",
        help="pieces written at a time [the CPUs this process may use]",
    )
    return parser


def run(args: argparse.Namespace) -> None:
    """Do it."""
    from paceline.subfile import split

    pieces = split(
        args.trajectory,
        args.n,
        frames=args.frames,
        size=args.size,
        output=args.output,
        overwrite=args.overwrite,
        n_workers=args.n_workers,
    )
    print(*pieces, sep="\n")
