"""Facts about a trajectory or topology file, as `paceline info` prints them."""

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from paceline import _core
from paceline._util.files import is_address
from paceline.block import dimensions_of, periodic_vectors, vectors_of
from paceline.contract.source import Requests, TrajectoryFile, deviation_from_even
from paceline.errors import PacelineError, UnsupportedError
from paceline.hdf5.chunk_index import ABSENT, Element
from paceline.hdf5.file_objects_for_h5py import open_bytes
from paceline.hdf5.open_hdf5_trajectory import NO_OPTIONS, Hdf5File, Hdf5Options, is_hdf5
from paceline.hdf5.read_cost import (
    LIBRARY_CACHES,
    advice,
    is_aligned,
    layout_in_words,
    library_cost,
    read_costs,
)
from paceline.hdf5.sandbox import run_in_sandbox
from paceline.performance.number_format import amount
from paceline.trajectory.open import open_file, read_headers

#: Lustre's program for its file systems, and the maximum time to wait for it, s.
PROGRAM, PATIENCE = "lfs", 10.0
_KIB, _MIB = 2**10, 2**20
_NAMES = ("count", "size")


@dataclass(frozen=True)
class Stripes:
    """Stripes of a file: number of storage objects that are filled in turn, and bytes per turn."""

    count: int
    size: int

    @property
    def size_text(self) -> str:
        """Number of bytes per turn as a text, in the form that --align accepts.

        Examples
        --------
        >>> Stripes(4, 2**20).size_text, Stripes(1, 65536).size_text
        ('1MiB', '64KiB')
        """
        unit, name = (_MIB, "MiB") if self.size % _MIB == 0 else (_KIB, "KiB")
        return f"{self.size // unit}{name}"

    def __str__(self) -> str:
        return f"{self.count} × {self.size_text}, Lustre"


class Fact(NamedTuple):
    """Fact about a file: heading with unit, text, and the key and value in JSON."""

    heading: str
    text: Any
    key: str
    value: Any


def facts_of(path: str, asked: Hdf5Options = NO_OPTIONS) -> Iterator[Fact]:
    """Yield facts about a trajectory file.

    Raises `UnsupportedError` if the file cannot be read, or if reading needs an option. For an
    HDF5 file, facts about the datasets are yielded before the error.
    """
    yield _fact("file", path)
    before, begun = Requests.so_far(), time.monotonic()
    try:
        core = open_file(path, options=asked)
    except UnsupportedError:
        yield from _facts_of_unread(path)
        _check_not_of_mdanalysis(path)
        raise
    yield _fact("format", core.format)
    yield _atoms(core)
    yield _fact("frames", core.n_frames)
    times, steps = core.times()
    known = times[np.isfinite(times)]
    is_known = len(known) and not core.time_doubt
    first, last = (float(known[k]) if is_known else None for k in (0, -1))
    yield Fact("first time (ps)", _number(first), "first_time_ps", first)
    yield Fact("last time (ps)", _number(last), "last_time_ps", last)
    between = [] if core.time_doubt else _spacing(times)
    text = " to ".join(f"{value:g}" for value in between) or "-"
    if core.time_doubt:
        text = f"not known: {core.time_doubt}"
    yield Fact("time between frames (ps)", text, "time_between_frames_ps", between)
    step = int(steps[0]) if len(steps) else None
    yield Fact("first step", "-" if step is None else step, "first_step", step)
    yield _cell(core)
    yield Fact("size (bytes)", core.size, "size_bytes", core.size)
    yield _fact("fingerprint", core.fingerprint)
    if is_address(path):
        yield _requests(core, before, time.monotonic() - begun)
    stripes = stripes_of(path)
    if stripes is not None:
        yield Fact("stripes", str(stripes), "stripes", asdict(stripes))
    if isinstance(core, Hdf5File):
        yield from _facts_of_hdf5(core, stripes)
    else:
        where = None if core.index_file is None else str(core.index_file)
        index = {"origin": core.index_origin, "file": where}
        yield Fact("index", f"{core.index_origin}, {where or 'not saved'}", "index", index)


def _check_not_of_mdanalysis(path: str) -> None:
    """Raise `UnsupportedError` if MDAnalysis, not paceline, reads files with this extension."""
    from paceline.analysis.validate import reader_of_mdanalysis

    if reader := reader_of_mdanalysis(path):
        raise UnsupportedError(
            f"{path}: MDAnalysis reads this format ({reader}), but paceline does not decode it: "
            "analyses and 'paceline convert' read it with a topology (-s); convert it for "
            "'paceline info' and 'paceline validate'"
        )


def facts_of_system(path: str, index: str | None = None) -> Iterator[Fact]:
    """Yield facts about a topology and its groups: default groups, or those of an index file."""
    # Import here, because facts about trajectories do not need MDAnalysis.
    from paceline.cli.universe_with_named_groups import GroupUniverse, read_index_file

    universe = GroupUniverse(path)
    if index is not None:
        universe.use_index_file(read_index_file(index, len(universe.atoms)))
    yield _fact("topology", path)
    yield _fact("atoms", len(universe.atoms))
    yield _fact("residues", len(universe.residues))
    yield _fact("segments", len(universe.segments))
    groups = [{"name": name, "atoms": n_atoms} for name, n_atoms in universe.groups()]
    numbered = enumerate(groups) if index is not None else (("", group) for group in groups)
    text = ", ".join(f"{number} {one['name']}: {one['atoms']}".strip() for number, one in numbered)
    yield Fact("groups", text, "groups", groups)


def _fact(name: str, value: object) -> Fact:
    """Make a fact: the key is the heading with underscores for blanks, the text is the value."""
    return Fact(name, value, "_".join(name.split()), value)


def _atoms(core: Any) -> Fact:
    """Make the fact about the number of atoms, or about its minimum and maximum."""
    if core.varying is None:
        return _fact("atoms", core.n_atoms)
    counts = core.atom_counts
    ends = [int(counts[counts > 0].min()), int(counts.max())]
    return Fact("atoms", f"{ends[0]} to {ends[1]}, varying from frame to frame", "atoms", ends)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _requests(core: TrajectoryFile, before: Requests, seconds: float) -> Fact:
    """Make the fact about the requests that were sent to open a file in an object store."""
    made = Requests.so_far().since(before)
    if isinstance(core, Hdf5File):
        made = Requests(*(here + helper for here, helper in zip(made, core.requests, strict=True)))
    latency = made.latency / 1e9 / max(made.sent - made.repeated, 1)
    repeated = f", {made.repeated} of them repeated" * bool(made.repeated)
    text = (
        f"{made.sent}{repeated}, {amount(made.bytes)} in {seconds:.2f} s; "
        f"{1000 * latency:.0f} ms to a response"
    )
    value = {"sent": made.sent, "repeated": made.repeated, "bytes": made.bytes}
    return Fact("requests", text, "requests", {**value, "s": seconds, "latency_s": latency})


def _facts_of_unread(path: str) -> Iterator[Fact]:
    """Yield facts about an HDF5 file that cannot be opened as a trajectory; none for others."""
    if is_hdf5(path):
        # Import here, because other formats do not need h5py.
        from paceline.hdf5.open_any_convention import list_tree

        with open_bytes(path) as file:
            size = file.seek(0, os.SEEK_END)
        yield _fact("format", "HDF5")
        yield Fact("size (bytes)", size, "size_bytes", size)
        with contextlib.suppress(PacelineError):
            for name, text in run_in_sandbox(list_tree, path):
                yield _fact(name, text)


def _spacing(times: np.ndarray) -> list[float]:
    """Time between frames, ps: one value if constant, otherwise minimum and maximum."""
    between = np.diff(times)
    between = between[np.isfinite(between)]
    if len(between) == 0:
        return []
    rows = np.flatnonzero(np.isfinite(times))
    if deviation_from_even(times[rows], rows):
        # The limits are equal if only the frames without a time are uneven.
        return list(dict.fromkeys([float(between.min()), float(between.max())]))
    return [float(between.mean())]


def _cell(core: Any) -> Fact:
    """Lengths and angles of the first frame's cell; also its vectors if the cell is rotated."""
    text, value = "none", None
    if core.n_frames == 0:
        text = "-"
    else:
        cells = read_headers(core, [0]).cells
        dimensions = dimensions_of(cells)
        if np.isnan(dimensions).any():
            text = "unknown: the first frame is damaged"
        elif dimensions.any():
            value = dimensions[0].tolist()
            text = " ".join(f"{one:g}" for one in dimensions[0])
            if not _core.upright_cells(cells)[0]:
                vectors = (" ".join(f"{x:g}" for x in one) for one in vectors_of(cells)[0])
                text += f"; vectors {', '.join(vectors)} Å"
            if not (periodic := periodic_vectors(cells)[0]).all():
                axes = ", ".join(compress("abc", periodic)) or "none"
                text += f"; periodic vectors: {axes}"
    return Fact("cell (Å, degrees)", text, "cell", value)


def _facts_of_hdf5(file: Hdf5File, stripes: Stripes | None) -> Iterator[Fact]:
    """Yield facts about an HDF5 file, its layout, and the cost of reading it."""
    index = file.chunk_index
    for name, text in index.facts.items():
        yield _fact(name, text)
    for name, element in index.elements.items():
        yield _fact(name, _element_in_words(element, file.n_frames, file.n_atoms))
    main = next(iter(index.elements.values()))
    costs = read_costs(main, file.n_atoms)
    text = ", ".join(f"{cost.access} {cost.ratio:.2g}" for cost in costs) or "unknown"
    ratios = {cost.access: float(cost.ratio) for cost in costs}
    yield Fact("bytes read for each used", text, "bytes_read_for_each_used", ratios)
    by_version = {
        version: library_cost(main, file.n_atoms, cache).ratio
        for version, cache in LIBRARY_CACHES.items()
        if costs
    }
    text = ", ".join(f"{ratio:.2g} with HDF5 {one}" for one, ratio in by_version.items())
    name = "in other programs, frame by frame"
    yield Fact(name, text or "unknown", "bytes_read_for_each_used_by_other_programs", by_version)
    # repack rewrites only H5MD; convert makes H5MD from other files.
    command = "paceline repack" if index.format == "H5MD" else "paceline convert to H5MD"
    words = advice(costs, command=command)
    if stripes is not None and not is_aligned(main.dataset, stripes.size):
        words += f"; --align {stripes.size_text} would let chunks begin at stripes"
    yield _fact("repacking", words)


def _element_in_words(element: Element, n_frames: int, n_atoms: int) -> str:
    """Describe an element: dtype, layout, decoder, and number of frames that contain it."""
    dataset = element.dataset
    order = " big-endian" if dataset.dtype.byteorder == ">" else ""
    parts = [f"{dataset.dtype.name}{order}", layout_in_words(dataset, n_atoms)]
    if element.rows is not None and (held := int((element.rows != ABSENT).sum())) < n_frames:
        parts.append(f"in {held} frames")
    fallback = f"read by the HDF5 library, which is slower: {dataset.h5py_fallback}"
    parts.append(fallback if dataset.h5py_fallback else "decoded by paceline")
    return ", ".join(parts)


def stripes_of(path: str | os.PathLike) -> Stripes | None:
    """Return the stripes of a file; None on another file system, or without Lustre's program."""
    import subprocess  # deferred: most machines have no Lustre

    program = shutil.which(PROGRAM)
    if program is None:
        return None
    command = [program, "getstripe", os.path.abspath(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_stripes(done.stdout) if done.returncode == 0 else None


def parse_stripes(text: str) -> Stripes | None:
    r"""Return the stripes in the output of `lfs getstripe`.

    The stripes of different parts of a file may differ. Returns those of the last part that is in
    use.

    Examples
    --------
    >>> parse_stripes("lmm_stripe_count:  4\nlmm_stripe_size:   1048576")
    Stripes(count=4, size=1048576)
    """
    found = None
    for part in re.split(r"^\s*lcme_id:", text, flags=re.MULTILINE):
        flags = re.search(r"lcme_flags:\s*(\S+)", part)
        count, size = (re.search(rf"lmm_stripe_{name}:\s*(\d+)", part) for name in _NAMES)
        if count and size and (flags is None or "init" in flags[1].split(",")):
            found = Stripes(int(count[1]), int(size[1]))
    return found if found and found.size else None
