"""Write positions, velocities and forces to datasets of an HDF5 file.

A dataset receives its frames in one of two ways. Either frames or encoded chunks are appended in
frame order, or the dataset is allocated at the start, and workers write frames at the offsets that
HDF5 returns. In both ways the same frames give the same bytes.
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
from uuid import uuid4

import h5py
import numpy as np

from paceline import _core
from paceline._util.files import new_files, writing_to
from paceline.errors import UnwritableError
from paceline.hdf5.create_h5md_groups import Description, FrameColumns, create_tree, values_path
from paceline.hdf5.h5md_storage_layout import (
    REGISTERED,
    ChunkOffsets,
    Compression,
    DatasetLayout,
    Storage,
)

#: Number of frames that are copied together when a contiguous dataset is shortened.
_COPIED_TOGETHER = 16


@contextlib.contextmanager
def new_hdf5(
    path: str | os.PathLike,
    *,
    overwrite: bool = False,
    align: int | None = None,
    temporary: Path | None = None,
) -> Iterator["NewFile"]:
    """Open an HDF5 file that gets its final name when the `with` block ends without an error.

    Datasets of at least `align` bytes begin at a multiple of `align`. Until the end, the file has
    the name `temporary`, by default a new name from `paceline._util.files.temporary_name`.
    """
    names = None if temporary is None else [temporary]
    with (
        new_files([path], overwrite=overwrite, names=names) as [made],
        created_hdf5(path, made, align=align, to_disk=True) as file,
    ):
        yield file


@contextlib.contextmanager
def created_hdf5(
    path: str | os.PathLike, made: Path, *, align: int | None = None, to_disk: bool = False
) -> Iterator["NewFile"]:
    """Create an HDF5 file in the empty file `made`, which the caller will rename to `path`.

    Datasets of at least `align` bytes begin at a multiple of `align`. With `to_disk`, wait at the
    end until the file is on the disk.
    """
    alignment = {} if align is None else {"alignment_threshold": align, "alignment_interval": align}
    with writing_to(path), _ErrorKeepingFile(made, "r+") as disk:
        with h5py.File(disk, "w", **alignment) as file:
            try:
                yield NewFile(made, file, disk)
            finally:
                disk.check()  # raise a write error first: it may be the cause of the other error
        disk.check()
        if to_disk:
            os.fsync(disk.fileno())


@dataclass(frozen=True)
class NewFile:
    """HDF5 file that is being written: its temporary name, and the open file."""

    path: Path
    h5: h5py.File
    _disk: "_ErrorKeepingFile"

    def check(self) -> None:
        """Raise the `OSError` of the first failed write, if any write has failed.

        HDF5 is not informed of a failed write, because it could then neither close nor release the
        file, and the process would crash at its end.
        """
        self._disk.check()

    def reserve(self, dataset: h5py.Dataset, corner: tuple[int, ...], n_bytes: int) -> int:
        """Make space for an encoded chunk that another process writes; return its offset."""
        dataset.id.write_direct_chunk(corner, self._disk.placeholder(n_bytes))
        [offset] = self._disk.reserved
        return offset


class _ErrorKeepingFile(io.FileIO):
    """File that records the first failed write, and does not store placeholders of chunks.

    If another process writes a chunk, HDF5 gets a placeholder, because only the offset that HDF5
    chooses for the chunk is needed.
    """

    _refusal: OSError | None = None
    #: Prefix of the placeholders of chunks, which are not written.
    _mark = uuid4().bytes
    _placeholder = bytearray()

    def __init__(self, *args: Any):
        super().__init__(*args)
        #: Offset at which HDF5 wrote the last placeholder: a list of one number.
        self.reserved: list[int] = []

    def placeholder(self, n_bytes: int) -> memoryview:
        """Make bytes that HDF5 writes in place of a chunk."""
        if len(self._placeholder) < n_bytes:
            self._placeholder = bytearray(self._mark).ljust(n_bytes, b"\0")
        self.reserved.clear()
        return memoryview(self._placeholder)[:n_bytes]

    def check(self) -> None:
        """Raise the error of the first failed write, if any write has failed."""
        if self._refusal is not None:
            raise self._refusal

    def write(self, data: Any) -> int:
        """Write all bytes, unless they are a placeholder or an earlier write has failed.

        Returns the number of bytes in all cases, so that HDF5 is not informed of a failed write.
        """
        left = memoryview(data)
        if self._placeholder and bytes(left[: len(self._mark)]) == self._mark[: len(left)]:
            self.reserved.append(self.tell())
            return len(data)
        try:
            while left and self._refusal is None:
                left = left[super().write(left) :]
        except OSError as error:
            self._refusal = error
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        """Set the size of the file, unless an earlier call has failed."""
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

    Chunks may be added up to the shape `limit`, by default for any number of frames. With
    `allocated`, space for all chunks is reserved at the start, as for contiguous storage.
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
        # The filter is optional, because HDF5 may lack it: chunks are already encoded.
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
    """Return the chunk offsets of an allocated dataset."""
    return ChunkOffsets(_offsets(dataset), layout, frame_bytes(dataset), dataset.shape[1])


def _offsets(dataset: h5py.Dataset) -> np.ndarray:
    """Return chunk offsets in C order, (n_chunks,), or the offset of contiguous storage, (1,)."""
    if dataset.chunks is None:
        return np.array([dataset.id.get_offset()], dtype=np.uint64)
    found: list[tuple[tuple[int, ...], int]] = []
    try:
        dataset.id.chunk_iter(lambda one: found.append((one.chunk_offset, one.byte_offset)))
        found.sort()
    except AttributeError:
        # HDF5 before 1.12, common in parallel builds, returns one chunk at a time.
        info = dataset.id.get_chunk_info_by_coord
        steps = zip(dataset.shape, dataset.chunks, strict=True)
        corners = product(*(range(0, n, step) for n, step in steps))
        found = [(corner, info(corner).byte_offset) for corner in corners]
    return np.array([offset for _, offset in found], dtype=np.uint64)


def allocate_frame(dataset: h5py.Dataset, row: int) -> int | None:
    """Return the offset of a frame in an allocated dataset; add a chunk for it if needed.

    Returns None if HDF5 found no space for a contiguous dataset.
    """
    if dataset.chunks is None:
        first = dataset.id.get_offset()
        return None if first is None else first + row * frame_bytes(dataset)
    # The dataset's properties make HDF5 allocate the chunk immediately.
    dataset.resize(row + 1, axis=0)
    return dataset.id.get_chunk_info_by_coord((row, 0, 0)).byte_offset


def frame_bytes(dataset: h5py.Dataset) -> int:
    """Return the size of a frame in a dataset without compression, bytes."""
    return int(np.prod(dataset.shape[1:], dtype=object)) * dataset.dtype.itemsize


class EncodeQueue:
    """Encodes frames on the threads of `pool`, if given, and writes the results in order.

    At most `most_waiting` results wait for being written.
    """

    def __init__(self, pool: Executor | None = None, most_waiting: int = 0):
        self._pool, self._most_waiting = pool, most_waiting
        self._waiting: deque[tuple[Callable[[object], None], Future[object]]] = deque()

    @property
    def uses_threads(self) -> bool:
        """True if threads may still read arrays after `add` has returned."""
        return self._pool is not None

    def add(self, encode: Callable[[], Any], put: Callable[[Any], None]) -> None:
        """Call `encode`, on a thread if available; then call `put` with its result, in order."""
        if self._pool is None:
            self.put_all()
            put(encode())
            return
        self._waiting.append((put, self._pool.submit(encode)))
        self._put_until(self._most_waiting)

    def put_all(self) -> None:
        """Wait for all encoded frames, and write them."""
        self._put_until(0)

    def leave_threads(self) -> None:
        """Encode in the calling thread from now on: threads accept no work while a script ends."""
        self._pool = None

    def _put_until(self, n: int) -> None:
        while len(self._waiting) > n:
            put, encoded = self._waiting.popleft()
            put(encoded.result())


@contextlib.contextmanager
def naming_frame(first: int) -> Iterator[None]:
    """Name the frame in an encoder's errors; the encoder's row 0 is frame `first`."""
    try:
        yield
    except UnwritableError as error:
        raise UnwritableError(f"frame {first + (error.row or 0)}: {error.reason}") from None


class ChunkEncoder(Protocol):
    """Encoder of frames; for 32-bit floats it is `paceline._core.ChunkEncoder`."""

    def encode(self, values: np.ndarray, /) -> tuple[bytes, np.ndarray]:
        """Encode whole chunks; return their bytes in C order, and the size of each chunk, bytes."""

    def write(self, path: Path, offsets: np.ndarray, values: np.ndarray, *, lead: int = 0) -> None:
        """Write frames into the chunks at `offsets`, after `lead` frames in the first chunk."""


@dataclass(eq=False)
class EncodedDataset:
    """Dataset in the file at `path`; frames are encoded on the threads of `queue`, if any."""

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
        """Write the frames that `read` returns, from row `first` on; call `done` with their size.

        An encoder's error names the frame. Appended frames must be whole chunks, in order.
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
        """Encode frames, on any thread; return the argument of `_put`."""
        raise NotImplementedError

    def _put(self, first: int, n_frames: int, encoded: Any) -> None:
        """Write encoded frames into the dataset, in the order of `add`.

        By default do nothing, for classes whose `_encode` has already written the frames.
        """


@dataclass(eq=False)
class AppendedDataset(EncodedDataset):
    """Dataset to which frames or chunks are appended in order."""

    def __post_init__(self) -> None:
        self._n_rows, n_atoms, _ = self.dataset.shape
        #: Number of chunks that together contain all atoms of a frame.
        self._columns = -(-n_atoms // self.layout.atoms)
        #: Frames that do not yet fill a chunk.
        self._waiting: np.ndarray | None = None
        self._n_waiting = self._n_written = 0

    def put_frames(self, first: int, values: np.ndarray) -> None:
        """Append frames (float32, paceline's units); frames wait until they fill a chunk."""
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
        """Append encoded chunks in C order; no frame may be waiting for a full chunk.

        Only the chunks of the last frames of the dataset may contain fewer frames than others.
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
        """Write the waiting frames, and cut the dataset after the last frame."""
        self._flush()
        if self._n_rows != n_frames:
            self.dataset.resize(n_frames, axis=0)


@dataclass(eq=False)
class AllocatedDataset(EncodedDataset):
    """Dataset whose space is reserved at the start; `offsets` are the chunk offsets."""

    def __post_init__(self) -> None:
        self.offsets = chunk_offsets(self.dataset, self.layout)

    def put_frames(self, first: int, values: np.ndarray) -> None:
        """Write frames (float32, paceline's units) to their rows, in any order, on any thread."""
        offsets, lead = self.offsets.of(first, len(values))
        self.encoder.write(self.path, offsets, values, lead=lead)

    _encode = put_frames

    def finish(self, n_frames: int) -> None:
        """Cut the dataset after the last frame; contiguous storage is copied for this."""
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
        self.dataset = short  # HDF5 frees the space of the long dataset when no reference is left


class RowDataset:
    """Dataset of an open file whose rows are written one by one, each by one HDF5 call."""

    def __init__(self, dataset: h5py.Dataset):
        self._id = dataset.id
        self._shape, self._dtype = dataset.shape[1:], dataset.dtype
        self._n_rows = dataset.shape[0]
        self._memory = h5py.h5s.create_simple((1, *self._shape))
        #: True if a frame is one chunk without filters. If gzip is the only filter of such a chunk,
        #: `_encoder` is set instead.
        self._is_chunk = False
        self._encoder: _core.ChunkEncoder | None = None
        chunk, filters = dataset.chunks, self._id.get_create_plist().get_nfilters()
        if chunk == (1, *self._shape) and len(chunk) == 3 and self._dtype == np.dtype("<f4"):
            self._is_chunk = filters == 0
            level = dataset.compression_opts
            if filters == 1 and dataset.compression == "gzip" and level > 0:
                self._encoder = _core.ChunkEncoder("<f4", chunk, method="gzip", level=level)

    def holds(self, values: np.ndarray) -> bool:
        """True if the dataset can store such values without conversion."""
        is_number = self._dtype.kind in "biufc"
        return is_number and values.shape == self._shape and values.dtype == self._dtype

    def put(self, row: int, values: np.ndarray) -> None:
        """Write a C-contiguous row in the dataset's dtype."""
        if row >= self._n_rows:
            self._n_rows = row + 1
            self._id.set_extent((self._n_rows, *self._shape))
        start = row, *(0 for _ in self._shape)
        if self._is_chunk:
            self._id.write_direct_chunk(start, values)
            return
        if self._encoder is not None:
            # The encoder refuses numbers that are not finite; HDF5 encodes such frames instead.
            with contextlib.suppress(UnwritableError):
                chunk, _ = self._encoder.encode(values[None])
                self._id.write_direct_chunk(start, chunk)
                return
        there = self._id.get_space()
        there.select_hyperslab(start, (1, *self._shape))
        self._id.write(self._memory, there, values)


class H5MDFileWriter:
    """H5MD file under a temporary name: fields' datasets are created first, all else at the end.

    The final number of frames may be less than `n_frames` or, if frames are appended, more. With
    `allocated`, space for the datasets is reserved at the start.
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
        """Cut datasets after the last frame, and create the tree around them."""
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
