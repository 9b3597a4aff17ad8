"""Wait for the frames that another program appends to a trajectory file."""

import errno
import glob
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, runtime_checkable

from paceline._util.arguments import positive_number
from paceline._util.files import is_address
from paceline.errors import FileChangedError, PacelineError, UnsupportedError
from paceline.hdf5.open_hdf5_trajectory import EXTENSIONS as HDF5_ENDINGS
from paceline.trajectory.chain import Chain, hdf5_does_not_grow
from paceline.trajectory.open import is_recognised, open_file
from paceline.trajectory.write_stream_to_file import KeptFrames, Tee

#: Default time without growth after which a file counts as complete, s.
IDLE_SECONDS = 60.0
#: Time between two checks of a file's size, s: a check takes a few µs on a local disk.
LOOK_SECONDS = 0.05
#: Maximum time between two checks of a file that has not grown for long, s. On a file system of
#: several nodes, each check is a request to a server.
SLOWEST_LOOK = 0.5
#: Number of bytes that suffice to recognise any of paceline's formats.
HEAD_BYTES = 1024


@runtime_checkable
class Growable(Protocol):
    """Trajectory of one or more files; another program may append frames to the last file."""

    chain: Chain
    n_frames: int

    def extend(self) -> int:
        """Include the frames that were appended; return their number."""


def growable(trajectory: object) -> Growable:
    """Return the trajectory if frames may be appended to it; otherwise raise `UnsupportedError`."""
    if not isinstance(trajectory, Growable):
        raise UnsupportedError(
            f"{trajectory}: only a trajectory file in one of paceline's formats can be followed "
            "while it grows"
        )
    trajectory.chain.check_growing()
    return trajectory


class Feed(ABC):
    """Source of frames that appear in a trajectory file while it is analysed."""

    #: Path of the file in which frames appear.
    path: str

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """Wait until the file has grown since the last call that returned True.

        Returns False if it has not grown within `seconds`, or has ended before.
        """

    @property
    @abstractmethod
    def ended(self) -> str | None:
        """Reason why no more frames will appear in the file; None if frames may still appear."""

    @property
    @abstractmethod
    def since_frame(self) -> float:
        """Time since the file was last seen to have new frames, s."""

    @property
    def error(self) -> Exception | None:
        """Error because of which no more frames appear; None without an error."""
        return None

    @abstractmethod
    def close(self, *, stop_engine: bool = False) -> None:
        """Stop waiting for frames; with `stop_engine`, end the simulation if that is possible."""


class FollowedFile(Feed):
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
        Size of the part of the file whose frames have already been read, bytes.

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
        self._has_grown = False
        self._pause = LOOK_SECONDS

    def wait(self, seconds: float) -> bool:
        """Wait until the file has grown since the last call that returned True.

        Returns False if it has not grown within `seconds`, or within `idle`.
        """
        until = time.monotonic() + seconds
        while not self._look():
            now = time.monotonic()
            left = min(until, self._grown + self._idle) - now
            if left <= 0:
                return False
            self._pause = min(SLOWEST_LOOK, max(LOOK_SECONDS, (now - self._grown) / 20))
            time.sleep(min(left, self._pause))
        self._has_grown = False
        return True

    def _look(self) -> bool:
        """Return True if the file has grown since `wait` last returned True.

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
        if size > self._size:
            self._size, self._grown, self._has_grown = size, time.monotonic(), True
        return self._has_grown

    @property
    def ended(self) -> str | None:
        """Reason why the file is taken to be complete; None until then."""
        # Check the size again: the file may have grown, for example while results were computed.
        if time.monotonic() - self._grown < self._idle or self._look():
            return None
        return f"it has not grown for {self._idle:g} s"

    @property
    def since_frame(self) -> float:
        """Time since the file was last seen to have grown, or since this object was created, s."""
        return time.monotonic() - self._grown

    def close(self, *, stop_engine: bool = False) -> None:
        """Do nothing: the program that writes the file cannot be reached."""


@runtime_checkable
class TeeSource(Protocol):
    """Trajectory that is a stream, whose frames can be written to a file."""

    filename: str
    #: File to which the frames are to be written; None for a temporary one.
    tee_path: str | os.PathLike | None

    @property
    def was_read(self) -> bool:
        """True if positions of the first frame were read, perhaps as a reference."""

    @property
    def fields(self) -> Sequence[str]:
        """Fields that each frame of the stream contains, out of `paceline.block.FIELDS`."""

    def set_timeout(self, seconds: float) -> None:
        """Set the time without a byte after which the simulation is taken to hang."""

    def tee(
        self,
        path: str | os.PathLike,
        *,
        overwrite: bool = False,
        kept: KeptFrames | None = None,
    ) -> Tee:
        """Begin to write the frames to a file, and some atoms or some frames to a second one."""


class FollowedStream(Feed):
    """File to which a `Tee` appends the frames of a stream.

    Parameters
    ----------
    tee : Tee
        The tee, which has been started.
    """

    def __init__(self, tee: Tee):
        self.path, self._tee = tee.path, tee
        self._seen, self._grown = 0, time.monotonic()

    def wait(self, seconds: float) -> bool:
        """Wait until the file has frames that it did not have at the last call that returned True.

        Returns False if there are none within `seconds`, or if the stream has ended.
        """
        if not self._tee.wait_for(self._seen + 1, seconds):
            return False
        self._seen, self._grown = self._tee.n_written, time.monotonic()
        return True

    def between_frames(self) -> AbstractContextManager[object]:
        """Context in which the file ends with a complete frame."""
        return self._tee.between_frames()

    def rewind(self) -> None:
        """Forget which frames were seen, so that `wait` starts again with the first one."""
        self._seen = 0

    @property
    def ended(self) -> str | None:
        """Reason why the stream has ended; None until `wait` has reported all its frames."""
        if not self._tee.ended or self._seen < self._tee.n_written:
            return None
        return self._tee.reason

    @property
    def error(self) -> Exception | None:
        """Error that ended the stream."""
        return self._tee.error

    @property
    def since_frame(self) -> float:
        """Time since `wait` last found new frames, or since this object was created, s."""
        return time.monotonic() - self._grown

    def close(self, *, stop_engine: bool = False) -> None:
        """Close the connection; the simulation continues, or ends with `stop_engine`."""
        self._tee.stop(kill=stop_engine, leave_running=not stop_engine)


def wait_for_frame(path: str | os.PathLike, idle: float, say: Callable[[str], None]) -> None:
    """Wait until a file exists and has a complete frame.

    If it must wait, the function first calls `say` with one sentence. Raises `FileNotFoundError` if
    the file does not exist after `idle` seconds. If it exists by then without a frame, the function
    returns, because opening it raises the proper error. For addresses and patterns, it returns at
    once. Raises `UnsupportedError` at once for a file in a format that cannot be followed.
    """
    path, until, said = os.fspath(path), time.monotonic() + idle, False
    if is_address(path) or (glob.has_magic(path) and not os.path.exists(path)):
        return
    if Path(path).suffix[1:].lower() in HDF5_ENDINGS:
        raise hdf5_does_not_grow(path)
    while not _has_frame(path):
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


def _has_frame(path: str) -> bool:
    """Return True for a file that can be opened and has a complete frame.

    Raises `UnsupportedError` if the file has at least `HEAD_BYTES`, but none of paceline's formats.
    """
    try:
        size = os.path.getsize(path)
        return open_file(path, notes=False).n_frames > 0
    except UnsupportedError:
        if size >= HEAD_BYTES and not is_recognised(path):
            raise
        return False
    except (PacelineError, OSError):
        return False


def wait_for_reference(trajectory: Growable, frame: int, idle: float) -> None:
    """Wait until a trajectory has the frame `frame`, or its last file stops growing.

    It is taken to have stopped if it has not grown for `idle` seconds.
    """
    feed = FollowedFile(trajectory.chain.files[-1].path, idle)
    while trajectory.n_frames <= frame and feed.ended is None:
        if feed.wait(SLOWEST_LOOK):
            trajectory.extend()
