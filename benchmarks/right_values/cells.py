"""Cells: images after a rotation, orientations, boundaries, corners, and skewed vectors."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import MDAnalysis
import numpy as np
from MDAnalysis.analysis import msd as msd_of_mdanalysis
from MDAnalysis.analysis.hydrogenbonds import HydrogenBondAnalysis as TheirBonds
from MDAnalysis.lib.distances import calc_bonds
from MDAnalysis.lib.formats.libmdaxdr import TRRFile
from MDAnalysis.transformations import fit_rot_trans
from MDAnalysis.transformations import unwrap as their_unwrap
from MDAnalysisTests.datafiles import GRO, TPR, XTC

import paceline
from benchmarks.right_values.case import Found, RightValue
from paceline.analysis.distances import AtomicDistances
from paceline.analysis.hydrogenbonds import HydrogenBondAnalysis
from paceline.analysis.msd import EinsteinMSD
from paceline.analysis.rdf import InterRDF
from paceline.transform import fit, unwrap

FCC = np.array([[0.0, 10, 10], [10, 0, 10], [10, 10, 0]])
SKEWED = np.array([[10.0, 0, 0], [29, 10, 0], [-25, 12, 10]])
CUBE = np.diag([20.0, 20, 20])
BETWEEN = ["protein", "resname SOL"]


def bare(n_atoms: int, path: Path) -> Iterator[MDAnalysis.Universe]:
    """Open a file without atom names, with paceline and with MDAnalysis."""
    for kind in (paceline.Universe, MDAnalysis.Universe):
        topology = MDAnalysis.Universe.empty(n_atoms, trajectory=True)._topology
        yield kind(topology, str(path))


def distances(path: Path) -> Found:
    """Return the distance between two atoms in paceline and MDAnalysis."""
    ours, theirs = bare(2, path)
    first, second = ours.atoms[:1], ours.atoms[1:]
    found = AtomicDistances(first, second).run(stop=1).results.distances[0, 0]
    by_them = calc_bonds(*theirs.atoms.positions, box=theirs.dimensions)
    return Found(float(found), float(by_them))


def in_box(vectors: np.ndarray, atoms: np.ndarray) -> Callable[[Path], Found]:
    """Create a function that finds the distance of two atoms in a TRR file with this box, Å."""

    def compute(folder: Path) -> Found:
        path = folder / "box.trr"
        with TRRFile(str(path), "w") as file:
            file.write(np.float32(atoms / 10), None, None, np.float32(vectors / 10), 0, 0, 0, 2)
        return distances(path)

    return compute


def dump(path: Path, frames: list, bounds: list, boundary: str, columns: str = "x y z") -> Path:
    """Write a LAMMPS dump."""
    lines: list[str] = []
    for k, (frame, rows) in enumerate(zip(frames, bounds, strict=True)):
        lines += ["ITEM: TIMESTEP", f"{k}", "ITEM: NUMBER OF ATOMS", f"{len(frame)}"]
        lines.append(f"ITEM: BOX BOUNDS {boundary}")
        lines += [f"{low:.9g} {high:.9g}" for low, high in rows]
        lines.append(f"ITEM: ATOMS id type {columns}")
        lines += [f"{i + 1} 1 {x:.9g} {y:.9g} {z:.9g}" for i, (x, y, z) in enumerate(frame)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def in_slab(boundary: str) -> Callable[[Path], Found]:
    """Create a function that finds a distance of 19 Å in a 20 Å box with this boundary."""

    def compute(folder: Path) -> Found:
        atoms = [[5, 5, 0.5], [5, 5, 19.5]]
        return distances(dump(folder / "slab.lammpsdump", [atoms], [[[0, 20]] * 3], boundary))

    return compute


def at_rest(columns: str) -> Callable[[Path], Found]:
    """Create a function that finds the MSD of atoms at rest while the cell corner moves, Å²."""

    def compute(folder: Path) -> Found:
        frame = np.random.default_rng(4).uniform(5, 15, (20, 3))
        bounds = [[[-move, 20 + move]] * 3 for move in (0.0, 0.6, -0.9, 0.3)]
        frames = [
            (frame + rows[0][1] - 20) / (rows[0][1] - rows[0][0])
            if columns == "xs ys zs"
            else frame
            for rows in bounds
        ]
        path = dump(folder / "npt.lammpsdump", frames, bounds, "pp pp pp", columns)
        ours, theirs = bare(20, path)
        found = EinsteinMSD(ours.atoms, unwrap=None).run().results.timeseries
        by_them = msd_of_mdanalysis.EinsteinMSD(theirs, fft=False).run().results.timeseries
        return Found(float(found.max()), float(np.max(by_them)))

    return compute


def near_protein(universe: MDAnalysis.Universe) -> MDAnalysis.Universe:
    """Copy the current frame of a protein and the water within 5 Å.

    MDAnalysis looks up the bonds of each hydrogen, which takes 5 s for 11,084 molecules of water.
    """
    water = "byres (resname SOL and around 5 protein)"
    near = MDAnalysis.Merge(universe.select_atoms(f"protein or {water}"))
    near.dimensions = universe.dimensions
    return near


def bonds_after_fit(folder: Path) -> Found:
    """Count protein–water hydrogen bonds in the first frame after superposition."""
    del folder
    ours = paceline.Universe(TPR, XTC)
    counted = HydrogenBondAnalysis(ours, between=BETWEEN)
    counted.run(stop=1, transforms=[unwrap("protein"), fit("protein and name CA")])
    theirs, reference = MDAnalysis.Universe(TPR, XTC), MDAnalysis.Universe(TPR, GRO)
    theirs.trajectory.add_transformations(
        their_unwrap(theirs.select_atoms("protein")),
        fit_rot_trans(theirs.select_atoms("name CA"), reference.select_atoms("name CA")),
    )
    theirs.trajectory[1]
    by_them = TheirBonds(near_protein(theirs), between=BETWEEN).run()
    second = HydrogenBondAnalysis(ours, between=BETWEEN)
    second.run(start=1, stop=2, transforms=[unwrap("protein"), fit("protein and name CA")])
    return Found(float(second.count_by_time()[0]), float(by_them.count_by_time()[0]))


def near_pairs_after_fit(folder: Path) -> Found:
    """Count pairs of water oxygens closer than 2.2 Å after superposition, in four frames."""
    del folder
    universe = paceline.Universe(TPR, XTC)
    water = universe.select_atoms("name OW")
    rdf = InterRDF(water, water, nbins=1, range=(0.01, 2.2))
    rdf.run(stop=4, transforms=[unwrap("protein"), fit("protein and name CA")])
    return Found(float(rdf.results.count[0]))


def shortest(vectors: np.ndarray, d: np.ndarray) -> float:
    """Return the length of a difference's shortest image, by brute force, Å."""
    numbers = np.array(list(itertools.product(range(-12, 13), repeat=3)))
    return float(np.linalg.norm(d + numbers @ vectors, axis=1).min())


APART = np.array([[1.0, 2, 3], [1.5, 12, 13]])
SKEWED_ATOMS = np.array([[1.0, 2, 3], [14.3, 11.9, 8.8]])
CASES = [
    RightValue(
        "cells: hydrogen bonds to water after unwrap and fit",
        "",
        231,
        "what is counted without a fit",
        bonds_after_fit,
    ),
    RightValue(
        "cells: oxygens of water nearer than 2.2 Å after unwrap and fit",
        "",
        0,
        "what is counted without a fit",
        near_pairs_after_fit,
    ),
    RightValue(
        "cells: edges 0 10 10, 10 0 10, 10 10 0",
        "Å",
        0.5,
        "atoms are one vector and 0.5 Å apart",
        in_box(FCC, APART),
        1e-3,
    ),
    RightValue(
        "cells: a tilt of three edges",
        "Å",
        shortest(SKEWED, SKEWED_ATOMS[1] - SKEWED_ATOMS[0]),
        "brute force over 25³ images",
        in_box(SKEWED, SKEWED_ATOMS),
        1e-3,
    ),
    RightValue(
        "cells: 19 Å in a LAMMPS box with boundary ff ff ff",
        "Å",
        19.0,
        "no axis is periodic",
        in_slab("ff ff ff"),
        1e-4,
    ),
    RightValue(
        "cells: 19 Å along z of a slab, boundary pp pp ff",
        "Å",
        19.0,
        "z is not periodic",
        in_slab("pp pp ff"),
        1e-4,
    ),
    RightValue(
        "cells: the same with boundary pp pp pp",
        "Å",
        1.0,
        "z is periodic",
        in_slab("pp pp pp"),
        1e-4,
    ),
    *(
        RightValue(
            f"cells: MSD of atoms at rest, bounds that move, {columns}",
            "Å²",
            0.0,
            "they are at rest",
            at_rest(columns),
            1e-9,
        )
        for columns in ("x y z", "xu yu zu", "xs ys zs")
    ),
]
