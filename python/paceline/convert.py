"""Frames into a new trajectory file: decoded, encoded and written in order, by all workers."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from paceline import _core
from paceline.analysis.base import AnalysisBase, describe_atoms
from paceline.analysis.results import Results
from paceline.block import FIELDS, Block, field_bits, fields_in
from paceline.errors import DamagedFileError, UnsupportedError, UnwritableError
from paceline.files import new_file, refuse_impossible, temporary_name, writing_to
from paceline.ordered import Encoded, Ordered, Placed

#: Formats by the endings of their files.
FORMATS = {".xtc": "XTC", ".trr": "TRR", ".dcd": "DCD", ".nc": "NetCDF", ".ncdf": "NetCDF"}
#: Those that hold velocities and forces.
_OF_MOTION = ("TRR", "NetCDF")
#: Those in which all frames have a cell or none has, and hold the same fields.
_UNIFORM = ("DCD", "NetCDF")


class Write(AnalysisBase):
    """Write a group's frames to a new trajectory file.

    It runs like an analysis, alone or beside others, on any backend: blocks of frames are encoded
    where they were decoded, and put into the file in their order; to DCD and NetCDF, whose frames
    are all of one size, each worker writes its own. Frames that cannot be read and are to be
    skipped are left out.

    Parameters
    ----------
    atomgroup : AtomGroup or Universe
        Atoms to be written, in this order.
    path : path-like
        Ending in .xtc, .trr, .dcd, .nc or .ncdf. TRR and NetCDF hold velocities and forces, where
        the trajectory has them; XTC and DCD positions only.
    precision : float, optional
        Of an XTC file: integers per nm. 1000 by default, a resolution of 0.01 Å.
    overwrite : bool
        Whether a file of that name may be replaced.

    Attributes
    ----------
    results.path : str
        The file, once it is whole.
    results.n_written : int
        Its number of frames.
    results.n_bytes : int
        Its size.

    Raises
    ------
    UnsupportedError
        A format that is not written, or a precision for one that has none.
    UnwritableError
        A frame that the format cannot hold; it names file, frame and atom.
    FileExistsError
        There is a file of that name and it is not to be replaced.

    Examples
    --------
    >>> import tempfile
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> ca = paceline.Universe(PSF, DCD).select_atoms("name CA")
    >>> path = Path(tempfile.mkdtemp()) / "ca.xtc"
    >>> paceline.Write(ca, path).run(step=10).results.n_written
    10
    """

    def __init__(
        self,
        atomgroup: Any,
        path: str | os.PathLike,
        *,
        precision: float | None = None,
        overwrite: bool = False,
    ):
        super().__init__(atomgroup)
        self._path = os.path.abspath(path)
        self._overwrite = overwrite
        refuse_impossible(self._path, overwrite=overwrite)
        self._format = _format_of(self._path)
        if precision is not None and self._format != "XTC":
            raise UnsupportedError(f"{self._format} stores floats: it has no precision to choose")
        self._precision = precision
        if self._format == "TRR":
            self.fields, self.optional_fields = (), FIELDS

    def parameters(self) -> dict[str, Any]:
        """The file, its precision and the atoms."""
        precision = {} if self._precision is None else {"precision": self._precision}
        return {"file": self._path, **precision, "atoms": describe_atoms(self.atomgroup)}

    def prepare(self) -> "_Encode":
        """The encoder's settings: by the first frame, where the format wants all frames alike."""
        has_cell, motion = True, field_bits(FIELDS)
        if self._format in _UNIFORM:
            first = _first_readable(self.atomgroup.universe.trajectory)
            has_cell = first.dimensions is not None
            held = [field for field in FIELDS if getattr(first, f"has_{field}")]
            motion = field_bits(held if self._format in _OF_MOTION else ("positions",))
            self.fields = fields_in(motion)
        fields = motion if self._format in _OF_MOTION else field_bits(("positions",))
        self._encoder = _core.Encoder(
            self._format, len(self.atomgroup), self._precision, has_cell, fields
        )
        self._temporary = temporary_name(self._path)
        # Frames of one size have a place in the file from the beginning, if none is left out.
        self._in_place = self._format in _UNIFORM and not self.skip_damaged
        if self._in_place:
            host = socket.gethostname()
            return _EncodeInPlace(self._path, self._encoder, fields, self._temporary, host)
        return _Encode(self._path, self._encoder, fields)

    @contextmanager
    def receiver(self) -> Iterator[Ordered | Placed]:
        """The file, for the time of a run: whole under its name afterwards, or not there."""
        encoder = self._encoder
        with new_file(
            self._path, overwrite=self._overwrite, binary=True, temporary=self._temporary
        ) as file:
            # Its numbers are known at the end, its size now.
            file.seek(len(encoder.head(0, 0.0, 0.0, 0, 0)))
            folder = os.path.dirname(self._path)
            with Placed(file) if self._in_place else Ordered(file, folder) as blocks:
                yield blocks
                times, steps = blocks.moments.all()
                if len(times) == 0:
                    raise UnsupportedError(f"{self._path}: no frame is left to be written")
                self._n_bytes = file.seek(0, os.SEEK_END)
                file.seek(0)
                file.write(encoder.head(*_series(times, steps)))
        if self._format == "DCD":
            self._warn_of_uneven(times)
        self._n_written = len(times)

    def _warn_of_uneven(self, times: np.ndarray) -> None:
        from paceline.opening import warn

        between = np.diff(times)
        # Times of XTC are 32-bit: neighbours are rounded apart by this much.
        rounding = 2 * np.spacing(np.float32(np.abs(times).max()))
        if len(between) and not np.ptp(between) <= rounding:
            warn(
                f"{self._path}: a DCD file holds one time between frames, but these are from "
                f"{between.min():g} to {between.max():g} ps apart: they will be read as "
                f"{_series(times, times)[2]:g} ps apart"
            )

    def finish(self, value: None) -> None:
        """Tell what was written."""
        self.results = Results(
            provenance=self.record(),
            path=self._path,
            n_written=self._n_written,
            n_bytes=self._n_bytes,
        )


def _format_of(path: str) -> str:
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        known = ", ".join(FORMATS)
        raise UnsupportedError(f"{path}: expected a name that ends in {known}, found {ending!r}")
    return FORMATS[ending]


def _first_readable(trajectory: Any) -> Any:
    """A copy of the first frame that can be read; the trajectory stays where it was."""
    frame = trajectory.frame
    try:
        for number in range(trajectory.n_frames):
            try:
                return trajectory[number].copy()
            except DamagedFileError:
                continue
        return trajectory.ts.copy()
    finally:
        trajectory[frame]


def _series(times: np.ndarray, steps: np.ndarray) -> tuple[int, float, float, int, int]:
    """Number of frames, first time, time between them, first step, and steps between them."""
    n = len(times)
    gaps = max(n - 1, 1)
    dt, stride = (times[-1] - times[0]) / gaps, round((steps[-1] - steps[0]) / gaps)
    return n, float(times[0]), float(dt), int(steps[0]), int(stride)


@dataclass(frozen=True)
class _Encode:
    """The worker's half: a block's frames to bytes."""

    path: str
    encoder: "_core.Encoder"
    fields: int

    def compute_block(self, block: Block, first: int) -> Encoded:
        data = [self._encode(block[rows]) for rows in _alike(block.held)]
        return Encoded(first, b"".join(data), block.times, block.steps)

    def _encode(self, block: Block) -> bytes:
        """Frames that hold the same fields."""
        with self._naming(block):
            return self.encoder.encode(self._arrays(block))

    def _arrays(self, block: Block) -> "_core._Arrays":
        held = fields_in(int(block.held[0]) & self.fields)
        positions, velocities, forces = (
            getattr(block, field) if field in held else None for field in FIELDS
        )
        return positions, velocities, forces, block.dimensions, block.times, block.steps

    @contextmanager
    def _naming(self, block: Block) -> Iterator[None]:
        """Name file and frame in the encoder's errors."""
        try:
            yield
        except UnwritableError as error:
            raise UnwritableError(
                f"{self.path}: frame {block.frames[error.row]}: {error.reason}"
            ) from None


@dataclass(frozen=True)
class _EncodeInPlace(_Encode):
    """The same where frames have their places: a block's frames straight to the file.

    Workers of other machines give the bytes: they may not see the file's folder, or through a
    network file system that lets neighbours on one page undo each other's writing.
    """

    temporary: Path
    host: str

    def compute_block(self, block: Block, first: int) -> Encoded:
        if socket.gethostname() != self.host:
            return super().compute_block(block, first)
        with self._naming(block), writing_to(self.path):
            self.encoder.write(self.temporary, first, self._arrays(block))
        return Encoded(first, b"", block.times, block.steps)


def _alike(held: np.ndarray) -> Iterator[slice]:
    """Rows of neighbours that hold the same fields."""
    borders = [0, *(np.flatnonzero(np.diff(held)) + 1).tolist(), len(held)]
    for first, stop in pairwise(borders):
        if stop > first:
            yield slice(first, stop)
