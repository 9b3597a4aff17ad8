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


def duration(value: float) -> str:
    """A time in words, for a sentence.

    Parameters
    ----------
    value : float
        The time, s.

    Returns
    -------
    str

    Examples
    --------
    >>> duration(0.0123), duration(12.34), duration(200.0), duration(7500.0)
    ('12.3 ms', '12.3 s', '3 min 20 s', '2 h 5 min')
    """
    if value < 1:
        return f"{value * 1e3:.3g} ms"
    if value < 60:
        return f"{value:.3g} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


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


def _not_finite(value: float) -> str:
    return "–" if math.isnan(value) else "∞"
