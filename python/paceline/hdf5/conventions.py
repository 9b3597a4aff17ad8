"""What is in an HDF5 file, whether or not it can be read as a trajectory."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np

from paceline.errors import PacelineError, UnsupportedError
from paceline.hdf5 import amber, h5md, mdtraj
from paceline.hdf5.chunk_index import COUNTED, Catalogue, Element
from paceline.hdf5.dataset import dataset_of
from paceline.hdf5.elements import unit_of
from paceline.hdf5.file import Array, File
from paceline.hdf5.units import Units, units_given


def catalogue_of_dataset(file: File, *, dataset: str, units: dict[str, str]) -> Catalogue:
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


#: Datasets that an error names at most.
_NAMED = 8


def catalogue_of(
    file: File,
    *,
    group: str | None = None,
    units: str | Mapping[str, str] | None = None,
    dataset: str | None = None,
) -> Catalogue:
    """What an HDF5 file holds, whoever wrote it.

    Parameters
    ----------
    file : File
        The file.
    group : str, optional
        Of an H5MD file with several groups of particles, the one to be read.
    units : str or mapping, optional
        Units that the file does not state, or states wrongly: `{"length": "nm", "time": "ps"}`,
        also of "velocity" and "force"; or the units alone, "nm, ps".
    dataset : str, optional
        Of a file of no convention, the dataset of positions: (frames, atoms, 3), or
        (frames, 3 × atoms).

    Returns
    -------
    Catalogue

    Raises
    ------
    UnsupportedError
        The file is of no kind that we read, holds what we do not read, or does not say what its
        numbers mean.
    MissingDataError
        It holds no positions, velocities or forces.
    DamagedFileError
        It contradicts itself, or cannot be read.
    """
    given = units_given(units)
    if dataset is not None:
        if group is not None:
            raise UnsupportedError(
                f"{file.path}: group= (--particles) and dataset= (--dataset) exclude each other"
            )
        return catalogue_of_dataset(file, dataset=dataset, units=given)
    root = file.root
    if "particles" in root or "h5md" in root:
        return h5md.catalogue_of(file, group=group, units=given)
    if group is not None:
        raise UnsupportedError(
            f"{file.path}: group= (--particles) is for H5MD files, and this is none"
        )
    if mdtraj.is_mdtraj(file):
        return mdtraj.catalogue_of(file, units=given)
    if amber.is_netcdf(root.attrs):
        if given:
            raise UnsupportedError(
                f"{file.path}: units= (--units) is for files that state none of their own"
            )
        return amber.catalogue_of(file)
    raise UnsupportedError(f"{file.path}: {_what_to_do(file)}")


def _what_to_do(file: File) -> str:
    nodes = list(file.root.walk())
    nested = [node.name for node in nodes if node.name.endswith("/h5md")]
    if nested:
        return (
            f"its H5MD structure begins at {nested[0].removesuffix('/h5md')}, and only one at the "
            "root of the file is read"
        )
    names = [
        node.name.lstrip("/")
        for node in nodes
        if isinstance(node, Array) and looks_like_positions(node)
    ]
    if not names:
        return "an HDF5 file with no trajectory: neither H5MD, nor MDTraj's, nor Amber's"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        "an HDF5 file of no convention that we know; to read a dataset as positions, name it "
        f"with dataset= (--dataset): {', '.join(map(repr, names[:_NAMED]))}{more}"
    )


#: Datasets that are shown.
_SHOWN = 60


def outline_of(path: str | os.PathLike) -> list[tuple[str, str]]:
    """Datasets of a file, the first 60.

    Parameters
    ----------
    path : path-like
        An HDF5 file.

    Returns
    -------
    list of (str, str)
        The path of each in the file, and type, shape and unit in words.

    Raises
    ------
    UnsupportedError
        It is no HDF5 file, or open for writing.
    DamagedFileError
        It cannot be opened.
    """
    with File(path) as file:
        return list(islice(_datasets(file), _SHOWN))


def _datasets(file: File) -> Iterator[tuple[str, str]]:
    for node in file.root.walk():
        with contextlib.suppress(PacelineError):
            if isinstance(node, Array):
                yield node.name, _in_words(node)
    yield from (("not followed", what) for what in file.left_out)


def _in_words(array: Array) -> str:
    kind = "text" if array.is_text else array.dtype.name
    shape = f" of {array.shape}" if array.shape else ""
    unit = unit_of(array)
    return f"{kind}{shape}, {unit}" if unit else f"{kind}{shape}"
