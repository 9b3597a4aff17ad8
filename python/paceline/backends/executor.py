"""Any `concurrent.futures.Executor`."""

from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from itertools import islice

from paceline.backends.base import available_cpus
from paceline.errors import WorkerError
from paceline.job import Job, Outcome, Work
from paceline.worker import SealedJob, run_sealed


class ExecutorBackend:
    """Blocks submitted to an executor, a few ahead of those that are being computed.

    Parameters
    ----------
    executor : concurrent.futures.Executor
        Stays the caller's: it is not shut down.
    n_workers : int, optional
        How many workers it has; by default what it says of itself, else the CPUs of this process.
    name : str, optional
        What messages call it; by default its class.
    """

    def __init__(
        self, executor: Executor, n_workers: int | None = None, *, name: str | None = None
    ):
        self._executor = executor
        self.name = name or type(executor).__name__.lstrip("_")
        self.n_workers = n_workers or getattr(executor, "_max_workers", None) or available_cpus()

    def run(self, jobs: Sequence[Job], works: Iterable[Work]) -> Generator[Outcome, None, None]:
        """Do every block; yield outcomes as they come."""
        sealed = [self._seal(job) for job in jobs]
        works = iter(works)
        pending: set[Future[Outcome]] = set()
        try:
            while True:
                # Twice as many as workers: none waits for a block while its last one is returned.
                for work in islice(works, 2 * self.n_workers - len(pending)):
                    pending.add(self._executor.submit(run_sealed, sealed[work.job], work))
                if not pending:
                    return
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        except BrokenExecutor as error:
            raise WorkerError(
                f"a worker of {self.name} ended abruptly: it was killed, perhaps for want of "
                "memory, or the analysis crashed it"
            ) from error
        finally:
            for future in pending:
                future.cancel()

    def _seal(self, job: Job) -> SealedJob:
        try:
            return SealedJob(job)
        except Exception as error:  # pickling runs code of every object's own
            raise WorkerError(
                f"an analysis cannot be sent to the workers of {self.name}: {error}; "
                "backend='threads' sends nothing"
            ) from error
