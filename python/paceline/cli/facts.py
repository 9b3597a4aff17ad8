"""What `paceline info` tells of a trajectory file."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from paceline.hdf5.file import NOTHING_ASKED, Asked
from paceline.opening import open_file, read_headers


def facts_of(path: str, asked: Asked = NOTHING_ASKED) -> Iterator[tuple[str, Any]]:
    """What a trajectory file holds.

    Parameters
    ----------
    path : str
        The file.
    asked : Asked
        What the user said of an HDF5 file.

    Yields
    ------
    (str, object)
        A heading, unit included, and the fact.
    """
    core = open_file(path, asked=asked)
    yield "file", path
    yield "format", core.format
    yield "atoms", core.n_atoms
    yield "frames", core.n_frames
    times, steps = core.times()
    known = times[np.isfinite(times)]
    yield "first time (ps)", f"{known[0]:g}" if len(known) else "-"
    yield "last time (ps)", f"{known[-1]:g}" if len(known) else "-"
    yield "time between frames (ps)", _spacing(times)
    yield "first step", steps[0] if len(steps) else "-"
    yield "cell (Å, degrees)", _cell(core)
    yield "size (bytes)", core.size
    yield "fingerprint", core.fingerprint
    yield "index", f"{core.index_origin}, {core.index_file or 'not saved'}"


def _spacing(times: np.ndarray) -> str:
    """One number where all are alike, else the least and the largest."""
    between = np.diff(times)
    between = between[np.isfinite(between)]
    if len(between) == 0:
        return "-"
    low, high = between.min(), between.max()
    # Times of XTC are 32-bit: neighbours are rounded apart by this much.
    rounding = 2 * np.spacing(np.float32(np.nanmax(np.abs(times))))
    return f"{between.mean():g}" if high - low <= rounding else f"{low:g} to {high:g}"


def _cell(core: Any) -> str:
    """Lengths and angles of the first frame's cell."""
    if core.n_frames == 0:
        return "-"
    dimensions, _, _ = read_headers(core, [0])
    if np.isnan(dimensions).any():
        return "unknown: the first frame is damaged"
    return " ".join(f"{value:g}" for value in dimensions[0]) if dimensions.any() else "none"
