"""Workers and hosts: their order, and names that find room in a figure."""

import re
from collections.abc import Sequence

from paceline.report.wording import shortened


def natural(name: str) -> list[tuple[int, int, str]]:
    """What names are sorted by so that numbers in them count as such.

    Parameters
    ----------
    name : str
        Of a worker, or a host.

    Returns
    -------
    list of tuple
        To be compared with those of other names.

    Examples
    --------
    >>> sorted(["node10:7:7", "node9:7:7", "node9:12:12"], key=natural)
    ['node9:7:7', 'node9:12:12', 'node10:7:7']
    """
    pieces = re.findall(r"\d+|\D+", name)
    return [(0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in pieces]


def short_names(hosts: Sequence[str], *, most: int = 18) -> dict[str, str]:
    """Names of hosts, as short as tells them apart.

    Parameters
    ----------
    hosts : sequence of str
        Their full names.
    most : int
        Characters, if that tells them apart.

    Returns
    -------
    dict of str to str
        By full name.

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
    # The first part of an address is no name.
    first = {host: host.partition(".")[0] for host in hosts}
    without_domain = {host: host if first[host].isdecimal() else first[host] for host in hosts}
    for names in (without_domain, whole):
        short = {host: shortened(name, most) for host, name in names.items()}
        if len(set(short.values())) == len(short):
            return short
    return whole
