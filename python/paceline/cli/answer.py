"""Output of analysis commands: messages on stderr, and the table on a terminal."""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.analysis.results import shown_cell
from paceline.contract.declaration import ON_STRUCTURE
from paceline.performance.number_format import aligned, many, shortened

if TYPE_CHECKING:
    from paceline.analysis.battery import Battery
    from paceline.analysis.replicas import Replicas
    from paceline.analysis.results import Results
    from paceline.live_runner import Update

#: Value of -o that prints the whole table to stdout.
STDOUT = Path("-")
#: Maximum number of table rows that a terminal shows.
MOST_ROWS = 20
#: Maximum number of characters per cell.
MOST_CHARACTERS = 40
#: Maximum number of characters for the names of the files.
MOST_OF_FILES = 80
#: Maximum number of replicas with a line each.
MOST_RUNS = 3


def say(text: str) -> None:
    """Print one line with the prefix "paceline:" on stderr."""
    print(f"paceline: {text}", file=sys.stderr)


def say_results(results: "Results", *paths: Path | None, left_out: str = "") -> None:
    """Print input, summary and output files; `left_out` is the part of the table not shown."""
    _say_read(results.provenance)
    for sentence in results.summary():
        say(sentence)
    _say_files(*paths)
    if left_out:
        say(left_out)


def say_battery(battery: "Battery | Replicas", *paths: Path | None) -> None:
    """Print the input, the summary of each analysis, and the output files."""
    runs = {f"{one.provenance['trajectory']}": one for one in battery.analyses.values()}
    for one in [*runs.values()][:MOST_RUNS]:
        _say_read({**one.results.provenance, "atoms": ""})
    if len(runs) > MOST_RUNS:
        say(f"read {many(len(runs) - MOST_RUNS, 'further replica')}")
    for sentence in battery.summary():
        say(sentence)
    _say_files(*paths)


def say_update(update: "Update") -> None:
    """Print the state of analyses while their trajectory grows."""
    say(f"{update}" if update.ended else f"{update}; Ctrl-C ends with all results")


def _say_files(*paths: Path | None) -> None:
    written = [path for path in paths if path is not None and path != STDOUT]
    for path in list(written):
        if path.suffix.lower() in ON_STRUCTURE and (pdb := path.with_suffix(".pdb")) not in written:
            written.insert(written.index(path) + 1, pdb)
    if written:
        say(f"wrote {', '.join(map(str, written))}")


def _say_read(facts: dict[str, Any]) -> None:
    if "frames analysed" not in facts:
        return
    files = shortened(f"{facts['trajectory']}", MOST_OF_FILES)
    atoms = f"{facts['atoms']}".partition(", indices")[0] if "atoms" in facts else ""
    read = [facts["frames analysed"], atoms]
    say(f"read {files}: {'; '.join(one for one in read if one)}")


def show_table(results: "Results") -> str:
    """Print the first rows of a table on a terminal; return a note about the rest."""
    table = results.whole_table()
    titles = [*table.columns]
    n_rows = max(map(len, table.columns.values()))
    columns: list[list[str]] = []
    room = shutil.get_terminal_size().columns
    for title in titles:
        cells = [title, *map(shown_cell, table.cells(title, slice(MOST_ROWS)))]
        cells = [shortened(cell, MOST_CHARACTERS) for cell in cells]
        room -= 2 + max(map(len, cells))
        if room < 0 and columns:
            break
        columns.append(cells)
    print(*aligned([*zip(*columns, strict=True)], left=0), sep="\n", flush=True)
    rows, more = n_rows - MOST_ROWS, len(titles) - len(columns)
    parts = [many(rows, "further row")] if rows > 0 else []
    parts += [many(more, "further column")] if more else []
    if not parts:
        return ""
    return f"{' and '.join(parts)} not shown: -o FILE.csv saves the table, -o - prints all of it"
