"""Trajectory files and their frame indexes, opened by the one process that everybody asks."""

import errno
import glob
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from paceline._util.machine import available_cpus
from paceline._util.progress import Progress
from paceline.block import Decoded
from paceline.errors import PacelineWarning
from paceline.hdf5.options import NO_OPTIONS, Hdf5Options
from paceline.hdf5.sandbox import interrupt
from paceline.hdf5.trajectory import Hdf5File, is_hdf5
from paceline.trajectory.source import IndexedFile, TrajectoryFile, extents_in

#: Packages whose lines tell a user nothing.
_INTERNAL = ("paceline", "MDAnalysis")

#: Bytes of which frames are found where a look at a long trajectory is enough.
SAMPLE = 128 << 20

#: Files that are indexed at a time: few enough for a small limit of open files.
_FILES_AT_A_TIME = 16


def warn(message: str) -> None:
    """Issue a `PacelineWarning` that points at the user's line.

    Parameters
    ----------
    message : str
        What the user should know.
    """
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _INTERNAL:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, PacelineWarning, stacklevel=level)


def cache_folder() -> Path | None:
    """Where indexes go when the trajectory's own folder cannot be written.

    Returns
    -------
    pathlib.Path or None
        `$XDG_CACHE_HOME/paceline`, by default `~/.cache/paceline`; None for a user without a home.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline"
    except RuntimeError:
        return None


def files_named(name: str | os.PathLike) -> list[str]:
    """Files that a name or a pattern stands for.

    Parameters
    ----------
    name : path-like
        A file, or a pattern of `*`, `?` and `[…]`. A file that has this very name wins.

    Returns
    -------
    list of str
        In the order in which people count: part2 before part10.

    Raises
    ------
    FileNotFoundError
        No file matches the pattern.

    Examples
    --------
    >>> files_named("md.xtc")
    ['md.xtc']
    """
    name = os.fspath(name)
    if not glob.has_magic(name) or os.path.lexists(name):
        return [name]
    found = glob.glob(name)
    if not found:
        raise FileNotFoundError(errno.ENOENT, "no file matches this pattern", name)
    # Every second piece is a number.
    return sorted(
        found,
        key=lambda path: [
            int(piece) if k % 2 else piece for k, piece in enumerate(re.split("([0-9]+)", path))
        ],
    )


def open_file(
    path: str | os.PathLike,
    *,
    asked: Hdf5Options = NO_OPTIONS,
    refresh: bool = False,
    progress: bool | None = None,
    notes: bool = True,
) -> TrajectoryFile:
    """Open a trajectory file and its frame index, which is made if there is none.

    Parameters
    ----------
    path : path-like
        A file of a format that we decode.
    asked : Hdf5Options
        What the user said of an HDF5 file.
    refresh : bool
        Make the index anew.
    progress : bool, optional
        Whether to show how far indexing has come.
    notes : bool
        Whether to warn of what the index found to be cut or damaged.

    Returns
    -------
    TrajectoryFile

    Raises
    ------
    UnsupportedError
        The file is of no format that we decode.
    DamagedFileError
        Its first frame or its header is damaged.
    OSError
        It cannot be opened.
    """
    return open_files([path], asked=asked, refresh=refresh, progress=progress, notes=notes)[0]


def open_files(
    paths: Sequence[str | os.PathLike],
    *,
    asked: Hdf5Options = NO_OPTIONS,
    refresh: bool = False,
    sampled: bool = False,
    progress: bool | None = None,
    notes: bool = True,
) -> list[TrajectoryFile]:
    """Open trajectory files and their frame indexes, several at a time.

    Parameters
    ----------
    paths : sequence of path-like
        Files. That all are there is known before any is read.
    asked : Hdf5Options
        As for `open_file`.
    refresh : bool
        As for `open_file`.
    sampled : bool
        Whether some frames in its middle are enough of a long file that has no index yet.
    progress, notes : bool
        As for `open_file`.

    Returns
    -------
    list of TrajectoryFile
        They hold no file open.

    Raises
    ------
    UnsupportedError, DamagedFileError, OSError
        As for `open_file`; of several, the error of the first file.
    """
    # Workers may have another working directory, and this process may change its own.
    names = [os.path.abspath(path) for path in paths]
    n_bytes = sum(os.stat(name).st_size for name in names)
    cpus = available_cpus()
    at_a_time = min(cpus, len(names), _FILES_AT_A_TIME)
    folder = cache_folder()
    with (
        Progress(n_bytes, unit="byte", show=progress) as bar,
        ThreadPoolExecutor(at_a_time) as threads,
    ):
        scans = _Scans(bar, n_bytes)

        def open_one(name: str) -> TrajectoryFile:
            report = scans.reporter()
            trajectory: TrajectoryFile
            if is_hdf5(name):
                trajectory = Hdf5File.open(name, asked)
            else:
                asked.refuse_for(name)
                trajectory = IndexedFile(
                    name,
                    cache_folder=None if folder is None else os.fspath(folder),
                    refresh=refresh,
                    sample=SAMPLE // len(names) if sampled else None,
                    n_threads=cpus // at_a_time,
                    progress=report,
                )
            # Nothing was scanned of a file whose index was loaded.
            report(trajectory.size, trajectory.size)
            return trajectory

        waiting = [threads.submit(open_one, name) for name in names]
        try:
            opened = [one.result() for one in waiting]
        except BaseException as error:
            scans.stop()
            if isinstance(error, KeyboardInterrupt):
                interrupt()
            threads.shutdown(cancel_futures=True)
            raise
    if notes:
        for name, trajectory in zip(names, opened, strict=True):
            for note in trajectory.notes:
                warn(f"{name}: {note}")
    return opened


class _Scans:
    """Scans of several files, shown as one, and ended together."""

    def __init__(self, bar: Progress, n_bytes: int):
        self._bar = bar
        self._n_bytes = n_bytes
        self._done = 0
        self._lock = threading.Lock()
        self._stopped = False

    def reporter(self) -> Callable[[int, int], None]:
        """What the scan of one file is to call now and then."""
        told = 0

        def report(done: int, _: int) -> None:
            nonlocal told
            if self._stopped:
                raise KeyboardInterrupt
            with self._lock:
                self._done += done - told
                told = done
                self._bar.set(self._done, self._n_bytes)

        return report

    def stop(self) -> None:
        """End all scans soon."""
        self._stopped = True


def read_headers(
    core: TrajectoryFile, frames: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cells, times and steps of frames, without their positions.

    Parameters
    ----------
    core : TrajectoryFile
        An open file.
    frames : sequence of int
        Frame numbers.

    Returns
    -------
    dimensions : numpy.ndarray of float32, shape (n_frames, 6)
        Å and degrees; NaN for a damaged frame, zeros where there is no cell.
    times : numpy.ndarray of float64, shape (n_frames,)
        ps; NaN for a damaged frame.
    steps : numpy.ndarray of int64, shape (n_frames,)
        Of the simulation.
    """
    headers = Decoded.room_for(np.asarray(frames), 0, ())
    extents = extents_in(0, core, headers.frames.astype(np.uint64))
    core.member.open(None, 0).read(extents, headers, required=0, skip=True)
    return headers.dimensions, headers.times, headers.steps
