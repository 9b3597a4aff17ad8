"""What an HDF5 file holds, whatever its dialect: plain data, found once, by one process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
