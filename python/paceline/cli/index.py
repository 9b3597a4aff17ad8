"""paceline index."""

import argparse
from typing import Any

from paceline.cli.arguments import add_hdf5_arguments
from paceline.cli.common import hdf5_options

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
    parser.add_argument("file", nargs="+", help="XTC, TRR, DCD, NetCDF, HISTORY, CONFIG or HDF5")
    parser.add_argument("--refresh", action="store_true", help="make it anew")
    add_hdf5_arguments(parser)
    return parser


def run(args: argparse.Namespace) -> None:
    """Do it."""
    from paceline.hdf5.asked import Asked
    from paceline.opening import open_file

    asked = Asked(**hdf5_options(args))
    for path in args.file:
        core = open_file(path, asked=asked, refresh=args.refresh)
        n_bytes = "unknown" if core.traffic is None else core.traffic[0]
        read = f"{n_bytes} of {core.size} bytes read"
        where = core.index_file or "not saved"
        print(path, f"{core.n_frames} frames", core.index_origin, read, where, sep="\t")
