"""Backend that computes blocks on MPI ranks, on one machine or many.

A run belongs to a session, in which only the first rank runs the script, or to a collective call on
every rank. Other functions can be called on waiting ranks, too (`rank_calls`). MPI and modules that
need it are imported only when ranks communicate.
"""

import itertools
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Optional, Self

import cloudpickle

from paceline import _core
from paceline._util.arguments import one_of, whole_number
from paceline._util.launcher import launched, threads_a_rank, world
from paceline._util.option_values_and_selections import SCHEDULES
from paceline._util.signals import end_late, ignored
from paceline.backends.base import CollectiveRun, SingleProcessRun, sharing_requests
from paceline.backends.mdanalysis import ForMDAnalysis
from paceline.engine.pickled_jobs import pickle_jobs
from paceline.engine.tasks_and_results import (
    AnyJob,
    AnyTask,
    BlockResult,
    CollectedResult,
    FunctionJob,
    FunctionTask,
)
from paceline.errors import Terminated, UnsupportedError
from paceline.performance.record import DuplicateAttempt

if TYPE_CHECKING:
    from mpi4py import MPI as mpi

__all__ = ["MPI", "active_session", "rank_calls", "run_on_first_rank"]

COLLECTS = ("gather", "one-sided")
#: After SIGTERM, time in which the first rank ends its run and all other ranks, seconds.
GRACE = 60
#: Exit status if ranks cannot work together.
UNUSABLE = 2


#: Counter of runs, from 1.
_numbers = itertools.count(1)


class MPI(ForMDAnalysis):
    """Compute blocks on MPI ranks.

    Under ``python -m paceline.mpi``, only the first rank runs the script, and all ranks compute. In
    a script that runs on every rank, `run` is collective: every rank calls it with the same
    analyses and gets the results.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        Ranks that compute; by default all ranks.
    schedule : {"dynamic", "static"}
        With "dynamic", idle threads take over blocks of slower threads; with "static", each thread
        computes an equal contiguous share (Khoshlessan et al. 2020, Algorithm 1).
    collect : {"gather", "one-sided"}
        With "gather", rows are collected by Gatherv (their Algorithm 1); with "one-sided", each
        rank puts its rows into a window on the first rank's memory (similar to their Algorithm 2).
    n_workers : int, optional
        Compute threads on each rank; by default Slurm's ``--cpus-per-task``, or 1.

    Attributes
    ----------
    n_workers : int
        Total number of compute threads on all ranks.
    schedule : str
        Value of the parameter `schedule`.

    Raises
    ------
    UnsupportedError
        MPI is missing, or is not the MPI of `mpirun`.
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
                "under python -m paceline.mpi all ranks compute for the first rank: omit comm"
            )
        self._comm = world() if comm is None else comm
        self.schedule = schedule
        self._collect = collect
        self._n_threads = self.threads_in_frame = n_workers or threads_a_rank()
        self.n_workers = self._comm.Get_size() * self._n_threads
        self._collective: RankCollectiveRun | None = None
        self._number = next(_numbers)

    def collective_run(self) -> CollectiveRun:
        """Return the ranks that called `run` together."""
        if self._session is not None:
            return SingleProcessRun()
        self._collective = RankCollectiveRun(self._comm)
        return self._collective

    def run(
        self, jobs: Sequence[AnyJob], tasks: Iterable[AnyTask]
    ) -> Generator[BlockResult | CollectedResult | DuplicateAttempt, None, None]:
        """Compute every block; yield results in order of completion. Called on the first rank only.

        Raises `WorkerError` if an analysis cannot be sent.
        """
        from paceline.backends.mpi.coordinator import coordinate
        from paceline.backends.mpi.worker import RunRequest

        ranks = self._session or self._collective
        assert ranks is not None, "outside a session, run is called in a collective run"
        tasks = list(tasks)
        jobs = sharing_requests(jobs, max(ranks.ranks_of_hosts))
        sealed = cloudpickle.dumps([one.data for one in pickle_jobs(jobs, "MPI")])
        n_blocks = [0] * len(jobs)
        for task in tasks:
            n_blocks[task.job] = max(n_blocks[task.job], task.number + 1)
        request = RunRequest(
            self._n_threads, n_blocks, self._collect, len(ranks.ranks_of_hosts) > 1, self._number
        )
        if self._collective is not None:
            self._collective.begin()
        try:
            yield from coordinate(
                ranks.comm, jobs, sealed, tasks, request, static=self.schedule == "static"
            )
        finally:
            # Between runs, only this rank opens files.
            _core.share_requests(1)


class RankCollectiveRun:
    """One call of `run` on all ranks. An error on one rank is raised on every rank."""

    def __init__(self, intracomm: "mpi.Intracomm"):
        self._given = intracomm
        self.is_coordinator = intracomm.Get_rank() == 0
        self._signals = ExitStack()

    def __enter__(self) -> Self:
        if not self.is_coordinator:
            # The launcher sends signals to all ranks, but only the first rank acts on them.
            self._signals.enter_context(ignored())
        from paceline.backends.mpi.comm import Comm, RankErrors

        self.comm = Comm.duplicate(self._given)
        self.ranks_of_hosts = self.comm.ranks_of_hosts()
        self._errors = RankErrors(self.comm)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if self._errors.agreed is None:
                self._errors.agree(error)
        finally:
            self.comm.free()
            self._signals.close()
            if isinstance(self._errors.agreed, Terminated) and not self.is_coordinator:
                # SIGTERM may reach this rank only now, but the first rank has ended the run
                # already, and needs time to end all ranks.
                end_late(GRACE)

    def begin(self) -> None:
        """Wait until all ranks are ready for the run, or raise the error of a rank that is not."""
        self._errors.agree()

    def work(self) -> None:
        """Compute in the run that the first rank coordinates."""
        from paceline.backends.mpi.worker import work_in_run

        self.begin()
        work_in_run(self.comm)

    def broadcast(self, make: Callable[[], object]) -> Any:
        """Call a function on the first rank, and return its result on all ranks.

        Ranks of one host share the memory of large arrays in the result; a rank that modifies an
        array gets its own copy.
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
    """Ranks that wait for runs of the first rank."""

    def __init__(self) -> None:
        intracomm = world()
        from paceline.backends.mpi.comm import Comm

        self.comm = Comm.duplicate(intracomm)
        self.ranks_of_hosts = self.comm.ranks_of_hosts()

    def serve(self) -> None:
        """Work in runs until the session ends. Only the first rank acts on signals."""
        from paceline.backends.mpi.worker import serve

        end_late(GRACE)
        with ignored():
            serve(self.comm)

    def end(self) -> None:
        """End all other ranks."""
        from paceline.backends.mpi.worker import Shutdown

        for rank in self.comm.workers:
            self.comm.send_message(rank, Shutdown())
        self.comm.finish_sending()


_active: RankSession | None = None


def active_session() -> RankSession | None:
    """Return the session if this process is its first rank; otherwise None."""
    return _active


def run_on_first_rank(main: Callable[[], int]) -> int:
    """Call `main` on the first rank, while other ranks serve its runs; return an exit status.

    `main` returns the exit status and must not raise.
    """
    global _active
    _, rank = launched()
    try:
        session = RankSession()
    except UnsupportedError as error:
        # Only rank 0 prints the error. A nonzero status of another rank might end rank 0 first.
        if rank > 0:
            return 0
        print(f"paceline: error: {error}", file=sys.stderr)
        return UNUSABLE
    from paceline.backends.mpi.comm import lone_world

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


class RankCalls:
    """Ranks that call functions; with `static`, each rank gets its own fixed share of the items."""

    def __init__(self, n_workers: int | None, *, static: bool):
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
        job = FunctionJob(name, cloudpickle.dumps(function))
        tasks = [FunctionTask(0, k, k, k, 1, f"item {k}", item) for k, item in enumerate(items)]
        with closing(self._backend.run([job], tasks)) as results:
            for result in results:
                if isinstance(result, BlockResult) and result.values is not None:
                    yield result.number, result.values[0]


def rank_calls(n_workers: int | None, *, static: bool = False) -> RankCalls | None:
    """Return the ranks that wait for work from this rank; None outside a session of ranks."""
    if launched()[0] == 1 or active_session() is None:
        return None
    return RankCalls(n_workers, static=static)
