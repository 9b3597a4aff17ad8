"""A program that runs on the first rank, while all others work for it."""

import sys
from collections.abc import Callable

from paceline.errors import UnsupportedError
from paceline.launch import launched, world
from paceline.stopping import deaf

#: After SIGTERM the first rank may take so long to end its run and all ranks, seconds.
GRACE = 60
#: Exit status where ranks cannot work together.
UNUSABLE = 2


class Session:
    """Ranks that wait for runs of the first."""

    def __init__(self) -> None:
        comm = world()
        from paceline.backends.mpi.clocks import one_clock
        from paceline.backends.mpi.wire import Wire

        self.wire = Wire(comm.Dup())
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
    from paceline.backends.mpi.messages import End

    for other in session.wire.others:
        session.wire.send(other, End())
    session.wire.finish_sending()


def _serve(session: Session) -> None:
    """Take part in runs. Signals are the first rank's: it ends its run, then all ranks."""
    import signal

    from paceline.backends.mpi.following import serve

    with deaf():
        signal.signal(signal.SIGTERM, lambda *_: signal.alarm(GRACE))
        serve(session.wire)
