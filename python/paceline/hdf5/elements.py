"""H5MD elements: values with the steps and times of their samples; cells of frames."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paceline import _core
from paceline.errors import UnsupportedError
from paceline.hdf5.chunk_index import ABSENT, Cells
from paceline.hdf5.dataset_description import read_series
from paceline.hdf5.file import Array, File, Group, damaged, unpacked_ratio

#: Lengths and angles that stand for a missing cell in all frames.
_NO_CELL = np.zeros((1, 6), dtype=np.float32)
#: Minimum volume of three rows of edges that are read as the vectors of one cell, as a fraction of
#: the product of the vectors' lengths.
_LEAST_VOLUME = 0.01


class SharedAxes:
    """Steps and times of a file; an axis that several elements share is read once."""

    def __init__(self, path: str):
        self._path = path
        self._read: dict[tuple[tuple[int, int], int], np.ndarray] = {}

    def check_length(self, array: Array, values: Array, n_rows: int) -> None:
        """Raise `DamagedFileError` if the number of steps or times does not fit the samples."""
        if array.is_text or array.dtype.kind not in "iuf":
            raise damaged(self._path, array.name, "numbers", str(array.dtype))
        # A running or killed writer may have written a time before its frame.
        one_more = [(n_rows + 1,)] if array.chunk is not None else []
        if array.shape not in [(), (n_rows,), *one_more]:
            raise damaged(
                self._path,
                array.name,
                f"as many as {values.name} has, {n_rows}",
                f"a shape of {array.shape}",
            )

    def read(self, array: Array, n_rows: int) -> np.ndarray:
        """Read steps or times of all rows, which are stored one by one or as an increment."""
        key = (array.identity, n_rows)
        if key not in self._read:
            found = read_series(array)[:n_rows] if array.shape else self._linear(array, n_rows)
            self._read[key] = np.asarray(found, dtype=found.dtype.newbyteorder("="))
        return self._read[key]

    def integers(self, array: Array, n_rows: int) -> np.ndarray:
        """Read steps of all rows as int64."""
        steps = self.read(array, n_rows)
        with np.errstate(invalid="ignore", over="ignore"):
            whole = steps.astype(np.int64)
        if not np.array_equal(whole, steps):
            raise damaged(self._path, array.name, "whole numbers of 64 bits", str(steps.dtype))
        return whole

    def _linear(self, array: Array, n_rows: int) -> np.ndarray:
        increment, offset = array.read(), array.attrs.get("offset", 0)
        if isinstance(offset, np.ndarray) and offset.size == 1:
            offset = offset.item()
        if not isinstance(offset, int | float):
            what = f"{array.name}, attribute offset"
            raise damaged(self._path, what, "a number", repr(offset))
        if not abs(offset) + abs(increment) * n_rows < 2**63:
            raise damaged(self._path, array.name, "numbers of 64 bits", f"{offset} + {increment}")
        return np.arange(n_rows) * increment + offset


@dataclass(frozen=True)
class SampledElement:
    """H5MD element: values, with the steps and times at which they were sampled."""

    name: str
    #: Dataset of values. Each row is a sample, unless the element is time-independent.
    values: Array
    #: Steps, int64, (n_rows,); None for a time-independent element.
    steps: np.ndarray | None = None
    time: Array | None = None
    #: Object that reads the times from `time`.
    axes: SharedAxes | None = None
    unit: str | None = None
    #: False if the file has no steps for this element; `steps` are then row numbers.
    has_steps: bool = True

    @property
    def n_rows(self) -> int:
        """Number of samples; 1 for a time-independent element."""
        return 1 if self.steps is None else len(self.steps)

    @property
    def times(self) -> np.ndarray | None:
        """Times in the dtype and unit of the file; None without times."""
        if self.time is None or self.axes is None:
            return None
        return self.axes.read(self.time, self.n_rows)

    @property
    def time_unit(self) -> str | None:
        """Unit of the times as stated in the file."""
        return None if self.time is None else unit_of(self.time)


class Elements:
    """Reader of the elements of one file."""

    def __init__(self, file: File):
        self._path = file.path
        self._axes = SharedAxes(file.path)

    def find(self, group: Group, name: str, *, rank: int) -> SampledElement | None:
        """Find an element by name; None if it is missing. A sample of it has `rank` axes."""
        node = group.get(name)
        return None if node is None else self.of(node, rank=rank)

    def of(self, node: Group | Array, *, rank: int | None = None) -> SampledElement:
        """Read a group as an element, or a dataset as values without steps.

        If a dataset has one axis more than the `rank` of a sample, its rows are samples.
        """
        if isinstance(node, Group):
            return self._with_axes(node, rank)
        sampled = rank is not None and len(node.shape) == rank + 1
        steps = np.arange(self._n_rows(node)) if sampled else None
        return SampledElement(node.name, node, steps, unit=unit_of(node), has_steps=False)

    def _with_axes(self, group: Group, rank: int | None) -> SampledElement:
        values = group.array("value")
        if values is None:
            found = ", ".join(group.names()) or "nothing"
            raise damaged(self._path, group.name, "a dataset value", found)
        step, time = group.array("step"), group.array("time")
        if step is None and rank in (None, len(values.shape)):
            return SampledElement(group.name, values, unit=unit_of(values))
        n_rows = self._n_written(values, step)
        for array in (step, time):
            if array is not None:
                self._axes.check_length(array, values, n_rows)
        steps = np.arange(n_rows) if step is None else self._axes.integers(step, n_rows)
        return SampledElement(
            group.name, values, steps, time, self._axes, unit_of(values), step is not None
        )

    def _n_written(self, values: Array, step: Array | None) -> int:
        """Return the number of samples.

        If only the dataset of steps can grow, samples without a step are not yet written.
        """
        n_rows = self._n_rows(values)
        if step is None or step.chunk is None or values.chunk is not None:
            return n_rows
        return min(n_rows, step.shape[0])

    def _n_rows(self, values: Array) -> int:
        """Return the length of the first axis; raise an error if the stored bytes are too few."""
        n_rows = values.shape[0] if values.shape else 0
        most = max(values.stored_bytes * unpacked_ratio(values.filters), 1 << 20)
        if n_rows > most:
            raise damaged(self._path, values.name, f"at most {most} samples", str(n_rows))
        return n_rows


def unit_of(array: Array) -> str | None:
    """Return the unit that a dataset states; None if it states none."""
    attrs = array.attrs
    unit = attrs.get("unit", attrs.get("units"))
    if isinstance(unit, list) and len(unit) == 1:
        unit = unit[0]
    return unit.strip() or None if isinstance(unit, str) else None


def first_not_rising(steps: np.ndarray) -> int | None:
    """Find the first row whose step does not exceed the previous step; None if steps increase.

    >>> first_not_rising(np.array([0, 10, 10, 20]))
    2
    """
    wrong = np.flatnonzero(np.diff(steps) <= 0)
    return int(wrong[0]) + 1 if len(wrong) else None


def match_rows(element: SampledElement, frames: SampledElement) -> np.ndarray | None:
    """For each frame, find the row of an element that was sampled at the step of the frame.

    The rows are int64, shape (n_frames,), and `ABSENT` for a frame without a sample. Returns None
    if the row of each frame equals the frame's number.
    """
    if frames.steps is None:
        return None
    if element.steps is None:
        return np.zeros(len(frames.steps), dtype=np.int64)
    if np.array_equal(element.steps, frames.steps):
        return None
    if element.n_rows == frames.n_rows and not (element.has_steps and frames.has_steps):
        return None
    for one in (element, frames):
        _check_joinable(one, element if one is frames else frames)
    if len(element.steps) == 0:
        return np.full(len(frames.steps), ABSENT)
    found = np.searchsorted(element.steps, frames.steps).clip(max=len(element.steps) - 1)
    return np.where(element.steps[found] == frames.steps, found, ABSENT)


def _check_joinable(one: SampledElement, other: SampledElement) -> None:
    path = one.values.file.path
    if not one.has_steps:
        raise UnsupportedError(
            f"{path}: {one.name} has {one.n_rows} samples without steps, and {other.name} "
            f"{other.n_rows}: corresponding samples cannot be identified"
        )
    assert one.steps is not None
    row = first_not_rising(one.steps)
    if row is not None:
        raise UnsupportedError(
            f"{path}: {one.name} and {other.name} are joined by their steps, but in {one.name} "
            f"step {one.steps[row]} of row {row} comes after step {one.steps[row - 1]}: "
            "corresponding samples cannot be identified"
        )


def cells_of(edges: np.ndarray, factor: float) -> np.ndarray:
    """Convert edges, (n, 3) diagonals or (n, 3, 3) vectors, to lengths and angles.

    Returns float32, (n, 6), or (1, 6) if all are equal: Å and degrees, zeros for a cell without
    volume. To give the same bits as `MDAnalysis.lib.mdamath.triclinic_box`, operations have the
    same order, and values are rounded to float32 before the change of units.

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
    """Set cells without volume to zero in place; return one row if all are equal."""
    possible = (cells > 0) & np.isfinite(cells)
    possible[:, 3:] &= cells[:, 3:] < 180
    cells[~possible.all(axis=1)] = 0
    return cells[:1] if len(cells) and (cells == cells[0]).all() else cells


def rows_as_frames(
    edges: SampledElement | None, n_frames: int, notes: list[str]
) -> SampledElement | None:
    """Convert edges without steps to samples, if they have one row of three lengths per frame.

    For three frames, this shape is the same as that of three vectors of a fixed cell. Edges are
    read as such vectors if these span a volume, or if any number is not positive.
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
                    f"{edges.name} has no steps, and is read as three vectors that apply to all "
                    "frames; "
                    "MDAnalysis reads it as three lengths for each of the 3 frames"
                )
            return edges
    notes.append(f"{edges.name} has no steps: each frame has one of its {n_frames} rows")
    return replace(edges, steps=np.arange(n_frames), has_steps=False)


def _read_edges(edges: SampledElement) -> np.ndarray:
    """Read edges, one sample per row: (n_rows, 3) or (n_rows, 3, 3)."""
    array, path = edges.values, edges.values.file.path
    sample = array.shape if edges.steps is None else array.shape[1:]
    if sample not in ((3,), (3, 3)) or array.dtype.kind not in "iuf":
        raise UnsupportedError(
            f"{path}: {array.name}: expected three lengths or three vectors of numbers, "
            f"found {array.dtype} of shape {array.shape}"
        )
    numbers = read_series(array)
    return numbers[np.newaxis] if edges.steps is None else numbers


def _read_boundary(box: Group) -> tuple[bool, bool, bool]:
    """Read the periodic directions of a box; all are periodic if the file does not state them."""
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
    x, y, z = (known[_as_key(word)] for word in words)
    return x, y, z


def _as_key(word: object) -> object:
    return word.lower() if isinstance(word, str) else bool(word) if word in (0, 1) else None


def _read_setting(box: Group, attrs: Any, name: str) -> Any:
    """Read an attribute, or a dataset of this name; return the element of a one-element array."""
    value = attrs.get(name)
    if value is None and isinstance(array := box.get(name), Array):
        value = array.read()
    if isinstance(value, np.ndarray | list) and len(np.ravel(value)) == 1:
        return np.ravel(value)[0]
    return value


def read_cells(
    box: Group | None,
    edges: SampledElement | None,
    factor: float,
    frames: SampledElement,
    notes: list[str],
) -> Cells:
    """Read the cells of all frames; `factor` is the length in Å of the unit of `edges`.

    Notes are added to `notes` if the box is periodic, but some cells are missing, or if it is
    periodic along some axes only.
    """
    periodic = (False, False, False) if box is None else _read_boundary(box)
    if not any(periodic):
        return Cells(_NO_CELL)
    assert box is not None
    if edges is None:
        notes.append(f"{box.name} is periodic and has no edges: frames have no cell")
        return Cells(_NO_CELL)
    if not all(periodic):
        axes = ", ".join(axis for axis, is_so in zip("xyz", periodic, strict=True) if is_so)
        notes.append(f"{box.name} is periodic along {axes} only")
    found = _read_edges(edges)
    vectors = _turned_vectors(found, factor)
    cells = cells_of(found, factor)
    flat = np.count_nonzero(~cells.any(axis=1))
    if flat:
        which = "" if len(cells) == 1 else f" in {flat} of {len(cells)} samples"
        notes.append(f"{edges.name} spans no volume{which}: frames have no cell there")
    if not len(cells):
        return Cells(_NO_CELL)
    if vectors is not None and len(vectors) > 1:
        # Each sample gets a row, because cells with equal lengths and angles may differ in
        # orientation.
        cells = np.broadcast_to(cells, (len(vectors), 6)).copy()
        vectors = _join_by_step(vectors, edges, frames, [])
    if len(cells) > 1:
        cells = _join_by_step(cells, edges, frames, notes)
    return Cells(cells, vectors, periodic)


def _turned_vectors(edges: np.ndarray, factor: float) -> np.ndarray | None:
    """Return the cell vectors a, b, c, Å, if in any sample a is not along x or b is not in xy.

    Otherwise return None, because lengths and angles determine the vectors.
    """
    if edges.ndim == 2:
        return None
    vectors = np.ascontiguousarray(edges.astype(np.float64) * factor)
    upright = _core.upright_cells(_core.cells_of_vectors(vectors, (True, True, True)))
    return None if upright.all() else vectors


def _join_by_step(
    cells: np.ndarray, edges: SampledElement, frames: SampledElement, notes: list[str]
) -> np.ndarray:
    """Assign sampled cells to the frames by step; frames without a sample get zeros and a note."""
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
