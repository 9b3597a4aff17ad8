"""Cells: from vectors, or from the space diagonal of a cuboid, to lengths and angles."""

from typing import Any

import numpy as np

from paceline.errors import UnsupportedError
from paceline.hdf5.chunk_index import ABSENT
from paceline.hdf5.dataset import series_of
from paceline.hdf5.elements import Sampled, rows_of
from paceline.hdf5.file import Array, Group

_NONE = np.zeros((1, 6), dtype=np.float32)


def cells_of(edges: np.ndarray, factor: float) -> np.ndarray:
    """Lengths and angles of cells, as MDAnalysis makes them.

    Parameters
    ----------
    edges : numpy.ndarray, shape (n, 3) or (n, 3, 3)
        Diagonals of cuboids, or vectors, one a row, in the file's unit.
    factor : float
        What turns a length into Å.

    Returns
    -------
    numpy.ndarray of float32, shape (n, 6)
        Å and degrees; zeros where there is no volume.

    Notes
    -----
    The formula and the order of operations follow `MDAnalysis.lib.mdamath.triclinic_box`: rounded
    to float32 before the unit is changed, so that the same numbers come out.

    Examples
    --------
    >>> cells_of(np.array([[3.0, 4.0, 5.0]]), 10.0)
    array([[30., 40., 50., 90., 90., 90.]], dtype=float32)
    """
    cells = np.full((len(edges), 6), 90, dtype=np.float32)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        if edges.ndim == 2:
            cells[:, :3] = edges
        else:
            x, y, z = np.moveaxis(edges.astype(np.float64), 1, 0)
            lx, ly, lz = (np.sqrt(_dot(vector, vector)) for vector in (x, y, z))
            cells[:, :3] = np.stack((lx, ly, lz), axis=1)
            cosines = (_dot(y, z) / (ly * lz), _dot(x, z) / (lx * lz), _dot(x, y) / (lx * ly))
            cells[:, 3:] = np.rad2deg(np.arccos(np.stack(cosines, axis=1)))
        cells[:, :3] *= np.float32(factor)
    return without_impossible(cells)


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[:, 0] * b[:, 0] + a[:, 1] * b[:, 1] + a[:, 2] * b[:, 2]


def without_impossible(cells: np.ndarray) -> np.ndarray:
    """Cells, zeros in place of those that have no volume.

    Parameters
    ----------
    cells : numpy.ndarray of float32, shape (n, 6)
        Å and degrees; changed in place.

    Returns
    -------
    numpy.ndarray of float32, shape (n, 6) or (1, 6)
        One row where all are equal.
    """
    possible = (cells > 0) & np.isfinite(cells)
    possible[:, 3:] &= cells[:, 3:] < 180
    cells[~possible.all(axis=1)] = 0
    return cells[:1] if len(cells) and (cells == cells[0]).all() else cells


def edges_of(edges: Sampled) -> np.ndarray:
    """The numbers of an element of edges, one sample a row.

    Parameters
    ----------
    edges : Sampled
        The element.

    Returns
    -------
    numpy.ndarray, shape (n_rows, 3) or (n_rows, 3, 3)

    Raises
    ------
    UnsupportedError
        They are neither lengths nor vectors in three dimensions.
    """
    array, path = edges.values, edges.values.file.path
    sample = array.shape if edges.steps is None else array.shape[1:]
    if sample not in ((3,), (3, 3)) or array.dtype.kind not in "iuf":
        raise UnsupportedError(
            f"{path}: {array.name}: expected three lengths or three vectors of numbers, "
            f"found {array.dtype} of shape {array.shape}"
        )
    numbers = series_of(array)
    return numbers[np.newaxis] if edges.steps is None else numbers


def boundary_of(box: Group) -> tuple[bool, ...]:
    """In which directions a box is periodic.

    Parameters
    ----------
    box : Group
        The group of the box.

    Returns
    -------
    tuple of bool
        Periodic in all where the file does not say.

    Raises
    ------
    UnsupportedError
        The box has not three dimensions, or a boundary is of a kind that H5MD does not have.
    """
    path, attrs = box.file.path, box.attrs
    dimension = _said(box, attrs, "dimension")
    if dimension is not None and dimension != 3:
        raise UnsupportedError(f"{path}: {box.name}: expected 3 dimensions, found {dimension}")
    said = _said(box, attrs, "boundary")
    words = [said] * 3 if isinstance(said, str | bool) else said
    if words is None:
        return (True, True, True)
    known = {"periodic": True, "none": False, True: True, False: False}
    if len(words) != 3 or any(_plain(word) not in known for word in words):
        raise UnsupportedError(
            f"{path}: {box.name}, boundary: expected three of periodic and none, found {said!r}"
        )
    return tuple(known[_plain(word)] for word in words)


def _plain(word: Any) -> Any:
    return word.lower() if isinstance(word, str) else bool(word) if word in (0, 1) else None


def _said(box: Group, attrs: Any, name: str) -> Any:
    """An attribute, or a dataset in its place; what has one element is that element."""
    value = attrs.get(name)
    if value is None and isinstance(array := box.get(name), Array):
        value = array.read()
    if isinstance(value, np.ndarray | list) and len(np.ravel(value)) == 1:
        return np.ravel(value)[0]
    return value


def dimensions_of(
    box: Group | None, edges: Sampled | None, factor: float, frames: Sampled, notes: list[str]
) -> np.ndarray:
    """Cells of all frames.

    Parameters
    ----------
    box : Group or None
        Group of the box.
    edges : Sampled or None
        Its edges.
    factor : float
        What turns their lengths into Å.
    frames : Sampled
        The element whose samples are the frames.
    notes : list of str
        Lengthened by what a user should know.

    Returns
    -------
    numpy.ndarray of float32, shape (n_frames, 6) or (1, 6)
        Å and degrees; zeros where there is no cell.

    Raises
    ------
    UnsupportedError
        They are not those of a box in three dimensions.
    DamagedFileError
        They cannot be read.
    """
    periodic = (False,) if box is None else boundary_of(box)
    if not any(periodic):
        return _NONE
    assert box is not None
    if edges is None:
        notes.append(f"{box.name} is periodic and has no edges: frames have no cell")
        return _NONE
    if not all(periodic):
        axes = ", ".join(axis for axis, is_so in zip("xyz", periodic, strict=True) if is_so)
        notes.append(f"{box.name} is periodic along {axes} only, and its cell is for all three")
    cells = cells_of(edges_of(edges), factor)
    if len(cells) <= 1:
        return cells if len(cells) else _NONE
    return _joined(cells, edges, frames, notes)


def _joined(cells: np.ndarray, edges: Sampled, frames: Sampled, notes: list[str]) -> np.ndarray:
    """Cells of the frames, of those that were sampled."""
    rows = rows_of(edges, frames)
    if rows is None:
        return cells
    found: np.ndarray = cells[rows]
    missing = rows == ABSENT
    found[missing] = 0
    if missing.any():
        notes.append(
            f"{edges.name} changes, and was sampled at other steps than {frames.name}: "
            f"{int(missing.sum())} of {len(rows)} frames have no cell"
        )
    return found
