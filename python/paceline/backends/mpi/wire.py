"""Objects from rank to rank. Who waits sleeps: a rank that spins takes a core from one that works.

All of it happens in the main thread, so any MPI will do that allows threads beside it.
"""

import pickle
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cloudpickle
import numpy as np
from mpi4py import MPI

#: Seconds between looks: at first, and after a long time without news.
SHORTEST, LONGEST = 2e-4, 1e-2
#: … and where all ranks are at the same thing. Even here it pays not to spin: with 16 ranks on two
#: cores, Gatherv of 80 MB took 7 s where Igatherv and pauses take less than 1.
PROMPT = 5e-4
#: Bytes of one message: the counts of many an MPI end at 2**31.
MOST_BYTES = 2**30
_OBJECT, _BYTES = 1, 2
#: Seconds that MPI has to end all ranks.
LAST = 10


class Pause:
    """How long to sleep before the next look: longer and longer, until there is news.

    Parameters
    ----------
    longest : float
        That there will be, s.
    """

    def __init__(self, longest: float = LONGEST) -> None:
        self.seconds = SHORTEST
        self._longest = longest

    def news(self) -> None:
        """Begin with short ones again."""
        self.seconds = SHORTEST

    def next(self) -> float:
        """Give the length of this one, s."""
        seconds, self.seconds = self.seconds, min(1.2 * self.seconds, self._longest)
        return seconds


def wait(request: MPI.Request, longest: float = LONGEST) -> None:
    """Return when something is done that other ranks have a part in.

    Parameters
    ----------
    request : mpi4py.MPI.Request
        It.
    longest : float
        Between looks, s.
    """
    pause = Pause(longest)
    while not request.Test():
        time.sleep(pause.next())


class Wire:
    """Sends and receives objects without waiting.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Nobody else's: all its messages are taken for ours.

    Attributes
    ----------
    comm : mpi4py.MPI.Intracomm
    others : range
        Ranks but the first.
    """

    def __init__(self, comm: MPI.Intracomm):
        self.comm = comm
        self.others = range(1, comm.Get_size())
        self._sending: list[tuple[MPI.Request, bytes]] = []

    def send(self, rank: int, message: Any) -> None:
        """Begin to send an object.

        Parameters
        ----------
        rank : int
            To whom.
        message : object
            Classes and functions of a user's script travel by value.
        """
        data = cloudpickle.dumps(message)
        self._sending.append((self.comm.Isend([data, MPI.BYTE], rank, _OBJECT), data))

    @property
    def sending(self) -> bool:
        """Whether something is still on its way. It gets on only while one looks."""
        self._sending = [pair for pair in self._sending if not pair[0].Test()]
        return bool(self._sending)

    def receive(self) -> tuple[int, Any] | None:
        """Take an object that has come.

        Returns
        -------
        tuple of (int, object) or None
            Who sent it, and what; None where there is none.
        """
        status = MPI.Status()
        message = self.comm.Improbe(MPI.ANY_SOURCE, _OBJECT, status)
        if message is None:
            return None
        data = bytearray(status.Get_count(MPI.BYTE))
        message.Recv([data, MPI.BYTE])
        return status.Get_source(), pickle.loads(data)

    def wait_for_message(self) -> tuple[int, Any]:
        """Take the next object, whenever it comes.

        Returns
        -------
        tuple of (int, object)
            Who sent it, and what.
        """
        pause = Pause()
        while (received := self.receive()) is None:
            time.sleep(SHORTEST if self.sending else pause.next())
        return received

    def finish_sending(self) -> None:
        """Return when nothing is on its way any more."""
        while self.sending:
            time.sleep(SHORTEST)


def broadcast(comm: MPI.Intracomm, data: bytes | None) -> bytes | bytearray:
    """Give bytes of the first rank to all, who may come at different times.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Who takes part.
    data : bytes or None
        On the first rank, what is sent.

    Returns
    -------
    bytes or bytearray
        The same on every rank.
    """
    size = np.array([0 if data is None else len(data)])
    wait(comm.Ibcast(size, 0))
    whole = bytearray(int(size[0])) if data is None else data
    view = memoryview(whole)
    for first in range(0, len(whole), MOST_BYTES):
        wait(comm.Ibcast([view[first : first + MOST_BYTES], MPI.BYTE], 0), PROMPT)
    return whole


def gather_objects(comm: MPI.Intracomm, value: Any) -> list[Any] | None:
    """Give an object of each rank to the first.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Who takes part.
    value : object
        This rank's, small.

    Returns
    -------
    list of object or None
        By rank; None on all ranks but the first.
    """
    data = cloudpickle.dumps(value)
    size = np.array([len(data)])
    if comm.Get_rank() > 0:
        wait(comm.Igather(size, None, 0), PROMPT)
        wait(comm.Igatherv([data, MPI.BYTE], None, 0), PROMPT)
        return None
    sizes = np.empty(comm.Get_size(), size.dtype)
    wait(comm.Igather(size, sizes, 0), PROMPT)
    room = bytearray(int(sizes.sum()))
    wait(comm.Igatherv([data, MPI.BYTE], [room, sizes.tolist(), MPI.BYTE], 0), PROMPT)
    ends = np.cumsum(sizes).tolist()
    pieces = zip([0, *ends], ends, strict=False)
    return [pickle.loads(room[first:end]) for first, end in pieces]


def send_bytes(comm: MPI.Intracomm, rank: int, data: bytes) -> None:
    """Send bytes, of any number, to a rank that waits for them.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Of both.
    rank : int
        To whom.
    data : bytes
        What.
    """
    wait(comm.Isend([np.array([len(data)]), MPI.INT64_T], rank, _BYTES), PROMPT)
    view = memoryview(data)
    for first in range(0, len(data), MOST_BYTES):
        wait(comm.Isend([view[first : first + MOST_BYTES], MPI.BYTE], rank, _BYTES), PROMPT)


def receive_bytes(comm: MPI.Intracomm, rank: int) -> bytearray:
    """Receive what a rank sends with `send_bytes`.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Of both.
    rank : int
        From whom.

    Returns
    -------
    bytearray
    """
    size = np.zeros(1, dtype=np.int64)
    wait(comm.Irecv([size, MPI.INT64_T], rank, _BYTES))
    data = bytearray(int(size[0]))
    view = memoryview(data)
    for first in range(0, len(data), MOST_BYTES):
        wait(comm.Irecv([view[first : first + MOST_BYTES], MPI.BYTE], rank, _BYTES), PROMPT)
    return data


@contextmanager
def unbroken(comm: MPI.Intracomm, *told: type[BaseException]) -> Iterator[None]:
    """Do what the others count on: where this rank leaves it halfway, end all, for they would wait.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Of all ranks.
    *told : type
        Errors of which the others were told: these may leave it.
    """
    try:
        yield
    except told:
        raise
    except BaseException as error:
        if "--debug" in sys.argv:
            traceback.print_exc()
        reason = traceback.format_exception_only(error)[0].strip()
        abort(comm, f"rank {comm.Get_rank()}: {reason}")


def abort(comm: MPI.Intracomm, reason: str) -> None:
    """End all ranks at once, with a word.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Of all ranks.
    reason : str
        Why.
    """
    print(f"paceline: error: {reason}", file=sys.stderr, flush=True)
    # An mpirun that is about to end itself may leave Abort waiting; SIGALRM ends this process then.
    signal.alarm(LAST)
    comm.Abort(1)
