"""H5MD files: frames in the chunks, or the contiguous space, of HDF5 datasets."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from paceline import _core
from paceline._util.files import temporary_name, writing_to
from paceline.block import Block
from paceline.errors import UnsupportedError, UnwritableError
from paceline.hdf5.layout import Places, Storage, choose_layout, cut, parse_compression
from paceline.hdf5.metadata import Atoms, Description
from paceline.hdf5.writer import Contents, NewFile, NewH5MD, new_hdf5
from paceline.writers.base import Encoded, Ordered, Placed, Source, Target, naming


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


class H5MDFile(Target):
    """An H5MD file.

    Frames have their place in it from the beginning where nothing is compressed and no frame may
    be left out: then workers write them there. Otherwise they encode whole chunks, which HDF5 is
    given in the order of frames. Frames that don't fill a chunk of their block, or of which nobody
    knows yet where they will stand, travel as they are.

    Parameters
    ----------
    path : str
        Final name.
    format : str
        "H5MD".
    n_atoms : int
        To be written.
    overwrite : bool
        Whether a file of that name may be replaced.
    chunk, for_, align : optional
        As for `paceline.hdf5.layout.choose_layout`.
    compress : str
        As for `paceline.hdf5.layout.parse_compression`.
    precision : float, optional
        Å: by how much positions may be apart and still be stored as the same.
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
        self._asked = Storage(layout, parse_compression(compress), precision)
        self._asked.encoder("positions")  # refuses a precision that cannot be
        self.frames_together = layout.frames_together(n_atoms)

    def begin(self, source: Source) -> Encode:
        """Make the worker's half."""
        self.fields = fields = source.held
        if not fields:
            raise UnsupportedError(f"{self._path}: the first frame holds nothing to be written")
        self._source = source
        self._contents = Contents(fields, source.n_frames, self._n_atoms, source.has_cell)
        layout = self._asked.layout.within(source.n_frames)
        self._storage = replace(self._asked, layout=layout)
        self._temporary = temporary_name(self._path)
        # Frames that might be left out have no place before those before them are there.
        counted = not source.skip_damaged
        plain = self._storage.compression.level is None
        self._placed = plain and (layout.contiguous or counted)
        whole_chunks = not layout.contiguous and (counted or layout.frames == 1)
        encode: Callable[..., Encode] = Encode
        if self._placed and counted:
            host = socket.gethostname()
            encode = partial(EncodeInPlace, temporary=self._temporary, host=host)
        self._half = encode(
            self._path,
            {field: self._storage.encoder(field) for field in fields},
            layout.frames if whole_chunks else None,
            source.has_cell,
        )
        return self._half

    @contextmanager
    def receiver(self) -> Iterator[Ordered | Placed]:
        """The file, for the time of a run: whole under its name afterwards, or not there."""
        with new_hdf5(
            self._path,
            overwrite=self._overwrite,
            align=self._storage.layout.align,
            temporary=self._temporary,
        ) as file:
            made = NewH5MD(file, self._contents, self._storage, placed=self._placed)
            taking = _Taking(file, made, self._contents)
            with self._blocks(made, taking) as blocks:
                yield blocks
                times, steps = blocks.moments.all()
                if len(times) == 0:
                    raise UnsupportedError(f"{self._path}: no frame is left to be written")
            made.finish(times, self._rising(steps), taking.cells[: len(times)], self._described())
        self.n_written, self.n_bytes = len(times), os.stat(self._path).st_size

    def _blocks(self, made: NewH5MD, taking: "_Taking") -> Ordered | Placed:
        """What takes blocks."""
        if not isinstance(self._half, EncodeInPlace):
            return Ordered(taking.next, os.path.dirname(self._path))
        # Workers are sent their half after this.
        places = {field: dataset.places for field, dataset in made.datasets.items()}
        self._half.places.update(places)
        return Placed(taking.at_its_place)

    def _rising(self, steps: np.ndarray) -> np.ndarray:
        """Steps as H5MD wants them."""
        if (np.diff(steps) > 0).all():
            return steps
        from paceline.trajectory.open import warn

        warn(
            f"{self._path}: in H5MD steps rise from frame to frame, but those of the source do "
            "not: frames are counted instead; their times are kept"
        )
        return np.arange(len(steps))

    def _described(self) -> Description:
        origin = {name: str(value) for name, value in self._source.origin.items()}
        return Description(Atoms.of(self._source.atoms), origin)


class _Taking:
    """Takes blocks, and puts them into a file.

    Parameters
    ----------
    file : NewFile
        The file.
    made : NewH5MD
        Its datasets.
    contents : Contents
        What its frames hold.

    Attributes
    ----------
    cells : numpy.ndarray of float32, shape (n_frames, 6)
        Of the frames so far, Å and degrees.
    """

    def __init__(self, file: NewFile, made: NewH5MD, contents: Contents):
        self._file = file
        self._made = made
        self._shape = (-1, contents.n_atoms, 3)
        self._n_frames = 0
        self.cells = np.zeros((contents.n_frames, 6), dtype=np.float32)

    def next(self, value: Encoded) -> None:
        """Take the block behind those before it."""
        self._put(self._n_frames, value)
        self._n_frames += len(value.times)

    def at_its_place(self, value: Encoded) -> None:
        """Take a block whose rows are known."""
        self._put(value.first, value)

    def _put(self, first: int, value: Encoded) -> None:
        assert isinstance(value, EncodedChunks)
        self.cells[first : first + len(value.times)] = value.dimensions
        data = memoryview(value.data)
        for piece in value.pieces:
            some, data = data[: piece.n_bytes], data[piece.n_bytes :]
            dataset, row = self._made.datasets[piece.field], first + piece.first
            if piece.sizes is None:
                values = np.frombuffer(some, dtype=np.float32).reshape(self._shape)
                dataset.put_frames(row, values)
            else:
                dataset.put_chunks(row, piece.n_frames, some, piece.sizes)
        self._file.check()
