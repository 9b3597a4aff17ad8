"""Workers of a Dask cluster: of this machine, or of any `distributed.Client`."""

import pickle
import queue
import re
import time
import uuid
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import CancelledError
from importlib.util import find_spec
from typing import Any

from paceline._core import __version__
from paceline.backends.attempts import given_up
from paceline.backends.base import available_cpus
from paceline.backends.clocks import Clocks
from paceline.backends.dask_task import SharedJob, do_packed
from paceline.backends.dealing import Dealer
from paceline.backends.executor import seal
from paceline.backends.mdanalysis import ForMDAnalysis
from paceline.backends.runs import Run, Runs
from paceline.errors import UnsupportedError, WorkerError
from paceline.job import AnyJob, AnyWork, Calls
from paceline.outcome import Outcome
from paceline.timing import Abandoned

#: Runs given to the cluster at a time, for each of its threads: none waits for the next one.
AHEAD = 2
#: Between looks at how many workers there are, and which have nothing to do, seconds.
LOOK = 1.0
#: Fetching a result may take so long, seconds; after that its run is done again.
FETCH = 30.0
#: Jobs are sent to a cluster that has no workers once one comes, if it comes so soon, seconds.
WAIT = 60.0


class Dask(ForMDAnalysis):
    """Runs of blocks as tasks of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client or None
        Stays the caller's: it is not closed. None for workers of this machine, which are kept for
        the next run.
    n_workers : int, optional
        How many threads the cluster has, or is going to have; by default those it has now.

    Raises
    ------
    UnsupportedError
        The client is asynchronous.
    WorkerError
        The client is closed, or its cluster has no workers yet.
    """

    name = "dask"

    def __init__(self, client: Any, n_workers: int | None = None):
        self._client = client
        if client is not None:
            _refuse_client(client)
            n_workers = n_workers or sum(client.nthreads().values())
            if n_workers == 0:
                raise WorkerError(
                    "the Dask cluster has no workers: wait for them with "
                    "client.wait_for_workers(n), or say with n_workers= how many will come"
                )
        self.n_workers = n_workers or available_cpus()

    @classmethod
    def on_this_machine(cls, n_workers: int | None = None) -> "Dask":
        """Worker processes of this machine, of one thread each.

        Parameters
        ----------
        n_workers : int, optional
            Number of processes; by default the CPUs that this process may use.

        Returns
        -------
        Dask

        Raises
        ------
        UnsupportedError
            Dask is not installed.
        """
        if find_spec("distributed") is None:
            raise UnsupportedError(
                "backend 'dask' needs the package distributed; install it with: "
                "pip install 'paceline[dask]'"
            )
        return cls(None, n_workers)

    def run(
        self, jobs: Sequence[AnyJob], works: Iterable[AnyWork]
    ) -> Generator[Outcome | Abandoned, None, None]:
        """Do every block; yield outcomes of runs as they come.

        Raises
        ------
        WorkerError
            An analysis cannot be sent, workers die again and again at the same frames, or the
            client was closed.
        """
        if not jobs:
            return
        if self._client is not None:
            yield from _Session(self._client, self.n_workers, jobs).run(works)
            return
        from paceline.backends.dask_cluster import keep_cluster, take_cluster

        cluster = take_cluster(self.n_workers)
        try:
            hanging = yield from _Session(cluster.client, self.n_workers, jobs).run(works)
        except BaseException:
            cluster.close()
            raise
        if hanging:
            cluster.close()
        else:
            keep_cluster(cluster)


def _refuse_client(client: Any) -> None:
    if client.asynchronous:
        raise UnsupportedError(
            "the Dask client is asynchronous; give one made without asynchronous=True, "
            "outside of the event loop"
        )
    if client.status != "running":
        raise WorkerError(f"the Dask client is {client.status}; give one that is connected")


class _Session:
    """The blocks of one run on a cluster."""

    def __init__(self, client: Any, n_workers: int, jobs: Sequence[AnyJob]):
        self._client = client
        self._jobs = jobs
        self._n_asked = self._n_workers = n_workers
        self._shared = [SharedJob(sealed) for sealed in seal(jobs, "dask")]
        self._id = uuid.uuid4().hex[:8]
        self._clocks = Clocks()
        # No SimpleQueue: in CPython 3.11 its `get` may forget a short timeout, and wait.
        self._ended: queue.Queue[Any] = queue.Queue()
        self._pending: dict[Any, tuple[Any, Run, int]] = {}
        self._scattered: list[Any] = []
        self._n_tasks = 0
        self._abandoned: list[Abandoned] = []

    def run(self, works: Iterable[AnyWork]) -> Generator[Outcome | Abandoned, None, bool]:
        """Do every block; return whether workers still hang at what others have done."""
        self._runs = Runs(self._jobs, works, self._n_workers)
        self._dealer = Dealer(self._runs)
        next_look = time.monotonic() + LOOK
        try:
            self._scatter()
            while not self._dealer.finished:
                self._fill()
                if (outcome := self._next_outcome(next_look)) is not None:
                    yield outcome
                if time.monotonic() >= next_look:
                    self._look()
                    next_look = time.monotonic() + LOOK
            yield from self._abandoned
            return bool(self._abandoned)
        except Exception as error:
            if self._client.status in ("closing", "closed"):
                raise WorkerError(
                    "the Dask client was closed, or lost its scheduler, before all was done"
                ) from error
            raise
        finally:
            # Also what a traceback that somebody keeps would keep: then files stay open.
            self._cancel([*(future for future, *_ in self._pending.values()), *self._scattered])

    def _scatter(self) -> None:
        """Put the jobs into every worker's memory; a worker that comes later asks the others."""
        names = [f"paceline-job-{self._id}-{k}-{self._n_tasks}" for k in range(len(self._jobs))]
        jobs = dict(zip(names, self._shared, strict=True))
        for last_try in (False, False, True):
            try:
                scattered = self._client.scatter(jobs, broadcast=True, timeout=WAIT)
                break
            except TimeoutError as error:
                raise WorkerError(
                    f"the Dask cluster has had no workers for {WAIT:.0f} s that take work"
                ) from error
            except OSError:  # a worker died while it was sent to
                if last_try:
                    raise
            except Exception as error:  # of any type: Dask sends it as text
                raise WorkerError(
                    f"the Dask workers cannot take an analysis: {error}; install paceline "
                    f"{__version__} there"
                ) from error
        self._scattered = [scattered[name] for name in names]

    def _fill(self) -> None:
        """Give the cluster what keeps its threads at work."""
        while len(self._pending) < AHEAD * self._n_workers:
            run = self._dealer.next()
            if run is None:
                return
            self._submit(run)

    def _submit(self, run: Run, workers: Sequence[str] = ()) -> None:
        future = self._client.submit(
            do_packed,
            self._scattered[run.job],
            pickle.dumps(run),
            # Dask's dashboard groups tasks by what stands before the first number.
            key=(f"{_name(self._jobs[run.job])}-{self._id}", self._n_tasks, run.first_frame),
            pure=False,
            workers=list(workers) or None,
            allow_other_workers=bool(workers),
        )
        self._n_tasks += 1
        self._pending[future.key] = future, run, time.monotonic_ns()
        future.add_done_callback(self._ended.put)

    def _next_outcome(self, latest: float) -> Outcome | None:
        """Wait for an outcome; None where there is none to be counted, or it became too late."""
        try:
            future = self._ended.get(timeout=max(0.0, latest - time.monotonic()))
        except queue.Empty:
            return None
        _, run, _ = self._pending.pop(future.key, (None, None, None))
        if run is None:
            return None
        if future.status == "error":
            error = future.exception()
            self._cancel([future])
            raise _reason(error, run)
        outcome = _fetch(future)
        if outcome is None:
            # Its result was lost, or what had been scattered, with the last worker that had it.
            self._dealer.lost(run)
            if not all(job.status == "finished" for job in self._scattered):
                self._scatter()
            return None
        self._runs.took(outcome)
        if not self._dealer.done(outcome):
            return None
        self._give_up(run)
        return self._clocks.here(outcome)

    def _give_up(self, run: Run) -> None:
        """Have the cluster forget what it is still at, of a run that is done."""
        copies = {
            future.key: (future, since)
            for future, its, since in self._pending.values()
            if its is run
        }
        if copies and self._client.status == "running":
            for address, keys in self._client.processing().items():
                self._abandoned += [
                    given_up(run, address, copies[key][1]) for key in keys if key in copies
                ]
            self._cancel([future for future, _ in copies.values()])

    def _look(self) -> None:
        """See how many workers there are, and give those with nothing to do what is overdue."""
        if self._client.status in ("closing", "closed"):
            raise ConnectionError
        if self._client.status != "running":  # it tries to find its scheduler again
            return
        self._n_workers = max(self._n_asked, sum(self._client.nthreads().values()))
        for address, keys in self._client.processing().items():
            if not keys and (run := self._dealer.again()) is not None:
                self._submit(run, [address])

    def _cancel(self, futures: Sequence[Any]) -> None:
        """Have the cluster forget tasks; what runs already runs on to its end."""
        if futures and self._client.status == "running":
            self._client.cancel(futures)


def _name(job: AnyJob) -> str:
    """What the dashboard calls a job's tasks: paceline-rmsd-rmsf, say."""
    names = [job.name] if isinstance(job, Calls) else [part.name for part in job.parts]
    words = (re.split(r"[^A-Za-z]", name)[0].lower() for name in names)
    return "-".join(["paceline", *words])


def _fetch(future: Any) -> Outcome | None:
    """What a task gave; None where it was lost."""
    if future.status == "cancelled":
        return None
    try:
        return pickle.loads(future.result(timeout=FETCH))
    except (TimeoutError, CancelledError):
        return None


def _reason(error: BaseException, run: Run) -> BaseException:
    """What is raised for an error of a task: mostly itself."""
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return WorkerError(
            f"Dask workers died again and again while they were at {run.what}: "
            "perhaps for want of memory, or the analysis crashes them there"
        )
    return error
