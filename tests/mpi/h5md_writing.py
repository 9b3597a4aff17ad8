"""On every rank: one H5MD file of the frames of all ranks equals that of one process."""

import itertools
import os
import sys
import warnings
from pathlib import Path

import h5py
import MDAnalysis as mda
import numpy as np
from mpi4py import MPI

import paceline
from paceline.mdanalysis import h5md_written_by_ranks

world = MPI.COMM_WORLD
folder = Path(sys.argv[1])
topology, trajectory = sys.argv[2:4]
N_FRAMES = 37
VALUES = "particles/trajectory/position/value"


def numbers(path: Path) -> dict[str, np.ndarray]:
    """All datasets of a file except those that describe its origin."""
    found: dict[str, np.ndarray] = {}

    def visit(name: str, one: object) -> None:
        if isinstance(one, h5py.Dataset) and not name.startswith("parameters/origin"):
            found[name] = one[()]

    with h5py.File(path) as file:
        file.visititems(visit)
        found["chunks"] = np.array([str(file[VALUES].chunks), str(file[VALUES].compression)])
    return found


def write(atoms: mda.AtomGroup, frames: slice, writer: object) -> None:
    with writer:
        for ts in atoms.universe.trajectory[:N_FRAMES][frames]:
            ts.data["energy"] = 0.5 * ts.frame
            writer.write(atoms)


def compare(atoms: mda.AtomGroup, path: Path) -> None:
    """Compare the content that readers find in a file with the source of the file."""
    theirs = mda.Universe.empty(len(atoms))
    theirs.load_new(str(path), format="H5MD")
    for universe in (theirs, paceline.Universe(str(path))):
        frames = atoms.universe.trajectory[:N_FRAMES]
        for ts, source in zip(universe.trajectory, frames, strict=True):
            np.testing.assert_array_equal(ts.positions, atoms.positions)
            assert (ts.time, ts.data["energy"]) == (source.time, 0.5 * source.frame)


def check(atoms: mda.AtomGroup, share: str, registered: bool, **options: object) -> None:
    """Write in shares of ranks, and with a single process; compare the files."""
    n = N_FRAMES
    frames = {
        "blocks": paceline.balanced_slices(n, world.size, world.rank),
        "rounds": slice(world.rank, None, world.size),
        "last": slice(None) if world.rank == world.size - 1 else slice(0),
    }[share]
    path, alone = folder / "ranks.h5md", folder / "alone.h5md"
    if registered:
        with paceline.register() as registration:
            writer = mda.Writer(str(path), len(atoms), driver="mpio", comm=world, **options)
            write(atoms, frames, writer)
        assert registration.written == [str(path)]
    else:
        write(atoms, frames, paceline.H5MDWriter(path, len(atoms), comm=world, **options))
    if world.rank == 0:
        assert path.exists()
        write(atoms, slice(None), paceline.H5MDWriter(alone, len(atoms), n_frames=n, **options))
        found, expected = numbers(path), numbers(alone)
        assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values, err_msg=name)
        if registered:
            compare(atoms, path)
        for one in (path, alone):
            os.remove(one)
    assert world.bcast(os.listdir(folder) if world.rank == 0 else None) == []


warnings.simplefilter("ignore")
# Frames wait in a temporary file, and chunks are encoded in several rounds.
h5md_written_by_ranks._WAITING = h5md_written_by_ranks._PORTION = 20_000
universe = paceline.Universe(topology, trajectory)
ca = universe.select_atoms("name CA")
LAYOUTS = [
    {},
    {"chunk": "7x100"},
    {"chunk": "contiguous"},
    {"compress": "gzip:1"},
    {"compress": "shuffle+gzip:1", "chunk": "16x100", "align": 4096},
]
for layout, share in itertools.product(LAYOUTS, ("blocks", "rounds")):
    check(ca, share, False, **layout)
check(ca, "last", False)
check(ca, "blocks", True, compression="gzip", author="Ada")
check(ca, "rounds", True)
if world.rank == 0:
    print("one file")
