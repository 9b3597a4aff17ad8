"""In-memory arrays as a trajectory: blocks are slices of the arrays."""

import copyreg
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from paceline import _core
from paceline._util.shared_arrays import ArrayStore, MappedAgain, SharedArray, WrittenArrays
from paceline.block import FrameBuffer, field_bits, fields_in
from paceline.contract.node_disk_cache import Cache
from paceline.contract.source import Extents, FileReadStats, FrameSource
from paceline.errors import MissingDataError, UnsupportedError, with_script_advice
from paceline.trajectory.chain import Chain

#: Name of the format that users see.
FORMAT = "array"
#: Name of an array in messages, in place of a file name.
UNNAMED = "an array in memory"
#: Reason why times are unknown if the user sets no time between frames.
NO_TIMES = "an array holds none, and frames are counted as 1 ps apart"


def refuse_numbers(given: object) -> None:
    """Raise `TypeError` for None, a number, a list or a tuple instead of a file or an array."""
    if given is None or isinstance(given, list | tuple | int | float | complex | np.number):
        raise TypeError(
            "expected names of files or a NumPy array, found "
            f"{'None' if given is None else f'an object of {type(given).__name__}'}: "
            "numpy.asarray makes an array of lists"
        )


def check_positions(array: np.ndarray, order: str = "fac") -> np.ndarray:
    """Return a view of positions with the shape (n_frames, n_atoms, 3).

    `order` names the axes of the input: f (frames), a (atoms), c (coordinates). An array of shape
    (n_atoms, 3) is one frame. Raises `ValueError` for an array that is masked, empty, of another
    shape, or without real numbers.
    """
    if sorted(order) != ["a", "c", "f"]:
        raise ValueError(f"expected an order of f, a and c, found {order!r}")
    if isinstance(array, np.ma.MaskedArray):
        raise with_script_advice(
            ValueError("expected an array of positions, found a masked one"),
            ": fill it, as with .filled(np.nan)",
        )
    if array.ndim == 2 and array.shape[1] == 3:
        array = array[np.newaxis]
    if array.ndim != 3 or array.shape[order.index("c")] != 3:
        expected = ", ".join({"f": "frames", "a": "atoms", "c": "3"}[axis] for axis in order)
        raise ValueError(
            f"expected positions of shape ({expected}), found an array of shape {array.shape}"
        )
    if array.dtype.kind not in "fiu":
        raise ValueError(f"expected positions of real numbers, found an array of {array.dtype}")
    if 0 in array.shape:
        raise ValueError(
            f"expected a frame and an atom at least, found an array of shape {array.shape}"
        )
    return array.transpose([order.index(axis) for axis in "fac"])


@dataclass(frozen=True)
class ArraySlice:
    """Frames of arrays in memory. A task for a worker contains them in place of file offsets.

    Pickling leaves out all frames except `rows`, and all atoms and fields that `sent` does not
    name.
    """

    #: Array of each field, real numbers, shape (n_frames, n_atoms, 3).
    values: Mapping[str, np.ndarray]
    #: Rows of the arrays that are the frames of this slice.
    rows: slice | np.ndarray
    #: Cell lengths and angles, Å and degrees, float32, shape (n_rows, 6).
    dimensions: np.ndarray
    #: Times, ps, float64, shape (n_rows,).
    times: np.ndarray
    #: Frame numbers, int64, shape (n_rows,).
    steps: np.ndarray
    #: Bits of the fields that the frames contain.
    held: int
    #: Atoms and fields to send to workers; None for all.
    sent: "SentValues | None" = None
    #: True if the arrays contain only the atoms that the worker needs.
    has_wanted_only: bool = False

    def __reduce__(self) -> tuple[object, ...]:
        sent = self.sent or SentValues(None, tuple(self.values))
        parts, wanted_only = sent.parts(self.values, self.rows)
        known = self.dimensions, self.times, self.steps, self.held, wanted_only
        return _receive_slice, (parts, *known)

    def put(self, name: str, atoms: np.ndarray | None, buffer: FrameBuffer) -> None:
        """Copy a field of some atoms into a frame buffer, converted to float32."""
        found = self.values[name][self.rows]
        wanted = None if self.has_wanted_only else atoms
        if buffer.validity is None:
            _copy_atoms(found, wanted, buffer.array_of(name))
        else:
            numbers = _copy_atoms(found, wanted)
            buffer.put(name, slice(None), numbers, np.ones(len(found), dtype=bool))


def _copy_atoms(
    found: np.ndarray, atoms: np.ndarray | None, out: np.ndarray | None = None
) -> np.ndarray:
    """Copy atoms (None: all) of an array to another array, converted to float32."""
    if out is None:
        n_atoms = found.shape[1] if atoms is None else len(atoms)
        out = np.empty((len(found), n_atoms, 3), dtype=np.float32)
    if atoms is None:
        out[:] = found
    elif found.dtype == out.dtype and found.flags.c_contiguous and found.flags.aligned:
        _core.copy_atoms(found, atoms, out)
    else:
        out[:] = found[:, atoms]
    return out


def _receive_slice(
    parts: Mapping[str, SharedArray],
    dimensions: np.ndarray,
    times: np.ndarray,
    steps: np.ndarray,
    held: int,
    has_wanted_only: bool,
) -> ArraySlice:
    """Create the slice in the worker that receives it."""
    values = {name: part.array for name, part in parts.items()}
    every = slice(None)
    return ArraySlice(values, every, dimensions, times, steps, held, None, has_wanted_only)


@dataclass(frozen=True)
class SentValues:
    """Atoms and fields to send to the workers of one pass.

    Workers on this machine may read the values from the files `written` or `mapped` instead.
    """

    #: Increasing atom indices; None for all atoms.
    atoms: np.ndarray | None
    fields: Sequence[str]
    #: File to which values are written, so that processes of this machine can read them.
    written: WrittenArrays | None = None
    #: Files of memory-mapped arrays by field; processes of this machine map the same files.
    mapped: Mapping[str, MappedAgain] = field(default_factory=dict)

    def parts(
        self, values: Mapping[str, np.ndarray], rows: slice | np.ndarray
    ) -> tuple[dict[str, SharedArray], bool]:
        """Return the values of some rows by field, and True if they include only `atoms`."""
        fields = [name for name in self.fields if name in values]
        if isinstance(rows, slice) and fields and all(name in self.mapped for name in fields):
            files: Mapping[str, ArrayStore] = self.mapped
            return {name: SharedArray(values[name][rows], files[name]) for name in fields}, False
        # Values are sent as float32, because workers compute with float32.
        sent = {name: _copy_atoms(values[name][rows], self.atoms) for name in fields}
        return {name: SharedArray(array, self.written) for name, array in sent.items()}, True


@dataclass(frozen=True)
class ArraySpec:
    """Description of arrays for workers: a `FileSpec` without values, which arrive with tasks."""

    path: str

    def open(
        self, atoms: np.ndarray | None, fields: int, cache: Cache | None = None
    ) -> "ArrayReader":
        """Return a reader, which copies the values of these atoms and fields from slices."""
        return ArrayReader(self.path, atoms, fields_in(fields))


@dataclass(frozen=True)
class ArrayReader:
    """`FileReader` of arrays: all values come from the slices of the extents."""

    path: str
    atoms: np.ndarray | None
    fields: Sequence[str]

    def read_ahead(self, extents: Extents) -> None:
        """Do nothing: the values are in memory."""

    def read(
        self, extents: Extents, buffer: FrameBuffer, *, required: int, skip: bool
    ) -> FileReadStats:
        """Copy the values of atoms into a buffer. No frame is skipped: arrays cannot be damaged."""
        begun = time.monotonic_ns()
        (found,) = extents.slices
        for name in self.fields:
            if name in found.values:
                found.put(name, self.atoms, buffer)
            elif name in fields_in(required):
                raise MissingDataError(f"{self.path}: it has no {name}")
            elif buffer.validity is None:
                buffer.array_of(name)[:] = np.nan
        buffer.cells[:] = _core.cells_of_dimensions(found.dimensions)
        buffer.times[:], buffer.steps[:], buffer.fields[:] = found.times, found.steps, found.held
        return time.monotonic_ns() - begun, 0, 0, 0, []


class ArrayFile:
    """Arrays of positions, velocities and forces: a `TrajectoryFile` in memory.

    Parameters
    ----------
    values : dict of numpy.ndarray, shape (n_frames, n_atoms, 3)
        Array of each field; it is never copied as a whole.
    dimensions : numpy.ndarray of float32, shape (n_frames, 6), optional
        Cell lengths and angles, Å and degrees.
    dt, time_offset : float
        Time between frames, and time of the first frame, ps.
    name : str
        Name in messages.
    time_doubt : str, optional
        Reason why times are unknown.
    """

    format = FORMAT
    varying = atom_counts = index_file = traffic = length_doubt = None
    chunk_frames = 1
    #: No datasets of a file are read, and no numbers are converted.
    datasets, conversion = (), None
    samples = b""
    index_origin = "none"
    first = 0.0

    def __init__(
        self,
        values: Mapping[str, np.ndarray],
        *,
        dimensions: np.ndarray | None = None,
        dt: float = 1.0,
        time_offset: float = 0.0,
        name: str = UNNAMED,
        time_doubt: str | None = None,
    ):
        self.path, self.values, self.time_doubt = name, values, time_doubt
        self.n_frames, self.n_atoms, _ = next(iter(values.values())).shape
        self._dimensions, self._time_offset = dimensions, time_offset
        self.dt = dt
        self.notes: list[str] = []
        self.damaged: list[int] = []

    @property
    def frames_counted(self) -> bool:
        """True if times are computed from frame numbers alone."""
        return self.time_doubt is not None

    @property
    def fields(self) -> int:
        """Bits of the fields that the frames contain."""
        return field_bits(tuple(self.values))

    @property
    def size(self) -> int:
        """Size of the arrays, bytes."""
        return sum(array.nbytes for array in self.values.values())

    @property
    def bytes_per_frame(self) -> float:
        """Size of one frame of all arrays, bytes."""
        return self.size / self.n_frames

    @property
    def fingerprint(self) -> str:
        """Placeholder text: arrays have no fingerprint; `content` identifies them if necessary."""
        return "none: an array in memory"

    @property
    def content(self) -> str:
        """Digest of all values, cells and times, 32 hex digits."""
        sha = hashlib.sha256()
        for name, array in self.values.items():
            sha.update(f"{name} {array.dtype.str} {array.shape}".encode())
            step = max(1, 2**24 // (array.nbytes // self.n_frames or 1))
            for first in range(0, self.n_frames, step):
                sha.update(np.ascontiguousarray(array[first : first + step]).data)
        frames = np.arange(self.n_frames)
        sha.update(self._cells_of(frames).tobytes() + self._times_of(frames).tobytes())
        return sha.hexdigest()[:32]

    @property
    def traits(self) -> list[tuple[str, str]]:
        """Properties (name, value) that must agree between the files of one trajectory."""
        return [("format", self.format), ("number of atoms", str(self.n_atoms))]

    @property
    def spec(self) -> ArraySpec:
        """Description of the arrays for workers, without their values."""
        return ArraySpec(self.path)

    def spec_of(self, frame: int) -> tuple[ArraySpec, int]:
        """Return the description for a worker, and the number of atoms; equal for all frames."""
        return self.spec, self.n_atoms

    def extents(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return zeros, because no bytes of a file are read."""
        return np.zeros_like(frames), np.zeros_like(frames)

    def slice_of(self, frames: np.ndarray) -> ArraySlice:
        """Return these frames as a slice of the arrays, which is sent to a worker."""
        numbers = frames.astype(np.int64)
        known = self._cells_of(numbers), self._times_of(numbers), numbers, self.fields
        return ArraySlice(self.values, _rows_of(numbers), *known)

    def times(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the time (ps) and step of every frame."""
        frames = np.arange(self.n_frames)
        return self._times_of(frames), frames

    def head(self, first: int, n_frames: int) -> bytes:
        """Raise `UnsupportedError`, because arrays have no file whose bytes could be copied."""
        raise UnsupportedError(f"{self.path}: frames in memory cannot be copied as bytes of a file")

    def verify(self) -> None:
        """Do nothing: a script is allowed to change its arrays between runs."""

    def _times_of(self, frames: np.ndarray) -> np.ndarray:
        # With a single-precision time between frames, times are rounded to single precision, as in
        # MDAnalysis.
        single = isinstance(self.dt, np.floating)
        numbers = frames.astype(self.dt.dtype if single else float)  # type: ignore[attr-defined]
        return (numbers * self.dt + self._time_offset).astype(float)

    def _cells_of(self, frames: np.ndarray) -> np.ndarray:
        if self._dimensions is None:
            return np.zeros((len(frames), 6), dtype=np.float32)
        found = self._dimensions[frames]
        found[(found[:, :3] == 0).all(axis=1)] = 0  # no cell, whatever the angles
        return found


def _rows_of(frames: np.ndarray) -> slice | np.ndarray:
    """Return increasing, equally spaced frames as a slice, and other frames unchanged.

    Indexing an array with a slice returns a view, without a copy.
    """
    step = int(frames[1] - frames[0]) if len(frames) > 1 else 1
    if step < 1 or (frames[1:] - frames[:-1] != step).any():
        return frames
    return slice(int(frames[0]), int(frames[-1]) + 1, step)


class ArrayChain(Chain):
    """Chain of one `ArrayFile`. Its pickle includes the arrays."""

    in_memory = True

    def __init__(self, file: ArrayFile, *, n_atoms: int | None = None, times_given: bool = False):
        super().__init__(
            [file.path],
            n_atoms=n_atoms,
            times_given=times_given,
            opener=lambda names, **options: [file],
        )
        self._file = file

    def __reduce__(self) -> tuple[object, ...]:
        return copyreg.__newobj__, (type(self),), vars(self)  # type: ignore[attr-defined]

    def frame_bytes(self, atoms: np.ndarray) -> float:
        """Return the approximate number of bytes to read per frame for the given atoms."""
        return self.bytes_per_frame * len(atoms) / self.n_atoms

    @property
    def content(self) -> str:
        """Digest of all values, cells and times."""
        return self._file.content

    def locator(self, source: FrameSource, *, by_file: bool) -> Callable[[np.ndarray], Extents]:
        """Return a function that locates frames.

        The slices in its results are pickled with only the values that workers of `source` need.
        """
        fields = [name for name in source.fields if name in self._file.values]
        mapped: dict[str, MappedAgain] = {}
        written = None
        if by_file:
            for name in fields:
                if (found := MappedAgain.of(self._file.values[name])) is not None:
                    mapped[name] = found
            written = WrittenArrays.make()
        sent = SentValues(source.atoms, fields, written, mapped)

        def locate(frames: np.ndarray) -> Extents:
            extents = self.extents(frames)
            slices = tuple(replace(one, sent=sent) for one in extents.slices)
            return replace(extents, slices=slices)

        return locate
