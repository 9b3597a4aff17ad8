"""Copy frames as bytes into other files; the kernel makes the copy if it can share disk blocks."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from paceline import _core
from paceline._util.files import is_address, writing_to
from paceline._util.machine_and_software import available_cpus
from paceline._util.os_calls import copy_in_kernel, read_at, write_at
from paceline._util.progress import Progress
from paceline.block import FrameBuffer
from paceline.contract.source import Extents, FileReader, FileSpec, TrajectoryFile, extents_in
from paceline.errors import (
    DamagedFileError,
    FileChangedError,
    PacelineError,
    ReadError,
    WorkerError,
)

#: Frames are checked each time this number of bytes was copied, while the bytes are in memory.
_BLOCK = 16 << 20
#: Maximum number of bytes per kernel call, which limits the delay before copying stops.
_CALL = 16 << 20
#: Number of bytes that are copied through this process's memory at a time. They fit into a CPU
#: cache: copying 1 MiB at a time costs 1.6 times as much per byte.
_BUFFER = 256 << 10
#: Unit of alignment, bytes. Pages of the page cache, and disk blocks, are multiples of this size.
_PAGE = 4096
#: Portions of different workers begin and end at multiples of this number of bytes.
_ALIGNED = 1 << 20
#: Maximum size of a portion, bytes.
_PORTION = 64 << 20
#: Time between two progress updates, seconds.
_INTERVAL = 0.1


def check_headers(reader: FileReader, extents: Extents) -> None:
    """Raise if a frame is damaged, as far as this is found without decoding positions."""
    headers = FrameBuffer.allocate(extents.frames, 0, ())
    try:
        reader.read(extents, headers, required=0, skip=False)
    except OSError as error:
        raise ReadError(str(error)) from error
    except DamagedFileError as error:
        advice = "nothing was written: paceline convert --on-error skip leaves it out"
        error.args = (f"{error}; {advice}",)
        raise


class _Stopped(Exception):
    """Signal to stop: another thread has failed, or the user has stopped copying."""


#: Descriptor of an open file, or the bytes of an object in a store.
Origin: TypeAlias = "int | _core.ObjectBytes"


class Copier:
    """Copies bytes in several threads, counts the bytes, and can be stopped."""

    def __init__(self) -> None:
        self.copied = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Stop every thread after its current call."""
        self._stopped.set()

    def copy(self, path: str, source: Origin, start: int, target: int, to: int, n: int) -> None:
        """Copy `n` bytes from offset `start` of file `source` to offset `to` of file `target`.

        `path` is the source's path. Raises `ReadError` or `FileChangedError` if reading the source
        fails, `OSError` without a file name if writing fails, and `_Stopped` after `stop`.
        """
        # If offsets are aligned, the kernel can share blocks between files. Otherwise copying
        # through memory is faster: 0.7 to 0.85 of the CPU time of a copy in the kernel.
        in_kernel = isinstance(source, int) and (start - to) % _PAGE == 0
        end = start + n
        if not isinstance(source, int):
            source.will_need(start, n)
        while start < end:
            moved = 0
            if in_kernel and isinstance(source, int):
                moved = copy_in_kernel(source, start, target, to, min(end - start, _CALL))
            if moved == 0:
                in_kernel = False
                moved = _through_memory(path, source, start, target, to, end - start)
            start, to = start + moved, to + moved
            self.count(moved)

    def count(self, n_bytes: int) -> None:
        """Count copied bytes; raise `_Stopped` if copying should stop."""
        with self._lock:
            self.copied += n_bytes
        if self._stopped.is_set():
            raise _Stopped


@contextlib.contextmanager
def _opened(path: str, samples: bytes) -> Iterator[Origin]:
    """Open a file, or that version of an object in an object store which `samples` identifies."""
    if is_address(path):
        yield _core.ObjectBytes(path, samples)
        return
    with open(path, "rb", buffering=0) as source:
        yield source.fileno()


def _through_memory(path: str, source: Origin, start: int, target: int, to: int, n: int) -> int:
    """Copy up to `n` bytes through this process's memory; return the number of copied bytes."""
    if not isinstance(source, int):
        return write_at(target, source.read(start, min(n, _BUFFER)), to)
    try:
        data = read_at(source, min(n, _BUFFER), start)
    except OSError as error:
        raise ReadError(f"{path}: cannot read at byte {start}: {error.strerror}") from error
    if not data:
        raise FileChangedError(f"{path}: the file ended at byte {start} while it was copied")
    return write_at(target, data, to)


class Copy(Protocol):
    """Task of one thread: copy frames into one new file."""

    @property
    def path(self) -> Path:
        """Final name of the new file."""

    @property
    def temporary(self) -> Path:
        """Current name of the new file."""

    @property
    def size(self) -> int:
        """Number of bytes to copy."""

    def copy(self, copier: Copier) -> None:
        """Copy the frames; count the copied bytes with `copier`."""


@dataclass(frozen=True)
class Hdf5Copy:
    """Copy of ranges of frames of H5MD files, one after another, as a new file, by one thread."""

    #: Path of the source, first frame, and end of each range.
    runs: Sequence[tuple[str, int, int]]
    #: Group of particles whose frames are copied; None if the file has only one.
    group: str | None
    path: Path
    temporary: Path

    @property
    def size(self) -> int:
        """Size of the frames without compression, bytes."""
        from paceline.hdf5.copy_rows import FrameRun, bytes_of

        return sum(bytes_of(FrameRun(*run, self.group)) for run in self.runs)

    def copy(self, copier: Copier) -> None:
        """Copy the frames."""
        from paceline.hdf5.copy_rows import FrameRun, write_frames

        runs = [FrameRun(*run, self.group) for run in self.runs]
        write_frames(runs, self.path, self.temporary, copier.count)


class Segment(NamedTuple):
    """The `n` bytes from offset `start` of a source file, and their offset `at` in the new file.

    `samples` contains digests of parts of the source file, which identify its version.
    """

    source: str
    samples: bytes
    start: int
    n: int
    at: int


@dataclass(frozen=True)
class FrameCopy:
    """Copy, by one thread, of consecutive frames of one file to the offset `at` of another file."""

    file: TrajectoryFile
    first: int
    stop: int
    path: Path
    temporary: Path
    at: int

    @property
    def size(self) -> int:
        """Size of the frames in the source file, bytes."""
        offsets, sizes = self.file.extents(np.array([self.first, self.stop - 1], dtype=np.uint64))
        return int(offsets[1] + sizes[1] - offsets[0])

    def copy(self, copier: Copier) -> None:
        """Copy the frames; check the header of each frame whose offset was computed, not read."""
        file, at = self.file, self.at
        reader = file.spec.open(None, 0)
        with (
            _opened(file.path, file.samples) as source,
            writing_to(self.path),
            open(self.temporary, "r+b", buffering=0) as target,
        ):
            for extents in self._blocks():
                start = int(extents.offsets[0])
                n = int(extents.offsets[-1] + extents.sizes[-1]) - start
                copier.copy(file.path, source, start, target.fileno(), at, n)
                if file.index_origin == "computed":
                    check_headers(reader, extents)
                at += n

    def between(self, first: int, stop: int) -> tuple[Segment, Extents] | None:
        """Return the bytes for these offsets of the new file, and the frames that begin in them.

        Return None if this copy has no bytes from offset `first` to `stop`.
        """
        frames = np.arange(self.first, self.stop, dtype=np.uint64)
        begin, end = max(first, self.at), min(stop, self.at + self.size)
        if begin >= end:
            return None
        start = int(self.file.extents(frames[:1])[0][0])
        offsets = self.file.extents(frames)[0] - np.uint64(start)
        inside = slice(*np.searchsorted(offsets, np.array([begin, end], "u8") - np.uint64(self.at)))
        source, samples = self.file.path, self.file.samples
        segment = Segment(source, samples, start + begin - self.at, end - begin, begin)
        return segment, extents_in(0, self.file, frames[inside])

    def _blocks(self) -> Iterator[Extents]:
        """Yield the extents of the frames in groups of about `_BLOCK` bytes."""
        frames = np.arange(self.first, self.stop, dtype=np.uint64)
        offsets, _ = self.file.extents(frames)
        borders = np.flatnonzero(np.diff((offsets - offsets[0]) // _BLOCK)) + 1
        for some in np.split(frames, borders):
            yield extents_in(0, self.file, some)


@dataclass(frozen=True)
class Portion:
    """Task of one worker: copy some bytes of frames into one new file."""

    path: Path
    temporary: Path
    segments: tuple[Segment, ...]
    #: Frames whose headers are checked after copying, with the descriptions of their source files.
    checks: tuple[tuple[FileSpec, Extents], ...]

    @property
    def size(self) -> int:
        """Number of bytes to copy."""
        return sum(segment.n for segment in self.segments)

    def copy(self, copier: Copier) -> None:
        """Copy the bytes, then check the headers of frames that begin among them."""
        with writing_to(self.path), open(self.temporary, "r+b", buffering=0) as target:
            for path, samples, start, n, at in self.segments:
                with _opened(path, samples) as source:
                    copier.copy(path, source, start, target.fileno(), at, n)
        for spec, extents in self.checks:
            check_headers(spec.open(None, 0), extents)


def in_portions(copies: Sequence[Copy], n_workers: int) -> list[Copy]:
    """Cut copies into portions for workers of several hosts; copies of H5MD files stay whole.

    Portions of a file begin and end at multiples of `_ALIGNED` bytes, because a network file system
    may lose bytes if two hosts write to one page at the same time.
    """
    whole = [copy for copy in copies if not isinstance(copy, FrameCopy)]
    by_file: dict[Path, list[FrameCopy]] = {}
    for copy in copies:
        if isinstance(copy, FrameCopy):
            by_file.setdefault(copy.temporary, []).append(copy)
    size = sum(copy.size for some in by_file.values() for copy in some) // n_workers
    step = max(min(size, _PORTION) // _ALIGNED, 1) * _ALIGNED
    cut = (portion for some in by_file.values() for portion in _portions(some, step))
    return [*whole, *cut]


def _portions(copies: Sequence[FrameCopy], step: int) -> Iterator[Portion]:
    """Divide copies to one new file at multiples of `step` bytes; `copies` are in offset order."""
    begin, end = copies[0].at, copies[-1].at + copies[-1].size
    for border in range(begin // step * step, end, step):
        segments, checks = [], []
        for copy in copies:
            found = copy.between(max(border, begin), min(border + step, end))
            if found is not None:
                segments.append(found[0])
                if len(found[1]) and copy.file.index_origin == "computed":
                    checks.append((copy.file.spec, found[1]))
        yield Portion(copies[0].path, copies[0].temporary, tuple(segments), tuple(checks))


def copy_if_seen(copy: Copy) -> bool:
    """Make a copy on a worker of any host.

    Return False without copying if the new file does not exist on the worker's host.
    """
    if not copy.temporary.exists():
        return False
    try:
        copy.copy(Copier())
    except PacelineError:
        raise
    except OSError as error:
        raise WorkerError(f"{copy.path}: {error.strerror or error}") from error
    return True


def copy_all(copies: Sequence[Copy], n_workers: int | None, progress: bool | None) -> None:
    """Copy all frames in threads; stop at the first failure."""
    if n_workers is not None and n_workers < 1:
        raise ValueError(f"n_workers must be at least 1, not {n_workers}")
    total = sum(copy.size for copy in copies)
    copier = Copier()
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


def write_head(file: TrajectoryFile, first: int, n_frames: int, path: Path, temporary: Path) -> int:
    """Write the header of a new file, which precedes its frames; return the header's length."""
    head = file.head(first, n_frames)
    with writing_to(path):
        return temporary.write_bytes(head)
