"""What h5py reads, as plain Python."""

from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """A value that h5py read, as plain Python.

    Parameters
    ----------
    value : object
        Of an attribute, or of a dataset without axes.

    Returns
    -------
    str, int, float, bool, list of str, numpy.ndarray or None
        None for what is empty or cannot be said so.
    """
    if isinstance(value, bytes | str):
        return text_of(value)
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "SUO":
            texts = value.ravel().tolist()
            if not all(isinstance(text, bytes | str) for text in texts):
                return None
            texts = [text_of(text) for text in texts]
            return texts[0] if value.ndim == 0 else texts
        return value.item() if value.ndim == 0 else value
    return value.item() if isinstance(value, np.generic) else None


def text_of(value: bytes | str) -> str:
    """Text of any kind: fixed-length strings end with the first zero."""
    if isinstance(value, str):
        return value.rstrip("\0")
    return value.rstrip(b"\0").decode("utf-8", errors="replace")
