"""Command `convergence`, which assesses if saved time series are equilibrated and sampled."""

import argparse
import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paceline._util.files import check_distinct, check_output
from paceline.cli.options import (
    add_figure_arguments,
    add_json_argument,
    add_table_arguments,
    figure_options,
    label_tables,
    print_json,
)
from paceline.cli.parser_and_file_arguments import CommandParser, Commands
from paceline.errors import UnsupportedError

if TYPE_CHECKING:
    from paceline.analysis.convergence_of_table_series import SeriesVerdict
    from paceline.analysis.figures import ShownVerdicts
    from paceline.analysis.saved_table_format import SavedTable
    from paceline.analysis.table import Table

_UNIT = r"(?i:fs|ps|ns|us|µs|ms)"
#: Titles of times and frames in tables of other programs, such as "t (ps)", "#Frame", "time[ns]".
#: A capital "T" is excluded, because it is usually a temperature.
_OTHER_TITLE = re.compile(
    r"#?\s*(?:(?P<frame>(?i:frame(?P<counts>s)?))|(?i:(?:simulation )?time)|t)"
    rf"(?:\s*(?:\[\s*(?P<square>{_UNIT})?\s*\]|\(\s*(?P<round>{_UNIT})?\s*\))"
    rf"|(?:\s*[/_]\s*|\s+)(?P<plain>{_UNIT}))?\s*"
)

#: Description, for error messages, of the tables that the command can assess.
TIME_SERIES = (
    "time series: a column of increasing times, titled time (ps), or frames, titled frame, and "
    "columns of numbers"
)
EXAMPLES = """\
examples:
  paceline convergence rmsd.csv gyration.csv sasa.csv
  paceline convergence rmsd.csv --precision 0.1 --plot start.png
  paceline convergence run1/rmsd.csv run2/rmsd.csv run3/rmsd.csv --replicas
  paceline convergence gmx-gyrate.xvg --y Rg --json
"""


def add_convergence(commands: Commands) -> CommandParser:
    """Add the command `convergence` and its arguments."""
    parser = commands.add_parser(
        "convergence",
        help="find out whether a simulation is long enough",
        description="Assess the time series of saved tables: the frame from which each is "
        "equilibrated, the mean from there on with its 95 % interval, the number of independent "
        "values, and a verdict: sampled, not shown to be sampled, or drifting. The tables may be "
        "those of paceline, .xvg files of GROMACS, or other tables with a column of times. The "
        "exit status is 0 whatever the verdict.",
        epilog=EXAMPLES,
    )
    add_table_arguments(parser, "all series")
    add = parser.section("calculation").add_argument
    add(
        "--replicas",
        action="store_true",
        help="the tables are of replicas of one system: assess each series between them",
    )
    add(
        "--precision",
        type=_above_0,
        metavar="X",
        help="half the width of the 95 %% interval that is wanted, in the unit of the series",
    )
    add(
        "--kind",
        choices=["linear", "angle", "states"],
        help="meaning of the values [angle for periodic angles, states for numbers of clusters, "
        "otherwise linear]",
    )
    output = parser.section("output")
    add_json_argument(output, "ConvergenceDocument")
    endings = "figure of the series, with starts shaded: .png, .svg, .pdf"
    output.add_argument("--plot", type=Path, metavar="FILE", help=endings)
    output.add_argument("--overwrite", action="store_true", help="replace files that exist")
    add_figure_arguments(parser)
    parser.set_defaults(run=run_convergence)
    return parser


def _above_0(text: str) -> float:
    """Convert a text without a unit to a number above 0; its unit is that of the series."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")
    return value


def run_convergence(args: argparse.Namespace) -> None:
    """Run the command `convergence`."""
    from paceline.analysis.convergence_of_table_series import system_verdict
    from paceline.analysis.results import check_figure_ending, save_figure
    from paceline.analysis.saved_table_format import read_saved
    from paceline.analysis.table import name_and_unit
    from paceline.cli.print_results import files_of, json_of_verdicts, say

    options = figure_options(args, args.plot)
    _check_different(args)
    if args.plot is not None:
        for table in args.tables:
            check_distinct(table, args.plot)
        check_figure_ending(args.plot, style=options.style)
        check_output(args.plot, overwrite=args.overwrite)
    tables, notes, of_tables = {}, {}, {}
    for path in args.tables:
        try:
            saved, assumed = with_times(read_saved(path))
            if not _is_series(saved):
                raise UnsupportedError(f"{path}: expected {TIME_SERIES}")
            table = _series_of(saved, args)
            of_tables[path] = [] if args.replicas else _verdicts(path, table, args)
        except UnsupportedError as error:
            # If several tables are given, such as all tables of a folder, assess the others.
            if len(args.tables) == 1 or args.replicas:
                raise
            say(f"{path} is left out: {_reason(error, path)}")
            continue
        tables[path], notes[path] = table, assumed
        hint = "" if args.kind or args.y else _hint_of_texts(saved)
        for note in (*assumed, *filter(None, [hint])):
            say(f"{path}: {note}")
    if not tables:
        raise UnsupportedError(f"none of {len(args.tables)} tables has {TIME_SERIES}")
    refused = _why_not_drawable([*tables.values()]) if args.plot is not None else ""
    if args.replicas:
        found = _of_replicas(tables, args, notes)
    else:
        found = {
            _name(path, one.title, tables): _noted(one, notes[path])
            for path, of_table in of_tables.items()
            for one in of_table
        }
    answer = system_verdict({name_and_unit(name)[0]: one for name, one in found.items()})
    if args.json:
        series, written = json_of_verdicts(found), [] if refused else files_of(args.plot)
        print_json("convergence", series=series, answer=answer, written=written)
    else:
        print(format_verdicts(found))
        if answer:
            say(answer)
    if refused:
        raise UnsupportedError(f"{args.plot} is not written: {refused}")
    if args.plot is not None:
        label_tables(options, [*tables])
        shown = _shown_verdicts(found, tables, is_between=args.replicas)
        drawn = [*tables.values()]
        save_figure(drawn, args.plot, options, overwrite=args.overwrite, verdicts=shown)
        say(f"wrote {args.plot}")


def _reason(error: UnsupportedError, path: Path) -> str:
    """Return the text of an error as a reason, without the name of the table."""
    text = f"{error}".removeprefix(f"{path}: ")
    text = text.replace(f"expected {TIME_SERIES}", "its rows are not frames in time")
    return text if text == (without := text.removeprefix(f"{path} ")) else f"it {without}"


def _shown_verdicts(
    found: "Mapping[str, SeriesVerdict]", tables: "Mapping[Path, Table]", *, is_between: bool
) -> "ShownVerdicts":
    """Return the verdicts for the figure, by table and by title."""
    from paceline.analysis.figures import ShownVerdicts

    if is_between:
        return ShownVerdicts(between=found)
    of_tables = []
    for path, whole in tables.items():
        titles = [title for panel in whole.panels or [whole] for title in panel.y]
        names = {title: _name(path, title, tables) for title in titles}
        of_tables.append({title: found[name] for title, name in names.items() if name in found})
    return ShownVerdicts(of_tables)


def _name(path: Path, title: str, paths: Collection[Path]) -> str:
    """Name a series in the output; if there are several files, the name contains the file."""
    return f"{path}: {title}" if len(paths) > 1 else title


def with_times(saved: "SavedTable") -> "tuple[SavedTable, list[str]]":
    """Rename the column of times to its usual title; return the table, and notes on assumptions.

    If a table has no titles, its first column contains the times, provided that it increases. A
    single column contains values that are equally spaced in time.
    """
    from paceline.analysis.saved_table_format import FIGURE

    arrays = dict(saved.arrays)
    if saved.untitled:
        first = next(iter(arrays))
        if len(arrays) == 1:
            arrays = {"frame": np.arange(len(arrays[first])), **arrays}
            note = "without titles: values are taken to be equally spaced in time"
        elif arrays[first].dtype.kind == "f" and np.all(np.diff(arrays[first]) >= 0):
            arrays = {"time" if title == first else title: arrays[title] for title in arrays}
            note = "without titles: the first column is taken as the time, in an unknown unit"
        else:
            raise UnsupportedError(
                f"{saved.path}: without titles, the first column would be the time, but it does "
                "not increase: add a line of titles, such as time (ps),Rg (nm)"
            )
        return replace(saved, arrays=arrays), [note]
    if FIGURE in saved.facts or any(_is_usual(title) for title in arrays):
        return saved, []
    for title in arrays:
        known = _OTHER_TITLE.fullmatch(title)
        if known is None or (known["counts"] and not _are_numbers_of_frames(arrays, title)):
            continue
        usual = "frame" if known["frame"] else "time"
        unit = known["square"] or known["round"] or known["plain"]
        usual += f" ({unit.lower()})" if unit else ""
        arrays = {usual if one == title else one: arrays[one] for one in arrays}
        return replace(saved, arrays=arrays), [f"column {title!r} is taken as {usual}"]
    return saved, []


def _are_numbers_of_frames(arrays: "Mapping[str, np.ndarray]", title: str) -> bool:
    """True if a column with the title "frames" contains frame numbers, not counts of frames."""
    values = arrays[title]
    is_first = title == next(iter(arrays))
    return is_first and values.dtype.kind in "iuf" and bool(np.all(np.diff(values) > 0))


def _is_series(saved: "SavedTable") -> bool:
    """True if a table has a column of times or frames."""
    from paceline.analysis.table import Table

    return any(Table({}, title, {}, "").is_series for title in saved.columns)


def _is_usual(title: str) -> bool:
    """True for the titles of times and frames in tables of paceline and GROMACS."""
    has_unit = re.fullmatch(r"time( \(.*\))?", title, re.IGNORECASE) is not None
    return has_unit or title == "frame"


def _check_different(args: argparse.Namespace) -> None:
    """Raise an error if a table is given as two replicas; without --replicas, drop repeats."""
    from paceline.cli.print_results import say

    known: dict[str, Path] = {}
    for path in args.tables:
        first = known.setdefault(os.path.realpath(path), path)
        if first is path:
            continue
        if args.replicas:
            raise UnsupportedError(
                f"{path}: given as two replicas, whose means would seem to agree: list each table "
                "only once"
            )
        say(f"{path} is given twice, and assessed once")
    args.tables = [*known.values()]


def _series_of(saved: "SavedTable", args: argparse.Namespace) -> "Table":
    """Return the series of a table; if all columns are text, the error names --kind states."""
    with_texts = args.kind == "states"
    try:
        table = saved.in_time(args.y or (), texts=with_texts)
    except UnsupportedError:
        if with_texts or not (hint := _hint_of_texts(saved)):
            raise
        raise UnsupportedError(f"{saved.path}: {hint}") from None
    if args.y:
        # The verdict on a series must not depend on which other series are chosen.
        with suppress(UnsupportedError):
            whole = saved.in_time(texts=with_texts)
            table = replace(table, n_series=whole.n_series)
    return table


def _hint_of_texts(saved: "SavedTable") -> str:
    """Return a hint at the option for columns of text; empty if the table has no such column."""
    texts = (title for title, one in saved.arrays.items() if one.dtype.kind == "U")
    return next((f"{title!r} is text: --kind states assesses it" for title in texts), "")


def _why_not_drawable(tables: "Sequence[Table]") -> str:
    """Return why no figure is possible (text, or tables that cannot share one); otherwise ""."""
    from paceline.analysis.figures import check_same_kind

    if len(tables) > 1 and any(one.panels for one in tables):
        return "a figure of several tables shows one unit: select --y"
    try:
        if len(tables) > 1:
            check_same_kind(tables)
    except UnsupportedError as error:
        return f"{error}"
    for table in chain.from_iterable(one.panels or [one] for one in tables):
        for title in table.y:
            if table.columns[title].dtype.kind == "U":
                return f"column {title!r} is text, which has no figure"
    return ""


def _verdicts(path: Path, table: "Table", args: argparse.Namespace) -> "list[SeriesVerdict]":
    from paceline.analysis.convergence_of_table_series import place_out_of_order, table_verdicts

    found: list[SeriesVerdict] = []
    for panel in table.panels or [table]:
        try:
            some = table_verdicts(panel, kind=args.kind, precision=args.precision)
        except ValueError as error:
            raise UnsupportedError(f"{path}: {error}") from None
        found += some.values()
    if not found:
        places = filter(None, map(place_out_of_order, table.panels or [table]))
        where = next((f": {place}: sort the rows, or assess each part" for place in places), "")
        raise UnsupportedError(f"{path}: expected {TIME_SERIES}{where}")
    return found


def _noted(verdict: "SeriesVerdict", notes: "Sequence[str]") -> "SeriesVerdict":
    """Return a verdict with notes added to its reasons."""
    found = replace(verdict.found, reasons=(*verdict.found.reasons, *notes))
    return replace(verdict, found=found)


def _of_replicas(
    tables: "Mapping[Path, Table]",
    args: argparse.Namespace,
    notes: "Mapping[Path, Sequence[str]]",
) -> "dict[str, SeriesVerdict]":
    """Assess each series over all replicas, of which each has one table with the same columns."""
    from paceline.analysis.convergence_of_table_series import replica_verdict
    from paceline.analysis.duplicate_replicas import find_copies, left_out_copies, series_of
    from paceline.analysis.table import name_and_unit

    if len(tables) < 2:
        raise UnsupportedError("--replicas needs two different tables or more")
    panels = [table for whole in tables.values() for table in (whole.panels or [whole])]
    titles = list(dict.fromkeys(title for panel in panels for title in panel.y))
    found = {}
    series: dict[str, dict[str, Table | None]] = {}
    for path, whole in tables.items():
        series[str(path)] = {f"{k}": one for k, one in enumerate(whole.panels or [whole])}
    copies = find_copies({name: series_of(of_one) for name, of_one in series.items()})
    further = left_out_copies(copies)
    further += dict.fromkeys(chain.from_iterable(notes.values()))
    for title in titles:
        holders = [panel for panel in panels if title in panel.y]
        if len(holders) != len(tables):
            missing = [str(p) for p, t in tables.items() if title not in t.columns]
            raise UnsupportedError(f"{title!r} is not in {', '.join(missing)}: select --y")
        units = {
            str(name_and_unit(one.abscissa)[1]): path
            for one, path in zip(holders, tables, strict=True)
        }
        if len(units) > 1:
            (unit, path), (other, path2), *_ = units.items()
            raise UnsupportedError(
                f"{path} has times in {unit or 'no unit'}, but {path2} in {other or 'no unit'}"
            )
        named = dict(zip(map(str, tables), holders, strict=True))
        named = {name: one for name, one in named.items() if name not in copies}
        try:
            one = replica_verdict(named, title, kind=args.kind, precision=args.precision)
        except ValueError as error:
            raise UnsupportedError(f"{title}: {error}") from None
        found[title] = _noted(one, further)
    return found


def format_verdicts(found: "Mapping[str, SeriesVerdict]") -> str:
    """Format a table of verdicts, followed by their reasons."""
    from paceline.performance.number_format import aligned

    head = ("series", "verdict", "from", "mean from there on (95 %)", "mean of all", "independent")
    rows = [head]
    for name, one in found.items():
        n = one.found.n_independent
        independent = f"{n:,.0f} of {one.found.n_values:,}" if n == n else "–"
        means = "–" if one.found.equilibrated_from is None else one.mean_text, one.mean_of_all_text
        rows.append((name, one.found.verdict, one.start_text, *means, independent))
    lines = [*aligned(rows, left=5)]
    for name, one in found.items():
        needed = f"; {one.advice}" if one.advice else ""
        lines.append(f"{name}: {'; '.join(one.found.reasons)}{needed}")
    return "\n".join(lines)


PARSERS = {"convergence": add_convergence}
