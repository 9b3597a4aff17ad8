"""Numbers with units, as a user writes them."""

import argparse
import math
from collections.abc import Mapping

SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def seconds(text: str) -> float:
    """Read a time with its unit.

    Parameters
    ----------
    text : str
        What the user wrote.

    Returns
    -------
    float
        Seconds.

    Examples
    --------
    >>> seconds("0.3ms"), seconds("2s")
    (0.0003, 2.0)
    """
    return _read(text, SECONDS, "a time such as 20us, 0.3ms or 2s")


def size(text: str) -> float:
    """Read a number of bytes, with or without a unit.

    Parameters
    ----------
    text : str
        What the user wrote.

    Returns
    -------
    float
        Bytes.

    Examples
    --------
    >>> size("12kB"), size("1752")
    (12000.0, 1752.0)
    """
    return _read(text, {**BYTES, "": 1.0}, "bytes such as 12000, 12kB or 2GB")


def _read(text: str, units: Mapping[str, float], expected: str) -> float:
    for unit in sorted(units, key=len, reverse=True):
        if text.endswith(unit):
            try:
                value = float(text.removesuffix(unit)) * units[unit]
            except ValueError:
                break
            if math.isfinite(value) and value >= 0:
                return value
            break
    raise argparse.ArgumentTypeError(f"expected {expected}, found {text!r}")
