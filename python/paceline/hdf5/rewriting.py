"""One dataset of floats written anew: read through HDF5, encoded by threads, in order."""

import math
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from paceline import _core
from paceline.errors import UnwritableError
from paceline.hdf5.copies import copy_attributes
from paceline.hdf5.growing import in_frame
from paceline.hdf5.layout import Compression, Layout
from paceline.hdf5.library import Array
from paceline.hdf5.making import NewFile, contiguous
from paceline.hdf5.metadata import say_rounded
from paceline.progress import Progress

#: Bytes that are read at a time, if chunks of no side need more.
PORTION = 64 * 2**20
#: Bytes of a chunk of what a frame has few bytes of.
SERIES_CHUNK = 64 * 2**10
#: Bytes that are read at a time so that each chunk is read once.
MOST_AT_ONCE = 2**30


@dataclass(frozen=True)
class Means:
    """What there is to write with.

    Attributes
    ----------
    made : NewFile
        The new file.
    pool : ThreadPoolExecutor
        Encodes.
    n_workers : int
        Its threads.
    bar : Progress
        Counts bytes that were read.
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

    def _slabs(self, means: Means, found: Any, dtype: Any) -> Iterator[tuple[int, np.ndarray]]:
        """All frames, as many at a time as begin with a chunk of both sides, where that can be."""
        frame = math.prod(found.shape[1:]) * np.dtype(dtype).itemsize
        unit = self.layout.frames
        both = math.lcm(unit, found.chunks[0] if found.chunks else 1)
        unit = both if both * frame <= MOST_AT_ONCE else unit
        n_frames = max(unit, PORTION // frame // unit * unit)
        for first in range(0, len(found), n_frames):
            values = self.array.part(slice(first, first + n_frames))
            yield first, np.ascontiguousarray(values, dtype=dtype)
            means.bar.add(values.nbytes)

    def _convert(self, means: Means, found: Any, target: Any) -> None:
        """Let HDF5 write numbers of 64 bits: the encoder takes those of 32."""
        step = self._encoder(found.dtype).step
        for first, values in self._slabs(means, found, found.dtype.newbyteorder("=")):
            if step is not None:
                np.multiply(np.rint(values / step), step, out=values)
            target[first : first + len(values)] = values
            means.made.check()

    def _encode(self, means: Means, found: Any, target: Any) -> None:
        encoder = self._encoder(found.dtype)
        before: list[tuple[int, Future[Any]]] = []
        for first, values in self._slabs(means, found, np.float32):
            now = [
                (start, means.pool.submit(self._packed, means.made, target, encoder, start, part))
                for start, part in self._parts(first, values, means.n_workers)
            ]
            # Those of the last slab were encoded while this one was read.
            self._put(target, before)
            means.made.check()
            before = now
        self._put(target, before)
        means.made.check()

    def _parts(
        self, first: int, values: np.ndarray, n_parts: int
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Whole chunks for each thread."""
        frames = self.layout.frames
        size = -(-len(values) // (n_parts * frames)) * frames
        for start in range(0, len(values), size):
            yield first + start, values[start : start + size]

    def _packed(
        self,
        made: NewFile,
        target: Any,
        encoder: "_core.ChunkEncoder",
        first: int,
        values: np.ndarray,
    ) -> tuple[bytes, np.ndarray]:
        """Chunks of some frames; none where the frames were written to their place already."""
        if not self.layout.contiguous:
            return encoder.encode(values)
        rows = np.arange(first, first + len(values), dtype=np.uint64)
        places = np.uint64(target.id.get_offset()) + rows * np.uint64(values[0].nbytes)
        encoder.write(made.path, places, values)
        return b"", np.empty(0, dtype=np.uint64)

    def _put(self, target: Any, packed: list[tuple[int, "Future[Any]"]]) -> None:
        columns = -(-target.shape[1] // self.layout.atoms)
        for first, future in packed:
            try:
                data, sizes = future.result()
            except UnwritableError as error:
                raise in_frame(first, error) from None
            view, ends = memoryview(data), np.cumsum(sizes, dtype=np.int64).tolist()
            for k, (start, end) in enumerate(pairwise([0, *ends])):
                row, column = divmod(k, columns)
                corner = first + row * self.layout.frames, column * self.layout.atoms, 0
                target.id.write_direct_chunk(corner, view[start:end])


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
