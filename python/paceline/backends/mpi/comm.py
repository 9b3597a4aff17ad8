"""Ranks that do something together: one error for all of them, or none."""

import contextlib
import hashlib
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle
import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from paceline.errors import PacelineError

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


class Backoff:
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


def wait_for(request: MPI.Request, longest: float = LONGEST) -> None:
    """Return when something is done that other ranks have a part in.

    Parameters
    ----------
    request : mpi4py.MPI.Request
        It.
    longest : float
        Between looks, s.
    """
    pause = Backoff(longest)
    while not request.Test():
        time.sleep(pause.next())


class Comm:
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
        pause = Backoff()
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
    wait_for(comm.Ibcast(size, 0))
    whole = bytearray(int(size[0])) if data is None else data
    view = memoryview(whole)
    for first in range(0, len(whole), MOST_BYTES):
        wait_for(comm.Ibcast([view[first : first + MOST_BYTES], MPI.BYTE], 0), PROMPT)
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
        wait_for(comm.Igather(size, None, 0), PROMPT)
        wait_for(comm.Igatherv([data, MPI.BYTE], None, 0), PROMPT)
        return None
    sizes = np.empty(comm.Get_size(), size.dtype)
    wait_for(comm.Igather(size, sizes, 0), PROMPT)
    room = bytearray(int(sizes.sum()))
    wait_for(comm.Igatherv([data, MPI.BYTE], [room, sizes.tolist(), MPI.BYTE], 0), PROMPT)
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
    wait_for(comm.Isend([np.array([len(data)]), MPI.INT64_T], rank, _BYTES), PROMPT)
    view = memoryview(data)
    for first in range(0, len(data), MOST_BYTES):
        wait_for(comm.Isend([view[first : first + MOST_BYTES], MPI.BYTE], rank, _BYTES), PROMPT)


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
    wait_for(comm.Irecv([size, MPI.INT64_T], rank, _BYTES))
    data = bytearray(int(size[0]))
    view = memoryview(data)
    for first in range(0, len(data), MOST_BYTES):
        wait_for(comm.Irecv([view[first : first + MOST_BYTES], MPI.BYTE], rank, _BYTES), PROMPT)
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


#: Questions asked of the first rank; that with the quickest answer counts.
QUESTIONS = 5
_CLOCK = 3
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def one_clock(comm: MPI.Intracomm) -> bool:
    """Whether all ranks read the same monotonic clock: that of one running kernel.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Of all ranks; each calls it.

    Returns
    -------
    bool
    """
    own = _BOOT.read_text() if _BOOT.exists() else socket.gethostname()
    return len(set(comm.allgather(own))) == 1


def answer_clocks(comm: MPI.Intracomm) -> None:
    """Tell the time to each rank in turn; called on the first.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Of all ranks, the others being in `clock_offset`.
    """
    word = np.zeros(1, dtype=np.int64)
    for rank in range(1, comm.Get_size()):
        for _ in range(QUESTIONS):
            comm.Recv([word, MPI.INT64_T], rank, _CLOCK)
            word[0] = time.monotonic_ns()
            comm.Send([word, MPI.INT64_T], rank, _CLOCK)


def clock_offset(comm: MPI.Intracomm) -> int:
    """How far the first rank's clock is ahead of this host's.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Of all ranks.

    Returns
    -------
    int
        ns.
    """
    word = np.zeros(1, dtype=np.int64)
    found = []
    for _ in range(QUESTIONS):
        asked = time.monotonic_ns()
        comm.Send([word, MPI.INT64_T], 0, _CLOCK)
        comm.Recv([word, MPI.INT64_T], 0, _CLOCK)
        answered = time.monotonic_ns()
        found.append((answered - asked, int(word[0]) - (asked + answered) // 2))
    return min(found)[1]


_HOW = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
#: Seconds of looking without a sleep: what any call may take, and each byte that it moves.
_BRISK, _BRISK_BYTE = 1e-3, 1e-9
#: Part of the time waited so far that one sleep adds, and the most seconds.
_SLEEP, _LONGEST = 0.1, 1e-2
_TAG = 3


def wait(request: MPI.Request, n_bytes: int = 0) -> None:
    """Return when something is done that other ranks have a part in.

    Parameters
    ----------
    request : mpi4py.MPI.Request
        It.
    n_bytes : int
        That it moves. Some MPI move them only while somebody looks.
    """
    begun = time.perf_counter()
    brisk = _BRISK + _BRISK_BYTE * n_bytes
    while not request.Test():
        waited = time.perf_counter() - begun
        if waited < brisk:
            os.sched_yield()
        else:
            time.sleep(min(_SLEEP * waited, _LONGEST))


class Communicator:
    """One rank's end of the wires, for calls of the core.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Nobody else's while a call of the core runs.

    Attributes
    ----------
    comm : mpi4py.MPI.Intracomm
    rank, size : int
    """

    def __init__(self, comm: MPI.Intracomm):
        self.comm = comm
        self.rank = comm.Get_rank()
        self.size = comm.Get_size()

    def all_to_all(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Give one number to each rank.

        Parameters
        ----------
        numbers : ndarray of uint64, shape (size,)
            By rank.

        Returns
        -------
        ndarray of uint64, shape (size,)
            What each rank gave to this one.
        """
        received = np.empty_like(numbers)
        wait(self.comm.Ialltoall(numbers, received))
        return received

    def exchange(
        self,
        send: Any,
        send_counts: NDArray[np.uint64],
        receive: Any,
        receive_counts: NDArray[np.uint64],
    ) -> None:
        """Send bytes to each rank, and receive what each sends to this one.

        Parameters
        ----------
        send : buffer
            Those for rank 0 first.
        send_counts : ndarray of uint64, shape (size,)
            Bytes for each rank.
        receive : buffer
            Filled with those of rank 0 first.
        receive_counts : ndarray of uint64, shape (size,)
            Bytes of each rank.
        """
        n_bytes = len(send) + len(receive)
        # Nothing, of Rust's, lies at address 1, which Open MPI takes for MPI_IN_PLACE.
        sending = [send if len(send) else b"", send_counts.tolist(), MPI.BYTE]
        receiving = [
            receive if len(receive) else bytearray(),
            receive_counts.tolist(),
            MPI.BYTE,
        ]
        # Bytes that are on their way cannot be taken back: Ctrl-C ends all ranks here.
        with unbroken(self.comm):
            wait(self.comm.Ialltoallv(sending, receiving), n_bytes)

    def all_reduce(self, values: NDArray[np.uint64], how: str) -> None:
        """Combine each value with those of all ranks in its place.

        Parameters
        ----------
        values : ndarray of uint64
            This rank's; becomes the result.
        how : {'sum', 'max', 'min'}
            A sum is taken modulo 2**64.
        """
        wait(self.comm.Iallreduce(MPI.IN_PLACE, values, _HOW[how]))

    def all_gather(self, data: bytes) -> list[bytes]:
        """Give bytes to all ranks.

        Parameters
        ----------
        data : bytes
            This rank's, few.

        Returns
        -------
        list of bytes
            By rank.
        """
        sizes = np.empty(self.size, dtype=np.int64)
        wait(self.comm.Iallgather(np.array([len(data)], dtype=np.int64), sizes))
        room = bytearray(int(sizes.sum()))
        wait(self.comm.Iallgatherv([data, MPI.BYTE], [room, sizes.tolist(), MPI.BYTE]))
        ends = np.cumsum(sizes).tolist()
        return [bytes(room[first:end]) for first, end in zip([0, *ends], ends, strict=False)]

    def broadcast(self, data: bytes) -> bytes:
        """Give bytes of rank 0 to all ranks.

        Parameters
        ----------
        data : bytes
            Those of rank 0; of others nothing.

        Returns
        -------
        bytes
        """
        size = np.array([len(data)], dtype=np.int64)
        wait(self.comm.Ibcast(size))
        room = bytearray(data) if self.rank == 0 else bytearray(int(size[0]))
        wait(self.comm.Ibcast([room, MPI.BYTE]), len(room))
        return bytes(room)

    def send(self, to: int, data: Any) -> None:
        """Send bytes to a rank that waits for as many.

        Parameters
        ----------
        to : int
            The rank.
        data : buffer
            What.
        """
        with unbroken(self.comm):
            wait(self.comm.Isend([data, MPI.BYTE], to, _TAG), len(data))

    def receive(self, sender: int, data: Any) -> None:
        """Receive what a rank sends with `send`.

        Parameters
        ----------
        sender : int
            The rank.
        data : buffer
            Where to.
        """
        with unbroken(self.comm):
            wait(self.comm.Irecv([data, MPI.BYTE], sender, _TAG), len(data))

    def write_at(self, path: str, offsets: NDArray[np.uint64], size: int, data: Any) -> None:
        """Write records to their places in a file, each by a call of MPI-IO.

        Parameters
        ----------
        path : str
            All ranks open it together.
        offsets : ndarray of uint64, shape (n,)
            First byte of each record.
        size : int
            Bytes of each.
        data : buffer
            All records, one after another.
        """
        view = memoryview(data)
        file = MPI.File.Open(self.comm, path, MPI.MODE_WRONLY)
        try:
            for k, offset in enumerate(offsets.tolist()):
                file.Write_at(offset, [view[k * size : (k + 1) * size], MPI.BYTE])
        finally:
            file.Close()


Value = TypeVar("Value")

#: What a rank may raise of what it was given or of a file, and tell the others; of warnings, those
#: that a user has turned into errors.
TOLD = (PacelineError, OSError, ValueError, TypeError, OverflowError, Warning)


class RankErrors:
    """All ranks of a communicator.

    Parameters
    ----------
    communicator : Communicator
        Nobody else's.

    Attributes
    ----------
    communicator : Communicator
        The same.
    is_first : bool
        Whether this is rank 0.
    """

    def __init__(self, communicator: "Communicator"):
        self.communicator = communicator
        self.is_first = communicator.rank == 0
        self._agreed: BaseException | None = None

    def share(self, function: Callable[[], Value]) -> list[Value]:
        """Give all ranks what a function returns on each.

        Parameters
        ----------
        function : callable
            What it returns is small.

        Returns
        -------
        list
            By rank.

        Raises
        ------
        Exception
            What it raised on the first rank on which it did, on all of them.
        """
        data = pickle.dumps(_outcome(function))
        if self._all_say(data):
            return self._settle([data]) * self.communicator.size
        return self._settle(self.communicator.all_gather(data))

    def first(self, function: Callable[[], Value]) -> Value:
        """Call a function on rank 0, and give all ranks what it returns or raises.

        Parameters
        ----------
        function : callable
            What it returns is small.

        Returns
        -------
        object
        """
        data = pickle.dumps(_outcome(function)) if self.is_first else b""
        return self._settle([self.communicator.broadcast(data)])[0]

    def _all_say(self, data: bytes) -> bool:
        """Whether all ranks have the same bytes; nearly always they do."""
        digest = np.frombuffer(hashlib.blake2b(data, digest_size=8).digest(), dtype=np.uint64)
        # The largest, and what the least leaves to the largest number.
        ends = np.concatenate([digest, ~digest])
        self.communicator.all_reduce(ends, "max")
        return bool(ends[0] == ~ends[1])

    def _settle(self, gathered: list[bytes]) -> list[Any]:
        """What ranks say, or the error of the first that has one."""
        # Of thousands of ranks most say the same.
        meanings = {one: pickle.loads(one) for one in set(gathered)}
        told = [meanings[one] for one in gathered]
        for failed, value in told:
            if failed:
                self._agreed = value
                raise value
        return [value for _, value in told]

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Do what raises the same on all ranks: a call of the core."""
        try:
            yield
        except TOLD as error:
            self._agreed = error
            raise

    def have_agreed(self, error: BaseException | None) -> bool:
        """Whether all ranks have this error, which was raised last.

        Parameters
        ----------
        error : BaseException or None
            Any.

        Returns
        -------
        bool
        """
        return error is not None and error is self._agreed

    @contextlib.contextmanager
    def unbroken(self) -> Iterator[None]:
        """Do what the other ranks count on: who leaves it alone ends them, for they would wait."""
        try:
            yield
        except BaseException as error:
            if self.have_agreed(error) or self.communicator.size == 1:
                raise

            with unbroken(self.communicator.comm):
                raise


def _outcome(function: Callable[[], Any]) -> tuple[bool, Any]:
    """Whether a function failed, and what it returned or raised."""
    try:
        return False, function()
    except TOLD as error:
        return True, error
