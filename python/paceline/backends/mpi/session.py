"""A program that runs on the first rank, while all others work for it."""

import pickle
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import cloudpickle
import numpy as np
from mpi4py import MPI

from paceline._util.launcher import launched, world
from paceline._util.signals import deaf
from paceline.backends.mpi.comm import Comm, broadcast, one_clock, wait_for
from paceline.backends.mpi.worker import follow
from paceline.errors import UnsupportedError, WorkerError


class RankCollectiveRun:
    """One call of `run` on all ranks. An error on one of them is raised on every one.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Of the ranks that called it.

    Attributes
    ----------
    leads : bool
        Whether this rank deals and collects.
    wire : Comm
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
        wait_for(request)
        self.wire = Comm(comm)
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
        wait_for(comm.Iallreduce(failed, first, MPI.MIN))
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


#: After SIGTERM the first rank may take so long to end its run and all ranks, seconds.
GRACE = 60
#: Exit status where ranks cannot work together.
UNUSABLE = 2


class Session:
    """Ranks that wait for runs of the first."""

    def __init__(self) -> None:
        comm = world()
        from paceline.backends.mpi.comm import Comm, one_clock

        self.wire = Comm(comm.Dup())
        self.one_clock = one_clock(self.wire.comm)


_present: Session | None = None


def present() -> Session | None:
    """The session of which this is the first rank, if there is one."""
    return _present


def run_on_first_rank(main: Callable[[], int]) -> int:
    """Call a function on the first rank; the others serve its runs until it returns.

    Parameters
    ----------
    main : callable
        Returns an exit status. It must not raise.

    Returns
    -------
    int
        The exit status of this rank's process.
    """
    global _present
    _, rank = launched()
    try:
        session = Session()
    except UnsupportedError as error:
        # One message. A rank that ended with another status might end this one before it is out.
        if rank > 0:
            return 0
        print(f"paceline: error: {error}", file=sys.stderr)
        return UNUSABLE
    if session.wire.comm.Get_rank() > 0:
        _serve(session)
        return 0
    _present = session
    try:
        return main()
    finally:
        _present = None
        _end(session)


def _end(session: Session) -> None:
    """Let all other ranks end."""
    from paceline.backends.mpi.worker import Shutdown

    for other in session.wire.others:
        session.wire.send(other, Shutdown())
    session.wire.finish_sending()


def _serve(session: Session) -> None:
    """Take part in runs. Signals are the first rank's: it ends its run, then all ranks."""
    import signal

    from paceline.backends.mpi.worker import serve

    with deaf():
        signal.signal(signal.SIGTERM, lambda *_: signal.alarm(GRACE))
        serve(session.wire)
