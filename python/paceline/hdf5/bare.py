"""A dataset of positions in an HDF5 file of no convention."""

import numpy as np

from paceline.errors import UnsupportedError
from paceline.hdf5.catalogue import COUNTED, Catalogue, Element
from paceline.hdf5.elements import unit_of
from paceline.hdf5.native import Array, File
from paceline.hdf5.stored import dataset_of
from paceline.hdf5.units import Units


def catalogue_of(file: File, *, dataset: str, units: dict[str, str]) -> Catalogue:
    """What a dataset of positions holds.

    Parameters
    ----------
    file : File
        The file.
    dataset : str
        Name of the dataset, of shape (frames, atoms, 3) or (frames, 3 × atoms).
    units : dict
        Quantity and unit; "length" is needed where the dataset has no attribute unit.

    Returns
    -------
    Catalogue
        Frames are counted, 1 ps apart, and have no cell.

    Raises
    ------
    UnsupportedError
        There is no such dataset, or it is of another shape, or its unit is not known.
    DamagedFileError
        It cannot be read.
    """
    array = file.root.get(dataset)
    if not isinstance(array, Array) or not looks_like_positions(array):
        found = f"{array.dtype} of shape {array.shape}" if isinstance(array, Array) else "none"
        raise UnsupportedError(
            f"{file.path}: {dataset}: expected a dataset of numbers (frames, atoms, 3) or "
            f"(frames, 3 × atoms), found {found}"
        )
    known = Units(file.path, units)
    factor = known.factor("length", array.name, unit_of(array))
    known.refuse_missing()
    n_frames = array.shape[0]
    n_atoms = array.shape[1] if len(array.shape) == 3 else array.shape[1] // 3
    described = dataset_of(array)
    return Catalogue(
        "HDF5",
        n_frames,
        n_atoms,
        {"positions": Element(described, factor=factor)},
        np.arange(n_frames, dtype=np.float64),
        np.arange(n_frames),
        np.zeros((1, 6), dtype=np.float32),
        facts={"dataset": array.name, "units": f"length {known.used['length']}"},
        notes=[f"{array.name}: {COUNTED}", *known.notes],
    )


def looks_like_positions(array: Array) -> bool:
    """Whether a dataset may be one of positions: three numbers for each atom of each frame.

    Parameters
    ----------
    array : Array
        The dataset.

    Returns
    -------
    bool
    """
    shape = array.shape
    if array.is_text or array.dtype.kind not in "iuf" or len(shape) not in (2, 3):
        return False
    return shape[2] == 3 if len(shape) == 3 else shape[1] % 3 == 0 and shape[1] > 0
