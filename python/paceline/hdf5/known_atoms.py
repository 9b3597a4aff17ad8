"""What any H5MD file tells of its atoms, and the labels that paceline writes."""

import numpy as np

from paceline.errors import UnsupportedError
from paceline.hdf5.catalogue import ABSENT
from paceline.hdf5.elements import Sampled, rows_of
from paceline.hdf5.native import Array
from paceline.hdf5.particles import Particles
from paceline.hdf5.system import System, pairs_of
from paceline.hdf5.units import factor_of

#: Where paceline writes what H5MD has no place for, one array of each kind.
LABELS = "parameters/atoms"
#: MDAnalysis's name of each, of atoms and of residues.
_OF_ATOMS = {"name": "names", "type": "types"}
_OF_RESIDUES = {"resid": "resids", "resname": "resnames"}


def system_of(particles: Particles) -> System:
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
    atoms = {**_numbers(particles), **_species(particles)}
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


def _numbers(particles: Particles) -> dict[str, np.ndarray]:
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
