"""Show the first frame of a running simulation to MDAnalysis, and pass all frames to analyses."""

import os
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NoReturn

import numpy as np
from MDAnalysis.coordinates.memory import MemoryReader
from MDAnalysis.coordinates.timestep import Timestep

from paceline._util.arguments import positive_number
from paceline._util.files import check_output
from paceline.errors import ReadError, UnsupportedError, quiet_warnings, warn
from paceline.trajectory.file_trajectory import open as open_trajectory
from paceline.trajectory.frames_without_topology import Frame
from paceline.trajectory.imd import ImdStream
from paceline.trajectory.imd_protocol import ImdSession, StreamFrame
from paceline.trajectory.write_stream_to_file import (
    TEMPORARY,
    GrowingFile,
    KeptFrames,
    Tee,
    growing_format,
)

#: Options of paceline's reader of files that a stream lacks.
_OF_FILES = (
    *("atoms", "cache", "cache_size", "continuous", "dataset", "group", "radii", "refresh"),
    *("sub", "time_offset"),
)
#: Options of MDAnalysis's readers and topology parsers, which a Universe also passes to its reader.
_OF_TOPOLOGIES = (
    *("format", "atom_style", "convert_units", "external", "force_chainids_to_segids"),
    "include_dir",
    *("infer_system", "tpr_resid_from_one"),
)


class ShownFrame(Timestep):
    """Timestep that records whether its positions were read."""

    was_read = False

    @property
    def positions(self) -> np.ndarray:
        """Positions, Å, float32, shape (n_atoms, 3); reading them sets `was_read`."""
        self.was_read = True
        return super().positions

    @positions.setter
    def positions(self, values: np.ndarray) -> None:
        Timestep.positions.__set__(self, values)


class StreamReader(MemoryReader):
    """Reader of a running simulation; shows the first frame until analyses follow the simulation.

    Parameters
    ----------
    filename : str
        Address, imd://host:port.
    n_atoms : int
        Number of atoms of the topology.
    units : str, optional
        Unit style of LAMMPS, such as "real", if the engine sends its own units.
    dt : float, optional
        Time between frames, ps, if the engine sends no times.
    tee : path-like, optional
        File to which `paceline.run` and `paceline.live` write the frames; by default a temporary
        TRR file. The first frame is shown with values rounded as in this file, so that references
        that analyses take from it are bit-identical to the file.
    timeout : float
        Time without a byte after which the simulation is taken to hang, s.
    wait : float
        Time in which a simulation that does not listen yet may start, s.

    Raises
    ------
    ReadError
        No engine listens, or it closed the connection before the first frame.
    UnsupportedError
        The engine sends no positions, or the address or an option is invalid.
    DamagedFileError
        The peer does not follow the protocol.
    AtomCountError
        The engine sends another number of atoms.
    """

    _Timestep = ShownFrame

    def __init__(
        self,
        filename: str,
        n_atoms: int | None = None,
        units: str | None = None,
        dt: float | None = None,
        tee: str | os.PathLike | None = None,
        timeout: float = 60.0,
        wait: float = 0.0,
        **kwargs: object,
    ):
        for name in _OF_FILES:
            if kwargs.get(name):
                raise UnsupportedError(f"{filename}: {name}= applies to files, not to a stream")
        if unknown := sorted(kwargs.keys() - {*_OF_FILES, *_OF_TOPOLOGIES}):
            raise UnsupportedError(
                f"{filename}: unknown option {unknown[0]}=: a stream has units=, dt=, tee=, "
                "timeout= and wait="
            )
        dt = None if dt is None else positive_number("dt", dt, "ps")
        if tee is not None:
            # Check now, so that errors name this file, not the temporary one of `_as_stored`.
            growing_format(tee)
            check_output(tee, overwrite=True)  # an option of the run allows replacing the file
        self.stream = ImdStream(filename, n_atoms=n_atoms, units=units, timeout=timeout, wait=wait)
        self.address, self._dt_given, self.tee_path = filename, dt, tee
        try:
            self.first = self._first_frame()
            shown = self._as_stored(self.first)
        except BaseException:
            self.stream.close()
            raise
        arrays = {}
        if shown.has_velocities:
            arrays["velocities"] = shown.velocities[np.newaxis]
        if shown.has_forces:
            arrays["forces"] = shown.forces[np.newaxis]
        cell = None if shown.dimensions is None else shown.dimensions[np.newaxis]
        positions = shown.positions[np.newaxis]
        super().__init__(positions, dimensions=cell, dt=dt or 1.0, filename=filename, **arrays)
        self.ts.time = shown.time
        if self.session.wrapped:
            warn(
                f"{filename}: the engine wraps atoms into the cell: unwrap (--unwrap) makes "
                "molecules whole, and displacements need nojump (--nojump)"
            )

    def _first_frame(self) -> StreamFrame:
        """Receive the first frame; raise an error if the engine sends no positions."""
        if not self.session.has_positions:
            raise UnsupportedError(
                f"{self.stream.address}: the engine sends {', '.join(self.session.fields)}, but no "
                "positions: enable positions in its input"
            )
        first = self.stream.read_frame()
        if first is None:
            raise ReadError(f"{self.stream.address}: {self.stream.ended} before the first frame")
        return first

    def _as_stored(self, frame: StreamFrame) -> Frame:
        """Write a frame to a temporary file of the format of the tee, and read it again.

        Formats round: XTC to 0.01 Å, TRR in the last bit.
        """
        ending = Path(TEMPORARY if self.tee_path is None else self.tee_path).suffix
        with quiet_warnings(), tempfile.TemporaryDirectory(prefix="paceline-") as folder:
            path = os.path.join(folder, f"first{ending}")
            file = GrowingFile(path, self.stream, dt=self._dt_given)
            try:
                file.append(frame)
                file.finish()
            finally:
                file.close()
            with open_trajectory(path) as trajectory:
                return trajectory[0]

    @property
    def session(self) -> ImdSession:
        """Facts about the connection that the engine sent, such as the fields of frames."""
        return self.stream.session

    @property
    def was_read(self) -> bool:
        """True if positions of the first frame were read, perhaps as a reference."""
        return self.ts.was_read

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields that the engine sends in each frame."""
        return self.session.fields

    @property
    def ended(self) -> str | None:
        """Reason why the stream has ended; None while it continues."""
        return self.stream.ended

    def frames(self) -> Iterator[StreamFrame]:
        """Yield the first frame and all following ones, until the stream ends."""
        return chain([self.first], self.stream.frames())

    def set_timeout(self, seconds: float) -> None:
        """Set the time without a byte after which the simulation is taken to hang."""
        self.stream.set_timeout(seconds)

    def pause(self) -> None:
        """Ask the engine to pause the simulation."""
        self.stream.pause()

    def kill(self) -> None:
        """Ask the engine to end the simulation."""
        self.stream.kill()

    def close(self, *, leave_running: bool = False) -> None:
        """Close the connection; with `leave_running`, the simulation continues without a client."""
        self.stream.close(leave_running=leave_running)

    def tee(
        self,
        path: str | os.PathLike,
        *,
        overwrite: bool = False,
        kept: KeptFrames | None = None,
    ) -> Tee:
        """Begin to write the frames to files. Raises the errors of `Tee`."""
        if self.transformations:
            raise UnsupportedError(
                f"{self.address}: MDAnalysis's transformations are not applied to a stream: omit "
                "them, and give the run its own, as transforms="
            )
        tee = Tee(self, path, overwrite=overwrite, dt=self._dt_given, kept=kept)
        tee.start()
        return tee

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address} with {self.n_atoms} atoms>"

    def copy(self) -> NoReturn:
        """Raise `UnsupportedError`, because a simulation sends each frame once."""
        raise UnsupportedError(f"{self.address}: a stream cannot be copied")

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError(f"{self.address}: a stream cannot be sent to another process")
