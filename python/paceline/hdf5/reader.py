"""Readers of HDF5 frames in a worker: the core's at chunk offsets, else HDF5's own library."""

from dataclasses import dataclass, replace

import numpy as np

from paceline import _core
from paceline.block import FIELDS, FrameBuffer
from paceline.hdf5.chunk_index import BlockIndex, ChunkIndex, Element, FileDatasets, IndexSlice
from paceline.trajectory.source import Extents, FileReader, FileReadStats


@dataclass(frozen=True)
class Hdf5FileSpec(FileDatasets):
    """Everything a worker needs to open an HDF5 file; pickled, unless it has a communicator."""

    @classmethod
    def of(
        cls, path: str, samples: bytes, index: ChunkIndex, driver: str | None, external: bool
    ) -> "Hdf5FileSpec":
        """Describe an indexed file."""
        return cls(
            path,
            samples,
            index.n_atoms,
            tuple(_without_frames(index.elements.get(field)) for field in FIELDS),
            _without_frames(index.ids),
            index.id_order,
            driver,
            external,
        )

    def open(self, atoms: np.ndarray | None, fields: int) -> FileReader:
        """Open it with the core, where that can read everything selected, else with h5py."""
        found = [element for element in (*self.selected(fields), self.ids) if element is not None]
        if self.driver is not None or any(element.dataset.h5py_fallback for element in found):
            # Other workers do not load HDF5's own library.
            from paceline.hdf5.h5py_reader import H5pyReader

            return H5pyReader(self, atoms, fields)
        return ChunkReader(self, atoms, fields)


def _without_frames(element: Element | None) -> Element | None:
    return None if element is None else element.without_frames()


class ChunkReader:
    """Read chunks at their offsets; atoms rise, None for all."""

    def __init__(self, file: FileDatasets, atoms: np.ndarray | None, fields: int):
        self._elements = file.selected(fields)
        self._reader = _core.ChunkReader(
            file.path,
            file.samples,
            self._elements,
            n_atoms=file.n_atoms,
            atoms=atoms,
            ids=file.ids,
            id_order=file.id_order,
        )

    def _slices(self, index: BlockIndex) -> list[IndexSlice | None]:
        pairs = zip(self._elements, index.elements, strict=True)
        return [None if element is None else part for element, part in pairs]

    def read_ahead(self, extents: Extents) -> None:
        """Ask for the bytes of frames that will be read soon."""
        self._reader.read_ahead(self._slices(extents.slices[0]))

    def read(
        self, extents: Extents, buffer: FrameBuffer, *, required: int, skip: bool
    ) -> FileReadStats:
        """Read frames into arrays; a validity check wants every byte looked at."""
        index = extents.slices[0]
        cost = self._reader.read(
            self._slices(index),
            # Messages count frames in the file, blocks in the run.
            replace(buffer, frames=extents.frames.astype(np.int64)),
            ids=index.ids,
            required=required,
            skip=skip,
            whole=buffer.validity is not None,
        )
        index.fill(buffer, cost[-1])
        return cost
