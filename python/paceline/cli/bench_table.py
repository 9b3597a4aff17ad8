"""What `paceline bench scaling` writes in words: the table, and the notes above the runs."""

import math
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from paceline._core import __version__
from paceline.cli.common import size_in_words
from paceline.machine import describe_machine, describe_system, describe_versions
from paceline.scaling import Point, ScalingRun, Spread, points

if TYPE_CHECKING:
    from paceline.cli.scaling import Bench

#: Packages that a backend stands on.
_OF_BACKEND = {"processes": ("loky",), "dask": ("dask", "distributed"), "mpi": ("mpi4py",)}
#: Columns of the table, beside those of speed-up and efficiency: title, and column of the runs.
_COLUMNS = (
    ("command (s)", "t_command (s)"),
    ("in task (s)", "t_in_task mean (s)"),
    ("scheduler (s)", "t_scheduler (s)"),
    ("read (s)", "t_io mean (s)"),
    ("decode (s)", "t_decode mean (s)"),
    ("compute (s)", "t_compute mean (s)"),
    ("start-up (s)", "t_startup mean (s)"),
    ("wait (s)", "t_wait mean (s)"),
)
HEADINGS = (
    *("scaling", "workers", "frames", "runs", "total (s)", "± (s)"),
    *("speed-up", "± (speed-up)", "efficiency", "± (efficiency)"),
    *(title for title, _ in _COLUMNS),
)


def table_of(runs: Sequence[ScalingRun], *, separated_by_tabs: bool) -> list[str]:
    """Lines of the table: means over repeats, and standard deviations.

    Parameters
    ----------
    runs : sequence of ScalingRun
        Of all modes.
    separated_by_tabs : bool
        Whether for programs, rather than for people.

    Returns
    -------
    list of str
    """
    rows = [HEADINGS]
    for mode in dict.fromkeys(run.mode for run in runs):
        some = points([run for run in runs if run.mode == mode])
        rows += [_row(mode, point) for point in some]
    if separated_by_tabs:
        return ["\t".join(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


def _row(mode: str, point: Point) -> tuple[str, ...]:
    total = point.columns["t_total (s)"]
    return (
        *(mode, f"{point.workers}", f"{point.columns['frames'].mean:.0f}", f"{total.n}"),
        *_both(total),
        *_both(point.speed_up, digits=2),
        *_both(point.efficiency, digits=2),
        *(f"{point.columns[name].mean:.3f}" for _, name in _COLUMNS),
    )


def _both(spread: Spread, digits: int = 3) -> tuple[str, str]:
    return tuple(
        "-" if math.isnan(value) else f"{value:.{digits}f}" for value in (spread.mean, spread.sd)
    )  # type: ignore[return-value]


def notes_of(bench: "Bench") -> Iterator[str]:
    """What is to be known of all runs, a line each.

    Parameters
    ----------
    bench : Bench
        With at least one run.

    Yields
    ------
    str
    """
    first, cached = bench.first, [run.values["cached before (%)"] for run in bench.runs]
    yield bench.title
    yield f"command: {bench.command_line}"
    yield f"started: {bench.started}"
    yield f"runs: {bench.how_far}, in turn over the numbers of workers, every second time backwards"
    yield f"machine: {describe_machine(bench.cpus)}"
    yield f"hosts that computed: {', '.join(sorted(bench.hosts))}"
    yield f"system: {describe_system()}"
    packages = ("MDAnalysis", "numpy", *_OF_BACKEND.get(bench.backend, ()))
    yield f"versions: paceline {__version__}, {describe_versions(packages)}"
    if bench.launcher:
        threads = first["n_workers"] // bench.counts[-1]
        yield f"MPI: {first['mpi']}; started by {bench.launcher}; {threads} threads a rank"
    yield from (
        f"trajectory: {path}, {size_in_words(os.path.getsize(path))}" for path in bench.files
    )
    yield (
        f"atoms: {first['n_atoms']}, of which {first['n_selected']} analysed; frames: "
        f"{first['values']['frames']:.0f} of {first['n_frames']}"
    )
    yield f"page cache: {bench.state.description}; {_cached_in_words(cached)}"
    yield from (f"note: {remark}" for remark in bench.remarks())
    yield "results: the same bits in all runs of as many frames (column digest)"
    yield "columns: mean and max are over the workers of a run"
    yield (
        "t_total: the run; the means of t_open to t_wait, and t_around (planning and collecting), "
        "add up to it; t_scheduler is all of it that is not t_in_task"
    )
    yield (
        "t_command: the whole command; it is t_start (until it ran, on all ranks), t_init_top and "
        "t_init_traj (opening, once), t_total, and t_rest (imports, selecting, ending)"
    )


def _cached_in_words(percent: Sequence[float]) -> str:
    """What runs found in memory."""
    if any(math.isnan(value) for value in percent):
        return "what was in memory before runs could not be seen"
    low, high = min(percent), max(percent)
    span = f"{low:.0f}" if round(low) == round(high) else f"{low:.0f} to {high:.0f}"
    return f"{span} % of the trajectory were in memory before runs"
