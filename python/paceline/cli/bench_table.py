"""What `paceline bench scaling` writes in words: the table, and the notes above the runs."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from paceline._core import __version__
from paceline.backends import available_cpus
from paceline.files import size_in_words
from paceline.machine import describe_machine, describe_system, describe_versions
from paceline.scaling import Point, ScalingRun, Spread, points

if TYPE_CHECKING:
    from paceline.cli.scaling import Bench

#: Packages that a backend stands on.
_OF_BACKEND = {"processes": ("loky",), "dask": ("dask", "distributed"), "mpi": ("mpi4py",)}


class _Column(NamedTuple):
    """A column of the table."""

    title: str
    of: Callable[[Point], Spread]
    digits: int = 3
    with_spread: bool = False


def _mean(title: str, name: str, *, with_spread: bool = False) -> _Column:
    return _Column(title, lambda point: point.columns[name], 3, with_spread)


_WHOLE = (
    _mean("total (s)", "t_total (s)", with_spread=True),
    _Column("speed-up", lambda point: point.speed_up, 2, True),
    _Column("efficiency", lambda point: point.efficiency, 2, True),
    _mean("command (s)", "t_command (s)", with_spread=True),
    _mean("in task (s)", "t_in_task mean (s)"),
    _mean("scheduler (s)", "t_scheduler (s)"),
)
_PARTS = (
    _mean("read (s)", "t_io mean (s)"),
    _mean("decode (s)", "t_decode mean (s)"),
    _mean("transform (s)", "t_transform mean (s)"),
    _mean("compute (s)", "t_compute mean (s)"),
    _mean("rest (s)", "t_overhead mean (s)"),
    _mean("abandoned (s)", "t_abandoned mean (s)"),
    _mean("start-up (s)", "t_startup mean (s)"),
    _mean("wait (s)", "t_wait mean (s)"),
    _mean("plan, collect (s)", "t_around (s)"),
)


def table_for_programs(runs: Sequence[ScalingRun]) -> Iterator[str]:
    """Make one line for each mode and number of workers, separated by tabs.

    Parameters
    ----------
    runs : sequence of ScalingRun
        Of all modes.

    Yields
    ------
    str
        Means over repeats and, in columns with ±, standard deviations; titles first.
    """
    columns = _WHOLE + _PARTS
    spreads = [title for one in columns for title in _titles(one)]
    yield "\t".join(("scaling", "workers", "frames", "runs", *spreads))
    for mode, some in _by_mode(runs):
        for point in some:
            cells = (cell for one in columns for cell in _cells(one, point))
            yield "\t".join((mode, *_whose(point), *cells))


def table_for_people(runs: Sequence[ScalingRun]) -> Iterator[str]:
    """Make aligned tables for each mode: the whole, and the parts of the mean worker's time.

    Parameters
    ----------
    runs : sequence of ScalingRun
        Of all modes.

    Yields
    ------
    str
        A line.
    """
    for mode, some in _by_mode(runs):
        yield f"{mode} scaling"
        rows = [("workers", "frames", "runs", *(one.title for one in _WHOLE))]
        for point in some:
            cells = (" ± ".join(_cells(one, point)) for one in _WHOLE)
            rows.append((*_whose(point), *cells))
        yield from _aligned(rows)
        yield ""
        yield "parts of the mean worker's time (s)"
        rows = [("workers", *(one.title.removesuffix(" (s)") for one in _PARTS))]
        for point in some:
            rows.append((f"{point.workers}", *(_cells(one, point)[0] for one in _PARTS)))
        yield from _aligned(rows)
        yield ""


def _by_mode(runs: Sequence[ScalingRun]) -> Iterator[tuple[str, list[Point]]]:
    for mode in dict.fromkeys(run.mode for run in runs):
        yield mode, points([run for run in runs if run.mode == mode])


def _whose(point: Point) -> tuple[str, str, str]:
    """Workers, frames and runs."""
    frames = point.columns["frames"]
    return f"{point.workers}", f"{frames.mean:.0f}", f"{frames.n}"


def _titles(column: _Column) -> list[str]:
    return [column.title, *([f"{column.title} ±"] if column.with_spread else [])]


def _cells(column: _Column, point: Point) -> list[str]:
    """A mean, and its spread where that is shown."""
    spread = column.of(point)
    values = (spread.mean, spread.sd) if column.with_spread else (spread.mean,)
    return ["-" if math.isnan(value) else f"{value:.{column.digits}f}" for value in values]


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return (
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


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
    yield f"machine: {describe_machine(available_cpus())}"
    yield f"hosts that computed: {', '.join(sorted(bench.hosts))}"
    yield f"system: {describe_system()}"
    packages = ("MDAnalysis", "numpy", *_OF_BACKEND.get(bench.backend, ()))
    yield f"versions: paceline {__version__}, {describe_versions(packages)}"
    if bench.launcher:
        threads = first["n_workers"] // bench.counts[-1]
        yield f"MPI: {first['mpi']}; started by {bench.launcher}; threads a rank: {threads}"
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
