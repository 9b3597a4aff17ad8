"""Which ranks read."""

from collections.abc import Sequence

from paceline.errors import UnsupportedError
from paceline.snapshot.writers import spread


def choose_readers(nodes: Sequence[str], n_readers: int | None = None) -> list[int]:
    """Ranks that read, spread over nodes.

    Parameters
    ----------
    nodes : sequence of str
        Of each rank, where it runs.
    n_readers : int, optional
        How many; by default, as in DL_POLY_5, the largest power of two that divides the number of
        ranks P and is at most 2 √P.

    Returns
    -------
    list of int
        Ranks, in order.

    Raises
    ------
    UnsupportedError
        There are not so many ranks.

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
