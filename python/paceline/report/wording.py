"""Numbers as a page shows them."""

import math

#: From which number on how many decimals are shown; of smaller ones five.
_DECIMALS = ((1000, 0), (100, 1), (10, 2), (0.01, 3))


def number(value: float) -> str:
    """A number for a table, with decimals if it is small.

    Parameters
    ----------
    value : float
        The number; NaN where it is not known.

    Returns
    -------
    str

    Examples
    --------
    >>> number(0.00123), number(0.0123), number(12.34), number(1234.5), number(math.nan)
    ('0.00123', '0.012', '12.34', '1,234', '–')
    """
    if not math.isfinite(value):
        return _not_finite(value)
    digits = next((d for least, d in _DECIMALS if abs(value) >= least), 5 if value else 0)
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
