"""Create the trajectories of the benchmarks: real frames, repeated with small random motion.

    python -m benchmarks.data [folder] [--scale 0.01]

Two sets, each as XTC, DCD, TRR and NetCDF with the same coordinates:

- ``adk``: adenylate kinase alone, 3,341 atoms, 98 frames of MDAnalysisTests repeated to 20,000;
- ``water``: the same protein in water, 47,681 atoms, 10 frames repeated to 2,000;

A third set is for experiments with a larger system, and is created when first needed:

- ``tiled``: 111,815 atoms, 1,000 frames. It contains two copies of the second set side by side, and
  the protein and whole water molecules of a third copy; the proteins come first.

Every repeat has new Gaussian noise from a fixed seed, so that no two frames are equal and the files
compress like real ones. MDAnalysis writes the files; TRR contains box and positions, as after
``gmx trjconv``. At full scale the first two sets need about 7 GB. A set is written to a temporary
folder, which is renamed when complete. At the papers' numbers of frames the first and the third set
need about 330 and 400 GB. `benchmarks.h5md_files` creates H5MD files of a set.
"""

import argparse
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tqdm import tqdm

# MDAnalysis is imported only where sets are created, so that reading a set needs no import.
if TYPE_CHECKING:
    import MDAnalysis as mda

SELECTION = "protein and name CA"
NOISE = 0.05  # Å, standard deviation along each axis
SEED = 20170217
TIME_STEP = 1.0  # ps between frames
SHORTEST = 30  # frames: enough to be cut into pieces
SUFFIXES = ("xtc", "dcd", "trr", "nc")


@dataclass(frozen=True)
class Recipe:
    """MDAnalysisTests files of a set, and its numbers of frames: at full scale, and in a paper."""

    name: str
    topology: str
    trajectory: str
    n_frames: int
    papers: int
    box: tuple[float, ...] | None = None  # Å and degrees, where the original has none
    tiled: int | None = None  # atoms of copies side by side


RECIPES = (
    Recipe("adk", "PSF", "DCD", 20_000, 2_512_200, box=(80.0, 80.0, 80.0, 90.0, 90.0, 90.0)),
    Recipe("water", "TPR", "XTC", 2_000, 2_000),
)
TILED = Recipe("tiled", "TPR", "XTC", 1_000, 90_100, tiled=111_815)


#: Names of all trajectories.
TRAJECTORIES = [f"{recipe.name}.{suffix}" for recipe in RECIPES for suffix in SUFFIXES]


@dataclass(frozen=True)
class Dataset:
    """One set on disk."""

    name: str
    n_frames: int
    folder: Path

    @property
    def topology(self) -> Path:
        """Return atoms and bonds as PSF or TPR; for tiled copies only the atoms, as GRO."""
        return next(self.folder.glob("topology.*"))

    @property
    def atoms(self) -> Path:
        """Return the file with the indices of the Cα atoms, from 0, one per line."""
        return self.folder / "ca.txt"

    @property
    def first_frame(self) -> Path:
        """Return the first frame as GRO, for tools that read atoms from structures only."""
        return self.folder / "first.gro"

    def trajectory(self, suffix: str) -> Path:
        """Return the trajectory with one of `SUFFIXES`."""
        return self.folder / f"{self.name}.{suffix}"

    def is_complete(self) -> bool:
        """True if all files exist; a set of an older script version lacks some."""
        return all(self.trajectory(suffix).exists() for suffix in SUFFIXES)


def prepare(folder: Path, scale: float | None = 1.0) -> list[Dataset]:
    """Create missing sets in `folder`, and return all sets.

    A set's folder name contains the number of frames, so that scales do not mix. Without a scale,
    sets have the papers' numbers of frames.
    """
    return [prepare_set(recipe, folder, scale) for recipe in RECIPES]


def prepare_set(recipe: Recipe, folder: Path, scale: float | None = 1.0) -> Dataset:
    """Create one set, if `folder` lacks it."""
    whole = recipe.papers if scale is None else round(recipe.n_frames * scale)
    n_frames = max(SHORTEST, whole)
    name = f"{recipe.name}-{n_frames}"
    dataset = Dataset(recipe.name, n_frames, folder / name)
    if not dataset.is_complete():
        unfinished = Dataset(recipe.name, n_frames, folder / f".{name}.{os.getpid()}")
        unfinished.folder.mkdir(parents=True)
        try:
            _write(recipe, unfinished)
            shutil.rmtree(dataset.folder, ignore_errors=True)
            unfinished.folder.rename(dataset.folder)
        finally:
            shutil.rmtree(unfinished.folder, ignore_errors=True)
    return dataset


def _write(recipe: Recipe, dataset: Dataset) -> None:
    import MDAnalysis as mda
    from MDAnalysisTests import datafiles

    topology = Path(getattr(datafiles, recipe.topology))
    universe = mda.Universe(topology, getattr(datafiles, recipe.trajectory))
    if recipe.tiled:
        universe = _tiled(universe, recipe.tiled)
    else:
        shutil.copyfile(topology, dataset.folder / f"topology{topology.suffix}")
    np.savetxt(dataset.atoms, universe.select_atoms(SELECTION).indices, fmt="%d")
    n_atoms = len(universe.atoms)
    moved = mda.Universe.empty(n_atoms, trajectory=True)
    moved.dimensions = recipe.box or universe.dimensions
    with ExitStack() as stack:
        paths = [str(dataset.trajectory(suffix)) for suffix in SUFFIXES]
        writers = [stack.enter_context(mda.Writer(path, n_atoms, dt=TIME_STEP)) for path in paths]
        frames = tqdm(
            _frames(universe, dataset.n_frames), dataset.name, dataset.n_frames, disable=None
        )
        for i, positions in enumerate(frames):
            moved.trajectory.ts.frame = i
            moved.atoms.positions = positions
            for writer in writers:
                writer.write(moved)
    universe.load_new(str(dataset.trajectory("xtc")))
    universe.atoms.write(str(dataset.first_frame))
    if recipe.tiled:
        shutil.copyfile(dataset.first_frame, dataset.folder / "topology.gro")


def _tiled(universe: "mda.Universe", n_atoms: int) -> "mda.Universe":
    """Create copies side by side along the first box vector; cut the last; proteins first."""
    import MDAnalysis as mda

    whole, rest = divmod(n_atoms, len(universe.atoms))
    copies = [universe.atoms] * whole + [universe.atoms[:rest]]
    parts = [
        (atoms.select_atoms(words), number)
        for words in ("protein", "not protein")
        for number, atoms in enumerate(copies)
    ]
    frames = universe.trajectory.timeseries(order="fac")
    box = universe.dimensions
    positions = [frames[:, part.indices] + number * box[0] * np.eye(3)[0] for part, number in parts]
    box[0] *= len(copies)
    tiled = mda.Merge(*(part for part, _ in parts))
    return tiled.load_new(np.concatenate(positions, axis=1), dimensions=box)


def _frames(universe: "mda.Universe", n_frames: int) -> Iterator[np.ndarray]:
    """Yield positions (atoms, 3), float32, Å: frames of the universe in turn, with noise."""
    originals = universe.trajectory.timeseries(order="fac").astype(np.float32)
    random = np.random.default_rng(SEED)
    for i in range(n_frames):
        motion = random.standard_normal(originals.shape[1:], dtype=np.float32)
        yield originals[i % len(originals)] + np.float32(NOISE) * motion


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("bench-data"))
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the frames to make")
    arguments = parser.parse_args()
    for dataset in prepare(arguments.folder, arguments.scale):
        for suffix in SUFFIXES:
            path = dataset.trajectory(suffix)
            print(f"{path}: {dataset.n_frames} frames, {path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
