"""Write H5MD files: workers encode chunks, or write frames to their place in HDF5 datasets."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from paceline import _core
from paceline._util.files import temporary_name, writing_to
from paceline.block import Block, vectors_of
from paceline.contract.kinds import PerBlock
from paceline.errors import UnsupportedError, UnwritableError, warn
from paceline.hdf5.h5md_tree import LAMBDA, AtomProperties, Description, FrameColumns
from paceline.hdf5.storage_layout import (
    ChunkOffsets,
    Storage,
    choose_layout,
    parse_compression,
    split_at_chunks,
)
from paceline.hdf5.writer import H5MDFileWriter, NewFile, new_hdf5
from paceline.trajectory.write_frames import (
    BlockReceiver,
    EncodedBlock,
    FramesToWrite,
    OrderedReceiver,
    Target,
    naming_block,
)


class EncodedRows(NamedTuple):
    """Part of a block's bytes: rows of a field, and bytes of each chunk or None for numbers."""

    field: str
    first: int
    n_frames: int
    sizes: np.ndarray | None
    n_bytes: int


@dataclass(frozen=True)
class EncodedChunks(EncodedBlock):
    """Frames of one block, for HDF5, and the cells of `FrameBuffer`."""

    cells: np.ndarray
    #: Parts of `data`, one after another.
    parts: tuple[EncodedRows, ...]


@dataclass(frozen=True)
class Encode(PerBlock):
    """Worker part: encodes a block's frames as chunks.

    Those that don't fill chunks stay as they are, and all of them where `frames`, those of a
    chunk, is None.
    """

    path: str
    encoders: "Mapping[str, _core.ChunkEncoder]"
    frames: int | None
    has_cell: bool
    #: Vectors of the first frame's cell that are periodic.
    periodic: tuple[bool, bool, bool]

    def compute_block(self, block: Block, first: int) -> EncodedChunks:
        """Encode a block whose first frame is row `first` of the results."""
        self._check_cells(block)
        return self._encoded(block, first, self.frames)

    def _encoded(self, block: Block, first: int, frames: int | None) -> EncodedChunks:
        parts, data = [], []
        for name, encoder in self.encoders.items():
            for rows, whole in split_at_chunks(first, len(block), frames):
                some = block[rows]
                with naming_block(self.path, some):
                    values = some.values_of(name)
                    if whole:
                        encoded, sizes = encoder.encode(values)
                    else:
                        encoder.check(values)
                        encoded, sizes = values.tobytes(), None
                data.append(encoded)
                parts.append(EncodedRows(name, rows.start, len(some), sizes, len(encoded)))
        return EncodedChunks(first, b"".join(data), *_moments(block), parts=tuple(parts))

    def _check_cells(self, block: Block) -> None:
        """Refuse cells where the first frame has none, and such as no frame can have."""
        cells = block.dimensions
        wrong = ~np.isfinite(cells).all(axis=1)
        expected = "a finite unit cell"
        if not self.has_cell:
            wrong = cells.any(axis=1)
            expected = "no unit cell, as in the file's first frame"
        elif not wrong.any():
            wrong = (block.periodic != self.periodic).any(axis=1) & cells.any(axis=1)
            axes = ", ".join(compress("xyz", self.periodic)) or "no axis"
            expected = f"a cell periodic along {axes}, as in the file's first frame"
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise UnwritableError(
                f"{self.path}: frame {block.frames[row]}: expected {expected}, found {cells[row]}"
            )


@dataclass(frozen=True)
class EncodeInPlace(Encode):
    """Worker part where datasets are allocated: writes a block's frames to the file.

    Workers of other machines return them as they are: they may not see the file's folder, or
    through a network file system that lets neighbours on one page undo each other's writing.
    """

    temporary: Path
    host: str
    #: Offsets of each field's chunks; known when the file is there.
    offsets: dict[str, ChunkOffsets] = field(default_factory=dict)

    def compute_block(self, block: Block, first: int) -> EncodedChunks:
        """Write a block whose first frame is row `first` of the results."""
        self._check_cells(block)
        if socket.gethostname() != self.host:
            return self._encoded(block, first, None)
        for name, encoder in self.encoders.items():
            offsets, lead = self.offsets[name].of(first, len(block))
            with naming_block(self.path, block), writing_to(self.path):
                encoder.write(self.temporary, offsets, block.values_of(name), lead=lead)
        return EncodedChunks(first, b"", *_moments(block), parts=())


def _moments(block: Block) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Times, steps, λ and cells of a block."""
    return block.times, block.steps, block.lambdas, block.cells


class H5MDFile(Target):
    """An H5MD file.

    Datasets are allocated from the beginning where nothing is compressed and no frame may be left
    out: then workers write frames there. Otherwise they encode whole chunks, which HDF5 is given
    in the order of frames. Frames that don't fill a chunk of their block, or whose rows depend on
    frames before them, travel as numbers.
    """

    def __init__(
        self,
        path: str,
        format: str,
        n_atoms: int,
        *,
        overwrite: bool = False,
        chunk: str = "auto",
        for_: str = "frames",
        align: int | None = None,
        compress: str = "none",
        precision: float | None = None,
    ):
        super().__init__(path, n_atoms, overwrite=overwrite)
        layout = choose_layout(chunk, n_atoms, for_=for_, align=align)
        self._requested = Storage(layout, parse_compression(compress), precision)
        self._requested.encoder("positions")  # refuses a precision that cannot be
        self.frames_together = layout.frames_together(n_atoms)

    def begin(self, frames: FramesToWrite) -> Encode:
        """Make the worker part."""
        self.fields = fields = frames.fields
        if not fields:
            raise UnsupportedError(f"{self._path}: the first frame holds nothing to be written")
        self._frames = frames
        layout = self._requested.layout.within(frames.n_frames)
        self._storage = replace(self._requested, layout=layout)
        self._temporary = temporary_name(self._path)
        # Frames that might be left out have no row before those before them are there.
        counted = not frames.skip_damaged
        plain = self._storage.compression.method is None
        self._allocated = plain and (layout.contiguous or counted)
        whole_chunks = not layout.contiguous and (counted or layout.frames == 1)
        encode: Callable[..., Encode] = Encode
        if self._allocated and counted:
            host = socket.gethostname()
            encode = partial(EncodeInPlace, temporary=self._temporary, host=host)
        self._worker_part = encode(
            self._path,
            {field: self._storage.encoder(field) for field in fields},
            layout.frames if whole_chunks else None,
            frames.has_cell,
            frames.periodic,
        )
        return self._worker_part

    @contextmanager
    def receiver(self) -> Iterator[BlockReceiver]:
        """Open the file for the time of a run: whole under its name afterwards, or not there."""
        frames = self._frames
        with new_hdf5(
            self._path,
            overwrite=self._overwrite,
            align=self._storage.layout.align,
            temporary=self._temporary,
        ) as file:
            h5md = H5MDFileWriter(
                file,
                self._storage,
                self.fields,
                frames.n_frames,
                self._n_atoms,
                has_cell=frames.has_cell,
                periodic=frames.periodic,
                allocated=self._allocated,
            )
            put = _BlockWriter(file, h5md, frames.n_frames, self._n_atoms)
            with self._blocks(h5md, put) as blocks:
                yield blocks
                times, steps, lambdas = blocks.time_axis()
            observables = {LAMBDA: lambdas} if lambdas.any() else {}
            vectors = put.vectors[: len(times)]
            rows = FrameColumns(self._rising(steps), times, vectors, observables)
            h5md.finish(rows, self._description())
        # It may wait under its temporary name for other files, with which it appears.
        made = self._temporary if self._temporary.exists() else self._path
        self.n_written, self.n_bytes = len(times), os.stat(made).st_size

    def _blocks(self, h5md: H5MDFileWriter, put: "_BlockWriter") -> BlockReceiver:
        """Make the receiver, and give workers the offsets at which they write."""
        if not isinstance(self._worker_part, EncodeInPlace):
            return OrderedReceiver(self._path, put.append)
        # Workers are sent their part after this.
        offsets = {field: dataset.offsets for field, dataset in h5md.datasets.items()}
        self._worker_part.offsets.update(offsets)
        return BlockReceiver(self._path, put.at_its_row)

    def _rising(self, steps: np.ndarray) -> np.ndarray:
        """Steps as H5MD wants them."""
        if (np.diff(steps) > 0).all():
            return steps
        warn(
            f"{self._path}: in H5MD steps rise from frame to frame, but those of the source do "
            "not: frames are counted instead; their times are kept"
        )
        return np.arange(len(steps))

    def _description(self) -> Description:
        origin = {name: str(value) for name, value in self._frames.origin.items()}
        return Description(AtomProperties.of(self._frames.atoms), origin)


class _BlockWriter:
    """Writes blocks to the datasets of a file, and keeps the `vectors` of their cells, Å."""

    def __init__(self, file: NewFile, h5md: H5MDFileWriter, n_frames: int, n_atoms: int):
        self._file = file
        self._h5md = h5md
        self._shape = (-1, n_atoms, 3)
        self._n_frames = 0
        self.vectors = np.zeros((n_frames, 3, 3))

    def append(self, value: EncodedBlock) -> None:
        """Write a block behind those before it."""
        self._put(self._n_frames, value)
        self._n_frames += len(value.times)

    def at_its_row(self, value: EncodedBlock) -> None:
        """Write a block to its rows."""
        self._put(value.first, value)

    def _put(self, first: int, value: EncodedBlock) -> None:
        assert isinstance(value, EncodedChunks)
        vectors = vectors_of(_core.cells_without_noise(value.cells))
        self.vectors[first : first + len(value.times)] = vectors
        data = memoryview(value.data)
        for part in value.parts:
            some, data = data[: part.n_bytes], data[part.n_bytes :]
            dataset, row = self._h5md.datasets[part.field], first + part.first
            if part.sizes is None:
                values = np.frombuffer(some, dtype=np.float32).reshape(self._shape)
                dataset.put_frames(row, values)
            else:
                dataset.put_chunks(row, part.n_frames, some, part.sizes)
        self._file.check()
