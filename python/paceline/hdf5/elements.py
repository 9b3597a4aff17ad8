"""H5MD's elements: numbers, and the steps and times at which they were sampled."""

from dataclasses import dataclass

import numpy as np

from paceline.errors import UnsupportedError
from paceline.hdf5.chunk_index import ABSENT
from paceline.hdf5.dataset import read_series
from paceline.hdf5.file import Array, File, Group, damaged, unpacked_ratio


class SharedAxes:
    """Steps and times of a file; an axis that several elements share is read once."""

    def __init__(self, path: str):
        self._path = path
        self._read: dict[tuple[tuple[int, int], int], np.ndarray] = {}

    def check_length(self, array: Array, values: Array, n_rows: int) -> None:
        """Raise `DamagedFileError` where steps or times cannot be those of so many samples."""
        if array.is_text or array.dtype.kind not in "iuf":
            raise damaged(self._path, array.name, "numbers", str(array.dtype))
        # A writer at work, or one that was stopped, may have written a time without its frame.
        one_more = [(n_rows + 1,)] if array.chunk is not None else []
        if array.shape not in [(), (n_rows,), *one_more]:
            raise damaged(
                self._path,
                array.name,
                f"as many as {values.name} has, {n_rows}",
                f"a shape of {array.shape}",
            )

    def read(self, array: Array, n_rows: int) -> np.ndarray:
        """Read steps or times of all rows, stored one by one or as an increment."""
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
    """An element of H5MD: numbers, and when they were sampled."""

    name: str
    #: Each row is a sample, where it was sampled.
    values: Array
    #: int64, (n_rows,); None for what holds at all times.
    steps: np.ndarray | None = None
    time: Array | None = None
    #: Reads the times.
    axes: SharedAxes | None = None
    unit: str | None = None
    #: False where the file has no steps, and rows were counted.
    has_steps: bool = True

    @property
    def n_rows(self) -> int:
        """Number of samples; 1 for what holds at all times."""
        return 1 if self.steps is None else len(self.steps)

    @property
    def times(self) -> np.ndarray | None:
        """Times in the file's type and unit; None where it has none."""
        if self.time is None or self.axes is None:
            return None
        return self.axes.read(self.time, self.n_rows)

    @property
    def time_unit(self) -> str | None:
        """Unit of the times, as the file states it."""
        return None if self.time is None else unit_of(self.time)


class Elements:
    """Reader of the elements of one file."""

    def __init__(self, file: File):
        self._path = file.path
        self._axes = SharedAxes(file.path)

    def find(self, group: Group, name: str, *, rank: int) -> SampledElement | None:
        """Find an element by name; `rank` is the number of axes of one sample."""
        node = group.get(name)
        return None if node is None else self.of(node, rank=rank)

    def of(self, node: Group | Array, *, rank: int | None = None) -> SampledElement:
        """Read a group as an element, or a dataset without steps.

        A dataset with one more axis than the `rank` of a sample was sampled.
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
        """Number of samples: of contiguous space, which cannot grow, as many as steps."""
        n_rows = self._n_rows(values)
        if step is None or step.chunk is None or values.chunk is not None:
            return n_rows
        return min(n_rows, step.shape[0])

    def _n_rows(self, values: Array) -> int:
        """Length of the first axis; no more than the stored bytes can stand for."""
        n_rows = values.shape[0] if values.shape else 0
        most = max(values.stored_bytes * unpacked_ratio(values.filters), 1 << 20)
        if n_rows > most:
            raise damaged(self._path, values.name, f"at most {most} samples", str(n_rows))
        return n_rows


def unit_of(array: Array) -> str | None:
    """Unit that a dataset states, if any."""
    attrs = array.attrs
    unit = attrs.get("unit", attrs.get("units"))
    if isinstance(unit, list) and len(unit) == 1:
        unit = unit[0]
    return unit.strip() or None if isinstance(unit, str) else None


def first_not_rising(steps: np.ndarray) -> int | None:
    """Find the first row whose step is not above the one before; None where all rise.

    >>> first_not_rising(np.array([0, 10, 10, 20]))
    2
    """
    wrong = np.flatnonzero(np.diff(steps) <= 0)
    return int(wrong[0]) + 1 if len(wrong) else None


def match_rows(element: SampledElement, frames: SampledElement) -> np.ndarray | None:
    """Find the row of an element in each frame, by step: int64, `ABSENT` where it has none.

    None where frame k is row k.
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
            f"{other.n_rows}: which belong together cannot be known"
        )
    assert one.steps is not None
    row = first_not_rising(one.steps)
    if row is not None:
        raise UnsupportedError(
            f"{path}: {one.name} and {other.name} are joined by their steps, and in {one.name} "
            f"step {one.steps[row]} of row {row} comes after step {one.steps[row - 1]}: "
            "which samples belong together cannot be known"
        )
