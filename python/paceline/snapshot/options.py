"""What a user chose for a file that is to be written."""

import os
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline._util.files import size_of_words
from paceline.errors import UnsupportedError, UnwritableError
from paceline.snapshot.container import Settings
from paceline.snapshot.formats import Format, format_of

#: Who writes, by the file's name without links. Who is forgotten without an end writes no more.
_WRITERS: weakref.WeakValueDictionary[str, object] = weakref.WeakValueDictionary()


def claim(path: str, writer: object) -> None:
    """Note that a file is being written.

    Parameters
    ----------
    path : str
        The file, which need not be there.
    writer : object
        By whom.

    Raises
    ------
    UnwritableError
        Another one writes it.
    """
    name = os.path.realpath(path)
    if any(_are_same(name, other) for other in list(_WRITERS)):
        raise UnwritableError(
            f"{path}: expected a file that nobody writes, found that another writer of this "
            "program has it: close that one first"
        )
    _WRITERS[name] = writer


def release(writer: object) -> None:
    """Note that somebody writes no more.

    Parameters
    ----------
    writer : object
        Who.
    """
    for name, other in list(_WRITERS.items()):
        if other is writer:
            del _WRITERS[name]


def _are_same(name: str, other: str) -> bool:
    """Whether two names are one file's, be it by a hard link."""
    try:
        return name == other or os.path.samefile(name, other)
    except OSError:
        return False


METHODS = ("sorted", "serial", "direct", "mpiio")
#: What there is to choose of some formats only, and what it is where nobody says.
OPTIONS: dict[str, Any] = {"title": "", "dt": None, "n_frames": None, "double": False}


@dataclass(frozen=True)
class Choices:
    """All that was chosen, and can be.

    Attributes
    ----------
    format : Format
        Of the file.
    settings : Settings
        Of the file.
    method : str
        Out of `METHODS`.
    writers : int or tuple of int or None
        As given.
    buffer : int
        Bytes.
    wait : bool
        As given.
    """

    format: Format
    settings: Settings
    method: Any
    writers: int | tuple[int, ...] | None
    buffer: int
    wait: bool

    def told(self) -> dict[str, Any]:
        """What other ranks must have chosen, too; only rank 0's path is used."""
        chosen = {name: getattr(self.settings, name) for name in (*_SETTINGS, *OPTIONS)}
        others = {name: getattr(self, name) for name in ("method", "writers", "buffer", "wait")}
        return {"format": self.format.name, **chosen, **others}


_SETTINGS = ("n_atoms", "append", "overwrite", "sync")


def choices_of(
    path: str | os.PathLike,
    n_atoms: int,
    *,
    format: str | None,
    method: str,
    writers: int | Sequence[int] | None,
    buffer: str | int,
    append: bool,
    overwrite: bool,
    sync: bool,
    wait: bool,
    **options: Any,
) -> Choices:
    """See that all that a user chose can be.

    Parameters
    ----------
    path : path-like
        This and what follows: see `paceline.snapshot.Writer`.
    n_atoms : int
        Of all ranks.
    format : str or None
        Where the name does not tell.
    method : str
        Out of `METHODS`.
    writers : int or sequence of int or None
        How many, or which.
    buffer : str or int
        Bytes.
    append, overwrite, sync, wait : bool
        As there.
    **options : object
        Those of `OPTIONS`.

    Returns
    -------
    Choices

    Raises
    ------
    UnsupportedError
        There is no such format or method, the format has not what was chosen, or MPI has not.
    ValueError
        A size is none, or what was chosen contradicts itself.
    """
    found = format_of(path, format)
    if method not in METHODS:
        raise UnsupportedError(f"expected a method out of {', '.join(METHODS)}, found {method!r}")
    for option, value in options.items():
        if value != OPTIONS[option] and option not in found.options:
            raise UnsupportedError(f"{found.name} has no {option} to choose")
    found.refuse_title(options["title"])
    if append and overwrite:
        raise ValueError("a file that is there is continued or replaced: append or overwrite")
    for name, number in (("n_atoms", n_atoms), ("n_frames", options["n_frames"])):
        whole = isinstance(number, int | np.integer)
        if number is not None and not (whole and 0 < number <= sys.maxsize):
            raise ValueError(f"expected a whole number {name} of at least 1, found {number!r}")
    dt = options["dt"]
    if dt is not None and not (isinstance(dt, int | float | np.number) and 0 < dt < np.inf):
        raise ValueError(f"expected a dt of more than 0 ps, found {dt!r}")
    if not wait:
        _refuse_one_thread()
    n_bytes = size_of_words(str(buffer))
    if n_bytes > sys.maxsize:
        raise ValueError(f"a buffer of {buffer} is too big for any machine")
    if isinstance(writers, np.integer):
        writers = int(writers)
    given = writers if writers is None or isinstance(writers, int) else tuple(writers)
    settings = Settings(
        path=os.path.abspath(path),
        n_atoms=int(n_atoms),
        append=append,
        overwrite=overwrite,
        sync=sync,
        **options,
    )
    return Choices(found, settings, method, given, n_bytes, wait)


def _refuse_one_thread() -> None:
    from mpi4py import MPI

    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise UnsupportedError(
            "wait=False takes an MPI that allows calls from several threads "
            "(MPI.THREAD_MULTIPLE), which this one does not"
        )
