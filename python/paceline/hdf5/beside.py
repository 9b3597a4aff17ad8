"""Names, masses and charges of an H5MD file's atoms, read a part at a time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from paceline.errors import UnsupportedError
from paceline.hdf5.catalogue import ABSENT
from paceline.hdf5.elements import rows_of
from paceline.hdf5.known_atoms import LABELS
from paceline.hdf5.native import Array, File
from paceline.hdf5.particles import Particles
from paceline.hdf5.units import factor_of

#: Characters of a name, at the most.
WIDTH = 8
#: H5MD's name of each, and its quantity.
_NUMBERS = {"masses": "mass", "charges": "charge"}


class Row(NamedTuple):
    """Where one value of each place for an atom is.

    Attributes
    ----------
    dataset : str
        In the file.
    row : int or None
        Of the dataset, where it has one for each frame.
    factor : float
        What a value is multiplied by.
    """

    dataset: str
    row: int | None = None
    factor: float = 1.0


@dataclass(frozen=True)
class Column:
    """One value of each place for an atom, in all frames.

    Attributes
    ----------
    dataset : str
        In the file.
    rows : numpy.ndarray of int64, shape (n_frames,), or None
        Row of each frame, `ABSENT` where it has none; None where frame k is row k.
    is_fixed : bool
        Whether there are no rows: it holds for all frames.
    factor : float
        What a value is multiplied by.
    """

    dataset: str
    rows: np.ndarray | None = None
    is_fixed: bool = True
    factor: float = 1.0

    def of(self, frame: int) -> Row | None:
        """Where the values of a frame are; None where it has none."""
        if self.is_fixed:
            return Row(self.dataset, None, self.factor)
        row = frame if self.rows is None else int(self.rows[frame])
        return None if row == ABSENT else Row(self.dataset, row, self.factor)


def columns_of(path: str, *, group: str | None = None) -> dict[str, Column]:
    """What a file tells of its atoms that can be read a part at a time.

    Parameters
    ----------
    path : str
        An H5MD file.
    group : str, optional
        Name of the group of particles.

    Returns
    -------
    dict of str to Column
        "names" of at most 8 bytes, "masses" (u) and "charges" (e): those that there are. Where
        atoms change their places, only what was sampled with them.

    Raises
    ------
    DamagedFileError
        One contradicts itself.
    """
    with File(path) as file:
        particles = Particles(file, group)
        found = {ours: _numbers(particles, name) for ours, name in _NUMBERS.items()}
        found["names"] = _names(particles)
    return {name: column for name, column in found.items() if column is not None}


def _names(particles: Particles) -> Column | None:
    labels = particles.file.root.group(LABELS)
    array = None if labels is None else labels.get("name")
    if particles.order is not None or not isinstance(array, Array):
        return None
    if array.dtype.kind != "S" or array.dtype.itemsize > WIDTH:
        return None
    return Column(array.name) if _is_readable(array, (particles.n_places,)) else None


def _numbers(particles: Particles, name: str) -> Column | None:
    element = particles.elements.find(particles.group, name, rank=1)
    if element is None or element.values.dtype.kind not in "fiu":
        return None
    values, is_fixed = element.values, element.steps is None
    shape = (particles.n_places,) if is_fixed else (*values.shape[:1], particles.n_places)
    if (is_fixed and particles.order is not None) or not _is_readable(values, shape):
        return None
    try:
        factor = 1.0 if element.unit is None else factor_of(element.unit, name)
        rows = None if is_fixed else rows_of(element, particles.frames)
    except UnsupportedError:
        return None
    return Column(values.name, rows, is_fixed, factor)


def _is_readable(array: Array, shape: tuple[int, ...]) -> bool:
    array.refuse_absurd()
    array.refuse_unknown_filters()
    return array.shape == shape


def read_rows(path: str, rows: Mapping[str, Row], first: int, last: int) -> dict[str, np.ndarray]:
    """Values of some places for atoms, through HDF5's own library.

    Parameters
    ----------
    path : str
        The file.
    rows : mapping of str to Row
        By name.
    first, last : int
        Places, from 0; the last is not among them.

    Returns
    -------
    dict of str to numpy.ndarray, shape (n,) or, of names, (n, 8)
        "ids" as int64, "names" as uint8, zeros behind the last character, all else as float64.

    Raises
    ------
    DamagedFileError
        HDF5 cannot read them.
    UnsupportedError
        A name is not ASCII.
    """
    found: dict[str, np.ndarray] = {}
    with File(path) as file:
        for name, row in rows.items():
            array = file.root[row.dataset]
            assert isinstance(array, Array)
            some = slice(first, last)
            part = array.part(some) if row.row is None else _of_row(array, row.row, some)
            if name == "ids":
                found[name] = part.astype(np.int64, copy=False)
            elif name == "names":
                found[name] = _characters(array, part)
            else:
                found[name] = part.astype(np.float64, copy=False) * row.factor
    return found


def _of_row(array: Array, row: int, some: slice) -> np.ndarray:
    return array.part(slice(row, row + 1), some)[0]


def _characters(array: Array, names: np.ndarray) -> np.ndarray:
    codes = np.char.rstrip(names).astype(f"S{WIDTH}").view(np.uint8).reshape(-1, WIDTH)
    if (codes > ord("~")).any():
        raise UnsupportedError(
            f"{array.file.path}: {array.name}: expected names in ASCII, found another character"
        )
    return codes
