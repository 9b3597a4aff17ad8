"""H5MD files in every layout, written with plain h5py from the XTC files of the data sets.

    python -m benchmarks.h5md_files [folder] [--scale 0.01] [--only frame auto]

The path of a file is `Dataset.trajectory("frame.h5md")`, with the layout's name instead of "frame".
Files are created when first needed, under a temporary name. At full scale they need about 10 GB.
Like the 2021 paper's file, they contain positions from an XTC file, so that they compress
similarly.
"""

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from benchmarks.data import TIME_STEP, Dataset, prepare

if TYPE_CHECKING:
    import h5py

SUFFIX = "h5md"
#: Number of frames that are written together, unless chunks require another number.
BATCH = 64


#: Chunk of one frame with any number of atoms.
FRAME = (1, sys.maxsize)


@dataclass(frozen=True)
class Layout:
    """Layout of positions in a file.

    Attributes
    ----------
    title : str
        Description of chunk and filters, for tables.
    chunk : tuple of (int, int), optional
        Frames and atoms per chunk, limited by those of the file.
    grown : bool
        Append frames to an empty dataset, so that h5py chooses chunks without
        the number of frames.
    options : tuple of (str, object)
        Other arguments of h5py's `create_dataset`.
    """

    title: str
    chunk: tuple[int, int] | None = None
    grown: bool = False
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def compressed(self) -> bool:
        """True if chunks have a filter."""
        return any(name == "compression" for name, _ in self.options)

    def keywords(self, n_frames: int, n_atoms: int) -> dict[str, Any]:
        """Return arguments of h5py's `create_dataset`: shape, chunks and filters."""
        shape = {"shape": (n_frames, n_atoms, 3)}
        if self.grown:
            shape = {"shape": (0, n_atoms, 3), "maxshape": (None, n_atoms, 3)}
        chunks = {}
        if self.chunk:
            frames, atoms = self.chunk
            chunks = {"chunks": (min(frames, n_frames), min(atoms, n_atoms), 3)}
        return {**shape, **chunks, **dict(self.options)}


def _gzip(level: int, *more: tuple[str, Any]) -> tuple[tuple[str, Any], ...]:
    return ("compression", "gzip"), ("compression_opts", level), *more


#: Filters that hdf5plugin provides.
_ZSTD = ("compression", 32015), ("compression_opts", (3,))
_LZ4 = (("compression", 32004),)

LAYOUTS = {
    "contiguous": Layout("contiguous"),
    "frame": Layout("one frame", chunk=FRAME),
    "auto": Layout("automatic", options=(("chunks", True),)),
    "grown": Layout("automatic, grown", grown=True, options=(("chunks", True),)),
    "both": Layout("16 frames of 1,365 atoms", chunk=(16, 1365)),
    "atoms": Layout("64 frames of 85 atoms", chunk=(64, 85)),
    "gzip1": Layout("one frame, gzip 1", chunk=FRAME, options=_gzip(1)),
    "gzip9": Layout("one frame, gzip 9", chunk=FRAME, options=_gzip(9)),
    "shuffle-gzip": Layout(
        "one frame, shuffle + gzip 4", chunk=FRAME, options=_gzip(4, ("shuffle", True))
    ),
    "zstd": Layout("one frame, zstd 3", chunk=FRAME, options=_ZSTD),
    "shuffle-zstd": Layout(
        "one frame, shuffle + zstd 3", chunk=FRAME, options=(*_ZSTD, ("shuffle", True))
    ),
    "lz4": Layout("one frame, LZ4", chunk=FRAME, options=_LZ4),
    "shuffle-lz4": Layout(
        "one frame, shuffle + LZ4", chunk=FRAME, options=(*_LZ4, ("shuffle", True))
    ),
}


def h5md_file(data: Dataset, layout: str) -> Path:
    """Return the data set's H5MD file in this layout; create it if it is missing."""
    path = data.trajectory(f"{layout}.{SUFFIX}")
    if not path.exists():
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            _write(data, LAYOUTS[layout], unfinished)
            unfinished.rename(path)
        finally:
            unfinished.unlink(missing_ok=True)
    return path


def _write(data: Dataset, layout: Layout, path: Path) -> None:
    import h5py

    if any(option in _ZSTD + _LZ4 for option in layout.options):
        # Imported before netCDF4 (by MDAnalysis), which registers other filters under these
        # numbers.
        import hdf5plugin  # noqa: F401
    from MDAnalysis.coordinates.XTC import XTCReader

    with XTCReader(str(data.trajectory("xtc"))) as source, h5py.File(path, "w") as file:
        n_frames, n_atoms = source.n_frames, source.n_atoms
        group = _skeleton(file)
        element = group.create_group("position")
        keywords = layout.keywords(n_frames, n_atoms)
        value = element.create_dataset("value", dtype=np.float32, **keywords)
        if layout.grown:
            value.resize(n_frames, axis=0)
        value.attrs["unit"] = "Angstrom"
        _add_times(element, n_frames)
        _add_box(group, element, source.ts.triclinic_dimensions, n_frames)
        # Chunks of several frames are written once and completely.
        batch = (value.chunks or (1,))[0]
        batch *= max(1, BATCH // batch)
        for start in tqdm(range(0, n_frames, batch), path.name.strip("."), disable=None):
            frames = source[start : min(start + batch, n_frames)]
            value[start : start + len(frames)] = [ts.positions.copy() for ts in frames]


def _skeleton(file: "h5py.File") -> "h5py.Group":
    """Write the author and the creator; return the group of all particles."""
    about = file.create_group("h5md")
    about.attrs["version"] = np.array([1, 1], np.int32)
    about.create_group("author").attrs["name"] = "paceline's benchmarks"
    about.create_group("creator").attrs.update({"name": "h5py", "version": "by hand"})
    return file.create_group("particles/trajectory")


def _add_times(element: "h5py.Group", n_frames: int) -> None:
    element["step"] = np.arange(n_frames, dtype=np.int32)
    element["time"] = (np.arange(n_frames) * TIME_STEP).astype(np.float32)
    element["time"].attrs["unit"] = "ps"


def _add_box(
    group: "h5py.Group", position: "h5py.Group", vectors: np.ndarray, n_frames: int
) -> None:
    """Write the same box for every frame, as in all data sets; share the positions' steps."""
    box = group.create_group("box")
    box.attrs["dimension"] = 3
    box.attrs["boundary"] = ["periodic"] * 3
    edges = box.create_group("edges")
    edges["value"] = np.broadcast_to(vectors.astype(np.float32), (n_frames, 3, 3))
    edges["value"].attrs["unit"] = "Angstrom"
    edges["step"], edges["time"] = position["step"], position["time"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("bench-data"))
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the frames to make")
    parser.add_argument("--only", nargs="+", choices=LAYOUTS, default=LAYOUTS, help="these layouts")
    arguments = parser.parse_args()
    for dataset in prepare(arguments.folder, arguments.scale):
        for layout in arguments.only:
            path = h5md_file(dataset, layout)
            print(f"{path}: {dataset.n_frames} frames, {path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
