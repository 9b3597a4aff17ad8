"""The file on the disk: of another name until there is a frame in it."""

import contextlib
import errno
import os
from pathlib import Path
from typing import Self

from paceline.errors import FileChangedError
from paceline.files import (
    create_temporary,
    publish,
    refuse_impossible,
    refuse_special,
    temporary_name,
    writing_to,
)

#: What file systems say that keep no room.
_CANNOT_RESERVE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class Output:
    """A file of which one process writes the headers, while others write the atoms.

    Parameters
    ----------
    path : str
        Final name.
    descriptor : int
        Open for reading and writing.
    temporary : pathlib.Path, optional
        What it is called until it is published.

    Attributes
    ----------
    path : str
        Final name.
    """

    def __init__(self, path: str, descriptor: int, temporary: Path | None = None):
        self.path = path
        self._descriptor = descriptor
        self._temporary = temporary

    @classmethod
    def new(cls, path: str) -> Self:
        """Make a file that appears under its name when it is published.

        Parameters
        ----------
        path : str
            Final name.

        Returns
        -------
        Output

        Raises
        ------
        OSError
            It cannot be made.
        """
        temporary = temporary_name(path)
        with writing_to(path):
            return cls(path, create_temporary(temporary, path), temporary)

    @classmethod
    def existing(cls, path: str) -> Self:
        """Open a file that is to grow.

        Parameters
        ----------
        path : str
            Its name.

        Returns
        -------
        Output

        Raises
        ------
        OSError
            It cannot be opened, or not written.
        FileExistsError
            It is no regular file.
        """
        refuse_special(path)
        return cls(path, os.open(path, os.O_RDWR))

    @property
    def name(self) -> str:
        """What the file is called now."""
        return os.fspath(self._temporary or self.path)

    @property
    def is_published(self) -> bool:
        """Whether the file has its name."""
        return self._temporary is None

    @property
    def size(self) -> int:
        """Bytes."""
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes, fewer where the file ends.

        Parameters
        ----------
        offset, size : int
            Which.

        Returns
        -------
        bytes
        """
        pieces = []
        while size > 0 and (piece := os.pread(self._descriptor, size, offset)):
            pieces.append(piece)
            offset, size = offset + len(piece), size - len(piece)
        return b"".join(pieces)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write all of some bytes to their place.

        Parameters
        ----------
        offset : int
            Of the first.
        data : bytes-like
            What.

        Raises
        ------
        OSError
            The system could not write.
        """
        left = memoryview(data)
        with writing_to(self.path):
            while left:
                done = os.pwrite(self._descriptor, left, offset)
                left, offset = left[done:], offset + done

    def reserve(self, offset: int, size: int) -> None:
        """Make sure that there is room on the disk for bytes, where the system can do that.

        Parameters
        ----------
        offset, size : int
            Which.

        Raises
        ------
        OSError
            There is none; what the file holds is as it was.
        """
        if size > 0 and hasattr(os, "posix_fallocate"):
            with writing_to(self.path):
                try:
                    os.posix_fallocate(self._descriptor, offset, size)
                except OSError as error:
                    if error.errno not in _CANNOT_RESERVE:
                        raise

    def cut(self, size: int) -> None:
        """Leave only the first bytes, or let the file have so many.

        Parameters
        ----------
        size : int
            So many.
        """
        with writing_to(self.path):
            os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """Return when all that was written is on the disk."""
        with writing_to(self.path):
            os.fsync(self._descriptor)

    def refuse_replaced(self) -> None:
        """Raise where the name is another file's now, to which other processes would write.

        Raises
        ------
        FileChangedError
            It is, or nothing has the name.
        """
        try:
            same = os.path.samestat(os.stat(self.name), os.fstat(self._descriptor))
        except FileNotFoundError:
            same = False
        if not same:
            raise FileChangedError(
                f"{self.path}: expected the file to which frames were written, found another or "
                "none: leave it alone until the writer is closed"
            )

    def publish(self, *, overwrite: bool) -> None:
        """Let the file appear under its name, if it has not yet.

        Parameters
        ----------
        overwrite : bool
            Whether a file of that name may be replaced.

        Raises
        ------
        FileExistsError
            There is a file of that name and it is not to be replaced.
        """
        if self._temporary is None:
            return
        refuse_impossible(self.path, overwrite=overwrite)
        with writing_to(self.path):
            publish(self._temporary, self.path)
        self._temporary = None

    def close(self) -> None:
        """Let go of the file; one that has not appeared is removed."""
        os.close(self._descriptor)
        if self._temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary)
