"""Options of a snapshot writer, checked, and the registry of files that are being written."""

import os
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline._util.files import parse_size
from paceline.errors import UnsupportedError, UnwritableError
from paceline.snapshot.file_interface import Settings
from paceline.snapshot.formats import FileFormat, format_of

METHODS = ("sorted", "serial", "direct", "mpiio")
#: Options of some formats only, and their defaults.
OPTIONS: dict[str, Any] = {"title": "", "dt": None, "n_frames": None, "double": False}
#: Options of `Settings` that ranks must agree on.
_SETTINGS = ("n_atoms", "append", "overwrite", "sync")
#: Writers by the names of their files, without links; one that is garbage collected writes no more.
_OPEN_FILES: weakref.WeakValueDictionary[str, object] = weakref.WeakValueDictionary()


def register_open_file(path: str, writer: object) -> None:
    """Note that a file is being written; raise `UnwritableError` where another writer has it."""
    name = os.path.realpath(path)
    if any(_are_same(name, other) for other in list(_OPEN_FILES)):
        raise UnwritableError(
            f"{path}: expected a file that nobody writes, found that another writer of this "
            "program has it: close that one first"
        )
    _OPEN_FILES[name] = writer


def unregister(writer: object) -> None:
    """Note that a writer writes no more."""
    for name, other in list(_OPEN_FILES.items()):
        if other is writer:
            del _OPEN_FILES[name]


def _are_same(name: str, other: str) -> bool:
    """Compare files, so that hard links are found."""
    try:
        return name == other or os.path.samefile(name, other)
    except OSError:
        return False


@dataclass(frozen=True)
class WriterOptions:
    """Options of a writer, checked."""

    format: FileFormat
    settings: Settings
    #: Out of `METHODS`.
    method: Any
    #: As given.
    writers: int | tuple[int, ...] | None
    #: Bytes.
    buffer: int
    wait: bool

    def agreement_key(self) -> dict[str, Any]:
        """Return what must be the same on all ranks; only rank 0's path is used."""
        chosen = {name: getattr(self.settings, name) for name in (*_SETTINGS, *OPTIONS)}
        others = {name: getattr(self, name) for name in ("method", "writers", "buffer", "wait")}
        return {"format": self.format.name, **chosen, **others}


def options_of(
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
) -> WriterOptions:
    """Check the options of `paceline.snapshot.Writer`, `options` being those of `OPTIONS`.

    Raises `UnsupportedError` where the format or MPI lacks what is asked for, `ValueError` where a
    number is none or options contradict each other.
    """
    found = format_of(path, format)
    if method not in METHODS:
        raise UnsupportedError(f"expected a method out of {', '.join(METHODS)}, found {method!r}")
    for option, value in options.items():
        if value != OPTIONS[option] and option not in found.options:
            raise UnsupportedError(f"{found.name} has no {option} to choose")
    found.check_title(options["title"])
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
        _check_threads()
    n_bytes = parse_size(str(buffer))
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
    return WriterOptions(found, settings, method, given, n_bytes, wait)


def _check_threads() -> None:
    from mpi4py import MPI

    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise UnsupportedError(
            "wait=False takes an MPI that allows calls from several threads "
            "(MPI.THREAD_MULTIPLE), which this one does not"
        )
