"""Files that ranks open together: the first rank reads the files, and sends the content to others.

Before opening, the ranks agree. Each rank names the file that it will open. The first rank waits
for all names, asks whether the others still wait, and starts after all have confirmed. Therefore a
rank that stops waiting never leaves another rank in a collective call.
"""

import time
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from paceline._util.python_object_digest import digest
from paceline.backends.mpi.comm import SHORTEST, Backoff, Comm, pack, unpack
from paceline.errors import UnsupportedError

#: Time that a rank waits for the others if joint opening is required, s.
REQUIRED = 300.0
#: Time that a rank waits for the others if joint opening is optional, s.
OPTIONAL = 10.0
#: Longest sleep between polls for messages of other ranks, s.
_POLL = 2e-3
_REMEDY = "; with comm=, all ranks must open the same files in the same order"
_HERE, _READY, _LEFT, _BEGIN, _ALONE = "here", "ready", "left", "begin", "alone"


class OpeningRanks:
    """Ranks that open the same files in the same order.

    If ranks open different files, or if some rank opens none, all ranks raise `UnsupportedError`.
    If `required` is False, each rank opens its files alone instead.
    """

    def __init__(self, intracomm: MPI.Intracomm, *, required: bool = True):
        self._limit = REQUIRED if required else OPTIONAL
        self._required = required
        self._are_together = True
        # MPI may still complete the request after the wait, so keep both objects.
        self._duplicate, self._request = intracomm.Idup()
        backoff, deadline = Backoff(_POLL), time.monotonic() + self._limit
        while not self._request.Test():
            if time.monotonic() > deadline:
                if required:
                    raise UnsupportedError(
                        f"rank {intracomm.Get_rank()} waited {self._limit:g} s for other ranks to "
                        f"open the same{_REMEDY}"
                    )
                self._are_together = False
                return
            time.sleep(backoff.next())
        self.comm = Comm(self._duplicate)

    @property
    def is_first(self) -> bool:
        """True on the rank that reads the files."""
        return self.comm.is_coordinator

    def free(self) -> None:
        """Free the communicator; all ranks call this method after they have opened the files."""
        if self._are_together:
            self.comm.free()

    def open(self, name: str, options: str, make: Callable[[], bytes]) -> bytes | None:
        """Call a function on the first rank, and return its bytes on the other ranks.

        An error of the first rank is raised on all ranks. Returns empty bytes on the first rank,
        and None if this rank must open the file alone.
        """
        if not self._meet_ranks(name, digest([name, options])):
            return None
        if not self.is_first:
            with self.comm.abort_on_error():
                packed = self.comm.broadcast(None)
            received: bytes = unpack(packed)
            return received
        data, failure = b"", None
        with self.comm.abort_on_error():
            try:
                data = make()
            except Exception as error:
                failure = error
            self.comm.broadcast(pack(data, failure))
        if failure is not None:
            raise failure
        return b""

    def _meet_ranks(self, name: str, key: str) -> bool:
        """Wait for the other ranks; True if all ranks open the same file now."""
        if not self._are_together:
            self._request.Test()  # MPI warns at its end of a request that was not completed
            return False
        if self.comm.size == 1:
            return False
        reason = (
            self._wait_for_others(name, key) if self.is_first else self._wait_for_first(name, key)
        )
        if reason and self._required:
            raise UnsupportedError(reason)
        return not reason

    def _wait_for_others(self, name: str, key: str) -> str:
        """Wait on the first rank; return the reason if ranks cannot open together, else ""."""
        here = self._receive_from_all(_HERE)
        missing = [rank for rank in self.comm.workers if rank not in here]
        if missing:
            return self._separate(
                f"rank {missing[0]} has not opened {name} within {self._limit:g} s, while rank 0 "
                f"waited{_REMEDY}"
            )
        for rank in self.comm.workers:
            other, its_key = here[rank]
            if its_key != key:
                how = f"{other}" if other != name else f"{name} with other options"
                reason = f"rank 0 opens {name}, rank {rank} {how}{_REMEDY}"
                self._send_to_others(_BEGIN, reason)
                return reason
        self._send_to_others(_READY)
        if len(self._receive_from_all(_READY)) < len(self.comm.workers):
            return self._separate(f"a rank no longer waits for rank 0 to open {name}")
        self._send_to_others(_BEGIN, "")
        self.comm.finish_sending()
        return ""

    def _wait_for_first(self, name: str, key: str) -> str:
        """Wait on another rank; return the reason if ranks cannot open together, else ""."""
        self.comm.send_message(0, (_HERE, (name, key)))
        # The first rank waits up to its own limit before it answers.
        limit = 2 * self._limit
        while (message := self._receive(limit)) is not None:
            kind, reason = message
            if kind == _READY:
                self.comm.send_message(0, (_READY, None))
                limit = 2 * self._limit
                continue
            self._are_together = kind != _ALONE
            return str(reason)
        self._are_together = False
        self.comm.send_message(0, (_LEFT, None))
        return f"rank {self.comm.rank} waited {limit:g} s for rank 0 to open {name}{_REMEDY}"

    def _receive_from_all(self, wanted: str) -> dict[int, Any]:
        """Return messages of the kind `wanted` by rank; stop after all, or when a rank has left."""
        found: dict[int, object] = {}
        deadline = time.monotonic() + self._limit
        while len(found) < len(self.comm.workers):
            message = self._receive_from_any(deadline - time.monotonic())
            if message is None:
                break
            rank, (kind, value) = message
            if kind == _LEFT:
                found.pop(rank, None)
                break
            if kind == wanted:
                found[rank] = value
        return found

    def _separate(self, reason: str) -> str:
        """Make every rank open files alone from now on; return `reason`."""
        self._are_together = False
        self._send_to_others(_ALONE, reason)
        return reason

    def _send_to_others(self, kind: str, reason: str = "") -> None:
        for rank in self.comm.workers:
            self.comm.send_message(rank, (kind, reason))

    def _receive(self, seconds: float) -> Any:
        found = self._receive_from_any(seconds)
        return None if found is None else found[1]

    def _receive_from_any(self, seconds: float) -> tuple[int, Any] | None:
        """Return the next message and its sender; None if none arrives within `seconds`."""
        backoff, deadline = Backoff(_POLL), time.monotonic() + seconds
        while (received := self.comm.receive_message()) is None:
            if time.monotonic() > deadline:
                return None
            time.sleep(SHORTEST if self.comm.sending else backoff.next())
        return received
