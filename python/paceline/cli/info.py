"""Facts about a trajectory file: what `paceline info` shows."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from paceline.errors import PacelineError, UnsupportedError
from paceline.hdf5.chunk_index import ABSENT, Element
from paceline.hdf5.read_cost import advice, layout_in_words, read_costs
from paceline.hdf5.read_options import NO_OPTIONS, Hdf5Options
from paceline.hdf5.sandbox import run_in_sandbox
from paceline.hdf5.trajectory import Hdf5File, is_hdf5
from paceline.trajectory.open import open_file, read_headers


def facts_of(path: str, asked: Hdf5Options = NO_OPTIONS) -> Iterator[tuple[str, Any]]:
    """Yield headings, unit included, and facts about a trajectory file.

    `UnsupportedError` is raised where it cannot be read, or the user has to say something about it
    first; of an HDF5 file its datasets come before.
    """
    yield "file", path
    try:
        core = open_file(path, options=asked)
    except UnsupportedError:
        yield from _of_unread(path)
        raise
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
    if isinstance(core, Hdf5File):
        yield from _of_hdf5(core)
    else:
        yield "index", f"{core.index_origin}, {core.index_file or 'not saved'}"


def _of_unread(path: str) -> Iterator[tuple[str, Any]]:
    """Yield facts about an HDF5 file that was not opened as a trajectory."""
    if is_hdf5(path):
        # Others do not wait for h5py.
        from paceline.hdf5.conventions import list_tree

        yield "format", "HDF5"
        yield "size (bytes)", os.path.getsize(path)
        with contextlib.suppress(PacelineError):
            yield from run_in_sandbox(list_tree, path)


def _spacing(times: np.ndarray) -> str:
    """Time between frames: one number where all are alike, else the least and the largest."""
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


def _of_hdf5(file: Hdf5File) -> Iterator[tuple[str, Any]]:
    """Yield what an HDF5 file says about itself, its layout, and the cost of reading it."""
    index = file.chunk_index
    yield from index.facts.items()
    for name, element in index.elements.items():
        yield name, _element_in_words(element, file.n_frames, file.n_atoms)
    main = next(iter(index.elements.values()))
    costs = read_costs(main, file.n_atoms)
    yield (
        "bytes read for each used",
        ", ".join(f"{cost.access} {cost.ratio:.2g}" for cost in costs) or "unknown",
    )
    # Of other files convert makes H5MD; repack leaves it as it is.
    command = "paceline repack" if index.format == "H5MD" else "paceline convert to H5MD"
    yield "repacking", advice(costs, command=command)


def _element_in_words(element: Element, n_frames: int, n_atoms: int) -> str:
    """Describe an element: type, layout, decoder, and number of frames that have it."""
    dataset = element.dataset
    order = " big-endian" if dataset.dtype.byteorder == ">" else ""
    parts = [f"{dataset.dtype.name}{order}", layout_in_words(dataset, n_atoms)]
    if element.rows is not None and (held := int((element.rows != ABSENT).sum())) < n_frames:
        parts.append(f"in {held} frames")
    fallback = f"read through HDF5's library, slower: {dataset.h5py_fallback}"
    parts.append(fallback if dataset.h5py_fallback else "decoded by paceline")
    return ", ".join(parts)
