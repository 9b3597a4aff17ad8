"""Proof that the core reads a file as HDF5's own library does."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from paceline.block import Decoded, field_bits
from paceline.errors import DamagedFileError, PacelineError
from paceline.hdf5.chunk_index import ABSENT, Catalogue, Dataset, Element
from paceline.hdf5.file import NOWHERE
from paceline.hdf5.h5py_reader import H5pyReader
from paceline.hdf5.reader import ChunkReader
from paceline.hdf5.sandbox import allow
from paceline.hdf5.trajectory import Hdf5File
from paceline.trajectory.source import FileReader, extents_in

#: Seconds that an atom may take to be found in a frame in no order, twice, at the most.
_FINDING = 1e-5


def proved(file: Hdf5File) -> Catalogue:
    """Read a chunk or two of each element both ways, and compare every bit.

    Parameters
    ----------
    file : Hdf5File
        As its catalogue says.

    Returns
    -------
    Catalogue
        The file's, with a detour for an element of which the two are not the same.
    """
    found = file.catalogue
    elements = dict(found.elements)
    if not found.n_frames or (found.ids is not None and found.ids.dataset.detour):
        return found
    for field, element in found.elements.items():
        if element.dataset.detour:
            continue
        if why := _difference(file, field, element):
            elements[field] = replace(element, dataset=replace(element.dataset, detour=why))
    return replace(found, elements=elements)


def _difference(file: Hdf5File, field: str, element: Element) -> str:
    """In what the two are not the same, in words."""
    for frames, atoms in _places(element, file.n_frames, file.n_atoms):
        if why := _difference_at(file, field, frames, atoms):
            return why
    return ""


def _difference_at(file: Hdf5File, field: str, frames: list[int], atoms: np.ndarray) -> str:
    """The same for the first of some frames that HDF5 can read."""
    fields = field_bits([field])
    if file.catalogue.ids is not None:
        allow(file.n_atoms * _FINDING)
    for frame in frames:
        try:
            theirs = _read(H5pyReader(file.spec, atoms, fields), file, field, frame, len(atoms))
        except DamagedFileError:
            continue
        try:
            ours = _read(ChunkReader(file.spec, atoms, fields), file, field, frame, len(atoms))
        except PacelineError as error:
            return f"HDF5 reads frame {frame}, and paceline says: {error}"
        same = np.array_equal(ours.view(np.uint32), theirs.view(np.uint32))
        return "" if same else f"HDF5 and paceline do not read the same numbers in frame {frame}"
    return ""


def _places(
    element: Element, n_frames: int, n_atoms: int
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Frames worth a try, the best first, and atoms: of a chunk, and of one at the edge."""
    dataset = element.dataset
    rows: np.ndarray = np.arange(n_frames) if element.rows is None else element.rows
    frames = np.flatnonzero(_written(rows, dataset))
    if len(frames) == 0:
        return
    middle, last, first = (int(frames[k]) for k in (len(frames) // 2, -1, 0))
    # Of a dataset of shape (rows, components x atoms) a chunk may end within an atom.
    chunk = dataset.chunk or dataset.shape
    atoms = chunk[1] if len(chunk) == 3 else n_atoms
    yield [middle, last, first], np.arange(min(atoms, n_atoms))
    # HDF5 can be told to leave chunks alone that reach beyond the last frame or atom.
    cut = [n % step for n, step in zip(dataset.shape, chunk, strict=True)]
    if dataset.filters and any(cut):
        first_atom = n_atoms - min(cut[1] or atoms, n_atoms) if len(chunk) == 3 else 0
        yield [last, middle], np.arange(first_atom, n_atoms)


def _written(rows: np.ndarray, dataset: Dataset) -> np.ndarray:
    """Which frames have a row, of which no chunk is missing or known to be damaged."""
    there: np.ndarray = rows != ABSENT
    if dataset.table is not None and dataset.chunk is not None:
        n_places = -(-dataset.shape[0] // dataset.chunk[0])
        sound = (dataset.table.sizes > 0) & (dataset.table.offsets != NOWHERE)
        there &= sound.reshape(n_places, -1).all(axis=1)[rows // dataset.chunk[0]]
    return there


def _read(hand: FileReader, file: Hdf5File, field: str, frame: int, n_atoms: int) -> np.ndarray:
    """One frame's numbers."""
    block = Decoded.room_for(np.array([frame]), n_atoms, [field])
    extents = extents_in(0, file, np.array([frame], dtype=np.uint64))
    hand.read(extents, block, required=field_bits([field]), skip=False)
    return getattr(block, field)
