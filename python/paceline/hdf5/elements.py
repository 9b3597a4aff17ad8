"""H5MD's elements: numbers, and the steps and times at which they were sampled."""

from dataclasses import dataclass

import numpy as np

from paceline.errors import UnsupportedError
from paceline.hdf5.catalogue import ABSENT
from paceline.hdf5.library import DEFLATE_RATIO, Array, File, Group, damaged


@dataclass(frozen=True)
class Sampled:
    """An element of H5MD.

    Attributes
    ----------
    name : str
        Its path in the file.
    values : Array
        Its numbers; where they were sampled, each row is a sample.
    steps : numpy.ndarray of int64, shape (n_rows,), or None
        Steps of the samples; None for what holds at all times.
    times : numpy.ndarray, shape (n_rows,), or None
        Times as the file has them, in its type and its unit; None where it has none.
    time_unit : str or None
        What the file says they are in.
    unit : str or None
        What the file says the numbers are in.
    has_steps : bool
        Whether the file has steps, or its rows were counted.
    """

    name: str
    values: Array
    steps: np.ndarray | None = None
    times: np.ndarray | None = None
    time_unit: str | None = None
    unit: str | None = None
    has_steps: bool = True

    @property
    def n_rows(self) -> int:
        """Number of samples: 1 for what holds at all times."""
        return 1 if self.steps is None else self.values.shape[0]


class Elements:
    """Elements of one file; steps and times that several share are read once.

    Parameters
    ----------
    file : File
        The file.
    """

    def __init__(self, file: File):
        self._path = file.path
        self._clocks: dict[tuple[tuple[int, int], int], np.ndarray] = {}

    def find(self, group: Group, name: str, *, rank: int) -> Sampled | None:
        """The element of a name.

        Parameters
        ----------
        group : Group
            Where it may be.
        name : str
            Its name there.
        rank : int
            Number of axes of one sample.

        Returns
        -------
        Sampled or None
            None where there is no such name.

        Raises
        ------
        DamagedFileError
            It has no values, or steps or times of another number.
        """
        node = group.get(name)
        return None if node is None else self.of(node, rank=rank)

    def of(self, node: Group | Array, *, rank: int | None = None) -> Sampled:
        """What a node holds as an element.

        Parameters
        ----------
        node : Group or Array
            With steps, or what holds at all times.
        rank : int, optional
            Number of axes of one sample: a dataset without steps that has one more was sampled.

        Returns
        -------
        Sampled

        Raises
        ------
        DamagedFileError
            It has no values, or steps or times of another number.
        """
        if isinstance(node, Group):
            return self._with_clock(node, rank)
        sampled = rank is not None and len(node.shape) == rank + 1
        steps = np.arange(self._n_rows(node)) if sampled else None
        return Sampled(node.name, node, steps, unit=unit_of(node), has_steps=False)

    def _with_clock(self, group: Group, rank: int | None) -> Sampled:
        values = group.array("value")
        if values is None:
            found = ", ".join(group.names()) or "nothing"
            raise damaged(self._path, group.name, "a dataset value", found)
        step, time = group.array("step"), group.array("time")
        if step is None and rank in (None, len(values.shape)):
            return Sampled(group.name, values, unit=unit_of(values))
        n_rows = self._n_rows(values)
        if step is None:
            steps = np.arange(n_rows)
        else:
            steps = self._integers(step, self._clock(step, values, n_rows))
        times = None if time is None else self._clock(time, values, n_rows)
        time_unit = None if time is None else unit_of(time)
        return Sampled(
            group.name, values, steps, times, time_unit, unit_of(values), step is not None
        )

    def _clock(self, array: Array, values: Array, n_rows: int) -> np.ndarray:
        """Steps or times of all rows, stored one by one or as an increment."""
        if array.is_text or array.dtype.kind not in "iuf":
            raise damaged(self._path, array.name, "numbers", str(array.dtype))
        if array.shape not in ((), (n_rows,)):
            raise damaged(
                self._path,
                array.name,
                f"as many as {values.name} has, {n_rows}",
                f"a shape of {array.shape}",
            )
        key = (array.identity, n_rows)
        if key not in self._clocks:
            found = array.read() if array.shape else self._linear(array, n_rows)
            # Of the machine's byte order.
            self._clocks[key] = np.asarray(found, dtype=found.dtype.newbyteorder("="))
        return self._clocks[key]

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

    def _n_rows(self, values: Array) -> int:
        """Its samples: no more than its bytes can stand for."""
        n_rows = values.shape[0] if values.shape else 0
        most = max(values.stored_bytes * DEFLATE_RATIO, 1 << 20)
        if n_rows > most:
            raise damaged(self._path, values.name, f"at most {most} samples", str(n_rows))
        return n_rows

    def _integers(self, array: Array, steps: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", over="ignore"):
            whole = steps.astype(np.int64)
        if not np.array_equal(whole, steps):
            raise damaged(self._path, array.name, "whole numbers of 64 bits", str(steps.dtype))
        return whole


def unit_of(array: Array) -> str | None:
    """The unit that a dataset states, if any.

    Parameters
    ----------
    array : Array
        A dataset.

    Returns
    -------
    str or None
    """
    attrs = array.attrs
    unit = attrs.get("unit", attrs.get("units"))
    return unit.strip() or None if isinstance(unit, str) else None


def first_not_rising(steps: np.ndarray) -> int | None:
    """The first row whose step does not come behind the one before.

    Parameters
    ----------
    steps : numpy.ndarray of int64, shape (n,)
        Of samples.

    Returns
    -------
    int or None
        None where all rise.

    Examples
    --------
    >>> first_not_rising(np.array([0, 10, 10, 20]))
    2
    """
    wrong = np.flatnonzero(np.diff(steps) <= 0)
    return int(wrong[0]) + 1 if len(wrong) else None


def rows_of(element: Sampled, frames: Sampled) -> np.ndarray | None:
    """Row of an element in each frame, by step.

    Parameters
    ----------
    element : Sampled
        What is looked up.
    frames : Sampled
        The element whose samples are the frames.

    Returns
    -------
    numpy.ndarray of int64, shape (n_frames,), or None
        `ABSENT` where no sample is of the frame's step; None where frame k is row k.

    Raises
    ------
    UnsupportedError
        Their steps differ, and do not rise, so that one step stands for several samples.
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
        _refuse_guessing(one, element if one is frames else frames)
    if len(element.steps) == 0:
        return np.full(len(frames.steps), ABSENT)
    found = np.searchsorted(element.steps, frames.steps).clip(max=len(element.steps) - 1)
    return np.where(element.steps[found] == frames.steps, found, ABSENT)


def _refuse_guessing(one: Sampled, other: Sampled) -> None:
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
