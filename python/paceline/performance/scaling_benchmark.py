"""Measure scaling: timed runs of commands with known cache states, and their speed-ups."""

import csv
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from paceline._util.files import new_file
from paceline._util.launcher import BAD_ARGUMENTS, INSTALL
from paceline._util.os_calls import terminate
from paceline._util.signals import Stopping
from paceline.errors import UnsupportedError, WorkerError
from paceline.performance.number_format import aligned
from paceline.performance.record import (
    ABANDONED,
    AROUND,
    AT_BLOCKS,
    STARTUP,
    WAIT,
    Component,
    RunTimings,
)

#: Command that runs `paceline` with this Python. -P prevents imports from the working directory;
#: the installed command `paceline` does not import from there, either.
PROGRAM = (
    *(sys.executable, "-P", "-c"),
    "import sys; from paceline.cli import main; sys.exit(main())",
)
#: Beginning of a line in which a paceline command prints its error.
ERROR = "paceline: error: "
#: Time for a process to end after a signal, seconds.
GRACE = 10.0
#: Components of scaling tables that add up to a worker's wall time, if waiting before the first
#: block counts only as `STARTUP`, and not also as `WAIT`.
PARTS = (*AT_BLOCKS, ABANDONED, STARTUP, WAIT)
#: Name of the column with the time of the run.
TOTAL = "t_total (s)"
#: Name of the column with the time of the whole command.
COMMAND = "t_command (s)"


def find_launcher() -> list[str]:
    """Find the command that starts MPI ranks: beside this Python, or on the path."""
    beside = Path(sys.executable).parent / "mpiexec"
    for name in (str(beside), "mpiexec", "mpirun", "srun"):
        if shutil.which(name):
            return [name]
    raise UnsupportedError(
        f"neither mpiexec nor mpirun nor srun is on the path: load an MPI module, or {INSTALL}"
    )


def run_command(
    arguments: Sequence[str], launcher: Sequence[str] = (), *, show: bool = False
) -> tuple[Any, float]:
    """Run a paceline command; return the last line of its output, parsed as JSON, and its time, s.

    `launcher` is the command that starts MPI ranks, if any. Raises `UnsupportedError` if the
    arguments are invalid, and `WorkerError` for other failures, with the command's message. If
    `show` is true, the command's warnings and progress are printed.
    """
    begun = time.perf_counter()
    command = [*launcher, *PROGRAM, *arguments]
    # Write the output to a file: a second pipe would need a reading thread, and Ctrl-C while a
    # thread starts may raise an error other than KeyboardInterrupt.
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as output,
        _running_process(command, output, by_launcher=bool(launcher)) as process,
    ):
        lines = _listen(process, show)
        status = process.wait()
        seconds = time.perf_counter() - begun
        output.seek(0)
        written = output.read()
    try:
        answer = json.loads(written.splitlines()[-1])
    except (ValueError, IndexError):
        answer = None
    if status != 0 or answer is None:
        kind = UnsupportedError if status == BAD_ARGUMENTS else WorkerError
        raise kind(_reason(lines, status, launcher))
    return answer, seconds


@contextmanager
def _running_process(
    command: Sequence[str], output: IO[str], *, by_launcher: bool
) -> "Iterator[subprocess.Popen[str]]":
    """Start a process, and end it at the exit of this context."""
    # On SIGINT, paceline ends its workers; srun ends nothing, but prints the states of its ranks.
    ending = signal.SIGTERM if by_launcher else signal.SIGINT
    process = None
    try:
        # Signals are delayed, because after one between start and assignment, nothing would end the
        # process.
        with Stopping.delayed():
            process = _start(command, output)
        yield process
    finally:
        if process is not None:
            _end_process(process, ending)


def _start(command: Sequence[str], output: IO[str]) -> "subprocess.Popen[str]":
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    try:
        return subprocess.Popen(command, stdin=nothing, stdout=output, stderr=pipe, text=True)
    except FileNotFoundError:
        raise UnsupportedError(f"there is no command {command[0]}") from None


def _end_process(process: "subprocess.Popen[str]", ending: signal.Signals) -> None:
    """Ask a process to end, and kill it if necessary."""
    terminate(process, ending)
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def _listen(process: "subprocess.Popen[str]", show: bool) -> list[str]:
    """Return the lines of standard error up to its end; if `show`, print those without errors."""
    lines = []
    for line in process.stderr or ():
        lines.append(line)
        if show and not line.startswith(ERROR):
            sys.stderr.write(line)
    return lines


def _reason(said: Sequence[str], status: int, launcher: Sequence[str]) -> str:
    """Return the error that a command has printed or, without one, describe the exit status."""
    errors = [line for line in said if line.startswith(ERROR)]
    if errors:
        return errors[-1].removeprefix(ERROR).strip()
    what = f"the run under {' '.join(launcher)}" if launcher else "the run"
    words = " ".join(" ".join(said).split())[-500:]
    return f"{what} ended with status {status}: {words or 'no message'}"


@dataclass(frozen=True)
class ScalingRun:
    """Settings of one benchmark run, and its measured quantities."""

    #: "strong": the same frames for any number of workers; "weak": the same number of frames for
    #: each worker.
    mode: str
    #: Backend of the run.
    backend: str
    #: Number of workers, or of MPI ranks.
    workers: int
    #: Number of the repeat, from 1.
    repeat: int
    #: Quantities by column name; the name includes the unit.
    values: Mapping[str, float]
    #: Digest of the run's results; equal for all runs over the same number of frames.
    digest: str


@dataclass(frozen=True)
class Statistics:
    """Mean, standard deviation and number of the values of a quantity in several runs.

    Examples
    --------
    >>> Statistics.of([1.0, 2.0, 3.0])
    Statistics(mean=2.0, sd=1.0, n=3)
    """

    mean: float
    #: Standard deviation of the sample; NaN for one value.
    sd: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Compute mean and standard deviation of values, which may be empty."""
        values = list(values)
        mean = statistics.fmean(values) if values else math.nan
        sd = statistics.stdev(values) if len(values) > 1 else math.nan
        return cls(mean, sd, len(values))


@dataclass(frozen=True)
class Point:
    """Statistics of all runs with one number of workers."""

    workers: int
    #: Smallest measured number of workers; speed-ups are relative to it.
    base: int
    #: Statistics of every column, by name; the name includes the unit. Speed-ups and efficiencies
    #: are given for the run alone, and for the whole command, which also starts a process, imports
    #: packages and opens files.
    columns: Mapping[str, Statistics]


def quantities(timings: RunTimings, n_workers: int) -> dict[str, float]:
    """Compute the quantities of a run: means and maxima over workers, and times of the whole run.

    The means of the components in `PARTS` and `t_around` add up to `t_total`. The quantities are
    those of Khoshlessan et al. 2020, Table 3, as far as they apply. `t_scheduler` is the difference
    of `t_total` and the mean `t_in_task`, as in Khoshlessan et al. 2017, Fig. 6C.

    Examples
    --------
    >>> from paceline.timing import BlockTiming
    >>> ms = 10**6
    >>> block = BlockTiming(0, 0, 0, 16, "host:1:2", 10 * ms, 100 * ms, wait=0, open=0,
    ...     read=20 * ms, decode=30 * ms, transform=0, compute=35 * ms, comm=0, bytes=8, calls=1)
    >>> timings = RunTimings(start=0, dealt=5 * ms, end=110 * ms, blocks=[block])
    >>> found = quantities(timings, 2)
    >>> round(found["t_in_task mean (s)"], 6), round(found["t_scheduler (s)"], 6)
    (0.045, 0.065)
    """
    window = (timings.last - timings.dealt) / 1e9
    workers = timings.workers()
    n_idle = n_workers - len(workers)
    times = {"t_in_task": [one.t_work for one in workers] + n_idle * [0.0]}
    for part in PARTS:
        own = [part.of(one) for one in workers]
        times[part.column] = own + n_idle * [window if part is WAIT else 0.0]
    waits = zip(times[WAIT.column], times[STARTUP.column], strict=True)
    times[WAIT.column] = [wait - starting for wait, starting in waits]
    over: dict[str, float] = {}
    for name, values in times.items():
        over |= {f"{name} mean (s)": sum(values) / len(values), f"{name} max (s)": max(values)}
    return {
        "frames": float(timings.n_frames),
        "blocks": float(len(timings.blocks)),
        "t_total (s)": timings.t_total,
        "t_init_top (s)": timings.t_init_top,
        "t_init_traj (s)": timings.t_init_traj,
        "t_scheduler (s)": timings.t_total - over["t_in_task mean (s)"],
        "t_around (s)": timings.t_total - window,
        "t_comm (s)": timings.t_comm,
        **over,
        "read (MB)": sum(one.bytes for one in workers) / 1e6,
        "read calls": float(sum(one.calls for one in workers)),
    }


def column_of(part: Component) -> str:
    """Return the name of the column with the mean time of a component, or with `t_around`."""
    return f"{part.column} (s)" if part is AROUND else f"{part.column} mean (s)"


def points(runs: Sequence[ScalingRun]) -> list[Point]:
    """Summarise runs of one mode and backend.

    For strong scaling S(N) = t(1) / t(N); for weak scaling S(N) = N t(1) / t(N); E(N) = S(N) / N
    (Khoshlessan et al. 2020, Eqs. 2 and 3). If one worker was not measured, the smallest number n
    is the base, with S(n) = n. Values are means over repeats. Each ratio is of two times of one
    repeat, whose runs follow each other, so that slow changes of the machine's speed cancel.

    Examples
    --------
    >>> runs = [ScalingRun("strong", "threads", n, 1, {"t_total (s)": t, "t_command (s)": t}, "")
    ...     for n, t in [(1, 8.0), (2, 5.0)]]
    >>> [(point.workers, point.columns["speed-up"].mean) for point in points(runs)]
    [(1, 1.0), (2, 1.6)]
    """
    counts = sorted({run.workers for run in runs})
    return [_point(n, counts[0], runs) for n in counts]


def _point(n: int, base: int, runs: Sequence[ScalingRun]) -> Point:
    here = [run for run in runs if run.workers == n]
    columns = {name: Statistics.of(run.values[name] for run in here) for name in here[0].values}
    for prefix, column in (("", TOTAL), ("command ", COMMAND)):
        ups = _speed_ups(n, base, runs, column)
        columns[f"{prefix}speed-up"] = Statistics.of(ups)
        columns[f"{prefix}efficiency"] = Statistics.of(one / n for one in ups)
    return Point(n, base, columns)


def _speed_ups(n: int, base: int, runs: Sequence[ScalingRun], column: str) -> list[float]:
    """Return speed-ups for the repeats that measured both `n` and `base` workers."""
    times = {(run.workers, run.repeat): run.values[column] for run in runs}
    repeats = sorted({run.repeat for run in runs})
    # In weak scaling, the work is proportional to the number of workers.
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
    """Write one line per run to a CSV file, after notes about all runs."""
    with new_file(path, overwrite=overwrite) as file:
        # One line per note, even if a selection text contains line breaks.
        file.writelines(f"# {' '.join(note.split())}\n" for note in notes)
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("mode", "backend", "workers", "repeat", *runs[0].values, "digest"))
        for run in runs:
            numbers = (f"{value:.9g}" for value in run.values.values())
            table.writerow((run.mode, run.backend, run.workers, run.repeat, *numbers, run.digest))


class _Column(NamedTuple):
    """Column of a printed table, which shows one column of a `Point`."""

    title: str
    name: str
    digits: int = 3
    with_sd: bool = False


_WHOLE = (
    _Column("total (s)", TOTAL, with_sd=True),
    _Column("speed-up", "speed-up", 2, with_sd=True),
    _Column("efficiency", "efficiency", 2, with_sd=True),
    _Column("command (s)", COMMAND, with_sd=True),
    _Column("in task (s)", "t_in_task mean (s)"),
    _Column("scheduler (s)", "t_scheduler (s)"),
)
_PARTS = tuple(_Column(f"{part.label} (s)", column_of(part)) for part in (*PARTS, AROUND))


def table_for_programs(runs: Sequence[ScalingRun]) -> Iterator[str]:
    """Yield tab-separated lines: titles, then one line per mode and number of workers.

    Values are means over repeats; columns whose titles end in "sd" contain standard deviations.
    """
    titles = []
    for one in (*_WHOLE, *_PARTS):
        titles += [one.title, f"{one.title} sd"] if one.with_sd else [one.title]
    yield "\t".join(("scaling", "workers", "frames", "runs", *titles))
    for mode, some in _by_mode(runs):
        for point in some:
            cells = (cell for one in (*_WHOLE, *_PARTS) for cell in _cells(point, one))
            yield "\t".join((mode, *_counts(point), *cells))


def table_for_people(runs: Sequence[ScalingRun]) -> Iterator[str]:
    """Yield aligned tables for each mode: total times, and mean components of workers' time."""
    for mode, some in _by_mode(runs):
        yield f"{mode} scaling"
        rows = [("workers", "frames", "runs", *(one.title for one in _WHOLE))]
        for point in some:
            whole = (_cells(point, one) for one in _WHOLE)
            cells = (f"{mean} (sd {sd[0]})" if sd else mean for mean, *sd in whole)
            rows.append((*_counts(point), *cells))
        yield from (*aligned(rows, left=0), "", "parts of the mean worker's time (s)")
        rows = [("workers", *(one.title.removesuffix(" (s)") for one in _PARTS))]
        for point in some:
            rows.append((f"{point.workers}", *(_cells(point, one)[0] for one in _PARTS)))
        yield from (*aligned(rows, left=0), "")


def _by_mode(runs: Sequence[ScalingRun]) -> Iterator[tuple[str, list[Point]]]:
    for mode in dict.fromkeys(run.mode for run in runs):
        yield mode, points([run for run in runs if run.mode == mode])


def _counts(point: Point) -> tuple[str, str, str]:
    """Format a point's number of workers, mean number of frames, and number of runs."""
    frames = point.columns["frames"]
    return f"{point.workers}", f"{frames.mean:.0f}", f"{frames.n}"


def _cells(point: Point, column: _Column) -> list[str]:
    """Format a mean, and its standard deviation if the column shows it."""
    found = point.columns[column.name]
    values = (found.mean, found.sd) if column.with_sd else (found.mean,)
    return ["-" if math.isnan(value) else f"{value:.{column.digits}f}" for value in values]
