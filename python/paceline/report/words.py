"""What is said of a run, and numbers in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """One thing to know, and what to do about it.

    Attributes
    ----------
    kind : str
        One word or two: what it is about.
    text : str
        A short paragraph.
    numbers : dict of str to float
        On which it rests: attributes of the report, seconds, or shares from 0 to 1.
    heuristic : str
        Its number in Khoshlessan et al. 2020; empty for what is not among theirs.
    """

    kind: str
    text: str
    numbers: dict[str, float]
    heuristic: str = ""


def seconds(value: float) -> str:
    """A time with two digits or three.

    Parameters
    ----------
    value : float
        s.

    Returns
    -------
    str

    Examples
    --------
    >>> seconds(0.00123), seconds(1.234), seconds(123.4), seconds(7300)
    ('1.2 ms', '1.2 s', '123 s', '2.0 h')
    """
    if value >= 3600:
        return f"{value / 3600:.1f} h"
    if value >= 100:
        return f"{value:.0f} s"
    if value >= 0.1 or value <= 0:
        return f"{value:.2g} s" if value < 10 else f"{value:.1f} s"
    return f"{1e3 * value:.2g} ms"


def percent(share: float) -> str:
    """A share of the whole.

    Parameters
    ----------
    share : float
        From 0 to 1.

    Returns
    -------
    str

    Examples
    --------
    >>> percent(0.256), percent(0.004)
    ('26 %', '0.4 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.1g} %"


def rate(value: float) -> str:
    """Bytes a second.

    Parameters
    ----------
    value : float
        bytes/s.

    Returns
    -------
    str

    Examples
    --------
    >>> rate(1.234e9), rate(689.2e6), rate(1.2e3)
    ('1.2 GB/s', '689 MB/s', '1.2 kB/s')
    """
    unit, factor = next((one for one in (("GB", 1e9), ("MB", 1e6)) if value >= one[1]), ("kB", 1e3))
    number = value / factor
    return f"{number:.{0 if number >= 100 else 1}f} {unit}/s"


def times(ratio: float) -> str:
    """A ratio with two digits.

    Parameters
    ----------
    ratio : float
        Not negative.

    Returns
    -------
    str

    Examples
    --------
    >>> times(0.0213), times(1.26), times(12.6), times(1260), times(float("inf"))
    ('0.021', '1.3', '13', '1,300', 'any number of')
    """
    if math.isinf(ratio):
        return "any number of"
    return f"{float(f'{ratio:.2g}'):,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def joined(words: Sequence[str]) -> str:
    """Words as one list.

    Parameters
    ----------
    words : sequence of str
        At least one.

    Returns
    -------
    str

    Examples
    --------
    >>> joined(["one", "two", "three"])
    'one, two and three'
    """
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
