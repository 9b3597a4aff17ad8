"""Frames that only MDAnalysis can give."""

import math
import time
from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

import MDAnalysis
import numpy as np

from paceline.block import FIELDS, Decoded, field_bits
from paceline.errors import MissingDataError
from paceline.frames import Clock, Cost, Extents, FrameSource
from paceline.opening import warn
from paceline.plan import Plan

#: Trajectories of which was said that they are read so.
_told: "WeakSet[Any]" = WeakSet()


class UniverseFrames:
    """Frames that only MDAnalysis can give, one at a time, in the calling thread.

    Parameters
    ----------
    universe : MDAnalysis.Universe
        Whose frames they are.
    reason : str
        Why MDAnalysis gives them, as a warning says it.
    """

    shareable = False
    t_init_top = t_init_traj = math.nan

    def __init__(self, universe: Any, reason: str):
        self._universe = universe
        self.n_atoms = universe.trajectory.n_atoms
        self.n_frames = universe.trajectory.n_frames
        if universe.trajectory not in _told:
            _told.add(universe.trajectory)
            warn(f"{reason}, one at a time in one thread, whatever the backend")

    def frame_bytes(self, atoms: np.ndarray) -> float:
        """Bytes to be read of a frame, about: MDAnalysis reads all atoms."""
        return 12.0 * self.n_atoms

    def extents(self, frames: np.ndarray) -> Extents:
        """Numbers of frames: only MDAnalysis knows where they are."""
        nothing = np.zeros_like(frames)
        return Extents(nothing, frames, nothing, nothing, (None,))

    chunk_frames = 1

    def warn_of_rereading(self, plan: Plan) -> None:
        """MDAnalysis reads each frame by itself."""

    @property
    def fields(self) -> Sequence[str]:
        """What the present frame holds of its atoms."""
        ts = self._universe.trajectory.ts
        return [field for field in FIELDS if getattr(ts, f"has_{field}")]

    def frame_source(
        self, atoms: np.ndarray, fields: Sequence[str], required: Sequence[str]
    ) -> FrameSource:
        """Where these fields of these atoms come from."""
        return _MDAnalysisFrames(self._universe.trajectory, atoms, fields, required)

    def verify(self) -> None:
        """MDAnalysis's readers hold the file open; nothing to compare with."""

    def provenance(self) -> dict[str, Any]:
        """Where the data come from."""
        return {
            "MDAnalysis": MDAnalysis.__version__,
            "topology": self._universe.filename,
            "trajectory": getattr(self._universe.trajectory, "filename", None),
            "fingerprint": "none: read by MDAnalysis",
        }


class _MDAnalysisFrames:
    """A source and reader of frames, in the shape in which the core offers its own."""

    def __init__(
        self,
        trajectory: Any,
        atoms: np.ndarray,
        fields: Sequence[str],
        required: Sequence[str],
    ):
        self._trajectory = trajectory
        self._atoms = atoms
        self.n_wanted = len(atoms)
        self.fields = fields
        self.required = required
        self.clock = Clock()

    def open(self) -> "_MDAnalysisFrames":
        return self

    def name_of(self, extents: Extents, row: int) -> str:
        return f"{self._trajectory.filename}: frame {extents.frames[row]}"

    def read_ahead(self, extents: Extents) -> None:
        """MDAnalysis reads when it is asked."""

    def read(self, extents: Extents, decoded: Decoded, *, skip: bool) -> Cost:
        begun = time.perf_counter_ns()
        damaged = []
        for row, frame in enumerate(extents.frames):
            try:
                self._read_frame(int(frame), row, decoded)
            except Exception as error:
                if not skip:
                    raise
                damaged.append((row, f"{type(error).__name__}: {error}"))
                decoded.blank(row)
                decoded.times[row] = np.nan
        return Cost(0, time.perf_counter_ns() - begun, 0, 0, 0, damaged)

    def _read_frame(self, frame: int, row: int, decoded: Decoded) -> None:
        ts = self._trajectory[frame]
        held = [field for field in FIELDS if getattr(ts, f"has_{field}")]
        for field in self.fields:
            if field not in held and field in self.required:
                raise MissingDataError(f"frame {frame} has no {field}")
            values = getattr(ts, field)[self._atoms] if field in held else np.nan
            getattr(decoded, field)[row] = values
        decoded.fields[row] = field_bits(held)
        decoded.dimensions[row] = 0 if ts.dimensions is None else ts.dimensions
        # Not the Timestep's: a chain of files counts on from one to the next.
        decoded.times[row] = self._trajectory.time
        decoded.steps[row] = ts.data.get("step", ts.frame)
