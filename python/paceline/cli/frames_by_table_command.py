"""Command `frames`: write the frames that rows of saved tables select."""

import argparse
import contextlib
import csv
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paceline import _core
from paceline._util.files import check_distinct, check_output, saved_together
from paceline.cli.options import (
    add_chain_arguments,
    add_json_argument,
    add_selection_arguments,
    add_transform_arguments,
    add_worker_arguments,
    positive,
    print_json,
)
from paceline.cli.parser_and_file_arguments import CommandParser, Commands
from paceline.errors import FileChangedError, UnsupportedError, warn
from paceline.performance.number_format import amount, many

if TYPE_CHECKING:
    from paceline.analysis.frames_by_table import ChosenFrames
    from paceline.analysis.saved_table_format import SavedTable

#: Maximum difference of times that counts as rounding: this fraction of the time, plus this number
#: of ps.
TIMES_APART = 1e-4
FRAMES_EXAMPLES = """\
examples:
  paceline frames rmsd.csv --where "rmsd < 2 and time > 10ns" -o near.xtc --structure near.pdb
  paceline frames rmsd.csv gyration.csv --where "rmsd < 2 and 15 < rg < 16" -o both.xtc
  paceline frames clusters.csv --where "cluster == 3" --select protein -o cluster3.pdb
  paceline frames rmsd.csv --lowest rmsd --number 5 -o best.pdb
  paceline frames --minimum surface.npz --number 10 -o minimum.pdb
  paceline frames rmsd.csv gyration.csv --bin surface.npz 2.1 16.5 -o state.xtc
  paceline frames rmsd.xvg -s md.tpr -f md.xtc --where "rmsd > 0.3nm" -o far.xtc
  paceline frames rmsd.csv --where "rmsd < 2"       # lists the rows
"""


def add_frames(commands: Commands) -> CommandParser:
    """Add the command `frames` and its arguments."""
    parser = commands.add_parser(
        "frames",
        help="write the frames that rows of a saved table select",
        description="Select frames by the rows of tables that other commands saved: by a condition "
        "on columns, by the smallest or largest values, or by a bin of a free-energy surface. "
        "Of several tables, only frames that occur in all tables are used. Rows are printed to "
        "standard output, and frames are written to -o in trajectory order. Without -s and -f, "
        "topology and trajectory are read from the header of the table.",
        epilog=FRAMES_EXAMPLES,
    )
    parser.usage = "%(prog)s [options] TABLE... [-s TOPOLOGY -f TRAJECTORY...] [-o OUTPUT]"
    add = parser.section("files").add_argument
    add("tables", nargs="*", metavar="TABLE", help=".csv, .tsv, .xvg or .npz")
    add("-s", "--topology", metavar="FILE", help="file that describes the system [the table's]")
    add(
        "-f",
        "--trajectory",
        nargs="+",
        action="extend",
        metavar="FILE",
        help="trajectory; several are one continued trajectory [the table's]; -f takes all names "
        "after it, so put tables before -f",
    )
    add = parser.section("frames").add_argument
    add(
        "--where",
        metavar="TEXT",
        help='condition on columns, by name without unit, such as "rmsd < 2 and time > 10ns"; '
        "put a name that is not a plain word in quotes (\"'phi ALA 2' > 100\"); numbers may have "
        "units (10ns, 2 Å); operators are <, <=, >, >=, ==, !=, and, or, not, parentheses",
    )
    by = parser.section("frames").add_mutually_exclusive_group()
    by.add_argument("--lowest", metavar="COLUMN", help="rows with the smallest values of a column")
    by.add_argument("--highest", metavar="COLUMN", help="rows with the largest values of a column")
    by.add_argument(
        "--minimum",
        dest="surface",
        metavar="SURFACE",
        help="rows in the bin of lowest free energy of a surface saved by 'paceline surface -o "
        "SURFACE' (.npz, .csv); tables are found from the surface",
    )
    by.add_argument(
        "--bin",
        nargs=3,
        metavar=("SURFACE", "X", "Y"),
        help="rows in the bin of a surface that contains the point (X, Y)",
    )
    add(
        "--number",
        type=positive,
        metavar="N",
        help="maximum number of rows: with the smallest or largest values [1], nearest to the "
        "center of the bin, or else the first ones [all]",
    )
    add_chain_arguments(parser)
    add_selection_arguments(parser, select=("all",))
    add_transform_arguments(parser)
    add_worker_arguments(parser)
    add = parser.section("output").add_argument
    add(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="trajectory or structure file to write, in any format of 'paceline convert' [none]",
    )
    add(
        "--structure",
        type=Path,
        metavar="FILE",
        help="structure file with the same atoms in the first frame: .pdb, .gro, .xyz, .crd or "
        ".cif",
    )
    add("--overwrite", action="store_true", help="replace files that exist")
    add_json_argument(parser.section("output"), "ChosenFramesDocument")
    parser.set_defaults(run=run_frames)
    return parser


def run_frames(args: argparse.Namespace) -> None:
    """Run the command `frames`."""
    from paceline.analysis.convert import Write, format_with
    from paceline.analysis.frames_by_table import choose_frames
    from paceline.cli.shared_analysis_steps import (
        check_report,
        run_analysis,
        save_report,
        select_nonempty,
        system_of,
    )

    if args.output is not None:
        check_distinct(args.output, args.structure, args.report)
        check_output(args.output, overwrite=args.overwrite)
        format_with(args.output, ())
    elif args.structure is not None:
        raise UnsupportedError("--structure needs an output trajectory: add -o")
    check_report(args)
    if (args.topology is None) != (args.trajectory is None):
        raise UnsupportedError("expected both -s and -f, or neither, found one of them")
    surface, at = args.surface, None
    if args.bin is not None:
        surface, at = args.bin[0], _point(args.bin[1:])
    chosen = choose_frames(
        args.tables,
        where=args.where,
        lowest=args.lowest,
        highest=args.highest,
        surface=surface,
        at=at,
        number=args.number,
    )
    n_written: int | None = None
    n_atoms: int | None = None
    if args.output is not None:
        fingerprints = _take_files(args, chosen.tables)
        universe = system_of(args)
        frames = chosen.in_trajectory(universe.trajectory)
        _check_same(universe.trajectory, args.trajectory, fingerprints, chosen)
        atoms = universe.atoms if args.select is None else select_nonempty(universe, args.select)
        write = Write(atoms, args.output, structure=args.structure, overwrite=args.overwrite)
        with saved_together():
            run_analysis(args, write, frames=frames)
            save_report(args, write.timings)
        n_written, n_atoms = write.results.n_written, len(atoms)
        summary = f"{args.output}: {many(write.results.n_written, 'frame')} of {len(atoms)} atoms"
        print(f"{summary}, {amount(write.results.n_bytes)}", file=sys.stderr)
    if args.json:
        print_json(
            "frames",
            columns=[*chosen.columns],
            rows=[*zip(*(values.tolist() for values in chosen.columns.values()), strict=True)],
            output=args.output,
            frames=n_written,
            atoms=n_atoms,
            written=[path for path in (args.output, args.structure, args.report) if path],
        )
        return
    rows = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
    rows.writerow(chosen.columns)
    for row in zip(*(values.tolist() for values in chosen.columns.values()), strict=True):
        rows.writerow(int(value) if value.is_integer() else value for value in map(float, row))


def _point(texts: Sequence[str]) -> tuple[float, float]:
    """Convert the two coordinates of --bin to numbers."""
    try:
        x, y = map(float, texts)
    except ValueError:
        raise UnsupportedError(
            f"--bin: expected a surface and two numbers, found {' '.join(texts)} as the numbers"
        ) from None
    return x, y


def _take_files(args: argparse.Namespace, tables: Sequence["SavedTable"]) -> list[str]:
    """Set topology and trajectory from the header of the tables, unless the arguments set them.

    Returns the fingerprints of the trajectories in the header; empty if the arguments set files.
    """
    from paceline.analysis.frames_by_table import files_of

    if args.topology is not None:
        return []
    args.topology, args.trajectory, fingerprints = files_of(tables)
    for path in (args.topology, *args.trajectory):
        if not os.path.exists(path):
            raise UnsupportedError(
                f"{tables[0].path} was computed from {path}, which does not exist: add the files "
                "with -s and -f"
            )
    if any("--continuous" in shlex.split(one.facts.get("command", "")) for one in tables):
        args.continuous = True  # frame numbers depend on this option
    return fingerprints


def _check_same(
    trajectory: object,
    paths: Sequence[str],
    fingerprints: Sequence[str],
    chosen: "ChosenFrames",
) -> None:
    """Warn if the trajectory's files or times differ from those that the table records."""
    from paceline.analysis.frames_by_table import FRAME, TIME, times_of

    table = chosen.tables[0].path
    for path, fingerprint in zip(paths, fingerprints, strict=False):
        with contextlib.suppress(ValueError):  # files that MDAnalysis reads have no fingerprint
            try:
                _core.verify(path, fingerprint)
            except FileChangedError:
                warn(
                    f"{path} has changed since {table} was computed from it: its frame numbers "
                    "may refer to other frames"
                )
    if chosen.frames is None or TIME not in chosen.columns:
        return
    rows = chosen.columns[FRAME].astype(np.int64)
    wanted, there = chosen.columns[TIME], times_of(trajectory)[rows]
    other = np.abs(wanted - there) > TIMES_APART * np.abs(wanted) + TIMES_APART
    if other.any():
        warn(
            f"{table}: frame {rows[other][0]} is at {wanted[other][0]:g} ps, but in the "
            f"trajectory at {there[other][0]:g} ps: this may be another trajectory, or it may need "
            "--dt or --continuous"
        )


PARSERS = {"frames": add_frames}
