"""Files that MPI ranks write together: all ranks write atoms, and rank 0 all other parts.

An existing file grows in place; a new file appears under its name when its first frame is complete.
"""

import contextlib
import errno
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from paceline._util.files import (
    check_output,
    check_regular,
    create_temporary,
    publish,
    temporary_name,
    writing_to,
)
from paceline._util.os_calls import PLAIN, attach, detach, read_at, reserve, write_at
from paceline.errors import AtomCountError, FileChangedError, UnwritableError

#: Errors of file systems that cannot reserve space.
_CANNOT_RESERVE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@dataclass(frozen=True)
class Settings:
    """Options of an output file of `paceline.snapshot.Writer`."""

    #: Absolute path of the file.
    path: str
    n_atoms: int
    #: Title of the file, for formats that store one; empty by default.
    title: str
    #: True if frames are added to an existing file.
    append: bool
    #: True if an existing file is replaced.
    overwrite: bool
    #: Maximum number of frames, for contiguous storage in H5MD; None otherwise.
    n_frames: int | None
    #: True for 64-bit numbers, if the format offers a choice.
    double: bool
    #: Length of a simulation step, ps, if set by the user.
    dt: float | None
    #: True if each frame must be on the disk before the next one.
    sync: bool


@dataclass(frozen=True)
class Contents:
    """Content of a frame: its fields, and True if it has a cell.

    Fields are "positions", "velocities" and "forces", in this order.
    """

    fields: tuple[str, ...]
    has_cell: bool


@dataclass(frozen=True)
class Heading:
    """Step, time (ps) and cell vectors (Å, float64 of shape (3, 3)) of a frame."""

    step: int
    time: float
    cell: np.ndarray | None


class Place(NamedTuple):
    """File in which ranks write the atoms of a frame, and offsets of the first atom's data.

    `starts` has an offset for each section of a frame, such as positions and velocities.
    """

    path: str
    starts: tuple[int, ...]


class Container(ABC):
    """Output file, as rank 0 represents it.

    For every frame, `place` is called, ranks write their atoms, and `commit` is called. If an error
    occurs in between, `cut_back` is called. A frame counts after `commit`: if the job is killed
    before, the file keeps the previous `n_frames` frames.
    """

    #: True for 64-bit numbers, if the format offers a choice.
    double = False

    def __init__(self, settings: Settings):
        self._settings = settings
        self._output: Output | None = None
        self.n_frames = 0

    @abstractmethod
    def place(self, contents: Contents, heading: Heading) -> Place:
        """Allocate the next frame, and return where ranks write its atoms.

        Raises `UnwritableError` if the file cannot store the frame.
        """

    @abstractmethod
    def commit(self) -> None:
        """Count the frame as complete, after its atoms were written."""

    @abstractmethod
    def cut_back(self) -> None:
        """Truncate the file to the committed frames."""

    def stored_property(self, name: str, first: int, n_atoms: int) -> np.ndarray | None:
        """Read "names", "masses" or "charges" of atoms in an existing file; None if not stored.

        Atoms are counted from 0. Names are uint8 of shape (n_atoms, 8), padded with blanks.
        """
        return None

    def put_properties(self, first: int, properties: np.ndarray) -> None:
        """Write names, masses and charges of some atoms of a new file, before its first commit.

        Atoms are counted from 0; `properties` are records of "name", "mass" (u) and "charge" (e).
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close the file."""
        if self._output is not None:
            output, self._output = self._output, None
            output.close()

    def _publish(self) -> None:
        """Rename the file to its final name, then count the written frame."""
        assert self._output is not None
        if self._settings.sync:
            self._output.sync()
        self._output.publish(overwrite=self._settings.overwrite or self.n_frames > 0)
        self.n_frames += 1


def check_contents(path: str, found: Contents, expected: Contents) -> None:
    """Raise `UnwritableError` if a frame's content differs from that of the file's frames."""
    for what, one, other in (
        ("", ", ".join(found.fields), ", ".join(expected.fields)),
        ("a cell: ", _presence(found.has_cell), _presence(expected.has_cell)),
    ):
        if one != other:
            raise UnwritableError(
                f"{path}: expected {what}{other}, as its frames have, found {one}; all frames of a "
                "file contain the same"
            )


def check_atom_count(path: str, found: int, expected: int) -> None:
    """Raise `AtomCountError` if a file to be extended has another number of atoms."""
    if found != expected:
        error = AtomCountError(
            f"{path} belongs to another system: expected {expected} atoms, found {found}"
        )
        error.found = found
        raise error


def _presence(there: bool) -> str:
    """Describe for an error message whether there is a cell."""
    return "one" if there else "none"


class Output:
    """File in which one process writes the headers, and other processes write the atoms.

    Until it is published as `path`, the file has the name `temporary`.
    """

    def __init__(self, path: str, descriptor: int, temporary: Path | None = None):
        self.path = path
        self._descriptor = descriptor
        self._temporary = temporary

    @classmethod
    def new(cls, path: str) -> Self:
        """Create a file that appears under its name when it is published."""
        temporary = temporary_name(path)
        with writing_to(path):
            return cls(path, create_temporary(temporary, path), temporary)

    @classmethod
    def existing(cls, path: str) -> Self:
        """Open a regular file that is to be extended."""
        check_regular(path)
        return cls(path, os.open(path, os.O_RDWR | PLAIN))

    @property
    def name(self) -> str:
        """Current name of the file."""
        return os.fspath(self._temporary or self.path)

    @property
    def is_published(self) -> bool:
        """True if the file has its final name."""
        return self._temporary is None

    @property
    def size(self) -> int:
        """Size of the file, bytes."""
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        """Read `size` bytes; fewer if the file ends before."""
        pieces = []
        while size > 0 and (piece := read_at(self._descriptor, size, offset)):
            pieces.append(piece)
            offset, size = offset + len(piece), size - len(piece)
        return b"".join(pieces)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write all bytes at their offset."""
        left = memoryview(data)
        with writing_to(self.path):
            while left:
                done = write_at(self._descriptor, left, offset)
                left, offset = left[done:], offset + done

    def reserve(self, offset: int, size: int) -> None:
        """Reserve disk space for `size` bytes at an offset, if the file system supports it."""
        if size > 0:
            with writing_to(self.path):
                try:
                    reserve(self._descriptor, offset, size)
                except OSError as error:
                    if error.errno not in _CANNOT_RESERVE:
                        raise

    def cut(self, size: int) -> None:
        """Set the size: truncate the file, or extend it with zeros."""
        with writing_to(self.path):
            os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """Wait until all written bytes are on the disk."""
        with writing_to(self.path):
            os.fsync(self._descriptor)

    def check_not_replaced(self) -> None:
        """Raise `FileChangedError` if another file, or none, now has the name of this file."""
        try:
            same = os.path.samestat(os.stat(self.name), os.fstat(self._descriptor))
        except FileNotFoundError:
            same = False
        if not same:
            raise FileChangedError(
                f"{self.path}: expected the file to which frames were written, found another or "
                "none: do not touch the file until the writer is closed"
            )

    def publish(self, *, overwrite: bool) -> None:
        """Rename the file to its final name, unless it already has this name."""
        if self._temporary is None:
            return
        check_output(self.path, overwrite=overwrite)
        with writing_to(self.path):
            detach(self._descriptor)
            try:
                publish(self._temporary, self.path)
                self._temporary = None
            finally:
                attach(self._descriptor, self.name)

    def close(self) -> None:
        """Close the file. A file without its final name is removed."""
        os.close(self._descriptor)
        if self._temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary)


#: One write: an offset in the file, and the bytes to write there.
Piece = tuple[int, bytes]
