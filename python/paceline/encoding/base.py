"""What files that we write have in common, whatever their format."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from paceline.block import FIELDS, Block
from paceline.errors import UnwritableError
from paceline.job import PerBlock, Receiver


@dataclass(frozen=True)
class Source:
    """What is known of frames before they are encoded.

    Attributes
    ----------
    n_frames : int
        To be written; there will be fewer where some cannot be read and are left out.
    atoms : AtomGroup
        To be written.
    skip_damaged : bool
        Whether frames may be left out.
    first : Timestep
        The first frame of the trajectory that can be read.
    origin : mapping
        Where the frames come from, and what was asked for.
    """

    n_frames: int
    atoms: Any
    skip_damaged: bool
    first: Any
    origin: Mapping[str, Any]

    @property
    def has_cell(self) -> bool:
        """Whether the first frame has one."""
        return self.first.dimensions is not None

    @property
    def held(self) -> tuple[str, ...]:
        """What the first frame holds of its atoms."""
        return tuple(field for field in FIELDS if getattr(self.first, f"has_{field}"))


class Target(ABC):
    """A file that is to be written, of one family of formats.

    Parameters
    ----------
    path : str
        Final name.
    n_atoms : int
        To be written.
    overwrite : bool
        Whether a file of that name may be replaced.

    Attributes
    ----------
    fields, optional_fields : sequence of str
        What is to be decoded, once `begin` was called.
    frames_together : int
        Frames that are best encoded by one worker.
    n_written, n_bytes : int
        Frames and size of the file, once it is whole.
    """

    fields: Sequence[str] = ("positions",)
    optional_fields: Sequence[str] = ()
    frames_together: int = 1
    n_written: int
    n_bytes: int

    def __init__(self, path: str, n_atoms: int, *, overwrite: bool = False):
        self._path = path
        self._n_atoms = n_atoms
        self._overwrite = overwrite

    @abstractmethod
    def begin(self, source: Source) -> PerBlock:
        """Make the worker's half, by the first frame where the format wants all frames alike.

        Parameters
        ----------
        source : Source
            Of the frames.

        Returns
        -------
        PerBlock

        Raises
        ------
        UnsupportedError
            There is nothing to write.
        """

    @abstractmethod
    def receiver(self) -> AbstractContextManager[Receiver]:
        """The file, for the time of a run: whole under its name afterwards, or not there."""


@contextmanager
def naming(path: str, block: Block) -> Iterator[None]:
    """Name file and frame in an encoder's errors.

    Parameters
    ----------
    path : str
        The file, by its final name.
    block : Block
        What is encoded.
    """
    try:
        yield
    except UnwritableError as error:
        reason = f"{path}: frame {block.frames[error.row]}: {error.reason}"
        raise UnwritableError(reason) from None
