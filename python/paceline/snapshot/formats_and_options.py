"""Formats and options of `paceline.snapshot.Writer`, and the register of files being written."""

import os
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline import _core
from paceline._util.arguments import parse_size
from paceline._util.files import check_output, local_path, writing_to
from paceline.block import FIELDS, field_bits
from paceline.errors import PacelineWarning, UnsupportedError, UnwritableError
from paceline.snapshot.shared_file import Container, Contents, Heading, Place, Settings

if TYPE_CHECKING:
    from paceline.snapshot.atoms_of_rank import LocalAtoms

METHODS = ("sorted", "serial", "direct", "mpiio")
#: Options that only some formats support, with their defaults.
OPTIONS: dict[str, object] = {"title": "", "dt": None, "n_frames": None, "double": False}
#: Active writers by resolved file name; a garbage-collected writer is removed automatically.
_OPEN_FILES: weakref.WeakValueDictionary[str, object] = weakref.WeakValueDictionary()


class ContainerFile(Container):
    """File that the compiled module writes: a single frame, or frames one after another.

    In a file of several frames, a header counts them.
    """

    def __init__(self, kind: str, settings: Settings):
        super().__init__(settings)
        path = settings.path
        if not settings.append or not os.path.exists(path):
            check_output(path, overwrite=settings.overwrite)
        self._file = _core.SnapshotFile(
            kind,
            path,
            settings.n_atoms,
            title=settings.title,
            append=settings.append,
            overwrite=settings.overwrite,
            dt=settings.dt,
            sync=settings.sync,
        )
        self.n_frames = self._file.n_frames

    def place(self, contents: Contents, heading: Heading) -> Place:
        """Allocate the next frame; return where its atoms are written."""
        with writing_to(self._settings.path):
            path, starts, warning = self._file.place(
                field_bits(contents.fields),
                step=heading.step,
                time=heading.time,
                cell=None if heading.cell is None else heading.cell.tolist(),
            )
        if warning is not None:
            warnings.warn(warning, PacelineWarning, stacklevel=2)
        return Place(os.fspath(path), tuple(starts))

    def commit(self) -> None:
        """Count the frame as complete, after its atoms were written."""
        self._file.commit()
        self.n_frames = self._file.n_frames

    def cut_back(self) -> None:
        """Truncate the file to the committed frames."""
        self._file.cut_back()

    def stored_property(self, name: str, first: int, n_atoms: int) -> np.ndarray | None:
        """Read names from the first frame.

        Return None for masses and charges, because they are stored in each frame and not once.
        """
        names = self._file.stored_names(first, n_atoms) if name == "names" else None
        return None if names is None else np.frombuffer(names, np.uint8).reshape(-1, 8)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass(frozen=True)
class FileFormat:
    """Output format of snapshots: its file, its encoder, and the data and options it supports."""

    name: str
    #: Function that creates the file object on rank 0.
    container: Callable[[Settings], Container]
    #: Function that creates the encoder of atoms, given the fields, and True for 64-bit numbers.
    coding: Callable[[tuple[str, ...], bool], "_core.SnapshotFormat"]
    #: Fields that the format can store, a subset of `FIELDS`.
    fields: tuple[str, ...] = FIELDS
    #: True if each frame contains the names of the atoms (and in HISTORY, masses and charges).
    in_lines: bool = False
    #: True if the file stores names, masses and charges only once.
    static_properties: bool = False
    #: Those of `OPTIONS` that the format supports.
    options: tuple[str, ...] = ()

    def check_title(self, title: str) -> None:
        """Raise `UnwritableError` if a file of this format cannot store the title."""
        if "\0" in title:
            raise UnwritableError(f"expected a title without zero bytes, found {title!r}")
        if self.in_lines:
            _core.dlpoly_history_head(title, 1, field_bits(FIELDS[:1]), imcon=0, n_frames=0)

    def check_atoms(self, path: str, atoms: "LocalAtoms", contents: Contents) -> None:
        """Raise `UnwritableError` if atoms have unsupported data or lack required data."""
        for field in contents.fields:
            if field not in self.fields:
                raise UnwritableError(
                    f"{path}: {self.name} contains {' and '.join(self.fields)}, not {field}"
                )
        if self.in_lines and atoms.names is None:
            raise UnwritableError(f"{path}: {self.name} contains a name for every atom: pass names")


def _h5md(settings: Settings) -> Container:
    """Make the container of an H5MD file; called on rank 0, so that no other rank imports HDF5."""
    from paceline.snapshot.write_h5md import H5MD

    return H5MD(settings)


def _code_h5md(fields: tuple[str, ...], double: bool) -> "_core.SnapshotFormat":
    return _core.SnapshotFormat("arrays", field_bits(fields), dtype="<f8" if double else "<f4")


def _frame_file(kind: Any, **options: Any) -> FileFormat:
    """Create the description of a format whose files the compiled module writes."""

    def code(fields: tuple[str, ...], double: bool) -> "_core.SnapshotFormat":
        return _core.SnapshotFormat(kind, field_bits(fields))

    return FileFormat(kind, lambda settings: ContainerFile(kind, settings), code, **options)


_TEXT: dict[str, Any] = {"in_lines": True, "options": ("title", "dt")}
FORMATS = {
    one.name: one
    for one in (
        _frame_file("CONFIG", **_TEXT),
        _frame_file("REVCON", **_TEXT),
        _frame_file("HISTORY", **_TEXT),
        FileFormat(
            "H5MD",
            _h5md,
            _code_h5md,
            static_properties=True,
            options=("title", "n_frames", "double"),
        ),
        _frame_file("NetCDF"),
        _frame_file("DCD", fields=("positions",)),
    )
}
#: Formats by file name extension; and formats whose name determines them as a word of the file name
#: between dots.
_ENDINGS = {".h5md": "H5MD", ".h5": "H5MD", ".hdf5": "H5MD", ".nc": "NetCDF", ".ncdf": "NetCDF"} | {
    ".dcd": "DCD"
}
_WORDS = ("CONFIG", "REVCON", "HISTORY")


def format_of(path: str | os.PathLike, name: str | None = None) -> FileFormat:
    """Return the format of a new file: the user's choice, or derived from the file name.

    Examples
    --------
    >>> format_of("run/HISTORY").name, format_of("nacl.REVCON").name, format_of("md.nc").name
    ('HISTORY', 'REVCON', 'NetCDF')
    """
    if name is not None:
        for known, one in FORMATS.items():
            if known.upper() == name.upper():
                return one
        raise UnsupportedError(f"expected a format out of {', '.join(FORMATS)}, found {name!r}")
    base = os.path.basename(os.fspath(path))
    ending = _ENDINGS.get(os.path.splitext(base)[1].lower())
    if ending is not None:
        return FORMATS[ending]
    for word in base.upper().split("."):
        if word in _WORDS:
            return FORMATS[word]
    raise UnsupportedError(
        f"{os.fspath(path)}: expected a name that ends in {', '.join(_ENDINGS)} or is "
        f"{', '.join(_WORDS)}; or pass format="
    )


def register_open_file(path: str, writer: object) -> None:
    """Register a file for writing; raise `UnwritableError` if another writer has it open."""
    name = os.path.realpath(path)
    if any(_are_same(name, other) for other in list(_OPEN_FILES)):
        raise UnwritableError(
            f"{path}: another writer of this program is writing this file: close that writer first"
        )
    _OPEN_FILES[name] = writer


def unregister(writer: object) -> None:
    """Remove a closed writer from the open files."""
    for name, other in list(_OPEN_FILES.items()):
        if other is writer:
            del _OPEN_FILES[name]


def _are_same(name: str, other: str) -> bool:
    """Return True if two names refer to the same file, for example by hard links."""
    try:
        return name == other or os.path.samefile(name, other)
    except OSError:
        return False


@dataclass(frozen=True)
class WriterOptions:
    """Checked options of a writer."""

    format: FileFormat
    settings: Settings
    #: Method of writing, an item of `METHODS`.
    method: Any
    #: Number of writing ranks, or the ranks, as the user passed them; None for the default.
    writers: int | tuple[int, ...] | None
    #: Memory of a writing rank in addition to its own atoms, bytes.
    buffer: int
    wait: bool

    def agreement_key(self) -> dict[str, object]:
        """Return the values that must be the same on all ranks; only rank 0's path is used."""
        settings = self.settings
        return {
            "format": self.format.name,
            "n_atoms": settings.n_atoms,
            "append": settings.append,
            "overwrite": settings.overwrite,
            "sync": settings.sync,
            "title": settings.title,
            "dt": settings.dt,
            "n_frames": settings.n_frames,
            "double": settings.double,
            "method": self.method,
            "writers": self.writers,
            "buffer": self.buffer,
            "wait": self.wait,
        }


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
    """Check the options of `paceline.snapshot.Writer`; `options` are those in `OPTIONS`.

    Raises `UnsupportedError` if the format or MPI does not support an option, and `ValueError` for
    an invalid number or for contradicting options.
    """
    found = format_of(path, format)
    if method not in METHODS:
        raise UnsupportedError(f"expected a method out of {', '.join(METHODS)}, found {method!r}")
    for option, value in options.items():
        if value != OPTIONS[option] and option not in found.options:
            raise UnsupportedError(f"{found.name} has no option {option}")
    found.check_title(options["title"])
    if append and overwrite:
        raise ValueError("an existing file is continued or replaced: choose append or overwrite")
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
        path=local_path(path),
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
            "wait=False needs an MPI that allows calls from several threads "
            "(MPI.THREAD_MULTIPLE), which this MPI does not"
        )


def given_writers(writers: int | Sequence[int], nodes: Sequence[str]) -> list[int]:
    """Return the writing ranks; `writers` is their number, or the ranks themselves.

    Raises `UnsupportedError` if there are no such ranks. `nodes` contains the host of each rank.
    """
    n_ranks = len(nodes)
    if isinstance(writers, int | np.integer):
        if not 1 <= writers <= n_ranks:
            raise UnsupportedError(f"expected from 1 to {n_ranks} writers, found {writers}")
        return _core.spread_ranks(nodes, int(writers))
    ranks = sorted({int(rank) for rank in writers})
    if not ranks or len(ranks) < len(writers) or ranks[0] < 0 or ranks[-1] >= n_ranks:
        raise UnsupportedError(
            f"expected writers out of ranks 0 to {n_ranks - 1}, each once, found {list(writers)}"
        )
    return ranks
