"""Interfaces of backends."""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Protocol, Self

from paceline._util.arguments import whole_number
from paceline._util.machine import available_cpus
from paceline.engine.tasks import AnyJob, AnyTask, BlockResult, CollectedResult
from paceline.performance.record import DuplicateAttempt


def worker_count(n_workers: int | None) -> int:
    """Check a number of workers; by default the CPUs that this process may use.

    Examples
    --------
    >>> worker_count(4), worker_count(None) == available_cpus()
    (4, True)
    """
    if n_workers is None:
        return available_cpus()
    return whole_number("n_workers", n_workers, 1)


class CollectiveRun(Protocol):
    """Processes that called `run` together: one coordinates the run, the others work."""

    #: True for the process that plans, schedules and collects.
    is_coordinator: bool

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...

    def work(self) -> None:
        """Take part in the coordinator's run."""

    def broadcast(self, make: Callable[[], Any]) -> Any:
        """Send the object that the coordinator makes to all processes, and return it."""


class SingleProcessRun:
    """A `CollectiveRun` of one process."""

    is_coordinator = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: no process waits."""

    def work(self) -> None:
        """Do nothing: there is no other process."""

    def broadcast(self, make: Callable[[], Any]) -> Any:
        """Return the object that the function makes."""
        return make()


class Backend:
    """Workers that compute blocks."""

    #: Name in the timings.
    name: str
    #: Number of blocks that are computed at the same time.
    n_workers: int
    #: Rule by which tasks are assigned.
    schedule: str = "dynamic"
    #: True if most blocks of a later stage run in the same process as before, so that decoded
    #: frames are kept there.
    keeps_frames: bool = False
    #: True if all workers are threads of this process that start tasks in order: a block may then
    #: wait for a state from the block before.
    pipelines: bool = False
    #: True if workers are other processes of this machine that can open files of the caller.
    reads_files_of_caller: bool = False

    def run(
        self, jobs: Sequence[AnyJob], tasks: Iterable[AnyTask]
    ) -> Generator[BlockResult | CollectedResult | DuplicateAttempt, None, None]:
        """Run every task; yield results in order of completion. Closing the generator stops it.

        A task is taken when a worker is idle. Results of blocks come in any order. Results that
        workers have kept come at the end. Attempts whose results are not used may come at any time.
        """
        raise NotImplementedError

    def collective_run(self) -> CollectiveRun:
        """Return the processes that call `run` together."""
        return SingleProcessRun()
