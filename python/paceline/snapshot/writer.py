"""Write frames whose atoms are spread over MPI ranks."""

import contextlib
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from paceline import _core
from paceline._util.files import naming_file, writing_to
from paceline.errors import PacelineWarning, UnwritableError
from paceline.snapshot.local_atoms import (
    STATIC_PROPERTIES,
    LocalAtoms,
    StaticProperties,
    check_agreement,
    check_same_property,
    gather_properties,
)
from paceline.snapshot.options import (
    WriterOptions,
    choose_writers,
    given_writers,
    options_of,
    register_open_file,
    unregister,
)
from paceline.snapshot.output import Container, Contents

if TYPE_CHECKING:
    from mpi4py import MPI

    from paceline.backends.mpi.comm import RankErrors


class BackgroundWrite:
    """Write one frame at a time in a thread.

    The process ends when that is done: all ranks have begun it, and each has all that its part
    takes, so that it can be done while they end. MPI ends later, after what Python has to do.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def begin(self, function: Callable[[], None]) -> None:
        """Call a function in the thread; nothing may be under way."""
        self._thread = threading.Thread(
            target=self._do, args=(function,), name="paceline-snapshot", daemon=False
        )
        self._thread.start()

    def _do(self, function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            self._error = error

    def wait(self) -> None:
        """Wait until nothing is under way; raise the error of what was begun last."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def warn_unclosed(self, path: str) -> None:
        """Warn that the file was never closed, and of an error of its last frame."""
        if self._thread is None:
            return
        # Who forgets a file within the thread itself cannot wait for it; then it is at its end.
        if self._thread is not threading.current_thread():
            self._thread.join()
        how = "its last frame is in it"
        if self._error is not None:
            how = f"its last frame is not in it: {self._error}"
        warnings.warn(
            f"{path} was written with wait=False and never closed; {how}",
            PacelineWarning,
            stacklevel=2,
        )


class WriteSession:
    """Collective writing of one file; all that it does raises the same on all ranks."""

    def __init__(self, errors: "RankErrors", choose: Callable[[], WriterOptions]):
        #: Cost of each frame, on this rank.
        self.costs: list[_core.SnapshotCost] = []
        #: Ranks that write, known from the first frame on.
        self.writers: list[int] = []
        self._errors = errors
        self._container: Container | None = None
        self._codings: dict[Contents, _core.SnapshotFormat] = {}
        self._prepare(choose)

    def _prepare(self, choose: Callable[[], WriterOptions]) -> None:
        """Agree on the options, and open the file on rank 0."""
        errors = self._errors

        def key() -> dict[str, Any]:
            self._options = choose()
            return self._options.agreement_key()

        keys = errors.share(key)
        with errors.same_on_all():
            check_agreement(keys)
        self._nodes = errors.share(_node)
        wanted = self._options.writers
        if wanted is not None:
            with errors.same_on_all():
                self.writers = given_writers(wanted, self._nodes)

        def begin() -> tuple[str, int, bool]:
            settings = self._options.settings
            register_open_file(settings.path, self)
            try:
                container = self._container = self._options.format.container(settings)
            except BaseException:
                unregister(self)
                raise
            return settings.path, container.n_frames, container.double

        # The path is rank 0's: others may have another working directory.
        self.path, self.n_frames, self._double = errors.first(begin)
        self._to_compare = set(STATIC_PROPERTIES if self.n_frames else ())
        self._static = StaticProperties(errors, self.path)

    def write(self, atoms: LocalAtoms | None, error: Exception | None) -> None:
        """Write a frame, of which this rank has some atoms or an error."""
        errors = self._errors

        def key() -> dict[str, Any]:
            if atoms is None:
                assert error is not None
                raise error
            return atoms.agreement_key()

        with errors.abort_on_lone_error():
            keys = errors.share(key)
            assert atoms is not None
            with errors.same_on_all(), naming_file(self.path):
                check_agreement(keys)
            with errors.same_on_all():
                contents = Contents(atoms.fields, atoms.heading.cell is not None)
                self._options.format.check_atoms(self.path, atoms, contents)
                coding = self._coding(contents)
            types = {one["type"] for one in keys} - {None}
            atoms = atoms.as_double("float64" in types)
            encoded = atoms
            if not self._options.format.in_lines:
                encoded = atoms.without(*STATIC_PROPERTIES)
            n_atoms = self._options.settings.n_atoms
            with errors.same_on_all(), naming_file(self.path):
                _core.check_snapshot(errors.comm, coding, n_atoms, encoded.for_core())
            try:
                self._write_checked(atoms, encoded, contents, coding)
            except Exception:
                self._cut_back()
                raise

    def _coding(self, contents: Contents) -> "_core.SnapshotFormat":
        """Return the encoder of atoms."""
        if contents not in self._codings:
            with naming_file(self.path):
                self._codings[contents] = self._options.format.coding(contents.fields, self._double)
        return self._codings[contents]

    def _write_checked(
        self,
        atoms: LocalAtoms,
        encoded: LocalAtoms,
        contents: Contents,
        coding: "_core.SnapshotFormat",
    ) -> None:
        """Write a frame that the file can hold; `encoded` are those arrays that frames hold."""
        errors, n_atoms = self._errors, self._options.settings.n_atoms
        has_static = self._options.format.static_properties
        container = self._container
        if has_static:
            given = {name: atoms.array(name) for name in STATIC_PROPERTIES}
            self._static.check_unchanged(atoms.ids, given)
        path, starts = errors.first(lambda: container.place(contents, atoms.heading))  # type: ignore[union-attr]
        if self.n_frames == 0 and has_static:
            self._write_static_properties(atoms)
        self._check_same_system(atoms)
        if not self.writers:
            self.writers = choose_writers(self._nodes, n_atoms * sum(coding.sections))
        with errors.same_on_all(), writing_to(self.path):
            cost = _core.write_snapshot(
                errors.comm,
                path,
                coding,
                starts,
                n_atoms,
                encoded.for_core(),
                method=self._options.method,
                writers=self.writers,
                buffer=self._options.buffer,
                sync=self._options.settings.sync,
            )
        errors.first(lambda: container.commit())  # type: ignore[union-attr]
        self._static.keep()
        self.n_frames += 1
        self.costs.append(cost)

    def _check_same_system(self, atoms: LocalAtoms) -> None:
        """Check that atoms are those of a file that was there before."""
        container = self._container
        for name in STATIC_PROPERTIES:
            values = atoms.array(name)
            if name in self._to_compare and values is not None:
                check_same_property(
                    self._errors,
                    self.path,
                    atoms.ids,
                    name,
                    values,
                    self._options.settings.n_atoms,
                    lambda *which: container.stored_property(*which),  # type: ignore[union-attr]
                )
                self._to_compare.remove(name)

    def _write_static_properties(self, atoms: LocalAtoms) -> None:
        """Write the properties of atoms that the file holds once."""
        properties = {"mass": atoms.masses, "charge": atoms.charges}
        if atoms.names is not None:
            properties["name"] = atoms.names.view("S8")[:, 0]
        known = {name: values for name, values in properties.items() if values is not None}
        if known:
            container = self._container
            gather_properties(
                self._errors,
                atoms.ids,
                known,
                self._options.settings.n_atoms,
                self._options.buffer,
                lambda first, batch: container.put_properties(first, batch),  # type: ignore[union-attr]
            )

    def _cut_back(self) -> None:
        """Keep the frames before the one that was not written."""
        if self._container is not None:
            # Where that fails too, the file's head tells how many frames are whole.
            with contextlib.suppress(OSError):
                self._container.cut_back()

    def close(self) -> None:
        """Finish the file."""
        self._errors.first(self.release)

    def release(self) -> None:
        """Close what this rank has open; not collective."""
        if self._container is not None:
            container, self._container = self._container, None
            unregister(self)
            container.close()


def _node() -> str:
    """Return the name of this rank's host."""
    from mpi4py import MPI

    return MPI.Get_processor_name()


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
        writes. "serial": each rank in turn sends to rank 0, which writes each record at its offset.
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
        from paceline.backends.mpi.comm import Comm, RankErrors

        self._comm = Comm.duplicate(comm, busy=True)
        self._errors = RankErrors(self._comm)
        self._background = None if wait else BackgroundWrite()
        self._closed = False

        def choose() -> WriterOptions:
            return options_of(
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
            with self._errors.abort_on_lone_error():
                self._session = WriteSession(self._errors, choose)
        except Exception:
            self._comm.free()
            raise
        self._finalizer: weakref.finalize | None = None
        if self._background is not None and self._comm.is_coordinator:
            # Called at the end of the program, too.
            self._finalizer = weakref.finalize(
                self, self._background.warn_unclosed, self._session.path
            )

    @property
    def n_frames(self) -> int:
        """Frames in the file."""
        return self._session.n_frames

    @property
    def writers(self) -> list[int]:
        """Ranks that write."""
        return self._session.writers

    @property
    def costs(self) -> "list[_core.SnapshotCost]":
        """Costs of each frame on this rank."""
        return self._session.costs

    def write(
        self,
        ids: object,
        positions: object,
        velocities: object = None,
        forces: object = None,
        names: object = None,
        masses: object = None,
        charges: object = None,
        *,
        box: object = None,
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
        atoms: LocalAtoms | None = None
        error: Exception | None = None
        try:
            atoms = LocalAtoms.from_user(
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
            error = UnwritableError(f"{self._session.path}: rank {self._comm.rank}: {reason}")
        if self._background is None:
            self._session.write(atoms, error)
            return
        with self._errors.abort_on_lone_error():
            self._background.wait()
            copy = None if atoms is None else atoms.copied()
        session = self._session
        self._background.begin(lambda: session.write(copy, error))

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
            with self._errors.abort_on_lone_error():
                try:
                    if self._background is not None:
                        self._background.wait()
                finally:
                    self._session.close()
        finally:
            self._comm.free()

    def _end(self) -> None:
        self._closed = True
        if self._finalizer is not None:
            self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close the file; after an error that other ranks may not have, without them."""
        if error is None or self._errors.have_agreed(error):
            self.close()
        elif not self._closed:
            self._end()
            with contextlib.suppress(Exception):
                if self._background is not None:
                    self._background.wait()
            self._session.release()
