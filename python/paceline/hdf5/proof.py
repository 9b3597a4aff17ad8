"""Proof that the core reads a file as HDF5's own library does."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from paceline.block import Decoded, field_bits
from paceline.errors import DamagedFileError, PacelineError
from paceline.frames import Hand
from paceline.hdf5.catalogue import ABSENT, Catalogue, Element
from paceline.hdf5.detour import DetourHand
from paceline.hdf5.file import Hdf5File
from paceline.hdf5.reading import ChunkHand
from paceline.indexed import extents_in


def proved(file: Hdf5File) -> Catalogue:
    """Read one chunk of each element both ways, and compare every bit.

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
    chunk = element.dataset.chunk
    # Of a dataset of shape (rows, components x atoms) a chunk may end within an atom.
    n_atoms = file.n_atoms if chunk is None or len(chunk) == 2 else min(chunk[1], file.n_atoms)
    atoms, fields = np.arange(n_atoms), field_bits([field])
    for frame in _frames(element, file.n_frames):
        try:
            theirs = _read(DetourHand(file.member, atoms, fields), file, field, frame, n_atoms)
        except DamagedFileError:
            continue
        try:
            ours = _read(ChunkHand(file.member, atoms, fields), file, field, frame, n_atoms)
        except PacelineError as error:
            return f"HDF5 reads frame {frame}, and paceline says: {error}"
        same = np.array_equal(ours.view(np.uint32), theirs.view(np.uint32))
        return "" if same else f"HDF5 and paceline do not read the same numbers in frame {frame}"
    return ""


def _frames(element: Element, n_frames: int) -> Iterator[int]:
    """Frames worth a try: in the middle, last and first of those that were written."""
    rows: np.ndarray = np.arange(n_frames) if element.rows is None else element.rows
    there: np.ndarray = rows != ABSENT
    if element.dataset.table is not None and element.dataset.chunk is not None:
        n_places = -(-element.dataset.shape[0] // element.dataset.chunk[0])
        written = np.all(element.dataset.table.sizes.reshape(n_places, -1), axis=1)
        there &= written[rows // element.dataset.chunk[0]]
    frames = np.flatnonzero(there)
    for k in sorted({len(frames) // 2, len(frames) - 1, 0}, reverse=True):
        if k < len(frames):
            yield int(frames[k])


def _read(hand: Hand, file: Hdf5File, field: str, frame: int, n_atoms: int) -> np.ndarray:
    """One frame's numbers."""
    block = Decoded.room_for(np.array([frame]), n_atoms, [field])
    extents = extents_in(0, file, np.array([frame], dtype=np.uint64))
    hand.read(extents, block, required=field_bits([field]), skip=False)
    return getattr(block, field)
