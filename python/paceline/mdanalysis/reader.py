"""Implement MDAnalysis's reader protocol with paceline's decoders.

The class is passed to MDAnalysis explicitly. It has no class attribute `format`, because MDAnalysis
would then register it as soon as this module is imported.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

import MDAnalysis
import numpy as np
from MDAnalysis.coordinates.base import ProtoReader, ReaderBase
from MDAnalysis.core._get_readers import get_writer_for
from MDAnalysis.lib.util import NamedStream, store_init_arguments

from paceline.block import FIELDS, FrameBuffer, field_bits, fields_in
from paceline.contract.loaded_atoms import LoadedAtoms
from paceline.contract.node_disk_cache import Cache
from paceline.contract.source import (
    FORMATS,
    FileSpec,
    FrameSource,
    TimeAxis,
    TrajectoryFile,
    limit_open_files,
    time_axis_of,
)
from paceline.contract.system_interface import Timestep, fields_of, set_values, values_of
from paceline.errors import (
    AtomCountError,
    DamagedFileError,
    MissingDataError,
    ReadError,
    UnsupportedError,
    warn,
    with_script_advice,
)
from paceline.hdf5.open_hdf5_trajectory import Hdf5File, Hdf5Options, collective_specs
from paceline.mdanalysis.reader_bases import FormatAttributes, LoadedTimestep
from paceline.trajectory.chain import Chain
from paceline.trajectory.file_trajectory import FileTrajectory, describe_trajectory
from paceline.trajectory.open import ENDINGS, is_decoded, open_file, open_files
from paceline.trajectory.read_ahead import ReadAhead

#: Extensions of compressed files; MDAnalysis decompresses them for text formats.
_COMPRESSED = {".gz", ".bz2"}

#: Options of MDAnalysis's reader of LAMMPS dumps that paceline's reader lacks.
_LAMMPS_OPTIONS = ("lammps_coordinate_convention", "unwrap_images", "additional_columns")

#: True if MDAnalysis's DCD reader reuses one Timestep, as other readers do: from version 3 on.
_REUSES_DCD = int(MDAnalysis.__version__.partition(".")[0]) >= 3

#: MDAnalysis's units, in MDAnalysis's notation; scripts get all numbers in these units.
_UNITS = {
    "time": "ps",
    "length": "Angstrom",
    "velocity": "Angstrom/ps",
    "force": "kJ/(mol*Angstrom)",
}

#: Formats for which MDAnalysis's readers keep a cell that a script has set on the Timestep, if
#: frames have none; and formats for which these readers drop velocities and forces that a script
#: has set, if frames have none.
_KEEP_CELL = ("NCDF", "HISTORY")
_CLEAR_FIELDS = ("TRR",)


class Reader(FormatAttributes, ReaderBase):
    """Reader of paceline's formats for MDAnalysis: one file, or several as one trajectory.

    Parameters
    ----------
    filename : path-like or sequence of path-like
        Trajectory file or files.
    convert_units : bool
        Must be True: positions are converted to Å and times to ps.
    sub : array of int, optional
        If the topology describes only some atoms of the file: the indices of these atoms. If the
        topology describes all atoms: the indices of the atoms to load.
    refresh_offsets : bool
        Rebuild the frame index.
    dt : float, optional
        Time between frames, ps, which replaces the times in the file. For LAMMPS dumps, which
        store step numbers, the time between steps, as in MDAnalysis.
    n_atoms : int, optional
        Number of atoms in the topology.
    continuous : bool
        Order the files by time, and leave out frames that a later file repeats.
    group, units, dataset : optional
        Options of an HDF5 file: the particles group if there are several, the units if the file
        states none, and the dataset of positions if the file follows no known convention. For
        LAMMPS dumps and LAMMPS DCD files, `units` is the unit style of the simulation, such as
        "real".
    driver : {"mpio", "sec2", "stdio", "core"}, optional
        With "mpio", read the file with the HDF5 library through MPI-IO if h5py was built with MPI.
        Other drivers have no effect, and a warning says so.
    comm : mpi4py.MPI.Comm, optional
        Communicator for `driver`, as in MDAnalysis's reader. Workers read independently, so each of
        them opens the file separately. In `paceline.Universe`, `comm` has another meaning.
    collective : bool
        All ranks of `comm` open the file and read each frame together, in a script that reads the
        same frames on each rank. Analyses do not support this option.
    opener : callable
        Function that opens the files, by default `paceline.trajectory.open.open_files`. With
        another function, frames that restarts repeat are not reported.
    external : bool
        Follow external links, virtual datasets and external storage of an HDF5 file into other
        files.
    chosen_by : str, optional
        Call that chose the atoms to load, for messages. In this case, the topology describes all
        atoms.
    came_from : str, optional
        Address of the stream whose frames a temporary file contains: results name this address.
    cache : path-like, optional
        Folder on the local disk of each node, which stores the blocks that analyses read.
    cache_size : int or str, optional
        Maximum size of the cache on each node: bytes, or a text such as "50GB"; by default half of
        the free space.
    **kwargs
        `time_offset`, a time added to all times, ps.

    Attributes
    ----------
    chain : paceline.trajectory.chain.Chain
        Files and their frame indexes.
    filename : str
        File of the current frame.
    sub : numpy.ndarray of int64 or None
        Atoms of the file that the topology describes; None if it describes all.
    loaded : LoadedAtoms or None
        Loaded atoms, if the topology describes more atoms. Values of other atoms are NaN.
    t_init : float
        Time to open the files, s.

    Raises
    ------
    AtomCountError
        A file's number of atoms differs from `n_atoms`, or from that of the first file.
    UnsupportedError
        `convert_units` is False, the format of a file is not recognised, no file has a complete
        frame, or an option of MDAnalysis's LAMMPS dump reader is given.
    """

    filename: str
    #: Used by MDAnalysis's `__del__` if a reader could not be unpickled.
    _auxs: Mapping[str, Any] = {}

    @store_init_arguments
    def __init__(
        self,
        filename: Any,
        convert_units: bool = True,
        sub: Any = None,
        refresh_offsets: bool = False,
        dt: float | None = None,
        n_atoms: int | None = None,
        continuous: bool = False,
        group: str | None = None,
        units: str | Mapping[str, str] | None = None,
        dataset: str | None = None,
        driver: str | None = None,
        comm: object = None,
        collective: bool = False,
        opener: Callable[..., list[TrajectoryFile]] = open_files,
        external: bool = False,
        chosen_by: str | None = None,
        came_from: str | None = None,
        cache: str | os.PathLike | None = None,
        cache_size: int | str | None = None,
        **kwargs: Any,
    ):
        names = list(filename) if isinstance(filename, list | tuple) else [filename]
        if dt is not None:
            kwargs["dt"] = dt
        # If there is no file, the chain raises the error.
        super().__init__(next(iter(names), ""), convert_units=convert_units, **kwargs)
        of_mpi = {"comm": comm, "driver": driver, "collective": collective}
        if problem := _unsupported(kwargs | of_mpi | {"convert_units": convert_units}):
            raise UnsupportedError(f"{self.filename}: {problem}")
        # Arguments for copies of this reader, which may be made in other processes without `comm`.
        self._kwargs |= {"comm": None, "collective": False}
        self._together = comm if collective else None
        begun = time.perf_counter()
        self.chain = Chain(
            names,
            n_atoms=n_atoms if sub is None or chosen_by else None,
            options=Hdf5Options(group, units, dataset, driver, external),
            refresh=refresh_offsets,
            continuous=continuous,
            # Times that the user replaces do not show whether the simulation was restarted.
            quiet=dt is not None or opener is not open_files,
            times_given=dt is not None,
            opener=opener,
            cache=Cache.of(cache, cache_size),
        )
        self.t_init = time.perf_counter() - begun
        self.came_from = came_from
        # MDAnalysis would register the class if `format` were an attribute of the class.
        self.format = _format_of(self.chain) if len(self.filenames) == 1 else "CHAIN"
        self._choose_atoms(sub, n_atoms, chosen_by)
        self._time_axis = time_axis_of(self.chain.files, dt)
        self._frame = -1
        #: Bits of the Timestep's fields that come from the file's current frame, and True if the
        #: cell does. At first all bits are set: a new Timestep contains zeros, and the first frame
        #: must set or clear all fields.
        self._held, self._has_cell = ~0, False
        self._observed: list[str] = []
        self._connect()
        kind = self._Timestep if self.loaded is None else LoadedTimestep
        self.ts = kind(self.n_atoms, **self._ts_kwargs)
        if dt is None or self._time_axis.per_step:
            self.ts.dt = self.chain.spacing(self._time_axis)
        try:
            self._read_frame(0)
        except DamagedFileError as error:
            # Only warn: other frames may be readable, and an analysis may skip this one.
            warn(f"{error}; its positions are NaN")
            self._set_field("positions", np.nan)
            self._frame = self.ts.frame = 0

    def _choose_atoms(self, sub: Any, n_atoms: int | None, chosen_by: str | None) -> None:
        """Set the atoms of the file that are read, and their number."""
        self.loaded = None
        if chosen_by or (sub is not None and _names_part(sub, n_atoms, self.chain.n_atoms)):
            call = chosen_by or "load_new(…, sub=…)"
            self.loaded, sub = LoadedAtoms.of(sub, self.chain.n_atoms, call), None
        self.sub = None if sub is None else np.asarray(sub, dtype=np.int64)
        self.n_atoms = self.chain.n_atoms if self.sub is None else len(self.sub)
        if n_atoms not in (None, self.n_atoms):
            error = AtomCountError(
                f"{self.filename}: the topology has {n_atoms} atoms, sub= names {self.n_atoms}"
            )
            error.found = self.n_atoms
            raise error

    def _connect(self) -> None:
        """Prepare for reading; a file is opened when one of its frames is first needed."""
        self._reading = threading.RLock()
        atoms = self._columns = None
        if self.loaded is not None:
            atoms = self.loaded.indices
        elif self.sub is not None:
            atoms, self._columns = np.unique(self.sub, return_inverse=True)
        n_decoded = self.n_atoms if atoms is None else len(atoms)
        fields = fields_in(self.chain.fields)
        self._decoded = FrameBuffer.allocate(np.zeros(1, dtype=np.int64), n_decoded, fields)
        specs: Sequence[FileSpec] = self.chain.specs
        if self._together is not None:
            specs = collective_specs(self.chain.files, self._together)
        # Only a temporary cache is used, because this node may lack the folder of the user's cache.
        kept = self.chain.cache if self.chain.cache and self.chain.cache.is_temporary else None
        source = FrameSource(specs, atoms, n_decoded, fields, (), self._time_axis, cache=kept)
        self._frame_reader = source.open()
        self._fields = [(field_bits([field]), field, f"has_{field}") for field in FIELDS]
        self._read_ahead = None if self.chain.one_thread else ReadAhead(self.chain, source)

    @property
    def is_collective(self) -> bool:
        """True if all ranks read each frame together."""
        return self._together is not None

    @property
    def file(self) -> TrajectoryFile:
        """The only file, with its frame index; raises `AttributeError` if there are several."""
        if len(self.chain.files) > 1:
            raise AttributeError("this trajectory is a chain of files; see chain.files")
        return self.chain.files[0]

    @property
    def observables(self) -> Mapping[str, Any]:
        """Observables by name, such as energies, of the current frame's HDF5 file."""
        file = self._file_here
        return file.observables if isinstance(file, Hdf5File) else {}

    @property
    def properties(self) -> Mapping[str, Any]:
        """Particle properties by name, such as masses, of the current frame's HDF5 file."""
        file = self._file_here
        return file.properties if isinstance(file, Hdf5File) else {}

    @property
    def _file_here(self) -> TrajectoryFile:
        number, _ = self.chain.locate(max(self._frame, 0))
        return self.chain.files[number]

    @property
    def filenames(self) -> list[str]:
        """Files that contain the frames, in order."""
        return list(self.chain.names)

    @property
    def readers(self) -> list["Reader"]:
        """New readers, one for each file; each access opens the files again."""
        options = {**self._kwargs, "continuous": False}
        return [type(self)(**{**options, "filename": file.path}) for file in self.chain.files]

    @property
    def dts(self) -> np.ndarray:
        """Time between frames of each file, ps: ndarray of float64, shape (n_files,)."""
        return np.array([reader.dt for reader in self.readers])

    @property
    def total_times(self) -> np.ndarray:
        """Time span of each file, ps, as MDAnalysis's chains compute it: shape (n_files,)."""
        return self.dts * [file.n_frames for file in self.chain.files]

    @property
    def dimensions(self) -> np.ndarray | None:
        """Cell of the current frame, Å and degrees; None without a cell."""
        return self.ts.dimensions

    @property
    def units(self) -> dict[str, str | None]:
        """Units of the current frame's file, for `convert_pos_to_native` and similar methods.

        Values of a Timestep are in MDAnalysis's units for any file. LAMMPS dumps state no units;
        for them this property returns MDAnalysis's units.
        """
        file = self._file_here
        if isinstance(file, Hdf5File) and (stated := file.units):
            return dict.fromkeys(_UNITS) | stated
        theirs = MDAnalysis._READERS.get(_name_of(file), ProtoReader).units
        return dict(theirs if theirs.get("length") else _UNITS)

    @property
    def set_cell(self) -> np.ndarray | None:
        """Cell that a script has set because the file has none, Å and degrees; None without one."""
        return None if self._has_cell else self.ts.dimensions

    @property
    def periodic(self) -> bool:
        """True if the current frame has a cell."""
        return self.ts.dimensions is not None

    @property
    def time_axis(self) -> TimeAxis:
        """Function that computes the times of frames, with the user's `dt` and `time_offset`."""
        return replace(self._time_axis, offset=self._ts_kwargs.get("time_offset", 0.0))

    @property
    def n_frames(self) -> int:
        """Number of complete frames."""
        return self.chain.n_frames

    def times(self) -> np.ndarray:
        """Return the times of all frames without reading the frames.

        Returns
        -------
        numpy.ndarray of float64, shape (n_frames,)
            Times, ps; NaN if a frame's time is unknown.
        """
        return self.time_axis(np.arange(self.n_frames), *self.chain.times_and_steps())

    def timeseries(
        self,
        asel: object = None,
        atomgroup: object = None,
        start: int | None = None,
        stop: int | None = None,
        step: int | None = None,
        order: str | None = None,
    ) -> np.ndarray:
        """Return positions of many frames in one array.

        Parameters
        ----------
        asel, atomgroup : AtomGroup, optional
            Atoms; all by default. MDAnalysis prefers the name `atomgroup`.
        start, stop, step : int, optional
            Frames, as in a slice.
        order : str, optional
            Order of the axes: "f" frames, "a" atoms, "c" coordinates. By default as in MDAnalysis:
            "afc" for a single DCD file, otherwise "fac".

        Returns
        -------
        numpy.ndarray of float32
            Positions after transformations, Å.
        """
        order = order if order is not None else "afc" if self.format == "DCD" else "fac"
        frames = range(*self.check_slice_indices(start, stop, step))
        # Read in increasing order: with a negative step, MDAnalysis would read no frame, and return
        # uninitialised memory.
        rising = frames if frames.step > 0 else frames[::-1]
        series = None
        # `asel` is deprecated, as MDAnalysis warns.
        if sorted(order) == ["a", "c", "f"] and asel is None:
            series = self._series(atomgroup, rising)
        if series is None:
            series = super().timeseries(
                **({} if asel is None else {"asel": asel}),
                atomgroup=atomgroup,
                start=rising.start,
                stop=rising.stop,
                step=rising.step,
                order=order,
            )
        else:
            series = series.transpose(["fac".index(axis) for axis in order])
            self.rewind()  # MDAnalysis's own method also ends at the first frame
        return series if rising is frames else np.flip(series, order.index("f"))

    def _series(self, atoms: Any, frames: range) -> np.ndarray | None:
        """Return positions in increasing frames; None if frames must be read one by one."""
        by_itself = self.transformations or self._together is not None or not len(frames)
        if by_itself or (atoms is not None and len(atoms) == 0):
            return None
        indices = np.arange(self.n_atoms) if atoms is None else atoms.indices
        indices = indices if self.sub is None else self.sub[indices]
        if self.loaded is not None:
            self.loaded.check(indices)
        files = FileTrajectory(self.chain, self._time_axis)
        try:
            return files.positions(frames=np.array(frames), atoms=indices)
        except MissingDataError:
            return None
        except OSError as error:
            raise ReadError(str(error)) from error

    def stored_positions(self, atoms: np.ndarray | None) -> np.ndarray:
        """Read positions of atoms (None: all) in the current frame, even if they are not loaded."""
        if self.transformations and self.loaded is not None:
            self.loaded.check(np.arange(self.n_atoms) if atoms is None else atoms)
        files = FileTrajectory(self.chain, self._time_axis)
        return files.positions(frames=[self._frame], atoms=atoms)[0]

    @classmethod
    def parse_n_atoms(cls, filename: str | os.PathLike, **kwargs: object) -> int:
        """Return the number of atoms in a trajectory file.

        Parameters
        ----------
        filename : path-like
            File in any of paceline's formats.
        **kwargs
            Ignored, as by MDAnalysis's readers.

        Returns
        -------
        int
        """
        return open_file(filename, notes=False).n_atoms

    def _read_frame(self, frame: int) -> Timestep:
        """Read a frame into the Timestep, which all threads of a Universe share."""
        # The lock is reentrant: a signal handler in the reading thread may read a frame, too.
        if not self._reading.acquire(blocking=False):
            error = UnsupportedError(
                f"{self.filename}: frame {frame} is requested while another thread reads a frame "
                "of "
                "the same Universe, which has only one current frame: use one Universe per thread"
            )
            raise with_script_advice(error, ", by u.copy()")
        try:
            return self._read_into_timestep(frame)
        finally:
            self._reading.release()

    def _read_into_timestep(self, frame: int) -> Timestep:
        found = self._read_ahead.find(frame) if self._read_ahead is not None else None
        number, in_file = self.chain.locate(frame)
        decoded, row = (self._read_alone(frame), 0) if found is None else found
        file = self.chain.files[number]
        name, before = _name_of(file), self.ts
        if name == "DCD" and not _REUSES_DCD and self.loaded is None:
            # Like MDAnalysis, create a new Timestep for each frame, so that a script need not copy
            # the arrays of a frame before it reads another one.
            self.ts = self._Timestep(self.n_atoms, **self._ts_kwargs)
            self.ts.data.update(before.data)
        ts = self.ts
        bits = int(decoded.fields[row])
        held, of_files = fields_of(before), ~0 if name in _CLEAR_FIELDS else self._held
        for bit, field, has_field in self._fields:
            if bits & bit:
                values = decoded.array_of(field)[row]
                self._set_field(field, values if self._columns is None else values[self._columns])
            elif field not in held:
                continue
            elif bit & of_files:
                setattr(ts, has_field, False)
            elif ts is not before:
                set_values(ts, field, values_of(before, field))
        self._held = bits
        #: Cell as in `FrameBuffer.cells`, because lengths and angles alone do not determine the
        #: orientation.
        self.cell = decoded.cells[row]
        has_cell = name not in _KEEP_CELL or bool(self.cell[:6].any())
        if has_cell or self._has_cell:
            ts.dimensions = self.cell[:6]
        self._has_cell = has_cell
        self._frame = ts.frame = frame
        self.filename = self.chain.names[number]
        self._observe(file, in_file, int(decoded.steps[row]), decoded.lambdas[row])
        # The Timestep adds `time_offset` itself.
        ts.time = float(self._time_axis(frame, decoded.times[row], decoded.steps[row]))
        return ts

    def _set_field(self, field: str, values: Any) -> None:
        """Set a field of the Timestep."""
        if self.loaded is None:
            set_values(self.ts, field, values)
        else:
            self.ts.put(field, values, self.loaded)

    def _read_alone(self, frame: int) -> FrameBuffer:
        """Read one frame in this thread, without reading ahead."""
        number, extents = self.chain.extent(frame)
        limit_open_files(self._frame_reader)
        reader = self._frame_reader.file_reader(number)
        try:
            reader.read(extents, self._decoded, required=0, skip=False)
        except OSError as error:
            # MDAnalysis would treat this error as the end of the trajectory.
            raise ReadError(str(error)) from error
        return self._decoded

    def _observe(self, file: TrajectoryFile, frame: int, step: int, lambda_: float) -> None:
        """Set a frame's step, λ and observables on the Timestep."""
        data = self.ts.data
        for name in self._observed:
            data.pop(name, None)  # a user may have removed this name from the data
        data["step"] = step
        if isinstance(file, Hdf5File):
            found = file.observables.at(step, frame)
        else:
            found = {"lambda": float(lambda_)} if file.format == "TRR" else {}
        # These names are reserved by MDAnalysis.
        self._observed = [name for name in found if name not in ("step", "time", "dt")]
        for name in self._observed:
            data[name] = found[name]

    def _read_next_timestep(self, ts: object = None) -> object:
        if self._frame + 1 >= self.n_frames:
            raise EOFError
        return self._read_frame(self._frame + 1)

    def _reopen(self) -> None:
        self.ts.frame = 0
        self._frame = -1

    def extend(self) -> int:
        """Include the frames that were appended to the last file since it was opened.

        The current frame, and all frames before, keep their numbers.

        Returns
        -------
        int
            Number of new frames.

        Raises
        ------
        FileChangedError
            The file was replaced, truncated or rewritten.
        """
        before = self.n_frames
        chain = self.chain.extended()
        with self._reading:
            self.chain = chain
            self._connect()
        if before == 1 and self._time_axis.dt is None:
            self.ts.dt = chain.spacing(self._time_axis)
        return self.n_frames - before

    def close(self) -> None:
        """Do nothing: a file is closed with the last reference to it."""

    def Writer(self, filename: object, n_atoms: int | None = None, **kwargs: object) -> object:
        """Create MDAnalysis's writer for the format of this file.

        Parameters
        ----------
        filename : path-like
            File to be written.
        n_atoms : int, optional
            Number of atoms; by default that of this trajectory.
        **kwargs
            Further arguments of the writer.

        Returns
        -------
        MDAnalysis.coordinates.base.WriterBase
        """
        kind = _format_of(self.chain)
        if kind == "DCD":
            # A DCD file stores times in its header, other formats store them in frames.
            kwargs.setdefault("dt", self.ts.dt)
        if kind == "NCDF":
            kwargs.setdefault("velocities", self.ts.has_velocities)
            kwargs.setdefault("forces", self.ts.has_forces)
        if kind == "H5MD":
            kwargs = self.writer_options() | kwargs
        if n_atoms is None:
            n_atoms = self.n_atoms
        writer = get_writer_for(filename, format=kind, multiframe=True)
        return writer(filename, n_atoms=n_atoms, **kwargs)

    def __repr__(self) -> str:
        return describe_trajectory(self)

    def __getstate__(self) -> dict[str, object]:
        state = self.__dict__.copy()
        for name in ("_frame_reader", "_read_ahead", "_reading", "_columns", "_decoded"):
            del state[name]
        state["_together"] = None  # other processes read independently
        state["t_init"] = math.nan  # the time to reopen is counted elsewhere
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._connect()


def opens_with_paceline(filename: object, format: object = None) -> bool:
    """Decide whether paceline's reader opens a trajectory, by content or, if damaged, by name.

    `filename` and `format` are MDAnalysis's arguments.
    """
    if not is_name(filename):
        return False
    if format is not None:
        is_packed = Path(filename).suffix.lower() in _COMPRESSED
        return isinstance(format, str) and format.upper() in ENDINGS and not is_packed
    return is_decoded(filename)


def _unsupported(options: Mapping[str, object]) -> str:
    """Describe the first option of a reader that is not supported; empty if all are."""
    if not options["convert_units"]:
        return "convert_units=False is not supported; positions are always in Å and times in ps"
    for name in _LAMMPS_OPTIONS:
        value = options.get(name)
        is_auto = isinstance(value, str) and value == "auto"
        if value is not None and value is not False and not is_auto:
            return (
                f"{name}= is not supported; open the file with MDAnalysis.Universe, which "
                "paceline's analyses accept"
            )
    if "atoms" in options:
        return "only paceline.Universe accepts atoms=; pass indices as sub="
    if options["comm"] is not None and options["driver"] is None:
        return 'comm= requires files that a Universe opens by name, or driver="mpio"'
    if options["collective"] and options["comm"] is None:
        return 'collective=True needs driver="mpio" and comm='
    return ""


def _names_part(sub: Any, n_atoms: int | None, n_in_file: int) -> bool:
    """True if the topology has all atoms of the file, and `sub` selects some of them."""
    return n_atoms == n_in_file and (len(sub) < n_in_file or np.asarray(sub).dtype == bool)


def is_name(given: object) -> TypeGuard["str | os.PathLike[str]"]:
    """True for a file name, and False for a stream or arrays."""
    return isinstance(given, str | os.PathLike) and not isinstance(given, NamedStream)


def _format_of(chain: Chain) -> str:
    """Return MDAnalysis's format name for the first file of a chain."""
    return _name_of(chain.files[0])


def _name_of(file: TrajectoryFile) -> str:
    """Return MDAnalysis's format name for a file."""
    known = FORMATS.get(file.format)
    return file.format if known is None else known.mdanalysis_name
