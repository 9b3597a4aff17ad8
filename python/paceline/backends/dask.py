"""Dask clusters: a cluster on this machine, or the cluster of any `distributed.Client`.

`Dask` is the backend, and `DaskRun` is one run on it. Dask workers execute `run_packed` on a
`SharedJob`.
"""

import pickle
import queue
import re
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, wait
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle

from paceline._core import __version__
from paceline._util.machine_and_software import available_cpus
from paceline.backends.base import sharing_requests
from paceline.backends.local_dask_cluster import acquire_cluster, release_cluster
from paceline.backends.mdanalysis import ForMDAnalysis
from paceline.contract.analysis import CHECK_NAME
from paceline.engine.node_cache_locality import blocks_here, cached_files, homes_of, share_by_node
from paceline.engine.pickled_jobs import PickledJob, pickle_jobs
from paceline.engine.scheduler import (
    Scheduler,
    TaskBatcher,
    abandoned_attempt,
    late_attempts,
)
from paceline.engine.tasks_and_results import AnyJob, AnyTask, BlockResult, FunctionJob, TaskBatch
from paceline.engine.worker import Worker, run_batch
from paceline.errors import UnsupportedError, WorkerError, with_script_advice
from paceline.performance.record import DuplicateAttempt, HostClocks, host_of

if TYPE_CHECKING:
    from distributed import Client
    from distributed import Future as DaskFuture

#: Number of batches per thread that are submitted to the cluster ahead, so that no thread waits for
#: its next batch.
AHEAD = 2
#: Time between checks for idle workers, and for changes of the number of workers, seconds.
LOOK = 1.0
#: Maximum time to fetch a result, seconds; after this time the batch is run again. Also the maximum
#: time for workers to report the contents of their caches.
FETCH = 30.0
#: Maximum time to wait for the first worker of the cluster, seconds.
WAIT = 60.0


class Dask(ForMDAnalysis):
    """Compute batches of blocks as tasks of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client or None
        Client of the caller, which is not closed. None starts workers on this machine, and does not
        end them, so that the next run can use them.
    n_workers : int, optional
        Current or future number of threads of the cluster; by default the current number.

    Raises
    ------
    UnsupportedError
        The client is asynchronous.
    WorkerError
        The client is closed, or its cluster has no workers yet.
    """

    name = "dask"

    def __init__(self, client: "Client | None", n_workers: int | None = None):
        self._client = client
        if client is not None:
            _check_client(client)
            n_workers = n_workers or sum(client.nthreads().values())
            if n_workers == 0:
                error = WorkerError(
                    "the Dask cluster has no workers: pass the number that will come as n_workers="
                )
                advice = ", or wait for them with client.wait_for_workers(n)"
                raise with_script_advice(error, advice)
        self.n_workers = self.threads_in_frame = n_workers or available_cpus()
        if client is not None:
            self.threads_in_frame = min(client.nthreads().values(), default=1)

    @classmethod
    def on_this_machine(cls, n_workers: int | None = None) -> "Dask":
        """Start worker processes of one thread each on this machine.

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

    def _processes_on_host(self) -> int:
        """Return the largest number of worker processes on one host."""
        if self._client is None:
            return self.n_workers
        return max(Counter(map(host_of, self._client.nthreads())).values(), default=1)

    def run(
        self, jobs: Sequence[AnyJob], tasks: Iterable[AnyTask]
    ) -> Generator[BlockResult | DuplicateAttempt, None, None]:
        """Run every task; yield results of batches in order of completion (see `DaskRun.run`)."""
        if not jobs:
            return
        jobs = sharing_requests(jobs, self._processes_on_host())
        if self._client is not None:
            yield from DaskRun(self._client, self.n_workers, jobs).run(tasks)
            return

        cluster = acquire_cluster(self.n_workers)
        try:
            hanging = yield from DaskRun(cluster.client, self.n_workers, jobs).run(tasks)
        except BaseException:
            cluster.close()
            raise
        if hanging:
            cluster.close()
        else:
            release_cluster(cluster)


def _check_client(client: "Client") -> None:
    if client.asynchronous:
        raise UnsupportedError(
            "the Dask client is asynchronous; pass one created without asynchronous=True, "
            "outside the event loop"
        )
    if client.status != "running":
        raise WorkerError(f"the Dask client is {client.status}; pass one that is connected")


class DaskRun:
    """One run on a cluster, with `n_workers` batches at a time, or more if the cluster grows."""

    def __init__(self, client: "Client", n_workers: int, jobs: Sequence[AnyJob]):
        self._client = client
        self._jobs = jobs
        self._n_asked = self._n_workers = n_workers
        self._shared = [SharedJob(pickled) for pickled in pickle_jobs(jobs, "dask")]
        self._id = uuid.uuid4().hex[:8]
        self._clocks = HostClocks()
        # Not a SimpleQueue: in CPython 3.11 its `get` may ignore a short timeout and block.
        self._ended: queue.Queue[Any] = queue.Queue()
        self._pending: dict[Any, tuple[Any, TaskBatch, int]] = {}
        self._scattered: list[Any] = []
        self._n_submitted = self._n_sent = 0
        self._duplicates: list[DuplicateAttempt] = []
        self._names = ThreadsByAddress()

    def run(
        self, tasks: Iterable[AnyTask]
    ) -> Generator[BlockResult | DuplicateAttempt, None, bool]:
        """Run every task; return True if workers still hang in batches that others have finished.

        Raises `WorkerError` if the jobs cannot be sent, if workers die repeatedly at the same
        frames, or if the client was closed.
        """
        next_look = time.monotonic() + LOOK
        try:
            self._batches = self._by_node(tasks)
            self._scheduler = Scheduler(self._batches)
            self._scatter()
            while not self._scheduler.finished:
                self._fill()
                if (result := self._next_result(next_look)) is not None:
                    yield result
                if time.monotonic() >= next_look:
                    self._update_workers()
                    next_look = time.monotonic() + LOOK
            yield from map(self._names.rename, self._duplicates)
            return any(not attempt.came for attempt in self._duplicates)
        except Exception as error:
            if self._is_closed:
                raise WorkerError(
                    "the Dask client was closed, or lost its scheduler, before the run had finished"
                ) from error
            raise
        finally:
            # Cancel all tasks and jobs. Otherwise a stored traceback, which refers to the futures,
            # would keep files open.
            self._cancel([*(future for future, *_ in self._pending.values()), *self._scattered])

    def _by_node(self, tasks: Iterable[AnyTask]) -> "NodeBatcher":
        """Divide the tasks by the caches of the nodes, if the files have a cache."""
        files = cached_files(self._jobs)
        if not files or any(job.streamed for job in self._jobs):
            return NodeBatcher(self._jobs, [NodeTasks(tasks, [], self._n_workers)])
        latest = time.monotonic() + FETCH

        def look() -> None:
            if time.monotonic() > latest:
                raise TimeoutError

        try:
            ask = self._client.run
            found = self._ask(ask, blocks_here, files, on_error="ignore", meanwhile=look)
            n_threads = self._ask(self._client.nthreads)
        except TimeoutError:  # A worker does not respond, so the cache of its node is unknown.
            found = {}
        found = {address: cache for address, cache in found.items() if n_threads.get(address)}
        if not found:
            return NodeBatcher(self._jobs, [NodeTasks(tasks, [], self._n_workers)])
        tasks = list(tasks)
        caches = {cache.node: cache for cache in found.values()}
        numbers = {name: number for number, name in enumerate(caches)}
        of_threads = [
            numbers[cache.node]
            for address, cache in found.items()
            for _ in range(n_threads[address])
        ]
        order, bounds, _ = share_by_node(homes_of(tasks, list(caches.values())), of_threads)
        nodes = []
        for name, number in numbers.items():
            threads = [k for k, node in enumerate(of_threads) if node == number]
            own = sorted(
                k for thread in threads for k in order[slice(*bounds[thread : thread + 2])]
            )
            addresses = [address for address, cache in found.items() if cache.node == name]
            nodes.append(NodeTasks([tasks[k] for k in own], addresses, len(threads)))
        return NodeBatcher(self._jobs, nodes)

    def _scatter(self) -> None:
        """Send the jobs to every worker; a worker that joins later copies them from others."""
        for last_try in (False, False, True):
            try:
                if (scattered := self._broadcast()) is not None:
                    self._scattered = scattered
                    return
            except TimeoutError as error:
                raise WorkerError(
                    f"the Dask cluster has had no workers that accept tasks for {WAIT:.0f} s"
                ) from error
            except OSError:  # a worker died during the transfer
                if last_try or self._is_closed:
                    raise
            except Exception as error:  # the type varies: Dask sends errors as text
                if last_try or self._is_closed or "No module named" in str(error):
                    raise _not_taken(error) from error
        raise WorkerError(
            "the Dask workers cannot take an analysis: some died each time it was sent to all"
        )

    def _broadcast(self) -> list[Any] | None:
        """Send the jobs once; return None if a worker died, because Dask would retry for ever."""
        self._n_sent += 1
        names = [f"paceline-job-{self._id}-{k}-{self._n_sent}" for k in range(len(self._jobs))]
        jobs = dict(zip(names, self._shared, strict=True))
        workers, n_looks_without = set(self._ask(self._client.nthreads)), 0

        def look() -> None:
            nonlocal n_looks_without
            if self._client.status == "running":
                n_looks_without += not workers <= set(self._ask(self._client.nthreads))
            if n_looks_without == 2:  # not at the first look: transfers may be about to end
                from distributed import Future

                n_looks_without += 1
                self._cancel([Future(name, self._client) for name in names])

        scattered = self._ask(
            self._client.scatter, jobs, broadcast=True, timeout=WAIT, meanwhile=look
        )
        return [scattered[name] for name in names] if n_looks_without < 2 else None

    def _workers_have_jobs(self) -> bool:
        """Ask the scheduler whether workers have all jobs.

        The state in the client is not enough: it counts a job as sent even if the only worker that
        received the job died during the transfer.
        """
        if not all(job.status == "finished" for job in self._scattered):
            return False
        try:
            return all(self._ask(self._client.who_has, self._scattered).values())
        except CancelledError:  # a job was cancelled meanwhile
            return False

    def _fill(self) -> None:
        """Submit enough batches to keep the cluster's threads busy."""
        while len(self._pending) < AHEAD * self._n_workers:
            batch = self._scheduler.assign()
            if batch is None:
                return
            self._submit(batch, self._batches.addresses_of(batch))

    def _submit(self, batch: TaskBatch, workers: Sequence[str] = ()) -> None:
        future = self._client.submit(
            run_packed,
            self._scattered[batch.job],
            cloudpickle.dumps(batch),
            # Dask's dashboard groups tasks by the text before the first number.
            key=(
                f"{_name(self._jobs[batch.job])}-{self._id}",
                self._n_submitted,
                batch.first_frame,
            ),
            pure=False,
            workers=list(workers) or None,
            allow_other_workers=bool(workers),
        )
        self._n_submitted += 1
        self._pending[future.key] = future, batch, time.monotonic_ns()
        future.add_done_callback(self._ended.put)

    def _next_result(self, latest: float) -> BlockResult | None:
        """Wait until `latest` for a batch to end; return its result if it is used, else None."""
        try:
            future = self._ended.get(timeout=max(0.0, latest - time.monotonic()))
        except queue.Empty:
            return None
        _, batch, _ = self._pending.pop(future.key, (None, None, None))
        if batch is None:
            return None
        if future.status == "error":
            error = future.exception(timeout=FETCH)
            self._cancel([future])
            raise _reason(error, batch)
        fetched = _fetch(future)
        if fetched is None:
            # The last worker that stored the result or the scattered job was lost.
            self._scheduler.return_lost(batch)
            if not self._workers_have_jobs():
                self._scatter()
            return None
        address, result = fetched
        self._batches.record(result)
        result = replace(result, timings=self._clocks.to_this_host(result.timings))
        self._names.record(address, result)
        if not self._scheduler.complete(result):
            self._duplicates += late_attempts(result)
            return None
        self._cancel_duplicates(batch)
        return result

    def _cancel_duplicates(self, batch: TaskBatch) -> None:
        """Cancel and record the other attempts at a batch that is finished."""
        copies = {
            future.key: (future, since)
            for future, its, since in self._pending.values()
            if its is batch
        }
        if not copies or self._client.status != "running":
            return
        for address, keys in self._ask(self._client.processing).items():
            self._duplicates += [
                abandoned_attempt(batch, address, copies[key][1]) for key in keys if key in copies
            ]
        self._cancel([future for future, _ in copies.values()])

    def _update_workers(self) -> None:
        """Update the number of workers, and assign overdue batches to idle workers."""
        if self._is_closed:
            raise ConnectionError
        if self._client.status != "running":  # the client is reconnecting to its scheduler
            return
        n_threads = self._ask(self._client.nthreads)
        self._names.n_threads.update(n_threads)
        self._n_workers = max(self._n_asked, sum(n_threads.values()))
        for address, keys in self._ask(self._client.processing).items():
            if not keys and (batch := self._scheduler.assign_overdue()) is not None:
                self._submit(batch, [address])

    def _cancel(self, futures: "Sequence[DaskFuture]") -> None:
        """Cancel tasks on the cluster; tasks that are running continue to their end."""
        if futures and self._client.status == "running":
            try:
                self._ask(self._client.cancel, futures)
            except Exception:
                if not self._is_closed:
                    raise

    @property
    def _is_closed(self) -> bool:
        """True if the client can no longer be used."""
        return self._client.status in ("closing", "closed")

    def _ask(
        self,
        method: Callable[..., Any],
        *args: object,
        meanwhile: Callable[[], None] = lambda: None,
        **options: object,
    ) -> Any:
        """Call a client method, which would never return if the client is closed during the call.

        `meanwhile` is called regularly until the method returns.
        """
        answer: Future[Any] = Future()

        def ask() -> None:
            try:
                answer.set_result(method(*args, **options))
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=ask, daemon=True).start()
        while wait([answer], LOOK).not_done:
            if self._is_closed:
                raise ConnectionError
            meanwhile()
        return answer.result()


class NodeTasks(NamedTuple):
    """Tasks for the workers of one node."""

    tasks: Iterable[AnyTask]
    #: Addresses of the workers; empty for all workers of the cluster.
    addresses: list[str]
    n_threads: int


class NodeBatcher:
    """Yields batches of tasks, from each node's tasks in turn, so that every node has work."""

    def __init__(self, jobs: Sequence[AnyJob], nodes: Sequence[NodeTasks]):
        self._batchers = [TaskBatcher(jobs, node.tasks, node.n_threads) for node in nodes]
        self._nodes = nodes
        most = max(node.n_threads for node in nodes)
        turns = range(most if len(nodes) > 1 else 1)
        self._turns = deque(
            k for turn in turns for k, node in enumerate(nodes) if turn < node.n_threads
        )
        self._addresses: dict[tuple[int, int, int], list[str]] = {}

    def __iter__(self) -> Iterator[TaskBatch]:
        return self

    def __next__(self) -> TaskBatch:
        """Make the next batch, from the next node that has tasks left."""
        while self._turns:
            number = self._turns[0]
            batch = next(self._batchers[number], None)
            if batch is None:
                self._turns.popleft()
                continue
            self._turns.rotate(-1)
            if self._nodes[number].addresses:
                key = batch.job, batch.level, batch.number
                self._addresses[key] = self._nodes[number].addresses
            return batch
        raise StopIteration

    def addresses_of(self, batch: TaskBatch) -> list[str]:
        """Return the workers that should run a batch; empty if any worker may."""
        return self._addresses.get((batch.job, batch.level, batch.number), [])

    def record(self, result: BlockResult) -> None:
        """Record the duration of the blocks of a result."""
        for batcher in self._batchers:
            batcher.record(result)


def _not_taken(error: Exception) -> WorkerError:
    """Create the error for jobs that cannot be sent; a missing module is named as the cause."""
    said = f"the Dask workers cannot take an analysis: {type(error).__name__}: {error}"
    if "No module named 'paceline" in str(error):
        return WorkerError(f"{said}; install paceline {__version__} there")
    if "No module named" in str(error):
        return WorkerError(f"{said}; install the missing module there")
    return WorkerError(
        f"{said}; perhaps workers have ended, or have another version of paceline than "
        f"{__version__}"
    )


def _name(job: AnyJob) -> str:
    """Return the name of a job's tasks for Dask's dashboard, such as paceline-rmsd-rmsf."""
    names = [job.name] if isinstance(job, FunctionJob) else [one.name for one in job.analyses]
    words = (re.split(r"[^A-Za-z]", name)[0].lower() for name in names if name != CHECK_NAME)
    return "-".join(["paceline", *words])


def _fetch(future: "DaskFuture") -> tuple[str, BlockResult] | None:
    """Fetch a task's result and the address of its worker; None if the result was lost."""
    if future.status == "cancelled":
        return None
    try:
        return pickle.loads(future.result(timeout=FETCH))
    except (TimeoutError, CancelledError):
        return None


class _ExitedError(Exception):
    """Replaces the `SystemExit` of an analysis, which would end a Dask worker."""


def _reason(error: BaseException, batch: TaskBatch) -> BaseException:
    """Return the error to raise for a failed task; usually the error of the task itself."""
    from distributed import KilledWorker

    if isinstance(error, _ExitedError):
        return SystemExit(*error.args)
    if isinstance(error, KilledWorker):
        return WorkerError(
            f"Dask workers died repeatedly while they computed {batch.what}: perhaps they ran "
            "out of memory, or the analysis crashes them at these frames or at other frames there"
        )
    return error


class ThreadsByAddress:
    """Names of the threads behind each of Dask's addresses, known from the results they returned.

    Dask identifies a hanging worker by its address only, whereas blocks name their thread as
    host:process:thread.
    """

    def __init__(self) -> None:
        #: Number of threads at each address, as reported by Dask.
        self.n_threads: dict[str, int] = {}
        # For each address: thread names, each with the end time of the thread's last block, ns.
        self._ended: dict[str, dict[str, int]] = {}

    def record(self, address: str, result: BlockResult) -> None:
        """Record the address and the thread of a result."""
        threads = self._ended.setdefault(address, {})
        for timing in result.timings:
            threads[timing.worker] = max(timing.end, threads.get(timing.worker, timing.end))

    def rename(self, attempt: DuplicateAttempt) -> DuplicateAttempt:
        """Name the thread of an attempt that never ended, among the threads at its address.

        This is the thread that has been idle longest, or else a thread without results.
        """
        timing = attempt.timing
        if attempt.came:
            return attempt
        threads = self._ended.get(timing.worker, {})
        if len(threads) < self.n_threads.get(timing.worker, 1):
            return replace(
                attempt, timing=replace(timing, worker=self._name_idle_thread(timing.worker))
            )
        name = min(threads, key=threads.__getitem__)
        # The attempt was submitted while the thread was still computing its previous block.
        start = min(max(timing.start, threads[name]), timing.end)
        return replace(attempt, timing=replace(timing, worker=name, start=start))

    def _name_idle_thread(self, address: str) -> str:
        """Return a name for a thread without results: host and port, or else its Dask address."""
        number = host_of(address)
        hosts = {host_of(of): host_of(name) for of, names in self._ended.items() for name in names}
        if number not in hosts:
            return address
        return f"{hosts[number]}:port {address.rpartition(':')[2]}:unknown"


class _OfThread(threading.local):
    """Worker and job of the calling thread."""

    opened: tuple[Worker, AnyJob] | None = None


class SharedJob:
    """Job that a Dask worker stores once, and that each of its threads opens once.

    The files of the job are closed when Dask releases the job.
    """

    def __init__(self, pickled: PickledJob, version: str = __version__):
        self._pickled = pickled
        self._version = version
        self._local = _OfThread()

    def __reduce__(self) -> tuple[type, tuple[PickledJob, str]]:
        return SharedJob, (self._pickled, self._version)

    def opened(self) -> tuple[Worker, AnyJob]:
        """Return the calling thread's worker and the job; `WorkerError` if it cannot be opened."""
        if self._local.opened is None:
            if self._version != __version__:
                raise WorkerError(
                    f"this Dask worker has paceline {__version__}, but the run was started by "
                    f"{self._version}; install the same version on both"
                )
            job = self._pickled.open()
            self._local.opened = Worker(lambda _: job), job
        return self._local.opened


def run_packed(shared: SharedJob, packed: bytes) -> bytes:
    """Run a pickled batch on a Dask worker; return its address and the result, pickled.

    The batch is pickled because Dask passes unaligned arrays. The compiled module refuses such
    arrays, and NumPy sums them in another order, which changes bits. Raises `FileNotFoundError` if
    this host does not have the file, and `WorkerError` if the job cannot be opened here or the
    result cannot be sent.
    """
    from distributed import get_worker

    worker, job = shared.opened()
    batch = pickle.loads(packed)
    try:
        result = run_batch(worker, job, batch)
    except FileNotFoundError as error:
        reason = f"worker {worker.name} cannot find the file; each host needs it at this path"
        raise FileNotFoundError(error.errno, reason, error.filename) from error
    except SystemExit as stop:
        raise _ExitedError(stop.code) from None
    try:
        return cloudpickle.dumps((get_worker().address, result))
    except Exception as error:  # pickling runs arbitrary code of the objects
        raise WorkerError(
            f"the result of an analysis for {batch.what} cannot be sent back: "
            f"{type(error).__name__}: {error}"
        ) from error
