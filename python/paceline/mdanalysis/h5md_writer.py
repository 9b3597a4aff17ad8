"""MDAnalysis's writer protocol for paceline's H5MD files.

The class is passed to MDAnalysis explicitly. It has no class attribute `format`, because MDAnalysis
would then register it as soon as this module is imported.
"""

import weakref
from collections.abc import Mapping
from typing import Any

import MDAnalysis
import numpy as np
from MDAnalysis.coordinates.base import ProtoReader, WriterBase
from MDAnalysis.units import get_conversion_factor

from paceline._core import __version__
from paceline._util.files import check_output, local_path
from paceline._util.machine_and_software import available_cpus, current_command
from paceline._util.python_object_digest import digest
from paceline.contract.run_info_and_descriptions import describe_atoms
from paceline.contract.system_interface import Atoms, attribute_of, fields_of, values_of
from paceline.errors import AtomCountError, UnsupportedError, UnwritableError, warn
from paceline.hdf5.create_h5md_groups import AtomProperties, Description
from paceline.hdf5.frame_writer import FrameData, StreamingWriter
from paceline.hdf5.h5md_storage_layout import (
    Storage,
    choose_layout,
    chunk_like_h5py,
    compression_like_h5py,
    parse_compression,
)
from paceline.hdf5.open_hdf5_trajectory import ONE_FILE_DRIVERS, UNUSED_DRIVERS, note_on_driver
from paceline.hdf5.units import OUR_UNITS, factor_of, h5md_spelling
from paceline.mdanalysis.h5md_written_by_ranks import RankFile, alike_on_ranks, writing_ranks
from paceline.mdanalysis.reader import Reader

#: For each kind of unit: its name in MDAnalysis's conversion function, and MDAnalysis's own unit.
_UNITS = {
    "length": ("length", "Angstrom"),
    "velocity": ("speed", "Angstrom/ps"),
    "force": ("force", "kJ/(mol*Angstrom)"),
    "time": ("time", "ps"),
}
#: Key in `_UNITS` for the unit of each field.
_KINDS = {"positions": "length", "velocities": "velocity", "forces": "force"}
#: Entries of `Timestep.data` that are not observables.
_NO_OBSERVABLES = ("step", "time", "dt")
#: Limits of unit factors, beyond which 32-bit numbers could become infinite or 0.
_FACTORS = 1e-20, 1e20


class H5MDWriter(WriterBase):
    """Write frames to a new H5MD file through MDAnalysis's writer interface.

    Frames are gathered until they fill chunks; threads compress full chunks in the background. The
    file appears under its name when it is closed: after an error in the `with` block, or if the
    process is killed, there is no file. Keywords of MDAnalysis's `H5MDWriter` are accepted.

    Parameters
    ----------
    filename : path-like
        Name of the new file.
    n_atoms : int
        Number of atoms in each frame.
    n_frames : int, optional
        Maximum number of frames, required for `chunk="contiguous"`.
    chunk : str
        "frame": one chunk per frame; "16x1000": chunks of 16 frames of 1000 atoms; "auto": chosen
        for `for_`; "contiguous": no chunks. The frames of one chunk are kept in memory.
    for_ : {"frames", "atoms", "both"}
        Access pattern for `chunk="auto"`: whole frames, a few atoms through all frames, or both.
    compress : str
        "none", "gzip:1" to "gzip:9", "zstd:1" to "zstd:19", "lz4", "lzf", or one of these with
        shuffle, such as "shuffle+zstd:3".
    precision : float, optional
        Å. Positions are rounded to multiples of the largest power of two up to this value, so that
        they compress better.
    align : int, optional
        Stripe size of the file system, bytes. Chunks of at least this size begin at a multiple of
        it.
    positions, velocities, forces : bool
        Write these fields if the first frame has them.
    timeunit, lengthunit, velocityunit, forceunit : str, optional
        Units in the file, in MDAnalysis's or H5MD's notation: "nm", "kJ/(mol*nm)", "kJ mol-1 nm-1";
        by default ps, Å, Å/ps and kJ/(mol·Å). The cell has the unit of positions.
    author : str, optional
        Author of the file; by default the user of this process.
    author_email : str, optional
        Address of the author.
    creator, creator_version : str, optional
        Program that creates the file, by default paceline, and its version.
    overwrite : bool
        Replace an existing file of this name.
    chunks : tuple of int or bool, optional
        As in h5py, instead of `chunk`: frames, atoms and 3; False for "contiguous"; True for
        "auto".
    compression : {"gzip", "lzf"} or int, optional
        As in h5py, instead of `compress`. An integer is a gzip level (0 for none), or the number of
        Zstandard (32015) or LZ4 (32004), as in `hdf5plugin.Zstd` and `hdf5plugin.LZ4`.
    compression_opts : int or tuple of int, optional
        Level of `compression="gzip"`, by default 4, or options of Zstandard or LZ4.
    driver : {"sec2", "stdio", "core", "mpio"}, optional
        Accepted without effect: the file is the same. "mpio" needs `comm`.
    comm : mpi4py.MPI.Intracomm, optional
        Ranks that write one file; h5py needs no MPI. Each rank writes frames of its own, and the
        file contains all of them in the order of their steps. All ranks must create the writer and
        close it. Frames wait in memory, or above 64 MiB in a temporary file, until all ranks have
        closed the writer. An error of one rank is raised on all. `n_frames` is not needed.
    convert_units : bool
        Must be True: numbers are in the units that the file states.

    Raises
    ------
    FileExistsError
        A file of that name exists and `overwrite` is False.
    UnsupportedError
        The layout, compression or unit does not exist, or a keyword has a value for which the
        message names another keyword.
    AtomCountError
        A frame's number of atoms differs from `n_atoms`.
    UnwritableError
        A frame does not have the same contents as the first frame, its step does not exceed the
        previous step, or a number is not finite.

    Examples
    --------
    >>> import os, tempfile
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> ca = paceline.Universe(PSF, DCD).select_atoms("name CA")
    >>> path = os.path.join(tempfile.mkdtemp(), "ca.h5md")
    >>> with paceline.H5MDWriter(path, len(ca), compress="shuffle+gzip:4") as writer:
    ...     for ts in ca.universe.trajectory[::10]:
    ...         writer.write(ca)
    >>> os.path.exists(path)
    True
    """

    units = {"time": "ps", "length": "Angstrom"}  # noqa: RUF012
    _finish: Any = None
    _file: StreamingWriter | RankFile | None = None

    def __init__(
        self,
        filename: Any,
        n_atoms: int,
        *,
        n_frames: int | None = None,
        chunk: str = "frame",
        for_: str = "frames",
        compress: str = "none",
        precision: float | None = None,
        align: int | None = None,
        positions: bool = True,
        velocities: bool = True,
        forces: bool = True,
        timeunit: str | None = None,
        lengthunit: str | None = None,
        velocityunit: str | None = None,
        forceunit: str | None = None,
        author: str | None = None,
        author_email: str | None = None,
        creator: str | None = None,
        creator_version: str | None = None,
        overwrite: bool = False,
        chunks: Any = None,
        compression: Any = None,
        compression_opts: Any = None,
        driver: str | None = None,
        comm: Any = None,
        convert_units: bool = True,
    ):
        self.filename = local_path(filename)
        self.n_atoms, self._n_frames, self._overwrite = n_atoms, n_frames, overwrite
        ranks = writing_ranks(_check_driver(driver, comm))
        is_first = ranks is None or ranks.is_coordinator
        if driver in UNUSED_DRIVERS and is_first:
            warn(note_on_driver(driver))
        with alike_on_ranks(ranks) as settings:
            if not convert_units:
                raise UnsupportedError(
                    "convert_units=False: numbers are written in the units that the file states; "
                    "name these by lengthunit=, timeunit=, velocityunit= and forceunit="
                )
            chunk, compress = _layout_words(chunk, chunks, compress, compression, compression_opts)
            if is_first:
                check_output(self.filename, overwrite=overwrite)
            wanted = {"positions": positions, "velocities": velocities, "forces": forces}
            self._fields = [field for field, is_wanted in wanted.items() if is_wanted]
            if not self._fields:
                raise UnsupportedError(f"expected at least one of {', '.join(wanted)}, found none")
            if n_atoms < 1:
                raise UnsupportedError(f"expected at least 1 atom, found {n_atoms}")
            layout = choose_layout(chunk, n_atoms, for_=for_, align=align)
            if layout.contiguous and n_frames is None and ranks is None:
                raise UnsupportedError(
                    f"chunk={chunk!r} needs n_frames, the maximum number of frames"
                )
            units = _file_units(
                time=timeunit, length=lengthunit, velocity=velocityunit, force=forceunit
            )
            self._storage = Storage(layout, parse_compression(compress), precision, units)
            self._storage.encoder("positions")  # raises an error for an unsupported precision
            settings += self.filename, n_atoms, repr((self._storage, self._fields))
        version = creator_version or (creator and "unknown")
        self._makers = {
            "author": _given_attributes(name=author, email=author_email),
            "creator": _given_attributes(name=creator, version=version),
        }
        self._source: _FrameSource | None = None
        self._ended = False
        if ranks is not None:
            self._file = RankFile(self.filename, n_atoms, self._storage, ranks, overwrite=overwrite)
            # Called if a script ends without closing the file, for which other ranks would wait.
            self._finish = weakref.finalize(self, self._file.end)

    def _write_next_frame(self, obj: Any) -> None:
        """Write the current frame of a group's atoms; called by `write`."""
        try:
            atoms = obj.atoms
        except AttributeError:
            raise TypeError(
                f"expected an AtomGroup or a Universe, found {type(obj).__name__}"
            ) from None
        if self._ended:
            raise ValueError(f"{self.filename} is closed: no more frames can be written")
        if len(atoms) != self.n_atoms:
            error = AtomCountError(
                f"{self.filename}: expected {self.n_atoms} atoms, found {len(atoms)}: all frames "
                "of a file have equal numbers of atoms"
            )
            error.found = len(atoms)
            raise error
        if self._source is None:
            self._source = _FrameSource(atoms, self._makers)
        frame = _frame_of(self._source.columns(atoms), atoms.universe.trajectory, self._fields)
        try:
            if not frame.values:
                raise UnwritableError(
                    f"{self.filename}: the first frame has none of {', '.join(self._fields)}"
                )
            if self._file is None:
                self._file = self._begin(frame, self._source)
            if isinstance(self._file, RankFile):
                self._file.source = self._source
            self._file.add(frame)
        except BaseException as error:
            self._end(error)
            raise

    def _begin(self, first: FrameData, source: "_FrameSource") -> StreamingWriter:
        file = StreamingWriter(
            self.filename,
            self._storage,
            first,
            n_frames=self._n_frames,
            n_threads=available_cpus(),
            overwrite=self._overwrite,
        )
        # Called at the end of a script that does not close the file, while h5py still works.
        self._finish = weakref.finalize(self, _finish, file, source)
        return file

    def _end(self, error: BaseException) -> None:
        """Accept no more frames after an error.

        A file of one process is then not completed when the interpreter exits.
        """
        self._ended = True
        if isinstance(self._file, RankFile):
            self._file.fail(error)
        elif self._finish is not None:
            self._finish.detach()

    def close(self) -> None:
        """Write the frames that are still in memory. The file appears only if there are frames.

        All ranks of `comm` must call this method.
        """
        self._ended = True
        if isinstance(self._file, RankFile):
            if self._finish.detach() is not None:
                self._file.close()
        elif self._finish is not None:
            self._finish()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close the file. After an error, remove it."""
        if error is None:
            self.close()
        elif isinstance(self._file, RankFile):
            self._end(error)
            self.close()
        elif not self._ended:
            self._end(error)
            if self._file is not None:
                self._file.abandon()


def _finish(file: StreamingWriter, source: "_FrameSource") -> None:
    file.close(source.description())


def _check_driver(driver: str | None, comm: object) -> Any:
    """Return the communicator; raise `UnsupportedError` for drivers of another kind of file."""
    if driver not in (None, "mpio", *ONE_FILE_DRIVERS):
        raise UnsupportedError(
            f"driver: expected none, mpio, or one of {', '.join(ONE_FILE_DRIVERS)}, found "
            f"{driver!r}: an H5MD file is a single ordinary file"
        )
    if driver == "mpio" and comm is None:
        raise UnsupportedError('driver="mpio": expected the ranks that write the file as comm=')
    return comm


def _layout_words(
    chunk: str, chunks: object, compress: str, compression: object, compression_opts: object
) -> tuple[str, str]:
    """Return `chunk` and `compress`, either as given or converted from h5py's keywords."""
    if chunks is not None:
        if chunk != "frame":
            raise UnsupportedError("expected one of chunks= and chunk=, found both")
        chunk = chunk_like_h5py(chunks)
    if compression is not None or compression_opts is not None:
        if compress != "none":
            raise UnsupportedError("expected one of compression= and compress=, found both")
        compress = compression_like_h5py(compression, compression_opts)
    return chunk, compress


def _file_units(**given: str | None) -> dict[str, str]:
    """Return the units of the file's quantities in H5MD notation."""
    units = dict(OUR_UNITS)
    for quantity, unit in given.items():
        if unit is None:
            continue
        try:
            factor = factor_of(unit, quantity)
        except UnsupportedError as error:
            raise UnsupportedError(f"{quantity}unit: {error}") from None
        if not _FACTORS[0] < factor < _FACTORS[1]:
            raise UnsupportedError(f"{quantity}unit: numbers of 32 bits cannot be in {unit!r}")
        units[quantity] = h5md_spelling(unit)
    return units


def _given_attributes(**attributes: str | None) -> dict[str, str]:
    """Return the attributes that are not None."""
    return {name: value for name, value in attributes.items() if value is not None}


class _FrameSource:
    """Atoms whose frames are written, with a check whether they are the same in all frames."""

    def __init__(self, atoms: Atoms, makers: Mapping[str, Mapping[str, str]]):
        self._atoms, self._makers = atoms, makers
        self._is_one = True
        self._ix = np.empty(0, dtype=np.int64)
        self._columns: np.ndarray | slice = slice(0)

    def columns(self, atoms: Atoms) -> np.ndarray | slice:
        """Return the indices of these atoms in a frame's arrays; a slice if all, in order."""
        if atoms.ix is not self._ix:
            self._ix = atoms.ix
            self._is_one &= atoms.universe is self._atoms.universe and np.array_equal(
                atoms.ix, self._atoms.ix
            )
            all_in_order = np.array_equal(atoms.ix, np.arange(len(atoms.universe.atoms)))
            self._columns = slice(None) if all_in_order else atoms.ix
        return self._columns

    def key(self) -> str:
        """Digest of the atoms; empty if they are not the same in all frames."""
        return digest([self._atoms.ix, len(self._atoms.universe.atoms)]) if self._is_one else ""

    def description(self, *, is_one: bool = True) -> Description:
        """Describe atoms and origin for the file; `is_one`: all ranks have the same atoms."""
        atoms = self._atoms
        origin = {
            "program": f"paceline {__version__}, MDAnalysis {MDAnalysis.__version__}",
            "command": current_command(),
            "call": "paceline.H5MDWriter",
        }
        if not (self._is_one and is_one):
            # Names and masses of the first frame's atoms would be wrong for other frames.
            origin["atoms"] = "not the same in all frames"
            return Description(AtomProperties(len(atoms)), origin, **self._makers)
        trajectory = atoms.universe.trajectory
        origin |= {
            "topology": str(atoms.universe.filename),
            "trajectory": str(trajectory.filename),
            "fingerprint": _fingerprint(trajectory),
            "atoms": describe_atoms(atoms),
        }
        return Description(AtomProperties.of(atoms), origin, **self._makers)


def _fingerprint(trajectory: ProtoReader) -> str:
    """Return the fingerprints of the files, if paceline reads them."""
    if not isinstance(trajectory, Reader):
        return "none: read by MDAnalysis"
    return ", ".join(core.fingerprint for core in trajectory.chain.files)


def _frame_of(columns: np.ndarray | slice, trajectory: ProtoReader, fields: list[str]) -> FrameData:
    """Return the current frame of the atoms `columns`, with the existing `fields`.

    Values are in paceline's units.
    """
    ts, factor = trajectory.ts, _factors(trajectory)
    held, values = fields_of(ts), {}
    if (loaded := attribute_of(trajectory, "loaded")) is not None:
        loaded.check(columns)
    for field in fields:
        if field in held:
            numbers = values_of(ts, field)[columns]
            values[field] = numbers * factor[_KINDS[field]] if factor else numbers
    dimensions = ts.dimensions
    if dimensions is not None and factor:
        dimensions = np.concatenate([dimensions[:3] * factor["length"], dimensions[3:]])
    return FrameData(
        values=values,
        dimensions=dimensions,
        time=ts.time * factor["time"] if factor else ts.time,
        step=int(ts.data.get("step", ts.frame)),
        observables={name: ts.data[name] for name in ts.data if name not in _NO_OBSERVABLES},
    )


def _factors(trajectory: ProtoReader) -> dict[str, np.float32]:
    """Return factors from a reader's units to paceline's; empty if the reader converts units."""
    if getattr(trajectory, "convert_units", True):
        return {}
    factors = {}
    for kind, (conversion, ours) in _UNITS.items():
        unit = trajectory.units.get(kind)
        factors[kind] = np.float32(get_conversion_factor(conversion, unit, ours) if unit else 1)
    return factors
