"""Frames of a file to the ranks of a simulation, each atom to the rank that owns it."""

import operator
import os
import platform
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np

from paceline import _core
from paceline.errors import UnsupportedError
from paceline.files import size_of_words
from paceline.snapshot.company import Company
from paceline.snapshot.moments import Moment
from paceline.snapshot.owners import Function, shape_of
from paceline.snapshot.readers import choose_readers
from paceline.snapshot.snapshot import Snapshot, snapshot_of
from paceline.snapshot.source import Source

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")


class ReadCost(NamedTuple):
    """What one rank did for one frame.

    Attributes
    ----------
    read : float
        Reading and decoding, s.
    sort : float
        Finding owners, packing and unpacking, s.
    communicate : float
        Talking to other ranks, and waiting for them, s.
    n_messages, bytes_sent : int
        Atoms' messages to other ranks.
    n_batches : int
        Parts in which the frame was read.
    peak_buffer : int
        The most bytes that it held beside its own atoms.
    """

    read: float
    sort: float
    communicate: float
    n_messages: int
    bytes_sent: int
    n_batches: int
    peak_buffer: int


class Reader:
    """Reads frames so that each atom reaches the rank that owns it.

    All ranks make it, and call its methods, together; an error on one of them is raised on every
    one. The first opens the file and finds its frames, some ranks read and decode, each a part, and
    hand the atoms on (Todorov & Bush, HPCxTR0806, section 5).

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The ranks of the simulation. It is duplicated, so that no messages of others are taken for
        ours.
    path : path-like
        A file of any format that paceline reads.
    readers : int, optional
        How many ranks read. By default, as in DL_POLY, the largest power of two that divides the
        number of ranks P and is at most 2 √P.
    buffer : int or str
        Memory that a rank may take beside its own atoms, bytes or with a unit ("64 MiB").

    Attributes
    ----------
    path : str
        Absolute.
    format : str
    n_atoms, n_frames : int
    readers : list of int
        The ranks that read.
    cost : ReadCost or None
        What this rank did for the last frame.

    Raises
    ------
    UnsupportedError
        The file is of no format that we decode; there are not so many ranks; or these disagree
        about the file or how to read it.
    DamagedFileError
        Its first frame or its header is damaged.
    OSError
        The file cannot be opened.

    Examples
    --------
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> from MDAnalysisTests.datafiles import DLP_CONFIG
    >>> with Reader(MPI.COMM_WORLD, DLP_CONFIG) as reader:
    ...     snapshot = reader.read(grid=(1, 1, 1))
    >>> len(snapshot), snapshot.ids[:3].tolist(), snapshot.positions.dtype
    (216, [1, 2, 3], dtype('float64'))
    """

    def __init__(
        self,
        comm: "MPI.Intracomm",
        path: str | os.PathLike,
        *,
        readers: int | None = None,
        buffer: int | str = "64 MiB",
    ):
        from paceline.snapshot.communicator import Communicator, wait

        duplicate, request = comm.Idup()
        wait(request)
        self._wires = Communicator(duplicate)
        self._company = Company(self._wires)
        self.cost: ReadCost | None = None
        #: Of rank 0 alone.
        self._source: Source | None = None
        try:
            with self._company.unbroken():
                self.path, n_readers, self._buffer = self._alike(
                    "the file or how to read it", lambda: _settings(path, readers, buffer)
                )
                nodes = self._company.share(platform.node)
                self.readers = self._company.first(lambda: choose_readers(nodes, n_readers))
                self.format, self.n_atoms, self.n_frames = self._company.first(self._open)
        except Exception:
            self.close()
            raise

    def read(
        self,
        frame: int = 0,
        *,
        grid: Sequence[int] | None = None,
        owner: Callable[[np.ndarray], Any] | None = None,
    ) -> Snapshot:
        """Read a frame. All ranks call it with the same arguments.

        Parameters
        ----------
        frame : int
            Its number; negative ones count from the end.
        grid : sequence of int, optional
            Number of equal domains along each of the cell's vectors, px × py × pz in all, as many
            as ranks. Rank x + px (y + py z) owns domain (x, y, z), as in DL_POLY. The cell of
            CONFIG, REVCON and HISTORY is centred on the origin, that of all others begins there.
            An atom outside of the cell belongs to the domain that holds its image.
        owner : callable, optional
            A function of positions, shape (n, 3), Å, read-only, that gives as many ranks. The ranks
            that read call it, each for the atoms that it has read, with positions as the file has
            them.

        Returns
        -------
        Snapshot
            This rank's atoms: without `grid` and `owner`, an equal range of all.

        Raises
        ------
        UnsupportedError
            The frame has no cell that a grid could cut; a position is not finite; `owner` gives a
            rank that does not exist; an atom is missing or there twice; ranks disagree about what
            to read.
        MissingDataError
            It has no positions by which atoms would find their owners.
        DamagedFileError
            The frame is damaged.
        FileChangedError
            The file is not the one that was opened.
        AnalysisError
            `owner` raised, or its answers are not one whole number for each atom.
        ValueError
            There is no such frame; the grid has not one domain for each rank; the reader is closed.
        """
        if not self._wires.comm:
            raise ValueError("the reader is closed: no more frames can be read")
        with self._company.unbroken():
            frame, shape, _ = self._alike("what to read", lambda: self._checked(frame, grid, owner))
            moment = self._company.first(lambda: self._look_at(frame))
            columns, cost = self._together(lambda: self._read(moment, shape, owner))
            self.cost = ReadCost(*cost)
            return snapshot_of(moment, columns)

    def close(self) -> None:
        """Let go of the ranks. All of them call it."""
        if self._wires.comm:
            self._wires.comm.Free()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Where only this rank has failed, the others do not wait for it.
        if error is None or self._company.have_agreed(error):
            self.close()

    def _open(self) -> tuple[str, int, int]:
        source = self._source = Source(self.path, self._buffer)
        return source.format, source.n_atoms, source.n_frames

    def _look_at(self, frame: int) -> Moment:
        assert self._source is not None, "a rank that has opened no file"
        return self._source.look_at(frame)

    def _checked(
        self, frame: int, grid: Sequence[int] | None, owner: Callable[[np.ndarray], Any] | None
    ) -> tuple[int, tuple[int, int, int] | None, bool]:
        if grid is not None and owner is not None:
            raise ValueError("expected grid= or owner=, found both")
        shape = None if grid is None else shape_of(grid, self._wires.size)
        return operator.index(frame), shape, owner is not None

    def _read(
        self,
        moment: Moment,
        shape: tuple[int, int, int] | None,
        owner: Callable[[np.ndarray], Any] | None,
    ) -> Any:
        """Columns and what they cost; None where another rank has failed."""
        whose: Any = None
        if shape is not None:
            moment.require_positions()
            whose = (shape, moment.require_cell().tolist(), moment.text is not None)
        elif owner is not None:
            whose = Function(owner, moment)
        with moment.explaining_ids():
            return _core.read_snapshot(
                self._wires,
                moment,
                whose,
                n_atoms=self.n_atoms,
                readers=self.readers,
                buffer=self._buffer,
            )

    def _together(self, act: Callable[[], T]) -> T:
        """Do something on all ranks, or on none."""
        done: list[T] = []
        self._company.share(lambda: done.append(act()))
        return done[0]

    def _alike(self, what: str, find: Callable[[], T]) -> T:
        """Find something that must be the same on all ranks."""
        told = self._company.share(find)
        with self._company.told():
            for rank, one in enumerate(told):
                if one != told[0]:
                    raise UnsupportedError(
                        f"ranks disagree about {what}: {told[0]} on rank 0, {one} on rank {rank}"
                    )
        return told[0]


def _settings(
    path: str | os.PathLike, readers: int | None, buffer: int | str
) -> tuple[str, int | None, int]:
    n_bytes = size_of_words(buffer) if isinstance(buffer, str) else operator.index(buffer)
    if n_bytes < 1:
        raise ValueError(f"expected a buffer of at least 1 byte, found {buffer!r}")
    n_readers = None if readers is None else operator.index(readers)
    return os.path.abspath(path), n_readers, n_bytes
