"""When an element of H5MD was sampled: steps and times, one by one, or as an increment."""

import numpy as np

from paceline.hdf5.native import Array, damaged
from paceline.hdf5.series import series_of


class Clocks:
    """Steps and times of a file, of which several elements may share one.

    Parameters
    ----------
    path : str
        The file.
    """

    def __init__(self, path: str):
        self._path = path
        self._read: dict[tuple[tuple[int, int], int], np.ndarray] = {}

    def refuse_others(self, array: Array, values: Array, n_rows: int) -> None:
        """Raise `DamagedFileError` where it cannot be the clock of these values.

        Parameters
        ----------
        array : Array
            Steps or times.
        values : Array
            What was sampled.
        n_rows : int
            Number of the samples.
        """
        if array.is_text or array.dtype.kind not in "iuf":
            raise damaged(self._path, array.name, "numbers", str(array.dtype))
        # A writer that is at work, or was stopped, has told the time of a frame that is not there.
        one_more = [(n_rows + 1,)] if array.chunk is not None else []
        if array.shape not in [(), (n_rows,), *one_more]:
            raise damaged(
                self._path,
                array.name,
                f"as many as {values.name} has, {n_rows}",
                f"a shape of {array.shape}",
            )

    def read(self, array: Array, n_rows: int) -> np.ndarray:
        """Steps or times of all rows, stored one by one or as an increment.

        Parameters
        ----------
        array : Array
            Steps or times.
        n_rows : int
            Number of the samples.

        Returns
        -------
        numpy.ndarray, shape (n_rows,)
            In the machine's byte order.
        """
        key = (array.identity, n_rows)
        if key not in self._read:
            found = series_of(array)[:n_rows] if array.shape else self._linear(array, n_rows)
            self._read[key] = np.asarray(found, dtype=found.dtype.newbyteorder("="))
        return self._read[key]

    def integers(self, array: Array, n_rows: int) -> np.ndarray:
        """Steps of all rows.

        Parameters
        ----------
        array : Array
            The steps.
        n_rows : int
            Number of the samples.

        Returns
        -------
        numpy.ndarray of int64, shape (n_rows,)
        """
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
