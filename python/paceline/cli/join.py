"""paceline join."""

import argparse
from typing import Any

from paceline.cli.values import positive

EXAMPLES = """\
examples:
  paceline join "md.part*.xtc" -o md.xtc
  paceline join run1.dcd run2.dcd -o whole.dcd
"""


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "join",
        help="put several trajectories into one file",
        description="Put trajectories of one format and one system together in the order given, "
        "by copying bytes, without decoding. No frame is dropped: where restarts overlap, a "
        "warning says so.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "trajectory",
        nargs="+",
        help='XTC, TRR, DCD or HISTORY; or a pattern such as "md.part*.xtc", part2 before part10',
    )
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the whole")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that exists")
    parser.add_argument(
        "--n-workers",
        type=positive,
        metavar="N",
        help="files copied at a time [the CPUs this process may use]",
    )
    return parser


def run(args: argparse.Namespace) -> None:
    """Do it."""
    from paceline.subfile import join

    join(args.trajectory, args.output, overwrite=args.overwrite, n_workers=args.n_workers)
