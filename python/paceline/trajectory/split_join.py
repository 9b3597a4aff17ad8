"""Cuts trajectories at frame borders and puts them together, by copying bytes."""

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from paceline._util.files import new_files, refuse_impossible, writing_to
from paceline._util.machine import available_cpus
from paceline._util.progress import Progress
from paceline.block import Decoded
from paceline.errors import DamagedFileError, FileChangedError, ReadError, UnsupportedError
from paceline.trajectory.chain import refuse_different, warn_of_times
from paceline.trajectory.open import files_named, open_file
from paceline.trajectory.source import Extents, FileReader, TrajectoryFile, extents_in

#: Least digits of a piece's number.
WIDTH = 3


def bounds_of(
    core: TrajectoryFile, *, n: int | None, frames: int | None, size: int | None
) -> list[int]:
    """Where to cut; one of `n`, `frames` and `size` is given.

    Parameters
    ----------
    core : TrajectoryFile
        Of at least one frame.
    n : int or None
        Number of pieces.
    frames : int or None
        Frames of a piece.
    size : int or None
        Bytes that no piece exceeds.

    Returns
    -------
    list of int
        First frame of each piece, then the end of the last.

    Raises
    ------
    ValueError
        It cannot be cut so.
    """
    given = [value for value in (n, frames, size) if value is not None]
    if len(given) != 1:
        raise ValueError(f"expected one of n, frames and size, found {len(given)} of them")
    if given[0] < 1:
        raise ValueError(f"expected n, frames or size of at least 1, found {given[0]}")
    n_frames = core.n_frames
    if frames is not None:
        return [*range(0, n_frames, frames), n_frames]
    if size is not None:
        return _bounds_by_size(core, size)
    if given[0] > n_frames:
        raise ValueError(f"{core.path}: {n_frames} frames cannot make {given[0]} pieces")
    return [k * n_frames // given[0] for k in range(given[0] + 1)]


def _bounds_by_size(core: TrajectoryFile, size: int) -> list[int]:
    offsets, sizes = core.extents(np.arange(core.n_frames, dtype=np.uint64))
    ends = offsets + sizes
    head = len(core.head(0, 1))
    bounds = [0]
    while (first := bounds[-1]) < core.n_frames:
        limit = np.uint64(max(int(offsets[first]) + size - head, 0))
        stop = int(np.searchsorted(ends, limit, side="right"))
        if stop <= first:
            alone = head + int(sizes[first])
            raise ValueError(
                f"{core.path}: frame {first} alone makes a file of {alone} bytes, more than the "
                f"{size} that a piece may have"
            )
        bounds.append(stop)
    return bounds


def names_of(core: TrajectoryFile, name: str | os.PathLike, n: int) -> list[Path]:
    """Names of pieces: in order, they are in the order of the frames.

    Parameters
    ----------
    core : TrajectoryFile
        What is cut.
    name : path-like
        ``parts/run.xtc`` for ``parts/run.000.xtc`` and so on, or a folder for the trajectory's
        own name in it.
    n : int
        How many.

    Returns
    -------
    list of pathlib.Path
        As many.

    Raises
    ------
    ValueError
        The name is that of another format.
    FileExistsError
        A file that is none of them would be taken for one.
    """
    ending = ending_of(core)
    path, whole = Path(name), Path(core.path)
    if path.is_dir():
        path = path / whole.name
    elif not (path.exists() and path.samefile(whole)):
        refuse_ending(core, path, "a folder that exists, or ")
    stem = path.stem if path.suffix.lower() == ending else path.name
    width = max(WIDTH, len(str(n - 1)))
    paths = [path.with_name(f"{stem}.{k:0{width}}{ending}") for k in range(n)]
    ours = {path.name for path in paths}
    alike = re.compile(rf"{re.escape(stem)}\.\d+{re.escape(ending)}")
    for found in sorted(os.listdir(path.parent) if path.parent.is_dir() else ()):
        if alike.fullmatch(found) and found not in ours:
            raise FileExistsError(
                f"{path.with_name(found)} would be taken for one of the {n} pieces; move it away "
                "or name another output"
            )
    return paths


def ending_of(core: TrajectoryFile) -> str:
    """How names of the format's files end.

    Parameters
    ----------
    core : TrajectoryFile
        A file of the format.

    Returns
    -------
    str
        Dot included.
    """
    return f".{core.format.lower()}"


def refuse_ending(core: TrajectoryFile, path: Path, instead: str = "") -> None:
    """Raise for a name that promises another format: other programs go by names.

    Parameters
    ----------
    core : TrajectoryFile
        Whose frames are copied.
    path : pathlib.Path
        Where to.
    instead : str
        What else could have been named.

    Raises
    ------
    ValueError
        It ends otherwise than names of the format do.
    """
    ending = ending_of(core)
    if path.suffix.lower() != ending:
        raise ValueError(
            f"{path}: expected {instead}a name that ends in {ending}: frames of {core.path} are "
            f"copied as they are, in {core.format}"
        )


#: Bytes that one call of the kernel copies at most: so soon does a copy obey when it is stopped.
CALL = 16 << 20
#: Bytes that pass through this process's memory at a time. They stay in a processor's cache: of
#: 1 MiB at a time each cost 1.6 times as much.
BUFFER = 256 << 10
#: Files are kept in pages or blocks of so many bytes, or multiples of them.
PAGE = 4096
#: Seconds between two looks at how far the copying has come.
INTERVAL = 0.1


class Stopped(Exception):
    """Another thread has failed, or the user wants no more."""


class Copier:
    """Bytes that several threads copy.

    Attributes
    ----------
    copied : int
        Bytes so far.
    """

    def __init__(self) -> None:
        self.copied = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Let every thread end after its present call."""
        self._stopped.set()

    def copy(self, path: str, source: int, start: int, target: int, to: int, n: int) -> None:
        """Copy bytes.

        Parameters
        ----------
        path : str
            Name of the source, for messages.
        source : int
            Descriptor of the open source.
        start : int
            Offset of the first byte in it.
        target : int
            Descriptor of the open target.
        to : int
            Offset of the first byte in it.
        n : int
            How many.

        Raises
        ------
        ReadError
            The system could not read the source.
        FileChangedError
            The source ends too early.
        OSError
            The system could not write; it names no file.
        Stopped
            By `stop`.
        """
        # The kernel can share a block between files where it need not be shifted. Where it must,
        # going through memory took 0.7 to 0.85 of the kernel's processor time.
        in_kernel = hasattr(os, "copy_file_range") and (start - to) % PAGE == 0
        end = start + n
        while start < end:
            if self._stopped.is_set():
                raise Stopped
            moved = _in_kernel(source, start, target, to, end - start) if in_kernel else 0
            if moved == 0:
                in_kernel = False
                moved = _through_memory(path, source, start, target, to, end - start)
            start, to = start + moved, to + moved
            with self._lock:
                self.copied += moved


def copy_all(
    works: Iterable[Callable[[Copier], None]], total: int, n_threads: int, progress: bool | None
) -> None:
    """Do all that is to be copied, or stop at the first failure.

    Parameters
    ----------
    works : iterable of callable
        Each is given the one `Copier` that all share.
    total : int
        Bytes of all of them.
    n_threads : int
        Works that are done at a time.
    progress : bool, optional
        Whether to show how far it has come.
    """
    copier = Copier()
    with (
        Progress(total, unit="byte", show=progress) as bar,
        ThreadPoolExecutor(n_threads, thread_name_prefix="paceline-copy") as pool,
    ):
        try:
            pending = {pool.submit(work, copier) for work in works}
            while pending:
                done, pending = wait(pending, INTERVAL, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                bar.set(copier.copied, total)
        except BaseException:
            copier.stop()
            pool.shutdown(cancel_futures=True)
            raise


def _in_kernel(source: int, start: int, target: int, to: int, n: int) -> int:
    """Copy some bytes, or none where the kernel cannot, whatever the reason."""
    try:
        return os.copy_file_range(source, target, min(n, CALL), start, to)
    except OSError:
        return 0


def _through_memory(path: str, source: int, start: int, target: int, to: int, n: int) -> int:
    try:
        data = os.pread(source, min(n, BUFFER), start)
    except OSError as error:
        raise ReadError(f"{path}: cannot read at byte {start}: {error.strerror}") from error
    if not data:
        raise FileChangedError(f"{path}: the file ended at byte {start} while it was copied")
    return os.pwrite(target, data, to)


#: Frames are looked at when so many bytes have been copied, which are in memory then.
BLOCK = 16 << 20


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
    """Cut a trajectory into files of neighbouring frames, without decoding it.

    One of `n`, `frames` and `size` says how. The pieces of ``traj.xtc`` are ``traj.000.xtc``,
    ``traj.001.xtc`` and so on: their names in order are the frames in order. They appear when
    all of them are complete. Of each frame no more is looked at than its header: damage among its
    packed positions is copied with them.

    Parameters
    ----------
    trajectory : path-like
        An XTC, TRR, DCD or HISTORY file.
    n : int, optional
        Number of pieces; their numbers of frames differ by at most one.
    frames : int, optional
        Frames of each piece; the last may have fewer.
    size : int, optional
        Bytes that no piece exceeds.
    output : path-like, optional
        Folder of the pieces, or a name such as ``parts/run.xtc`` for pieces
        ``parts/run.000.xtc`` and so on; by default they stand beside the trajectory.
    overwrite : bool
        Whether pieces that exist may be replaced.
    n_workers : int, optional
        Pieces that are written at a time; by default as many as this process may use CPUs.
    progress : bool, optional
        Whether to show how far it has come.

    Returns
    -------
    list of pathlib.Path
        The pieces, in the order of their frames.

    Raises
    ------
    ValueError
        The trajectory cannot be cut so.
    FileExistsError
        A piece exists and is not to be replaced, or a file would be taken for one.
    UnsupportedError
        The format's frames cannot be copied, the file has none, or it is a DCD file with fixed
        atoms.
    DamagedFileError
        A frame is damaged; there are no pieces then.
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
    core = _open(trajectory, progress)
    bounds = bounds_of(core, n=n, frames=frames, size=size)
    paths = names_of(core, trajectory if output is None else output, len(bounds) - 1)
    with new_files(paths, overwrite=overwrite) as temporaries:
        stretches = []
        for (first, stop), path, temporary in zip(
            pairwise(bounds), paths, temporaries, strict=True
        ):
            at = _write_head(core, first, stop - first, path, temporary)
            stretches.append(_Stretch(core, first, stop, path, temporary, at))
        _copy(stretches, n_workers, progress)
        core.verify()
    return paths


def join(
    trajectories: str | os.PathLike | Sequence[str | os.PathLike],
    output: str | os.PathLike,
    *,
    overwrite: bool = False,
    n_workers: int | None = None,
    progress: bool | None = None,
) -> Path:
    """Put trajectories together, one after another, without decoding them.

    All frames are kept, also those that a restart repeated: of these a warning tells. A DCD file
    keeps no times for its frames, and a warning tells where those of the whole differ from those
    of a part.

    Parameters
    ----------
    trajectories : path-like or sequence of path-like
        XTC, TRR, DCD or HISTORY files, all of one format and the same number of atoms; or patterns
        such as "md.part*.xtc", whose files are taken in the order in which people count.
    output : path-like
        The whole.
    overwrite : bool
        Whether it may be replaced where it exists.
    n_workers : int, optional
        Files that are copied at a time; by default as many as this process may use CPUs.
    progress : bool, optional
        Whether to show how far it has come.

    Returns
    -------
    pathlib.Path
        The whole.

    Raises
    ------
    FileExistsError
        The output exists and is not to be replaced.
    UnsupportedError
        The files differ in more than their frames, their frames cannot be copied, a file has
        none, or a DCD file has fixed atoms.
    DamagedFileError
        A frame is damaged; there is no output then.
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
        raise ValueError("no trajectory was given to be joined")
    output = Path(output)
    refuse_impossible(output, overwrite=overwrite)
    cores = [_open(path, progress) for path in names]
    refuse_different(cores)
    refuse_ending(cores[0], output)
    warn_of_times(cores, output)
    n_frames = sum(core.n_frames for core in cores)
    with new_files([output], overwrite=overwrite) as [temporary]:
        at = _write_head(cores[0], 0, n_frames, output, temporary)
        stretches = []
        for core in cores:
            stretch = _Stretch(core, 0, core.n_frames, output, temporary, at)
            stretches.append(stretch)
            at += stretch.size
        _copy(stretches, n_workers, progress)
        for core in cores:
            core.verify()
    return output


@dataclass(frozen=True)
class _Stretch:
    """Neighbouring frames of one file, and where in another they go: one thread copies them."""

    core: TrajectoryFile
    first: int
    stop: int
    path: Path
    temporary: Path
    at: int

    @property
    def size(self) -> int:
        """Bytes."""
        offsets, sizes = self.core.extents(np.array([self.first, self.stop - 1], dtype=np.uint64))
        return int(offsets[1] + sizes[1] - offsets[0])

    def copy(self, copier: Copier) -> None:
        """Copy the frames, and look at each of which only arithmetic says where it is."""
        core, at = self.core, self.at
        reader = core.member.open(None, 0)
        with (
            open(core.path, "rb", buffering=0) as source,
            writing_to(self.path),
            open(self.temporary, "r+b", buffering=0) as target,
        ):
            for extents in self._blocks():
                start = int(extents.offsets[0])
                n = int(extents.offsets[-1] + extents.sizes[-1]) - start
                copier.copy(core.path, source.fileno(), start, target.fileno(), at, n)
                if core.index_origin == "computed":
                    _refuse_damaged(reader, extents)
                at += n

    def _blocks(self) -> Iterator[Extents]:
        """The frames, some at a time."""
        frames = np.arange(self.first, self.stop, dtype=np.uint64)
        offsets, _ = self.core.extents(frames)
        borders = np.flatnonzero(np.diff((offsets - offsets[0]) // BLOCK)) + 1
        for some in np.split(frames, borders):
            yield extents_in(0, self.core, some)


def _copy(stretches: Sequence[_Stretch], n_workers: int | None, progress: bool | None) -> None:
    total = sum(stretch.size for stretch in stretches)
    works = [stretch.copy for stretch in stretches]
    copy_all(works, total, n_workers or available_cpus(), progress)


def _refuse_damaged(reader: FileReader, extents: Extents) -> None:
    """Let the decoder see what stands around the positions."""
    headers = Decoded.room_for(extents.frames, 0, ())
    try:
        reader.read(extents, headers, required=0, skip=False)
    except OSError as error:
        raise ReadError(str(error)) from error
    except DamagedFileError as error:
        advice = "nothing was written: paceline convert --on-error skip leaves it out"
        error.args = (f"{error}; {advice}",)
        raise


def _open(path: str | os.PathLike, progress: bool | None) -> TrajectoryFile:
    core = open_file(path, progress=progress)
    if core.n_frames == 0:
        raise UnsupportedError(f"{core.path}: there is no whole frame in it")
    core.head(0, 1)  # raises where frames cannot stand in another file
    headers = core.member.open(None, 0)
    for frame in core.damaged:
        _refuse_damaged(headers, extents_in(0, core, np.array([frame], dtype=np.uint64)))
    return core


def _write_head(
    core: TrajectoryFile, first: int, n_frames: int, path: Path, temporary: Path
) -> int:
    """Write what stands before the frames; its length."""
    head = core.head(first, n_frames)
    with writing_to(path):
        return temporary.write_bytes(head)
