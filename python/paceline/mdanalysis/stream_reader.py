"""Show the first frame of a running simulation to MDAnalysis, and pass its frames on."""

import os
from collections.abc import Iterator
from itertools import chain
from typing import NoReturn

import numpy as np
from MDAnalysis.coordinates.memory import MemoryReader
from MDAnalysis.lib.mdamath import triclinic_box

from paceline.errors import ReadError, UnsupportedError, warn
from paceline.trajectory.imd import ImdStream
from paceline.trajectory.imd_protocol import ImdSession, StreamFrame
from paceline.trajectory.tee import Tee

#: Options of paceline's reader of files that a stream lacks. Others are those of the topology.
_OF_FILES = ("atoms", "cache", "continuous", "group", "sub")


class StreamReader(MemoryReader):
    """Reader of a running simulation, which shows its first frame until analyses follow it.

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

    def __init__(
        self,
        filename: str,
        n_atoms: int | None = None,
        units: str | None = None,
        dt: float | None = None,
        timeout: float = 60.0,
        wait: float = 0.0,
        **kwargs: object,
    ):
        for name in _OF_FILES:
            if kwargs.get(name):
                raise UnsupportedError(f"{filename}: {name}= applies to files, not to a stream")
        self.stream = ImdStream(filename, n_atoms=n_atoms, units=units, timeout=timeout, wait=wait)
        try:
            first = self._first_frame()
        except BaseException:
            self.stream.close()
            raise
        self.address, self.first, self._dt_given = filename, first, dt
        # Copies: whoever moves atoms of the Universe must not change the frame that is passed on.
        arrays = {
            name: values[np.newaxis].copy()
            for name, values in (("velocities", first.velocities), ("forces", first.forces))
            if values is not None
        }
        cell = None if first.cell is None else triclinic_box(*first.cell)[np.newaxis]
        assert first.positions is not None
        positions = first.positions[np.newaxis].copy()
        super().__init__(positions, dimensions=cell, dt=dt or 1.0, filename=filename, **arrays)
        self.ts.time = first.time or 0.0
        if self.session.wrapped:
            warn(
                f"{filename}: the engine wraps atoms into the cell: unwrap (--unwrap) makes "
                "molecules whole, and displacements need nojump (--nojump)"
            )

    def _first_frame(self) -> StreamFrame:
        """Receive the first frame."""
        if not self.session.has_positions:
            raise UnsupportedError(
                f"{self.stream.address}: the engine sends {', '.join(self.session.fields)}, but no "
                "positions: enable positions in its input"
            )
        first = self.stream.read_frame()
        if first is None:
            raise ReadError(f"{self.stream.address}: {self.stream.ended} before the first frame")
        return first

    @property
    def session(self) -> ImdSession:
        """Facts about the connection."""
        return self.stream.session

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of each frame."""
        return self.session.fields

    @property
    def ended(self) -> str | None:
        """Reason why the stream has ended; None before."""
        return self.stream.ended

    def frames(self) -> Iterator[StreamFrame]:
        """Yield the first frame and all following ones, until the stream ends."""
        return chain([self.first], self.stream.frames())

    def pause(self) -> None:
        """Ask the simulation to wait."""
        self.stream.pause()

    def resume(self) -> None:
        """Ask the simulation to continue."""
        self.stream.resume()

    def kill(self) -> None:
        """Ask the engine to end the simulation."""
        self.stream.kill()

    def close(self, *, leave_running: bool = False) -> None:
        """Close the connection; with `leave_running`, the simulation continues without it."""
        self.stream.close(leave_running=leave_running)

    def tee(self, path: str | os.PathLike, *, overwrite: bool = False) -> Tee:
        """Begin to write the frames to a file. Raises the errors of `Tee`."""
        if self.transformations:
            raise UnsupportedError(
                f"{self.address}: MDAnalysis's transformations are not applied to a stream: omit "
                "them, and give paceline.live its own, as transforms="
            )
        tee = Tee(self, path, overwrite=overwrite, dt=self._dt_given)
        tee.start()
        return tee

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address} with {self.n_atoms} atoms>"

    def copy(self) -> NoReturn:
        """Raise `UnsupportedError`, because a simulation sends each frame once."""
        raise UnsupportedError(f"{self.address}: a stream cannot be copied")

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError(f"{self.address}: a stream cannot be sent to another process")
