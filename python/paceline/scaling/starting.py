"""Start a command in a process of its own, or on ranks of MPI, and read what it tells."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paceline.errors import UnsupportedError, WorkerError
from paceline.launch import INSTALL

PROGRAM = (sys.executable, "-c", "import sys; from paceline.cli import main; sys.exit(main())")
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


def run_command(arguments: Sequence[str], launcher: Sequence[str] = ()) -> tuple[Any, float, str]:
    """Run a paceline command that ends with a line of JSON.

    Parameters
    ----------
    arguments : sequence of str
        Of the command.
    launcher : sequence of str
        What starts it on ranks of MPI, if anything.

    Returns
    -------
    told : object
        Its last line.
    seconds : float
        From its start to its end, s.
    said : str
        What it wrote on standard error.

    Raises
    ------
    UnsupportedError
        The launcher is not there, or the command's arguments are at fault.
    WorkerError
        The command failed in another way; the message is its own.
    """
    begun = time.perf_counter()
    with _started([*launcher, *PROGRAM, *arguments]) as process:
        out, said = process.communicate()
        seconds = time.perf_counter() - begun
    try:
        told = json.loads(out.splitlines()[-1])
    except (ValueError, IndexError):
        told = None
    if process.returncode != 0 or told is None:
        kind = UnsupportedError if process.returncode == BAD_ARGUMENTS else WorkerError
        raise kind(_reason(said, process.returncode, launcher))
    return told, seconds, said


@contextmanager
def _started(command: Sequence[str]) -> "Iterator[subprocess.Popen[str]]":
    """A process, which is ended with this block."""
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        )
    except FileNotFoundError:
        raise UnsupportedError(f"there is no command {command[0]}") from None
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.communicate(timeout=GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def _reason(said: str, status: int, launcher: Sequence[str]) -> str:
    """The error that a command has told, or all that is known of one that told none."""
    told = [line for line in said.splitlines() if line.startswith("paceline: error: ")]
    if told:
        return told[-1].removeprefix("paceline: error: ")
    what = f"the run under {' '.join(launcher)}" if launcher else "the run"
    return f"{what} ended with status {status}: {' '.join(said.split())[-500:] or 'no message'}"
