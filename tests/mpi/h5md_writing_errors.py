"""On every rank: an error of one rank that writes H5MD is raised on all, and leaves no file."""

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from mpi4py import MPI

import paceline
from paceline.mdanalysis import h5md_written_by_ranks

world = MPI.COMM_WORLD
folder = Path(sys.argv[1])
universe = paceline.Universe(*sys.argv[2:4])
ca = universe.select_atoms("name CA")
last = world.rank == world.size - 1


def fails(name: str, words: str, write: Callable[[], object]) -> None:
    """Check that all ranks raise an error with these words, and that no file remains."""
    said = None
    try:
        write()
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    assert words in str(said), f"{name}, rank {world.rank}: {said}"
    assert world.bcast(os.listdir(folder)) == []


def written(change: Callable[[int], object] = lambda frame: None, **options: object) -> None:
    """Write 9 frames on each rank."""
    path = options.pop("path", folder / "out.h5md")
    with paceline.H5MDWriter(path, len(ca), comm=world, **options) as writer:
        for frame in range(9 * world.rank, 9 * world.rank + 9):
            ts = universe.trajectory[frame]
            if frame == 9 * world.size - 4:
                ts = change(frame) or ts
            writer.write(ca)


def fail(frame: int) -> None:
    raise KeyError("the script's own")


def nan(frame: int) -> None:
    universe.trajectory.ts.positions[ca.indices[7], 1] = np.nan


def again(frame: int) -> None:
    universe.trajectory.ts.data["step"] = 1000  # the step of the first frame


def velocities(frame: int) -> None:
    universe.trajectory.ts.velocities = np.zeros((universe.atoms.n_atoms, 3))


def equal() -> None:
    """Write the same frame on all ranks."""
    with paceline.H5MDWriter(folder / "out.h5md", len(ca), comm=world) as writer:
        universe.trajectory[4]
        writer.write(ca)


def unclosed() -> None:
    """Write without a `with` block."""
    writer = paceline.H5MDWriter(folder / "out.h5md", len(ca), comm=world)
    try:
        writer.write("CA" if last else ca)
    except TypeError as error:
        writer.__exit__(type(error), error, None)
        raise
    writer.close()


def unreadable() -> None:
    """Write chunks of several ranks, while the frames of the last one cannot be read again."""

    def read(*_: object) -> None:
        raise OSError(5, "the disk is broken")

    store, whole = h5md_written_by_ranks._FrameStore, h5md_written_by_ranks._FrameStore.read
    store.read = read if last else whole
    try:
        written(chunk="7x100", compress="gzip:1")
    finally:
        store.read = whole


warnings.simplefilter("ignore")
CASES = [
    ("a script's error", 'KeyError: "the script\'s own"', lambda: written(fail)),
    ("NaN", "out.h5md: frame 5: ", lambda: written(nan)),
    ("a step", "expected a step after", lambda: written(again)),
    ("equal steps", "ranks 0 and 1 both write step ", equal),
    ("an object", "TypeError: expected an AtomGroup or a Universe, found str", unclosed),
    (
        "other files",
        "b.h5md: with comm=, all ranks write one file",
        lambda: written(path=folder / ("b.h5md" if last else "a.h5md")),
    ),
    ("other options", "it with other options", lambda: written(chunk="auto" if last else "frame")),
    ("a bad option", "expected a compression", lambda: written(compress="zip" if last else "none")),
    ("no folder", "FileNotFoundError", lambda: written(path=folder / "none" / "a.h5md")),
    ("unreadable frames", "the disk is broken", unreadable),
    ("a field", "found positions, velocities", lambda: written(velocities)),
]
for case in CASES:
    fails(*case)
with paceline.H5MDWriter(folder / "none.h5md", len(ca), comm=world):
    pass
assert world.bcast(os.listdir(folder)) == []
if world.rank == 0:
    print("errors on all")
