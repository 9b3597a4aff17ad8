"""Where blocks are computed: one small file each.

`base.Backend` says what one is.
"""

from concurrent.futures import Executor
from typing import Any

from paceline.backends.base import Backend, Company, available_cpus, company_of
from paceline.backends.executor import ExecutorBackend
from paceline.backends.mpi import MPI
from paceline.backends.mpi.session import present
from paceline.backends.processes import ProcessesBackend
from paceline.backends.serial import SerialBackend
from paceline.backends.threads import ThreadsBackend

__all__ = ["MPI", "Backend", "Company", "available_cpus", "company_of", "make_backend"]

_BY_NAME = {
    "serial": SerialBackend,
    "threads": ThreadsBackend,
    "processes": ProcessesBackend,
}


def make_backend(backend: Any = None, n_workers: int | None = None) -> Backend:
    """Turn what a user may give as `backend` into a backend.

    Parameters
    ----------
    backend : {"threads", "serial", "processes", "mpi"}, Executor or Backend, optional
        Which; "threads" by default, and "mpi" where ranks of MPI wait for runs of this one.
    n_workers : int, optional
        Number of workers; by default the CPUs that this process may use. Of "mpi", threads that
        compute on each rank.

    Returns
    -------
    Backend
        With `name`, `n_workers` and `run`.

    Raises
    ------
    ValueError
        An unknown name, or a number of workers that the backend cannot have.

    Examples
    --------
    >>> backend = make_backend("threads", 4)
    >>> backend.name, backend.n_workers
    ('threads', 4)
    """
    if n_workers is not None and n_workers < 1:
        raise ValueError(f"n_workers must be at least 1, not {n_workers}")
    if backend is None:
        backend = "threads" if present() is None else "mpi"
    if backend == "mpi":
        return MPI(n_workers=n_workers)
    if isinstance(backend, Executor):
        return ExecutorBackend(backend, n_workers)
    if hasattr(backend, "run") and hasattr(backend, "n_workers"):
        if n_workers not in (None, backend.n_workers):
            raise ValueError(
                f"n_workers={n_workers} contradicts the backend, which has {backend.n_workers}"
            )
        return backend
    if not isinstance(backend, str) or backend not in _BY_NAME:
        names = ", ".join(repr(name) for name in (*_BY_NAME, "mpi"))
        raise ValueError(
            f"backend must be one of {names} or a concurrent.futures.Executor, not {backend!r}"
        )
    if backend == "serial":
        if n_workers not in (None, 1):
            raise ValueError(f"backend 'serial' has one worker, not {n_workers}")
        return SerialBackend()
    return _BY_NAME[backend](n_workers or available_cpus())
