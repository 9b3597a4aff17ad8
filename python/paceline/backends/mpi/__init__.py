"""Backend that computes blocks on the ranks of MPI, on one machine or many.

Its runs are those of a session, in which the first rank runs the script, or of a call on every
rank. MPI and what needs it are imported only where ranks meet.
"""

import itertools
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Optional, Self

import cloudpickle

from paceline._util.arguments import one_of, whole_number
from paceline._util.choices import SCHEDULES
from paceline._util.launcher import launched, threads_a_rank, world
from paceline._util.os_calls import end_after
from paceline._util.signals import deaf
from paceline.backends.base import CollectiveRun, SingleProcessRun
from paceline.backends.mdanalysis import ForMDAnalysis
from paceline.engine.pickled_jobs import pickle_jobs
from paceline.engine.tasks import AnyJob, AnyTask, BlockResult, CollectedResult
from paceline.errors import UnsupportedError
from paceline.performance.record import DuplicateAttempt

if TYPE_CHECKING:
    from mpi4py import MPI as mpi

__all__ = ["MPI", "active_session", "run_on_first_rank"]

COLLECTS = ("gather", "one-sided")
#: After SIGTERM the first rank may take so long to end its run and all ranks, seconds.
GRACE = 60
#: Exit status where ranks cannot work together.
UNUSABLE = 2


#: Numbers of runs, from 1.
_numbers = itertools.count(1)


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
        one_of("schedule", schedule, *SCHEDULES)
        one_of("collect", collect, *COLLECTS)
        if n_workers is not None:
            n_workers = whole_number("n_workers", n_workers, 1)
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
        self._number = next(_numbers)

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

        Raises `WorkerError` if an analysis cannot be sent.
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
        request = RunRequest(
            self._n_threads, n_blocks, self._collect, not ranks.has_one_clock, self._number
        )
        if self._collective is not None:
            self._collective.begin()
        yield from coordinate(
            ranks.comm, jobs, sealed, tasks, request, static=self.schedule == "static"
        )


class RankCollectiveRun:
    """One call of `run` on all ranks. An error on one of them is raised on every one."""

    def __init__(self, intracomm: "mpi.Intracomm"):
        self._given = intracomm
        self.is_coordinator = intracomm.Get_rank() == 0

    def __enter__(self) -> Self:
        from paceline.backends.mpi.comm import Comm, RankErrors

        self.comm = Comm.duplicate(self._given)
        self.has_one_clock = self.comm.has_one_clock()
        self._errors = RankErrors(self.comm)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if self._errors.agreed is None:
                self._errors.agree(error)
        finally:
            self.comm.free()

    def begin(self) -> None:
        """Wait until all ranks are ready for the run, or raise the error of one that is not."""
        self._errors.agree()

    def work(self) -> None:
        """Work in the run that the first rank coordinates, and that signals end there."""
        from paceline.backends.mpi.worker import work_in_run

        with deaf():
            self.begin()
            work_in_run(self.comm)

    def broadcast(self, make: Callable[[], Any]) -> Any:
        """Call a function on the first rank, and give its result to all.

        Ranks of one host have large arrays of it in the same memory, each until it changes them.
        """
        from paceline.backends.mpi.gather import broadcast, pack_results

        if not self.is_coordinator:
            self._errors.agree()
            return broadcast(self.comm)
        packed = pack_results(value := make())
        self._errors.agree()
        broadcast(self.comm, packed)
        return value


class RankSession:
    """Ranks that wait for runs of the first."""

    def __init__(self) -> None:
        intracomm = world()
        from paceline.backends.mpi.comm import Comm

        self.comm = Comm.duplicate(intracomm)
        self.has_one_clock = self.comm.has_one_clock()

    def serve(self) -> None:
        """Work in runs until the session ends. Signals are the first rank's to act on."""
        from paceline.backends.mpi.worker import serve

        with deaf():
            signal.signal(signal.SIGTERM, lambda *_: end_after(GRACE))
            serve(self.comm)

    def end(self) -> None:
        """Let all other ranks end."""
        from paceline.backends.mpi.worker import Shutdown

        for rank in self.comm.workers:
            self.comm.send_message(rank, Shutdown())
        self.comm.finish_sending()


_active: RankSession | None = None


def active_session() -> RankSession | None:
    """Return the session of which this is the first rank, if there is one."""
    return _active


def run_on_first_rank(main: Callable[[], int]) -> int:
    """Call a function on the first rank, while the others serve its runs; return an exit status.

    `main` returns one and must not raise.
    """
    global _active
    _, rank = launched()
    try:
        session = RankSession()
    except UnsupportedError as error:
        # One message. A rank that ended with another status might end this one before it is out.
        if rank > 0:
            return 0
        print(f"paceline: error: {error}", file=sys.stderr)
        return UNUSABLE
    from paceline.backends.mpi.lone_world import lone_world

    with lone_world():
        if not session.comm.is_coordinator:
            session.serve()
            return 0
        _active = session
        try:
            return main()
        finally:
            _active = None
            session.end()
