"""Start a command in a process of its own, or on ranks of MPI, and read what it tells."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from paceline.errors import UnsupportedError, WorkerError
from paceline.launch import INSTALL
from paceline.stopping import Stopping

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
