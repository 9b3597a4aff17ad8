"""The other ranks' part in runs: they wait for one, and do the blocks that they are dealt."""

import pickle
import socket
from collections.abc import Sequence

import cloudpickle

from paceline.backends.mpi.clocks import clock_offset
from paceline.backends.mpi.gathering import gather
from paceline.backends.mpi.member import Member
from paceline.backends.mpi.messages import End, Over, Report, Run, Understood
from paceline.backends.mpi.wire import SHORTEST, Pause, Wire, broadcast, unbroken
from paceline.errors import WorkerError
from paceline.job import AnyJob


def serve(wire: Wire) -> None:
    """Take part in every run of the first rank, until it ends.

    Parameters
    ----------
    wire : Wire
        To the first rank.
    """
    while not follow(wire):
        pass


def follow(wire: Wire) -> bool:
    """Take part in the first rank's next run. A rank that cannot ends all.

    Parameters
    ----------
    wire : Wire
        To the first rank.

    Returns
    -------
    bool
        Whether there will be no more.
    """
    with unbroken(wire.comm):
        _, settings = wire.wait_for_message()
        if isinstance(settings, End):
            return True
        _follow(wire, settings)
    return False


def _follow(wire: Wire, settings: Run) -> None:
    data = broadcast(wire.comm, None)
    offset = clock_offset(wire.comm) if settings.compare_clocks else 0
    jobs, error = _open(data)
    n_blocks = settings.n_blocks if jobs else ()
    member = Member(jobs, n_blocks, settings.n_threads if jobs else 0, offset)
    if error is not None:
        wire.send(0, Report(error=error))
    over = _work(wire, member)
    wire.send(0, Understood(member.stop()))
    wire.finish_sending()
    if not over.failed:
        error = error or member.settle(over.answer)
        gather(wire.comm, member.keeper, settings.collect, error)


def _open(data: bytes | bytearray) -> tuple[Sequence[AnyJob], Exception | None]:
    """The jobs of a run, or why there are none."""
    try:
        return [pickle.loads(job) for job in pickle.loads(data)], None
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return [], WorkerError(f"a rank cannot open an analysis: {reason}")


def _work(wire: Wire, member: Member) -> Over:
    """Do blocks until all are done."""
    pause = Pause()
    while True:
        report = member.report(SHORTEST if wire.sending else pause.next())
        if report is not None:
            pause.news()
            _send(wire, report)
        while (received := wire.receive()) is not None:
            pause.news()
            _, message = received
            if isinstance(message, Over):
                return message
            try:
                member.take(message)
            except Exception as error:
                _send(wire, Report(error=error))


def _send(wire: Wire, report: Report) -> None:
    """Send a report, or why it cannot be sent."""
    try:
        if report.error is not None:
            rank, host = wire.comm.Get_rank(), socket.gethostname()
            report.error.add_note(f"raised on rank {rank}, host {host}")
            # Some that can be pickled cannot be opened again.
            pickle.loads(cloudpickle.dumps(report.error))
        wire.send(0, report)
    except Exception as reason:
        what = report.error or reason
        words = f"a rank raised {type(what).__name__}: {what}"
        wire.send(0, Report(error=WorkerError(words)))
