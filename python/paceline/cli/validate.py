"""paceline validate."""

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from paceline.cli.arguments import add_backend_arguments, add_hdf5_arguments
from paceline.cli.common import hdf5_options
from paceline.files import size_in_words

if TYPE_CHECKING:
    from paceline.analysis.validate import Finding, Verdict

EXAMPLES = """\
examples:
  paceline validate md.xtc
  paceline validate run*/md.xtc -o findings.tsv
  paceline validate md.xtc > findings.tsv && rm backup.xtc
"""

COLUMNS = ("file", "frame", "byte", "time (ps)", "verdict", "what")

#: Exit status where a file is bad.
BAD = 1


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "validate",
        help="read every frame and list what is wrong with it",
        description="Read, decode and judge every frame of trajectory files, and list what is "
        "bad, or worth a remark, a line each. The exit status is 1 if anything is bad.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("file", nargs="+", help="trajectory; each is judged by itself")
    add_backend_arguments(parser)
    add("-o", "--output", type=Path, metavar="FILE", help="tab-separated table [to stdout]")
    add("--overwrite", action="store_true", help="replace a file that exists")
    add_hdf5_arguments(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Do it; whether anything is bad is the exit status."""
    from paceline.analysis.validate import refuse_foreign, validate

    for path in args.file:
        refuse_foreign(path)
    bad = False
    with _output(args) as output:
        print(*COLUMNS, sep="\t", file=output)
        for path in args.file:
            verdict = validate(
                path, backend=args.backend, n_workers=args.n_workers, **hdf5_options(args)
            )
            for finding in verdict.findings:
                print(*_cells(path, finding), sep="\t", file=output)
            output.flush()
            print(_summary(verdict), file=sys.stderr)
            bad = bad or bool(verdict.bad)
    return BAD if bad else 0


@contextlib.contextmanager
def _output(args: argparse.Namespace) -> Iterator[IO[str]]:
    """Where the table goes."""
    from paceline.files import new_file

    if args.output is None:
        yield sys.stdout
    else:
        with new_file(args.output, overwrite=args.overwrite) as file:
            yield file


def _cells(path: str, finding: "Finding") -> tuple[Any, ...]:
    """One line of the table."""
    place = ("-" if value is None else value for value in (finding.frame, finding.byte))
    time = "-" if finding.time is None else f"{finding.time:.8g}"
    # What a damaged file holds may be any characters.
    what = " ".join(finding.what.split())
    return path, *place, time, "bad" if finding.bad else "remark", what


def _summary(verdict: "Verdict") -> str:
    remarks = len(verdict.remarks)
    return (
        f"{verdict.path}: {verdict.n_frames} frames, {len(verdict.bad)} bad, "
        f"{remarks} remark{'s' * (remarks != 1)}, {size_in_words(verdict.size)} "
        f"in {verdict.seconds:.1f} s"
    )
