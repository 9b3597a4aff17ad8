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
#: Options that only some formats have, and their defaults.
OPTIONS: dict[str, object] = {"title": "", "dt": None, "n_frames": None, "double": False}
#: Writers by resolved file name; a writer that was garbage-collected no longer writes.
_OPEN_FILES: weakref.WeakValueDictionary[str, object] = weakref.WeakValueDictionary()
#: Minimum number of bytes per frame and writer. On two cores, 8 writers among 8 ranks took 0.56 of
#: the time of one writer for a CONFIG of 16 MiB, and 0.74 for 4 MiB, as 4 writers did. For 1 MiB
#: and less, the number of writers does not matter.
WRITER_BYTES = 2**20


@dataclass(frozen=True)
class FileFormat:
    """Output format."""

    name: str
    #: Maker of the object that rank 0 keeps for a file.
    container: Callable[[Settings], Container]
    #: Maker of the encoder of atoms, from fields and from whether numbers have 64 bits.
    coding: Callable[[tuple[str, ...], bool], "_core.SnapshotFormat"]
    #: Vectors that the format can hold.
    fields: tuple[str, ...] = FIELDS
    #: True if each frame holds names (always), masses and charges in addition to vectors.
    in_lines: bool = False
    #: True if the file stores them once.
    static_properties: bool = False
    #: Names of options that not all formats have.
    options: tuple[str, ...] = ()

    def check_title(self, title: str) -> None:
        """Raise `UnwritableError` if a file cannot have a title."""
        if "\0" in title:
            raise UnwritableError(f"expected a title without zero bytes, found {title!r}")
        if self.in_lines:
            _core.dlpoly_history_head(title, 1, field_bits(FIELDS[:1]), imcon=0, n_frames=0)

    def check_atoms(self, path: str, atoms: "LocalAtoms", contents: Contents) -> None:
        """Raise `UnwritableError` if atoms have unsupported data, or lack required data."""
        for field in contents.fields:
            if field not in self.fields:
                raise UnwritableError(
                    f"{path}: {self.name} holds {' and '.join(self.fields)}, no {field}"
                )
        if self.in_lines and atoms.names is None:
            raise UnwritableError(
                f"{path}: {self.name} holds a name of every atom: names must be given"
            )


def _container(module: str, name: str) -> Callable[[Settings], Container]:
    """Import the class of a container on demand: only on rank 0, and HDF5's only for H5MD."""

    def make(settings: Settings) -> Container:
        container: Container = getattr(import_module(f"paceline.snapshot.{module}"), name)(settings)
        return container

    return make


def _code(kind: Any, **options: Any) -> Callable[[tuple[str, ...], bool], "_core.SnapshotFormat"]:
    return lambda fields, double: _core.SnapshotFormat(kind, field_bits(fields), **options)


def _code_h5md(fields: tuple[str, ...], double: bool) -> "_core.SnapshotFormat":
    return _core.SnapshotFormat("arrays", field_bits(fields), dtype="<f8" if double else "<f4")


#: Factors from Å/ps and kJ/(mol·Å) to Amber's units: its unit of time is 1/20.455 ps, 1 kcal is
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
#: File name extensions, and names that may be any part between dots.
_ENDINGS = {".h5md": "H5MD", ".h5": "H5MD", ".hdf5": "H5MD", ".nc": "NetCDF", ".ncdf": "NetCDF"} | {
    ".dcd": "DCD"
}
_WORDS = ("CONFIG", "REVCON", "HISTORY")


def format_of(path: str | os.PathLike, name: str | None = None) -> FileFormat:
    """Find the format of a new file, from the user's choice or from the file name.

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
        f"{', '.join(_WORDS)}; or say format="
    )


def register_open_file(path: str, writer: object) -> None:
    """Register a file that is being written; raise `UnwritableError` if another writer has it."""
    name = os.path.realpath(path)
    if any(_are_same(name, other) for other in list(_OPEN_FILES)):
        raise UnwritableError(
            f"{path}: expected a file that nobody writes, found that another writer of this "
            "program has it: close that one first"
        )
    _OPEN_FILES[name] = writer


def unregister(writer: object) -> None:
    """Unregister a writer that has ended."""
    for name, other in list(_OPEN_FILES.items()):
        if other is writer:
            del _OPEN_FILES[name]


def _are_same(name: str, other: str) -> bool:
    """Compare files by identity, so that hard links are detected."""
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
    #: Argument `writers`.
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
    """Check the options of `paceline.snapshot.Writer`; `options` are those of `OPTIONS`.

    Raises `UnsupportedError` if the format or MPI does not support an option, and `ValueError` for
    an invalid number or contradicting options.
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
            "wait=False takes an MPI that allows calls from several threads "
            "(MPI.THREAD_MULTIPLE), which this one does not"
        )


def choose_writers(nodes: Sequence[str], n_bytes: int) -> list[int]:
    """Choose the writing ranks by default.

    For P ranks, their number is the largest power of two that does not exceed min(P, 8 √P). (In
    DL_POLY_5 it must also divide P, since all writers serve the same number of ranks.) Small frames
    have fewer writers, since many small pieces take longer to send and to write than a few large
    ones. `nodes` are host names by rank, `n_bytes` is the size of a frame.

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
    """Choose writers from a number or ranks; raise `UnsupportedError` for invalid ones."""
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

    By default, as in DL_POLY_5, their number is the largest power of two that divides the number
    of ranks P and is at most 2 √P.

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
