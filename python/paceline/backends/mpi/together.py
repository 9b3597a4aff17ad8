"""Ranks that have all called `run`: the first leads, all get the results."""

import pickle
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import cloudpickle
import numpy as np
from mpi4py import MPI

from paceline.backends.mpi.clocks import one_clock
from paceline.backends.mpi.following import follow
from paceline.backends.mpi.wire import Wire, broadcast, wait
from paceline.errors import WorkerError
from paceline.stopping import deaf


class Together:
    """One call of `run` on all ranks. An error on one of them is raised on every one.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Of the ranks that called it.

    Attributes
    ----------
    leads : bool
        Whether this rank deals and collects.
    wire : Wire
        Between them, for this run alone.
    one_clock : bool
        Whether all are on one host.
    """

    def __init__(self, comm: MPI.Intracomm):
        self._given = comm
        self.leads = comm.Get_rank() == 0
        self._disagreed = False

    def __enter__(self) -> Self:
        comm, request = self._given.Idup()
        wait(request)
        self.wire = Wire(comm)
        self.one_clock = one_clock(comm)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if not self._disagreed:
                self.agree(error)
        finally:
            self.wire.comm.Free()

    def agree(self, error: BaseException | None = None) -> None:
        """Go on when all ranks have come so far.

        Parameters
        ----------
        error : BaseException or None
            Why this one cannot go on. It raises nothing then: the caller does.

        Raises
        ------
        BaseException
            What kept another rank from it.
        """
        comm = self.wire.comm
        rank, size = comm.Get_rank(), comm.Get_size()
        failed = np.array([size if error is None else rank])
        first = np.empty_like(failed)
        wait(comm.Iallreduce(failed, first, MPI.MIN))
        if first[0] == size:
            return
        self._disagreed = True
        received = comm.bcast(_sendable(error) if rank == first[0] else None, int(first[0]))
        if error is None:
            raise pickle.loads(received)

    def follow(self) -> None:
        """Take part in the run that the first rank leads, and that signals end there."""
        with deaf():
            self.agree()
            follow(self.wire)

    def share(self, make: Callable[[], Any]) -> Any:
        """Give something of the first rank to all.

        Parameters
        ----------
        make : callable
            Called on the first rank; gives it.

        Returns
        -------
        object
        """
        if self.leads:
            data = cloudpickle.dumps(value := make())
            self.agree()
            broadcast(self.wire.comm, data)
            return value
        self.agree()
        return pickle.loads(broadcast(self.wire.comm, None))


def _sendable(error: BaseException | None) -> bytes:
    try:
        data = cloudpickle.dumps(error)
        pickle.loads(data)
    except Exception:
        data = cloudpickle.dumps(WorkerError(f"a rank raised {type(error).__name__}: {error}"))
    return data
