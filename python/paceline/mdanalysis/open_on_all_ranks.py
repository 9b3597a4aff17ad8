"""Universes that all MPI ranks open together: rank 0 reads the files and sends the content.

Rank 0 creates the Universe as usual. The other ranks receive its topology, and its trajectory with
the frame index and the first frame. They open no file until they read another frame.
"""

import copyreg
import io
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import cloudpickle
import MDAnalysis
import numpy as np

from paceline import _core
from paceline._util.arguments import function_name
from paceline._util.python_object_digest import digest
from paceline.contract.source import FileSpec, IndexedFile, IndexedFileSpec
from paceline.errors import UnsupportedError
from paceline.mdanalysis.reader import Reader, is_name
from paceline.trajectory.chain import Chain
from paceline.trajectory.open import open_file

if TYPE_CHECKING:
    from mpi4py import MPI

    from paceline.backends.mpi.opening import OpeningRanks

#: Arguments that are not sent, because each rank uses its own.
_OF_EACH = ("comm", "transformations")
#: Attributes that rank 0's Universe sends in addition to topology and trajectory.
_SENT = ("filename", "_kwargs", "_topology_file", "t_init_top", "opening_warnings")

_Default: TypeAlias = "tuple[OpeningRanks, int] | None"
#: Ranks that open each file together by default, and the process in which they are valid.
_default: _Default = None


class _OfThread(threading.local):
    """Thread-local state: True while the thread opens a Universe."""

    is_opening = False


_of_thread = _OfThread()


@contextmanager
def on_ranks(comm: "MPI.Intracomm | None", *, required: bool) -> Iterator[None]:
    """Let the ranks of a communicator open Universes together; see `OpeningRanks`."""
    before = _default
    use_ranks(comm, required=required)
    try:
        yield
    finally:
        restore(before)


def use_ranks(comm: "MPI.Intracomm | None", *, required: bool) -> _Default:
    """Make the ranks of a communicator the default; return the previous default."""
    global _default
    before = _default
    if comm is not None and (ranks := _ranks_of(comm, required=required)) is not None:
        _default = ranks, os.getpid()
    return before


def _ranks_of(comm: "MPI.Intracomm", *, required: bool) -> "OpeningRanks | None":
    """Return the ranks of a communicator; None for a single rank, or within a run on ranks."""
    if comm.Get_size() == 1:
        return None
    # Deferred: workers of a script import this module, but seldom use MPI.
    from paceline.backends.mpi import active_session
    from paceline.backends.mpi.opening import OpeningRanks

    return OpeningRanks(comm, required=required) if active_session() is None else None


def restore(before: _Default) -> None:
    """Make ranks that `use_ranks` returned the default again."""
    global _default
    _default = before


def open_universe(
    universe: MDAnalysis.Universe,
    original: Callable[..., object],
    names: tuple[object, ...],
    options: dict[str, object],
) -> bool:
    """Initialise a Universe; return True if another rank opened it for this rank.

    `original` is MDAnalysis's method, which opens the files.
    """

    def receive(state: dict[str, object]) -> None:
        context = state["context"]
        MDAnalysis.Universe.__init__(universe, state["topology"], to_guess=(), context=context)
        vars(universe).update(state["attributes"])
        universe._kwargs["transformations"] = options.get("transformations")
        universe._trajectory = state["trajectory"]

    return _open(universe, original, names, options, receive)


def load_trajectory(
    universe: MDAnalysis.Universe,
    original: Callable[..., object],
    filename: object,
    options: dict[str, Any],
) -> bool:
    """Replace a Universe's trajectory; return True if another rank opened it for this rank."""

    def receive(state: dict[str, Any]) -> None:
        universe.trajectory = state["trajectory"]
        for name in {"opening_warnings"} & state["attributes"].keys():
            setattr(universe, name, state["attributes"][name])

    return _open(universe, original, (filename,), options, receive)


def _open(
    universe: MDAnalysis.Universe,
    original: Callable[..., object],
    names: tuple[object, ...],
    options: dict[str, Any],
    receive: Callable[[dict[str, Any]], None],
) -> bool:
    with _ranks_for(names, options) as (ranks, options):
        if ranks is None:
            original(*names, **options)
            return False
        here = {name: options[name] for name in _OF_EACH if name in options}
        common = {name: value for name, value in options.items() if name not in here}

        def make() -> bytes:
            original(*names, **common)
            return _pack(universe)

        data = ranks.open(_name_of(names), digest(_plain(common)), make)
        if data is None:
            original(*names, **options)
            return False
        if not ranks.is_first:
            try:
                receive(pickle.loads(data))
            except Exception:  # this trajectory cannot be sent to other ranks
                original(*names, **options)
                return False
        if given := here.get("transformations"):
            universe.trajectory.add_transformations(*([given] if callable(given) else given))
            universe._kwargs["transformations"] = given
        return not ranks.is_first


@contextmanager
def _ranks_for(
    names: tuple[object, ...], options: dict[str, Any]
) -> Iterator["tuple[OpeningRanks | None, dict[str, Any]]"]:
    """Yield the ranks that open these files together, or None, and the remaining options."""
    if _of_thread.is_opening:
        yield None, options
        return
    comm, own = options.get("comm"), None
    driver = options.get("driver")
    if comm is not None and driver not in (None, "mpio"):
        raise UnsupportedError(f'comm= needs driver="mpio", or no driver, found driver={driver!r}')
    ranks = _default[0] if _default is not None and _default[1] == os.getpid() else None
    if not _can_be_sent(names, options):
        ranks = None
    elif comm is not None:
        options = {name: value for name, value in options.items() if name != "comm"}
        own = _ranks_of(comm, required=True)
        ranks = own or ranks
    _of_thread.is_opening = True
    try:
        yield ranks, options
    finally:
        _of_thread.is_opening = False
    if own is not None:
        own.free()


def _can_be_sent(names: tuple[object, ...], options: dict[str, object]) -> bool:
    """True if the names refer to files that one rank can read for all ranks."""
    if options.get("collective"):
        return False
    if options.get("driver") == "mpio":
        from paceline.hdf5.file import has_mpi_build

        # HDF5 itself opens such a file on all ranks together.
        if has_mpi_build():
            return False
    found = list(_flat(names))
    return bool(found) and all(
        is_name(name) and not os.fspath(name).startswith("imd://") for name in found
    )


def _flat(names: Iterable[object]) -> Iterator[object]:
    """Yield all file names in nested lists; of a tuple (name, format), only the name."""
    for name in names:
        if isinstance(name, tuple) and len(name) == 2 and not is_name(name[1]):
            yield name[0]
        elif isinstance(name, list | tuple):
            yield from _flat(name)
        elif name is not None:
            yield name


def _name_of(names: tuple[object, ...]) -> str:
    """Return the absolute paths of the files, as one text for messages."""
    return ", ".join(os.path.abspath(name) for name in _flat(names) if is_name(name))


def _plain(value: object) -> object:
    """Convert a value so that its digest is equal on ranks with equal arguments."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.ndarray | str | int | float | None):
        return value
    return function_name(value)


def _pack(universe: MDAnalysis.Universe) -> bytes:
    """Pickle data for the other ranks; empty if a trajectory of MDAnalysis cannot be pickled."""
    attributes = {name: value for name, value in vars(universe).items() if name in _SENT}
    state = {
        "topology": universe._topology,
        "trajectory": universe._trajectory,
        "context": universe._context.copy(),
        "attributes": attributes,
    }
    try:
        return pickle_with_indexes(state)
    except Exception:
        if isinstance(universe._trajectory, Reader):
            raise
        return b""


@dataclass
class SentFile:
    """File whose index was created by another process: a `paceline.contract.source.TrajectoryFile`.

    The index contains no times and headers; they are read from the file when needed.
    """

    path: str
    format: str
    n_atoms: int
    n_frames: int
    fields: int
    size: int
    fingerprint: str
    samples: bytes
    layout: bytes
    damaged: list[int]
    notes: list[str]
    index_file: Path | None
    index_origin: str
    dt: float | None
    first: float
    time_doubt: str | None
    length_doubt: str | None
    frames_counted: bool
    #: Offset and size of each frame, bytes, uint64, shape (n_frames,).
    offsets: np.ndarray
    sizes: np.ndarray

    chunk_frames = 1
    datasets = ()
    #: The number of atoms is constant: `_IndexPickler` does not send the index of other files.
    varying = atom_counts = None
    traffic = 0, 0

    @classmethod
    def of(cls, file: IndexedFile) -> "SentFile":
        """Return a description of a file, with a copy of its frame index, for other ranks."""
        offsets, sizes = file.extents(np.arange(file.n_frames, dtype=np.uint64))
        names = [one.name for one in fields(cls) if one.name not in ("offsets", "sizes")]
        facts = {name: getattr(file, name) for name in names}
        return cls(**facts, offsets=offsets, sizes=sizes)

    @property
    def conversion(self) -> bytes:
        """Encoding parameters of the frames, with the units of the file."""
        return self.layout

    @property
    def spec(self) -> IndexedFileSpec:
        """Description of the file for workers."""
        return IndexedFileSpec(self.path, self.layout, self.samples)

    def spec_of(self, frame: int) -> tuple[FileSpec, int]:
        """Return the description of one frame for a worker, and its number of atoms."""
        return self.spec, self.n_atoms

    @property
    def bytes_per_frame(self) -> float:
        """Mean size of a frame, bytes."""
        return self.size / self.n_frames

    def extents(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the byte offsets and sizes of frames."""
        if len(frames) and frames.max() >= self.n_frames:
            raise ValueError(f"frame {frames.max()} is out of range for {self.n_frames} frames")
        return self.offsets[frames], self.sizes[frames]

    def slice_of(self, frames: np.ndarray) -> None:
        """Return None, because offsets and sizes suffice."""

    def times(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the times (ps) and steps of all frames."""
        times, steps = self._open_file.times()
        return times[: self.n_frames], steps[: self.n_frames]

    @property
    def traits(self) -> list[tuple[str, str]]:
        """Properties (name, value) that must agree between the files of one trajectory."""
        return self._open_file.traits

    def head(self, first: int, n_frames: int) -> bytes:
        """Return the file header for a copy of these frames, if frames can be copied as bytes."""
        return self._open_file.head(first, n_frames)

    def verify(self) -> None:
        """Raise `FileChangedError` if the file at this path has changed since it was indexed."""
        _core.verify(self.path, self.fingerprint)

    @cached_property
    def _open_file(self) -> Any:
        """The file, opened in this process on first use, to read data that were not sent."""
        self.verify()
        return open_file(self.path, n_atoms=self.n_atoms, notes=False)


class _IndexPickler(cloudpickle.Pickler):
    """Pickler that includes the indexes of a chain's files.

    With another pickler, the receiver would open the files and load their indexes.
    """

    def reducer_override(self, obj: object) -> object:
        """Choose how chains and files are pickled."""
        if isinstance(obj, Chain):
            return copyreg.__newobj__, (type(obj),), vars(obj)  # type: ignore[attr-defined]
        if isinstance(obj, IndexedFile) and obj.varying is None:
            return SentFile, tuple(vars(SentFile.of(obj)).values())
        return super().reducer_override(obj)


def pickle_with_indexes(value: object) -> bytes:
    """Pickle an object for processes that must not open trajectory files."""
    file = io.BytesIO()
    _IndexPickler(file).dump(value)
    return file.getvalue()
