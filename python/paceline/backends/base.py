"""Interfaces of backends, and compute threads that do not delay the exit of the process.

The threads are daemon threads. Threads of `concurrent.futures` would delay the exit of the
interpreter until their function returns, for example after Ctrl-C. At exit, however, the
interpreter kills a daemon thread at its next return from a call, even inside compiled code that
cannot unwind. Therefore the exit waits a limited time for threads to finish their block.
"""

import atexit
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self
from weakref import WeakSet

from paceline import _core
from paceline._util.arguments import whole_number
from paceline._util.machine_and_software import available_cpus
from paceline.engine.tasks_and_results import AnyJob, AnyTask, BlockResult, CollectedResult
from paceline.performance.record import DuplicateAttempt


def worker_count(n_workers: int | None) -> int:
    """Check a number of workers; None stands for the number of CPUs that this process may use.

    Examples
    --------
    >>> worker_count(4), worker_count(None) == available_cpus()
    (4, True)
    """
    if n_workers is None:
        return available_cpus()
    return whole_number("n_workers", n_workers, 1)


def sharing_requests(jobs: Sequence[AnyJob], n_processes: int) -> list[AnyJob]:
    """Return jobs for the processes of a machine, which share its limit of requests to stores."""
    known = tuple(_core.store_estimates())
    return [replace(job, sharers=n_processes, estimates=known) for job in jobs]


class CollectiveRun(Protocol):
    """Processes that called `run` together: one process coordinates the run, the others work."""

    #: True for the process that plans the run, schedules blocks and collects results.
    is_coordinator: bool

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...

    def work(self) -> None:
        """Compute blocks for the coordinator's run."""

    def broadcast(self, make: Callable[[], object]) -> Any:
        """Create an object on the coordinator; return it on every process."""


class SingleProcessRun:
    """A `CollectiveRun` of one process."""

    is_coordinator = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: no other process waits."""

    def work(self) -> None:
        """Do nothing: there is no other process."""

    def broadcast(self, make: Callable[[], object]) -> Any:
        """Create an object, and return it."""
        return make()


class Backend:
    """Workers that compute blocks of frames, and the way in which they get these blocks."""

    #: Name of the backend in the timings.
    name: str
    #: Number of blocks computed at the same time.
    n_workers: int
    #: Rule by which tasks are assigned to workers, "dynamic" or "static".
    schedule: str = "dynamic"
    #: True if a later stage runs most blocks in the same processes as the first stage, so that
    #: processes can store decoded frames for later stages.
    keeps_frames: bool = False
    #: True if all workers are threads of this process that start tasks in order. A block may then
    #: wait for the state at the end of the previous block.
    pipelines: bool = False
    #: Maximum number of threads on which a worker may compute parts of a frame, if other workers
    #: have no task.
    threads_in_frame: int = 1
    #: True if the workers are processes of this machine that can open files of the caller.
    reads_files_of_caller: bool = False

    def run(
        self, jobs: Sequence[AnyJob], tasks: Iterable[AnyTask]
    ) -> Generator[BlockResult | CollectedResult | DuplicateAttempt, None, None]:
        """Run every task; yield results in order of completion.

        Closing the generator stops all tasks.

        A task is fetched when a worker is idle. Results of blocks are yielded in any order, and
        results that workers have stored at the end. Duplicate attempts, whose results are not used,
        may be yielded at any time.
        """
        raise NotImplementedError

    def collective_run(self) -> CollectiveRun:
        """Return the processes that call `run` together."""
        return SingleProcessRun()


#: Maximum time to wait for running blocks after an error and at exit, seconds.
PATIENCE = 2.0

_started: WeakSet[threading.Thread] = WeakSet()


def start_thread(
    target: Callable[..., object], *args: object, name: str | None = None
) -> threading.Thread:
    """Start a daemon thread; the exit of the process waits a limited time for it."""
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    _started.add(thread)
    thread.start()
    return thread


def join_threads(threads: Iterable[threading.Thread], seconds: float = PATIENCE) -> None:
    """Wait until all threads have ended, at most `seconds` in total."""
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


@atexit.register
def _join_all() -> None:
    join_threads(list(_started))
