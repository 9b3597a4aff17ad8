"""Wait for the frames that another program appends to a trajectory file."""

import errno
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from paceline._util.arguments import positive_number
from paceline.errors import FileChangedError
from paceline.trajectory.chain import Chain

#: Time between two looks at a file, s: a look takes a few µs on a local disk.
LOOK_SECONDS = 0.05
#: Maximum time between two looks at a file that has not grown for long, s. On a file system of
#: several nodes, each look is a request to a server.
SLOWEST_LOOK = 0.5


@runtime_checkable
class Growable(Protocol):
    """Trajectory of files, to the last of which another program may append frames."""

    chain: Chain
    n_frames: int

    def extend(self) -> int:
        """Include the frames that were appended; return their number."""


class Feed(ABC):
    """Source of frames that appear in a trajectory file while it is analysed."""

    #: Path of the file.
    path: str

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """Wait until the file has grown since the last call that returned True.

        Returns False if it has not grown within `seconds`, or has ended before.
        """

    @property
    @abstractmethod
    def ended(self) -> str | None:
        """Reason why no more frames will come; None if frames may come."""

    @property
    @abstractmethod
    def since_frame(self) -> float:
        """Time since the last frame appeared, s."""

    @abstractmethod
    def close(self, *, stop_engine: bool = False) -> None:
        """Stop waiting for frames; with `stop_engine`, end the simulation if that is possible."""


class GrowingFile(Feed):
    """File to which another program appends frames.

    The program does not report its end. Therefore the file has ended when it has not grown for
    `idle` seconds.

    Parameters
    ----------
    path : str
        The file.
    idle : float
        Time without growth after which the file is complete, s.
    size : int
        Size of the file up to which its frames are known, bytes.

    Raises
    ------
    ValueError
        `idle` is not a positive number.
    """

    def __init__(self, path: str, idle: float, size: int = 0):
        self.path = path
        self._idle = positive_number("idle", idle)
        self._size = size
        self._grown = time.monotonic()
        self._pause = LOOK_SECONDS

    def wait(self, seconds: float) -> bool:
        """Wait until the file has grown since the last call that returned True."""
        until = time.monotonic() + seconds
        while not self._has_grown():
            now = time.monotonic()
            left = min(until, self._grown + self._idle) - now
            if left <= 0:
                return False
            self._pause = min(SLOWEST_LOOK, max(LOOK_SECONDS, (now - self._grown) / 20))
            time.sleep(min(left, self._pause))
        return True

    def _has_grown(self) -> bool:
        """Compare the size of the file with the last one.

        Raises `FileChangedError` if the file was truncated or deleted.
        """
        try:
            size = os.stat(self.path).st_size
        except FileNotFoundError:
            raise FileChangedError(
                f"{self.path}: the file was deleted or renamed while it was followed"
            ) from None
        if size < self._size:
            raise FileChangedError(
                f"{self.path}: expected at least {self._size:,} bytes, found {size:,}: the file "
                "was replaced or truncated while it was followed; start again"
            )
        if size == self._size:
            return False
        self._size, self._grown = size, time.monotonic()
        return True

    @property
    def ended(self) -> str | None:
        """Reason why the file is taken to be complete; None until then."""
        if time.monotonic() - self._grown < self._idle:
            return None
        return f"it has not grown for {self._idle:g} s"

    @property
    def since_frame(self) -> float:
        """Time since the file was last seen to have grown, s."""
        return time.monotonic() - self._grown

    def close(self, *, stop_engine: bool = False) -> None:
        """Do nothing: the program that writes the file cannot be reached."""


def wait_for_file(
    path: str, idle: float, is_ready: Callable[[str], bool], say: Callable[[str], None]
) -> None:
    """Wait until a file exists and has a complete frame, as `is_ready` finds.

    `say` gets one sentence if the file is not ready at once. Raises `FileNotFoundError` if the file
    does not exist after `idle` seconds. If the file exists by then, but is not ready, the function
    returns, because opening the file raises the proper error.
    """
    idle = positive_number("idle", idle)
    until, said = time.monotonic() + idle, False
    while not (os.path.exists(path) and is_ready(path)):
        if not said:
            say(f"waiting up to {idle:g} s for the first frame of {path}")
            said = True
        if time.monotonic() >= until:
            if os.path.exists(path):
                return
            raise FileNotFoundError(
                errno.ENOENT, f"the file did not appear within {idle:g} s", path
            )
        time.sleep(LOOK_SECONDS)
