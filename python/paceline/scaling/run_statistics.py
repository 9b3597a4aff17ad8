"""Numbers of a scaling measurement: quantities of each run, speed-ups, and their table."""

import csv
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from paceline._util.files import new_file
from paceline.performance.components import ABANDONED, AROUND, AT_BLOCKS, STARTUP, WAIT, Component
from paceline.performance.records import WorkerTiming
from paceline.performance.timings import Timings

#: Components of a worker's time, which add up to its wall time: on blocks, and off them.
PARTS = (*AT_BLOCKS, ABANDONED, STARTUP, WAIT)
#: Columns of the time of the run, and of the whole command.
TOTAL, COMMAND = "t_total (s)", "t_command (s)"


@dataclass(frozen=True)
class ScalingRun:
    """Time and other quantities of one run.

    Attributes
    ----------
    mode : str
        "strong": the same frames for any number of workers; "weak": as many for each.
    backend : str
        Where blocks were computed.
    workers : int
        Workers, or ranks of MPI.
    repeat : int
        From 1.
    values : mapping of str to float
        By column, unit included.
    digest : str
        Of the results.
    """

    mode: str
    backend: str
    workers: int
    repeat: int
    values: Mapping[str, float]
    digest: str


@dataclass(frozen=True)
class Statistics:
    """Mean and standard deviation of some values.

    Attributes
    ----------
    mean : float
        Of the values.
    sd : float
        Their standard deviation, that of a sample; NaN for one value.
    n : int
        Number of values.

    Examples
    --------
    >>> Statistics.of([1.0, 2.0, 3.0])
    Statistics(mean=2.0, sd=1.0, n=3)
    """

    mean: float
    sd: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Sum up values, of which there may be none."""
        values = list(values)
        mean = statistics.fmean(values) if values else math.nan
        sd = statistics.stdev(values) if len(values) > 1 else math.nan
        return cls(mean, sd, len(values))


@dataclass(frozen=True)
class Point:
    """All runs at one number of workers.

    Attributes
    ----------
    workers : int
        Their number.
    base : int
        The least number of workers that was measured; speed-ups are relative to it.
    speed_up, efficiency : Statistics
        Of the run.
    command_speed_up, command_efficiency : Statistics
        Of the whole command: with the start of processes, imports and opening.
    columns : mapping of str to Statistics
        Every column of the table, s or as its name says.
    """

    workers: int
    base: int
    speed_up: Statistics
    efficiency: Statistics
    command_speed_up: Statistics
    command_efficiency: Statistics
    columns: Mapping[str, Statistics]


def quantities(timings: Timings, n_workers: int) -> dict[str, float]:
    """Sum up the timings of a run, over its workers and for each part of their time.

    The means of all parts and `t_around` add up to `t_total`. The quantities are those of
    Khoshlessan et al. 2020, Table 3, where they still exist; `t_scheduler` is the difference that
    Khoshlessan et al. 2017, Fig. 6C, show.

    Examples
    --------
    >>> from paceline.timing import BlockTiming
    >>> ms = 10**6
    >>> block = BlockTiming(0, 0, 0, 16, "host:1:2", 10 * ms, 100 * ms, wait=0, open=0,
    ...     read=20 * ms, decode=30 * ms, transform=0, compute=35 * ms, comm=0, bytes=8, calls=1)
    >>> timings = Timings(start=0, dealt=5 * ms, end=110 * ms, blocks=[block])
    >>> found = quantities(timings, 2)
    >>> round(found["t_in_task mean (s)"], 6), round(found["t_scheduler (s)"], 6)
    (0.045, 0.065)
    """
    window = (timings.last - timings.dealt) / 1e9
    workers = timings.workers()
    rows = [_times(one) for one in workers]
    idle = {**dict.fromkeys((part.column for part in PARTS), 0.0), WAIT.column: window}
    rows += [idle] * (n_workers - len(rows))
    in_task = [sum(row[part.column] for part in AT_BLOCKS) for row in rows]
    found = {
        "frames": float(timings.n_frames),
        "blocks": float(len(timings.blocks)),
        "t_total (s)": timings.t_total,
        "t_init_top (s)": timings.t_init_top,
        "t_init_traj (s)": timings.t_init_traj,
        **_mean_and_max("t_in_task", in_task),
        "t_scheduler (s)": timings.t_total - sum(in_task) / len(in_task),
        "t_around (s)": timings.t_total - window,
        "t_comm (s)": timings.t_comm,
    }
    for part in PARTS:
        found |= _mean_and_max(part.column, [row[part.column] for row in rows])
    found["read (MB)"] = sum(one.bytes for one in workers) / 1e6
    found["read calls"] = float(sum(one.calls for one in workers))
    return found


def column_of(part: Component) -> str:
    """Column of the mean time of a worker, or of the one time around blocks."""
    return f"{part.column} (s)" if part is AROUND else f"{part.column} mean (s)"


def _times(worker: WorkerTiming) -> dict[str, float]:
    """Time of a worker, s, by column; `t_wait` without the start-up."""
    times = {part.column: getattr(worker, part.quantity) for part in PARTS}
    times[WAIT.column] -= times[STARTUP.column]
    return times


def _mean_and_max(name: str, values: Sequence[float]) -> dict[str, float]:
    return {f"{name} mean (s)": sum(values) / len(values), f"{name} max (s)": max(values)}


def points(runs: Sequence[ScalingRun]) -> list[Point]:
    """Sum up runs of one mode and backend.

    For strong scaling S(N) = t(1) / t(N), for weak scaling N t(1) / t(N); E(N) = S(N) / N
    (Khoshlessan et al. 2020, Eqs. 2 and 3). Where one worker was not measured, the least number n
    takes its place, with S(n) = n. They are means over repeats, in each of which the runs were
    done in turn: noise that lasts longer than they do is in both times alike.

    Examples
    --------
    >>> runs = [ScalingRun("strong", "threads", n, 1, {"t_total (s)": t, "t_command (s)": t}, "")
    ...     for n, t in [(1, 8.0), (2, 5.0)]]
    >>> [(point.workers, point.speed_up.mean, point.efficiency.mean) for point in points(runs)]
    [(1, 1.0, 1.0), (2, 1.6, 0.8)]
    """
    counts = sorted({run.workers for run in runs})
    return [_point(n, counts[0], runs) for n in counts]


def _point(n: int, base: int, runs: Sequence[ScalingRun]) -> Point:
    here = [run for run in runs if run.workers == n]
    run_ups, command_ups = (_speed_ups(n, base, runs, column) for column in (TOTAL, COMMAND))
    return Point(
        n,
        base,
        Statistics.of(run_ups),
        Statistics.of(one / n for one in run_ups),
        Statistics.of(command_ups),
        Statistics.of(one / n for one in command_ups),
        {name: Statistics.of(run.values[name] for run in here) for name in here[0].values},
    )


def _speed_ups(n: int, base: int, runs: Sequence[ScalingRun], column: str) -> list[float]:
    """Speed-ups of the repeats that measured both numbers of workers."""
    times = {(run.workers, run.repeat): run.values[column] for run in runs}
    repeats = sorted({run.repeat for run in runs})
    # As much more work as there are more workers, where each has its own.
    ideal = n if runs[0].mode == "weak" else base
    return [
        ideal * times[base, one] / times[n, one]
        for one in repeats
        if (base, one) in times and (n, one) in times
    ]


def save_runs(
    path: str | os.PathLike,
    runs: Sequence[ScalingRun],
    notes: Iterable[str],
    *,
    overwrite: bool = False,
) -> None:
    """Write one line a run to a CSV file, below notes about all of them."""
    with new_file(path, overwrite=overwrite) as file:
        # One line each, whatever line breaks a selection has.
        file.writelines(f"# {' '.join(note.split())}\n" for note in notes)
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("mode", "backend", "workers", "repeat", *runs[0].values, "digest"))
        for run in runs:
            numbers = (f"{value:.9g}" for value in run.values.values())
            table.writerow((run.mode, run.backend, run.workers, run.repeat, *numbers, run.digest))
