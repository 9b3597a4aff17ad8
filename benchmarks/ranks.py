"""Start the programs of `on_ranks.py` on MPI ranks, and read their output."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Unavailable
from paceline.errors import UnsupportedError
from paceline.performance.bench import find_launcher

PROGRAMS = Path(__file__).with_name("on_ranks.py")
#: Python options to run a program on every rank (a failing rank ends all ranks), on the first rank
#: for all ranks, or on the first rank with a pool of the other ranks.
EVERY_RANK, FIRST_RANK, POOL = ("-m", "mpi4py"), ("-m", "paceline.mpi"), ("-m", "mpi4py.futures")


def launcher() -> list[str]:
    """Find the command that starts MPI ranks."""
    try:
        return find_launcher()
    except UnsupportedError as reason:
        raise Unavailable(str(reason)) from None


def environment_of(executable: Sequence[str]) -> dict[str, str]:
    """Return the environment of ranks, with the launcher's MPI."""
    libraries = Path(shutil.which(executable[0])).resolve().parents[1] / "lib"  # type: ignore[arg-type]
    already = filter(None, [os.environ.get("PYTHONPATH")])
    environment = os.environ | {
        "PYTHONWARNINGS": "ignore",
        "PYTHONPATH": os.pathsep.join([str(PROGRAMS.parents[1]), *already]),
    }
    if list(libraries.glob("libmpi.*")):
        environment["MPI4PY_LIBMPI"] = str(libraries)
    return environment


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
    executable = launcher() if python is None else [str(Path(python).parent / "mpiexec")]
    environment = environment_of(executable) | dict(more or {})
    if apart:
        environment["MPIR_CVAR_NOLOCAL"] = "1"
    command = [*executable, "-n", str(n_ranks), python or sys.executable, *how, str(programs)]
    done = subprocess.run(
        [*command, *map(str, arguments)],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])
