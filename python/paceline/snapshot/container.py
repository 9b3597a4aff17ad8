"""What the first rank does for a file: all of it but the atoms, which all ranks write."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from paceline.errors import AtomCountError, UnwritableError


@dataclass(frozen=True)
class Settings:
    """What a user chose for a file.

    Attributes
    ----------
    path : str
        Its name, absolute.
    n_atoms : int
        Of each frame.
    title : str
        For formats that have one.
    append, overwrite : bool
        Whether a file of that name may grow, or be replaced.
    n_frames : int or None
        How many there will be at the most, for a layout that must know.
    double : bool
        Whether numbers have 64 bits, where there is a choice.
    dt : float or None
        ps: of a step of the simulation, where the user told it.
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
    """What all frames of a file hold.

    Attributes
    ----------
    fields : tuple of str
        Out of "positions", "velocities", "forces", in this order.
    has_cell : bool
        Whether there is a cell.
    """

    fields: tuple[str, ...]
    has_cell: bool


@dataclass(frozen=True)
class Heading:
    """What is known of a frame beside its atoms.

    Attributes
    ----------
    step : int
        Of the simulation.
    time : float
        ps.
    cell : numpy.ndarray of float64, shape (3, 3), or None
        Vectors of the cell, Å.
    """

    step: int
    time: float
    cell: np.ndarray | None


class Place(NamedTuple):
    """Where ranks write the atoms of a frame.

    Attributes
    ----------
    path : str
        The file's name for now.
    starts : tuple of int
        Offset of atom 1 in each section.
    """

    path: str
    starts: tuple[int, ...]


class Container(ABC):
    """A file that is being written, as the first rank knows it.

    For every frame `place` is called, then ranks write their atoms, then `commit`; after an error
    in between, `cut_back`. A frame counts from `commit` on: whatever ends the job before leaves
    the frames before it.

    Parameters
    ----------
    settings : Settings
        Which file.

    Attributes
    ----------
    n_frames : int
        That are whole.
    double : bool
        Whether its numbers have 64 bits, where there is a choice.
    """

    double = False

    def __init__(self, settings: Settings):
        self._settings = settings
        self.n_frames = 0

    @abstractmethod
    def place(self, contents: Contents, heading: Heading) -> Place:
        """Make room for the next frame.

        Parameters
        ----------
        contents : Contents
            What it holds.
        heading : Heading
            What else is known of it.

        Returns
        -------
        Place

        Raises
        ------
        UnwritableError
            The file cannot hold it: its frames hold something else, say.
        OSError
            The system could not write.
        """

    @abstractmethod
    def commit(self) -> None:
        """Make the frame count, whose atoms are written.

        Raises
        ------
        OSError
            The system could not write.
        """

    @abstractmethod
    def cut_back(self) -> None:
        """Leave only the frames that count."""

    def held(self, fact: str, first: int, n_atoms: int) -> np.ndarray | None:
        """What a file that was there before holds of atoms once for all frames.

        Parameters
        ----------
        fact : str
            "names", "masses" or "charges".
        first, n_atoms : int
            Which atoms: counted from 0, in their order.

        Returns
        -------
        numpy.ndarray, shape (n_atoms,) or, of uint8, (n_atoms, 8), or None
            Names are filled up with blanks; None where the file has none.
        """
        return None

    def put_facts(self, first: int, facts: np.ndarray) -> None:
        """Take what does not change of atoms: of a new file all of it, before its first commit.

        Parameters
        ----------
        first : int
            The first atom, counted from 0.
        facts : numpy.ndarray, shape (n,)
            Records of some of "name", "mass" (u) and "charge" (e), in the order of ids.
        """
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Let go of the file."""


def refuse_other(path: str, found: Contents, expected: Contents) -> None:
    """Raise `UnwritableError` where a frame holds other things than the frames of its file.

    Parameters
    ----------
    path : str
        The file.
    found, expected : Contents
        Of the frame, and of the file.
    """
    for what, one, other in (
        ("", ", ".join(found.fields), ", ".join(expected.fields)),
        ("a cell: ", _words(found.has_cell), _words(expected.has_cell)),
    ):
        if one != other:
            raise UnwritableError(
                f"{path}: expected {what}{other}, as its frames have, found {one}; all frames of a "
                "file hold the same"
            )


def refuse_other_count(path: str, found: int, expected: int) -> None:
    """Raise `AtomCountError` where a file that is to grow has another number of atoms.

    Parameters
    ----------
    path : str
        The file.
    found, expected : int
        Of the file, and of the frames that are to come.
    """
    if found != expected:
        error = AtomCountError(
            f"{path} is of another system: expected {expected} atoms, found {found}"
        )
        error.found = found
        raise error


def refuse_rotated(path: str, cell: np.ndarray | None) -> None:
    """Raise `UnwritableError` where lengths and angles of a cell do not tell how it lies.

    Parameters
    ----------
    path : str
        A file that holds lengths and angles only.
    cell : numpy.ndarray of float64, shape (3, 3), or None
        Vectors, Å.
    """
    if cell is not None and (np.triu(cell, 1).any() or not (np.diag(cell) > 0).all()):
        raise UnwritableError(
            f"{path}: expected a cell with its first vector along x and its second in the plane of "
            f"x and y, for the file holds lengths and angles only, found {cell.tolist()}"
        )


def _words(there: bool) -> str:
    return "one" if there else "none"


def spans(first: int, sizes: Sequence[int]) -> list[int]:
    """Where things begin that lie one after another, and where the last ends.

    Parameters
    ----------
    first : int
        Where the first begins.
    sizes : sequence of int
        Of each.

    Returns
    -------
    list of int

    Examples
    --------
    >>> spans(100, [8, 20])
    [100, 108, 128]
    """
    places = [first]
    for size in sizes:
        places.append(places[-1] + size)
    return places
