"""RMSD of the Cα atoms of adenylate kinase, on every core: once alone, once in water.

The trajectories are those of MDAnalysis's own tests (package MDAnalysisTests).
"""

import sys
from pathlib import Path
from typing import NamedTuple

from MDAnalysisTests.datafiles import DCD, GRO, PSF, XTC

import paceline
from paceline.analysis.rms import RMSD


class System(NamedTuple):
    """What to analyse, and the name of what is written."""

    title: str
    topology: str
    trajectory: str
    select: str
    name: str


SYSTEMS = (
    System(
        "adenylate kinase opens (CHARMM, PSF and DCD)",
        PSF,
        DCD,
        "protein and name CA",
        "rmsd",
    ),
    System(
        "the CORE domain of adenylate kinase in water (GROMACS, GRO and XTC)",
        GRO,
        XTC,
        # The LID domain crosses the border of the cell, and an RMSD needs whole molecules.
        "protein and name CA and resid 1-29 60-121 160-214",
        "rmsd-water",
    ),
)


def analyse(system: System, folder: Path) -> None:
    """Print a summary; write a table and a figure of the RMSD."""
    universe = paceline.Universe(system.topology, system.trajectory)
    ca = universe.select_atoms(system.select)
    print(f"{system.title}\n{len(ca)} Cα of {len(universe.atoms)} atoms\n")

    rmsd = RMSD(ca).run()

    values = rmsd.results.rmsd[:, 2]
    print(f"RMSD from the first frame: last {values[-1]:.3f} Å, largest {values.max():.3f} Å\n")
    print(rmsd.timings)

    table, figure = folder / f"{system.name}.csv", folder / f"{system.name}.png"
    rmsd.results.save(table, overwrite=True)
    rmsd.results.save_figure(figure, overwrite=True)
    print(f"\nwrote {table} and {figure}\n")


def main(folder: Path) -> None:
    """Analyse every system."""
    folder.mkdir(parents=True, exist_ok=True)
    for system in SYSTEMS:
        analyse(system, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output"))
