"""A topology out of the trajectory file itself."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from paceline.errors import MissingDataError, UnsupportedError
from paceline.hdf5 import gromacs
from paceline.hdf5.chunk_index import ABSENT
from paceline.hdf5.elements import Sampled, rows_of
from paceline.hdf5.file import Array, File, damaged
from paceline.hdf5.particles import Particles
from paceline.hdf5.sandbox import allow, apart
from paceline.hdf5.system import System, pairs_of
from paceline.hdf5.units import factor_of

#: Where paceline writes what H5MD has no place for, one array of each kind.
LABELS = "parameters/atoms"
#: MDAnalysis's name of each, of atoms and of residues.
_OF_ATOMS = {"name": "names", "type": "types"}
_OF_RESIDUES = {"resid": "resids", "resname": "resnames"}


def system_of_h5md(particles: Particles) -> System:
    """What is known of the particles of a group.

    Parameters
    ----------
    particles : Particles
        The group.

    Returns
    -------
    System
        Where nothing is told, atoms of which nothing is known.

    Raises
    ------
    UnsupportedError
        A mass or a charge has a unit that we do not know.
    DamagedFileError
        What is told contradicts itself.

    Notes
    -----
    Of what changes the values of the first frame count, and masses and charges without a unit are
    taken to be in u and e.
    """
    labels = _labels(particles)
    atoms = {**_numbers_of_atoms(particles), **_species(particles)}
    atoms |= {theirs: labels[ours] for ours, theirs in _OF_ATOMS.items() if ours in labels}
    order = particles.order
    if order is not None:
        atoms["ids"] = order.numbers
    bonds = _bonds(particles)
    if "resid" not in labels:
        return System.without_residues(atoms, particles.n_atoms, bonds)
    return _with_residues(atoms, labels, bonds)


def _of_each(particles: Particles, name: str) -> tuple[Sampled, np.ndarray] | None:
    """One value of each of our atoms: of all times, or of the first frame."""
    element = particles.elements.find(particles.group, name, rank=1)
    if element is None or not element.n_rows or not particles.frames.n_rows:
        return None
    array = element.values
    if array.is_text or array.dtype.kind not in "fiu" or array.shape[-1:] != (particles.n_places,):
        return None
    if element.steps is None:
        values = array.read()
    else:
        row = _row_of_first_frame(element, particles.frames)
        if row == ABSENT:
            return None
        values = array.read(slice(row, row + 1))[0]
    return (element, values[particles.places]) if values.ndim == 1 else None


def _row_of_first_frame(element: Sampled, frames: Sampled) -> int:
    try:
        rows = rows_of(element, frames)
    except UnsupportedError:
        return ABSENT
    return 0 if rows is None else int(rows[0])


def _numbers_of_atoms(particles: Particles) -> dict[str, np.ndarray]:
    """Masses and charges, u and e; the atoms' own numbers."""
    found = {}
    for name, theirs in (("mass", "masses"), ("charge", "charges")):
        each = _of_each(particles, name)
        if each is not None:
            found[theirs] = each[1].astype(np.float64) * _factor(each[0], name)
    each = _of_each(particles, "id")
    if each is not None and particles.order is None:
        found["ids"] = each[1].astype(np.int64)
    return found


def _factor(element: Sampled, quantity: str) -> float:
    if element.unit is None:
        return 1.0
    try:
        return factor_of(element.unit, quantity)
    except UnsupportedError as error:
        path = element.values.file.path
        raise UnsupportedError(f"{path}: {element.name}: {error}; give a topology file") from None


def _species(particles: Particles) -> dict[str, np.ndarray]:
    """Kinds of atoms: by name where the file has names."""
    each = _of_each(particles, "species")
    if each is None:
        return {}
    element, values = each
    names = element.values.names_of_values or {}
    # ZnH5MD stores them as floats.
    kinds = [int(value) if value == value // 1 else value for value in values.tolist()]
    return {"types": np.array([names.get(kind, str(kind)) for kind in kinds], dtype=object)}


def _labels(particles: Particles) -> dict[str, np.ndarray]:
    """Names of atoms and of residues that paceline wrote."""
    group = particles.file.root.group(LABELS)
    if group is None:
        return {}
    arrays = [node for node in group.children() if isinstance(node, Array)]
    return {
        array.name.rpartition("/")[2]: array.read()[particles.places]
        for array in arrays
        if array.shape == (particles.n_places,)
    }


def _bonds(particles: Particles) -> np.ndarray | None:
    """Bonds, where they are of this group: its own, or the file's only one."""
    array = particles.file.root.array("connectivity/bonds")
    if array is None or particles.order is not None or not particles.is_only_one:
        return None
    return pairs_of(array, particles.n_atoms)


def _with_residues(
    atoms: dict[str, np.ndarray], labels: dict[str, np.ndarray], bonds: np.ndarray | None
) -> System:
    """Residues and segments begin where a label changes."""
    n_atoms = len(labels["resid"])
    segids = labels.get("segid", np.full(n_atoms, "SYSTEM", dtype=object))
    of_residues = [labels[name] for name in _OF_RESIDUES if name in labels]
    residue = _counted([*of_residues, segids])
    first = np.unique(residue, return_index=True)[1]
    segment = _counted([segids[first]])
    values = {
        theirs: labels[ours][first] for ours, theirs in _OF_RESIDUES.items() if ours in labels
    }
    names = segids[first][np.unique(segment, return_index=True)[1]]
    return System(atoms, residue, values, segment, names, bonds)


def _counted(labels: list[np.ndarray]) -> np.ndarray:
    """Number of each row of neighbours with the same labels, counted from 0."""
    changes = [label[1:] != label[:-1] for label in labels]
    return np.concatenate([[0], np.cumsum(np.any(changes, axis=0))]).astype(np.int64)


#: Characters of a name, at the most.
WIDTH = 8
#: H5MD's name of each, and its quantity.
_NUMBERS = {"masses": "mass", "charges": "charge"}


class Row(NamedTuple):
    """Where one value of each place for an atom is.

    Attributes
    ----------
    dataset : str
        In the file.
    row : int or None
        Of the dataset, where it has one for each frame.
    factor : float
        What a value is multiplied by.
    """

    dataset: str
    row: int | None = None
    factor: float = 1.0


@dataclass(frozen=True)
class Column:
    """One value of each place for an atom, in all frames.

    Attributes
    ----------
    dataset : str
        In the file.
    rows : numpy.ndarray of int64, shape (n_frames,), or None
        Row of each frame, `ABSENT` where it has none; None where frame k is row k.
    is_fixed : bool
        Whether there are no rows: it holds for all frames.
    factor : float
        What a value is multiplied by.
    """

    dataset: str
    rows: np.ndarray | None = None
    is_fixed: bool = True
    factor: float = 1.0

    def of(self, frame: int) -> Row | None:
        """Where the values of a frame are; None where it has none."""
        if self.is_fixed:
            return Row(self.dataset, None, self.factor)
        row = frame if self.rows is None else int(self.rows[frame])
        return None if row == ABSENT else Row(self.dataset, row, self.factor)


def columns_of(path: str, *, group: str | None = None, external: bool = False) -> dict[str, Column]:
    """What a file tells of its atoms that can be read a part at a time.

    Parameters
    ----------
    path : str
        An H5MD file.
    group : str, optional
        Name of the group of particles.
    external : bool
        Whether the file is followed into others.

    Returns
    -------
    dict of str to Column
        "names" of at most 8 bytes, "masses" (u) and "charges" (e): those that there are. Where
        atoms change their places, only what was sampled with them.

    Raises
    ------
    DamagedFileError
        One contradicts itself.
    """
    with File(path, external=external) as file:
        particles = Particles(file, group)
        found = {ours: _numbers(particles, name) for ours, name in _NUMBERS.items()}
        found["names"] = _names(particles)
    return {name: column for name, column in found.items() if column is not None}


def _names(particles: Particles) -> Column | None:
    labels = particles.file.root.group(LABELS)
    array = None if labels is None else labels.get("name")
    if particles.order is not None or not isinstance(array, Array):
        return None
    if array.dtype.kind != "S" or array.dtype.itemsize > WIDTH:
        return None
    return Column(array.name) if _is_readable(array, (particles.n_places,)) else None


def _numbers(particles: Particles, name: str) -> Column | None:
    element = particles.elements.find(particles.group, name, rank=1)
    if element is None or element.values.dtype.kind not in "fiu":
        return None
    values, is_fixed = element.values, element.steps is None
    shape = (particles.n_places,) if is_fixed else (*values.shape[:1], particles.n_places)
    if (is_fixed and particles.order is not None) or not _is_readable(values, shape):
        return None
    try:
        factor = 1.0 if element.unit is None else factor_of(element.unit, name)
        rows = None if is_fixed else rows_of(element, particles.frames)
    except UnsupportedError:
        return None
    return Column(values.name, rows, is_fixed, factor)


def _is_readable(array: Array, shape: tuple[int, ...]) -> bool:
    array.refuse_absurd()
    array.refuse_unknown_filters()
    return array.shape == shape


def read_rows(path: str, rows: Mapping[str, Row], first: int, last: int) -> dict[str, np.ndarray]:
    """Values of some places for atoms, through HDF5's own library.

    Parameters
    ----------
    path : str
        The file.
    rows : mapping of str to Row
        By name.
    first, last : int
        Places, from 0; the last is not among them.

    Returns
    -------
    dict of str to numpy.ndarray, shape (n,) or, of names, (n, 8)
        "ids" as int64, "names" as uint8, zeros behind the last character, all else as float64.

    Raises
    ------
    DamagedFileError
        HDF5 cannot read them.
    UnsupportedError
        A name is not ASCII.
    """
    found: dict[str, np.ndarray] = {}
    # `columns_of` has found them, within the file unless more was asked for.
    with File(path, external=True) as file:
        for name, row in rows.items():
            array = file.root[row.dataset]
            assert isinstance(array, Array)
            some = slice(first, last)
            part = array.part(some) if row.row is None else _of_row(array, row.row, some)
            if name == "ids":
                found[name] = part.astype(np.int64, copy=False)
            elif name == "names":
                found[name] = _characters(array, part)
            else:
                found[name] = part.astype(np.float64, copy=False) * row.factor
    return found


def _of_row(array: Array, row: int, some: slice) -> np.ndarray:
    return array.part(slice(row, row + 1), some)[0]


def _characters(array: Array, names: np.ndarray) -> np.ndarray:
    codes = np.char.rstrip(names).astype(f"S{WIDTH}").view(np.uint8).reshape(-1, WIDTH)
    if (codes > ord("~")).any():
        raise UnsupportedError(
            f"{array.file.path}: {array.name}: expected names in ASCII, found another character"
        )
    return codes


#: Seconds that a character may take, at the most.
_PARSING = 1e-6


def system_of_mdtraj(file: File, n_atoms: int) -> System | None:
    """The atoms that an MDTraj file describes.

    Parameters
    ----------
    file : File
        An HDF5 file of MDTraj's convention.
    n_atoms : int
        Atoms of the trajectory.

    Returns
    -------
    System or None
        None where the file has no topology.

    Raises
    ------
    DamagedFileError
        It is not the JSON that MDTraj writes, or of another number of atoms.
    """
    array = file.root.array("topology")
    if array is None:
        return None
    texts = np.ravel(array.read())
    try:
        allow(len(texts[0]) * _PARSING)
        system = _of_chains(json.loads(texts[0]))
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RuntimeError,
        OverflowError,
    ) as error:
        reason = f"{type(error).__name__}: {error}"
        raise damaged(file.path, array.name, "MDTraj's topology as JSON", reason) from error
    found = len(system.residue)
    if found != n_atoms:
        raise damaged(
            file.path, array.name, f"{n_atoms} atoms, as the coordinates have", f"{found}"
        )
    if system.bonds is not None and not (system.bonds < n_atoms).all():
        raise damaged(file.path, array.name, f"bonds of {n_atoms} atoms", str(system.bonds.max()))
    return system


def _of_chains(topology: Mapping[str, Any]) -> System:
    chains = sorted(topology["chains"], key=itemgetter("index"))
    residues = [
        (k, residue)
        for k, chain in enumerate(chains)
        for residue in sorted(chain["residues"], key=itemgetter("index"))
    ]
    atoms = [
        (k, atom)
        for k, (_, residue) in enumerate(residues)
        for atom in sorted(residue["atoms"], key=itemgetter("index"))
    ]
    segids = [_name_of(chain, k) for k, chain in enumerate(chains)]
    resids = [residue.get("resSeq", k) for k, (_, residue) in enumerate(residues)]
    bonds = np.array([bond[:2] for bond in topology.get("bonds", ())], dtype=np.uint32)
    return System(
        {
            "names": _texts(atom["name"] for _, atom in atoms),
            "elements": _texts(_symbol(atom.get("element")) for _, atom in atoms),
        },
        np.array([k for k, _ in atoms], dtype=np.int64),
        {
            "resids": np.array(resids, dtype=np.int64),
            "resnames": _texts(residue["name"] for _, residue in residues),
        },
        np.array([k for k, _ in residues], dtype=np.int64),
        _texts(segids),
        bonds.reshape(-1, 2).astype(np.int64),
    )


def _name_of(chain: Mapping[str, Any], number: int) -> str:
    """A chain's segment, else the chain's own name, else its number."""
    first: Mapping[str, Any] = next(iter(chain["residues"]), {})
    return first.get("segmentID") or chain.get("chain_id") or str(number)


def _symbol(element: Any) -> str:
    """MDTraj's virtual sites have a symbol of their own."""
    return "" if element in (None, "VS") else str(element)


def _texts(texts: Any) -> np.ndarray:
    return np.array([str(text) for text in texts], dtype=object)


def topology_of(
    path: str | os.PathLike, *, group: str | None = None, external: bool = False
) -> Any:
    """The topology that an HDF5 trajectory holds.

    Parameters
    ----------
    path : path-like
        A file of GROMACS, of MDTraj, of paceline, or any other H5MD file, whose atoms then have
        what it tells of them: masses, charges, species, numbers, bonds.
    group : str, optional
        Of an H5MD file with several groups of particles, the one to be read.
    external : bool
        Whether the file is followed into others.

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
    return apart(system_of, os.fspath(path), group=group, external=external).topology()


def system_of(
    path: str | os.PathLike, *, group: str | None = None, external: bool = False
) -> System:
    """The atoms that an HDF5 trajectory describes.

    Parameters
    ----------
    path : path-like
        As for `topology_of`.
    group : str, optional
        Of an H5MD file with several groups of particles, the one to be read.
    external : bool
        Whether the file is followed into others.

    Returns
    -------
    System
        Plain data, made without MDAnalysis.

    Raises
    ------
    UnsupportedError, MissingDataError, DamagedFileError, OSError
        As for `topology_of`.
    """
    with File(path, external=external) as file:
        return _described(file, group)


def _described(file: File, group: str | None) -> System:
    coordinates = file.root.array("coordinates")
    if coordinates is not None and coordinates.shape[2:] == (3,):
        n_atoms = coordinates.shape[1]
        described = system_of_mdtraj(file, n_atoms)
        return System.without_residues({}, n_atoms) if described is None else described
    if "particles" not in file.root and "h5md" not in file.root:
        raise MissingDataError(
            f"{file.path}: it tells nothing of its atoms; name a topology file before it"
        )
    particles = Particles(file, group)
    described = gromacs.system_of(file, particles.n_atoms)
    return system_of_h5md(particles) if described is None else described
