"""A worker's hand on an HDF5 file, through the core: it loads no h5py."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from paceline import _core
from paceline.block import FIELDS, Decoded, field_bits
from paceline.hdf5.chunk_index import Element, Slice
from paceline.trajectory.source import Extents, FileReader


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """What a worker must know of the frames of one block.

    Attributes
    ----------
    elements : tuple of (Slice or None)
        Where positions, velocities and forces are.
    ids : Slice or None
        Where the numbers of the atoms are, if these are in no fixed order.
    dimensions : numpy.ndarray of float32, shape (n_frames, 6) or (1, 6)
        Å and degrees; one row where all frames share it.
    times : numpy.ndarray of float64, shape (n_frames,)
        ps.
    steps : numpy.ndarray of int64, shape (n_frames,)
        Of the simulation.
    """

    elements: tuple[Slice | None, ...]
    ids: Slice | None
    dimensions: np.ndarray
    times: np.ndarray
    steps: np.ndarray

    def fill(self, block: Decoded, damaged: Sequence[tuple[int, str]]) -> None:
        """Put into a block what is known without reading.

        Parameters
        ----------
        block : Decoded
            Of these frames.
        damaged : sequence of (int, str)
            Rows of which nothing shall be known but their times.
        """
        block.dimensions[:] = self.dimensions
        block.times[:] = self.times
        block.steps[:] = self.steps
        for row, _ in damaged:
            block.blank(row)


@dataclass(frozen=True)
class Hdf5FileSpec:
    """What a worker must know of an HDF5 file, whichever frames it reads.

    Attributes
    ----------
    path : str
    fingerprint : str
        What the file was recognised by when its catalogue was made.
    n_atoms : int
    elements : tuple of (Element or None)
        Positions, velocities and forces, without their tables and rows.
    ids : Element or None
        The numbers of the atoms, if these are in no fixed order; likewise.
    id_order : numpy.ndarray of int64, shape (n_atoms,), or None
        With `ids`: the number of each of our atoms, rising.
    driver : str or None
        "mpio" where HDF5's own library is to read it, through MPI-IO.
    external : bool
        Whether it is followed into other files.
    """

    path: str
    fingerprint: str
    n_atoms: int
    elements: tuple[Element | None, ...]
    ids: Element | None
    id_order: np.ndarray | None
    driver: str | None = None
    external: bool = False

    def wanted(self, fields: int) -> tuple[Element | None, ...]:
        """Elements of which something is asked for.

        Parameters
        ----------
        fields : int
            As the core counts them.

        Returns
        -------
        tuple of (Element or None)
            Positions, velocities and forces; None for one that is not wanted or not there.
        """
        asked = [fields & field_bits([field]) for field in FIELDS]
        return tuple(
            element if bit else None for element, bit in zip(self.elements, asked, strict=True)
        )

    def open(self, atoms: np.ndarray | None, fields: int) -> FileReader:
        """A hand on the file: the core's, where it can read all that is wanted."""
        asked = [element for element in (*self.wanted(fields), self.ids) if element is not None]
        if self.driver is not None or any(element.dataset.detour for element in asked):
            # Here, and in no other worker, HDF5's own library is loaded.
            from paceline.hdf5.h5py_reader import H5pyReader

            return H5pyReader(self, atoms, fields)
        return ChunkReader(self, atoms, fields)


class ChunkReader:
    """Reads chunks at their offsets.

    Parameters
    ----------
    member : Hdf5FileSpec
        The file.
    atoms : numpy.ndarray of int64 or None
        Atoms to be decoded, rising; None for all.
    fields : int
        What of them, as the core counts.

    Raises
    ------
    FileChangedError
        It is no longer the file that was catalogued.
    """

    def __init__(self, member: Hdf5FileSpec, atoms: np.ndarray | None, fields: int):
        self._elements = member.wanted(fields)
        self._reader = _core.ChunkReader(
            member.path,
            member.fingerprint,
            self._elements,
            n_atoms=member.n_atoms,
            atoms=atoms,
            ids=member.ids,
            id_order=member.id_order,
        )

    def _slices(self, index: BlockIndex) -> list[Slice | None]:
        pairs = zip(self._elements, index.elements, strict=True)
        return [None if element is None else part for element, part in pairs]

    def read_ahead(self, extents: Extents) -> None:
        """Ask for the bytes of frames that will be read soon."""
        self._reader.read_ahead(self._slices(extents.slices[0]))

    def read(
        self, extents: Extents, block: Decoded, *, required: int, skip: bool
    ) -> tuple[int, int, int, int, list[tuple[int, str]]]:
        """Read frames into arrays; who judges them wants every byte looked at."""
        index = extents.slices[0]
        cost = self._reader.read(
            self._slices(index),
            # Messages count frames in the file, blocks in the run.
            replace(block, frames=extents.frames.astype(np.int64)),
            ids=index.ids,
            required=required,
            skip=skip,
            whole=block.judgements is not None,
        )
        index.fill(block, cost[-1])
        return cost
