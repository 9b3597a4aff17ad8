"""Open the trajectory of an AtomGroup, for any MDAnalysis reader.

Blocks of an AtomGroup are read in three steps. The user's process opens a `Trajectory`. Its
`FrameSource` is pickled and sent to the workers. Each worker opens a `FrameReader`.
"""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from weakref import WeakSet

import MDAnalysis
import numpy as np
from MDAnalysis.coordinates.base import ProtoReader
from MDAnalysis.coordinates.chain import ChainReader
from MDAnalysis.coordinates.DCD import DCDReader
from MDAnalysis.coordinates.H5MD import H5MDReader
from MDAnalysis.coordinates.LAMMPS import DumpReader
from MDAnalysis.coordinates.memory import MemoryReader
from MDAnalysis.coordinates.TRJ import NCDFReader
from MDAnalysis.coordinates.TRR import TRRReader
from MDAnalysis.coordinates.XTC import XTCReader
from MDAnalysis.core.groups import AtomGroup, UpdatingAtomGroup

from paceline._util.arguments import function_name
from paceline._util.python_object_digest import file_digest
from paceline.block import FrameBuffer, cell_of, field_bits, fields_in
from paceline.contract.node_disk_cache import Cache
from paceline.contract.plan import Plan
from paceline.contract.source import (
    Extents,
    FileReadStats,
    FrameSource,
    TimeAxis,
    time_axis_of,
    unknown_times,
)
from paceline.contract.system_interface import Timestep, attribute_of, fields_of, values_of
from paceline.errors import (
    DamagedFileError,
    ExternalFileError,
    FileChangedError,
    MissingDataError,
    SelectionError,
    UnsupportedError,
    warn,
)
from paceline.mdanalysis.reader import Reader, is_name
from paceline.trajectory.arrays import UNNAMED, ArrayChain, ArrayFile, check_positions
from paceline.trajectory.chain import Chain
from paceline.trajectory.file_trajectory import FileTrajectory, Trajectory
from paceline.trajectory.growth import TeeSource
from paceline.trajectory.open import open_file

#: MDAnalysis's readers for those of paceline's formats that store frames separately.
_FRAME_BY_FRAME = (XTCReader, TRRReader, DCDReader, NCDFReader)

#: Trajectories for which the warning was issued that MDAnalysis reads them.
_warned: "WeakSet[ProtoReader]" = WeakSet()


class MDAnalysisTrajectory(Trajectory):
    """Frames that only MDAnalysis can read; the calling thread reads them one at a time."""

    shareable = False

    def __init__(self, universe: MDAnalysis.Universe, reason: str):
        self._universe = universe
        self._present = universe.trajectory.frame
        self.n_atoms = universe.trajectory.n_atoms
        self.n_frames = universe.trajectory.n_frames
        self.loaded = attribute_of(universe.trajectory, "loaded")
        # For a single frame, for example of a structure, another reader would not be faster.
        if self.n_frames > 1 and universe.trajectory not in _warned:
            _warned.add(universe.trajectory)
            times = f"; {unknown_times(self.time_doubt)}" if self.time_doubt else ""
            warn(f"{reason}, one at a time in one thread, whatever the backend{times}")

    @cached_property
    def time_doubt(self) -> str | None:
        """Reason why times are unknown; None if they are known, or for a single frame."""
        return _time_doubt(self._universe.trajectory) if self.n_frames > 1 else None

    def extents(self, frames: np.ndarray) -> Extents:
        """Return frame numbers in place of file offsets, which are known only to MDAnalysis."""
        nothing = np.zeros_like(frames)
        return Extents(nothing, frames, nothing, nothing, (None,))

    def frame_bytes(self, atoms: np.ndarray) -> float:
        """Return the approximate number of bytes read per frame; MDAnalysis reads all atoms."""
        return 12.0 * self.n_atoms

    def warn_of_rereading(self, plan: Plan) -> None:
        """Do nothing: MDAnalysis reads each frame once."""

    @property
    def fields(self) -> Sequence[str]:
        """Fields of the current frame."""
        return fields_of(self._universe.trajectory.ts)

    def frame_source(
        self,
        atoms: np.ndarray,
        fields: Sequence[str],
        required: Sequence[str],
        *,
        n_again: int = 0,
    ) -> FrameSource:
        """Create the source from which the calling thread reads some fields of some atoms."""
        if self.loaded is not None:
            self.loaded.check(atoms)
        file = _MDAnalysisFile(self._universe.trajectory, n_again)
        given = TimeAxis(), None, self.n_atoms
        return FrameSource([file], atoms, len(atoms), fields, required, *given)

    def verify(self) -> None:
        """Do nothing, because the file that MDAnalysis has open is not checked."""

    def restore_frame(self) -> None:
        """Return to the frame that was current before the run.

        If transformations track atoms from frame to frame, return to the first frame, as MDAnalysis
        does: their result depends on the frames read before.
        """
        trajectory = self._universe.trajectory
        with suppress(Exception):  # the run's own error is more informative
            trajectory[0 if _following(trajectory) else self._present]

    def provenance(self) -> dict[str, object]:
        """Return versions and files, for the provenance of results."""
        name = attribute_of(self._universe.trajectory, "filename")
        names = attribute_of(self._universe.trajectory, "filenames")
        files = [name] if names is None else names
        found = [file_digest(one) for one in files if is_name(one)]
        warned = attribute_of(self._universe, "opening_warnings")
        return {
            **_origin_of(self._universe),
            "trajectory": name,
            "fingerprint": "none: read by MDAnalysis",
            **({"trajectory sha256": ", ".join(found)} if found and all(found) else {}),
            **({"warnings": "; ".join(warned)} if warned else {}),
        }


def _time_doubt(trajectory: ProtoReader) -> str | None:
    """Return the reason why MDAnalysis's times are unknown; None if they are known."""
    if isinstance(trajectory, Reader):
        return trajectory.time_axis.doubt
    if (attribute_of(trajectory, "_kwargs") or {}).get("dt") is not None:
        return None
    if type(trajectory) in _FRAME_BY_FRAME:
        return open_file(trajectory.filename, notes=False).time_doubt
    for reader in trajectory.readers if isinstance(trajectory, ChainReader) else [trajectory]:
        # If the time between frames is unknown, MDAnalysis sets it to 1.0 ps.
        if "dt" in reader.ts.data or _has_dt(reader):
            continue
        if isinstance(reader, DumpReader):
            return "the file contains step numbers only, and MDAnalysis counts a step as 1 ps"
        if "time" not in reader.ts.data:
            return f"{type(reader).__name__} finds none, and counts frames as 1 ps apart"
    return None


def _has_dt(reader: ProtoReader) -> bool:
    """True for a reader whose time between frames is known."""
    try:
        reader._get_dt()
    except AttributeError:
        return False
    return True


class _MDAnalysisFile:
    """MDAnalysis's reader as the only `FileSpec` of a source, which is not sent to workers."""

    def __init__(self, trajectory: ProtoReader, n_again: int):
        self._trajectory, self._n_again = trajectory, n_again

    @property
    def path(self) -> str:
        return self._trajectory.filename

    def open(
        self, atoms: np.ndarray | None, fields: int, cache: Cache | None = None
    ) -> "_MDAnalysisFileReader":
        if _following(self._trajectory):
            self._trajectory[0]  # each pass starts at the first frame
        return _MDAnalysisFileReader(self._trajectory, atoms, fields, self._n_again)


class _MDAnalysisFileReader:
    """`FileReader` that calls MDAnalysis's reader once per frame.

    The last `n_again` frames of a block are kept for the next block, because transformations such
    as `NoJump` fail if frames are not in order.
    """

    def __init__(
        self, trajectory: ProtoReader, atoms: np.ndarray | None, fields: int, n_again: int
    ):
        self._trajectory, self._n_again = trajectory, n_again
        self._kept: tuple[FrameBuffer, dict[int, str]] | None = None
        self._atoms = slice(None) if atoms is None else atoms
        self._fields = sorted(fields_in(fields))

    def read_ahead(self, extents: Extents) -> None:
        """Do nothing: MDAnalysis cannot prefetch."""

    def read(
        self, extents: Extents, buffer: FrameBuffer, *, required: int, skip: bool
    ) -> FileReadStats:
        begun = time.perf_counter_ns()
        must_hold = fields_in(required)
        n_kept, damaged = self._copy_kept(buffer)
        for row, frame in enumerate(extents.frames[n_kept:], start=n_kept):
            try:
                self._read_frame(int(frame), row, buffer, must_hold)
            except Exception as error:
                if not skip:
                    raise
                damaged.append((row, f"{type(error).__name__}: {error}"))
                buffer.blank(row)
                buffer.times[row] = np.nan
        if self._n_again:
            first = max(0, len(buffer.frames) - self._n_again)
            reasons = {row - first: reason for row, reason in damaged if row >= first}
            self._kept = buffer[np.arange(first, len(buffer.frames))], reasons
        return time.perf_counter_ns() - begun, 0, 0, 0, damaged

    def _copy_kept(self, buffer: FrameBuffer) -> tuple[int, list[tuple[int, str]]]:
        """Copy to a block the frames that were kept from the previous block.

        Returns the number of copied frames, and row and reason of the damaged ones.
        """
        if self._kept is None:
            return 0, []
        kept, reasons = self._kept
        first = int(np.searchsorted(kept.frames, buffer.frames[0]))
        n_kept = len(kept.frames) - first
        if not np.array_equal(kept.frames[first:], buffer.frames[:n_kept]):
            return 0, []
        for values, target in zip(kept.arrays(), buffer.arrays(), strict=True):
            if values is not None and target is not None:
                target[:n_kept] = values[first:]
        return n_kept, [(row - first, reason) for row, reason in reasons.items() if row >= first]

    def _read_frame(
        self, frame: int, row: int, buffer: FrameBuffer, required: Sequence[str]
    ) -> None:
        ts = self._trajectory[frame]
        held = fields_of(ts)
        for field in self._fields:
            if field not in held and field in required:
                raise MissingDataError(f"{self._trajectory.filename}: frame {frame} has no {field}")
            values = values_of(ts, field)[self._atoms] if field in held else np.nan
            buffer.array_of(field)[row] = values
        buffer.fields[row] = field_bits(held)
        buffer.cells[row] = cell_of(self._trajectory)[0]
        # Use the time of the reader, not that of the Timestep: for a chain of files, only the
        # reader adds the times of earlier files.
        buffer.times[row] = self._trajectory.time
        buffer.steps[row] = ts.data.get("step", ts.frame)
        # An observable of an H5MD file may also be named lambda, and have any shape.
        found = ts.data.get("lambda")
        buffer.lambdas[row] = found if isinstance(found, float) else 0.0


def open_trajectory(atomgroups: Sequence[AtomGroup]) -> Trajectory:
    """Open the common trajectory of groups of atoms of one Universe.

    Raises `UnsupportedError` if workers could not reproduce the trajectory, for several Universes,
    for an UpdatingAtomGroup, or for edited positions. Raises `FileChangedError` if MDAnalysis found
    another number of frames when it opened the file, `SelectionError` for an empty group, and
    `ValueError` without a group.
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
            raise SelectionError(
                "the group of atoms to analyse is empty: its selection matches none"
            )
    trajectory = universe.trajectory
    if type(trajectory) in (XTCReader, TRRReader) and trajectory._kwargs["sub"] is not None:
        # This reader writes all atoms into an array for the atoms of `sub`, from frame 1 on.
        raise UnsupportedError(
            f"MDAnalysis's {type(trajectory).__name__} is unsafe with sub=; use paceline.Universe"
        )
    if isinstance(trajectory, TeeSource):
        raise UnsupportedError(
            f"{trajectory.filename}: a stream has no last frame: analyse it with paceline.run or "
            "paceline.live"
        )
    _check_unedited(trajectory)
    if type(trajectory) is MemoryReader:
        return _in_memory(universe)
    if trajectory.transformations:
        return MDAnalysisTrajectory(universe, "frames are transformed by MDAnalysis")
    files = _open_files_behind(universe)
    if files is not None:
        return files
    name = type(trajectory).__name__
    return MDAnalysisTrajectory(universe, f"frames are read by MDAnalysis ({name})")


def _in_memory(universe: MDAnalysis.Universe) -> FileTrajectory:
    """Create the trajectory for the arrays of a `MemoryReader`.

    The arrays are transformed already: MDAnalysis applies a transformation to them when it is
    added.
    """
    reader = universe.trajectory
    name, order = attribute_of(reader, "filename") or UNNAMED, reader.stored_order
    if order.index("c") < order.index("a"):
        raise UnsupportedError(
            f"{name}: with order={order!r}, MDAnalysis returns positions as (3, atoms); pass an "
            "array of frames, atoms, coordinates (order='fac')"
        )
    arrays = {
        "positions": reader.coordinate_array,
        "velocities": reader.velocity_array,
        "forces": reader.force_array,
    }
    values = {}
    for field, array in arrays.items():
        if array is not None:
            values[field] = check_positions(array, order)
            found, known = values[field].shape[:2], (reader.n_frames, reader.n_atoms)
            if found != known:
                raise UnsupportedError(
                    f"{name}: expected {field} of {known[0]} frames of {known[1]} atoms, found "
                    f"{found[0]} of {found[1]}: load them anew, by load_new"
                )
    file = ArrayFile(
        values,
        dimensions=reader.dimensions_array,
        dt=reader.ts.dt,
        time_offset=reader.ts.data.get("time_offset", 0.0),
        name=str(name),
    )
    return _files_of(universe, ArrayChain(file), TimeAxis(), None, math.nan)


def _check_unedited(trajectory: ProtoReader) -> None:
    """Raise if values of the current frame were edited, because workers read the file's values."""
    shown = _numbers_of(trajectory.ts)
    try:
        again = trajectory[trajectory.ts.frame]
    except TypeError:  # a stream, which cannot read a frame again
        return
    except DamagedFileError:  # an unreadable frame cannot have been edited
        return
    held = _numbers_of(again)
    edited = [
        name
        for name in {"dimensions": None, **held}
        if not np.array_equal(shown.get(name, ()), held.get(name, ()), equal_nan=True)
    ]
    if edited:
        for name in edited:
            setattr(again, name, shown.get(name))
        if following := _following(trajectory):
            raise UnsupportedError(
                f"frame {again.frame} has other values if it is read again: {following} depends "
                "on the frames before, or the frame was edited; go to the first frame "
                "(universe.trajectory[0]) before the run"
            )
        raise UnsupportedError(
            f"the {' and '.join(edited)} of frame {again.frame} were edited, but an analysis would "
            "read the file's values; write the edited frames to a file, or load them into memory"
        )


def _following(trajectory: ProtoReader) -> str | None:
    """Name the first MDAnalysis transformation that needs frames in order; None without one."""
    for one in trajectory.transformations:
        if not getattr(one, "parallelizable", True):
            return function_name(one).rpartition(".")[2]
    return None


def _open_files_behind(universe: MDAnalysis.Universe) -> FileTrajectory | None:
    """Open the files, if the compiled module reads the same values as the trajectory's reader."""
    trajectory = universe.trajectory
    if isinstance(trajectory, Reader):
        if trajectory.is_collective:
            raise UnsupportedError(
                f"{trajectory.filename}: with collective=True, all ranks read each frame "
                "together, but in "
                "a run each rank reads only its own blocks; open it without collective=True"
            )
        sub = trajectory.sub
        if sub is None or (np.diff(sub) > 0).all():
            chain, time_axis = trajectory.chain, trajectory.time_axis
            return _files_of(universe, chain, time_axis, sub, trajectory.t_init)
    begun = time.perf_counter()
    behind = _chain_behind(trajectory)
    if behind is None:
        return None
    return _files_of(universe, *behind, None, time.perf_counter() - begun)


def _files_of(
    universe: MDAnalysis.Universe,
    chain: Chain,
    time_axis: TimeAxis,
    sub: np.ndarray | None,
    t_init_traj: float,
) -> FileTrajectory:
    """Create the trajectory of a Universe's files."""
    files = FileTrajectory(
        chain,
        time_axis,
        sub,
        cell=_set_cell(universe.trajectory),
        origin=_origin_of(universe),
        t_init_top=getattr(universe, "t_init_top", math.nan),
        t_init_traj=t_init_traj,
    )
    files.loaded = attribute_of(universe.trajectory, "loaded")
    return files


def _set_cell(trajectory: ProtoReader) -> np.ndarray | None:
    """Return the cell that a script has set for all frames because the files have none."""
    if isinstance(trajectory, Reader):
        cell = trajectory.set_cell
    else:
        # Of the readers that paceline replaces, only NetCDF's keeps a cell that a script has set.
        has_one = not isinstance(trajectory, NCDFReader) or trajectory.periodic
        cell = None if has_one else trajectory.ts.dimensions
    return None if cell is None else cell.copy()


def _origin_of(universe: MDAnalysis.Universe) -> dict[str, object]:
    """Describe MDAnalysis and the topology, for the provenance of results."""
    name = universe.filename
    found = {"MDAnalysis": MDAnalysis.__version__, "topology": name}
    # A file that is also the trajectory is not digested: it may be large, and has a fingerprint.
    trajectory = attribute_of(universe.trajectory, "filename")
    copied = attribute_of(universe, "_topology_file") or name
    if is_name(copied) and name != trajectory and (content := file_digest(copied)):
        found["topology sha256"] = content
    if address := attribute_of(universe.trajectory, "came_from"):
        found["trajectory"] = address
    return found


def _chain_behind(trajectory: ProtoReader) -> tuple[Chain, TimeAxis] | None:
    """Open the file of one of MDAnalysis's own readers; None if values would differ."""
    if type(trajectory) in _FRAME_BY_FRAME and trajectory.convert_units:
        return _frame_by_frame(trajectory)
    if type(trajectory) is H5MDReader and trajectory.convert_units:
        return _h5md(trajectory)
    return None


def _frame_by_frame(trajectory: ProtoReader) -> tuple[Chain, TimeAxis]:
    """Open a file; check that it has as many frames as MDAnalysis found."""
    given = trajectory._kwargs
    # For NetCDF, MDAnalysis prefers the times in the file.
    has_time = isinstance(trajectory, NCDFReader) and trajectory.has_time
    dt = None if has_time else given.get("dt")
    chain = Chain([trajectory.filename], times_given=dt is not None)
    if _counts(chain) != _counts(trajectory):
        raise FileChangedError(
            f"{chain.files[0].path}: MDAnalysis opened it with {trajectory.n_frames} frames of "
            f"{trajectory.n_atoms} atoms, but {chain.n_frames} complete frames of {chain.n_atoms} "
            "were found now; open it with paceline.Universe"
        )
    axis = time_axis_of(chain.files, dt)
    return chain, replace(axis, offset=given.get("time_offset", 0.0))


def _h5md(trajectory: ProtoReader) -> tuple[Chain, TimeAxis] | None:
    """Open an H5MD file; None if frames may differ from MDAnalysis's, which ignores steps and ids.

    Whether rows and atoms are the same is known for all frames from the index. Units and fields are
    the same in all frames, so that a few frames suffice.
    """
    if not isinstance(trajectory.filename, str):
        return None
    group = trajectory._particle_group.name.rpartition("/")[2]
    given = trajectory._kwargs
    offset = {"time_offset": given["time_offset"]} if "time_offset" in given else {}
    try:
        ours = Reader(trajectory.filename, group=group, **offset)
    except ExternalFileError:
        return None
    index = ours.chain.files[0].chunk_index
    if index.ids is not None:
        warn(
            f"{trajectory.filename}: MDAnalysis ignores the ids of atoms, whose order may change "
            "from frame to frame; paceline.Universe sorts atoms by id"
        )
    as_stored = index.is_as_stored and _counts(ours) == _counts(trajectory)
    return (ours.chain, ours.time_axis) if as_stored and _are_same(ours, trajectory) else None


def _counts(frames: Chain | ProtoReader) -> tuple[int, int]:
    """Return the numbers of frames and atoms."""
    return frames.n_frames, frames.n_atoms


def _are_same(ours: Reader, theirs: ProtoReader) -> bool:
    """Compare two readers at the first, a middle and the last frame."""
    present = theirs.frame
    try:
        for frame in {0, ours.n_frames // 2, ours.n_frames - 1}:
            held, shown = _numbers_of(ours[frame]), _numbers_of(theirs[frame])
            if held.keys() != shown.keys() or ours.ts.time != theirs.ts.time:
                return False
            if not all(np.array_equal(held[name], shown[name]) for name in held):
                return False
    except DamagedFileError:
        return False
    finally:
        theirs[present]
    return True


def _numbers_of(ts: Timestep) -> dict[str, np.ndarray]:
    """Copy the arrays of a Timestep, because the reader will overwrite them."""
    numbers = {field: np.array(values_of(ts, field)) for field in fields_of(ts)}
    if ts.dimensions is not None:
        numbers["dimensions"] = ts.dimensions.copy()
    return numbers
