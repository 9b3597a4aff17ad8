"""What all backends have in common."""

from collections.abc import Callable, Generator, Iterable, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from paceline._util.machine import available_cpus
from paceline.performance.records import DuplicateAttempt
from paceline.schedule.tasks import AnyJob, AnyWork, BlockResult, CollectedResult


class Backend(Protocol):
    """Where blocks are computed.

    Attributes
    ----------
    name : str
        What it is called in the timings.
    n_workers : int
        Blocks that are computed at the same time.
    """

    name: str
    n_workers: int

    def run(
        self, jobs: Sequence[AnyJob], works: Iterable[AnyWork]
    ) -> Generator[BlockResult | CollectedResult | DuplicateAttempt, None, None]:
        """Do every block; yield outcomes as they come. Closing the generator stops the work.

        Parameters
        ----------
        jobs : sequence of Job or Calls
            One a trajectory: what its blocks have in common.
        works : iterable of Work or Call
            The blocks; taken from it as workers come free.

        Yields
        ------
        BlockResult, CollectedResult or DuplicateAttempt
            Of each block, in any order; at the end, what was kept until then. And, at any time,
            attempts that do not count.
        """


def worker_count(n_workers: int | None) -> int:
    """Number of workers that a user asked for.

    Parameters
    ----------
    n_workers : int, optional
        By default the CPUs that this process may use.

    Returns
    -------
    int
        At least 1.

    Raises
    ------
    ValueError
        Fewer are asked for.

    Examples
    --------
    >>> worker_count(4), worker_count(None) == available_cpus()
    (4, True)
    """
    if n_workers is None:
        return available_cpus()
    if n_workers < 1:
        raise ValueError(f"n_workers must be at least 1, not {n_workers}")
    return n_workers


class CollectiveRun(Protocol):
    """Processes that have called `run` together; one of them leads.

    Attributes
    ----------
    leads : bool
        Whether this one does: it plans, deals and collects.
    """

    leads: bool

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def follow(self) -> None:
        """Take part in the run that another leads."""

    def share(self, make: Callable[[], Any]) -> Any:
        """Give to all what the one that leads makes."""


class SingleProcessRun:
    """A company of one."""

    leads = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Nobody has to be told."""

    def follow(self) -> None:
        """Nobody leads."""

    def share(self, make: Callable[[], Any]) -> Any:
        """Make it."""
        return make()


def collective_run_of(backend: Backend) -> CollectiveRun:
    """Those who have called `run` together.

    Parameters
    ----------
    backend : Backend
        Of the run; one that several processes share has `company`.

    Returns
    -------
    CollectiveRun
    """
    return backend.company() if hasattr(backend, "company") else SingleProcessRun()
