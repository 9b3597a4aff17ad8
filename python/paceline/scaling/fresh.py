"""What a run finds of its files in memory: all, nothing, or files that nobody has read yet."""

import contextlib
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from paceline.errors import UnsupportedError
from paceline.opening import open_files
from paceline.pagecache import cached_share_of_all, drop_from_cache

#: So much of a file may be in memory where it was dropped: others may look at it.
DROPPED = 0.01


@dataclass
class Warm:
    """Files as the runs before have left them: in memory, as far as there is room.

    Attributes
    ----------
    files : sequence of str
        The trajectory.
    description : str
        What is done.
    """

    files: Sequence[str]
    description: ClassVar[str] = "left as the run before left it"

    @contextlib.contextmanager
    def ready(self) -> Iterator[tuple[list[str] | None, float]]:
        """Prepare a run.

        Yields
        ------
        files : list of str or None
            What to read instead of the trajectory.
        cached : float
            How much of it is in this machine's memory, from 0 to 1; NaN where that is unknown.
        """
        yield None, _cached(self.files)


class Cold(Warm):
    """Files of which the page cache of this machine keeps nothing."""

    description: ClassVar[str] = "trajectory dropped from this machine's memory before each run"

    @contextlib.contextmanager
    def ready(self) -> Iterator[tuple[list[str] | None, float]]:
        """Prepare a run.

        Yields
        ------
        files : None
            The trajectory itself is read.
        cached : float
            How much of it is in memory all the same.
        """
        yield None, _dropped(self.files)


class Copies(Warm):
    """Copies of the files beside them, new ones for each run."""

    description: ClassVar[str] = (
        "a new copy of the trajectory for each run, dropped from this machine's memory"
    )

    @contextlib.contextmanager
    def ready(self) -> Iterator[tuple[list[str] | None, float]]:
        """Prepare a run.

        Yields
        ------
        files : list of str
            Copies, with their frame index; deleted afterwards.
        cached : float
            How much of them is in memory.
        """
        with contextlib.ExitStack() as stack:
            copies = [_copy(path, stack) for path in self.files]
            open_files(copies, progress=False, notes=False)
            yield copies, _dropped(copies)


def _cached(files: Sequence[str]) -> float:
    """How much of files is in memory; NaN where the system does not tell."""
    share = cached_share_of_all(files)
    return math.nan if share is None else share


def _dropped(files: Sequence[str]) -> float:
    """Drop files from memory; what stays there."""
    for path in files:
        drop_from_cache(path)
    kept = _cached(files)
    if kept > DROPPED:  # not so of NaN
        raise UnsupportedError(
            f"{files[0]}: {100 * kept:.0f} % of the trajectory stay in memory though they were "
            "dropped: it is on a file system in memory, or in use by another program"
        )
    return kept


def _copy(path: str, stack: contextlib.ExitStack) -> str:
    """A copy of a file in a folder of its own beside it."""
    folder = Path(path).absolute().parent
    room, needed = shutil.disk_usage(folder).free, os.path.getsize(path)
    if needed > room:
        raise UnsupportedError(
            f"{path}: a copy beside it takes {needed / 1e9:.1f} GB, of which {room / 1e9:.1f} GB "
            "are free"
        )
    made = tempfile.TemporaryDirectory(dir=folder, prefix=".paceline-")
    return str(shutil.copy(path, Path(stack.enter_context(made)) / Path(path).name))
