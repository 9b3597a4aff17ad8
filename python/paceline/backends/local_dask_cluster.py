"""Dask cluster on this machine that ends together with the process that started it."""

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from typing import Any

from paceline._util.leftovers import ScratchFolder, remove_leftovers
from paceline._util.os_calls import WINDOWS, kill_session
from paceline.errors import UnsupportedError, WorkerError

#: Maximum time for the keeper (see `LocalCluster`) to kill all processes of a cluster, seconds; a
#: busy machine may be slow.
PATIENCE = 60.0


class LocalCluster:
    """Dask scheduler on this machine, its workers with one thread each, and its client.

    All processes of the cluster run in the session of a separate process, the keeper. The keeper
    kills them on request, or when this process ends. Raises `UnsupportedError` on Windows, and
    `WorkerError` if the cluster did not start.
    """

    def __init__(self, n_workers: int):
        from distributed import Client

        if WINDOWS:
            raise UnsupportedError(
                "backend 'dask' cannot start a cluster on Windows: start one yourself, and pass "
                "its "
                "Client as the backend, or use backend='threads'"
            )
        self.n_workers = n_workers
        address_from, address_to = os.pipe()
        # Ctrl-C reaches the parent only, not a separate session. The keeper is not started by -m,
        # because each worker would then import this module again as its main module.
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
                raise WorkerError("the Dask cluster on this machine ended while it was starting")
            self.client = Client(address, set_as_default=False)
        except BaseException:
            self._end()
            raise

    @property
    def alive(self) -> bool:
        """True if the cluster can be used."""
        return self._keeper.poll() is None and self.client.status == "running"

    def close(self) -> None:
        """Kill all processes of the cluster at once."""
        self.client.close()
        self._end()

    def _end(self) -> None:
        # Closing the pipe is not enough, because a process that was forked meanwhile keeps it open.
        with contextlib.suppress(BrokenPipeError), self._keeper.stdin as pipe:  # type: ignore[union-attr]
            pipe.write(b"\n")
        self._keeper.wait(PATIENCE)


_kept: list[LocalCluster] = []


def acquire_cluster(n_workers: int) -> LocalCluster:
    """Return an idle or a new cluster; the caller closes it or calls `release_cluster`."""
    while _kept:
        cluster = _kept.pop()
        if cluster.alive and cluster.n_workers == n_workers:
            return cluster
        cluster.close()
    return LocalCluster(n_workers)


def release_cluster(cluster: LocalCluster) -> None:
    """Store an idle cluster for the next run, because starting a cluster takes seconds."""
    _kept.append(cluster)


@atexit.register
def _close_all() -> None:
    while _kept:
        _kept.pop().close()


def keep(n_workers: int, address_to: int) -> None:
    """Run a cluster in the keeper process; write the cluster's address to a pipe."""
    remove_leftovers()
    scratch = ScratchFolder("dask")
    # Start this thread before the cluster, because the parent may end while the cluster starts.
    ending = threading.Thread(target=_kill_on_request, args=(scratch,), daemon=True)
    ending.start()
    import dask
    from distributed import LocalCluster as DaskCluster

    dask.config.set(
        {
            # Effectively never: after this time, Dask removes the entry of a worker that was
            # disconnected, even if the worker has reconnected.
            "distributed.deploy.lost-worker-timeout": "1000 days",
            # Scratch folder of the scheduler; Dask would leave other folders behind.
            "temporary-directory": scratch.path,
            # Disable Dask's profiles of worker threads (a sample every 10 ms) and of event loops
            # (every 20 ms), which take a sixth of the time per frame.
            "distributed.worker.profile.enabled": False,
            "distributed.admin.tick.interval": "1s",
            # By default, Dask makes workers return the memory of each block to the system, which
            # clears it for the next block: 95 instead of 63 µs per XTC frame of 3,341 atoms.
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
        # With this preload, a replacement of a dead worker gets the jobs as soon as it registers.
        preload=["paceline.backends.dask"],
        silence_logs="CRITICAL",
    )
    with os.fdopen(address_to, "w") as pipe:
        pipe.write(cluster.scheduler_address)
    ending.join()


def _kill_on_request(scratch: ScratchFolder) -> None:
    """Wait for a line or for the end of the parent, then kill this session."""
    sys.stdin.readline()
    scratch.remove()
    # Closing a cluster with busy workers is slow, and their results are not needed.
    kill_session()
