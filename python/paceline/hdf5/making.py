"""New HDF5 files, whole under their name or not there, through HDF5's own library."""

import contextlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from paceline.files import new_files, writing_to
from paceline.hdf5.metadata import set_unit


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
        What it is called until then: of `paceline.files.temporary_name`.

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
