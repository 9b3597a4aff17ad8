"""Start runs of ranks: in a session of the first rank's script, or by a call on every rank.

Light: MPI and what needs it are imported only where ranks meet.
"""

import signal
import sys
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from paceline._util.launcher import launched, world
from paceline._util.signals import deaf
from paceline._util.system import end_after
from paceline.errors import UnsupportedError

if TYPE_CHECKING:
    from mpi4py import MPI

#: After SIGTERM the first rank may take so long to end its run and all ranks, seconds.
GRACE = 60
#: Exit status where ranks cannot work together.
UNUSABLE = 2


class RankCollectiveRun:
    """One call of `run` on all ranks. An error on one of them is raised on every one."""

    def __init__(self, intracomm: "MPI.Intracomm"):
        self._given = intracomm
        self.is_coordinator = intracomm.Get_rank() == 0

    def __enter__(self) -> Self:
        from paceline.backends.mpi.comm import Comm, RankErrors

        self.comm = Comm.duplicate(self._given)
        self.has_one_clock = self.comm.has_one_clock()
        self._errors = RankErrors(self.comm)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._errors.agreed is None:
                self._errors.agree(error)
        finally:
            self.comm.free()

    def begin(self) -> None:
        """Wait until all ranks are ready for the run, or raise the error of one that is not."""
        self._errors.agree()

    def work(self) -> None:
        """Work in the run that the first rank coordinates, and that signals end there."""
        from paceline.backends.mpi.worker import work_in_run

        with deaf():
            self.begin()
            work_in_run(self.comm)

    def broadcast(self, make: Callable[[], Any]) -> Any:
        """Call a function on the first rank, and give its result to all.

        Ranks of one host have large arrays of it in the same memory, each until it changes them.
        """
        from paceline.backends.mpi.gather import broadcast, pack_results

        if not self.is_coordinator:
            self._errors.agree()
            return broadcast(self.comm)
        packed = pack_results(value := make())
        self._errors.agree()
        broadcast(self.comm, packed)
        return value


class RankSession:
    """Ranks that wait for runs of the first."""

    def __init__(self) -> None:
        intracomm = world()
        from paceline.backends.mpi.comm import Comm

        self.comm = Comm.duplicate(intracomm)
        self.has_one_clock = self.comm.has_one_clock()

    def serve(self) -> None:
        """Work in runs until the session ends. Signals are the first rank's to act on."""
        from paceline.backends.mpi.worker import serve

        with deaf():
            signal.signal(signal.SIGTERM, lambda *_: end_after(GRACE))
            serve(self.comm)

    def end(self) -> None:
        """Let all other ranks end."""
        from paceline.backends.mpi.worker import Shutdown

        for rank in self.comm.workers:
            self.comm.send_message(rank, Shutdown())
        self.comm.finish_sending()


_active: RankSession | None = None


def active_session() -> RankSession | None:
    """Return the session of which this is the first rank, if there is one."""
    return _active


def run_on_first_rank(main: Callable[[], int]) -> int:
    """Call a function on the first rank, while the others serve its runs; return an exit status.

    `main` returns one and must not raise.
    """
    global _active
    _, rank = launched()
    try:
        session = RankSession()
    except UnsupportedError as error:
        # One message. A rank that ended with another status might end this one before it is out.
        if rank > 0:
            return 0
        print(f"paceline: error: {error}", file=sys.stderr)
        return UNUSABLE
    if not session.comm.is_coordinator:
        session.serve()
        return 0
    _active = session
    try:
        return main()
    finally:
        _active = None
        session.end()
