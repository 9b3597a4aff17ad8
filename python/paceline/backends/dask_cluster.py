"""A Dask cluster of this machine, which dies with the process that started it."""

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from typing import Any

from paceline._util.leftovers import ScratchFolder, remove_leftovers
from paceline._util.system import WINDOWS, kill_session
from paceline.errors import UnsupportedError, WorkerError

#: The keeper kills all at once; a busy machine may take so long to end it, seconds.
PATIENCE = 60.0


class LocalCluster:
    """A Dask scheduler on this machine, with workers of one thread each, and its client.

    They run in the session of a process of their own, the keeper, which kills them all on request,
    or when this process ends. Raises `UnsupportedError` on Windows, `WorkerError` if it did not
    start.
    """

    def __init__(self, n_workers: int):
        from distributed import Client

        if WINDOWS:
            raise UnsupportedError(
                "backend 'dask' starts no cluster on Windows: start one, and give its Client as "
                "the backend, or use backend='threads'"
            )
        self.n_workers = n_workers
        address_from, address_to = os.pipe()
        # In a session of its own, Ctrl-C reaches the parent alone. Not by -m, for then each worker
        # would import this module once more, as its main one.
        program = f"from {__name__} import keep; keep({n_workers}, {address_to})"
        self._keeper = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            pass_fds=(address_to,),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )
        try:
            os.close(address_to)
            with os.fdopen(address_from) as pipe:
                address = pipe.read()
            if not address:
                raise WorkerError("the Dask cluster of this machine ended before it had started")
            self.client = Client(address, set_as_default=False)
        except BaseException:
            self._end()
            raise

    @property
    def alive(self) -> bool:
        """True if it can be used."""
        return self._keeper.poll() is None and self.client.status == "running"

    def close(self) -> None:
        """Kill all its processes at once."""
        self.client.close()
        self._end()

    def _end(self) -> None:
        # Not by closing alone: processes that were forked meanwhile hold the pipe open as well.
        with contextlib.suppress(BrokenPipeError), self._keeper.stdin as pipe:  # type: ignore[union-attr]
            pipe.write(b"\n")
        self._keeper.wait(PATIENCE)


_kept: list[LocalCluster] = []


def take_cluster(n_workers: int) -> LocalCluster:
    """Get the cluster that was kept, or start one; close it, or pass it to `keep_cluster`."""
    while _kept:
        cluster = _kept.pop()
        if cluster.alive and cluster.n_workers == n_workers:
            return cluster
        cluster.close()
    return LocalCluster(n_workers)


def keep_cluster(cluster: LocalCluster) -> None:
    """Keep an idle cluster for the next run: starting one takes seconds."""
    _kept.append(cluster)


@atexit.register
def _close_all() -> None:
    while _kept:
        _kept.pop().close()


def keep(n_workers: int, address_to: int) -> None:
    """Run a cluster as its keeper; write its address to a pipe."""
    remove_leftovers()
    scratch = ScratchFolder("dask")
    # From now on: its parent may end while the cluster starts.
    ending = threading.Thread(target=_kill_on_request, args=(scratch,), daemon=True)
    ending.start()
    import dask
    from distributed import LocalCluster as DaskCluster

    dask.config.set(
        {
            # After so long Dask gives up a worker's place if the worker is away just then,
            # although it may have come back in between, and be away anew.
            "distributed.deploy.lost-worker-timeout": "1000 days",
            # The scheduler's own; elsewhere it would leave a folder.
            "temporary-directory": scratch.path,
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
        local_directory=scratch.path,
        # A worker that takes the place of a dead one can open jobs as soon as it is known.
        preload=["paceline.backends.dask"],
        silence_logs="CRITICAL",
    )
    with os.fdopen(address_to, "w") as pipe:
        pipe.write(cluster.scheduler_address)
    ending.join()


def _kill_on_request(scratch: ScratchFolder) -> None:
    """Wait for a line or the end of the parent, then kill this session."""
    sys.stdin.readline()
    scratch.remove()
    # To close a cluster whose workers are at work takes long; their results are not needed.
    kill_session()
