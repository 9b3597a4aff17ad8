"""Output of analysis commands: messages on stderr, the table on a terminal, and JSON."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.analysis.convergence_of_table_series import verdicts_with_angles
from paceline.analysis.results import shown_cell
from paceline.analysis.table import Table, name_and_unit
from paceline.cli.json_output import MOST_DESCRIBED
from paceline.contract.analysis_declaration import ON_STRUCTURE
from paceline.performance.number_format import aligned, many, shortened

if TYPE_CHECKING:
    from paceline.analysis.battery import Battery
    from paceline.analysis.convergence_of_table_series import SeriesVerdict
    from paceline.analysis.replicas import Replicas
    from paceline.analysis.results import Results
    from paceline.cli.json_output_schema import (
        Column,
        DifferenceOfGroups,
        GroupMean,
        LeftOutFrame,
        MeanOfSeries,
        TableShape,
        Timing,
    )
    from paceline.live_runner import Update
    from paceline.timing import Timings

#: Value of -o that prints the whole table to stdout.
STDOUT = Path("-")
#: Maximum number of table rows that a terminal shows.
MOST_ROWS = 20
#: Maximum number of characters per cell of a table on a terminal.
MOST_CHARACTERS = 40
#: Maximum number of characters for the names of trajectory files in the message about the input.
MOST_OF_FILES = 80
#: Maximum number of replicas whose input is printed, one line for each.
MOST_RUNS = 3


def say(text: str) -> None:
    """Print one line with the prefix "paceline:" on stderr."""
    print(f"paceline: {text}", file=sys.stderr)


def say_results(results: "Results", *paths: Path | None, left_out: str = "") -> None:
    """Print on stderr the files that were read, the summary of the results, and the files written.

    `left_out` is a note about the part of the table that is not shown; it is printed last.
    """
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


def files_of(*paths: Path | None) -> list[Path]:
    """Return the paths that are files, and the PDB file written beside each viewer script."""
    written = [path for path in paths if path is not None and path != STDOUT]
    for path in list(written):
        if path.suffix.lower() in ON_STRUCTURE and (pdb := path.with_suffix(".pdb")) not in written:
            written.insert(written.index(path) + 1, pdb)
    return written


def _say_files(*paths: Path | None) -> None:
    if written := files_of(*paths):
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


def json_of_results(results: "Results") -> dict[str, object]:
    """Convert results to the JSON values that a command prints."""
    table = results.table
    means: list[MeanOfSeries] = []
    if table is not None:
        for title, one in table.means(table.answering[:MOST_DESCRIBED]).items():
            means.append(
                {
                    "series": title,
                    "unit": name_and_unit(title)[1],
                    "mean": one.mean,
                    "interval": (one.mean - one.interval, one.mean + one.interval),
                    "error": one.error,
                    "block_error": one.block_error,
                    "n_values": one.n_values,
                    "n_independent": one.n_independent,
                    "converged": bool(one.converged),
                }
            )
    verdicts = verdicts_with_angles(table) if table is not None else {}
    return {
        "analysis": results.provenance.get("analysis"),
        "provenance": results.provenance,
        "table": None if table is None else _shape_of(table),
        "means": means,
        "sampling": json_of_verdicts(verdicts),
        "findings": [{"name": name, "text": text} for name, text in results.findings.items()],
        "summary": results.summary(),
    }


def _shape_of(table: Table) -> "TableShape":
    """Describe rows and columns of a table."""
    columns: list[Column] = []
    for title in [*table.columns][:MOST_DESCRIBED]:
        values = np.asarray(table.columns[title])
        known = values[np.isfinite(values)] if values.dtype.kind in "iufb" else values[:0]
        name, unit = name_and_unit(title)
        low, high = (float(known.min()), float(known.max())) if len(known) else (None, None)
        columns.append(
            {
                "title": title,
                "name": name,
                "unit": unit,
                "type": values.dtype.name,
                "minimum": low,
                "maximum": high,
            }
        )
    rows = max(map(len, table.columns.values()), default=0)
    return {"rows": rows, "n_columns": len(table.columns), "columns": columns}


def json_of_verdicts(found: "Mapping[str, SeriesVerdict]") -> list[dict[str, object]]:
    """Convert the verdicts on the sampling of series to JSON values."""
    return [
        {"series": name, "unit": one.unit.strip(), "time_title": one.x_title, **asdict(one.found)}
        for name, one in found.items()
    ]


def json_of_timings(timings: "Timings") -> "Timing":
    """Convert the times of a run to JSON values."""
    return {
        "backend": timings.backend,
        "workers": timings.n_workers,
        "frames": timings.n_frames,
        "seconds": timings.t_total,
        "topology_s": timings.t_init_top,
        "trajectory_s": timings.t_init_traj,
        "collecting_s": timings.t_comm,
    }


def json_of_frames(damaged: Sequence[tuple[int, str]]) -> "list[LeftOutFrame]":
    """Convert frames that a run left out to JSON values."""
    return [{"frame": int(frame), "reason": reason} for frame, reason in damaged]


def json_of_battery(battery: "Battery | Replicas") -> dict[str, object]:
    """Convert the results of a battery, or of replicas in groups, to JSON values."""
    from paceline.analysis.battery import Battery

    analyses: list[dict[str, object]] = []
    means: list[GroupMean] = []
    differences: list[DifferenceOfGroups] = []
    if isinstance(battery, Battery):
        left_out = battery.left_out
        for name, one in battery.shown.items():
            facts = json_of_results(one.results)
            analyses.append({"name": name, "group": None, "replica": None, **facts})
    else:
        left_out = {key: why for one in battery.batteries for key, why in one.left_out.items()}
        for (group, replica, name), one in battery.shown.items():
            facts = json_of_results(one.results)
            analyses.append({"name": name, "group": group, "replica": replica, **facts})
        means, differences = _json_of_groups(battery)
    return {
        "analyses": analyses,
        "left_out_analyses": [{"name": name, "reason": why} for name, why in left_out.items()],
        "left_out_frames": json_of_frames(battery.damaged),
        "group_means": means,
        "differences": differences,
        "summary": battery.summary(),
        "timings": json_of_timings(battery.timings),
    }


def _json_of_groups(replicas: "Replicas") -> "tuple[list[GroupMean], list[DifferenceOfGroups]]":
    """Convert the means of groups of replicas, and their differences, to JSON values."""
    from paceline.analysis.replicas import NO_DIFFERENCE, NO_MEAN

    means: list[GroupMean] = []
    differences: list[DifferenceOfGroups] = []
    for name, of_series in replicas.means.items():
        for title, of_groups in of_series.items():
            unit = name_and_unit(title)[1]
            later = replicas.equilibrated_means(name).get(title, {})
            for group, one in of_groups.items():
                mean, half = float(one.mean), float(one.interval)
                part = later.get(group, NO_MEAN)
                centre, width = float(part.mean), float(part.interval)
                means.append(
                    {
                        "analysis": name,
                        "series": title,
                        "unit": unit,
                        "group": group,
                        "mean": mean,
                        "interval": (mean - half, mean + half),
                        "deviation": float(one.deviation),
                        "n_replicas": int(one.n_replicas),
                        "equilibrated_mean": centre,
                        "equilibrated_interval": (centre - width, centre + width),
                    }
                )
    for name, differing in replicas.differences.items():
        for title, of_pairs in differing.items():
            unit = name_and_unit(title)[1]
            parts = replicas.equilibrated_differences(name).get(title, {})
            for groups, two in of_pairs.items():
                value, half = float(two.difference), float(two.interval)
                after = parts.get(groups, NO_DIFFERENCE)
                change, width = float(after.difference), float(after.interval)
                differences.append(
                    {
                        "analysis": name,
                        "series": title,
                        "unit": unit,
                        "groups": groups,
                        "difference": value,
                        "interval": (value - half, value + half),
                        "p_value": float(two.p_value),
                        "detectable": float(two.detectable),
                        "equilibrated_difference": change,
                        "equilibrated_interval": (change - width, change + width),
                    }
                )
    return means, differences
