"""A trajectory file and its index, whatever its format."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from paceline import _core
from paceline.frames import Extents, Hand, Member


class TrajectoryFile(Protocol):
    """A file that was opened, and is held open no longer."""

    @property
    def path(self) -> str:
        """Absolute."""

    @property
    def format(self) -> str:
        """As users call it."""

    @property
    def n_atoms(self) -> int:
        """Number of atoms of each frame."""

    @property
    def n_frames(self) -> int:
        """Number of whole frames."""

    @property
    def fields(self) -> int:
        """What frames may hold, as the core counts it."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def fingerprint(self) -> str:
        """What the file is recognised by."""

    @property
    def notes(self) -> list[str]:
        """What a user should be told of it."""

    @property
    def damaged(self) -> list[int]:
        """Frames that are known to be."""

    @property
    def index_file(self) -> Path | None:
        """Where the index is saved, if it is."""

    @property
    def index_origin(self) -> str:
        """How it came about."""

    @property
    def dt(self) -> float | None:
        """Time between frames as the header has it, ps; None where only frames tell."""

    @property
    def first(self) -> float:
        """What the first frame counts as where times are numbers of frames."""

    @property
    def traffic(self) -> tuple[int, int] | None:
        """Bytes and calls that opening took of the file, where that is known."""

    @property
    def traits(self) -> list[tuple[str, str]]:
        """What files must have in common for frames of one to continue those of the other."""

    @property
    def member(self) -> Member:
        """What workers must know of it."""

    @property
    def chunk_frames(self) -> int:
        """Neighbours that are stored as one, and cost together what one of them costs."""

    def extents(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Offsets and sizes of frames, bytes."""

    def slice_of(self, frames: np.ndarray) -> Any:
        """What else workers need to read these frames; None where offsets and sizes say all."""

    def times(self) -> tuple[np.ndarray, np.ndarray]:
        """Time (ps) and step of every frame."""

    def head(self, first: int, n_frames: int) -> bytes:
        """What a file of these frames begins with, where they can be copied as they are."""

    def verify(self) -> None:
        """Raise `FileChangedError` where the file of this name is not the one that was opened."""


@dataclass(frozen=True)
class IndexedMember:
    """What a worker must know of a file whose frames lie one after another.

    Attributes
    ----------
    path : str
    layout : bytes
        How the file's frames are coded.
    fingerprint : str
        What the file was recognised by when it was indexed.
    """

    path: str
    layout: bytes
    fingerprint: str

    def open(self, atoms: np.ndarray | None, fields: int) -> Hand:
        """A hand on the file."""
        return _core.Reader(self.path, self.layout, self.fingerprint, atoms=atoms, fields=fields)


class IndexedFile(_core.Trajectory):
    """A file of XTC, TRR, DCD, NetCDF-3, HISTORY or CONFIG, with its index: a `TrajectoryFile`.

    Raises
    ------
    UnsupportedError
        The file is of none of these formats.
    DamagedFileError
        Its first frame or its header is damaged.
    OSError
        It cannot be opened.
    """

    chunk_frames = 1

    @property
    def member(self) -> IndexedMember:
        """What workers must know of it."""
        return IndexedMember(self.path, self.layout, self.fingerprint)

    def slice_of(self, frames: np.ndarray) -> None:
        """Nothing: offsets and sizes say all."""


def extents_in(member: int, file: TrajectoryFile, frames: np.ndarray) -> Extents:
    """Where frames of one file of a chain are.

    Parameters
    ----------
    member : int
        The file's place in the chain.
    file : TrajectoryFile
        The file.
    frames : numpy.ndarray of uint64, shape (n_frames,)
        Frame numbers in it.

    Returns
    -------
    Extents
    """
    slices = (file.slice_of(frames),)
    return Extents(np.full(len(frames), member), frames, *file.extents(frames), slices)
