"""Which blocks are whose: neighbours to the same thread, so that they merge where they are."""

from collections.abc import Sequence
from dataclasses import replace

from paceline.job import AnyWork, Work


class Shares:
    """A contiguous share of the blocks for each worker, who may take over half of another's.

    So a rank reads its part of the file in order, and holds few partial results, neighbours being
    merged at once; but whoever has done his share goes on with those of the slower ones.

    Parameters
    ----------
    works : sequence of Work or Call
        All blocks, in order.
    n_workers : int
        Among whom they are shared.
    fixed : bool
        Whether to leave to each what is his, however slow he is.
    in_order : bool
        Whether to share nothing out, but to deal the blocks one after another.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> works = [SimpleNamespace(job=0, number=k, n_frames=16) for k in range(10)]
    >>> shares = Shares(works, 2)
    >>> [work.number for work in shares.take(0, 70)], [work.number for work in shares.take(1, 1)]
    ([0, 1, 2, 3], [5])
    >>> [[work.number for work in shares.take(0, 80)] for _ in range(3)]
    [[4], [8, 9], [7]]
    """

    def __init__(
        self,
        works: Sequence[AnyWork],
        n_workers: int,
        *,
        fixed: bool = False,
        in_order: bool = False,
    ):
        self._works = works
        self._fixed = fixed
        n_shares = 1 if in_order and not fixed else n_workers
        bounds = [k * len(works) // n_shares for k in range(n_shares + 1)]
        #: First and end of what is left of each.
        self._left = [[bounds[k], bounds[k + 1]] for k in range(n_shares)]

    def __bool__(self) -> bool:
        """Whether any block is left."""
        return any(first < stop for first, stop in self._left)

    def take(self, worker: int, n_frames: int) -> list[AnyWork]:
        """Take the next blocks of a worker's share.

        Parameters
        ----------
        worker : int
            Who.
        n_frames : int
            How many frames he wants; he gets one block at least, and those of one job.

        Returns
        -------
        list of Work or Call
            None where nothing is left for him. Each knows what is next in the share.
        """
        share = self._left[worker % len(self._left)]
        if share[0] == share[1] and not self._fixed:
            self._take_over(share)
        taken: list[AnyWork] = []
        while share[0] < share[1]:
            work = self._works[share[0]]
            n_frames -= work.n_frames
            if taken and (n_frames < 0 or work.job != taken[0].job):
                break
            share[0] += 1
            taken.append(self._with_next(work, share))
        return taken

    def _take_over(self, share: list[int]) -> None:
        """Give to a share that is done the back half of the largest."""
        largest = max(self._left, key=lambda other: other[1] - other[0])
        middle = (largest[0] + largest[1]) // 2
        share[:] = middle, largest[1]
        largest[1] = middle

    def _with_next(self, work: AnyWork, share: list[int]) -> AnyWork:
        """The block, with where the one is that is likely to be dealt after it, if there is one."""
        if not isinstance(work, Work):
            return work
        following = self._works[share[0]] if share[0] < share[1] else None
        if isinstance(following, Work) and following.job == work.job:
            return replace(work, ahead=following.extents)
        return replace(work, ahead=None)
