"""Runs of commands in processes of their own, or on ranks of MPI, with known cache states."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

from paceline._util.launcher import INSTALL
from paceline._util.signals import Stopping
from paceline._util.system import ask_to_end, cached_share_of_all, drop_from_cache
from paceline.errors import UnsupportedError, WorkerError
from paceline.trajectory.open import open_files

#: So much of a file may be in memory where it was dropped: others may look at it.
DROPPED = 0.01
#: -P: what lies in the working directory is not imported, as it is not by `paceline` itself.
PROGRAM = (
    *(sys.executable, "-P", "-c"),
    "import sys; from paceline.cli import main; sys.exit(main())",
)
#: Beginning of the line of an error.
ERROR = "paceline: error: "
#: Exit status of a command that was asked for what is not there, or not done.
BAD_ARGUMENTS = 2
#: Time that a process that is asked to end may take for it, seconds.
GRACE = 10.0


@dataclass
class Warm:
    """Leave the trajectory's files as the run before left them: in memory, if there is room."""

    files: Sequence[str]
    description: ClassVar[str] = "left as the run before left it"

    @contextmanager
    def ready(self) -> Iterator[tuple[list[str] | None, float]]:
        """Prepare a run: files to read instead of the trajectory's, and their share in memory.

        The share is that of this machine; NaN where it is unknown.
        """
        yield None, _cached(self.files)


class Cold(Warm):
    """Drop the trajectory's files from the page cache of this machine before each run."""

    description: ClassVar[str] = "trajectory dropped from this machine's memory before each run"

    @contextmanager
    def ready(self) -> Iterator[tuple[list[str] | None, float]]:
        """Drop the files; the share that stays in memory all the same."""
        yield None, _dropped(self.files)


class Copies(Warm):
    """Make copies of the trajectory's files beside them, new ones for each run."""

    description: ClassVar[str] = (
        "a new copy of the trajectory for each run, dropped from this machine's memory"
    )

    @contextmanager
    def ready(self) -> Iterator[tuple[list[str] | None, float]]:
        """Make copies, with their frame index; they are deleted afterwards."""
        with ExitStack() as stack:
            copies = [_copy(path, stack) for path in self.files]
            open_files(copies, progress=False, notes=False)
            yield copies, _dropped(copies)


def _cached(files: Sequence[str]) -> float:
    """Share of files that is in memory; NaN where the system does not say."""
    share = cached_share_of_all(files)
    return math.nan if share is None else share


def _dropped(files: Sequence[str]) -> float:
    """Drop files from memory; return the share that stays there."""
    for path in files:
        drop_from_cache(path)
    kept = _cached(files)
    if kept > DROPPED:  # not so of NaN
        raise UnsupportedError(
            f"{files[0]}: {100 * kept:.0f} % of the trajectory stay in memory though they were "
            "dropped: it is on a file system in memory, or in use by another program"
        )
    return kept


def _copy(path: str, stack: ExitStack) -> str:
    """Copy a file into a folder of its own beside it."""
    folder = Path(path).absolute().parent
    room, needed = shutil.disk_usage(folder).free, os.path.getsize(path)
    if needed > room:
        raise UnsupportedError(
            f"{path}: a copy beside it takes {needed / 1e9:.1f} GB, of which {room / 1e9:.1f} GB "
            "are free"
        )
    made = tempfile.TemporaryDirectory(dir=folder, prefix=".paceline-")
    return str(shutil.copy(path, Path(stack.enter_context(made)) / Path(path).name))


def find_launcher() -> list[str]:
    """Find the command that starts ranks of MPI: beside this Python, else on the path."""
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
    """Run a paceline command; return its last line, which is JSON, and its seconds.

    `UnsupportedError` is raised where its arguments are at fault, `WorkerError` where it failed in
    another way; the message is its own. With `show`, its warnings and progress are shown.
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
def _started(
    command: Sequence[str], output: IO[str], *, by_launcher: bool
) -> "Iterator[subprocess.Popen[str]]":
    """Start a process that is ended with this block."""
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
    ask_to_end(process, ending)
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def _listen(process: "subprocess.Popen[str]", show: bool) -> list[str]:
    """Read lines of standard error until its end."""
    lines = []
    for line in process.stderr or ():
        lines.append(line)
        if show and not line.startswith(ERROR):
            sys.stderr.write(line)
    return lines


def _reason(said: Sequence[str], status: int, launcher: Sequence[str]) -> str:
    """Find the error that a command has printed; of one that printed none, all that is known."""
    errors = [line for line in said if line.startswith(ERROR)]
    if errors:
        return errors[-1].removeprefix(ERROR).strip()
    what = f"the run under {' '.join(launcher)}" if launcher else "the run"
    words = " ".join(" ".join(said).split())[-500:]
    return f"{what} ended with status {status}: {words or 'no message'}"
