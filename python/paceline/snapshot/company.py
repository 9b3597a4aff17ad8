"""Ranks that do something together: one error for all of them, or none."""

import contextlib
import pickle
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from paceline.errors import PacelineError

if TYPE_CHECKING:
    from paceline.snapshot.communicator import Communicator

Value = TypeVar("Value")

#: What a rank may raise of what it was given or of a file, and tell the others.
TOLD = (PacelineError, OSError, ValueError, TypeError, OverflowError)


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
        return self._exchange(_outcome(function))

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
        return self._exchange(_outcome(function) if self.is_first else None)[0]

    def _exchange(self, outcome: tuple[bool, Any] | None) -> list[Any]:
        data = b"" if outcome is None else pickle.dumps(outcome)
        gathered = [one for one in self.communicator.all_gather(data) if one]
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
