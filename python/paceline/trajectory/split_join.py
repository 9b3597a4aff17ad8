"""Split trajectories at frame boundaries and join them, by copying bytes."""

import os
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from paceline._util.files import check_output, new_files, writing_to
from paceline._util.machine import available_cpus
from paceline._util.os_calls import copy_in_kernel, read_at, write_at
from paceline._util.progress import Progress
from paceline.block import FrameBuffer
from paceline.contract.source import (
    FORMATS,
    Extents,
    FileReader,
    TrajectoryFile,
    extents_in,
)
from paceline.errors import DamagedFileError, FileChangedError, ReadError, UnsupportedError, warn
from paceline.trajectory.chain import Chain
from paceline.trajectory.open import files_named, open_file

#: Minimum number of digits of a piece's number.
_WIDTH = 3
#: Maximum shift of a frame's time that is not reported, in units of the time between frames.
_TIME_ROUNDING = 1e-3
#: Frames are checked each time this many bytes were copied, while they are still in memory.
_BLOCK = 16 << 20
#: Maximum number of bytes per kernel call, which limits the delay before copying stops.
_CALL = 16 << 20
#: Number of bytes that are copied through this process's memory at a time. They fit into a CPU
#: cache: copying 1 MiB at a time costs 1.6 times as much per byte.
_BUFFER = 256 << 10
#: Bytes; the sizes of pages of the page cache and of disk blocks are multiples of it.
_PAGE = 4096
#: Time between two progress updates, seconds.
_INTERVAL = 0.1


def split(
    trajectory: str | os.PathLike,
    n: int | None = None,
    *,
    frames: int | None = None,
    size: int | None = None,
    output: str | os.PathLike | None = None,
    overwrite: bool = False,
    n_workers: int | None = None,
    progress: bool | None = None,
) -> list[Path]:
    """Split a trajectory into files of consecutive frames, without decoding it.

    Exactly one of `n`, `frames` and `size` is required. The pieces of ``traj.xtc`` are
    ``traj.000.xtc``, ``traj.001.xtc`` and so on, so that sorting by name sorts by frame. The pieces
    appear when all of them are complete. Only the header of each frame is checked; damaged
    compressed positions are copied unchanged.

    Parameters
    ----------
    trajectory : path-like
        An XTC, TRR, DCD or HISTORY file.
    n : int, optional
        Number of pieces; their numbers of frames differ by at most one.
    frames : int, optional
        Number of frames of each piece; the last piece may have fewer.
    size : int, optional
        Maximum size of a piece, bytes.
    output : path-like, optional
        Folder of the pieces, or a name such as ``parts/run.xtc`` for pieces
        ``parts/run.000.xtc`` and so on; by default pieces are written beside the trajectory.
    overwrite : bool
        Replace existing pieces.
    n_workers : int, optional
        Number of pieces that are written at a time; by default the number of CPUs that this process
        may use.
    progress : bool, optional
        Show a progress bar.

    Returns
    -------
    list of pathlib.Path
        The pieces, in the order of their frames.

    Raises
    ------
    ValueError
        The trajectory cannot be split in this way.
    FileExistsError
        A piece exists and `overwrite` is False, or another file could be mistaken for a piece.
    UnsupportedError
        Frames of the format cannot be copied, the file has no frames, or it is a DCD file with
        fixed atoms.
    DamagedFileError
        A frame is damaged; no pieces are written.
    OSError
        A piece cannot be written.

    Examples
    --------
    >>> import shutil, tempfile
    >>> from MDAnalysisTests.datafiles import XTC
    >>> path = shutil.copy(XTC, f"{tempfile.mkdtemp()}/adk.xtc")
    >>> for piece in split(path, 3):
    ...     print(piece.name, open_file(piece).n_frames)
    adk.000.xtc 3
    adk.001.xtc 3
    adk.002.xtc 4
    """
    file = _open(trajectory, progress)
    bounds = _bounds_of(file, n=n, frames=frames, size=size)
    paths = _names_of(file, trajectory if output is None else output, len(bounds) - 1)
    with new_files(paths, overwrite=overwrite) as temporaries:
        copies = []
        for (first, stop), path, temporary in zip(
            pairwise(bounds), paths, temporaries, strict=True
        ):
            at = _write_head(file, first, stop - first, path, temporary)
            copies.append(_FrameCopy(file, first, stop, path, temporary, at))
        _copy_all(copies, n_workers, progress)
        file.verify()
    return paths


def join(
    trajectories: str | os.PathLike | Sequence[str | os.PathLike],
    output: str | os.PathLike,
    *,
    continuous: bool = False,
    overwrite: bool = False,
    n_workers: int | None = None,
    progress: bool | None = None,
) -> Path:
    """Join trajectories one after another, without decoding them.

    All frames are kept. A warning reports frames that a restart repeated. A DCD file does not store
    the times of single frames; a warning reports if times in the joined file differ from those in
    its parts.

    Parameters
    ----------
    trajectories : path-like or sequence of path-like
        XTC, TRR, DCD or HISTORY files of one format with equal numbers of atoms; or patterns such
        as "md.part*.xtc", whose files are sorted in natural order (part2 before part10).
    output : path-like
        Joined file.
    continuous : bool
        Order the files by time, and leave out frames that a later file repeats.
    overwrite : bool
        Replace an existing output.
    n_workers : int, optional
        Number of files that are copied at a time; by default the number of CPUs that this process
        may use.
    progress : bool, optional
        Show a progress bar.

    Returns
    -------
    pathlib.Path
        Joined file.

    Raises
    ------
    FileExistsError
        The output exists and `overwrite` is False.
    UnsupportedError
        The files differ in more than their frames, their frames cannot be copied, a file has
        no frames, or a DCD file has fixed atoms.
    DamagedFileError
        A frame is damaged; no output is written.
    OSError
        The output cannot be written.

    Examples
    --------
    >>> import shutil, tempfile
    >>> from MDAnalysisTests.datafiles import XTC
    >>> folder = Path(tempfile.mkdtemp())
    >>> path = shutil.copy(XTC, folder / "adk.xtc")
    >>> whole = join(split(path, 3), folder / "again.xtc")
    >>> whole.read_bytes() == path.read_bytes()
    True
    """
    if isinstance(trajectories, str | os.PathLike):
        trajectories = [trajectories]
    names = [file for name in trajectories for file in files_named(name)]
    if not names:
        raise ValueError("no trajectories to join")
    output = Path(output)
    check_output(output, overwrite=overwrite)
    files = [_open(path, progress) for path in names]
    _check_traits(files)
    _check_ending(files[0], output)
    chain = Chain(
        names, continuous=continuous, quiet=True, times_given=True, opener=lambda *_, **__: files
    )
    runs = [*chain.runs()]
    _warn_of_times(runs, output)
    n_frames = sum(stop - first for _, first, stop in runs)
    with new_files([output], overwrite=overwrite) as [temporary]:
        file, first, _ = runs[0]
        at = _write_head(file, first, n_frames, output, temporary)
        copies = []
        for file, first, stop in runs:
            copy = _FrameCopy(file, first, stop, output, temporary, at)
            copies.append(copy)
            at += copy.size
        _copy_all(copies, n_workers, progress)
        for file in files:
            file.verify()
    return output


def _open(path: str | os.PathLike, progress: bool | None) -> TrajectoryFile:
    """Open a file whose frames can be copied, and check any frames that may be damaged."""
    file = open_file(path, progress=progress)
    if file.n_frames == 0:
        raise UnsupportedError(f"{file.path}: it has no complete frame")
    file.head(0, 1)  # raises if frames cannot be copied
    reader = file.spec.open(None, 0)
    for frame in file.damaged:
        _check_headers(reader, extents_in(0, file, np.array([frame], dtype=np.uint64)))
    return file


def _check_headers(reader: FileReader, extents: Extents) -> None:
    """Decode frames without their positions, which raises if a frame is damaged."""
    headers = FrameBuffer.allocate(extents.frames, 0, ())
    try:
        reader.read(extents, headers, required=0, skip=False)
    except OSError as error:
        raise ReadError(str(error)) from error
    except DamagedFileError as error:
        advice = "nothing was written: paceline convert --on-error skip leaves it out"
        error.args = (f"{error}; {advice}",)
        raise


# Pieces: boundaries and file names.


def _bounds_of(
    file: TrajectoryFile, *, n: int | None, frames: int | None, size: int | None
) -> list[int]:
    """Return the first frame of each piece and the end of the last, from n, frames or size."""
    given = [value for value in (n, frames, size) if value is not None]
    if len(given) != 1:
        raise ValueError(f"expected exactly one of n, frames and size, found {len(given)} of them")
    if given[0] < 1:
        raise ValueError(f"expected n, frames or size of at least 1, found {given[0]}")
    n_frames = file.n_frames
    if frames is not None:
        return [*range(0, n_frames, frames), n_frames]
    if size is not None:
        return _bounds_by_size(file, size)
    if given[0] > n_frames:
        raise ValueError(f"{file.path}: {n_frames} frames cannot make {given[0]} pieces")
    return [k * n_frames // given[0] for k in range(given[0] + 1)]


def _bounds_by_size(file: TrajectoryFile, size: int) -> list[int]:
    """Return the boundaries of pieces of at most `size` bytes."""
    offsets, sizes = file.extents(np.arange(file.n_frames, dtype=np.uint64))
    ends = offsets + sizes
    head = len(file.head(0, 1))
    bounds = [0]
    while (first := bounds[-1]) < file.n_frames:
        limit = np.uint64(max(int(offsets[first]) + size - head, 0))
        stop = int(np.searchsorted(ends, limit, side="right"))
        if stop <= first:
            alone = head + int(sizes[first])
            raise ValueError(
                f"{file.path}: frame {first} alone needs a file of {alone} bytes, more than the "
                f"maximum size {size} of a piece"
            )
        bounds.append(stop)
    return bounds


def _names_of(file: TrajectoryFile, name: str | os.PathLike, n: int) -> list[Path]:
    """Return the names of n pieces, for ``parts/run.xtc`` or an existing folder."""
    ending = _ending_of(file)
    path, whole = Path(name), Path(file.path)
    if path.is_dir():
        path = path / whole.name
    elif not (path.exists() and path.samefile(whole)):
        _check_ending(file, path, "a folder that exists, or ")
    stem = path.stem if path.suffix.lower() == ending else path.name
    width = max(_WIDTH, len(str(n - 1)))
    paths = [path.with_name(f"{stem}.{k:0{width}}{ending}") for k in range(n)]
    ours = {path.name for path in paths}
    alike = re.compile(rf"{re.escape(stem)}\.\d+{re.escape(ending)}")
    for found in sorted(os.listdir(path.parent) if path.parent.is_dir() else ()):
        if alike.fullmatch(found) and found not in ours:
            raise FileExistsError(
                f"{path.with_name(found)} would be mistaken for one of the {n} pieces; move it "
                "away "
                "or name another output"
            )
    return paths


def _ending_of(file: TrajectoryFile) -> str:
    """Return the file name extension of a file's format, including the dot."""
    return f".{FORMATS[file.format].extensions[0]}"


def _check_ending(file: TrajectoryFile, path: Path, instead: str = "") -> None:
    """Raise if a name has the extension of another format, since programs rely on extensions."""
    ending = _ending_of(file)
    if path.suffix.lower() != ending:
        raise ValueError(
            f"{path}: expected {instead}a name that ends in {ending}: frames of {file.path} are "
            f"copied unchanged, in the format {file.format}"
        )


# Joining: check that files are compatible.


def _check_traits(files: Sequence[TrajectoryFile]) -> None:
    """Raise if files differ in more than their frames."""
    first = files[0]
    for other in files[1:]:
        pairs = zip(first.traits, other.traits, strict=False)
        differences = [f"{name} {one} and {two}" for (name, one), (_, two) in pairs if one != two]
        if differences:
            raise UnsupportedError(
                f"{first.path} and {other.path} cannot be joined: {'; '.join(differences)}"
            )


#: Range of frames in a file: the file, the first frame, and the end.
_Run = tuple[TrajectoryFile, int, int]


def _warn_of_times(runs: Sequence[_Run], output: Path) -> None:
    """Warn if files overlap in time, or if the times of frames change."""
    latest, source, n_before = -np.inf, "", 0
    for file, first, stop in runs:
        if file.dt is not None:
            _warn_of_shift(file, first, runs[0], n_before, output)
        else:
            times = file.times()[0][first:stop]
            repeated = int(np.count_nonzero(times <= latest))
            if repeated:
                warn(
                    f"{file.path}: {repeated} of {file.n_frames} frames are not later than "
                    f"{latest:g} ps, where {source} ends; all of them are kept: continuous=True "
                    "(--continuous) leaves them out"
                )
            end = np.fmax.reduce(times)
            if end > latest:
                latest, source = end, file.path
        n_before += stop - first


def _warn_of_shift(
    file: TrajectoryFile, frame: int, start: _Run, n_before: int, output: Path
) -> None:
    """Warn if a frame's time changes because the frame follows `n_before` frames in the output."""
    expected, found = start[0].first + start[1] + n_before, file.first + frame
    if abs(expected - found) > _TIME_ROUNDING and file.dt is not None:
        which = f"frame {frame} of {file.path} is at" if frame else f"{file.path} begins at"
        there = "this frame is" if frame else "its first frame is"
        warn(
            f"{which} {found * file.dt:g} ps, and in {output} {there} "
            f"at {expected * file.dt:g} ps: a DCD file does not store the times of its frames"
        )


# Copying: the kernel copies bytes between files where it can share disk blocks.


class _Stopped(Exception):
    """Signal: another thread has failed, or the user has stopped copying."""


class _Copier:
    """Copies bytes in several threads, counts the bytes, and can be stopped."""

    def __init__(self) -> None:
        self.copied = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Stop every thread after its current call."""
        self._stopped.set()

    def copy(self, path: str, source: int, start: int, target: int, to: int, n: int) -> None:
        """Copy `n` bytes from offset `start` of file `source` to offset `to` of file `target`.

        `path` is the source's path. Raises `ReadError` and `FileChangedError` for the source,
        `OSError` (without a file name) for the target, and `_Stopped`.
        """
        # If offsets are aligned, the kernel can share blocks between files. Otherwise copying
        # through memory is faster: 0.7 to 0.85 of the CPU time of a copy in the kernel.
        in_kernel = (start - to) % _PAGE == 0
        end = start + n
        while start < end:
            if self._stopped.is_set():
                raise _Stopped
            moved = 0
            if in_kernel:
                moved = copy_in_kernel(source, start, target, to, min(end - start, _CALL))
            if moved == 0:
                in_kernel = False
                moved = _through_memory(path, source, start, target, to, end - start)
            start, to = start + moved, to + moved
            with self._lock:
                self.copied += moved


def _through_memory(path: str, source: int, start: int, target: int, to: int, n: int) -> int:
    """Copy bytes through this process's memory; return the number of bytes."""
    try:
        data = read_at(source, min(n, _BUFFER), start)
    except OSError as error:
        raise ReadError(f"{path}: cannot read at byte {start}: {error.strerror}") from error
    if not data:
        raise FileChangedError(f"{path}: the file ended at byte {start} while it was copied")
    return write_at(target, data, to)


@dataclass(frozen=True)
class _FrameCopy:
    """Consecutive frames of one file and their offset in another file; copied by one thread."""

    file: TrajectoryFile
    first: int
    stop: int
    path: Path
    temporary: Path
    at: int

    @property
    def size(self) -> int:
        """Size of the frames, bytes."""
        offsets, sizes = self.file.extents(np.array([self.first, self.stop - 1], dtype=np.uint64))
        return int(offsets[1] + sizes[1] - offsets[0])

    def copy(self, copier: _Copier) -> None:
        """Copy the frames; check the header of each frame whose offset was computed, not read."""
        file, at = self.file, self.at
        reader = file.spec.open(None, 0)
        with (
            open(file.path, "rb", buffering=0) as source,
            writing_to(self.path),
            open(self.temporary, "r+b", buffering=0) as target,
        ):
            for extents in self._blocks():
                start = int(extents.offsets[0])
                n = int(extents.offsets[-1] + extents.sizes[-1]) - start
                copier.copy(file.path, source.fileno(), start, target.fileno(), at, n)
                if file.index_origin == "computed":
                    _check_headers(reader, extents)
                at += n

    def _blocks(self) -> Iterator[Extents]:
        """Yield the extents of the frames in groups."""
        frames = np.arange(self.first, self.stop, dtype=np.uint64)
        offsets, _ = self.file.extents(frames)
        borders = np.flatnonzero(np.diff((offsets - offsets[0]) // _BLOCK)) + 1
        for some in np.split(frames, borders):
            yield extents_in(0, self.file, some)


def _copy_all(copies: Sequence[_FrameCopy], n_workers: int | None, progress: bool | None) -> None:
    """Copy all frames in threads; stop at the first failure."""
    if n_workers is not None and n_workers < 1:
        raise ValueError(f"n_workers must be at least 1, not {n_workers}")
    total = sum(copy.size for copy in copies)
    copier = _Copier()
    with (
        Progress(total, unit="byte", show=progress) as bar,
        ThreadPoolExecutor(
            n_workers or available_cpus(), thread_name_prefix="paceline-copy"
        ) as pool,
    ):
        try:
            pending = {pool.submit(copy.copy, copier) for copy in copies}
            while pending:
                done, pending = wait(pending, _INTERVAL, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                bar.set(copier.copied, total)
        except BaseException:
            copier.stop()
            pool.shutdown(cancel_futures=True)
            raise


def _write_head(
    file: TrajectoryFile, first: int, n_frames: int, path: Path, temporary: Path
) -> int:
    """Write the file header before the frames; return its length."""
    head = file.head(first, n_frames)
    with writing_to(path):
        return temporary.write_bytes(head)
