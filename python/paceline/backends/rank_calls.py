"""Call a function for each item of a list on ranks of MPI that wait for work from this rank."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import cloudpickle

from paceline._util.launcher import launched


class RankCalls:
    """Ranks that call functions; with `static`, each rank gets its own fixed share of the items."""

    def __init__(self, n_workers: int | None, *, static: bool):
        from paceline.backends.mpi import MPI

        self._backend = MPI(schedule="static" if static else "dynamic", n_workers=n_workers)

    @property
    def n_workers(self) -> int:
        """Number of threads of all ranks."""
        return self._backend.n_workers

    def __call__(
        self, function: Callable[[Any], Any], items: Sequence[object], name: str
    ) -> Iterator[tuple[int, Any]]:
        """Yield the number of each item, and the function's result, in the order of completion.

        The message of an error contains `name` and the item's number, unless it is an error of
        paceline.
        """
        from paceline.engine.tasks import BlockResult, FunctionJob, FunctionTask

        job = FunctionJob(name, cloudpickle.dumps(function))
        tasks = [FunctionTask(0, k, k, k, 1, f"item {k}", item) for k, item in enumerate(items)]
        with closing(self._backend.run([job], tasks)) as results:
            for result in results:
                if isinstance(result, BlockResult) and result.values is not None:
                    yield result.number, result.values[0]


def rank_calls(n_workers: int | None, *, static: bool = False) -> RankCalls | None:
    """Return the ranks that wait for work from this rank; None if there are none."""
    if launched()[0] == 1:
        return None
    from paceline.backends.mpi import active_session

    return None if active_session() is None else RankCalls(n_workers, static=static)
