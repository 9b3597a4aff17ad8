"""Workers of a Dask cluster: of this machine, or of any `distributed.Client`."""

from collections.abc import Generator, Iterable, Sequence
from importlib.util import find_spec
from typing import Any

from paceline.backends.base import available_cpus
from paceline.backends.dask_session import Session
from paceline.backends.mdanalysis import ForMDAnalysis
from paceline.errors import UnsupportedError, WorkerError
from paceline.job import AnyJob, AnyWork
from paceline.outcome import Outcome
from paceline.timing import Abandoned


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
            yield from Session(self._client, self.n_workers, jobs).run(works)
            return
        from paceline.backends.dask_cluster import keep_cluster, take_cluster

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
