"""Write files of frames: interfaces for all formats, and the writer of XTC, TRR, DCD and NetCDF."""

import os
import socket
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

import numpy as np

from paceline import _core
from paceline._util.files import new_file, temporary_name, writing_to
from paceline._util.os_calls import write_at
from paceline.block import FIELDS, Block, field_bits, fields_in, periodic_vectors
from paceline.contract.analysis_kinds import PartlyKept, PerBlock, Placements, Receiver
from paceline.contract.source import FORMATS, deviation_from_even
from paceline.contract.system_interface import Atoms
from paceline.errors import UnsupportedError, UnwritableError, warn

#: Maximum total size of blocks that wait in memory for an earlier block, bytes; further blocks wait
#: in a temporary file.
WAITING = 256 * 2**20
#: Bytes written by different hosts meet only at offsets that are multiples of this number. It is a
#: multiple of the page size of all systems, so that two hosts never write to one page.
_EDGE = 64 * 2**10


@dataclass(frozen=True)
class EncodedBlock:
    """Frames of one block, encoded as bytes of the file."""

    #: First row of the block in the results.
    first: int
    #: Encoded frames; empty if the worker has written them to the file.
    data: bytes
    #: Times of the frames, ps, float64, shape (n_frames,).
    times: np.ndarray
    #: Step numbers of the simulation, int64, shape (n_frames,).
    steps: np.ndarray
    #: λ of a free-energy calculation, or 0, float32, shape (n_frames,).
    lambdas: np.ndarray


@dataclass(frozen=True)
class PartlyWritten(EncodedBlock):
    """Block whose bytes a worker writes itself, except for some bytes at both ends.

    `data` contains the first `edge` bytes of the block and its last `edge` bytes. A worker on
    another host leaves bytes that share a page with other blocks to the receiver, because a network
    file system may lose bytes if two hosts write to one page at the same time.
    """

    size: int
    edge: int

    @classmethod
    def of(cls, value: EncodedBlock, host: str) -> "PartlyWritten | None":
        """Create the part of a block that is sent, without the bytes that this worker writes.

        A worker on `host` writes all bytes; on another host, all except those at both ends. Returns
        None if the block is too small for this.
        """
        n, edge = len(value.data), 0 if socket.gethostname() == host else _EDGE
        if n <= 4 * edge:
            return None
        ends = value.data[:edge] + value.data[n - edge :] if edge else b""
        moments = value.times, value.steps, value.lambdas
        return cls(value.first, ends, *moments, size=n, edge=edge)

    def middle(self, offset: int) -> tuple[int, int]:
        """Return begin and end of the bytes that the worker writes, for a block at this offset."""
        if not self.edge:
            return offset, offset + self.size
        return -(-offset // self.edge) * self.edge, (offset + self.size) // self.edge * self.edge

    def write_ends(self, file: IO[bytes], offset: int) -> None:
        """Write the remaining bytes at both ends, for a block at this offset."""
        begin, stop = self.middle(offset)
        file.seek(offset)
        file.write(self.data[: begin - offset])
        file.seek(stop)
        file.write(self.data[len(self.data) - (offset + self.size - stop) :])


class BlockReceiver:
    """Receives blocks, writes them in order of arrival, and stores times, steps and λ of frames."""

    #: End of the last block in the file, if it is known.
    end = 0

    def __init__(self, path: str, write: Callable[[EncodedBlock], object]):
        self._path = path
        self._write = write
        self._time_axis: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def add(self, number: int, value: EncodedBlock) -> None:
        """Receive a block; blocks are numbered from 0."""
        self._time_axis[number] = value.times, value.steps, value.lambdas
        self._put(number, value)

    def _put(self, number: int, value: EncodedBlock) -> None:
        """Write a block at its position in the file."""
        self._write(value)

    def time_axis(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return times (ps), steps and λ of all frames, after the last block was received."""
        blocks = [self._time_axis[number] for number in sorted(self._time_axis)]
        times, steps, lambdas = (np.concatenate(values) for values in zip(*blocks, strict=True))
        if len(times) == 0:
            raise UnsupportedError(f"{self._path}: no frame is left to write")
        return times, steps, lambdas


class OrderedReceiver(BlockReceiver):
    """Writes blocks in frame order; blocks that exceed the memory wait in a temporary file."""

    def __init__(self, path: str, write: Callable[[EncodedBlock], object]):
        super().__init__(path, write)
        self._next = 0
        self._waiting: dict[int, tuple[EncodedBlock, _Spilled | None]] = {}
        self._in_memory = 0
        self._spill: IO[bytes] | None = None

    def __exit__(self, *error: object) -> None:
        if self._spill is not None:
            self._spill.close()

    def _put(self, number: int, value: EncodedBlock) -> None:
        """Write a block and blocks that waited for it; store it if an earlier one is missing."""
        if number != self._next:
            self._waiting[number] = self._keep(value)
            return
        self._write(value)
        self._next += 1
        while (waiting := self._waiting.pop(self._next, None)) is not None:
            self._write(self._fetch(*waiting))
            self._next += 1

    def _keep(self, value: EncodedBlock) -> "tuple[EncodedBlock, _Spilled | None]":
        """Keep a block in memory, or its bytes in a temporary file."""
        size = len(value.data)
        if self._in_memory + size <= WAITING:
            self._in_memory += size
            return value, None
        if self._spill is None:
            self._spill = tempfile.TemporaryFile(dir=os.path.dirname(self._path))  # noqa: SIM115
        offset = self._spill.seek(0, os.SEEK_END)
        self._spill.write(value.data)
        return replace(value, data=b""), _Spilled(offset, size)

    def _fetch(self, value: EncodedBlock, spilled: "_Spilled | None") -> EncodedBlock:
        """Return a waiting block with its bytes; read spilled bytes from the temporary file."""
        if spilled is None:
            self._in_memory -= len(value.data)
            return value
        assert self._spill is not None
        self._spill.seek(spilled.offset)
        return replace(value, data=self._spill.read(spilled.size))


class _PlacingReceiver(OrderedReceiver):
    """Writes blocks one after another; sets the offsets of blocks that workers write themselves."""

    def __init__(self, path: str, file: IO[bytes], placements: Placements):
        super().__init__(path, self._append)
        self._file, self._placements = file, placements
        self.end = file.tell()

    def _append(self, value: EncodedBlock) -> None:
        offset = self.end
        if isinstance(value, PartlyWritten):
            self._placements.add(self._next, offset)
            value.write_ends(self._file, offset)
            self.end += value.size
            return
        self._file.seek(offset)
        self._file.write(value.data)
        self.end += len(value.data)


class _Spilled(NamedTuple):
    """Offset and size, in the temporary file, of the bytes of a waiting block."""

    offset: int
    size: int


@dataclass(frozen=True)
class FramesToWrite:
    """Facts about the frames of an output file that are known before the run."""

    #: Number of frames to write; fewer are written if unreadable frames are skipped.
    n_frames: int
    #: Atoms to write.
    atoms: Atoms
    #: True if unreadable frames are skipped.
    skip_damaged: bool
    #: Provenance of the frames, and options of the run.
    origin: Mapping[str, object]
    #: Cell of the first readable frame, a row of `FrameBuffer.cells`, shape (1, 19).
    cells: np.ndarray
    #: True if frames may be rotated before they are written.
    rotates: bool
    #: True if lengths and angles of cells are written even if the format cannot store the vectors.
    keep_cell: bool
    #: Fields that the first readable frame contains.
    fields: tuple[str, ...]

    @property
    def has_cell(self) -> bool:
        """True if the first frame has a cell."""
        return bool(self.cells[0, :3].any())

    @property
    def periodic(self) -> tuple[bool, bool, bool]:
        """True for each vector of the first frame's cell along which the system is periodic."""
        x, y, z = periodic_vectors(self.cells)[0].tolist()
        return x, y, z


class Target(ABC):
    """Output file of a run, in one family of formats."""

    #: Fields that every frame must contain, and fields that are written if a frame contains them;
    #: valid after `begin`.
    fields: Sequence[str] = ("positions",)
    optional_fields: Sequence[str] = ()
    #: Number of frames that one worker should encode together.
    frames_together: int = 1
    #: Number of frames and size of the complete file.
    n_written: int
    n_bytes: int

    def __init__(self, path: str, n_atoms: int, *, overwrite: bool = False):
        self._path = path
        self._n_atoms = n_atoms
        self._overwrite = overwrite

    @abstractmethod
    def begin(self, frames: FramesToWrite) -> PerBlock:
        """Create the worker part from facts about the frames, such as the first frame's cell."""

    @abstractmethod
    def receiver(self) -> AbstractContextManager[Receiver]:
        """Open the file for a run; it appears under its name only if the run succeeds."""


@contextmanager
def naming_block(path: str, block: Block) -> Iterator[None]:
    """Add file and frame to an encoder's errors."""
    try:
        yield
    except UnwritableError as error:
        reason = f"{path}: frame {block.frames[error.row]}: {error.reason}"
        raise UnwritableError(reason) from None


class FrameFile(Target):
    """File of consecutive frames: "XTC", "TRR", "DCD" or "NetCDF".

    In XTC, positions are rounded to multiples of 1/`precision` nm.
    """

    def __init__(
        self,
        path: str,
        format: str,
        n_atoms: int,
        *,
        overwrite: bool = False,
        precision: float | None = None,
    ):
        super().__init__(path, n_atoms, overwrite=overwrite)
        self._format = FORMATS[format]
        self._precision = precision

    def begin(self, frames: FramesToWrite) -> "_Encode":
        """Create the worker part, which encodes frames, or also writes them."""
        left_out = self._leaves_out_cells(frames)
        # In a format with frames of equal size, every frame has a cell, or none has one. In other
        # formats, each frame may have one.
        has_cell = (frames.has_cell and not left_out) or not self._format.equal_frames
        cells = "left out" if left_out else "kept" if frames.keep_cell else "held"
        if self._format.mixed_fields:
            self.fields, self.optional_fields = (), FIELDS
        elif fields_in(self._format.writes) == FIELDS:
            self.fields = frames.fields
        fields = field_bits((*self.fields, *self.optional_fields))
        self._encoder = _core.Encoder(
            self._format.name, self._n_atoms, self._precision, has_cell, fields
        )
        self._temporary = temporary_name(self._path)
        # Frames of equal size have fixed file offsets if no frame is skipped.
        self._in_place = self._format.equal_frames and not frames.skip_damaged
        made = self._path, self._encoder, fields, cells, self._temporary, socket.gethostname()
        self._placements = Placements()
        if self._in_place:
            start = len(self._encoder.head(0, 0.0, 0.0, 0, 0))
            return _EncodeInPlace(*made, self._placements, start=start)
        return _Encode(*made, self._placements)

    def _leaves_out_cells(self, frames: FramesToWrite) -> bool:
        """Return True, and warn, if cells are omitted because the format cannot store them."""
        if not frames.has_cell or frames.keep_cell:
            return False
        why = _reason_against_cell(self._format, frames.cells)
        if why is None and frames.rotates and not self._format.stores_cell_vectors:
            why = _TURNED
        if why is not None:
            warn(
                f"{self._path}: {self._format.name} cannot store {why}: cells are left out; "
                f"{_HOLDERS[why]}, and keep_cell=True (--keep-cell) writes their lengths and angles"
            )
        return why is not None

    def head(self, times: np.ndarray, steps: np.ndarray, n_frames: int | None = None) -> bytes:
        """Return the bytes before the first frame, for times (ps) and steps of frames.

        If these are not all frames, `n_frames` is the number of all frames.
        """
        n, time, dt, step, steps_between = _series(times, steps)
        n = n if n_frames is None else n_frames
        return self._encoder.head(n, time, dt, step, steps_between)

    @contextmanager
    def receiver(self) -> Iterator[BlockReceiver]:
        """Open the file for a run; it appears under its name only if the run succeeds."""
        encoder = self._encoder
        with new_file(
            self._path, overwrite=self._overwrite, binary=True, temporary=self._temporary
        ) as file:
            # The header's size is known now; its values are known at the end and written then.
            file.seek(len(encoder.head(0, 0.0, 0.0, 0, 0)))
            with self._blocks(file) as blocks:
                yield blocks
                times, steps, lambdas = blocks.time_axis()
                self.n_bytes = max(file.seek(0, os.SEEK_END), blocks.end)
                file.seek(0)
                file.write(self.head(times, steps))
        if self._format.one_time_step:
            self._warn_of_uneven(times)
        if lambdas.any() and not self._format.holds_lambda:
            self._warn_of_lambda(lambdas)
        self.n_written = len(times)

    def _blocks(self, file: IO[bytes]) -> BlockReceiver:
        """Create the receiver of blocks; the first block begins at the file's current position."""
        if not self._in_place:
            return _PlacingReceiver(self._path, file, self._placements)
        start = file.tell()

        def put(value: EncodedBlock) -> None:
            if isinstance(value, PartlyWritten):
                value.write_ends(file, start + value.first * (value.size // len(value.times)))
            elif value.data:
                size = len(value.data) // len(value.times)
                file.seek(start + value.first * size)
                file.write(value.data)

        return BlockReceiver(self._path, put)

    def _warn_of_lambda(self, lambdas: np.ndarray) -> None:
        warn(
            f"{self._path}: {self._format.name} cannot store λ: the λ of the frames, from "
            f"{lambdas.min():g} to {lambdas.max():g}, is not written; TRR and H5MD store it"
        )

    def _warn_of_uneven(self, times: np.ndarray) -> None:
        if off := deviation_from_even(times, np.arange(len(times))):
            between = np.diff(times)
            warn(
                f"{self._path}: a DCD file stores one time between frames, but these frames are "
                "from "
                f"{between.min():g} to {between.max():g} ps apart: they will be read as "
                f"{_series(times, times)[2]:g} ps apart, which changes times by up to {off:g} ps"
            )


def _series(times: np.ndarray, steps: np.ndarray) -> tuple[int, float, float, int, int]:
    """Return what headers state: frames, first time, time between frames, first step, its stride.

    Times are in ps. The stride is the number of integration steps between two frames.
    """
    n = len(times)
    gaps = max(n - 1, 1)
    dt, stride = (times[-1] - times[0]) / gaps, round((steps[-1] - steps[0]) / gaps)
    return n, float(times[0]), float(dt), int(steps[0]), int(stride)


@dataclass(frozen=True)
class _Encode(PartlyKept[EncodedBlock]):
    """Worker part that encodes a block's frames; a worker that sees the file also writes them."""

    path: str
    encoder: "_core.Encoder"
    fields: int
    #: "held": raise for a cell that the format cannot store; "kept" (keep_cell=True): write lengths
    #: and angles of such a cell; "left out": write no cells.
    cells: str
    temporary: Path
    #: Name of the host on which the receiver runs.
    host: str
    placements: Placements

    def keep(self, value: EncodedBlock) -> tuple[EncodedBlock, EncodedBlock | None]:
        """Return the part of a block that is sent, and the block if this worker writes the rest.

        The second item is None if the whole block is sent.
        """
        part = PartlyWritten.of(value, self.host) if self.temporary.exists() else None
        return (value, None) if part is None else (part, value)

    def put(self, kept: EncodedBlock, offset: int) -> None:
        """Write the bytes of a block at `offset` that were not sent."""
        part = PartlyWritten.of(kept, self.host)
        assert part is not None, "it was kept"
        begin, stop = part.middle(offset)
        left = memoryview(kept.data)[begin - offset : stop - offset]
        with writing_to(self.path), open(self.temporary, "r+b", buffering=0) as file:
            while left:
                n = write_at(file.fileno(), left, begin)
                left, begin = left[n:], begin + n

    def compute_block(self, block: Block, first: int) -> EncodedBlock:
        data = [self._encode(block[rows]) for rows in _runs_of_equal_fields(block.held)]
        return EncodedBlock(first, b"".join(data), block.times, block.steps, block.lambdas)

    def _encode(self, block: Block) -> bytes:
        """Encode frames that contain the same fields."""
        arrays = self._arrays(block)
        with naming_block(self.path, block):
            return self.encoder.encode(arrays)

    def _arrays(self, block: Block) -> "_core._Arrays":
        held = fields_in(int(block.held[0]) & self.fields)
        positions, velocities, forces = (
            block.values_of(field) if field in held else None for field in FIELDS
        )
        moments = self._cells(block), block.times, block.steps, block.lambdas
        return positions, velocities, forces, *moments

    def _cells(self, block: Block) -> np.ndarray:
        """Convert cells for the file; raise `UnwritableError` for a cell that it cannot store."""
        if self.cells == "left out":
            return np.zeros_like(block.cells)
        if self.cells == "held":
            format = FORMATS[self.encoder.format]
            why = _reason_against_cell(format, block.cells)
            if why is not None:
                rows = range(len(block))
                row = next(k for k in rows if _reason_against_cell(format, block.cells[k : k + 1]))
                raise UnwritableError(
                    f"{self.path}: frame {block.frames[row]}: expected a cell like that of the "
                    f"first frame, found {why}: write H5MD, or give keep_cell=True (--keep-cell)"
                )
        return block.cells


_TURNED, _NOT_PERIODIC = "a cell that is turned", "a cell that is not periodic along all vectors"
#: Formats that can store the cells that other formats cannot store.
_HOLDERS = {_TURNED: "XTC, TRR and H5MD hold them", _NOT_PERIODIC: "H5MD holds them"}


def _reason_against_cell(format: Any, cells: np.ndarray) -> str | None:
    """Return why a format of the compiled module cannot store one of the cells; None if it can."""
    cells = cells[cells[:, :3].any(axis=1)]
    if not periodic_vectors(cells).all():
        return _NOT_PERIODIC
    return None if format.stores_cell_vectors or _core.upright_cells(cells).all() else _TURNED


@dataclass(frozen=True)
class _EncodeInPlace(_Encode):
    """Worker part that writes a block's frames to the file at their fixed offsets.

    Workers on other machines return the bytes that share a page with other blocks. If they cannot
    see the file's folder, they return all bytes.
    """

    #: Offset of the first frame.
    start: int = 0

    def keep(self, value: EncodedBlock) -> tuple[EncodedBlock, None]:
        """Return the block to be sent, and None, because this worker has nothing left to write."""
        return value, None

    def compute_block(self, block: Block, first: int) -> EncodedBlock:
        if socket.gethostname() != self.host:
            whole = super().compute_block(block, first)
            part, _ = super().keep(whole)
            if isinstance(part, PartlyWritten):
                self.put(whole, self.start + first * (part.size // len(block)))
            return part
        arrays = self._arrays(block)
        with naming_block(self.path, block), writing_to(self.path):
            self.encoder.write(self.temporary, first, arrays)
        return EncodedBlock(first, b"", block.times, block.steps, block.lambdas)


def _runs_of_equal_fields(held: np.ndarray) -> Iterator[slice]:
    """Yield ranges of adjacent rows whose frames contain the same fields; `held` are field bits."""
    borders = [0, *(np.flatnonzero(np.diff(held)) + 1).tolist(), len(held)]
    for first, stop in pairwise(borders):
        if stop > first:
            yield slice(first, stop)
