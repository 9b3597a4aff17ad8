"""Frames of a file to the ranks of a simulation, each atom to the rank that owns it."""

import operator
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np

from paceline import _core
from paceline._util.files import size_of_words
from paceline.backends.mpi.comm import RankErrors
from paceline.block import Decoded, fields_in
from paceline.errors import AnalysisError, UnsupportedError
from paceline.hdf5.sandbox import apart
from paceline.hdf5.trajectory import Hdf5File
from paceline.snapshot.frame import Moment, Numbering, Snapshot, TextFrame, snapshot_of
from paceline.snapshot.local_atoms import angles_of, lengths_and_cosines
from paceline.snapshot.ranks import choose_readers
from paceline.trajectory.open import open_file
from paceline.trajectory.source import Extents, IndexedFileSpec, TrajectoryFile, extents_in

if TYPE_CHECKING:
    from mpi4py import MPI

    from paceline.hdf5.topology import Column


def shape_of(grid: Any, n_ranks: int) -> tuple[int, int, int]:
    """Domains of a grid along each vector of the cell.

    Parameters
    ----------
    grid : sequence of int
        As a user gives it.
    n_ranks : int
        Ranks, one for each domain.

    Returns
    -------
    tuple of int
        Three.

    Raises
    ------
    ValueError
        It is no grid of three numbers, or one of more or fewer domains than ranks.

    Examples
    --------
    >>> shape_of([2, 2, 1], 4)
    (2, 2, 1)
    """
    numbers = np.asarray(grid)
    if numbers.shape != (3,) or numbers.dtype.kind not in "iu" or numbers.min() < 1:
        raise ValueError(f"expected a grid of three numbers of domains, found {grid!r}")
    x, y, z = numbers.tolist()
    if x * y * z != n_ranks:
        raise ValueError(
            f"expected a grid of {n_ranks} domains, one for each rank, found {x} × {y} × {z}"
        )
    return x, y, z


class Function:
    """A user's function of positions, whose answers are looked at.

    Parameters
    ----------
    function : callable
        Of positions, (n, 3), in Å; gives as many ranks.
    moment : Moment
        The frame.

    Raises
    ------
    MissingDataError
        The frame has no positions.
    """

    def __init__(self, function: Callable[[np.ndarray], Any], moment: Moment):
        moment.require_positions()
        self._function = function
        self._moment = moment

    def __call__(self, ids: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Ranks of atoms.

        Parameters
        ----------
        ids : numpy.ndarray of int64, shape (n,)
            Their numbers.
        positions : numpy.ndarray of uint8
            Bytes of as many positions.

        Returns
        -------
        numpy.ndarray of int64, shape (n,)
            Of which the core makes sure that they are ranks.

        Raises
        ------
        UnsupportedError
            A position is not finite.
        AnalysisError
            The function raised, or its answer is not one rank for each atom.
        """
        positions = positions.view(self._moment.dtype).reshape(-1, 3)
        odd = ~np.isfinite(positions).all(axis=1)
        if odd.any():
            atom = int(odd.argmax())
            x, y, z = positions[atom].tolist()
            raise UnsupportedError(
                f"{self._moment.name}: atom {ids[atom]} is at ({x}, {y}, {z}), nowhere; without "
                "owner= it can be read"
            )
        positions.flags.writeable = False
        try:
            ranks = np.asarray(self._function(positions))
        except Exception as error:
            raise AnalysisError(f"owner= raised {type(error).__name__}: {error}") from error
        if ranks.shape != (len(ids),) or ranks.dtype.kind not in "iu":
            raise AnalysisError(
                f"expected owner= to give whole numbers of ranks, shape ({len(ids)},), found "
                f"{ranks.dtype} of shape {ranks.shape}"
            )
        return np.ascontiguousarray(ranks, dtype=np.int64)


#: Formats of DL_POLY.
_TEXT = ("CONFIG", "HISTORY")
#: What part of a buffer, one in so many, the numbers of atoms may take.
_PART = 8


class Source:
    """A file, and what it tells of its atoms whatever the frame.

    Parameters
    ----------
    path : str
        Of any format.
    buffer : int
        Bytes that a rank may hold beside its own atoms.

    Attributes
    ----------
    format : str
    n_atoms, n_frames : int

    Raises
    ------
    UnsupportedError
        It is of no format that we decode, or the numbers of its atoms have too many gaps.
    DamagedFileError
        Its first frame or its header is damaged.
    OSError
        It cannot be opened.
    """

    def __init__(self, path: str, buffer: int):
        file: TrajectoryFile = open_file(path)
        self.format, self.n_atoms, self.n_frames = file.format, file.n_atoms, file.n_frames
        self._columns: dict[str, Column] = {}
        self._numbering: Numbering | None = None
        self._file = self._as_stored(file, buffer) if isinstance(file, Hdf5File) else file

    def _as_stored(self, file: Hdf5File, buffer: int) -> Hdf5File:
        """The file with atoms where they stand in it; and what else it tells of them."""
        from paceline.hdf5.topology import Column, columns_of

        found = file.catalogue
        if file.format == "H5MD":
            group = found.facts.get("group")
            self._columns = apart(columns_of, file.path, group=group, external=file.external)
        if found.ids is None or found.id_order is None:
            return file
        numbering = self._numbering = Numbering.of(found.id_order)
        if numbering.nbytes > buffer // _PART:
            raise UnsupportedError(
                f"{file.path}: the numbers of its atoms have {numbering.n_gaps} gaps, which a "
                f"buffer of {buffer} bytes does not hold: give at least {_PART * numbering.nbytes}"
            )
        self._columns["ids"] = Column(found.ids.dataset.name, found.ids.rows, is_fixed=False)
        n_places = found.ids.dataset.shape[1]
        stored = replace(found, n_atoms=n_places, ids=None, id_order=None)
        return Hdf5File(file.path, file.fingerprint, stored, external=file.external)

    def look_at(self, frame: int) -> Moment:
        """Find a frame and what its atoms share.

        Parameters
        ----------
        frame : int
            Number of the frame; negative ones count from the end.

        Returns
        -------
        Moment

        Raises
        ------
        ValueError
            There is no such frame.
        DamagedFileError
            Its header is damaged.
        """
        file = self._file
        try:
            number = range(file.n_frames)[frame]
        except IndexError:
            raise ValueError(
                f"{file.path}: frame {frame} is out of range for {file.n_frames} frames"
            ) from None
        extents = extents_in(0, file, np.array([number], dtype=np.uint64))
        if file.format in _TEXT and isinstance(file.member, IndexedFileSpec):
            return _of_text(file.member, extents, file.n_atoms)
        # Of no atoms, but all fields: only so do all hands tell which of them the frame holds.
        head = Decoded.room_for(np.array([number]), 0, fields_in(file.fields))
        hand = file.member.open(np.empty(0, dtype=np.int64), file.fields)
        hand.read(extents, head, required=0, skip=False)
        has_cell = bool(head.dimensions[0].any())
        found = {name: column.of(number) for name, column in self._columns.items()}
        rows = {name: row for name, row in found.items() if row is not None}
        return Moment(
            file.member,
            extents,
            fields_in(int(head.fields[0])),
            head.dimensions[0].astype(np.float64) if has_cell else None,
            _core.cell_vectors(head.dimensions)[0] if has_cell else None,
            int(head.steps[0]),
            float(head.times[0]),
            file.n_atoms,
            known=[name for name in rows if name != "ids"],
            rows=rows,
            numbering=self._numbering,
        )


def _of_text(member: IndexedFileSpec, extents: Extents, n_atoms: int) -> Moment:
    frame, offset, size = (int(one[0]) for one in (extents.frames, extents.offsets, extents.sizes))
    text = TextFrame(member.layout, member.fingerprint, offset, size)
    step, time, cell, fields, has_masses = _core.read_text_head(member.path, frame, text)
    vectors = dimensions = None
    if cell is not None:
        vectors = np.array(cell)
        lengths, cosines = lengths_and_cosines(vectors)
        dimensions = np.concatenate([lengths, angles_of(cosines)])
    known = ["names", *(["masses", "charges"] if has_masses else [])]
    return Moment(
        member, extents, fields_in(fields), dimensions, vectors, step, time, n_atoms, text, known
    )


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
        from paceline.backends.mpi.comm import Communicator, wait

        duplicate, request = comm.Idup()
        wait(request)
        self._wires = Communicator(duplicate)
        self._company = RankErrors(self._wires)
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
