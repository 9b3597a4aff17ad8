"""Write H5MD files: workers encode chunks, or write frames directly into HDF5 datasets."""

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
from paceline.contract.analysis_kinds import PerBlock
from paceline.errors import UnsupportedError, UnwritableError, warn
from paceline.hdf5.create_h5md_groups import LAMBDA, AtomProperties, Description, FrameColumns
from paceline.hdf5.dataset_writers import H5MDFileWriter, NewFile, new_hdf5
from paceline.hdf5.h5md_storage_layout import (
    ChunkOffsets,
    Storage,
    choose_layout,
    parse_compression,
    split_at_chunks,
)
from paceline.trajectory.write_frames import (
    BlockReceiver,
    EncodedBlock,
    FramesToWrite,
    OrderedReceiver,
    Target,
    naming_block,
)


class EncodedRows(NamedTuple):
    """Part of a block's bytes: rows of one field.

    `sizes` are the sizes of encoded chunks, bytes; None for rows that are not encoded.
    """

    field: str
    first: int
    n_frames: int
    sizes: np.ndarray | None
    n_bytes: int


@dataclass(frozen=True)
class EncodedChunks(EncodedBlock):
    """Frames of one block, encoded for HDF5, and their cells as rows of `FrameBuffer.cells`."""

    cells: np.ndarray
    #: Descriptions of the consecutive parts of `data`.
    parts: tuple[EncodedRows, ...]


@dataclass(frozen=True)
class Encode(PerBlock):
    """Worker part that encodes a block's frames as chunks.

    Frames that do not fill a chunk are not encoded. If `frames` (frames per chunk) is None, no
    frame is encoded.
    """

    path: str
    encoders: "Mapping[str, _core.ChunkEncoder]"
    frames: int | None
    has_cell: bool
    #: For each vector of the first frame's cell, True if the system is periodic along it.
    periodic: tuple[bool, bool, bool]

    def compute_block(self, block: Block, first: int) -> EncodedChunks:
        """Encode a block whose first frame is row `first` of the results."""
        self._check_cells(block)
        return self._encode_frames(block, first, self.frames)

    def _encode_frames(self, block: Block, first: int, frames: int | None) -> EncodedChunks:
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
        """Raise for invalid cells, and for cells that do not suit the file.

        A cell does not suit the file if the first frame has no cell, or has one that is periodic
        along other vectors.
        """
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
    """Worker part that writes a block's frames into allocated datasets of the file.

    Workers on other machines return the frames instead, because they may not see the file's folder,
    and a network file system may lose concurrent writes to one page.
    """

    temporary: Path
    host: str
    #: Offsets of each field's chunks; set when the file exists.
    offsets: dict[str, ChunkOffsets] = field(default_factory=dict)

    def compute_block(self, block: Block, first: int) -> EncodedChunks:
        """Write a block whose first frame is row `first` of the results."""
        self._check_cells(block)
        if socket.gethostname() != self.host:
            return self._encode_frames(block, first, None)
        for name, encoder in self.encoders.items():
            offsets, lead = self.offsets[name].of(first, len(block))
            with naming_block(self.path, block), writing_to(self.path):
                encoder.write(self.temporary, offsets, block.values_of(name), lead=lead)
        return EncodedChunks(first, b"", *_moments(block), parts=())


def _moments(block: Block) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return times, steps, λ and cells of a block."""
    return block.times, block.steps, block.lambdas, block.cells


class H5MDFile(Target):
    """An H5MD output file.

    If nothing is compressed and no frame may be skipped, datasets are allocated at the start, and
    workers write frames into them. Otherwise workers encode whole chunks, which are passed to HDF5
    in frame order. Some frames are sent to the calling process without encoding: those that do not
    fill a chunk of their block, and those whose row is unknown, because earlier frames may be
    skipped.
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
        self._requested.encoder("positions")  # raises for an unsupported precision
        self.frames_together = layout.frames_together(n_atoms)

    def begin(self, frames: FramesToWrite) -> Encode:
        """Create the worker part, which encodes frames, or also writes them."""
        self.fields = fields = frames.fields
        if not fields:
            raise UnsupportedError(f"{self._path}: the first frame contains nothing to write")
        self._frames = frames
        layout = self._requested.layout.within(frames.n_frames)
        self._storage = replace(self._requested, layout=layout)
        self._temporary = temporary_name(self._path)
        # If frames may be skipped, a frame's row is unknown until all earlier frames are read.
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
        """Open the file for a run; it appears under its name only if the run succeeds."""
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
        # The file may wait under its temporary name for other files that appear together with it.
        made = self._temporary if self._temporary.exists() else self._path
        self.n_written, self.n_bytes = len(times), os.stat(made).st_size

    def _blocks(self, h5md: H5MDFileWriter, put: "_BlockWriter") -> BlockReceiver:
        """Create the receiver; if workers write frames themselves, pass them the file offsets."""
        if not isinstance(self._worker_part, EncodeInPlace):
            return OrderedReceiver(self._path, put.append)
        # The worker part is sent to workers later, and then contains the offsets.
        offsets = {field: dataset.offsets for field, dataset in h5md.datasets.items()}
        self._worker_part.offsets.update(offsets)
        return BlockReceiver(self._path, put.at_its_row)

    def _rising(self, steps: np.ndarray) -> np.ndarray:
        """Return the steps, which must increase in H5MD; if they do not, warn and count frames."""
        if (np.diff(steps) > 0).all():
            return steps
        warn(
            f"{self._path}: in H5MD, steps increase from frame to frame, but the steps of the "
            "source "
            "do not: frames are counted instead; their times are kept"
        )
        return np.arange(len(steps))

    def _description(self) -> Description:
        origin = {name: str(value) for name, value in self._frames.origin.items()}
        return Description(AtomProperties.of(self._frames.atoms), origin)


class _BlockWriter:
    """Writes blocks to the datasets of a file, and stores the cell vectors of the frames, Å."""

    def __init__(self, file: NewFile, h5md: H5MDFileWriter, n_frames: int, n_atoms: int):
        self._file = file
        self._h5md = h5md
        self._shape = (-1, n_atoms, 3)
        self._n_frames = 0
        self.vectors = np.zeros((n_frames, 3, 3))

    def append(self, value: EncodedBlock) -> None:
        """Write a block to the rows after those of the previous block."""
        self._put(self._n_frames, value)
        self._n_frames += len(value.times)

    def at_its_row(self, value: EncodedBlock) -> None:
        """Write a block to the rows that it has in the results."""
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
