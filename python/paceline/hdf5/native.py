"""HDF5 files, opened for reading: what others ask of HDF5's own library, they ask here."""

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any, Self

import h5py

from paceline.errors import DamagedFileError, PacelineError, UnsupportedError
from paceline.hdf5.array import DEFLATE_RATIO, NOWHERE, Array
from paceline.hdf5.cut import MOST, CutFile
from paceline.hdf5.faults import H5PY_ERRORS, asking, damaged, reason_of
from paceline.hdf5.group import Group

__all__ = ["DEFLATE_RATIO", "NOWHERE", "Array", "File", "Group", "asking", "damaged"]


class File:
    """An HDF5 file, open for reading; a context manager.

    Parameters
    ----------
    path : path-like
        The file.
    collective : bool
        Whether the ranks that have opened it together all make each reading call.
    **options
        For h5py.

    Attributes
    ----------
    path : str
        As given.
    size : int
        Bytes.
    cut_from : int or None
        Bytes that it says it had, of a file that was cut: what is left of it is read.
    root : Group
        All that is in it.

    Raises
    ------
    OSError
        It is not there, or this user may not read it.
    UnsupportedError
        It is no HDF5 file, or open for writing.
    DamagedFileError
        Its first structures are damaged.
    """

    def __init__(self, path: str | os.PathLike, *, collective: bool = False, **options: Any):
        self.path = os.fspath(path)
        self.collective = collective
        with open(self.path, "rb") as file:
            self.size = file.seek(0, os.SEEK_END)
        self.cut_from: int | None = None
        try:
            self._h5 = h5py.File(self.path, "r", **options)
        except H5PY_ERRORS as error:
            self._h5 = self._what_is_left(error)
        if self._h5.id.get_intent() & h5py.h5f.ACC_RDWR:
            self.close()
            raise _in_use(self.path, "this program has it open for writing: close it there first")
        self.own_name = h5py.h5f.get_name(self._h5.id)
        self.root = Group(self, "/", self._h5)

    def _what_is_left(self, error: BaseException) -> h5py.File:
        """A file that HDF5 did not open, if that was because it is cut."""
        cut = re.search(r"stored_eof = (\d+)", str(error))
        if cut is not None and int(cut[1]) <= MOST * self.size:
            self.cut_from = int(cut[1])
            with contextlib.suppress(*H5PY_ERRORS):
                return h5py.File(CutFile(self.path, self.cut_from), "r")
        raise _why_not_open(self.path, self.size, error) from error

    @contextlib.contextmanager
    def blaming_the_cut(self) -> Iterator[None]:
        """Say of a file that was cut that this is why it cannot be read.

        Yields
        ------
        None

        Raises
        ------
        DamagedFileError
            What HDF5 must know of the file lay behind the cut.
        """
        try:
            yield
        except DamagedFileError as error:
            if self.cut_from is None:
                raise
            found = (
                f"{self.size}: the file was cut, and what tells where its numbers are lay in the "
                "rest; copy it again from where it is whole"
            )
            raise damaged(self.path, "", f"{self.cut_from} bytes", found, self.size) from error

    @property
    def h5(self) -> Any:
        """What h5py opened, for those who copy it."""
        return self._h5

    def close(self) -> None:
        """Let go of the file."""
        self._h5.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _in_use(path: str, why: str) -> UnsupportedError:
    return UnsupportedError(f"{path}: {why}")


def _why_not_open(path: str, size: int, error: BaseException) -> PacelineError:
    """The one thing that a user should know of a file that HDF5 does not open."""
    text = str(error)
    if "lock file" in text:
        return _in_use(path, "another program has it open for writing: wait until it closes it")
    if "already open for" in text or "consistency flags" in text:
        return _in_use(
            path,
            "another program writes it, or was killed when it did: wait for it, or, if none does, "
            f"clear the mark that it left with h5clear --status {path}",
        )
    if "signature not found" in text:
        return UnsupportedError(f"{path}: not an HDF5 file: none of its signatures was found")
    if cut := re.search(r"stored_eof = (\d+)", text):
        return damaged(path, "", f"{cut[1]} bytes", f"{size}: the file was cut", size)
    return damaged(path, "", "an HDF5 file", f"what HDF5 refuses ({reason_of(error)})")
