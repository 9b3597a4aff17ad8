"""On every rank: Universes that all ranks open together, while only one rank can find the files.

File names are relative to the working directory of each process, which has no files on other ranks.
"""

import os
import sys
import tempfile
import warnings
from pathlib import Path

import MDAnalysis
import numpy as np
from mpi4py import MPI

import paceline

world = MPI.COMM_WORLD
folder, *systems = sys.argv[1:]
HERE = Path("/proc/self/cwd")
opened: list[str] = []


def note(event: str, arguments: tuple[object, ...]) -> None:
    """Note the files in the working directory that Python opens."""
    if event == "open" and str(arguments[0]).startswith(f"{HERE}/"):
        opened.append(str(arguments[0]))


sys.addaudithook(note)


def make(way: str, topology: Path, trajectory: list[Path]) -> MDAnalysis.Universe:
    """Open the files in one of the ways in which ranks open together."""
    if way == "universe":
        return paceline.Universe(topology, *trajectory, comm=world)
    if way == "new":
        universe = paceline.Universe(topology, comm=world)
        return universe.load_new(trajectory, comm=world)
    with paceline.register(comm=world) as registration:
        universe = MDAnalysis.Universe(topology, *trajectory)
    assert len(registration.opened) == 1
    return universe


def check(way: str, topology: Path, trajectory: list[Path]) -> None:
    """Open the files, and compare all frames with those that each rank reads alone."""
    os.chdir(folder if world.rank == 0 else empty)
    opened.clear()
    universe = make(way, topology, trajectory)
    n_opened = world.gather(len(opened))
    if world.rank == 0:
        assert n_opened[0] > 0
        assert not any(n_opened[1:]), n_opened
    first = universe.atoms.positions
    os.chdir(folder)
    own = paceline.Universe(topology, *trajectory)
    np.testing.assert_equal(first, own.atoms.positions)
    assert universe.trajectory.n_frames == own.trajectory.n_frames
    assert universe.trajectory.dt == own.trajectory.dt
    np.testing.assert_equal(universe.atoms.names, own.atoms.names)
    np.testing.assert_equal(universe.atoms.masses, own.atoms.masses)
    for ts, wanted in zip(universe.trajectory, own.trajectory, strict=True):
        assert ts.time == wanted.time
        np.testing.assert_equal(ts.positions, wanted.positions)
    np.testing.assert_equal(universe.trajectory.times(), own.trajectory.times())


warnings.simplefilter("ignore")
with tempfile.TemporaryDirectory() as empty:
    for names in systems:
        first, *others = [HERE / name for name in names.split(",")]
        for one in ("universe", "new", "register"):
            check(one, first, others)
    os.chdir(folder)
if world.rank == 0:
    print("opened together")
