"""How an H5MD file is laid out: arguments of the commands that write one."""

import argparse
from collections.abc import Callable
from typing import Any

from paceline.cli.arguments import given
from paceline.cli.values import size
from paceline.errors import UnsupportedError
from paceline.hdf5.compression import parse_compression, refuse_packed_space
from paceline.hdf5.layout import parse_chunk


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
        type=_checked(parse_chunk),
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
        type=_checked(parse_compression),
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

    Raises
    ------
    UnsupportedError
        They contradict each other.
    """
    if args.compress is not None:
        refuse_packed_space(args.chunk == "contiguous", parse_compression(args.compress))
    return given(args, "chunk", "for_", "align", "compress")


def _checked(parse: Callable[[str], Any]) -> Callable[[str], str]:
    """What a user wrote, once it is known to make sense."""

    def read(text: str) -> str:
        try:
            parse(text)
        except UnsupportedError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return read
