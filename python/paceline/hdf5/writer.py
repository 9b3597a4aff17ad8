"""Positions, velocities and forces in an HDF5 file that is being made.

A dataset takes frames as numbers, which are encoded here, or chunks that were encoded elsewhere,
always in the order of frames; or it has its space in the file from the beginning, where workers
write the numbers themselves. Either way the same frames give the same bytes.
"""

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from paceline import _core
from paceline._util.files import new_files, writing_to
from paceline.hdf5.layout import ELEMENTS, GROUP, Places, Storage
from paceline.hdf5.metadata import Description, create_box, describe, say_rounded, set_unit


@contextlib.contextmanager
def new_hdf5(
    path: str | os.PathLike,
    *,
    overwrite: bool = False,
    align: int | None = None,
    temporary: Path | None = None,
) -> Iterator["NewFile"]:
    """Open an HDF5 file that appears under its name when the `with` block ends without an error.

    Parameters
    ----------
    path : path-like
        Final name.
    overwrite : bool
        Whether a file of that name may be replaced.
    align : int, optional
        Bytes of a stripe of the file system: what is at least as large begins at a multiple.
    temporary : pathlib.Path, optional
        What it is called until then: of `paceline._util.files.temporary_name`.

    Yields
    ------
    NewFile
        Empty.

    Raises
    ------
    FileExistsError
        There is a file of that name and it is not to be replaced.
    OSError
        The system could not write.
    """
    alignment = {} if align is None else {"alignment_threshold": align, "alignment_interval": align}
    names = None if temporary is None else [temporary]
    with (
        new_files([path], overwrite=overwrite, names=names) as [made],
        writing_to(path),
        _Steady(made, "r+") as disk,
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
    """An HDF5 file that is being made.

    Attributes
    ----------
    path : pathlib.Path
        What it is called for now.
    h5 : h5py.File
        Open for writing.
    """

    path: Path
    h5: Any
    _disk: "_Steady"

    def check(self) -> None:
        """Raise the `OSError` of the first write that the system refused, if any was.

        HDF5 is not told: when it cannot write, it can neither close the file nor forget it, and
        the process crashes at its end.
        """
        self._disk.check()


class _Steady(io.FileIO):
    """A file that takes everything, and says afterwards what the system refused to write."""

    _refusal: OSError | None = None

    def check(self) -> None:
        """Raise what the system raised first."""
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
        """Set the size, if nothing has been refused so far."""
        try:
            if self._refusal is None:
                super().truncate(size)
        except OSError as error:
            self._refusal = error
        return size or 0


def add_clock(group: Any, steps: np.ndarray, times: np.ndarray) -> None:
    """Say when the rows of an element are: the datasets that others then share.

    Parameters
    ----------
    group : h5py.Group
        The element.
    steps : numpy.ndarray of int64, shape (n_frames,)
        Of the simulation.
    times : numpy.ndarray of float64, shape (n_frames,)
        ps.
    """
    group["step"] = steps
    group["time"] = times
    set_unit(group["time"], "time")


def share_clock(group: Any, other: Any) -> None:
    """Let an element have the very steps and times of another.

    Parameters
    ----------
    group : h5py.Group
        The element.
    other : h5py.Group
        The one that has them.
    """
    for name in ("step", "time"):
        group[name] = other[name]


def contiguous(h5: Any, name: str, shape: tuple[int, ...], dtype: str) -> Any:
    """Make a dataset with its space in the file, whose numbers are written past the library.

    Parameters
    ----------
    h5 : h5py.File
        Where.
    name : str
        Of the dataset, groups included.
    shape : tuple of int
        Of the whole.
    dtype : str
        Of its numbers.

    Returns
    -------
    h5py.Dataset
        With an offset already.
    """
    return _allocated(h5, name, shape, dtype, None)


def chunked(
    h5: Any, name: str, shape: tuple[int, ...], dtype: str, chunk: tuple[int, ...]
) -> tuple[Any, np.ndarray]:
    """Make a dataset with the space of all its chunks, whose numbers are written so too.

    Parameters
    ----------
    h5 : h5py.File
        Where.
    name : str
        Of the dataset, groups included.
    shape : tuple of int
        Of the whole, which may grow along the first axis.
    dtype : str
        Of its numbers.
    chunk : tuple of int
        Shape of a chunk.

    Returns
    -------
    dataset : h5py.Dataset
        The dataset.
    offsets : numpy.ndarray of uint64, shape (n_chunks,)
        Of its chunks in C order.
    """
    dataset = _allocated(h5, name, shape, dtype, chunk)
    places: list[tuple[tuple[int, ...], int]] = []
    try:
        dataset.id.chunk_iter(lambda one: places.append((one.chunk_offset, one.byte_offset)))
        places.sort()
    except AttributeError:
        # HDF5 before 1.12, which parallel builds often are, tells of one chunk at a time.
        place = dataset.id.get_chunk_info_by_coord
        corners = product(*(range(0, n, step) for n, step in zip(shape, chunk, strict=True)))
        places = [(corner, place(corner).byte_offset) for corner in corners]
    return dataset, np.array([offset for _, offset in places], dtype=np.uint64)


def _allocated(
    h5: Any, name: str, shape: tuple[int, ...], dtype: str, chunk: tuple[int, ...] | None
) -> Any:
    created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if chunk is not None:
        created.set_chunk(chunk)
    created.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    created.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    created.set_obj_track_times(False)
    limit = None if chunk is None else (h5py.h5s.UNLIMITED, *shape[1:])
    kind, space = h5py.h5t.py_create(np.dtype(dtype)), h5py.h5s.create_simple(shape, limit)
    group, _, own = name.rpartition("/")
    h5py.h5d.create(h5.require_group(group or "/").id, own.encode(), kind, space, dcpl=created)
    return h5[name]


def shorten(h5: Any, name: str, n_rows: int, at_a_time: int) -> None:
    """Leave the first rows of a contiguous dataset, in one of its own.

    Parameters
    ----------
    h5 : h5py.File
        Where.
    name : str
        Of the dataset.
    n_rows : int
        How many there are to be.
    at_a_time : int
        Rows in memory.
    """
    long = h5[name]
    del h5[name]
    short = contiguous(h5, name, (n_rows, *long.shape[1:]), long.dtype.str)
    for first in range(0, n_rows, at_a_time):
        stop = min(first + at_a_time, n_rows)
        short[first:stop] = long[first:stop]


@dataclass(frozen=True)
class Contents:
    """What all frames of a file hold.

    Attributes
    ----------
    fields : sequence of str
        Out of "positions", "velocities", "forces".
    n_frames, n_atoms : int
        To be written; frames may be fewer in the end.
    has_cell : bool
        Whether there is a cell.
    """

    fields: Sequence[str]
    n_frames: int
    n_atoms: int
    has_cell: bool


class Chunks:
    """A dataset that takes chunks one after another.

    Parameters
    ----------
    file : NewFile
        In which it is made.
    field : str
        "positions", "velocities" or "forces".
    storage : Storage
        How; in chunks.
    n_frames : int
        Rows that it has room for.
    n_atoms : int
        Of a row.
    """

    def __init__(self, file: NewFile, field: str, storage: Storage, n_frames: int, n_atoms: int):
        layout, compression = storage.layout, storage.compression
        self._dataset = file.h5.create_dataset(
            f"particles/{GROUP}/{ELEMENTS[field]}/value",
            shape=(n_frames, n_atoms, 3),
            maxshape=(None, n_atoms, 3),
            dtype="<f4",
            chunks=layout.chunk,
            compression=None if compression.level is None else "gzip",
            compression_opts=compression.level,
            shuffle=compression.shuffle,
        )
        self._atoms = layout.atoms
        self._encoder = storage.encoder(field)
        self._open = np.empty((layout.frames, n_atoms, 3), dtype=np.float32)
        self._n_open = self._n_written = 0

    def put_frames(self, first: int, values: np.ndarray) -> None:
        """Take frames as numbers; what does not fill a chunk waits for the next.

        Parameters
        ----------
        first : int
            Their first row: that behind the last one.
        values : numpy.ndarray of float32, shape (n_frames, n_atoms, 3)
            Å, Å/ps, kJ/(mol·Å).
        """
        assert first == self._n_written + self._n_open
        while len(values):
            fit = len(self._open) - self._n_open
            some, values = values[:fit], values[fit:]
            self._open[self._n_open : self._n_open + len(some)] = some
            self._n_open += len(some)
            if self._n_open == len(self._open):
                self._flush()

    def put_chunks(
        self, first: int, n_frames: int, data: "bytes | memoryview", sizes: np.ndarray
    ) -> None:
        """Take ready chunks, where no frame waits for others of its chunk.

        Parameters
        ----------
        first : int
            Their first row: that behind the last one.
        n_frames : int
            That they hold: all that they have room for, unless they are the last.
        data : bytes-like
            One after another, in C order.
        sizes : numpy.ndarray of uint64, shape (n_chunks,)
            Bytes of each.
        """
        assert first == self._n_written
        frames, n_atoms, _ = self._open.shape
        columns = -(-n_atoms // self._atoms)
        view, ends = memoryview(data), np.cumsum(sizes, dtype=np.int64).tolist()
        for k, (start, end) in enumerate(pairwise([0, *ends])):
            row, column = divmod(k, columns)
            corner = first + row * frames, column * self._atoms, 0
            self._dataset.id.write_direct_chunk(corner, view[start:end])
        self._n_written += n_frames

    def _flush(self) -> None:
        if self._n_open:
            n_open, self._n_open = self._n_open, 0
            self.put_chunks(self._n_written, n_open, *self._encoder.encode(self._open[:n_open]))

    def finish(self, n_frames: int) -> None:
        """Write the frames that wait, and end behind the last one.

        Parameters
        ----------
        n_frames : int
            That were given.
        """
        self._flush()
        if self._dataset.shape[0] != n_frames:
            self._dataset.resize(n_frames, axis=0)


class Space:
    """A dataset that has its place in the file from the beginning.

    Parameters
    ----------
    file : NewFile
        In which it is made.
    field : str
        "positions", "velocities" or "forces".
    storage : Storage
        How; not compressed.
    n_frames, n_atoms : int
        Rows that there will be, and atoms of each.

    Attributes
    ----------
    places : Places
        Of its numbers.
    """

    def __init__(self, file: NewFile, field: str, storage: Storage, n_frames: int, n_atoms: int):
        self._file, self._storage = file, storage
        self._name = f"particles/{GROUP}/{ELEMENTS[field]}/value"
        self._n_planned = n_frames
        self._encoder = storage.encoder(field)
        shape = n_frames, n_atoms, 3
        if storage.layout.contiguous:
            dataset = contiguous(file.h5, self._name, shape, "<f4")
            offsets = np.array([dataset.id.get_offset()], dtype=np.uint64)
        else:
            dataset, offsets = chunked(file.h5, self._name, shape, "<f4", storage.layout.chunk)
        self.places = Places(offsets, storage.layout, n_atoms)

    def put_frames(self, first: int, values: np.ndarray) -> None:
        """Write frames to their place, whichever were written before.

        Parameters
        ----------
        first : int
            Their first row.
        values : numpy.ndarray of float32, shape (n_frames, n_atoms, 3)
            Å, Å/ps, kJ/(mol·Å).
        """
        places, lead = self.places.of(first, len(values))
        self._encoder.write(self._file.path, places, values, lead=lead)

    def finish(self, n_frames: int) -> None:
        """End behind the last frame.

        Parameters
        ----------
        n_frames : int
            That were written.
        """
        if n_frames < self._n_planned:
            shorten(self._file.h5, self._name, n_frames, 16)


class NewH5MD:
    """An H5MD file that is being made.

    Parameters
    ----------
    file : NewFile
        Empty.
    contents : Contents
        What its frames hold.
    storage : Storage
        How.
    placed : bool
        Whether datasets have their place in the file from the beginning.

    Attributes
    ----------
    datasets : mapping of str to Chunks or Space
        Of each field, what takes its frames.
    """

    def __init__(self, file: NewFile, contents: Contents, storage: Storage, *, placed: bool):
        self._file = file
        self._contents = contents
        self._storage = storage
        kind = Space if placed else Chunks
        self.datasets: dict[str, Any] = {
            field: kind(file, field, storage, contents.n_frames, contents.n_atoms)
            for field in contents.fields
        }

    def finish(
        self,
        times: np.ndarray,
        steps: np.ndarray,
        dimensions: np.ndarray,
        description: Description,
    ) -> None:
        """Write what is known at the end.

        Parameters
        ----------
        times : numpy.ndarray of float64, shape (n_frames,)
            ps.
        steps : numpy.ndarray of int64, shape (n_frames,)
            Of the simulation; they rise.
        dimensions : numpy.ndarray of float32, shape (n_frames, 6)
            Å and degrees.
        description : Description
            Of the atoms, and of where the frames come from.
        """
        particles = self._file.h5[f"particles/{GROUP}"]
        for field, dataset in self.datasets.items():
            dataset.finish(len(times))
            values = particles[ELEMENTS[field]]["value"]
            set_unit(values, ELEMENTS[field])
            step = self._storage.encoder(field).step
            if step is not None:
                say_rounded(values, step)
        first, *others = (particles[ELEMENTS[field]] for field in self.datasets)
        add_clock(first, steps, times)
        box = create_box(particles, periodic=self._contents.has_cell)
        if self._contents.has_cell:
            edges = box.create_group("edges")
            edges["value"] = _core.cell_vectors(dimensions)
            set_unit(edges["value"], "edges")
            others.append(edges)
        for other in others:
            share_clock(other, first)
        describe(self._file.h5, GROUP, description)
