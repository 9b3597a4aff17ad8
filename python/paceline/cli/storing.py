"""How an H5MD file is laid out: arguments of the commands that write one."""

import argparse
from typing import Any

from paceline.cli.arguments import size


def add_layout_arguments(parser: argparse.ArgumentParser, *, compress: str = "none") -> None:
    """Add where numbers stand in an H5MD file, and what is done to them.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        Of the command.
    compress : str
        What the command does by default.
    """
    add = parser.add_argument_group("H5MD").add_argument
    add(
        "--chunk",
        metavar="SHAPE",
        help="frame: one frame a chunk; FRAMESxATOMS, such as 16x1000; contiguous: no chunks; "
        "auto: what suits --for [auto]",
    )
    add(
        "--for",
        dest="for_",
        choices=("frames", "atoms", "both"),
        help="what the file will be read for: whole frames, few atoms through all frames, or both "
        "[frames]",
    )
    add(
        "--align",
        type=size,
        metavar="SIZE",
        help="begin chunks at multiples of it, such as the stripe of a file system: 1MiB",
    )
    add(
        "--compress",
        metavar="HOW",
        help="none, gzip:1 to gzip:9 or, smaller but read more slowly where few atoms are wanted, "
        f"shuffle+gzip:4 [{compress}]",
    )


def layout_options(args: argparse.Namespace) -> dict[str, Any]:
    """What was asked for of the layout.

    Parameters
    ----------
    args : argparse.Namespace
        The command's arguments.

    Returns
    -------
    dict
        Keywords: those of "chunk", "for_", "align" and "compress" that were given.
    """
    given = {name: getattr(args, name) for name in ("chunk", "for_", "align", "compress")}
    return {name: value for name, value in given.items() if value is not None}
