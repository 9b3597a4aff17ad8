"""Workers of a Dask cluster: of this machine, or of any `distributed.Client`."""

import atexit
import contextlib
import os
import pickle
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import CancelledError, Future, wait
from importlib.util import find_spec
from typing import Any

import cloudpickle

from paceline._core import __version__
from paceline._util.machine import available_cpus
from paceline.backends.executor import seal
from paceline.backends.mdanalysis import ForMDAnalysis
from paceline.errors import UnsupportedError, WorkerError
from paceline.performance.records import DuplicateAttempt
from paceline.schedule.scheduler import (
    Clocks,
    Scheduler,
    TaskBatch,
    TaskBatches,
    do_run,
    given_up,
    too_late,
)
from paceline.schedule.tasks import AnyJob, AnyWork, BlockResult, FunctionJob
from paceline.schedule.worker import SealedJob, Worker

#: The keeper kills all at once; a busy machine may take so long to say so, seconds.
PATIENCE = 60.0


class LocalCluster:
    """A scheduler, and workers of one thread each.

    Parameters
    ----------
    n_workers : int
        Number of worker processes.

    Attributes
    ----------
    client : distributed.Client
        Of the cluster.

    Raises
    ------
    WorkerError
        It did not start.
    """

    def __init__(self, n_workers: int):
        from distributed import Client

        self.n_workers = n_workers
        address_from, address_to = os.pipe()
        # In a session of its own, Ctrl-C reaches the parent alone.
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", __name__, str(n_workers), str(address_to)],
            stdin=subprocess.PIPE,
            pass_fds=(address_to,),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )
        try:
            os.close(address_to)
            with os.fdopen(address_from) as told:
                address = told.read()
            if not address:
                raise WorkerError("the Dask cluster of this machine ended before it had started")
            self.client = Client(address, set_as_default=False)
        except BaseException:
            self._end()
            raise

    @property
    def alive(self) -> bool:
        """Whether it can be used."""
        return self._keeper.poll() is None and self.client.status == "running"

    def close(self) -> None:
        """End all its processes at once, whatever they are at."""
        self.client.close()
        self._end()

    def _end(self) -> None:
        # Not by closing alone: processes that were forked meanwhile hold the pipe open as well.
        with contextlib.suppress(BrokenPipeError), self._keeper.stdin as told:  # type: ignore[union-attr]
            told.write(b"\n")
        self._keeper.wait(PATIENCE)


_kept: list[LocalCluster] = []


def take_cluster(n_workers: int) -> LocalCluster:
    """Get a cluster that nobody uses: the one that was kept, or a new one.

    Parameters
    ----------
    n_workers : int
        Number of worker processes.

    Returns
    -------
    LocalCluster
        To be closed, or given to `keep_cluster`.
    """
    while _kept:
        cluster = _kept.pop()
        if cluster.alive and cluster.n_workers == n_workers:
            return cluster
        cluster.close()
    return LocalCluster(n_workers)


def keep_cluster(cluster: LocalCluster) -> None:
    """Keep a cluster for the next run: starting one takes seconds.

    Parameters
    ----------
    cluster : LocalCluster
        With nothing to do.
    """
    _kept.append(cluster)


@atexit.register
def _close_all() -> None:
    while _kept:
        _kept.pop().close()


def _keep(n_workers: int, address_to: int) -> None:
    """Be the keeper."""
    scratch = tempfile.mkdtemp(prefix="paceline-dask-")
    # From now on: its parent may end while the cluster starts.
    ending = threading.Thread(target=_end_when_told, args=(scratch,), daemon=True)
    ending.start()
    import dask
    from distributed import LocalCluster as DaskCluster

    dask.config.set(
        {
            # After so long Dask gives up a worker's place if the worker is away just then,
            # although it may have come back in between, and be away anew.
            "distributed.deploy.lost-worker-timeout": "1000 days",
            # Nobody looks at Dask's own profile of the workers' threads, a sample each 10 ms, nor
            # at the lags of event loops, looked for each 20 ms: a sixth of the time a frame.
            "distributed.worker.profile.enabled": False,
            "distributed.admin.tick.interval": "1s",
            # Dask has workers give the memory of every block back to the system, to be cleared
            # anew for the next one: 95 instead of 63 µs a frame of 3,341 atoms, XTC.
            "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": str(2**30),
            "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": str(2**30),
        }
    )
    cluster: Any = DaskCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": False},
        local_directory=scratch,
        silence_logs="CRITICAL",
    )
    with os.fdopen(address_to, "w") as told:
        told.write(cluster.scheduler_address)
    ending.join()


def _end_when_told(scratch: str) -> None:
    sys.stdin.readline()
    shutil.rmtree(scratch, ignore_errors=True)
    # To close a cluster whose workers are at work takes long; nothing of theirs is wanted.
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    _keep(int(sys.argv[1]), int(sys.argv[2]))


class SharedJob:
    """A job that a Dask worker has in its memory once.

    What its threads have opened for it is closed when Dask lets go of it.
    """

    def __init__(self, sealed: SealedJob, version: str = __version__):
        self._sealed = sealed
        self._version = version
        self._here = threading.local()

    def __reduce__(self) -> tuple[type, tuple[SealedJob, str]]:
        return SharedJob, (self._sealed, self._version)

    def opened(self) -> tuple[Worker, AnyJob]:
        """Open the job once for each thread.

        Returns
        -------
        Worker
            That of the calling thread.
        Job or Calls

        Raises
        ------
        WorkerError
            The job cannot be opened here.
        """
        if not hasattr(self._here, "opened"):
            if self._version != __version__:
                raise WorkerError(
                    f"a Dask worker has paceline {__version__}, the run was started by "
                    f"{self._version}; install the same on both"
                )
            job = self._sealed.open()
            self._here.opened = Worker(lambda _: job), job
        return self._here.opened


def do_packed(shared: SharedJob, packed: bytes) -> bytes:
    """Do one run of blocks on a Dask worker.

    Parameters
    ----------
    shared : SharedJob
        The job of the run.
    packed : bytes
        The run. Dask would hand out arrays that begin at any byte of a message: the core refuses
        them, and NumPy sums them in another order, and so to other bits.

    Returns
    -------
    bytes
        The outcome.

    Raises
    ------
    FileNotFoundError
        This host has no such file.
    WorkerError
        The job cannot be opened here, or the outcome not be sent.
    """
    worker, job = shared.opened()
    run = pickle.loads(packed)
    try:
        outcome = do_run(worker, job, run)
    except FileNotFoundError as error:
        reason = f"worker {worker.name} cannot see the file; each host needs it at this path"
        raise FileNotFoundError(error.errno, reason, error.filename) from error
    try:
        return cloudpickle.dumps(outcome)
    except Exception as error:  # pickling runs code of every object's own
        raise WorkerError(
            f"what an analysis gave of {run.what} cannot be sent back: "
            f"{type(error).__name__}: {error}"
        ) from error


#: Runs given to the cluster at a time, for each of its threads: none waits for the next one.
AHEAD = 2
#: Between looks at how many workers there are, and which have nothing to do, seconds.
LOOK = 1.0
#: Fetching a result may take so long, seconds; after that its run is done again.
FETCH = 30.0
#: Jobs are sent to a cluster that has no workers once one comes, if it comes so soon, seconds.
WAIT = 60.0


class Session:
    """The blocks of one run on a cluster.

    Parameters
    ----------
    client : distributed.Client
        Of the cluster.
    n_workers : int
        Runs that it does at a time; more where it grows.
    jobs : sequence of Job or FunctionJob
        What the blocks of each trajectory have in common.
    """

    def __init__(self, client: Any, n_workers: int, jobs: Sequence[AnyJob]):
        self._client = client
        self._jobs = jobs
        self._n_asked = self._n_workers = n_workers
        self._shared = [SharedJob(sealed) for sealed in seal(jobs, "dask")]
        self._id = uuid.uuid4().hex[:8]
        self._clocks = Clocks()
        # No SimpleQueue: in CPython 3.11 its `get` may forget a short timeout, and wait.
        self._ended: queue.Queue[Any] = queue.Queue()
        self._pending: dict[Any, tuple[Any, TaskBatch, int]] = {}
        self._scattered: list[Any] = []
        self._n_tasks = 0
        self._abandoned: list[DuplicateAttempt] = []

    def run(
        self, works: Iterable[AnyWork]
    ) -> Generator[BlockResult | DuplicateAttempt, None, bool]:
        """Do every block.

        Parameters
        ----------
        works : iterable of Work or Call
            The blocks.

        Returns
        -------
        bool
            Whether workers still hang at what others have done.

        Yields
        ------
        BlockResult or DuplicateAttempt

        Raises
        ------
        WorkerError
            The jobs cannot be sent, workers die again and again at the same frames, or the
            client was closed.
        """
        self._runs = TaskBatches(self._jobs, works, self._n_workers)
        self._dealer = Scheduler(self._runs)
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
            return any(not attempt.came for attempt in self._abandoned)
        except Exception as error:
            if self._closed:
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
                scattered = self._ask(self._client.scatter, jobs, broadcast=True, timeout=WAIT)
                break
            except TimeoutError as error:
                raise WorkerError(
                    f"the Dask cluster has had no workers for {WAIT:.0f} s that take work"
                ) from error
            except OSError:  # a worker died while it was sent to
                if last_try or self._closed:
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

    def _submit(self, run: TaskBatch, workers: Sequence[str] = ()) -> None:
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

    def _next_outcome(self, latest: float) -> BlockResult | None:
        """Wait for an outcome; None where there is none to be counted, or it became too late."""
        try:
            future = self._ended.get(timeout=max(0.0, latest - time.monotonic()))
        except queue.Empty:
            return None
        _, run, _ = self._pending.pop(future.key, (None, None, None))
        if run is None:
            return None
        if future.status == "error":
            error = future.exception(timeout=FETCH)
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
        outcome = self._clocks.here(outcome)
        if not self._dealer.done(outcome):
            self._abandoned += too_late(outcome)
            return None
        self._give_up(run)
        return outcome

    def _give_up(self, run: TaskBatch) -> None:
        """Have the cluster forget what it is still at, of a run that is done."""
        copies = {
            future.key: (future, since)
            for future, its, since in self._pending.values()
            if its is run
        }
        if not copies or self._client.status != "running":
            return
        for address, keys in self._ask(self._client.processing).items():
            self._abandoned += [
                given_up(run, address, copies[key][1]) for key in keys if key in copies
            ]
        self._cancel([future for future, _ in copies.values()])

    def _look(self) -> None:
        """See how many workers there are, and give those with nothing to do what is overdue."""
        if self._closed:
            raise ConnectionError
        if self._client.status != "running":  # it tries to find its scheduler again
            return
        self._n_workers = max(self._n_asked, sum(self._ask(self._client.nthreads).values()))
        for address, keys in self._ask(self._client.processing).items():
            if not keys and (run := self._dealer.again()) is not None:
                self._submit(run, [address])

    def _cancel(self, futures: Sequence[Any]) -> None:
        """Have the cluster forget tasks; what runs already runs on to its end."""
        if futures and self._client.status == "running":
            try:
                self._ask(self._client.cancel, futures)
            except Exception:
                if not self._closed:
                    raise

    @property
    def _closed(self) -> bool:
        """Whether the client is of no use any more."""
        return self._client.status in ("closing", "closed")

    def _ask(self, question: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a method of the client's, which never returns if it is closed at that moment."""
        answer: Future[Any] = Future()

        def ask() -> None:
            try:
                answer.set_result(question(*args, **options))
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=ask, daemon=True).start()
        while wait([answer], LOOK).not_done:
            if self._closed:
                raise ConnectionError
        return answer.result()


def _name(job: AnyJob) -> str:
    """What the dashboard calls a job's tasks: paceline-rmsd-rmsf, say."""
    names = [job.name] if isinstance(job, FunctionJob) else [part.name for part in job.parts]
    words = (re.split(r"[^A-Za-z]", name)[0].lower() for name in names)
    return "-".join(["paceline", *words])


def _fetch(future: Any) -> BlockResult | None:
    """What a task gave; None where it was lost."""
    if future.status == "cancelled":
        return None
    try:
        return pickle.loads(future.result(timeout=FETCH))
    except (TimeoutError, CancelledError):
        return None


def _reason(error: BaseException, run: TaskBatch) -> BaseException:
    """What is raised for an error of a task: mostly itself."""
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return WorkerError(
            f"Dask workers died again and again that had been given {run.what}: perhaps for "
            "want of memory, or the analysis crashes them there or at other frames of theirs"
        )
    return error


class Dask(ForMDAnalysis):
    """TaskBatches of blocks as tasks of a Dask cluster.

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
    ) -> Generator[BlockResult | DuplicateAttempt, None, None]:
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
            yield from Session(self._client, self.n_workers, jobs).run(works)
            return

        cluster = take_cluster(self.n_workers)
        try:
            hanging = yield from Session(cluster.client, self.n_workers, jobs).run(works)
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
