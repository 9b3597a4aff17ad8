"""Room for large results."""

import math
import os
import tempfile

import numpy as np

from paceline.files import writing_to

#: Arrays larger than this are kept in a file that vanishes with them, bytes.
LARGE = 2**30


def allocate(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Make room for an array: in memory, or in a nameless file if it is large.

    Parameters
    ----------
    shape : tuple of int
        Of the array.
    dtype : numpy.dtype
        Of its elements.

    Returns
    -------
    numpy.ndarray
        Not filled.
    """
    size = math.prod(shape) * dtype.itemsize
    if size <= LARGE:
        return np.empty(shape, dtype)
    file = tempfile.TemporaryFile()  # noqa: SIM115
    if hasattr(os, "posix_fallocate"):
        # On a full disk, writing to mapped bytes that the file does not have yet is a crash.
        with writing_to(tempfile.gettempdir()):
            os.posix_fallocate(file.fileno(), 0, size)
    return np.memmap(file, dtype=dtype, shape=shape)
