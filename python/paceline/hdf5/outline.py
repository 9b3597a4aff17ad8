"""What is in an HDF5 file, whether or not it can be read as a trajectory."""

import contextlib
import os
from collections.abc import Iterator
from itertools import islice

from paceline.errors import PacelineError
from paceline.hdf5.elements import unit_of
from paceline.hdf5.native import Array, File

#: Datasets that are shown.
_SHOWN = 60


def outline_of(path: str | os.PathLike) -> list[tuple[str, str]]:
    """Datasets of a file, the first 60.

    Parameters
    ----------
    path : path-like
        An HDF5 file.

    Returns
    -------
    list of (str, str)
        The path of each in the file, and type, shape and unit in words.

    Raises
    ------
    UnsupportedError
        It is no HDF5 file, or open for writing.
    DamagedFileError
        It cannot be opened.
    """
    with File(path) as file:
        return list(islice(_datasets(file), _SHOWN))


def _datasets(file: File) -> Iterator[tuple[str, str]]:
    for node in file.root.walk():
        with contextlib.suppress(PacelineError):
            if isinstance(node, Array):
                yield node.name, _in_words(node)


def _in_words(array: Array) -> str:
    kind = "text" if array.is_text else array.dtype.name
    shape = f" of {array.shape}" if array.shape else ""
    unit = unit_of(array)
    return f"{kind}{shape}, {unit}" if unit else f"{kind}{shape}"
