"""paceline repack."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from paceline.cli.storing import add_layout_arguments, layout_options
from paceline.cli.values import positive
from paceline.files import size_in_words

#: A way of reading that takes so many times the bytes that it took is told of.
_DEARER = 2.0

EXAMPLES = """\
examples:
  paceline repack md.h5md
  paceline repack md.h5md atoms.h5md --for atoms
  paceline repack md.h5md small.h5md --compress shuffle+gzip:4 --precision 0.001
"""


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "repack",
        help="write an H5MD file anew in a layout that is read faster",
        description="Write positions, velocities and forces of an H5MD file anew in another "
        "layout, with the same numbers to the last bit, and copy everything else as it is. What is "
        "gained goes to standard output: bytes read for each byte used, before and after. "
        "'paceline info' tells whether it pays.",
        epilog=EXAMPLES,
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
    return parser


def run(args: argparse.Namespace) -> None:
    """Do it."""
    from paceline.backends import available_cpus
    from paceline.hdf5.repacking import repack

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
    print(f"{made}: {size_in_words(size)}, now {size_in_words(after)}", file=sys.stderr)
