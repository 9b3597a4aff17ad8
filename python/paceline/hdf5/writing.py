"""Positions, velocities and forces in an HDF5 file that is being made.

A dataset takes frames as numbers, which are encoded here, or chunks that were encoded elsewhere,
always in the order of frames; or it has its space in the file from the beginning, where workers
write the numbers themselves. Either way the same frames give the same bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from paceline import _core
from paceline.hdf5.making import (
    NewFile,
    add_clock,
    chunked,
    contiguous,
    share_clock,
    shorten,
)
from paceline.hdf5.metadata import Description, create_box, describe, say_rounded, set_unit
from paceline.hdf5.storage import ELEMENTS, GROUP, Places, Storage


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
