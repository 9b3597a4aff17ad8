"""Whose HDF5 file it is."""

from collections.abc import Mapping

from paceline.errors import UnsupportedError
from paceline.hdf5 import amber, bare, h5md, mdtraj
from paceline.hdf5.catalogue import Catalogue
from paceline.hdf5.native import Array, File
from paceline.hdf5.units import units_given

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
        return bare.catalogue_of(file, dataset=dataset, units=given)
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
        if isinstance(node, Array) and bare.looks_like_positions(node)
    ]
    if not names:
        return "an HDF5 file with no trajectory: neither H5MD, nor MDTraj's, nor Amber's"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        "an HDF5 file of no convention that we know; to read a dataset as positions, name it "
        f"with dataset= (--dataset): {', '.join(map(repr, names[:_NAMED]))}{more}"
    )
