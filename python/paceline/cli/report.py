"""paceline report."""

import argparse
import sys
from pathlib import Path
from typing import Any

EXAMPLES = """\
examples:
  paceline rmsd md.tpr md.xtc -o rmsd.csv --report run.csv
  paceline report run.csv                  # makes run.html
  paceline report run.csv -o figures.png
"""


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "report",
        help="why a run was as fast as it was, from its saved timings",
        description="Make a report of timings that --report or Timings.to_csv saved: a page that "
        "can be read anywhere, without a network, or its figures alone.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("timings", type=Path, help="what --report FILE.csv or Timings.to_csv wrote")
    add(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="page: .html; figures: .png, .svg [.html beside the timings]",
    )
    add("--overwrite", action="store_true", help="replace a file that exists")
    return parser


def run(args: argparse.Namespace) -> None:
    """Do it."""
    from paceline.files import refuse_impossible
    from paceline.report.save import refuse_unknown_report
    from paceline.report.wording import many
    from paceline.timing import Timings

    output = args.output or args.timings.with_suffix(".html")
    refuse_unknown_report(output)
    refuse_impossible(output, overwrite=args.overwrite)
    timings = Timings.from_csv(args.timings)
    timings.report(output, overwrite=args.overwrite)
    frames = many(timings.n_frames, "frame")
    print(f"{output}: {frames} in {timings.t_total:.3f} s", file=sys.stderr)
