"""The part of an HDF5 file's index that one block of frames needs."""

from dataclasses import dataclass
from math import prod

import numpy as np

from paceline.hdf5.catalogue import ABSENT, Element


@dataclass(frozen=True, slots=True)
class Slice:
    """Where the frames of one block are in one dataset.

    Attributes
    ----------
    rows : numpy.ndarray of int64, shape (n_frames,)
        Row of each frame; `ABSENT` where it has none.
    places : numpy.ndarray of uint64, shape (n_places,)
        Indices, along the first axis, of the chunks that hold any of the rows: distinct, rising.
        Empty for a contiguous dataset.
    offsets, sizes : numpy.ndarray of uint64, shape (n_places × chunks of one place,)
        Bytes of the chunks of these places, in C order; size 0 for one that was never written.
    masks : numpy.ndarray of uint32, shape (n_places × chunks of one place,)
        Bit k: stage k of the filters was left out.
    """

    rows: np.ndarray
    places: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray
    masks: np.ndarray


def slice_of(element: Element, frames: np.ndarray) -> Slice:
    """The part of an element's index that some frames need.

    Parameters
    ----------
    element : Element
        Its dataset has a table where it is chunked.
    frames : numpy.ndarray of integers, shape (n_frames,)
        Frame numbers in the file, in any order.

    Returns
    -------
    Slice

    Examples
    --------
    >>> from paceline.hdf5.catalogue import Dataset, Table
    >>> sizes = np.full(4, 24, dtype=np.uint64)
    >>> table = Table(np.arange(4, dtype=np.uint64) * 24, sizes, np.zeros(4, dtype=np.uint32))
    >>> dataset = Dataset("value", np.dtype("f4"), (4, 2, 3), chunk=(2, 1, 3), table=table)
    >>> found = slice_of(Element(dataset), np.array([3, 2]))
    >>> found.rows, found.places, found.offsets
    (array([3, 2]), array([1], dtype=uint64), array([48, 72], dtype=uint64))
    """
    dataset = element.dataset
    rows = np.asarray(frames if element.rows is None else element.rows[frames], dtype=np.int64)
    if dataset.chunk is None or dataset.table is None:
        nothing = np.empty(0, dtype=np.uint64)
        return Slice(rows, nothing, nothing, nothing, np.empty(0, dtype=np.uint32))
    places = np.unique(rows[rows != ABSENT] // dataset.chunk[0]).astype(np.uint64)
    grid = (-(-n // step) for n, step in zip(dataset.shape[1:], dataset.chunk[1:], strict=True))
    of_one = prod(grid)
    chunks = (places[:, None] * np.uint64(of_one) + np.arange(of_one, dtype=np.uint64)).ravel()
    table = dataset.table
    return Slice(rows, places, table.offsets[chunks], table.sizes[chunks], table.masks[chunks])
