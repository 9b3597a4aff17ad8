"""Numbers as a page shows them."""

import math


def number(value: float) -> str:
    """A number for a table, with three decimals if it is small.

    Parameters
    ----------
    value : float
        The number; NaN where it is not known.

    Returns
    -------
    str

    Examples
    --------
    >>> number(0.0123), number(1234.5), number(math.nan), number(math.inf)
    ('0.012', '1,234', '–', '∞')
    """
    if not math.isfinite(value):
        return _not_finite(value)
    digits = 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0
    return f"{value:,.{digits}f}"


def amount(n_bytes: float) -> str:
    """Bytes in the largest unit of which there is one.

    Parameters
    ----------
    n_bytes : float
        Number of bytes; NaN where it is not known.

    Returns
    -------
    str

    Examples
    --------
    >>> amount(1_234_567_890), amount(12)
    ('1.23 GB', '12 bytes')
    """
    if not math.isfinite(n_bytes):
        return _not_finite(n_bytes)
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} bytes"


def many(count: int, thing: str) -> str:
    """A number of things.

    Parameters
    ----------
    count : int
        How many.
    thing : str
        One of them.

    Returns
    -------
    str

    Examples
    --------
    >>> many(1, "worker"), many(20_000, "frame")
    ('1 worker', '20,000 frames')
    """
    return f"{count:,} {thing}{'s' * (count != 1)}"


def shortened(text: str, most: int = 300) -> str:
    """A text without its middle, if it is long.

    Parameters
    ----------
    text : str
        Of any length.
    most : int
        Characters to keep.

    Returns
    -------
    str

    Examples
    --------
    >>> shortened("md.part0001.xtc, md.part0002.xtc", 20)
    'md.part000…t0002.xtc'
    """
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}…{text[len(text) - (most - most // 2 - 1) :]}"


def _not_finite(value: float) -> str:
    return "–" if math.isnan(value) else "∞"
