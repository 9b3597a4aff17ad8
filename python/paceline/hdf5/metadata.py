"""What an H5MD file that we write tells beside its frames: units, atoms, bonds, and its origin.

Files are handed in open. Nothing here reads a clock, so that the same call makes the same bytes.
"""

import getpass
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from paceline._core import __version__

#: The version of H5MD, and that of its module of units.
H5MD_VERSION, UNITS_VERSION = (1, 1), (1, 0)

#: Units of what we write, as H5MD spells them.
UNITS = {
    "position": "Angstrom",
    "velocity": "Angstrom ps-1",
    "force": "kJ mol-1 Angstrom-1",
    "edges": "Angstrom",
    "time": "ps",
    "mass": "u",
    "charge": "e",
}

#: Labels of atoms: MDAnalysis's name of each, and ours.
_LABELS = {
    "names": "name",
    "types": "type",
    "resnames": "resname",
    "resids": "resid",
    "segids": "segid",
}
#: Kinds of atoms whose names still fit into a header of HDF5, which holds 64 kB.
_MOST_KINDS = 1000
#: How facts of atoms are stored: of a solvated protein in a tenth of the bytes.
_PACKED: Mapping[str, Any] = {"compression": "gzip", "shuffle": True}


@dataclass(frozen=True)
class Atoms:
    """What is known of the atoms, whatever the frame.

    Attributes
    ----------
    n_atoms : int
        Their number.
    numbers : mapping of str to numpy.ndarray of float64, shape (n_atoms,)
        "mass" (u) and "charge" (e): those that are known.
    guessed : tuple of str
        Those of `numbers` that MDAnalysis guessed from the atoms' names.
    kinds : tuple of str
        Chemical elements, or the topology's types where it names no elements.
    species : numpy.ndarray of int32, shape (n_atoms,)
        The place in `kinds` of each atom; -1 where nothing is known.
    labels : mapping of str to numpy.ndarray, shape (n_atoms,)
        "name", "type", "resname", "resid", "segid": those that are known.
    bonds : numpy.ndarray of int32, shape (n_bonds, 2)
        Places of the two atoms, counted from 0.
    """

    n_atoms: int
    numbers: Mapping[str, np.ndarray] = field(default_factory=dict)
    guessed: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    species: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)
    bonds: np.ndarray = field(default_factory=lambda: np.empty((0, 2), dtype=np.int32))

    @classmethod
    def of(cls, atomgroup: Any) -> Self:
        """What the topology of a group knows of its atoms.

        Parameters
        ----------
        atomgroup : AtomGroup
            The atoms, in the order in which they are written.

        Returns
        -------
        Atoms
        """
        numbers = {
            name: np.asarray(values, dtype=np.float64)
            for name, plural in (("mass", "masses"), ("charge", "charges"))
            if (values := getattr(atomgroup, plural, None)) is not None
        }
        labels = {
            ours: np.asarray(values)
            for theirs, ours in _LABELS.items()
            if (values := getattr(atomgroup, theirs, None)) is not None
        }
        kinds, species = _kinds(atomgroup, labels)
        topology = atomgroup.universe._topology
        guessed = "mass" in numbers and topology.masses.is_guessed
        return cls(
            n_atoms=len(atomgroup),
            numbers=numbers,
            guessed=("mass",) if guessed else (),
            kinds=kinds,
            species=species,
            labels=labels,
            bonds=_bonds_within(atomgroup.indices, getattr(topology, "bonds", None)),
        )


def _kinds(atomgroup: Any, labels: Mapping[str, np.ndarray]) -> tuple[tuple[str, ...], np.ndarray]:
    """Names of the kinds of atoms, and the place among them of each atom."""
    elements = getattr(atomgroup, "elements", None)
    if elements is not None and all(elements):
        each = np.asarray(elements, dtype=str)
    elif "type" in labels:
        each = labels["type"].astype(str)
    else:
        return (), np.empty(0, dtype=np.int32)
    kinds, species = np.unique(each, return_inverse=True)
    if len(kinds) > _MOST_KINDS:
        return (), np.empty(0, dtype=np.int32)
    # An enumeration of HDF5 takes no empty name.
    return tuple(str(kind) or "unknown" for kind in kinds), species.astype(np.int32)


def _bonds_within(indices: np.ndarray, bonds: Any) -> np.ndarray:
    """Bonds between atoms that are both written, as places in the file."""
    pairs = np.empty((0, 2), dtype=np.int64)
    if bonds is not None and len(bonds.values):
        # AtomGroup.intra_bonds makes objects first: 1.2 s for 25,000 bonds, and this 0.02 s.
        pairs = np.array(bonds.values, dtype=np.int64)
    place = np.full(max(indices.max(), pairs.max(initial=0)) + 1, -1, dtype=np.int32)
    place[indices[::-1]] = np.arange(len(indices), dtype=np.int32)[::-1]
    written = place[pairs]
    return written[(written >= 0).all(axis=1)]


@dataclass(frozen=True)
class Description:
    """All that a file tells beside its frames.

    Attributes
    ----------
    atoms : Atoms
        Whose frames they are.
    origin : mapping of str to str
        Where the frames come from: the file, its fingerprint, what was called, versions.
    author : str
        Who writes the file.
    """

    atoms: Atoms
    origin: Mapping[str, str] = field(default_factory=dict)
    author: str = ""


def author_by_system() -> str:
    """Who runs this process: the full name where the system knows it, else the login.

    Returns
    -------
    str
        "unknown" where the system knows neither.
    """
    try:
        login = getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
    try:
        import pwd

        return pwd.getpwnam(login).pw_gecos.partition(",")[0] or login
    except (ImportError, KeyError):
        return login


def command_of_process() -> str:
    """The command line by which this process was started.

    Returns
    -------
    str
        Without the folder of the program.
    """
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]).strip()


def describe(file: Any, group: str, description: Description) -> None:
    """Write all of it into a file that is open and has the group of particles.

    Parameters
    ----------
    file : h5py.File
        The file.
    group : str
        Name of the group of particles: that of "particles/trajectory" is "trajectory".
    description : Description
        What is known.
    """
    _write_h5md(file, description.author or author_by_system())
    particles = file["particles"][group]
    _write_atoms(file, particles, description.atoms)
    origin = file.require_group("parameters/origin")
    for name, value in description.origin.items():
        origin.create_dataset(name, data=str(value))


def _write_h5md(file: Any, author: str) -> None:
    h5md = file.require_group("h5md")
    h5md.attrs["version"] = np.array(H5MD_VERSION, dtype=np.int32)
    h5md.create_group("author").attrs["name"] = author
    creator = h5md.create_group("creator")
    creator.attrs["name"] = "paceline"
    creator.attrs["version"] = __version__
    units = h5md.create_group("modules/units")
    units.attrs["version"] = np.array(UNITS_VERSION, dtype=np.int32)


def _write_atoms(file: Any, particles: Any, atoms: Atoms) -> None:
    for name, values in atoms.numbers.items():
        particles.create_dataset(name, data=values, **_PACKED)
        set_unit(particles[name], name)
        if name in atoms.guessed:
            particles[name].attrs["guessed"] = "by MDAnalysis, from the atoms' types or names"
    if atoms.kinds:
        # h5py stores integers whose dtype says so as an enumeration: number and name together.
        names = {kind: number for number, kind in enumerate(atoms.kinds)}
        enumeration = np.dtype(np.int32, metadata={"enum": names})
        particles.create_dataset("species", data=atoms.species, dtype=enumeration, **_PACKED)
    labels = file.require_group("parameters/atoms")
    for name, values in atoms.labels.items():
        stored = values if values.dtype.kind in "iu" else _encoded(values.astype(str))
        labels.create_dataset(name, data=stored, **_PACKED)
    if len(atoms.bonds):
        connectivity = file.require_group("connectivity")
        bonds = connectivity.create_dataset("bonds", data=atoms.bonds, **_PACKED)
        bonds.attrs["particles_group"] = particles.ref


def _encoded(texts: np.ndarray) -> np.ndarray:
    """Texts in UTF-8."""
    try:
        # Of ASCII the same, in a third of the time.
        return texts.astype(np.bytes_)
    except UnicodeEncodeError:
        return np.char.encode(texts, "utf-8")


def create_box(particles: Any, *, periodic: bool) -> Any:
    """Make the group of the cell, which H5MD wants of every group of particles.

    Parameters
    ----------
    particles : h5py.Group
        The group of particles.
    periodic : bool
        Whether there is a cell; its edges are an element of the box then.

    Returns
    -------
    h5py.Group
        The box.
    """
    box = particles.create_group("box")
    box.attrs["dimension"] = 3
    box.attrs["boundary"] = ["periodic" if periodic else "none"] * 3
    return box


def set_unit(dataset: Any, quantity: str) -> None:
    """Say in which unit a dataset is.

    Parameters
    ----------
    dataset : h5py.Dataset
        The numbers.
    quantity : str
        Out of `UNITS`.
    """
    dataset.attrs["unit"] = UNITS[quantity]


def say_rounded(dataset: Any, step: float) -> None:
    """Say that numbers were rounded, and to what.

    Parameters
    ----------
    dataset : h5py.Dataset
        The numbers.
    step : float
        What they are multiples of, in their unit.
    """
    dataset.attrs["rounded_to_multiples_of"] = step
