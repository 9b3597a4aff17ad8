"""Cells of frames: lengths and angles, from vectors or from the diagonal of a cuboid."""

from dataclasses import replace
from typing import Any

import numpy as np

from paceline.errors import UnsupportedError
from paceline.hdf5.chunk_index import ABSENT
from paceline.hdf5.dataset import read_series
from paceline.hdf5.elements import SampledElement, match_rows
from paceline.hdf5.file import Array, Group

_NONE = np.zeros((1, 6), dtype=np.float32)
#: Three vectors are a cell if its volume is this part of the product of their lengths, at least.
_LEAST_VOLUME = 0.01


def cells_of(edges: np.ndarray, factor: float) -> np.ndarray:
    """Convert edges, (n, 3) diagonals or (n, 3, 3) vectors, to lengths and angles.

    Returns float32, (n, 6) or, where all are equal, (1, 6): Å and degrees, zeros without a volume.
    The order of operations follows `MDAnalysis.lib.mdamath.triclinic_box`, rounded to float32
    before the unit is changed, for the same numbers.

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
    return zero_invalid_cells(cells)


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[:, 0] * b[:, 0] + a[:, 1] * b[:, 1] + a[:, 2] * b[:, 2]


def zero_invalid_cells(cells: np.ndarray) -> np.ndarray:
    """Set cells without a volume to zero, in place; one row where all are equal."""
    possible = (cells > 0) & np.isfinite(cells)
    possible[:, 3:] &= cells[:, 3:] < 180
    cells[~possible.all(axis=1)] = 0
    return cells[:1] if len(cells) and (cells == cells[0]).all() else cells


def rows_as_frames(
    edges: SampledElement | None, n_frames: int, notes: list[str]
) -> SampledElement | None:
    """Give edges without steps, of which each frame has a row of three lengths, a sample a frame.

    For three frames they look like the three vectors of a fixed cell, which go first.
    """
    if edges is None or edges.steps is not None or edges.values.shape != (n_frames, 3):
        return edges
    if edges.values.dtype.kind not in "iuf":
        return edges
    rows = read_series(edges.values).astype(np.float64)
    if n_frames == 3:
        with np.errstate(invalid="ignore", over="ignore"):
            product = np.prod(np.linalg.norm(rows, axis=1))
            is_cell = abs(np.linalg.det(rows)) > _LEAST_VOLUME * product
        if is_cell or not (rows > 0).all():
            if (rows > 0).all():
                notes.append(
                    f"{edges.name} has no steps, and is read as three vectors of all frames; "
                    "it could be three lengths of each of the 3 frames, as MDAnalysis reads it"
                )
            return edges
    notes.append(f"{edges.name} has no steps: each frame has one of its {n_frames} rows")
    return replace(edges, steps=np.arange(n_frames), has_steps=False)


def _read_edges(edges: SampledElement) -> np.ndarray:
    """Read edges, one sample a row: (n_rows, 3) or (n_rows, 3, 3)."""
    array, path = edges.values, edges.values.file.path
    sample = array.shape if edges.steps is None else array.shape[1:]
    if sample not in ((3,), (3, 3)) or array.dtype.kind not in "iuf":
        raise UnsupportedError(
            f"{path}: {array.name}: expected three lengths or three vectors of numbers, "
            f"found {array.dtype} of shape {array.shape}"
        )
    numbers = read_series(array)
    return numbers[np.newaxis] if edges.steps is None else numbers


def _read_boundary(box: Group) -> tuple[bool, ...]:
    """Read in which directions a box is periodic: in all where the file does not say."""
    path, attrs = box.file.path, box.attrs
    dimension = _read_setting(box, attrs, "dimension")
    if dimension is not None and dimension != 3:
        raise UnsupportedError(f"{path}: {box.name}: expected 3 dimensions, found {dimension}")
    stated = _read_setting(box, attrs, "boundary")
    words = [stated] * 3 if isinstance(stated, str | bool) else stated
    if words is None:
        return (True, True, True)
    known = {"periodic": True, "none": False, True: True, False: False}
    if len(words) != 3 or any(_as_key(word) not in known for word in words):
        raise UnsupportedError(
            f"{path}: {box.name}, boundary: expected three of periodic and none, found {stated!r}"
        )
    return tuple(known[_as_key(word)] for word in words)


def _as_key(word: Any) -> Any:
    return word.lower() if isinstance(word, str) else bool(word) if word in (0, 1) else None


def _read_setting(box: Group, attrs: Any, name: str) -> Any:
    """Read an attribute, or a dataset in its place; one with a single element is that element."""
    value = attrs.get(name)
    if value is None and isinstance(array := box.get(name), Array):
        value = array.read()
    if isinstance(value, np.ndarray | list) and len(np.ravel(value)) == 1:
        return np.ravel(value)[0]
    return value


def read_dimensions(
    box: Group | None,
    edges: SampledElement | None,
    factor: float,
    frames: SampledElement,
    notes: list[str],
) -> np.ndarray:
    """Read cells of all frames: float32, (n_frames, 6) or (1, 6), zeros where there is none."""
    periodic = (False,) if box is None else _read_boundary(box)
    if not any(periodic):
        return _NONE
    assert box is not None
    if edges is None:
        notes.append(f"{box.name} is periodic and has no edges: frames have no cell")
        return _NONE
    if not all(periodic):
        axes = ", ".join(axis for axis, is_so in zip("xyz", periodic, strict=True) if is_so)
        notes.append(f"{box.name} is periodic along {axes} only, and its cell is for all three")
    cells = cells_of(_read_edges(edges), factor)
    flat = np.count_nonzero(~cells.any(axis=1))
    if flat:
        which = "" if len(cells) == 1 else f" in {flat} of {len(cells)} samples"
        notes.append(f"{edges.name} spans no volume{which}: frames have no cell there")
    if len(cells) <= 1:
        return cells if len(cells) else _NONE
    return _join_by_step(cells, edges, frames, notes)


def _join_by_step(
    cells: np.ndarray, edges: SampledElement, frames: SampledElement, notes: list[str]
) -> np.ndarray:
    """Join sampled cells to the frames."""
    rows = match_rows(edges, frames)
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
