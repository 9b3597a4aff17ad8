"""Write positions, velocities and forces to datasets of an HDF5 file.

A dataset takes frames as numbers, which are encoded here, or chunks that were encoded elsewhere, in
the order of frames; or it is allocated in the file from the beginning, and workers write frames to
the offsets that HDF5 names. Either way the same frames give the same bytes.
"""

import contextlib
import io
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np

from paceline import _core
from paceline._util.files import new_files, writing_to
from paceline.errors import UnwritableError
from paceline.hdf5.h5md_tree import Description, FrameColumns, create_tree, values_path
from paceline.hdf5.storage_layout import (
    REGISTERED,
    ChunkOffsets,
    Compression,
    DatasetLayout,
    Storage,
)

#: Frames that are copied together where a contiguous dataset is shortened.
_COPIED_TOGETHER = 16


@contextlib.contextmanager
def new_hdf5(
    path: str | os.PathLike,
    *,
    overwrite: bool = False,
    align: int | None = None,
    temporary: Path | None = None,
) -> Iterator["NewFile"]:
    """Open an HDF5 file that appears under its name when the `with` block ends without an error.

    Datasets of `align` bytes or more begin at a multiple of it; until it appears, the file is
    called `temporary`, a name of `paceline._util.files.temporary_name`.
    """
    alignment = {} if align is None else {"alignment_threshold": align, "alignment_interval": align}
    names = None if temporary is None else [temporary]
    with (
        new_files([path], overwrite=overwrite, names=names) as [made],
        writing_to(path),
        _ErrorKeepingFile(made, "r+") as disk,
    ):
        with h5py.File(disk, "w", **alignment) as file:
            try:
                yield NewFile(made, file, disk)
            finally:
                disk.check()  # the cause of whatever else may have gone wrong
        disk.check()
        os.fsync(disk.fileno())


@dataclass(frozen=True)
class NewFile:
    """HDF5 file that is being written: its temporary name, and the file open for writing."""

    path: Path
    h5: h5py.File
    _disk: "_ErrorKeepingFile"

    def check(self) -> None:
        """Raise the `OSError` of the first write that the system refused, if any was.

        HDF5 does not learn of it: when it cannot write, it can neither close the file nor forget
        it, and the process crashes at its end.
        """
        self._disk.check()


class _ErrorKeepingFile(io.FileIO):
    """File that takes everything, and keeps the system's first error."""

    _refusal: OSError | None = None

    def check(self) -> None:
        """Raise the first error of the system."""
        if self._refusal is not None:
            raise self._refusal

    def write(self, data: Any) -> int:
        """Write all of it, if nothing has been refused so far."""
        left = memoryview(data)
        try:
            while left and self._refusal is None:
                left = left[super().write(left) :]
        except OSError as error:
            self._refusal = error
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        """Set the size of the file, unless the system has refused an earlier call."""
        try:
            if self._refusal is None:
                super().truncate(size)
        except OSError as error:
            self._refusal = error
        return size or 0


def create_dataset(
    h5: h5py.Group,
    name: str,
    shape: tuple[int, ...],
    layout: DatasetLayout,
    *,
    dtype: str = "<f4",
    compression: Compression | None = None,
    limit: tuple[int | None, ...] | None = None,
    allocated: bool = False,
) -> Any:
    """Create a dataset of shape (frames, atoms, 3) in an open file.

    Chunks may be added up to the shape `limit`, by default for any number of frames. If
    `allocated`, they have their space from the beginning, as contiguous space has.
    """
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_obj_track_times(False)
    most = None
    if not layout.contiguous:
        properties.set_chunk(layout.chunk)
        limit = limit or (None, *shape[1:])
        most = tuple(h5py.h5s.UNLIMITED if n is None else n for n in limit)
    if compression is not None and compression.shuffle:
        properties.set_shuffle()
    if compression is not None and compression.method == "gzip":
        properties.set_deflate(compression.level)
    elif compression is not None and compression.method is not None:
        # Optional, since HDF5 may lack it: chunks come encoded.
        values = () if compression.level is None else (compression.level,)
        number = REGISTERED[compression.method]
        properties.set_filter(number, h5py.h5z.FLAG_OPTIONAL, values)
    if allocated or layout.contiguous:
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    kind, space = h5py.h5t.py_create(np.dtype(dtype)), h5py.h5s.create_simple(shape, most)
    group, _, own = name.rpartition("/")
    h5py.h5d.create(h5.require_group(group or "/").id, own.encode(), kind, space, dcpl=properties)
    return h5[name]


def chunk_offsets(dataset: h5py.Dataset, layout: DatasetLayout) -> ChunkOffsets:
    """Ask HDF5 for the offsets of an allocated dataset's chunks."""
    return ChunkOffsets(_offsets(dataset), layout, frame_bytes(dataset), dataset.shape[1])


def _offsets(dataset: h5py.Dataset) -> np.ndarray:
    """Offsets of chunks in C order, or of contiguous space; shape (n_chunks,) or (1,)."""
    if dataset.chunks is None:
        return np.array([dataset.id.get_offset()], dtype=np.uint64)
    found: list[tuple[tuple[int, ...], int]] = []
    try:
        dataset.id.chunk_iter(lambda one: found.append((one.chunk_offset, one.byte_offset)))
        found.sort()
    except AttributeError:
        # HDF5 before 1.12, which parallel builds often are, knows one chunk at a time.
        info = dataset.id.get_chunk_info_by_coord
        steps = zip(dataset.shape, dataset.chunks, strict=True)
        corners = product(*(range(0, n, step) for n, step in steps))
        found = [(corner, info(corner).byte_offset) for corner in corners]
    return np.array([offset for _, offset in found], dtype=np.uint64)


def allocate_frame(dataset: h5py.Dataset, row: int) -> int | None:
    """Offset of a frame of an allocated dataset, extended by it where it has a chunk a frame.

    None where HDF5 found no space for a contiguous dataset.
    """
    if dataset.chunks is None:
        first = dataset.id.get_offset()
        return None if first is None else first + row * frame_bytes(dataset)
    # Its properties make HDF5 allocate the chunk now.
    dataset.resize(row + 1, axis=0)
    return dataset.id.get_chunk_info_by_coord((row, 0, 0)).byte_offset


def frame_bytes(dataset: h5py.Dataset) -> int:
    """Bytes of a row."""
    return int(np.prod(dataset.shape[1:], dtype=object)) * dataset.dtype.itemsize


class EncodeQueue:
    """Encode on threads, and put results in order, at most `most_waiting` of them behind."""

    def __init__(self, pool: Executor | None = None, most_waiting: int = 0):
        self._pool, self._most_waiting = pool, most_waiting
        self._waiting: deque[tuple[Callable[[object], None], Future[object]]] = deque()

    @property
    def uses_threads(self) -> bool:
        """Tell if arrays that were added are still read later."""
        return self._pool is not None

    def add(self, encode: Callable[[], Any], put: Callable[[Any], None]) -> None:
        """Call `encode`, on a thread if there are any, and `put` with its result in its turn."""
        if self._pool is None:
            self.put_all()
            put(encode())
            return
        self._waiting.append((put, self._pool.submit(encode)))
        self._put_until(self._most_waiting)

    def put_all(self) -> None:
        """Put the results of all that was added."""
        self._put_until(0)

    def leave_threads(self) -> None:
        """Encode in the calling thread from now on: at the end of a script others take no work."""
        self._pool = None

    def _put_until(self, n: int) -> None:
        while len(self._waiting) > n:
            put, encoded = self._waiting.popleft()
            put(encoded.result())


@contextlib.contextmanager
def naming_frame(first: int) -> Iterator[None]:
    """Name the frame in an encoder's errors, whose first row is frame `first`."""
    try:
        yield
    except UnwritableError as error:
        raise UnwritableError(f"frame {first + (error.row or 0)}: {error.reason}") from None


class ChunkEncoder(Protocol):
    """Encoder of frames, as `paceline._core.ChunkEncoder` is for numbers of 32 bits."""

    def encode(self, values: np.ndarray, /) -> tuple[bytes, np.ndarray]:
        """Encode whole chunks: all of them in C order, and the bytes of each."""

    def write(self, path: Path, offsets: np.ndarray, values: np.ndarray, *, lead: int = 0) -> None:
        """Write frames to a file, into the chunks at `offsets`, behind `lead` others there."""


@dataclass(eq=False)
class FrameDataset:
    """Dataset of a file at `path`, whose frames are encoded on the threads of a queue, if any."""

    path: Path
    dataset: h5py.Dataset
    layout: DatasetLayout
    encoder: ChunkEncoder
    queue: EncodeQueue

    def add(
        self,
        first: int,
        n_frames: int,
        read: Callable[[], np.ndarray],
        done: Callable[[int], object] = lambda n_bytes: None,
    ) -> None:
        """Write the frames that `read` returns, from row `first` on, and report their bytes.

        An encoder's error names the frame. Appended frames are whole chunks, in order.
        """

        def encode() -> tuple[int, Any]:
            values = read()
            with naming_frame(first):
                return values.nbytes, self._encode(first, values)

        def put(encoded: tuple[int, Any]) -> None:
            self._put(first, n_frames, encoded[1])
            done(encoded[0])

        self.queue.add(encode, put)

    def _encode(self, first: int, values: np.ndarray) -> Any:
        """Encode frames, on any thread; return what `_put` takes."""
        raise NotImplementedError

    def _put(self, first: int, n_frames: int, encoded: Any) -> None:
        """Put encoded frames into the dataset, in the order in which they were added."""


@dataclass(eq=False)
class AppendedDataset(FrameDataset):
    """Dataset that takes frames or chunks in order."""

    def __post_init__(self) -> None:
        self._n_rows, n_atoms, _ = self.dataset.shape
        #: Chunks of a row.
        self._columns = -(-n_atoms // self.layout.atoms)
        #: Frames that do not fill a chunk yet.
        self._waiting: np.ndarray | None = None
        self._n_waiting = self._n_written = 0

    def put_frames(self, first: int, values: np.ndarray) -> None:
        """Take frames as numbers (float32, in our units); those of a part of a chunk wait."""
        assert first == self._n_written + self._n_waiting
        if self._waiting is None:
            shape = self.layout.frames, *self.dataset.shape[1:]
            self._waiting = np.empty(shape, dtype=np.float32)
        while len(values):
            fit = len(self._waiting) - self._n_waiting
            some, values = values[:fit], values[fit:]
            self._waiting[self._n_waiting : self._n_waiting + len(some)] = some
            self._n_waiting += len(some)
            if self._n_waiting == len(self._waiting):
                self._flush()

    def put_chunks(
        self, first: int, n_frames: int, data: "bytes | memoryview", sizes: np.ndarray
    ) -> None:
        """Take encoded chunks, one after another in C order, where no frame waits.

        All chunks but the last hold as many frames as fit.
        """
        assert first == self._n_written
        layout, put = self.layout, self.dataset.id.write_direct_chunk
        if self._n_rows < first + n_frames:
            self._n_rows = first + n_frames
            self.dataset.resize(self._n_rows, axis=0)
        view, ends = memoryview(data), np.cumsum(sizes, dtype=np.int64).tolist()
        for k, (start, end) in enumerate(pairwise([0, *ends])):
            row, column = divmod(k, self._columns)
            corner = first + row * layout.frames, column * layout.atoms, 0
            put(corner, view[start:end])
        self._n_written += n_frames

    def _encode(self, first: int, values: np.ndarray) -> tuple[bytes, np.ndarray]:
        return self.encoder.encode(values)

    def _put(self, first: int, n_frames: int, encoded: tuple[bytes, np.ndarray]) -> None:
        self.put_chunks(first, n_frames, *encoded)

    def _flush(self) -> None:
        if self._waiting is not None and self._n_waiting:
            n_frames, self._n_waiting = self._n_waiting, 0
            self._put(self._n_written, n_frames, self.encoder.encode(self._waiting[:n_frames]))

    def finish(self, n_frames: int) -> None:
        """Write the frames that wait, and end behind the last one."""
        self._flush()
        if self._n_rows != n_frames:
            self.dataset.resize(n_frames, axis=0)


@dataclass(eq=False)
class AllocatedDataset(FrameDataset):
    """Dataset that has its space in the file from the beginning; `offsets` are its chunks'."""

    def __post_init__(self) -> None:
        self.offsets = chunk_offsets(self.dataset, self.layout)

    def put_frames(self, first: int, values: np.ndarray) -> None:
        """Write frames (float32, in our units) to their rows, in any order and any thread."""
        offsets, lead = self.offsets.of(first, len(values))
        self.encoder.write(self.path, offsets, values, lead=lead)

    _encode = put_frames

    def finish(self, n_frames: int) -> None:
        """End behind the last frame: contiguous space is copied where fewer came than planned."""
        long = self.dataset
        if n_frames == len(long):
            return
        h5, name = long.file, long.name
        del h5[name]
        shape = n_frames, *long.shape[1:]
        short = create_dataset(h5, name, shape, self.offsets.layout, dtype=long.dtype.str)
        for first in range(0, n_frames, _COPIED_TOGETHER):
            stop = min(first + _COPIED_TOGETHER, n_frames)
            short[first:stop] = long[first:stop]
        self.dataset = short  # HDF5 frees the space of the long one when nothing refers to it


class RowDataset:
    """Dataset of an open file whose rows are written one by one, with one call of HDF5 each."""

    def __init__(self, dataset: h5py.Dataset):
        self._id = dataset.id
        self._shape, self._dtype = dataset.shape[1:], dataset.dtype
        self._n_rows = dataset.shape[0]
        self._memory = h5py.h5s.create_simple((1, *self._shape))
        #: A frame is one chunk, which is encoded here if only by gzip.
        self._is_chunk = False
        self._encoder: _core.ChunkEncoder | None = None
        chunk, filters = dataset.chunks, self._id.get_create_plist().get_nfilters()
        if chunk == (1, *self._shape) and len(chunk) == 3 and self._dtype == np.dtype("<f4"):
            self._is_chunk = filters == 0
            level = dataset.compression_opts
            if filters == 1 and dataset.compression == "gzip" and level > 0:
                self._encoder = _core.ChunkEncoder("<f4", chunk, method="gzip", level=level)

    def holds(self, values: np.ndarray) -> bool:
        """True if the dataset holds such values as they are."""
        is_number = self._dtype.kind in "biufc"
        return is_number and values.shape == self._shape and values.dtype == self._dtype

    def put(self, row: int, values: np.ndarray) -> None:
        """Write a row, C-contiguous, of the dataset's type."""
        if row >= self._n_rows:
            self._n_rows = row + 1
            self._id.set_extent((self._n_rows, *self._shape))
        start = row, *(0 for _ in self._shape)
        if self._is_chunk:
            self._id.write_direct_chunk(start, values)
            return
        if self._encoder is not None:
            # HDF5 encodes numbers that are not finite.
            with contextlib.suppress(UnwritableError):
                chunk, _ = self._encoder.encode(values[None])
                self._id.write_direct_chunk(start, chunk)
                return
        there = self._id.get_space()
        there.select_hyperslab(start, (1, *self._shape))
        self._id.write(self._memory, there, values)


class H5MDFileWriter:
    """H5MD file that is being written under a temporary name: datasets first, its tree at the end.

    Frames may be fewer than `n_frames` in the end, or, where they are appended, more. If
    `allocated`, datasets have their space in the file from the beginning.
    """

    def __init__(
        self,
        file: NewFile,
        storage: Storage,
        fields: Sequence[str],
        n_frames: int,
        n_atoms: int,
        *,
        has_cell: bool,
        allocated: bool,
        periodic: tuple[bool, bool, bool] = (True, True, True),
        queue: EncodeQueue | None = None,
    ):
        queue = queue or EncodeQueue()
        self._file, self._storage, self._has_cell = file, storage, has_cell
        self._periodic = periodic
        self.datasets: dict[str, Any] = {}
        kind = AllocatedDataset if allocated else AppendedDataset
        for name in fields:
            dataset = create_dataset(
                file.h5,
                values_path(name),
                (n_frames, n_atoms, 3),
                storage.layout,
                compression=storage.compression,
                allocated=allocated,
            )
            encoder = storage.encoder(name)
            self.datasets[name] = kind(file.path, dataset, storage.layout, encoder, queue)

    def finish(self, rows: FrameColumns, description: Description) -> None:
        """End datasets behind the last frame, and create the tree around them."""
        for dataset in self.datasets.values():
            dataset.finish(len(rows.times))
        steps = {field: self._storage.encoder(field).step for field in self.datasets}
        create_tree(
            self._file.h5,
            tuple(self.datasets),
            description,
            has_cell=self._has_cell,
            periodic=self._periodic,
            rows=rows,
            rounding={field: step for field, step in steps.items() if step is not None},
            units=self._storage.units,
        )
