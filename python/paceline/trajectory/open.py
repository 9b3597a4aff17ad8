"""Open trajectory files and their frame indexes, several at a time, and read the names of atoms."""

import errno
import functools
import glob
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from paceline import _core
from paceline._util.files import (
    check_local,
    check_local_pattern,
    is_address,
    is_confined,
    source_path,
)
from paceline._util.machine_and_software import available_cpus
from paceline._util.progress import Progress
from paceline.block import FrameBuffer
from paceline.contract.node_disk_cache import Cache
from paceline.contract.source import FORMATS, IndexedFile, TrajectoryFile, extents_in
from paceline.errors import PacelineError, UnsupportedError, warn
from paceline.hdf5.open_hdf5_trajectory import EXTENSIONS as HDF5_ENDINGS
from paceline.hdf5.open_hdf5_trajectory import NO_OPTIONS, Hdf5File, Hdf5Options, is_hdf5
from paceline.hdf5.sandbox import interrupt
from paceline.trajectory.addresses import local_copy, matching_objects, sizes_of, source_name

#: File name extensions of paceline's formats; they equal MDAnalysis's format names.
ENDINGS = {ending.upper() for format in FORMATS.values() for ending in format.extensions} | {
    ending.upper() for ending in HDF5_ENDINGS
}

#: Usual names, without extension, of files in these formats.
_FILE_NAMES = {name for format in FORMATS.values() for name in format.file_names}

#: Extensions of NetCDF files. NetCDF 4 files are HDF5 files.
_OF_NETCDF = {"nc", "ncdf"}

#: Text that is added to the warning that the last frame is truncated.
_MAY_GROW = "; the simulation may still be writing it"

#: Size below which a single file is opened in the calling thread, bytes. Its scan is so short that
#: Ctrl-C need not stop it.
_SCANNED_AT_ONCE = 2**25
#: Number of files that are indexed at a time, which limits the number of open files.
_FILES_AT_A_TIME = 16
#: Number of objects of stores that are indexed at a time. It is larger than for files, because
#: threads mostly wait for responses.
OBJECTS_AT_A_TIME = 32


def cache_folder() -> Path | None:
    """Return the folder for indexes of files in read-only folders, and for downloaded files.

    Return None without a home folder.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline"
    except RuntimeError:
        return None


def is_decoded(path: str | os.PathLike) -> bool:
    """Return True if paceline decodes the format of a file, judged by file name or content."""
    path = source_name(path)
    if Path(path).suffix[1:].upper() in ENDINGS or Path(path).name in _FILE_NAMES:
        return True
    if is_address(path):
        return _core.detect_format(path) is not None
    return os.path.isfile(path) and is_recognised(path)


def is_recognised(path: str) -> bool:
    """Return True if the content of a local file has one of paceline's formats."""
    return is_hdf5(path) or _core.detect_format(path) is not None


def with_copies(given: Any) -> Any:
    """Download files at addresses in formats that only MDAnalysis reads; return the copies' paths.

    `given` is a trajectory, or a list of trajectories. Trajectories that are not at an address, or
    that paceline decodes, are returned unchanged.
    """
    if isinstance(given, list):
        return [with_copies(one) for one in given]
    if isinstance(given, str | os.PathLike) and is_address(given) and not is_decoded(given):
        return local_copy(given, cache_folder())
    return given


def may_be_hdf5(path: str) -> bool:
    """Return False if an address has the extension of a format that is not stored in HDF5."""
    others = {ending for format in FORMATS.values() for ending in format.extensions} - _OF_NETCDF
    return not is_address(path) or Path(path).suffix[1:].lower() not in others


def files_named(name: str | os.PathLike) -> list[str]:
    """Find the files that match a name or a pattern, in natural order: part2 before part10.

    A file with exactly this name takes precedence. Names may be addresses of objects. Raises
    `FileNotFoundError` if no file matches a pattern, and `UnsupportedError` for URLs with other
    schemes.

    Examples
    --------
    >>> files_named("md.xtc")
    ['md.xtc']
    """
    name = source_name(name)
    if is_address(name):
        found = matching_objects(name)
    elif not glob.has_magic(name) or os.path.lexists(name):
        return [name]
    else:
        check_local_pattern(name)
        found = glob.glob(name)
    if not found:
        raise FileNotFoundError(errno.ENOENT, "no file matches this pattern", name)
    # Every second piece consists of digits: compare these pieces as numbers.
    return sorted(
        found,
        key=lambda path: [
            int(piece) if k % 2 else piece for k, piece in enumerate(re.split("([0-9]+)", path))
        ],
    )


def open_file(
    path: str | os.PathLike,
    **options: Any,
) -> TrajectoryFile:
    """Open one trajectory file; see `open_files`."""
    return open_files([path], **options)[0]


def open_files(
    paths: Sequence[str | os.PathLike],
    *,
    options: Hdf5Options = NO_OPTIONS,
    n_atoms: int | None = None,
    refresh: bool = False,
    open_indexed: Callable[..., TrajectoryFile] | None = None,
    cache: Cache | None = None,
    progress: bool | None = None,
    notes: bool = True,
) -> list[TrajectoryFile]:
    """Open trajectory files and their frame indexes; missing indexes are created.

    All files must exist before any file is read. `options` are those of HDF5 files, and the units
    of LAMMPS dumps. `n_atoms` is needed for formats that do not store it. `refresh` rebuilds the
    indexes. With `notes`, warnings report truncated or damaged frames. `open_indexed` replaces
    `IndexedFile`. The bytes that a scan reads from an object store are stored in `cache`. No file
    is kept open.

    Raises `UnsupportedError` for an unrecognised format, and `DamagedFileError` if the header or
    the first frame of a file is damaged. If several files have errors, the first file's is raised.
    """
    # Absolute paths, because workers may have other working directories, and this process may
    # change its own.
    names = [source_path(source_name(path)) for path in paths]
    if is_confined():
        # The index beside a file may be a link to a file outside the permitted folders. The
        # compiled module would follow the link.
        for place, name in (os.path.split(name) for name in names if not is_address(name)):
            check_local(os.path.join(place, f".{name}.paceline-index"))
    n_bytes = sum(sizes_of(names))
    cpus = available_cpus()
    at_a_time = min(cpus, _FILES_AT_A_TIME)
    if any(map(is_address, names)):
        at_a_time = OBJECTS_AT_A_TIME
    at_a_time = min(at_a_time, len(names))
    folder, kept = cache_folder(), None
    # The name of the cache's folder may contain environment variables that only other nodes define.
    with suppress(UnsupportedError):
        kept = None if cache is None else cache.here()
    with ExitStack() as stack:
        bar = stack.enter_context(Progress(n_bytes, unit="byte", show=progress))
        scans = _Scans(bar, n_bytes)
        in_hdf5 = functools.cache(lambda name: may_be_hdf5(name) and is_hdf5(name))

        def open_one(name: str) -> TrajectoryFile:
            report = scans.reporter(counted=not is_address(name))
            file: TrajectoryFile
            if in_hdf5(name):
                file = Hdf5File.open(name, options, cache_folder=folder, refresh=refresh)
            else:
                options.check_unset(name)
                file = (open_indexed or IndexedFile)(
                    name,
                    cache_folder=None if folder is None else os.fspath(folder),
                    refresh=refresh,
                    units=None if options.units is None else str(options.units),
                    n_atoms=n_atoms,
                    n_threads=max(1, cpus // at_a_time),
                    progress=report,
                    cache=kept,
                    is_one_of_many=len(names) > at_a_time,
                )
            # If the index was loaded, the file was not scanned: count all its bytes as done.
            report(file.size, file.size)
            return file

        if at_a_time == 1 and 0 < n_bytes < _SCANNED_AT_ONCE and not in_hdf5(names[0]):
            # Starting a thread would take as long as opening a short file.
            opened = [open_one(name) for name in names]
        else:
            threads = stack.enter_context(ThreadPoolExecutor(at_a_time))
            opened = _open_in_threads(open_one, names, threads, scans)
    if notes:
        for name, file in zip(names, opened, strict=True):
            for text in notes_of(name, file):
                warn(text)
    return opened


def notes_of(name: str, file: TrajectoryFile) -> Iterator[str]:
    """Yield the warnings about truncated or damaged frames of a file."""
    for note in file.notes:
        is_cut = note.startswith("frame ") and " is cut: " in note
        yield f"{name}: {note}{_MAY_GROW if is_cut else ''}"


def _open_in_threads(
    open_one: Callable[[str], TrajectoryFile],
    names: Sequence[str],
    threads: ThreadPoolExecutor,
    scans: "_Scans",
) -> list[TrajectoryFile]:
    """Open files in threads, so that Ctrl-C stops their scans."""
    waiting = [threads.submit(open_one, name) for name in names]
    try:
        return [one.result() for one in waiting]
    except BaseException as error:
        scans.stop()
        if isinstance(error, KeyboardInterrupt):
            interrupt()
        threads.shutdown(cancel_futures=True)
        raise


class _Scans:
    """Scans of several files, with one progress bar and one way to stop them."""

    def __init__(self, bar: Progress, n_bytes: int):
        self._bar = bar
        self._n_bytes = n_bytes
        self._done = 0
        self._lock = threading.Lock()
        self._stopped = False

    def reporter(self, *, counted: bool) -> Callable[[int, int], None]:
        """Create the callback that reports the progress of one file's scan.

        `counted` is true if the total number of bytes includes the size of this file; otherwise the
        first report adds it.
        """
        reported = 0

        def report(done: int, size: int) -> None:
            nonlocal counted, reported
            if self._stopped:
                raise KeyboardInterrupt
            with self._lock:
                if not counted:
                    self._n_bytes += size
                    counted = True
                self._done += done - reported
                reported = done
                self._bar.set(self._done, self._n_bytes)

        return report

    def stop(self) -> None:
        """Ask all scans to stop soon."""
        self._stopped = True


def read_headers(file: TrajectoryFile, frames: Sequence[int]) -> FrameBuffer:
    """Read cells, times and steps of frames without their positions.

    Cells and times of damaged frames are NaN.
    """
    headers = FrameBuffer.allocate(np.asarray(frames), 0, ())
    numbers = headers.frames.astype(np.uint64)
    if file.varying is None:
        extents = extents_in(0, file, numbers)
        file.spec.open(None, 0).read(extents, headers, required=0, skip=True)
        return headers
    for row in range(len(numbers)):
        rows = slice(row, row + 1)
        spec, _ = file.spec_of(int(numbers[row]))
        extents = extents_in(0, file, numbers[rows])
        spec.open(None, 0).read(extents, headers[rows], required=0, skip=True)
    return headers


#: Columns of atom and residue names in the lines of structure formats, by file name extension.
COLUMNS = {
    ".gro": {"names": slice(10, 15), "resnames": slice(5, 10)},
    ".pdb": {"names": slice(12, 16), "resnames": slice(17, 21)},
    ".ent": {"names": slice(12, 16), "resnames": slice(17, 21)},
}
#: Value of keytrj in HISTORY files whose frames are compressed and contain no names.
COMPRESSED = 3


def names_in(path: str) -> dict[str, np.ndarray]:
    """Read the atom names of the first frame, and residue names if the format has them.

    Returns arrays of str, shape (n_atoms,), with the keys "names" and "resnames". The result is
    empty if the format has no names (XTC, TRR, DCD, NetCDF, LAMMPS dumps), if the file does not
    follow its format, or for HDF5 files and objects of stores.
    """
    ending = os.path.splitext(path)[1].lower()
    if is_address(path):
        return {}
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            if ending in COLUMNS:
                lines = _lines_of_gro(file) if ending == ".gro" else _lines_of_pdb(file)
                found = list(lines)
                return {
                    label: np.array([line[columns].strip() for line in found], dtype=object)
                    for label, columns in COLUMNS[ending].items()
                }
            kind = _core.detect_format(path)
            if kind in ("HISTORY", "CONFIG"):
                return {"names": _names_of_dl_poly(file, kind)}
    except (OSError, PacelineError, ValueError, IndexError, StopIteration):
        pass  # the trajectory reader reports damage
    return {}


def _lines_of_gro(lines: Iterator[str]) -> Iterator[str]:
    """Return the atom lines of the first frame of a GRO file."""
    next(lines)
    return islice(lines, int(next(lines)))


def _lines_of_pdb(lines: Iterator[str]) -> Iterator[str]:
    """Return the atom lines of the first model of a PDB file."""
    for line in lines:
        if line.startswith(("ATOM", "HETATM")):
            yield line
        elif line.startswith(("ENDMDL", "END ", "END\n")):
            return


def _names_of_dl_poly(lines: Iterator[str], kind: str) -> np.ndarray:
    """Return the atom names of the first frame, in the order of atom numbers."""
    next(lines)
    level, periodic = (int(word) for word in next(lines).split()[:2])
    n_atoms = None
    if kind == "HISTORY":
        if level == COMPRESSED:
            return np.empty(0, dtype=object)
        frame = next(lines).split()
        n_atoms, level, periodic = int(frame[2]), int(frame[3]), int(frame[4])
    for _ in range(3 if periodic else 0):
        next(lines)
    atoms = islice(lines, 0, None if n_atoms is None else n_atoms * (level + 2), level + 2)
    words = [line.split() for line in atoms if line.strip()]
    names = np.array([one[0] for one in words], dtype=object)
    numbers = np.array([int(one[1]) if len(one) > 1 else 0 for one in words])
    order = np.argsort(numbers, kind="stable")
    return names[order] if (np.diff(numbers[order]) > 0).all() else names
