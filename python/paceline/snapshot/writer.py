"""Writing frames whose atoms are spread over ranks."""

import contextlib
import os
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from paceline import _core
from paceline.errors import UnwritableError
from paceline.snapshot.background import Background
from paceline.snapshot.choices import Choices, choices_of
from paceline.snapshot.company import Company
from paceline.snapshot.own import Own
from paceline.snapshot.recording import Recording

if TYPE_CHECKING:
    from mpi4py import MPI


class Writer:
    """Write frames whose atoms are spread over ranks into one file, ordered by id.

    Making one, `write` and `close` are collective: all ranks of `comm` call them, in the same
    order. An error is the same on all ranks, and leaves the file with the frames before it; the
    next frame may follow. Where a rank is stopped within a call, the job ends, since the others
    would wait for ever.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The ranks. Messages travel on a duplicate of it.
    path : path-like
        The file. Its name tells the format: CONFIG, REVCON or HISTORY (also as a part of the name
        between dots: nacl.HISTORY), or a name in .h5md, .h5, .hdf5 (H5MD), .nc, .ncdf (Amber
        NetCDF, CDF-5) or .dcd. CONFIG and REVCON hold one frame, which each `write` replaces as a
        whole; to others frames are added in place.
    n_atoms : int
        Of all ranks; ids are 1 to `n_atoms`.
    format : str, optional
        "CONFIG", "REVCON", "HISTORY", "H5MD", "NetCDF" or "DCD", where the name does not tell.
    method : {"sorted", "serial", "direct", "mpiio"}
        "sorted": atoms travel to some of the ranks, are put in order there, and leave as few large
        writes. "serial": each rank in turn sends to rank 0, which writes each record to its place.
        "direct": each rank writes its own records; "mpiio": the same through MPI-IO. All make the
        same bytes.
    writers : int or sequence of int, optional
        How many ranks write, or which, where `method="sorted"`; see `choose_writers`.
    buffer : str or int
        Memory of a writer beyond its own atoms, whatever `n_atoms` is: bytes, or "64 MiB".
    append : bool
        Whether a file that is there grows. It must hold the same number of atoms, the same fields
        and, where it has them, the same names. What a killed program left of a last frame is cut.
    overwrite : bool
        Whether a file that is there is replaced, when the first frame is whole.
    n_frames : int, optional
        H5MD: how many frames there will be at the most, for contiguous space instead of chunks.
    double : bool
        H5MD: whether numbers have 64 bits.
    dt : float, optional
        CONFIG, REVCON, HISTORY: length of a step (ps), which these files tell; by default time by
        step.
    title : str
        CONFIG, REVCON, HISTORY: up to 72 characters; H5MD: any.
    sync : bool
        Whether each frame is on the disk (fsync) before `write` ends.
    wait : bool
        Whether `write` returns when the frame is written. Otherwise it copies this rank's atoms,
        which remain the caller's, and a thread writes them; the next `write` or `close` waits for
        it, and raises its error. A program that ends without `close` waits for it, too, and is
        warned. This takes an MPI that allows threads (MPI.THREAD_MULTIPLE).

    Attributes
    ----------
    n_frames : int
        Frames in the file; for CONFIG and REVCON, those that were written.
    writers : list of int
        Ranks that write, known from the first frame on.
    costs : list of SnapshotCost
        What each frame cost this rank: seconds to `communicate`, `sort`, `format` and `write`;
        `n_messages`, `bytes_sent`, `n_writes`, `bytes_written`, `n_batches`, and `peak_buffer`,
        bytes.

    Raises
    ------
    FileExistsError
        The file is there, and neither to grow nor to be replaced.
    AtomCountError
        The file that is to grow has another number of atoms.
    UnsupportedError
        There is no such format, method or writer; or a file that is to grow is of a kind that
        cannot.
    DamagedFileError
        The file that is to grow is damaged.
    UnwritableError
        Ranks disagree about what is to be made.

    Examples
    --------
    >>> import tempfile
    >>> from mpi4py import MPI
    >>> path = os.path.join(tempfile.mkdtemp(), "CONFIG")
    >>> with Writer(MPI.COMM_WORLD, path, n_atoms=2) as writer:
    ...     writer.write([2, 1], [[3, 0, 0], [0, 0, 0]], names=["Cl-", "Na+"])
    >>> [line[:3] for line in open(path)][2::2]
    ['Na+', 'Cl-']
    """

    def __init__(
        self,
        comm: "MPI.Intracomm",
        path: str | os.PathLike,
        n_atoms: int,
        *,
        format: str | None = None,
        method: str = "sorted",
        writers: int | Sequence[int] | None = None,
        buffer: str | int = "64 MiB",
        append: bool = False,
        overwrite: bool = False,
        n_frames: int | None = None,
        double: bool = False,
        dt: float | None = None,
        title: str = "",
        sync: bool = False,
        wait: bool = True,
    ):
        from paceline.snapshot.communicator import Communicator

        self._own_comm = comm.Dup()
        self._company = Company(Communicator(self._own_comm))
        self._background = None if wait else Background()
        self._closed = False

        def choose() -> Choices:
            return choices_of(
                path,
                n_atoms,
                format=format,
                method=method,
                writers=writers,
                buffer=buffer,
                append=append,
                overwrite=overwrite,
                sync=sync,
                wait=wait,
                n_frames=n_frames,
                double=double,
                dt=dt,
                title=title,
            )

        try:
            with self._company.unbroken():
                self._recording = Recording(self._company, choose)
        except Exception:
            self._own_comm.Free()
            raise
        self._forgotten: weakref.finalize | None = None
        if self._background is not None and self._company.is_first:
            # Called at the end of the program, too.
            self._forgotten = weakref.finalize(self, self._background.tell, self._recording.path)

    @property
    def n_frames(self) -> int:
        """Frames in the file."""
        return self._recording.n_frames

    @property
    def writers(self) -> list[int]:
        """Ranks that write."""
        return self._recording.writers

    @property
    def costs(self) -> "list[_core.SnapshotCost]":
        """What each frame cost this rank."""
        return self._recording.costs

    def write(
        self,
        ids: Any,
        positions: Any,
        velocities: Any = None,
        forces: Any = None,
        names: Any = None,
        masses: Any = None,
        charges: Any = None,
        *,
        box: Any = None,
        step: int = 0,
        time: float = 0.0,
    ) -> None:
        """Write a frame. All ranks call this, each with its own atoms.

        Parameters
        ----------
        ids : array-like of int, shape (n,)
            Of this rank's atoms, in any order: of all ranks together each of 1 to `n_atoms` once.
        positions : array-like of float32 or float64, shape (n, 3)
            Å. A rank without atoms gives arrays of shape (0, 3).
        velocities, forces : array-like, shape (n, 3), optional
            Å/ps and kJ/(mol·Å). DCD holds none; DL_POLY's files hold forces only beside velocities.
        names : array-like of str, shape (n,), or ndarray of uint8, shape (n, 8), optional
            Up to 8 ASCII characters, which CONFIG, REVCON and HISTORY must have. H5MD holds those
            of the first frame, and refuses others later; NetCDF and DCD hold none, and they are
            ignored.
        masses, charges : array-like, shape (n,), optional
            u and e: for HISTORY, where they are 0 by default, and for H5MD, as names are.
        box : array-like, shape (6,) or (3, 3), optional
            Lengths (Å) and angles (degrees), as MDAnalysis's dimensions; or vectors (Å). The same
            on all ranks, as are the following.
        step : int
            Of the simulation. In H5MD steps rise from frame to frame.
        time : float
            ps.

        Raises
        ------
        UnwritableError
            Ids are missing, twice there or out of range; a number is not finite, or too wide for
            its field; ranks disagree; or the file cannot hold what is given, or holds something
            else. Nothing is overwritten then.
        OSError
            The system could not write. The file keeps the frames before.
        ValueError
            The writer is closed.
        """
        if self._closed:
            raise ValueError("the writer is closed: no more frames can be written")
        own: Own | None = None
        error: Exception | None = None
        try:
            own = Own.of(
                ids,
                {"positions": positions, "velocities": velocities, "forces": forces},
                names,
                {"masses": masses, "charges": charges},
                box=box,
                step=step,
                time=time,
            )
        except Exception as reason:
            # Of any kind: a user's array may raise what it likes, and the others wait already.
            rank = self._company.communicator.rank
            error = UnwritableError(f"{self._recording.path}: rank {rank}: {reason}")
        if self._background is None:
            self._recording.write(own, error)
            return
        with self._company.unbroken():
            self._background.wait()
            mine = None if own is None else own.copied()
        recording = self._recording
        self._background.begin(lambda: recording.write(mine, error))

    def close(self) -> None:
        """Finish the file. All ranks call this.

        Raises
        ------
        OSError
            The system could not write.
        Exception
            Where `wait=False`, that of the last `write`; the file is closed nevertheless.
        """
        if self._closed:
            return
        self._end()
        try:
            with self._company.unbroken():
                try:
                    if self._background is not None:
                        self._background.wait()
                finally:
                    self._recording.close()
        finally:
            self._own_comm.Free()

    def _end(self) -> None:
        self._closed = True
        if self._forgotten is not None:
            self._forgotten.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file; after an error that other ranks may not have, without them."""
        if kind is None or self._company.have_agreed(error):
            self.close()
        elif not self._closed:
            self._end()
            with contextlib.suppress(Exception):
                if self._background is not None:
                    self._background.wait()
            self._recording.let_go()
