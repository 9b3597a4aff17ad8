"""What a run needs of the trajectory behind an AtomGroup."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakSet

import MDAnalysis
import numpy as np
from MDAnalysis.coordinates.DCD import DCDReader
from MDAnalysis.coordinates.H5MD import H5MDReader
from MDAnalysis.coordinates.TRJ import NCDFReader
from MDAnalysis.coordinates.TRR import TRRReader
from MDAnalysis.coordinates.XTC import XTCReader
from MDAnalysis.core.groups import UpdatingAtomGroup

from paceline.block import FIELDS, Decoded, field_bits, fields_in
from paceline.errors import DamagedFileError, FileChangedError, MissingDataError, UnsupportedError
from paceline.hdf5.options import LeadsOutError
from paceline.schedule.plan import Plan
from paceline.trajectory.chain import Chain
from paceline.trajectory.open import warn
from paceline.trajectory.reader import Reader
from paceline.trajectory.source import Clock, Cost, Extents, FileFrames, FrameSource

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


#: MDAnalysis's own readers of files that the core decodes, each frame by itself.
_OF_FRAMES = (XTCReader, TRRReader, DCDReader, NCDFReader)


def chain_behind(trajectory: Any) -> tuple[Chain, Clock] | None:
    """The file that one of MDAnalysis's own readers reads.

    Parameters
    ----------
    trajectory : MDAnalysis.coordinates.base.ReaderBase
        Its reader.

    Returns
    -------
    tuple of (Chain, Clock), or None
        None where we would not read the same.

    Raises
    ------
    FileChangedError
        MDAnalysis counted other frames when it opened the file.
    """
    if type(trajectory) in _OF_FRAMES and trajectory.convert_units:
        return _of_frames(trajectory)
    if type(trajectory) is H5MDReader and trajectory.convert_units:
        return _of_h5md(trajectory)
    return None


def _of_frames(trajectory: Any) -> tuple[Chain, Clock]:
    chain = Chain([trajectory.filename])
    given = trajectory._kwargs
    # Of NetCDF, MDAnalysis prefers the file's times.
    dt = None if getattr(trajectory, "has_time", False) else given.get("dt")
    if _counts(chain) != _counts(trajectory):
        raise FileChangedError(
            f"{chain.cores[0].path}: MDAnalysis opened it with {trajectory.n_frames} frames of "
            f"{trajectory.n_atoms} atoms, and {chain.n_frames} whole frames of {chain.n_atoms} "
            "were found now; open it with paceline.Universe"
        )
    return chain, Clock(chain.cores[0].first, dt, given.get("time_offset", 0.0))


def _of_h5md(trajectory: Any) -> tuple[Chain, Clock] | None:
    """A file of H5MD, if some frames are the same: MDAnalysis pairs elements by their rows."""
    if not isinstance(trajectory.filename, str):
        return None
    group = trajectory._particle_group.name.rpartition("/")[2]
    try:
        ours = Reader(trajectory.filename, group=group, **_offset(trajectory))
    except LeadsOutError:
        return None
    same = _counts(ours) == _counts(trajectory) and _are_same(ours, trajectory)
    return (ours.chain, ours.clock) if same else None


def _offset(trajectory: Any) -> dict[str, float]:
    given = trajectory._kwargs
    return {"time_offset": given["time_offset"]} if "time_offset" in given else {}


def _counts(frames: Any) -> tuple[int, int]:
    return frames.n_frames, frames.n_atoms


def _are_same(ours: Any, theirs: Any) -> bool:
    """Whether two readers give the same at the beginning, in the middle and at the end."""
    present = theirs.frame
    try:
        for frame in {0, ours.n_frames // 2, ours.n_frames - 1}:
            held, shown = numbers_of(ours[frame]), numbers_of(theirs[frame])
            if held.keys() != shown.keys() or ours.ts.time != theirs.ts.time:
                return False
            if not all(np.array_equal(held[name], shown[name]) for name in held):
                return False
    except DamagedFileError:
        return False
    finally:
        theirs[present]
    return True


def numbers_of(ts: Any) -> dict[str, np.ndarray]:
    """What a Timestep holds.

    Parameters
    ----------
    ts : MDAnalysis.coordinates.timestep.Timestep
        The Timestep.

    Returns
    -------
    dict of str to numpy.ndarray
        Copies, for it will be filled anew.
    """
    names = [field for field in FIELDS if getattr(ts, f"has_{field}")]
    if ts.dimensions is not None:
        names.append("dimensions")
    return {name: getattr(ts, name).copy() for name in names}


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
