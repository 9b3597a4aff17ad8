"""Make the trajectories that the benchmarks read: real frames, repeated with small random motion.

    python -m benchmarks.data [folder] [--scale 0.01]

Two sets, each as XTC and DCD with the same coordinates:

- ``adk``: adenylate kinase alone, 3,341 atoms, 98 frames of MDAnalysisTests repeated to 100,000;
- ``water``: the same protein in water, 47,681 atoms, 10 frames repeated to 2,000.

Every repeat gets fresh Gaussian noise from a fixed seed, so no two frames are equal and the files
compress as real ones do. At full scale they take about 7 GB. A set is written to a temporary
folder that is renamed when it is complete, so what bears the final name needs no checking.
"""

import argparse
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tqdm import tqdm

# MDAnalysis is imported where sets are made: processes that merely read one don't pay for it.
if TYPE_CHECKING:
    import MDAnalysis as mda

SELECTION = "protein and name CA"
NOISE = 0.05  # Å, standard deviation along each axis
SEED = 20170217
TIME_STEP = 1.0  # ps between frames
AKMA_TIME = 0.04888821  # ps in the unit in which a DCD header counts time
XTC_PRECISION = 1000  # steps a nm
DCD_BOX_ORDER = [0, 5, 1, 4, 3, 2]  # a, gamma, b, beta, alpha, c


@dataclass(frozen=True)
class Recipe:
    """Which files of MDAnalysisTests a set comes from, and its frames at full scale."""

    name: str
    topology: str
    trajectory: str
    n_frames: int
    box: tuple[float, ...] | None = None  # Å and degrees, where the original has none


RECIPES = (
    Recipe("adk", "PSF", "DCD", 100_000, box=(80.0, 80.0, 80.0, 90.0, 90.0, 90.0)),
    Recipe("water", "GRO", "XTC", 2_000),
)


@dataclass(frozen=True)
class Dataset:
    """One set on disk."""

    name: str
    n_frames: int
    folder: Path

    @property
    def topology(self) -> Path:
        return next(self.folder.glob("topology.*"))

    @property
    def atoms(self) -> Path:
        """Indices of the Cα atoms, from 0, one a line."""
        return self.folder / "ca.txt"

    @property
    def first_frame(self) -> Path:
        """The first frame as GRO, for tools that want their reference as a structure."""
        return self.folder / "first.gro"

    def trajectory(self, suffix: str) -> Path:
        """The trajectory as ``"xtc"`` or ``"dcd"``."""
        return self.folder / f"{self.name}.{suffix}"


def prepare(folder: Path, scale: float = 1.0) -> list[Dataset]:
    """Make the sets that `folder` lacks, and return all of them.

    The number of frames is part of a set's folder name, so scales don't mix.
    """
    return [_prepare(recipe, folder, max(20, round(recipe.n_frames * scale))) for recipe in RECIPES]


def _prepare(recipe: Recipe, folder: Path, n_frames: int) -> Dataset:
    name = f"{recipe.name}-{n_frames}"
    dataset = Dataset(recipe.name, n_frames, folder / name)
    if not dataset.folder.exists():
        unfinished = Dataset(recipe.name, n_frames, folder / f".{name}.{os.getpid()}")
        unfinished.folder.mkdir(parents=True)
        try:
            _write(recipe, unfinished)
            unfinished.folder.rename(dataset.folder)
        finally:
            shutil.rmtree(unfinished.folder, ignore_errors=True)
    return dataset


def _write(recipe: Recipe, dataset: Dataset) -> None:
    import MDAnalysis as mda
    from MDAnalysis.lib.formats.libdcd import DCDFile
    from MDAnalysis.lib.formats.libmdaxdr import XTCFile
    from MDAnalysis.lib.mdamath import triclinic_vectors
    from MDAnalysisTests import datafiles

    topology = Path(getattr(datafiles, recipe.topology))
    universe = mda.Universe(topology, getattr(datafiles, recipe.trajectory))
    ca = universe.select_atoms(SELECTION)
    shutil.copyfile(topology, dataset.folder / f"topology{topology.suffix}")
    np.savetxt(dataset.atoms, ca.indices, fmt="%d")
    box = np.array(recipe.box or universe.dimensions, dtype=np.float32)
    with (
        XTCFile(str(dataset.trajectory("xtc")), "w") as xtc,
        DCDFile(str(dataset.trajectory("dcd")), "w") as dcd,
    ):
        dcd.write_header(
            remarks="real frames with random motion",
            natoms=universe.atoms.n_atoms,
            istart=0,
            nsavc=1,
            delta=TIME_STEP / AKMA_TIME,
            is_periodic=1,
        )
        vectors = triclinic_vectors(box) / 10  # nm
        frames = tqdm(_frames(universe, dataset.n_frames), dataset.name, dataset.n_frames)
        for i, positions in enumerate(frames):
            xtc.write(positions / 10, vectors, i, i * TIME_STEP, XTC_PRECISION)
            dcd.write(positions, box[DCD_BOX_ORDER])
    with XTCFile(str(dataset.trajectory("xtc"))) as xtc:
        universe.atoms.positions = xtc.read().x * 10
    universe.dimensions = box
    universe.atoms.write(str(dataset.first_frame))


def _frames(universe: "mda.Universe", n_frames: int) -> Iterator[np.ndarray]:
    """Positions (atoms, 3) float32 Å: the universe's frames in turn, moved a little."""
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
        for suffix in ("xtc", "dcd"):
            path = dataset.trajectory(suffix)
            print(f"{path}: {dataset.n_frames} frames, {path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
