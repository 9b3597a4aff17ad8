"""A thread that does one thing after another, while the simulation goes on."""

import threading
import warnings
from collections.abc import Callable

from paceline.errors import PacelineWarning


class Background:
    """Does one thing at a time.

    The process ends when that is done: all ranks have begun it, and each has all that its part
    takes, so that it can be done while they end. MPI ends later, after what Python has to do.
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
            target=self._do, args=(function,), name="paceline-snapshot", daemon=False
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

    def tell(self, path: str) -> None:
        """Warn that nobody has waited, and say what came of it.

        Parameters
        ----------
        path : str
            Of the file.
        """
        if self._thread is None:
            return
        # Who forgets a file within the thread itself cannot wait for it; then it is at its end.
        if self._thread is not threading.current_thread():
            self._thread.join()
        how = "its last frame is in it"
        if self._error is not None:
            how = f"its last frame is not in it: {self._error}"
        warnings.warn(
            f"{path} was written with wait=False and never closed; {how}",
            PacelineWarning,
            stacklevel=2,
        )
