"""Choose the ranks that write and those that read."""

import math
from collections.abc import Sequence

import numpy as np

from paceline.errors import UnsupportedError

#: Bytes of a frame that are worth a writer. Of 8 ranks on two cores 8 writers instead of one took
#: 0.56 of the time of a CONFIG of 16 MiB, and 0.74 of that of 4 MiB, which 4 writers took as well;
#: of 1 MiB and less any number takes the same.
WORTH = 2**20


def choose_writers(nodes: Sequence[str], n_bytes: int) -> list[int]:
    """Choose writers where a user does not.

    Their number is the largest power of two that is not above min(P, 8 √P) of P ranks. (DL_POLY_5
    wants it to divide P as well, since its writers have as many ranks each; ours have none.) Small
    frames have fewer: to send, and to write, many small pieces takes longer than a few large ones.
    `nodes` are host names by rank, `n_bytes` is the size of a frame.

    Examples
    --------
    >>> choose_writers(["one"] * 4 + ["other"] * 4, 2 * WORTH)
    [0, 4]
    >>> len(choose_writers(["one"] * 128, 1000 * WORTH))
    64
    """
    n_ranks = len(nodes)
    most = min(n_ranks, 8 * math.sqrt(n_ranks), max(1, n_bytes // WORTH))
    return spread(nodes, 2 ** int(math.log2(most)))


def spread(nodes: Sequence[str], n_writers: int) -> list[int]:
    """Spread writers evenly over nodes, and within each node over its ranks.

    Examples
    --------
    >>> spread(["one"] * 6 + ["other"] * 2, 5)
    [0, 2, 4, 6, 7]
    """
    by_node: dict[str, list[int]] = {}
    for rank, node in enumerate(nodes):
        by_node.setdefault(node, []).append(rank)
    shares, left = dict.fromkeys(by_node, 0), n_writers
    while left > 0:
        for node, ranks in by_node.items():
            if left > 0 and shares[node] < len(ranks):
                shares[node] += 1
                left -= 1
    return sorted(
        ranks[place]
        for node, ranks in by_node.items()
        for place in np.linspace(0, len(ranks), shares[node], endpoint=False, dtype=int)
    )


def given_writers(writers: int | Sequence[int], nodes: Sequence[str]) -> list[int]:
    """Choose as many writers as a user asks for, or those; raise `UnsupportedError` for others."""
    n_ranks = len(nodes)
    if isinstance(writers, int | np.integer):
        if not 1 <= writers <= n_ranks:
            raise UnsupportedError(f"expected from 1 to {n_ranks} writers, found {writers}")
        return spread(nodes, int(writers))
    ranks = sorted({int(rank) for rank in writers})
    if not ranks or len(ranks) < len(writers) or ranks[0] < 0 or ranks[-1] >= n_ranks:
        raise UnsupportedError(
            f"expected writers out of ranks 0 to {n_ranks - 1}, each once, found {list(writers)}"
        )
    return ranks


def choose_readers(nodes: Sequence[str], n_readers: int | None = None) -> list[int]:
    """Choose ranks that read, spread over nodes; raise `UnsupportedError` where they are too few.

    By default, as in DL_POLY_5, their number is the largest power of two that divides the number
    of ranks P and is at most 2 √P.

    Examples
    --------
    >>> choose_readers(["one"] * 4 + ["other"] * 4)
    [0, 2, 4, 6]
    >>> [len(choose_readers(["one"] * n)) for n in (1, 2, 6, 16, 64, 1000)]
    [1, 2, 2, 8, 16, 8]
    """
    n_ranks = len(nodes)
    if n_readers is None:
        n_readers = 1
        while n_ranks % (2 * n_readers) == 0 and n_readers**2 <= n_ranks:
            n_readers *= 2
    if not 1 <= n_readers <= n_ranks:
        raise UnsupportedError(f"expected from 1 to {n_ranks} readers, found {n_readers}")
    return spread(nodes, n_readers)
