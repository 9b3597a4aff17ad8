"""Format numbers and names for human readers."""

import math
import re
from collections.abc import Iterator, Sequence

#: Pairs of the minimum magnitude of a number and its number of decimals; numbers below all these
#: magnitudes get five decimals.
_DECIMALS = ((1000, 0), (100, 1), (10, 2), (0.01, 3))
#: Maximum number of characters of a host name in figures.
_HOST_WIDTH = 18


def number(value: float) -> str:
    """Format a number for a table; smaller numbers get more decimals.

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
    """Format a number of bytes in the largest suitable unit, with up to three digits.

    Examples
    --------
    >>> amount(1_234_567_890), amount(999_999), amount(12)
    ('1.23 GB', '1 MB', '12 bytes')
    """
    if not math.isfinite(n_bytes):
        return _not_finite(n_bytes)
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= 0.9995 * size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} bytes"


def _not_finite(value: float) -> str:
    return "–" if math.isnan(value) else "∞"


def many(count: int, thing: str) -> str:
    """Format a number with the counted noun, in singular or plural.

    Examples
    --------
    >>> many(1, "worker"), many(20_000, "frame")
    ('1 worker', '20,000 frames')
    """
    return f"{count:,} {thing}{'s' * (count != 1)}"


def seconds(value: float) -> str:
    """Format a time, s, with two or three digits.

    Examples
    --------
    >>> seconds(0.00123), seconds(1.234), seconds(123.4), seconds(1234), seconds(7300)
    ('1.2 ms', '1.2 s', '123 s', '21 min', '2.0 h')
    """
    if not math.isfinite(value):
        return _not_finite(value)
    if value >= 3600:
        return f"{value / 3600:.1f} h"
    if value >= 600:
        return f"{value / 60:.0f} min"
    if value >= 100:
        return f"{value:.0f} s"
    if value >= 0.1 or value <= 0:
        return f"{value:.2g} s" if value < 10 else f"{value:.1f} s"
    return f"{1e3 * value:.2g} ms"


def percent(share: float) -> str:
    """Format a fraction, from 0 to 1, as a percentage.

    Examples
    --------
    >>> percent(0.256), percent(0.004)
    ('26 %', '0.4 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.1g} %"


def rate(value: float) -> str:
    """Format a rate in bytes per second, in kB/s, MB/s or GB/s.

    Examples
    --------
    >>> rate(1.234e9), rate(689.2e6), rate(1.2e3)
    ('1.2 GB/s', '689 MB/s', '1.2 kB/s')
    """
    unit, factor = next((one for one in (("GB", 1e9), ("MB", 1e6)) if value >= one[1]), ("kB", 1e3))
    number = value / factor
    return f"{number:.{0 if number >= 100 else 1}f} {unit}/s"


def times(ratio: float) -> str:
    """Format a non-negative ratio with two digits.

    Examples
    --------
    >>> times(0.0213), times(1.26), times(12.6), times(1260), times(float("inf"))
    ('0.021', '1.3', '13', '1,300', 'any number of')
    """
    if math.isinf(ratio):
        return "any number of"
    return f"{float(f'{ratio:.2g}'):,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def joined(words: Sequence[str], most: int | None = None) -> str:
    """Join one or more words as a list in a sentence; words beyond the first `most` are counted.

    Examples
    --------
    >>> joined(["one", "two", "three"]), joined(["one", "two", "three"], 1)
    ('one, two and three', 'one and 2 more')
    """
    if most is not None and len(words) > most:
        words = [*words[:most], f"{len(words) - most:,} more"]
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def aligned(rows: Sequence[Sequence[str]], *, left: int = 1) -> Iterator[str]:
    r"""Align the cells of a table: the first `left` columns to the left, all others to the right.

    Examples
    --------
    >>> print(*aligned([("worker", "frames"), ("a:1:1", "98")]), sep="\n")
    worker  frames
    a:1:1       98
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        yield "  ".join(
            cell.ljust(width) if k < left else cell.rjust(width)
            for k, (cell, width) in enumerate(cells)
        )


def shortened(text: str, most: int = 300) -> str:
    """Cut out the middle of a text that is longer than `most` characters.

    Examples
    --------
    >>> shortened("md.part0001.xtc, md.part0002.xtc", 20)
    'md.part000…t0002.xtc'
    """
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}…{text[len(text) - (most - most // 2 - 1) :]}"


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key for natural sorting: digits in names are compared as numbers.

    Examples
    --------
    >>> sorted(["node10:7:7", "node9:7:7", "node9:12:12"], key=natural)
    ['node9:7:7', 'node9:12:12', 'node10:7:7']
    """
    pieces = re.findall(r"\d+|\D+", name)
    return [(0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in pieces]


def short_names(hosts: Sequence[str]) -> dict[str, str]:
    """Shorten host names, but only if they remain distinct; return the short names by full name.

    Examples
    --------
    >>> short_names(["node1.cluster.org", "node2.cluster.org"])
    {'node1.cluster.org': 'node1', 'node2.cluster.org': 'node2'}
    >>> short_names(["a.east.org", "a.west.org"])
    {'a.east.org': 'a.east.org', 'a.west.org': 'a.west.org'}
    >>> short_names(["10.0.0.7"])
    {'10.0.0.7': '10.0.0.7'}
    """
    whole = {host: host for host in hosts}
    # The first part of an IP address is not a host name.
    first = {host: host.partition(".")[0] for host in hosts}
    without_domain = {host: host if first[host].isdecimal() else first[host] for host in hosts}
    for names in (without_domain, whole):
        short = {host: shortened(name, _HOST_WIDTH) for host, name in names.items()}
        if len(set(short.values())) == len(short):
            return short
    return whole
