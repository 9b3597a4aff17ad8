"""Write frames whose atoms are distributed over MPI ranks."""

import contextlib
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from paceline import _core
from paceline._util.files import naming_file, writing_to
from paceline.errors import PacelineWarning, UnwritableError
from paceline.snapshot.atoms_of_rank import (
    STATIC_PROPERTIES,
    LocalAtoms,
    StaticProperties,
    check_agreement,
    check_same_property,
    gather_properties,
)
from paceline.snapshot.formats_and_options import (
    WriterOptions,
    given_writers,
    options_of,
    register_open_file,
    unregister,
)
from paceline.snapshot.shared_file import Container, Contents

if TYPE_CHECKING:
    from mpi4py import MPI

    from paceline.backends.mpi.comm import RankErrors


class BackgroundWrite:
    """Thread that writes a rank's atoms of one frame, while the caller goes on.

    The process does not end before the frame is written. The write can finish while ranks end,
    because all ranks have started it with all their data, and MPI is finalised after Python's own
    clean-up.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def begin(self, function: Callable[[], None]) -> None:
        """Call a function in the thread. No other call may be running."""
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
        """Wait for the running call, if any; raise the error of the last call."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def warn_unclosed(self, path: str) -> None:
        """Warn that the file was not closed, and report an error in its last frame."""
        if self._thread is None:
            return
        # If the writer is garbage-collected in this thread itself, the frame is already written,
        # and the thread cannot wait for itself.
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
    """Collective writing of one file; every method raises the same error on all ranks."""

    def __init__(self, errors: "RankErrors", choose: Callable[[], WriterOptions]):
        #: Cost of each frame, on this rank.
        self.costs: list[_core.SnapshotCost] = []
        #: Writing ranks; set with the first frame, unless the user chose them.
        self.writers: list[int] = []
        self._errors = errors
        self._container: Container | None = None
        self._codings: dict[Contents, _core.SnapshotFormat] = {}
        self._prepare(choose)

    def _prepare(self, choose: Callable[[], WriterOptions]) -> None:
        """Check that all ranks passed the same options, and open the file on rank 0."""
        errors = self._errors

        def key() -> dict[str, object]:
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

        # The path is rank 0's: other ranks may have another working directory.
        self.path, self.n_frames, self._double = errors.first(begin)
        self._to_compare = set(STATIC_PROPERTIES if self.n_frames else ())
        self._static = StaticProperties(errors, self.path)

    def write(self, atoms: LocalAtoms | None, error: Exception | None) -> None:
        """Write a frame, to which this rank contributes its atoms or an error."""
        errors = self._errors

        def key() -> dict[str, object]:
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
        """Return the encoder of atoms for frames with these contents."""
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
        """Write a checked frame; `encoded` contains only the arrays that each frame stores."""
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
            self.writers = _core.choose_writers(self._nodes, n_atoms * sum(coding.sections))
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
        self._to_compare -= {name for name in STATIC_PROPERTIES if atoms.array(name) is not None}
        self.n_frames += 1
        self.costs.append(cost)

    def _check_same_system(self, atoms: LocalAtoms) -> None:
        """Check that names, masses and charges equal those in the file to be extended."""
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

    def _write_static_properties(self, atoms: LocalAtoms) -> None:
        """Write the atom properties that the file stores only once."""
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
        """Remove an incomplete frame; keep all earlier frames."""
        if self._container is not None:
            # If this fails, too, the file's header still contains the number of complete frames.
            with contextlib.suppress(OSError):
                self._container.cut_back()

    def close(self) -> None:
        """Wait until all ranks call `close`, then finish the file.

        A frame for which other ranks call `write` instead fails on all ranks. Then the file is
        finished, and the error of the last such frame is raised.
        """
        errors, missed = self._errors, None
        call: dict[str, object] = {"call": "close"}
        closing = False
        while not closing:
            try:
                keys = errors.share(lambda: call)
                with errors.same_on_all(), naming_file(self.path):
                    check_agreement(keys)
                closing = True
            except Exception as error:
                if not errors.have_agreed(error):
                    raise
                missed = error
        errors.first(self.release)
        if missed is not None:
            with errors.same_on_all():
                raise missed

    def release(self) -> None:
        """Close the file if this is rank 0, without communication with other ranks."""
        if self._container is not None:
            container, self._container = self._container, None
            unregister(self)
            container.close()


def _node() -> str:
    """Return the name of this rank's host."""
    from mpi4py import MPI

    return MPI.Get_processor_name()


class Writer:
    """Writes frames whose atoms are distributed over ranks into one file, ordered by id.

    The constructor, `write` and `close` are collective: all ranks of `comm` call them in the same
    order. If a frame fails, all ranks raise the error; the file keeps the earlier frames, and the
    next frame may follow. If a rank is killed within a call, the job ends, because the other ranks
    would wait for ever.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Communicator of the ranks. It is duplicated for the writer's messages.
    path : path-like
        Output file. Its name determines the format: CONFIG, REVCON or HISTORY (possibly as one part
        of the name between dots: nacl.HISTORY), or an extension .h5md, .h5, .hdf5 (H5MD), .nc,
        .ncdf (Amber NetCDF, CDF-5) or .dcd. CONFIG and REVCON contain one frame, which each `write`
        replaces. Other files grow in place.
    n_atoms : int
        Total number of atoms on all ranks; ids are 1 to `n_atoms`.
    format : str, optional
        "CONFIG", "REVCON", "HISTORY", "H5MD", "NetCDF" or "DCD", if the name does not determine it.
    method : {"sorted", "serial", "direct", "mpiio"}
        "sorted": atoms are sent to some ranks, which sort them and make a few large writes.
        "serial": each rank in turn sends to rank 0, which writes each record at its offset.
        "direct": each rank writes its own records. "mpiio": as "direct", but through MPI-IO. All
        methods write equal bytes.
    writers : int or sequence of int, optional
        Number of writing ranks, or the ranks, for `method="sorted"`. By default, for P ranks, the
        largest power of two up to min(P, 8 √P), and at most one rank for each MiB of a frame.
    buffer : str or int
        Memory of a writing rank in addition to its own atoms, independent of `n_atoms`: bytes, or
        "64 MiB".
    append : bool
        True to extend an existing file. It must have the same number of atoms and the same fields.
        Names in the file must be the same, and for H5MD also masses and charges. An incomplete last
        frame of a killed program is removed.
    overwrite : bool
        True to replace an existing file when the first frame is complete.
    n_frames : int, optional
        H5MD: maximum number of frames, for contiguous storage instead of chunks.
    double : bool
        H5MD: True for 64-bit numbers.
    dt : float, optional
        CONFIG, REVCON, HISTORY: length of a simulation step, ps, which these files store; by
        default time divided by step.
    title : str
        CONFIG, REVCON, HISTORY: up to 72 characters; H5MD: any length.
    sync : bool
        True if each frame must be on the disk (fsync) before `write` returns.
    wait : bool
        If True, `write` returns when the frame is written. Otherwise `write` copies this rank's
        atoms, and a thread writes them. The next `write` or `close` waits for the thread, and
        raises its error. A program that ends without `close` also waits, with a warning. This
        requires an MPI with thread support (MPI.THREAD_MULTIPLE).

    Attributes
    ----------
    n_frames : int
        Number of frames in the file; for CONFIG and REVCON, number of frames written.
    writers : list of int
        Writing ranks; by default known from the first frame on.
    costs : list of SnapshotCost
        Cost of each frame on this rank: seconds to `communicate`, `sort`, `format` and `write`;
        `n_messages`, `bytes_sent`, `n_writes`, `bytes_written`, `n_batches`, and `peak_buffer`
        (bytes).

    Raises
    ------
    FileExistsError
        The file exists, and neither `append` nor `overwrite` is True.
    AtomCountError
        The file to be extended has another number of atoms.
    UnsupportedError
        The format, method or writer is unknown, or the file to be extended is of an unsupported
        variant.
    DamagedFileError
        The file to be extended is damaged.
    UnwritableError
        Ranks disagree about the arguments.

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
            # The finalizer is also called when the program ends.
            self._finalizer = weakref.finalize(
                self, self._background.warn_unclosed, self._session.path
            )

    @property
    def n_frames(self) -> int:
        """Number of frames in the file."""
        return self._session.n_frames

    @property
    def writers(self) -> list[int]:
        """Writing ranks; empty before the first frame, unless the user chose them."""
        return self._session.writers

    @property
    def costs(self) -> "list[_core.SnapshotCost]":
        """Cost of each frame on this rank."""
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
            Ids of this rank's atoms, in any order. Over all ranks, each id from 1 to `n_atoms`
            occurs once.
        positions : array-like of float32 or float64, shape (n, 3)
            Positions, Å. A rank without atoms passes arrays of shape (0, 3).
        velocities, forces : array-like, shape (n, 3), optional
            Velocities (Å/ps) and forces (kJ/(mol·Å)). DCD stores neither; DL_POLY files store
            forces only together with velocities.
        names : array-like of str, shape (n,), or ndarray of uint8, shape (n, 8), optional
            Names of up to 8 ASCII characters, required for CONFIG, REVCON and HISTORY. H5MD stores
            the names of the first frame; names of later frames must be equal. NetCDF and DCD ignore
            names.
        masses, charges : array-like, shape (n,), optional
            Masses (u) and charges (e). HISTORY stores them in each frame (0 by default); H5MD
            stores those of the first frame, as for names.
        box : array-like, shape (6,) or (3, 3), optional
            Lengths (Å) and angles (degrees), as MDAnalysis's dimensions; or vectors (Å). This and
            the following arguments must be the same on all ranks.
        step : int
            Step number of the simulation. In H5MD, steps must increase from frame to frame.
        time : float
            Time, ps.

        Raises
        ------
        UnwritableError
            Ids are missing, duplicate or out of range; a number is not finite, or too wide for its
            field; ranks disagree; the file cannot store the data, or stores other fields. The file
            is unchanged in these cases.
        OSError
            The system could not write. The file keeps the earlier frames.
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
            # Catch any error: a user's array may raise any, and the other ranks are already
            # waiting.
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
            Error of the last `write` with `wait=False`; the file is closed nevertheless.
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
        """Close the file; after an error on this rank alone, close without the other ranks."""
        if error is None or self._errors.have_agreed(error):
            self.close()
        elif not self._closed:
            self._end()
            with contextlib.suppress(Exception):
                if self._background is not None:
                    self._background.wait()
            self._session.release()
