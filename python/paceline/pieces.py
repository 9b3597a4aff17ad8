"""Where a trajectory is cut, and what its pieces are called."""

import os
import re
from pathlib import Path

import numpy as np

from paceline.indexed import TrajectoryFile

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
