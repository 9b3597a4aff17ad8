"""What a run needs of the trajectory behind an AtomGroup."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakSet

import MDAnalysis
import numpy as np
from MDAnalysis.coordinates.TRR import TRRReader
from MDAnalysis.coordinates.XTC import XTCReader
from MDAnalysis.core.groups import UpdatingAtomGroup

from paceline.block import fields_in
from paceline.chain import Chain
from paceline.errors import DamagedFileError, UnsupportedError
from paceline.foreign import chain_behind, numbers_of
from paceline.frames import Clock, Extents, FileFrames, FrameSource
from paceline.opening import warn
from paceline.plan import Plan
from paceline.reader import Reader
from paceline.universe_frames import UniverseFrames


class OpenTrajectory(Protocol):
    """A trajectory, opened once, for everybody.

    Attributes
    ----------
    shareable : bool
        Whether workers other than the calling thread can read it.
    t_init_traj : float
        Opening the trajectory, s; NaN where it was not ours to do.
    """

    shareable: bool
    t_init_traj: float

    @property
    def t_init_top(self) -> float:
        """Parsing the topology, s; NaN where it was not ours to do."""

    @property
    def n_atoms(self) -> int:
        """Atoms of a frame."""

    @property
    def n_frames(self) -> int:
        """Frames of the trajectory."""

    def extents(self, frames: np.ndarray) -> Extents:
        """Where frames are."""

    def frame_bytes(self, atoms: np.ndarray) -> float:
        """Bytes to be read of a frame for these atoms, about."""

    @property
    def chunk_frames(self) -> int:
        """Neighbours that are stored as one, and cost together what one of them costs."""

    def warn_of_rereading(self, plan: Plan) -> None:
        """Say, once, where blocks are so small that what is stored as one is read for several."""

    @property
    def fields(self) -> Sequence[str]:
        """What frames may hold of their atoms, out of `paceline.block.FIELDS`."""

    def frame_source(
        self, atoms: np.ndarray, fields: Sequence[str], required: Sequence[str]
    ) -> FrameSource:
        """Where workers get these fields of these atoms from."""

    def verify(self) -> None:
        """Raise `FileChangedError` where a file that was read is no longer the one opened."""

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
    FileChangedError
        MDAnalysis counted other frames when it opened the file.
    ValueError
        A group is empty, or there is none.
    """
    if not atomgroups:
        raise ValueError("no analysis was given")
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
    if type(trajectory) in (XTCReader, TRRReader) and trajectory._kwargs["sub"] is not None:
        # Beyond its first frame it writes all atoms into an array for those of sub.
        raise UnsupportedError(
            f"MDAnalysis's {type(trajectory).__name__} is unsafe with sub=; use paceline.Universe"
        )
    _refuse_edited(trajectory)
    if trajectory.transformations:
        return UniverseFrames(universe, "frames are transformed by MDAnalysis")
    files = _files_behind(universe)
    if files is not None:
        return files
    name = type(trajectory).__name__
    return UniverseFrames(universe, f"frames are read by MDAnalysis ({name})")


def _files_behind(universe: Any) -> "_Files | None":
    """The files, if the core gives of them what the trajectory's own reader would."""
    trajectory = universe.trajectory
    if isinstance(trajectory, Reader):
        if trajectory.is_collective:
            raise UnsupportedError(
                f"{trajectory.filename}: collective=True has all ranks read at once, and a run has "
                "each read the blocks that it is dealt; open it without collective=True"
            )
        sub = trajectory.sub
        if sub is None or (np.diff(sub) > 0).all():
            return _Files(universe, trajectory.chain, trajectory.clock, sub, trajectory.t_init)
    begun = time.perf_counter()
    behind = chain_behind(trajectory)
    if behind is None:
        return None
    return _Files(universe, *behind, None, time.perf_counter() - begun)


def _refuse_edited(trajectory: Any) -> None:
    """Workers see what the file holds; numbers that were set by hand would be ignored."""
    shown = numbers_of(trajectory.ts)
    try:
        again = trajectory[trajectory.ts.frame]
    except TypeError:  # a stream: it cannot go back
        return
    except DamagedFileError:  # a frame that nobody can have read
        return
    held = numbers_of(again)
    edited = [
        name
        for name in {"dimensions": None, **held}
        if not np.array_equal(shown.get(name, ()), held.get(name, ()), equal_nan=True)
    ]
    if edited:
        for name in edited:
            setattr(again, name, shown.get(name))
        raise UnsupportedError(
            f"the {' and '.join(edited)} of frame {again.frame} were edited, and an analysis would "
            "read the file's own; write what you want analysed to a file, or load it in memory"
        )


#: Trajectories of which was said what users should know of them.
_said: "WeakSet[Any]" = WeakSet()


@dataclass
class _Files:
    """Files that the core decodes; `sub` are the atoms that the topology has of them, rising."""

    universe: Any
    chain: Chain
    clock: Clock
    sub: np.ndarray | None
    t_init_traj: float
    shareable = True

    def __post_init__(self) -> None:
        self._asked_for: set[int] = set()

    @property
    def t_init_top(self) -> float:
        return getattr(self.universe, "t_init_top", math.nan)

    @property
    def n_atoms(self) -> int:
        return self.chain.n_atoms if self.sub is None else len(self.sub)

    @property
    def n_frames(self) -> int:
        return self.chain.n_frames

    def frame_bytes(self, atoms: np.ndarray) -> float:
        return self.chain.bytes_per_frame * (self._in_file(atoms)[-1] + 1) / self.chain.n_atoms

    @property
    def chunk_frames(self) -> int:
        return self.chain.chunk_frames

    def warn_of_rereading(self, plan: Plan) -> None:
        if plan.chunk_reads == 1 or self.chain in _said:
            return
        _said.add(self.chain)
        core = max(self.chain.cores, key=lambda core: core.chunk_frames)
        # Of other files convert makes H5MD; repack leaves them as they are.
        command = "repack" if core.format == "H5MD" else "convert"
        warn(
            f"{core.path}: {self.chunk_frames} frames are stored together, more than memory should "
            f"hold for each worker: each block of {plan.block_frames} frames reads and decodes "
            f"them for itself, so that they are read up to {plan.chunk_reads} times and reading "
            f"takes up to as many times as long; paceline {command} {core.path} NEW.h5md "
            "--for frames writes a file that is read once"
        )

    def extents(self, frames: np.ndarray) -> Extents:
        extents = self.chain.extents(frames)
        self._asked_for.update(extents.members.tolist())
        return extents

    @property
    def fields(self) -> Sequence[str]:
        return fields_in(self.chain.fields)

    def frame_source(
        self, atoms: np.ndarray, fields: Sequence[str], required: Sequence[str]
    ) -> FrameSource:
        return FileFrames(
            self.chain.members,
            None if len(atoms) == self.chain.n_atoms else self._in_file(atoms),
            len(atoms),
            fields,
            required,
            self.clock,
        )

    def _in_file(self, atoms: np.ndarray) -> np.ndarray:
        return atoms if self.sub is None else self.sub[atoms]

    def verify(self) -> None:
        for member in sorted(self._asked_for):
            self.chain.cores[member].verify()

    def provenance(self) -> dict[str, Any]:
        cores = self.chain.cores
        return {
            "MDAnalysis": MDAnalysis.__version__,
            "topology": self.universe.filename,
            "trajectory": ", ".join(core.path for core in cores),
            "fingerprint": ", ".join(core.fingerprint for core in cores),
        }
