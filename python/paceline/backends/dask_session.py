"""The blocks of one run as tasks of a Dask cluster."""

import pickle
import queue
import re
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import CancelledError, Future, wait
from typing import Any

from paceline._core import __version__
from paceline.backends.attempts import given_up, too_late
from paceline.backends.clocks import Clocks
from paceline.backends.dask_task import SharedJob, do_packed
from paceline.backends.dealing import Dealer
from paceline.backends.executor import seal
from paceline.backends.runs import Run, Runs
from paceline.errors import WorkerError
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


class Session:
    """The blocks of one run on a cluster.

    Parameters
    ----------
    client : distributed.Client
        Of the cluster.
    n_workers : int
        Runs that it does at a time; more where it grows.
    jobs : sequence of Job or Calls
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
        self._pending: dict[Any, tuple[Any, Run, int]] = {}
        self._scattered: list[Any] = []
        self._n_tasks = 0
        self._abandoned: list[Abandoned] = []

    def run(self, works: Iterable[AnyWork]) -> Generator[Outcome | Abandoned, None, bool]:
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
        Outcome or Abandoned

        Raises
        ------
        WorkerError
            The jobs cannot be sent, workers die again and again at the same frames, or the
            client was closed.
        """
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

    def _give_up(self, run: Run) -> None:
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
            f"Dask workers died again and again that had been given {run.what}: perhaps for "
            "want of memory, or the analysis crashes them there or at other frames of theirs"
        )
    return error
