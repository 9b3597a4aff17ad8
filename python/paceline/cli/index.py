"""paceline index."""

import argparse
from typing import Any

EXAMPLES = """\
examples:
  paceline index md.xtc
  paceline index --refresh run*/md.xtc
"""


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "index",
        help="find a trajectory's frames once, so that later it opens at once",
        description="Make the frame index of trajectories and save it beside them (or in the "
        "user's cache, where their folder cannot be written). Every other command does so too.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="+", help="XTC, TRR, DCD or NetCDF")
    parser.add_argument("--refresh", action="store_true", help="make it anew")
    return parser


def run(args: argparse.Namespace) -> None:
    """Do it."""
    from paceline.opening import open_file

    for path in args.file:
        core = open_file(path, refresh=args.refresh)
        read = f"{core.traffic[0]} of {core.size} bytes read"
        where = core.index_file or "not saved"
        print(path, f"{core.n_frames} frames", core.index_origin, read, where, sep="\t")
