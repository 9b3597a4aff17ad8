"""Dask workers on this machine, in processes of their own; they need no `__main__` guard.

A keeper process holds the scheduler and the workers. It is told nothing of the user's script, so
the workers import none of it, and it ends when it is told to, or its standard input ends: with its
parent, however that ends.
"""

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any

from paceline.errors import WorkerError

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
