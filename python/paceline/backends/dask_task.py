"""What Dask's workers are sent and what they do with it."""

import pickle
import threading

import cloudpickle

from paceline._core import __version__
from paceline.backends.runs import do_run
from paceline.errors import WorkerError
from paceline.job import AnyJob
from paceline.worker import SealedJob, Worker


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
