"""Write an H5MD file frame by frame; the number of frames need not be known in advance."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from paceline import _core
from paceline.block import vectors_of
from paceline.errors import UnwritableError
from paceline.hdf5.create_h5md_groups import Description, FrameColumns, check_step
from paceline.hdf5.dataset_writers import EncodeQueue, H5MDFileWriter, new_hdf5
from paceline.hdf5.h5md_storage_layout import Storage

#: Maximum size of frames that wait to be encoded, or to be written after earlier frames, bytes.
_WAITING = 256 * 2**20
#: Number of bytes of a field that are written at a time if the storage is contiguous.
_PORTION = 4 * 2**20


class FrameData(NamedTuple):
    """One frame to write: values in Å, Å/ps and kJ/(mol·Å), shape (n_atoms, 3); time in ps.

    Dimensions are in Å and degrees, shape (6,); None without a cell.
    """

    values: Mapping[str, np.ndarray]
    dimensions: np.ndarray | None
    time: float
    step: int
    observables: Mapping[str, Any]


class FrameRows:
    """Steps, times, cells and observables of consecutive frames with the same kinds of data."""

    def __init__(self, first: FrameData):
        self._first = first
        self.steps: list[int] = []
        self._times: list[float] = []
        self._cells: list[np.ndarray] = []
        self._observed: dict[str, list[Any]] = {name: [] for name in first.observables}

    @property
    def contents(self) -> dict[str, list[str]]:
        """Names of fields, cell and observables that each frame must have.

        Keys are the words that precede the names in messages.
        """
        return _contents(self._first)

    def add(self, frame: FrameData) -> None:
        """Add the step, time, cell and observables of a frame.

        Raises `UnwritableError` if the frame has other kinds of data than the first one, or if the
        step does not exceed the previous step.
        """
        number = len(self.steps)
        check_alike(f"frame {number}", _contents(frame), "in the first frame", self.contents)
        check_step(f"frame {number}", frame.step, self.steps[-1] if self.steps else None)
        self.steps.append(frame.step)
        self._times.append(frame.time)
        if frame.dimensions is not None:
            self._cells.append(np.array(frame.dimensions, dtype=np.float32))
        for name, values in self._observed.items():
            values.append(np.array(frame.observables[name]))

    def values(self) -> dict[str, Any]:
        """Times, cells and observables of these frames, for the `parts` of `frame_columns`."""
        cells = np.reshape(self._cells, (-1, 6)).astype(np.float32)
        return {"times": self._times, "cells": cells, "observed": self._observed}

    def columns(self) -> FrameColumns:
        """Steps, times, cell vectors and observables of all frames, for a file of these frames."""
        return frame_columns(np.array(self.steps, np.int64), [self.values()])


def frame_columns(
    steps: np.ndarray, parts: Sequence[Mapping[str, Any]], order: np.ndarray | None = None
) -> FrameColumns:
    """Join the `FrameRows.values` of all parts of a file, with rows rearranged by `order`."""
    rows = np.arange(len(steps)) if order is None else order
    times = np.concatenate([part["times"] for part in parts]).astype(np.float64)
    cells = np.concatenate([part["cells"] for part in parts])
    vectors = vectors_of(_core.cells_of_dimensions(cells))
    observed: dict[str, list[Any]] = {}
    for part in parts:
        for name, values in part["observed"].items():
            observed.setdefault(name, []).extend(values)
    return FrameColumns(
        steps[rows],
        times[rows],
        vectors[rows] if len(vectors) else vectors,
        {name: [values[row] for row in rows] for name, values in observed.items()},
    )


def check_alike(
    what: str, found: dict[str, list[str]], where: str, expected: dict[str, list[str]]
) -> None:
    """Raise `UnwritableError` if a frame's kinds of data `found` differ from those `expected`.

    `what` names the frame or rank, and `where` the one that has the expected data.
    """
    for kind, names in expected.items():
        if set(found[kind]) != set(names):
            raise UnwritableError(
                f"{what}: expected {kind}{', '.join(names) or 'none'} as {where}, found "
                f"{', '.join(found[kind]) or 'none'}"
            )


def _contents(frame: FrameData) -> dict[str, list[str]]:
    cell = [] if frame.dimensions is None else ["one"]
    return {"": [*frame.values], "a cell: ": cell, "observables: ": [*frame.observables]}


class StreamingWriter:
    """H5MD file to which frames are added one by one; the file appears when it is closed.

    The first frame determines which fields all frames must contain; the constructor does not write
    this frame. A contiguous layout requires `n_frames`, the maximum number of frames.
    """

    def __init__(
        self,
        path: str,
        storage: Storage,
        first: FrameData,
        *,
        n_frames: int | None = None,
        n_threads: int = 1,
        overwrite: bool = False,
    ):
        self._path = path
        if n_frames is not None:
            storage = replace(storage, layout=storage.layout.within(n_frames))
        self._storage, self._first, self._n_frames = storage, first, n_frames
        self._rows = FrameRows(first)
        self._gathered = self._new_arrays()
        self._n_gathered = self._n_written = 0
        self._queue = EncodeQueue()
        self._h5md: H5MDFileWriter | None = None
        with contextlib.ExitStack() as stack:
            align = storage.layout.align
            self._file = stack.enter_context(new_hdf5(path, overwrite=overwrite, align=align))
            if storage.compression.method is not None and n_threads > 1:
                pool = ThreadPoolExecutor(n_threads, thread_name_prefix="paceline-encode")
                stack.callback(pool.shutdown, cancel_futures=True)
                n_bytes = sum(array.nbytes for array in self._gathered.values())
                n_waiting = min(n_threads, _WAITING // max(1, n_bytes))
                self._queue = EncodeQueue(pool, len(self._gathered) * n_waiting)
            self._stack = stack.pop_all()

    def _new_arrays(self) -> dict[str, np.ndarray]:
        """Allocate arrays for the frames that are written together."""
        frames = self._storage.layout.frames
        values = self._first.values
        if self._storage.layout.contiguous:
            frames = max(1, _PORTION // next(iter(values.values())).nbytes)
        return {
            field: np.empty((frames, *some.shape), dtype=np.float32)
            for field, some in values.items()
        }

    def add(self, frame: FrameData) -> None:
        """Write a frame, or store it until its chunk is full; after an error, remove the file.

        Raises `UnwritableError` if the frame has other contents than the first frame, if a number
        is not finite, or if the step does not exceed the previous step.
        """
        with self._removing_on_error():
            number = len(self._rows.steps)
            if self._storage.layout.contiguous and number == self._n_frames:
                raise UnwritableError(
                    f"frame {number}: expected at most {number} frames: see n_frames"
                )
            self._rows.add(frame)
            for field, array in self._gathered.items():
                array[self._n_gathered] = frame.values[field]
            self._n_gathered += 1
            if self._n_gathered == len(array):
                self._write()

    @contextlib.contextmanager
    def _removing_on_error(self) -> Iterator[None]:
        """Remove the unfinished file after an error; add its path to an `UnwritableError`."""
        try:
            yield
        except UnwritableError as error:
            with self._stack:
                raise UnwritableError(f"{self._path}: {error}") from None
        except BaseException:
            with self._stack:
                raise

    def _write(self) -> None:
        """Write the gathered frames, or queue them for encoding."""
        first, n_frames = self._n_written, self._n_gathered
        self._n_written, self._n_gathered = first + n_frames, 0
        h5md = self._h5md = self._h5md or self._begin(n_frames)
        gathered = self._gathered
        if self._queue.uses_threads:
            self._gathered = self._new_arrays()
        for field, array in gathered.items():
            values = array[:n_frames]
            h5md.datasets[field].add(first, n_frames, lambda values=values: values)
        self._file.check()

    def _begin(self, n_frames: int) -> H5MDFileWriter:
        """Create the datasets, with chunks of at most `n_frames` frames."""
        layout = self._storage.layout
        self._storage = replace(self._storage, layout=layout.within(n_frames))
        return H5MDFileWriter(
            self._file,
            self._storage,
            tuple(self._gathered),
            (self._n_frames or 0) if layout.contiguous else 0,
            len(next(iter(self._first.values.values()))),
            has_cell=self._first.dimensions is not None,
            allocated=layout.contiguous,
            queue=self._queue,
        )

    def close(self, description: Description) -> None:
        """Write the remaining frames and the tree; then the file appears under its name."""
        self._queue.leave_threads()
        with self._removing_on_error():
            if self._n_gathered:
                self._write()
            assert self._h5md is not None
            self._queue.put_all()
            self._h5md.finish(self._rows.columns(), description)
        self._stack.close()

    def abandon(self) -> None:
        """Close and remove the file without finishing it."""
        with contextlib.suppress(_Abandoned, OSError), self._stack:
            raise _Abandoned


class _Abandoned(Exception):
    """Signal that ends the context of an unfinished file, so that the file is removed."""
