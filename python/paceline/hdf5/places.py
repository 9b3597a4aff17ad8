"""Where the rows of a dataset lie that are stored together."""

import math
from dataclasses import dataclass

import numpy as np

from paceline.hdf5.catalogue import Dataset, Element


def rows_of(element: Element, frames: np.ndarray) -> np.ndarray:
    """Row of each frame.

    Parameters
    ----------
    element : Element
        Of the catalogue.
    frames : numpy.ndarray of integers, shape (n,)
        Frame numbers.

    Returns
    -------
    numpy.ndarray of int64, shape (n,)
        `ABSENT` where a frame has none.
    """
    return (frames if element.rows is None else element.rows[frames]).astype(np.int64)


def frames_of_chunk(element: Element, n_frames: int) -> int:
    """Frames that cost together what one of them costs, about.

    Parameters
    ----------
    element : Element
        Of the catalogue.
    n_frames : int
        Of the trajectory.

    Returns
    -------
    int
        Those of a chunk; 1 where each frame can be read alone, or one row holds for all.
    """
    chunk, n_rows = element.dataset.chunk, element.dataset.shape[0]
    # Of what went through no filter, each frame can be read alone.
    if chunk is None or n_rows <= 1 or not element.dataset.filters:
        return 1
    return max(1, round(min(chunk[0], n_rows) * n_frames / n_rows))


@dataclass(frozen=True)
class Places:
    """Where rows are that are stored together.

    Attributes
    ----------
    offsets, sizes : numpy.ndarray of uint64, shape (n_places, chunks of one place)
        Bytes.
    n_rows : int
        Rows of one place.
    """

    offsets: np.ndarray
    sizes: np.ndarray
    n_rows: int

    @classmethod
    def of(cls, dataset: Dataset) -> "Places":
        """Those of a dataset.

        Parameters
        ----------
        dataset : Dataset
            With its chunk table, where it has one.

        Returns
        -------
        Places
            Without bytes where only HDF5 knows.
        """
        n_rows = dataset.shape[0]
        if dataset.chunk is None and not dataset.detour:
            of_row = math.prod(dataset.shape[1:]) * dataset.dtype.itemsize
            offsets = dataset.offset + np.arange(n_rows, dtype=np.uint64) * np.uint64(of_row)
            return cls(offsets[:, None], np.full((n_rows, 1), of_row, dtype=np.uint64), 1)
        if dataset.chunk is None or dataset.table is None:
            nothing = np.zeros((n_rows, 1), dtype=np.uint64)
            return cls(nothing, nothing, 1)
        n_places = -(-n_rows // dataset.chunk[0])
        offsets, sizes = (
            values.reshape(n_places, -1) for values in (dataset.table.offsets, dataset.table.sizes)
        )
        return cls(offsets, sizes, dataset.chunk[0])
