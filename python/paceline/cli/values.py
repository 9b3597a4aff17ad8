"""Values of arguments, read from what the user wrote."""

import argparse

from paceline.files import size_of_words

#: Picoseconds in a unit of time.
UNITS = {"fs": 1e-3, "ps": 1.0, "ns": 1e3, "us": 1e6, "µs": 1e6, "ms": 1e9}


def positive(text: str) -> int:
    """Read an integer above 0.

    Parameters
    ----------
    text : str
        What the user wrote.

    Returns
    -------
    int
        The number.

    Examples
    --------
    >>> positive("12")
    12
    """
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, found {text}")
    return value


def size(text: str) -> int:
    """Read a number of bytes.

    Parameters
    ----------
    text : str
        What the user wrote.

    Returns
    -------
    int
        Bytes.

    Examples
    --------
    >>> size("1.5GB")
    1500000000
    """
    try:
        return size_of_words(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def bound(text: str) -> tuple[str, float]:
    """Read a frame number, or a time with its unit.

    Parameters
    ----------
    text : str
        What the user wrote.

    Returns
    -------
    tuple
        ("frame", number) or ("time", picoseconds).

    Examples
    --------
    >>> bound("100"), bound("2.5ns")
    (('frame', 100), ('time', 2500.0))
    """
    for unit, factor in sorted(UNITS.items(), key=lambda item: -len(item[0])):
        if text.endswith(unit):
            try:
                return "time", float(text.removesuffix(unit)) * factor
            except ValueError:
                break
    try:
        return "frame", int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a frame number or a time such as 100ps or 2.5ns, found {text!r}"
        ) from None


def duration(text: str) -> float:
    """Read a time with its unit.

    Parameters
    ----------
    text : str
        What the user wrote.

    Returns
    -------
    float
        Picoseconds.

    Examples
    --------
    >>> duration("2fs")
    0.002
    """
    kind, value = bound(text)
    if kind != "time":
        raise argparse.ArgumentTypeError(f"expected a time with its unit such as 2ps, found {text}")
    return value
