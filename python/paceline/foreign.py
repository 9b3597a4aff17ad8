"""The files behind MDAnalysis's own readers, where ours give the same of them."""

from typing import Any

import numpy as np
from MDAnalysis.coordinates.DCD import DCDReader
from MDAnalysis.coordinates.H5MD import H5MDReader
from MDAnalysis.coordinates.TRJ import NCDFReader
from MDAnalysis.coordinates.TRR import TRRReader
from MDAnalysis.coordinates.XTC import XTCReader

from paceline.block import FIELDS
from paceline.chain import Chain
from paceline.errors import DamagedFileError, FileChangedError
from paceline.frames import Clock
from paceline.reader import Reader

#: MDAnalysis's own readers of files that the core decodes, each frame by itself.
_OF_FRAMES = (XTCReader, TRRReader, DCDReader, NCDFReader)


def chain_behind(trajectory: Any) -> tuple[Chain, Clock] | None:
    """The file that one of MDAnalysis's own readers reads.

    Parameters
    ----------
    trajectory : MDAnalysis.coordinates.base.ReaderBase
        Its reader.

    Returns
    -------
    tuple of (Chain, Clock), or None
        None where we would not read the same.

    Raises
    ------
    FileChangedError
        MDAnalysis counted other frames when it opened the file.
    """
    if type(trajectory) in _OF_FRAMES and trajectory.convert_units:
        return _of_frames(trajectory)
    if type(trajectory) is H5MDReader and trajectory.convert_units:
        return _of_h5md(trajectory)
    return None


def _of_frames(trajectory: Any) -> tuple[Chain, Clock]:
    chain = Chain([trajectory.filename])
    given = trajectory._kwargs
    # Of NetCDF, MDAnalysis prefers the file's times.
    dt = None if getattr(trajectory, "has_time", False) else given.get("dt")
    if _counts(chain) != _counts(trajectory):
        raise FileChangedError(
            f"{chain.cores[0].path}: MDAnalysis opened it with {trajectory.n_frames} frames of "
            f"{trajectory.n_atoms} atoms, and {chain.n_frames} whole frames of {chain.n_atoms} "
            "were found now; open it with paceline.Universe"
        )
    return chain, Clock(chain.cores[0].first, dt, given.get("time_offset", 0.0))


def _of_h5md(trajectory: Any) -> tuple[Chain, Clock] | None:
    """A file of H5MD, if some frames are the same: MDAnalysis pairs elements by their rows."""
    if not isinstance(trajectory.filename, str):
        return None
    group = trajectory._particle_group.name.rpartition("/")[2]
    ours = Reader(trajectory.filename, group=group, **_offset(trajectory))
    same = _counts(ours) == _counts(trajectory) and _are_same(ours, trajectory)
    return (ours.chain, ours.clock) if same else None


def _offset(trajectory: Any) -> dict[str, float]:
    given = trajectory._kwargs
    return {"time_offset": given["time_offset"]} if "time_offset" in given else {}


def _counts(frames: Any) -> tuple[int, int]:
    return frames.n_frames, frames.n_atoms


def _are_same(ours: Any, theirs: Any) -> bool:
    """Whether two readers give the same at the beginning, in the middle and at the end."""
    present = theirs.frame
    try:
        for frame in {0, ours.n_frames // 2, ours.n_frames - 1}:
            held, shown = numbers_of(ours[frame]), numbers_of(theirs[frame])
            if held.keys() != shown.keys() or ours.ts.time != theirs.ts.time:
                return False
            if not all(np.array_equal(held[name], shown[name]) for name in held):
                return False
    except DamagedFileError:
        return False
    finally:
        theirs[present]
    return True


def numbers_of(ts: Any) -> dict[str, np.ndarray]:
    """What a Timestep holds.

    Parameters
    ----------
    ts : MDAnalysis.coordinates.timestep.Timestep
        The Timestep.

    Returns
    -------
    dict of str to numpy.ndarray
        Copies, for it will be filled anew.
    """
    names = [field for field in FIELDS if getattr(ts, f"has_{field}")]
    if ts.dimensions is not None:
        names.append("dimensions")
    return {name: getattr(ts, name).copy() for name in names}
