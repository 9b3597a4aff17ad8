"""Read frames of a file so that each MPI rank gets the atoms that it owns."""

import math
import operator
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np

from paceline import _core
from paceline._util.arguments import parse_size
from paceline._util.files import local_path
from paceline.errors import AnalysisError, UnsupportedError
from paceline.snapshot.frame_and_atom_locations import FrameInfo, SnapshotFile

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")


@dataclass(frozen=True)
class Snapshot:
    """Atoms of one rank in a frame, with cell, step and time.

    The rank may change the arrays.

    If ghosts were requested, each array contains first the rank's own atoms, then the ghosts.

    Attributes
    ----------
    ids : numpy.ndarray of int64, shape (n,)
        Numbers of this rank's atoms, increasing. They count from 1, unless an H5MD file numbers its
        particles differently. The numbers of ghosts follow, increasing as well; the number of an
        atom with several images is repeated.
    positions : numpy.ndarray of float64 or float32, shape (n, 3), or None
        Positions in the file, not wrapped, Å; with ghosts, positions of the images that are in the
        rank's domain or near it. float64 from CONFIG, REVCON and HISTORY, float32 from other
        formats. None if the frame has no positions.
    velocities : the same
        Velocities, Å/ps.
    forces : the same
        Forces, kJ/(mol·Å).
    names : numpy.ndarray of str, shape (n,), or None
        Names of at most 8 characters: from CONFIG, REVCON, HISTORY, and from H5MD files that
        paceline wrote.
    masses : numpy.ndarray of float64, shape (n,), or None
        Masses, u; from HISTORY and H5MD, if stored.
    charges : numpy.ndarray of float64, shape (n,), or None
        Charges, e; from HISTORY and H5MD, if stored.
    dimensions : numpy.ndarray of float64, shape (6,), or None
        Lengths of the cell (Å) and its angles (degrees). None if the frame has no cell.
    vectors : numpy.ndarray of float64, shape (3, 3), or None
        Cell vectors as rows, Å. CONFIG, REVCON and HISTORY store vectors of any orientation; for
        other formats the first vector is along x, and the second is in the xy plane.
    step : int
        Step number of the simulation.
    time : float
        Time, ps.
    n_local : int
        Number of the rank's own atoms.
    images : numpy.ndarray of int32, shape (n, 3), or None
        Multiples of the cell's vectors that were added to positions in the file. None without
        `ghosts`.
    """

    ids: np.ndarray
    positions: np.ndarray | None
    velocities: np.ndarray | None
    forces: np.ndarray | None
    names: np.ndarray | None
    masses: np.ndarray | None
    charges: np.ndarray | None
    dimensions: np.ndarray | None
    vectors: np.ndarray | None
    step: int
    time: float
    n_local: int
    images: np.ndarray | None

    def __len__(self) -> int:
        return len(self.ids)


class ReadCost(NamedTuple):
    """Times, messages and memory of one rank for reading one frame.

    Attributes
    ----------
    read : float
        Time of reading and decoding, s.
    sort : float
        Time of finding owners, packing and unpacking, s.
    communicate : float
        Time of communicating with other ranks, and of waiting for them, s.
    n_messages, bytes_sent : int
        Number and size of messages with atoms to other ranks.
    n_batches : int
        Number of parts in which the frame was read.
    peak_buffer : int
        Maximum memory in addition to the rank's own atoms, bytes.
    """

    read: float
    sort: float
    communicate: float
    n_messages: int
    bytes_sent: int
    n_batches: int
    peak_buffer: int


class OwnerFunction:
    """User's function `owner=`, whose results are checked; positions (Å) have shape (n, 3)."""

    def __init__(self, function: Callable[[np.ndarray], object], info: FrameInfo):
        info.require_positions()
        self._function = function
        self._info = info

    def __call__(self, ids: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return the rank that owns each atom, given the atoms' ids and the bytes of positions.

        The compiled module checks that each number is a valid rank.
        """
        positions = positions.view(self._info.dtype).reshape(-1, 3)
        odd = ~np.isfinite(positions).all(axis=1)
        if odd.any():
            atom = int(odd.argmax())
            x, y, z = positions[atom].tolist()
            raise UnsupportedError(
                f"{self._info.name}: atom {ids[atom]} has the invalid position ({x}, {y}, {z}); "
                "without "
                "owner= the frame can be read"
            )
        positions.flags.writeable = False
        try:
            ranks = np.asarray(self._function(positions))
        except Exception as error:
            raise AnalysisError(f"owner= raised {type(error).__name__}: {error}") from error
        if ranks.shape != (len(ids),) or ranks.dtype.kind not in "iu":
            raise AnalysisError(
                f"expected owner= to return whole numbers of ranks, shape ({len(ids)},), found "
                f"{ranks.dtype} of shape {ranks.shape}"
            )
        return np.ascontiguousarray(ranks, dtype=np.int64)


class Reader:
    """Reads frames so that each rank gets the atoms that it owns.

    All ranks create the reader and call its methods together. An error on one rank is raised on
    all ranks. Rank 0 opens the file and finds its frames. Some ranks read and decode parts of a
    frame, and send the atoms to their owners (Todorov & Bush, HPCxTR0806, section 5).

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Ranks of the simulation. The communicator is duplicated, so that messages of the program and
        of the reader do not mix.
    path : path-like
        File of any format that paceline reads, except LAMMPS dumps.
    readers : int, optional
        Number of ranks that read. The default, as in DL_POLY, is the largest power of two that
        divides the number of ranks P and is at most 2 √P.
    buffer : int or str
        Maximum memory of a rank in addition to its own atoms, bytes or with a unit ("64 MiB").

    Attributes
    ----------
    path : str
        Absolute path of the file.
    format : str
    n_atoms, n_frames : int
    readers : list of int
        Ranks that read.
    cost : ReadCost or None
        Cost of the last frame on this rank; None before the first frame.

    Raises
    ------
    UnsupportedError
        The format of the file is not supported, there are fewer ranks than readers, or ranks
        disagree about the file or the options.
    DamagedFileError
        The first frame or the header of the file is damaged.
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
        from paceline.backends.mpi.comm import Comm, RankErrors

        self._comm = Comm.duplicate(comm, busy=True)
        self._errors = RankErrors(self._comm)
        self.cost: ReadCost | None = None
        #: The open file, on rank 0 only.
        self._file: SnapshotFile | None = None
        try:
            with self._errors.abort_on_lone_error():
                self.path, n_readers, self._buffer = self._same(
                    "the file or how to read it", lambda: _settings(path, readers, buffer)
                )
                nodes = self._errors.share(platform.node)
                self.readers = self._errors.first(lambda: _core.choose_readers(nodes, n_readers))
                self.format, self.n_atoms, self.n_frames = self._errors.first(self._open)
        except Exception:
            self.close()
            raise

    def read(
        self,
        frame: int = 0,
        *,
        grid: Sequence[int] | None = None,
        owner: Callable[[np.ndarray], object] | None = None,
        ghosts: float | None = None,
    ) -> Snapshot:
        """Read a frame. All ranks call it with the same arguments.

        Parameters
        ----------
        frame : int
            Number of the frame; negative numbers count from the end.
        grid : sequence of int, optional
            Numbers of equal domains along the cell vectors, px, py and pz; their product is the
            number of ranks. Rank x + px (y + py z) owns domain (x, y, z), as in DL_POLY. In CONFIG,
            REVCON and HISTORY the cell is centred on the origin; in other formats it begins at the
            origin. An atom outside the cell belongs to the domain of its image in the cell.
        owner : callable, optional
            Function that takes read-only positions from the file, shape (n, 3), Å, and returns n
            ranks. Each reading rank calls it for the atoms that it has read.
        ghosts : float, optional
            Width of the halo around each domain of `grid`, Å. The rank also gets all images of
            atoms that are outside its domain, but beyond no face by more than this width. These
            include all images within this distance of the domain and, at edges and corners, images
            that are farther away, as in DL_POLY. A halo may be wider than a domain, and up to 8
            times as wide as the cell. It then contains several images of an atom, also of the
            rank's own atoms. There are no images along vectors that are not periodic.

        Returns
        -------
        Snapshot
            Atoms of this rank; without `grid` and `owner`, an equal range of all atoms. With
            `ghosts`, the first `n_local` are its own, moved into its domain, and the others are
            ghosts, ordered by id and image.

        Raises
        ------
        UnsupportedError
            The frame has no cell for a grid; a position is not finite; `owner` returns a rank that
            does not exist; an atom is missing or duplicate; ranks disagree about the arguments; or
            `ghosts` is more than 8 times the cell, or an atom is outside of the cell along a vector
            that is not periodic.
        MissingDataError
            The frame has no positions to determine owners.
        DamagedFileError
            The frame is damaged.
        FileChangedError
            The file is not the one that was opened.
        AnalysisError
            `owner` raised an error, or did not return one whole number for each atom.
        ValueError
            The frame does not exist, the grid does not have one domain for each rank, `ghosts` is
            given without `grid` or is negative, or the reader is closed.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> from MDAnalysisTests.datafiles import DLP_CONFIG
        >>> with Reader(MPI.COMM_WORLD, DLP_CONFIG) as reader:
        ...     snapshot = reader.read(grid=(1, 1, 1), ghosts=3.0)
        >>> snapshot.n_local, len(snapshot) > snapshot.n_local, snapshot.images[:1].tolist()
        (216, True, [[0, 0, 0]])
        """
        if not self._comm.is_open:
            raise ValueError("the reader is closed: no more frames can be read")
        with self._errors.abort_on_lone_error():
            frame, shape, _, width = self._same(
                "what to read", lambda: self._check_arguments(frame, grid, owner, ghosts)
            )
            info = self._errors.first(lambda: self._frame_info(frame))
            columns, cost, images = self._call_on_ranks(
                lambda: self._read(info, shape, owner, width)
            )
            self.cost = ReadCost(*cost)
            return _snapshot_of(info, columns, images)

    def close(self) -> None:
        """Close the reader, and free its communicator. All ranks call it."""
        if self._comm.is_open:
            self._comm.free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # If only this rank has failed, the other ranks do not call `close`: do not wait for them.
        if error is None or self._errors.have_agreed(error):
            self.close()

    def _open(self) -> tuple[str, int, int]:
        file = self._file = SnapshotFile(self.path, self._buffer)
        return file.format, file.n_atoms, file.n_frames

    def _frame_info(self, frame: int) -> FrameInfo:
        assert self._file is not None, "a rank that has opened no file"
        return self._file.frame_info(frame)

    def _check_arguments(
        self,
        frame: int,
        grid: Sequence[int] | None,
        owner: Callable[[np.ndarray], object] | None,
        ghosts: float | None,
    ) -> tuple[int, tuple[int, int, int] | None, bool, float | None]:
        if grid is not None and owner is not None:
            raise ValueError("expected grid= or owner=, found both")
        if grid is None and ghosts is not None:
            raise ValueError("expected grid= with ghosts=, which are around the domains of a grid")
        shape = None if grid is None else grid_shape(grid, self._comm.size)
        width = None if ghosts is None else float(ghosts)
        if width is not None and not 0 <= width < math.inf:
            raise ValueError(f"expected ghosts= of 0 Å or more, found {ghosts!r}")
        return operator.index(frame), shape, owner is not None, width

    def _read(
        self,
        info: FrameInfo,
        shape: tuple[int, int, int] | None,
        owner: Callable[[np.ndarray], object] | None,
        ghosts: float | None,
    ) -> Any:
        """Return columns, their cost, and images of this rank's atoms.

        Return None if another rank has failed.
        """
        owners: Any = None
        if shape is not None:
            info.require_positions()
            owners = (shape, info.require_cell().tolist(), info.text is not None)
        elif owner is not None:
            owners = OwnerFunction(owner, info)
        with info.explaining_ids():
            return _core.read_snapshot(
                self._comm,
                info,
                owners,
                None if ghosts is None else (ghosts, info.periodic),
                n_atoms=self.n_atoms,
                readers=self.readers,
                buffer=self._buffer,
            )

    def _call_on_ranks(self, act: Callable[[], T]) -> T:
        """Call a function on all ranks; raise an error of any rank on all ranks."""
        done: list[T] = []
        self._errors.share(lambda: done.append(act()))
        return done[0]

    def _same(self, what: str, find: Callable[[], T]) -> T:
        """Call `find` for an option that must be equal on all ranks; raise if it is not."""
        found = self._errors.share(find)
        with self._errors.same_on_all():
            for rank, one in enumerate(found):
                if one != found[0]:
                    raise UnsupportedError(
                        f"ranks disagree about {what}: {found[0]} on rank 0, {one} on rank {rank}"
                    )
        return found[0]


def _settings(
    path: str | os.PathLike, readers: int | None, buffer: int | str
) -> tuple[str, int | None, int]:
    n_bytes = parse_size(buffer) if isinstance(buffer, str) else operator.index(buffer)
    if n_bytes < 1:
        raise ValueError(f"expected a buffer of at least 1 byte, found {buffer!r}")
    n_readers = None if readers is None else operator.index(readers)
    return local_path(path), n_readers, n_bytes


def grid_shape(grid: object, n_ranks: int) -> tuple[int, int, int]:
    """Check a user's grid of domains, one for each rank.

    Examples
    --------
    >>> grid_shape([2, 2, 1], 4)
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


def _snapshot_of(
    info: FrameInfo,
    columns: Sequence[np.ndarray | None],
    images: tuple[np.ndarray, int] | None,
) -> Snapshot:
    """View the compiled module's columns of bytes (owners, ids, vectors, names, …) as arrays."""
    _, ids, *vectors, names, masses, charges = columns
    positions, velocities, forces = (
        None if one is None else one.view(info.dtype).reshape(-1, 3) for one in vectors
    )
    assert ids is not None, "atoms without numbers"
    ids = ids.view(np.int64)
    if info.numbering is not None:
        info.numbering.restore(ids)
    return Snapshot(
        ids=ids,
        positions=positions,
        velocities=velocities,
        forces=forces,
        names=None if names is None else _as_text(names.reshape(-1, 8)),
        masses=None if masses is None else masses.view(np.float64),
        charges=None if charges is None else charges.view(np.float64),
        dimensions=info.dimensions,
        vectors=info.vectors,
        step=info.step,
        time=info.time,
        n_local=len(ids) if images is None else images[1],
        images=None if images is None else images[0].reshape(-1, 3),
    )


def _as_text(names: np.ndarray) -> np.ndarray:
    """Convert zero-padded bytes, shape (n, 8), to text, shape (n,)."""
    # In Latin-1, each byte is the code of its character.
    return names.astype(np.uint32).view("U8").ravel()
