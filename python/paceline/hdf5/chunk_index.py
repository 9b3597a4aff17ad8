"""The part of an HDF5 file's index that one block of frames needs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

#: Row of a frame that an element does not hold.
ABSENT = -1


@dataclass(frozen=True)
class Filter:
    """One stage through which a chunk's bytes went, the first first.

    Attributes
    ----------
    number : int
        HDF5's registered number: 1 deflate, 2 shuffle, 3 fletcher32, 32000 LZF.
    name : str
        As the file calls it.
    values : tuple of int
        Its parameters.
    """

    number: int
    name: str
    values: tuple[int, ...] = ()


@dataclass(frozen=True)
class Table:
    """Where the chunks of a dataset are: C order over the grid of chunks.

    Attributes
    ----------
    offsets, sizes : numpy.ndarray of uint64, shape (n_chunks,)
        Bytes in the file; a chunk that was never written has size 0.
    masks : numpy.ndarray of uint32, shape (n_chunks,)
        Bit k: stage k of the filters was left out.
    """

    offsets: np.ndarray
    sizes: np.ndarray
    masks: np.ndarray


#: What a user should know of frames whose times the file does not have.
COUNTED = "frames count as 1 ps apart; give dt= (--dt) to say better"


@dataclass(frozen=True)
class Dataset:
    """One dataset of numbers, and how its bytes are laid out.

    Attributes
    ----------
    name : str
        Its path in the file.
    dtype : numpy.dtype
        Of its numbers, with their byte order.
    shape : tuple of int
        (rows, atoms, components), (rows, components × atoms) or (rows, atoms): the first axis is
        the one of frames. What holds for all frames counts as one row.
    chunk : tuple of int or None
        Shape of a chunk, as many axes as `shape`; None for a contiguous dataset.
    filters : sequence of Filter
        Of its chunks.
    offset : int
        Where a contiguous dataset begins, bytes.
    table : Table or None
        Where the chunks are.
    fill : bytes
        One number, as the file holds it, for chunks that were never written.
    detour : str
        Why only HDF5's own library can read it, in words; empty where the core can.
    """

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    chunk: tuple[int, ...] | None = None
    filters: Sequence[Filter] = ()
    offset: int = 0
    table: Table | None = None
    fill: bytes = b""
    detour: str = ""


@dataclass(frozen=True)
class Element:
    """A dataset as the frames of the trajectory see it.

    Attributes
    ----------
    dataset : Dataset
        The numbers.
    rows : numpy.ndarray of int64, shape (n_frames,), or None
        Row of each frame, `ABSENT` where it has none; None where frame k is row k.
    factor : float
        What a number is multiplied by, in float32, to be in our units.
    divisor : float
        What it is divided by before, in float64: for numbers that were stored as integers.
    scale : float
        What it is multiplied by after that, in float64 still: the file's own scale.
    """

    dataset: Dataset
    rows: np.ndarray | None = None
    factor: float = 1.0
    divisor: float = 1.0
    scale: float = 1.0


@dataclass(frozen=True)
class Catalogue:
    """All that is known of an HDF5 trajectory before any of its positions is read.

    Attributes
    ----------
    dialect : str
        What to call the file: "H5MD", "NetCDF-4", "MDTraj HDF5", "HDF5".
    n_frames, n_atoms : int
        Of the trajectory.
    elements : mapping of str to Element
        "positions", "velocities", "forces": those that there are.
    ids : Element or None
        Each frame's own numbers of its atoms, where atoms are in no fixed order.
    id_order : numpy.ndarray of int64, shape (n_atoms,), or None
        With `ids`: the number of each of our atoms, rising.
    times : numpy.ndarray of float64, shape (n_frames,)
        ps; the frame's number where the file has no times.
    steps : numpy.ndarray of int64, shape (n_frames,)
        Of the simulation.
    dimensions : numpy.ndarray of float32, shape (n_frames, 6) or (1, 6)
        Å and degrees; zeros where there is no cell. One row where all frames share it.
    facts : mapping
        For `paceline info`: name and value, in the order in which they are shown.
    notes : sequence of str
        What a user should know of the file.
    """

    dialect: str
    n_frames: int
    n_atoms: int
    elements: Mapping[str, Element]
    times: np.ndarray
    steps: np.ndarray
    dimensions: np.ndarray
    ids: Element | None = None
    id_order: np.ndarray | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()


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
    >>> from paceline.hdf5.chunk_index import Dataset, Table
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
