"""Which atom is which where a file keeps them in no order: H5MD's element id."""

from dataclasses import dataclass

import numpy as np

from paceline.errors import UnsupportedError
from paceline.hdf5.apart import allow
from paceline.hdf5.catalogue import ABSENT, Element
from paceline.hdf5.elements import Sampled, rows_of
from paceline.hdf5.native import Array
from paceline.hdf5.stored import dataset_of

#: Bytes of numbers of atoms that are looked at at a time.
_AT_A_TIME = 1 << 24
#: Seconds that a number may take to be put in order, at the most.
_SORTING = 1e-6


@dataclass(frozen=True)
class Order:
    """Where each atom is, frame by frame.

    Attributes
    ----------
    element : Element
        Numbers of the atoms of each frame.
    values : Array
        The same in the file.
    numbers : numpy.ndarray of int64, shape (n_atoms,)
        Those of our atoms, rising.
    """

    element: Element
    values: Array
    numbers: np.ndarray


def order_of(ids: Sampled | None, frames: Sampled, n_atoms: int, notes: list[str]) -> Order | None:
    """The order of atoms that may change from frame to frame.

    Parameters
    ----------
    ids : Sampled or None
        The element id.
    frames : Sampled
        The element whose samples are the frames.
    n_atoms : int
        Atoms for which the file has room.
    notes : list of str
        Lengthened by what a user should know.

    Returns
    -------
    Order or None
        None where atoms keep their places.

    Raises
    ------
    UnsupportedError
        Frames lack numbers, or share none, or have the same number twice: then atoms come and go
        in a way that leaves no fixed set of them.

    Notes
    -----
    Where the file names a placeholder, atoms may come and go: ours are those of all frames.
    """
    if ids is None or ids.steps is None or not ids.n_rows or not frames.n_rows:
        return None
    array, path = ids.values, ids.values.file.path
    if array.dtype.kind not in "iu" or len(array.shape) != 2 or array.shape[1] != n_atoms:
        raise UnsupportedError(
            f"{path}: {array.name}: expected whole numbers of {n_atoms} atoms, as {frames.name} "
            f"has, found {array.dtype} of shape {array.shape}"
        )
    rows = rows_of(ids, frames)
    if rows is not None and (rows == ABSENT).any():
        raise UnsupportedError(
            f"{path}: {ids.name} was sampled at other steps than {frames.name}: "
            "which atom is which cannot be known in all frames"
        )
    placeholder = array.placeholder
    if placeholder is None:
        first = 0 if rows is None else int(rows[0])
        numbers = _distinct(array, array.read(slice(first, first + 1))[0], first)
    else:
        numbers = _in_all(array, placeholder, notes)
    return Order(Element(dataset_of(array), rows), array, numbers.astype(np.int64))


def _distinct(array: Array, ids: np.ndarray, row: int) -> np.ndarray:
    """Numbers of one frame, rising."""
    numbers, counts = np.unique(ids, return_counts=True)
    if len(numbers) < len(ids):
        raise UnsupportedError(
            f"{array.file.path}: {array.name}: row {row} holds {numbers[counts.argmax()]} "
            f"{counts.max()} times: the number of atoms varies, and no placeholder is named for "
            "those that are not there"
        )
    return numbers


def _in_all(array: Array, placeholder: float, notes: list[str]) -> np.ndarray:
    """Numbers that each frame has."""
    n_rows, n_atoms = array.shape
    step = max(1, _AT_A_TIME // (n_atoms * array.dtype.itemsize))
    common, fewest, most = None, n_atoms, 0
    last = np.empty(0)
    for begin in range(0, n_rows, step):
        allow(_AT_A_TIME / array.dtype.itemsize * _SORTING)
        ordered = np.sort(array.read(slice(begin, begin + step)), axis=1)
        # Most frames have the atoms of the one before.
        changed = [0, *(np.flatnonzero((ordered[1:] != ordered[:-1]).any(axis=1)) + 1).tolist()]
        for row in changed:
            if np.array_equal(ordered[row], last):
                continue
            last = ordered[row]
            there = _distinct(array, last[last != placeholder], begin + row)
            fewest, most = min(fewest, len(there)), max(most, len(there))
            common = there if common is None else np.intersect1d(common, there, True)
    if common is None or len(common) == 0:
        raise UnsupportedError(
            f"{array.file.path}: {array.name}: the number of atoms varies from {fewest} to {most}, "
            "and none is there in all frames"
        )
    if len(common) < most:
        notes.append(
            f"{array.name}: the number of atoms varies from {fewest} to {most}; "
            f"the {len(common)} that all frames have are read"
        )
    return common
