"""Run a script that was written for MDAnalysis, with paceline's readers and workers.

    python -m paceline script.py [its arguments]
    python -m paceline -m module [its arguments]
    mpirun -n 64 python -m paceline script.py

The script is not changed: `paceline.register` is in force while it runs. Under ``mpirun`` the first
rank runs it, and all ranks work in its analyses.
"""

import argparse
import ast
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from paceline._util.launcher import launched
from paceline._util.script import BAD_ARGUMENTS, run_script

_WITH_VALUE = ("-j", "--workers")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script or module that is named on the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Our options, the script and its arguments; by default those of the process.

    Returns
    -------
    int
        The script's exit status.
    """
    ours, script, module = _split(sys.argv[1:] if argv is None else list(argv))
    parser = _parser()
    options = parser.parse_args(ours)
    if not script:
        parser.print_usage(sys.stderr)
        print("paceline: error: expected a script, or -m and a module", file=sys.stderr)
        return BAD_ARGUMENTS
    if not module:
        # Functions of modules beside the script are imported where they are called.
        sys.path[0] = os.path.dirname(os.path.abspath(script[0]))
    if launched()[0] == 1 or options.every_rank:
        return _run(script, module, options)
    if not module and _uses_mpi(script[0]):
        print(
            f"paceline: error: {script[0]} imports mpi4py, so it expects to run on every rank: "
            "add --every-rank before its name",
            file=sys.stderr,
        )
        return BAD_ARGUMENTS
    from paceline.backends.mpi import run_on_first_rank

    return run_on_first_rank(lambda: _run(script, module, options))


def _split(argv: list[str]) -> tuple[list[str], list[str], bool]:
    """Split arguments into ours and the script's or module's own; the last is true of a module."""
    k = 0
    while k < len(argv):
        if argv[k] == "-m":
            return argv[:k], argv[k + 1 :], True
        if not argv[k].startswith("-"):
            break
        k += 2 if argv[k] in _WITH_VALUE else 1
    return argv[:k], argv[k:], False


def _parser() -> argparse.ArgumentParser:
    from paceline.cli.options import positive

    parser = argparse.ArgumentParser(
        prog="python -m paceline",
        usage="python -m paceline [options] (script.py | -m module) [its arguments]",
        description="Run a script that was written for MDAnalysis: its trajectories are read by "
        "paceline where it can, its analyses use all cores, or all ranks under mpirun.",
        epilog="example: python -m paceline -j 4 rmsd.py md.tpr md.xtc",
        allow_abbrev=False,
    )
    parser.add_argument(
        *("-j", "--workers"), type=positive, metavar="N", help="workers; default: all CPUs"
    )
    parser.add_argument(
        "--no-native", action="store_true", help="run MDAnalysis's RMSD, RMSF and InterRDF itself"
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="raise where a trajectory has to be left to MDAnalysis's own reader",
    )
    parser.add_argument(
        "--every-rank",
        action="store_true",
        help="under mpirun, run the script on each rank, as one that uses mpi4py expects",
    )
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="do not print at the end how analyses were run"
    )
    return parser


def _run(script: list[str], module: bool, options: argparse.Namespace) -> int:
    """Run the script with paceline registered; its exit status."""
    from paceline.registration import register

    registration = register(
        native=not options.no_native, n_workers=options.workers, strict=options.strict
    )
    with registration:
        status = run_script(script, module=module)
    if not options.quiet:
        print(registration.summary(), file=sys.stderr)
    return status


def _uses_mpi(script: str) -> bool:
    """Check whether a script imports mpi4py; False if it cannot be read, which running it tells."""
    try:
        tree = ast.parse(Path(script).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    names = [
        name
        for node in ast.walk(tree)
        for name in (
            [one.name for one in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    ]
    return any(name.partition(".")[0] == "mpi4py" for name in names)


if __name__ == "__main__":
    sys.exit(main())
