"""Times with units, as a user writes them."""

import argparse
import math

SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


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
    for unit in sorted(SECONDS, key=len, reverse=True):
        if text.endswith(unit):
            try:
                value = float(text.removesuffix(unit)) * SECONDS[unit]
            except ValueError:
                break
            if math.isfinite(value) and value >= 0:
                return value
            break
    raise argparse.ArgumentTypeError(f"expected a time such as 20us, 0.3ms or 2s, found {text!r}")
