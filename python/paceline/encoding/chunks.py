"""A worker's half of writing H5MD: blocks of frames to chunks, or straight to their places."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from paceline import _core
from paceline.block import Block
from paceline.encoding.base import naming
from paceline.errors import UnwritableError
from paceline.files import writing_to
from paceline.hdf5.storage import Places, cut
from paceline.ordered import Encoded


@dataclass(frozen=True)
class Piece:
    """Some of a block's frames.

    Attributes
    ----------
    field : str
        What of them.
    first, n_frames : int
        Which row of the block is the first, and how many they are.
    sizes : numpy.ndarray of uint64, shape (n_chunks,), or None
        Bytes of each chunk; None where frames are as they were decoded.
    n_bytes : int
        In all.
    """

    field: str
    first: int
    n_frames: int
    sizes: np.ndarray | None
    n_bytes: int


@dataclass(frozen=True)
class EncodedChunks(Encoded):
    """Frames of one block, for HDF5.

    Attributes
    ----------
    dimensions : numpy.ndarray of float32, shape (n_frames, 6)
        Å and degrees.
    pieces : tuple of Piece
        What `data` holds, one after another.
    """

    dimensions: np.ndarray
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Encode:
    """The worker's half: a block's frames to chunks.

    Those that don't fill chunks stay as they are, and all of them where `frames`, those of a
    chunk, is None.
    """

    path: str
    encoders: "Mapping[str, _core.ChunkEncoder]"
    frames: int | None
    has_cell: bool

    def compute_block(self, block: Block, first: int) -> EncodedChunks:
        """Encode a block whose first frame is row `first` of the results."""
        self._check_cells(block)
        return self._encoded(block, first, self.frames)

    def _encoded(self, block: Block, first: int, frames: int | None) -> EncodedChunks:
        pieces, data = [], []
        for name, encoder in self.encoders.items():
            for rows, whole in cut(first, len(block), frames):
                some = block[rows]
                with naming(self.path, some):
                    values = getattr(some, name)
                    if whole:
                        encoded, sizes = encoder.encode(values)
                    else:
                        encoder.check(values)
                        encoded, sizes = values.tobytes(), None
                data.append(encoded)
                pieces.append(Piece(name, rows.start, len(some), sizes, len(encoded)))
        times, steps, dimensions = block.times, block.steps, block.dimensions
        return EncodedChunks(first, b"".join(data), times, steps, dimensions, tuple(pieces))

    def _check_cells(self, block: Block) -> None:
        """Refuse cells where the first frame has none, and such as no frame can have."""
        cells = block.dimensions
        wrong = ~np.isfinite(cells).all(axis=1)
        expected = "a finite unit cell"
        if not self.has_cell:
            wrong = cells.any(axis=1)
            expected = "no unit cell, as in the file's first frame"
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise UnwritableError(
                f"{self.path}: frame {block.frames[row]}: expected {expected}, found {cells[row]}"
            )


@dataclass(frozen=True)
class EncodeInPlace(Encode):
    """The same where frames have their places: a block's frames straight to the file.

    Workers of other machines give them as they are: they may not see the file's folder, or through
    a network file system that lets neighbours on one page undo each other's writing.
    """

    temporary: Path
    host: str
    #: Of each field; known when the file is there.
    places: dict[str, Places] = field(default_factory=dict)

    def compute_block(self, block: Block, first: int) -> EncodedChunks:
        """Write a block whose first frame is row `first` of the results."""
        self._check_cells(block)
        if socket.gethostname() != self.host:
            return self._encoded(block, first, None)
        for name, encoder in self.encoders.items():
            places, lead = self.places[name].of(first, len(block))
            with naming(self.path, block), writing_to(self.path):
                encoder.write(self.temporary, places, getattr(block, name), lead=lead)
        return EncodedChunks(first, b"", block.times, block.steps, block.dimensions, ())
