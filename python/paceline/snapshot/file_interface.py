"""Interface of files that are written by ranks: the first does all but the atoms."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from paceline.errors import AtomCountError, UnwritableError


@dataclass(frozen=True)
class Settings:
    """Options of a file.

    Attributes
    ----------
    path : str
        Absolute.
    n_atoms : int
        Of each frame.
    title : str
        For formats that have one.
    append, overwrite : bool
        Whether a file of that name may grow, or be replaced.
    n_frames : int or None
        The most that will come, for a layout that must know.
    double : bool
        Whether numbers have 64 bits, where there is a choice.
    dt : float or None
        ps: length of a step of the simulation, where the user gave it.
    sync : bool
        Whether each frame is to be on the disk before the next.
    """

    path: str
    n_atoms: int
    title: str
    append: bool
    overwrite: bool
    n_frames: int | None
    double: bool
    dt: float | None
    sync: bool


@dataclass(frozen=True)
class Contents:
    """Fields ("positions", "velocities", "forces", in this order) and cell of all frames."""

    fields: tuple[str, ...]
    has_cell: bool


@dataclass(frozen=True)
class Heading:
    """Step, time (ps) and cell vectors (Å, float64 of shape (3, 3)) of a frame."""

    step: int
    time: float
    cell: np.ndarray | None


class Place(NamedTuple):
    """File in which ranks write the atoms of a frame, and the offset of atom 1 in each section."""

    path: str
    starts: tuple[int, ...]


class Container(ABC):
    """File that is being written, as the first rank has it.

    For every frame `place` is called, then ranks write their atoms, then `commit`; after an error
    in between, `cut_back`. A frame counts from `commit` on: when the job is killed before, the
    file has the frames before it.

    Attributes
    ----------
    n_frames : int
        Whole frames.
    double : bool
        Whether its numbers have 64 bits, where there is a choice.
    """

    double = False

    def __init__(self, settings: Settings):
        self._settings = settings
        self.n_frames = 0

    @abstractmethod
    def place(self, contents: Contents, heading: Heading) -> Place:
        """Make room for the next frame; raise `UnwritableError` where the file cannot hold it."""

    @abstractmethod
    def commit(self) -> None:
        """Count the frame, whose atoms are written."""

    @abstractmethod
    def cut_back(self) -> None:
        """Leave only the frames that count."""

    def stored_property(self, name: str, first: int, n_atoms: int) -> np.ndarray | None:
        """Read "names", "masses" or "charges" of atoms of a file that was there, if it has them.

        Atoms are counted from 0. Names are uint8 of shape (n_atoms, 8), filled up with blanks.
        """
        return None

    def put_properties(self, first: int, properties: np.ndarray) -> None:
        """Write what does not change of some atoms of a new file, before its first commit.

        Atoms are counted from 0; `properties` are records of "name", "mass" (u) and "charge" (e).
        """
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Close the file."""


def check_contents(path: str, found: Contents, expected: Contents) -> None:
    """Raise `UnwritableError` where a frame holds other things than the frames of its file."""
    for what, one, other in (
        ("", ", ".join(found.fields), ", ".join(expected.fields)),
        ("a cell: ", _presence(found.has_cell), _presence(expected.has_cell)),
    ):
        if one != other:
            raise UnwritableError(
                f"{path}: expected {what}{other}, as its frames have, found {one}; all frames of a "
                "file hold the same"
            )


def check_atom_count(path: str, found: int, expected: int) -> None:
    """Raise `AtomCountError` where a file that is to grow has another number of atoms."""
    if found != expected:
        error = AtomCountError(
            f"{path} is of another system: expected {expected} atoms, found {found}"
        )
        error.found = found
        raise error


def check_cell_orientation(path: str, cell: np.ndarray | None) -> None:
    """Raise `UnwritableError` where lengths and angles of a cell do not determine its vectors."""
    if cell is not None and (np.triu(cell, 1).any() or not (np.diag(cell) > 0).all()):
        raise UnwritableError(
            f"{path}: expected a cell with its first vector along x and its second in the plane of "
            f"x and y, for the file holds lengths and angles only, found {cell.tolist()}"
        )


def _presence(there: bool) -> str:
    """Name it in an error."""
    return "one" if there else "none"


def spans(first: int, sizes: Sequence[int]) -> list[int]:
    """Offsets of things of these sizes one after another, and of the end.

    Examples
    --------
    >>> spans(100, [8, 20])
    [100, 108, 128]
    """
    places = [first]
    for size in sizes:
        places.append(places[-1] + size)
    return places
