"""paceline info."""

import argparse
from typing import Any

from paceline.cli.arguments import add_hdf5_arguments
from paceline.cli.common import hdf5_options

EXAMPLES = """\
examples:
  paceline info md.xtc
  paceline info --tsv run*/md.xtc | sort -k3
  paceline info dump.h5 --particles solute --units "nm, fs"
  paceline info positions.h5 --dataset pos --units nm
"""


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "info",
        help="what a trajectory file holds",
        description="Format, atoms, frames, times and cell of trajectory files, and where the "
        "frame index is kept. Of HDF5 files also what is in them, how it lies there, what reading "
        "that costs, and whether writing it anew with paceline repack pays.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="+", help="XTC, TRR, DCD, NetCDF, HISTORY, CONFIG or HDF5")
    parser.add_argument("--tsv", action="store_true", help="one line a file, tab-separated")
    add_hdf5_arguments(parser)
    return parser


def run(args: argparse.Namespace) -> None:
    """Do it."""
    from paceline.cli.facts import facts_of
    from paceline.hdf5.asked import Asked

    asked = Asked(**hdf5_options(args))
    if args.tsv:
        files = [dict(facts_of(path, asked)) for path in args.file]
        # Formats have headings of their own.
        headings = list(dict.fromkeys(heading for facts in files for heading in facts))
        print(*headings, sep="\t")
        for facts in files:
            print(*(facts.get(heading, "-") for heading in headings), sep="\t")
        return
    for k, path in enumerate(args.file):
        shown: dict[str, Any] = {}
        try:
            shown.update(facts_of(path, asked))
        finally:
            # What is known of a file that cannot be read, or not without further words.
            if len(shown) > 1:
                width = max(map(len, shown))
                print(*(f"{key:{width}}  {value}" for key, value in shown.items()), sep="\n")
        if k + 1 < len(args.file):
            print()
