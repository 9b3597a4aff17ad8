"""Verification that the core reads a file as HDF5's own library does."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from paceline.block import FrameBuffer, field_bits
from paceline.errors import DamagedFileError, PacelineError, UnsupportedError
from paceline.hdf5.chunk_index import (
    ABSENT,
    ChunkIndex,
    Dataset,
    Element,
    FileDatasets,
    may_hide_damage,
)
from paceline.hdf5.file import NOWHERE
from paceline.hdf5.h5py_reader import H5pyReader
from paceline.hdf5.reader import ChunkReader
from paceline.hdf5.sandbox import extend_time_limit
from paceline.trajectory.source import Extents, FileReader

#: Seconds that finding an atom in an unordered frame, twice, may take.
_SECONDS_PER_ATOM = 1e-5


def verify(file: FileDatasets, index: ChunkIndex) -> ChunkIndex:
    """Read a chunk or two of each element both ways; elements that differ fall back to h5py."""
    if not index.n_frames or (index.ids is not None and index.ids.dataset.h5py_fallback):
        return index
    elements = dict(index.elements)
    for field, element in index.elements.items():
        if element.dataset.h5py_fallback:
            continue
        if why := _difference(file, index, field):
            elements[field] = replace(element, dataset=replace(element.dataset, h5py_fallback=why))
    return replace(index, elements=elements)


def _difference(file: FileDatasets, index: ChunkIndex, field: str) -> str:
    """Describe how the two readings of an element differ; empty where they agree."""
    for frames, atoms in _samples(index.elements[field], index.n_frames, index.n_atoms):
        if why := _difference_at(file, index, field, frames, atoms):
            return why
    return ""


def _difference_at(
    file: FileDatasets, index: ChunkIndex, field: str, frames: list[int], atoms: np.ndarray
) -> str:
    """Compare bit by bit at the first of some frames that HDF5 can read."""
    fields, dataset = field_bits([field]), index.elements[field].dataset
    if index.ids is not None:
        extend_time_limit(index.n_atoms * _SECONDS_PER_ATOM)
    for frame in frames:
        try:
            theirs = _read(H5pyReader(file, atoms, fields), index, field, frame, len(atoms))
        except DamagedFileError:
            continue
        except UnsupportedError:
            return ""  # HDF5 lacks a filter, which the core has
        try:
            ours = _read(ChunkReader(file, atoms, fields), index, field, frame, len(atoms))
        except PacelineError as error:
            if isinstance(error, DamagedFileError) and may_hide_damage(dataset.filters):
                continue
            return f"HDF5 reads frame {frame}, and paceline says: {error}"
        same = np.array_equal(ours.view(np.uint32), theirs.view(np.uint32))
        return "" if same else f"HDF5 and paceline do not read the same numbers in frame {frame}"
    return ""


def _samples(
    element: Element, n_frames: int, n_atoms: int
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Frames worth a try, the best first, and atoms: of a chunk, and of one at the edge."""
    dataset = element.dataset
    rows = element.rows_of(np.arange(n_frames))
    frames = np.flatnonzero(_written(rows, dataset))
    if len(frames) == 0:
        return
    middle, last, first = (int(frames[k]) for k in (len(frames) // 2, -1, 0))
    # A chunk of a dataset of shape (rows, components x atoms) may end within an atom.
    chunk = dataset.chunk or dataset.shape
    atoms = chunk[1] if len(chunk) == 3 else n_atoms
    yield [middle, last, first], np.arange(min(atoms, n_atoms))
    # Writers can leave chunks unfiltered that reach beyond the last frame or atom.
    over = [n % step for n, step in zip(dataset.shape, chunk, strict=True)]
    if dataset.filters and any(over):
        first_atom = n_atoms - min(over[1] or atoms, n_atoms) if len(chunk) == 3 else 0
        yield [last, middle], np.arange(first_atom, n_atoms)


def _written(rows: np.ndarray, dataset: Dataset) -> np.ndarray:
    """Mark frames that have a row, all chunks of which were written and are not damaged."""
    there: np.ndarray = rows != ABSENT
    if dataset.table is not None and dataset.chunk is not None:
        along = -(-dataset.shape[0] // dataset.chunk[0])
        sound = (dataset.table.sizes > 0) & (dataset.table.offsets != NOWHERE)
        there &= sound.reshape(along, -1).all(axis=1)[rows // dataset.chunk[0]]
    return there


def _read(
    reader: FileReader, index: ChunkIndex, field: str, frame: int, n_atoms: int
) -> np.ndarray:
    """Numbers of one frame."""
    block = FrameBuffer.allocate(np.array([frame]), n_atoms, [field])
    zero = np.zeros(1, dtype=np.int64)
    # Both readers find their bytes by the index alone.
    extents = Extents(
        files=zero,
        frames=np.array([frame], dtype=np.uint64),
        offsets=zero.astype(np.uint64),
        sizes=zero.astype(np.uint64),
        slices=(index.of_block(np.array([frame])),),
    )
    reader.read(extents, block, required=field_bits([field]), skip=False)
    return getattr(block, field)
