"""Backend that computes blocks on the ranks of MPI, on one machine or many."""

from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Optional

import cloudpickle

from paceline._util.launcher import threads_a_rank, world
from paceline.backends.base import CollectiveRun, SingleProcessRun
from paceline.backends.mdanalysis import ForMDAnalysis
from paceline.backends.mpi.session import RankCollectiveRun, active_session, run_on_first_rank
from paceline.errors import UnsupportedError
from paceline.performance.records import DuplicateAttempt
from paceline.schedule.tasks import AnyJob, AnyTask, BlockResult, CollectedResult
from paceline.schedule.worker import pickle_jobs

if TYPE_CHECKING:
    from mpi4py import MPI as mpi

__all__ = ["MPI", "active_session", "run_on_first_rank"]

SCHEDULES = ("dynamic", "static")
COLLECTS = ("gather", "one-sided")


class MPI(ForMDAnalysis):
    """Compute blocks on the ranks of MPI.

    In a script that ``python -m paceline.mpi`` runs, the first rank runs it and all ranks work.
    In a script that runs on every rank, `run` is collective: every rank calls it with the same
    analyses and gets the results.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        The ranks; by default all.
    schedule : {"dynamic", "static"}
        With "dynamic", threads that are done steal blocks of slower ones; with "static" each does
        an equal contiguous share (Khoshlessan et al. 2020, Algorithm 1).
    collect : {"gather", "one-sided"}
        With "gather", rows are collected by Gatherv (their Algorithm 1); with "one-sided" each
        rank puts its own into a window on the first one's memory (as in their Algorithm 2).
    n_workers : int, optional
        Threads that compute on each rank; by default Slurm's ``--cpus-per-task``, or 1.

    Attributes
    ----------
    n_workers : int
        Threads that compute on all ranks together.
    schedule : str
        As given.

    Raises
    ------
    UnsupportedError
        There is no MPI, or it is another than that of `mpirun`.
    """

    name = "mpi"
    keeps_frames = True

    def __init__(
        self,
        comm: Optional["mpi.Intracomm"] = None,
        *,
        schedule: str = "dynamic",
        collect: str = "gather",
        n_workers: int | None = None,
    ):
        for name, value, known in (
            ("schedule", schedule, SCHEDULES),
            ("collect", collect, COLLECTS),
        ):
            if value not in known:
                raise ValueError(f"{name} must be {known[0]!r} or {known[1]!r}, not {value!r}")
        if n_workers is not None and n_workers < 1:
            raise ValueError(f"n_workers must be at least 1, not {n_workers}")
        self._session = active_session()
        if self._session is not None and comm is not None:
            raise UnsupportedError(
                "under python -m paceline.mpi all ranks work for the first: give no comm"
            )
        self._comm = world() if comm is None else comm
        self.schedule = schedule
        self._collect = collect
        self._n_threads = n_workers or threads_a_rank()
        self.n_workers = self._comm.Get_size() * self._n_threads
        self._collective: RankCollectiveRun | None = None

    def collective_run(self) -> CollectiveRun:
        """Return the ranks that have called `run` together."""
        if self._session is not None:
            return SingleProcessRun()
        self._collective = RankCollectiveRun(self._comm)
        return self._collective

    def run(
        self, jobs: Sequence[AnyJob], tasks: Iterable[AnyTask]
    ) -> Generator[BlockResult | CollectedResult | DuplicateAttempt, None, None]:
        """Compute every block; yield results as they come. Called on the first rank alone.

        Raises
        ------
        WorkerError
            An analysis cannot be sent.
        """
        from paceline.backends.mpi.coordinator import coordinate
        from paceline.backends.mpi.worker import RunRequest

        ranks = self._session or self._collective
        assert ranks is not None, "outside of a session, run is called in a collective run"
        tasks = list(tasks)
        sealed = cloudpickle.dumps([one.data for one in pickle_jobs(jobs, "MPI")])
        n_blocks = [0] * len(jobs)
        for task in tasks:
            n_blocks[task.job] = max(n_blocks[task.job], task.number + 1)
        request = RunRequest(self._n_threads, n_blocks, self._collect, not ranks.has_one_clock)
        if self._collective is not None:
            self._collective.begin()
        yield from coordinate(
            ranks.comm, jobs, sealed, tasks, request, static=self.schedule == "static"
        )
