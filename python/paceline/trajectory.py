"""What a run needs of the trajectory behind an AtomGroup."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import MDAnalysis
import numpy as np
from MDAnalysis.coordinates.DCD import DCDReader
from MDAnalysis.coordinates.XTC import XTCReader
from MDAnalysis.core.groups import UpdatingAtomGroup

from paceline import _core
from paceline.errors import PacelineWarning, UnsupportedError
from paceline.reader import Reader, open_file
from paceline.worker import DAMAGED_STEP, Clock, FileFrames, FrameSource

Extents = tuple[np.ndarray, np.ndarray, np.ndarray]


class OpenTrajectory(Protocol):
    """A trajectory, opened once, for everybody.

    Attributes
    ----------
    n_atoms, n_frames : int
    shareable : bool
        Whether workers other than the calling thread can read it.
    t_init : float
        What opening took, seconds.
    """

    n_atoms: int
    n_frames: int
    shareable: bool
    t_init: float

    def extents(self, frames: np.ndarray) -> Extents:
        """Numbers, byte offsets and sizes of frames."""

    def frame_bytes(self, atoms: np.ndarray) -> float:
        """Bytes to be read of a frame for these atoms, about."""

    def frame_source(self, atoms: np.ndarray) -> FrameSource:
        """Where workers get frames of these atoms from."""

    def verify(self) -> None:
        """Raise `FileChangedError` where the file is no longer the one that was opened."""

    def provenance(self) -> dict[str, Any]:
        """Where the data come from."""


def open_trajectory(atomgroups: Sequence[Any]) -> OpenTrajectory:
    """Open the one trajectory behind some groups of atoms.

    Parameters
    ----------
    atomgroups : sequence of AtomGroup
        Of one Universe.

    Returns
    -------
    OpenTrajectory

    Raises
    ------
    UnsupportedError
        What workers could not reproduce: several Universes, groups that update themselves,
        positions that were edited.
    ValueError
        A group is empty.
    """
    begun = time.perf_counter()
    universe = atomgroups[0].universe
    for group in atomgroups:
        if group.universe is not universe:
            raise UnsupportedError("all analyses of one run must belong to one Universe")
        if isinstance(group, UpdatingAtomGroup):
            raise UnsupportedError(
                "an UpdatingAtomGroup changes from frame to frame; "
                "analyse a fixed selection (updating=False)"
            )
        if len(group) == 0:
            raise ValueError("the group of atoms to analyse is empty: its selection matches none")
    trajectory = universe.trajectory
    _refuse_edited(trajectory)
    if trajectory.transformations:
        return _UniverseFrames(universe, "trajectory transformations are applied by MDAnalysis")
    if isinstance(trajectory, Reader) and trajectory.sub is None:
        return _File(universe, trajectory.core, trajectory.clock, trajectory.t_init)
    if type(trajectory) in (XTCReader, DCDReader) and not _has_options(trajectory):
        core = open_file(trajectory.filename)
        if (core.n_atoms, core.n_frames) == (trajectory.n_atoms, trajectory.n_frames):
            return _File(universe, core, Clock(), time.perf_counter() - begun)
    name = type(trajectory).__name__
    return _UniverseFrames(universe, f"its frames are read by {name}")


def _has_options(trajectory: Any) -> bool:
    """Whether one of MDAnalysis's readers was told to read otherwise than the file says."""
    asked = trajectory._kwargs
    return not asked.get("convert_units", True) or any(
        asked.get(name) is not None for name in ("sub", "dt", "time_offset")
    )


def _refuse_edited(trajectory: Any) -> None:
    """Workers see what the file holds; positions that were set by hand would be ignored."""
    ts = trajectory.ts
    positions, dimensions = ts.positions.copy(), ts.dimensions
    dimensions = None if dimensions is None else dimensions.copy()
    try:
        again = trajectory[ts.frame]
    except TypeError:  # a stream: it cannot go back
        return
    same = np.array_equal(positions, again.positions, equal_nan=True) and (
        dimensions is None
        if again.dimensions is None
        else dimensions is not None and np.array_equal(dimensions, again.dimensions, equal_nan=True)
    )
    if not same:
        again.positions, again.dimensions = positions, dimensions
        raise UnsupportedError(
            f"the positions or the cell of frame {ts.frame} were edited, and an analysis would "
            "read the file's own; write what you want analysed to a file, or load it in memory"
        )


@dataclass
class _File:
    """A file that the core decodes."""

    universe: Any
    core: "_core.Trajectory"
    clock: Clock
    t_init: float
    shareable = True

    @property
    def n_atoms(self) -> int:
        return self.core.n_atoms

    @property
    def n_frames(self) -> int:
        return self.core.n_frames

    def frame_bytes(self, atoms: np.ndarray) -> float:
        whole = self.core.size / max(self.core.n_frames, 1)
        return whole * (atoms[-1] + 1) / self.core.n_atoms

    def extents(self, frames: np.ndarray) -> Extents:
        return (frames, *self.core.extents(frames))

    def frame_source(self, atoms: np.ndarray) -> FrameSource:
        return FileFrames(
            self.core.path,
            self.core.layout,
            self.core.fingerprint,
            None if len(atoms) == self.core.n_atoms else atoms,
            len(atoms),
            self.clock,
        )

    def verify(self) -> None:
        self.core.verify()

    def provenance(self) -> dict[str, Any]:
        return {
            "MDAnalysis": MDAnalysis.__version__,
            "topology": self.universe.filename,
            "trajectory": self.core.path,
            "fingerprint": self.core.fingerprint,
        }


_said: set[str] = set()


class _UniverseFrames:
    """Frames that only MDAnalysis can give, one at a time, in the calling thread."""

    shareable = False
    t_init = 0.0

    def __init__(self, universe: Any, reason: str):
        self._universe = universe
        self.n_atoms = universe.trajectory.n_atoms
        self.n_frames = universe.trajectory.n_frames
        if reason not in _said:
            _said.add(reason)
            warnings.warn(
                f"{reason}, one frame at a time in one thread, whatever the backend",
                PacelineWarning,
                stacklevel=4,
            )

    def frame_bytes(self, atoms: np.ndarray) -> float:
        return 12.0 * self.n_atoms

    def extents(self, frames: np.ndarray) -> Extents:
        nothing = np.zeros_like(frames)
        return frames, nothing, nothing

    def frame_source(self, atoms: np.ndarray) -> FrameSource:
        return _MDAnalysisFrames(self._universe.trajectory, atoms)

    def verify(self) -> None:
        """MDAnalysis's readers hold the file open; nothing to compare with."""

    def provenance(self) -> dict[str, Any]:
        return {
            "MDAnalysis": MDAnalysis.__version__,
            "topology": self._universe.filename,
            "trajectory": getattr(self._universe.trajectory, "filename", None),
            "fingerprint": "none: read by MDAnalysis",
        }


class _MDAnalysisFrames:
    """A source and reader of frames, in the shape in which the core offers its own."""

    def __init__(self, trajectory: Any, atoms: np.ndarray):
        self._trajectory = trajectory
        self._atoms = atoms
        self.n_wanted = len(atoms)
        self.clock = Clock()

    def open(self) -> "_MDAnalysisFrames":
        return self

    def read_ahead(self, *extents: np.ndarray) -> None:
        """MDAnalysis reads when it is asked."""

    def read(
        self,
        frames: np.ndarray,
        offsets: np.ndarray,
        sizes: np.ndarray,
        positions: np.ndarray,
        dimensions: np.ndarray,
        times: np.ndarray,
        steps: np.ndarray,
        *,
        skip: bool,
    ) -> tuple[int, int, int, int, list[tuple[int, str]]]:
        begun = time.perf_counter_ns()
        damaged = []
        for row, frame in enumerate(frames):
            try:
                ts = self._trajectory[int(frame)]
            except Exception as error:
                if not skip:
                    raise
                damaged.append((row, f"{type(error).__name__}: {error}"))
                positions[row] = dimensions[row] = times[row] = np.nan
                steps[row] = DAMAGED_STEP
                continue
            positions[row] = ts.positions[self._atoms]
            dimensions[row] = 0 if ts.dimensions is None else ts.dimensions
            times[row] = ts.time
            steps[row] = ts.data.get("step", ts.frame)
        return time.perf_counter_ns() - begun, 0, 0, 0, damaged
