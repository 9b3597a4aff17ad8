"""H5MD's groups of particles: which one is read, what moves in it, and which atom is which."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from paceline.errors import MissingDataError, UnsupportedError
from paceline.hdf5.chunk_index import ABSENT, Element
from paceline.hdf5.dataset import dataset_of
from paceline.hdf5.elements import Elements, Sampled, rows_of
from paceline.hdf5.file import DEFLATE_RATIO, Array, File, Group, damaged
from paceline.hdf5.sandbox import allow

#: Bytes of numbers of atoms that are looked at at a time.
_AT_A_TIME = 1 << 24
#: Seconds that a number may take to be put in order, at the most.
_SORTING = 1e-6


@dataclass(frozen=True)
class Order:
    """Where each atom is, frame by frame.

    Attributes
    ----------
    element : Element
        Numbers of the atoms of each frame.
    values : Array
        The same in the file.
    numbers : numpy.ndarray of int64, shape (n_atoms,)
        Those of our atoms, rising.
    """

    element: Element
    values: Array
    numbers: np.ndarray


def order_of(ids: Sampled | None, frames: Sampled, n_atoms: int, notes: list[str]) -> Order | None:
    """The order of atoms that may change from frame to frame.

    Parameters
    ----------
    ids : Sampled or None
        The element id.
    frames : Sampled
        The element whose samples are the frames.
    n_atoms : int
        Atoms for which the file has room.
    notes : list of str
        Lengthened by what a user should know.

    Returns
    -------
    Order or None
        None where atoms keep their places.

    Raises
    ------
    UnsupportedError
        Frames lack numbers, or share none, or have the same number twice: then atoms come and go
        in a way that leaves no fixed set of them.

    Notes
    -----
    Where the file names a placeholder, atoms may come and go: ours are those of all frames.
    """
    if ids is None or ids.steps is None or not ids.n_rows or not frames.n_rows:
        return None
    array, path = ids.values, ids.values.file.path
    if array.dtype.kind not in "iu" or len(array.shape) != 2 or array.shape[1] != n_atoms:
        raise UnsupportedError(
            f"{path}: {array.name}: expected whole numbers of {n_atoms} atoms, as {frames.name} "
            f"has, found {array.dtype} of shape {array.shape}"
        )
    rows = rows_of(ids, frames)
    if rows is not None and (rows == ABSENT).any():
        raise UnsupportedError(
            f"{path}: {ids.name} was sampled at other steps than {frames.name}: "
            "which atom is which cannot be known in all frames"
        )
    placeholder = array.placeholder
    if placeholder is None:
        first = 0 if rows is None else int(rows[0])
        numbers = _distinct(array, array.read(slice(first, first + 1))[0], first)
    else:
        numbers = _in_all(array, placeholder, notes)
    return Order(Element(dataset_of(array), rows), array, numbers.astype(np.int64))


def _distinct(array: Array, ids: np.ndarray, row: int) -> np.ndarray:
    """Numbers of one frame, rising."""
    numbers, counts = np.unique(ids, return_counts=True)
    if len(numbers) < len(ids):
        raise UnsupportedError(
            f"{array.file.path}: {array.name}: row {row} holds {numbers[counts.argmax()]} "
            f"{counts.max()} times: the number of atoms varies, and no placeholder is named for "
            "those that are not there"
        )
    return numbers


def _in_all(array: Array, placeholder: float, notes: list[str]) -> np.ndarray:
    """Numbers that each frame has."""
    n_rows, n_atoms = array.shape
    step = max(1, _AT_A_TIME // (n_atoms * array.dtype.itemsize))
    common, fewest, most = None, n_atoms, 0
    last = np.empty(0)
    for begin in range(0, n_rows, step):
        allow(_AT_A_TIME / array.dtype.itemsize * _SORTING)
        ordered = np.sort(array.read(slice(begin, begin + step)), axis=1)
        # Most frames have the atoms of the one before.
        changed = [0, *(np.flatnonzero((ordered[1:] != ordered[:-1]).any(axis=1)) + 1).tolist()]
        for row in changed:
            if np.array_equal(ordered[row], last):
                continue
            last = ordered[row]
            there = _distinct(array, last[last != placeholder], begin + row)
            fewest, most = min(fewest, len(there)), max(most, len(there))
            common = there if common is None else np.intersect1d(common, there, True)
    if common is None or len(common) == 0:
        raise UnsupportedError(
            f"{array.file.path}: {array.name}: the number of atoms varies from {fewest} to {most}, "
            "and none is there in all frames"
        )
    if len(common) < most:
        notes.append(
            f"{array.name}: the number of atoms varies from {fewest} to {most}; "
            f"the {len(common)} that all frames have are read"
        )
    return common


#: Vectors of atoms: our field and its quantity, by H5MD's name.
VECTORS = {
    "position": ("positions", "length"),
    "velocity": ("velocities", "velocity"),
    "force": ("forces", "force"),
}


class Particles:
    """One group of particles of an H5MD file.

    Parameters
    ----------
    file : File
        The file.
    group : str, optional
        Name of the group, where there are several.

    Attributes
    ----------
    file : File
        The file.
    group : Group
        The group.
    elements : Elements
        Reads elements of the file.
    vectors : dict of str to Sampled
        Those of `VECTORS` that there are, by H5MD's name.
    frames : Sampled
        The element whose samples are the frames: positions, or, where these are fixed or not
        there, velocities or forces.
    n_places : int
        Atoms for which the arrays have room.
    notes : list of str
        What a user should know.

    Raises
    ------
    UnsupportedError
        There are several groups and none is named, or not the one that is; or vectors are of other
        than three components, or of another number of atoms.
    MissingDataError
        Nothing in the group can move, or it has no atoms.
    DamagedFileError
        An element contradicts itself.
    """

    def __init__(self, file: File, group: str | None = None):
        self.file = file
        self.group = _chosen(file, group)
        self.elements = Elements(file)
        self.notes: list[str] = []
        found = {name: self.elements.find(self.group, name, rank=2) for name in VECTORS}
        self.vectors = {name: vector for name, vector in found.items() if vector is not None}
        if not self.vectors:
            raise MissingDataError(
                f"{file.path}: {self.group.name}: expected {', '.join(VECTORS)}, "
                f"found {', '.join(self.group.names()) or 'nothing'}"
            )
        self.n_places = self._n_places()
        self._note_room()
        moving = [vector for vector in self.vectors.values() if vector.steps is not None]
        self.frames = moving[0] if moving else _one_frame(next(iter(self.vectors.values())))

    def _n_places(self) -> int:
        """Atoms of the arrays, of which all vectors must have as many."""
        first, *others = self.vectors.values()
        for vector in (first, *others):
            shape = vector.values.shape
            if len(shape) != (2 if vector.steps is None else 3) or shape[-1] != 3:
                raise UnsupportedError(
                    f"{self.file.path}: {vector.name}: expected three components of each atom, "
                    f"found an array of shape {shape}"
                )
        n_atoms = first.values.shape[-2]
        for other in others:
            if other.values.shape[-2] != n_atoms:
                raise UnsupportedError(
                    f"{self.file.path}: {first.name} has {n_atoms} atoms, "
                    f"{other.name} has {other.values.shape[-2]}"
                )
        if n_atoms == 0:
            raise MissingDataError(f"{self.file.path}: {first.name} is of no atoms")
        # Of the smallest file that holds each atom once.
        if n_atoms > self.file.size * DEFLATE_RATIO:
            found = f"{n_atoms}, in a file of {self.file.size} bytes"
            raise damaged(self.file.path, first.name, "atoms that the file could hold", found)
        return n_atoms

    def _note_room(self) -> None:
        """Tell of a program that has not written all the frames for which it made room."""
        for vector in self.vectors.values():
            room = len(vector.values.shape) == 3 and vector.values.shape[0]
            if room and room > vector.n_rows:
                self.notes.append(
                    f"{vector.values.name} has room for {room} frames, of which {vector.n_rows} "
                    "have been written"
                )

    @cached_property
    def order(self) -> Order | None:
        """Where each atom is, if they have no fixed places."""
        ids = self.elements.find(self.group, "id", rank=1)
        return order_of(ids, self.frames, self.n_places, self.notes)

    @property
    def is_only_one(self) -> bool:
        """Whether no other group of the file has particles that move."""
        return len(_moving(self.file)) == 1

    @property
    def n_atoms(self) -> int:
        """Number of our atoms."""
        return self.n_places if self.order is None else len(self.order.numbers)

    @cached_property
    def places(self) -> np.ndarray | slice:
        """Where our atoms are in the first frame."""
        if self.order is None:
            return slice(None)
        ids = self.order.element
        row = 0 if ids.rows is None else int(ids.rows[0])
        numbers = self.order.values.read(slice(row, row + 1))[0]
        sorter = np.argsort(numbers, kind="stable")
        return sorter[np.searchsorted(numbers, self.order.numbers, sorter=sorter)]

    @cached_property
    def edges(self) -> Sampled | None:
        """Edges of the box."""
        return self.elements.find(self.group, "box/edges", rank=2)


def _one_frame(fixed: Sampled) -> Sampled:
    """What holds at all times, as a trajectory of one frame."""
    return Sampled(fixed.name, fixed.values, np.zeros(1, dtype=np.int64), unit=fixed.unit)


def _chosen(file: File, group: str | None) -> Group:
    """The group that is to be read."""
    _refuse_other_version(file)
    found = _groups(file)
    if group is not None:
        group = group.removeprefix("/").removeprefix("particles/")
        if group in found:
            return found[group]
        raise UnsupportedError(
            f"{file.path}: no group of particles {group!r}; there are {_listed(found)}"
        )
    moving = _moving(file)
    if len(moving) == 1:
        return next(iter(moving.values()))
    if not moving:
        raise MissingDataError(
            f"{file.path}: no group of particles holds {', '.join(VECTORS)}; "
            f"there are {_listed(found)}"
        )
    raise UnsupportedError(
        f"{file.path}: it has {len(moving)} groups of particles; "
        f"choose one with group= (--particles): {_listed(moving)}"
    )


def _groups(file: File) -> dict[str, Group]:
    particles = file.root.group("particles")
    groups = [] if particles is None else [g for g in particles.children() if isinstance(g, Group)]
    return {g.name.rpartition("/")[2]: g for g in groups}


def _moving(file: File) -> dict[str, Group]:
    groups = _groups(file).items()
    return {name: group for name, group in groups if any(vector in group for vector in VECTORS)}


def _refuse_other_version(file: File) -> None:
    about = file.root.group("h5md")
    version = None if about is None else about.attrs.get("version")
    if isinstance(version, np.ndarray) and version.size and version.ravel()[0] != 1:
        numbers = ".".join(str(number) for number in version.ravel())
        raise UnsupportedError(f"{file.path}: expected H5MD of version 1, found {numbers}")


def _listed(names: Any) -> str:
    return ", ".join(repr(name) for name in names) or "none"
