"""A thread that does one thing after another, while the simulation goes on."""

import threading
from collections.abc import Callable


class Background:
    """Does one thing at a time.

    It is no reason for a process to go on: what the main thread leaves undone, it leaves undone.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def begin(self, function: Callable[[], None]) -> None:
        """Begin to do something; nothing may be under way.

        Parameters
        ----------
        function : callable
            It.
        """
        self._thread = threading.Thread(
            target=self._do, args=(function,), name="paceline-snapshot", daemon=True
        )
        self._thread.start()

    def _do(self, function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            self._error = error

    def wait(self) -> None:
        """Return when nothing is under way.

        Raises
        ------
        Exception
            What was begun last has failed with it.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error
