"""Start the programs of `on_ranks.py` on ranks of MPI, and read what they print."""

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
#: How Python runs a program: on every rank, of which one that fails ends all; on the first for all;
#: or with a pool of the others.
EVERY_RANK, FIRST_RANK, POOL = ("-m", "mpi4py"), ("-m", "paceline.mpi"), ("-m", "mpi4py.futures")


def launcher() -> list[str]:
    """Find the command that starts ranks."""
    try:
        return find_launcher()
    except UnsupportedError as reason:
        raise Unavailable(str(reason)) from None


def environment_of(executable: Sequence[str]) -> dict[str, str]:
    """Environment of ranks, with the MPI that a launcher belongs to."""
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
        On how many ranks.
    how : tuple of str
        `EVERY_RANK`, `FIRST_RANK` or `POOL`.
    *arguments : object
        The program's name and arguments.
    apart : bool
        Whether ranks talk through the network, as on several hosts, and not through memory.
    programs : Path
        The file of the programs.
    more : mapping of str to str, optional
        What to add to their environment.
    python : str, optional
        Another Python than this one, with an MPI of its own beside it.

    Returns
    -------
    object
        What it prints, as JSON.
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
