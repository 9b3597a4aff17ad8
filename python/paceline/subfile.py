"""Cuts trajectories at frame borders and puts them together, by copying bytes."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from paceline.backends import available_cpus
from paceline.block import Decoded
from paceline.copying import Copier, copy_all
from paceline.errors import DamagedFileError, ReadError, UnsupportedError
from paceline.files import new_files, refuse_impossible, writing_to
from paceline.frames import Extents, Hand
from paceline.indexed import TrajectoryFile, extents_in
from paceline.joining import refuse_different, warn_of_times
from paceline.opening import files_named, open_file
from paceline.pieces import bounds_of, names_of, refuse_ending

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


def _refuse_damaged(reader: Hand, extents: Extents) -> None:
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
