"""Options of snapshots: formats, writing and reading ranks, and files that are being written."""

import math
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline import _core
from paceline._util.files import local_path, parse_size
from paceline.block import FIELDS, field_bits
from paceline.errors import UnsupportedError, UnwritableError
from paceline.snapshot.output import Container, Contents, Settings

if TYPE_CHECKING:
    from paceline.snapshot.local_atoms import LocalAtoms

METHODS = ("sorted", "serial", "direct", "mpiio")
#: Options that only some formats support, with their defaults.
OPTIONS: dict[str, object] = {"title": "", "dt": None, "n_frames": None, "double": False}
#: Active writers by resolved file name; garbage-collected writers drop out.
_OPEN_FILES: weakref.WeakValueDictionary[str, object] = weakref.WeakValueDictionary()
#: Minimum number of bytes per frame and writer. Measured with 8 ranks on two cores, relative to one
#: writer: 8 writers need 0.56 of the time for a CONFIG of 16 MiB, and 0.74 for 4 MiB, as do 4
#: writers. For 1 MiB and less, the number of writers does not matter.
WRITER_BYTES = 2**20


@dataclass(frozen=True)
class FileFormat:
    """Output format."""

    name: str
    #: Function that creates the file object on rank 0.
    container: Callable[[Settings], Container]
    #: Function that creates the encoder of atoms, given the fields, and True for 64-bit numbers.
    coding: Callable[[tuple[str, ...], bool], "_core.SnapshotFormat"]
    #: Vectors that the format supports.
    fields: tuple[str, ...] = FIELDS
    #: True if each frame contains names (always), masses and charges in addition to vectors.
    in_lines: bool = False
    #: True if the file stores names, masses and charges only once.
    static_properties: bool = False
    #: Names of supported options that not all formats have.
    options: tuple[str, ...] = ()

    def check_title(self, title: str) -> None:
        """Raise `UnwritableError` if a file cannot store a title."""
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


def _container(module: str, name: str) -> Callable[[Settings], Container]:
    """Import a container class only when needed: on rank 0, and h5py only for H5MD."""

    def make(settings: Settings) -> Container:
        container: Container = getattr(import_module(f"paceline.snapshot.{module}"), name)(settings)
        return container

    return make


def _code(kind: Any, **options: Any) -> Callable[[tuple[str, ...], bool], "_core.SnapshotFormat"]:
    return lambda fields, double: _core.SnapshotFormat(kind, field_bits(fields), **options)


def _code_h5md(fields: tuple[str, ...], double: bool) -> "_core.SnapshotFormat":
    return _core.SnapshotFormat("arrays", field_bits(fields), dtype="<f8" if double else "<f4")


#: Factors from Å, Å/ps and kJ/(mol·Å) to Amber's units: the time unit is 1/20.455 ps, and 1 kcal is
#: 4.184 kJ.
_AMBER = (1.0, 1 / 20.455, 1 / 4.184)
_TEXT: dict[str, Any] = {"in_lines": True, "options": ("title", "dt")}
FORMATS = {
    one.name: one
    for one in (
        FileFormat("CONFIG", _container("dlpoly", "Config"), _code("CONFIG"), **_TEXT),
        FileFormat("REVCON", _container("dlpoly", "Config"), _code("CONFIG"), **_TEXT),
        FileFormat("HISTORY", _container("dlpoly", "History"), _code("HISTORY"), **_TEXT),
        FileFormat(
            "H5MD",
            _container("h5md", "H5MD"),
            _code_h5md,
            static_properties=True,
            options=("title", "n_frames", "double"),
        ),
        FileFormat(
            "NetCDF",
            _container("netcdf_dcd", "NetCDF"),
            _code("arrays", factors=_AMBER, dtype=">f4"),
        ),
        FileFormat("DCD", _container("netcdf_dcd", "Dcd"), _code("DCD"), ("positions",)),
    )
}
#: File name extensions, and words that may be any dot-separated part of a file name.
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
    """True if two names refer to the same file, for example by hard links."""
    try:
        return name == other or os.path.samefile(name, other)
    except OSError:
        return False


@dataclass(frozen=True)
class WriterOptions:
    """Checked options of a writer."""

    format: FileFormat
    settings: Settings
    #: Item of `METHODS`.
    method: Any
    #: Value of the argument `writers`.
    writers: int | tuple[int, ...] | None
    #: Size of the buffer, bytes.
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


def choose_writers(nodes: Sequence[str], n_bytes: int) -> list[int]:
    """Choose the writing ranks by default.

    For P ranks, their number is the largest power of two up to min(P, 8 √P). (In DL_POLY_5 it must
    also divide P, because all writers serve equal numbers of ranks.) Small frames get fewer
    writers, because many small pieces take longer to send and write than a few large ones. `nodes`
    are host names by rank; `n_bytes` is the size of a frame.

    Examples
    --------
    >>> choose_writers(["one"] * 4 + ["other"] * 4, 2 * WRITER_BYTES)
    [0, 4]
    >>> len(choose_writers(["one"] * 128, 1000 * WRITER_BYTES))
    64
    """
    n_ranks = len(nodes)
    most = min(n_ranks, 8 * math.sqrt(n_ranks), max(1, n_bytes // WRITER_BYTES))
    return spread(nodes, 2 ** int(math.log2(most)))


def spread(nodes: Sequence[str], n_writers: int) -> list[int]:
    """Distribute writers evenly over nodes, and within each node over its ranks.

    Examples
    --------
    >>> spread(["one"] * 6 + ["other"] * 2, 5)
    [0, 2, 4, 6, 7]
    """
    by_node: dict[str, list[int]] = {}
    for rank, node in enumerate(nodes):
        by_node.setdefault(node, []).append(rank)
    shares, left = dict.fromkeys(by_node, 0), n_writers
    while left > 0:
        for node, ranks in by_node.items():
            if left > 0 and shares[node] < len(ranks):
                shares[node] += 1
                left -= 1
    return sorted(
        ranks[place]
        for node, ranks in by_node.items()
        for place in np.linspace(0, len(ranks), shares[node], endpoint=False, dtype=int)
    )


def given_writers(writers: int | Sequence[int], nodes: Sequence[str]) -> list[int]:
    """Choose writers from their number or ranks; raise `UnsupportedError` if invalid."""
    n_ranks = len(nodes)
    if isinstance(writers, int | np.integer):
        if not 1 <= writers <= n_ranks:
            raise UnsupportedError(f"expected from 1 to {n_ranks} writers, found {writers}")
        return spread(nodes, int(writers))
    ranks = sorted({int(rank) for rank in writers})
    if not ranks or len(ranks) < len(writers) or ranks[0] < 0 or ranks[-1] >= n_ranks:
        raise UnsupportedError(
            f"expected writers out of ranks 0 to {n_ranks - 1}, each once, found {list(writers)}"
        )
    return ranks


def choose_readers(nodes: Sequence[str], n_readers: int | None = None) -> list[int]:
    """Choose reading ranks, distributed over nodes; raise `UnsupportedError` for too few ranks.

    As in DL_POLY_5, the default number is the largest power of two that divides the number of
    ranks P and is at most 2 √P.

    Examples
    --------
    >>> choose_readers(["one"] * 4 + ["other"] * 4)
    [0, 2, 4, 6]
    >>> [len(choose_readers(["one"] * n)) for n in (1, 2, 6, 16, 64, 1000)]
    [1, 2, 2, 8, 16, 8]
    """
    n_ranks = len(nodes)
    if n_readers is None:
        n_readers = 1
        while n_ranks % (2 * n_readers) == 0 and n_readers**2 <= n_ranks:
            n_readers *= 2
    if not 1 <= n_readers <= n_ranks:
        raise UnsupportedError(f"expected from 1 to {n_ranks} readers, found {n_readers}")
    return spread(nodes, n_readers)
