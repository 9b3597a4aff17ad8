"""Backends: workers that compute blocks. `base.Backend` is their interface."""

import sys
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, TypeGuard

from paceline._util.arguments import whole_number
from paceline._util.machine_and_software import available_cpus
from paceline._util.option_values_and_selections import BACKENDS, BackendName
from paceline.backends.base import Backend, CollectiveRun
from paceline.backends.dask import Dask
from paceline.backends.mpi import MPI, active_session
from paceline.backends.processes import Adaptive, Pool, Processes
from paceline.backends.serial import Serial
from paceline.backends.threads import Threads

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "MPI",
    "Adaptive",
    "Backend",
    "CollectiveRun",
    "Dask",
    "Pool",
    "Processes",
    "Serial",
    "Threads",
    "available_cpus",
    "is_client",
    "make_backend",
]

_BY_NAME: dict[BackendName, Callable[[int | None], Backend]] = {
    "threads": Threads,
    "processes": Processes,
    "serial": lambda n_workers: _serial(n_workers),
    "dask": Dask.on_this_machine,
    "mpi": lambda n_workers: MPI(n_workers=n_workers),
}


def make_backend(backend: object = None, n_workers: int | None = None) -> Backend:
    """Create a backend from the argument `backend` of a run.

    Parameters
    ----------
    backend : {"threads", "serial", "processes", "dask", "mpi"} or object, optional
        By default "threads", or "mpi" if MPI ranks wait for runs of this rank. A
        concurrent.futures.Executor, a distributed.Client or a Backend is used unchanged.
    n_workers : int, optional
        Number of workers; by default the CPUs that this process may use. For "mpi", the number
        of compute threads per rank.

    Returns
    -------
    Backend
        Backend with `name`, `n_workers` and `run`.

    Raises
    ------
    ValueError
        The name is unknown, or the backend does not support this number of workers.
    UnsupportedError
        A package that the backend needs is not installed, or a Client is asynchronous.
    WorkerError
        A Client is closed, or has no workers yet.

    Examples
    --------
    >>> backend = make_backend("threads", 4)
    >>> backend.name, backend.n_workers
    ('threads', 4)
    """
    if n_workers is not None:
        n_workers = whole_number("n_workers", n_workers, 1)
    if backend is None:
        backend = BACKENDS[0] if active_session() is None else MPI.name
    if isinstance(backend, Executor):
        return Pool(backend, n_workers)
    if is_client(backend):
        return Dask(backend, n_workers)
    if isinstance(backend, Backend):
        if n_workers not in (None, backend.n_workers):
            raise ValueError(
                f"n_workers={n_workers} contradicts the backend, which has {backend.n_workers}"
            )
        return backend
    for name, make in _BY_NAME.items():
        if isinstance(backend, str) and backend == name:
            return make(n_workers)
    names = ", ".join(map(repr, BACKENDS))
    raise ValueError(
        f"backend must be one of {names}, a concurrent.futures.Executor or a "
        f"distributed.Client, not {backend!r}"
    )


def _serial(n_workers: int | None) -> Serial:
    if n_workers not in (None, 1):
        raise ValueError(f"backend 'serial' has one worker, not {n_workers}")
    return Serial()


def is_client(backend: object) -> "TypeGuard[Client]":
    """Check whether an object is a Dask Client, without importing Dask."""
    distributed = sys.modules.get("distributed")
    return distributed is not None and isinstance(backend, distributed.Client)
