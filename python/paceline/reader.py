"""MDAnalysis's reader protocol over our decoders.

The class is passed to MDAnalysis explicitly. It has no class attribute `format`, by which
MDAnalysis would register it for everybody who merely imports this module.
"""

import os
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from MDAnalysis.coordinates.base import ReaderBase
from MDAnalysis.core._get_readers import get_writer_for
from MDAnalysis.lib.util import store_init_arguments

from paceline import _core
from paceline.backends import available_cpus
from paceline.errors import (
    AtomCountError,
    FileChangedError,
    PacelineWarning,
    ReadError,
    UnsupportedError,
)
from paceline.progress import Progress
from paceline.worker import Clock


def cache_folder() -> Path:
    """Where indexes go when the trajectory's own folder cannot be written.

    Returns
    -------
    pathlib.Path
        `$XDG_CACHE_HOME/paceline`, by default `~/.cache/paceline`.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline"


def open_file(
    path: str | os.PathLike, *, refresh: bool = False, progress: bool | None = None
) -> "_core.Trajectory":
    """Open a trajectory file and its frame index, which is made if there is none.

    Parameters
    ----------
    path : path-like
        An XTC or DCD file.
    refresh : bool
        Make the index anew.
    progress : bool, optional
        Whether to show how far indexing has come.

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
    path = os.fspath(path)
    with Progress(0, unit="byte", show=progress) as bar:
        trajectory = _core.Trajectory.open(
            path,
            cache_folder=os.fspath(cache_folder()),
            refresh=refresh,
            n_threads=available_cpus(),
            progress=bar.set,
        )
    for note in trajectory.notes:
        warnings.warn(f"{path}: {note}", PacelineWarning, stacklevel=3)
    return trajectory


class Reader(ReaderBase):
    """Reads XTC and DCD for MDAnalysis.

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

    Raises
    ------
    AtomCountError
        The file has another number of atoms than `n_atoms`.
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
        if not convert_units:
            raise UnsupportedError("positions are always in Å and times in ps: convert_units=False")
        if dt is not None:
            kwargs["dt"] = dt
        super().__init__(filename, convert_units=convert_units, **kwargs)
        begun = time.perf_counter()
        self.core = open_file(self.filename, refresh=refresh_offsets)
        self.t_init = time.perf_counter() - begun
        # An attribute of the instance: see the module's first lines.
        self.format = self.core.format
        self.sub = None if sub is None else np.asarray(sub, dtype=np.int64)
        self.n_atoms = self.core.n_atoms if self.sub is None else len(self.sub)
        if n_atoms is not None and n_atoms != self.n_atoms:
            error = AtomCountError(
                f"{self.filename}: the topology has {n_atoms} atoms, the trajectory {self.n_atoms}"
            )
            error.found = self.n_atoms
            raise error
        self._override = dt
        self._connect()
        self.ts = self._Timestep(self.n_atoms, **self._ts_kwargs)
        self.ts.has_positions = True
        if dt is None:
            self.ts.dt = self._file_dt()
        self._read_frame(0)

    def _connect(self) -> None:
        self._frame = -1
        atoms = None if self.sub is None else np.unique(self.sub)
        self._columns = None if self.sub is None else np.searchsorted(atoms, self.sub)
        self._reader = _core.Reader(
            self.filename, self.core.layout, self.core.fingerprint, atoms=atoms
        )
        n_decoded = self.core.n_atoms if atoms is None else len(atoms)
        self._decoded = np.empty((1, n_decoded, 3), dtype=np.float32)

    def _file_dt(self) -> float:
        """Time between frames, ps: the header's, else between the first two, else 0."""
        if self.core.dt is not None:
            return self.core.dt
        if self.n_frames < 2:
            return 0.0
        second = self._read_frame(1).time
        return second - self._read_frame(0).time

    @property
    def n_frames(self) -> int:
        """Number of whole frames."""
        return self.core.n_frames

    @classmethod
    def parse_n_atoms(cls, filename: Any, **kwargs: Any) -> int:
        """Number of atoms of a file."""
        return open_file(filename).n_atoms

    @property
    def clock(self) -> Clock:
        """Times as the user asked for them, by `dt` and `time_offset`."""
        return Clock(self.core.first, self._override, self._ts_kwargs.get("time_offset", 0.0))

    def _read_frame(self, frame: int) -> Any:
        ts = self.ts
        target = self._decoded if self.sub is not None else ts.positions[np.newaxis]
        dimensions = np.empty((1, 6), dtype=np.float32)
        times, steps = np.empty(1), np.empty(1, dtype=np.int64)
        numbers = np.array([frame], dtype=np.uint64)
        self._reader.read(
            numbers, *self.core.extents(numbers), target, dimensions, times, steps, skip=False
        )
        if self.sub is not None:
            ts.positions = target[0, self._columns]
        ts.dimensions = dimensions[0]
        self._frame = ts.frame = frame
        ts.data["step"] = int(steps[0])
        # The Timestep adds `time_offset` itself.
        ts.time = float(replace(self.clock, offset=0.0)(frame, times[0]))
        return ts

    def _read_next_timestep(self, ts: Any = None) -> Any:
        if self._frame + 1 >= self.n_frames:
            raise EOFError
        try:
            return self._read_frame(self._frame + 1)
        except OSError as error:
            # MDAnalysis would take it for the end of the trajectory.
            raise ReadError(str(error)) from error

    def _reopen(self) -> None:
        self.ts.frame = 0
        self._frame = -1

    def close(self) -> None:
        """Nothing: the file closes with the last reference to it."""

    def Writer(self, filename: Any, n_atoms: int | None = None, **kwargs: Any) -> Any:  # noqa: N802
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
        kwargs.setdefault("dt", self.ts.dt)
        return get_writer_for(filename, format=self.format, multiframe=True)(
            filename, n_atoms=n_atoms or self.n_atoms, **kwargs
        )

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in ("core", "_reader", "_decoded"):
            del state[name]
        state["fingerprint"] = self.core.fingerprint
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        fingerprint = state.pop("fingerprint")
        self.__dict__.update(state)
        self.core = open_file(self.filename)
        if self.core.fingerprint != fingerprint:
            raise FileChangedError(
                f"{self.filename}: the file changed since this reader was pickled"
            )
        frame = self._frame
        self._connect()
        self._frame = frame
