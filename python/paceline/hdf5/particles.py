"""H5MD's groups of particles: which one is read, what moves in it, and which atom is which."""

from functools import cached_property
from typing import Any

import numpy as np

from paceline.errors import MissingDataError, UnsupportedError
from paceline.hdf5.elements import Elements, Sampled
from paceline.hdf5.identities import Order, order_of
from paceline.hdf5.native import DEFLATE_RATIO, File, Group, damaged

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
