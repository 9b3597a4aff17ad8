"""Frame indexes that one process sends to others, so that these need not read file headers."""

import copyreg
import io
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from paceline import _core
from paceline.contract.source import FileSpec, IndexedFile, IndexedFileSpec
from paceline.trajectory.chain import Chain
from paceline.trajectory.open import open_file


@dataclass
class SentFile:
    """File whose index was created by another process: a `paceline.contract.source.TrajectoryFile`.

    The index contains no times and headers; they are read from the file when needed.
    """

    path: str
    format: str
    n_atoms: int
    n_frames: int
    fields: int
    size: int
    fingerprint: str
    samples: bytes
    layout: bytes
    damaged: list[int]
    notes: list[str]
    index_file: Path | None
    index_origin: str
    dt: float | None
    first: float
    time_doubt: str | None
    frames_counted: bool
    #: Offset and size of each frame, bytes, uint64, shape (n_frames,).
    offsets: np.ndarray
    sizes: np.ndarray

    chunk_frames = 1
    #: The number of atoms is assumed constant, because this process has not read the file.
    varying = atom_counts = None
    traffic = 0, 0

    @classmethod
    def of(cls, file: IndexedFile) -> "SentFile":
        """Copy the index of a file."""
        offsets, sizes = file.extents(np.arange(file.n_frames, dtype=np.uint64))
        names = [one.name for one in fields(cls) if one.name not in ("offsets", "sizes")]
        facts = {name: getattr(file, name) for name in names}
        return cls(**facts, offsets=offsets, sizes=sizes)

    @property
    def spec(self) -> IndexedFileSpec:
        """Description of the file for workers."""
        return IndexedFileSpec(self.path, self.layout, self.samples)

    def spec_of(self, frame: int) -> tuple[FileSpec, int]:
        """Return the description of one frame for a worker, and its number of atoms."""
        return self.spec, self.n_atoms

    @property
    def bytes_per_frame(self) -> float:
        """Mean size of a frame, bytes."""
        return self.size / self.n_frames

    def extents(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the byte offsets and sizes of frames."""
        if len(frames) and frames.max() >= self.n_frames:
            raise ValueError(f"frame {frames.max()} is out of range for {self.n_frames} frames")
        return self.offsets[frames], self.sizes[frames]

    def slice_of(self, frames: np.ndarray) -> None:
        """Return None, because offsets and sizes suffice."""

    def times(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the times (ps) and steps of all frames."""
        times, steps = self._open_file.times()
        return times[: self.n_frames], steps[: self.n_frames]

    @property
    def traits(self) -> list[tuple[str, str]]:
        """Names and values that must agree between files that are joined."""
        return self._open_file.traits

    def head(self, first: int, n_frames: int) -> bytes:
        """Return the file header for a copy of these frames, if frames can be copied as bytes."""
        return self._open_file.head(first, n_frames)

    def verify(self) -> None:
        """Raise `FileChangedError` if the file at this path has changed since it was indexed."""
        _core.verify(self.path, self.fingerprint)

    @cached_property
    def _open_file(self) -> Any:
        """Open the file in this process."""
        self.verify()
        return open_file(self.path, n_atoms=self.n_atoms, notes=False)


class _IndexPickler(cloudpickle.Pickler):
    """Pickler that includes file indexes in chains; other picklers let the receiver load them."""

    def reducer_override(self, obj: object) -> object:
        """Choose how chains and files are pickled."""
        if isinstance(obj, Chain):
            return copyreg.__newobj__, (type(obj),), vars(obj)  # type: ignore[attr-defined]
        if isinstance(obj, IndexedFile) and obj.varying is None:
            return SentFile, tuple(vars(SentFile.of(obj)).values())
        return super().reducer_override(obj)


def pickle_with_indexes(value: object) -> bytes:
    """Pickle an object for processes that must not open trajectory files."""
    file = io.BytesIO()
    _IndexPickler(file).dump(value)
    return file.getvalue()
