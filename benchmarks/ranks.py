"""Start the programs of `on_ranks.py` on MPI ranks, and read their output."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Unavailable
from paceline.errors import UnsupportedError
from paceline.performance.scaling_benchmark import find_launcher

PROGRAMS = Path(__file__).with_name("on_ranks.py")
#: Environment variable with the command that starts ranks, and the word in it that stands for their
#: number. Without the word, the command gets "-n" and the number.
LAUNCHER, NUMBER = "PACELINE_MPIEXEC", "{ranks}"
#: Python options to run a program on every rank (a failing rank ends all ranks), on the first rank
#: for all ranks, or on the first rank with a pool of the other ranks.
EVERY_RANK, FIRST_RANK, POOL = ("-m", "mpi4py"), ("-m", "paceline.mpi"), ("-m", "mpi4py.futures")


def launcher(n_ranks: int, python: str | None = None) -> list[str]:
    """Return the command that starts MPI ranks: `LAUNCHER`, or that of this or another Python."""
    words = shlex.split(os.environ.get(LAUNCHER, ""))
    if not words:
        words = [str(Path(python).parent / "mpiexec")] if python else _found()
    elif not shutil.which(words[0]):
        raise Unavailable(f"{words[0]}, which should start ranks, is not on the path")
    if not any(NUMBER in word for word in words):
        words += ["-n", NUMBER]
    return [word.replace(NUMBER, str(n_ranks)) for word in words]


def _found() -> list[str]:
    try:
        return find_launcher()
    except UnsupportedError as reason:
        raise Unavailable(str(reason)) from None


def environment_of(executable: Sequence[str]) -> dict[str, str]:
    """Return the environment of ranks, with the launcher's MPI."""
    already = filter(None, [os.environ.get("PYTHONPATH")])
    environment = os.environ | {
        "PYTHONWARNINGS": "ignore",
        "PYTHONPATH": os.pathsep.join([str(PROGRAMS.parents[1]), *already]),
    }
    if libraries := _libraries_of(executable[0]):
        environment.setdefault("MPI4PY_LIBMPI", str(libraries))
    return environment


def _libraries_of(program: str) -> Path | None:
    """Return the folder with the launcher's MPI; None for Slurm, which belongs to no MPI."""
    path = Path(shutil.which(program)).resolve()  # type: ignore[arg-type]
    root = path.parents[1] / "lib"
    # Debian keeps libraries of several architectures apart.
    folders = (root, root / str(sysconfig.get_config_var("MULTIARCH")))
    found = (folder for folder in folders if list(folder.glob("libmpi.*")))
    return None if path.name == "srun" else next(found, None)


def on_ranks(
    n_ranks: int,
    how: tuple[str, ...],
    *arguments: Any,
    apart: bool = False,
    programs: Path = PROGRAMS,
    more: Mapping[str, str] | None = None,
    python: str | None = None,
) -> Any:
    """Run one of the programs.

    Parameters
    ----------
    n_ranks : int
        Number of ranks.
    how : tuple of str
        `EVERY_RANK`, `FIRST_RANK` or `POOL`.
    *arguments : object
        Name and arguments of the program.
    apart : bool
        Let ranks communicate through the network, as on several hosts, not through memory.
    programs : Path
        File that contains the programs.
    more : mapping of str to str, optional
        Additional environment variables.
    python : str, optional
        Another Python, which has its own MPI.

    Returns
    -------
    object
        Output of the program, parsed from JSON.
    """
    executable = launcher(n_ranks, python)
    environment = environment_of(executable) | dict(more or {})
    if apart:
        environment["MPIR_CVAR_NOLOCAL"] = "1"
    command = [*executable, python or sys.executable, *how, str(programs)]
    done = subprocess.run(
        [*command, *map(str, arguments)],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])
