"""One dataset of floats written anew: read and encoded by threads, put into its file in order."""

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from paceline import _core
from paceline.block import Decoded
from paceline.errors import UnwritableError
from paceline.hdf5.catalogue import Element
from paceline.hdf5.compression import Compression
from paceline.hdf5.copies import copy_attributes
from paceline.hdf5.growing import in_frame
from paceline.hdf5.layout import Layout
from paceline.hdf5.making import NewFile, contiguous
from paceline.hdf5.metadata import say_rounded
from paceline.hdf5.native import Array
from paceline.hdf5.slices import slice_of
from paceline.hdf5.stored import dataset_of
from paceline.progress import Progress

#: Bytes that a thread reads at a time, if chunks of no side need more.
PORTION = 16 * 2**20
#: Bytes of a chunk of what a frame has few bytes of.
SERIES_CHUNK = 64 * 2**10
#: Bytes in memory, at the most, so that each chunk is read once.
MOST_AT_ONCE = 2**30


@dataclass(frozen=True)
class Means:
    """What there is to write with.

    Attributes
    ----------
    made : NewFile
        The new file.
    pool : ThreadPoolExecutor
        Reads and encodes.
    n_workers : int
        Its threads.
    bar : Progress
        Counts bytes of numbers.
    """

    made: NewFile
    pool: ThreadPoolExecutor
    n_workers: int
    bar: Progress


@dataclass(frozen=True)
class Rewriting:
    """How a dataset of shape (frames, atoms, 3) is written anew.

    Attributes
    ----------
    array : Array
        What there is.
    layout : Layout
        Where its numbers are to stand.
    compression : Compression
        What is done to the bytes of a chunk.
    precision : float or None
        In the unit of the numbers, to which they are rounded.
    """

    array: Array
    layout: Layout
    compression: Compression
    precision: float | None

    def make(self, means: Means, found: Any, group: Any, name: str) -> None:
        """Make it in a group of the new file.

        Parameters
        ----------
        means : Means
            What there is to write with.
        found : h5py.Dataset
            What is there.
        group : h5py.Group
            Of the new file.
        name : str
            In the group.
        """
        target = self._created(means.made, found, f"{group.name.rstrip('/')}/{name}")
        copy_attributes(found, target)
        if found.dtype.itemsize == 4:
            self._encode(means, found, target)
        else:
            self._convert(means, found, target)
        step = self._encoder(found.dtype).step
        if step is not None:
            say_rounded(target, step)

    def _created(self, made: NewFile, found: Any, path: str) -> Any:
        kind = found.dtype.newbyteorder("<")
        if self.layout.contiguous:
            return contiguous(made.h5, path, found.shape, kind.str)
        level = self.compression.level
        return made.h5.create_dataset(
            path,
            shape=found.shape,
            maxshape=found.maxshape,
            dtype=kind,
            chunks=self.layout.chunk,
            compression=None if level is None else "gzip",
            compression_opts=level,
            shuffle=self.compression.shuffle,
        )

    def _encoder(self, dtype: np.dtype) -> "_core.ChunkEncoder":
        return _core.ChunkEncoder(
            "<f4" if dtype.itemsize == 4 else "<f8",
            self.layout.chunk,
            shuffle=self.compression.shuffle,
            level=self.compression.level,
            precision=self.precision,
            what=self.array.name.split("/")[-2],
        )

    def _parts(self, found: Any, at_once: int) -> Iterator[tuple[int, int]]:
        """Frames that are read together: such as begin with a chunk of both sides, if they can."""
        frame = math.prod(found.shape[1:]) * found.dtype.itemsize
        unit = self.layout.frames
        both = math.lcm(unit, found.chunks[0] if found.chunks else 1)
        unit = both if both * frame * at_once <= MOST_AT_ONCE else unit
        n_frames = max(unit, PORTION // frame // unit * unit)
        for first in range(0, len(found), n_frames):
            yield first, min(first + n_frames, len(found))

    def _convert(self, means: Means, found: Any, target: Any) -> None:
        """Let HDF5 write numbers of 64 bits: the encoder takes those of 32."""
        step = self._encoder(found.dtype).step
        for first, stop in self._parts(found, 1):
            values = self.array.part(slice(first, stop))
            target[first:stop] = values if step is None else np.rint(values / step) * step
            means.bar.add(values.nbytes)
            means.made.check()

    def _encode(self, means: Means, found: Any, target: Any) -> None:
        work = _Work(
            _reader_of(self.array),
            self._encoder(found.dtype),
            means.made.path,
            target.id.get_offset() if self.layout.contiguous else None,
        )
        waiting: deque[tuple[int, Future[_Packed]]] = deque()
        for first, stop in self._parts(found, means.n_workers + 1):
            waiting.append((first, means.pool.submit(work, first, stop)))
            if len(waiting) > means.n_workers:
                self._put(means, target, *waiting.popleft())
        while waiting:
            self._put(means, target, *waiting.popleft())

    def _put(self, means: Means, target: Any, first: int, packed: "Future[_Packed]") -> None:
        try:
            n_bytes, data, sizes = packed.result()
        except UnwritableError as error:
            raise in_frame(first, error) from None
        columns = -(-target.shape[1] // self.layout.atoms)
        view, ends = memoryview(data), np.cumsum(sizes, dtype=np.int64).tolist()
        for k, (start, end) in enumerate(pairwise([0, *ends])):
            row, column = divmod(k, columns)
            corner = first + row * self.layout.frames, column * self.layout.atoms, 0
            target.id.write_direct_chunk(corner, view[start:end])
        means.bar.add(n_bytes)
        means.made.check()


#: Reads frames from a first one to another, which is left out.
_Read = Callable[[int, int], np.ndarray]
#: Bytes that were read, chunks one after another, and the size of each.
_Packed = tuple[int, bytes, np.ndarray]


@dataclass(frozen=True)
class _Work:
    """What a thread does with some frames."""

    read: _Read
    encoder: "_core.ChunkEncoder"
    path: Path
    #: Where contiguous space begins, which is written to at once; None where there are chunks.
    offset: int | None

    def __call__(self, first: int, stop: int) -> _Packed:
        values = self.read(first, stop)
        if self.offset is None:
            return values.nbytes, *self.encoder.encode(values)
        rows = np.arange(first, stop, dtype=np.uint64)
        places = np.uint64(self.offset) + rows * np.uint64(values[0].nbytes)
        self.encoder.write(self.path, places, values)
        return values.nbytes, b"", np.empty(0, dtype=np.uint64)


def _reader_of(array: Array) -> _Read:
    """Through the core, in each thread by itself, where it reads what HDF5 reads; else HDF5."""

    def through_hdf5(first: int, stop: int) -> np.ndarray:
        return np.ascontiguousarray(array.part(slice(first, stop)), dtype=np.float32)

    dataset = dataset_of(array)
    if dataset.detour:
        return through_hdf5
    through_core = _CoreReader(array.file.path, Element(dataset))
    same = np.array_equal(through_core(0, 1), through_hdf5(0, 1), equal_nan=True)
    return through_core if same else through_hdf5


class _CoreReader:
    """Reads frames of one dataset, whose chunks are decoded to their end."""

    def __init__(self, path: str, element: Element):
        self._path, self._element = path, element
        self._fingerprint = _core.fingerprint_of(path)
        self._of_thread = threading.local()

    def __call__(self, first: int, stop: int) -> np.ndarray:
        n_atoms = self._element.dataset.shape[1]
        if not hasattr(self._of_thread, "reader"):
            known = replace(self._element, dataset=replace(self._element.dataset, table=None))
            self._of_thread.reader = _core.ChunkReader(
                self._path, self._fingerprint, [known, None, None], n_atoms=n_atoms
            )
        frames = np.arange(first, stop)
        block = Decoded.room_for(frames, n_atoms, ["positions"])
        slices = [slice_of(self._element, frames), None, None]
        self._of_thread.reader.read(slices, block, required=1, skip=False, whole=True)
        assert block.positions is not None
        return block.positions


def join_chunks(found: Any, group: Any, name: str) -> None:
    """Make a small dataset anew, in chunks of a usual size.

    Parameters
    ----------
    found : h5py.Dataset
        What there is.
    group : h5py.Group
        Of the new file.
    name : str
        In the group.
    """
    values = found[()]
    rows = max(1, SERIES_CHUNK // values[:1].nbytes)
    target = group.create_dataset(
        name,
        data=values,
        maxshape=found.maxshape,
        chunks=(min(rows, len(values)), *values.shape[1:]),
    )
    copy_attributes(found, target)
