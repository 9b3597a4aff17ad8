"""Split trajectories at frame boundaries and join them, without decoding their frames."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from paceline._util.files import check_output, new_files, warn_of_leftovers
from paceline._util.progress import Progress
from paceline.backends.mpi import rank_calls
from paceline.contract.source import FORMATS, REMARK, TrajectoryFile, extents_in
from paceline.errors import DamagedFileError, UnsupportedError, warn
from paceline.hdf5.open_hdf5_trajectory import EXTENSIONS, Hdf5File, Hdf5Options
from paceline.trajectory.chain import Chain
from paceline.trajectory.copy_frames import (
    Copy,
    FrameCopy,
    Hdf5Copy,
    check_headers,
    copy_all,
    copy_if_seen,
    in_portions,
    write_head,
)
from paceline.trajectory.open import files_named, open_file

#: Minimum number of digits of a piece's number in its file name.
_WIDTH = 3
#: If a joined DCD file shifts a frame's time by more than this number, in units of the time between
#: frames, a warning reports it.
_TIME_ROUNDING = 1e-3
#: Maximum number of differences between two files that a message lists.
_LISTED = 5


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
    group: str | None = None,
    units: str | Mapping[str, str] | None = None,
) -> list[Path]:
    """Split a trajectory into files of consecutive frames, without decoding them.

    Exactly one of `n`, `frames` and `size` is required. The pieces of ``traj.xtc`` are
    ``traj.000.xtc``, ``traj.001.xtc`` and so on, so that sorting by name sorts by frame. The pieces
    appear when all of them are complete. Only the header of each frame is checked; damaged
    compressed positions are copied unchanged.

    Parameters
    ----------
    trajectory : path-like
        An XTC, TRR, DCD, NetCDF, HISTORY or H5MD file.
    n : int, optional
        Number of pieces; their numbers of frames differ by at most one.
    frames : int, optional
        Number of frames of each piece; the last piece may have fewer.
    size : int, optional
        Maximum size of a piece, bytes; not for H5MD.
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
    group : str, optional
        For H5MD files with several groups of particles: group whose frames are copied.
    units : str or mapping, optional
        Units of files that state none, as for `paceline.Universe`; numbers are copied as they are.

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
    file = _open(trajectory, progress, Hdf5Options(group=group, units=units))
    bounds = _bounds_of(file, n=n, frames=frames, size=size)
    paths = _names_of(file, trajectory if output is None else output, len(bounds) - 1)
    warn_of_leftovers(paths)
    with new_files(paths, overwrite=overwrite) as temporaries:
        copies: list[Copy] = []
        for (first, stop), path, temporary in zip(
            pairwise(bounds), paths, temporaries, strict=True
        ):
            copies += _copies([(file, first, stop)], path, temporary)
        _copy(copies, n_workers, progress)
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
    group: str | None = None,
    units: str | Mapping[str, str] | None = None,
) -> Path:
    """Join trajectories one after another, without decoding them.

    Without `continuous`, all frames are kept, and a warning reports frames that a restart repeated.
    A DCD file does not store the times of single frames; a warning reports if times in the joined
    file differ from those in its parts.

    Parameters
    ----------
    trajectories : path-like or sequence of path-like
        XTC, TRR, DCD, NetCDF, HISTORY or H5MD files of one format with equal numbers of atoms; or
        patterns such as "md.part*.xtc", whose files are sorted in natural order (part2 before
        part10).
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
    group : str, optional
        For H5MD files with several groups of particles: group whose frames are copied.
    units : str or mapping, optional
        Units of files that state none, as for `paceline.Universe`; numbers are copied as they are.

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
    options = Hdf5Options(group=group, units=units)
    files = [_open(path, progress, options) for path in names]
    _check_traits(files)
    _check_ending(files[0], output)
    chain = Chain(
        names, continuous=continuous, quiet=True, times_given=True, opener=lambda *_, **__: files
    )
    runs = [*chain.runs()]
    if isinstance(files[0], Hdf5File):
        _check_steps(runs, output)
    _warn_of_times(runs, output)
    warn_of_leftovers([output])
    with new_files([output], overwrite=overwrite) as [temporary]:
        _copy(_copies(runs, output, temporary), n_workers, progress)
        for file in files:
            file.verify()
    return output


def _open(path: str | os.PathLike, progress: bool | None, options: Hdf5Options) -> TrajectoryFile:
    """Open a file, and check that its frames can be copied and that none of them is damaged."""
    file = open_file(path, options=options, progress=progress)
    if file.n_frames == 0:
        raise UnsupportedError(f"{file.path}: it has no complete frame")
    if isinstance(file, Hdf5File):
        _check_copyable(file)
        return file
    file.head(0, 1)  # raises if frames cannot be copied
    reader = file.spec.open(None, 0)
    for frame in file.damaged:
        check_headers(reader, extents_in(0, file, np.array([frame], dtype=np.uint64)))
    return file


def _check_copyable(file: Hdf5File) -> None:
    """Raise if frames of an HDF5 file cannot be copied, or one is damaged."""
    if file.format != "H5MD":
        raise UnsupportedError(
            f"{file.path}: frames of {file.format} in HDF5 files cannot be copied as they are, "
            "only those of H5MD; paceline convert writes them again"
        )
    if file.damaged:
        raise DamagedFileError(
            f"{file.path}: the bytes of frame {file.damaged[0]} are not all there; nothing was "
            "written: paceline convert --on-error skip leaves it out"
        )


#: Range of frames in a file: the file, the first frame, and the end.
_Run = tuple[TrajectoryFile, int, int]


def _copies(runs: Sequence[_Run], path: Path, temporary: Path) -> list[Copy]:
    """Write the header of one new file, and return the copies that fill the file with frames.

    For HDF5, the copy also creates everything except the frames.
    """
    file, first, _ = runs[0]
    if isinstance(file, Hdf5File):
        parts = [(one.path, first, stop) for one, first, stop in runs]
        return [Hdf5Copy(parts, file.group, path, temporary)]
    n_frames = sum(stop - first for _, first, stop in runs)
    at = write_head(file, first, n_frames, path, temporary)
    copies: list[Copy] = []
    for file, first, stop in runs:
        copy = FrameCopy(file, first, stop, path, temporary, at)
        copies.append(copy)
        at += copy.size
    return copies


def _copy(copies: Sequence[Copy], n_workers: int | None, progress: bool | None) -> None:
    """Copy frames in threads, or on the other MPI ranks if they wait for work from this rank."""
    # Each worker has a fixed share (static), because a copy that is assigned to two workers would
    # be written twice at a time, which damages an HDF5 file.
    ranks = rank_calls(n_workers, static=True)
    if ranks is None:
        copy_all(copies, n_workers, progress)
        return
    portions = in_portions(copies, ranks.n_workers)
    unseen = []
    with Progress(sum(copy.size for copy in portions), unit="byte", show=progress) as bar:
        for k, seen in ranks(copy_if_seen, portions, "copying"):
            if seen:
                bar.add(portions[k].size)
            else:
                unseen.append(portions[k])
    if unseen:
        copy_all(unseen, n_workers, progress)


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
    if isinstance(file, Hdf5File):
        raise UnsupportedError(
            f"{file.path}: sizes of H5MD pieces depend on HDF5: give n (-n) or frames (--frames)"
        )
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
    """Return the names of n pieces, from a name such as ``parts/run.xtc`` or an existing folder."""
    ending = _endings_of(file)[0]
    path, whole = Path(name), Path(file.path)
    if path.is_dir():
        path = path / whole.name
    elif not (path.exists() and path.samefile(whole)):
        ending = _check_ending(file, path, "a folder that exists, or ")
    stem = path.stem if path.suffix.lower() == ending else path.name
    width = max(_WIDTH, len(str(n - 1)))
    paths = [path.with_name(f"{stem}.{k:0{width}}{ending}") for k in range(n)]
    ours = {path.name for path in paths}
    alike = re.compile(rf"{re.escape(stem)}\.\d+{re.escape(ending)}")
    for found in sorted(os.listdir(path.parent) if path.parent.is_dir() else ()):
        if alike.fullmatch(found) and found not in ours:
            raise FileExistsError(
                f"{path.with_name(found)} would be mistaken for one of the {n} pieces; move it "
                "away or name another output"
            )
    return paths


def _endings_of(file: TrajectoryFile) -> list[str]:
    """File name extensions, with dots, of the format of a file; the file's own one is first."""
    known = EXTENSIONS if isinstance(file, Hdf5File) else FORMATS[file.format].extensions
    own = Path(file.path).suffix.lower()
    return sorted((f".{name}" for name in known), key=lambda ending: ending != own)


def _check_ending(file: TrajectoryFile, path: Path, instead: str = "") -> str:
    """Return the extension of a name; raise an error if the format of `file` does not have it."""
    endings = _endings_of(file)
    if path.suffix.lower() not in endings:
        raise ValueError(
            f"{path}: expected {instead}a name that ends in {' or '.join(endings)}: frames of "
            f"{file.path} are copied unchanged, in the format {file.format}"
        )
    return path.suffix.lower()


# Joining: check that files are compatible.


def _check_traits(files: Sequence[TrajectoryFile]) -> None:
    """Raise an error if files differ in more than their frames.

    If they differ only in attributes that describe the data, warn instead.
    """
    first, *others = files
    traits = dict(first.traits)
    for other in others:
        found = dict(other.traits)
        differences = {
            name: f"{name} {traits.get(name, 'missing')} and {found.get(name, 'missing')}"
            for name in {**traits, **found}
            if traits.get(name) != found.get(name)
        }
        remarks = [differences.pop(name) for name in [*differences] if name.startswith(REMARK)]
        if differences:
            raise UnsupportedError(
                f"{first.path} and {other.path} cannot be joined: {_list_few(differences.values())}"
            )
        if remarks:
            warn(f"{first.path} and {other.path} differ; the first are kept: {_list_few(remarks)}")


def _list_few(differences: Iterable[str]) -> str:
    """List the first differences, and count the others."""
    listed = list(differences)
    more = f"; and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return "; ".join(listed[:_LISTED]) + more


def _check_steps(runs: Sequence[_Run], output: Path) -> None:
    """Raise if, in a joined H5MD file, step numbers do not increase from one part to the next."""
    latest, source = None, ""
    for file, first, stop in runs:
        steps = file.times()[1][first:stop]
        if latest is not None and steps[0] <= latest:
            raise UnsupportedError(
                f"{output}: steps of H5MD rise from frame to frame, and frame {first} of "
                f"{file.path} is of step {steps[0]}, where {source} ends with step {latest}: "
                "continuous=True (--continuous) leaves out repeated frames, and paceline convert "
                "counts steps again"
            )
        latest, source = steps[-1], file.path


def _warn_of_times(runs: Sequence[_Run], output: Path) -> None:
    """Warn if files overlap in time, or if frames get other times in the joined file."""
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
