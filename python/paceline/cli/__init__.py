"""The command line: one module a subcommand."""

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from paceline._core import __version__
from paceline.cli import index, info, rmsd, rmsf
from paceline.errors import PacelineError, PacelineWarning, SelectionError, UnsupportedError

#: Exit statuses: the data, the arguments, and Ctrl-C.
BAD_DATA, BAD_ARGUMENTS, INTERRUPTED = 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; by default the process's own.

    Returns
    -------
    int
        0; 1 where the data are at fault, 2 where the arguments are, 130 after Ctrl-C.
    """
    args = _parser().parse_args(argv)
    warnings.showwarning = _show_warning
    try:
        args.run(args)
    except BrokenPipeError:
        # Whoever read our output has enough; Python must not complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("paceline: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if args.debug:
            traceback.print_exc()
        else:
            print(f"paceline: error: {_one_line(error)}", file=sys.stderr)
        return _status(error)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="paceline",
        description="Analyse molecular dynamics trajectories on every core.",
        epilog="paceline COMMAND --help explains each command, with examples.",
    )
    parser.add_argument("--version", action="version", version=f"paceline {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (info, rmsd, rmsf, index):
        command = module.add_to(commands)
        command.set_defaults(run=module.run)
        command.add_argument("--debug", action="store_true", help="show where an error arose")
    return parser


def _status(error: Exception) -> int:
    """Whether the arguments or the data are at fault."""
    from MDAnalysis.exceptions import SelectionError as TheirSelectionError

    arguments = (
        SelectionError,
        TheirSelectionError,
        UnsupportedError,
        FileNotFoundError,
        FileExistsError,
    )
    if isinstance(error, arguments):
        return BAD_ARGUMENTS
    ours = isinstance(error, PacelineError)
    return BAD_ARGUMENTS if isinstance(error, ValueError | TypeError) and not ours else BAD_DATA


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def _show_warning(
    message: Warning | str, category: type[Warning], *place: Any, **more: Any
) -> None:
    if issubclass(category, PacelineWarning):
        print(f"paceline: warning: {message}", file=sys.stderr)
