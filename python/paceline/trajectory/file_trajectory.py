"""Trajectory files opened without a topology by `paceline.open`."""

import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, Self, overload
from weakref import WeakSet

import numpy as np

from paceline._util.arguments import one_of, slice_of
from paceline._util.machine_and_software import available_cpus, free_memory
from paceline._util.option_values_and_selections import ON_ERROR
from paceline.block import Block, FrameBuffer, field_bits, fields_in
from paceline.contract.loaded_atoms import LoadedAtoms
from paceline.contract.node_disk_cache import Cache
from paceline.contract.plan import Plan, make_plan, numbers_of
from paceline.contract.source import Extents, FrameSource, TimeAxis, time_axis_of
from paceline.errors import MissingDataError, UnsupportedError, warn, with_hint
from paceline.hdf5.open_hdf5_trajectory import Hdf5Options
from paceline.performance.number_format import amount, many
from paceline.trajectory.arrays import (
    NO_TIMES,
    UNNAMED,
    ArrayChain,
    ArrayFile,
    check_positions,
    refuse_numbers,
)
from paceline.trajectory.chain import Chain, Identifier
from paceline.trajectory.frames_without_topology import FileAtoms, Frame, FrameSequence
from paceline.trajectory.open import files_named
from paceline.trajectory.read_ahead import FieldReader

#: Selection of frames: a slice, frame numbers, or one boolean per frame; None for all.
Frames = slice | Sequence[int] | Sequence[bool] | np.ndarray | None
#: Selection of atoms, in this order: indices, or one boolean per atom; None for all.
Atoms = Sequence[int] | Sequence[bool] | np.ndarray | None

#: Chains for which the warning that several blocks read the same chunk was issued.
_warned: "WeakSet[Chain]" = WeakSet()


def open(
    files: str | os.PathLike | Sequence[str | os.PathLike] | np.ndarray,
    *,
    continuous: bool = False,
    dt: float | None = None,
    n_atoms: int | None = None,
    group: str | None = None,
    units: str | Mapping[str, str] | None = None,
    dataset: str | None = None,
    external: bool = False,
    cache: str | os.PathLike | None = None,
    cache_size: int | str | None = None,
) -> "FileTrajectory":
    """Open trajectory files without a topology, and without MDAnalysis.

    The format is recognised from the content of each file: XTC, TRR, DCD, Amber NetCDF, DL_POLY
    HISTORY and CONFIG, LAMMPS text dumps, and HDF5 (H5MD, MDTraj, plain datasets). Each file is
    indexed once, and its index is saved.

    Parameters
    ----------
    files : path-like, or a sequence of them, or numpy.ndarray of shape (n_frames, n_atoms, 3)
        One file, a pattern such as "md.part*.xtc", or several files in order. Alternatively an
        array of positions, Å, possibly memory-mapped; it is not copied, so later changes of it take
        effect.
    continuous : bool
        Order the files by time, and leave out frames that a later file repeats.
    dt : float, optional
        Time between frames, ps, which replaces the times in the file. For LAMMPS dumps, which store
        step numbers, the time between steps.
    n_atoms : int, optional
        Number of atoms that every frame must have.
    group, units, dataset, external : optional
        Options of HDF5 files, as in `paceline.Universe`. `units` also applies to LAMMPS dumps and
        LAMMPS DCD files.
    cache, cache_size : optional
        Folder on the local disk of each node in which blocks of the files are kept, and its
        maximum size, as in `paceline.Universe`.

    Returns
    -------
    FileTrajectory
        Trajectory whose frames are read as arrays.

    Raises
    ------
    FileNotFoundError
        A file is missing, or no file matches a pattern.
    UnsupportedError
        The format of a file is not recognised, no file has a complete frame, or an option applies
        only to HDF5 files.
    AtomCountError
        A file's number of atoms differs from that of the first file, or from `n_atoms`.
    DamagedFileError
        The first frame or the header of a file is damaged.
    ValueError
        An array has another shape, or contains no real numbers.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import XTC
    >>> with paceline.open(XTC) as trajectory:
    ...     positions = trajectory.positions(frames=slice(0, 10, 2), atoms=[0, 4])
    >>> positions.shape, positions.dtype
    ((5, 2, 3), dtype('float32'))
    """
    begun = time.perf_counter()
    options = Hdf5Options(group, units, dataset, external=external)
    kept = Cache.of(cache, cache_size)
    if isinstance(files, np.ndarray):
        if kept is not None:
            raise UnsupportedError(f"{UNNAMED}: cache= applies to files only")
        return _open_array(files, options, continuous=continuous, dt=dt, n_atoms=n_atoms)
    if not isinstance(files, list | tuple):
        refuse_numbers(files)
    given = [files] if isinstance(files, str | os.PathLike) else list(files)
    for one in given:
        refuse_numbers(one)
    chain = Chain(
        [name for one in given for name in files_named(one)],
        n_atoms=n_atoms,
        options=options,
        continuous=continuous,
        varying=True,
        # Times that the user replaces do not show whether the simulation was restarted.
        quiet=dt is not None,
        times_given=dt is not None,
        cache=kept,
    )
    axis = time_axis_of(chain.files, dt)
    opened = time.perf_counter() - begun
    return FileTrajectory(chain, axis, t_init_traj=opened, reads_cache=True)


def _open_array(
    array: np.ndarray,
    options: Hdf5Options,
    *,
    continuous: bool,
    dt: float | None,
    n_atoms: int | None,
) -> "FileTrajectory":
    """Open an array of positions as a trajectory."""
    if continuous or options != Hdf5Options():
        raise UnsupportedError(
            f"{UNNAMED}: continuous=, group=, units=, dataset= and external= apply to files only"
        )
    file = ArrayFile(
        {"positions": check_positions(array)},
        dt=1.0 if dt is None else dt,
        time_doubt=NO_TIMES if dt is None else None,
    )
    chain = ArrayChain(file, n_atoms=n_atoms)
    return FileTrajectory(chain, time_axis_of(chain.files, dt))


def describe_trajectory(trajectory: Any) -> str:
    """Describe an open trajectory in one line, for its `repr`."""
    files = trajectory.filenames
    more = f"and {len(files) - 1} more " if len(files) > 1 else ""
    return (
        f"<{type(trajectory).__name__} {files[0]} {more}"
        f"with {trajectory.n_frames} frames of {_atoms_in_words(trajectory)} atoms>"
    )


def _atoms_in_words(trajectory: Any) -> str:
    """Describe the number of atoms; if the number varies, by the minimum and the maximum."""
    if trajectory.chain.varying is None:
        return str(trajectory.n_atoms)
    counts = trajectory.chain.atom_counts
    return f"{counts[counts > 0].min()} to {counts.max()}"


def _raise_first_error(reading: FieldReader, decoded: FrameBuffer, rows: Iterable[int]) -> None:
    """Read frames that could not be read again, one by one; the first one raises its error."""
    try:
        for row in rows:
            reading.decode((decoded, slice(row, row + 1)), skip=False)
    except MissingDataError as error:
        remedy = 'blocks(on_error="skip") leaves such frames out'
        raise with_hint(error, remedy) from None


class Trajectory(ABC):
    """Open trajectory in the user's process: the interface that a run needs."""

    #: True if other workers than the calling thread can read the trajectory.
    shareable: bool
    n_atoms: int
    n_frames: int
    #: Chain of files, if the compiled module decodes them.
    chain: Chain | None = None
    #: True if the frames are in arrays, so that workers need not prefetch.
    in_memory = False
    #: Atoms that a Universe has loaded; None if it has loaded all atoms.
    loaded: LoadedAtoms | None = None
    #: Number of adjacent frames that are stored as one chunk and read together.
    chunk_frames = 1
    #: Times to parse the topology and to open the trajectory, s; NaN if unknown.
    t_init_top = t_init_traj = math.nan

    @abstractmethod
    def extents(self, frames: np.ndarray) -> Extents:
        """Return the extents of frames: their files, and where the frames are in them."""

    def locator(self, source: FrameSource, *, by_file: bool) -> Callable[[np.ndarray], Extents]:
        """Return the function that locates frames for workers, which read from `source`.

        `by_file` is true if the workers are processes of this machine, and can open files that this
        process writes.
        """
        return self.extents

    @property
    def identity(self) -> Sequence[Identifier]:
        """Identifiers by which a checkpoint recognises the frames, the trajectory first."""
        found = self.provenance()
        return [("trajectory", str(found["trajectory"]), found["fingerprint"])]

    @abstractmethod
    def frame_bytes(self, atoms: np.ndarray) -> float:
        """Return the approximate number of bytes to read per frame for these atoms."""

    @abstractmethod
    def warn_of_rereading(self, plan: Plan) -> None:
        """Warn once if blocks are so small that several blocks read the same chunk."""

    @property
    @abstractmethod
    def fields(self) -> Sequence[str]:
        """Fields that the frames may contain, a subset of `paceline.block.FIELDS`."""

    @property
    def time_doubt(self) -> str | None:
        """Reason why the times of frames are unknown; None if they are known."""
        return None

    @abstractmethod
    def frame_source(
        self,
        atoms: np.ndarray,
        fields: Sequence[str],
        required: Sequence[str],
        *,
        n_again: int = 0,
    ) -> FrameSource:
        """Create the source from which workers read some fields of some atoms.

        The last `n_again` frames of a block are read again as the first frames of the next block.
        """

    @abstractmethod
    def verify(self) -> None:
        """Raise `FileChangedError` if a file has changed since it was opened."""

    @abstractmethod
    def restore_frame(self) -> None:
        """Return to the frame that was current before the run."""

    @abstractmethod
    def provenance(self) -> dict[str, object]:
        """Return versions, files and fingerprints, for the provenance of results."""


class FileTrajectory(Trajectory):
    """Trajectory files whose frames are read as arrays; `paceline.open` creates it.

    A trajectory is a sequence of frames. ``trajectory[10]`` and ``trajectory[-1]`` are frames;
    ``trajectory[::10]`` and ``trajectory[[3, 1]]`` are sequences of frames; a loop over any
    sequence yields its frames. Loops, `blocks` and the methods that return arrays decode frames on
    all cores, and decode the next frames while you work on the current one. Later frames and blocks
    never overwrite the arrays of earlier ones. Units are Å, ps, degrees and kJ/(mol·Å).

    The analyses `TimeSeries`, `Reduce`, `Scan`, `RaggedTimeSeries` and `Write` need no topology,
    and accept the trajectory in place of an AtomGroup. ``trajectory.atoms[indices]`` selects some
    of its atoms.

    Attributes
    ----------
    n_frames, n_atoms : int
        Number of complete frames, and number of atoms in each frame. `n_atoms` raises
        `UnsupportedError` if the number varies, as it may in LAMMPS dumps. Such frames are read one
        by one.
    atom_counts : numpy.ndarray of int64, shape (n_frames,)
        Number of atoms of each frame; 0 if it is unknown in a damaged frame.
    filenames : list of str
        Files that contain the frames, in order.
    format : str
        Format of the files, as `paceline info` prints it; several formats are separated by commas.
    fields : tuple of str
        Fields that the frames may contain: "positions", "velocities", "forces".
    times : numpy.ndarray of float64, shape (n_frames,)
        Times of the frames, ps; NaN if a time is not known.
    dt : float
        Time between frames, ps: the value that was set; otherwise that of the first header, or of
        the first two frames; 0 if there is none.
    atoms : FileAtoms
        All atoms, for analyses.
    """

    shareable = True
    chain: Chain

    def __init__(
        self,
        chain: Chain,
        time_axis: TimeAxis,
        sub: np.ndarray | None = None,
        *,
        cell: np.ndarray | None = None,
        origin: Mapping[str, object] | None = None,
        t_init_top: float = math.nan,
        t_init_traj: float = math.nan,
        reads_cache: bool = False,
    ):
        # `sub` contains the topology's atoms as increasing indices in the files, and `origin`
        # describes the topology. `cell` is set by a script if the files contain no cell. Workers
        # read through the cache of the chain. This process does so only with `reads_cache`, because
        # its node may not have a folder for the cache.
        self._reads_cache = reads_cache
        self.chain = chain
        self.t_init_top, self.t_init_traj = t_init_top, t_init_traj
        self.n_frames = chain.n_frames
        self.chunk_frames, self.in_memory = chain.chunk_frames, chain.in_memory
        self._time_axis = time_axis
        self._sub = sub
        self._cell = cell
        self._origin = origin or {}
        self._files_read: set[int] = set()
        self._closed = False

    # The following methods are for users: a sequence of frames, and arrays.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all files. Frames can no longer be read; arrays stay valid."""
        self._closed = True
        vars(self).pop("_frame_reading", None)
        for pieces in list(self._loops):
            with suppress(ValueError):  # another thread is reading; it closes the file afterwards
                pieces.close()

    def extend(self) -> int:
        """Include the frames that were appended to the last file since it was opened.

        Returns
        -------
        int
            Number of new frames.

        Raises
        ------
        FileChangedError
            The file was replaced, truncated or rewritten.
        UnsupportedError
            The trajectory cannot grow, for example because it is an array, an HDF5 file, or files
            whose frames were ordered by time.
        """
        self._check_open()
        before, self.chain = self.n_frames, self.chain.extended()
        self.n_frames = self.chain.n_frames
        for name in ("_frame_reading", "times", "dt"):  # they are computed again when needed
            vars(self).pop(name, None)
        return self.n_frames - before

    def __len__(self) -> int:
        return self.n_frames

    def __iter__(self) -> Iterator[Frame]:
        return iter(self[:])

    @overload
    def __getitem__(self, frames: int) -> Frame: ...
    @overload
    def __getitem__(
        self, frames: slice | Sequence[int] | Sequence[bool] | np.ndarray
    ) -> FrameSequence: ...
    def __getitem__(self, frames: Any) -> Frame | FrameSequence:
        """Read one frame, or select a sequence of frames that are read on demand."""
        if isinstance(frames, int | np.integer):
            return self.read_frame(int(numbers_of([frames], self.n_frames, "frame")[0]))
        return FrameSequence(self, self._numbers(frames))

    def __repr__(self) -> str:
        return describe_trajectory(self)

    def __getstate__(self) -> dict[str, object]:
        of_process = ("_frame_reading", "_loops")
        return {name: value for name, value in vars(self).items() if name not in of_process}

    @property
    def n_atoms(self) -> int:  # type: ignore[override]
        """Number of atoms of each frame. Raises `UnsupportedError` if the number varies."""
        return self.chain.n_atoms if self._sub is None else len(self._sub)

    @property
    def atom_counts(self) -> np.ndarray:
        """Number of atoms of each frame: numpy.ndarray of int64, shape (n_frames,)."""
        if self._sub is not None:
            return np.full(self.n_frames, self.n_atoms)
        return self.chain.atom_counts

    @property
    def filenames(self) -> list[str]:
        """Files that contain the frames, in order."""
        return list(self.chain.names)

    @property
    def filename(self) -> str:
        """First file of the trajectory."""
        return self.chain.names[0]

    @property
    def format(self) -> str:
        """Format of the files; several formats are separated by commas."""
        return ", ".join(dict.fromkeys(file.format for file in self.chain.files))

    @property
    def time_doubt(self) -> str | None:
        """Reason why the times of frames are unknown; None if they are known or set by `dt`."""
        return self._time_axis.doubt

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields that the frames of any file may contain."""
        return fields_in(self.chain.fields)

    @cached_property
    def times(self) -> np.ndarray:
        """Times of all frames, ps, found without decoding them: float64, shape (n_frames,)."""
        times = np.array(self._time_axis(np.arange(self.n_frames), *self.chain.times_and_steps()))
        times.flags.writeable = False
        return times

    @cached_property
    def dt(self) -> float:
        """Time between frames, ps: the value that was set, or that in the files; 0 without both."""
        return self.chain.spacing(self._time_axis)

    @property
    def atoms(self) -> FileAtoms:
        """All atoms, which analyses accept in place of an AtomGroup."""
        return FileAtoms(self, np.arange(self.n_atoms))

    @property
    def trajectory(self) -> Self:
        """The trajectory itself: analyses take the attribute `trajectory` of a Universe."""
        return self

    def select_atoms(self, *selections: str, **groups: object) -> Any:
        """Raise `UnsupportedError`, because a selection needs a topology."""
        raise UnsupportedError(
            f"{self.filename}: it was opened without a topology, which a selection needs: use "
            "paceline.Universe, or atoms[indices]"
        )

    def positions(self, *, frames: Frames = None, atoms: Atoms = None) -> np.ndarray:
        """Read positions into one array. Use `blocks` to skip unreadable frames.

        Parameters
        ----------
        frames : slice, sequence of int or of bool, optional
            Frames, in this order; all frames by default.
        atoms : sequence of int or of bool, optional
            Atom indices, in this order; all atoms by default.

        Returns
        -------
        numpy.ndarray of float32, shape (n_frames, n_atoms, 3)
            Positions, Å.

        Raises
        ------
        MissingDataError
            The files, or one of the frames, contain no positions.
        DamagedFileError
            A frame cannot be read.
        UnsupportedError
            The array is larger than the free memory.
        """
        return self._array("positions", frames, atoms)

    def velocities(self, *, frames: Frames = None, atoms: Atoms = None) -> np.ndarray:
        """Read velocities into one array, as `positions` does.

        Parameters
        ----------
        frames, atoms : optional
            As for `positions`.

        Returns
        -------
        numpy.ndarray of float32, shape (n_frames, n_atoms, 3)
            Velocities, Å/ps.
        """
        return self._array("velocities", frames, atoms)

    def forces(self, *, frames: Frames = None, atoms: Atoms = None) -> np.ndarray:
        """Read forces into one array, as `positions` does.

        Parameters
        ----------
        frames, atoms : optional
            As for `positions`.

        Returns
        -------
        numpy.ndarray of float32, shape (n_frames, n_atoms, 3)
            Forces, kJ/(mol·Å).
        """
        return self._array("forces", frames, atoms)

    def dimensions(self, *, frames: Frames = None) -> np.ndarray:
        """Read cells without reading positions.

        Parameters
        ----------
        frames : slice, sequence of int or of bool, optional
            Frames, in this order; all frames by default.

        Returns
        -------
        numpy.ndarray of float32, shape (n_frames, 6)
            Lengths (Å) and angles (degrees); zeros for a frame without a cell.
        """
        return self._read(frames, None, ()).dimensions

    def blocks(
        self,
        *,
        frames: Frames = None,
        atoms: Atoms = None,
        fields: Sequence[str] = ("positions",),
        n_frames: int | None = None,
        on_error: str = "raise",
    ) -> Iterator[Block]:
        """Iterate over blocks of frames; the next blocks are decoded in the background.

        Parameters
        ----------
        frames : slice, sequence of int or of bool, optional
            Frames, in this order; all frames by default.
        atoms : sequence of int or of bool, optional
            Atom indices, in this order; all atoms by default.
        fields : sequence of str
            Fields to decode for each block: "positions", "velocities", "forces".
        n_frames : int, optional
            Number of frames in a block; the last block may be shorter. By default a block has up to
            16 MiB, or ends at chunk boundaries of the file.
        on_error : {"raise", "skip"}
            Treatment of a frame that cannot be read: raise an error, or omit the frame from its
            block, with a warning. `Block.frames` contains the numbers of the remaining frames.

        Returns
        -------
        iterator of paceline.block.Block
            Blocks with `positions`, `dimensions`, `times`, `steps` and `frames`. Frames decoded
            ahead of the current block use up to 64 MiB, or the size of one block.

        Raises
        ------
        MissingDataError
            The files, or one of the frames, lack a field.
        DamagedFileError
            A frame cannot be read, and `on_error` is "raise"; earlier blocks have been returned.
        ValueError
            A field is unknown, or a number is out of range.

        Examples
        --------
        >>> import paceline
        >>> from MDAnalysisTests.datafiles import XTC
        >>> trajectory = paceline.open(XTC)
        >>> for block in trajectory.blocks(atoms=range(100), n_frames=4):
        ...     print(block.frames, block.positions.shape)
        [0 1 2 3] (4, 100, 3)
        [4 5 6 7] (4, 100, 3)
        [8 9] (2, 100, 3)
        """
        if n_frames is not None and n_frames < 1:
            raise ValueError(f"expected n_frames of 1 or more, found {n_frames}")
        one_of("on_error", on_error, *ON_ERROR)
        reading = self._reading(atoms, fields, fields)
        numbers = self._numbers(frames)
        skip = on_error == "skip"
        if n_frames is None:
            return self._planned_blocks(reading, numbers, skip)
        return self._equal_blocks(reading, numbers, n_frames, skip)

    def _planned_blocks(
        self, reading: FieldReader, numbers: np.ndarray, skip: bool
    ) -> Iterator[Block]:
        """Yield blocks of the default size, which is that of analyses."""
        if not len(numbers):
            return
        plan = make_plan(
            numbers,
            n_atoms=self.n_atoms,
            n_wanted=reading.n_atoms,
            frame_bytes=self.chain.bytes_per_frame,
            n_workers=available_cpus(),
            chunk_frames=self.chunk_frames,
        )
        parts = (numbers[rows] for rows in plan.blocks())
        for decoded in self._decode_parts(reading, parts, plan.block_frames, skip):
            yield Block(decoded, None, {})

    def _equal_blocks(
        self, reading: FieldReader, numbers: np.ndarray, n_frames: int, skip: bool
    ) -> Iterator[Block]:
        """Yield blocks of equal numbers of frames; several small blocks are decoded together."""
        together = n_frames * max(1, reading.piece_frames(numbers) // n_frames)
        parts = (numbers[k : k + together] for k in range(0, len(numbers), together))
        for decoded in self._decode_parts(reading, parts, n_frames, skip):
            yield Block(decoded, None, {})

    def iter_frames(self, numbers: np.ndarray) -> Iterator[Frame]:
        """Yield frames by number; several are decoded together if the number of atoms is fixed."""
        if self.chain.varying is not None:
            yield from (self.read_frame(int(number)) for number in numbers)
            return
        reading = self._reading(None, self.fields, ())
        together = reading.piece_frames(numbers)
        parts = (numbers[k : k + together] for k in range(0, len(numbers), together))
        for decoded in self._decode_parts(reading, parts, 1, skip=False):
            yield self._frame(decoded, 0)

    def read_frame(self, number: int) -> Frame:
        """Read one frame, in this thread."""
        if self.chain.varying is not None:
            return self._frame(self.read_varying_frame(number), 0)
        return self._frame(self._frame_reading.read_alone(number), 0)

    def read_varying_frame(self, number: int, *, check_validity: bool = False) -> FrameBuffer:
        """Read one frame of files in which the number of atoms may vary.

        If `check_validity` is true, the buffer contains, instead of positions, velocities and
        forces, the result of a check whether they are valid.
        """
        self._check_open()
        file, extents = self.chain.extent(number)
        spec, n_atoms = self.chain.files[file].spec_of(int(extents.frames[0]))
        decoded = FrameBuffer.allocate(
            np.array([number]), n_atoms, self.fields, check_validity=check_validity
        )
        spec.open(None, field_bits(self.fields)).read(extents, decoded, required=0, skip=False)
        decoded.times[:] = self._time_axis(decoded.frames, decoded.times, decoded.steps)
        return decoded

    def _frame(self, decoded: FrameBuffer, row: int) -> Frame:
        """Create a `Frame` from one row of a buffer of decoded frames."""
        number = int(decoded.frames[row])
        cell = decoded.cells[row, :6].astype(np.float32)
        held = fields_in(int(decoded.fields[row]))
        return Frame(
            self.chain.names[self.chain.locate(number)[0]],
            number,
            float(decoded.times[row]),
            int(decoded.steps[row]),
            cell if cell.any() else None,
            decoded.cells[row],
            {field: decoded.array_of(field)[row] for field in held},
        )

    def _array(self, field: str, frames: Frames, atoms: Atoms) -> np.ndarray:
        """Read one field of the selected frames and atoms."""
        return self._read(frames, atoms, (field,)).array_of(field)

    def _read(self, frames: Frames, atoms: Atoms, fields: Sequence[str]) -> FrameBuffer:
        """Read fields of the selected frames; every frame must contain the fields."""
        reading = self._reading(atoms, fields, fields)
        numbers = self._numbers(frames)
        needed, free = 12 * reading.n_atoms * len(fields) * len(numbers), free_memory()
        if free is not None and needed > free:
            raise UnsupportedError(
                f"{self.filename}: {many(len(numbers), 'frame')} of "
                f"{many(reading.n_atoms, 'atom')} need {amount(needed)}, but {amount(free)} of "
                "memory are free: choose fewer, or read them by blocks() of paceline.open"
            )
        for decoded in self._decode_parts(reading, [numbers], max(1, len(numbers)), skip=False):
            return decoded
        return reading.allocate(numbers)  # no frame is chosen

    def _decode_parts(
        self, reading: FieldReader, parts: Iterable[np.ndarray], n_frames: int, skip: bool
    ) -> Iterator[FrameBuffer]:
        """Yield the frames of each part in groups of `n_frames`.

        If a frame is damaged, omit it if `skip` is true, and otherwise raise its error.
        """
        warned = False
        with closing(reading.read(parts)) as pieces:
            self._check_open()
            self._loops.add(pieces)
            for decoded, damaged in pieces:
                self._check_open()
                for first in range(0, len(decoded.frames), n_frames):
                    some = decoded[first : first + n_frames]
                    lost = [(k - first, why) for k, why in damaged if 0 <= k - first < n_frames]
                    if lost and not skip:
                        _raise_first_error(reading, some, [row for row, _ in lost])
                    elif lost:
                        if not warned:
                            left = 'frames that cannot be read are left out (on_error="skip")'
                            warn(f"{lost[0][1]}; {left}")
                            warned = True
                        whole = np.ones(len(some.frames), dtype=bool)
                        whole[[row for row, _ in lost]] = False
                        some = some[whole]
                    if len(some.frames):
                        yield some
                        self._check_open()

    def _numbers(self, frames: Frames) -> np.ndarray:
        """Return the numbers of the selected frames."""
        if frames is None or isinstance(frames, slice):
            chosen = frames or slice(None)
            return np.arange(self.n_frames)[slice_of(chosen.start, chosen.stop, chosen.step)]
        return numbers_of(frames, self.n_frames, "frame")

    def _reading(self, atoms: Atoms, fields: Sequence[str], required: Sequence[str]) -> FieldReader:
        """Create a reader of some fields for atoms in any order."""
        self._check_open()
        held = field_bits(fields) & field_bits(self.fields)
        if field_bits(required) & ~held:
            lacking = " and ".join(field for field in required if field not in self.fields)
            raise MissingDataError(
                f"{self.filename}: {lacking} were requested, but the trajectory contains "
                f"{' and '.join(self.fields)} only"
            )
        decoded, columns = np.arange(self.n_atoms), None
        if atoms is not None:
            wanted = numbers_of(atoms, self.n_atoms, "atom")
            if len(wanted) == 0:
                raise ValueError(f"{self.filename}: no atoms are chosen")
            decoded, inverse = np.unique(wanted, return_inverse=True)
            columns = None if np.array_equal(decoded, wanted) else inverse
        source = self.frame_source(decoded, fields_in(field_bits(fields)), required)
        if source.cache is not None and not (self._reads_cache or source.cache.is_temporary):
            source = replace(source, cache=None)
        return FieldReader(self.chain, source, columns)

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"{self.filename}: the trajectory is closed")

    @cached_property
    def _loops(self) -> "WeakSet[Generator[object, None, None]]":
        """Generators of unfinished loops over frames, which may keep files open."""
        return WeakSet()

    @cached_property
    def _frame_reading(self) -> FieldReader:
        """Reader of single frames, which may keep files open."""
        return self._reading(None, self.fields, ())

    # The following methods implement the interface `Trajectory`, which a run uses.

    def extents(self, frames: np.ndarray) -> Extents:
        """Return the extents of frames, whose files are then verified at the end of the run."""
        extents = self.chain.extents(frames)
        self._files_read.update(extents.files.tolist())
        return extents

    def locator(self, source: FrameSource, *, by_file: bool) -> Callable[[np.ndarray], Extents]:
        """Return the function that locates frames for workers, which read from `source`.

        The files of located frames are verified at the end of the run.
        """
        locate = self.chain.locator(source, by_file=by_file)

        def find(frames: np.ndarray) -> Extents:
            extents = locate(frames)
            self._files_read.update(extents.files.tolist())
            return extents

        return find

    @property
    def identity(self) -> Sequence[Identifier]:
        """Identifiers by which a checkpoint recognises the frames, the trajectory first."""
        found = self.provenance()
        cell = f", cell {found['cell']}" if "cell" in found else ""
        files = "trajectory", f"{found['trajectory']}{cell}", (self.chain.content, self._cell)
        chosen = self._sub
        if chosen is not None and len(chosen) == self.chain.n_atoms:
            chosen = None  # the indices are increasing
        shown = "all" if chosen is None else f"{len(chosen)} of {self.chain.n_atoms}"
        return [files, *self.chain.choices, ("atoms of the files", shown, chosen)]

    def frame_bytes(self, atoms: np.ndarray) -> float:
        """Return the approximate number of bytes to read per frame for these atoms."""
        return self.chain.frame_bytes(self._in_file(atoms))

    def warn_of_rereading(self, plan: Plan) -> None:
        """Warn once if blocks are so small that several blocks read the same chunk."""
        if plan.chunk_reads == 1 or self.chain in _warned:
            return
        _warned.add(self.chain)
        file = max(self.chain.files, key=lambda file: file.chunk_frames)
        # `repack` changes H5MD files only; `convert` makes an H5MD file from other formats.
        command = "repack" if file.format == "H5MD" else "convert"
        warn(
            f"{file.path}: {self.chunk_frames} frames are stored as one chunk, too large to keep "
            "in "
            f"memory for each worker. Each block of {plan.block_frames} frames reads and decodes "
            f"the whole chunk, so that frames are read up to {plan.chunk_reads} times, and reading "
            f"takes up to as many times as long; paceline {command} {file.path} NEW.h5md "
            "--for frames writes a file that is read once"
        )

    def frame_source(
        self,
        atoms: np.ndarray,
        fields: Sequence[str],
        required: Sequence[str],
        *,
        n_again: int = 0,
    ) -> FrameSource:
        """Create the source from which workers read some fields of some atoms."""
        self._check_open()
        decoded = None if len(atoms) == self.chain.n_atoms else self._in_file(atoms)
        given = self._time_axis, self._cell, self.chain.n_atoms, self.chain.cache
        return FrameSource(self.chain.specs, decoded, len(atoms), fields, required, *given)

    def _in_file(self, atoms: np.ndarray) -> np.ndarray:
        """Convert atom indices of the topology to indices in the files."""
        return atoms if self._sub is None else self._sub[atoms]

    def verify(self) -> None:
        """Raise `FileChangedError` if a file has changed since it was opened."""
        for k in sorted(self._files_read):
            self.chain.files[k].verify()

    def restore_frame(self) -> None:
        """Do nothing: workers read the frames, and the current frame stays the same."""

    def provenance(self) -> dict[str, object]:
        """Return files, fingerprints and warnings, for the provenance of results."""
        files = ", ".join(file.path for file in self.chain.files)
        found = {
            **self._origin,
            "trajectory": self._origin.get("trajectory", files),
            "fingerprint": ", ".join(file.fingerprint for file in self.chain.files),
        }
        if self._cell is not None:
            cell = " ".join(f"{number:g}" for number in self._cell)
            found["cell"] = f"{cell} (Å, °), set by the script"
        doubts = [file.length_doubt for file in self.chain.files if file.length_doubt]
        if doubts:
            found["lengths"] = f"taken to be in Å: {doubts[0]} (units=, --units)"
        if self.chain.warnings:
            found["warnings"] = "; ".join(self.chain.warnings)
        return found
