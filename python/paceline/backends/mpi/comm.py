"""Communication between MPI ranks: messages, collective calls, clocks, and agreement on errors.

The backend, collective runs and snapshots use this module; the Rust core calls it as its
`Communicator`. A script that only the first rank runs gets another COMM_WORLD, which never waits
for another rank (`lone_world`). Import this module only where MPI is in use, because importing
mpi4py starts MPI.
"""

import hashlib
import pickle
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import cloudpickle
import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from paceline._util.os_calls import end_process_after, yield_processor
from paceline.errors import PacelineError, UnsupportedError, WorkerError

T = TypeVar("T")
U = TypeVar("U")

#: Length of the first sleep between polls for messages, s.
SHORTEST = 2e-4
#: Longest sleep between polls, reached after a long time without messages, s.
LONGEST = 1e-2
#: Longest sleep when all ranks already take part in the call, or bytes are in transfer, seconds. A
#: pure spin is slow: with 16 ranks on two cores, Gatherv of 80 MB took 7 s, but Igatherv with
#: sleeps took less than 1 s.
PROMPT = 5e-4
#: Duration of the initial spin in a busy wait, s.
_SPIN = 1e-3
#: Additional duration of the spin per byte that is transferred, s.
_SPIN_BYTE = 1e-9
#: Length of a sleep in a busy wait, as a fraction of the time waited so far.
_SLEEP = 0.1
#: Maximum size of one message, bytes, because many MPI libraries count only to 2**31.
MOST_BYTES = 2**30
_MESSAGE, _SIZED, _CLOCK, _ATOMS = 1, 2, 3, 4
#: Time limit for MPI to end all ranks, seconds.
ABORT_TIMEOUT = 10
#: Number of reads of the coordinator's clock; the fastest reply is used.
CLOCK_READS = 5
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_REDUCE = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
#: Errors of arguments and files that ranks agree on, and warnings that the user turned into errors.
AGREED_ERRORS = (PacelineError, OSError, ValueError, TypeError, OverflowError, Warning)
_RAISE = object()


class Backoff:
    """Sleep times between polls; they grow until a message arrives."""

    def __init__(self, longest: float = LONGEST) -> None:
        self.seconds = SHORTEST
        self._longest = longest

    def reset(self) -> None:
        """Start with short sleeps again."""
        self.seconds = SHORTEST

    def next(self) -> float:
        """Return the length of the next sleep, s."""
        seconds, self.seconds = self.seconds, min(1.2 * self.seconds, self._longest)
        return seconds


def wait_idle(request: MPI.Request, longest: float = LONGEST) -> None:
    """Wait for a request of ranks that may be late, and leave the CPU cores to other work."""
    backoff = Backoff(longest)
    while not request.Test():
        time.sleep(backoff.next())


def wait_busy(request: MPI.Request, n_bytes: int = 0) -> None:
    """Wait for a request of ranks that call at the same time.

    The wait begins with a spin, because some MPI libraries transfer data only during polls.
    """
    begun = time.perf_counter()
    spin = _SPIN + _SPIN_BYTE * n_bytes
    longest = PROMPT if n_bytes else LONGEST
    while not request.Test():
        waited = time.perf_counter() - begun
        if waited < spin:
            yield_processor()
        else:
            time.sleep(min(_SLEEP * waited, longest))


class Comm:
    """Private communicator of some ranks.

    With `busy`, all ranks call together, and each wait begins with a spin.
    """

    def __init__(self, intracomm: MPI.Intracomm, *, busy: bool = False):
        self.intracomm = intracomm
        self.rank = intracomm.Get_rank()
        self.size = intracomm.Get_size()
        self._busy = busy
        self._sending: list[tuple[MPI.Request, bytes]] = []

    @classmethod
    def duplicate(cls, intracomm: MPI.Intracomm, *, busy: bool = False) -> Self:
        """Duplicate a user's communicator, so that messages of other code are not received."""
        duplicate, request = intracomm.Idup()
        if busy:
            wait_busy(request)
        else:
            wait_idle(request)
        return cls(duplicate, busy=busy)

    @property
    def is_coordinator(self) -> bool:
        """True on rank 0."""
        return self.rank == 0

    @property
    def workers(self) -> range:
        """All ranks except the coordinator."""
        return range(1, self.size)

    @property
    def is_open(self) -> bool:
        """True until the communicator is freed."""
        return bool(self.intracomm)

    def free(self) -> None:
        """Free the communicator; all ranks must call this method."""
        self.intracomm.Free()

    def _wait(self, request: MPI.Request, n_bytes: int | None = None) -> None:
        """Wait for other ranks. Unless `busy`, sleep longer while no bytes are in transfer."""
        if self._busy:
            wait_busy(request, n_bytes or 0)
        else:
            wait_idle(request, LONGEST if n_bytes is None else PROMPT)

    # Messages of the backend: objects that are sent without waiting.

    def send_message(self, rank: int, message: object) -> None:
        """Start sending an object; classes of a user's script are pickled by value."""
        data = cloudpickle.dumps(message)
        self._sending.append((self.intracomm.Isend([data, MPI.BYTE], rank, _MESSAGE), data))

    @property
    def sending(self) -> bool:
        """True while a message is in transfer; the transfer advances only when this is read."""
        self._sending = [pair for pair in self._sending if not pair[0].Test()]
        return bool(self._sending)

    def finish_sending(self) -> None:
        """Wait until all messages are sent."""
        while self.sending:
            time.sleep(SHORTEST)

    def receive_message(self) -> tuple[int, Any] | None:
        """Return the sender and content of a message; None if no message has arrived."""
        status = MPI.Status()
        message = self.intracomm.Improbe(MPI.ANY_SOURCE, _MESSAGE, status)
        if message is None:
            return None
        data = bytearray(status.Get_count(MPI.BYTE))
        message.Recv([data, MPI.BYTE])
        return status.Get_source(), pickle.loads(data)

    def wait_for_message(self) -> tuple[int, Any]:
        """Wait for the next message; return its sender and content."""
        backoff = Backoff()
        while (received := self.receive_message()) is None:
            time.sleep(SHORTEST if self.sending else backoff.next())
        return received

    # Byte strings of any size, between two ranks or from one rank to all.

    def send_bytes(self, rank: int, data: bytes) -> None:
        """Send bytes to a rank that calls `receive_bytes`."""
        size = np.array([len(data)])
        self._wait(self.intracomm.Isend([size, MPI.INT64_T], rank, _SIZED), 0)
        for part in _split_messages(data):
            self._wait(self.intracomm.Isend([part, MPI.BYTE], rank, _SIZED), len(part))

    def receive_bytes(self, rank: int) -> bytearray:
        """Receive the bytes that a rank sends with `send_bytes`."""
        size = np.zeros(1, dtype=np.int64)
        self._wait(self.intracomm.Irecv([size, MPI.INT64_T], rank, _SIZED))
        data = bytearray(int(size[0]))
        for part in _split_messages(data):
            self._wait(self.intracomm.Irecv([part, MPI.BYTE], rank, _SIZED), len(part))
        return data

    def broadcast(self, data: bytes | None, root: int = 0) -> bytes | bytearray:
        """Return one rank's bytes on all ranks; other ranks pass None, and ranks may call late."""
        size = np.array([0 if data is None else len(data)])
        self._wait(self.intracomm.Ibcast(size, root))
        whole = bytearray(int(size[0])) if data is None else data
        self.broadcast_into(whole, root)
        return whole

    def broadcast_into(self, room: bytes | bytearray | memoryview, root: int = 0) -> None:
        """Fill `room` with the bytes of rank `root`. It has the same size on all ranks.

        Ranks may call late.
        """
        for part in _split_messages(room):
            self._wait(self.intracomm.Ibcast([part, MPI.BYTE], root), len(part))

    def gather_sized(self, data: Any, counts: list[int] | None = None, room: Any = None) -> None:
        """Gather the bytes of all ranks in `room` on the coordinator.

        `counts`, the number of bytes from each rank, and `room` are None on other ranks.
        """
        receive = None if counts is None else [room, counts, MPI.BYTE]
        self._wait(self.intracomm.Igatherv([data, MPI.BYTE], receive, 0), len(data))

    def gather_bytes(self, data: bytes) -> list[bytes] | None:
        """Gather a few bytes of each rank on the coordinator; return None on other ranks."""
        size = np.array([len(data)])
        if not self.is_coordinator:
            self._wait(self.intracomm.Igather(size, None, 0), 0)
            self.gather_sized(data)
            return None
        sizes = np.empty(self.size, size.dtype)
        self._wait(self.intracomm.Igather(size, sizes, 0), 0)
        room = bytearray(int(sizes.sum()))
        self.gather_sized(data, sizes.tolist(), room)
        return _split(room, sizes)

    # Methods that the `Communicator` of the Rust core requires.

    def all_to_all(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Send one number to each rank; both arrays are ordered by rank."""
        received = np.empty_like(numbers)
        self._wait(self.intracomm.Ialltoall(numbers, received))
        return received

    def exchange(
        self,
        send: Any,
        send_counts: NDArray[np.uint64],
        receive: Any,
        receive_counts: NDArray[np.uint64],
    ) -> None:
        """Send bytes to each rank and receive bytes from each; buffers are ordered by rank."""
        # An empty buffer of Rust has address 1, which Open MPI takes for MPI_IN_PLACE.
        sending = [send if len(send) else b"", send_counts.tolist(), MPI.BYTE]
        receiving = [
            receive if len(receive) else bytearray(),
            receive_counts.tolist(),
            MPI.BYTE,
        ]
        # A transfer that has begun cannot be cancelled, so Ctrl-C ends all ranks here.
        with self.abort_on_error():
            request = self.intracomm.Ialltoallv(sending, receiving)
            self._wait(request, len(send) + len(receive))

    def all_reduce(self, values: NDArray[np.uint64], how: str) -> None:
        """Replace each value by the 'sum' (modulo 2**64), 'max' or 'min' over all ranks."""
        self._wait(self.intracomm.Iallreduce(MPI.IN_PLACE, values, _REDUCE[how]))

    def all_gather(self, data: bytes) -> list[bytes]:
        """Return a few bytes of each rank on all ranks, ordered by rank."""
        sizes = np.empty(self.size, dtype=np.int64)
        self._wait(self.intracomm.Iallgather(np.array([len(data)], dtype=np.int64), sizes))
        room = bytearray(int(sizes.sum()))
        request = self.intracomm.Iallgatherv([data, MPI.BYTE], [room, sizes.tolist(), MPI.BYTE])
        self._wait(request)
        return _split(room, sizes)

    def send(self, to: int, data: Any) -> None:
        """Send bytes to a rank that expects the same number of bytes."""
        with self.abort_on_error():
            self._wait(self.intracomm.Isend([data, MPI.BYTE], to, _ATOMS), len(data))

    def receive(self, sender: int, data: Any) -> None:
        """Fill a buffer with bytes that a rank sends with `send`."""
        with self.abort_on_error():
            self._wait(self.intracomm.Irecv([data, MPI.BYTE], sender, _ATOMS), len(data))

    def write_at(self, path: str, offsets: NDArray[np.uint64], size: int, data: Any) -> None:
        """Write records of `size` bytes at the given offsets, with one MPI-IO call per record."""
        view = memoryview(data)
        file = MPI.File.Open(self.intracomm, path, MPI.MODE_WRONLY)
        try:
            for k, offset in enumerate(offsets.tolist()):
                file.Write_at(offset, [view[k * size : (k + 1) * size], MPI.BYTE])
        finally:
            file.Close()

    # Ending all ranks.

    @contextmanager
    def abort_on_error(self, *allowed: type[BaseException]) -> Iterator[None]:
        """Abort all ranks on an error, since they would wait; only raise `allowed` errors."""
        try:
            yield
        except allowed:
            raise
        except BaseException as error:
            if "--debug" in sys.argv:
                traceback.print_exc()
            reason = traceback.format_exception_only(error)[0].strip()
            self.abort(f"rank {self.rank}: {reason}")

    def abort(self, reason: str) -> None:
        """Print a message, and end all ranks at once."""
        print(f"paceline: error: {reason}", file=sys.stderr, flush=True)
        # Abort may hang if mpirun itself is ending; SIGALRM then ends this process.
        end_process_after(ABORT_TIMEOUT)
        self.intracomm.Abort(1)

    # Clocks of the hosts.

    def ranks_of_hosts(self) -> list[int]:
        """Count the ranks of each host. Ranks of one host read the same monotonic clock."""
        own = _BOOT.read_text(encoding="utf-8") if _BOOT.exists() else socket.gethostname()
        return list(Counter(self.intracomm.allgather(own)).values())

    def answer_clock_offsets(self) -> None:
        """Send the coordinator's time to each rank in turn; each rank calls `clock_offset`."""
        now = np.zeros(1, dtype=np.int64)
        for rank in self.workers:
            for _ in range(CLOCK_READS):
                self.intracomm.Recv([now, MPI.INT64_T], rank, _CLOCK)
                now[0] = time.monotonic_ns()
                self.intracomm.Send([now, MPI.INT64_T], rank, _CLOCK)

    def clock_offset(self) -> int:
        """Return the coordinator's clock minus this host's clock, ns."""
        now = np.zeros(1, dtype=np.int64)
        found = []
        for _ in range(CLOCK_READS):
            asked = time.monotonic_ns()
            self.intracomm.Send([now, MPI.INT64_T], 0, _CLOCK)
            self.intracomm.Recv([now, MPI.INT64_T], 0, _CLOCK)
            answered = time.monotonic_ns()
            found.append((answered - asked, int(now[0]) - (asked + answered) // 2))
        return min(found)[1]


def _split_messages(data: bytes | bytearray | memoryview) -> Iterator[memoryview]:
    """Split bytes into messages whose size every MPI library can count."""
    view = memoryview(data)
    for first in range(0, len(view), MOST_BYTES):
        yield view[first : first + MOST_BYTES]


def _split(room: bytearray, sizes: np.ndarray) -> list[bytes]:
    """Split gathered bytes by rank."""
    ends = np.cumsum(sizes).tolist()
    return [bytes(room[first:end]) for first, end in zip([0, *ends], ends, strict=False)]


class RankErrors:
    """Agreement of ranks on results and errors: all ranks raise the same error, or none raises.

    Compute threads, in contrast, send their packed errors to the coordinator in messages.
    """

    def __init__(self, comm: Comm, catch: tuple[type[BaseException], ...] = AGREED_ERRORS):
        self.comm = comm
        #: Last error that all ranks raised.
        self.agreed: BaseException | None = None
        self._catch = catch

    def share(self, function: Callable[[], T]) -> list[T]:
        """Call a function on all ranks; return all results by rank, or raise one rank's error."""
        data = pack(*self._outcome(function))
        if self._is_same(data):
            return self._values_or_error([data]) * self.comm.size
        return self._values_or_error(self.comm.all_gather(data))

    def first(self, function: Callable[[], T], instead: object = _RAISE) -> T:
        """Call a function on rank 0; return its small result, or raise its error, on all ranks.

        With `instead`, only rank 0 raises the error, and the other ranks return `instead`.
        """
        if not self.comm.is_coordinator:
            return self._values_or_error([self.comm.broadcast(None)])[0]
        value, error = self._outcome(function)
        if error is None or instead is _RAISE:
            return self._values_or_error([self.comm.broadcast(pack(value, error))])[0]
        self.comm.broadcast(pack(instead))
        raise error

    def combine(
        self,
        value: T,
        error: Exception | None,
        function: Callable[[list[T]], U],
        instead: U,
    ) -> U:
        """Call a function of all ranks' small values on rank 0; return its result on all ranks.

        If a rank has an error or the function fails, rank 0 alone raises, and the other ranks
        return `instead`.
        """
        with self.comm.abort_on_error():
            gathered = self.comm.gather_bytes(pack(value, error))
        return self.first(lambda: function(self._values_or_error(gathered or [])), instead)

    def agree(self, error: BaseException | None = None) -> None:
        """Wait for all ranks; if any rank has an error, raise that of the lowest such rank."""
        failed = np.array([self.comm.size if error is None else self.comm.rank], dtype=np.uint64)
        self.comm.all_reduce(failed, "min")
        root = int(failed[0])
        if root == self.comm.size:
            return
        packed = pack(error=error) if root == self.comm.rank else None
        received = self.comm.broadcast(packed, root)
        try:
            self.agreed = error
            if error is None:
                self._values_or_error([received])
        except BaseException as reason:
            # Record the error even if it cannot be unpickled here: the other ranks know the error,
            # and will not call again.
            self.agreed = reason
            raise

    @contextmanager
    def same_on_all(self) -> Iterator[None]:
        """Mark errors that all ranks raise in the same way, such as errors of a collective call."""
        try:
            yield
        except self._catch as error:
            self.agreed = error
            raise

    def have_agreed(self, error: BaseException | None) -> bool:
        """True if all ranks raised this error, and none of them raised another error since."""
        return error is not None and error is self.agreed

    @contextmanager
    def abort_on_lone_error(self) -> Iterator[None]:
        """Abort all ranks if only this rank fails, because the others would wait for it."""
        try:
            yield
        except BaseException as error:
            if self.have_agreed(error) or self.comm.size == 1:
                raise
            with self.comm.abort_on_error():
                raise

    def _outcome(self, function: Callable[[], T]) -> tuple[T | None, BaseException | None]:
        """Call a function; return its result and its error, one of which is None."""
        try:
            return function(), None
        except self._catch as error:
            return None, error

    def _is_same(self, data: bytes) -> bool:
        """True if `data` is the same on all ranks, which is nearly always so; compare digests."""
        digest = np.frombuffer(hashlib.blake2b(data, digest_size=8).digest(), dtype=np.uint64)
        # After the reduction: the maximum, and the bitwise complement of the minimum.
        ends = np.concatenate([digest, ~digest])
        self.comm.all_reduce(ends, "max")
        return bool(ends[0] == ~ends[1])

    def _values_or_error(self, gathered: Sequence[bytes | bytearray]) -> list[Any]:
        """Return the values of all ranks, or raise the error of the lowest rank that has one."""
        # Among thousands of ranks, most send the same bytes: unpickle each distinct value once.
        opened = {bytes(one): pickle.loads(one) for one in set(map(bytes, gathered))}
        outcomes = [opened[bytes(one)] for one in gathered]
        for _, error in outcomes:
            if error is not None:
                self.agreed = error
                raise error
        return [value for value, _ in outcomes]


def pack(value: object = None, error: BaseException | None = None) -> bytes:
    """Pickle a rank's result or error; `unpack` returns or raises it on other ranks."""
    return cloudpickle.dumps((value, None if error is None else portable(error)))


def unpack(data: bytes | bytearray) -> Any:
    """Return another rank's result, or raise its error."""
    value, error = pickle.loads(data)
    if error is not None:
        raise error
    return value


def portable(error: BaseException) -> BaseException:
    """Return an error that other ranks can unpickle: the error itself, or one that quotes it."""
    try:
        # Some errors can be pickled but not unpickled.
        pickle.loads(cloudpickle.dumps(error))
    except Exception:
        return quoted(error)
    return error


def quoted(error: BaseException) -> WorkerError:
    """Return a `WorkerError` that quotes the error of a rank."""
    return WorkerError(f"a rank raised {type(error).__name__}: {error}")


#: Members of COMM_WORLD that need no other rank, and Abort, which ends all ranks.
_ALONE = (
    *("Abort", "Get_attr", "Get_errhandler", "Get_group", "Get_info", "Get_name", "Get_rank"),
    *("Get_size", "Get_topology", "Is_inter", "Is_intra", "Is_revoked", "Set_errhandler"),
    *("group", "info", "is_inter", "is_intra", "is_topo", "name", "rank", "size", "topology"),
)
#: Members that belong to the class and not to a communicator, and the handle, which is null.
_OTHERS = (
    *("Attach_buffer", "Compare", "Create_errhandler", "Create_from_group", "Create_keyval"),
    *("Detach_buffer", "Flush_buffer", "Free_keyval", "Get_parent", "Iflush_buffer", "Join"),
    *("f2py", "fromhandle", "fromint", "handle", "py2f", "toint"),
)


class LoneWorld(MPI.Intracomm):
    """Object that replaces COMM_WORLD in a script that runs on one rank.

    It forwards the members in `_ALONE` to COMM_WORLD. Its handle is the null communicator, so that
    MPI refuses every other use of it, for example to create a window or to open a file.
    """

    def __new__(cls, comm: MPI.Intracomm) -> "LoneWorld":
        """Create the object with a null handle."""
        made = super().__new__(cls)
        made._comm = comm  # type: ignore[attr-defined]
        return made

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__


def _forward(name: str) -> property:
    return property(lambda self: getattr(self._comm, name))


def _refuse_call(name: str) -> Callable[..., object]:
    def refuse(self: Any, *_: Any, **__: Any) -> Any:
        raise UnsupportedError(
            f"MPI.COMM_WORLD.{name} would wait for ever: only the first of {self.size} ranks runs "
            "this "
            "script; run it on every rank: python -m paceline --every-rank script.py"
        )

    return refuse


for _name in dir(MPI.Intracomm):
    if _name in _ALONE:
        setattr(LoneWorld, _name, _forward(_name))
    elif not _name.startswith("_") and _name not in _OTHERS:
        setattr(LoneWorld, _name, _refuse_call(_name))


@contextmanager
def lone_world() -> Iterator[None]:
    """Replace MPI.COMM_WORLD by a `LoneWorld` while the script and its functions run."""
    world = MPI.COMM_WORLD
    if world.Get_size() > 1:
        MPI.COMM_WORLD = LoneWorld(world)  # type: ignore[misc]
    try:
        yield
    finally:
        MPI.COMM_WORLD = world  # type: ignore[misc]
