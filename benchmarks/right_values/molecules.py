"""Broken molecules, chains in other images, rotated frames, and heavy hydrogens."""

import warnings
from collections.abc import Callable
from pathlib import Path

import MDAnalysis
import numpy as np
from MDAnalysis.analysis import rms
from MDAnalysis.analysis.hydrogenbonds import HydrogenBondAnalysis as BondsOfMDAnalysis
from MDAnalysisTests import datafiles

import paceline
from benchmarks.right_values.case import Found, RightValue
from benchmarks.right_values.cells import near_protein
from paceline.analysis.battery import Battery
from paceline.analysis.dssp import DSSP
from paceline.analysis.hydrogenbonds import HydrogenBondAnalysis
from paceline.analysis.rms import RMSD, RMSF

CELL = np.float32([80, 84, 90, 90, 90, 90])
BROKEN = range(3, 10)


def said(run: Callable[[], object]) -> str:
    """Call a function; return its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return "; ".join(str(one.message) for one in caught)


def whole_frames() -> np.ndarray:
    """Return 31 frames of adenylate kinase in the middle of the cell, Å."""
    universe = MDAnalysis.Universe(datafiles.PSF, datafiles.DCD)
    frames = universe.trajectory.timeseries(order="fac")[:31].astype(np.float64)
    return frames + CELL[:3] / 2 - frames.mean(axis=(0, 1))


def written(folder: Path, frames: np.ndarray) -> paceline.Universe:
    """Write frames as XTC, and open them."""
    universe = MDAnalysis.Universe(datafiles.PSF, frames.astype(np.float32))
    path = str(folder / "adk.xtc")
    with MDAnalysis.Writer(path, len(universe.atoms)) as writer:
        for ts in universe.trajectory:
            ts.dimensions = CELL
            writer.write(universe.atoms)
    return paceline.Universe(datafiles.PSF, path)


def broken(folder: Path) -> paceline.Universe:
    """Return adenylate kinase at a cell corner, wrapped atom by atom in frames 3 to 9 of 31."""
    frames = whole_frames()
    for frame in BROKEN:
        frames[frame] -= CELL[:3] / 2
        frames[frame] %= CELL[:3]
    return written(folder, frames)


def warning_of_broken(folder: Path) -> Found:
    return Found(said(RMSD(broken(folder), select="name CA").run))


def rmsd_of_a_battery(folder: Path) -> Found:
    universe = broken(folder)
    battery = Battery({"rmsd": {"select": "name CA"}}, universe).run()
    theirs = rms.RMSD(
        MDAnalysis.Universe(datafiles.PSF, universe.trajectory.filename), select="name CA"
    ).run()
    found = battery.analyses["rmsd"].results.rmsd[:, 2].max()
    return Found(float(found), float(theirs.results.rmsd[:, 2].max()))


def largest_rmsd() -> float:
    """Return the largest RMSD of the whole frames, by MDAnalysis."""
    universe = MDAnalysis.Universe(datafiles.PSF, whole_frames().astype(np.float32))
    return float(rms.RMSD(universe, select="name CA").run().results.rmsd[:, 2].max())


def warning_of_dssp(folder: Path) -> Found:
    return Found(said(DSSP(broken(folder)).run))


def warning_of_turning(folder: Path) -> Found:
    universe = MDAnalysis.Universe(datafiles.PSF, whole_frames().astype(np.float32))
    frames = []
    for k, _ in enumerate(universe.trajectory):
        universe.atoms.rotateby(7.0 * k, [0, 0, 1])
        frames.append(universe.atoms.positions)
    turning = written(folder, np.array(frames))
    return Found(said(RMSF(turning.select_atoms("name CA")).run))


def bonds_of_heavy_hydrogens(folder: Path) -> Found:
    """Count hydrogen bonds of a protein to water, with hydrogen masses of 3.024 u."""
    counts = []
    for kind, analysis in (
        (paceline.Universe, HydrogenBondAnalysis),
        (MDAnalysis.Universe, BondsOfMDAnalysis),
    ):
        universe = kind(datafiles.TPR, datafiles.XTC)
        masses = universe.atoms.masses
        for pair in universe.select_atoms("protein").bonds.indices:
            hydrogen, heavy = sorted(pair, key=masses.__getitem__)
            if masses[hydrogen] < 1.1:
                masses[[hydrogen, heavy]] += 2.016, -2.016
        universe.atoms.masses = masses
        if kind is MDAnalysis.Universe:
            universe = near_protein(universe)
        found = analysis(universe, between=["protein", "resname SOL"]).run(stop=1)
        counts.append(float(len(found.results.hbonds)))
    return Found(*counts)


def battery_of_few_bonds(folder: Path) -> Found:
    universe = MDAnalysis.Universe(datafiles.PSF, datafiles.DCD)
    for name in ("bonds", "angles", "dihedrals", "impropers"):
        universe.del_TopologyAttr(name)
    universe.add_TopologyAttr("bonds", [(10, 200)])
    universe.dimensions = [90, 90, 90, 90, 90, 90]
    universe.atoms.write(str(folder / "few.pdb"), bonds="all")
    battery = Battery.default(paceline.Universe(str(folder / "few.pdb"))).run()
    return Found(f"left out: {', '.join(battery.left_out)}; {', '.join(battery.analyses)}")


def warning_of_a_dummy_cell(folder: Path) -> Found:
    universe = MDAnalysis.Universe(datafiles.PSF, datafiles.DCD)
    with MDAnalysis.Writer(str(folder / "dummy.xtc"), len(universe.atoms)) as writer:
        for ts in universe.trajectory[:3]:
            ts.dimensions = [1, 1, 1, 90, 90, 90]
            writer.write(universe.atoms)
    dummy = paceline.Universe(datafiles.PSF, str(folder / "dummy.xtc"))
    return Found(said(RMSD(dummy, select="name CA").run))


CASES = [
    RightValue(
        "frames in which a protein is broken",
        "",
        "is broken across the cell in 7 of 31 frames, first in frame 3",
        "made so",
        warning_of_broken,
    ),
    RightValue(
        "largest RMSD of a battery, a protein broken in 7 of 31 frames",
        "Å",
        largest_rmsd(),
        "MDAnalysis, of the same frames before they were broken",
        rmsd_of_a_battery,
        0.01,
    ),
    RightValue(
        "secondary structure of broken residues",
        "",
        "DSSP needs whole molecules",
        "hydrogens are placed by plain distances",
        warning_of_dssp,
    ),
    RightValue(
        "RMSF of a protein that turns",
        "",
        "the atoms of RMSF move or rotate as a whole",
        "each frame is turned by 7° more",
        warning_of_turning,
    ),
    RightValue(
        "hydrogen bonds of a protein to water, its hydrogens of 3.024 u",
        "",
        223,
        "those with hydrogens of 1.008 u",
        bonds_of_heavy_hydrogens,
    ),
    RightValue(
        "battery of a PDB file with one bond",
        "",
        "left out: pca; rmsd",
        "bonds of standard residues are known, and one frame has no components",
        battery_of_few_bonds,
    ),
    RightValue(
        "a cell of 1 × 1 × 1 Å",
        "",
        "is the placeholder in structure files without a cell",
        "the convention of structure files",
        warning_of_a_dummy_cell,
    ),
]
