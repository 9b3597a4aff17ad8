"""On every rank: ranks that open different files, which get an error or open them separately."""

import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path

import MDAnalysis
import numpy as np
from MDAnalysis import transformations
from mpi4py import MPI

import paceline
from paceline.backends.mpi import opening
from paceline.mdanalysis.open_on_all_ranks import on_ranks

world = MPI.COMM_WORLD
topology, trajectory = sys.argv[1:3]
warnings.simplefilter("ignore")
opening.REQUIRED, opening.OPTIONAL = 1.0, 0.3


def errors(*names: str, registered: bool = False, skip: int = -1) -> list[str]:
    """Return the error of each rank that opens these files, except one rank that does not."""
    found, comm = "", None if registered else world.Dup()
    try:
        if world.rank != skip:
            MDAnalysis.Universe(*names) if registered else paceline.Universe(*names, comm=comm)
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    return world.allgather(found)


def same_error(words: str, found: list[str]) -> None:
    assert len(set(found)) == 1, found
    assert words in found[0], found


with tempfile.TemporaryDirectory() as folder:
    own = shutil.copy(trajectory, Path(folder, f"{world.rank}.dcd"))
    same_error("0.dcd, rank 1 ", errors(topology, own))
    same_error("No such file", errors(topology, "none.dcd"))
    same_error("No such file", errors("none.psf", trajectory))
    # Options differ.
    found = ""
    try:
        paceline.Universe(topology, trajectory, dt=float(world.rank), comm=world)
    except paceline.errors.UnsupportedError as error:
        found = str(error)
    same_error("with other options", world.allgather(found))
    for rank in (0, 1):
        found_by = errors(topology, trajectory, skip=rank)
        assert [text == "" for text in found_by] == [k == rank for k in range(world.size)]
        assert sum("must open the same" in text for text in found_by) == world.size - 1, found_by
    for rank in (0, 1):
        with paceline.register(comm=world):
            same_error("0.dcd, rank 1 ", errors(topology, own, registered=True))
            found_by = errors(topology, trajectory, registered=True, skip=rank)
            assert [text == "" for text in found_by] == [k == rank for k in range(world.size)]

    def names_and_frames(name: str) -> None:
        universe = MDAnalysis.Universe(topology, name)
        assert type(universe.trajectory).__name__ == "Reader"
        assert universe.trajectory.n_frames == 98

    # Ranks under --every-rank, in which a script need not open together.
    for rank in range(world.size):
        with paceline.register(), on_ranks(world, required=False):
            names_and_frames(own)
            names_and_frames(trajectory)
            if world.rank == rank:  # the others wait for it
                names_and_frames(trajectory)
            world.Barrier()
            names_and_frames(trajectory)
            world.Barrier()
    # One rank starts so late that the others no longer wait for it.
    if world.rank == 1:
        time.sleep(4 * opening.OPTIONAL)
    with paceline.register(), on_ranks(world, required=False):
        names_and_frames(trajectory)
        world.Barrier()
        names_and_frames(trajectory)
        world.Barrier()
    # A rank changes the state of its Universe.
    universe = MDAnalysis.Universe(topology, trajectory)
    moved = paceline.Universe(
        *(topology, trajectory),
        transformations=[transformations.translate([1.0, 0.0, 2.0])],
        comm=world,
    )
    expected = universe.trajectory[7].positions + np.float32([1, 0, 2])
    np.testing.assert_array_equal(moved.trajectory[7].positions, expected)
    world.Barrier()
if world.rank == 0:
    print("apart")
