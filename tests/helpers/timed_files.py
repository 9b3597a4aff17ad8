"""Files with missing or misleading times of their frames, and files that are read in two ways."""

import struct
from pathlib import Path

import h5py
import MDAnalysis
import numpy as np

import paceline
from helpers.h5md_files import OUR_UNITS, numbers, write_simple
from paceline.mdanalysis.reader import Reader

#: Titles of programs that write DCD.
LAMMPS = ("Written by LAMMPS", "REMARKS Created 01 May, 2025 at 12:00")
VMD = ("Created by DCD plugin", "REMARKS Created 01 May, 2025 at 12:00")
#: Kinds of files and options for `read_in_two_ways`.
TWO_WAYS = ("continuous", "sub", "H5MD units", "group", "DCD units", "dump units")


def walk(n_frames: int = 40, n_atoms: int = 30) -> np.ndarray:
    """Return random walks of atoms, float32, shape (n_frames, n_atoms, 3), Å."""
    steps = np.random.default_rng(7).normal(size=(n_frames, n_atoms, 3))
    return np.cumsum(steps, axis=0).astype(np.float32)


def write_topology(path: Path, n_atoms: int = 30) -> str:
    """Write a structure with this number of atoms."""
    universe = MDAnalysis.Universe.empty(n_atoms, trajectory=True)
    universe.add_TopologyAttr("names", ["C"] * n_atoms)
    universe.atoms.write(str(path))
    return str(path)


def write_dcd(
    path: Path,
    positions: np.ndarray,
    title: tuple[str, ...],
    *,
    delta: float = 1.0,
    first: int = 0,
    every: int = 1,
) -> str:
    """Write a DCD file with this title, and with `delta` as the step length in its header."""
    n_frames, n_atoms, _ = positions.shape
    integers = [n_frames, first, every, n_frames * every, *[0] * 15, 24]
    head = bytearray(struct.pack("<4s20i", b"CORD", *integers))
    head[40:44] = struct.pack("<f", delta)
    lines = b"".join(line.encode().ljust(80, b"\0") for line in title)
    records = [bytes(head), struct.pack("<i", len(title)) + lines, struct.pack("<i", n_atoms)]
    records += [axis.astype("<f4").tobytes() for frame in positions for axis in frame.T]
    marked = (struct.pack("<i", len(one)) + one + struct.pack("<i", len(one)) for one in records)
    path.write_bytes(b"".join(marked))
    return str(path)


def write_dump(
    path: Path, positions: np.ndarray, *, every: int = 500, units: str = "", time: float = 0.0
) -> str:
    """Write a LAMMPS dump that states `units`; `time` is the time between frames in these units."""
    lines = [f"ITEM: UNITS\n{units}"] if units else []
    for number, frame in enumerate(positions):
        lines += [f"ITEM: TIME\n{number * time:.17g}"] if time else []
        lines += ["ITEM: TIMESTEP", f"{number * every}", "ITEM: NUMBER OF ATOMS", f"{len(frame)}"]
        lines += ["ITEM: BOX BOUNDS pp pp pp", *3 * ["0 400"], "ITEM: ATOMS id x y z"]
        lines += [f"{k + 1} {x:.7g} {y:.7g} {z:.7g}" for k, (x, y, z) in enumerate(frame)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def write_xtc(path: Path, positions: np.ndarray, times: np.ndarray) -> str:
    """Write frames at these times, ps."""
    universe = MDAnalysis.Universe.empty(positions.shape[1], trajectory=True)
    with MDAnalysis.Writer(str(path), n_atoms=positions.shape[1]) as writer:
        for frame, time in zip(positions, times, strict=True):
            universe.atoms.positions = frame
            universe.trajectory.ts.time = time
            universe.trajectory.ts.frame = int(time)
            writer.write(universe.atoms)
    return str(path)


def write_xyz(path: Path, positions: np.ndarray) -> str:
    """Write frames of an XYZ file, which has no times."""
    lines = []
    for frame in positions:
        lines += [f"{len(frame)}", "walk", *(f"C {x:.5f} {y:.5f} {z:.5f}" for x, y, z in frame)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def read_in_two_ways(kind: str, folder: Path) -> list[MDAnalysis.Universe]:
    """Open the same files, 40 frames or more, in two ways that read other numbers."""
    topology, positions = write_topology(folder / "a.pdb"), walk()
    if kind == "sub":
        path = write_xtc(folder / "a.xtc", positions, np.arange(40.0))
        part = write_topology(folder / "part.pdb", 6)
        found = [MDAnalysis.Universe(part) for _ in range(2)]
        for universe, first in zip(found, (0, 6), strict=True):
            universe.load_new(path, format=Reader, sub=np.arange(first, first + 6))
        return found
    if kind == "continuous":
        times = np.arange(40.0)
        files = [
            write_xtc(folder / "a.xtc", positions[:20], times[:20]),
            write_xtc(folder / "b.xtc", positions[10:], times[10:]),
        ]
        options: list[dict] = [{"continuous": False}, {"continuous": True}]
    elif kind in ("H5MD units", "group"):
        units = OUR_UNITS if kind == "group" else {}
        content = numbers(40, 30)._replace(velocity=None, force=None)
        files = [str(write_simple(folder / "a.h5md", units=units, **content._asdict()))]
        with h5py.File(files[0], "a") as file:
            if kind == "group":
                file.copy("particles/atoms", file["particles"], "other")
                file["particles/other/position/value"][:] += 1
        options = [{"units": "A, ps"}, {"units": "nm, ps"}]
        if kind == "group":
            options = [{"group": "atoms"}, {"group": "other"}]
    else:
        files = [write_dump(folder / "a.lammpstrj", positions)]
        if kind == "DCD units":
            files = [write_dcd(folder / "a.dcd", positions, LAMMPS)]
        options = [{"units": "real"}, {"units": "nano"}]
    return [paceline.Universe(topology, files, **some) for some in options]
