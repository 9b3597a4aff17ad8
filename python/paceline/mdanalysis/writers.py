"""MDAnalysis's writers of XTC, TRR, NetCDF and H5MD, with frames encoded by paceline; and of DCD.

MDAnalysis's own code writes the first frame of a file. If paceline encodes this frame to the same
bytes, paceline appends the following frames. If paceline's encoder refuses a frame, MDAnalysis's
code writes that frame. H5MD frames are written to the datasets that MDAnalysis creates. MDAnalysis
writes DCD frames, which are passed to it without a copy. The classes have no class attribute
`format`, because MDAnalysis would then register them.
"""

import os
import stat
import struct
from itertools import compress
from typing import Any, Protocol, Self, cast

import numpy as np
from MDAnalysis.coordinates import DCD, H5MD, TRJ, TRR, XDR, XTC
from MDAnalysis.coordinates import timestep as mdanalysis_timestep
from MDAnalysis.core.groups import AtomGroup
from MDAnalysis.core.universe import Universe
from MDAnalysis.lib.mdamath import triclinic_vectors

from paceline import _core
from paceline._util.os_calls import read_at, write_at
from paceline.block import CELL_WIDTH, FIELDS, field_bits
from paceline.contract.system_interface import Timestep, fields_of, values_of
from paceline.errors import UnwritableError
from paceline.hdf5.dataset_writers import RowDataset

#: Offset of the number of records in a NetCDF file.
_NETCDF_RECORDS = 4
#: Range of steps that MDAnalysis's H5MD dataset can store.
_INT32 = np.iinfo(np.int32)
_INTEGERS = (int, np.integer)


class WriterLog(Protocol):
    """Receiver of notes on what was written; in practice a `Registration`."""

    def add_written(self, trajectory: str) -> None:
        """Record that paceline encodes the frames of a file."""

    def add_declined(self, reason: str) -> None:
        """Record that MDAnalysis's writer encodes frames of a file."""


class _WrittenFrame(Timestep, Protocol):
    """Frame to write: MDAnalysis's `Timestep`, or a `_Frame`."""

    n_atoms: int
    data: dict[str, Any]


class _Frame:
    """Frame of some atoms; other attributes come from the trajectory's Timestep."""

    def __init__(self, ts: Timestep, atoms: np.ndarray, n_atoms: int):
        self._ts, self._atoms, self.n_atoms = ts, atoms, n_atoms

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ts, name)

    @property
    def positions(self) -> np.ndarray:
        """Positions of the atoms, shape (n_atoms, 3), in the dtype and unit of the Timestep."""
        return values_of(self._ts, "positions")[self._atoms]

    @property
    def velocities(self) -> np.ndarray:
        return values_of(self._ts, "velocities")[self._atoms]

    @property
    def forces(self) -> np.ndarray:
        return values_of(self._ts, "forces")[self._atoms]

    _pos, _velocities, _forces = positions, velocities, forces


class _Source:
    """Object that contains the current frame in the form that MDAnalysis's writers expect."""

    def __init__(self, ts: Timestep):
        self.ts = ts


class _Frames:
    """Mixin of writers: passes frames of groups without a copy, and records what was written."""

    filename: Any
    log: WriterLog | None = None
    _ix: np.ndarray | None = None
    _all = False
    _noted = False

    def _frame_of(self, obj: object) -> _WrittenFrame | None:
        """Return the current frame of a group or Universe without a copy; None for other objects.

        If the group contains all atoms in order, this is MDAnalysis's Timestep.
        """
        if isinstance(obj, Universe):
            return cast(_WrittenFrame, obj.trajectory.ts)
        if not isinstance(obj, AtomGroup):
            return None
        ts, ix = obj.universe.trajectory.ts, obj.ix
        if not (ts.has_positions or ts.has_velocities or ts.has_forces):
            return None  # MDAnalysis raises an error
        if ix is not self._ix:
            self._ix, self._all = ix, np.array_equal(ix, np.arange(ts.n_atoms))
        return cast(_WrittenFrame, ts if self._all else _Frame(ts, ix, len(ix)))

    def _note_written(self) -> None:
        if self.log is not None:
            self.log.add_written(str(self.filename))

    def _note_declined(self, reason: str) -> None:
        """Record once per file why MDAnalysis encodes its frames."""
        if self.log is not None and not self._noted:
            self.log.add_declined(f"{self.filename}: {reason}")
            self._noted = True


class _FileEnd:
    """Handle with which frames are appended to a file that MDAnalysis has open, too."""

    def __init__(self, path: str):
        self._fd = os.open(path, os.O_RDWR)
        self.find_end()

    @classmethod
    def after_last(cls, path: str, frame: bytes, *, from_start: bool) -> Self:
        """Open a file that ends with a frame; with `from_start`, the frame must be the whole file.

        Raises `UnwritableError` if the file does not end with the frame.
        """
        try:
            end = cls(path)
        except OSError as error:
            raise UnwritableError(str(error)) from None
        if end.last(len(frame)) != frame or (from_start and end.size != len(frame)):
            end.close()
            raise UnwritableError("MDAnalysis writes other bytes for the first frame")
        return end

    def last(self, n: int) -> bytes:
        """Read the last `n` bytes; empty if this is not a regular file."""
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            return b""
        return read_at(self._fd, n, max(self.size - n, 0))

    def append(self, data: bytes) -> None:
        """Write bytes at the end of the file."""
        self.put(self.size, data)
        self.size += len(data)

    def put(self, offset: int, data: bytes) -> None:
        """Write bytes at an offset in the file."""
        left = memoryview(data)
        while left:
            n = write_at(self._fd, left, offset)
            left, offset = left[n:], offset + n

    def find_end(self) -> None:
        """Set `size` to the size of the file, for example after another handle has written."""
        self.size = os.fstat(self._fd).st_size

    def close(self) -> None:
        """Close this handle of the file; MDAnalysis's handle stays open."""
        os.close(self._fd)


class _XdrWriter(_Frames, XDR.XDRBaseWriter):
    """Common part of the writers of XTC and TRR, whose frames paceline encodes if possible."""

    _end: _FileEnd | None = None
    _is_first = True
    _encoder: _core.Encoder | None = None
    _moment: tuple[np.ndarray, np.ndarray, np.ndarray]
    _cell_key: bytes | None = None
    _cell: np.ndarray
    _format: str
    _fields: tuple[str, ...]
    _convert_units: bool
    _dt: float | None
    _xdr: Any

    def __init__(self, filename: str | os.PathLike, *args: object, **kwargs: object):
        # Absolute, because the script may change its working directory before the first frame.
        self._path = os.path.abspath(filename)
        super().__init__(filename, *args, **kwargs)

    def _write_next_frame(self, obj: object) -> None:
        if self._is_first:
            self._by_mdanalysis(obj)
            self._is_first = False
            self._begin(obj)
        elif self._end is None:
            self._by_mdanalysis(obj)
        else:
            self._append(obj, self._end)

    def _by_mdanalysis(self, obj: object) -> None:
        super()._write_next_frame(obj)

    def _begin(self, obj: object) -> None:
        """Append further frames with paceline if both encode the first frame to equal bytes."""
        try:
            data = self._encode(self._check_atoms(obj))
            self._flush()
            self._end = _FileEnd.after_last(self._path, data, from_start=True)
        except UnwritableError as error:
            self._note_declined(str(error))
        else:
            self._note_written()

    def _append(self, obj: object, end: _FileEnd) -> None:
        try:
            data = self._encode(self._check_atoms(obj))
        except UnwritableError as error:
            self._note_declined(str(error))
            self._flush()
            try:
                self._by_mdanalysis(obj)
            finally:
                self._flush()
                end.find_end()
            return
        end.append(data)

    def _check_atoms(self, obj: object) -> _WrittenFrame:
        """Return a frame; raise if its number of atoms differs from the file's."""
        frame = self._frame_of(obj)
        if frame is None:
            raise UnwritableError(f"frames come from an object of {type(obj).__name__}")
        n_atoms = self._xdr.n_atoms
        if frame.n_atoms != n_atoms:
            raise UnwritableError(f"expected {n_atoms} atoms, found {frame.n_atoms}")
        return frame

    def close(self) -> None:
        """Close paceline's and MDAnalysis's handle of the file."""
        end, self._end = self._end, None
        if end is not None:
            end.close()
        super().close()

    def _flush(self) -> None:
        """Flush MDAnalysis's bytes to the file, and move MDAnalysis's position to the end."""
        self._xdr._bytes_seek(0, "SEEK_END")

    def _encode(self, frame: _WrittenFrame) -> bytes:
        if not self._convert_units:
            raise UnwritableError("convert_units=False")
        step = frame.data.get("step", frame.frame)
        if not isinstance(step, _INTEGERS):
            raise UnwritableError(f"a step is {step!r}")
        if self._encoder is None:
            fields = field_bits(self._fields)
            n_atoms = self._xdr.n_atoms
            self._encoder = _core.Encoder(self._format, n_atoms, self._per_nm(), True, fields)
            self._moment = np.zeros(1, np.float64), np.zeros(1, np.int64), np.zeros(1, np.float32)
        times, steps, lambdas = self._moment
        times[0] = frame.time if self._dt is None else self._dt * frame.frame
        steps[0] = step
        lambdas[0] = self._lambda(frame)
        held = fields_of(frame)
        positions, velocities, forces = (
            np.ascontiguousarray(values_of(frame, field), np.float32)[None]
            if field in held and field in self._fields
            else None
            for field in FIELDS
        )
        cell = self._cell_of(frame)
        return self._encoder.encode((positions, velocities, forces, cell, times, steps, lambdas))

    def _cell_of(self, frame: _WrittenFrame) -> np.ndarray:
        """Convert the cell of a frame, or return the last cell if the frame's cell is the same."""
        # Compare `_unitcell`, because the property `dimensions` takes longer than the comparison.
        is_plain = type(frame) is mdanalysis_timestep.Timestep
        stored = getattr(frame, "_unitcell", None) if is_plain else None
        key = None if stored is None else stored.tobytes()
        if key is None or key != self._cell_key:
            self._cell_key, self._cell = key, _cells(frame.dimensions)
        return self._cell

    def _per_nm(self) -> float | None:
        """Return the precision in integers per nm, for formats that have a precision."""
        return None

    def _lambda(self, frame: _WrittenFrame) -> float:
        return 0


def _cells(dimensions: np.ndarray | None) -> np.ndarray:
    """Convert a cell to a row of `FrameBuffer.cells`, shape (1, 19)."""
    if dimensions is None:
        return np.zeros((1, CELL_WIDTH))
    return _core.cells_of_dimensions(np.asarray(dimensions, np.float32).reshape(1, 6))


class XTCWriter(_XdrWriter, XTC.XTCWriter):
    """MDAnalysis's writer of XTC; paceline encodes the frames after the first one if possible."""

    _format, _fields = "XTC", ("positions",)
    _first_per_nm: float | None = None

    def _encode(self, frame: _WrittenFrame) -> bytes:
        if self._first_per_nm is None:
            self._first_per_nm = self._per_nm()
        if self._per_nm() != self._first_per_nm or not frame.has_positions:
            raise UnwritableError("another precision, or no positions")
        return super()._encode(frame)

    def _per_nm(self) -> float:
        return float(10.0**self.precision)


class TRRWriter(_XdrWriter, TRR.TRRWriter):
    """MDAnalysis's writer of TRR; paceline encodes the frames after the first one if possible."""

    _format, _fields = "TRR", FIELDS

    def _lambda(self, frame: _WrittenFrame) -> float:
        value = frame.data.get("lambda", 0)
        if not isinstance(value, float | int | np.number):
            raise UnwritableError(f"a λ is {value!r}")
        return float(value)


class DCDWriter(_Frames, DCD.DCDWriter):
    """MDAnalysis's writer of DCD, without a copy of the Timestep."""

    def _write_next_frame(self, obj: object) -> None:
        frame = self._frame_of(obj)
        super()._write_next_frame(obj if frame is None else _Source(frame))


class NCDFWriter(_Frames, TRJ.NCDFWriter):
    """MDAnalysis's NetCDF writer; paceline appends the records after the first one if possible."""

    trjfile: Any

    def _write_next_frame(self, obj: object) -> None:
        is_first, frame = self._first_frame, self._frame_of(obj)
        if frame is not None and self._is_complete(frame):
            obj = _Source(frame)
        super()._write_next_frame(obj)
        if is_first:
            try:
                self.trjfile = _Records.after_last(self.trjfile, self.filename)
            except UnwritableError as error:
                self._note_declined(str(error))
            else:
                self._note_written()

    def _is_complete(self, frame: _WrittenFrame) -> bool:
        """True if a frame contains all fields to write; otherwise MDAnalysis raises an error."""
        wanted = compress(FIELDS, (True, self.has_velocities, self.has_forces))
        return set(wanted) <= set(fields_of(frame))


class _Records:
    """Replacement for a `netCDF4` dataset with one record, to whose file paceline appends records.

    `NCDFWriter` sets the values of a record's variables, and `sync` appends the record.
    """

    def __init__(self, dataset: Any, end: _FileEnd, record: np.ndarray):
        self._dataset, self._end, self._record, self._n_records = dataset, end, record, 1
        self.variables: dict[str, Any] = dict(dataset.variables)
        for name in record.dtype.names or ():
            self.variables[name] = _RecordVariable(record[name])

    @classmethod
    def after_last(cls, dataset: Any, path: str) -> Self:
        """Create the object; raise `UnwritableError` if the first record does not end the file."""
        if type(dataset).__module__.partition(".")[0] != "netCDF4":
            # SciPy writes the whole file only when it closes the file.
            raise UnwritableError("MDAnalysis writes with SciPy: install netCDF4")
        variables = {
            name: variable
            for name, variable in dataset.variables.items()
            if variable.dimensions[:1] == ("frame",)
        }
        kinds = [(name, v.dtype.newbyteorder(">"), v.shape[1:]) for name, v in variables.items()]
        record = np.zeros((), kinds)
        for name, variable in variables.items():
            record[name][...] = variable[0]
        return cls(dataset, _FileEnd.after_last(path, record.tobytes(), from_start=False), record)

    def sync(self) -> None:
        """Append the record, and count it in the header."""
        self._end.append(self._record.tobytes())
        self._n_records += 1
        self._end.put(_NETCDF_RECORDS, struct.pack(">I", self._n_records))

    def close(self) -> None:
        """Close paceline's and netCDF4's handle of the file."""
        self._end.close()
        self._dataset.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)


class _RecordVariable:
    """One variable of the next record; assigning to any item sets its values."""

    def __init__(self, values: np.ndarray):
        self._values = values

    def __setitem__(self, row: object, values: np.ndarray | float) -> None:
        self._values[...] = values


class H5MDRowWriter(_Frames, H5MD.H5MDWriter):
    """MDAnalysis's H5MD writer, with one HDF5 call per dataset and frame."""

    _rows: "_H5mdRows | None" = None

    def _write_next_frame(self, obj: object) -> None:
        is_first, frame, rows = self.h5md_file is None, self._frame_of(obj), self._rows
        # After an error, datasets may differ in length: then MDAnalysis appends the next frames.
        self._rows = None
        if rows is not None:
            why = rows.add(self, frame)
            if why is None:
                self._rows = rows
                return
            self._note_declined(why)
        super()._write_next_frame(obj)
        if is_first or rows is not None:
            self._rows = _H5mdRows(self)
        if is_first:
            self._note_written()


class _H5mdRows:
    """Datasets of an H5MD file; MDAnalysis creates them when it writes the first frame."""

    def __init__(self, writer: Any):
        self._edges = RowDataset(writer._edges) if "edges" in writer._traj["box"] else None
        self._step, self._time = RowDataset(writer._step), RowDataset(writer._time)
        self._fields = [
            (field, RowDataset(writer._traj[f"{group}/value"]), _CONVERSIONS[field])
            for group, field in zip(("position", "velocity", "force"), FIELDS, strict=True)
            if writer._has[group]
        ]
        self._observed = {key: RowDataset(writer._obsv[f"{key}/value"]) for key in writer.data_keys}
        self._last = int(writer._step[-1])

    def add(self, writer: Any, frame: _WrittenFrame | None) -> str | None:
        """Write a frame, or return the reason why MDAnalysis must write it."""
        if frame is None or frame.n_atoms != writer.n_atoms:
            return "a frame has another number of atoms, or is not of a group"
        if writer.n_frames is not None and writer._counter >= writer.n_frames:
            return f"expected n_frames={writer.n_frames} frames at most"
        observed = {
            key: np.asarray(frame.data[key], order="C")
            for key in self._observed
            if key in frame.data
        }
        why = self._unsupported_reason(frame, observed)
        if why is not None:
            return why
        row, converts = writer._counter, writer.convert_units
        self._last = int(frame.data.get("step", frame.frame))
        self._step.put(row, np.array(self._last, np.int32))
        time = np.float32(frame.time)
        if converts and writer.units["time"] is not None:
            time = writer.convert_time_to_native(time)
        self._time.put(row, np.array(time, np.float32))
        if self._edges is not None:
            edges = np.array(triclinic_vectors(frame.dimensions), np.float32)
            if converts and writer.units["length"] is not None:
                edges = writer.convert_pos_to_native(edges)
            self._edges.put(row, edges)
        for field, column, (unit, conversion) in self._fields:
            values = np.array(values_of(frame, field), np.float32, order="C")
            if converts and writer.units[unit] is not None:
                values = getattr(writer, conversion)(values)
            column.put(row, values)
        for key, values in observed.items():
            self._observed[key].put(row, values)
        writer._counter += 1
        return None

    def _unsupported_reason(
        self, frame: _WrittenFrame, observed: dict[str, np.ndarray]
    ) -> str | None:
        """Return the reason why MDAnalysis must write a frame (it may raise an error), or None."""
        step = frame.data.get("step", frame.frame)
        if not isinstance(step, _INTEGERS) or not self._last <= step <= _INT32.max:
            return f"a step is {step!r}, after {self._last}"
        held = fields_of(frame)
        missing = [field for field, _, _ in self._fields if field not in held]
        missing += [key for key in self._observed if key not in observed]
        if self._edges is not None and frame.dimensions is None:
            missing.append("dimensions")
        if missing:
            return f"a frame lacks {', '.join(missing)}"
        for key, column in self._observed.items():
            if not column.holds(observed[key]):
                return f"{key} differs in kind from that of the first frame"
        return None


#: Unit and method of conversion of each field in MDAnalysis's writers.
_CONVERSIONS = {
    "positions": ("length", "convert_pos_to_native"),
    "velocities": ("velocity", "convert_velocities_to_native"),
    "forces": ("force", "convert_forces_to_native"),
}


#: Paceline's subclass of each MDAnalysis writer that `register` replaces.
WRITERS: dict[type, type] = {
    XTC.XTCWriter: XTCWriter,
    TRR.TRRWriter: TRRWriter,
    DCD.DCDWriter: DCDWriter,
    TRJ.NCDFWriter: NCDFWriter,
    H5MD.H5MDWriter: H5MDRowWriter,
}
