"""Write files of frames one after another: XTC, TRR, DCD, NetCDF."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np

from paceline import _core
from paceline._util.files import new_file, temporary_name, writing_to
from paceline.block import FIELDS, Block, field_bits, fields_in
from paceline.errors import warn
from paceline.trajectory.source import FORMATS
from paceline.writers.receivers import (
    BlockReceiver,
    EncodedBlock,
    FramesToWrite,
    OrderedReceiver,
    Target,
    naming_block,
)


class FrameFile(Target):
    """File of frames one after another: "XTC", "TRR", "DCD" or "NetCDF".

    The precision of XTC is in integers per nm.
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
        """Make the worker's half."""
        # Frames of one size all have a cell, or none has.
        has_cell = frames.has_cell or not self._format.equal_frames
        if self._format.mixed_fields:
            self.fields, self.optional_fields = (), FIELDS
        elif fields_in(self._format.writes) == FIELDS:
            self.fields = frames.fields
        fields = field_bits((*self.fields, *self.optional_fields))
        self._encoder = _core.Encoder(
            self._format.name, self._n_atoms, self._precision, has_cell, fields
        )
        self._temporary = temporary_name(self._path)
        # Frames of one size have a place in the file from the beginning, if none is left out.
        self._in_place = self._format.equal_frames and not frames.skip_damaged
        if self._in_place:
            host = socket.gethostname()
            return _EncodeInPlace(self._path, self._encoder, fields, self._temporary, host)
        return _Encode(self._path, self._encoder, fields)

    @contextmanager
    def receiver(self) -> Iterator[BlockReceiver]:
        """Open the file for the time of a run: whole under its name afterwards, or not there."""
        encoder = self._encoder
        with new_file(
            self._path, overwrite=self._overwrite, binary=True, temporary=self._temporary
        ) as file:
            # Its numbers are known at the end, its size now.
            file.seek(len(encoder.head(0, 0.0, 0.0, 0, 0)))
            with self._blocks(file) as blocks:
                yield blocks
                times, steps, lambdas = blocks.time_axis()
                self.n_bytes = file.seek(0, os.SEEK_END)
                file.seek(0)
                file.write(encoder.head(*_series(times, steps)))
        if self._format.one_time_step:
            self._warn_of_uneven(times)
        if lambdas.any() and not self._format.holds_lambda:
            self._warn_of_lambda(lambdas)
        self.n_written = len(times)

    def _blocks(self, file: IO[bytes]) -> BlockReceiver:
        """Make the receiver of blocks, the first of which begins where the file is."""
        if not self._in_place:
            return OrderedReceiver(self._path, lambda value: file.write(value.data))
        start = file.tell()

        def put(value: EncodedBlock) -> None:
            if value.data:
                size = len(value.data) // len(value.times)
                file.seek(start + value.first * size)
                file.write(value.data)

        return BlockReceiver(self._path, put)

    def _warn_of_lambda(self, lambdas: np.ndarray) -> None:
        warn(
            f"{self._path}: {self._format.name} holds no λ: that of the frames, from "
            f"{lambdas.min():g} to {lambdas.max():g}, is not written; TRR and H5MD hold it"
        )

    def _warn_of_uneven(self, times: np.ndarray) -> None:
        between = np.diff(times)
        # Times of XTC are 32-bit: neighbours are rounded apart by this much.
        rounding = 2 * np.spacing(np.float32(np.abs(times).max()))
        if len(between) and not np.ptp(between) <= rounding:
            warn(
                f"{self._path}: a DCD file holds one time between frames, but these are from "
                f"{between.min():g} to {between.max():g} ps apart: they will be read as "
                f"{_series(times, times)[2]:g} ps apart"
            )


def _series(times: np.ndarray, steps: np.ndarray) -> tuple[int, float, float, int, int]:
    """Number of frames, first time, time between them (ps), first step, steps between them."""
    n = len(times)
    gaps = max(n - 1, 1)
    dt, stride = (times[-1] - times[0]) / gaps, round((steps[-1] - steps[0]) / gaps)
    return n, float(times[0]), float(dt), int(steps[0]), int(stride)


@dataclass(frozen=True)
class _Encode:
    """Worker's half: encodes a block's frames."""

    path: str
    encoder: "_core.Encoder"
    fields: int

    def compute_block(self, block: Block, first: int) -> EncodedBlock:
        data = [self._encode(block[rows]) for rows in _alike(block.held)]
        return EncodedBlock(first, b"".join(data), block.times, block.steps, block.lambdas)

    def _encode(self, block: Block) -> bytes:
        """Frames that hold the same fields."""
        with naming_block(self.path, block):
            return self.encoder.encode(self._arrays(block))

    def _arrays(self, block: Block) -> "_core._Arrays":
        held = fields_in(int(block.held[0]) & self.fields)
        positions, velocities, forces = (
            getattr(block, field) if field in held else None for field in FIELDS
        )
        moments = block.dimensions, block.times, block.steps, block.lambdas
        return positions, velocities, forces, *moments


@dataclass(frozen=True)
class _EncodeInPlace(_Encode):
    """Worker's half where frames have their places: writes a block's frames to the file.

    Workers of other machines return the bytes: they may not see the file's folder, or through a
    network file system that lets neighbours on one page undo each other's writing.
    """

    temporary: Path
    host: str

    def compute_block(self, block: Block, first: int) -> EncodedBlock:
        if socket.gethostname() != self.host:
            return super().compute_block(block, first)
        with naming_block(self.path, block), writing_to(self.path):
            self.encoder.write(self.temporary, first, self._arrays(block))
        return EncodedBlock(first, b"", block.times, block.steps, block.lambdas)


def _alike(held: np.ndarray) -> Iterator[slice]:
    """Rows of neighbours that hold the same fields."""
    borders = [0, *(np.flatnonzero(np.diff(held)) + 1).tolist(), len(held)]
    for first, stop in pairwise(borders):
        if stop > first:
            yield slice(first, stop)
