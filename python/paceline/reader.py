"""MDAnalysis's reader protocol over our decoders.

The class is passed to MDAnalysis explicitly. It has no class attribute `format`, by which
MDAnalysis would register it for everybody who merely imports this module.
"""

import os
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from MDAnalysis.coordinates.base import ReaderBase
from MDAnalysis.core._get_readers import get_writer_for
from MDAnalysis.lib.util import store_init_arguments

from paceline import _core
from paceline.backends import available_cpus
from paceline.block import FIELDS, Decoded, field_bits, fields_in
from paceline.errors import (
    AtomCountError,
    DamagedFileError,
    PacelineWarning,
    ReadError,
    UnsupportedError,
)
from paceline.frames import Clock, extents_in
from paceline.progress import Progress

#: Packages whose lines tell a user nothing.
_INTERNAL = ("paceline", "MDAnalysis")


def warn(message: str) -> None:
    """Issue a `PacelineWarning` that points at the user's line.

    Parameters
    ----------
    message : str
        What the user should know.
    """
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _INTERNAL:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, PacelineWarning, stacklevel=level)


def cache_folder() -> Path | None:
    """Where indexes go when the trajectory's own folder cannot be written.

    Returns
    -------
    pathlib.Path or None
        `$XDG_CACHE_HOME/paceline`, by default `~/.cache/paceline`; None for a user without a home.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline"
    except RuntimeError:
        return None


def open_file(
    path: str | os.PathLike,
    *,
    refresh: bool = False,
    progress: bool | None = None,
    notes: bool = True,
) -> "_core.Trajectory":
    """Open a trajectory file and its frame index, which is made if there is none.

    Parameters
    ----------
    path : path-like
        An XTC, TRR or DCD file.
    refresh : bool
        Make the index anew.
    progress : bool, optional
        Whether to show how far indexing has come.
    notes : bool
        Whether to warn of what the index found to be cut or damaged.

    Returns
    -------
    paceline._core.Trajectory

    Raises
    ------
    UnsupportedError
        The file is of no format that we decode.
    DamagedFileError
        Its first frame or its header is damaged.
    OSError
        It cannot be opened.
    """
    # Workers may have another working directory, and this process may change its own.
    path = os.path.abspath(path)
    folder = cache_folder()
    with Progress(0, unit="byte", show=progress) as bar:
        trajectory = _core.Trajectory.open(
            path,
            cache_folder=None if folder is None else os.fspath(folder),
            refresh=refresh,
            n_threads=available_cpus(),
            progress=bar.set,
        )
    if notes:
        for note in trajectory.notes:
            warn(f"{path}: {note}")
    return trajectory


def read_headers(
    core: "_core.Trajectory", frames: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cells, times and steps of frames, without their positions.

    Parameters
    ----------
    core : paceline._core.Trajectory
        An open file.
    frames : sequence of int
        Frame numbers.

    Returns
    -------
    dimensions : numpy.ndarray of float32, shape (n_frames, 6)
        Å and degrees; NaN for a damaged frame, zeros where there is no cell.
    times : numpy.ndarray of float64, shape (n_frames,)
        ps; NaN for a damaged frame.
    steps : numpy.ndarray of int64, shape (n_frames,)
        Of the simulation.
    """
    reader = _core.Reader(core.path, core.layout, core.fingerprint, fields=0)
    headers = Decoded.room_for(np.asarray(frames), 0, ())
    extents = extents_in(0, core, headers.frames.astype(np.uint64))
    reader.read(extents, headers, required=0, skip=True)
    return headers.dimensions, headers.times, headers.steps


class Reader(ReaderBase):
    """Reads XTC, TRR and DCD for MDAnalysis.

    Parameters
    ----------
    filename : path-like
        The trajectory.
    convert_units : bool
        Must be True: positions are in Å and times in ps.
    sub : array of int, optional
        Atoms of the file that the topology describes, where it does not describe all.
    refresh_offsets : bool
        Make the frame index anew.
    dt : float, optional
        Time between frames, ps, in place of what the file says.
    n_atoms : int, optional
        Atoms that the topology has.
    **kwargs
        `time_offset`, ps, added to all times.

    Attributes
    ----------
    core : paceline._core.Trajectory
        The open file and its frame index.
    sub : numpy.ndarray of int64 or None
        As given.
    t_init : float
        What opening took, seconds.

    Raises
    ------
    AtomCountError
        The file has another number of atoms than `n_atoms`.
    UnsupportedError
        `convert_units` is False, or the file is of no format that we decode, or has no whole
        frame.
    """

    units = {"time": "ps", "length": "Angstrom"}  # noqa: RUF012

    @store_init_arguments
    def __init__(
        self,
        filename: Any,
        convert_units: bool = True,
        sub: Any = None,
        refresh_offsets: bool = False,
        dt: float | None = None,
        n_atoms: int | None = None,
        **kwargs: Any,
    ):
        if dt is not None:
            kwargs["dt"] = dt
        super().__init__(filename, convert_units=convert_units, **kwargs)
        if not convert_units:
            raise UnsupportedError(
                f"{self.filename}: convert_units=False is not supported; "
                "positions are always in Å and times in ps"
            )
        begun = time.perf_counter()
        self.core = open_file(self.filename, refresh=refresh_offsets)
        self.t_init = time.perf_counter() - begun
        # An attribute of the instance: see the module's first lines.
        self.format = self.core.format
        self.sub = None if sub is None else np.asarray(sub, dtype=np.int64)
        self.n_atoms = self.core.n_atoms if self.sub is None else len(self.sub)
        self._check(n_atoms)
        self._clock = Clock(self.core.first, dt)
        self._frame = -1
        self._connect(self.core.fingerprint)
        self.ts = self._Timestep(self.n_atoms, **self._ts_kwargs)
        if dt is None:
            self.ts.dt = self._file_dt()
        try:
            self._read_frame(0)
        except DamagedFileError as error:
            # The other frames may be whole, and an analysis may be told to leave this one out.
            warn(f"{error}; its positions are NaN")
            self.ts.positions[:] = np.nan
            self._frame = self.ts.frame = 0

    def _check(self, n_atoms: int | None) -> None:
        """Refuse a file that MDAnalysis could make nothing of."""
        if n_atoms not in (None, self.n_atoms):
            error = AtomCountError(
                f"{self.filename}: the topology has {n_atoms} atoms, the trajectory {self.n_atoms}"
            )
            error.found = self.n_atoms
            raise error
        if self.n_frames == 0:
            raise UnsupportedError(f"{self.filename}: expected a whole frame at least, found none")

    def _connect(self, fingerprint: str) -> None:
        """Open the file for reading, if it still begins with what it was recognised by."""
        atoms = self._columns = None
        if self.sub is not None:
            atoms, self._columns = np.unique(self.sub, return_inverse=True)
        n_decoded = self.n_atoms if atoms is None else len(atoms)
        self._decoded = Decoded.room_for(
            np.zeros(1, dtype=np.int64), n_decoded, fields_in(self.core.fields)
        )
        self._reader = _core.Reader(
            self.core.path,
            self.core.layout,
            fingerprint,
            atoms=atoms,
            fields=self.core.fields,
        )

    @property
    def clock(self) -> Clock:
        """Times as the user asked for them, by `dt` and `time_offset`."""
        return replace(self._clock, offset=self._ts_kwargs.get("time_offset", 0.0))

    def _file_dt(self) -> float:
        """Time between frames, ps: the header's, else between the first two, else 0."""
        if self.core.dt is not None:
            return self.core.dt
        _, times, _ = read_headers(self.core, range(min(2, self.n_frames)))
        between = times[-1] - times[0]
        return float(between) if np.isfinite(between) else 0.0

    @property
    def n_frames(self) -> int:
        """Number of whole frames."""
        return self.core.n_frames

    @classmethod
    def parse_n_atoms(cls, filename: Any, **kwargs: Any) -> int:
        """Number of atoms of a file."""
        return open_file(filename, notes=False).n_atoms

    def _read_frame(self, frame: int) -> Any:
        ts, decoded = self.ts, self._decoded
        numbers = np.array([frame], dtype=np.uint64)
        try:
            self._reader.read(extents_in(0, self.core, numbers), decoded, required=0, skip=False)
        except OSError as error:
            # MDAnalysis would take it for the end of the trajectory.
            raise ReadError(str(error)) from error
        for field in FIELDS:
            held = bool(decoded.fields[0] & field_bits([field]))
            setattr(ts, f"has_{field}", held)
            if held:
                values = getattr(decoded, field)[0]
                setattr(ts, field, values if self._columns is None else values[self._columns])
        ts.dimensions = decoded.dimensions[0]
        self._frame = ts.frame = frame
        ts.data["step"] = int(decoded.steps[0])
        # The Timestep adds `time_offset` itself.
        ts.time = float(self._clock(numbers, decoded.times)[0])
        return ts

    def _read_next_timestep(self, ts: Any = None) -> Any:
        if self._frame + 1 >= self.n_frames:
            raise EOFError
        return self._read_frame(self._frame + 1)

    def _reopen(self) -> None:
        self.ts.frame = 0
        self._frame = -1

    def close(self) -> None:
        """Nothing: the file closes with the last reference to it."""

    def timeseries(
        self,
        asel: Any = None,
        atomgroup: Any = None,
        start: int | None = None,
        stop: int | None = None,
        step: int | None = None,
        order: str | None = None,
    ) -> np.ndarray:
        """Positions of many frames in one array.

        Parameters
        ----------
        asel, atomgroup : AtomGroup, optional
            Atoms; all by default. MDAnalysis prefers the second name.
        start, stop, step : int, optional
            Frames, as in a slice.
        order : str, optional
            Order of the axes: "f" frames, "a" atoms, "c" coordinates. By default that of
            MDAnalysis's own reader: "afc" for DCD, else "fac".

        Returns
        -------
        numpy.ndarray of float32
            Å, after transformations.
        """
        order = order if order is not None else "afc" if self.format == "DCD" else "fac"
        frames = range(*self.check_slice_indices(start, stop, step))
        # Backwards, MDAnalysis would visit no frame and return uninitialised memory.
        rising = frames if frames.step > 0 else frames[::-1]
        series = super().timeseries(asel, atomgroup, rising.start, rising.stop, rising.step, order)
        return series if rising is frames else np.flip(series, order.index("f"))

    def Writer(self, filename: Any, n_atoms: int | None = None, **kwargs: Any) -> Any:
        """MDAnalysis's writer for this file's own format.

        Parameters
        ----------
        filename : path-like
            What to write.
        n_atoms : int, optional
            By default as many as this trajectory has.
        **kwargs
            For the writer.

        Returns
        -------
        MDAnalysis.coordinates.base.WriterBase
        """
        if self.format == "DCD":
            # A DCD file's times are in its header, the others' in their frames.
            kwargs.setdefault("dt", self.ts.dt)
        if n_atoms is None:
            n_atoms = self.n_atoms
        writer = get_writer_for(filename, format=self.format, multiframe=True)
        return writer(filename, n_atoms=n_atoms, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in ("core", "_reader", "_columns", "_decoded"):
            del state[name]
        state["fingerprint"] = self.core.fingerprint
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        fingerprint = state.pop("fingerprint")
        self.__dict__.update(state)
        self.core = open_file(self.filename, notes=False)
        # It may have grown, but must begin with the frames that it had.
        self._connect(fingerprint)
