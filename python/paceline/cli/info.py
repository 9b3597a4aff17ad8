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
    found: list[dict[str, Any]] = []
    try:
        for path in args.file:
            found.append({})
            try:
                found[-1].update(facts_of(path, asked))
            finally:
                if not args.tsv:
                    _show(found[-1], blank=len(found) > 1)
    finally:
        if args.tsv:
            _show_table(found)


def _show(facts: dict[str, Any], *, blank: bool) -> None:
    """One fact a line, where more is known than a name: of a file that cannot be read, too."""
    if len(facts) > 1:
        width = max(map(len, facts))
        lines = (f"{key:{width}}  {value}" for key, value in facts.items())
        print(*([""] if blank else []), *lines, sep="\n")


def _show_table(files: list[dict[str, Any]]) -> None:
    """One file a line, for those of which so much is known."""
    known = [facts for facts in files if len(facts) > 1]
    # Formats have headings of their own.
    headings = list(dict.fromkeys(heading for facts in known for heading in facts))
    if known:
        print(*headings, sep="\t")
    for facts in known:
        print(*(facts.get(heading, "-") for heading in headings), sep="\t")
