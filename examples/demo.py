"""Compute the RMSD of the Cα atoms of adenylate kinase on every core: alone and in water.

The trajectories are those of MDAnalysis's own tests (package MDAnalysisTests).
"""

import sys
from pathlib import Path
from typing import NamedTuple

from MDAnalysisTests.datafiles import DCD, PSF, TPR, XTC

import paceline
from paceline.analysis.rms import RMSD


class System(NamedTuple):
    """An analysis: its files, the name of its output, and its transformations."""

    title: str
    topology: str
    trajectory: str
    name: str
    transforms: list


SYSTEMS = (
    System(
        "adenylate kinase opens (CHARMM, PSF and DCD)",
        PSF,
        DCD,
        "rmsd",
        [],
    ),
    System(
        "adenylate kinase in water (GROMACS, TPR and XTC)",
        TPR,
        XTC,
        "rmsd-water",
        # It crosses the border of the cell, and an RMSD needs whole molecules.
        [paceline.transform.unwrap()],
    ),
)


def analyse(system: System, folder: Path) -> None:
    """Print a summary; write a table and a figure of the RMSD."""
    universe = paceline.Universe(system.topology, system.trajectory)
    ca = universe.select_atoms("protein and name CA")
    print(f"{system.title}\n{len(ca)} Cα of {len(universe.atoms)} atoms\n")

    rmsd = RMSD(ca).run(transforms=system.transforms)

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
