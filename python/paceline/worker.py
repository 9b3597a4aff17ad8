"""What a worker does with one block: read, decode, compute. It imports no MDAnalysis."""

import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import cloudpickle
import numpy as np

from paceline import _core
from paceline.errors import AnalysisError, WorkerError
from paceline.plan import fold
from paceline.timing import BlockTiming

#: Step number of a frame that was left out; no file can hold it.
DAMAGED_STEP = -(2**63)


class Block:
    """A row of frames, with the atoms that an analysis asked for.

    Its arrays are shared by all analyses of a run, and therefore read-only.

    Attributes
    ----------
    positions : numpy.ndarray of float32, shape (n_frames, n_atoms, 3)
        Å.
    dimensions : numpy.ndarray of float32, shape (n_frames, 6)
        Lengths of the cell (Å) and its angles (degrees); zeros where there is none.
    times : numpy.ndarray of float64, shape (n_frames,)
        ps.
    steps : numpy.ndarray of int64, shape (n_frames,)
        Step numbers of the simulation.
    frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers in the trajectory.
    masses, charges, names : numpy.ndarray, shape (n_atoms,)
        Of the atoms (u, e); `AttributeError` where the topology has none.
    """

    def __init__(
        self,
        decoded: "Decoded",
        columns: np.ndarray | None,
        attributes: Mapping[str, np.ndarray],
    ):
        self._decoded = decoded
        self._columns = columns
        self._attributes = attributes

    @cached_property
    def positions(self) -> np.ndarray:
        """Positions, Å: numpy.ndarray of float32, shape (n_frames, n_atoms, 3)."""
        if self._columns is None:
            return self._decoded.positions
        # Indexing would put atoms before frames in memory, and NumPy's sums into another order:
        # a function would give other bits where it is run together with another analysis.
        positions = np.take(self._decoded.positions, self._columns, axis=1)
        positions.flags.writeable = False
        return positions

    @property
    def raw(self) -> tuple[np.ndarray, np.ndarray | None]:
        """All decoded positions and the columns of them that are this block's (None: all)."""
        return self._decoded.positions, self._columns

    @property
    def dimensions(self) -> np.ndarray:
        """Cells, Å and degrees: numpy.ndarray of float32, shape (n_frames, 6)."""
        return self._decoded.dimensions

    @property
    def times(self) -> np.ndarray:
        """Times, ps: numpy.ndarray of float64, shape (n_frames,)."""
        return self._decoded.times

    @property
    def steps(self) -> np.ndarray:
        """Step numbers: numpy.ndarray of int64, shape (n_frames,)."""
        return self._decoded.steps

    @property
    def frames(self) -> np.ndarray:
        """Frame numbers: numpy.ndarray of int64, shape (n_frames,)."""
        return self._decoded.frames

    def __len__(self) -> int:
        return len(self._decoded.frames)

    def __getitem__(self, rows: slice | np.ndarray) -> "Block":
        return Block(self._decoded[rows], self._columns, self._attributes)

    def __getattr__(self, name: str) -> np.ndarray:
        try:
            return self.__dict__["_attributes"][name]
        except KeyError:
            raise AttributeError(f"a block of these atoms has no {name!r}") from None


@dataclass(frozen=True, slots=True)
class Decoded:
    """The arrays of a block, all atoms that any analysis asked for."""

    frames: np.ndarray
    positions: np.ndarray
    dimensions: np.ndarray
    times: np.ndarray
    steps: np.ndarray

    def seal(self) -> None:
        """Let nobody write to what all analyses of a run see."""
        for array in (self.frames, self.positions, self.dimensions, self.times, self.steps):
            array.flags.writeable = False

    def __getitem__(self, rows: slice | np.ndarray) -> "Decoded":
        return Decoded(
            self.frames[rows],
            self.positions[rows],
            self.dimensions[rows],
            self.times[rows],
            self.steps[rows],
        )


class PerFrame(Protocol):
    """The worker's half of an analysis that gives one row a frame."""

    def compute(self, block: Block) -> np.ndarray:
        """Rows of the block's frames, shape (n_frames, …)."""


class Reduction(Protocol):
    """The worker's half of an analysis that gives one result for all frames.

    A partial result must carry what can be merged exactly: counts and moments, never means alone.
    """

    def compute(self, block: Block) -> Any:
        """Partial result of one leaf."""

    def merge(self, left: Any, right: Any) -> Any:
        """Partial result of two neighbours."""


@dataclass(frozen=True)
class Part:
    """The worker's half of one analysis, and the atoms that are its."""

    name: str
    computation: PerFrame | Reduction
    columns: np.ndarray | None
    attributes: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def reduces(self) -> bool:
        """Whether it gives one result for all frames."""
        return hasattr(self.computation, "merge")


@dataclass(frozen=True)
class Clock:
    """Times of frames: the file's, or those that the user set in their place.

    Attributes
    ----------
    first : float
        What the first frame counts as, in frames.
    dt : float, optional
        Time between frames, ps, in place of the file's times.
    offset : float
        Added to all times, ps.
    """

    first: float = 0.0
    dt: float | None = None
    offset: float = 0.0

    def __call__(self, frames: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Times of frames, ps, given those in the file."""
        if self.dt is not None:
            times = (frames + self.first) * self.dt
        return times + self.offset if self.offset else times


class FrameSource(Protocol):
    """Where a worker's frames come from."""

    @property
    def n_wanted(self) -> int:
        """Number of atoms that are decoded."""

    @property
    def clock(self) -> Clock:
        """Times of the frames."""

    def open(self) -> Any:
        """A reader with the methods `read` and `read_ahead` of `_core.Reader`."""


@dataclass(frozen=True)
class FileFrames:
    """Frames of a file that the core decodes: all that a worker must know of it.

    Attributes
    ----------
    path : str
    layout : bytes
        How the file's frames are coded.
    fingerprint : str
        What the file was recognised by when it was indexed.
    atoms : numpy.ndarray of int64 or None
        Atoms to be decoded, increasing; None for all.
    n_wanted : int
        Their number.
    clock : Clock
    """

    path: str
    layout: bytes
    fingerprint: str
    atoms: np.ndarray | None
    n_wanted: int
    clock: Clock

    def open(self) -> "_core.Reader":
        """Open the file, and make sure that it is the one that was indexed."""
        return _core.Reader(self.path, self.layout, self.fingerprint, atoms=self.atoms)


@dataclass(frozen=True)
class Job:
    """What every block of a run has in common."""

    source: FrameSource
    parts: Sequence[Part]
    leaf_frames: int
    skip_damaged: bool


@dataclass(frozen=True)
class Work:
    """One block for one worker, with its own slice of the index.

    Attributes
    ----------
    number : int
        The block.
    first : int
        Its first row in the results.
    extents : tuple of three numpy.ndarray of uint64, shape (n_frames,)
        Frame numbers, byte offsets and sizes.
    ahead : the same, or None
        The block that this worker is likely to be dealt next.
    """

    number: int
    first: int
    extents: tuple[np.ndarray, np.ndarray, np.ndarray]
    ahead: tuple[np.ndarray, np.ndarray, np.ndarray] | None


@dataclass(frozen=True)
class Outcome:
    """What a worker returns of one block.

    Attributes
    ----------
    number, first, n_frames : int
        The block, its first row and its frames.
    values : list
        Of each analysis its rows, or its partial result merged over the block's leaves.
    times : numpy.ndarray of float64, shape (n_frames,)
        ps.
    damaged : list of (int, str)
        Frame number and reason of each frame that was left out.
    timing : BlockTiming
    """

    number: int
    first: int
    n_frames: int
    values: list[Any]
    times: np.ndarray
    damaged: list[tuple[int, str]]
    timing: BlockTiming


class Worker:
    """Does blocks of one job, one after another; opens the file at the first."""

    def __init__(self, job: Job):
        self._job = job
        self._reader: Any = None
        self._name = f"{socket.gethostname()}:{os.getpid()}:{threading.get_native_id()}"

    def run(self, work: Work) -> Outcome:
        """Read, decode and compute one block.

        Raises
        ------
        DamagedFileError
            A frame cannot be read and is not to be skipped.
        AnalysisError
            An analysis raised, or returned rows of a wrong shape.
        """
        start = time.monotonic_ns()
        if self._reader is None:
            self._reader = self._job.source.open()
        opened = time.monotonic_ns()
        if work.ahead is not None:
            self._reader.read_ahead(*work.ahead)
        decoded, cost = self._read(work)
        read = time.monotonic_ns()
        values = [self._compute(part, decoded) for part in self._job.parts]
        end = time.monotonic_ns()
        read_ns, decode_ns, n_bytes, n_calls, damaged = cost
        return Outcome(
            work.number,
            work.first,
            len(decoded.frames),
            values,
            decoded.times,
            [(int(decoded.frames[row]), reason) for row, reason in damaged],
            BlockTiming(
                block=work.number,
                first_frame=int(decoded.frames[0]),
                n_frames=len(decoded.frames),
                worker=self._name,
                start=start,
                end=end,
                open=opened - start,
                read=read_ns,
                decode=decode_ns,
                compute=end - read,
                bytes=n_bytes,
                calls=n_calls,
            ),
        )

    def _read(self, work: Work) -> tuple[Decoded, tuple]:
        """Frames of a block, and what they cost."""
        frames, offsets, sizes = work.extents
        n = len(frames)
        decoded = Decoded(
            frames.astype(np.int64),
            np.empty((n, self._job.source.n_wanted, 3), dtype=np.float32),
            np.empty((n, 6), dtype=np.float32),
            np.empty(n),
            np.empty(n, dtype=np.int64),
        )
        cost = self._reader.read(
            frames,
            offsets,
            sizes,
            decoded.positions,
            decoded.dimensions,
            decoded.times,
            decoded.steps,
            skip=self._job.skip_damaged,
        )
        decoded.times[:] = self._job.source.clock(decoded.frames, decoded.times)
        decoded.seal()
        return decoded, cost

    def _compute(self, part: Part, decoded: Decoded) -> Any:
        block = Block(decoded, part.columns, part.attributes)
        where = f"frames {decoded.frames[0]} to {decoded.frames[-1]}"
        try:
            if part.reduces:
                step = self._job.leaf_frames
                leaves = (_whole(block[k : k + step]) for k in range(0, len(block), step))
                partials = [part.computation.compute(leaf) for leaf in leaves]
                return fold(partials, part.computation.merge)  # type: ignore[union-attr]
            # A copy: the function may fill the same array again for the next block.
            rows = np.array(part.computation.compute(block))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise AnalysisError(f"{part.name} raised on {where}: {reason}") from error
        if rows.ndim == 0 or len(rows) != len(block):
            raise AnalysisError(
                f"{part.name} on {where}: expected one row for each of the {len(block)} frames, "
                f"found an array of shape {rows.shape}"
            )
        if rows.dtype.hasobject:
            raise AnalysisError(f"{part.name} on {where}: expected numbers, found {rows.dtype}")
        return rows


def _whole(leaf: Block) -> Block:
    """A leaf without the frames that could not be read: a reduction never sees them."""
    whole = leaf.steps != DAMAGED_STEP
    return leaf if whole.all() else leaf[whole]


class SealedJob:
    """A job made ready to be sent with each block: pickled once, opened once a worker."""

    def __init__(self, job: Job):
        self.key = uuid.uuid4().hex
        self.data = cloudpickle.dumps(job)


_here = threading.local()


def run_sealed(sealed: SealedJob, work: Work) -> Outcome:
    """Do one block in whatever thread or process this is."""
    if getattr(_here, "key", None) != sealed.key:
        try:
            _here.worker = Worker(cloudpickle.loads(sealed.data))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise WorkerError(f"a worker cannot open an analysis: {reason}") from error
        _here.key = sealed.key
    return _here.worker.run(work)
