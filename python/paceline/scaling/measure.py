"""Start a command in a process of its own, or on ranks of MPI, and read what it tells."""

import contextlib
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
from typing import IO, Any, ClassVar, Self

from paceline._util.files import new_file
from paceline._util.launcher import INSTALL
from paceline._util.page_cache import cached_share_of_all, drop_from_cache
from paceline._util.signals import Stopping
from paceline.errors import UnsupportedError, WorkerError
from paceline.performance.records import WorkerTiming
from paceline.performance.timings import Timings
from paceline.trajectory.open import open_files

#: Parts of a worker's time that are spent on blocks, in the order in which they happen …
IN_TASK = ("t_open", "t_io", "t_decode", "t_transform", "t_compute", "t_overhead")
#: … and all of them: on blocks that others did sooner, before its first block, and idle later.
PARTS = (*IN_TASK, "t_abandoned", "t_startup", "t_wait")


@dataclass(frozen=True)
class ScalingRun:
    """What one run took.

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


def quantities(timings: Timings, n_workers: int) -> dict[str, float]:
    """Sum up the timings of a run, over its workers and for each part of their time.

    The means of all parts and `t_around` add up to `t_total`. The quantities are those of
    Khoshlessan et al. 2020, Table 3, where they still exist; `t_scheduler` is the difference that
    Khoshlessan et al. 2017, Fig. 6C, show.

    Parameters
    ----------
    timings : Timings
        Of the run.
    n_workers : int
        Workers that there were; one that got no block has waited all the time.

    Returns
    -------
    dict of str to float
        By column: s, MB or a number, as the column says.

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
    last = max(block.end for block in timings.blocks)
    window = (last - timings.dealt) / 1e9
    workers = timings.workers()
    rows = [_parts(one) for one in workers]
    idle = {**dict.fromkeys(PARTS, 0.0), "t_wait": window}
    rows += [idle] * (n_workers - len(rows))
    in_task = [sum(row[part] for part in IN_TASK) for row in rows]
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
        found |= _mean_and_max(part, [row[part] for row in rows])
    found["read (MB)"] = sum(one.bytes for one in workers) / 1e6
    found["read calls"] = float(sum(one.calls for one in workers))
    return found


def _parts(worker: WorkerTiming) -> dict[str, float]:
    """A worker's time, s, by part."""
    return {
        "t_open": worker.t_init_traj,
        "t_io": worker.t_io,
        "t_decode": worker.t_decode,
        "t_transform": worker.t_transform,
        "t_compute": worker.t_compute,
        "t_overhead": worker.t_overhead,
        "t_abandoned": worker.t_abandoned,
        "t_startup": worker.t_wait_first,
        "t_wait": worker.t_wait - worker.t_wait_first,
    }


def _mean_and_max(name: str, values: Sequence[float]) -> dict[str, float]:
    return {f"{name} mean (s)": sum(values) / len(values), f"{name} max (s)": max(values)}


def save_runs(
    path: str | os.PathLike,
    runs: Sequence[ScalingRun],
    notes: Iterable[str],
    *,
    overwrite: bool = False,
) -> None:
    """Write one line a run, below what is to be known of all.

    Parameters
    ----------
    path : path-like
        What to write: CSV.
    runs : sequence of ScalingRun
        At least one.
    notes : iterable of str
        For the first lines, each of which begins with #.
    overwrite : bool
        Whether an existing file may be replaced.

    Raises
    ------
    FileExistsError
        The file exists and is not to be overwritten.
    """
    with new_file(path, overwrite=overwrite) as file:
        # One line each, whatever line breaks a selection has.
        file.writelines(f"# {' '.join(note.split())}\n" for note in notes)
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("mode", "backend", "workers", "repeat", *runs[0].values, "digest"))
        for run in runs:
            numbers = (f"{value:.9g}" for value in run.values.values())
            table.writerow((run.mode, run.backend, run.workers, run.repeat, *numbers, run.digest))


TOTAL, COMMAND = "t_total (s)", "t_command (s)"


@dataclass(frozen=True)
class Spread:
    """A mean, and how far single values are from it.

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
    >>> Spread.of([1.0, 2.0, 3.0])
    Spread(mean=2.0, sd=1.0, n=3)
    """

    mean: float
    sd: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Sum up values, of which there may be none.

        Parameters
        ----------
        values : iterable of float
            In any order.

        Returns
        -------
        Spread
        """
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
        The least number of workers that was measured, of which speed-ups are told.
    speed_up, efficiency : Spread
        Of the run.
    command_speed_up, command_efficiency : Spread
        Of the whole command: with the start of processes, imports and opening.
    columns : mapping of str to Spread
        Every column of the table, s or as its name says.
    """

    workers: int
    base: int
    speed_up: Spread
    efficiency: Spread
    command_speed_up: Spread
    command_efficiency: Spread
    columns: Mapping[str, Spread]


def points(runs: Sequence[ScalingRun]) -> list[Point]:
    """Sum up runs of one mode and backend.

    For strong scaling S(N) = t(1) / t(N), for weak scaling N t(1) / t(N); E(N) = S(N) / N
    (Khoshlessan et al. 2020, Eqs. 2 and 3). Where one worker was not measured, the least number n
    takes its place, with S(n) = n. They are means over repeats, in each of which the runs were
    done in turn: noise that lasts longer than they do is in both times alike.

    Parameters
    ----------
    runs : sequence of ScalingRun
        In any order; repeats may be incomplete.

    Returns
    -------
    list of Point
        By number of workers.

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
        Spread.of(run_ups),
        Spread.of(one / n for one in run_ups),
        Spread.of(command_ups),
        Spread.of(one / n for one in command_ups),
        {name: Spread.of(run.values[name] for run in here) for name in here[0].values},
    )


def _speed_ups(n: int, base: int, runs: Sequence[ScalingRun], column: str) -> list[float]:
    """Of each repeat that has both."""
    times = {(run.workers, run.repeat): run.values[column] for run in runs}
    repeats = sorted({run.repeat for run in runs})
    # As much more work as there are more workers, where each has its own.
    ideal = n if runs[0].mode == "weak" else base
    return [
        ideal * times[base, one] / times[n, one]
        for one in repeats
        if (base, one) in times and (n, one) in times
    ]


#: So much of a file may be in memory where it was dropped: others may look at it.
DROPPED = 0.01


@dataclass
class Warm:
    """Files as the runs before have left them: in memory, as far as there is room.

    Attributes
    ----------
    files : sequence of str
        The trajectory.
    description : str
        What is done.
    """

    files: Sequence[str]
    description: ClassVar[str] = "left as the run before left it"

    @contextlib.contextmanager
    def ready(self) -> Iterator[tuple[list[str] | None, float]]:
        """Prepare a run.

        Yields
        ------
        files : list of str or None
            What to read instead of the trajectory.
        cached : float
            How much of it is in this machine's memory, from 0 to 1; NaN where that is unknown.
        """
        yield None, _cached(self.files)


class Cold(Warm):
    """Files of which the page cache of this machine keeps nothing."""

    description: ClassVar[str] = "trajectory dropped from this machine's memory before each run"

    @contextlib.contextmanager
    def ready(self) -> Iterator[tuple[list[str] | None, float]]:
        """Prepare a run.

        Yields
        ------
        files : None
            The trajectory itself is read.
        cached : float
            How much of it is in memory all the same.
        """
        yield None, _dropped(self.files)


class Copies(Warm):
    """Copies of the files beside them, new ones for each run."""

    description: ClassVar[str] = (
        "a new copy of the trajectory for each run, dropped from this machine's memory"
    )

    @contextlib.contextmanager
    def ready(self) -> Iterator[tuple[list[str] | None, float]]:
        """Prepare a run.

        Yields
        ------
        files : list of str
            Copies, with their frame index; deleted afterwards.
        cached : float
            How much of them is in memory.
        """
        with contextlib.ExitStack() as stack:
            copies = [_copy(path, stack) for path in self.files]
            open_files(copies, progress=False, notes=False)
            yield copies, _dropped(copies)


def _cached(files: Sequence[str]) -> float:
    """How much of files is in memory; NaN where the system does not tell."""
    share = cached_share_of_all(files)
    return math.nan if share is None else share


def _dropped(files: Sequence[str]) -> float:
    """Drop files from memory; what stays there."""
    for path in files:
        drop_from_cache(path)
    kept = _cached(files)
    if kept > DROPPED:  # not so of NaN
        raise UnsupportedError(
            f"{files[0]}: {100 * kept:.0f} % of the trajectory stay in memory though they were "
            "dropped: it is on a file system in memory, or in use by another program"
        )
    return kept


def _copy(path: str, stack: contextlib.ExitStack) -> str:
    """A copy of a file in a folder of its own beside it."""
    folder = Path(path).absolute().parent
    room, needed = shutil.disk_usage(folder).free, os.path.getsize(path)
    if needed > room:
        raise UnsupportedError(
            f"{path}: a copy beside it takes {needed / 1e9:.1f} GB, of which {room / 1e9:.1f} GB "
            "are free"
        )
    made = tempfile.TemporaryDirectory(dir=folder, prefix=".paceline-")
    return str(shutil.copy(path, Path(stack.enter_context(made)) / Path(path).name))


#: -P: what lies in the working directory is not imported, as it is not by `paceline` itself.
PROGRAM = (
    *(sys.executable, "-P", "-c"),
    "import sys; from paceline.cli import main; sys.exit(main())",
)
#: What the line of an error begins with.
ERROR = "paceline: error: "
#: Exit status of a command that was asked for what is not there, or not done.
BAD_ARGUMENTS = 2
#: What a process that is asked to end may take for it, seconds.
GRACE = 10.0


def find_launcher() -> list[str]:
    """Find the command that starts ranks of MPI: beside this Python, else on the path.

    Returns
    -------
    list of str
        Wants -n and a number.

    Raises
    ------
    UnsupportedError
        There is none.
    """
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
    """Run a paceline command that ends with a line of JSON.

    Parameters
    ----------
    arguments : sequence of str
        Of the command.
    launcher : sequence of str
        What starts it on ranks of MPI, if anything.
    show : bool
        Whether its warnings and its progress are shown.

    Returns
    -------
    told : object
        Its last line.
    seconds : float
        From its start to its end, s.

    Raises
    ------
    UnsupportedError
        The launcher is not there, or the command's arguments are at fault.
    WorkerError
        The command failed in another way; the message is its own.
    """
    begun = time.perf_counter()
    command = [*launcher, *PROGRAM, *arguments]
    # Of two pipes a thread would have to read one, and Ctrl-C while a thread starts may end in
    # another error than KeyboardInterrupt.
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as output,
        _started(command, output, by_launcher=bool(launcher)) as process,
    ):
        lines = _listen(process, show)
        status = process.wait()
        seconds = time.perf_counter() - begun
        output.seek(0)
        told = output.read()
    try:
        answer = json.loads(told.splitlines()[-1])
    except (ValueError, IndexError):
        answer = None
    if status != 0 or answer is None:
        kind = UnsupportedError if status == BAD_ARGUMENTS else WorkerError
        raise kind(_reason(lines, status, launcher))
    return answer, seconds


@contextmanager
def _started(
    command: Sequence[str], output: IO[str], *, by_launcher: bool
) -> "Iterator[subprocess.Popen[str]]":
    """A process, which is ended with this block."""
    # Ours ends its workers at Ctrl-C; srun would only tell of its ranks then.
    ending = signal.SIGTERM if by_launcher else signal.SIGINT
    process = None
    try:
        # Between its start and its name here, nothing else could end it.
        with Stopping.held():
            process = _start(command, output)
        yield process
    finally:
        if process is not None:
            _end(process, ending)


def _start(command: Sequence[str], output: IO[str]) -> "subprocess.Popen[str]":
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    try:
        return subprocess.Popen(command, stdin=nothing, stdout=output, stderr=pipe, text=True)
    except FileNotFoundError:
        raise UnsupportedError(f"there is no command {command[0]}") from None


def _end(process: "subprocess.Popen[str]", ending: signal.Signals) -> None:
    """Ask a process to end, and see that it does."""
    process.send_signal(ending)
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def _listen(process: "subprocess.Popen[str]", show: bool) -> list[str]:
    """Lines of standard error, until its end."""
    lines = []
    for line in process.stderr or ():
        lines.append(line)
        if show and not line.startswith(ERROR):
            sys.stderr.write(line)
    return lines


def _reason(said: Sequence[str], status: int, launcher: Sequence[str]) -> str:
    """The error that a command has told, or all that is known of one that told none."""
    told = [line for line in said if line.startswith(ERROR)]
    if told:
        return told[-1].removeprefix(ERROR).strip()
    what = f"the run under {' '.join(launcher)}" if launcher else "the run"
    words = " ".join(" ".join(said).split())[-500:]
    return f"{what} ended with status {status}: {words or 'no message'}"
