"""What all backends have in common."""

import math
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from paceline.performance.records import Abandoned
from paceline.schedule.tasks import AnyJob, AnyWork, Gathered, Outcome


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
    ) -> Generator[Outcome | Gathered | Abandoned, None, None]:
        """Do every block; yield outcomes as they come. Closing the generator stops the work.

        Parameters
        ----------
        jobs : sequence of Job or Calls
            One a trajectory: what its blocks have in common.
        works : iterable of Work or Call
            The blocks; taken from it as workers come free.

        Yields
        ------
        Outcome, Gathered or Abandoned
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


class Company(Protocol):
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


class Alone:
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


def company_of(backend: Backend) -> Company:
    """Those who have called `run` together.

    Parameters
    ----------
    backend : Backend
        Of the run; one that several processes share has `company`.

    Returns
    -------
    Company
    """
    return backend.company() if hasattr(backend, "company") else Alone()


def available_cpus() -> int:
    """CPUs that this process may use: affinity, cgroup quota and SLURM's word, the least.

    Returns
    -------
    int
        At least 1.

    Examples
    --------
    >>> 1 <= available_cpus() <= os.cpu_count()
    True
    """
    counts = [os.cpu_count() or 1]
    if hasattr(os, "sched_getaffinity"):
        counts.append(len(os.sched_getaffinity(0)))
    counts.extend(_cgroup_quotas())
    slurm = os.environ.get("SLURM_CPUS_PER_TASK", "")
    if slurm.isdigit():
        counts.append(int(slurm))
    return max(1, min(counts))


def _cgroup_quotas(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> Iterator[int]:
    """CPU quotas of this process's cgroup and those above it, rounded up."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2: "max 100000" or "150000 100000"
            for folder in _upwards(root, path):
                quota, _, period = _words(folder / "cpu.max").partition(" ")
                if quota.isdigit() and period.isdigit():
                    yield math.ceil(int(quota) / int(period))
        elif "cpu" in controllers.split(","):  # version 1: microseconds, -1 for none
            for folder in _upwards(root / "cpu", path):
                quota = _words(folder / "cpu.cfs_quota_us")
                period = _words(folder / "cpu.cfs_period_us")
                if quota.isdigit() and period.isdigit():
                    yield math.ceil(int(quota) / int(period))


def _upwards(root: Path, path: str) -> Iterator[Path]:
    folder = root / path.strip("/")
    while folder != root:
        yield folder
        folder = folder.parent
    yield root


def _words(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
