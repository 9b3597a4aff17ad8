"""MDTraj's HDF5: all of a trajectory in a few datasets of the root group, and its topology."""

import numpy as np

from paceline.errors import UnsupportedError
from paceline.hdf5.cells import without_impossible
from paceline.hdf5.chunk_index import COUNTED, Catalogue, Element
from paceline.hdf5.dataset import dataset_of
from paceline.hdf5.elements import unit_of
from paceline.hdf5.file import Array, File, damaged
from paceline.hdf5.units import Units

#: MDTraj's units, which its convention demands.
USUAL = {"length": "nm", "time": "ps", "velocity": "nm/ps", "force": "kJ/(mol*nm)"}
#: Vectors of atoms: our field and its quantity, by MDTraj's name.
VECTORS = {"coordinates": ("positions", "length"), "velocities": ("velocities", "velocity")}
#: Numbers of each frame that are no vectors.
OBSERVABLES = ("kineticEnergy", "potentialEnergy", "temperature", "alchemicalLambda")


def is_mdtraj(file: File) -> bool:
    """Whether a file is of MDTraj's convention.

    Parameters
    ----------
    file : File
        An HDF5 file.

    Returns
    -------
    bool
    """
    return "coordinates" in file.root and "Pande" in str(file.root.attrs.get("conventions"))


def catalogue_of(file: File, *, units: dict[str, str]) -> Catalogue:
    """What an HDF5 file of MDTraj's convention holds.

    Parameters
    ----------
    file : File
        The file.
    units : dict
        Quantity and unit, where the file's are wrong.

    Returns
    -------
    Catalogue
        The step of a frame is its number: the convention counts none.

    Raises
    ------
    UnsupportedError, DamagedFileError
        See `paceline.hdf5.conventions.catalogue_of`.

    Notes
    -----
    Format: https://mdtraj.org, "MDTraj HDF5 format specification", conventions "Pande" 1.1.
    """
    known = Units(file.path, units, USUAL)
    notes: list[str] = []
    positions = file.root["coordinates"]
    if not isinstance(positions, Array) or positions.shape[2:] != (3,):
        found = f"shape {positions.shape}" if isinstance(positions, Array) else "a group"
        raise UnsupportedError(
            f"{file.path}: coordinates: expected an array (frames, atoms, 3), found {found}"
        )
    n_frames, n_atoms, _ = positions.shape
    elements = {}
    for name, (field, quantity) in VECTORS.items():
        array = _of_all_frames(file, name, (n_frames, n_atoms, 3))
        if array is not None:
            factor = known.factor(quantity, array.name, unit_of(array))
            elements[field] = Element(dataset_of(array), factor=factor)
    times = np.arange(n_frames, dtype=np.float64)
    time = _of_all_frames(file, "time", (n_frames,))
    if time is None:
        notes.append(f"it has no times: its {COUNTED}")
    else:
        times = (time.read() * known.factor("time", time.name, unit_of(time))).astype(np.float64)
    return Catalogue(
        "MDTraj HDF5",
        n_frames,
        n_atoms,
        elements,
        times,
        np.arange(n_frames),
        _dimensions(file, n_frames, known),
        facts=_facts(file, known),
        notes=[*notes, *known.notes],
    )


def _of_all_frames(file: File, name: str, shape: tuple[int, ...]) -> Array | None:
    """A dataset, if it is there; its shape is settled by that of the coordinates."""
    array = file.root.array(name)
    if array is not None and (array.shape != shape or array.dtype.kind not in "iuf"):
        raise damaged(
            file.path,
            array.name,
            f"numbers of shape {shape}, as the coordinates have it",
            f"{array.dtype} of shape {array.shape}",
        )
    return array


def _dimensions(file: File, n_frames: int, units: Units) -> np.ndarray:
    lengths = _of_all_frames(file, "cell_lengths", (n_frames, 3))
    angles = _of_all_frames(file, "cell_angles", (n_frames, 3))
    if lengths is None or angles is None or n_frames == 0:
        return np.zeros((1, 6), dtype=np.float32)
    cells = np.concatenate([lengths.read(), angles.read()], axis=1, dtype=np.float32)
    cells[:, :3] *= np.float32(units.factor("length", lengths.name, unit_of(lengths)))
    return without_impossible(cells)


def _facts(file: File, units: Units) -> dict[str, str]:
    attrs = file.root.attrs
    program = " ".join(str(attrs.get(name) or "") for name in ("program", "programVersion"))
    facts = {
        "written by": program.strip(),
        "units": ", ".join(f"{name} {unit}" for name, unit in units.used.items()),
        "topology": "in the file" if "topology" in file.root else "",
    }
    return {name: fact for name, fact in facts.items() if fact}
