"""A topology out of the trajectory file itself."""

import os
from typing import Any

from paceline.errors import MissingDataError
from paceline.hdf5 import gromacs, known_atoms, mdtraj_topology
from paceline.hdf5.apart import apart
from paceline.hdf5.native import File
from paceline.hdf5.particles import Particles
from paceline.hdf5.system import System


def topology_of(path: str | os.PathLike, *, group: str | None = None) -> Any:
    """The topology that an HDF5 trajectory holds.

    Parameters
    ----------
    path : path-like
        A file of GROMACS, of MDTraj, of paceline, or any other H5MD file, whose atoms then have
        what it tells of them: masses, charges, species, numbers, bonds.
    group : str, optional
        Of an H5MD file with several groups of particles, the one to be read.

    Returns
    -------
    MDAnalysis.core.topology.Topology

    Raises
    ------
    UnsupportedError
        The file tells of its atoms in a way that we do not know, or there are several groups of
        particles and none is named.
    MissingDataError
        It holds no trajectory, or is of a kind that tells nothing of atoms, as bare datasets.
    DamagedFileError
        What it tells contradicts itself.
    OSError
        It cannot be opened.
    """
    return apart(system_of, os.fspath(path), group=group).topology()


def system_of(path: str | os.PathLike, *, group: str | None = None) -> System:
    """The atoms that an HDF5 trajectory describes.

    Parameters
    ----------
    path : path-like
        As for `topology_of`.
    group : str, optional
        Of an H5MD file with several groups of particles, the one to be read.

    Returns
    -------
    System
        Plain data, made without MDAnalysis.

    Raises
    ------
    UnsupportedError, MissingDataError, DamagedFileError, OSError
        As for `topology_of`.
    """
    with File(path) as file:
        return _described(file, group)


def _described(file: File, group: str | None) -> System:
    coordinates = file.root.array("coordinates")
    if coordinates is not None and coordinates.shape[2:] == (3,):
        n_atoms = coordinates.shape[1]
        described = mdtraj_topology.system_of(file, n_atoms)
        return System.without_residues({}, n_atoms) if described is None else described
    if "particles" not in file.root and "h5md" not in file.root:
        raise MissingDataError(
            f"{file.path}: it tells nothing of its atoms; name a topology file before it"
        )
    particles = Particles(file, group)
    described = gromacs.system_of(file, particles.n_atoms)
    return known_atoms.system_of(particles) if described is None else described
