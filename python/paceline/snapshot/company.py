"""Ranks that do something together: one error for all of them, or none."""

import contextlib
import hashlib
import pickle
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from paceline.errors import PacelineError

if TYPE_CHECKING:
    from paceline.snapshot.communicator import Communicator

Value = TypeVar("Value")

#: What a rank may raise of what it was given or of a file, and tell the others; of warnings, those
#: that a user has turned into errors.
TOLD = (PacelineError, OSError, ValueError, TypeError, OverflowError, Warning)


class Company:
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
            from paceline.backends.mpi.wire import unbroken

            with unbroken(self.communicator.comm):
                raise


def _outcome(function: Callable[[], Any]) -> tuple[bool, Any]:
    """Whether a function failed, and what it returned or raised."""
    try:
        return False, function()
    except TOLD as error:
        return True, error
