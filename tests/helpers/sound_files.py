"""Small valid files of every format, which tests damage. Each is made on first use."""

import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import h5py
import MDAnalysis
import numpy as np
from MDAnalysisTests import datafiles

from helpers import dlpoly_files, lammps_files, netcdf_bytes, netcdf_files, trajectory_bytes
from helpers.charmm_dcd import shape_matrix, write_dcd
from helpers.h5md_files import numbers, write_gromacs, write_lammps, write_simple
from helpers.trajectory_bytes import DcdVariant
from paceline.hdf5.repack import repack

N_FRAMES, N_ATOMS = 10, 60
CHUNKS = {"chunks": (2, 5, 3)}
GZIP = {"compression": "gzip", "shuffle": True, "fletcher32": True}


class SoundFile(NamedTuple):
    """A valid file, and the offsets of its frames.

    `borders` contains the first byte of each frame, and the end of the file. It is empty if the
    data of a frame is not contiguous.
    """

    kind: str
    name: str
    content: bytes
    borders: tuple[int, ...] = ()


def positions(n_atoms: int = N_ATOMS) -> np.ndarray:
    """Return positions of atoms that move a little from frame to frame, Å."""
    random = np.random.default_rng(1)
    first = random.uniform(0, 30, (n_atoms, 3))
    return (first + random.normal(0, 1, (N_FRAMES, n_atoms, 3)).cumsum(axis=0)).astype(np.float32)


def _mdanalysis(folder: Path, name: str, n_atoms: int) -> bytes:
    universe = MDAnalysis.Universe.empty(n_atoms, trajectory=True)
    ts = universe.trajectory.ts
    with (
        warnings.catch_warnings(action="ignore"),
        MDAnalysis.Writer(str(folder / name), n_atoms) as writer,
    ):
        for frame, xyz in enumerate(positions(n_atoms)):
            universe.atoms.positions, ts.dimensions = xyz, [30, 31, 32, 90, 80, 70]
            ts.time, ts.data["step"] = 2.5 * frame, 100 * frame
            writer.write(universe.atoms)
    return (folder / name).read_bytes()


def _xtc(n_atoms: int) -> Callable[[Path], SoundFile]:
    def make(folder: Path) -> SoundFile:
        file = trajectory_bytes.xtc(_mdanalysis(folder, "a.xtc", n_atoms))
        return SoundFile("", "a.xtc", file.content, file.borders)

    return make


def _of_bytes(make: Callable[[np.ndarray], trajectory_bytes.Trajectory]):
    def made(folder: Path) -> SoundFile:
        file = make(positions())
        return SoundFile("", f"a{file.suffix}", file.content, file.borders)

    return made


def _charmm(folder: Path) -> SoundFile:
    cells = [shape_matrix((35.5 + k, 42, 50.25), (80, 95.5, 120)) for k in range(N_FRAMES)]
    content = write_dcd(folder / "a.dcd", 36, cells).read_bytes()
    size = 56 + 3 * 16
    start = len(content) - N_FRAMES * size
    return SoundFile("", "a.dcd", content, tuple(range(start, len(content) + 1, size)))


def _netcdf4(folder: Path) -> SoundFile:
    path = netcdf_files.write_netcdf4(folder / "a.nc", netcdf_files.values(), "NETCDF4")
    return SoundFile("", "a.nc", path.read_bytes())


def _written(write: Callable[[Path], object], name: str) -> Callable[[Path], SoundFile]:
    def made(folder: Path) -> SoundFile:
        write(folder / name)
        return SoundFile("", name, (folder / name).read_bytes())

    return made


def _latest(path: Path) -> None:
    """Write the newest HDF5 structures, whose metadata have checksums."""
    write_simple(path.with_name("earlier"), **CHUNKS)
    with h5py.File(path, "w", libver="latest") as new, h5py.File(path.with_name("earlier")) as old:
        for name in old:
            old.copy(name, new)


def _repacked(path: Path, compress: str) -> None:
    write_simple(path, **CHUNKS)
    repack(path, chunk="2x5", compress=compress)


def _gromacs(path: Path) -> None:
    atoms = {
        "mass": [16.0, 1.0, 1.0],
        "charge": [-0.8, 0.4, 0.4],
        "species": [8, 1, 1],
        "residue_id": [0, 0, 0],
        "particle_name": ["OW", "HW1", "HW2"],
        "residue_name": ["SOL"] * 3,
    }
    write_gromacs(path, numbers(), [("SOL", 3, atoms)])


def _mdtraj(path: Path) -> None:
    import mdtraj

    held = numbers()
    topology = mdtraj.load_topology(str(datafiles.PDB_small)).subset(range(held.position.shape[1]))
    cells = [[3, 4, 5]] * len(held.time), [[80, 90, 100]] * len(held.time)
    mdtraj.Trajectory(held.position, topology, held.time, *cells).save_hdf5(str(path))


def _text(name: str, lines, width: int) -> Callable[[Path], SoundFile]:
    def made(folder: Path) -> SoundFile:
        path = Path(dlpoly_files.write(folder / name, lines(), width))
        content = path.read_bytes()
        starts = [k for k in range(len(content)) if content.startswith(b"timestep", k)]
        return SoundFile("", name, content, (*starts, len(content)) if starts else ())

    return made


def _joined_history():
    """Return lines of a file in which frames have different fields, so that it needs an index."""
    yield from dlpoly_files.history(0, 2)
    for frame in range(2, dlpoly_files.N_FRAMES):
        yield from dlpoly_files.frame_of(frame, frame % 3)


def _lammps(columns: str, box: str) -> Callable[[Path], SoundFile]:
    def made(folder: Path) -> SoundFile:
        content = lammps_files.dump(columns, N_FRAMES, box=box).encode()
        starts = [k for k in range(len(content)) if content.startswith(b"ITEM: TIMESTEP", k)]
        return SoundFile("", "a.lammpsdump", content, (*starts, len(content)))

    return made


#: Function that creates each kind, in a separate folder.
MAKERS: dict[str, Callable[[Path], SoundFile]] = {
    "xtc": _xtc(N_ATOMS),
    "xtc, plain floats": _xtc(7),
    "trr": _of_bytes(trajectory_bytes.trr),
    "trr, double": _of_bytes(lambda xyz: trajectory_bytes.trr(xyz, double=True)),
    "dcd": _of_bytes(lambda xyz: trajectory_bytes.dcd(xyz, DcdVariant())),
    "dcd, big-endian": _of_bytes(
        lambda xyz: trajectory_bytes.dcd(xyz, DcdVariant(big_endian=True, wide=True))
    ),
    "dcd, fixed atoms": _of_bytes(
        lambda xyz: trajectory_bytes.dcd(xyz, DcdVariant(n_fixed=7, four_dims=True))
    ),
    "dcd, charmm": _charmm,
    "netcdf, cdf-1": _of_bytes(lambda xyz: netcdf_bytes.netcdf(xyz, version=1)),
    "netcdf, cdf-2": _of_bytes(netcdf_bytes.netcdf),
    "netcdf, cdf-5": _of_bytes(lambda xyz: netcdf_bytes.netcdf(xyz, version=5)),
    "netcdf-4": _netcdf4,
    "h5md, contiguous": _written(write_simple, "a.h5md"),
    "h5md, chunked": _written(lambda path: write_simple(path, **CHUNKS), "a.h5md"),
    "h5md, gzip": _written(lambda path: write_simple(path, **CHUNKS, **GZIP), "a.h5md"),
    "h5md, zstd": _written(lambda path: _repacked(path, "shuffle+zstd:3"), "a.h5md"),
    "h5md, lz4": _written(lambda path: _repacked(path, "lz4"), "a.h5md"),
    "h5md, latest": _written(_latest, "a.h5md"),
    "h5md, gromacs": _written(_gromacs, "a.h5md"),
    "h5md, lammps": _written(lambda path: write_lammps(path, numbers()), "a.h5"),
    "hdf5, mdtraj": _written(_mdtraj, "a.h5"),
    "history": _text("HISTORY", dlpoly_files.history, 72),
    "history, edited": _text("HISTORY", _joined_history, 0),
    "config": _text("CONFIG", dlpoly_files.config, 72),
    "lammps": _lammps("id type x y z vx vy vz", lammps_files.ORTHOGONAL),
    "lammps, scaled": _lammps("id xs ys zs", lammps_files.TRICLINIC),
}


def sound_file(kind: str) -> SoundFile:
    """Return the file of a kind."""
    folder = Path(tempfile.mkdtemp())
    try:
        return MAKERS[kind](folder)._replace(kind=kind)
    finally:
        shutil.rmtree(folder)
