"""Read atom names from coordinate files."""

import os
from collections.abc import Iterator
from itertools import islice

import numpy as np

from paceline import _core
from paceline._util.files import is_address
from paceline.errors import PacelineError

#: Columns of atom and residue names in the lines of structure formats, by file name extension.
COLUMNS = {
    ".gro": {"names": slice(10, 15), "resnames": slice(5, 10)},
    ".pdb": {"names": slice(12, 16), "resnames": slice(17, 21)},
    ".ent": {"names": slice(12, 16), "resnames": slice(17, 21)},
}
#: Level (keytrj) of HISTORY files whose frames are compressed and contain no names.
COMPRESSED = 3


def names_in(path: str) -> dict[str, np.ndarray]:
    """Read the atom names of the first frame, and residue names if the format has them.

    Returns arrays of str, shape (n_atoms,), with the keys "names" and "resnames". The result is
    empty if the format has no names (XTC, TRR, DCD, NetCDF, LAMMPS dumps), if the file does not
    follow its format, or for HDF5 files and objects of stores.
    """
    ending = os.path.splitext(path)[1].lower()
    if is_address(path):
        return {}
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            if ending in COLUMNS:
                lines = _lines_of_gro(file) if ending == ".gro" else _lines_of_pdb(file)
                found = list(lines)
                return {
                    label: np.array([line[columns].strip() for line in found], dtype=object)
                    for label, columns in COLUMNS[ending].items()
                }
            kind = _core.detect_format(path)
            if kind in ("HISTORY", "CONFIG"):
                return {"names": _names_of_dl_poly(file, kind)}
    except (OSError, PacelineError, ValueError, IndexError, StopIteration):
        pass  # the trajectory reader reports damage
    return {}


def _lines_of_gro(lines: Iterator[str]) -> Iterator[str]:
    """Return the atom lines of the first frame of a GRO file."""
    next(lines)
    return islice(lines, int(next(lines)))


def _lines_of_pdb(lines: Iterator[str]) -> Iterator[str]:
    """Return the atom lines of the first model of a PDB file."""
    for line in lines:
        if line.startswith(("ATOM", "HETATM")):
            yield line
        elif line.startswith(("ENDMDL", "END ", "END\n")):
            return


def _names_of_dl_poly(lines: Iterator[str], kind: str) -> np.ndarray:
    """Return the atom names of the first frame, in the order of atom numbers."""
    next(lines)
    level, periodic = (int(word) for word in next(lines).split()[:2])
    n_atoms = None
    if kind == "HISTORY":
        if level == COMPRESSED:
            return np.empty(0, dtype=object)
        frame = next(lines).split()
        n_atoms, level, periodic = int(frame[2]), int(frame[3]), int(frame[4])
    for _ in range(3 if periodic else 0):
        next(lines)
    atoms = islice(lines, 0, None if n_atoms is None else n_atoms * (level + 2), level + 2)
    words = [line.split() for line in atoms if line.strip()]
    names = np.array([one[0] for one in words], dtype=object)
    numbers = np.array([int(one[1]) if len(one) > 1 else 0 for one in words])
    order = np.argsort(numbers, kind="stable")
    return names[order] if (np.diff(numbers[order]) > 0).all() else names
