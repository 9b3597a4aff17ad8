"""RMSD of the Cα atoms of adenylate kinase, on every core: once dry, once in water.

The trajectories are those of MDAnalysis's own tests (package MDAnalysisTests).
"""

import sys
from pathlib import Path

from MDAnalysisTests.datafiles import DCD, GRO, PSF, XTC

import paceline
from paceline.analysis.rms import RMSD

SYSTEMS = {
    "rmsd": ("adenylate kinase, closed to open (CHARMM PSF and DCD)", PSF, DCD),
    "rmsd-water": ("adenylate kinase in water (GROMACS GRO and XTC)", GRO, XTC),
}


def analyse(title: str, topology: str, trajectory: str, output: Path) -> None:
    """Print a summary; write the RMSD to output.csv and a figure of it to output.png."""
    universe = paceline.Universe(topology, trajectory)
    ca = universe.select_atoms("protein and name CA")
    print(f"{title}\n{len(ca)} of {len(universe.atoms)} atoms, {len(universe.trajectory)} frames\n")

    rmsd = RMSD(ca).run()

    values = rmsd.results.rmsd[:, 2]
    print(f"RMSD from the first frame: last {values[-1]:.3f} Å, largest {values.max():.3f} Å\n")
    print(rmsd.timings)

    table, figure = output.with_suffix(".csv"), output.with_suffix(".png")
    rmsd.results.save(table, overwrite=True)
    rmsd.results.plot().figure.savefig(figure)
    print(f"\nwrote {table} and {figure}\n")


def main(folder: Path) -> None:
    """Analyse every system."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (title, topology, trajectory) in SYSTEMS.items():
        analyse(title, topology, trajectory, folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output"))
